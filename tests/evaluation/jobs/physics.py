"""A training job as it runs on a machine: workers, queue, pin thread, copy, launches, kernels.

Written for the evaluation and apart from the simulation's own jobs (which the rules are tried
out on): here the main thread launches kernels ahead of the GPU and waits for it (spinning or
asleep), copies are ordered with kernels on the stream, ranks wait for each other inside the
collective, and costs have the spread of real ones. Times are seconds; nothing is drawn from what
a rule looks for. The cards, clocks, power, heat and the process list are the simulation's.
"""

import heapq
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpuwatch.sources.simulated.device import Activity
from gpuwatch.sources.simulated.loop_telemetry import Diary, Entry
from gpuwatch.sources.simulated.processes import Meter

SPIN = 1.0
ASLEEP = 0.02
"""Shares of a core of a thread that waits: CUDA spins by default while there are more cores than
contexts, and sleeps in the kernel with blocking synchronisation or on a Python queue."""

LAUNCH_SECONDS = 0.0006
"""From the first launch to the first kernel."""

PIPELINE_STEPS = 2
"""How many steps of kernels fit in the launch queue (1024 entries) of a usual model."""


USUAL = Activity(0.995, 0.85, 0.9, 0.4, 0.4, 0.5)
"""A step that fills its card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Rank 0 gathers the state and writes it; the others run into the next collective."""

    every: float
    bytes: float
    rate: float
    """Bytes a second, serialising included."""
    cpu: float = 0.8
    first: float = 10.0
    all_wait: bool = False
    """A barrier on the host (or a sharded save): no rank has a kernel meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A pass over held-out data, or the end of an epoch when ``seconds`` is zero."""

    every: float
    seconds: float
    restart: float
    """Loader workers end and start again; the GPU has nothing."""
    busy: float = 0.8
    power: float = 0.5
    first: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one job costs, for one batch of one rank."""

    workers: int = 8
    prefetch: int = 2
    batch_cpu: float = 0.4
    batch_spread: float = 0.15
    """Sigma of the logarithm: images differ, sequences differ, shards differ."""
    disk_wait: float = 0.0
    read_bytes: float = 20e6
    worker_speed: float = 1.0
    slow_loaders: tuple[tuple[int, float], ...] = ()
    """(rank, factor) for ranks whose batches take longer to make."""
    pinned: bool = True
    batch_bytes: float = 0.08e9
    copy_rate: float = 24e9
    gpu: float = 0.2
    """Time of the step's kernels at full clocks."""
    gpu_spread: float = 0.02
    slow_gpus: tuple[tuple[int, float], ...] = ()
    python: float = 0.05
    """Time the process needs to launch a step, and for everything else between two batches."""
    main_share: float = 0.6
    """The main thread's part of it; the rest is autograd's thread."""
    spins: bool = True
    syncs: bool = False
    """``.item()`` each step: launching ends, then everything is waited for."""
    after_sync: float = 0.0
    """Python after the wait and before the next launch: metrics, scheduler, progress bar."""
    log_every: int = 50
    compute: Activity = USUAL
    reduce: float = 0.01
    spin_power: float = 0.3
    """Of the power limit, of a GPU that waits in a collective."""
    remote_wait: float = 0.0
    """Each step, all ranks here wait so long for ranks on other machines."""
    checkpoint: Checkpoint | None = None
    validation: Validation | None = None


class Clocked(Protocol):
    """The part of a ``Device`` that a job needs."""

    phases: deque[tuple[float, float, Activity]]
    clock_ratio: float


@dataclass(slots=True)
class Still:
    """A device that nobody looks at, to count steps."""

    phases: deque[tuple[float, float, Activity]] = field(default_factory=lambda: deque(maxlen=1))
    clock_ratio: float = 1.0


class Worker:
    """Meters of one loader worker process."""

    __slots__ = ("cpu", "free_at", "reads", "wait")

    def __init__(self, begin: float) -> None:
        self.cpu, self.wait, self.reads = Meter(), Meter(), Meter()
        self.free_at = begin


