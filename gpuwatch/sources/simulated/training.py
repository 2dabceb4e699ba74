"""Simulated training as a queue: loader workers make batches, the GPUs take them in order.

Nothing here is drawn. The pauses of a starved GPU, the phase between its workers and its
bursts, and the wait of fast ranks for a slow one all follow from how long each part takes.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuwatch.core.model import ProcessKey, TrainingLoop
from gpuwatch.sources.simulated.gpus import Activity, SimulatedGpu, Timeline

GB = 1e9
PREFETCH = 2
"""Batches on the way for each worker."""
BATCH_JITTER = 0.04
MAIN_THREAD_SHARE = 0.98
"""The rest is used by the threads of pinning and of the libraries."""
LAUNCHING_SHARE = 0.45
"""The main thread's share while the GPU works: while autograd's thread launches the backward pass,
the main thread sleeps."""
GAP_SECONDS = 0.003
"""The GPU's rest between two steps: optimizer bookkeeping in Python."""
LOG_EVERY_STEPS, LOG_SECONDS = 50, 0.03
"""How often the loss is fetched and printed, which lets the GPU run dry for a moment."""
REDUCE_SECONDS = 0.02
FIRST_SAVE_SECONDS, SAVE_EVERY_SECONDS, SAVE_SECONDS = 12.0, 45.0, 8.0
"""When the first checkpoint starts, the time between two, and how long one takes."""
SAVED_BYTES_PER_SECOND = 2 * GB
KEPT_STEPS = 128
"""More than any job here makes in the window of a report."""

