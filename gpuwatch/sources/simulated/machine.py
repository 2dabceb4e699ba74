"""The simulated machine: jobs and the processes they are, GPUs and the host, moved on together.

It is told what runs on it (``Setup``) and moves on a fixed step; all that a reader of /proc would
find is a function of it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Reversible
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpuwatch.core.model import (
    BusySample,
    Gpu,
    GpuKey,
    Host,
    Job,
    JobMember,
    JobRank,
    Process,
    ProcessKey,
    Snapshot,
    TrainingLoop,
)
from gpuwatch.core.source import ReadOptions
from gpuwatch.core.units import age
from gpuwatch.sources.simulated.gpus import (
    BUFFERED_SAMPLES,
    GIB,
    TICK_SECONDS,
    TICKS_PER_SECOND,
    WARM_UP_SECONDS,
    SimulatedGpu,
    Slot,
    problems_now,
)
from gpuwatch.sources.simulated.training import Meter, Rank, Ranks, Training, Usage, loop_report

MIB = 1024**2
TRAIN = "python train.py --config configs/resnet50.yaml"
LOADING_SECONDS = 6.0
"""From a fresh start to the first step."""
CONTEXT_BYTES = 0.52 * GIB
"""Taken by a CUDA context and its libraries on a card before the first tensor."""
RESERVED_BYTES = int(0.46 * GIB)
"""Memory that the driver itself holds on a card."""


# -- what a scenario asks for ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """One job: who runs what on which GPUs, and what it costs. Without GPUs it trains on the CPU;
    without a training it holds its memory and does nothing."""

    gpus: tuple[int, ...]
    training: Training | None = None
    user: str = "ada"
    command: str = TRAIN
    memory_bytes: float = 31.2 * GIB
    begin: float | None = None
    """When its processes start; ``None``: long before the scenario."""
    end: float = float("inf")
    age_seconds: float = 2840.0
    instance: int | None = None
    slurm_job: str | None = None


class Setup(NamedTuple):
    """A machine: its cards, and what runs on it."""

    slots: tuple[Slot, ...]
    jobs: tuple[JobPlan, ...]


# -- one look at it --------------------------------------------------------------------------------

GpuRows = Mapping[tuple[int, int | None], Gpu]
"""GPUs by card and MIG instance."""
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One moment at which the machine is looked at."""

    now: float
    elapsed: float
    """Seconds since the look before, above zero."""
    since_tick: int
    unix_at_zero: float
    seed: int
    cores: int

    def rate(self, meter: Meter) -> float:
        """Return how much was used a second since the look before."""
        return meter.used(self.now - self.elapsed, self.now) / self.elapsed

    def new_samples(self, samples: Reversible[tuple[int, float]]) -> tuple[BusySample, ...]:
        """Return those of (tick at its end, percent), oldest first, that came since the look
        before."""
        found = []
        for tick, percent in reversed(samples):
            if tick <= self.since_tick:
                break
            at = round(self.unix_at_zero + tick * TICK_SECONDS, 6)
            found.append(BusySample(at, round(float(percent), 1)))
        found.reverse()
        return tuple(found)

    def noise(self, channel: int) -> float:
        """Return a number in [0, 1) that depends on nothing but the seed, the second and the
        channel."""
        mixed = self.seed * 0x9E3779B97F4A7C15 + channel * 0x94D049BB133111EB
        mixed += int(self.now // 1) * 0xBF58476D1CE4E5B9
        mixed &= _MASK
        mixed ^= mixed >> 31
        mixed = mixed * 0xD6E8FEB86659FD93 & _MASK
        return ((mixed ^ (mixed >> 32)) & 0xFFFFFFFF) / 4294967296.0


# -- processes -------------------------------------------------------------------------------------

_SWITCHES_PER_SECOND_ASLEEP = 45.0
_PUSHED_OFF_PER_SECOND = 240.0
"""Switches of a thread that shares its core: the kernel's time slices are a few milliseconds."""
_OWN_PAGES, _WORKER_OWN_PAGES = 0.92, 0.36
"""Share of resident memory that counts as its own in PSS: the greater part of a forked worker's
pages are still those of its parent."""


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """One process: its identity, its role in its job, and the meters of what it uses."""

    plan: JobPlan
    pid: int
    parent: int
    command: str
    started: float
    """Simulated seconds; negative is before the scenario began."""
    name: str = "python"
    resident_bytes: float
    threads: int
    usage: Usage = field(default_factory=Usage)
    steady_cpu: float = 0.0
    """Share of a core that it uses all the time, on top of that."""
    gpu: int | None = None
    held_bytes: float = 0.0
    """GPU memory once it is at its pace."""
    rank: Rank | None = None
    system: bool = False
    """Neither on a GPU nor the kin of one that is."""
    core: int = 0
    role: str = "rank"
    role_sign: str = "it is the job's main process"
    number: int | None = None
    """Its rank, or that of the rank it works for."""
    started_unix: float = 0.0

    def lives(self, now: float) -> bool:
        return self.started <= now < self.plan.end

    def gpu_bytes(self, now: float) -> int:
        """Return the memory it holds on its card: filling up at first, then steady."""
        if self.gpu is None or self.plan.begin is None:
            return int(self.held_bytes)
        loaded = min(1.0, max(0.0, (now - self.plan.begin) / (LOADING_SECONDS + 2.0)))
        return int(CONTEXT_BYTES + (self.held_bytes - CONTEXT_BYTES) * loaded)

    def cpu(self, moment: Moment) -> float:
        return self.steady_cpu + moment.rate(self.usage.cpu)

    def main_share(self, begin: float, end: float) -> float:
        """Return the share of a core that its main thread used."""
        return self.steady_cpu + self.usage.main.used(begin, end) / (end - begin)

    def facts(self, moment: Moment) -> dict[str, Any]:
        """Return what a list of processes and one of a job's members say alike."""
        using = self.usage.cpu.at(moment.now) or self.steady_cpu
        return {
            "pid": self.pid,
            "started_at_unix_seconds": self.started_unix,
            "parent_pid": self.parent,
            "name": self.name,
            "command": self.command,
            # A few percent is a sleeper's housekeeping.
            "state": "R" if using >= 0.25 else "S",
            "cpu_percent": round(100.0 * self.cpu(moment), 1),
            "memory_resident_bytes": int(self.resident_bytes),
            "threads": self.threads,
        }

    def row(self, moment: Moment, gpu: Gpu | None, sampled_percent: float) -> Process:
        """Return the process as others see it, on ``gpu`` if that is there, which has been so busy
        since the look before."""
        busy = None if gpu is None else gpu.reading.busy_percent
        if gpu is not None and busy is not None and gpu.reading.busy_samples is not None:
            busy = sampled_percent
        return Process(
            **self.facts(moment),
            user=self.plan.user,
            slurm_job=self.plan.slurm_job,
            gpu_uuid=None if gpu is None else gpu.uuid,
            gpu_memory_bytes=None if gpu is None else self.gpu_bytes(moment.now),
            gpu_busy_percent=None if busy is None else round(busy * (self.rank is not None), 1),
            gpu_kind=None if gpu is None else "compute",
            mig_instance=None if gpu is None else self.plan.instance,
        )

    def member(self, moment: Moment) -> JobMember:
        """Return the process as a reader of its job sees it."""
        main = min(1.0, self.main_share(moment.now - moment.elapsed, moment.now))
        wobble = moment.noise(self.pid)
        queue = 0.004 * wobble
        asleep = max(0.0, 1.0 - main - queue)
        pushed_off = _PUSHED_OFF_PER_SECOND * queue + 3.0 * main * wobble
        own_pages = _WORKER_OWN_PAGES if self.role == "loader_worker" else _OWN_PAGES
        return JobMember(
            **self.facts(moment),
            role=self.role,
            role_sign=self.role_sign,
            role_guessed=self.system,
            rank=self.number,
            main_thread_cpu_percent=round(100.0 * main, 1),
            run_queue_wait_percent=round(100.0 * queue, 1),
            disk_wait_percent=0.0,
            read_bytes_per_second=float(round(moment.rate(self.usage.reads))),
            write_bytes_per_second=float(round(moment.rate(self.usage.writes))),
            voluntary_switches_per_second=round(_SWITCHES_PER_SECOND_ASLEEP * asleep, 1),
            involuntary_switches_per_second=round(pushed_off, 1),
            memory_proportional_bytes=int(self.resident_bytes * own_pages),
        )


# -- jobs as a reader of /proc finds them ----------------------------------------------------------

_PLACES = {
    "ada": ("/home/ada/resnet", "conda torch"),
    "grace": ("/home/grace/llama", "venv llama"),
    "linus": ("/home/linus/vit", "conda vision"),
    "barbara": ("/scratch/barbara/pretrain", "conda pretrain"),
    "margaret": ("/home/margaret/sweep", "venv sweep"),
}
"""(working directory, Python environment) of those who have one of their own."""
_NO_PIN_SIGN = (
    "with no workers the training process pins memory itself, which cannot be seen from outside"
)


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedJob:
    """One job: its plan and its processes, parents first."""

    plan: JobPlan
    tasks: list[Task] = field(default_factory=list)

    def living(self, now: float) -> list[Task]:
        return [task for task in self.tasks if task.lives(now)]

    def is_on_gpus(self, now: float) -> bool:
        return any(task.gpu is not None for task in self.living(now))

    def seen(self, moment: Moment, gpus: GpuRows, *, attached: bool, close: bool) -> Job:
        """Return the job as it is at ``moment``; ``close``: with fine samples of its threads."""
        plan, top = self.plan, self.tasks[0]
        living = self.living(moment.now)
        ranks = [task for task in self.tasks if task.role == "rank"]
        several = len(ranks) > 1
        place, environment = _PLACES.get(plan.user, (None, None))
        slurm = None if plan.slurm_job is None else min(moment.cores, 12 * len(ranks))
        ended = None if living else round(moment.unix_at_zero + plan.end, 2)
        return Job(
            pid=top.pid,
            started_at_unix_seconds=top.started_unix,
            attached=attached,
            command=top.command,
            user=plan.user,
            working_directory=place,
            launcher="torchrun" if several else None,
            # Servers and notebooks hold no library.
            framework=None if plan.training is None else "torch",
            world_size=len(ranks) if several else None,
            ranks=tuple([self._rank(task, living, moment.now, gpus) for task in ranks]),
            members=tuple([task.member(moment) for task in living]),
            loops=tuple(self._loops(living, moment)),
            gpu_uuids=_gpus_of(self.tasks, gpus),
            affinity_cores=moment.cores,
            slurm_cores=slurm,
            usable_cores=float(slurm or moment.cores),
            slurm_job=plan.slurm_job,
            environment=environment,
            ended_at_unix_seconds=ended,
            main_thread_samples=self._main_threads("rank", moment) if close else None,
            loader_worker_samples=self._main_threads("loader_worker", moment) if close else None,
        )

    def _main_threads(self, role: str, moment: Moment) -> tuple[BusySample, ...] | None:
        """Return the CPU of the main threads of this role, the mean over those that lived, tick by
        tick since the look before, as far back as a driver's buffer keeps its samples."""
        tasks = [task for task in self.tasks if task.role == role]
        found = []
        last = round(moment.now * TICKS_PER_SECOND)
        for tick in range(max(moment.since_tick, last - BUFFERED_SAMPLES) + 1, last + 1):
            begin, end = (tick - 1) * TICK_SECONDS, tick * TICK_SECONDS
            lived = [task for task in tasks if task.lives(begin) and task.lives(end)]
            shares = [task.main_share(begin, end) for task in lived]
            if shares:
                found.append((tick, min(100.0, 100.0 * sum(shares) / len(shares))))
        return moment.new_samples(found) if tasks else None

    def _rank(self, task: Task, living: list[Task], now: float, gpus: GpuRows) -> JobRank:
        training = self.plan.training
        # Those of an ended job are what they were.
        workers: int | None = sum(other.parent == task.pid for other in living or self.tasks)
        pinned, pinned_sign = None, "it shows only beside loader workers"
        if workers:
            sign = f"{workers} processes named pt_data_worker"
            pinned = training is not None and training.pinned
            pinned_sign = (
                "a thread named pt_data_pin"
                if pinned
                else "no thread named pt_data_pin beside workers named pt_data_worker"
            )
        elif training is None:
            workers, sign = None, "PyTorch is not loaded in it"
        elif training.workers:
            workers, sign = None, f"it started only {age(now - task.started)} ago"
        else:
            sign, pinned_sign = f"none seen in {age(now - task.started)}", _NO_PIN_SIGN
        return JobRank(
            pid=task.pid,
            started_at_unix_seconds=task.started_unix,
            rank=task.number,
            local_rank=task.number,
            gpu_uuids=_gpus_of([task], gpus),
            loader_workers=workers,
            loader_workers_sign=sign,
            pinned_memory=pinned,
            pinned_memory_sign=pinned_sign,
            numa_nodes=(0, 1),
        )

    def _loops(self, living: list[Task], moment: Moment) -> Iterable[TrainingLoop]:
        plan, now = self.plan.training, moment.now
        for task in living:
            if plan is not None and plan.reports_loop and task.rank is not None:
                key, held = (task.pid, task.started_unix), task.gpu_bytes(now)
                loop = loop_report(task.rank, plan, key, now, moment.unix_at_zero, held)
                if loop is not None:
                    yield loop


def _gpus_of(tasks: Iterable[Task], gpus: GpuRows) -> tuple[GpuKey, ...]:
    uuids = [gpus[task.gpu, task.plan.instance].uuid for task in tasks if task.gpu is not None]
    return tuple(dict.fromkeys(uuids))


# -- the machine -----------------------------------------------------------------------------------

_KEPT_SECONDS = 20.0
"""As far back as fine samples go."""
_LONGEST_JUMP_SECONDS = 1800.0
_FIRST_INTERVAL_MAX_SECONDS = 10.0
_SYSTEM_COMMANDS: tuple[tuple[str, str, str, float], ...] = (
    ("root", "systemd", "/sbin/init", 0.001),
    ("root", "systemd-journal", "/usr/lib/systemd/systemd-journald", 0.002),
    ("root", "dockerd", "/usr/bin/dockerd -H fd://", 0.006),
    ("root", "containerd", "/usr/bin/containerd", 0.008),
    ("root", "sshd", "sshd: /usr/sbin/sshd -D [listener]", 0.0),
    ("root", "nvidia-persiste", "/usr/bin/nvidia-persistenced --verbose", 0.0),
    ("nobody", "node_exporter", "/usr/bin/node_exporter", 0.004),
    ("root", "slurmd", "/usr/sbin/slurmd -D -s", 0.003), ("ada", "sshd", "sshd: ada@pts/0", 0.001),
    ("ada", "tmux: server", "tmux new-session -s train", 0.004), ("ada", "bash", "-bash", 0.0),
    ("grace", "bash", "-bash", 0.0), ("grace", "vim", "vim configs/vit_l16.yaml", 0.001),
    ("linus", "htop", "htop -d 20", 0.012),
    ("linus", "rsync", "rsync -a --progress data/ backup:/data/", 0.21),
)  # fmt: skip
"""(user, name, command, share of a core) of what every machine runs."""


class Machine:
    """Everything of one simulated machine, at tick ``tick`` (time zero is the scenario's start),
    and all that is seen of it. It starts a minute before, so that the first look finds it warm.

    ``origin`` is time zero on the source's clock.
    """

    def __init__(
        self, setup: Setup, seed: int, origin: float, unix_offset: float, options: ReadOptions
    ) -> None:
        self._tick = -round(WARM_UP_SECONDS * TICKS_PER_SECOND)
        self._seed = seed
        self._options = options
        self._origin, self._unix_offset = origin, unix_offset
        gpus = len(setup.slots)
        self._gpus = [
            SimulatedGpu(number, slot, self._random("device", number), seed=seed, gpus=gpus)
            for number, slot in enumerate(setup.slots)
        ]
        self._tasks: list[Task] = []
        self._jobs: list[SimulatedJob] = []
        self._training: list[Ranks] = []
        self._pid, self._pid_random = 4242, self._random("pids")
        for number, plan in enumerate(setup.jobs):
            self._start(number, plan)
        self._start_system()
        self._cores = 32 if gpus <= 2 else 64 if gpus <= 4 else 128
        self._load = [0.0, 0.0, 0.0]
        order = list(range(self._cores))
        self._random("cores").shuffle(order)
        for number, task in enumerate(self._tasks):
            task.core = order[number % self._cores]
            task.started_unix = round(origin + unix_offset + task.started, 2)
        # Looked at once one interval before time zero, so that the first look has differences.
        self._advance(-min(options.interval_seconds, _FIRST_INTERVAL_MAX_SECONDS))
        self._sequence = 0
        self._read_at = self._tick * TICK_SECONDS
        self._read_tick = self._tick - 600 * TICKS_PER_SECOND
        self._elapsed = -self._read_at
        self._attached_to: ProcessKey | None = None
        self._attached: SimulatedJob | None = None

    def look(self, monotonic: float) -> Snapshot:
        """Return the machine at this time of the source's clock, which must not go back."""
        if self._options.attached != self._attached_to:
            self._attached_to = self._options.attached
            self._attached = self._job_of(self._attached_to)
        self._advance(self._time(monotonic))
        # What happens between two ticks is known at the later one only.
        now = self._tick * TICK_SECONDS
        tasks = [task for task in self._tasks if task.lives(now)]
        self._elapsed = now - self._read_at or self._elapsed
        moment = Moment(
            now=now,
            elapsed=self._elapsed,
            since_tick=self._read_tick,
            unix_at_zero=self._origin + self._unix_offset,
            seed=self._seed,
            cores=self._cores,
        )
        gpus = self._gpu_rows(moment, tasks)
        snapshot = Snapshot(
            sequence=self._sequence,
            taken_at_unix_seconds=monotonic + self._unix_offset,
            monotonic_seconds=monotonic,
            interval_seconds=self._options.interval_seconds,
            simulated=True,
            host=self._host(moment, tasks),
            gpus=tuple(gpus.values()),
            processes=tuple(self._process_rows(moment, tasks, gpus)),
            jobs=self._job_rows(moment, gpus),
            problems=tuple(problems_now(self._gpus, now, moment.unix_at_zero)),
        )
        self._sequence += 1
        self._read_tick, self._read_at = self._tick, now
        self._forget_before(now - max(_KEPT_SECONDS, self._elapsed))
        return snapshot

    def find(self, pid: int) -> ProcessKey | None:
        """Return the process that has this PID now."""
        living = [task for task in self._tasks if task.lives(self._read_at)]
        return next(((pid, task.started_unix) for task in living if task.pid == pid), None)

    def _time(self, monotonic: float) -> float:
        now = monotonic - self._origin
        extra = now - self._read_at - _LONGEST_JUMP_SECONDS
        if extra > 0:
            # This computer slept: its simulation slept too, rather than catching up for long.
            self._origin += extra
            now -= extra
        return max(now, self._read_at)

    def _advance(self, now: float) -> None:
        """Move by whole ticks up to the last one that has ended by ``now``."""
        last = math.floor(now * TICKS_PER_SECOND + 1e-6)
        while self._tick < last:
            end = (self._tick + 1) * TICK_SECONDS
            for ranks in self._training:
                ranks.advance(end)
            for gpu in self._gpus:
                gpu.tick(self._tick)
            self._tick += 1
            if self._tick % TICKS_PER_SECOND == 0:
                self._note_load(end)

    def _note_load(self, now: float) -> None:
        """Keep load averages as the kernel does: decaying means of who runs."""
        running = 0.0
        for task in self._tasks:
            running += task.usage.cpu.used(now - 1.0, now)
            running += task.steady_cpu if task.lives(now) else 0.0
        if now <= 2.5 - WARM_UP_SECONDS:
            self._load = [running * 0.98, running * 0.93, running * 0.86]
        for number, minutes in enumerate((1, 5, 15)):
            share = 1.0 - math.exp(-1.0 / (60.0 * minutes))
            self._load[number] += (running - self._load[number]) * share

    def _forget_before(self, moment: float) -> None:
        for task in self._tasks:
            task.usage.forget_before(moment)
        for gpu in self._gpus:
            gpu.phases.forget_before(moment)

    # -- what is seen of it ------------------------------------------------------------------------

    def _job_of(self, key: ProcessKey | None) -> SimulatedJob | None:
        """Return the job of this process; one that belongs to no job is one by itself."""

        def asked_for(task: Task) -> bool:
            return key is not None and task.pid == key[0] and key[1] in (None, task.started_unix)

        job = next((job for job in self._jobs if any(map(asked_for, job.tasks))), None)
        if job is None and (task := next(filter(asked_for, self._tasks), None)) is not None:
            return SimulatedJob(plan=task.plan, tasks=[task])
        return job

    def _job_rows(self, moment: Moment, gpus: GpuRows) -> tuple[Job, ...]:
        """Return those on GPUs; the attached one comes first, and the first is read closely."""
        attached = self._attached
        jobs = [job for job in self._jobs if job.is_on_gpus(moment.now)]
        if attached is not None:
            jobs = [attached, *(job for job in jobs if job is not attached)]
        return tuple(
            job.seen(moment, gpus, attached=job is attached, close=number == 0)
            for number, job in enumerate(jobs)
        )

    def _gpu_rows(self, moment: Moment, tasks: list[Task]) -> dict[tuple[int, int | None], Gpu]:
        """Return every row, keyed by card and MIG instance, in the order shown."""
        used: Counter[tuple[int, int | None]] = Counter()
        for task in tasks:
            if task.gpu is not None:
                for part in {None, task.plan.instance}:
                    used[task.gpu, part] += task.gpu_bytes(moment.now)
        working = {(task.gpu, task.plan.instance) for task in tasks if task.rank is not None}
        rows: dict[tuple[int, int | None], Gpu] = {}
        for number, gpu in enumerate(self._gpus):
            mean = gpu.activity(moment.now - moment.elapsed, moment.now)
            rows[number, None] = gpu.report(
                now=moment.now,
                mean=mean,
                used_bytes=used[number, None] + RESERVED_BYTES,
                samples=moment.new_samples(gpu.samples),
            )
            for position, identity in enumerate(gpu.instances):
                instance = (number, identity.mig_instance)
                rows[instance] = gpu.report_instance(
                    position, mean=mean, used_bytes=used[instance], works=instance in working
                )
        return rows

    def _process_rows(self, moment: Moment, tasks: list[Task], gpus: GpuRows) -> Iterable[Process]:
        asked_for = [] if self._attached is None else self._attached.tasks
        for task in tasks:
            if not task.system or self._options.all_processes or task in asked_for:
                gpu, busy = None, 0.0
                if task.gpu is not None:
                    gpu = gpus[task.gpu, task.plan.instance]
                    busy = self._gpus[task.gpu].sampled_percent(moment.elapsed)
                yield task.row(moment, None if gpu is None or gpu.lost else gpu, busy)

    def _host(self, moment: Moment, tasks: list[Task]) -> Host:
        cores = self._core_percents(moment, tasks)
        memory = (256 if self._cores <= 32 else 512 if self._cores <= 64 else 2048) * GIB
        # Batches lie in /dev/shm until the main process takes them.
        queued = sum(
            rank.loader.queued(moment.now) * ranks.plan.batch_bytes
            for ranks in self._training
            for rank in ranks.ranks
            if rank.loader is not None and moment.now < ranks.end
        )
        shm = min(memory // 2, int(queued))
        # A worker's pages are for the greater part those of the process it was forked from.
        used = sum([int(task.resident_bytes) for task in tasks]) * 0.8 + 6.2 * GIB + shm
        # Of those that have ended meanwhile, too.
        read = sum([moment.rate(task.usage.reads) for task in self._tasks])
        written = sum([moment.rate(task.usage.writes) for task in self._tasks])
        io_some = min(98.0, written / 40e6)
        return Host(
            name="sim-box",
            cpu_percent=round(sum(cores) / len(cores), 1),
            cpu_iowait_percent=0.0,
            core_percents=tuple([round(load, 1) for load in cores]),
            load_average_1_minute=round(self._load[0], 2),
            load_average_5_minutes=round(self._load[1], 2),
            load_average_15_minutes=round(self._load[2], 2),
            memory_total_bytes=memory,
            memory_used_bytes=int(min(memory * 0.985, used)),
            swap_total_bytes=8 * GIB,
            swap_used_bytes=0,
            pressure_cpu_some_percent=round(0.2 + moment.noise(901), 2),
            pressure_io_some_percent=round(io_some, 2),
            pressure_io_full_percent=round(io_some * 0.55, 2),
            pressure_memory_some_percent=0.0,
            pressure_memory_full_percent=0.0,
            disk_read_bytes_per_second=round(read),
            disk_write_bytes_per_second=round(written + 2e5 * moment.noise(902)),
            network_receive_bytes_per_second=round(4e4 + 9e4 * moment.noise(903) ** 2),
            network_transmit_bytes_per_second=round(2e4 + 6e4 * moment.noise(904) ** 2),
            shm_total_bytes=memory // 2,
            shm_used_bytes=shm,
            core_count=self._cores,
            affinity_cores=self._cores,
            usable_cores=float(self._cores),
            uptime_seconds=round(900_000.0 + moment.now + WARM_UP_SECONDS, 2),
        )

    def _core_percents(self, moment: Moment, tasks: list[Task]) -> list[float]:
        """Return how busy each core is: every process on its core, a little of the system on
        all."""
        # One stream of cheap numbers for all cores: a good one for each costs more than the GPUs.
        state = int(moment.noise(0) * 4294967296.0)
        loads = []
        for _ in range(self._cores):
            state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
            loads.append(0.2 + 2.6 * (state / 4294967296.0) ** 3)
        for task in tasks:
            percent = 100.0 * task.cpu(moment)
            # The scheduler moves a busy process now and then; the next cores take what one cannot.
            core = task.core + 7 * ((int(moment.now // 1) + task.pid) // 37)
            for place in range(core, core + self._cores):
                if percent <= 0.01:
                    break
                part = min(percent, 100.0 - loads[place % self._cores])
                loads[place % self._cores] += part
                percent -= part
        return loads

    # -- what runs on it ---------------------------------------------------------------------------

    def _random(self, *name: object) -> random.Random:
        # Each part has its own stream: one more GPU changes nothing for the others.
        return random.Random(f"{self._seed}/{name}")

    def _start(self, number: int, plan: JobPlan) -> None:
        """Start a job as its user does: by itself, or by torchrun."""
        fresh, several = plan.begin is not None, len(plan.gpus) > 1
        begin = -WARM_UP_SECONDS if plan.begin is None else plan.begin
        started = begin if fresh else begin - plan.age_seconds
        ranks = self._start_training(number, plan, begin)
        rng = self._random("processes", number)
        job = SimulatedJob(plan=plan)
        self._jobs.append(job)
        parent, command = 1, plan.command
        if several:
            script = command.removeprefix("python ")
            parent = self._add_task(
                job,
                parent=1,
                started=started,
                command="python /usr/bin/torchrun --standalone "
                f"--nproc-per-node={len(plan.gpus)} {script}",
                name="torchrun",
                role="launcher",
                role_sign="it is torchrun",
                resident_bytes=260.0 * MIB,
                threads=6,
                steady_cpu=0.003,
            ).pid
            command = f"python -u {script}"
        for position, gpu in enumerate(plan.gpus or (None,)):
            sign = f"RANK={position} in its environment" if several else "it uses a GPU"
            task = self._add_task(
                job,
                parent=parent,
                started=started + (0.4 if fresh else 3.1),
                command=command,
                threads=78 if ranks else 34,
                resident_bytes=3.4 * GIB * rng.uniform(0.97, 1.04),
                role_sign=sign,
                number=position if several else None,
                steady_cpu=0.0 if ranks else 0.004,
            )
            if gpu is not None:
                task.gpu = gpu
                held = plan.memory_bytes * rng.uniform(0.99, 1.01)
                task.held_bytes = min(held, self._gpus[gpu].card.memory_bytes * 0.82)
            if ranks:
                task.rank = rank = ranks[position]
                task.usage = rank.usage
                born = begin + LOADING_SECONDS - 0.3 if fresh else started + 9.0
                self._start_workers(job, task, rank, born, rng)
        # Other programs ran meanwhile.
        self._pid += self._pid_random.randrange(20, 400)

    def _start_training(self, number: int, plan: JobPlan, begin: float) -> list[Rank]:
        if plan.training is None:
            return []
        loading = 0.0 if plan.begin is None else LOADING_SECONDS
        ranks = Ranks(
            plan.training,
            [self._gpus[gpu] for gpu in plan.gpus] or [None],
            self._random("job", number),
            begin=begin + loading,
            end=plan.end,
            loading_seconds=loading,
        )
        self._training.append(ranks)
        return ranks.ranks

    def _start_workers(
        self, job: SimulatedJob, parent: Task, rank: Rank, born: float, rng: random.Random
    ) -> None:
        for worker in rank.loader.workers if rank.loader is not None else ():
            self._add_task(
                job,
                parent=parent.pid,
                started=born,
                command=parent.command,
                name="pt_data_worker",
                role="loader_worker",
                role_sign="named pt_data_worker",
                number=parent.number,
                resident_bytes=rng.uniform(0.72, 0.94) * GIB,
                threads=2,
                usage=worker.usage,
            )

    def _add_task(self, job: SimulatedJob, **more: Any) -> Task:
        task = Task(plan=job.plan, pid=self._pid, **more)
        # PIDs rise, with gaps.
        self._pid += 1 + int(self._pid_random.expovariate(0.25))
        self._tasks.append(task)
        job.tasks.append(task)
        return task

    def _start_system(self) -> None:
        rng = self._random("system")
        for number, (user, name, command, cpu) in enumerate(_SYSTEM_COMMANDS):
            task = Task(
                plan=JobPlan(gpus=(), user=user, command=command),
                pid=1 if number == 0 else 300 + 117 * number + rng.randrange(90),
                parent=0 if number == 0 else 1,
                name=name,
                command=command,
                started=-WARM_UP_SECONDS - 900_000.0 + 37.0 * number,
                resident_bytes=rng.uniform(6, 90) * MIB,
                threads=1,
                steady_cpu=cpu,
                system=True,
            )
            self._tasks.append(task)
