"""Means, highest values and totals over the last stretch of time."""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence

BUCKET_SECONDS = 4.0
"""What is kept in buckets is that much longer kept than asked for, at most."""
ROW_SECONDS = 0.9
"""Readings that come faster are averaged to rows of this length."""


class RunningMeans:
    """Weighted means of several readings, each of which can be missing at any time. What is kept
    are running totals, so that a mean over any stretch is the difference of two."""

    __slots__ = ("_ends", "_keep", "_seconds", "_since", "_sums", "_totals")

    def __init__(self, count: int, keep_seconds: float) -> None:
        self._keep = keep_seconds
        self._since = -math.inf
        """When the newest row began."""
        self._ends = [-math.inf]
        self._totals = [0.0]
        self._sums = [array("d", bytes(8 * count))]
        self._seconds = [self._sums[0]]
        """That each reading was known for."""

    def add(self, at: float, values: Sequence[float | None], seconds: float) -> None:
        """``values`` as they were over the ``seconds`` up to ``at``; times ascend."""
        sums = array("d", [
            before if value is None else before + seconds * value
            for before, value in zip(self._sums[-1], values, strict=True)
        ])  # fmt: skip
        known = array("d", [
            before if value is None else before + seconds
            for before, value in zip(self._seconds[-1], values, strict=True)
        ])  # fmt: skip
        total = self._totals[-1] + seconds
        if at - self._since <= ROW_SECONDS:
            self._ends[-1], self._totals[-1] = at, total
            self._sums[-1], self._seconds[-1] = sums, known
            return
        self._since = at - seconds
        self._ends.append(at)
        self._totals.append(total)
        self._sums.append(sums)
        self._seconds.append(known)
        if self._ends[1] <= at - self._keep:
            # The last of them stays: what follows is counted from there.
            old = bisect_right(self._ends, at - self._keep) - 1
            for column in (self._ends, self._totals, self._sums, self._seconds):
                del column[:old]

    def over(self, since: float) -> list[float | None]:
        """Of what was added later than ``since``, in the order of the readings."""
        base = self._base(since)
        columns = (self._sums[-1], self._sums[base], self._seconds[-1], self._seconds[base])
        return [
            (total - before) / (known - unknown) if known > unknown else None
            for total, before, known, unknown in zip(*columns, strict=True)
        ]

    def seconds(self, since: float) -> float:
        """Seconds that what was added later spoke for."""
        return self._totals[-1] - self._totals[self._base(since)]

    def _base(self, since: float) -> int:
        return max(0, bisect_right(self._ends, since) - 1)


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
