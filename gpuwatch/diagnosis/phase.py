"""Who works while the GPU waits: CPU samples held against the GPU's, moment by moment."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, sub

from gpuwatch.diagnosis.waveform import BUSY_PERCENT, IDLE_PERCENT

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


@dataclass(frozen=True, slots=True)
class Phase:
    """CPU use held against the GPU's."""

    correlation: float | None = None
    when_idle_percent: float | None = None
    when_busy_percent: float | None = None


UNSEEN = Phase()


def compare(spans: Sequence[Span], busy: Sequence[float | None]) -> Phase:
    """``busy`` is what the GPUs did in each of ``spans`` (see ``Integral``)."""
    seen = [value for value in busy if value is not None]
    if len(seen) < LEAST_SPANS or _deviation(seen) < SWING_PERCENT:
        return UNSEEN
    values = [value for _, _, value in spans]
    best: tuple[float, int] | None = None
    for lag in LAGS:
        found = _correlation(_pairs(values, busy, lag))
        if found is not None and (best is None or abs(found) > abs(best[0]) + 1e-9):
            best = (found, lag)
    pairs = _pairs(values, busy, 0 if best is None else best[1])
    return Phase(
        correlation=None if best is None else best[0],
        when_idle_percent=_mean([value for value, gpu in pairs if gpu <= IDLE_PERCENT]),
        when_busy_percent=_mean([value for value, gpu in pairs if gpu >= BUSY_PERCENT]),
    )


def split(
    spans: Sequence[tuple[float | None, float | None]],
) -> tuple[float | None, float | None]:
    """Means of the (value, GPU) pairs while the GPU was idle, and while it was busy."""
    known = [(value, gpu) for value, gpu in spans if value is not None and gpu is not None]
    return (
        _mean([value for value, gpu in known if gpu <= IDLE_PERCENT]),
        _mean([value for value, gpu in known if gpu >= BUSY_PERCENT]),
    )


class Integral:
    """Samples, ready to be averaged over any stretch of time.

    Each of ``samples`` covers the ``step`` before its stamp, or less where the one before is
    nearer.
    """

    __slots__ = ("_areas", "_covers", "_lengths", "_times", "_values")

    def __init__(self, samples: Sequence[tuple[float, float]], step: float) -> None:
        self._times = times = [at for at, _ in samples]
        self._values = values = [value for _, value in samples]
        longest = 1.5 * step
        self._lengths = lengths = [
            step, *[length if length < longest else step for length in map(sub, times[1:], times)]
        ]  # fmt: skip
        self._areas = list(accumulate(map(mul, values, lengths)))
        self._covers = list(accumulate(lengths))

    def means(self, spans: Sequence[tuple[float, float]]) -> list[float | None]:
        """``None`` where less than half of a span is covered."""
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
    """The mean over several GPUs, span by span."""
    if len(rows) == 1:
        return list(rows[0])
    return [
        sum(known) / len(known)
        if (known := [value for value in column if value is not None])
        else None
        for column in zip(*rows, strict=True)
    ]


def _pairs(
    values: Sequence[float], busy: Sequence[float | None], lag: int
) -> list[tuple[float, float]]:
    if lag > 0:
        values, busy = values[:-lag], busy[lag:]
    elif lag < 0:
        values, busy = values[-lag:], busy[:lag]
    return [(value, gpu) for value, gpu in zip(values, busy, strict=True) if gpu is not None]


def _correlation(pairs: list[tuple[float, float]]) -> float | None:
    count = len(pairs)
    if count < LEAST_SPANS:
        return None
    left = [value for value, _ in pairs]
    right = [gpu for _, gpu in pairs]
    mean_left, mean_right = sum(left) / count, sum(right) / count
    spread_left = sum(map(mul, left, left)) / count - mean_left * mean_left
    spread_right = sum(map(mul, right, right)) / count - mean_right * mean_right
    if spread_left < FLAT_PERCENT**2 or spread_right <= 0.0:
        return None
    common = sum(map(mul, left, right)) / count - mean_left * mean_right
    found: float = common / math.sqrt(spread_left * spread_right)
    return max(-1.0, min(1.0, found))


def _deviation(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum([(value - mean) ** 2 for value in values]) / len(values))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if len(values) >= LEAST_OF_A_KIND else None
