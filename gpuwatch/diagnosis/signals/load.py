"""Load of GPUs, to be held against each other: do they move together, in turns, or each for itself;
do they work while they are busy, or wait."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import compress, pairwise
from math import isnan, nan, sqrt
from operator import mul

from gpuwatch.core.bounds import mean

CELL_SECONDS = 0.5
"""As long as the periods over which most drivers average."""
CELLS_MAX = 361
LEAST_CELLS = 16
"""Of both: fewer agree by chance."""
LEAST_SPREAD = 0.08
"""Standard deviation over mean: a reading that moves less has noise to show, and no steps."""
RESIDENT_PERCENT = 90.0
"""From here on a kernel counts as having been resident all the time."""
PLATEAU = 0.95
"""Percentile of the power that it draws at work, where it works at times."""
SPINS_POWER = 0.5
"""Of what it draws at work: a kernel of NCCL that waits draws 0.2 to 0.45 of it."""
POWER_BIN_WATTS = 5.0
POWER_BINS_MAX = 1000

Cell = tuple[float | None, ...]
"""Means (percent, watts)."""


class Load:
    """Utilisation and power of one GPU: in pieces of time that are the same for all GPUs, and how
    much power it draws for how long."""

    __slots__ = ("_begun", "_means", "_number", "_numbers", "_seconds")

    def __init__(self) -> None:
        self._numbers, self._means = array("q"), array("f")
        """Of each piece, and its two means; no number where there is none."""
        self._number, self._begun = 0, list[Cell]()
        """Of the piece that is not over."""
        self._seconds: dict[int, float] = {}
        """By the power, in bins."""

    def add(self, at: float, seconds: float, percent: float | None, watts: float | None) -> None:
        """Take what was read at a moment, for so long; the times ascend."""
        number = int(at / CELL_SECONDS)
        if number != self._number:
            if self._begun:
                self._numbers.append(self._number)
                means = self._begun[0]
                if len(self._begun) > 1:
                    means = tuple([mean(column) for column in zip(*self._begun, strict=True)])
                self._means.extend([nan if one is None else one for one in means])
            if len(self._numbers) >= 2 * CELLS_MAX:
                old = bisect_right(self._numbers, number - CELLS_MAX)
                del self._numbers[:old], self._means[: 2 * old]
            self._number, self._begun = number, []
        self._begun.append((percent, watts))
        if watts is not None:
            bin_number = min(POWER_BINS_MAX, int(watts / POWER_BIN_WATTS))
            self._seconds[bin_number] = self._seconds.get(bin_number, 0.0) + seconds

    def after(self, since: float) -> tuple[array[int], array[float], array[float]]:
        """Numbers of the pieces, and the means of each."""
        start = bisect_right(self._numbers, since / CELL_SECONDS)
        means = self._means
        return self._numbers[start:], means[2 * start :: 2], means[2 * start + 1 :: 2]

    def watts_at(self, *shares: float) -> list[float | None]:
        """Percentiles of the power, of all time; ``shares`` (0 to 1) in ascending order."""
        total, seen = sum(self._seconds.values()), 0.0
        found: list[float | None] = []
        for number in sorted(self._seconds):
            seen += self._seconds[number]
            while len(found) < len(shares) and seen >= shares[len(found)] * total:
                found.append((number + 0.5) * POWER_BIN_WATTS)
        return found + [None] * (len(shares) - len(found))

    def spins(self, since: float) -> tuple[float | None, int | None]:
        """Share of the time (0 to 1) in which a kernel was resident and drew little of what the GPU
        draws at work, and in how many stretches."""
        (plateau,) = self.watts_at(PLATEAU)
        _, *means = self.after(since)
        cells = [one for one in zip(*means, strict=True) if not isnan(sum(one))]
        if not cells or plateau is None:
            return None, None
        little = SPINS_POWER * plateau
        spins = [percent >= RESIDENT_PERCENT and watts < little for percent, watts in cells]
        return sum(spins) / len(spins), sum(
            [now > before for before, now in pairwise((False, *spins))]
        )


def agreement(loads: Sequence[Load], since: float) -> tuple[float | None, float | None]:
    """Mean correlation (-1 to 1) of all pairs of GPUs, of their utilisation and of their power;
    ``None`` where one of them does not move."""
    if len(loads) < 2:
        return None, None
    pieces = [load.after(since) for load in loads]
    columns = [(percents, watts) for _, percents, watts in pieces]
    if any(numbers != pieces[0][0] for numbers, *_ in pieces):
        common = set(pieces[0][0]).intersection(*[numbers for numbers, *_ in pieces[1:]])
        those = [[number in common for number in numbers] for numbers, *_ in pieces]
        columns = [
            (array("f", compress(percents, known)), array("f", compress(watts, known)))
            for (percents, watts), known in zip(columns, those, strict=True)
        ]
    busy, power = [_agreement(column) for column in zip(*columns, strict=True)]
    return busy, power


def _agreement(columns: Sequence[Sequence[float]]) -> float | None:
    if any(map(isnan, map(sum, columns))):
        known = [row for row in zip(*columns, strict=True) if not isnan(sum(row))]
        columns = [*zip(*known, strict=True)]
    if not columns or len(columns[0]) < LEAST_CELLS:
        return None
    scaled = []
    for column in columns:
        spread = sqrt(max(0.0, variance(column)))
        if spread <= LEAST_SPREAD * sum(column) / len(column):
            return None
        scaled.append([value / spread for value in column])
    # Their sum varies like one of them, like unrelated ones, or stays what it is: they take turns.
    count, sums = len(columns), list(map(sum, zip(*scaled, strict=True)))
    return (variance(sums) / count - 1.0) / (count - 1.0)


def variance(column: Sequence[float]) -> float:
    mean = sum(column) / len(column)
    return float(sum(map(mul, column, column)) / len(column) - mean * mean)
