"""Real child processes for tests, ended whatever happens."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return as soon as ``condition`` holds; the limit is only there to end a failing test."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it never came true")
        time.sleep(pause)
        # To ask may cost what the others need to make it true.
        pause = min(1.5 * pause, 0.05)


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
