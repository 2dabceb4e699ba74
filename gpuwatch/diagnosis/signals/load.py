"""Load of GPUs, to be held against each other: do they move together, in turns, or each for itself;
do they work while they are busy, or wait."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import isnan, nan, sqrt

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
                self._means.extend([_mean(column) for column in zip(*self._begun, strict=True)])
            old = bisect_right(self._numbers, number - CELLS_MAX)
            if old:
                del self._numbers[:old], self._means[: 2 * old]
            self._number, self._begun = number, []
        self._begun.append((percent, watts))
        if watts is not None:
            bin_number = min(POWER_BINS_MAX, int(watts / POWER_BIN_WATTS))
            self._seconds[bin_number] = self._seconds.get(bin_number, 0.0) + seconds

    def after(self, since: float) -> dict[int, Cell]:
        """By the number of the piece."""
        start = bisect_right(self._numbers, since / CELL_SECONDS)
        means = [None if isnan(mean) else mean for mean in self._means[2 * start :]]
        cells = zip(means[::2], means[1::2], strict=True)
        return dict(zip(self._numbers[start:], cells, strict=True))

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
        cells = [one for one in self.after(since).values() if None not in one]
        if not cells or plateau is None:
            return None, None
        spins = [
            (percent or 0.0) >= RESIDENT_PERCENT and (watts or 0.0) < SPINS_POWER * plateau
            for percent, watts in cells
        ]
        return sum(spins) / len(spins), sum(
            [now > before for before, now in pairwise((False, *spins))]
        )


def agreement(cells: Sequence[dict[int, Cell]], place: int) -> float | None:
    """Mean correlation (-1 to 1) of all pairs of GPUs; ``None`` where one of them does not move.
    ``place``: 0 of their utilisation, 1 of their power."""
    common = set[int](cells[0]).intersection(*cells[1:]) if len(cells) > 1 else set[int]()
    rows = [[one[at][place] for one in cells] for at in sorted(common)]
    known = [[value for value in row if value is not None] for row in rows]
    columns = zip(*[row for row in known if len(row) == len(cells)], strict=True)
    moving, count = [_standardised(column) for column in columns], len(cells)
    if not moving or not all(moving):
        return None
    # Their sum varies like one of them, like unrelated ones, or stays what it is: they take turns.
    sums = [sum(values) for values in zip(*moving, strict=True)]
    variance = sum([value * value for value in sums]) / len(sums)
    return float((variance / count - 1.0) / (count - 1.0))


def _mean(column: Sequence[float | None]) -> float:
    known = [value for value in column if value is not None]
    return sum(known) / len(known) if known else nan


def _standardised(column: Sequence[float]) -> list[float]:
    """In standard deviations from the mean; none where it does not move."""
    mean = sum(column) / len(column)
    spread = sqrt(sum([(value - mean) * (value - mean) for value in column]) / len(column))
    moves = len(column) >= LEAST_CELLS and spread > LEAST_SPREAD * mean
    return [(value - mean) / spread for value in column] if moves else []
