"""Buckets of one width each, of what is too old to be kept as it came."""

import math
from array import array
from collections.abc import Iterable, Sequence

from gpuwatch.core.history.columns import NAN, TOLERANCE, Part

BLOCK_SECONDS = 30.0
"""Readings are folded in whole blocks: a multiple of every tier's width."""

TIERS = ((1.0, 15 * 60.0), (5.0, 3600.0), (30.0, 12 * 3600.0))
"""(bucket width, reach) in seconds, finest first."""
LONG_TIERS = TIERS[1:]

_GAP = (NAN, NAN, NAN)


class Tier:
    """Buckets of one width, contiguous; ``first`` is the number of the oldest."""

    __slots__ = ("bands", "first", "reach", "width")

    def __init__(self, width: float, reach: float) -> None:
        self.width = width
        self.reach = reach
        self.first = 0
        self.bands = (array("f"), array("f"), array("f"))
        """Minima, means, maxima."""

    def __len__(self) -> int:
        return len(self.bands[0])

    def append(self, bucket: int, columns: Iterable[Sequence[float] | None]) -> None:
        """Take the buckets from the number ``bucket`` on, with gaps since the last one."""
        missing = bucket - self.first - len(self)
        if not self or missing * self.width > self.reach:
            self._drop(len(self))
            self.first = bucket
            missing = 0
        new = [_GAP] * missing
        new += [_GAP if column is None else tuple(column) for column in columns]  # type: ignore[misc]
        for values, added in zip(self.bands, zip(*new, strict=True), strict=True):
            values.extend(added)

    def forget_before(self, at: float) -> None:
        self._drop(max(0, int(at / self.width) - self.first))

    def _drop(self, count: int) -> None:
        for values in self.bands:
            del values[:count]
        self.first += count

    def parts(self, start: float, end: float) -> list[Part]:
        """The buckets with a reading in (start, end], each with the seconds that lie in it."""
        width = self.width
        low = math.floor(start / width + TOLERANCE) - self.first
        high = math.ceil(end / width - TOLERANCE) - self.first
        picked = slice(max(0, low), max(0, high))
        minima, means, maxima = [values[picked] for values in self.bands]
        seconds = [width] * len(minima)
        if seconds:
            first = self.first + picked.start
            seconds[0] -= max(0.0, start - first * width)
            seconds[-1] -= max(0.0, (first + len(seconds)) * width - end)
        parts = zip(minima, means, maxima, seconds, strict=True)
        return [part for part in parts if part[1] == part[1]]
