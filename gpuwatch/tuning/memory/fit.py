"""Least squares of memory = fixed + batch x per sample, how well that holds, and what it predicts.

Pure. Memory of a step is hardly noisy but seldom a line: at small sizes the peak lies elsewhere
(the optimizer's step, say), the allocator takes whole blocks, cuDNN chooses other algorithms. So
a flat stretch at the small end is left out of the line and kept as a floor, and the misfit is
the largest deviation from the line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, linear_regression

from gpuwatch.tuning.memory.records import LineFit, MemoryPoint, Prediction
from gpuwatch.tuning.search.rates import t95

POINTS_MIN = 3
"""Of the line; two give no error."""
FLAT_SHARE = 0.25
"""A stretch whose slope is less than this share of the slope at the large end is a floor."""
FITS_SHARE = 0.02
"""A line whose largest deviation is less than this share of the memory there fits ..."""
ROUGH_SHARE = 0.10
"""... up to this one it fits roughly, beyond it does not."""
BATCH_MAX = 1 << 24
"""No batch is predicted beyond this."""
MARGIN_SHARE = 0.10
"""Of the device's memory that is left free: other steps, other algorithms, fragmentation."""


def fit_points(points: Sequence[MemoryPoint]) -> LineFit | None:
    """The line through the peaks of these points."""
    return fit_line([(one.batch_size, one.peak_bytes) for one in points])


def fit_line(points: Sequence[tuple[int, float]]) -> LineFit | None:
    """The line through (batch size, bytes), or ``None`` with fewer than two different sizes.

    Of a size measured more than once the largest counts.
    """
    by_size: dict[int, float] = {}
    for size, used in points:
        by_size[size] = max(used, by_size.get(size, used))
    if len(by_size) < 2:
        return None
    sizes = sorted(by_size)
    memory = [by_size[size] for size in sizes]
    start = _floor_ends(sizes, memory)
    found = _fit(sizes, memory, start)
    line = [found.fixed_bytes + found.per_sample_bytes * size for size in sizes[:start]]
    near = [abs(used - its) <= FITS_SHARE * used for used, its in zip(memory, line, strict=False)]
    # A flat start that the line meets all the same contradicts nothing.
    return _fit(sizes, memory, 0) if start and all(near) else found


def _floor_ends(sizes: Sequence[int], ys: Sequence[float]) -> int:
    """How many points at the small end belong to a floor; three stay for the line."""
    last = len(sizes) - POINTS_MIN
    if last < 1:
        return 0
    # The slope at the large end, over half of the points, so that one block does not decide.
    half = len(sizes) // 2
    tail = (ys[-1] - ys[half - 1]) / (sizes[-1] - sizes[half - 1])
    start = 0
    while tail > 0 and start < last:
        step = (ys[start + 1] - ys[start]) / (sizes[start + 1] - sizes[start])
        if step >= FLAT_SHARE * tail:
            break
        start += 1
    return start


def _fit(all_sizes: Sequence[int], memory: Sequence[float], start: int) -> LineFit:
    """The line from place ``start`` on."""
    sizes, ys = all_sizes[start:], memory[start:]
    slope, fixed = linear_regression(sizes, ys)
    rest = [y - fixed - slope * x for x, y in zip(sizes, ys, strict=True)]
    spread = fixed_error = slope_error = r_squared = None
    if len(sizes) >= POINTS_MIN:
        mean = fmean(sizes)
        around = sum((x - mean) ** 2 for x in sizes)
        spread = math.sqrt(sum(one**2 for one in rest) / (len(sizes) - 2))
        fixed_error = spread * math.sqrt(1 / len(sizes) + mean**2 / around)
        slope_error = spread / math.sqrt(around)
        whole = sum((y - fmean(ys)) ** 2 for y in ys)
        r_squared = 1 - sum(one**2 for one in rest) / whole if whole > 0 else None
    shares = [abs(one) / max(y, 1.0) for one, y in zip(rest, ys, strict=True)]
    share = max(shares)
    worst = shares.index(share)
    quality = "fits" if share <= FITS_SHARE else "roughly" if share <= ROUGH_SHARE else "not"
    return LineFit(
        fixed_bytes=fixed,
        per_sample_bytes=slope,
        fixed_error_bytes=fixed_error,
        per_sample_error_bytes=slope_error,
        r_squared=r_squared,
        sizes=tuple(sizes),
        measured_bytes=tuple(ys),
        left_out=tuple(all_sizes[:start]),
        floor_bytes=max(memory[:start]) if start else None,
        residual_bytes=tuple(rest),
        spread_bytes=spread,
        bends=0 if quality == "fits" else _bend(rest),
        quality=quality,
        largest_deviation_bytes=rest[worst],
        largest_deviation_share=share,
        largest_deviation_at=sizes[worst],
    )


