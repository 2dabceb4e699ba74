"""A terminal that may stall, or go away without a word.

Over a connection that is down nothing takes what is written, and whoever writes waits, for hours
maybe; then it is gone, and every write fails. Textual writes in a thread behind a short queue and
knows neither: once that thread has failed, or waits, the queue fills and the program stands still
for good. So whoever draws asks here first, and whoever ends takes back what nobody will read.
"""

from __future__ import annotations

import select
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Full
from typing import Any, TextIO

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

_MOST_WAITING = 6
"""Two pictures: each is written as what begins it, itself, and what ends it."""

_PATIENCE_SECONDS = 1.0
"""For a terminal to take the last of what was written, at the end."""
_MOST_DROPS = 20
"""One is enough, or two where a picture is larger than what the kernel keeps."""


class _Output:
    """A file until it fails; from then on what is written is dropped."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.failed = False

    def write(self, text: str) -> None:
        self._unless_failed(self._file.write, text)

    def flush(self) -> None:
        self._unless_failed(self._file.flush)

    def isatty(self) -> bool:
        return self._file.isatty()

    def fileno(self) -> int:
        return self._file.fileno()

    def _unless_failed(self, do: Callable[..., object], *arguments: str) -> None:
        if not self.failed:
            try:
                do(*arguments)
            except OSError:
                self.failed = True


class TerminalDriver(LinuxDriver):
    """Textual's driver, which never waits for the terminal without end."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        assert self._file is not None
        self._file = self._output = _Output(self._file)  # type: ignore[assignment]
        self._ears = select.poll()
        self._ears.register(self.fileno, 0)

    @property
    def is_behind(self) -> bool:
        """It has not taken the last pictures yet: another one would only wait behind them."""
        return self._waiting > _MOST_WAITING

    @property
    def is_gone(self) -> bool:
        """There is nobody any more, at either end: not everybody is told so by a SIGHUP."""
        return self._output.failed or any(
            events & (select.POLLHUP | select.POLLERR | select.POLLNVAL)
            for _, events in self._ears.poll(0)
        )

    def stop_application_mode(self) -> None:
        """Give the terminal back as it was. What it does not take is dropped first."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._waiting:
            self._drop()
        super().stop_application_mode()

    def close(self) -> None:
        writer = self._writer_thread
        if writer is None:
            return
        with suppress(Full):
            writer._queue.put(None, timeout=_PATIENCE_SECONDS)
        writer.join(_PATIENCE_SECONDS)
        for _ in range(_MOST_DROPS):
            if not writer.is_alive():
                break
            # It waits in the kernel for room in a terminal that takes nothing.
            self._drop()
            with suppress(Full):
                writer._queue.put_nowait(None)
            writer.join(0.05)

    @property
    def _waiting(self) -> int:
        writer = self._writer_thread
        return 0 if writer is None else writer._queue.qsize()

    def _drop(self) -> None:
        """Take back what was written, here and in the kernel."""
        writer = self._writer_thread
        assert writer is not None
        with suppress(Empty):
            while True:
                writer._queue.get_nowait()
        with suppress(termios.error):
            termios.tcflush(self._output.fileno(), termios.TCOFLUSH)
