"""Means over the last stretch of time, kept as sums of short buckets."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

BUCKET_SECONDS = 2.0
"""A window begins at a bucket, so it is up to this much longer than asked for. Longer buckets
would make it coarse, shorter ones cost more to add up."""


class RunningMeans:
    """Weighted means of several readings, each of which can be missing at any time."""

    __slots__ = ("_begins", "_ends", "_rows", "_sums", "_weights", "keep_seconds")

    def __init__(self, count: int, keep_seconds: float) -> None:
        self.keep_seconds = keep_seconds
        self._rows: deque[tuple[float, list[float], list[float]]] = deque()
        self._sums = [0.0] * count
        self._weights = [0.0] * count
        self._begins = -math.inf
        self._ends = -math.inf

    def add(self, at: float, values: Sequence[float | None], seconds: float) -> None:
        """``values`` as they were over the ``seconds`` up to ``at``; times ascend."""
        if at >= self._begins + BUCKET_SECONDS:
            self._turn(at)
        sums, weights = self._sums, self._weights
        for position, value in enumerate(values):
            if value is not None:
                sums[position] += value * seconds
                weights[position] += seconds
        self._ends = at

    def over(self, since: float) -> Means:
        """Of what was added later than ``since``."""
        rows = [(sums, weights) for end, sums, weights in self._rows if end > since]
        if self._ends > since:
            rows.append((self._sums, self._weights))
        if not rows:
            zeros = [0.0] * len(self._sums)
            return Means(zeros, zeros)
        return Means(
            [sum(column) for column in zip(*[sums for sums, _ in rows], strict=True)],
            [sum(column) for column in zip(*[weights for _, weights in rows], strict=True)],
        )

    def _turn(self, at: float) -> None:
        rows = self._rows
        if self._ends > -math.inf:
            rows.append((self._ends, self._sums, self._weights))
            count = len(self._sums)
            self._sums = [0.0] * count
            self._weights = [0.0] * count
        while rows and rows[0][0] <= at - self.keep_seconds - BUCKET_SECONDS:
            rows.popleft()
        self._begins = at


class Means:
    """What ``RunningMeans`` says of one stretch; positions are those of the readings."""

    __slots__ = ("_sums", "_weights")

    def __init__(self, sums: list[float], weights: list[float]) -> None:
        self._sums = sums
        self._weights = weights

    def __getitem__(self, position: int) -> float | None:
        weight = self._weights[position]
        return self._sums[position] / weight if weight > 0.0 else None

    def seconds(self, position: int) -> float:
        """For how long it was read."""
        return self._weights[position]

    def total(self, position: int) -> float | None:
        """The mean times how long it was read."""
        return self._sums[position] if self._weights[position] > 0.0 else None


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
        while rows[0][0] <= at - self._keep - BUCKET_SECONDS:
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
    """Running totals of a few rates, so that what went through between two moments can be told."""

    __slots__ = ("_keep", "_known", "_times", "_totals")

    def __init__(self, count: int, keep_seconds: float) -> None:
        self._keep = keep_seconds
        self._known = [False] * count
        self._times = array("d")
        self._totals = [array("d") for _ in range(count)]

    def add(self, at: float, rates: Sequence[float | None], seconds: float) -> None:
        """``rates`` a second, as they were over the ``seconds`` up to ``at``; times ascend. One
        that was missed now and then counts as nothing meanwhile."""
        times = self._times
        for position, rate in enumerate(rates):
            if rate is not None:
                self._known[position] = True
        if not times:
            times.append(at - seconds)
            for totals in self._totals:
                totals.append(0.0)
        again = len(times) > 1 and at < times[-2] + 1.0
        for totals, rate in zip(self._totals, rates, strict=True):
            total = totals[-1] + (rate * seconds if rate is not None else 0.0)
            if again:
                totals[-1] = total
            else:
                totals.append(total)
        if again:
            times[-1] = at
            return
        times.append(at)
        if times[0] < at - 1.2 * self._keep:
            old = bisect_left(times, at - self._keep)
            del times[:old]
            for totals in self._totals:
                del totals[:old]

    def between(self, position: int, begin: float, end: float) -> float | None:
        """What went through; ``None`` if it was never read, or ``begin`` is not remembered."""
        if not self._known[position] or begin < self._times[0]:
            return None
        return max(0.0, self._at(position, end) - self._at(position, begin))

    def _at(self, position: int, moment: float) -> float:
        times, totals = self._times, self._totals[position]
        after = bisect_left(times, moment)
        if after >= len(times):
            return totals[-1]
        if after == 0:
            return totals[0]
        left, right = times[after - 1], times[after]
        share = (moment - left) / (right - left) if right > left else 1.0
        return totals[after - 1] + share * (totals[after] - totals[after - 1])
