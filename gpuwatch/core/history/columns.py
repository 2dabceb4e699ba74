"""Columns of a chart: what one holds, and those of a chart that were put together before."""

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

NAN = math.nan

# Times are sums of floats: a reading meant for 0.3 s must not fall into the next bucket.
TOLERANCE = 1e-6

Band = tuple[float, float, float]
"""Minimum, mean, maximum."""
Part = tuple[float, float, float, float]
"""The same, and for how many seconds."""


class Column(NamedTuple):
    """What one column of a chart shows."""

    minimum: float
    mean: float
    maximum: float


def bucket_index(at: float, column_seconds: float) -> int:
    """The number of the bucket that holds the moment ``at``.

    Bucket ``k`` is the time after ``k * column_seconds`` up to and including
    ``(k + 1) * column_seconds``, so a reading taken on a boundary belongs to the time it covers.
    """
    return math.ceil(at / column_seconds - TOLERANCE) - 1


_SPARE_COLUMNS = 32
"""Forgotten at once, of those that no chart shows any more."""

# A column is made for every bucket that is folded: without the call of its constructor.
_make = tuple.__new__


def column_of(values: Sequence[float], seconds: Sequence[float]) -> Column | None:
    """The column of readings that are each weighted with the time they speak for."""
    if len(values) < 2:
        value = values[0] if values else NAN
        return _make(Column, (value, value, value)) if math.isfinite(value) else None
    total = sum(seconds)
    mean = sum(map(mul, values, seconds)) / total if total > 0 else sum(values) / len(values)
    if math.isfinite(mean):
        return _make(Column, (min(values), mean, max(values)))
    read = [pair for pair in zip(values, seconds, strict=True) if math.isfinite(pair[0])]
    return column_of([value for value, _ in read], [seconds for _, seconds in read])


class Growing:
    """The newest column of a chart, which still grows: what it holds so far, so that a reading
    more costs the same however long the column is."""

    __slots__ = ("bucket", "count", "high", "low", "plain", "seconds", "upto", "weighted")

    def __init__(self, bucket: int, upto: int) -> None:
        self.bucket = bucket
        self.upto = upto
        """The number of the first reading that is not in it, of all that were ever taken."""
        self.low = math.inf
        self.high = -math.inf
        self.weighted = self.seconds = self.plain = 0.0
        self.count = 0

    def add(self, low: float, mean: float, high: float, seconds: float) -> None:
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.weighted += mean * seconds
        self.seconds += seconds
        self.plain += mean
        self.count += 1

    def column(self) -> Column | None:
        if self.count == 0:
            return None
        mean = self.weighted / self.seconds if self.seconds > 0 else self.plain / self.count
        return Column(self.low, mean, self.high)


class View:
    """The columns of one width that were put together before, from the bucket ``first`` on."""

    __slots__ = ("columns", "first", "growing", "seen", "widest")

    def __init__(self, first: int) -> None:
        self.first = first
        self.columns: list[Column | None] = []
        self.seen = -math.inf
        """Up to this moment it is up to date."""
        self.growing: Growing | None = None
        self.widest = 0

    def reaches(self, first: int) -> bool:
        """A chart that begins at ``first`` can go on from it."""
        return self.first <= first <= self.first + len(self.columns)

    def begin(self, first: int, count: int) -> None:
        """Forget most of what lies before ``first``, of a chart of ``count`` columns."""
        self.widest = max(self.widest, count)
        if len(self.columns) > self.widest + _SPARE_COLUMNS:
            surplus = min(len(self.columns) - self.widest, first - self.first)
            del self.columns[:surplus]
            self.first += surplus

    def outdated_from(self, width: float, *, fed: bool) -> int:
        """The first column that is missing or may hold more by now; ``fed``: there are readings."""
        end = self.first + len(self.columns)
        if self.seen > -math.inf:
            return max(self.first, min(end, bucket_index(self.seen, width)))
        # What was put together so far was made of nothing: the first reading may lie behind it.
        return self.first if fed else end

    def spoil(self, changed_from: float) -> None:
        """A reading came late."""
        self.seen = min(self.seen, changed_from)
        self.growing = None
