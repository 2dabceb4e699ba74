"""Small running sums over readings that may be missing."""

from __future__ import annotations

import math


def sane(value: float | None, most: float = math.inf) -> float | None:
    """``value`` as a float between 0 and ``most``; ``None`` for what is no measurement."""
    if value is None or not 0.0 <= value <= most or value == math.inf:
        return None
    return float(value)


class Gauge:
    """Mean (weighted by time) and peak of one reading; ``None`` readings do not count."""

    __slots__ = ("peak", "seconds", "total")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.total = 0.0
        self.peak: float | None = None

    def add(self, value: float | None, seconds: float) -> None:
        """``value`` held for ``seconds`` (0: it was seen, which only a peak takes note of)."""
        if value is None or not 0.0 <= value < math.inf:
            return
        if self.peak is None or value > self.peak:
            self.peak = float(value)
        if seconds > 0:
            self.seconds += seconds
            self.total += value * seconds

    @property
    def mean(self) -> float | None:
        return self.total / self.seconds if self.seconds > 0 else None

    @property
    def integral(self) -> float | None:
        """Value times seconds; ``None`` when it was never read for a time."""
        return self.total if self.seconds > 0 else None


class Held:
    """For how long each of a few things was so; what comes after ``most`` others is dropped."""

    __slots__ = ("_most", "seconds")

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self.seconds: dict[str, float] = {}

    def add(self, name: str, seconds: float) -> None:
        before = self.seconds.get(name)
        if before is None and len(self.seconds) >= self._most:
            return
        self.seconds[name] = (before or 0.0) + seconds


def whole(value: float | None) -> int | None:
    """For peaks of readings that are whole numbers."""
    return None if value is None else round(value)
