"""Least squares of memory = fixed + batch x per sample, how well that holds, and what it predicts.

Pure. Memory of a step is hardly noisy but seldom a line: at small sizes the peak lies elsewhere
(the optimizer's step, say), the allocator takes whole blocks, cuDNN chooses other algorithms. So
a flat stretch at the small end is left out of the line and kept as a floor, and the misfit is
the largest deviation from the line.
"""

import math
from collections.abc import Callable, Sequence
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


def fit_line(points: Sequence[MemoryPoint]) -> LineFit | None:
    """The line through the peaks of these points, in the order of their sizes; ``None`` with fewer
    than two sizes."""
    sizes = [point.batch_size for point in points]
    memory = [float(point.peak_bytes) for point in points]
    if len(sizes) < 2:
        return None
    start = _floor_ends(sizes, memory)
    found = _fit(sizes, memory, start)
    line = [found.fixed_bytes + found.per_sample_bytes * size for size in sizes]
    near = [abs(used - its) <= FITS_SHARE * used for used, its in zip(memory, line, strict=True)]
    # A flat start that the line meets all the same contradicts nothing.
    return _fit(sizes, memory, 0) if start and all(near[:start]) else found


def _floor_ends(sizes: Sequence[int], ys: Sequence[float]) -> int:
    """How many points at the small end belong to a floor; three stay for the line."""
    # The slope at the large end, over half of the points, so that one block does not decide.
    half = len(sizes) // 2
    tail = (ys[-1] - ys[half - 1]) / (sizes[-1] - sizes[half - 1])
    start = 0
    while tail > 0 and start < len(sizes) - POINTS_MIN:
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
        squares = sum(one**2 for one in rest)
        spread = math.sqrt(squares / (len(sizes) - 2))
        fixed_error = spread * math.sqrt(1 / len(sizes) + mean**2 / around)
        slope_error = spread / math.sqrt(around)
        whole = sum((y - fmean(ys)) ** 2 for y in ys)
        r_squared = 1 - squares / whole if whole > 0 else None
    shares = [abs(one) / max(y, 1.0) for one, y in zip(rest, ys, strict=True)]
    share = max(shares)
    worst = shares.index(share)
    return LineFit(
        fixed_bytes=fixed,
        per_sample_bytes=slope,
        fixed_error_bytes=fixed_error,
        per_sample_error_bytes=slope_error,
        r_squared=r_squared,
        sizes=tuple(sizes),
        left_out=tuple(all_sizes[:start]),
        floor_bytes=max(memory[:start]) if start else None,
        spread_bytes=spread,
        quality="fits" if share <= FITS_SHARE else "roughly" if share <= ROUGH_SHARE else "not",
        largest_deviation_bytes=rest[worst],
        largest_deviation_share=share,
        largest_deviation_at=sizes[worst],
    )


def interval_bytes(fit: LineFit, batch_size: float) -> float:
    """Half the width of the 95% prediction interval of one more step at ``batch_size``; 0 where
    it is not known."""
    if fit.spread_bytes is None:
        return 0.0
    count, mean = len(fit.sizes), fmean(fit.sizes)
    around = sum((size - mean) ** 2 for size in fit.sizes)
    widening = 1 + 1 / count + (batch_size - mean) ** 2 / around
    return t95(count - 2) * fit.spread_bytes * math.sqrt(widening)


def expected_bytes(fit: LineFit, points: Sequence[MemoryPoint], batch_size: float) -> float:
    """Memory that a step at ``batch_size`` takes: by the line or, beyond the last point, by the
    last stretch, whichever says more (a line through points that bend upwards says too little)."""
    before, last = points[-2:]
    if batch_size <= last.batch_size:
        return fit.at(batch_size)
    slope = (last.peak_bytes - before.peak_bytes) / (last.batch_size - before.batch_size)
    return max(fit.at(batch_size), last.peak_bytes + slope * (batch_size - last.batch_size))


def predict(points: Sequence[MemoryPoint], margin_share: float = MARGIN_SHARE) -> Prediction | None:
    """The largest batch that fits, from points in the order of their sizes; ``None`` where memory
    does not grow with the batch.

    What is available is as the last point found it. A prediction of 0: not even one sample fits
    with the margin.
    """
    fit = fit_line(points)
    if fit is None or fit.per_sample_bytes <= 0:
        return None
    line, last = fit, points[-1]
    share = margin_share * last.total_bytes

    def fits(size: int) -> bool:
        margin = max(share, interval_bytes(line, size))
        return expected_bytes(line, points, size) + margin <= last.available_bytes

    size = _largest(fits)
    interval = interval_bytes(fit, max(size, 1))
    return Prediction(
        batch_size=size,
        margin_bytes=max(share, interval),
        margin_is_interval=interval > share,
        available_bytes=last.available_bytes,
        without_margin=_largest(
            lambda size: expected_bytes(line, points, size) <= last.available_bytes
        ),
        measured_to=last.batch_size,
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
    """True if a step that ran left what it should. The margin is there for what differs from
    step to step, so a single step may use up to half of it."""
    left = point.available_bytes - point.peak_bytes
    return left >= margin_share / 2 * point.total_bytes
