"""Runs a case: a machine with jobs from ``physics``, seen through a source's eyes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from gpuwatch.core.model import Gpu, GpuReading, Host, Job, JobMember, JobRank, ProcessKey, Snapshot
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.simulated.loop_telemetry import Diary
from gpuwatch.sources.simulated.plans import Setup
from gpuwatch.sources.simulated.processes import Memory
from gpuwatch.sources.simulated.source import SimulatedSource, _Machine
from gpuwatch.sources.simulated.training import Job as SimulatedJob
from gpuwatch.sources.simulated.world import Crew, World
from tests.evaluation.jobs.physics import Course, Work

_WARM_UP_SECONDS = 60.0
_LOG_COLUMNS = (
    "busy_percent", "memory_controller_percent", "memory_used_bytes", "power_watts",
    "power_limit_watts", "temperature_celsius", "sm_clock_mhz", "throttle_reasons",
    "pcie_generation", "pcie_width", "performance_state"
)  # fmt: skip
"""What people have in a log of nvidia-smi."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """How much of ``gpuwatch.torch`` a job uses beside ``watch``."""

    copies: bool = True
    marks: bool = True
    """Of validation and checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """What of the machine can be read, and how well."""

    interval: float = 1.0
    average_ticks: int = 6
    """The driver's averaging of ``utilization.gpu`` in sixths of a second: NVIDIA documents 1/6 s
    to 1 s, depending on the product."""
    fine: bool = True
    """The driver's sample buffer can be read."""
    attached: bool = True
    log: bool = False
    """Only what a log of nvidia-smi holds: no host, no processes, no jobs."""
    missing_gpu: tuple[str, ...] = ()
    missing_members: tuple[str, ...] = ()
    missing_host: tuple[str, ...] = ()
    power_noise: float = 0.01
    gap_every: float | None = None
    """About every so many seconds, snapshots are missing for a few."""
    world_size_factor: int = 1
    """Other machines hold the other ranks."""
    stacks: bool = False
    """Somebody asked for stacks of the attached job."""
    reporting: Reporting | None = None
    """The job uses ``gpuwatch.torch``."""
    unknown_roles: bool = False
    """PyTorch before 2.5 names neither workers nor pin threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A machine with its jobs; ``works`` are those of the setup's plans that train, in order."""

    setup: Setup
    works: tuple[Work, ...]
    seconds: float
    seed: int
    sensors: Sensors = Sensors()
    filled: tuple[tuple[int, float], ...] = ()
    """(GPU, share of its memory) that the first process on it holds from the start."""


Stacks = tuple[tuple[str, float, str | None], ...]


class Watch:
    """A case as it is watched, without waiting: iterate once."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._clock = ManualClock(seconds=5000.0)
        self._options = ReadOptions(interval_seconds=rig.sensors.interval)
        self._source = _RigSource(rig, self._clock, self._options)
        self._spent: dict[str, float] = {}

    def __iter__(self) -> Iterator[Snapshot]:
        sensors, source = self._rig.sensors, self._source
        source.open()
        if sensors.attached and not sensors.log:
            self._options.attached = source.first_job()
        rng = random.Random(f"{self._rig.seed}/sensors")
        silent_until = elapsed = 0.0
        while elapsed < self._rig.seconds:
            gaps = sensors.gap_every
            if gaps is not None and rng.random() < sensors.interval / gaps:
                silent_until = elapsed + rng.uniform(2.0, 8.0)
            self._clock.advance(sensors.interval)
            elapsed += sensors.interval
            snapshot = source.read()
            if elapsed >= silent_until:
                yield _seen(snapshot, self._rig, source, rng)

    def stacks(self) -> tuple[ProcessKey, Stacks] | None:
        """What the main threads of the first job did since the last time, as samples of their
        stacks would say; ``None``: nobody samples."""
        key = self._source.first_job()
        if not self._rig.sensors.stacks or key is None:
            return None
        spent = self._source.spent()
        new = {name: spent[name] - self._spent.get(name, 0.0) for name in spent}
        self._spent = spent
        total = sum(new.values())
        shares = [(name, 100.0 * value / total) for name, value in new.items() if value > 0.0]
        shares.sort(key=lambda share: -share[1])
        return key, tuple((name, percent, "train.py:42") for name, percent in shares)


class _RigSource(SimulatedSource):
    def __init__(self, rig: Rig, clock: ManualClock, options: ReadOptions) -> None:
        super().__init__("healthy", len(rig.setup.slots), rig.seed, clock=clock, options=options)
        self.rig = rig
        self.world: World | None = None

    def first_job(self) -> tuple[int, float | None] | None:
        assert self.world is not None
        for crew in self.world.crews:
            if crew.plan.training is not None:
                task = crew.tasks[0]
                return (task.pid, task.started_unix)
        return None

    def spent(self) -> dict[str, float]:
        """Seconds of the first job's main threads, by what they did, so far."""
        assert self.world is not None
        course: Any = self.world.jobs[0]
        total: dict[str, float] = {}
        for rank in course.ranks:
            for name, seconds in rank.spent.items():
                total[name] = total.get(name, 0.0) + seconds
        return total

    def busy(self, gpu: int, ticks: int) -> float:
        """The driver's average over its last ``ticks`` samples, in whole percent."""
        assert self.world is not None
        samples = list(islice(reversed(self.world.devices[gpu].samples), ticks))
        return float(round(sum(percent for _, percent in samples) / max(1, len(samples))))

    def _build(self, origin: float) -> Any:
        rig = self.rig
        self.world = world = World(rig.setup, seed=rig.seed, warm_up=_WARM_UP_SECONDS)
        furnish(world, rig)
        offset = self._clock.unix() - self._clock.monotonic()
        return _Machine(world, origin, offset, self.options)


