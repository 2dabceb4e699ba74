"""The training loops that a job reports, over its time, the ranks together.

The window that is reported reaches further back than the look before. A mean of it over the looks
would count the beginning of a loop many times and smear what changes, so the sums behind it are
put together again: what was spent up to now is what was spent in the window, and what had been
spent by its beginning.
"""

from collections import deque
from typing import NamedTuple

from gpuwatch.core.model import Job, ProcessKey, TrainingLoop
from gpuwatch.outputs.report.accumulators.sums import Gauge, sane, whole
from gpuwatch.outputs.report.accumulators.time_axis import ProfileRecorder, Step
from gpuwatch.outputs.report.usage import Loop

RANKS_KEPT = 512
SHARES = ("data_wait_share", "compute_share", "copy_share", "validation_share", "checkpoint_share")
SAME_SECONDS = 0.5
"""Times of one moment, as reported and as seen, differ by less."""
_KEPT_SECONDS = 60.0
"""Windows are ten seconds, and what a step or a wait lasts longer."""

_Sums = tuple[float, ...]


class Did(NamedTuple):
    seconds: float
    """For how long of it the loop ran; all else is about those."""
    samples: float | None
    spent: tuple[float | None, ...]
    """Seconds, for each of ``SHARES``; a little negative where it was reported late that
    less was spent."""


class LoopMeter:
    def __init__(self) -> None:
        self._points: deque[tuple[float, _Sums]] = deque()
        """Seconds spent up to some moments."""
        self._kinds: tuple[bool, ...] = ()
        self._steps: int | None = None
        self._idle = True
        self._until: float | None = None
        """When it was looked at last."""

    def add(self, loop: TrainingLoop, since: float, at: float, unix: float) -> Did:
        """Its work from ``since`` (the look before) to ``at``, in monotonic seconds; ``unix``:
        wall time ``at`` that moment."""
        window = sane(loop.window_seconds)
        seconds = at - since
        if self._until is None and window is not None:
            # It began after the look before.
            seconds = min(seconds, window)
        elif self._until is not None and since - self._until > SAME_SECONDS:
            # Nobody looked for a while, of which nothing is known.
            self._steps, self._kinds = None, ()
        steps, before = loop.steps, self._steps
        made = None if steps is None or before is None or steps < before else steps - before
        idle = loop.phase == "idle"
        ran = bool(made) or not (idle and self._idle)
        spent = self._spend(loop, seconds if window is None else window, seconds, at)
        if idle and loop.reported_at_unix_seconds is not None:
            # Since then it has been idle.
            seconds = max(0.0, seconds - max(0.0, unix - loop.reported_at_unix_seconds))
        self._steps, self._idle, self._until = steps, idle, at
        return Did(seconds if ran else 0.0, _samples(loop, made, seconds), spent)

    def _spend(
        self, loop: TrainingLoop, window: float, seconds: float, at: float
    ) -> tuple[float | None, ...]:
        shares = [sane(getattr(loop, name), 1.0) for name in SHARES]
        kinds = tuple([share is None for share in shares])
        points = self._points
        before = self._sums_at(at - window) if kinds == self._kinds else None
        if before is None:
            # It begins to report (this), or nobody looked for longer than the window.
            self._kinds = kinds
            points.clear()
            points.append((at - window, (0.0,) * len(shares)))
            points.append((at, tuple([(share or 0.0) * window for share in shares])))
            return tuple([None if share is None else share * seconds for share in shares])
        last = points[-1][1]
        now = tuple(
            [(share or 0.0) * window + was for share, was in zip(shares, before, strict=True)]
        )
        points.append((at, now))
        while points[1][0] < at - max(window, _KEPT_SECONDS):
            points.popleft()
        return tuple(
            [None if none else one - was for none, one, was in zip(kinds, now, last, strict=True)]
        )

    def _sums_at(self, at: float) -> _Sums | None:
        """Straight between the moments; ``None`` outside of them."""
        points = self._points
        if not points or points[-1][0] < at:
            return None
        later = points[-1]
        for point in reversed(points):
            if point[0] <= at:
                length = later[0] - point[0]
                part = (at - point[0]) / length if length > 0.0 else 0.0
                pairs = zip(point[1], later[1], strict=True)
                return tuple([was + part * (after - was) for was, after in pairs])
            later = point
        return points[0][1] if points[0][0] - at < SAME_SECONDS else None


def _samples(loop: TrainingLoop, steps: int | None, seconds: float) -> float | None:
    """By the steps, which are counted; rates are reported from step to step."""
    rate, step_rate = sane(loop.samples_per_second), sane(loop.steps_per_second)
    if rate is None:
        return None
    if steps is None or not step_rate:
        return rate * seconds
    return steps * rate / step_rate


class Spent(Gauge):
    """Seconds that were spent on something, of those in which it is known."""

    def add(self, spent: float | None, seconds: float) -> None:
        if spent is not None and seconds > 0.0:
            self.total += spent
            self.seconds += seconds

    @property
    def percent(self) -> float | None:
        return None if self.mean is None else min(100.0, max(0.0, 100.0 * self.mean))


class _Rank:
    __slots__ = ("meter", "number", "steps", "waits")

    def __init__(self) -> None:
        self.meter = LoopMeter()
        self.number: int | None = None
        self.waits = Spent()
        self.steps: int | None = None


class LoopsAccumulator:
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
