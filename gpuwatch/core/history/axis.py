"""The times of readings that are taken together, and those readings as rows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Sequence

from gpuwatch.core.history.columns import NAN, TOLERANCE, Band, Column, bucket_index, column_of
from gpuwatch.core.history.rows import Rows
from gpuwatch.core.history.tiers import BLOCK_SECONDS, TIERS, Tier, Tiers

READINGS_KEPT = 1024
_ROOM = 128
"""For readings beyond those kept: they are folded by whole blocks."""


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
        tiers: Tiers = TIERS,
    ) -> None:
        self.kept = kept
        self._block = max(BLOCK_SECONDS, tiers[-1][0])
        self.tiers = [Tier(width, reach) for width, reach in tiers]
        self.latest_at = -math.inf
        self.folded_until = -math.inf
        self.dropped = 0
        """How many readings have been folded so far."""
        self.numbers: dict[Hashable, int] = {}
        """In each row, of those that have had a reading; only they are series."""
        self.name(names)
        self.times = Rows("d", 2, kept + _ROOM)
        """When each was taken, and for how many seconds it speaks."""
        self.readings = Rows("f", 0, kept + _ROOM)

    def start(self, names: Sequence[Hashable]) -> None:
        """Keep these as well, from now on."""
        new = [name for name in names if name not in self.numbers]
        if new:
            for name in new:
                self.numbers[name] = len(self.numbers)
            self.readings.widen(len(new), NAN)
            for tier in self.tiers:
                tier.widen(new)
            self.name(self.names)

    def name(self, names: Sequence[Hashable]) -> None:
        """Take readings of these: those of before, and more after them."""
        self.names = names
        self._places = [names.index(name) for name in self.numbers]
        self._absent = [each for each in enumerate(names) if each[1] not in self.numbers]

    @property
    def at(self) -> memoryview[float]:
        return self.times.column(0)

    @property
    def seconds(self) -> memoryview[float]:
        return self.times.column(1)

    def before(self, at: float) -> tuple[int, float]:
        """How many readings were taken up to ``at``, and when the last of them was."""
        if at >= self.latest_at:
            return self.times.count, self.latest_at
        place = bisect_right(self.at, at)
        return place, self.at[place - 1] if place else -math.inf

    def push(self, at: float, longest: float, values: Sequence[float | None]) -> None:
        """Take one reading of every series; ``longest`` is the longest time it may speak for."""
        since_last = at - self.latest_at
        self.times.append((at, since_last if since_last <= longest else 0.0))
        self.latest_at = at
        if self._absent and (new := [n for place, n in self._absent if values[place] is not None]):
            self.start(new)
        self.readings.append([NAN if (v := values[place]) is None else v for place in self._places])
        if self.times.count > self.kept:
            self.fold()

    def insert(self, place: int, at: float, seconds: float, value: float) -> None:
        """Take one reading of a series that is read alone."""
        if place == self.times.count:
            self.times.append((at, seconds))
            self.readings.append((value,))
            self.latest_at = at
        else:
            self.times.insert(place, (at, seconds))
            self.readings.insert(place, (value,))

    @property
    def earliest_at(self) -> float | None:
        """The first moment of which something is kept."""
        begins = [tier.first * tier.width for tier in self.tiers if tier]
        return min([*begins, *self.at[:1]], default=None)

    def buckets(self, first: int, last: int, width: float) -> list[tuple[int, int]]:
        """Which readings belong to the buckets ``first`` to ``last``: (start, stop) of each.

        A bucket holds the readings taken in it; one in which none was taken holds the one that
        speaks for it, and none (``start == stop``) where none does.
        """
        at, seconds = self.at, self.seconds
        length = len(at)
        slack = width * TOLERANCE
        start = bisect_right(at, first * width + slack)
        found = []
        for bucket in range(first, last + 1):
            end = (bucket + 1) * width
            stop = start
            if start < length:
                if at[start] > end + slack:
                    covered = at[start] - seconds[start] < end - slack
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
        while len(self.times) > self.kept:
            at = self.at
            latest, block = at[-1], bucket_index(at[0], self._block)
            end = (block + 1) * self._block
            # Late readings may still come into a block that has only just ended.
            if end + BLOCK_SECONDS > latest:
                return
            for tier in self.tiers:
                per_block = round(self._block / tier.width)
                first = block * per_block
                buckets = self.buckets(first, first + per_block - 1, tier.width)
                series = range(len(self.numbers))
                tier.extend(first, [self.summarise(number, buckets) for number in series])
                tier.forget_before(latest - tier.reach)
            surplus = bisect_right(at, end + BLOCK_SECONDS * TOLERANCE)
            self.times.drop(surplus)
            self.readings.drop(surplus)
            self.dropped += surplus
            self.folded_until = end

    def summarise(self, number: int, buckets: Sequence[tuple[int, int]]) -> list[Column | None]:
        """Of one series the column of each (start, stop) of the readings kept as they came."""
        if not buckets:
            return []
        first, last = buckets[0][0], buckets[-1][1]
        values = self.readings.column(number, first, last).tolist()
        seconds = self.times.column(1, first, last).tolist()
        # Where columns are narrow, several in a row hold the same reading.
        made = {
            (start, stop): column_of(
                values[start - first : stop - first], seconds[start - first : stop - first]
            )
            for start, stop in dict.fromkeys(buckets)
        }
        return [made[one] for one in buckets]

    def take_block(self, block: int, bands: dict[Hashable, Band]) -> None:
        """Take what is known of a whole block before the first reading, by the series' names."""
        end = (block + 1) * BLOCK_SECONDS
        if (self.times and end > self.at[0]) or end <= self.folded_until:
            return
        self.start([*bands])
        self.tiers[-1].extend(block, [[bands.get(name)] for name in self.numbers])
        self.folded_until = end
