"""Means, highest values and totals over the last stretch of time."""

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from operator import mul
from typing import Generic, TypeVar, cast

BUCKET_SECONDS = 4.0
"""What is kept in buckets is that much longer kept than asked for, at most."""
ROW_SECONDS = 0.9
"""Readings that come faster are averaged to rows of this length."""
REMEMBERED_SECONDS = 9.0
REMEMBERED_FROM_SECONDS = 45.0
ALIKE = 0.02
"""Rows whose lengths differ by less weigh the same: a live interval is never exact."""

_T = TypeVar("_T")
_Row = tuple[float, float, Sequence[float | None]]
"""(to, seconds, values)."""


class RunningMeans:
    """Weighted means of several readings, each of which can be missing at any time."""

    __slots__ = ("_count", "_keep", "_rows", "_short")

    def __init__(self, count: int, keep_seconds: float) -> None:
        self._count = count
        self._keep = keep_seconds
        self._rows: deque[_Row] = deque()
        self._short: list[_Row] = []

    def add(self, at: float, values: Sequence[float | None], seconds: float) -> None:
        """``values`` as they were over the ``seconds`` up to ``at``; times ascend."""
        rows = self._rows
        if seconds >= ROW_SECONDS:
            rows.append((at, seconds, values))
        else:
            self._short.append((at, seconds, values))
            total = sum([row[1] for row in self._short])
            if total < ROW_SECONDS:
                return
            rows.append((at, total, _means(self._short, self._count)))
            self._short.clear()
        while len(rows) > 1 and rows[0][0] <= at - self._keep:
            rows.popleft()

    def over(self, since: float) -> list[float | None]:
        """Of what was added later than ``since``, in the order of the readings."""
        return _means(self._since(since), self._count)

    def seconds(self, since: float) -> float:
        """Seconds that what was added later spoke for."""
        return sum([row[1] for row in self._since(since)])

    def _since(self, since: float) -> list[_Row]:
        rows = [*self._rows, *self._short]
        return [row for row in rows if row[0] > since] if rows and rows[0][0] <= since else rows


def _means(rows: Sequence[_Row], count: int) -> list[float | None]:
    if not rows:
        return [None] * count
    lengths = [row[1] for row in rows]
    if max(lengths) - min(lengths) <= ALIKE * max(lengths):
        return [_plain_mean(column) for column in zip(*[row[2] for row in rows], strict=True)]
    total = sum(lengths)
    return [
        _weighted_mean(column, lengths, total)
        for column in zip(*[row[2] for row in rows], strict=True)
    ]


def _plain_mean(column: Sequence[float | None]) -> float | None:
    try:
        return sum(column) / len(column)  # type: ignore[arg-type]  # most have no gap
    except TypeError:
        if column.count(None) == len(column):
            return None
        known = [value for value in column if value is not None]
        return sum(known) / len(known)


def _weighted_mean(
    column: Sequence[float | None], lengths: Sequence[float], total: float
) -> float | None:
    if total <= 0.0 or column.count(None) == len(column):
        return None
    if None not in column:
        mean: float = sum(map(mul, column, lengths)) / total
        return mean
    known = [
        (value, seconds)
        for value, seconds in zip(column, lengths, strict=True)
        if value is not None
    ]
    total = sum([seconds for _, seconds in known])
    return sum([value * seconds for value, seconds in known]) / total if total > 0.0 else None


class Remembered(Generic[_T]):
    """An answer that costs, for some seconds: over a whole window, it hardly changes in them."""

    __slots__ = ("_answer", "_for")

    def __init__(self) -> None:
        self._for: tuple[float, float] | None = None
        self._answer: _T | None = None

    def get(self, stretch: tuple[float, float], compute: Callable[[], _T]) -> _T:
        """The answer for (since, now), or for a stretch of about the same length that ended not
        much earlier; of a short one each second counts."""
        before = self._for
        since, now = stretch
        if before is not None and now >= before[1] and now - since >= REMEMBERED_FROM_SECONDS:
            shorter = (now - since) - (before[1] - before[0])
            if now - before[1] < REMEMBERED_SECONDS and abs(shorter) < 1.0:
                return cast(_T, self._answer)
        self._for = stretch
        self._answer = compute()
        return self._answer


