"""Simulated training as a queue: loader workers make batches, the GPUs take them in order.

Nothing here is drawn. The pauses of a starved GPU, the phase between its workers and its
bursts, and the wait of fast ranks for a slow one all follow from how long each part takes.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gpuwatch.core.model import ProcessKey, TrainingLoop
from gpuwatch.sources.simulated.gpus import Activity, Device

GB = 1e9
BATCH_JITTER = 0.04
MAIN_THREAD_SHARE = 0.98
"""The rest is used by the threads of pinning and of the libraries."""

FULL_WORK = Activity(0.995, 0.94, 0.93, 0.42, 0.46, 0.52)
"""A convolution or transformer step with a batch that fills the card."""
WAITING_FOR_OTHERS = Activity(1.0, 0.24, 0.05, 0.02, 0.0, 0.02)
"""A collective kernel that spins: resident all the time, doing next to nothing."""
REDUCING = Activity(1.0, 0.42, 0.18, 0.07, 0.0, 0.35, nvlink=160 * GB)


FIRST_SAVE_SECONDS, SAVE_EVERY_SECONDS, SAVE_SECONDS = 12.0, 45.0, 8.0
"""When the first checkpoint starts, the time between two, and how long one takes."""
SAVED_BYTES_PER_SECOND = 2 * GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Costs of a job. Times are seconds, for one batch of one rank."""

    workers: int = 8
    prefetch: int = 2
    batch_cpu_seconds: float = 1.0
    batch_read_bytes: float = 30e6
    step_seconds: float = 0.3
    step_jitter: float = 0.01
    slow_ranks: tuple[tuple[int, float], ...] = ()
    """(rank, factor) for ranks whose steps take longer."""
    slow_loaders: tuple[tuple[int, float], ...] = ()
    """(rank, factor) for ranks whose batches take their workers longer."""
    gap_seconds: float = 0.003
    """The GPU's rest between two steps: optimizer bookkeeping in Python."""
    log_every_steps: int = 50
    """How often the loss is fetched and printed, which lets the GPU run dry for a moment."""
    log_seconds: float = 0.03
    reduce_seconds: float = 0.02
    pinned: bool = True
    batch_bytes: float = 0.6 * GB
    copy_bytes_per_second: float = 24 * GB
    main_cpu: float = 0.92
    """Share of a core the training process uses while its GPU runs."""
    main_share: float = 0.45
    """The main thread's own share of that: while autograd's thread launches the backward pass, the
    main thread sleeps."""
    compute: Activity = FULL_WORK
    ramp: bool = True
    """After a wait the launch queue is empty: the first kernels come with gaps."""
    saves: bool = False
    """Training stops for a checkpoint now and then."""
    reports_loop: bool = False


class Meter:
    """CPU seconds or bytes that are used at a rate over intervals, one after the other, some of
    which may lie ahead. Times are simulated seconds."""

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: deque[tuple[float, float, float]] = deque()

    def add(self, start: float, end: float, rate: float) -> None:
        """Use ``rate`` a second from ``start`` to ``end``, which is no earlier than ends before."""
        if end > start:
            self._intervals.append((start, end, rate))

    def used(self, begin: float, end: float) -> float:
        """Return how much is used between two moments."""
        total = 0.0
        for start, stop, rate in reversed(self._intervals):
            if stop <= begin:
                break
            if start < end:
                total += (min(stop, end) - max(start, begin)) * rate
        return total

    def forget_before(self, moment: float) -> None:
        intervals = self._intervals
        while intervals and intervals[0][1] <= moment:
            intervals.popleft()

    def runs(self, now: float) -> bool:
        """Return whether it turns in earnest: a few percent is a sleeper's housekeeping."""
        for start, end, rate in reversed(self._intervals):
            if start <= now:
                return now < end and rate >= 0.25
        return False


@dataclass(slots=True)
class Worker:
    """One loader worker process."""

    free_at: float
    cpu: Meter = field(default_factory=Meter)
    reads: Meter = field(default_factory=Meter)
    slip: float = 0.0


