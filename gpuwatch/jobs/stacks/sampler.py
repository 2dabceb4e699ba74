"""Takes samples of the Python stacks of several processes at once, with py-spy.

py-spy (https://github.com/benfred/py-spy) reads the memory of another process; it is a program
of its own and never imported. One runs for each process, non-blocking: the process is never
stopped, and a stack that changes while it is read gives an error (counted) or a torn stack. The
other way, ``pause=True``, stops all threads of the process for about a millisecond a sample.

``--native``, which would show the C functions under ``.item()`` or ``backward()``, is not used:
py-spy refuses it without stopping the process, has to unwind through libtorch's gigabyte of code
and took 1.2 s of CPU time to start where it otherwise takes 0.03 s. The source line of the
innermost frame says the same without that.

Measured with py-spy 0.4.3 at 20 samples a second: 1.2-2.4% of a core for each process sampled; a
busy Python loop did as many turns in a second of CPU time with it as without, to within 0.8% (the
standard error of 40 pairs), also at 100 samples a second.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.source import Clock, SystemClock
from gpuwatch.jobs.stacks import access as stack_access
from gpuwatch.jobs.stacks import summary as stacks
from gpuwatch.jobs.stacks.source import JobSource
from gpuwatch.jobs.stacks.summary import StackCost, StackReport
from gpuwatch.sources.linux import procfs

SECONDS = 10
RATE_PER_SECOND = 20
RATE_MOST = 100
AT_ONCE = 8
"""As many GPUs as most machines have; more processes are sampled in turns."""

LATE_SECONDS = 20.0
"""py-spy tries a process that is just starting again and again, and falls behind where it gets
no CPU; after this much more than asked it is told to end."""
ENDING_SECONDS = 3.0
"""What it gets to write what it has."""
POLL_SECONDS = 0.1


class StackTarget(NamedTuple):
    """A process to sample. With its start time, another one of the same PID is told apart."""

    pid: int
    started_at_unix_seconds: float | None = None
    rank: int | None = None
    role: str = "rank"
    command: str | None = None


@dataclass(slots=True)
class _Run:
    """One target and the py-spy that samples it."""

    target: StackTarget
    folder: Path
    started_at: float | None = None
    ended_at: float | None = None
    child: int | None = None
    """The PID of py-spy while it runs."""
    cpu_seconds: float | None = None
    interrupted_at: float | None = None
    target_started_at: float | None = None
    """When the sampled process started, unix seconds."""
    inner_pids: tuple[int, ...] = ()
    refusal: str | None = None
    report: StackReport | None = field(default=None)

    @property
    def output(self) -> Path:
        return self.folder / f"{self.target.pid}.raw"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.target.pid}.log"

    @property
    def done(self) -> bool:
        return self.refusal is not None or self.ended_at is not None


class StackSampler:
    """Samples ``targets``; ``poll()`` moves it on and never blocks.

    For a plain program: ``with StackSampler(targets) as sampler: reports = sampler.wait()``. In
    asyncio: ``reports = await sampler.run()``, which may be cancelled. Or call ``start()``, then
    ``poll()`` until it is true, then ``reports()``. Whatever happens, ``close()`` ends what still
    runs and removes the files. Not for use from several threads at once.

    A process that cannot be sampled gets a report with a ``problem``; nothing is raised for it.
    """

    def __init__(
        self,
        targets: Sequence[StackTarget],
        *,
        seconds: int = SECONDS,
        rate_per_second: int = RATE_PER_SECOND,
        pause: bool = False,
        at_once: int = AT_ONCE,
        py_spy: str | None = None,
        clock: Clock | None = None,
        proc: Path = procfs.PROC,
    ) -> None:
        self._targets = list({target.pid: target for target in targets}.values())
        self._seconds = max(1, seconds)
        self._rate = min(max(1, rate_per_second), RATE_MOST)
        self._pause = pause
        self._at_once = max(1, at_once)
        self._py_spy = py_spy
        self._clock = clock or SystemClock()
        self._proc = proc
        self._folder: Path | None = None
        self._runs: list[_Run] = []
        self._stopping = False
        self._began_at = 0.0

    def __enter__(self) -> StackSampler:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def seconds_in_all(self) -> int:
        """How long it takes: all targets at once, or in turns."""
        turns = -(-len(self._targets) // self._at_once)
        return self._seconds * max(1, turns)

    @property
    def seconds_left(self) -> float:
        """What is left of that, by the clock."""
        if not self._runs:
            return float(self.seconds_in_all)
        return max(0.0, self._began_at + self.seconds_in_all - self._clock.monotonic())

    def start(self) -> None:
        """Start sampling the first targets. Targets that cannot be sampled are done at once."""
        if self._runs:
            return
        py_spy = self._py_spy or stack_access.find_py_spy()
        # mkdtemp gives 0700: stacks tell about a program, and it may be another user's.
        self._folder = Path(tempfile.mkdtemp(prefix="gpuwatch-stacks-"))
        self._runs = [_Run(target, self._folder) for target in self._targets]
        self._began_at = self._clock.monotonic()
        if py_spy is None:
            for run in self._runs:
                run.refusal = stack_access.install_sentence()
        self._py_spy = py_spy
        if not self._stopping:
            self._start_more()

    def poll(self) -> bool:
        """See who has ended, start the next, end who is late; whether all are done."""
        now = self._clock.monotonic()
        for run in self._runs:
            if run.child is not None and not self._reap(run):
                self._end_if_late(run, now)
        if not self._stopping:
            self._start_more()
        return all(run.done or (self._stopping and run.child is None) for run in self._runs)

    def stop(self) -> None:
        """End soon, with what was sampled so far: ``poll()`` until it is true."""
        self._stopping = True
        for run in self._runs:
            self._interrupt(run)

    def reports(self) -> tuple[StackReport, ...]:
        """One for each target, in their order. Call it once all are done: it reads what was
        sampled and source files, some tens of milliseconds. Kept when the files are removed."""
        return tuple([self._report(run) for run in self._runs])

    def wait(self) -> tuple[StackReport, ...]:
        """Sample to the end and give the reports. On ``KeyboardInterrupt`` call ``stop()`` and
        ``wait()`` again, or ``close()``."""
        self.start()
        while not self.poll():
            time.sleep(POLL_SECONDS)
        return self.reports()

    async def run(self) -> tuple[StackReport, ...]:
        """The same without blocking the event loop. Closes the sampler; may be cancelled."""
        import asyncio  # noqa: PLC0415 - a plain command does without it

        try:
            self.start()
            while not self.poll():  # noqa: ASYNC110 - a child's end is no asyncio event
                await asyncio.sleep(POLL_SECONDS)
            return await asyncio.to_thread(self.reports)
        finally:
            self.close()

    def close(self) -> None:
        """End every py-spy that still runs and remove the files. Reports made before stay."""
        for run in self._runs:
            if run.child is not None:
                self._kill(run)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _start_more(self) -> None:
        running = sum(run.child is not None for run in self._runs)
        for run in self._runs:
            if running >= self._at_once:
                return
            if run.started_at is None and not run.done:
                self._launch(run)
                running += run.child is not None

    def _launch(self, run: _Run) -> None:
        assert self._py_spy is not None
        pid = run.target.pid
        run.target_started_at = self._started_at(pid)
        asked = run.target.started_at_unix_seconds
        if asked is not None and run.target_started_at not in {None, asked}:
            run.refusal = f"Process {pid} has ended; another one has its PID now."
            return
        run.refusal = stack_access.why_not(pid, self._py_spy, self._proc)
        if run.refusal is not None:
            return
        run.inner_pids = procfs.inner_pids(pid, self._proc)
        run.started_at = self._clock.monotonic()
        try:
            run.child = self._spawn(run)
        except OSError as error:
            run.refusal = f"py-spy ({self._py_spy}) cannot be started: {error.strerror}."

    def _spawn(self, run: _Run) -> int:
        assert self._py_spy is not None
        command = [
            self._py_spy,
            "record",
            f"--pid={run.target.pid}",
            "--format=raw",
            f"--rate={self._rate}",
            f"--duration={self._seconds}",
            # Waiting threads too: waiting is what is looked for.
            "--idle",
            "--threads",
            "--full-filenames",
            f"--output={run.output}",
        ]
        if not self._pause:
            command.append("--nonblocking")
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C.UTF-8",
            "RUST_BACKTRACE": "0",
        }
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        return os.posix_spawn(
            self._py_spy,
            command,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(run.log), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            # A Ctrl-C at the terminal is for gpuwatch, which decides what becomes of the samples.
            setpgroup=0,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
        )

    def _started_at(self, pid: int) -> float | None:
        try:
            stat = procfs.parse_process_stat(procfs.read_once(self._proc / str(pid) / "stat", 1024))
        except (OSError, ValueError):
            return None
        return procfs.start_unix_seconds(stat, self._proc)

    def _reap(self, run: _Run, options: int = os.WNOHANG) -> bool:
        """Whether this py-spy has ended, its CPU time noted."""
        assert run.child is not None
        try:
            pid, _status, usage = os.wait4(run.child, options)
        except ChildProcessError:
            # Somebody else in this process has waited for it.
            pid, usage = run.child, None
        if pid == 0:
            return False
        run.child = None
        run.ended_at = self._clock.monotonic()
        if usage is not None:
            run.cpu_seconds = usage.ru_utime + usage.ru_stime
        return True

    def _end_if_late(self, run: _Run, now: float) -> None:
        assert run.child is not None
        assert run.started_at is not None
        if run.interrupted_at is not None:
            if now - run.interrupted_at > ENDING_SECONDS:
                self._kill(run)
        elif now - run.started_at > self._seconds + LATE_SECONDS:
            self._interrupt(run)

    def _interrupt(self, run: _Run) -> None:
        """py-spy writes what it has when it is interrupted."""
        if run.child is not None and run.interrupted_at is None:
            run.interrupted_at = self._clock.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(run.child, signal.SIGINT)

    def _kill(self, run: _Run) -> None:
        assert run.child is not None
        with contextlib.suppress(ProcessLookupError):
            # One that has stopped the job for a sample must not die before it lets it go on.
            os.kill(run.child, signal.SIGINT if self._pause else signal.SIGKILL)
            if self._pause and not self._ends_within(run, ENDING_SECONDS):
                os.kill(run.child, signal.SIGKILL)
        if run.child is not None:
            self._reap(run, 0)

    def _ends_within(self, run: _Run, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._reap(run):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _report(self, run: _Run) -> StackReport:
        if run.report is None:
            run.report = self._make_report(run)
        return run.report

    def _make_report(self, run: _Run) -> StackReport:
        target = run.target
        if run.refusal is not None or run.started_at is None:
            return StackReport(
                pid=target.pid,
                started_at_unix_seconds=target.started_at_unix_seconds,
                rank=target.rank,
                role=target.role,
                command=target.command,
                problem=run.refusal or f"Process {target.pid} was not sampled: stopped before.",
                refused=True,
            )
        said = _read_text(run.log, 1 << 16)
        found = stacks.main_thread(
            stacks.parse_raw(_read_text(run.output, stacks.TEXT_LENGTH)),
            [*reversed(run.inner_pids), target.pid],
        )
        samples = sum(stack.samples for stack in found)
        errors = parse_errors(said)
        source = JobSource(target.pid, run.target_started_at, self._proc)
        seconds = (run.ended_at or self._clock.monotonic()) - run.started_at
        return StackReport(
            pid=target.pid,
            started_at_unix_seconds=run.target_started_at,
            rank=target.rank,
            role=target.role,
            command=target.command,
            seconds=seconds,
            rate_per_second=self._rate,
            samples=samples,
            errors=errors,
            torn=stacks.torn_count(found),
            shares=stacks.shares_of(found, errors, source.line) if samples else (),
            cost=_cost(run.cpu_seconds, seconds, self._pause),
            ended="process exited" in said,
            problem=None if samples else _why_nothing(run, said, errors),
            refused=not samples and stack_access.is_refusal(said),
        )


def _why_nothing(run: _Run, said: str, errors: int) -> str:
    pid = run.target.pid
    if errors:
        return (
            f"None of {errors} attempts to read the stack of process {pid} succeeded: it changes "
            "too fast. Try --pause, which stops the process for each sample."
        )
    if run.interrupted_at is not None:
        return f"Stopped before the stack of process {pid} was read."
    if "process exited" in said:
        return f"Process {pid} ended before its stack could be read."
    if "Sampling process" in said:
        return f"Process {pid} runs no Python code in its main thread."
    return stack_access.explain_failure(pid, said)


def _cost(cpu_seconds: float | None, seconds: float, pause: bool) -> StackCost:
    if cpu_seconds is None or seconds <= 0:
        return StackCost(paused=pause)
    return StackCost(
        cpu_seconds=cpu_seconds, cpu_percent=100.0 * cpu_seconds / seconds, paused=pause
    )


_ERRORS = re.compile(r"Samples: \d+ Errors: (\d+)")


def parse_errors(said: str) -> int:
    """How many attempts py-spy says have failed. Its ``Samples`` are counted for each thread and
    of no use here."""
    found = _ERRORS.search(said)
    return int(found[1]) if found else 0


def _read_text(path: Path, limit: int) -> str:
    try:
        # Names in stacks are the program's; surrogates are made visible by ``clean``.
        return procfs.read_whole(path, limit).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
