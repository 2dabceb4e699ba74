"""Load of GPUs, to be held against each other and against what the machine sends: do they move
together, in turns, or each for itself; do they work while they are busy, or wait."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import isnan, nan, sqrt
from operator import mul
from statistics import StatisticsError, correlation, fmean, linear_regression
from typing import NamedTuple

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

MEMORY_PERCENT = 10.0
"""A memory controller that is never busier shows no work that could rest."""
MEMORY_RESTS = 0.15
"""Of how busy it is at work: with less in the quietest twentieth of the time, work and waits are
seen apart. Steps that are shorter than a sample stay in between."""
AGAINST_CELLS = 40
"""Of less, GPUs and traffic move against each other by chance."""
LEAST_MOVE = 0.02
"""Standard deviation over mean of a traffic that moves."""
FALLS = -0.7
"""Correlation of activity and traffic from which one tells of the other."""

Cell = tuple[float | None, ...]


class Pieces:
    """Means of several readings in pieces of time that are the same for whatever is read."""

    __slots__ = ("_begun", "_count", "_means", "_number", "_numbers")

    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers, self._means = array("q"), array("f")
        """Of each piece, and its means; no number where there is none."""
        self._number, self._begun = 0, list[Cell]()
        """Of the piece that is not over."""

    def take(self, at: float, readings: Cell) -> None:
        """Take what was read at a moment; the times ascend."""
        number, count = int(at / CELL_SECONDS), self._count
        if number != self._number:
            if self._begun:
                self._numbers.append(self._number)
                means = [mean(column) for column in zip(*self._begun, strict=True)]
                self._means.extend([nan if one is None else one for one in means])
            if len(self._numbers) >= 2 * CELLS_MAX:
                old = bisect_right(self._numbers, number - CELLS_MAX)
                del self._numbers[:old], self._means[: count * old]
            self._number, self._begun = number, []
        self._begun.append(readings)

    def after(self, since: float) -> tuple[array[int], list[array[float]]]:
        """Numbers of the pieces, and the means of each reading."""
        start, count = bisect_right(self._numbers, since / CELL_SECONDS), self._count
        return self._numbers[start:], [
            self._means[count * start + place :: count] for place in range(count)
        ]


class Load(Pieces):
    """Utilisation, power, memory controller and activity of one GPU, and how much power it draws
    for how long."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        super().__init__(4)
        self._seconds: dict[int, float] = {}
        """By the power, in bins."""

    def add(
        self,
        at: float,
        seconds: float,
        percent: float | None,
        watts: float | None,
        controller: float | None = None,
        activity: float | None = None,
    ) -> None:
        """Take what was read at a moment, for so long; the times ascend."""
        self.take(at, (percent, watts, controller, activity))
        if watts is not None:
            bin_number = min(POWER_BINS_MAX, int(watts / POWER_BIN_WATTS))
            self._seconds[bin_number] = self._seconds.get(bin_number, 0.0) + seconds

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
        means = self.after(since)[1][:2]
        cells = [one for one in zip(*means, strict=True) if not isnan(sum(one))]
        if not cells or plateau is None:
            return None, None
        little = SPINS_POWER * plateau
        spins = [percent >= RESIDENT_PERCENT and watts < little for percent, watts in cells]
        return sum(spins) / len(spins), sum(
            [now > before for before, now in pairwise((False, *spins))]
        )

    def memory_rests(self, since: float) -> float | None:
        """0 to 1: how much of the time in which a kernel was resident the memory rested, where it
        works and rests in turns; ``None``: that does not show."""
        busy, _, controller, _ = self.after(since)[1]
        known = sorted(
            [
                rate
                for percent, rate in zip(busy, controller, strict=True)
                if percent >= RESIDENT_PERCENT and not isnan(rate)
            ]
        )
        if len(known) < LEAST_CELLS:
            return None
        low, level = [known[round(share * (len(known) - 1))] for share in (1.0 - PLATEAU, PLATEAU)]
        if level < MEMORY_PERCENT or low > MEMORY_RESTS * level:
            return None
        return max(0.0, 1.0 - sum(known) / len(known) / level)


class Exchange(NamedTuple):
    """What GPUs do while the machine sends; ``None``: too little was read, or it does not move."""

    power_phase: float | None = None
    """Correlation (-1 to 1) of their power with what is sent."""
    wait_share: float | None = None
    """0 to 1: how much less they do on average than they would if nothing were sent, where their
    activity falls as more is."""


def exchange(loads: Sequence[Load], sent: Pieces, since: float) -> Exchange:
    """Hold the GPUs of one job, all together, against the traffic, while kernels are resident."""
    numbers, columns = sent.after(since)
    rates = dict(zip(numbers, columns[0], strict=True))
    rows: dict[int, list[tuple[float, float, float]]] = {}
    for load in loads:
        pieces, (busy, power, _, activity) = load.after(since)
        for number, *read in zip(pieces, busy, power, activity, strict=True):
            rows.setdefault(number, []).append((read[0], read[1], read[2]))
    by_power, by_activity = list[tuple[float, float]](), list[tuple[float, float]]()
    for number, read_of_all in rows.items():
        rate = rates.get(number, nan)
        percent, watts, active = map(fmean, zip(*read_of_all, strict=True))
        if percent >= RESIDENT_PERCENT and not isnan(rate):
            by_power += [(rate, watts)] if not isnan(watts) else []
            by_activity += [(rate, active)] if not isnan(active) else []
    share, falls = None, _against(by_activity)
    if falls is not None and falls <= FALLS:
        without = linear_regression(*zip(*by_activity, strict=True)).intercept
        share = max(0.0, 1.0 - fmean([active for _, active in by_activity]) / without)
    return Exchange(_against(by_power), share)


def _against(rows: Sequence[tuple[float, float]]) -> float | None:
    if len(rows) < AGAINST_CELLS:
        return None
    rates, values = zip(*rows, strict=True)
    spread = sqrt(max(0.0, variance(rates)))
    if spread <= LEAST_MOVE * fmean(rates):
        return None
    try:
        return correlation(rates, values)
    except StatisticsError:
        # The GPUs do the same all the time.
        return None


def agreement(loads: Sequence[Load], since: float) -> tuple[float | None, float | None]:
    """Mean correlation (-1 to 1) of all pairs of GPUs, of their utilisation and of their power;
    ``None`` where one of them does not move."""
    if len(loads) < 2:
        return None, None
    pieces = [load.after(since) for load in loads]
    common = set(pieces[0][0]).intersection(*[numbers for numbers, _ in pieces[1:]])
    busy, power = [
        _agreement(
            [
                [mean for number, mean in zip(numbers, means, strict=True) if number in common]
                for numbers, means in [(one, columns[place]) for one, columns in pieces]
            ]
        )
        for place in (0, 1)
    ]
    return busy, power


def _agreement(columns: Sequence[Sequence[float]]) -> float | None:
    known = [row for row in zip(*columns, strict=True) if not isnan(sum(row))]
    if len(known) < LEAST_CELLS:
        return None
    scaled = []
    for column in zip(*known, strict=True):
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
