"""One reading over time, and readings that are taken together.

Series that are read together (all readings of one GPU) share one axis of times, so a push costs
an append for each. The drawn columns are remembered: the next frame computes only what is new.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable
from functools import cached_property

from gpuwatch.core.history.axis import Axis
from gpuwatch.core.history.columns import (
    NAN,
    TOLERANCE,
    Band,
    Column,
    Growing,
    Part,
    View,
    bucket_index,
)
from gpuwatch.core.model import BusySample

SAMPLES_KEPT = 4096

LONGEST_SAMPLE_SECONDS = 1.5
"""NVML's sample period is at most 1 s: before a sample that comes much later there is a gap."""

_LONG_COLUMN_SECONDS = 5.0
"""From here on the newest column is added to, not put together anew."""

_PARTS_LEAST = 12
"""A column is put together from at least so many buckets of a tier, if there are any as fine."""

_ALONE = (None,)
"""The name of a series that is not read together with others."""
_VIEWS_KEPT = 3
"""The overview's, a detail's, a mark's. Old widths are not asked for again."""


class Series:
    """One reading over time. Made by itself it is fed by ``push`` and ``push_samples`` and keeps
    about ``readings_kept`` as they came; those of an ``axis`` are fed by that alone."""

    __slots__ = ("_axis", "_views", "number")

    def __init__(
        self, readings_kept: int = SAMPLES_KEPT, *, axis: Axis | None = None, number: int = 0
    ) -> None:
        if axis is None:
            axis = Axis(_ALONE, readings_kept)
            axis.start(_ALONE)
        self._axis = axis
        self.number = number
        """Of this series in the rows of its axis."""
        self._views: dict[float, View] = {}

    # -- what goes in ----------------------------------------------------------------------

    def push(self, at: float, value: float | None, since: float | None = None) -> None:
        """Take one reading made at ``at`` that speaks for the time after ``since``.

        Without ``since`` it speaks for its own moment. ``None`` (and NaN, and infinity) is a
        gap. A reading older than the last may come late; one older than all that is kept as it
        came (a thousand readings or more) is dropped.
        """
        axis = self._axis
        if value is None or not math.isfinite(value):
            value = NAN
        if at <= axis.folded_until:
            return
        place, before = axis.before(at)
        since = max(at if since is None else min(since, at), before)
        if place < axis.times.count:
            # The reading after it speaks only for what is left.
            times, seconds = axis.at, axis.seconds
            next_since = times[place] - seconds[place]
            seconds[place] = times[place] - max(next_since, at)
            for view in self._views.values():
                view.spoil(min(since, next_since))
        axis.insert(place, at, at - since, value)
        if axis.times.count > axis.kept:
            axis.fold()

    def push_samples(self, samples: Iterable[tuple[float, float]]) -> None:
        """Take (time, value) samples that each speak for the time since the one before. Samples
        more than a second apart have a gap between them."""
        for at, value in samples:
            _, before = self._axis.before(at)
            self.push(at, value, before if at - before <= LONGEST_SAMPLE_SECONDS else None)

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
        self.push(at, value, axis.latest_at if at - axis.latest_at <= longest else None)

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
        start = view.outdated_from(column_seconds, fed=len(self._axis.times) > 0)
        if start <= last:
            view.columns[start - view.first :] = self._compute(start, last, column_seconds, view)
            view.seen = self._axis.latest_at
        return view.columns[first - view.first : last + 1 - view.first]

    def _compute(self, first: int, last: int, width: float, view: View) -> list[Column | None]:
        newest = last + 1
        if len(self._axis.times) > 0 and width >= _LONG_COLUMN_SECONDS:
            newest = bucket_index(self._axis.latest_at, width)
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
        new = grown.upto - axis.dropped
        values = axis.readings.column(self.number, new)
        for value, seconds in zip(values, axis.times.column(1, new), strict=True):
            if math.isfinite(value):
                grown.add(value, value, value, seconds)
        grown.upto = axis.dropped + len(axis.times)
        return grown.column()

    def _closed(self, first: int, last: int, width: float) -> list[Column | None]:
        columns: list[Column | None] = []
        folded = self._axis.folded_until - width * TOLERANCE
        while first <= last and first * width < folded:
            columns.append(self._from_tiers(first, width))
            first += 1
        buckets = self._axis.buckets(first, last, width)
        return columns + self._axis.summarise(self.number, buckets)

    def _from_tiers(self, bucket: int, width: float) -> Column | None:
        """A column of which some lies in the tiers."""
        start, end = bucket * width, (bucket + 1) * width
        axis, folded = self._axis, self._axis.folded_until
        held = Growing(bucket, 0)
        for part in self._folded(start, min(end, folded), width):
            held.add(*part)
        low, high = bisect_right(axis.at, folded), bisect_right(axis.at, end)
        (rest,) = axis.summarise(self.number, [(low, high)])
        if rest is not None:
            held.add(*rest, min(end, axis.at[high - 1]) - folded)
        return held.column()

    def _folded(self, start: float, end: float, width: float) -> list[Part]:
        """The parts of a column of this width from ``start`` that lie in the tiers."""
        filled = [tier for tier in self._axis.tiers if tier]
        if not filled:
            return []
        reaching = [tier for tier in filled if tier.first * tier.width <= start]
        # The coarsest that is still fine beside the column: what a column costs to put together
        # must not grow with its width.
        reaching = [t for t in reaching if t.width * _PARTS_LEAST <= width][::-1] or reaching
        # Where none divides the width, or none reaches: the finest that reaches, or the longest.
        fallback = reaching[0] if reaching else filled[-1]
        tier = next((one for one in reaching if _divides(one.width, width)), fallback)
        return tier.parts(self.number, start, end)


class Group(Axis):
    """Series that are read together, by name; each is there from its first reading on."""

    @cached_property
    def _series(self) -> dict[Hashable, Series]:
        return {}

    def one(self, name: Hashable) -> Series | None:
        number = self.numbers.get(name)
        if number is None:
            return None
        return self._series.setdefault(name, Series(axis=self, number=number))


class Finer:
    """A series that is polled up to ``since`` and has ``fine`` samples after it."""

    def __init__(self, polled: Group, name: Hashable, since: float) -> None:
        self.fine = Series()
        self._polled, self._name, self._since = polled, name, since

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        """As those of ``Series``."""
        columns = self.fine.columns(end, column_seconds, count)
        polled = self._polled.one(self._name)
        first = bucket_index(end, column_seconds) - count + 1
        before = min(count, int(self._since / column_seconds) - first)
        if polled is not None and before > 0:
            columns[:before] = polled.columns(end, column_seconds, count)[:before]
        return columns


def _divides(part: float, width: float) -> bool:
    return abs(width / part - round(width / part)) < TOLERANCE <= width
