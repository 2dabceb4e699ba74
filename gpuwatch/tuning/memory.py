"""``gpuwatch tune memory``: peaks at three batch sizes, a line, and the largest that fits.

Pure: whoever measures stands behind ``Measure``.
"""

from collections.abc import Callable, Sequence
from statistics import linear_regression

from msgspec import Struct

from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.records import MemoryPoint

AS_IS = "as is"
"""The step as its author wrote it; any other precision is an autocast type around it."""
FIRST = 8
POINTS = 3
GROWN_SHARE = 0.1
"""Memory has grown with the batch once it is this much above that of the size before."""
LEAP = 4
"""Times the size before, while the batch still weighs nothing."""
BACK_SHARE = 0.9
"""Times a size that ran out: the next one tried, unless that is far above what fits."""
STEPS_MOST = 10
BATCH_MAX = 1 << 24
Measure = Callable[[int, str], MemoryPoint]
"""Takes a batch size and a precision. Raises ``MeasureError``, with the code ``no_memory`` where
it does not fit."""


class LineFit(Struct, frozen=True, kw_only=True):
    """memory = ``fixed_bytes`` + batch x ``per_sample_bytes``; ``largest_deviation_share``: of a
    peak from the line, as a share of the peak."""

    fixed_bytes: float
    per_sample_bytes: float
    largest_deviation_share: float
    largest_deviation_at: int

    def at(self, batch_size: float) -> float:
        """Return bytes."""
        return self.fixed_bytes + self.per_sample_bytes * batch_size


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
    def fit(self) -> LineFit | None:
        """The line through the sizes from where memory grows; ``None``: it does not, or fewer than
        two were measured."""
        points = self.points
        while len(points) > 2 and not _grown(points[0], points[1]):
            points = points[1:]
        if len(points) < 2 or not _grown(points[0], points[-1]):
            return None
        sizes = [float(one.batch_size) for one in points]
        peaks = [float(one.peak_bytes) for one in points]
        slope, fixed = linear_regression(sizes, peaks)
        off = [abs(peak - fixed - slope * size) / peak
               for size, peak in zip(sizes, peaks, strict=True)]  # fmt: skip
        return LineFit(
            fixed_bytes=fixed,
            per_sample_bytes=slope,
            largest_deviation_share=max(off),
            largest_deviation_at=int(sizes[off.index(max(off))]),
        )

    @property
    def predicted(self) -> int | None:
        """The largest batch that leaves the margin, by the line; 0: not even one sample. ``None``
        where memory does not grow."""
        line = self.fit
        if line is None or line.per_sample_bytes <= 0:
            return None
        last = self.points[-1]
        room = last.available_bytes - self.margin_share * last.total_bytes
        size = (room - line.fixed_bytes) / line.per_sample_bytes
        return max(0, min(int(size + 1e-6), BATCH_MAX))

    @property
    def fits(self) -> int:
        """The largest size that a step has shown to fit; 0: none. The margin is there for changes
        from step to step, so a single step may use up to half of it."""
        kept = self.margin_share / 2
        return max(
            (one.batch_size for one in self.points
             if one.available_bytes - one.peak_bytes >= kept * one.total_bytes), default=0,
        )  # fmt: skip

    def next_size(self) -> int | None:
        """Return what to measure next; ``None``: enough is known."""
        if not self.points:
            return FIRST if self.ran_out_at is None else self.ran_out_at // 2 or None
        largest, predicted = self.points[-1].batch_size, self.predicted
        if self.ran_out_at is None and (len(self.points) < POINTS or predicted is None):
            grown = len(self.points) < 2 or _grown(*self.points[-2:])
            further = largest * (2 if grown else LEAP)
            if predicted is not None and predicted > largest:
                further = min(further, predicted)
            return further if further <= BATCH_MAX else None
        if predicted is None:
            return None
        if self.ran_out_at is not None and self.ran_out_at <= predicted:
            far = self.ran_out_at > 2 * largest
            over = self.ran_out_at
            predicted = int((largest * over) ** 0.5 if far else BACK_SHARE * over)
        return predicted if predicted > largest else None


def _grown(one: MemoryPoint, other: MemoryPoint) -> bool:
    return other.peak_bytes > (1 + GROWN_SHARE) * one.peak_bytes


class MemoryReport(Struct, kw_only=True):
    """Everything measured, the step as it is first. ``device``: ``cuda:1`` or ``cpu``.
    ``limit_bytes``: memory the device was taken to have, less than it has."""

    step: str
    loader: str | None
    device: str
    device_name: str
    torch_version: str
    limit_bytes: int | None
    results: list[Series] = []
    interrupted: bool = False


def run(
    report: MemoryReport,
    measure: Measure,
    precisions: Sequence[str],
    margin_share: float,
    doing: Callable[[str], None],
) -> None:
    """Measure everything into ``report``; Ctrl-C ends it with what there is. ``doing`` is given
    what comes next. Raises ``MeasureError`` where not even the first step can be measured."""
    for precision in precisions:
        series = Series(precision=precision, margin_share=margin_share)
        report.results.append(series)
        try:
            tried: set[int] = set()
            while (size := series.next_size()) and len(tried) < STEPS_MOST:
                if size in tried or series.stopped is not None:
                    break
                tried.add(size)
                doing(f"batch size {size}{'' if precision == AS_IS else f', {precision}'}")
                _step(series, size, measure)
        except KeyboardInterrupt:
            report.interrupted = True
            if not series.points:
                report.results.remove(series)
            return
        if not report.results[0].points:
            raise MeasureError(series.stopped or "Not even batch size 1 fits.")


def _step(series: Series, size: int, measure: Measure) -> None:
    try:
        series.points.append(measure(size, series.precision))
        series.points.sort(key=lambda one: one.batch_size)
    except MeasureError as error:
        if error.code == "no_memory":
            series.ran_out_at = size
            if size == 1:
                series.stopped = f"Not even batch size 1 fits. {error}"
        elif series.points and error.code != "hang":
            series.stopped = f"Batch size {size} could not be measured: {error}"
        else:
            series.stopped = str(error)
