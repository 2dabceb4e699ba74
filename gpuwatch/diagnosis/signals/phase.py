"""Phases, who works while the GPU waits: CPU samples held against the GPU's, moment by moment."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, sub

from gpuwatch.core.bounds import mean
from gpuwatch.diagnosis.signals.load import variance
from gpuwatch.diagnosis.signals.waveform import BUSY_PERCENT, IDLE_PERCENT, columns

Span = tuple[float, float, float]
"""(from, to, value): the mean over that time."""

LEAST_SPANS = 10
LEAST_OF_A_KIND = 2
SWING_PERCENT = 12.0
"""Standard deviation the GPU must show over the spans: one that swings faster than they are long
shows less, and then nothing can be said."""
FLAT_PERCENT = 1.5
"""A CPU that moves less than this has no phase."""
LAGS = (0, -1, 1)
"""A sample is the mean over the time before its stamp, and the two clocks' stamps may be up to
one sample apart."""
AMBIGUOUS = 0.6
"""Where one lag says that they take turns and another, with so much of its correlation, that they
go together, the swings are too fast for these samples: a step of one sample is half a cycle."""


@dataclass(frozen=True, slots=True)
class Phase:
    """CPU use held against the GPU's."""

    correlation: float | None = None
    when_idle_percent: float | None = None
    when_busy_percent: float | None = None


UNSEEN = Phase()


def compare(spans: Sequence[Span], busy: Sequence[float | None], *, exact: bool = False) -> Phase:
    """Return how spans of CPU use go with the GPUs' ``busy`` percent in each (see ``Integral``).
    ``exact``: both are means over the same time by the same clock, so that no lag is to be looked
    for."""
    if len(spans) < LEAST_SPANS:
        return UNSEEN
    values = [value for _, _, value in spans]
    gpu = list(busy)
    if None in gpu:
        known = [(one, other) for one, other in zip(values, gpu, strict=True) if other is not None]
        values, gpu = [one for one, _ in known], [other for _, other in known]
    return _compare(values, gpu, exact=exact)  # type: ignore[arg-type]  # all known by now


def _compare(values: list[float], gpu: list[float], *, exact: bool) -> Phase:
    if len(gpu) < LEAST_SPANS or variance(gpu) < SWING_PERCENT * SWING_PERCENT:
        return UNSEEN
    best, at = None, 0
    if max(values) - min(values) > FLAT_PERCENT:
        found = [
            (one, lag)
            for lag in ((0,) if exact else LAGS)
            if (one := _correlation(*_shifted(values, gpu, lag))) is not None
        ]
        if found:
            best, at = max(found, key=lambda pair: (abs(pair[0]), -abs(pair[1])))
            if any(one * best < -AMBIGUOUS * best * best for one, _ in found):
                return UNSEEN
    idle, working = split_means(*_shifted(values, gpu, at))
    return Phase(correlation=best, when_idle_percent=idle, when_busy_percent=working)


def split_means(
    values: Sequence[float], gpu: Sequence[float], least: int = LEAST_OF_A_KIND
) -> tuple[float | None, float | None]:
    """Return the means of ``values`` while the GPU was idle, and while it was busy; each over at
    ``least`` so many."""
    pairs = list(zip(values, gpu, strict=True))
    return (
        _mean([value for value, one in pairs if one <= IDLE_PERCENT], least),
        _mean([value for value, one in pairs if one >= BUSY_PERCENT], least),
    )


def split(
    pairs: Sequence[tuple[float | None, float | None]], least: int
) -> tuple[float | None, float | None]:
    """Return ``split_means`` of the (value, GPU) pairs of which both are known."""
    known = [(value, gpu) for value, gpu in pairs if value is not None and gpu is not None]
    return split_means([value for value, _ in known], [gpu for _, gpu in known], least)


class Integral:
    """Samples, ready to be averaged over any stretch of time. Each of ``samples`` covers the
    ``step`` before its stamp, or less where the one before is nearer."""

    __slots__ = ("_areas", "_covers", "_lengths", "_times", "_values")

    def __init__(self, samples: Sequence[tuple[float, float]], step: float) -> None:
        self._times, self._values = times, values = columns(samples)
        longest = 1.5 * step
        self._lengths = lengths = [
            step, *[length if length < longest else step for length in map(sub, times[1:], times)]
        ]  # fmt: skip
        self._areas = list(accumulate(map(mul, values, lengths)))
        self._covers = list(accumulate(lengths))

    def means(self, spans: Sequence[tuple[float, float]]) -> list[float | None]:
        """Return the mean over each span; ``None`` where less than half of it is covered."""
        result: list[float | None] = []
        before, area, cover = -math.inf, 0.0, 0.0
        for begin, end in spans:
            if begin != before:
                area, cover = self._up_to(begin)
            area_end, cover_end = self._up_to(end)
            covered = cover_end - cover
            enough = covered > 0.0 and covered >= 0.5 * (end - begin)
            result.append((area_end - area) / covered if enough else None)
            before, area, cover = end, area_end, cover_end
        return result

    def _up_to(self, moment: float) -> tuple[float, float]:
        times = self._times
        at = bisect_left(times, moment)
        if at == len(times):
            return self._areas[-1], self._covers[-1]
        later = min(self._lengths[at], times[at] - moment)
        return self._areas[at] - later * self._values[at], self._covers[at] - later


def together(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the mean over several GPUs, span by span."""
    if len(rows) == 1:
        return list(rows[0])
    return [mean(column) for column in zip(*rows, strict=True)]


def _shifted(values: list[float], gpu: list[float], lag: int) -> tuple[list[float], list[float]]:
    if lag > 0:
        return values[:-lag], gpu[lag:]
    if lag < 0:
        return values[-lag:], gpu[:lag]
    return values, gpu


def _correlation(left: list[float], right: list[float]) -> float | None:
    count = len(left)
    spread_left, spread_right = variance(left), variance(right)
    if spread_left < FLAT_PERCENT * FLAT_PERCENT or spread_right <= 0.0:
        return None
    common = sum(map(mul, left, right)) / count - sum(left) * sum(right) / count / count
    found: float = common / math.sqrt(spread_left * spread_right)
    return max(-1.0, min(1.0, found))


def _mean(values: list[float], least: int) -> float | None:
    return sum(values) / len(values) if len(values) >= least else None