class Loader:
    """``DataLoader``: batch k by worker k modulo N, handed out in order, N times ``prefetch`` on
    the way, then through the pin thread one by one."""

    def __init__(
        self, work: Work, rng: random.Random, begin: float, slow: float, reads: Meter, pin: Meter
    ) -> None:
        self.work, self._rng, self._slow = work, rng, slow
        self._reads, self._pin = reads, pin
        self.workers = [Worker(begin) for _ in range(work.workers)]
        self._ready: deque[float] = deque()
        self._next = 0
        self._pin_free = begin
        self.restart(begin)

    def restart(self, at: float) -> None:
        """The workers start (again) and get their first indices."""
        self._ready.clear()
        for worker in self.workers:
            worker.free_at = max(worker.free_at, at)
        self._next = 0
        for _ in range(self.work.workers * self.work.prefetch):
            self._dispatch(at)

    def take(self, asked: float) -> float:
        """When the next batch is in hand."""
        at = max(asked, self._ready.popleft())
        self._dispatch(at)
        return at

    def queued(self, now: float) -> int:
        return sum(1 for at in self._ready if at <= now)

    def _dispatch(self, at: float) -> None:
        work, worker = self.work, self.workers[self._next]
        self._next = (self._next + 1) % len(self.workers)
        factor = self._slow * self._rng.lognormvariate(0.0, work.batch_spread)
        start = max(worker.free_at, at)
        read = start + work.disk_wait * factor
        done = read + work.batch_cpu * factor / work.worker_speed
        if work.disk_wait:
            worker.wait.add(start, read, 1.0)
            worker.cpu.add(start, read, 0.04)
        worker.cpu.add(read, done, 0.985 * work.worker_speed)
        rate = work.read_bytes / max(1e-3, (read if work.disk_wait else done) - start)
        for meter in (worker.reads, self._reads):
            meter.add(start, read if work.disk_wait else done, rate)
        worker.free_at = done
        if work.pinned:
            # One thread copies to pinned memory at the speed of one core's memcpy.
            start = max(done, self._pin_free)
            done = start + work.batch_bytes / 9e9
            self._pin.add(start, done, 1.0)
            self._pin_free = done
        self._ready.append(done)


class Rank:
    """One training process and its GPU."""

    __slots__ = (
        "cpu", "device", "diary", "gpu_at", "loader", "main", "main_at", "number", "reads", "slow",
        "spent", "work_at", "writes"
    )  # fmt: skip

    def __init__(
        self, number: int, work: Work, device: Clocked, rng: random.Random, begin: float,
        reads: Meter
    ) -> None:  # fmt: skip
        self.number, self.device = number, device
        self.cpu, self.main = Meter(), Meter()
        self.reads, self.writes = Meter(), Meter()
        self.slow = dict(work.slow_gpus).get(number, 1.0)
        slow = dict(work.slow_loaders).get(number, 1.0)
        self.loader = Loader(work, rng, begin, slow, reads, self.cpu) if work.workers else None
        self.main_at = begin
        self.gpu_at = begin
        self.work_at = begin
        """When the kernels of its step began."""
        self.diary: Diary | None = None
        """What it reports of its loop, where it does."""
        self.spent: dict[str, float] = {}
        """Seconds of the main thread by what a stack sampler would call it (``jobs.stacks``)."""

    def use(self, start: float, end: float, cores: float, main: float, does: str) -> None:
        """CPU of the process and of its main thread, which ``does`` that meanwhile."""
        self.cpu.add(start, end, cores)
        self.main.add(start, end, main)
        self.spent[does] = self.spent.get(does, 0.0) + max(0.0, end - start)

    def wait(self, until: float, share: float, does: str) -> None:
        """The main thread waits."""
        if until > self.main_at:
            self.use(self.main_at, until, share, share, does)
            self.main_at = until

    def shows(self, start: float, end: float, activity: Activity) -> None:
        if end > start:
            self.device.phases.append((start, end, activity))


@dataclass(frozen=True, slots=True)
class Plan:
    """What the simulation's world asks of a job's plan."""

    workers: int
    worker_speed: float
    batch_bytes: float


