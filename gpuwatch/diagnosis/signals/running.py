"""Means, highest values and totals over the last stretch of time."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from operator import sub
from typing import Any

BUCKET_SECONDS = 4.0
"""What is kept in buckets is that much longer kept than asked for, at most."""
ROW_SECONDS = 0.9
"""Readings that come faster are averaged to rows of this length."""
DROPPED_ROWS = 16
"""At once: each time, what is left is moved."""


class RunningMeans:
    """Weighted means of several readings, each of which can be missing at any time. What is kept
    are running totals, so that a mean over any stretch is the difference of two."""

    __slots__ = ("_count", "_ends", "_keep", "_rows", "_since", "_totals")

    def __init__(self, count: int, keep_seconds: float) -> None:
        self._keep = keep_seconds
        self._count = count
        self._since = -math.inf
        """When the newest row began."""
        self._ends, self._totals = array("d", [-math.inf]), array("d", [0.0])
        self._rows = array("d", [0.0] * (2 * count))
        """Row by row the sum of each reading, and for how many seconds each was known."""

    def _row(self, place: int) -> array[float]:
        width = 2 * self._count
        return self._rows[place * width : (place + 1) * width]

    def add(self, at: float, values: Sequence[float | None], seconds: float) -> None:
        """``values`` as they were over the ``seconds`` up to ``at``; times ascend."""
        ends, totals, rows, count = self._ends, self._totals, self._rows, self._count
        if at - self._since > ROW_SECONDS:
            self._since = at - seconds
            ends.append(at)
            totals.append(totals[-1])
            rows.extend(rows[-2 * count :])
            if len(ends) > DROPPED_ROWS and ends[DROPPED_ROWS] <= at - self._keep:
                # The last of them stays: what follows is counted from there.
                old = bisect_right(ends, at - self._keep) - 1
                del ends[:old], totals[:old], rows[: 2 * count * old]
        ends[-1] = at
        totals[-1] += seconds
        for place, value in enumerate(values, len(rows) - 2 * count):
            if value is not None:
                rows[place] += seconds * value
                rows[count + place] += seconds

    def over(self, since: float) -> list[float | None]:
        """Of what was added later than ``since``, in the order of the readings."""
        last, before = self._row(len(self._ends) - 1), self._row(self._base(since))
        grown = list(map(sub, last, before))
        sums, seconds = grown[: self._count], grown[self._count :]
        return [
            total / known if known > 0.0 else None
            for total, known in zip(sums, seconds, strict=True)
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
    """Several rates over time: what went through between two moments. What stays the same is one
    row, however long."""

    __slots__ = ("_begin", "_ends", "_keep", "_known", "_last", "_rates")

    def __init__(self, names: Sequence[str], keep_seconds: float) -> None:
        self._keep = keep_seconds
        self._rates = {name: array("f") for name in names}
        self._known: set[str] = set()
        self._last: tuple[float | None, ...] = ()
        self._begin = math.nan  # of the first row
        self._ends = array("d")

    def add(self, at: float, rates: Sequence[float | None], seconds: float) -> None:
        """``rates`` a second, by the names, over the ``seconds`` up to ``at``; the first of several
        for one moment counts. One that was missed now and then counts as nothing meanwhile."""
        ends, last = self._ends, tuple(rates)
        if not ends:
            self._begin = at - seconds
        since = ends[-1] if ends else self._begin
        if at <= since:
            return
        part = min(1.0, seconds / (at - since))  # after a gap it is spread over that
        if self._last == last and part > 0.99:
            ends[-1] = at
            return
        begin = ends[-2] if len(ends) > 1 else self._begin
        merged = bool(ends) and at < begin + 1.0
        self._last = () if merged or part <= 0.99 else last
        for (name, column), rate in zip(self._rates.items(), rates, strict=True):
            if rate is not None:
                self._known.add(name)
            value = part * (rate or 0.0)
            if merged:
                column[-1] += (value - column[-1]) * (at - since) / (at - begin)
            else:
                column.append(value)
        if merged:
            ends[-1] = at
        else:
            ends.append(at)
        if ends[0] < at - 1.2 * self._keep:
            old = bisect_left(ends, at - self._keep)
            self._begin = ends[old - 1]
            for column in (ends, *self._rates.values()):
                del column[:old]

    def mean(self, name: str, begin: float, end: float) -> float | None:
        """Of the rate, as ``between`` of its amount."""
        total = self.between(name, begin, end)
        return None if total is None or end <= begin else total / (end - begin)

    def between(self, name: str, begin: float, end: float) -> float | None:
        """Amount that went through; ``None`` if it was never read or ``begin`` is too long ago."""
        if name not in self._known or begin < self._begin:
            return None
        ends, rates, amount = self._ends, self._rates[name], 0.0
        for place in range(bisect_right(ends, begin), len(ends)):
            since = ends[place - 1] if place else self._begin
            if since >= end:
                break
            amount += rates[place] * (min(end, ends[place]) - max(begin, since))
        return amount


class Samples(Sequence[tuple[float, float]]):
    """(time, value) of the last stretch, oldest first: as numbers side by side, which take an
    eighth of what as many tuples do."""

    __slots__ = ("_times", "_values")

    def __init__(self) -> None:
        self._times = array("d")
        self._values = array("d")

    def extend(self, rows: Sequence[tuple[float, ...]]) -> None:
        """Each begins with its time and its value."""
        self._times.extend([row[0] for row in rows])
        self._values.extend([row[1] for row in rows])

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self._times, self._values, strict=True)

    def __reversed__(self) -> Iterator[tuple[float, float]]:
        return zip(reversed(self._times), reversed(self._values), strict=True)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return list(zip(self._times[place], self._values[place], strict=True))
        return self._times[place], self._values[place]

    def after(self, since: float) -> Samples:
        found, begin = Samples(), bisect_right(self._times, since)
        found._times, found._values = self._times[begin:], self._values[begin:]
        return found

    def clear(self) -> None:
        del self._times[:], self._values[:]

    def forget_until(self, at: float) -> None:
        """What was at ``at`` or before."""
        old = bisect_right(self._times, at)
        if old:
            del self._times[:old], self._values[:old]


def columns(samples: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    if isinstance(samples, Samples):
        return samples._times.tolist(), samples._values.tolist()
    times, values = [list(column) for column in zip(*samples, strict=True)] or ([], [])
    return times, values
