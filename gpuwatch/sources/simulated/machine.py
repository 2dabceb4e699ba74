"""The simulated machine: jobs and the processes they are, cards and the host, moved on together.

It is told what runs on it (``Setup``) and moves on a fixed step; what a reader of /proc would find
is a function of it.
"""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Reversible, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

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
    H200,
    TICK_SECONDS,
    TICKS_PER_SECOND,
    Device,
    GpuView,
    Slot,
    losses,
    standing_problems,
)
from gpuwatch.sources.simulated.training import LoopLog, Meter, Rank, Ranks, Training

MIB = 1024**2
TRAIN = "python train.py --config configs/resnet50.yaml"
LOADING_SECONDS = 6.0
"""From a fresh start to the first step."""
_LEAK_SECONDS = 6.0
CONTEXT_BYTES = 0.52 * GIB
"""Taken by a CUDA context and its libraries on a card before the first tensor."""
RESERVED_BYTES = int(0.46 * GIB)
"""Memory that the driver itself holds on a card."""


# -- what a scenario asks for ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """One job: who runs what on which GPUs, and what it costs."""

    gpus: tuple[int, ...]
    training: Training | None = None
    """``None``: it holds its memory and does nothing."""
    user: str = "ada"
    command: str = TRAIN
    memory_bytes: float = 31.2 * GIB
    leak_bytes_per_step: float = 0.0
    begin: float | None = None
    """When its processes start; ``None``: long before the scenario."""
    end: float = float("inf")
    age_seconds: float = 2840.0
    resident_bytes: float = 3.4 * GIB
    instance: int | None = None
    slurm_job: str | None = None
    orphaned: bool = False
    """A loader worker whose training process has ended."""
    cpu_only: bool = False
    """It trains without a GPU; ``gpus`` is empty."""

    def gpu_bytes(self, now: float, card_bytes: int, factor: float) -> int:
        """Return the memory of one of its processes on a card of that size: steady, growing in
        steps, or filling up at first. ``factor`` tells the processes apart."""
        base = min(self.memory_bytes * factor, card_bytes * 0.82)
        if self.begin is not None:
            passed = (now - self.begin) / (LOADING_SECONDS + 2.0)
            return int(CONTEXT_BYTES + (base - CONTEXT_BYTES) * min(1.0, max(0.0, passed)))
        grown = base + self.leak_bytes_per_step * max(0, int(now / _LEAK_SECONDS))
        # There a leak stops: the allocator frees and tries again.
        return int(min(grown, card_bytes * 0.985 - RESERVED_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A machine: its cards, what runs on it, and where it is no usual one, its cores and memory."""

    slots: tuple[Slot, ...]
    jobs: tuple[JobPlan, ...]
    cores: int | None = None
    memory_bytes: int | None = None


# -- processes -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """One process: its identity, its role in its job, and the meters of what it uses."""

    plan: JobPlan
    pid: int
    parent: int
    name: str
    command: str
    started: float
    """Simulated seconds; negative is before the scenario began."""
    resident_bytes: float = 300.0 * MIB
    own_pages: float = 0.92
    """Share of its resident memory that counts as its own in PSS."""
    threads: int = 1
    meters: dict[str, Meter] = field(default_factory=dict)
    """``cpu``; ``main`` (its main thread, where that is not all of it); ``reads`` and ``writes``
    (bytes from and to storage)."""
    steady_cpu: float = 0.0
    """Share of a core for a process without a meter."""
    gpu: int | None = None
    gpu_memory: Callable[[float], int] | None = None
    works: bool = False
    """It does what its GPU does."""
    system: bool = False
    """Neither on a GPU nor the kin of one that is."""
    core: int = 0
    role: str = "rank"
    role_sign: str = "it is the job's main process"
    role_guessed: bool = False
    number: int | None = None
    """Its rank, or that of the rank it works for."""
    loop: LoopLog | None = None
    started_unix: float = 0.0
    _shown: tuple[str | None, Process] | None = None
    """(GPU, row): hundreds of servers and shells never change."""

    def lives(self, now: float) -> bool:
        return self.started <= now < self.plan.end

    def rate(self, moment: Moment, meter: str) -> float:
        """Return how much of what ``meter`` counts was used a second since the look before."""
        if meter in self.meters:
            begin = moment.now - moment.elapsed
            return self.meters[meter].used(begin, moment.now) / moment.elapsed
        return self.steady_cpu if meter == "cpu" else 0.0

    def main_share(self, begin: float, end: float) -> float:
        """Return the share of a core that its main thread used."""
        meter = self.meters.get("main") or self.meters.get("cpu")
        return self.steady_cpu if meter is None else meter.used(begin, end) / (end - begin)

    def facts(self, moment: Moment) -> dict[str, Any]:
        """Return what a list of processes and one of a job's members say alike."""
        cpu = self.meters.get("cpu")
        runs = self.steady_cpu > 0.5 if cpu is None else cpu.runs(moment.now)
        return {
            "pid": self.pid,
            "started_at_unix_seconds": self.started_unix,
            "parent_pid": self.parent,
            "name": self.name,
            "command": self.command,
            "state": "R" if runs else "S",
            "cpu_percent": round(100.0 * self.rate(moment, "cpu"), 1),
            "memory_resident_bytes": int(self.resident_bytes),
            "threads": self.threads,
        }

    def show(self, moment: Moment, gpu: Gpu | None) -> Process:
        """Return the process as others see it, on ``gpu`` if that is there."""
        still = not (self.meters or self.works)
        if still and self._shown is not None and self._shown[0] == (gpu and gpu.uuid):
            return self._shown[1]
        busy = None if gpu is None else gpu.reading.busy_percent
        held = None if gpu is None or self.gpu_memory is None else self.gpu_memory(moment.now)
        process = Process(
            **self.facts(moment),
            user=self.plan.user,
            slurm_job=self.plan.slurm_job,
            gpu_uuid=None if gpu is None else gpu.uuid,
            gpu_memory_bytes=held,
            gpu_busy_percent=None if busy is None else float(round(busy * self.works)),
            gpu_kind=None if gpu is None else "compute",
            mig_instance=None if gpu is None else self.plan.instance,
        )
        self._shown = (process.gpu_uuid, process)
        return process


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedJob:
    """One job: its plan and its processes, parents first."""

    plan: JobPlan
    tasks: list[Task] = field(default_factory=list)

    def living(self, now: float) -> list[Task]:
        return [task for task in self.tasks if task.lives(now)]

    def having(self, role: str) -> list[Task]:
        return [task for task in self.tasks if task.role == role]

    def main_threads(self, role: str, moment: Moment) -> tuple[BusySample, ...]:
        """Return the CPU of the main threads of this role, the mean over those that lived, tick by
        tick since the look before, as far back as a driver's buffer keeps its samples."""
        found = []
        last = round(moment.now * TICKS_PER_SECOND)
        for tick in range(max(moment.since_tick, last - BUFFERED_SAMPLES) + 1, last + 1):
            begin, end = (tick - 1) * TICK_SECONDS, tick * TICK_SECONDS
            shares = [
                task.main_share(begin, end)
                for task in self.tasks
                if task.role == role and task.lives(begin) and task.lives(end)
            ]
            if shares:
                found.append((tick, min(100.0, 100.0 * sum(shares) / len(shares))))
        return moment.new_samples(found)


# -- the machine -----------------------------------------------------------------------------------

_WARM_UP_SECONDS = 60.0
_KEPT_SECONDS = 20.0
"""As far back as fine samples go."""
_LONGEST_JUMP_SECONDS = 1800.0
_FIRST_INTERVAL_MAX_SECONDS = 10.0
WORKER_OWN_PAGES = 0.36
"""The greater part of a forked worker's pages are still those of its parent."""
_WORKER = {"role": "loader_worker", "role_sign": "named pt_data_worker"}
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
    and what is seen of it. It starts a minute before that, so that the first look finds it warm.

    ``origin`` is time zero on the source's clock.
    """

    def __init__(
        self, setup: Setup, seed: int, origin: float, unix_offset: float, options: ReadOptions
    ) -> None:
        self.tick = -round(_WARM_UP_SECONDS * TICKS_PER_SECOND)
        self.seed = seed
        self.setup, self.begin = setup, self.tick * TICK_SECONDS
        self._options = options
        self._origin, self._unix_offset = origin, unix_offset
        unix_at_zero = origin + unix_offset
        self.devices = [
            Device(slot.card, self._random("device", number), slot.cooling_fails_at)
            for number, slot in enumerate(setup.slots)
        ]
        self._views = [
            GpuView(number, slot, device, seed=seed, gpus=len(setup.slots))
            for number, (slot, device) in enumerate(zip(setup.slots, self.devices, strict=True))
        ]
        self._standing = standing_problems(self._views, unix_at_zero - _WARM_UP_SECONDS)
        self._losses = losses(self._views, unix_at_zero)
        self.tasks: list[Task] = []
        self.jobs: list[SimulatedJob] = []
        self.training: list[Ranks] = []
        self._pid, self._pid_random = 4242, self._random("pids")
        for number, plan in enumerate(setup.jobs):
            if plan.gpus or plan.cpu_only:
                self._start(number, plan)
        self._start_system()
        gpus = len(setup.slots)
        self.cores = setup.cores or (32 if gpus <= 2 else 64 if gpus <= 4 else 128)
        self.load = [0.0, 0.0, 0.0]
        order = list(range(self.cores))
        self._random("cores").shuffle(order)
        for number, task in enumerate(self.tasks):
            task.core = order[number % self.cores]
            task.started_unix = round(unix_at_zero + task.started, 2)
        # Looked at once one interval before time zero, so that the first look has differences.
        self.advance(-min(options.interval_seconds, _FIRST_INTERVAL_MAX_SECONDS))
        self._sequence = 0
        self._read_at = self.tick * TICK_SECONDS
        self._read_tick = self.tick - 600 * TICKS_PER_SECOND
        self._elapsed = -self._read_at
        self._attached_to: ProcessKey | None = None
        self._attached: SimulatedJob | None = None

    def advance(self, now: float) -> None:
        """Move by whole ticks up to the last one that has ended by ``now``."""
        last = math.floor(now * TICKS_PER_SECOND + 1e-6)
        while self.tick < last:
            end = (self.tick + 1) * TICK_SECONDS
            for ranks in self.training:
                ranks.advance(end)
            for device in self.devices:
                device.tick(self.tick)
            self.tick += 1
            if self.tick % TICKS_PER_SECOND == 0:
                self._note_load(end)

    def _forget_before(self, moment: float) -> None:
        for task in self.tasks:
            for meter in task.meters.values():
                meter.forget_before(moment)
        for device in self.devices:
            device.forget_before(moment)

    def _jobs_on_gpus(self, now: float) -> list[SimulatedJob]:
        return [
            job
            for job in self.jobs
            if job.plan.gpus and any(task.gpu is not None for task in job.living(now))
        ]

    def _job_of(self, key: ProcessKey) -> SimulatedJob | None:
        """Return the job of this process; one that belongs to no job is one by itself."""

        def is_it(task: Task) -> bool:
            return task.pid == key[0] and key[1] in (None, task.started_unix)

        for job in self.jobs:
            if any(map(is_it, job.tasks)):
                return job
        task = next(filter(is_it, self.tasks), None)
        if task is None:
            return None
        return SimulatedJob(plan=task.plan, tasks=[task])

    def look(self, monotonic: float) -> Snapshot:
        """Return the machine at this time of the source's clock, which must not go back."""
        if self._options.attached != self._attached_to:
            self._attached_to = self._options.attached
            asked = self._attached_to
            self._attached = None if asked is None else self._job_of(asked)
        self.advance(self._time(monotonic))
        # What happens between two ticks is known at the later one only.
        now = self.tick * TICK_SECONDS
        tasks = [task for task in self.tasks if task.lives(now)]
        self._elapsed = now - self._read_at or self._elapsed
        moment = Moment(
            now=now,
            elapsed=self._elapsed,
            since_tick=self._read_tick,
            unix_at_zero=self._origin + self._unix_offset,
        )
        host = build_host(self, tasks, moment)
        gpus = self._show_gpus(moment, tasks)
        snapshot = Snapshot(
            sequence=self._sequence,
            taken_at_unix_seconds=monotonic + self._unix_offset,
            monotonic_seconds=monotonic,
            interval_seconds=self._options.interval_seconds,
            simulated=True,
            host=host,
            gpus=tuple(gpus.values()),
            processes=self._show_processes(moment, tasks, gpus),
            jobs=self._show_jobs(moment, gpus),
            problems=(
                *(problem for slot, problem in self._losses if slot.is_lost(now)),
                *self._standing,
            ),
        )
        self._sequence += 1
        self._read_tick = self.tick
        self._read_at = now
        self._forget_before(now - max(_KEPT_SECONDS, self._elapsed))
        return snapshot

    def _show_jobs(self, moment: Moment, gpus: GpuRows) -> tuple[Job, ...]:
        """Return those on GPUs; the attached one comes first, and the first is read closely."""
        jobs, first = self._jobs_on_gpus(moment.now), self._attached
        if first is not None:
            jobs = [first, *(job for job in jobs if job is not first)]
        return tuple(
            build_job(self, job, moment, gpus, attached=job is first, close=not number)
            for number, job in enumerate(jobs)
        )

    def find(self, pid: int) -> ProcessKey | None:
        """Return the process that has this PID now."""
        tasks = self.tasks
        keys = ((task.pid, task.started_unix) for task in tasks if task.lives(self._read_at))
        return next((key for key in keys if key[0] == pid), None)

    def _time(self, monotonic: float) -> float:
        now = monotonic - self._origin
        extra = now - self._read_at - _LONGEST_JUMP_SECONDS
        if extra > 0:
            # This computer slept: its simulation slept too, rather than catching up for long.
            self._origin += extra
            now -= extra
        return max(now, self._read_at)

    def _show_gpus(self, moment: Moment, tasks: list[Task]) -> dict[tuple[int, int | None], Gpu]:
        """Return every row, keyed by card and MIG instance, in the order shown."""
        now = moment.now
        used: Counter[tuple[int, int | None]] = Counter()
        for task in tasks:
            if task.gpu is not None and task.gpu_memory is not None:
                for part in {None, task.plan.instance}:
                    used[task.gpu, part] += task.gpu_memory(now)
        working = {(task.gpu, task.plan.instance) for task in tasks if task.works}
        rows: dict[tuple[int, int | None], Gpu] = {}
        for number, view in enumerate(self._views):
            if view.slot.is_lost(now):
                rows[number, None] = view.lost()
                continue
            reserved = 0 if view.slot.card.unified else RESERVED_BYTES
            mean = view.device.activity(now - moment.elapsed, now)
            rows[number, None] = view.show(
                mean=mean,
                used_bytes=used[number, None] + reserved,
                samples=moment.new_samples(view.device.samples),
            )
            for position, identity in enumerate(view.instances):
                instance = (number, identity.mig_instance)
                rows[instance] = view.show_instance(
                    position, mean=mean, used_bytes=used[instance], works=instance in working
                )
        return rows

    def _show_processes(
        self, moment: Moment, tasks: list[Task], gpus: GpuRows
    ) -> tuple[Process, ...]:
        everything = self._options.all_processes
        asked_for = [] if self._attached is None else self._attached.tasks
        shown = []
        for task in tasks:
            if task.system and not everything and task not in asked_for:
                continue
            gpu = None if task.gpu is None else gpus[task.gpu, task.plan.instance]
            shown.append(task.show(moment, None if gpu is None or gpu.lost else gpu))
        return tuple(shown)

    # -- what runs on it -----------------------------------------------------------------------

    def _random(self, *name: object) -> random.Random:
        # Each part has its own stream: one more GPU changes nothing for the others.
        return random.Random(f"{self.seed}/{name}")

    def _note_load(self, now: float) -> None:
        """Keep load averages as the kernel does: decaying means of who runs."""
        running = 0.0
        for task in self.tasks:
            if "cpu" in task.meters:
                running += task.meters["cpu"].used(now - 1.0, now)
            elif task.lives(now):
                running += task.steady_cpu
        if now <= self.begin + 2.5:
            self.load = [running * 0.98, running * 0.93, running * 0.86]
        for number, minutes in enumerate((1, 5, 15)):
            share = 1.0 - math.exp(-1.0 / (60.0 * minutes))
            self.load[number] += (running - self.load[number]) * share

    def _start(self, number: int, plan: JobPlan) -> None:
        gpus = plan.gpus
        fresh = plan.begin is not None
        begin = self.begin if plan.begin is None else plan.begin
        started = begin if fresh else begin - plan.age_seconds
        ranks = self._start_training(number, plan, begin)
        rng = self._random("processes", number)
        job = self._job_for(plan)
        parent, command = self._start_launcher(job, started)
        for position, gpu in enumerate(gpus or (None,)):
            task = self._add_task(
                job,
                parent,
                started + (0.4 if fresh else 3.1),
                command,
                threads=78 if plan.training else 34,
                works=plan.training is not None,
                resident_bytes=plan.resident_bytes * rng.uniform(0.97, 1.04),
                **_role(plan, position if len(gpus) > 1 else None),
            )
            if gpu is not None:
                total, factor = self.devices[gpu].card.memory_bytes, rng.uniform(0.99, 1.01)
                task.gpu = gpu
                task.gpu_memory = partial(plan.gpu_bytes, card_bytes=total, factor=factor)
            if not ranks:
                task.steady_cpu = 0.004
                continue
            rank = ranks[position]
            task.loop = rank.loop
            task.meters.update(cpu=rank.cpu, main=rank.main, reads=rank.reads, writes=rank.writes)
            born = begin + LOADING_SECONDS - 0.3 if fresh else started + 9.0
            self._start_workers(job, rank, task, born, rng)
        # Other programs ran meanwhile.
        self._pid += self._pid_random.randrange(20, 400)

    def _job_for(self, plan: JobPlan) -> SimulatedJob:
        """Return a new one; workers whose job has ended are found together."""
        if plan.orphaned:
            for job in self.jobs:
                if job.plan.orphaned and job.plan.user == plan.user:
                    return job
        job = SimulatedJob(plan=plan)
        self.jobs.append(job)
        return job

    def _start_training(self, number: int, plan: JobPlan, begin: float) -> list[Rank]:
        if plan.training is None:
            return []
        rng = self._random("job", number)
        loading = 0.0 if plan.begin is None else LOADING_SECONDS
        ranks = Ranks(
            plan.training,
            [self.devices[gpu] for gpu in plan.gpus] or [_nowhere(rng)],
            rng,
            begin=begin + loading,
            end=plan.end,
            loading_seconds=loading,
        )
        self.training.append(ranks)
        return ranks.ranks

    def _start_launcher(self, job: SimulatedJob, started: float) -> tuple[int, str]:
        """Return the parent of the ranks and the command each of them shows."""
        ranks = len(job.plan.gpus)
        if ranks < 2:
            return 1, job.plan.command
        script = job.plan.command.removeprefix("python ")
        launcher = self._add_task(
            job,
            1,
            started,
            f"python /usr/bin/torchrun --standalone --nproc-per-node={ranks} {script}",
            name="torchrun",
            role="launcher",
            role_sign="it is torchrun",
            resident_bytes=260.0 * MIB,
            threads=6,
            steady_cpu=0.003,
        )
        return launcher.pid, f"python -u {script}"

    def _start_workers(
        self, job: SimulatedJob, rank: Rank, parent: Task, born: float, rng: random.Random
    ) -> None:
        for worker in rank.loader.workers if rank.loader is not None else ():
            self._add_task(
                job,
                parent.pid,
                born,
                parent.command,
                name="pt_data_worker",
                **_WORKER,
                number=parent.number,
                resident_bytes=rng.uniform(0.72, 0.94) * GIB,
                threads=2,
                own_pages=WORKER_OWN_PAGES,
                meters={"cpu": worker.cpu, "reads": worker.reads},
            )

    def _add_task(
        self, job: SimulatedJob, parent: int, started: float, command: str, **more: Any
    ) -> Task:
        task = Task(
            pid=self._pid,
            parent=parent,
            command=command,
            started=started,
            plan=job.plan,
            **{"name": "pt_data_worker" if job.plan.orphaned else "python", **more},
        )
        # PIDs rise, with gaps.
        self._pid += 1 + int(self._pid_random.expovariate(0.25))
        self.tasks.append(task)
        job.tasks.append(task)
        return task

    def _start_system(self) -> None:
        rng = self._random("system")
        for number, (user, name, command, cpu) in enumerate(_SYSTEM_COMMANDS):
            task = Task(
                pid=1 if number == 0 else 300 + 117 * number + rng.randrange(90),
                parent=0 if number == 0 else 1,
                plan=JobPlan(gpus=(), user=user, command=command),
                name=name,
                command=command,
                started=self.begin - 900_000.0 + 37.0 * number,
                resident_bytes=rng.uniform(6, 90) * MIB,
                steady_cpu=cpu,
                system=True,
                role_guessed=True,
            )
            self.tasks.append(task)


def _role(plan: JobPlan, number: int | None) -> dict[str, Any]:
    if plan.orphaned:
        return dict(_WORKER)
    sign = "it uses a GPU" if number is None else f"RANK={number} in its environment"
    return {"role_sign": sign, "number": number}


def _nowhere(rng: random.Random) -> Device:
    """Return the device of a job without a GPU: nobody ticks it, so it must not keep phases."""
    device = Device(H200, rng)
    device.phases = deque(maxlen=1)
    return device


# -- the host as its kernel shows it ---------------------------------------------------------------

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One moment at which the machine is looked at."""

    now: float
    elapsed: float
    """Seconds since the look before, above zero."""
    since_tick: int
    unix_at_zero: float

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


def noise(seed: int, at: int, channel: int) -> float:
    """Return a number in [0, 1) that depends on nothing but its arguments."""
    mixed = seed * 0x9E3779B97F4A7C15 + at * 0xBF58476D1CE4E5B9 + channel * 0x94D049BB133111EB
    mixed &= _MASK
    mixed ^= mixed >> 31
    mixed = mixed * 0xD6E8FEB86659FD93 & _MASK
    return ((mixed ^ (mixed >> 32)) & 0xFFFFFFFF) / 4294967296.0


def core_percents(machine: Machine, tasks: list[Task], moment: Moment) -> list[float]:
    """Return how busy each core is: every process on its core, a little of the system on all."""
    cores, second = machine.cores, int(moment.now // 1)
    # One stream of cheap numbers for all cores: a good one for each costs more than the GPUs.
    state = int(noise(machine.seed, second, 0) * 4294967296.0)
    loads = []
    for _ in range(cores):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        share = state / 4294967296.0
        loads.append(0.2 + 2.6 * share * share * share)
    for task in tasks:
        percent = 100.0 * task.rate(moment, "cpu")
        # The scheduler moves a busy process now and then; what one core cannot take, the next do.
        core = (task.core + 7 * ((second + task.pid) // 37)) % cores
        for _ in loads:
            if percent <= 0.01:
                break
            part = min(percent, 100.0 - loads[core])
            loads[core] += part
            percent -= part
            core = (core + 1) % cores
    return loads


def build_host(machine: Machine, tasks: list[Task], moment: Moment) -> Host:
    """Return the host; ``tasks`` are those alive."""
    now, seed, second = moment.now, machine.seed, int(moment.now // 1)
    cores = core_percents(machine, tasks, moment)
    usual = (256 if machine.cores <= 32 else 512 if machine.cores <= 64 else 2048) * GIB
    memory = machine.setup.memory_bytes or usual
    # Batches lie in /dev/shm until the main process takes them.
    queued = sum(
        rank.loader.queued(now) * ranks.plan.batch_bytes
        for ranks in machine.training
        for rank in ranks.ranks
        if rank.loader is not None and now < ranks.end
    )
    shm = min(memory // 2, int(queued))
    # A worker's pages are for the greater part those of the process it was forked from.
    used = sum([int(task.resident_bytes) for task in tasks]) * 0.8 + 6.2 * GIB + shm
    for task in tasks:
        if task.gpu is not None and task.gpu_memory is not None:
            used += task.gpu_memory(now) if machine.devices[task.gpu].card.unified else 0
    # Of those that have ended meanwhile, too.
    read, written = [
        sum([task.rate(moment, what) for task in machine.tasks]) for what in ("reads", "writes")
    ]
    io_some = min(98.0, written / 40e6)
    return Host(
        name="sim-box",
        cpu_percent=round(sum(cores) / len(cores), 1),
        cpu_iowait_percent=0.0,
        core_percents=tuple([round(load, 1) for load in cores]),
        load_average_1_minute=round(machine.load[0], 2),
        load_average_5_minutes=round(machine.load[1], 2),
        load_average_15_minutes=round(machine.load[2], 2),
        memory_total_bytes=memory,
        memory_used_bytes=int(min(memory * 0.985, used)),
        swap_total_bytes=8 * GIB,
        swap_used_bytes=0,
        pressure_cpu_some_percent=round(0.2 + noise(seed, second, 901), 2),
        pressure_io_some_percent=round(io_some, 2),
        pressure_io_full_percent=round(io_some * 0.55, 2),
        pressure_memory_some_percent=0.0,
        pressure_memory_full_percent=0.0,
        disk_read_bytes_per_second=round(read),
        disk_write_bytes_per_second=round(written + 2e5 * noise(seed, second, 902)),
        network_receive_bytes_per_second=round(4e4 + 9e4 * noise(seed, second, 903) ** 2),
        network_transmit_bytes_per_second=round(2e4 + 6e4 * noise(seed, second, 904) ** 2),
        shm_total_bytes=memory // 2,
        shm_used_bytes=shm,
        core_count=machine.cores,
        affinity_cores=machine.cores,
        usable_cores=float(machine.cores),
        uptime_seconds=round(900_000.0 + now - machine.begin, 2),
    )


# -- the jobs as a reader of /proc finds them ------------------------------------------------------

GpuRows = Mapping[tuple[int, int | None], Gpu]
"""GPUs by card and MIG instance."""
_SWITCHES_PER_SECOND_ASLEEP = 45.0
_PUSHED_OFF_PER_SECOND = 240.0
"""Switches of a thread that shares its core: the kernel's time slices are a few milliseconds."""
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


def build_job(
    machine: Machine,
    job: SimulatedJob,
    moment: Moment,
    gpus: GpuRows,
    *,
    attached: bool,
    close: bool,
) -> Job:
    """Return the job as it is seen at ``moment``; ``close``: with fine samples of its threads."""
    plan = job.plan
    living = job.living(moment.now)
    top = job.tasks[0]
    ranks = job.having("rank")
    several = len(ranks) > 1
    place, environment = _PLACES.get(plan.user, (None, None))
    slurm = None if plan.slurm_job is None else min(machine.cores, 12 * len(ranks))
    samples = {
        role: job.main_threads(role, moment)
        for role in ("rank", "loader_worker")
        if close and job.having(role)
    }
    return Job(
        pid=top.pid,
        started_at_unix_seconds=top.started_unix,
        attached=attached,
        command=top.command,
        user=plan.user,
        working_directory=place,
        launcher="torchrun" if several else None,
        framework=_framework(plan),
        world_size=len(ranks) if several else None,
        ranks=tuple([_rank(job, task, living, moment.now, gpus) for task in ranks]),
        members=tuple([_member(machine, task, moment) for task in living]),
        loops=_loops(job, living, moment),
        gpu_uuids=tuple(dict.fromkeys(_gpus_of(job.tasks, gpus))),
        affinity_cores=machine.cores,
        slurm_cores=slurm,
        usable_cores=float(slurm or machine.cores),
        slurm_job=plan.slurm_job,
        environment=environment,
        ended_at_unix_seconds=_ended(job, moment) if not living else None,
        main_thread_samples=samples.get("rank"),
        loader_worker_samples=samples.get("loader_worker"),
    )


def _member(machine: Machine, task: Task, moment: Moment) -> JobMember:
    main = min(1.0, task.main_share(moment.now - moment.elapsed, moment.now))
    wobble = noise(machine.seed, int(moment.now), task.pid)
    queue = 0.004 * wobble
    asleep = max(0.0, 1.0 - main - queue)
    return JobMember(
        **task.facts(moment),
        role=task.role,
        role_sign=task.role_sign,
        role_guessed=task.role_guessed,
        rank=task.number,
        orphaned=task.role == "loader_worker" and task.parent == 1,
        main_thread_cpu_percent=round(100.0 * main, 1),
        run_queue_wait_percent=round(100.0 * queue, 1),
        disk_wait_percent=0.0,
        read_bytes_per_second=float(round(task.rate(moment, "reads"))),
        write_bytes_per_second=float(round(task.rate(moment, "writes"))),
        voluntary_switches_per_second=round(_SWITCHES_PER_SECOND_ASLEEP * asleep, 1),
        involuntary_switches_per_second=round(
            _PUSHED_OFF_PER_SECOND * queue + 3.0 * main * wobble, 1
        ),
        # A forked worker shares most of what it began with.
        memory_proportional_bytes=int(task.resident_bytes * task.own_pages),
    )


def _rank(
    job: SimulatedJob, task: Task, living: Sequence[Task], now: float, gpus: GpuRows
) -> JobRank:
    # Those of an ended job are what they were.
    own = sum(other.parent == task.pid for other in living or job.tasks)
    workers, sign = _workers(job.plan, own, now - task.started)
    pinned, pinned_sign = _pinned(job.plan, workers)
    return JobRank(
        pid=task.pid,
        started_at_unix_seconds=task.started_unix,
        rank=task.number,
        local_rank=task.number,
        gpu_uuids=tuple(_gpus_of([task], gpus)),
        loader_workers=workers,
        loader_workers_sign=sign,
        pinned_memory=pinned,
        pinned_memory_sign=pinned_sign,
        numa_nodes=(0, 1),
    )


def _loops(job: SimulatedJob, living: Sequence[Task], moment: Moment) -> tuple[TrainingLoop, ...]:
    training = job.plan.training
    if training is None or not training.reports_loop:
        return ()
    reported = [
        task.loop.report(
            (task.pid, task.started_unix),
            moment.now,
            moment.unix_at_zero,
            workers=training.workers,
            pinned=training.pinned,
            memory_bytes=None if task.gpu_memory is None else task.gpu_memory(moment.now),
        )
        for task in living
        if task.loop is not None
    ]
    return tuple([loop for loop in reported if loop is not None])


def _workers(plan: JobPlan, own: int, lived: float) -> tuple[int | None, str]:
    if own:
        return own, f"{own} processes named pt_data_worker"
    if _framework(plan) is None:
        return None, "PyTorch is not loaded in it"
    if plan.training is not None and plan.training.workers:
        return None, f"it started only {age(lived)} ago"
    return 0, f"none seen in {age(lived)}"


def _pinned(plan: JobPlan, workers: int | None) -> tuple[bool | None, str]:
    if workers is None or plan.training is None:
        return None, "it shows only beside loader workers"
    if workers == 0:
        return None, _NO_PIN_SIGN
    if plan.training.pinned:
        return True, "a thread named pt_data_pin"
    return False, "no thread named pt_data_pin beside workers named pt_data_worker"


def _framework(plan: JobPlan) -> str | None:
    # Servers and notebooks hold no library.
    return "torch" if plan.training is not None or plan.orphaned else None


def _gpus_of(tasks: Iterable[Task], gpus: GpuRows) -> list[GpuKey]:
    return [gpus[task.gpu, task.plan.instance].uuid for task in tasks if task.gpu is not None]


def _ended(job: SimulatedJob, moment: Moment) -> float | None:
    ends = job.plan.end
    return round(moment.unix_at_zero + ends, 2) if ends <= moment.now else None
