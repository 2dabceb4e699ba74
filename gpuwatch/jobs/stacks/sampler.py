"""Takes samples of the Python stacks of several processes at once."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpuwatch.jobs.stacks import access
from gpuwatch.jobs.stacks.py_spy import PySpy, main_thread, parse_errors
from gpuwatch.jobs.stacks.source import JobSource
from gpuwatch.jobs.stacks.summary import StackReport, shares_of
from gpuwatch.sources.linux import procfs

SECONDS = 10
RATE_PER_SECOND = 20
RATE_MOST = 100
AT_ONCE = 8
"""As many GPUs as most machines have; more processes are sampled in turns."""
POLL_SECONDS = 0.1


class StackTarget(NamedTuple):
    """A process to sample. With its start time, another one of the same PID is recognised."""

    pid: int
    started_at_unix_seconds: float | None = None
    rank: int | None = None
    role: str = "rank"
    command: str | None = None


@dataclass(slots=True)
class _Run:
    """One target, and the py-spy that samples it or why there is none."""

    target: StackTarget
    started_at: float | None = None
    """When the sampled process started, unix seconds."""
    inner_pids: tuple[int, ...] = ()
    py_spy: PySpy | None = None
    refusal: str | None = None
    report: StackReport | None = None

    @property
    def running(self) -> bool:
        return self.py_spy is not None and not self.py_spy.ended


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
        at_once: int = AT_ONCE,
        py_spy: str | None = None,
    ) -> None:
        self._targets = list({target.pid: target for target in targets}.values())
        self._seconds = max(1, seconds)
        self._rate = min(max(1, rate_per_second), RATE_MOST)
        self._at_once = max(1, at_once)
        self._py_spy = py_spy
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
        """The rest of that, by the clock."""
        if not self._runs:
            return float(self.seconds_in_all)
        return max(0.0, self._began_at + self.seconds_in_all - time.monotonic())

    def start(self) -> None:
        """Start sampling the first targets. Targets that cannot be sampled are done at once."""
        if self._runs:
            return
        self._py_spy = self._py_spy or access.find_py_spy()
        # mkdtemp gives 0700: stacks say much about a program, and it may be another user's.
        self._folder = Path(tempfile.mkdtemp(prefix="gpuwatch-stacks-"))
        self._runs = [_Run(target) for target in self._targets]
        self._began_at = time.monotonic()
        self._start_more()

    def _spies(self) -> list[PySpy]:
        return [run.py_spy for run in self._runs if run.py_spy is not None]

    def poll(self) -> bool:
        """See who has ended, start the next, end who is late; whether all are done."""
        for py_spy in self._spies():
            py_spy.poll()
        self._start_more()
        return not any(run.running or self._is_waiting(run) for run in self._runs)

    def stop(self) -> None:
        """End soon, with what was sampled so far: ``poll()`` until it is true."""
        self._stopping = True
        for py_spy in self._spies():
            py_spy.interrupt()

    def reports(self) -> tuple[StackReport, ...]:
        """One for each target, in their order. Call it once all are done: it reads what was
        sampled and source files, some tens of milliseconds. Kept when the files are removed."""
        for run in self._runs:
            run.report = run.report or self._make_report(run)
        return tuple([run.report for run in self._runs if run.report is not None])

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
        for py_spy in self._spies():
            py_spy.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _is_waiting(self, run: _Run) -> bool:
        return run.py_spy is None and run.refusal is None and not self._stopping

    def _start_more(self) -> None:
        for run in self._runs:
            if sum(other.running for other in self._runs) >= self._at_once:
                return
            if self._is_waiting(run):
                run.refusal = self._launch(run)

    def _launch(self, run: _Run) -> str | None:
        """Why it cannot be sampled, as a sentence."""
        program, pid = self._py_spy, run.target.pid
        if program is None or self._folder is None:
            return access.INSTALL
        run.started_at = procfs.read_start(pid)
        asked = run.target.started_at_unix_seconds
        if asked is not None and run.started_at not in {None, asked}:
            return f"Process {pid} has ended; another one has its PID now."
        why = access.why_not(pid, program)
        if why is not None:
            return why
        run.inner_pids = procfs.inner_pids(pid)
        try:
            run.py_spy = PySpy(
                program,
                pid,
                self._folder,
                seconds=self._seconds,
                rate_per_second=self._rate,
            )
        except OSError as error:
            return f"py-spy ({program}) cannot be started: {error.strerror}."
        return None

    def _make_report(self, run: _Run) -> StackReport:
        target, py_spy = run.target, run.py_spy
        if py_spy is None:
            return StackReport(
                **target._asdict(),
                problem=run.refusal or f"Process {target.pid} was not sampled: stopped before.",
                refused=True,
            )
        words = py_spy.words
        found = main_thread(py_spy.stacks(), [*reversed(run.inner_pids), target.pid])
        samples, errors = sum(stack.samples for stack in found), parse_errors(words)
        source = JobSource(target.pid, run.started_at)
        known = target._replace(started_at_unix_seconds=run.started_at)
        return StackReport(
            **known._asdict(),
            seconds=py_spy.seconds,
            rate_per_second=self._rate,
            samples=samples,
            errors=errors,
            shares=shares_of(found, errors, source.line) if samples else (),
            cpu_seconds=py_spy.cpu_seconds,
            ended="process exited" in words,
            problem=None if samples else _why_nothing(target.pid, py_spy, errors),
            refused=not samples and access.is_refusal(words),
        )


def _why_nothing(pid: int, py_spy: PySpy, errors: int) -> str:
    words = py_spy.words
    if errors:
        return (
            f"None of {errors} attempts to read the stack of process {pid} succeeded: it changes "
            "too fast."
        )
    if py_spy.was_interrupted:
        return f"Stopped before the stack of process {pid} was read."
    if "process exited" in words:
        return f"Process {pid} ended before its stack could be read."
    if "Sampling process" in words:
        return f"Process {pid} runs no Python code in its main thread."
    return access.explain_failure(pid, words)
