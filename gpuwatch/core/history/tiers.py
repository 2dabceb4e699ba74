"""Buckets of one width each, of what is too old to be kept as it came."""

import math
from collections.abc import Sequence

from gpuwatch.core.history.columns import NAN, TOLERANCE, Part
from gpuwatch.core.history.rows import Rows

BLOCK_SECONDS = 30.0
"""Readings are folded in whole blocks: a multiple of every tier's width."""

TIERS = ((1.0, 15 * 60.0), (5.0, 3600.0), (30.0, 12 * 3600.0))
"""(bucket width, reach) in seconds, finest first."""
LONG_TIERS = TIERS[1:]


class Tier:
    """Buckets of one width, contiguous: of each series the minimum, mean and maximum. ``first`` is
    the number of the oldest."""

    __slots__ = ("_rows", "first", "reach", "width")

    def __init__(self, width: float, reach: float) -> None:
        self.width = width
        self.reach = reach
        self.first = 0
        # A block comes before those that have become too old are dropped.
        self._rows = Rows("f", 0, round((reach + 2 * BLOCK_SECONDS) / width))

    def __len__(self) -> int:
        return len(self._rows)

    def widen(self, series: int) -> None:
        """Take so many series more."""
        self._rows.widen(3 * series, NAN)

    def extend(self, bucket: int, count: int, numbers: Sequence[float]) -> None:
        """Take ``count`` buckets from the number ``bucket`` on, with gaps since the last one."""
        missing = bucket - self.first - len(self)
        if not self or missing * self.width > self.reach:
            self._drop(len(self))
            self.first = bucket
            missing = 0
        gaps = [NAN] * (missing * self._rows.width)
        self._rows.extend([*gaps, *numbers], missing + count)

    def forget_before(self, at: float) -> None:
        self._drop(max(0, int(at / self.width) - self.first))

    def _drop(self, count: int) -> None:
        self._rows.drop(count)
        self.first += count

    def parts(self, series: int, start: float, end: float) -> list[Part]:
        """The buckets with a reading in (start, end], each with the seconds that lie in it."""
        width = self.width
        low = max(0, math.floor(start / width + TOLERANCE) - self.first)
        high = max(0, math.ceil(end / width - TOLERANCE) - self.first)
        minima, means, maxima = [
            self._rows.column(3 * series + number, low, high).tolist() for number in range(3)
        ]
        seconds = [width] * len(minima)
        if seconds:
            seconds[0] -= max(0.0, start - (self.first + low) * width)
            seconds[-1] -= max(0.0, (self.first + low + len(seconds)) * width - end)
        parts = zip(minima, means, maxima, seconds, strict=True)
        return [part for part in parts if math.isfinite(part[1])]