FULL_WORK = Activity(0.995, 0.94, 0.93, 0.42, 0.46, 0.52)
"""A convolution or transformer step with a batch that fills the card."""
WAITING_FOR_OTHERS = Activity(1.0, 0.24, 0.05, 0.02, 0.0, 0.02)
"""A collective kernel that spins: resident all the time, doing next to nothing."""
REDUCING = Activity(1.0, 0.42, 0.18, 0.07, 0.0, 0.35, nvlink=160 * GB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Costs of a job. Times are seconds, for one batch of one rank."""

    workers: int = 8
    batch_cpu_seconds: float = 1.0
    batch_read_bytes: float = 30e6
    step_seconds: float = 0.3
    step_jitter: float = 0.01
    slow_ranks: tuple[tuple[int, float], ...] = ()
    """(rank, factor) for ranks whose steps take longer."""
    slow_loaders: tuple[tuple[int, float], ...] = ()
    """(rank, factor) for ranks whose batches take their workers longer."""
    pinned: bool = True
    batch_bytes: float = 0.6 * GB
    copy_bytes_per_second: float = 24 * GB
    main_cpu: float = 0.92
    """Share of a core the training process uses while its GPU runs."""
    compute: Activity = FULL_WORK
    ramp: bool = True
    """After a wait the launch queue is empty: the first kernels come with gaps."""
    saves: bool = False
    """Training stops for a checkpoint now and then."""
    reports_loop: bool = False


class Meter(Timeline[float]):
    """CPU seconds or bytes that are used at a rate over intervals."""

    __slots__ = ()

    def used(self, begin: float, end: float) -> float:
        """Return how much is used between two moments."""
        total = 0.0
        for seconds, rate in self.between(begin, end):
            total += seconds * rate
        return total


@dataclass(slots=True)
class Usage:
    """CPU time and storage that one process uses."""

    cpu: Meter = field(default_factory=Meter)
    main: Meter = field(default_factory=Meter)
    """The main thread's part of ``cpu``."""
    reads: Meter = field(default_factory=Meter)
    writes: Meter = field(default_factory=Meter)

    def compute(
        self, start: float, end: float, cores: float, main: float = MAIN_THREAD_SHARE
    ) -> None:
        """Use so many cores from ``start`` to ``end``; ``main``: the main thread's share of it."""
        self.cpu.add(start, end, cores)
        self.main.add(start, end, min(1.0, cores * main))

    def forget_before(self, moment: float) -> None:
        for meter in (self.cpu, self.main, self.reads, self.writes):
            meter.forget_before(moment)


@dataclass(slots=True)
class Worker:
    """One loader worker process."""

    free_at: float
    usage: Usage = field(default_factory=Usage)
    slip: float = 0.0


class Loader:
    """The queue of one rank, as ``torch.utils.data.DataLoader`` keeps it.

    Batch k is made by worker k modulo N, the main process takes them strictly in order, and a
    worker gets its next one when the main process has taken one: at most ``PREFETCH`` times N
    are on the way. ``slowness``: a factor to the time a batch takes.
    """

    def __init__(self, plan: Training, slowness: float, rng: random.Random, begin: float) -> None:
        self._cpu_seconds = plan.batch_cpu_seconds * slowness
        self._read_bytes = plan.batch_read_bytes
        self._rng = rng
        spread = self._cpu_seconds / max(1, plan.workers)
        self.workers = [Worker(begin + spread * n) for n in range(plan.workers)]
        self._ready: deque[float] = deque()
        self._next = 0
        for _ in range(plan.workers * PREFETCH):
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
        worker = self.workers[self._next]
        self._next = (self._next + 1) % len(self.workers)
        # The batches of one shard cost the same in total, so what one takes longer the next
        # takes less: the workers keep their phase instead of drifting at random.
        slip = self._rng.gauss(0.0, BATCH_JITTER)
        factor = max(0.3, 1.0 + slip - worker.slip)
        worker.slip = slip
        start = max(worker.free_at, at)
        done = start + self._cpu_seconds * factor
        worker.usage.compute(start, done, 0.99, main=1.0)
        worker.usage.reads.add(start, done, self._read_bytes / max(1e-3, done - start))
        worker.free_at = done
        self._ready.append(done)


class Step(NamedTuple):
    """When a step began to wait for its batch, had it, computed on it and ended."""

    begin: float
    batch_at: float
    computes_at: float
    end: float
    number: int = 0
    """Counted from 1."""


@dataclass(slots=True)
class Rank:
    """One training process."""

    gpu: SimulatedGpu | None
    """``None``: it trains on the CPU."""
    loader: Loader | None
    slowness: float
    usage: Usage = field(default_factory=Usage)
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    """The last ones, some of which may lie ahead."""

    def use_gpu(self, start: float, end: float, activity: Activity) -> None:
        if self.gpu is not None:
            self.gpu.phases.add(start, end, activity)


class Ranks:
    """All ranks of one job, step after step; a single one has no collectives. ``begin`` is the
    first step's time; the processes were there ``loading_seconds`` before."""

    def __init__(
        self,
        plan: Training,
        gpus: Sequence[SimulatedGpu | None],
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
        self.ranks = [
            Rank(
                gpu,
                Loader(plan, late.get(number, 1.0), rng, begin) if plan.workers else None,
                slow.get(number, 1.0),
            )
            for number, gpu in enumerate(gpus)
        ]
        for rank in self.ranks:
            # Imports, the model and the first pass over the file list, all on one thread.
            rank.usage.compute(begin - loading_seconds, begin, 0.97)
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
        self.ranks[0].usage.writes.add(start + 0.2, stop, SAVED_BYTES_PER_SECOND)
        for position, rank in enumerate(self.ranks):
            rank.usage.compute(start, stop, 1.0 if position == 0 else 0.1)
        self._free_at = stop

    def _step(self) -> None:
        begin = self._free_at
        steps = [self._compute(rank, begin) for rank in self.ranks]
        slowest = max(step.end for step in steps)
        end = slowest + REDUCE_SECONDS if len(steps) > 1 else slowest
        self._steps += 1
        for rank, step in zip(self.ranks, steps, strict=True):
            if len(steps) > 1:
                rank.use_gpu(step.end, slowest, WAITING_FOR_OTHERS)
                rank.use_gpu(slowest, end, REDUCING)
                rank.usage.compute(step.end, end, 0.6)
            rank.steps.append(step._replace(end=end, number=self._steps))
        self._free_at = end + GAP_SECONDS
        if self._steps % LOG_EVERY_STEPS == 0:
            self._free_at += LOG_SECONDS

    def _compute(self, rank: Rank, asked: float) -> Step:
        """Return one rank's own part of a step, which ends when its GPU is done with it."""
        plan, compute = self.plan, self.plan.compute
        at = start = self._batch(rank, asked)
        copy = plan.batch_bytes / plan.copy_bytes_per_second
        factor = rank.slowness * (1.0 + self._rng.uniform(-1.0, 1.0) * plan.step_jitter)
        work = plan.step_seconds * factor / (rank.gpu.clock_ratio if rank.gpu else 1.0)
        if not plan.pinned:
            # A pageable copy holds the main thread, and no kernel runs meanwhile.
            at += copy
            rank.use_gpu(start, at, Activity(power=0.2, rx=plan.copy_bytes_per_second))
            rank.usage.compute(start, at, plan.main_cpu)
        computes_at, end = at, at + work
        rank.usage.compute(at, end, plan.main_cpu, LAUNCHING_SHARE)
        if plan.ramp and start - asked > 0.15:
            for share, seconds in ((0.5, 0.14), (0.8, 0.14)):
                # The same work with gaps in it.
                rank.use_gpu(at, at + seconds, Activity(*(one * share for one in compute)))
                at += seconds
                end += seconds * (1 - share)
        if plan.pinned:
            until = min(end, at + copy)
            rank.use_gpu(at, until, compute._replace(rx=plan.copy_bytes_per_second))
            at = until
        rank.use_gpu(at, end, compute)
        return Step(asked, start, computes_at, end)

    def _batch(self, rank: Rank, asked: float) -> float:
        if rank.loader is not None:
            at = rank.loader.take_batch(asked)
            rank.usage.compute(asked, at, 0.02)
            return at
        at = asked + self.plan.batch_cpu_seconds * (1.0 + self._rng.gauss(0.0, BATCH_JITTER))
        rank.usage.compute(asked, at, 1.0)
        rank.usage.reads.add(asked, at, self.plan.batch_read_bytes / (at - asked))
        return at


# -- what a rank reports of its own loop, as ``gpuwatch.torch`` would ------------------------------

WINDOW_SECONDS = 10.0
BATCH_SAMPLES, STEPS_AN_EPOCH = 256, 1251
ALLOCATED_SHARE, RESERVED_SHARE, PEAK_SHARE = 0.74, 0.93, 0.9
"""Shares of the memory its process holds on the GPU: the rest is the CUDA context and what the
allocator keeps for the next step."""


def loop_report(
    rank: Rank, plan: Training, key: ProcessKey, now: float, unix_at_zero: float, held_bytes: int
) -> TrainingLoop | None:
    """Return what the steps that have ended by ``now`` say; ``None`` before the first."""
    ended = [step for step in rank.steps if step.end <= now]
    if not ended:
        return None
    last = ended[-1]
    recent = [step for step in ended if step.end > last.end - WINDOW_SECONDS]
    seconds = last.end - recent[0].begin
    rate = len(recent) / seconds
    epoch, before = divmod(last.number - 1, STEPS_AN_EPOCH)

    def share(spent: float) -> float:
        return round(min(1.0, spent / seconds), 4)

    return TrainingLoop(
        pid=key[0],
        started_at_unix_seconds=key[1],
        window_seconds=round(seconds, 3),
        steps=last.number,
        steps_per_second=round(rate, 3),
        samples_per_second=round(rate * BATCH_SAMPLES, 1),
        data_wait_share=share(sum(step.batch_at - step.begin for step in recent)),
        copy_share=share(len(recent) * plan.batch_bytes / plan.copy_bytes_per_second),
        compute_share=share(sum(step.end - step.computes_at for step in recent)),
        compute_on_device=True,
        phase="train",
        validation_share=0.0,
        checkpoint_share=0.0,
        epoch=epoch,
        step_in_epoch=before + 1,
        steps_in_epoch=STEPS_AN_EPOCH,
        batch_size=BATCH_SAMPLES,
        loader_workers=plan.workers,
        pinned_memory=plan.pinned,
        memory_allocated_bytes=int(held_bytes * ALLOCATED_SHARE),
        memory_reserved_bytes=int(held_bytes * RESERVED_SHARE),
        memory_peak_bytes=int(held_bytes * PEAK_SHARE),
        reported_at_unix_seconds=round(unix_at_zero + last.end, 3),
    )