class Highest:
    """The highest value of a few readings, bucket by bucket."""

    __slots__ = ("_begins", "_keep", "_rows")

    def __init__(self, keep_seconds: float) -> None:
        self._keep = keep_seconds
        self._begins = -math.inf
        self._rows: deque[list[float]] = deque()

    def add(self, at: float, value: float | None) -> None:
        if value is None:
            return
        rows = self._rows
        if rows and at < self._begins + BUCKET_SECONDS:
            row = rows[-1]
            row[0] = at
            row[1] = max(row[1], value)
            return
        rows.append([at, value])
        self._begins = at
        while len(rows) > 1 and rows[0][0] <= at - self._keep - BUCKET_SECONDS:
            rows.popleft()

    def over(self, since: float) -> float | None:
        return max([value for at, value in self._rows if at > since], default=None)


class Counter:
    """A counter that only rises, and where it stood at the beginning of each bucket."""

    __slots__ = ("_keep", "_marks", "_newest")

    def __init__(self, keep_seconds: float) -> None:
        self._keep = keep_seconds
        self._marks: deque[tuple[float, float]] = deque()
        self._newest: float | None = None

    def add(self, at: float, value: float | None) -> None:
        if value is None:
            return
        if self._newest is not None and value < self._newest:
            # The driver was loaded again: it counts anew.
            self._marks.clear()
        self._newest = value
        marks = self._marks
        if not marks or at >= marks[-1][0] + BUCKET_SECONDS:
            marks.append((at, value))
            while len(marks) > 1 and marks[1][0] <= at - self._keep:
                marks.popleft()

    def risen(self, since: float) -> float | None:
        """By how much since then, or since it was read first."""
        if self._newest is None or not self._marks:
            return None
        before = self._marks[0][1]
        for at, value in self._marks:
            if at > since:
                break
            before = value
        return self._newest - before


class Ledger:
    """Running total of a rate: what went through between two moments."""

    __slots__ = ("_keep", "_known", "_times", "_totals")

    def __init__(self, keep_seconds: float) -> None:
        self._keep = keep_seconds
        self._known = False
        self._times = array("d")
        self._totals = array("d")

    def add(self, at: float, rate: float | None, seconds: float) -> None:
        """``rate`` a second, as it was over the ``seconds`` up to ``at``; times ascend. One that
        was missed now and then counts as nothing meanwhile."""
        times, totals = self._times, self._totals
        self._known = self._known or rate is not None
        if not times:
            times.append(at - seconds)
            totals.append(0.0)
        total = totals[-1] + (rate or 0.0) * seconds
        if len(times) > 1 and at < times[-2] + 1.0:
            times[-1], totals[-1] = at, total
            return
        times.append(at)
        totals.append(total)
        if times[0] < at - 1.2 * self._keep:
            old = bisect_left(times, at - self._keep)
            del times[:old], totals[:old]

    def between(self, begin: float, end: float) -> float | None:
        """Amount that went through; ``None`` if it was never read or ``begin`` is too long ago."""
        if not self._known or begin < self._times[0]:
            return None
        return max(0.0, self._at(end) - self._at(begin))

    def _at(self, moment: float) -> float:
        times, totals = self._times, self._totals
        after = bisect_left(times, moment)
        if after >= len(times):
            return totals[-1]
        if after == 0:
            return totals[0]
        left, right = times[after - 1], times[after]
        share = (moment - left) / (right - left) if right > left else 1.0
        return totals[after - 1] + share * (totals[after] - totals[after - 1])