class Loader:
    """The queue of one rank, as ``torch.utils.data.DataLoader`` keeps it.

    Batch k is made by worker k modulo N, the main process takes them strictly in order, and a
    worker gets its next one when the main process has taken one: at most ``prefetch`` times N
    are on the way.
    """

    def __init__(self, plan: Training, rng: random.Random, begin: float) -> None:
        self._plan = plan
        self._rng = rng
        spread = plan.batch_cpu_seconds / max(1, plan.workers)
        self.workers = [Worker(begin + spread * n) for n in range(plan.workers)]
        self._ready: deque[float] = deque()
        self._next = 0
        for _ in range(plan.workers * plan.prefetch):
            self._dispatch(begin)

    def take_batch(self, earliest: float) -> float:
        """Return when the main process has its next batch, having asked at ``earliest``."""
        at = max(earliest, self._ready.popleft())
        self._dispatch(at)
        return at

    def queued(self, now: float) -> int:
        """Return how many batches lie ready in shared memory."""
        return sum(1 for at in self._ready if at <= now)

    def _dispatch(self, at: float) -> None:
        plan = self._plan
        worker = self.workers[self._next]
        self._next = (self._next + 1) % len(self.workers)
        # The batches of one shard cost the same in total, so what one takes longer the next
        # takes less: the workers keep their phase instead of drifting at random.
        slip = self._rng.gauss(0.0, BATCH_JITTER)
        factor = max(0.3, 1.0 + slip - worker.slip)
        worker.slip = slip
        start = max(worker.free_at, at)
        done = start + plan.batch_cpu_seconds * factor
        worker.cpu.add(start, done, 0.99)
        worker.reads.add(start, done, plan.batch_read_bytes / max(1e-3, done - start))
        worker.free_at = done
        self._ready.append(done)


@dataclass(slots=True)
class Rank:
    """One training process on one GPU."""

    device: Device
    loader: Loader | None
    slowness: float
    cpu: Meter = field(default_factory=Meter)
    main: Meter = field(default_factory=Meter)
    """The main thread's part of ``cpu``."""
    loop: LoopLog | None = None
    reads: Meter = field(default_factory=Meter)
    writes: Meter = field(default_factory=Meter)

    def use_cpu(
        self, start: float, end: float, cores: float, main: float = MAIN_THREAD_SHARE
    ) -> None:
        """Use so many cores from ``start`` to ``end``; ``main``: the main thread's share of it."""
        self.cpu.add(start, end, cores)
        self.main.add(start, end, min(1.0, cores * main))


