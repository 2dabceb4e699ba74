"""Load of GPUs, to be held against each other and against what the machine sends: do they move
together, in turns, or each for itself; do they work while they are busy, or wait."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import inf, isnan, nan, nextafter, sqrt
from operator import mul
from statistics import StatisticsError, correlation, fmean, linear_regression
from typing import NamedTuple

from gpuwatch.core.store import Table

LOAD_SECONDS = 185.0
"""A little more than the time over which the load of GPUs is compared."""
CELL_SECONDS = 0.5
"""As long as the periods over which most drivers average."""
LEAST_CELLS = 16
"""Fewest cells of each of the two: fewer agree by chance."""
LEAST_SPREAD = 0.08
"""Standard deviation over mean: a reading that moves less has noise to show, and no steps."""
RESIDENT_PERCENT = 90.0
"""From here on a kernel counts as having been resident all the time."""
PLATEAU = 0.95
"""Percentile of the power that it draws at work, where it works at times."""
SPINS_POWER = 0.5
"""Share of its power at work: a kernel of NCCL that waits draws 0.2 to 0.45 of it."""
POWER_BIN_WATTS = 5.0
POWER_BINS_MAX = 1000

MEMORY_PERCENT = 10.0
"""A memory controller that is never busier shows no work that could rest."""
MEMORY_RESTS = 0.15
"""Share of its load at work: with less in the quietest twentieth of the time, work and waits are
seen apart. Steps that are shorter than a sample stay in between."""
AGAINST_CELLS = 40
"""Fewest cells: in fewer, GPUs and traffic move against each other by chance."""
LEAST_MOVE = 0.02
"""Standard deviation over mean of a traffic that moves."""
FALLS = -0.7
"""Correlation of activity and traffic from which one tells of the other."""

LOAD_COLUMNS = ("busy", "power_mean_watts", "memory_controller_percent", "activity")
"""Columns of a GPU's table: utilisation, power, memory controller, and how active its units are."""

Pieces = tuple[list[int], list[list[float]]]
"""Numbers of pieces of time, and the mean of each column in each; no number where there is none."""


def _piece(at: float) -> int:
    return int(at / CELL_SECONDS)


def pieces_of(table: Table, names: Sequence[str], since: float = -inf) -> Pieces:
    """Return the means of columns in the pieces of time after ``since`` that are over."""
    times, columns = table.readings_since(since, names)
    numbers = [int(at / CELL_SECONDS) for at in times]
    first = 0 if since == -inf else bisect_right(numbers, _piece(since))
    # More may come into the newest.
    over = bisect_left(numbers, numbers[-1]) if numbers else 0
    numbers, columns = numbers[first:over], [column[first:over] for column in columns]
    if len(set(numbers)) == len(numbers):
        return numbers, columns
    begins = [at for at, one in enumerate(numbers) if at == 0 or numbers[at - 1] != one]
    parts = list(pairwise([*begins, len(numbers)]))
    return [numbers[begin] for begin in begins], [
        [_mean_known(column[begin:end]) for begin, end in parts] for column in columns
    ]


def _mean_known(values: Sequence[float]) -> float:
    known = [value for value in values if not isnan(value)]
    return sum(known) / len(known) if known else nan


class Load:
    """Utilisation, power, memory controller and activity of one GPU, in pieces of time that are the
    same for all GPUs, and how much power it draws for how long."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._watt_seconds: dict[int, float] = {}
        """Seconds of each power, in bins, since it has been watched."""
        self._pieces: Pieces = ([], [[] for _ in LOAD_COLUMNS])
        """Pieces up to the newest reading at ``_seen_at``."""
        self._seen_at = -inf

    def add_power(self, watts: float | None, seconds: float) -> None:
        """Take the power as it was for so long."""
        if watts is not None:
            bin_number = min(POWER_BINS_MAX, int(watts / POWER_BIN_WATTS))
            self._watt_seconds[bin_number] = self._watt_seconds.get(bin_number, 0.0) + seconds

    def after(self, since: float) -> Pieces:
        """Return the pieces after ``since``, by ``LOAD_COLUMNS``."""
        table, (numbers, columns) = self._table, self._pieces
        if self._seen_at != table.latest_at:
            self._seen_at = table.latest_at
            known = nextafter((numbers[-1] + 1) * CELL_SECONDS, -inf) if numbers else -inf
            new, added = pieces_of(table, LOAD_COLUMNS, known)
            old = bisect_right(numbers, _piece(self._seen_at - LOAD_SECONDS))
            numbers.extend(new)
            del numbers[:old]
            for column, more in zip(columns, added, strict=True):
                column.extend(more)
                del column[:old]
        begin = bisect_right(numbers, _piece(since))
        return numbers[begin:], [column[begin:] for column in columns]

    @property
    def plateau_watts(self) -> float | None:
        """Power that it draws at work, where it works at times."""
        return self.watts_at(PLATEAU)[0]

    def watts_at(self, *shares: float) -> list[float | None]:
        """Return percentiles of the power, of all time; ``shares`` (0 to 1) in ascending order."""
        total, seen = sum(self._watt_seconds.values()), 0.0
        found: list[float | None] = []
        for number in sorted(self._watt_seconds):
            seen += self._watt_seconds[number]
            while len(found) < len(shares) and seen >= shares[len(found)] * total:
                found.append((number + 0.5) * POWER_BIN_WATTS)
        return found + [None] * (len(shares) - len(found))

    def spins(self, since: float) -> tuple[float | None, int | None]:
        """Return the share of the time (0 to 1) in which a kernel was resident and drew little of
        what the GPU draws at work, and in how many stretches."""
        plateau = self.plateau_watts
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
        """Return how much (0 to 1) of the time in which a kernel was resident the memory rested,
        where it works and rests in turns; ``None``: that does not show."""
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
    """Work of GPUs while the machine sends; ``None``: too little was read, or it does not move."""

    power_phase: float | None = None
    """Correlation (-1 to 1) of their power with what is sent."""
    wait_share: float | None = None
    """0 to 1: how much less they do on average than they would if nothing were sent, where their
    activity falls as more is."""


def exchange(loads: Sequence[Load], sent: Pieces, since: float) -> Exchange:
    """Hold the GPUs of one job, all together, against the traffic that the machine ``sent``, while
    kernels are resident."""
    numbers, columns = sent
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
    """Return the mean correlation (-1 to 1) of all pairs of GPUs, of their utilisation and of their
    power; ``None`` where one of them does not move."""
    if len(loads) < 2:
        return None, None
    pieces = _common([load.after(since) for load in loads])
    busy, power = [_agreement([columns[place] for _, columns in pieces]) for place in (0, 1)]
    return busy, power


def _common(pieces: Sequence[Pieces]) -> Sequence[Pieces]:
    """Return the pieces of time in which all were read."""
    numbers = pieces[0][0]
    if all(one[0] == numbers for one in pieces):
        return pieces
    both = set(numbers).intersection(*[numbers for numbers, _ in pieces])
    return [
        (
            [number for number in numbers if number in both],
            [[v for n, v in zip(numbers, column, strict=True) if n in both] for column in columns],
        )
        for numbers, columns in pieces
    ]


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