class Course:
    """All ranks of a job, step after step. Takes the place of a simulated ``Job``."""

    def __init__(
        self, work: Work, devices: Sequence[Clocked], rng: random.Random, *, begin: float,
        reads: Meter, writes: Meter, end: float = float("inf"), loading: float = 0.0
    ) -> None:  # fmt: skip
        self.work, self.begin, self.end = work, begin, end
        self.plan = Plan(work.workers, work.worker_speed, work.batch_bytes)
        self._rng, self._reads, self._writes = rng, reads, writes
        self.ranks = [
            Rank(number, work, device, rng, begin, reads) for number, device in enumerate(devices)
        ]
        for rank in self.ranks:
            rank.use(begin - loading, begin, 0.97, 0.97, "other")
        self.steps = 0
        self._pauses: list[tuple[float, str]] = []
        if work.checkpoint is not None:
            heapq.heappush(self._pauses, (work.checkpoint.first, "checkpoint"))
        if work.validation is not None:
            heapq.heappush(self._pauses, (work.validation.first, "validation"))

    def advance(self, now: float) -> None:
        """Compute all that begins by ``now``."""
        while min(rank.gpu_at for rank in self.ranks) <= now and self.ranks[0].main_at < self.end:
            if self._pauses and self.ranks[0].main_at >= self._pauses[0][0]:
                self._pause()
            self._step()

    def _pause(self) -> None:
        _, kind = heapq.heappop(self._pauses)
        at = self.ranks[0].main_at
        if kind == "checkpoint" and self.work.checkpoint is not None:
            self._checkpoint(self.work.checkpoint)
            heapq.heappush(self._pauses, (at + self.work.checkpoint.every, kind))
        elif self.work.validation is not None:
            self._validate(self.work.validation)
            heapq.heappush(self._pauses, (at + self.work.validation.every, kind))

    def _checkpoint(self, saved: Checkpoint) -> None:
        first = self.ranks[0]
        first.wait(first.gpu_at, self._waiting, "synchronising")
        start = first.main_at
        end = start + saved.bytes / saved.rate
        first.use(start, end, saved.cpu, saved.cpu, "saving")
        first.writes.add(start, end, saved.rate)
        # The page cache hands it to the disk later and longer.
        self._writes.add(start + 0.5, end + 0.3 * (end - start) + 1.0, saved.rate / 1.3)
        first.main_at = end
        first.gpu_at = max(first.gpu_at, end)
        _tell(self.ranks if saved.all_wait else [first], start, end, "checkpoint")
        if saved.all_wait:
            for rank in self.ranks[1:]:
                rank.wait(end, ASLEEP, "collective")
                rank.gpu_at = max(rank.gpu_at, end)

    def _validate(self, pause: Validation) -> None:
        for rank in self.ranks:
            rank.wait(rank.gpu_at, self._waiting, "synchronising")
        start = max(rank.main_at for rank in self.ranks)
        begin = start + pause.restart
        end = begin + pause.seconds
        activity = self.work.compute._replace(
            busy=pause.busy, power=pause.power, sm=pause.busy * 0.7, tensor=pause.busy * 0.25,
            dram=pause.busy * 0.4
        )  # fmt: skip
        _tell(self.ranks, start, end, "validation")
        for rank in self.ranks:
            rank.shows(begin, end, activity)
            rank.use(start, begin, 0.35, 0.3, "starting_workers")
            rank.use(begin, end, 0.7, 0.6, "evaluating")
            if rank.loader is not None:
                for worker in rank.loader.workers:
                    worker.cpu.add(begin, end, 0.4)
                rank.loader.restart(end + 0.5 * pause.restart)
            rank.main_at = rank.gpu_at = end

    @property
    def _waiting(self) -> float:
        return SPIN if self.work.spins else ASLEEP

    def _step(self) -> None:
        work = self.work
        done = [self._compute(rank) for rank in self.ranks]
        if len(self.ranks) > 1 or work.remote_wait:
            self._reduce(done)
        else:
            self.ranks[0].gpu_at = done[0]
        self.steps += 1
        logs = work.log_every and self.steps % work.log_every == 0
        for rank in self.ranks:
            # A full launch queue holds the launch itself up, which looks like computing.
            asked = work.syncs or logs
            ahead = 0.0 if asked else PIPELINE_STEPS * work.gpu
            does = "synchronising" if asked else "computing"
            rank.wait(rank.gpu_at - ahead, self._waiting, does)
            if work.syncs and work.after_sync:
                rank.wait(rank.main_at + work.after_sync, 1.0, "other")
            if logs:
                rank.wait(rank.main_at + 0.01, 0.9, "other")
            if rank.diary is not None:
                rank.diary.end_step(rank.main_at, computed=rank.gpu_at - rank.work_at)

    def _compute(self, rank: Rank) -> float:
        """One rank's own step; when its kernels are done."""
        work, rng = self.work, self._rng
        asked = rank.main_at
        self._batch(rank)
        copy = work.batch_bytes / work.copy_rate
        if rank.diary is not None:
            waited = rank.main_at - asked
            rank.diary.begin_step(asked, waited=waited, copied=copy, before=0.0)
        if not work.pinned and work.workers:
            # A pageable copy is staged by the calling thread once the stream's work is done.
            rank.wait(rank.gpu_at, self._waiting, "copying_to_device")
            rank.use(rank.main_at, rank.main_at + copy, 0.95, 0.95, "copying_to_device")
        at = max(rank.main_at, rank.gpu_at)
        rank.shows(at, at + copy, Activity(power=0.12, dram=0.02, rx=work.copy_rate))
        if work.pinned or not work.workers:
            rank.gpu_at = at + copy
        else:
            rank.main_at = rank.gpu_at = at + copy
        launched = rank.main_at + work.python * rng.lognormvariate(0.0, 0.03)
        rank.use(rank.main_at, launched, 0.99, work.main_share, "computing")
        begin = max(rank.gpu_at, rank.main_at + LAUNCH_SECONDS)
        kernels = work.gpu * rank.slow / rank.device.clock_ratio
        kernels *= rng.lognormvariate(0.0, work.gpu_spread)
        end = max(begin + kernels, launched)
        share = kernels / (end - begin)
        compute = work.compute
        if share < 0.999:
            # Kernels are shorter than the time to launch them: gaps of microseconds between.
            compute = Activity(*(value * share for value in compute))
        rank.shows(begin, end, compute)
        rank.work_at = begin
        rank.main_at = launched
        return end

    def _batch(self, rank: Rank) -> None:
        work = self.work
        if rank.loader is not None:
            rank.wait(rank.loader.take(rank.main_at), ASLEEP, "waiting_for_data")
            return
        slow = dict(work.slow_loaders).get(rank.number, 1.0)
        factor = slow * self._rng.lognormvariate(0.0, work.batch_spread)
        at = rank.main_at
        read = at + work.disk_wait * factor
        made = read + work.batch_cpu * factor
        rank.use(at, read, 0.05, 0.05, "loading_data")
        rank.use(read, made, 1.0, 0.99, "loading_data")
        for meter in (rank.reads, self._reads):
            meter.add(at, made, work.read_bytes / max(1e-3, made - at))
        rank.main_at = made

    def _reduce(self, done: list[float]) -> None:
        work = self.work
        last = max(done) + work.remote_wait * self._rng.lognormvariate(0.0, 0.2)
        waiting = Activity(1.0, work.spin_power, 0.06, 0.02, 0.0, 0.02)
        reducing = Activity(1.0, work.spin_power + 0.12, 0.18, 0.07, 0.0, 0.3, nvlink=1.2e11)
        for rank, at in zip(self.ranks, done, strict=True):
            rank.shows(at, last, waiting)
            rank.shows(last, last + work.reduce, reducing)
            rank.gpu_at = last + work.reduce


