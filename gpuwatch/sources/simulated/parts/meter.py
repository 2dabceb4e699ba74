"""A running total fed by intervals: CPU seconds, bytes, seconds of disk wait."""

from __future__ import annotations

from collections import deque

_IN_EARNEST = 0.25


class Meter:
    """Adds up ``rate`` over the intervals it was given, some of which may lie ahead.

    ``total`` must be asked with times that do not go back, since what has ended is folded.
    """

    __slots__ = ("_done", "_pending")

    def __init__(self) -> None:
        self._done = 0.0
        self._pending: deque[tuple[float, float, float]] = deque()

    def add(self, start: float, end: float, rate: float) -> None:
        """``rate`` a second from ``start`` to ``end`` (simulated seconds)."""
        if end > start:
            self._pending.append((start, end, rate))

    def total(self, now: float) -> float:
        """What has come together by ``now``."""
        pending = self._pending
        while pending and pending[0][1] <= now:
            start, end, rate = pending.popleft()
            self._done += (end - start) * rate
        total = self._done
        for start, end, rate in pending:
            if start < now:
                total += ((end if end < now else now) - start) * rate
        return total

    def runs(self, now: float) -> bool:
        """Whether it turns in earnest at ``now``: a few percent is a sleeper's housekeeping."""
        # A loop, since any() over a generator takes three times as long on these short queues.
        for start, end, rate in self._pending:  # noqa: SIM110
            if start <= now < end and rate >= _IN_EARNEST:
                return True
        return False
