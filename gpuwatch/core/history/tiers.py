"""Buckets of one width each, of what is too old to be kept as it came.

In half precision (0.05%, of numbers up to 65504): charts show less, and hours of a machine with
many GPUs and processes are some MiB. Bytes and samples are therefore kept in larger units.
"""

import math
from collections.abc import Sequence

from gpuwatch.core.history.columns import NAN, TOLERANCE, Band, Part
from gpuwatch.core.history.rows import Rows

BLOCK_SECONDS = 30.0
"""Readings are folded in whole blocks: a multiple of every tier's width."""

Tiers = tuple[tuple[float, float], ...]
TIERS: Tiers = ((1.0, 15 * 60.0), (5.0, 3600.0), (30.0, 12 * 3600.0))
"""(bucket width, reach) in seconds, finest first."""
_GAP = (NAN, NAN, NAN)
LONG_TIERS = TIERS[1:]
SPARK_TIERS = ((5.0, 15 * 60.0), (60.0, 12 * 3600.0))
"""Of what is only drawn in a few columns, up to now."""
_UNITS = {"bytes": float(1 << 27), "samples": float(1 << 8)}
"""Up to 8 TiB, of which 8 KiB are still counted; up to 16 million a second."""


def unit_of(name: object) -> float:
    """What a series of this name is counted in here: a power of two, which costs no precision."""
    return next((unit for word, unit in _UNITS.items() if word in str(name)), 1.0)


class Tier:
    """Buckets of one width, contiguous: of each series the minimum, mean and maximum. ``first`` is
    the number of the oldest."""

    __slots__ = ("_rows", "_units", "first", "reach", "width")

    def __init__(self, width: float, reach: float) -> None:
        self.width = width
        self.reach = reach
        self.first = 0
        self._units: list[float] = []
        # Blocks come before those that have become too old are dropped.
        self._rows = Rows("e", 0, round(reach / width) + 64)

    def __len__(self) -> int:
        return len(self._rows)

    def widen(self, names: Sequence[object]) -> None:
        """Take these series as well."""
        self._units += map(unit_of, names)
        self._rows.widen(3 * len(names), NAN)

    def extend(self, bucket: int, columns: Sequence[Sequence[Band | None]]) -> None:
        """Take the buckets of each series from the number ``bucket`` on, with gaps since the last
        one."""
        missing = bucket - self.first - len(self)
        if not self or missing * self.width > self.reach:
            self._drop(len(self))
            self.first = bucket
            missing = 0
        for _ in range(missing):
            self._rows.append([NAN] * self._rows.width)
        for bands in zip(*columns, strict=True):
            row: list[float] = []
            for band, unit in zip(bands, self._units, strict=True):
                row += _GAP if band is None else [number / unit for number in band]
            self._rows.append(row)

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
        unit = self._units[series]
        minima, means, maxima = [
            [unit * one for one in self._rows.numbers(3 * series + number, low, high)]
            for number in range(3)
        ]
        seconds = [width] * len(minima)
        if seconds:
            seconds[0] -= max(0.0, start - (self.first + low) * width)
            seconds[-1] -= max(0.0, (self.first + low + len(seconds)) * width - end)
        parts = zip(minima, means, maxima, seconds, strict=True)
        return [part for part in parts if math.isfinite(part[1])]
