"""Work of a job while its GPUs idle and while they are busy: its CPU samples, or its readings from
snapshot to snapshot, held against the GPUs' samples."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from gpuwatch.core.bounds import mean
from gpuwatch.core.model import BusySample
from gpuwatch.core.store import Table
from gpuwatch.diagnosis.facts.gpu import AHEAD_SECONDS, GpuTrack
from gpuwatch.diagnosis.finding import WINDOW_SECONDS
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
from gpuwatch.diagnosis.signals.waveform import (
    BUSY_PERCENT,
    GAP_SAMPLES,
    IDLE_PERCENT,
    Samples,
    Waveform,
)

_PERCENT = ("percent",)
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
Row = tuple[float, float, Reading]
"""(from, to, reading)."""


class CpuSamples:
    """CPU samples as the kernel's ticks show them, over the last minute."""

    def __init__(self) -> None:
        self._table = Table(_PERCENT, tiers=(), code="d", keep_seconds=WINDOW_SECONDS)

    def push(self, fresh: Iterable[BusySample] | None, at: float, offset: float) -> None:
        """Take the samples that are newer than those before; ``offset`` is unix less monotonic
        time."""
        table = self._table
        oldest = at - WINDOW_SECONDS
        for stamp, percent in fresh or ():
            moment, before = stamp - offset, table.latest_at
            if max(before, oldest) < moment <= at + AHEAD_SECONDS:
                table.add_row(moment, moment - max(before, oldest), (percent,))

    def clear(self) -> None:
        """Forget all samples."""
        self._table.clear()

    def spans(self, since: float) -> list[Span]:
        """Return the newest samples after ``since``, each as the mean over the time before it; none
        where they are too few."""
        times, (percents,) = self._table.readings_since(since, _PERCENT)
        times, percents = times[-COMPARED_MAX:], percents[-COMPARED_MAX:]
        if len(times) < FINE_LEAST:
            return []
        step = usual_step(Samples(times, percents))
        befores = [times[0] - step, *times]
        return [
            (max(before, at - GAP_SAMPLES * step), at, percent)
            for before, at, percent in zip(befores, times, percents, strict=False)
        ]


def rows_of(table: Table, names: Sequence[str], since: float) -> list[Row]:
    """Return the rows of a job's table after ``since`` with these readings of it. One that stays
    the same for a while is one row."""
    times, columns = table.readings_since(since, names)
    seconds = table.seconds[len(table) - len(times) :].tolist()
    rows: list[Row] = []
    for at, length, *values in zip(times, seconds, *columns, strict=True):
        reading = [None if math.isnan(value) else value for value in values]
        begin = at - length
        if rows:
            first, last, before = rows[-1]
            if before == reading and at - first <= HELD_SECONDS and begin <= last + 1e-6:
                rows[-1] = (first, at, reading)
                continue
        rows.append((begin, at, reading))
    return rows


