"""SIGTERM and SIGHUP end a practice job by an exception, so that it gives back what it took."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)


class _State:
    held = False
    asked_by: int | None = None


def listen() -> None:
    """From now on. In the main thread."""
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
    # The terminal goes away as well: what is tidied up then is not broken off.
    for other in _NUMBERS:
        signal.signal(other, signal.SIG_IGN)
    _State.asked_by = number
    if not _State.held:
        raise SystemExit(128 + number)
