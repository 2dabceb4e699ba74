"""Who works while the GPU waits: CPU samples held against the GPU's, moment by moment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

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
    """``busy`` is what the GPUs did in each of ``spans`` (see ``means_over``)."""
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


def means_over(
    samples: Sequence[tuple[float, float]], step: float, spans: Sequence[tuple[float, float]]
) -> list[float | None]:
    """The mean of ``samples`` (each covers ``step`` before its stamp, or less where the one before
    is nearer) in each of ``spans``, which ascend and do not overlap. ``None`` where less than
    half of a span is covered."""
    result: list[float | None] = []
    position, count = 0, len(samples)
    for begin, end in spans:
        while position < count and samples[position][0] <= begin:
            position += 1
        at, area, covered = position, 0.0, 0.0
        while at < count:
            stamp, value = samples[at]
            start = stamp - step
            if at and samples[at - 1][0] > start:
                start = samples[at - 1][0]
            if start >= end:
                break
            overlap = min(stamp, end) - max(start, begin)
            if overlap > 0.0:
                area += overlap * value
                covered += overlap
            if stamp >= end:
                break
            at += 1
        result.append(area / covered if covered >= 0.5 * (end - begin) and covered else None)
    return result


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
    return max(-1.0, min(1.0, common / math.sqrt(spread_left * spread_right)))


def _deviation(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum([(value - mean) ** 2 for value in values]) / len(values))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if len(values) >= LEAST_OF_A_KIND else None
