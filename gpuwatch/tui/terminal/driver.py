"""The terminal: one that may stall, vanish without a word, or belong to a shell for a while.

Textual writes in a thread behind a short queue: once that thread has failed, or waits for a dead
connection, the queue fills and the program stands still for good. So a ``Writer`` of ours takes the
thread's place, whoever draws asks here first, and whoever ends takes back what nobody will read.

All that is used of Textual beyond its public interface is in this file.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import termios
import threading
import time
from codecs import getincrementaldecoder
from collections import deque
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, TextIO, cast

from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers import linux_driver
from textual.screen import Screen
from textual.strip import Strip

# -- writing without ever waiting ------------------------------------------------------------------


class Writer:
    """Writer in place of the thread by which Textual writes. One that has failed drops what
    comes."""

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
        """End writing, and give up what waits."""
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
    """Return a descriptor of its own for ``terminal``, whose writes never wait; that of the shell,
    and of the programs beside this one, stays as it is. Another user's terminal is opened as one's
    own."""
    for path in (f"/proc/self/fd/{terminal}", "/dev/tty"):
        with suppress(OSError):
            return os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    own = os.dup(terminal)
    os.set_blocking(own, False)
    return own


# -- the driver ------------------------------------------------------------------------------------


_QUEUED_MOST = 3
"""Pictures; one that Textual draws is written as what begins it, itself, and what ends it."""

_SETTLE_SECONDS = 1.0
"""Time for a terminal to take the last of what was written, at the end."""

_SYNC_START, _SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronised output: a terminal that knows it shows what is between them at once."""
_READ_BYTES = 4096

_TICK_SECONDS = 0.05
"""While what was typed may go on (an Esc is a key, or begins another)."""


def _styles_without_owners() -> None:
    """Textual's cache keys by mistake hold a widget, with every line drawn of it, long after it has
    gone; what is computed needs the two colours alone."""
    compute = getattr(getattr(StylesCache, "get_inner_outer", None), "__wrapped__", None)
    if compute is not None:
        of_colours = lru_cache(64)(partial(compute, None))
        setattr(StylesCache, "get_inner_outer", staticmethod(of_colours))  # noqa: B010


def _end_without_a_picture(app: App[Any]) -> None:
    """End with a bug, which the command line says in a sentence: Textual's picture of it shows all
    variables, and with them other people's command lines."""
    app._close_messages_no_wait()


_styles_without_owners()
setattr(App, "_fatal_error", _end_without_a_picture)  # noqa: B010
setattr(linux_driver, "WriterThread", Writer)  # noqa: B010


def terminal_of(app: App[Any]) -> TerminalDriver | None:
    """Return the real terminal that ``app`` draws on."""
    return app._driver if isinstance(app._driver, TerminalDriver) else None


def error_of(app: App[Any]) -> Exception | None:
    """Return the bug that has ended ``app``."""
    return app._exception


def is_ending(app: App[Any]) -> bool:
    """Parts of the application are being taken down, and a snapshot can still come in."""
    return app._exit


def write_directly(app: App[Any], text: str) -> bool:
    """Send ``text`` to the terminal, past the compositor; ``False`` where that cannot be done (no
    terminal, a batch of updates under way) and the usual way must be taken."""
    driver = app._driver
    if driver is None or app.is_headless or not app.is_running or app._batch_count:
        return False
    # In one piece: each is a call of the kernel.
    together = getattr(app, "_sync_available", False)
    driver.write(_SYNC_START + text + _SYNC_END if together else text)
    driver.flush()
    return True


def strips_of(screen: Screen[Any]) -> list[Strip]:
    """Return the screen's picture, dialogs and all, line by line."""
    return screen._compositor.render_strips()


def discard_output() -> None:
    """Let what is still said go nowhere, instead of failing, after the terminal has gone."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


class TerminalDriver(linux_driver.LinuxDriver):
    """Textual's driver, which never waits for the terminal without end."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._hangup = select.poll()
        self._hangup.register(self.fileno, 0)
        self._wakes, self._wake = os.pipe()
        self._suspended = False

    @property
    def is_behind(self) -> bool:
        """Return whether the last pictures have not been taken yet: another would only wait behind
        them."""
        writer = self._writer
        return writer is not None and writer.waiting > _QUEUED_MOST

    @property
    def is_gone(self) -> bool:
        """Return whether nobody is there any more, at either end: a SIGHUP does not come to
        everybody."""
        return (self._writer is not None and self._writer.failed) or any(
            events & (select.POLLHUP | select.POLLERR | select.POLLNVAL)
            for _, events in self._hangup.poll(0)
        )

    def run_input_thread(self) -> None:
        """Wait for keys, and for nothing else: Textual's looks ten times a second."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        ready = select.poll()
        ready.register(self.fileno, select.POLLIN)
        ready.register(self._wakes, select.POLLIN)
        while not self.exit_event.is_set():
            # A Textual that calls it otherwise is looked after as it would itself.
            waits = getattr(parser, "_timeout_time", True) is not None
            if self.fileno in dict(ready.poll(1000 * _TICK_SECONDS if waits else None)):
                try:
                    typed = os.read(self.fileno, _READ_BYTES)
                except OSError:
                    typed = b""
                if not typed:
                    # The terminal has gone: nothing more will be typed.
                    ready.unregister(self.fileno)
                # Of half a letter nothing is known yet, and to the parser nothing is the end.
                text = decode(typed)
                for message in parser.feed(text) if text else ():
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def disable_input(self) -> None:
        """End the thread that reads keys. What wakes it up stays until it has ended."""
        os.write(self._wake, b".")
        super().disable_input()
        os.read(self._wakes, 1)

    def stop_application_mode(self) -> None:
        """Give the terminal back as it was. Pictures that it does not take are dropped first."""
        self._settle()
        super().stop_application_mode()

    def close(self) -> None:
        self._settle()
        super().close()
        if is_ending(self._app):
            for end in (self._wakes, self._wake):
                os.close(end)

    @property
    def can_suspend(self) -> bool:
        """Return whether a shell with job control started this: it gets the terminal, ``fg`` comes
        back."""
        import psutil  # noqa: PLC0415 - seldom needed

        own = os.getpgrp()
        with suppress(OSError, psutil.Error):
            for parent in psutil.Process().parents():
                if os.getpgid(parent.pid) != own:
                    return os.getsid(parent.pid) == os.getsid(0)
        return False

    def suspend(self) -> None:
        """Give the terminal back and stop until SIGCONT, after SIGTSTP."""
        self.suspend_application_mode()
        self._suspended = True
        os.kill(os.getpid(), signal.SIGSTOP)

    def resume(self) -> None:
        """Take the terminal again after SIGCONT, whoever had stopped it.

        The kernel sends one to everybody on a terminal that hangs up, often after the SIGHUP that
        has ended the application: nobody would stop what began to read the keys then.
        """
        if is_ending(self._app) or self.is_gone:
            return
        if not self._suspended:
            # Stopped without being asked: what the terminal is set to now is not ours.
            self.suspend_application_mode()
        self._must_signal_resume = True
        self.resume_application_mode()
        # In the background it was stopped again before it had begun.
        self._suspended = self._writer is None or not self._writer.is_alive()

    def _settle(self) -> None:
        """Wait until all is written, or dropped."""
        writer, deadline = self._writer, time.monotonic() + _SETTLE_SECONDS
        while writer is not None and writer.waiting:
            if time.monotonic() > deadline:
                writer.drop()
            time.sleep(0.01)
            writer.flush()

    @property
    def _writer(self) -> Writer | None:
        return cast("Writer | None", self._writer_thread)
