"""One py-spy that samples one process, and what it prints.

py-spy (https://github.com/benfred/py-spy) reads the memory of another process; it is a program
of its own and never imported. It runs non-blocking: the process is never stopped, and a stack that
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

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gpuwatch.jobs.stacks.categories import Frame
from gpuwatch.sources.linux import procfs

LATE_SECONDS = 20.0
"""py-spy tries a process that is just starting again and again, and falls behind where it gets
no CPU; after this much more than asked it is asked to end."""
ENDING_SECONDS = 3.0
"""Time to write what it has."""


class PySpy:
    """Started at once; ``poll`` until it has ended. Raises ``OSError`` where it cannot start."""

    def __init__(
        self,
        program: str,
        pid: int,
        folder: Path,
        *,
        seconds: int,
        rate_per_second: int,
    ) -> None:
        self._raw, self._log = folder / f"{pid}.raw", folder / f"{pid}.log"
        self._late_after = seconds + LATE_SECONDS
        self._started_at = time.monotonic()
        self._ended_at: float | None = None
        self.cpu_seconds: float | None = None
        self._interrupted_at: float | None = None
        command = [
            program, "record", f"--pid={pid}", "--format=raw", f"--rate={rate_per_second}",
            f"--duration={seconds}", "--threads", "--full-filenames", f"--output={self._raw}",
            # Waiting threads too: waiting is what is looked for.
            "--idle", "--nonblocking",
        ]  # fmt: skip
        path = os.environ.get("PATH", os.defpath)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._child = os.posix_spawn(
            program,
            command,
            {"PATH": path, "LC_ALL": "C.UTF-8", "RUST_BACKTRACE": "0"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self._log), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            # A Ctrl-C at the terminal is for gpuwatch, which decides what becomes of the samples.
            setpgroup=0,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
        )

    @property
    def ended(self) -> bool:
        return self._ended_at is not None

    @property
    def was_interrupted(self) -> bool:
        return self._interrupted_at is not None

    @property
    def seconds(self) -> float:
        end = time.monotonic() if self._ended_at is None else self._ended_at
        return end - self._started_at

    @property
    def words(self) -> str:
        """Its output beside the samples."""
        return _read_text(self._log, 1 << 16)

    def stacks(self) -> list[Stack]:
        return parse_raw(_read_text(self._raw, TEXT_LENGTH))

    def poll(self) -> bool:
        """True if it has ended; ends it if it is late."""
        if self.ended or self._reap():
            return True
        now = time.monotonic()
        if self._interrupted_at is not None:
            if now - self._interrupted_at > ENDING_SECONDS:
                self.kill()
        elif now - self._started_at > self._late_after:
            self.interrupt()
        return self.ended

    def interrupt(self) -> None:
        """It writes what it has then."""
        if not self.ended and self._interrupted_at is None:
            self._interrupted_at = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGINT)

    def kill(self) -> None:
        if self.ended:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        self._reap(0)

    def _reap(self, options: int = os.WNOHANG) -> bool:
        """True if it has ended, its CPU time noted."""
        try:
            pid, _status, usage = os.wait4(self._child, options)
        except ChildProcessError:
            # Somebody else in this process has waited for it.
            pid, usage = self._child, None
        if pid == 0:
            return False
        self._ended_at = time.monotonic()
        if usage is not None:
            self.cpu_seconds = usage.ru_utime + usage.ru_stime
        return True


_ERRORS = re.compile(r"Samples: \d+ Errors: (\d+)")


def parse_errors(words: str) -> int:
    """How many attempts py-spy says have failed. Its ``Samples`` are counted for each thread and
    of no use here."""
    found = _ERRORS.search(words)
    return int(found[1]) if found else 0


def _read_text(path: Path, limit: int) -> str:
    # Names in stacks are the program's; surrogates are made visible by ``clean``.
    return procfs.read_if_possible(path, limit).decode("utf-8", "surrogateescape")


class Stack(NamedTuple):
    """One distinct stack of one thread, outermost frame first, and how often it was seen."""

    thread: str
    """py-spy's number of the thread: the kernel's (3.11 on) or ``0x`` and the pthread's."""
    name: str
    frames: tuple[Frame, ...]
    samples: int


_RECORD = re.compile(r"^(?=thread \()", re.MULTILINE)
_THREAD = re.compile(r"thread \((0x[0-9A-Fa-f]+|\d+)\)(?:: ([^;]*))?;")
# Function names and file names can hold anything, so the shortest text is taken that ends as a
# frame must end.
_FRAME = re.compile(r"(.*?) \((.*?)(?::(-?\d+))?\)(?:;|\Z)", re.DOTALL)

TEXT_LENGTH = 16 << 20
RECORD_LENGTH = 1 << 20
"""Longer ones (a runaway recursion of hostile names) are left out."""


def parse_raw(text: str) -> list[Stack]:
    """The stacks in py-spy's ``raw`` format with thread ids: a line for each distinct stack,

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
    """The stacks of the main thread.

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
