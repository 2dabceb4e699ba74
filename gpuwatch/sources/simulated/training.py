"""A training job as a queue: loader workers make batches, the GPUs take them in order.

Nothing here is drawn. The pauses of a starved GPU, the phase between its workers and its
bursts, and the wait of fast ranks for a slow one all follow from how long each part takes.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpuwatch.sources.simulated.device import Activity, Device
from gpuwatch.sources.simulated.loop_telemetry import Diary, Entry
from gpuwatch.sources.simulated.processes import Meter

GB = 1e9
BATCH_JITTER = 0.04

MAIN_THREAD_SHARE = 0.98
"""The rest is used by the threads of pinning and of the libraries."""

FULL_WORK = Activity(0.995, 0.94, 0.93, 0.42, 0.46, 0.52)
"""A convolution or transformer step with a batch that fills the card."""
WAITING_FOR_OTHERS = Activity(1.0, 0.24, 0.05, 0.02, 0.0, 0.02)
"""A collective kernel that spins: resident all the time, doing next to nothing."""
REDUCING = Activity(1.0, 0.42, 0.18, 0.07, 0.0, 0.35, nvlink=160 * GB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Something that interrupts training now and then."""

    every_seconds: float
    seconds: float
    first_seconds: float = 12.0
    """When the first one starts after the scenario begins."""
    write_bytes_per_second: float = 0.0
    activity: Activity | None = None
    """Of the GPUs meanwhile; ``None``: none."""
    spin_up_seconds: float = 0.0
    """Time at its start and end in which the GPUs do nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Costs of a job. Times are seconds, for one batch of one rank."""

    workers: int = 8
    prefetch: int = 2
    batch_cpu_seconds: float = 1.0
    batch_wait_seconds: float = 0.0
    """Time a worker waits for the disk for one batch."""
    batch_read_bytes: float = 30e6
    worker_speed: float = 1.0
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
    pauses: tuple[Pause, ...] = ()
    reports_loop: bool = False


@dataclass(slots=True)
class Worker:
    """One loader worker process: when it computes and when it waits for the disk."""

    free_at: float
    cpu: Meter = field(default_factory=Meter)
    wait: Meter = field(default_factory=Meter)
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
        self.waits = plan.batch_wait_seconds > 0.0
        self.worker_speed = plan.worker_speed
        spread = (plan.batch_cpu_seconds + plan.batch_wait_seconds) / max(1, plan.workers)
        self.workers = [Worker(begin + spread * n) for n in range(plan.workers)]
        self._ready: deque[float] = deque()
        self._next = 0
        for _ in range(plan.workers * plan.prefetch):
            self._dispatch(begin)

    def take(self, earliest: float) -> float:
        """When the main process has its next batch in hand, having asked at ``earliest``."""
        at = max(earliest, self._ready.popleft())
        self._dispatch(at)
        return at

    def queued(self, now: float) -> int:
        """Batches that lie ready in shared memory."""
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
        fetched = start + plan.batch_wait_seconds * factor
        done = fetched + plan.batch_cpu_seconds * factor / plan.worker_speed
        if self.waits:
            worker.wait.add(start, fetched, 1.0)
            worker.cpu.add(start, fetched, 0.04)
        worker.cpu.add(fetched, done, 0.99 * plan.worker_speed)
        reading = fetched if self.waits else done
        rate = plan.batch_read_bytes / max(1e-3, reading - start)
        worker.reads.add(start, reading, rate)
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
    diary: Diary | None = None
    reads: Meter = field(default_factory=Meter)
    writes: Meter = field(default_factory=Meter)

    def use(self, start: float, end: float, cores: float, main: float = MAIN_THREAD_SHARE) -> None:
        """CPU time from ``start`` to ``end``, and the main thread's share of it."""
        self.cpu.add(start, end, cores)
        self.main.add(start, end, min(1.0, cores * main))


class Job:
    """All ranks of one job, step after step; a single rank is a job without collectives. ``begin``
    is the first step's time; the processes were there ``loading_seconds`` before."""

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
        self.begin = begin
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
                diary=Diary(256, 1251) if plan.reports_loop else None,
            )
            for number, device in enumerate(devices)
        ]
        for rank in self.ranks:
            # Imports, the model and the first pass over the file list, all on one thread.
            rank.use(begin - loading_seconds, begin, 0.97)
        self._free_at = begin
        self._pause_at = [pause.first_seconds for pause in plan.pauses]
        self.steps = 0

    def advance(self, now: float) -> None:
        """Compute every step that starts by ``now``."""
        while self._free_at <= now and self._free_at < self.end:
            if not self._pause():
                self._step()

    def _pause(self) -> bool:
        for number, pause in enumerate(self.plan.pauses):
            if self._free_at < self._pause_at[number]:
                continue
            start = self._free_at
            stop = start + pause.seconds
            self._pause_at[number] = max(start, self._pause_at[number]) + pause.every_seconds
            self.ranks[0].writes.add(start + 0.2, stop, pause.write_bytes_per_second)
            for position, rank in enumerate(self.ranks):
                if pause.activity is not None:
                    inner = (start + pause.spin_up_seconds, stop - pause.spin_up_seconds)
                    rank.device.phases.append((*inner, pause.activity))
                rank.use(start, stop, 1.0 if position == 0 else 0.1)
                if rank.diary is not None:
                    kind = "checkpoint" if pause.activity is None else "validation"
                    rank.diary.add(Entry(start, stop, kind))
            self._free_at = stop
            return True
        return False

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
                rank.use(at, reduced, 0.6)
            end = reduced
        for rank in self.ranks:
            if rank.diary is not None:
                rank.diary.end_step(end)
        self.steps += 1
        self._free_at = end + plan.gap_seconds
        if self.steps % plan.log_every_steps == 0:
            self._free_at += plan.log_seconds

    def _compute(self, rank: Rank, asked: float) -> float:
        """One rank's own part of a step; returns when its GPU is done with it."""
        plan = self.plan
        start = self._batch(rank, asked)
        compute = plan.compute
        phases = rank.device.phases
        copy = plan.batch_bytes / plan.copy_bytes_per_second
        if rank.diary is not None:
            beside = 0.0 if plan.pinned else copy
            rank.diary.begin_step(asked, waited=start - asked, copied=copy, before=beside)
        factor = rank.slowness * (1.0 + self._rng.uniform(-1.0, 1.0) * plan.step_jitter)
        work = plan.step_seconds * factor / rank.device.clock_ratio
        at = start
        if not plan.pinned:
            # A pageable copy holds the main thread, and no kernel runs meanwhile.
            phases.append((at, at + copy, Activity(power=0.2, rx=plan.copy_bytes_per_second)))
            rank.use(at, at + copy, plan.main_cpu)
            at += copy
            copy = 0.0
        end = at + work
        rank.use(at, end, plan.main_cpu, plan.main_share)
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
            at = rank.loader.take(asked)
            rank.use(asked, at, 0.02)
            return at
        at = asked + self.plan.batch_cpu_seconds * (1.0 + self._rng.gauss(0.0, BATCH_JITTER))
        rank.use(asked, at, 1.0)
        rank.reads.add(asked, at, self.plan.batch_read_bytes / (at - asked))
        return at
