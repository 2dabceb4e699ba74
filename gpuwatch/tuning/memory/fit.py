"""Least squares of memory = fixed + batch x per sample, and how well that holds.

Pure. Memory of a step is hardly noisy but seldom a line: at small sizes the peak lies elsewhere
(the optimizer's step, say), the allocator takes whole blocks, cuDNN chooses other algorithms. So
a flat stretch at the small end is left out of the line and kept as a floor, and the misfit is
told by the largest deviation and by what a parabola would explain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.tuning.search.student import two_sided

POINTS_MIN = 3
"""Of the line; two give no error."""
FLAT_SHARE = 0.25
"""A stretch whose slope is less than this share of the slope at the large end is a floor."""
FITS_SHARE = 0.02
"""A line whose largest deviation is less than this share of the memory there fits ..."""
ROUGH_SHARE = 0.10
"""... up to this one it fits roughly, beyond it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFit:
    """A line through (batch size, bytes). Errors are standard errors; ``None``: two points.

    ``left_out``: batch sizes on the floor below the line, ``floor_bytes`` their largest memory.
    ``curvature_bytes``: how far a parabola through the same points bends away from its own chord
    at the middle (positive: it sags, memory grows faster at large batches); ``bends``: it is
    larger than its error and than what counts as fitting.
    """

    fixed_bytes: float
    per_sample_bytes: float
    fixed_error_bytes: float | None
    per_sample_error_bytes: float | None
    r_squared: float | None
    sizes: tuple[int, ...]
    measured_bytes: tuple[float, ...]
    left_out: tuple[int, ...]
    floor_bytes: float | None
    residual_bytes: tuple[float, ...]
    """Measured less the line, in the order of ``sizes``."""
    spread_bytes: float | None
    """Standard deviation of the residuals, for the degrees of freedom."""
    curvature_bytes: float | None
    bends: bool

    @property
    def freedom(self) -> int:
        return len(self.sizes) - 2

    @property
    def worst(self) -> int:
        """The place of the largest deviation, as a share of the memory there."""
        shares = self._deviation_shares()
        return shares.index(max(shares))

    @property
    def deviation_bytes(self) -> float:
        """Measured less the line at the worst size."""
        return self.residual_bytes[self.worst]

    @property
    def deviation_share(self) -> float:
        """Of the memory at the worst size, without sign."""
        return self._deviation_shares()[self.worst]

    @property
    def quality(self) -> str:
        """``fits``, ``roughly`` or ``not``."""
        share = self.deviation_share
        return "fits" if share <= FITS_SHARE else "roughly" if share <= ROUGH_SHARE else "not"

    def at(self, batch_size: float) -> float:
        """Bytes on the line, not below the floor."""
        line = self.fixed_bytes + self.per_sample_bytes * batch_size
        return line if self.floor_bytes is None else max(line, self.floor_bytes)

    def interval(self, batch_size: float, confidence: float = 0.95) -> float | None:
        """Half the width of the prediction interval of one more step at ``batch_size``."""
        if self.spread_bytes is None or self.freedom < 1:
            return None
        count = len(self.sizes)
        mean = sum(self.sizes) / count
        around = sum((size - mean) ** 2 for size in self.sizes)
        widening = 1 + 1 / count + (batch_size - mean) ** 2 / around
        return two_sided(self.freedom, confidence) * self.spread_bytes * math.sqrt(widening)

    def _deviation_shares(self) -> list[float]:
        return [
            abs(residual) / max(measured, 1.0)
            for residual, measured in zip(self.residual_bytes, self.measured_bytes, strict=True)
        ]


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
    course = [by_size[size] for size in sizes]
    start = _floor_ends(sizes, course)
    found = _fit(sizes, course, start)
    if start and all(_near(by_size[size], found, size) for size in sizes[:start]):
        # A flat start that the line meets all the same contradicts nothing.
        return _fit(sizes, course, 0)
    return found


def _near(used: float, fit: LineFit, batch_size: int) -> bool:
    line = fit.fixed_bytes + fit.per_sample_bytes * batch_size
    return abs(used - line) <= FITS_SHARE * used


