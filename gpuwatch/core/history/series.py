"""One reading over time, and the times of readings that are taken together.

Series that are read together (all readings of one GPU) share one axis of times, so a push costs
an append for each. The drawn columns are remembered: the next frame computes only what is new.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial

from gpuwatch.core.history.columns import (
    NAN,
    TOLERANCE,
    Band,
    Column,
    Growing,
    Part,
    View,
    bucket_index,
    column_of,
)
from gpuwatch.core.history.tiers import BLOCK_SECONDS, TIERS, Tier
from gpuwatch.core.model import BusySample

READINGS_KEPT = 1024
SAMPLES_KEPT = 4096

LONGEST_SAMPLE_SECONDS = 1.5
"""NVML's sample period is at most 1 s: before a sample that comes much later there is a gap."""

_LONG_COLUMN_SECONDS = 5.0
"""From here on the newest column is added to, not put together anew."""

_PARTS_LEAST = 12
"""A column is put together from at least so many buckets of a tier, if there are any as fine."""

_VIEWS_KEPT = 3
"""The overview's, a detail's, a mark's. Old widths are not asked for again."""


class Axis:
    """The times of series that are read together.

    Reading ``i`` was taken at ``at[i]``, which ascends, and speaks for the ``seconds[i]`` up to
    then: 0 where it speaks for its own moment only. No time is spoken for twice. A series is
    there from its first reading on, by its name.
    """

    def __init__(
        self,
        names: Sequence[Hashable],
        kept: int = READINGS_KEPT,
        tiers: tuple[tuple[float, float], ...] = TIERS,
    ) -> None:
        self.names: Sequence[Hashable] = ()
        self.at = array("d")
        self.seconds = array("d")
        self.kept = kept
        self.tiers = tiers
        self.folded_until = -math.inf
        self.dropped = 0
        """How many readings have been folded so far."""
        self.series: dict[Hashable, Series] = {}
        self._appends: list[Callable[[float], None]] = []
        self.name(names)

    def name(self, names: Sequence[Hashable]) -> None:
        """Take readings of these: those of before, and more after them."""
        self.names = names
        self._appends += [partial(self._first, name) for name in names[len(self._appends) :]]

    def push(self, at: float, longest: float, values: Iterable[float | None]) -> None:
        """Take one reading of every series; ``longest`` is the longest time it may speak for."""
        since_last = at - self.at[-1] if self.at else math.inf
        self.seconds.append(since_last if since_last <= longest else 0.0)
        self.at.append(at)
        for append, value in zip(self._appends, values, strict=True):
            append(NAN if value is None else value)
        if len(self.at) > self.kept:
            self.fold()

    def _first(self, name: Hashable, value: float) -> None:
        """Stands in a series' place until it has a reading."""
        if not math.isnan(value):
            self._start(name, len(self.at) - 1).values.append(value)

    def _start(self, name: Hashable, before: int) -> Series:
        series = self.series[name] = Series(axis=self)
        series.values.extend(array("d", [NAN]) * before)
        self._appends[self.names.index(name)] = series.values.append
        return series

    @property
    def earliest_at(self) -> float | None:
        """The first moment of which something is kept."""
        begins = [
            tier.first * tier.width for one in self.series.values() for tier in one.tiers if tier
        ]
        return min([*begins, *self.at[:1]], default=None)

    def buckets(self, first: int, last: int, width: float) -> list[tuple[int, int]]:
        """Which readings belong to the buckets ``first`` to ``last``: (start, stop) of each.

        A bucket holds the readings taken in it; one in which none was taken holds the one that
        speaks for it, and none (``start == stop``) where none does.
        """
        at = self.at
        length = len(at)
        slack = width * TOLERANCE
        start = bisect_right(at, first * width + slack)
        found = []
        for bucket in range(first, last + 1):
            end = (bucket + 1) * width
            stop = start
            if start < length:
                if at[start] > end + slack:
                    covered = at[start] - self.seconds[start] < end - slack
                    found.append((start, start + covered))
                    continue
                stop += 1
                if stop < length and at[stop] <= end + slack:
                    stop = bisect_right(at, end + slack, stop + 1)
            found.append((start, stop))
            start = stop
        return found

    def fold(self) -> None:
        """Move the oldest whole blocks into the tiers until few enough readings are left."""
        at = self.at
        while len(at) > self.kept:
            block = bucket_index(at[0], BLOCK_SECONDS)
            end = (block + 1) * BLOCK_SECONDS
            # Late readings may still come into a block that has only just ended.
            if end + BLOCK_SECONDS > at[-1]:
                return
            for number, (width, reach) in enumerate(self.tiers):
                per_block = round(BLOCK_SECONDS / width)
                first = block * per_block
                buckets = self.buckets(first, first + per_block - 1, width)
                for series in self.series.values():
                    tier = series.tiers[number]
                    tier.append(first, series.summarise(buckets))
                    tier.forget_before(at[-1] - reach)
            surplus = bisect_right(at, end + BLOCK_SECONDS * TOLERANCE)
            for values in (at, self.seconds, *(one.values for one in self.series.values())):
                del values[:surplus]
            self.dropped += surplus
            self.folded_until = end

    def take_block(self, block: int, bands: dict[Hashable, Band]) -> None:
        """Take what is known of a whole block before the first reading, by the series' names."""
        end = (block + 1) * BLOCK_SECONDS
        if (self.at and end > self.at[0]) or end <= self.folded_until:
            return
        for name, band in bands.items():
            series = self.series.get(name) or self._start(name, len(self.at))
            series.tiers[-1].append(block, [band])
        self.folded_until = end


