"""One time axis for a recording, whatever its clocks did, and readings over a time of unknown
length on it, in bounded memory.

All profiles of a ``Grid`` share its buckets. When the time outgrows them, each two become one of
twice the width; minimum, mean and maximum stay true, and so do gaps.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import add

from gpuwatch.core.model import Snapshot
from gpuwatch.core.store import GAP_INTERVALS
from gpuwatch.outputs.report.model import BUCKETS_MAX, Profiles, Stretch, Time, TimeProfile

GAPS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Step:
    """From one look to the next, on the time axis."""

    since: float
    until: float
    longest: float
    """Looks further apart than this have a gap between."""
    offset: float
    """Wall time less time on the axis: not 0 once the wall clock has gone back."""

    @property
    def seconds(self) -> float:
        return self.until - self.since

    @property
    def is_gap(self) -> bool:
        return self.seconds > self.longest

    def end(self) -> Step:
        """The moment of its end alone, where nothing is known of the time before."""
        return Step(self.until, self.until, self.longest, self.offset)


class Steps:
    """Wall time that never goes back: where the clock did, time goes on by the monotonic one.

    A recording can be continued by another run of gpuwatch or on a machine that was started anew,
    so the monotonic clock alone is none either.
    """

    def __init__(self) -> None:
        self.begin: float | None = None
        self.end = 0.0
        self._snapshots = 0
        self._set_back = 0
        self._covered = 0.0
        self._gap_count = 0
        self._gap_seconds = 0.0
        self._gaps: list[Stretch] = []
        self._offset = 0.0
        self._monotonic = 0.0
        self._interval = 0.0

    def step(
        self, snapshot: Snapshot, *, since: float | None = None, until: float | None = None
    ) -> Step:
        """The time that ``snapshot`` speaks for: up to ``until`` (wall time) if that is sooner; the
        first from ``since`` on, where it says something of the time before it."""
        unix, monotonic = snapshot.taken_at_unix_seconds, snapshot.monotonic_seconds
        longest = GAP_INTERVALS * max(snapshot.interval_seconds, self._interval)
        self._interval = snapshot.interval_seconds
        self._snapshots += 1
        passed = monotonic - self._monotonic
        self._monotonic = monotonic
        end = unix if until is None else min(unix, until)
        if self.begin is None:
            near = since is not None and 0.0 <= end - since <= longest
            self.begin = self.end = since if near and since is not None else end
        elif unix - self._offset < self.end:
            self._set_back += 1
            self._offset = unix - (self.end + max(0.0, passed))
        step = Step(self.end, max(self.end, end - self._offset), longest, self._offset)
        self.end = step.until
        if step.is_gap:
            self._note_gap(step)
        else:
            self._covered += step.seconds
        return step

    def _note_gap(self, step: Step) -> None:
        self._gap_count += 1
        self._gap_seconds += step.seconds
        self._gaps.append(Stretch(begin_unix_seconds=step.since, end_unix_seconds=step.until))
        if len(self._gaps) > GAPS_KEPT:
            self._gaps.remove(min(self._gaps, key=lambda gap: gap.seconds))

    def time(self, bucket_seconds: float) -> Time:
        return Time(
            begin_unix_seconds=self.begin or 0.0,
            end_unix_seconds=self.end,
            snapshots=self._snapshots,
            interval_seconds=self._interval or None,
            covered_seconds=self._covered,
            gap_count=self._gap_count,
            gap_seconds=self._gap_seconds,
            gaps=tuple(self._gaps),
            clock_set_back=self._set_back,
            bucket_seconds=bucket_seconds,
        )


FIRST_BUCKET_SECONDS = 0.25
"""A job of a minute is shown at the pace of the driver's own samples."""


class Grid:
    """``buckets`` (an even number) from ``start`` on, all of one width."""

    __slots__ = ("buckets", "recorders", "seconds", "start")

    def __init__(self, start: float, buckets: int = BUCKETS_MAX) -> None:
        self.start = start
        self.buckets = buckets
        self.seconds = FIRST_BUCKET_SECONDS
        self.recorders: list[ProfileRecorder] = []

    def recorder(self) -> ProfileRecorder:
        made = ProfileRecorder(self)
        self.recorders.append(made)
        return made

    def reach(self, until: float) -> None:
        """Make the buckets wide enough for the time up to ``until``."""
        while until - self.start > self.seconds * self.buckets:
            self.seconds *= 2
            for recorder in self.recorders:
                recorder.halve()


class ProfileRecorder:
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
        width = grid.seconds
        bucket = int(since / width)
        while bucket < grid.buckets and since < until:
            edge = (bucket + 1) * width
            held = (until if until < edge else edge) - since
            # Times are sums of floats: what spills over an edge by rounding is nothing.
            if held > width * 1e-6:
                self._held[bucket] += held
                self._sums[bucket] += held * value
                self._minima[bucket] = min(self._minima[bucket], value)
                self._maxima[bucket] = max(self._maxima[bucket], value)
            since, bucket = edge, bucket + 1

    def halve(self) -> None:
        merged: tuple[tuple[array[float], Callable[[float, float], float], float], ...] = (
            (self._held, add, 0.0),
            (self._sums, add, 0.0),
            (self._minima, min, math.inf),
            (self._maxima, max, -math.inf),
        )
        for values, merge, empty in merged:
            half = len(values) // 2
            values[:half] = array("d", map(merge, values[::2], values[1::2]))
            values[half:] = array("d", [empty]) * (len(values) - half)

    def cells(self) -> list[tuple[float, float, float, float]]:
        """Return, for each bucket with a value, (begin, end, seconds with a value, sum of the
        values over these)."""
        start, width = self._grid.start, self._grid.seconds
        return [
            (start + at * width, start + (at + 1) * width, held, self._sums[at])
            for at, held in enumerate(self._held)
            if held > 0.0
        ]

    def profile(self, until: float) -> TimeProfile:
        """The values added, up to the bucket that holds ``until``; empty if there was nothing."""
        grid = self._grid
        count = max(0, min(grid.buckets, math.ceil((until - grid.start) / grid.seconds)))
        held = self._held[:count]
        if not any(held):
            return TimeProfile()
        pairs = zip(self._sums, held, strict=False)
        means = [total / time if time else 0.0 for total, time in pairs]
        minimum, mean, maximum = (
            tuple(
                round(value, 1) if time else None for value, time in zip(values, held, strict=False)
            )
            for values in (self._minima, means, self._maxima)
        )
        return TimeProfile(minimum=minimum, mean=mean, maximum=maximum)


def profiles(recorders: Mapping[str, ProfileRecorder], until: float) -> Profiles:
    """Return the profiles in which something was measured, by their names."""
    made = {name: recorder.profile(until) for name, recorder in recorders.items()}
    return {name: profile for name, profile in made.items() if profile}
