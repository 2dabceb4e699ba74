"""Rates that were measured a few times each on a noisy machine, and how certain they are.

Everything is done on logarithms, since noise of a busy machine is a share of the rate. The unit is
a visit (a process of its own), not the batches within: those share whatever happened meanwhile.
A setting is seen three to eight times, too few to know its own scatter, so the scatter of all
settings is shared in part: its variance counts like ``PRIOR`` further visits (as in G. K. Smyth,
2004, moderated t-statistics). Settings are compared by the rounds both were visited in, whose
samples and whose moments on the machine were the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple

from gpuwatch.tuning.settings import Failure, Setting, Visit

PRIOR = 4.0
FREEDOM_LEAST = 3.0
"""Degrees of freedom below which an interval would say no more than that nothing is known."""
FLOOR = 0.004
"""Scatter (of logarithms) that is always assumed: clocks and rounds are no better."""

Rates = Mapping[int, float]
"""Samples a second by the round they were measured in."""


def t95(freedom: int) -> float:
    """Student's t within which 95% of the distribution lies: exact for 1 and 2 degrees of freedom,
    else by the expansion of Abramowitz and Stegun 26.7.5, which is 0.1% off at 3 and less beyond.

    >>> round(t95(5), 2)
    2.57
    """
    if freedom < 1:
        raise ValueError("there is at least one degree of freedom")
    if freedom <= 2:
        return math.tan(0.95 * math.pi / 2) if freedom == 1 else 0.95 * math.sqrt(2 / (1 - 0.95**2))
    n = freedom
    return 1.959964 + 2.372271 / n + 2.822499 / n**2 + 2.555850 / n**3 + 1.589534 / n**4


class Interval(NamedTuple):
    """A rate with its 95% interval; ``low`` and ``high`` are ``None`` after too few visits."""

    rate: float
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / (2 * self.rate)


class Scatter(NamedTuple):
    """How much visits of one setting differ, over all settings: variance of logarithms."""

    variance: float
    freedom: float


def shared_scatter(all_rates: Iterable[Rates]) -> Scatter:
    squares, freedom = 0.0, 0.0
    for rates in all_rates:
        logs = [math.log(rate) for rate in rates.values()]
        squares += sum((log - fmean(logs)) ** 2 for log in logs)
        freedom += max(0, len(logs) - 1)
    return Scatter(squares / freedom if freedom else 0.0, freedom)


def interval(rates: Rates, scatter: Scatter) -> Interval:
    """Of the mean rate (geometric). Needs at least one visit."""
    return _around(*_mean([math.log(rate) for rate in rates.values()], scatter))


def ratio(rates: Rates, best: Rates, scatter: Scatter) -> Interval:
    """How many times as fast as ``best``, from the rounds they share; all rounds if none is."""
    shared = sorted(rates.keys() & best.keys())
    if len(shared) < 2:
        mine, its = interval(rates, scatter), interval(best, scatter)
        point = math.log(mine.rate / its.rate)
        if mine.low is None or its.low is None:
            return _around(point, None)
        half = math.hypot(math.log(mine.rate / mine.low), math.log(its.rate / its.low))
        return _around(point, half)
    logs = [math.log(rates[number] / best[number]) for number in shared]
    # A difference of two scatters twice; what a round has in common makes it less, never more.
    return _around(*_mean(logs, Scatter(2 * scatter.variance, scatter.freedom)))


def _around(mean: float, half: float | None) -> Interval:
    rate = math.exp(mean)
    if half is None:
        return Interval(rate, None, None)
    return Interval(rate, rate * math.exp(-half), rate * math.exp(half))


def _mean(logs: Sequence[float], scatter: Scatter) -> tuple[float, float | None]:
    mean = fmean(logs)
    prior = min(PRIOR, scatter.freedom)
    freedom = prior + len(logs) - 1
    if freedom < FREEDOM_LEAST:
        return mean, None
    squares = sum((log - mean) ** 2 for log in logs)
    variance = max(FLOOR**2, (prior * scatter.variance + squares) / freedom)
    # Fractions of degrees are rounded down, the careful side.
    return mean, t95(int(freedom)) * math.sqrt(variance / len(logs))


@dataclass(slots=True)
class Trial:
    """All visits to one setting."""

    setting: Setting
    visits: list[Visit] = field(default_factory=list)
    failure: Failure | None = None
    dropped: str | None = None
    """Why it was not measured further: a few words."""

    @property
    def counted(self) -> list[Visit]:
        """Those that are compared: later passes, unless every pass came from the disk."""
        return [visit for visit in self.visits if not visit.cold] or self.visits

    @property
    def cold(self) -> list[Visit]:
        return [visit for visit in self.visits if visit.cold]

    @property
    def alive(self) -> bool:
        return self.failure is None and bool(self.visits)

    @property
    def rates(self) -> dict[int, float]:
        return {visit.round: visit.samples_per_second for visit in self.counted}

    @property
    def typical(self) -> float:
        """The median rate; 0 where it was not measured."""
        return median(self.rates.values()) if self.alive else 0.0

    @property
    def mean(self) -> float:
        return interval(self.rates, Scatter(0.0, 0.0)).rate

    def middle(self, of: Callable[[Visit], float | None]) -> float | None:
        known = [value for visit in self.counted if (value := of(visit)) is not None]
        return median(known) if known else None

    def compared(self, best: Trial, scatter: Scatter) -> Interval:
        """How many times as fast as ``best``."""
        return ratio(self.rates, best.rates, scatter)


def scatter_of(trials: Iterable[Trial]) -> Scatter:
    return shared_scatter(trial.rates for trial in trials if trial.alive)


def best_of(trials: Iterable[Trial]) -> Trial | None:
    """The fastest by its mean rate; of equals the one that comes first."""
    return max((one for one in trials if one.alive), key=lambda one: one.mean, default=None)


def are_neighbours(trial: Trial, best: Trial, active: Sequence[Trial]) -> bool:
    """True if no other count of workers lies between: there one visit that something disturbed
    would hide the best."""
    low, high = sorted((trial.setting.num_workers, best.setting.num_workers))
    return not any(low < one.setting.num_workers < high for one in active)
