"""A terminal for a monitor to run in: a real pseudo-terminal whose other end is read at once.

It counts what is written, answers what Textual programs ask a terminal, and notes when the first
text was there to be seen.
"""

import contextlib
import os
import pty
import re
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ALTERNATE_SCREEN = b"\x1b[?1049h"

_ESCAPES = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    rb"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC
    rb"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    rb"|\x1b[ -/]+[0-~]"  # character sets and the like
    rb"|\x1b[0-Z\\^`-~]"
)


def visible_text(written: bytes) -> str:
    """What of a terminal's input is characters, in the order written; an escape sequence that
    has not come to its end is left out."""
    text = _ESCAPES.sub(b"", written).partition(b"\x1b")[0]
    return "".join(c for c in text.decode("utf-8", "ignore") if c.isprintable())


class FirstPaint:
    """When a program's screen first held text, and when it first matched a pattern.

    The first paint is the first character that is not a space, written after the alternate
    screen was entered; the same for every program. Times are ``time.monotonic`` seconds.
    """

    def __init__(self, pattern: str) -> None:
        self.text_at: float | None = None
        self.match_at: float | None = None
        self._pattern = re.compile(pattern)
        self._written = b""

    def feed(self, data: bytes, now: float) -> None:
        if self.text_at is not None and self.match_at is not None:
            return
        self._written += data
        _, entered, screen = self._written.partition(ALTERNATE_SCREEN)
        if not entered:
            return
        text = visible_text(screen)
        if self.text_at is None and text.strip():
            self.text_at = now
        if self.match_at is None and self._pattern.search(text):
            self.match_at = now


_QUESTIONS = re.compile(rb"\x1b\[(?:\?(\d+)\$p|6n)")


def answer(written: bytes) -> bytes:
    """What a current terminal replies to the questions in ``written`` whose answers change what is
    written: which modes it knows (2026, synchronised output), and where the cursor is."""
    replies = []
    for mode in _QUESTIONS.findall(written):
        known = b"2" if mode == b"2026" else b"0"
        replies.append(b"\x1b[?" + mode + b";" + known + b"$y" if mode else b"\x1b[1;1R")
    return b"".join(replies)


class Terminal:
    """A program in a terminal of its own, from ``start`` to ``stop``."""

    def __init__(self, columns: int, lines: int, pattern: str) -> None:
        self.columns = columns
        self.lines = lines
        self.bytes_written = 0
        self.paint = FirstPaint(pattern)
        self.tail = b""
        self.started_at = 0.0
        self._screen = -1
        self._program: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Start the program with the terminal as its input, output and errors."""
        self._screen, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (self.lines, self.columns))
        self.started_at = time.monotonic()
        self._program = subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
        os.close(terminal)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: str) -> None:
        """As if a person pressed them; nothing once the program has ended."""
        with contextlib.suppress(OSError):
            os.write(self._screen, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the terminal's size, of which the program is told by SIGWINCH."""
        assert self._program is not None
        self.columns, self.lines = columns, lines
        termios.tcsetwinsize(self._screen, (lines, columns))
        with contextlib.suppress(ProcessLookupError):
            self._program.send_signal(signal.SIGWINCH)

    @property
    def pid(self) -> int:
        assert self._program is not None
        return self._program.pid

    @property
    def exit_code(self) -> int | None:
        """``None`` while the program runs."""
        return None if self._program is None else self._program.poll()

    def wait_for_paint(self, seconds: float, *, match: bool) -> bool:
        """Wait until there is text (or the pattern) on the screen; ``False``: not in that time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.exit_code is None:
            if (self.paint.match_at if match else self.paint.text_at) is not None:
                return True
            time.sleep(0.01)
        return False

    def stop(self) -> None:
        """End the program: ask with ``q``, then tell it, then make it."""
        if self._program is None:
            return
        with contextlib.suppress(OSError):
            os.write(self._screen, b"q")
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._program.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._program.wait(2.0)
                break
        if self._reader is not None:
            self._reader.join(2.0)
        os.close(self._screen)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._screen, 1 << 16)
            except OSError:
                return
            if not data:
                return
            now = time.monotonic()
            self.bytes_written += len(data)
            self.paint.feed(data, now)
            self.tail = (self.tail + data)[-4000:]
            if reply := answer(data):
                os.write(self._screen, reply)
