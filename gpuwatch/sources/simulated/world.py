"""The machine: devices, jobs and the processes they are, moved together in time on a fixed step."""

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuwatch.sources.simulated.cards import GIB, H200
from gpuwatch.sources.simulated.device import TICK_SECONDS, TICKS_PER_SECOND, Device
from gpuwatch.sources.simulated.plans import JobPlan, Setup
from gpuwatch.sources.simulated.processes import MIB, Memory, PidCounter, Task, Trace
from gpuwatch.sources.simulated.training import Job, Rank

RESERVED_BYTES = int(0.46 * GIB)
"""Held by the driver itself on a card."""
WORKER_OWN_PAGES = 0.36
"""The greater part of a forked worker's pages are still those of its parent."""
_WORKER = {"role": "loader_worker", "role_sign": "named pt_data_worker"}
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


class World:
    """Everything of one simulated machine, at tick ``tick`` (time zero is the scenario's start). It
    starts ``warm_up`` seconds before that, so that the first look finds it warm."""

    def __init__(self, setup: Setup, *, seed: int, warm_up: float) -> None:
        self.tick = -round(warm_up * TICKS_PER_SECOND)
        self.seed = seed
        self.setup, self.begin = setup, self.tick * TICK_SECONDS
        self.devices = [
            Device(
                slot.card,
                self._random("device", number),
                power_limit_watts=slot.power_limit_watts,
                cooling=slot.cooling,
            )
            for number, slot in enumerate(setup.slots)
        ]
        self.jobs: list[Job] = []
        self.tasks: list[Task] = []
        self.crews: list[Crew] = []
        self._pids = PidCounter(self._random("pids"))
        for number, plan in enumerate(setup.jobs):
            if plan.gpus or plan.cpu_only:
                self._start(number, plan)
        self._start_system()
        self._traced: list[Crew] = []
        gpus = len(setup.slots)
        self.cores = setup.cores or (32 if gpus <= 2 else 64 if gpus <= 4 else 128)
        self.load = [0.0, 0.0, 0.0]
        self._load_marks: dict[int, float] = {}
        order = list(range(self.cores))
        self._random("cores").shuffle(order)
        for number, task in enumerate(self.tasks):
            task.core = order[number % self.cores]

    def advance(self, now: float) -> None:
        """Move by whole ticks up to the last one that has ended by ``now``."""
        last = math.floor(now * TICKS_PER_SECOND + 1e-6)
        while self.tick < last:
            end = (self.tick + 1) * TICK_SECONDS
            for job in self.jobs:
                job.advance(end)
            for device in self.devices:
                device.tick(self.tick)
            self.tick += 1
            for crew in self._traced:
                if crew.trace is not None:
                    crew.trace.tick(self.tick)
            if self.tick % TICKS_PER_SECOND == 0:
                self._second(end)

    def trace(self, crews: Sequence[Crew]) -> None:
        """Measure these, tick by tick, from now on; those measured already go on."""
        for crew in self._traced:
            if crew not in crews:
                crew.trace = None
        for crew in crews:
            crew.trace = crew.trace or Trace(crew.tasks)
        self._traced = list(crews)

    def lost(self, gpu: int, now: float) -> bool:
        slot = self.setup.slots[gpu]
        return slot.lost_from is not None and slot.lost_from <= now < slot.lost_until

    def _random(self, *name: object) -> random.Random:
        # Each part has its own stream: one more GPU changes nothing for the others.
        return random.Random(f"{self.seed}/{name}")

    def _second(self, now: float) -> None:
        """Load averages, as the kernel keeps them: decaying means of who runs or waits."""
        running = 0.0
        marks = self._load_marks
        for task in self.tasks:
            cpu, wait = task.meters.get("cpu"), task.meters.get("wait")
            if cpu is None:
                running += task.steady_cpu if task.lives(now) else 0.0
                continue
            total = cpu.total(now) + (0.0 if wait is None else wait.total(now))
            running += total - marks.get(task.pid, total)
            marks[task.pid] = total
        # Processes that could run and have no core: a share of a slowed worker each.
        running += sum(
            (1.0 - job.plan.worker_speed) * job.plan.workers * len(job.ranks) for job in self.jobs
        )
        if now <= self.begin + 2.5:
            self.load = [running * 0.98, running * 0.93, running * 0.86]
        for number, minutes in enumerate((1, 5, 15)):
            share = 1.0 - math.exp(-1.0 / (60.0 * minutes))
            self.load[number] += (running - self.load[number]) * share

    # --- what runs on it ---------------------------------------------------------------------

    def _start(self, number: int, plan: JobPlan) -> None:
        gpus = plan.gpus
        fresh = plan.begin is not None
        begin = self.begin if plan.begin is None else plan.begin
        started = begin if fresh else begin - plan.age_seconds
        ranks = self._start_job(number, plan, begin)
        rng = self._random("processes", number)
        crew = self._crew(plan)
        parent, command = self._launcher(crew, started)
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

    def _start_job(self, number: int, plan: JobPlan, begin: float) -> list[Rank]:
        if plan.training is None:
            return []
        rng = self._random("job", number)
        loading = 0.0 if plan.begin is None else plan.loading_seconds
        job = Job(
            plan.training,
            [self.devices[gpu] for gpu in plan.gpus] or [_nowhere(rng)],
            rng,
            begin=begin + loading,
            end=plan.end,
            loading_seconds=loading,
        )
        self.jobs.append(job)
        return job.ranks

    def _launcher(self, crew: Crew, started: float) -> tuple[int, str]:
        """The parent of the ranks and the command each of them shows."""
        ranks = len(crew.plan.gpus)
        if ranks < 2:
            return 1, crew.plan.command
        script = crew.plan.command.removeprefix("python ")
        launcher = self._add(
            crew,
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
            # There a leak stops: the allocator frees and tries again.
            room=total * 0.985 - RESERVED_BYTES,
            begin=plan.begin,
            seconds=plan.loading_seconds + 2.0,
        )

    def _start_system(self) -> None:
        rng = self._random("system")
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
