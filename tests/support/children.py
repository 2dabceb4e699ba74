"""Real child processes for tests, ended whatever happens."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psutil

from gpuwatch.jobs.identity.process_facts import read_all
from gpuwatch.sources.linux.procfs import ProcessStat


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Return as soon as ``condition`` holds; the limit is only there to end a failing test."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while True:
        asked = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > deadline:
            raise AssertionError("it never came true")
        # To ask may cost what the others need to make it true: at most half of the time goes there.
        time.sleep(max(pause, min(now - asked, 1.0)))
        pause = min(1.5 * pause, 0.05)


def ran(
    *arguments: str, under: Sequence[str] = (), **settings: Any
) -> subprocess.CompletedProcess[str]:
    """``UNDER python ARGUMENTS``, run to its end with no terminal anywhere."""
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*under, sys.executable, *arguments]
    return subprocess.run(command, text=True, check=False, **({"timeout": 120} | given | settings))


def children_of(parent: int) -> dict[int, ProcessStat]:
    """Those that this process started and that have not ended."""
    seen = read_all().items()
    return {pid: one for pid, one in seen if one.parent_pid == parent and one.state not in "ZX"}


def is_gone(process: psutil.Process) -> bool:
    """Return whether it has ended, even where nobody has asked how."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


def open_files() -> set[tuple[str, str]]:
    """Of this process: their numbers, and what they are open on. (What earlier tests left to be
    tidied up may be closed at any time.)"""
    found = set()
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - by number
        # But the one that the listing itself needed.
        with contextlib.suppress(FileNotFoundError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))  # noqa: PTH115
    return found


class Children:
    """Starts processes that say a line when they are ready."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def python(self, code: str, *arguments: str | bytes) -> subprocess.Popen[bytes]:
        """Run ``code``, which has ``ready(text="")`` to call and then ``wait()``."""
        prelude = (
            "import os, sys, time\n"
            "def ready(text=''):\n    os.write(1, f'{text}\\n'.encode())\n"
            "def wait():\n    sys.stdin.read()\n"
        )
        return self.run([sys.executable, "-S", "-c", prelude + code, *arguments])

    def waiting(self, code: str = "", *arguments: str | bytes) -> subprocess.Popen[bytes]:
        """One that has run ``code``, and waits."""
        child = self.python(f"{code}\nready()\nwait()\n", *arguments)
        self.ready(child)
        return child

    def run(self, command: list[str | bytes] | list[str]) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._started.append(child)
        return child

    def ready(self, child: subprocess.Popen[bytes]) -> str:
        """What the child said when it was ready."""
        assert child.stdout is not None
        return child.stdout.readline().decode().strip()

    def end(self) -> None:
        for child in self._started:
            # Its session holds its own children too.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()


@contextlib.contextmanager
def children() -> Iterator[Children]:
    started = Children()
    try:
        yield started
    finally:
        started.end()
