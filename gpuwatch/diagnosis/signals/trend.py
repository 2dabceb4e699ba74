"""Growth: a slope, and how sure it is."""

import math
from array import array
from bisect import bisect_left
from collections import deque
from itertools import pairwise

BUCKET_SECONDS = 5.0
KEEP_SECONDS = 600.0
PARTS_MAX = 8
RISES_MAX = 32
LEAST_BUCKETS = 6
"""Half a minute: less is no trend."""
OFTEN_BUCKETS = 24
RECOMPUTED_BUCKETS = 4
"""After two minutes, a trend of ten is not computed at every look."""
LATELY_PART = 4
"""The newest quarter, and half a minute at least, says whether it still grows."""
STOPPED = 0.5
"""Share of the slope over all of the time: plainly less lately is growth that is over."""
SURE_ERRORS = 2.0


class Trend:
    """The slope of a reading over up to ten minutes.

    Of each five seconds only the minimum counts. Allocators grow for a moment and give back, and
    a leak is what is not given back: it lifts the minima.

    The error is the larger of two: that of the fitted line, for values that scatter about it, and
    that of the mean of the increments from part to part, for values that move in steps. A single
    step (a cache that is filled once) makes a slope, but one increment that is unlike the others,
    so that its error is as large as itself.

    Growth that is over (a model that has been loaded) is none: then the slope is that of late.
    """

    __slots__ = ("_answer", "_answered", "_buckets", "_minima", "_rises", "_top")

    def __init__(self) -> None:
        self._buckets, self._minima = array("q"), array("d")
        self._answer: tuple[float, float] | None = None
        self._answered = -math.inf
        self._top = -math.inf
        self._rises: deque[float] = deque(maxlen=RISES_MAX)

    def add(self, at: float, value: float | None) -> None:
        if value is None:
            return
        if value > self._top:
            self._top = value
            self._rises.append(at)
        buckets, minima = self._buckets, self._minima
        bucket = int(at // BUCKET_SECONDS)
        if buckets and buckets[-1] == bucket:
            minima[-1] = min(minima[-1], value)
            return
        buckets.append(bucket)
        minima.append(value)
        self._drop(bucket - KEEP_SECONDS / BUCKET_SECONDS)

    def _drop(self, before: float) -> None:
        old = bisect_left(self._buckets, before)
        del self._buckets[:old], self._minima[:old]

    def grown(self) -> float:
        """Return how many times as high it is as some seconds ago; 1: nothing is known."""
        last = self._minima[-2:]
        return last[-1] / last[0] if last and last[0] > 0.0 else 1.0

    @property
    def rose_at(self) -> float:
        """Time at which it last went higher than ever before."""
        return self._rises[-1] if self._rises else -math.inf

    def rises(self) -> int | None:
        """Count how often it went higher than ever before, up to about ``RISES_MAX``; the first
        value is no rise. ``None``: nothing was read."""
        return max(0, len(self._rises) - 1) if self._buckets else None

    @property
    def seconds(self) -> float | None:
        """Seconds for which it has been followed since what was before was forgotten; ``None``:
        nothing was read."""
        return BUCKET_SECONDS * (self._buckets[-1] - self._buckets[0]) if self._buckets else None

    def forget_before(self, at: float) -> None:
        while self._rises and self._rises[0] < at:
            self._rises.popleft()
        self._drop(at / BUCKET_SECONDS)
        self._answered = -math.inf

    def slope(self, since: float = -math.inf) -> tuple[float, float] | None:
        """Return (change a second, its standard error); ``None`` while less than half a minute is
        known ``since`` then."""
        buckets = self._buckets
        if buckets and since > BUCKET_SECONDS * buckets[0]:
            later = bisect_left(buckets, since / BUCKET_SECONDS)
            known = len(buckets) - later > LEAST_BUCKETS
            return self._compute(later) if known else None
        if len(buckets) <= LEAST_BUCKETS:
            return None
        newest = buckets[-1]
        often = len(buckets) < OFTEN_BUCKETS
        if newest != self._answered and (often or newest >= self._answered + RECOMPUTED_BUCKETS):
            self._answered = newest
            self._answer = self._compute()
        return self._answer

    def _compute(self, first: int = 0) -> tuple[float, float]:
        # The newest bucket is not over yet: its minimum may still fall.
        values = self._minima[first:-1].tolist()
        if min(values) == max(values):
            return 0.0, 0.0
        times = [bucket * BUCKET_SECONDS for bucket in self._buckets[first:-1]]
        slope, fit_error = _line(times, values)
        newest = max(LEAST_BUCKETS, len(values) // LATELY_PART)
        if slope > 0.0 and len(values) > newest:
            lately, error = _line(times[-newest:], values[-newest:])
            if lately + SURE_ERRORS * error < STOPPED * slope:
                return lately, error
        return slope, max(fit_error, _step_error(times, values))


def _line(times: list[float], values: list[float]) -> tuple[float, float]:
    count = len(times)
    middle, level = sum(times) / count, sum(values) / count
    spread = sum([(at - middle) ** 2 for at in times])
    slope = sum([(at - middle) * value for at, value in zip(times, values, strict=True)]) / spread
    residual = sum(
        [
            (value - level - slope * (at - middle)) ** 2
            for at, value in zip(times, values, strict=True)
        ]
    )
    return slope, math.sqrt(residual / (count - 2) / spread)


def _step_error(times: list[float], values: list[float]) -> float:
    parts = min(PARTS_MAX, len(times) // 2)
    size = len(times) / parts
    marks = []
    for part in range(parts):
        chosen = range(round(part * size), round((part + 1) * size))
        marks.append(
            (
                sum([times[at] for at in chosen]) / len(chosen),
                sum([values[at] for at in chosen]) / len(chosen),
            )
        )
    rates = [
        (value - before) / (at - before_at) for (before_at, before), (at, value) in pairwise(marks)
    ]
    count = len(rates)
    mean = sum(rates) / count
    return math.sqrt(sum([(rate - mean) ** 2 for rate in rates]) / (count - 1) / count)
