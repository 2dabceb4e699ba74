"""``gpuwatch tune memory``: what was measured, the line through it, and which batch size is next.

Pure: whoever measures stands behind ``Measure``. Sizes grow until memory grows with them, leap to
a fraction of what the line predicts, and close in on the largest that a step has shown to fit.
"""

from collections.abc import Callable, Sequence
from statistics import correlation, linear_regression

from msgspec import Struct

from gpuwatch.tuning.failures import MeasureError

AS_IS = "as is"
"""The step as its author wrote it; any other precision is an autocast type around it."""
FIRST = 2
"""Batch normalisation cannot train on a batch of one."""
POINTS_MIN = 3
"""Of a line; two say nothing of how good it is."""
POINTS_WANTED = 5
STEPS_MOST = 16
"""Measurements of a precision beyond those of the first: whatever memory does, they end."""
NEAR, LEAP = 4, 8
"""Times the largest size measured: how far a prediction is trusted, and how far a leap goes."""
GROWN_SHARE = 0.1
"""Memory has grown with the batch once it is this much above that of the smallest."""
FLAT_SHARE = 0.02
"""Small sizes that differ less than this share a floor, which is no part of the line."""
FITS_SHARE, ROUGH_SHARE = 0.02, 0.10
"""A line fits, or roughly, up to this deviation as a share of the memory there."""
CLOSE_SHARE = 0.05
"""The search ends when what fits and what does not are this close."""
BATCH_MAX = 1 << 24
"""No batch is predicted beyond this."""


class Gpu(Struct, frozen=True, kw_only=True):
    """A CUDA device as torch sees it; ``bfloat16``: it computes with it."""

    name: str
    bfloat16: bool


class MemoryPoint(Struct, frozen=True, kw_only=True):
    """A few steps at one batch size in a process of their own.

    ``peak_bytes`` is what has to fit: on CUDA what torch's allocator held at most (reserved), on
    the CPU the largest resident size of the process. ``available_bytes`` is what ``peak_bytes``
    could have grown to then: what others hold, and what the process needs beside it, is taken
    off. ``allocated_bytes``: the most that tensors took at once. ``process_bytes`` and
    ``device_used_bytes``: what NVML says of the process and of the device after the steps.
    """

    batch_size: int
    peak_bytes: int
    available_bytes: int
    total_bytes: int
    allocated_bytes: int | None = None
    process_bytes: int | None = None
    device_used_bytes: int | None = None
    seconds_per_step: float | None = None


class LineFit(Struct, frozen=True, kw_only=True):
    """memory = ``fixed_bytes`` + batch x ``per_sample_bytes``.

    ``quality``: ``fits``, ``roughly`` or ``not``, by the largest deviation; ``None`` with two
    points. ``left_out``: the small batch sizes whose memory hardly differs.
    """

    fixed_bytes: float
    per_sample_bytes: float
    r_squared: float | None
    quality: str | None
    largest_deviation_bytes: float
    largest_deviation_share: float
    largest_deviation_at: int
    left_out: tuple[int, ...]

    def at(self, batch_size: float) -> float:
        """Bytes."""
        return self.fixed_bytes + self.per_sample_bytes * batch_size


def fit_line(points: Sequence[MemoryPoint]) -> LineFit | None:
    """The line through these points, in the order of their sizes; ``None``: fewer than two."""
    if len(points) < 2:
        return None
    start, floor = 0, (1 + FLAT_SHARE) * points[0].peak_bytes
    while start < len(points) - POINTS_MIN and points[start + 1].peak_bytes <= floor:
        start += 1
    start += start > 0 and len(points) - start > POINTS_MIN
    sizes = [float(point.batch_size) for point in points[start:]]
    memory = [float(point.peak_bytes) for point in points[start:]]
    slope, fixed = linear_regression(sizes, memory)
    off = [used - fixed - slope * size for size, used in zip(sizes, memory, strict=True)]
    shares = [abs(one) / max(used, 1.0) for one, used in zip(off, memory, strict=True)]
    share = max(shares)
    worst = shares.index(share)
    quality = "fits" if share <= FITS_SHARE else "roughly" if share <= ROUGH_SHARE else "not"
    known = len(sizes) >= POINTS_MIN
    return LineFit(
        fixed_bytes=fixed,
        per_sample_bytes=slope,
        r_squared=correlation(sizes, memory) ** 2 if known and len(set(memory)) > 1 else None,
        quality=quality if known else None,
        largest_deviation_bytes=off[worst],
        largest_deviation_share=share,
        largest_deviation_at=int(sizes[worst]),
        left_out=tuple(point.batch_size for point in points[:start]),
    )


