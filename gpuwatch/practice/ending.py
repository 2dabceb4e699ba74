"""A practice job's end: asked for by a signal, or because another process has ended."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)
_PATIENCE_SECONDS = 15.0
"""It may be importing PyTorch, which is not broken off."""


class _State:
    held = False
    asked_by: int | None = None


def listen() -> None:
    """From now on SIGTERM and SIGHUP raise ``SystemExit``, so that the job gives back what it
    took. In the main thread."""
    for number in _NUMBERS:
        signal.signal(number, _arrive)


@contextmanager
def held() -> Iterator[None]:
    """Whoever asks for the end meanwhile is heard afterwards. Amid an import of PyTorch an
    exception is lost where nobody looks at it, or ends the process where C++ meets it."""
    _State.held = True
    try:
        yield
    finally:
        _State.held = False
        if _State.asked_by is not None:
            raise SystemExit(128 + _State.asked_by)


def _arrive(number: int, _frame: FrameType | None) -> None:
    # The terminal goes away as well: what is tidied up meanwhile is not broken off.
    for other in _NUMBERS:
        signal.signal(other, signal.SIG_IGN)
    _State.asked_by = number
    if not _State.held:
        raise SystemExit(128 + number)


def end_with(pid: int, after_seconds: float = 0.0) -> None:
    """From now on this process ends as soon as process ``pid`` is gone, or so long after."""
    arguments = (pid, after_seconds)
    threading.Thread(target=_wait, args=arguments, daemon=True, name="end_with").start()


def _wait(pid: int, after_seconds: float) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.5)
    time.sleep(after_seconds)
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        # It may have something to give back.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_PATIENCE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
