"""What a job tells of its own training loops, over its time."""

from __future__ import annotations

from gpuwatch.core.model import Job, ProcessKey, TrainingLoop
from gpuwatch.jobs.report.gauge import Gauge, whole
from gpuwatch.jobs.report.gpu_recorder import Span
from gpuwatch.jobs.report.loop_meter import SHARES, Did, LoopMeter
from gpuwatch.jobs.report.report import LoopReport
from gpuwatch.jobs.report.time_profile import Grid

RANKS_KEPT = 512


class Spent:
    """Seconds that were spent on something, of those in which it is known."""

    __slots__ = ("known", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.known = 0.0

    def add(self, spent: float | None, seconds: float) -> None:
        if spent is not None:
            self.total += spent
            self.known += seconds

    @property
    def percent(self) -> float | None:
        if self.known <= 0.0:
            return None
        return min(100.0, max(0.0, 100.0 * self.total / self.known))


class LoopSums:
    """What the loops of a job did since it began to tell, the ranks together. Fed once a snapshot;
    ``shares``: names of ``SHARES``."""

    def __init__(self, shares: tuple[str, ...] = SHARES) -> None:
        self._shares = shares
        self._meters: dict[ProcessKey, LoopMeter] = {}
        self.spent = {name: Spent() for name in shares}
        self.seconds = 0.0
        """For how long a loop ran."""
        self._samples = 0.0
        self._counted = 0.0
        self._waits: dict[ProcessKey, tuple[int | None, Spent]] = {}

    def add(self, job: Job, since: float, at: float, unix: float) -> list[Did]:
        """What each of its loops did from ``since`` to ``at``, as told then; see ``LoopMeter``."""
        did = [self._meter(loop.key).add(loop, since, at, unix) for loop in job.loops]
        ran = [one for one in did if one.seconds > 0.0]
        seconds = max([one.seconds for one in ran], default=0.0)
        self.seconds += seconds
        samples = [one.samples for one in ran]
        if ran and None not in samples:
            self._samples += sum([count for count in samples if count is not None])
            self._counted += seconds
        for place, name in enumerate(self._shares):
            for one in ran:
                self.spent[name].add(one.spent[place], one.seconds)
        self._add_waits(job, did)
        return did

    def _add_waits(self, job: Job, did: list[Did]) -> None:
        numbers = {rank.key: rank.rank for rank in job.ranks}
        place = self._shares.index("data_wait_share")
        for loop, one in zip(job.loops, did, strict=True):
            known, spent = self._waits.get(loop.key) or (None, Spent())
            if len(self._waits) < RANKS_KEPT or loop.key in self._waits:
                number = numbers.get(loop.key)
                self._waits[loop.key] = (known if number is None else number, spent)
            if one.seconds > 0.0:
                spent.add(one.spent[place], one.seconds)

    def _meter(self, key: ProcessKey) -> LoopMeter:
        meter = self._meters.get(key)
        if meter is None:
            while len(self._meters) >= RANKS_KEPT:
                del self._meters[next(iter(self._meters))]
            meter = self._meters[key] = LoopMeter(self._shares)
        return meter

    @property
    def samples_per_second(self) -> float | None:
        return self._samples / self._counted if self._counted > 0.0 else None

    @property
    def ranks(self) -> int:
        """That told."""
        return len(self._waits)

    @property
    def waited_most(self) -> tuple[float, int | None] | None:
        """Percent of its time, and which rank; ``None`` where not several tell."""
        waits = [(spent.percent, number) for number, spent in self._waits.values()]
        known = [(percent, number) for percent, number in waits if percent is not None]
        return max(known, key=lambda one: one[0]) if len(known) > 1 else None


class LoopRecorder:
    """Fed once a snapshot with the job as it is; costs nothing while nobody tells."""

    def __init__(self, grid: Grid) -> None:
        self._waits = grid.course()
        self._sums = LoopSums()
        self._allocated, self._reserved = Gauge(), Gauge()
        self._steps: dict[ProcessKey, int] = {}
        self._epoch: int | None = None
        self._on_device: bool | None = None

    def add(self, job: Job, span: Span) -> None:
        """What the snapshot at ``span.until`` says of the time ``span``."""
        if not job.loops:
            return
        unix = span.until + span.wall_offset
        did = self._sums.add(job, span.since, span.until, unix)
        course = Spent()
        for loop, one in zip(job.loops, did, strict=True):
            self._note(loop)
            if one.seconds > 0.0:
                course.add(one.spent[0], one.seconds)
        waits = course.percent
        if waits is not None:
            self._waits.add(span.since, span.until, waits)

    def _note(self, loop: TrainingLoop) -> None:
        peak = loop.memory_peak_bytes
        self._allocated.add(loop.memory_allocated_bytes if peak is None else peak, 0.0)
        self._reserved.add(loop.memory_reserved_bytes, 0.0)
        if loop.compute_on_device is not None:
            self._on_device = loop.compute_on_device
        if loop.epoch is not None:
            self._epoch = loop.epoch if self._epoch is None else max(self._epoch, loop.epoch)
        if loop.steps is not None and (loop.key in self._steps or len(self._steps) < RANKS_KEPT):
            self._steps[loop.key] = loop.steps

    def report(self, until: float) -> LoopReport:
        sums = self._sums
        most = sums.waited_most
        return LoopReport(
            told_seconds=sums.seconds,
            ranks=sums.ranks or None,
            samples_per_second=sums.samples_per_second,
            steps=min(self._steps.values(), default=None),
            last_epoch=self._epoch,
            data_wait_percent=sums.spent["data_wait_share"].percent,
            data_wait_most_percent=None if most is None else most[0],
            data_wait_most_rank=None if most is None else most[1],
            compute_percent=sums.spent["compute_share"].percent,
            compute_on_device=self._on_device,
            copy_percent=sums.spent["copy_share"].percent,
            validation_percent=sums.spent["validation_share"].percent,
            checkpoint_percent=sums.spent["checkpoint_share"].percent,
            memory_allocated_peak_bytes=whole(self._allocated.peak),
            memory_reserved_peak_bytes=whole(self._reserved.peak),
            data_wait_course=self._waits.course(until),
        )