def _fit(sizes: Sequence[int], course: Sequence[float], start: int) -> LineFit:
    """The line from place ``start`` on."""
    kept, ys = sizes[start:], course[start:]
    fixed, slope, fixed_error, slope_error, spread, r_squared = _least_squares(kept, ys)
    curvature, error = _curvature(kept, ys)
    bends = curvature is not None and error is not None and _bends(curvature, error, kept, ys)
    return LineFit(
        fixed_bytes=fixed,
        per_sample_bytes=slope,
        fixed_error_bytes=fixed_error,
        per_sample_error_bytes=slope_error,
        r_squared=r_squared,
        sizes=tuple(kept),
        measured_bytes=tuple(ys),
        left_out=tuple(sizes[:start]),
        floor_bytes=max(course[:start]) if start else None,
        residual_bytes=tuple(y - fixed - slope * x for x, y in zip(kept, ys, strict=True)),
        spread_bytes=spread,
        curvature_bytes=curvature,
        bends=bends,
    )


def _floor_ends(sizes: Sequence[int], ys: Sequence[float]) -> int:
    """How many points at the small end belong to a floor; three stay for the line."""
    last = len(sizes) - POINTS_MIN
    if last < 1:
        return 0
    # The slope at the large end, over half of the points, so that one block does not decide.
    half = len(sizes) // 2
    tail = (ys[-1] - ys[half - 1]) / (sizes[-1] - sizes[half - 1])
    if tail <= 0:
        return 0
    start = 0
    while start < last:
        step = (ys[start + 1] - ys[start]) / (sizes[start + 1] - sizes[start])
        if step >= FLAT_SHARE * tail:
            break
        start += 1
    return start


def _least_squares(
    xs: Sequence[int], ys: Sequence[float]
) -> tuple[float, float, float | None, float | None, float | None, float | None]:
    """Fixed, slope, their standard errors, the residuals' spread, R squared."""
    count = len(xs)
    mean_x, mean_y = sum(xs) / count, sum(ys) / count
    around = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / around
    fixed = mean_y - slope * mean_x
    if count < POINTS_MIN:
        return fixed, slope, None, None, None, None
    rest = sum((y - fixed - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    whole = sum((y - mean_y) ** 2 for y in ys)
    spread = math.sqrt(rest / (count - 2))
    return (
        fixed,
        slope,
        spread * math.sqrt(1 / count + mean_x**2 / around),
        spread / math.sqrt(around),
        spread,
        1 - rest / whole if whole > 0 else None,
    )


def _curvature(xs: Sequence[int], ys: Sequence[float]) -> tuple[float | None, float | None]:
    """How far the least-squares parabola sags below its chord over the sizes, and the standard
    error of that; with fewer than four points there is none."""
    count = len(xs)
    if count < 4:
        return None, None
    # Sizes from -1 to 1: the quadratic's coefficient is then the sag itself.
    middle, half = (xs[0] + xs[-1]) / 2, (xs[-1] - xs[0]) / 2
    us = [(x - middle) / half for x in xs]
    # The part of u squared that a line does not explain, and the memory along it.
    fixed, slope = _line(us, [u * u for u in us])
    bent = [u * u - fixed - slope * u for u in us]
    weight = sum(one * one for one in bent)
    if weight < 1e-12:
        return None, None
    sag = sum(one * y for one, y in zip(bent, ys, strict=True)) / weight
    fixed, slope = _line(us, [y - sag * u * u for y, u in zip(ys, us, strict=True)])
    rest = sum((y - fixed - slope * u - sag * u * u) ** 2 for y, u in zip(ys, us, strict=True))
    return sag, math.sqrt(rest / (count - 3) / weight)


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    count = len(xs)
    mean_x, mean_y = sum(xs) / count, sum(ys) / count
    around = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / around
    return mean_y - slope * mean_x, slope


def _bends(sag: float, error: float, xs: Sequence[int], ys: Sequence[float]) -> bool:
    """Beyond chance, and by more than what counts as fitting."""
    return abs(sag) > two_sided(len(xs) - 3) * error and abs(sag) > FITS_SHARE * max(ys)
