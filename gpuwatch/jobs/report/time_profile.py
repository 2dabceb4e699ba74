"""How readings went over a time of unknown length, in bounded memory.

All courses of a ``Grid`` share its buckets. When the time outgrows them, each two become one of
twice the width; minimum, mean and maximum stay true, and so do gaps.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from gpuwatch.jobs.report.report import COURSE_BUCKETS, Course

FIRST_BUCKET_SECONDS = 0.25
"""A job of a minute is shown at the pace of the driver's own samples."""


class Grid:
    """``buckets`` (an even number) from ``start`` (a monotonic time) on, all of one width."""

    __slots__ = ("buckets", "courses", "seconds", "start")

    def __init__(self, start: float, buckets: int = COURSE_BUCKETS) -> None:
        self.start = start
        self.buckets = buckets
        self.seconds = FIRST_BUCKET_SECONDS
        self.courses: list[CourseRecorder] = []

    def course(self) -> CourseRecorder:
        made = CourseRecorder(self)
        self.courses.append(made)
        return made

    def reach(self, until: float) -> None:
        """Make the buckets wide enough for the time up to ``until``."""
        while until - self.start > self.seconds * self.buckets:
            self.seconds *= 2
            for course in self.courses:
                course.halve()


class CourseRecorder:
    """One reading, added as values that each held from one moment to another."""

    __slots__ = ("_grid", "_held", "_maxima", "_minima", "_sums")

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._held = array("d", [0.0]) * grid.buckets
        self._sums = array("d", [0.0]) * grid.buckets
        self._minima = array("d", [math.inf]) * grid.buckets
        self._maxima = array("d", [-math.inf]) * grid.buckets

    def add(self, since: float, until: float, value: float) -> None:
        """``value`` held from ``since`` to ``until``, both on the grid's clock."""
        grid = self._grid
        since = max(since, grid.start) - grid.start
        until -= grid.start
        if until <= since:
            return
        width = grid.seconds
        bucket = int(since / width)
        if bucket * width <= since and until <= (bucket + 1) * width and bucket < grid.buckets:
            # All of it in one bucket, as nearly always.
            if until - since > width * 1e-6:
                self._put(bucket, until - since, value)
            return
        while bucket < grid.buckets and bucket * width < until:
            held = min(until, (bucket + 1) * width) - max(since, bucket * width)
            # Times are sums of floats: what spills over an edge by rounding is nothing.
            if held > width * 1e-6:
                self._put(bucket, held, value)
            bucket += 1

    def _put(self, bucket: int, held: float, value: float) -> None:
        self._held[bucket] += held
        self._sums[bucket] += held * value
        self._minima[bucket] = min(self._minima[bucket], value)
        self._maxima[bucket] = max(self._maxima[bucket], value)

    def add_all(self, since: float, until: float, values: Sequence[float], total: float) -> bool:
        """``values`` that held one after another, with their sum over time: taken where one bucket
        holds all of that time; whether it does."""
        grid = self._grid
        width = grid.seconds
        bucket = int((since - grid.start) / width)
        # What spills over an edge by rounding is for ``add``.
        if not (
            grid.start + bucket * width <= since < until < grid.start + (bucket + 1) * width
            and 0 <= bucket < grid.buckets
            and until - since > width * 1e-6
        ):
            return False
        self._held[bucket] += until - since
        self._sums[bucket] += total
        self._minima[bucket] = min(self._minima[bucket], *values)
        self._maxima[bucket] = max(self._maxima[bucket], *values)
        return True

    def halve(self) -> None:
        half = self._grid.buckets // 2
        for values, merge, empty in (
            (self._held, _add, 0.0),
            (self._sums, _add, 0.0),
            (self._minima, min, math.inf),
            (self._maxima, max, -math.inf),
        ):
            for place in range(half):
                values[place] = merge(values[2 * place], values[2 * place + 1])
            values[half:] = array("d", [empty]) * (len(values) - half)

    def course(self, until: float) -> Course:
        """What was added, up to the bucket that holds ``until``; empty if there was nothing."""
        grid = self._grid
        count = min(grid.buckets, math.ceil((until - grid.start) / grid.seconds))
        known = [held > 0 for held in self._held[: max(0, count)]]
        if not any(known):
            return Course()
        means = [total / held if held > 0 else 0.0 for total, held in self._pairs()]
        return Course(
            minimum=_points(self._minima, known),
            mean=_points(means, known),
            maximum=_points(self._maxima, known),
        )

    def _pairs(self) -> zip[tuple[float, float]]:
        return zip(self._sums, self._held, strict=True)


def _points(values: array[float] | list[float], known: list[bool]) -> tuple[float | None, ...]:
    return tuple(
        [round(value, 1) if there else None for value, there in zip(values, known, strict=False)]
    )


def _add(one: float, other: float) -> float:
    return one + other
