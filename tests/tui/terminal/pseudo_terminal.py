"""A program in a pseudo-terminal that a test looks at and types into."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).resolve().parents[3]

_LIMIT_SECONDS = 120.0
"""Only ends a failing test."""


class PseudoTerminal:
    """The far end of a pseudo-terminal; it answers none of the questions a program may ask."""

    def __init__(
        self,
        arguments: list[str],
        width: int,
        height: int,
        environment: Mapping[str, str],
        folder: Path = ROOT,
    ) -> None:
        self.raw = b""
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self._master: int | None
        self._master, slave = os.openpty()
        self.resize(width, height, tell=False)
        # As a terminal emulator starts it: a session of its own, with this as its terminal, so
        # that closing the other end hangs up on it.
        self.program = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**clean_environment(), **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(slave)

    def resize(self, width: int, height: int, *, tell: bool = True) -> None:
        termios.tcsetwinsize(self._master, (height, width))
        if tell:
            self.screen.resize(height, width)
            self.program.send_signal(signal.SIGWINCH)

    def settings(self) -> list[Any]:
        """Whether it echoes, waits for whole lines and so on."""
        return termios.tcgetattr(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def read(self, seconds: float) -> bool:
        """Take what comes within ``seconds``; ``False`` once the program has let go."""
        if self._master is None or not select.select([self._master], [], [], seconds)[0]:
            return self._master is not None
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.raw += data
        # Questions end in letters that pyte takes for text; it has no private CSI with "<" or "=",
        # nor the question what modified keys send.
        known = re.sub(rb"\x1b\[(?:[<=>][0-9;]*[a-zA-Z]|\?[0-9;]*m)", b"", data)
        try:
            self._stream.feed(known)
        except TypeError:
            # Of a picture that was dropped halfway, two torn sequences can make one that is none.
            self._stream = pyte.ByteStream(self.screen)
        return bool(data)

    def until(self, condition: Callable[[], bool]) -> None:
        """Read until ``condition`` holds."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not condition():
            assert self.read(0.05), f"it ended: {self.text}"
            assert time.monotonic() < deadline, f"it never came true: {self.text}"

    def until_it_says(self, text: str) -> None:
        self.until(lambda: text in self.text)

    def end(self) -> int:
        """Wait until the program has ended by itself; its exit code."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while self.read(0.05) and self.program.poll() is None:
            assert time.monotonic() < deadline, f"it goes on: {self.text}"
        while self.program.poll() is None:
            assert time.monotonic() < deadline, "it goes on without a terminal"
            time.sleep(0.005)
        while self._master is not None and select.select([self._master], [], [], 0)[0]:
            if not self.read(0):
                break
        return self.program.returncode

    def until_nothing_more_fits(self) -> None:
        """Read nothing until what the program writes has filled the terminal, and a while more."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        unread = [-2, -1]
        while unread[-1] != unread[-2]:
            assert time.monotonic() < deadline, "it never fills"
            time.sleep(0.4)
            (size,) = struct.unpack("i", fcntl.ioctl(self._master, termios.FIONREAD, bytes(4)))
            unread.append(size)
        # As long as it takes to fill whatever queues before it, too.
        time.sleep(0.8)

    def hang_up(self) -> None:
        """The terminal goes away."""
        if self._master is not None:
            os.close(self._master)
            self._master = None

    @property
    def lines(self) -> list[str]:
        return [str(line) for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def colours(self) -> set[str]:
        """The parameters of every colour and style sequence written, each whole."""
        found = re.findall(rb"\x1b\[([0-9;]*)m", self.raw)
        return {parameters.decode() for parameters in found}

    def close(self) -> None:
        self.hang_up()
        with suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGKILL)
        self.program.wait()


def clean_environment() -> dict[str, str]:
    """This one's, without what says something about a terminal, a locale or a connection."""
    dropped = re.compile(
        r"LC_.*|LANG.*|TERM|COLORTERM|COLUMNS|LINES|NO_COLOR|SSH_.*|PYTHON.*|TEXTUAL.*|TZ"
    )
    kept = {name: value for name, value in os.environ.items() if not dropped.fullmatch(name)}
    return {**kept, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@contextmanager
def terminal(
    *arguments: str,
    size: tuple[int, int] = (100, 30),
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> Iterator[PseudoTerminal]:
    """Run ``python ARGUMENTS`` in a terminal of ``size``; ended whatever happens."""
    settings = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    if environment is not None:
        settings = dict(environment)
    opened = PseudoTerminal([*arguments], *size, settings, folder)
    try:
        yield opened
    finally:
        opened.close()