class JobSamples:
    """Fine CPU samples of a job, held against the GPUs' samples beside what was read of it from
    snapshot to snapshot."""

    def __init__(self) -> None:
        self.main = CpuSamples()
        self.workers = CpuSamples()

    def against(self, rows: Sequence[Row], since: float, gpus: Sequence[Shape]) -> dict[str, Any]:
        """Return what the job did while these GPUs idled and while they were busy, over the time
        after ``since``: fields of ``JobFacts``."""
        shapes = [(gpu, shape) for gpu, shape in gpus if shape is not None]
        if not rows or not shapes:
            return {}
        low = min([shape.low_percent for _, shape in shapes])
        high = max([shape.high_percent for _, shape in shapes])
        if high - low < 2.0 * SWING_PERCENT:
            return _without_swing([reading for *_, reading in rows], low, high)
        samples = [gpu.samples() for gpu, _ in shapes[:COMPARED_GPUS_MAX]]
        integrals = [Integral(one, usual_step(one)) for one in samples]
        coarse = max([shape.sample_seconds for _, shape in shapes]) > FINE_SECONDS
        unseen = coarse and _too_fast([shape for _, shape in shapes])
        by_rows = _RowsOnGpu(rows, _busy_over(rows, integrals), unseen=unseen, exact=not coarse)
        mains, others = (None, None) if coarse else self._fine(since, integrals)
        main, workers = mains or by_rows.phase(0), others or by_rows.phase(1)
        rest = [by_rows.when_idle(number, least) for number, least in enumerate(_LEAST_ROWS, 2)]
        return {
            "main_thread_phase": main.correlation,
            "workers_when_busy_percent": workers.when_busy_percent,
            **_when_idle([main.when_idle_percent, workers.when_idle_percent, *rest]),
        }

    def _fine(
        self, since: float, integrals: Sequence[Integral]
    ) -> tuple[Phase | None, Phase | None]:
        """Hold the CPU samples of the main threads and of the workers against the GPUs; ``None``
        where they are too few."""
        mains, others = self.main.spans(since), self.workers.spans(since)
        busy = _busy_over(mains, integrals)
        # Both are usually read at the same moments, and each look at the GPUs costs.
        alike = [span[:2] for span in others] == [span[:2] for span in mains]
        others_busy = busy if alike else _busy_over(others, integrals)
        return (
            compare(mains, busy) if mains else None,
            compare(others, others_busy) if others else None,
        )


class _RowsOnGpu:
    """Rows of a job, with how busy the GPUs were meanwhile. ``unseen``: the GPUs swing too fast for
    them; ``exact``: both are means over the same time."""

    def __init__(
        self, rows: Sequence[Row], busy: Sequence[float | None], *, unseen: bool, exact: bool
    ) -> None:
        self._rows, self._busy = rows, busy
        self._unseen, self._exact = unseen, exact

    def phase(self, number: int) -> Phase:
        """Hold one reading of the rows against the GPUs."""
        if self._unseen:
            return UNSEEN
        known = [
            ((begin, end, value), gpu)
            for (begin, end, reading), gpu in zip(self._rows, self._busy, strict=True)
            if (value := reading[number]) is not None
        ]
        return compare([span for span, _ in known], [gpu for _, gpu in known], exact=self._exact)

    def when_idle(self, number: int, least: int) -> float | None:
        """Return the mean of one reading over at least so many rows in which the GPUs idled."""
        column = [reading[number] for *_, reading in self._rows]
        return split(list(zip(column, self._busy, strict=True)), least)[0]


def _when_idle(reading: Reading) -> dict[str, float | None]:
    return dict(zip(_WHEN_IDLE, reading, strict=True))


def _without_swing(readings: Sequence[Reading], low: float, high: float) -> dict[str, Any]:
    """Return the facts of a job whose GPUs did the same all the time."""
    means = [mean(column) for column in zip(*readings, strict=True)]
    if low >= BUSY_PERCENT:
        return {"workers_when_busy_percent": means[1]}
    return _when_idle(means) if high <= IDLE_PERCENT else {}


def _too_fast(shapes: Sequence[Waveform]) -> bool:
    """Check whether GPUs swing faster than polls of an instant can show."""
    return any(
        shape.faster_than_seen
        or (
            shape.period_seconds is not None
            and shape.period_seconds < POLLS_A_CYCLE * shape.sample_seconds
        )
        for shape in shapes
    )


def _busy_over(
    spans: Sequence[Row] | Sequence[Span], integrals: Sequence[Integral]
) -> list[float | None]:
    ends: list[tuple[float, float]] = [span[:2] for span in spans]
    return together([integral.means(ends) for integral in integrals]) if ends else []


def usual_step(samples: Sequence[tuple[float, float]]) -> float:
    """Return the usual distance of samples, by the newest few."""
    count = len(samples)
    last = [samples[at][0] for at in range(max(0, count - 16), count)]
    distances = sorted([later - earlier for earlier, later in pairwise(last)])
    return distances[len(distances) // 2] if distances else 1.0
