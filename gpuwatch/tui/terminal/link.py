"""Is the terminal at the far end of a slow connection? Asked of the terminal itself, once.

Right after the first picture is written the terminal is asked where its cursor is. It answers
once it has drawn everything before the question, so the wait is the round trip plus the time the
picture took to travel: latency and bandwidth in one figure. Inside tmux or screen it is the
multiplexer that answers, from this side of the connection: then nothing is learned, and
``--slow-link`` is there to be asked for.
"""

import time
from collections.abc import Callable, Mapping

from textual.driver import Driver

# A first picture is some 20 kB: this is a good connection's 0.1 s round trip and 50 kB/s.
_SLOW_SECONDS = 0.5

_WHERE_IS_THE_CURSOR = "\x1b[6n"


def over_ssh(environment: Mapping[str, str]) -> bool:
    """True if this shell came over SSH, by what sshd leaves in the environment."""
    return bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))


class LinkProbe:
    """Asks, and remembers how long the answer took."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._asked_at: float | None = None
        self._seconds: float | None = None

    def start(self, driver: Driver | None) -> None:
        if driver is not None and not driver.is_headless:
            self._asked_at = self._monotonic()
            driver.write(_WHERE_IS_THE_CURSOR)
            driver.flush()

    def answered(self) -> None:
        """The terminal said where its cursor is."""
        if self._asked_at is not None and self._seconds is None:
            self._seconds = self._monotonic() - self._asked_at

    def is_slow(self) -> bool:
        """The answer took too long, or has not come for long enough to know that it will."""
        if self._asked_at is None:
            return False
        if self._seconds is not None:
            return self._seconds > _SLOW_SECONDS
        return self._monotonic() - self._asked_at > 4 * _SLOW_SECONDS
