"""The jobs of the simulated machine, as a reader of /proc would find them."""

from collections.abc import Iterable, Mapping, Sequence

from gpuwatch.core.model import Gpu, GpuKey, Job, JobMember, JobRank, ProcessKey, TrainingLoop
from gpuwatch.core.units import age
from gpuwatch.sources.simulated.host import Look, noise
from gpuwatch.sources.simulated.plans import JobPlan
from gpuwatch.sources.simulated.processes import Task
from gpuwatch.sources.simulated.world import Crew, World

Gpus = Mapping[tuple[int, int | None], Gpu]
"""By card and MIG instance."""

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


class JobBook:
    """Shows the jobs of a world; the attached one comes first."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._key: ProcessKey | None = None
        self.attached: Crew | None = None

    def attach(self, key: ProcessKey | None, now: float) -> None:
        """Follow the job of this process closely, or else the first one."""
        if key != self._key:
            self._key = key
            self.attached = None if key is None else self._crew_of(key)
        crews = [self.attached] if self.attached is not None else self._on_gpus(now)[:1]
        self._world.trace(crews)

    def show(self, look: Look, gpus: Gpus) -> tuple[Job, ...]:
        crews = self._on_gpus(look.now)
        if self.attached is not None:
            crews = [self.attached, *(crew for crew in crews if crew is not self.attached)]
        return tuple([self._job(crew, look, gpus) for crew in crews])

    def _on_gpus(self, now: float) -> list[Crew]:
        return [
            crew
            for crew in self._world.crews
            if crew.plan.gpus and any(task.gpu is not None for task in crew.living(now))
        ]

    def _crew_of(self, key: ProcessKey) -> Crew | None:
        """The job of this process; one that belongs to no job is one by itself."""

        def is_it(task: Task) -> bool:
            return task.pid == key[0] and key[1] in (None, task.started_unix)

        for crew in self._world.crews:
            if any(map(is_it, crew.tasks)):
                return crew
        task = next(filter(is_it, self._world.tasks), None)
        if task is None:
            return None
        return Crew(plan=JobPlan(gpus=(), user=task.user, command=task.command), tasks=[task])

    def _job(self, crew: Crew, look: Look, gpus: Gpus) -> Job:
        plan, trace = crew.plan, crew.trace
        living = crew.living(look.now)
        top = crew.tasks[0]
        ranks = crew.having("rank")
        several = len(ranks) > 1
        place, environment = _PLACES.get(plan.user, (None, None))
        cores = float(self._world.cores)
        slurm = None if plan.slurm_job is None else min(self._world.cores, 12 * len(ranks))
        quota = self._world.setup.quota_cores if plan.container else None
        samples = {
            role: look.fresh(trace.samples.get(role, ()))
            for role in ("rank", "loader_worker")
            if trace is not None and crew.having(role)
        }
        return Job(
            pid=top.pid,
            started_at_unix_seconds=top.started_unix,
            attached=crew is self.attached,
            command=top.command,
            user=top.user,
            working_directory="/workspace" if plan.container else place,
            launcher="torchrun" if several else None,
            framework=_framework(plan),
            world_size=len(ranks) if several else None,
            ranks=tuple([_rank(crew, task, living, look.now, gpus) for task in ranks]),
            members=tuple([self._member(task, plan, look) for task in living]),
            loops=_loops(crew, living, look),
            gpu_uuids=tuple(dict.fromkeys(_gpus_of(crew.tasks, gpus))),
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
            main_thread_samples=samples.get("rank"),
            loader_worker_samples=samples.get("loader_worker"),
        )

    def _member(self, task: Task, plan: JobPlan, look: Look) -> JobMember:
        elapsed = look.elapsed
        per_second = {name: value / elapsed for name, value in task.used.items()}
        cpu = per_second["cpu"]
        main = min(1.0, per_second.get("main", cpu))
        disk = min(1.0 - main, per_second.get("wait", 0.0))
        wobble = noise(self._world.seed, int(look.now), task.pid)
        # What a thread lacks of its core whenever it could run, it waits for.
        queue = min(1.0 - main, cpu * (1.0 / task.core_share - 1.0)) + 0.004 * wobble
        asleep = max(0.0, 1.0 - main - disk - queue)
        pushed = _HELD_BACK_PER_SECOND if plan.container else _PUSHED_OFF_PER_SECOND
        return JobMember(
            **task.facts(look.now, elapsed),
            role=task.role,
            role_sign=task.role_sign,
            role_guessed=task.role_guessed,
            rank=task.number,
            orphaned=plan.orphaned,
            main_thread_cpu_percent=round(100.0 * main, 1),
            run_queue_wait_percent=round(100.0 * queue, 1),
            disk_wait_percent=round(100.0 * disk, 1),
            read_bytes_per_second=float(round(per_second.get("reads", 0.0))),
            write_bytes_per_second=float(round(per_second.get("writes", 0.0))),
            voluntary_switches_per_second=round(
                _SWITCHES_PER_SECOND_OF_WAIT * disk + _SWITCHES_PER_SECOND_ASLEEP * asleep, 1
            ),
            involuntary_switches_per_second=round(pushed * queue + 3.0 * main * wobble, 1),
            memory_proportional_bytes=task.proportional(look.now),
        )


def _rank(crew: Crew, task: Task, living: Sequence[Task], now: float, gpus: Gpus) -> JobRank:
    # Those of an ended job are what they were.
    own = sum(other.parent == task.pid for other in living or crew.tasks)
    workers, sign = _workers(crew.plan, own, now - task.started)
    pinned, pinned_sign = _pinned(crew.plan, workers)
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


def _loops(crew: Crew, living: Sequence[Task], look: Look) -> tuple[TrainingLoop, ...]:
    training = crew.plan.training
    if training is None or not training.reports_loop:
        return ()
    reported = [
        task.diary.report(
            (task.pid, task.started_unix),
            look.now,
            look.unix_at_zero,
            workers=training.workers,
            pinned=training.pinned,
            memory_bytes=None if task.gpu_memory is None else task.gpu_memory(look.now),
        )
        for task in living
        if task.diary is not None
    ]
    return tuple([loop for loop in reported if loop is not None])


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


def _gpus_of(tasks: Iterable[Task], gpus: Gpus) -> list[GpuKey]:
    return [gpus[task.gpu, task.instance].uuid for task in tasks if task.gpu is not None]


def _ended(crew: Crew, look: Look) -> float | None:
    ends = [task.ended for task in crew.tasks if task.ended <= look.now]
    return round(look.unix_at_zero + max(ends), 2) if ends else None


def _throttled(living: Sequence[Task], elapsed: float) -> float:
    """A period is throttled when somebody wanted more than the quota had left."""
    wants = [
        task.used["cpu"] / (elapsed * task.core_share) for task in living if task.core_share < 1.0
    ]
    return round(min(99.0, 97.0 * sum(wants) / len(wants)), 1) if wants else 0.0