class Series:
    """One reading over time.

    Made by itself it is fed by ``push`` and ``push_samples`` and keeps about ``readings_kept`` as
    they came; those of a ``History`` are fed by the history alone.
    """

    __slots__ = ("_axis", "_views", "tiers", "values")

    def __init__(self, readings_kept: int = SAMPLES_KEPT, *, axis: Axis | None = None) -> None:
        self.values = array("d")
        if axis is None:
            axis = Axis((), readings_kept)
            axis.series[None] = self
        self._axis = axis
        self.tiers = [Tier(width, reach) for width, reach in axis.tiers]
        self._views: dict[float, View] = {}

    # -- what goes in ----------------------------------------------------------------------

    def push(self, at: float, value: float | None, since: float | None = None) -> None:
        """Take one reading made at ``at`` that speaks for the time after ``since``.

        Without ``since`` it speaks for its own moment. ``None`` (and NaN, and infinity) is a
        gap. A reading older than the last may come late; one older than all that is kept as it
        came (a thousand readings or more) is dropped.
        """
        axis = self._axis
        if axis.names:
            raise ValueError("this series is one of several fed together by their history")
        if value is None or not math.isfinite(value):
            value = NAN
        if at <= axis.folded_until:
            return
        times, seconds = axis.at, axis.seconds
        place = len(times) if not times or at >= times[-1] else bisect_right(times, at)
        since = at if since is None else min(since, at)
        if place:
            since = max(since, times[place - 1])
        if place < len(times):
            # The reading after it speaks only for what is left.
            next_since = times[place] - seconds[place]
            seconds[place] = times[place] - max(next_since, at)
            for view in self._views.values():
                view.spoil(min(since, next_since))
        times.insert(place, at)
        seconds.insert(place, at - since)
        self.values.insert(place, value)
        if len(times) > axis.kept:
            axis.fold()

    def push_samples(self, samples: Iterable[tuple[float, float]]) -> None:
        """Take (time, value) samples that each speak for the time since the one before.

        Samples more than a second apart have a gap between them.
        """
        times = self._axis.at
        for at, value in samples:
            since = None
            place = len(times) if not times or at >= times[-1] else bisect_right(times, at)
            if place and at - times[place - 1] <= LONGEST_SAMPLE_SECONDS:
                since = times[place - 1]
            self.push(at, value, since)

    def take(
        self,
        samples: Iterable[BusySample] | None,
        value: float | None,
        at: float,
        offset: float,
        longest: float,
    ) -> None:
        """Take what a snapshot at ``at`` brought: fine samples, else the one polled ``value``.

        ``offset`` takes the samples' wall time to this axis; ``longest`` is the longest time a
        polled value may speak for.
        """
        axis = self._axis
        if samples is not None:
            axis.kept = SAMPLES_KEPT
            self.push_samples([(sample[0] + offset, sample[1]) for sample in samples])
            return
        near = bool(axis.at) and at - axis.at[-1] <= longest
        self.push(at, value, axis.at[-1] if near else None)

    def take_block(self, block: int, band: Band) -> None:
        """Take what is known of a whole block before the first reading."""
        self._axis.take_block(block, {None: band})

    # -- what comes out --------------------------------------------------------------------

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        """The last ``count`` columns up to the one that holds ``end``, oldest first.

        The boundaries are multiples of ``column_seconds`` (see ``bucket_index``), so a column
        keeps its content while time passes; ``None`` is a gap. A column that has ended changes
        only if a reading comes late. The finest tier that reaches back to a column and divides
        its width is used for it; where none divides it, a bucket that straddles two columns
        counts in both, in each mean for the time that lies in it.
        """
        if count <= 0:
            return []
        last = bucket_index(end, column_seconds)
        first = last - count + 1
        view = self._views.get(column_seconds)
        if view is None or not view.reaches(first):
            if view is None and len(self._views) >= _VIEWS_KEPT:
                del self._views[next(iter(self._views))]
            view = self._views[column_seconds] = View(first)
        view.begin(first, count)
        times = self._axis.at
        start = view.outdated_from(column_seconds, fed=bool(times))
        if start <= last:
            view.columns[start - view.first :] = self._compute(start, last, column_seconds, view)
            view.seen = times[-1] if times else -math.inf
        return view.columns[first - view.first : last + 1 - view.first]

    def _compute(self, first: int, last: int, width: float, view: View) -> list[Column | None]:
        at = self._axis.at
        newest = bucket_index(at[-1], width) if at and width >= _LONG_COLUMN_SECONDS else last + 1
        if not first <= newest <= last:
            return self._closed(first, last, width)
        grown = self._grown(newest, width, view)
        return [*self._closed(first, newest - 1, width), grown, *[None] * (last - newest)]

    def _grown(self, bucket: int, width: float, view: View) -> Column | None:
        """The column of the newest reading: what it held before, and what has come since."""
        axis = self._axis
        grown = view.growing
        if grown is None or grown.bucket != bucket or grown.upto < axis.dropped:
            start, folded = bucket * width, axis.folded_until
            first = bisect_right(axis.at, start + width * TOLERANCE)
            grown = view.growing = Growing(bucket, axis.dropped + first)
            if start < folded - width * TOLERANCE:
                for part in self._folded(start, folded, width):
                    grown.add(*part)
        for place in range(grown.upto - axis.dropped, len(axis.at)):
            value = self.values[place]
            if value == value:  # noqa: PLR0124 - NaN, the gap, is the one value unlike itself
                grown.add(value, value, value, axis.seconds[place])
        grown.upto = axis.dropped + len(axis.at)
        return grown.column()

    def _closed(self, first: int, last: int, width: float) -> list[Column | None]:
        columns: list[Column | None] = []
        folded = self._axis.folded_until - width * TOLERANCE
        while first <= last and first * width < folded:
            columns.append(self._from_tiers(first, width))
            first += 1
        return columns + self.summarise(self._axis.buckets(first, last, width))

    def summarise(self, buckets: Iterable[tuple[int, int]]) -> list[Column | None]:
        """The column of each (start, stop) of the readings kept as they came."""
        values, seconds = self.values, self._axis.seconds
        return [column_of(values[start:stop], seconds[start:stop]) for start, stop in buckets]

    def _from_tiers(self, bucket: int, width: float) -> Column | None:
        """A column of which some lies in the tiers."""
        start, end = bucket * width, (bucket + 1) * width
        axis, folded = self._axis, self._axis.folded_until
        held = Growing(bucket, 0)
        for part in self._folded(start, min(end, folded), width):
            held.add(*part)
        low, high = bisect_right(axis.at, folded), bisect_right(axis.at, end)
        rest = column_of(self.values[low:high], axis.seconds[low:high])
        if rest is not None:
            held.add(*rest, min(end, axis.at[high - 1]) - folded)
        return held.column()

    def _folded(self, start: float, end: float, width: float) -> list[Part]:
        """The parts of a column of this width from ``start`` that lie in the tiers."""
        filled = [tier for tier in self.tiers if tier]
        if not filled:
            return []
        reaching = [tier for tier in filled if tier.first * tier.width <= start]
        # The coarsest that is still fine beside the column: what a column costs to put together
        # must not grow with its width.
        reaching = [t for t in reaching if t.width * _PARTS_LEAST <= width][::-1] or reaching
        # Where none divides the width, or none reaches: the finest that reaches, or the longest.
        fallback = reaching[0] if reaching else filled[-1]
        tier = next((one for one in reaching if _divides(one.width, width)), fallback)
        return tier.parts(start, end)


def _divides(part: float, width: float) -> bool:
    return abs(width / part - round(width / part)) < TOLERANCE <= width
