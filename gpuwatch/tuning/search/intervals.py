"""Rates that were measured a few times each on a noisy machine, and what can be said of them.

Everything is done on logarithms, since noise of a busy machine is a share of the rate. The unit is
a visit (a process of its own), not the batches within: those share whatever happened meanwhile.
A setting is seen three to eight times, too few to know its own scatter, so the scatter of all
settings is shared in part: its variance counts like ``PRIOR`` further visits (as in G. K. Smyth,
2004, moderated t-statistics). Settings are compared by the rounds both were visited in, whose
samples and whose moments on the machine were the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpuwatch.tuning.search.student import two_sided

PRIOR = 4.0
FREEDOM_LEAST = 3.0
"""Degrees of freedom below which an interval would say no more than that nothing is known."""
FLOOR = 0.004
"""Scatter (of logarithms) that is always assumed: clocks and rounds are no better."""


class Interval(NamedTuple):
    """A rate with its 95% interval; ``low`` and ``high`` are ``None`` after too few visits."""

    rate: float
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """As a share of the rate."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / (2 * self.rate)


class Scatter(NamedTuple):
    """How much visits of one setting differ, over all settings: variance of logarithms."""

    variance: float
    freedom: float


Rates = Mapping[int, float]
"""Samples a second by the round they were measured in."""


def shared_scatter(all_rates: Sequence[Rates]) -> Scatter:
    squares, freedom = 0.0, 0.0
    for rates in all_rates:
        logs = [math.log(rate) for rate in rates.values()]
        if len(logs) > 1:
            mean = sum(logs) / len(logs)
            squares += sum((log - mean) ** 2 for log in logs)
            freedom += len(logs) - 1
    return Scatter(squares / freedom if freedom else 0.0, freedom)


def interval(rates: Rates, scatter: Scatter) -> Interval:
    """Of the mean rate (geometric). Needs at least one visit."""
    logs = [math.log(rate) for rate in rates.values()]
    return _around(*_mean(logs, scatter))


def ratio(rates: Rates, best: Rates, scatter: Scatter) -> Interval:
    """How many times as fast as ``best``, from the rounds they share; all rounds if none is."""
    shared = sorted(rates.keys() & best.keys())
    if len(shared) < 2:
        mine, its = interval(rates, scatter), interval(best, scatter)
        point = mine.rate / its.rate
        if mine.low is None or its.low is None:
            return Interval(point, None, None)
        half = math.hypot(math.log(mine.rate / mine.low), math.log(its.rate / its.low))
        return _around(math.log(point), half)
    logs = [math.log(rates[number] / best[number]) for number in shared]
    # A difference of two scatters twice; what a round has in common makes it less, never more.
    return _around(*_mean(logs, Scatter(2 * scatter.variance, scatter.freedom)))


def _around(mean: float, half: float | None) -> Interval:
    rate = math.exp(mean)
    if half is None:
        return Interval(rate, None, None)
    return Interval(rate, rate * math.exp(-half), rate * math.exp(half))


def _mean(logs: Sequence[float], scatter: Scatter) -> tuple[float, float | None]:
    """The mean of logarithms and half of its interval's width."""
    mean = sum(logs) / len(logs)
    own = len(logs) - 1
    prior = min(PRIOR, scatter.freedom)
    freedom = prior + own
    if freedom < FREEDOM_LEAST:
        return mean, None
    squares = sum((log - mean) ** 2 for log in logs)
    variance = max(FLOOR**2, (prior * scatter.variance + squares) / freedom)
    # Fractions of degrees are rounded down, the careful side.
    return mean, two_sided(int(freedom)) * math.sqrt(variance / len(logs))
