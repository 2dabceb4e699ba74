"""The training loops that a job reports, over its time, the ranks together."""

from gpuwatch.core.model import Job, ProcessKey, TrainingLoop
from gpuwatch.outputs.report.accumulators.loop_meter import SHARES, LoopMeter
from gpuwatch.outputs.report.accumulators.steps import Step
from gpuwatch.outputs.report.accumulators.sums import Gauge, whole
from gpuwatch.outputs.report.accumulators.time_profile import ProfileRecorder
from gpuwatch.outputs.report.usage import Loop

RANKS_KEPT = 512


class Spent:
    """Seconds that were spent on something, of those in which it is known."""

    __slots__ = ("known", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.known = 0.0

    def add(self, spent: float | None, seconds: float) -> None:
        if spent is not None and seconds > 0.0:
            self.total += spent
            self.known += seconds

    @property
    def percent(self) -> float | None:
        if self.known <= 0.0:
            return None
        return min(100.0, max(0.0, 100.0 * self.total / self.known))


class _Rank:
    __slots__ = ("meter", "number", "steps", "waits")

    def __init__(self) -> None:
        self.meter = LoopMeter()
        self.number: int | None = None
        self.waits = Spent()
        self.steps: int | None = None


class LoopsAccumulator:
    """Fed once a snapshot with a job that reports."""

    def __init__(self, profile: ProfileRecorder | None) -> None:
        self._profile = profile
        self._ranks: dict[ProcessKey, _Rank] = {}
        self._spent = {name: Spent() for name in SHARES}
        self._seconds = 0.0
        """For how long a loop ran."""
        self._samples = Gauge()
        """A second."""
        self._allocated, self._reserved = Gauge(), Gauge()
        self._epoch: int | None = None
        self._on_device: bool | None = None

    def add(self, job: Job, step: Step) -> float:
        """Take what the job says of its loops; for how long of the step one ran."""
        numbers = {rank.key: rank.rank for rank in job.ranks}
        waits = Spent()
        longest, samples = 0.0, 0.0
        all_known = True
        for loop in job.loops:
            rank = self._rank(loop.key)
            if rank is None:
                continue
            if numbers.get(loop.key) is not None:
                rank.number = numbers[loop.key]
            self._note(loop, rank)
            did = rank.meter.add(loop, step.since, step.until, step.until + step.offset)
            if did.seconds <= 0.0:
                continue
            longest = max(longest, did.seconds)
            all_known = all_known and did.samples is not None
            samples += did.samples or 0.0
            for name, spent in zip(SHARES, did.spent, strict=True):
                self._spent[name].add(spent, did.seconds)
            for one in (rank.waits, waits):
                one.add(did.spent[0], did.seconds)
        self._seconds += longest
        if longest > 0.0 and all_known:
            self._samples.add(samples / longest, longest)
        if self._profile is not None and waits.percent is not None:
            self._profile.add(step.since, step.until, waits.percent)
        return longest

    def _rank(self, key: ProcessKey) -> _Rank | None:
        if key not in self._ranks and len(self._ranks) < RANKS_KEPT:
            self._ranks[key] = _Rank()
        return self._ranks.get(key)

    def _note(self, loop: TrainingLoop, rank: _Rank) -> None:
        peak = loop.memory_peak_bytes
        self._allocated.add(loop.memory_allocated_bytes if peak is None else peak, 0.0)
        self._reserved.add(loop.memory_reserved_bytes, 0.0)
        if loop.compute_on_device is not None:
            self._on_device = loop.compute_on_device
        if loop.epoch is not None:
            self._epoch = max(self._epoch or 0, loop.epoch)
        if loop.steps is not None:
            rank.steps = loop.steps

    def report(self) -> Loop:
        ranks = list(self._ranks.values())
        waits = [(rank.waits.percent, rank.number) for rank in ranks]
        known = [(percent, number) for percent, number in waits if percent is not None]
        # Of one rank it says nothing more.
        most = max(known, key=lambda one: one[0]) if len(known) > 1 else (None, None)
        spent = self._spent.items()
        return Loop(
            reported_seconds=self._seconds,
            ranks=len(ranks) or None,
            samples_per_second=self._samples.mean,
            steps=min([rank.steps for rank in ranks if rank.steps is not None], default=None),
            last_epoch=self._epoch,
            data_wait_most_percent=most[0],
            data_wait_most_rank=most[1],
            compute_on_device=self._on_device,
            **{f"{name.removesuffix('share')}percent": one.percent for name, one in spent},
            memory_allocated_peak_bytes=whole(self._allocated.peak),
            memory_reserved_peak_bytes=whole(self._reserved.peak),
        )
