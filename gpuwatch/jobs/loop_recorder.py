"""What a job tells of its own training loops, over its time."""

from __future__ import annotations

from gpuwatch.jobs.course import Grid
from gpuwatch.jobs.gauge import Gauge, sane, whole
from gpuwatch.jobs.gpu_recorder import Span
from gpuwatch.jobs.report import LoopReport
from gpuwatch.model import Job, ProcessKey, TrainingLoop

RANKS_KEPT = 512

_SHARES = ("copy_share", "compute_share", "validation_share", "checkpoint_share")


class LoopRecorder:
    """Fed once a snapshot with the job as it is; costs nothing while nobody tells."""

    def __init__(self, grid: Grid) -> None:
        self._waits = grid.course()
        self._ranks: dict[ProcessKey, tuple[int | None, Gauge]] = {}
        self._gauges: dict[str, Gauge] = {name: Gauge() for name in (*_SHARES, "wait", "speed")}
        self._memory: dict[str, Gauge] = {"allocated": Gauge(), "reserved": Gauge()}
        self._steps: dict[ProcessKey, int] = {}
        self._told = 0.0
        self._epoch: int | None = None
        self._on_device: bool | None = None

    def add(self, job: Job, span: Span) -> None:
        """What the snapshot at ``span.until`` says of the time ``span``."""
        if not job.loops:
            return
        self._told += span.seconds
        self._gauges["wait"].add(sane(job.data_wait_share, 1.0), span.seconds)
        self._gauges["speed"].add(sane(job.samples_per_second), span.seconds)
        wait = sane(job.data_wait_share, 1.0)
        if wait is not None:
            self._waits.add(span.since, span.until, 100.0 * wait)
        for name in _SHARES:
            known = [value for loop in job.loops if (value := getattr(loop, name)) is not None]
            mean = sum(known) / len(known) if known else None
            self._gauges[name].add(sane(mean, 1.0), span.seconds)
        numbers = {rank.key: rank.rank for rank in job.ranks}
        for loop in job.loops:
            self._add_loop(loop, numbers.get(loop.key), span.seconds)

    def _add_loop(self, loop: TrainingLoop, number: int | None, seconds: float) -> None:
        self._memory["allocated"].add(loop.memory_peak_bytes or loop.memory_allocated_bytes, 0.0)
        self._memory["reserved"].add(loop.memory_reserved_bytes, 0.0)
        if loop.compute_on_device is not None:
            self._on_device = loop.compute_on_device
        if loop.epoch is not None:
            self._epoch = max(self._epoch or 0, loop.epoch)
        if loop.key not in self._ranks and len(self._ranks) >= RANKS_KEPT:
            return
        if loop.steps is not None:
            self._steps[loop.key] = loop.steps
        _, gauge = self._ranks.setdefault(loop.key, (number, Gauge()))
        gauge.add(sane(loop.data_wait_share, 1.0), seconds)

    def report(self, until: float) -> LoopReport:
        gauges = self._gauges
        waits = [(gauge.mean, number) for number, gauge in self._ranks.values()]
        known = [(mean, number) for mean, number in waits if mean is not None]
        most = max(known, key=lambda one: one[0]) if len(known) > 1 else None
        return LoopReport(
            told_seconds=self._told,
            ranks=len(self._ranks) or None,
            samples_per_second=gauges["speed"].mean,
            steps=min(self._steps.values(), default=None),
            last_epoch=self._epoch,
            data_wait_percent=_percent(gauges["wait"]),
            data_wait_most_percent=None if most is None else 100.0 * most[0],
            data_wait_most_rank=None if most is None else most[1],
            compute_percent=_percent(gauges["compute_share"]),
            compute_on_device=self._on_device,
            copy_percent=_percent(gauges["copy_share"]),
            validation_percent=_percent(gauges["validation_share"]),
            checkpoint_percent=_percent(gauges["checkpoint_share"]),
            memory_allocated_peak_bytes=whole(self._memory["allocated"].peak),
            memory_reserved_peak_bytes=whole(self._memory["reserved"].peak),
            data_wait_course=self._waits.course(until),
        )


def _percent(gauge: Gauge) -> float | None:
    return None if gauge.mean is None else 100.0 * gauge.mean