class Ranks:
    """All ranks of one job, step after step; a single one has no collectives. ``begin`` is the
    first step's time; the processes were there ``loading_seconds`` before."""

    def __init__(
        self,
        plan: Training,
        devices: Sequence[Device],
        rng: random.Random,
        *,
        begin: float,
        end: float = float("inf"),
        loading_seconds: float = 0.0,
    ) -> None:
        self.plan = plan
        self.end = end
        self._rng = rng
        slow, late = dict(plan.slow_ranks), dict(plan.slow_loaders)

        def loading(number: int) -> Training:
            cpu_seconds = plan.batch_cpu_seconds * late.get(number, 1.0)
            return replace(plan, batch_cpu_seconds=cpu_seconds)

        self.ranks = [
            Rank(
                device,
                Loader(loading(number), rng, begin) if plan.workers else None,
                slow.get(number, 1.0),
                loop=LoopLog(256, 1251) if plan.reports_loop else None,
            )
            for number, device in enumerate(devices)
        ]
        for rank in self.ranks:
            # Imports, the model and the first pass over the file list, all on one thread.
            rank.use_cpu(begin - loading_seconds, begin, 0.97)
        self._free_at = begin
        self._saves_at = FIRST_SAVE_SECONDS if plan.saves else float("inf")
        self._steps = 0

    def advance(self, now: float) -> None:
        """Compute every step that starts by ``now``."""
        while self._free_at <= now and self._free_at < self.end:
            if self._free_at >= self._saves_at:
                self._save()
            else:
                self._step()

    def _save(self) -> None:
        start = self._free_at
        stop = start + SAVE_SECONDS
        self._saves_at = max(start, self._saves_at) + SAVE_EVERY_SECONDS
        self.ranks[0].writes.add(start + 0.2, stop, SAVED_BYTES_PER_SECOND)
        for position, rank in enumerate(self.ranks):
            rank.use_cpu(start, stop, 1.0 if position == 0 else 0.1)
        self._free_at = stop

    def _step(self) -> None:
        plan = self.plan
        begin = self._free_at
        done = [self._compute(rank, begin) for rank in self.ranks]
        end = max(done)
        if len(self.ranks) > 1:
            reduced = end + plan.reduce_seconds
            for rank, at in zip(self.ranks, done, strict=True):
                if end > at:
                    rank.device.phases.append((at, end, WAITING_FOR_OTHERS))
                rank.device.phases.append((end, reduced, REDUCING))
                rank.use_cpu(at, reduced, 0.6)
            end = reduced
        for rank in self.ranks:
            if rank.loop is not None:
                rank.loop.end_step(end)
        self._steps += 1
        self._free_at = end + plan.gap_seconds
        if self._steps % plan.log_every_steps == 0:
            self._free_at += plan.log_seconds

    def _compute(self, rank: Rank, asked: float) -> float:
        """Make one rank's own part of a step; return when its GPU is done with it."""
        plan = self.plan
        start = self._batch(rank, asked)
        compute = plan.compute
        phases = rank.device.phases
        copy = plan.batch_bytes / plan.copy_bytes_per_second
        if rank.loop is not None:
            beside = 0.0 if plan.pinned else copy
            rank.loop.begin_step(asked, waited=start - asked, copied=copy, before=beside)
        factor = rank.slowness * (1.0 + self._rng.uniform(-1.0, 1.0) * plan.step_jitter)
        work = plan.step_seconds * factor / rank.device.clock_ratio
        at = start
        if not plan.pinned:
            # A pageable copy holds the main thread, and no kernel runs meanwhile.
            phases.append((at, at + copy, Activity(power=0.2, rx=plan.copy_bytes_per_second)))
            rank.use_cpu(at, at + copy, plan.main_cpu)
            at += copy
            copy = 0.0
        end = at + work
        rank.use_cpu(at, end, plan.main_cpu, plan.main_share)
        if plan.ramp and start - asked > 0.15:
            for share, seconds in ((0.5, 0.14), (0.8, 0.14)):
                # The same work with gaps in it.
                phases.append((at, at + seconds, Activity(*(one * share for one in compute))))
                at += seconds
                end += seconds * (1 - share)
        if copy:
            until = min(end, at + copy)
            phases.append((at, until, compute._replace(rx=plan.copy_bytes_per_second)))
            at = until
        phases.append((at, end, compute))
        return end

    def _batch(self, rank: Rank, asked: float) -> float:
        if rank.loader is not None:
            at = rank.loader.take_batch(asked)
            rank.use_cpu(asked, at, 0.02)
            return at
        at = asked + self.plan.batch_cpu_seconds * (1.0 + self._rng.gauss(0.0, BATCH_JITTER))
        rank.use_cpu(asked, at, 1.0)
        rank.reads.add(asked, at, self.plan.batch_read_bytes / (at - asked))
        return at


# -- what a rank reports of its own loop, as ``gpuwatch.torch`` would ------------------------------

WINDOW_SECONDS = 10.0
KEPT_STEPS = 1024
"""A window of steps of a hundredth of a second."""
ALLOCATED_SHARE, RESERVED_SHARE, PEAK_SHARE = 0.74, 0.93, 0.9
"""Shares of the memory its process holds on the GPU: the rest is the CUDA context and what the
allocator keeps for the next step."""


class LoopStep(NamedTuple):
    """A step; ``waited``, ``copied`` and ``computed`` are seconds of it."""

    begin: float
    end: float
    waited: float = 0.0
    copied: float = 0.0
    computed: float = 0.0
    number: int = 0
    """Counted from 1."""