class Series(Struct, kw_only=True):
    """One precision, as far as it was measured; ``points`` in the order of their sizes.

    ``ran_out_at``: the smallest size that ran out of memory. ``stopped``: why there is no more, a
    sentence.
    """

    precision: str
    margin_share: float
    points: list[MemoryPoint] = []
    ran_out_at: int | None = None
    stopped: str | None = None

    @property
    def fits(self) -> int:
        """The largest size that a step has shown to fit; 0: none. The margin is there for what
        differs from step to step, so a single step may use up to half of it."""
        kept = self.margin_share / 2
        good = (one.available_bytes - one.peak_bytes >= kept * one.total_bytes
                for one in self.points)  # fmt: skip
        sizes = [one.batch_size for one, fits in zip(self.points, good, strict=True) if fits]
        return max(sizes, default=0)

    @property
    def too_large(self) -> int | None:
        """The smallest size that a step has shown not to fit."""
        over = [one.batch_size for one in self.points if one.batch_size > self.fits]
        return min([*over, *([self.ran_out_at] if self.ran_out_at else [])], default=None)

    @property
    def predicted(self) -> int | None:
        """The largest batch that leaves the margin, by the line or by its last stretch, whichever
        says less (a line through points that bend upwards says too much); 0: not even one sample.
        ``None`` where memory does not grow."""
        line = fit_line(self.points)
        if line is None or line.per_sample_bytes <= 0:
            return None
        before, last = self.points[-2:]
        room = last.available_bytes - self.margin_share * last.total_bytes
        size = (room - line.fixed_bytes) / line.per_sample_bytes
        slope = (last.peak_bytes - before.peak_bytes) / (last.batch_size - before.batch_size)
        if slope > 0 and room > last.peak_bytes:
            size = min(size, last.batch_size + (room - last.peak_bytes) / slope)
        return max(0, min(int(size + 1e-6), BATCH_MAX))

    def next_size(self) -> int | None:
        """What to measure next; ``None``: enough is known."""
        if not self.points:
            return FIRST if self.ran_out_at is None else self.ran_out_at // 2 or None
        fits, over, predicted = self.fits, self.too_large, self.predicted
        if over is not None:
            if over - fits <= max(1, CLOSE_SHARE * fits):
                return None
            return predicted if predicted and fits < predicted < over else (fits + over) // 2
        largest = self.points[-1].batch_size
        grown = self.points[-1].peak_bytes > (1 + GROWN_SHARE) * self.points[0].peak_bytes
        if len(self.points) < POINTS_MIN or predicted is None or not grown:
            # Far up at once, while the batch still weighs nothing.
            further = largest * (2 if len(self.points) < POINTS_MIN or grown else LEAP)
            return further if further <= BATCH_MAX else None
        half = predicted // 2
        if predicted > NEAR * largest or (len(self.points) < POINTS_WANTED and half > largest):
            return min(half, LEAP * largest)
        return predicted if predicted > fits else None


class MemoryReport(Struct, kw_only=True):
    """Everything measured, the step as it is first. ``device``: ``cuda:1`` or ``cpu``.
    ``limit_bytes``: memory the device was taken to have, less than it has."""

    step: str
    loader: str | None
    device: str
    device_name: str
    torch_version: str
    limit_bytes: int | None
    margin_share: float
    results: list[Series] = []
    interrupted: bool = False


Measure = Callable[[int, str], MemoryPoint]
"""Takes a batch size and a precision. Raises ``MeasureError``, with the code ``no_memory`` where
it does not fit."""


def run(
    report: MemoryReport, measure: Measure, precisions: Sequence[str], doing: Callable[[str], None]
) -> None:
    """Measure everything into ``report``; Ctrl-C ends it with what there is. ``doing`` is given
    what comes next. Raises ``MeasureError`` where not even the first step can be measured."""
    for precision in precisions:
        series = Series(precision=precision, margin_share=report.margin_share)
        # Sizes of the first precision again, so that like is compared with like.
        sizes = [one.batch_size for one in report.results[0].points] if report.results else []
        report.results.append(series)
        try:
            for size in sizes:
                if series.stopped is None and size < (series.ran_out_at or BATCH_MAX):
                    _step(series, size, measure, doing)
            for _ in range(STEPS_MOST):
                further = series.next_size()
                if further is None or series.stopped is not None:
                    break
                _step(series, further, measure, doing)
        except KeyboardInterrupt:
            report.interrupted = True
            if not series.points:
                report.results.remove(series)
            break
        if not report.results[0].points:
            raise MeasureError(series.stopped or f"Not even batch size {FIRST // 2} fits.")


def _step(series: Series, size: int, measure: Measure, doing: Callable[[str], None]) -> None:
    autocast = "" if series.precision == AS_IS else f", {series.precision}"
    doing(f"batch size {size}{autocast}")
    try:
        series.points.append(measure(size, series.precision))
        series.points.sort(key=lambda one: one.batch_size)
    except MeasureError as error:
        if error.code == "no_memory":
            series.ran_out_at = size
            if size < FIRST and not series.points:
                series.stopped = f"Not even batch size {size} fits. {error}"
        else:
            series.stopped = str(error)
            if series.points and error.code != "hang":
                series.stopped = f"Batch size {size} could not be measured: {error}"
