"""The work of a job while its GPUs idle and while they are busy: its CPU samples, or what was read
of it from snapshot to snapshot, held against the GPUs' samples."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from gpuwatch.core.bounds import mean
from gpuwatch.core.model import BusySample
from gpuwatch.diagnosis.facts.averages import WINDOW_SECONDS
from gpuwatch.diagnosis.facts.watched_gpu import AHEAD_SECONDS, GpuTrack
from gpuwatch.diagnosis.signals.phase import (
    SWING_PERCENT,
    UNSEEN,
    Integral,
    Phase,
    Span,
    compare,
    split,
    together,
)
from gpuwatch.diagnosis.signals.running import Samples
from gpuwatch.diagnosis.signals.waveform import BUSY_PERCENT, GAP_SAMPLES, IDLE_PERCENT, Waveform

SAMPLES_MAX = 1024
COMPARED_MAX = 200
"""Newest CPU samples held against the GPU's: forty seconds of those that come each 0.2 s."""
COMPARED_GPUS_MAX = 4
"""The GPUs of a job keep step, and each costs."""
POLLS_A_CYCLE = 4.0
FINE_SECONDS = 0.6
"""GPU samples further apart than this are too coarse for them."""
FINE_LEAST = 20
HELD_SECONDS = 5.0
"""Jobs that nobody is attached to are read every few seconds; until then a reading is repeated,
and speaks for the time since the one before. One that stays the same for longer is one."""

_WHEN_IDLE = (
    "main_thread_when_idle_percent",
    "workers_when_idle_percent",
    "write_when_idle_bytes_per_second",
    "busiest_worker_when_idle_percent",
    "other_workers_when_idle_percent",
)
_LEAST_ROWS = (2, 4, 4)
"""While the GPU idles, for what is written, and for the busiest worker and the others: of two looks
at workers that take turns, the next may say the opposite."""

Shape = tuple[GpuTrack, Waveform | None]
Reading = Sequence[float | None]
"""(main threads' percent, workers' percent, bytes written a second, percent of the busiest worker,
of the others)."""
_Row = tuple[float, float, Reading]
"""(from, to, reading)."""


class CpuSamples(Samples):
    """CPU samples as the kernel's ticks show them: (monotonic seconds, percent)."""

    __slots__ = ()

    def push(self, fresh: Iterable[BusySample] | None, at: float, offset: float) -> None:
        """``offset`` is unix less monotonic time."""
        newest, found = self[-1][0] if self else at - WINDOW_SECONDS, list[tuple[float, float]]()
        for stamp, percent in fresh or ():
            moment = stamp - offset
            if newest < moment <= at + AHEAD_SECONDS:
                found.append((moment, percent))
                newest = moment
        self.extend(found)
        self.forget_until(at - WINDOW_SECONDS)

    def spans(self, since: float) -> list[Span]:
        """Of the newest; none where they are too few."""
        recent = [sample for sample in self if sample[0] > since][-COMPARED_MAX:]
        if len(recent) < FINE_LEAST:
            return []
        step = usual_step(recent)
        spans: list[Span] = []
        before = recent[0][0] - step
        for at, percent in recent:
            spans.append((max(before, at - GAP_SAMPLES * step), at, percent))
            before = at
        return spans


class Readings:
    """Readings of a job, row by row."""

    def __init__(self) -> None:
        self._rows: deque[_Row] = deque(maxlen=SAMPLES_MAX)
        self.main = CpuSamples()
        self.workers = CpuSamples()

    def push(self, at: float, seconds: float, reading: Reading) -> None:
        rows = self._rows
        begin = at - seconds
        if rows:
            first, last, before = rows[-1]
            if before == reading and at - first <= HELD_SECONDS and begin <= last + 1e-6:
                rows[-1] = (first, at, reading)
                return
        rows.append((begin, at, reading))
        while len(rows) > 1 and rows[0][1] <= at - WINDOW_SECONDS:
            rows.popleft()

    def against(self, since: float, gpus: Sequence[Shape]) -> dict[str, Any]:
        """These GPUs, over the time after ``since``: fields of ``JobFacts``."""
        rows = [row for row in self._rows if row[1] > since]
        shapes = [(gpu, shape) for gpu, shape in gpus if shape is not None]
        if not rows or not shapes:
            return {}
        low = min([shape.low_percent for _, shape in shapes])
        high = max([shape.high_percent for _, shape in shapes])
        if high - low < 2.0 * SWING_PERCENT:
            return _without_swing([reading for *_, reading in rows], low, high)
        tracks = [gpu for gpu, _ in shapes[:COMPARED_GPUS_MAX]]
        integrals = [Integral(gpu.series, usual_step(gpu.series)) for gpu in tracks]
        coarse = max([shape.sample_seconds for _, shape in shapes]) > FINE_SECONDS
        busy = _busy_over(rows, integrals)
        unseen = coarse and _too_fast([shape for _, shape in shapes])

        def by_rows(position: int) -> Phase:
            known = [
                ((begin, end, value), gpu)
                for (begin, end, reading), gpu in zip(rows, busy, strict=True)
                if (value := reading[position]) is not None
            ]
            spans, others = [span for span, _ in known], [gpu for _, gpu in known]
            return UNSEEN if unseen else compare(spans, others, exact=not coarse)

        mains = [] if coarse else self.main.spans(since)
        workers = [] if coarse else self.workers.spans(since)
        fine = _busy_over(mains, integrals)
        same = [span[:2] for span in workers] == [span[:2] for span in mains]
        fine_workers = fine if same else _busy_over(workers, integrals)
        columns = zip(*[reading[2:] for *_, reading in rows], strict=True)
        when_idle = [
            split(list(zip(column, busy, strict=True)), least)[0]
            for column, least in zip(columns, _LEAST_ROWS, strict=True)
        ]
        main = compare(mains, fine) if mains else by_rows(0)
        by_workers = compare(workers, fine_workers) if workers else by_rows(1)
        return {
            "main_thread_phase": main.correlation,
            "workers_when_busy_percent": by_workers.when_busy_percent,
            **_when_idle([main.when_idle_percent, by_workers.when_idle_percent, *when_idle]),
        }


def _when_idle(reading: Reading) -> dict[str, float | None]:
    return dict(zip(_WHEN_IDLE, reading, strict=True))


def _without_swing(readings: Sequence[Reading], low: float, high: float) -> dict[str, Any]:
    """The GPUs did the same all the time."""
    means = [mean(column) for column in zip(*readings, strict=True)]
    if low >= BUSY_PERCENT:
        return {"workers_when_busy_percent": means[1]}
    return _when_idle(means) if high <= IDLE_PERCENT else {}


def _too_fast(shapes: Sequence[Waveform]) -> bool:
    """Polls of an instant show nothing of what the GPU did between them."""
    return any(
        shape.faster_than_seen
        or (
            shape.period_seconds is not None
            and shape.period_seconds < POLLS_A_CYCLE * shape.sample_seconds
        )
        for shape in shapes
    )


def _busy_over(
    spans: Sequence[_Row] | Sequence[Span], integrals: Sequence[Integral]
) -> list[float | None]:
    ends: list[tuple[float, float]] = [span[:2] for span in spans]
    return together([integral.means(ends) for integral in integrals]) if ends else []


def usual_step(samples: Sequence[tuple[float, float]]) -> float:
    """Their usual distance, by the newest few."""
    count = len(samples)
    last = [samples[at][0] for at in range(max(0, count - 16), count)]
    distances = sorted([later - earlier for earlier, later in pairwise(last)])
    return distances[len(distances) // 2] if distances else 1.0