def _tell(ranks: Sequence[Rank], start: float, end: float, kind: str) -> None:
    for rank in ranks:
        if rank.diary is not None and rank.diary.marks:
            rank.diary.add(Entry(start, end, kind))


def steps_per_second(work: Work, ranks: int, *, seed: int = 1) -> float:
    """How fast this job gets on once the batches of its beginning are used up; pauses count with
    the share of time they take."""
    still = [Still() for _ in range(ranks)]
    course = Course(work, still, random.Random(seed), begin=0.0, reads=Meter(), writes=Meter())
    queue = work.workers * work.prefetch
    _until_step(course, 20 + 3 * queue)
    if work.checkpoint is not None:
        _until(course, work.checkpoint.first)
    first, start = course.steps, course.ranks[0].main_at
    _until_step(course, first + max(60, 4 * queue))
    pauses = [pause.every for pause in (work.checkpoint, work.validation) if pause is not None]
    _until(course, start + 3.0 * max(pauses, default=0.0))
    return (course.steps - first) / (course.ranks[0].main_at - start)


def _until_step(course: Course, step: int) -> None:
    while course.steps < step:
        course.advance(course.ranks[0].gpu_at)


def _until(course: Course, at: float) -> None:
    while course.ranks[0].main_at < at:
        course.advance(course.ranks[0].gpu_at)
