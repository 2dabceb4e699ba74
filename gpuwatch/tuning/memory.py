"""``gpuwatch tune memory``: peaks at three batch sizes, a line through them, and the largest that
fits. Pure: whoever measures stands behind ``Measure``."""

from collections.abc import Callable
from statistics import linear_regression

from msgspec import Struct

from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.records import MemoryPoint

FIRST = 8
POINTS = 3
GROWN_SHARE = 0.1
"""Memory has grown with the batch once it is this much above that of the size before."""
LEAP = 4
"""Times the size before, while the batch still weighs nothing."""
MARGIN_SHARE = 0.1
"""Share of the device's memory that is to stay free."""
BACK_SHARE = 0.9
"""Times a size that ran out of memory: the next one tried."""
STEPS_MOST = 10
BATCH_MAX = 1 << 24
Measure = Callable[[int], MemoryPoint]
"""Takes a batch size. Raises ``MeasureError``, with the code ``no_memory`` where it does not
fit."""


class LineFit(Struct, frozen=True, kw_only=True):
    """memory = ``fixed_bytes`` + batch x ``per_sample_bytes``; ``largest_deviation_share``: the
    distance of a peak from the line, as a share of the peak."""

    fixed_bytes: float
    per_sample_bytes: float
    largest_deviation_share: float
    largest_deviation_at: int


class MemoryReport(Struct, kw_only=True):
    """Everything measured; ``points`` in the order of their sizes.

    ``device``: ``cuda:1`` or ``cpu``. ``limit_bytes``: memory the device was taken to have, less
    than it has. ``ran_out_at``: the smallest size that ran out of memory. ``stopped``: why there
    is no more, a sentence.
    """

    step: str
    device: str
    device_name: str
    torch_version: str
    limit_bytes: int | None
    points: list[MemoryPoint] = []
    ran_out_at: int | None = None
    stopped: str | None = None
    interrupted: bool = False

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
        pairs = zip(sizes, peaks, strict=True)
        off = [abs(peak - fixed - slope * size) / peak for size, peak in pairs]
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
        room = last.available_bytes - MARGIN_SHARE * last.total_bytes
        size = (room - line.fixed_bytes) / line.per_sample_bytes
        return max(0, min(int(size + 1e-6), BATCH_MAX))

    @property
    def fits(self) -> int:
        """The largest size that a step has shown to fit; 0: none. The margin is there for changes
        from step to step, so a single step may use up to half of it."""
        kept = MARGIN_SHARE / 2
        fitting = [
            one.batch_size
            for one in self.points
            if one.available_bytes - one.peak_bytes >= kept * one.total_bytes
        ]
        return max(fitting, default=0)

    def next_size(self) -> int | None:
        """Return the size to measure next: three that grow, halved where they run out of memory,
        then the predicted one, and smaller ones until one fits; ``None``: enough is known."""
        over = self.ran_out_at
        if not self.points:
            return FIRST if over is None else over // 2 or None
        largest, predicted = self.points[-1].batch_size, self.predicted
        if over is None and (len(self.points) < POINTS or predicted is None):
            grown = len(self.points) < 2 or _grown(*self.points[-2:])
            size = largest * (2 if grown else LEAP)
            if predicted is not None and predicted > largest:
                size = min(size, predicted)
            return size if size <= BATCH_MAX else None
        size = predicted or 0
        if over is not None and over <= size:
            size = int(BACK_SHARE * over)
        return size if size > largest else None


def _grown(one: MemoryPoint, other: MemoryPoint) -> bool:
    return other.peak_bytes > (1 + GROWN_SHARE) * one.peak_bytes


def run(report: MemoryReport, measure: Measure, doing: Callable[[str], None]) -> None:
    """Measure everything into ``report``; Ctrl-C ends it with what there is. ``doing`` is given
    what comes next. Raises ``MeasureError`` where not even the first step can be measured."""
    tried: set[int] = set()
    try:
        while (size := report.next_size()) and size not in tried and len(tried) < STEPS_MOST:
            tried.add(size)
            doing(f"batch size {size}")
            try:
                report.points.append(measure(size))
                report.points.sort(key=lambda one: one.batch_size)
            except MeasureError as error:
                if error.code != "no_memory":
                    if not report.points:
                        raise
                    report.stopped = f"Batch size {size} could not be measured: {error}"
                    break
                report.ran_out_at = size
                if size == 1:
                    raise MeasureError(f"Not even batch size 1 fits. {error}") from None
    except KeyboardInterrupt:
        report.interrupted = True
