"""What reaches the terminal, written without ever waiting for it.

Over a dead connection nothing takes what is written, and whoever writes waits, for hours maybe;
then it is gone, and every write fails. So each text is written as far as the terminal takes it at
once; the rest follows when the event loop hears that there is room. No thread is needed for that:
one costs two or three wake-ups for each picture, waiting for the interpreter's lock.
"""

import asyncio
import os
import termios
import threading
from collections import deque
from contextlib import suppress
from typing import TextIO


class Writer:
    """Stands in for the thread by which Textual writes. One that has failed drops what comes."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._terminal: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[bytes] = deque()
        # The thread that reads keys answers what the terminal says of itself.
        self._lock = threading.Lock()
        self._watched = False
        self.failed = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._terminal = _without_waiting(self._file.fileno())

    def stop(self) -> None:
        """Nothing is written any more."""
        with self._lock:
            self._waiting.clear()
            terminal, self._terminal, self._watched = self._terminal, None, False
            if terminal is not None and self._loop is not None:
                self._loop.remove_writer(terminal)
                # It may be the shell's.
                os.set_blocking(terminal, True)
                os.close(terminal)

    def is_alive(self) -> bool:
        return self._terminal is not None

    @property
    def waiting(self) -> int:
        """Texts that the terminal has not taken yet."""
        return len(self._waiting)

    def write(self, text: str) -> None:
        with self._lock:
            self._waiting.append(text.encode(self._file.encoding, self._file.errors or "strict"))
            if len(self._waiting) == 1:
                self._send()

    def flush(self) -> None:
        """Write what the terminal takes of what waits."""
        with self._lock:
            if self._waiting:
                self._send()

    def drop(self) -> None:
        """Take back what was written, here and in the kernel."""
        with self._lock:
            self._waiting.clear()
            self._watch()
            if self._terminal is not None:
                with suppress(termios.error):
                    termios.tcflush(self._terminal, termios.TCOFLUSH)

    def _send(self) -> None:
        waiting, terminal = self._waiting, self._terminal
        try:
            while waiting and terminal is not None:
                taken = os.write(terminal, waiting[0])
                if taken == len(waiting[0]):
                    waiting.popleft()
                else:
                    waiting[0] = waiting[0][taken:]
        except BlockingIOError:
            pass
        except OSError:
            self.failed = True
        if self.failed or terminal is None:
            waiting.clear()
        self._watch()

    def _watch(self) -> None:
        """Have the event loop say when there is room, as long as something waits for it."""
        loop, terminal, wanted = self._loop, self._terminal, bool(self._waiting)
        if wanted != self._watched and loop is not None and terminal is not None:
            self._watched = wanted
            # It may have ended.
            with suppress(RuntimeError):
                if wanted:
                    loop.call_soon_threadsafe(self._hear, loop, terminal)
                else:
                    loop.call_soon_threadsafe(loop.remove_writer, terminal)

    def _hear(self, loop: asyncio.AbstractEventLoop, terminal: int) -> None:
        if self._watched and self._terminal == terminal:
            loop.add_writer(terminal, self.flush)


def _without_waiting(terminal: int) -> int:
    """A descriptor of its own for ``terminal``, whose writes never wait; that of the shell, and of
    the programs beside this one, stays as it is. Another user's terminal is opened as one's own."""
    for path in (f"/proc/self/fd/{terminal}", "/dev/tty"):
        with suppress(OSError):
            return os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    own = os.dup(terminal)
    os.set_blocking(own, False)
    return own