def furnish(world: World, rig: Rig) -> None:
    """Give the world's jobs their physics."""
    crews = [crew for crew in world.crews if crew.plan.training is not None]
    courses: list[Any] = [
        _course(world, crew, job, work, rig.seed + number, rig.sensors.reporting)
        for number, (crew, job, work) in enumerate(zip(crews, world.jobs, rig.works, strict=True))
    ]
    world.jobs[:] = courses
    for gpu, share in rig.filled:
        held = int(world.devices[gpu].card.memory_bytes * share)
        task = next(task for task in world.tasks if task.gpu == gpu)
        task.gpu_memory = Memory(held)


def _course(
    world: World, crew: Crew, job: SimulatedJob, work: Work, seed: int, reporting: Reporting | None
) -> Course:
    plan = crew.plan
    course = Course(
        work,
        [rank.device for rank in job.ranks],
        random.Random(f"{seed}/course"),
        begin=job.begin,
        reads=world.reads,
        writes=world.writes,
        end=job.end,
        loading=0.0 if plan.begin is None else plan.loading_seconds,
    )
    ranks = iter(course.ranks)
    workers: Iterator[Any] = iter(())
    for task in crew.tasks:
        if task.role == "rank":
            rank = next(ranks)
            task.meters.update(cpu=rank.cpu, main=rank.main, reads=rank.reads, writes=rank.writes)
            # A job short of cores is short of them in its main process too.
            task.core_share = work.worker_speed
            workers = iter(rank.loader.workers if rank.loader else ())
        elif task.role == "loader_worker":
            worker = next(workers)
            task.meters = {"cpu": worker.cpu, "reads": worker.reads}
            if work.disk_wait:
                task.meters["wait"] = worker.wait
            task.core_share = work.worker_speed
    if reporting is not None:
        _let_report(crew, course, reporting)
    return course


def _let_report(crew: Crew, course: Course, reporting: Reporting) -> None:
    plan = crew.plan
    if plan.training is None:
        return
    crew.plan = replace(plan, training=replace(plan.training, reports_loop=True))
    for rank in course.ranks:
        rank.diary = Diary(64, 1000, copies=reporting.copies, marks=reporting.marks)
    ranks = iter(course.ranks)
    for task in crew.having("rank"):
        task.diary = next(ranks).diary


def _seen(snapshot: Snapshot, rig: Rig, source: _RigSource, rng: random.Random) -> Snapshot:
    sensors = rig.sensors
    gpus = tuple(_gpu(gpu, rig, source, rng) for gpu in snapshot.gpus)
    if sensors.log:
        return replace(
            snapshot, gpus=gpus, host=Host(name="log"), processes=(), jobs=(), problems=()
        )
    host = snapshot.host
    if sensors.missing_host:
        lacking: dict[str, Any] = dict.fromkeys(sensors.missing_host)
        host = replace(host, **lacking)
    jobs = tuple(_job(job, sensors) for job in snapshot.jobs)
    return replace(snapshot, gpus=gpus, host=host, jobs=jobs)


def _gpu(gpu: Gpu, rig: Rig, source: _RigSource, rng: random.Random) -> Gpu:
    if gpu.lost:
        return gpu
    sensors, reading = rig.sensors, gpu.reading
    changes: dict[str, Any] = dict.fromkeys(sensors.missing_gpu)
    noise = rng.gauss(1.0, sensors.power_noise)
    if reading.power_watts is not None:
        changes["power_watts"] = round(reading.power_watts * noise, 2)
    if reading.busy_percent is not None:
        changes["busy_percent"] = source.busy(gpu.identity.index, sensors.average_ticks)
    if not sensors.fine:
        changes["busy_samples"] = None
    if sensors.log:
        kept = {name: changes.get(name, getattr(reading, name)) for name in _LOG_COLUMNS}
        return replace(gpu, reading=GpuReading(**kept))
    return replace(gpu, reading=replace(reading, **changes))


def _job(job: Job, sensors: Sensors) -> Job:
    if sensors.world_size_factor > 1 and job.ranks:
        job = replace(job, world_size=len(job.ranks) * sensors.world_size_factor)
    if sensors.missing_members:
        lacking: dict[str, Any] = dict.fromkeys(sensors.missing_members)
        job = replace(job, members=tuple(replace(member, **lacking) for member in job.members))
    if sensors.unknown_roles:
        job = replace(
            job,
            members=tuple(_guessed(member) for member in job.members),
            ranks=tuple(_unnamed(rank) for rank in job.ranks),
        )
    return job


def _guessed(member: JobMember) -> JobMember:
    if member.role != "loader_worker":
        return member
    return replace(member, name="python", role_guessed=True, role_sign="a child that was forked")


def _unnamed(rank: JobRank) -> JobRank:
    if not rank.loader_workers:
        return rank
    return replace(
        rank,
        loader_workers_guessed=True,
        pinned_memory=None,
        pinned_memory_sign="the threads of PyTorch before 2.5 have no names",
    )
