"""The jobs of the simulated machine, as a reader of /proc would find them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.core.model import (
    BusySample,
    GpuKey,
    Job,
    JobMember,
    JobRank,
    ProcessKey,
    TrainingLoop,
)
from gpuwatch.core.units import age
from gpuwatch.sources.simulated.parts.crew import Crew, Part
from gpuwatch.sources.simulated.parts.device import TICK_SECONDS
from gpuwatch.sources.simulated.parts.host import noise
from gpuwatch.sources.simulated.parts.processes import Task
from gpuwatch.sources.simulated.plans import JobPlan
from gpuwatch.sources.simulated.world import World

_SWITCHES_PER_SECOND_OF_WAIT = 380.0
_SWITCHES_PER_SECOND_ASLEEP = 45.0
_PUSHED_OFF_PER_SECOND = 240.0
"""Of a thread that shares its core: the kernel's time slices are a few milliseconds."""
_HELD_BACK_PER_SECOND = 10.0
"""A quota's period is 100 ms."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One moment at which jobs are looked at; ``elapsed`` is the time since the last."""

    now: float
    elapsed: float
    since_tick: int
    unix_at_zero: float
    gpus: Mapping[tuple[int, int | None], GpuKey]


class JobBook:
    """Shows the jobs of a world; the attached one comes first."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._seed = seed
        self._attached: ProcessKey | None = None
        self._crew: Crew | None = None

    def find(self, pid: int, now: float) -> Task | None:
        """The process with this PID, if it lives."""
        for task in self._world.tasks:
            if task.pid == pid and task.lives(now):
                return task
        return None

    def attach(self, key: ProcessKey | None, now: float) -> None:
        """Follow the job of this process closely, or else the first one."""
        if key != self._attached:
            self._attached = key
            self._crew = None if key is None else self._crew_of(key)
        crews = [self._crew] if self._crew is not None else self._on_gpus(now)[:1]
        self._world.trace(crews)

    @property
    def attached(self) -> Crew | None:
        return self._crew

    def show(self, look: Look) -> tuple[Job, ...]:
        crews = self._on_gpus(look.now)
        if self._crew is not None:
            crews = [self._crew, *(crew for crew in crews if crew is not self._crew)]
        return tuple([self._job(crew, look) for crew in crews])

    def _on_gpus(self, now: float) -> list[Crew]:
        return [
            crew
            for crew in self._world.crews
            if crew.plan.gpus and any(part.task.gpu is not None for part in crew.living(now))
        ]

    def _crew_of(self, key: ProcessKey) -> Crew | None:
        pid, started = key
        for crew in self._world.crews:
            for part in crew.parts:
                if part.task.pid == pid and started in (None, part.task.started_unix):
                    return crew
        for task in self._world.tasks:
            if task.pid == pid and started in (None, task.started_unix):
                return _alone(task)
        return None

    def _job(self, crew: Crew, look: Look) -> Job:
        plan = crew.plan
        living = crew.living(look.now)
        top = crew.parts[0].task
        ranks = crew.having("rank")
        several = len(ranks) > 1
        place, environment = _PLACES.get(plan.user, (None, None))
        has_workers = bool(crew.having("loader_worker"))
        trace = next((t for t in self._world.traces if t.crew is crew), None)
        cores = float(self._world.cores)
        slurm = None if plan.slurm_job is None else min(self._world.cores, 12 * len(ranks))
        quota = self._world.setup.quota_cores if plan.container else None
        return Job(
            pid=top.pid,
            started_at_unix_seconds=top.started_unix,
            attached=crew is self._crew,
            command=top.command,
            user=top.user,
            working_directory="/workspace" if plan.container else place,
            launcher="torchrun" if several else None,
            framework=_framework(plan),
            world_size=len(ranks) if several else None,
            ranks=tuple([self._rank(crew, part, living, look) for part in ranks]),
            members=tuple([self._member(part, plan, look) for part in living]),
            loops=_loops(crew, living, look),
            gpu_uuids=tuple(dict.fromkeys(_gpus_of(crew.parts, look))),
            affinity_cores=self._world.cores,
            quota_cores=quota,
            slurm_cores=slurm,
            usable_cores=min(cores, quota or cores, slurm or cores),
            cpu_throttled_percent=None if quota is None else _throttled(living, look.elapsed),
            container=plan.container,
            slurm_job=plan.slurm_job,
            environment=None if plan.container else environment,
            inner_pid=1 if plan.container else None,
            ended_at_unix_seconds=_ended(crew, look) if not living else None,
            main_thread_samples=_fresh(trace.main, look) if trace and ranks else None,
            loader_worker_samples=_fresh(trace.workers, look) if trace and has_workers else None,
        )

    def _rank(self, crew: Crew, part: Part, living: Sequence[Part], look: Look) -> JobRank:
        task, plan = part.task, crew.plan
        # Those of an ended job are what they were.
        everyone = living or crew.parts
        own = sum(other.task.parent == task.pid for other in everyone)
        workers, sign = _workers(plan, own, look.now - task.started)
        pinned, pinned_sign = _pinned(plan, workers)
        return JobRank(
            pid=task.pid,
            started_at_unix_seconds=task.started_unix,
            rank=part.number,
            local_rank=part.number,
            gpu_uuids=tuple(_gpus_of([part], look)),
            loader_workers=workers,
            loader_workers_sign=sign,
            pinned_memory=pinned,
            pinned_memory_sign=pinned_sign,
            numa_nodes=(0, 1),
        )

    def _member(self, part: Part, plan: JobPlan, look: Look) -> JobMember:
        task, elapsed = part.task, look.elapsed
        cpu = task.cpu_seconds / elapsed
        main = min(1.0, task.main_seconds / elapsed)
        disk = min(1.0 - main, task.wait_seconds / elapsed)
        wobble = noise(self._seed, int(look.now), task.pid)
        # What a thread lacks of its core whenever it could run, it waits for.
        queue = min(1.0 - main, cpu * (1.0 / task.core_share - 1.0)) + 0.004 * wobble
        asleep = max(0.0, 1.0 - main - disk - queue)
        pushed = _HELD_BACK_PER_SECOND if plan.container else _PUSHED_OFF_PER_SECOND
        return JobMember(
            pid=task.pid,
            started_at_unix_seconds=task.started_unix,
            parent_pid=task.parent,
            role=part.role,
            role_sign=part.sign,
            role_guessed=part.guessed,
            rank=part.number,
            orphaned=plan.orphaned,
            name=task.name,
            command=task.command,
            state=task.state(look.now),
            cpu_percent=task.cpu_percent(elapsed),
            main_thread_cpu_percent=round(100.0 * main, 1),
            run_queue_wait_percent=round(100.0 * queue, 1),
            disk_wait_percent=round(100.0 * disk, 1),
            read_bytes_per_second=float(round(task.read_bytes / elapsed)),
            write_bytes_per_second=float(round(task.written_bytes / elapsed)),
            voluntary_switches_per_second=round(
                _SWITCHES_PER_SECOND_OF_WAIT * disk + _SWITCHES_PER_SECOND_ASLEEP * asleep, 1
            ),
            involuntary_switches_per_second=round(pushed * queue + 3.0 * main * wobble, 1),
            memory_resident_bytes=task.resident(look.now),
            memory_proportional_bytes=task.proportional(look.now),
            threads=task.threads,
        )


def _alone(task: Task) -> Crew:
    """A process that belongs to no job is one by itself."""
    plan = JobPlan(gpus=(), user=task.user, command=task.command)
    sign = "it is the job's main process"
    return Crew(plan=plan, parts=[Part(task=task, role="rank", sign=sign, guessed=True)])


def _loops(crew: Crew, living: Sequence[Part], look: Look) -> tuple[TrainingLoop, ...]:
    training = crew.plan.training
    if training is None or not training.tells:
        return ()
    told = [
        part.diary.told(
            (part.task.pid, part.task.started_unix),
            look.now,
            look.unix_at_zero,
            workers=training.workers,
            pinned=training.pinned,
            memory_bytes=None if part.task.gpu_memory is None else part.task.gpu_memory(look.now),
        )
        for part in living
        if part.diary is not None
    ]
    return tuple([loop for loop in told if loop is not None])


def _workers(plan: JobPlan, own: int, lived: float) -> tuple[int | None, str]:
    if own:
        return own, f"{own} processes named pt_data_worker"
    framework = _framework(plan)
    if framework is None:
        return None, "PyTorch is not loaded in it"
    if framework != "torch":
        return None, f"only the workers of PyTorch are known, and it runs {framework}"
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
    if plan.training is not None or plan.orphaned:
        return "torch"
    # The other programs that work here are sweeps in JAX; servers and notebooks hold no library.
    return "jax" if plan.gpu_share < 1.0 else None


def _gpus_of(parts: Iterable[Part], look: Look) -> list[GpuKey]:
    return [
        look.gpus[part.task.gpu, part.task.instance] for part in parts if part.task.gpu is not None
    ]


def _ended(crew: Crew, look: Look) -> float | None:
    ends = [part.task.ended for part in crew.parts if part.task.ended <= look.now]
    return round(look.unix_at_zero + max(ends), 2) if ends else None


def _throttled(living: Sequence[Part], elapsed: float) -> float:
    """A period is throttled when somebody wanted more than the quota had left."""
    wants = [
        part.task.cpu_seconds / (elapsed * part.task.core_share)
        for part in living
        if part.task.core_share < 1.0
    ]
    return round(min(99.0, 97.0 * sum(wants) / len(wants)), 1) if wants else 0.0


def _fresh(samples: Iterable[tuple[int, float]], look: Look) -> tuple[BusySample, ...]:
    return tuple(
        [
            BusySample(round(look.unix_at_zero + tick * TICK_SECONDS, 6), round(percent, 1))
            for tick, percent in samples
            if tick > look.since_tick
        ]
    )
