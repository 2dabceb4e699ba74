"""Fills a simulated machine: turns job plans into jobs on devices and the processes they are."""

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gpuwatch.sources.simulated.cards import GIB, H200
from gpuwatch.sources.simulated.device import Device
from gpuwatch.sources.simulated.plans import JobPlan, Setup
from gpuwatch.sources.simulated.processes import MIB, Memory, Meter, PidCounter, Task, Trace
from gpuwatch.sources.simulated.training import Job, Rank

RESERVED_BYTES = int(0.46 * GIB)
"""Held by the driver itself on a card."""
WORKER_OWN_PAGES = 0.36
"""The greater part of a forked worker's pages are still those of its parent."""
_WORKER = {"role": "loader_worker", "role_sign": "named pt_data_worker"}
EXTRA_COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("triton", "tritonserver", "tritonserver --model-repository=/models --http-port={port}"),
    ("linus", "python", "python serve.py --model bert-base --port {port}"),
    ("grace", "python", "python -m ipykernel_launcher -f kernel-{port}.json"),
    ("ken", "python", "python evaluate.py --split val --shard {port}"),
)
"""(user, name, command) of what runs beside the jobs."""

SYSTEM_COMMANDS: tuple[tuple[str, str, str, float], ...] = (
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


@dataclass(slots=True, kw_only=True, eq=False)
class Crew:
    """One job: its processes, parents first."""

    plan: JobPlan
    tasks: list[Task] = field(default_factory=list)
    trace: Trace | None = None
    """While somebody follows the job closely."""

    def living(self, now: float) -> list[Task]:
        return [task for task in self.tasks if task.lives(now)]

    def having(self, role: str) -> list[Task]:
        return [task for task in self.tasks if task.role == role]


class Population:
    """Builds jobs and processes; ``begin`` is when the simulation starts, before time zero."""

    def __init__(
        self,
        setup: Setup,
        devices: list[Device],
        begin: float,
        random_for: Callable[..., random.Random],
    ) -> None:
        self.setup, self.devices, self.begin, self.random_for = setup, devices, begin, random_for
        self.reads, self.writes = Meter(), Meter()
        self.jobs: list[Job] = []
        self.tasks: list[Task] = []
        self.crews: list[Crew] = []
        self._pids = PidCounter(random_for("pids"))

    def fill(self, gpu_processes: int | None) -> None:
        """Start everything; ``gpu_processes`` is how many shall be on the GPUs at time zero.

        With fewer than the jobs have ranks, jobs get fewer ranks; with more, servers and
        notebooks come beside them.
        """
        plans = self.setup.jobs
        present = sum(len(plan.gpus) for plan in plans if plan.begin is None)
        wanted = present if gpu_processes is None else gpu_processes
        room = wanted
        for number, plan in enumerate(plans):
            gpus = plan.gpus
            if plan.begin is None:
                gpus = gpus[:room]
                room -= len(gpus)
            if gpus or plan.cpu_only:
                self._start(number, plan, gpus)
        self._start_beside(wanted - present)
        self._start_system()

    def _start(self, number: int, plan: JobPlan, gpus: tuple[int, ...]) -> None:
        fresh = plan.begin is not None
        begin = self.begin if plan.begin is None else plan.begin
        started = begin if fresh else begin - plan.age_seconds
        ranks = self._start_job(number, plan, gpus, begin)
        rng = self.random_for("processes", number)
        crew = self._crew(plan)
        parent, command = self._launcher(crew, gpus, started)
        for position, gpu in enumerate(gpus or (None,)):
            task = self._add(
                crew,
                parent,
                started + (0.4 if fresh else 3.1),
                command,
                threads=78 if plan.training else 34,
                gpu_share=plan.gpu_share if plan.training or plan.gpu_share < 1.0 else 0.0,
                resident_bytes=plan.resident_bytes * rng.uniform(0.97, 1.04),
                resident_growth=plan.resident_growth_bytes_per_second,
                **_role(plan, position if len(gpus) > 1 else None),
            )
            if gpu is not None:
                task.gpu = gpu
                task.instance = plan.instance
                task.gpu_memory = self._memory(plan, gpu, rng.uniform(0.99, 1.01))
            if not ranks:
                # A tenant's program is not simulated, but it too has a thread that launches.
                task.steady_cpu = 0.93 if task.gpu_share else 0.004
                continue
            rank = ranks[position]
            task.diary = rank.diary
            task.meters.update(cpu=rank.cpu, main=rank.main, reads=rank.reads, writes=rank.writes)
            born = begin + plan.loading_seconds - 0.3 if fresh else started + 9.0
            self._start_workers(crew, rank, task, born, rng)
        self._pids.skip()

    def _crew(self, plan: JobPlan) -> Crew:
        """A new one; workers whose job has ended are found together."""
        if plan.orphaned:
            for crew in self.crews:
                if crew.plan.orphaned and crew.plan.user == plan.user:
                    return crew
        crew = Crew(plan=plan)
        self.crews.append(crew)
        return crew

    def _start_job(
        self, number: int, plan: JobPlan, gpus: tuple[int, ...], begin: float
    ) -> list[Rank]:
        if plan.training is None:
            return []
        rng = self.random_for("job", number)
        loading = 0.0 if plan.begin is None else plan.loading_seconds
        job = Job(
            plan.training,
            [self.devices[gpu] for gpu in gpus] or [_nowhere(rng)],
            rng,
            begin=begin + loading,
            reads=self.reads,
            writes=self.writes,
            end=plan.end,
            loading_seconds=loading,
        )
        self.jobs.append(job)
        return job.ranks

    def _launcher(self, crew: Crew, gpus: tuple[int, ...], started: float) -> tuple[int, str]:
        """The parent of the ranks and the command each of them shows."""
        if len(gpus) < 2:
            return 1, crew.plan.command
        script = crew.plan.command.removeprefix("python ")
        launcher = self._add(
            crew,
            1,
            started,
            f"python /usr/bin/torchrun --standalone --nproc-per-node={len(gpus)} {script}",
            name="torchrun",
            role="launcher",
            role_sign="it is torchrun",
            resident_bytes=260.0 * MIB,
            threads=6,
            steady_cpu=0.003,
        )
        return launcher.pid, f"python -u {script}"

    def _start_workers(
        self, crew: Crew, rank: Rank, parent: Task, born: float, rng: random.Random
    ) -> None:
        if rank.loader is None:
            return
        for worker in rank.loader.workers:
            meters = {"cpu": worker.cpu, "reads": worker.reads}
            if rank.loader.waits:
                meters["wait"] = worker.wait
            self._add(
                crew,
                parent.pid,
                born,
                parent.command,
                name="pt_data_worker",
                **_WORKER,
                number=parent.number,
                resident_bytes=rng.uniform(0.72, 0.94) * GIB,
                resident_growth=crew.plan.resident_growth_bytes_per_second,
                threads=2,
                own_pages=WORKER_OWN_PAGES,
                meters=meters,
                core_share=rank.loader.worker_speed,
            )

    def _add(self, crew: Crew, parent: int, started: float, command: str, **more: Any) -> Task:
        plan = crew.plan
        task = Task(
            pid=self._pids.take(),
            parent=parent,
            command=command,
            started=started,
            **{
                "user": plan.user,
                "name": plan.name,
                "ended": plan.end,
                "container": plan.container,
                "slurm_job": plan.slurm_job,
                **more,
            },
        )
        self.tasks.append(task)
        crew.tasks.append(task)
        return task

    def _memory(self, plan: JobPlan, gpu: int, factor: float) -> Memory:
        total = self.devices[gpu].card.memory_bytes
        return Memory(
            min(plan.memory_bytes * factor, total * 0.82),
            step=plan.leak_bytes_per_step,
            every=plan.leak_every_seconds,
            room=total * plan.full_share - RESERVED_BYTES,
            begin=plan.begin,
            seconds=plan.loading_seconds + 2.0,
        )

    def _start_beside(self, count: int) -> None:
        """More processes on the cards: servers and notebooks beside the jobs."""
        gpus = len(self.devices)
        if not gpus or count <= 0:
            return
        rng = self.random_for("beside")
        share = 0.06 / math.ceil(count / gpus)
        for number in range(count):
            gpu = number % gpus
            user, name, command = EXTRA_COMMANDS[number // gpus % len(EXTRA_COMMANDS)]
            plan = JobPlan(gpus=(gpu,), user=user, name=name)
            crew = self._crew(replace(plan, command=command.format(port=8000 + number)))
            started = self.begin - rng.uniform(300, 200_000)
            task = self._add(crew, 1, started, crew.plan.command, **_role(plan, None), gpu=gpu)
            total = self.devices[gpu].card.memory_bytes
            task.gpu_memory = Memory(total * share * rng.uniform(0.5, 1.0))
            task.steady_cpu = rng.choice((0.001, 0.004, 0.02, 0.11))
            task.threads = rng.randrange(4, 40)
            task.resident_bytes = rng.uniform(0.3, 1.6) * GIB
            self._pids.skip()

    def _start_system(self) -> None:
        rng = self.random_for("system")
        for number, (user, name, command, cpu) in enumerate(SYSTEM_COMMANDS):
            task = Task(
                pid=1 if number == 0 else 300 + 117 * number + rng.randrange(90),
                parent=0 if number == 0 else 1,
                user=user,
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
    """The device of a job without a GPU: nobody ticks it, so it must not keep its phases."""
    device = Device(H200, rng)
    device.phases = deque(maxlen=1)
    return device