@dataclass
class LoopLog:
    """The steps of one rank.

    Nothing ahead of the moment asked for is reported, so that how often it is read changes
    nothing. What goes on then is reported up to it: a wait that lasts counts while it lasts.
    """

    batch_samples: int
    steps_an_epoch: int

    def __post_init__(self) -> None:
        self._recent: deque[LoopStep] = deque(maxlen=KEPT_STEPS)
        self._begun = LoopStep(0.0, 0.0)
        self._work_at = 0.0
        self._count = 0

    def begin_step(self, asked: float, *, waited: float, copied: float, before: float) -> None:
        """``before``: how much of the copy comes before the compute rather than beside it."""
        self._begun = LoopStep(asked, asked, waited=waited, copied=copied)
        self._work_at = asked + waited + before

    def end_step(self, end: float) -> None:
        """Its last kernel, the collective's included, has ended; it computed since the copy."""
        self._count += 1
        computed = end - self._work_at
        self._recent.append(self._begun._replace(end=end, computed=computed, number=self._count))

    def report(
        self, key: ProcessKey, now: float, unix_at_zero: float, *, workers: int, pinned: bool,
        memory_bytes: int | None,
    ) -> TrainingLoop | None:  # fmt: skip
        """Return what is known at ``now``; ``None`` before its first step has ended."""
        ended = [step for step in self._recent if step.end <= now]
        if not ended:
            return None
        last = ended[-1]
        recent = [step for step in ended if step.end > last.end - WINDOW_SECONDS]
        first, rate = recent[0].begin, _rate(recent, now)
        reported_at = last.end
        going = self._going_on(now)
        if going is not None:
            recent.append(going)
            waits = going.waited >= going.end - going.begin
            reported_at = going.begin + (0.0 if waits else going.waited)
        seconds = recent[-1].end - first
        epoch, before = divmod(last.number - 1, self.steps_an_epoch)

        def share(spans: Iterable[float]) -> float:
            return round(min(1.0, sum(spans) / seconds), 4)

        def memory(part: float) -> int | None:
            return None if memory_bytes is None else int(memory_bytes * part)

        return TrainingLoop(
            pid=key[0],
            started_at_unix_seconds=key[1],
            window_seconds=round(seconds, 3),
            steps=last.number,
            steps_per_second=round(rate, 3),
            samples_per_second=round(rate * self.batch_samples, 1),
            data_wait_share=share(step.waited for step in recent),
            copy_share=share(step.copied for step in recent),
            compute_share=share(step.computed for step in recent),
            compute_on_device=True,
            phase="train",
            validation_share=0.0,
            checkpoint_share=0.0,
            epoch=epoch,
            step_in_epoch=before + 1,
            steps_in_epoch=self.steps_an_epoch,
            batch_size=self.batch_samples,
            loader_workers=workers,
            pinned_memory=pinned,
            memory_allocated_bytes=memory(ALLOCATED_SHARE),
            memory_reserved_bytes=memory(RESERVED_SHARE),
            memory_peak_bytes=memory(PEAK_SHARE),
            reported_at_unix_seconds=round(unix_at_zero + reported_at, 3),
        )

    def _going_on(self, now: float) -> LoopStep | None:
        """Return the step it is in, as far as it has come; kernels are measured at their end."""
        step = next((one for one in self._recent if one.begin < now < one.end), None)
        if step is None:
            return None
        so_far = now - step.begin
        waited = min(step.waited, so_far)
        copied = min(step.copied, so_far - waited)
        return step._replace(end=now, waited=waited, copied=copied, computed=0.0)


def _rate(recent: Sequence[LoopStep], now: float) -> float:
    """Return steps a second, from step to step; less and less once the next is overdue."""
    seconds = recent[-1].end - recent[0].begin
    overdue = max(0.0, now - recent[-1].end - seconds / len(recent))
    return len(recent) / (seconds + overdue)
