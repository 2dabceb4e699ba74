"""Sample the Python stacks of several processes at once, with py-spy.

py-spy (https://github.com/benfred/py-spy) reads the memory of another process; it is a program of
its own and never imported. It runs non-blocking: the process is never stopped, and a stack that
changes while it is read gives an error (counted) or a torn stack.

``--native``, which would show the C functions under ``.item()`` or ``backward()``, is not used:
py-spy refuses it without stopping the process, has to unwind through libtorch's gigabyte of code
and took 1.2 s of CPU time to start where it otherwise takes 0.03 s. The source line of the
innermost frame says the same without that.

Measured with py-spy 0.4.3 at 20 samples a second: 1.2-2.4% of a core for each process sampled; a
busy Python loop did as many turns in a second of CPU time with it as without, to within 0.8% (the
standard error of 40 pairs), also at 100 samples a second.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.model import Job, JobMember
from gpuwatch.core.text import clean
from gpuwatch.jobs.stacks.categories import Frame, Stack
from gpuwatch.jobs.stacks.report import JobSource, StackReport, shares_of
from gpuwatch.sources.linux import procfs

SECONDS = 10
RATE_PER_SECOND = 20
AT_MOST = 16
"""Processes sampled, one py-spy each: as many GPUs as a machine has."""
POLL_SECONDS = 0.1
LATE_SECONDS = 20.0
"""py-spy tries a process that is just starting again and again, and falls behind where it gets
no CPU; after this much more than asked it is asked to end."""
ENDING_SECONDS = 3.0
"""Time to write what it has."""

# Whether stacks can be taken

INSTALL = (
    "Stacks are taken by py-spy, which is not installed: add it to gpuwatch's own environment with "
    "pip install py-spy, or, if gpuwatch was installed by pipx, pipx inject gpuwatch-tui py-spy."
)
_NOT_ALLOWED = (
    "The memory of process {pid} may not be read: run gpuwatch as root (in a container, with the "
    "capability SYS_PTRACE), or, where the process is your own, allow it with sudo sysctl "
    "kernel.yama.ptrace_scope=0."
)


def find_py_spy(folders: Sequence[str] | None = None, path: str | None = None) -> str | None:
    """Return the program py-spy: in ``folders`` (those of our own environment), else on ``path``
    (the environment's ``PATH``)."""
    import sysconfig  # noqa: PLC0415 - only when stacks are asked for

    if folders is None:
        folders = (sysconfig.get_path("scripts"), os.path.dirname(sys.executable))  # noqa: PTH120
    places = [*filter(None, folders), path]
    return next(filter(None, (shutil.which("py-spy", path=place) for place in places)), None)


def why_not(pid: int, py_spy: str) -> str | None:
    """Say why the stacks of ``pid`` cannot be taken, in a sentence with what to do; ``None``: they
    can, as far as can be known before py-spy is started."""
    stat = procfs.read_stat(pid)
    if stat is None or (stat.state in "ZX" and stat.threads <= 1):
        return f"Process {pid} has ended."
    if stat.state in "Tt":
        return (
            f"Process {pid} is stopped (by Ctrl-Z, SIGSTOP or a debugger), so its stack does not "
            f"change: continue it with kill -CONT {pid}."
        )
    try:
        # Those that setcap gives it.
        has_rights = bool(os.getxattr(py_spy, "security.capability"))
    except OSError:
        has_rights = False
    return None if has_rights or may_read_memory(pid) else _NOT_ALLOWED.format(pid=pid)


def may_read_memory(pid: int) -> bool:
    """Ask whether the kernel lets us read the memory of ``pid``; one that has ended counts as
    readable.

    The check is the one that py-spy's process_vm_readv(2) meets (PTRACE_MODE_ATTACH); nothing is
    read."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in (errno.ESRCH, errno.ENOENT)
    return True


# Which processes are sampled


def job_targets(
    job: Job, selected: JobMember | None = None, *, workers: bool = False
) -> list[JobMember]:
    """Return the job's ranks in their order, each followed by one of its loader workers if
    ``workers``; where no rank is known, ``selected`` or the topmost process."""
    targets = []
    for rank in job.having("rank"):
        targets.append(rank)
        targets += _workers_of(job, rank)[:1] if workers else []
    return targets or ([selected] if selected is not None else list(job.members[:1]))


def _workers_of(job: Job, rank: JobMember) -> list[JobMember]:
    below = {rank.pid}
    found = []
    # Parents come before their children; a fork server stands between a rank and its workers.
    for member in job.members:
        if member.parent_pid in below:
            below.add(member.pid)
            if member.role == "loader_worker" and not member.orphaned:
                found.append(member)
    return found


# One py-spy


class _PySpy:
    """One py-spy, started at once. Raises ``OSError`` where it cannot start."""

    def __init__(
        self, program: str, pid: int, process_started_at: float | None, folder: Path, seconds: int
    ) -> None:
        self.process_started_at = process_started_at
        self.inner_pids = procfs.inner_pids(pid)
        self._raw, self._log = folder / f"{pid}.raw", folder / f"{pid}.log"
        self._started_at = time.monotonic()
        self._ended_at: float | None = None
        self.cpu_seconds: float | None = None
        command = [
            program, "record", f"--pid={pid}", "--format=raw", f"--rate={RATE_PER_SECOND}",
            f"--duration={seconds}", "--threads", "--full-filenames", f"--output={self._raw}",
            # Waiting threads too: waiting is what is looked for.
            "--idle", "--nonblocking",
        ]  # fmt: skip
        path = os.environ.get("PATH", os.defpath)
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                command,
                env={"PATH": path, "LC_ALL": "C.UTF-8", "RUST_BACKTRACE": "0"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C at the terminal is for gpuwatch, which decides what becomes of the
                # samples.
                process_group=0,
            )

    @property
    def seconds(self) -> float:
        end = time.monotonic() if self._ended_at is None else self._ended_at
        return end - self._started_at

    @property
    def messages(self) -> str:
        """Everything that it printed beside the samples."""
        return _read_text(self._log, 1 << 16)

    def stacks(self) -> list[Stack]:
        return parse_raw(_read_text(self._raw, TEXT_LENGTH))

    def has_ended(self, *, wait: bool = False) -> bool:
        """Ask whether it has ended, and note its CPU time."""
        if self._ended_at is None:
            try:
                pid, _, usage = os.wait4(self._child.pid, 0 if wait else os.WNOHANG)
            except ChildProcessError:
                # Somebody else in this process has waited for it.
                pid, usage = self._child.pid, None
            if pid == 0:
                return False
            self._ended_at, self._child.returncode = time.monotonic(), 0
            if usage is not None:
                self.cpu_seconds = usage.ru_utime + usage.ru_stime
        return True

    def end(self, number: int) -> None:
        """Let it end with what it has sampled (SIGINT), or at once (SIGKILL)."""
        if not self.has_ended():
            os.kill(self._child.pid, number)
            if number == signal.SIGKILL:
                self.has_ended(wait=True)


def _read_text(path: Path, limit: int) -> str:
    # Names in stacks are the program's; surrogates are made visible by ``clean``.
    return procfs.read_if_possible(path, limit).decode("utf-8", "surrogateescape")


_RECORD = re.compile(r"^(?=thread \()", re.MULTILINE)
_THREAD = re.compile(r"thread \((0x[0-9A-Fa-f]+|\d+)\)(?:: ([^;]*))?;")
# Function names and file names can hold anything, so the shortest text is taken that ends as a
# frame must end.
_FRAME = re.compile(r"(.*?) \((.*?)(?::(-?\d+))?\)(?:;|\Z)", re.DOTALL)

TEXT_LENGTH = 16 << 20
RECORD_LENGTH = 1 << 20
"""Longer ones (a runaway recursion of hostile names) are left out."""


def parse_raw(text: str) -> list[Stack]:
    """Return the stacks in py-spy's ``raw`` format with thread ids: a line for each distinct stack,

        ``thread (26003): MainThread;<module> (train.py:9);main (train.py:5) 59``

    Thread, function and file names are the program's and may hold ``;``, parentheses, even line
    ends: what is ambiguous is misread, never an error. Records without frames are left
    out.
    """
    stacks = []
    for record in _RECORD.split(text[:TEXT_LENGTH]):
        body, _, count = record.rstrip().rpartition(" ")
        thread = _THREAD.match(body)
        if thread is None or not (count.isascii() and count.isdecimal() and len(count) < 10):
            continue
        frames, at = [], thread.end()
        while len(body) < RECORD_LENGTH and (found := _FRAME.match(body, at)):
            # 0: py-spy found no line for a torn frame.
            line = int((found[3] or "0")[:9])
            frames.append(Frame(found[1], found[2], line if line > 0 else None))
            at = found.end()
        if frames:
            stacks.append(Stack(thread[1], thread[2] or "", tuple(frames), int(count)))
    return stacks


def main_thread(stacks: Iterable[Stack], pids: Sequence[int]) -> list[Stack]:
    """Return the stacks of the main thread.

    ``pids`` are the process's own numbers, as seen here and in its PID namespace: since Python
    3.11 the main thread is numbered as one of them. Before, it is the one still named so, or
    else the one whose stacks begin with a module.
    """
    by_thread: dict[str, list[Stack]] = {}
    for stack in stacks:
        by_thread.setdefault(stack.thread, []).append(stack)
    for pid in pids:
        if str(pid) in by_thread:
            return by_thread[str(pid)]

    def likeliness(some: list[Stack]) -> tuple[bool, int]:
        modules = [one.samples for one in some if one.frames[0].function == "<module>"]
        return some[0].name == "MainThread", sum(modules)

    return max(by_thread.values(), key=likeliness, default=[])


_ERRORS = re.compile(r"Samples: \d+ Errors: (\d+)")
_FORBIDDEN = re.compile(r"Permission Denied|Operation not permitted|os error 1\b", re.IGNORECASE)


def explain_failure(pid: int, printed: str) -> str:
    """Return a sentence for what py-spy printed when it ended without a result."""
    if found := re.search(r"Unsupported version of Python: ([\w.+-]+)", printed):
        return (
            f"This py-spy does not know the Python {found[1]} of process {pid} yet: "
            "update it with pip install --upgrade py-spy."
        )
    if re.search(r"process is running|process exited|No such process|os error 3\b", printed):
        return f"Process {pid} ended before its stack could be read."
    if _FORBIDDEN.search(printed):
        return _NOT_ALLOWED.format(pid=pid)
    lines = [line.strip() for line in printed.splitlines()]
    said = next((line for line in lines if line.startswith("Error: ")), None)
    said = said or next((line for line in lines if line), "nothing")
    return f"py-spy could not read process {pid}: {clean(said.removeprefix('Error: '), 300)}"


# Several at once


class StackSampler:
    """Samples ``targets``, at most ``AT_MOST`` of them.

    A process that cannot be sampled gets a report with a ``problem``; nothing is raised for it.
    """

    def __init__(
        self, targets: Sequence[JobMember], *, seconds: int = SECONDS, py_spy: str | None = None
    ) -> None:
        self._targets = list({target.pid: target for target in targets}.values())[:AT_MOST]
        self._seconds = max(1, seconds)
        self._program = py_spy
        self._running: list[_PySpy] = []
        self._began_at: float | None = None
        self._stopped_at: float | None = None

    @property
    def seconds_left(self) -> float:
        """Seconds that it takes, and once it has begun the rest of them by the clock."""
        passed = 0.0 if self._began_at is None else time.monotonic() - self._began_at
        return max(0.0, self._seconds - passed)

    def stop(self) -> None:
        """End soon, with what was sampled so far."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            for py_spy in self._running:
                py_spy.end(signal.SIGINT)

    async def run(self) -> tuple[StackReport, ...]:
        """Sample, and return one report for each target, in their order. May be cancelled; however
        it ends, no py-spy and no file is left."""
        import asyncio  # noqa: PLC0415 - a plain command does without it

        self._began_at = time.monotonic()
        program = self._program or find_py_spy()
        # 0700: stacks say much about a program, and it may be another user's.
        with tempfile.TemporaryDirectory(
            prefix="gpuwatch-stacks-", ignore_cleanup_errors=True
        ) as folder:
            began = [self._launch(target, program, Path(folder)) for target in self._targets]
            self._running = [one for one in began if isinstance(one, _PySpy)]
            try:
                # All are asked, so that the end of each is noted.
                while [one for one in self._running if not one.has_ended()]:
                    now = time.monotonic()
                    if now - self._began_at > self._seconds + LATE_SECONDS:
                        self.stop()
                    if self._stopped_at is not None and now - self._stopped_at > ENDING_SECONDS:
                        break
                    await asyncio.sleep(POLL_SECONDS)
                pairs = list(zip(self._targets, began, strict=True))
                # It reads what was sampled, and source files.
                stopped = self._stopped_at is not None
                return await asyncio.to_thread(
                    lambda: tuple([_report(*pair, stopped=stopped) for pair in pairs])
                )
            finally:
                for py_spy in self._running:
                    py_spy.end(signal.SIGKILL)

    def _launch(self, target: JobMember, program: str | None, folder: Path) -> _PySpy | str:
        """Return the py-spy that samples it, or a sentence that says why it cannot be sampled."""
        if program is None:
            return INSTALL
        pid, asked = target.pid, target.started_at_unix_seconds
        started_at = procfs.read_start(pid)
        if asked is not None and started_at not in {None, asked}:
            return f"Process {pid} has ended; another one has its PID now."
        why = why_not(pid, program)
        if why is not None:
            return why
        try:
            return _PySpy(program, pid, started_at, folder, self._seconds)
        except OSError as error:
            return f"py-spy ({program}) cannot be started: {error.strerror}."


def _report(target: JobMember, py_spy: _PySpy | str, *, stopped: bool) -> StackReport:
    whose = StackReport(
        pid=target.pid,
        started_at_unix_seconds=target.started_at_unix_seconds,
        rank=target.rank,
        role=target.role,
        command=target.command,
    )
    if isinstance(py_spy, str):
        return replace(whose, problem=py_spy)
    printed = py_spy.messages
    found = main_thread(py_spy.stacks(), [*reversed(py_spy.inner_pids), target.pid])
    samples = sum(stack.samples for stack in found)
    # py-spy's own ``Samples`` are counted for each thread, and of no use here.
    counted = _ERRORS.search(printed)
    errors = int(counted[1]) if counted else 0
    problem = None
    if errors and not samples:
        problem = (
            f"None of {errors} attempts to read the stack of process {target.pid} succeeded: it "
            "changes too fast."
        )
    elif not samples and stopped:
        problem = f"Stopped before the stack of process {target.pid} was read."
    elif not samples:
        problem = explain_failure(target.pid, printed)
    source = JobSource(target.pid, py_spy.process_started_at)
    return replace(
        whose,
        started_at_unix_seconds=py_spy.process_started_at,
        seconds=py_spy.seconds,
        samples=samples,
        errors=errors,
        shares=shares_of(found, errors, source.line) if samples else (),
        cpu_seconds=py_spy.cpu_seconds,
        ended="process exited" in printed,
        problem=problem,
    )