def _bend(rest: Sequence[float]) -> int:
    """1 where memory lies above the line at both ends and below it between, -1 the other way."""
    if len(rest) < 4:
        return 0
    signs = [one > 0 for one in rest]
    changes = sum(one != other for one, other in pairwise(signs))
    if signs[0] != signs[-1] or changes != 2:
        return 0
    return 1 if signs[0] else -1


def interval_bytes(fit: LineFit, batch_size: float) -> float | None:
    """Half the width of the 95% prediction interval of one more step at ``batch_size``."""
    if fit.spread_bytes is None:
        return None
    count, mean = len(fit.sizes), fmean(fit.sizes)
    around = sum((size - mean) ** 2 for size in fit.sizes)
    widening = 1 + 1 / count + (batch_size - mean) ** 2 / around
    return t95(count - 2) * fit.spread_bytes * math.sqrt(widening)


def expected_bytes(fit: LineFit, points: Sequence[MemoryPoint], batch_size: float) -> float:
    """What a step at ``batch_size`` takes: by the line or, beyond the last point, by the last
    stretch, whichever says more (a line through points that bend upwards says too little)."""
    found = fit.at(batch_size)
    known = sorted({point.batch_size: point.peak_bytes for point in points}.items())
    if len(known) < 2 or batch_size <= known[-1][0]:
        return found
    (x0, y0), (x1, y1) = known[-2:]
    return max(found, y1 + (y1 - y0) / (x1 - x0) * (batch_size - x1))


def predict(points: Sequence[MemoryPoint], margin_share: float = MARGIN_SHARE) -> Prediction | None:
    """The largest batch that fits; ``None`` where memory does not grow with the batch.

    What is available is as the last point found it. A prediction of 0: not even one sample fits
    with the margin.
    """
    fit = fit_points(points)
    if fit is None or fit.per_sample_bytes <= 0:
        return None
    line, last = fit, points[-1]
    share = margin_share * last.total_bytes

    def needs(size: int) -> float:
        margin = max(share, interval_bytes(line, size) or 0.0)
        return expected_bytes(line, points, size) + margin

    size = _largest(lambda size: needs(size) <= last.available_bytes)
    interval = interval_bytes(fit, max(size, 1))
    return Prediction(
        batch_size=size,
        expected_bytes=expected_bytes(fit, points, max(size, 1)),
        interval_bytes=interval,
        margin_bytes=max(share, interval or 0.0),
        margin_is_interval=interval is not None and interval > share,
        available_bytes=last.available_bytes,
        without_margin=_largest(
            lambda size: expected_bytes(line, points, size) <= last.available_bytes
        ),
        measured_to=max(point.batch_size for point in points),
        capped=size >= BATCH_MAX,
    )


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest size up to ``BATCH_MAX`` for which a monotone ``fits`` holds; 0: none."""
    low, high = 0, 1
    while high <= BATCH_MAX and fits(high):
        low, high = high, high * 2
    high = min(high, BATCH_MAX + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def leaves_margin(point: MemoryPoint, margin_share: float) -> bool:
    """Whether a step that ran left what it should. The margin is there for what differs from
    step to step, so a single step may use up to half of it."""
    left = point.available_bytes - point.peak_bytes
    return left >= margin_share / 2 * point.total_bytes
