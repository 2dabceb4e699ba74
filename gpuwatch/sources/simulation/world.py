"""The machine: builds devices, jobs and processes from a scenario and moves them in time."""

from __future__ import annotations

import math
import random

from gpuwatch.sources.simulation.device import (
    TICK_SECONDS,
    TICKS_PER_SECOND,
    Activity,
    Device,
)
from gpuwatch.sources.simulation.meter import Meter
from gpuwatch.sources.simulation.processes import (
    GIB,
    MIB,
    SYSTEM_COMMANDS,
    PidCounter,
    Task,
)
from gpuwatch.sources.simulation.scenarios import JobPlan, Setup
from gpuwatch.sources.simulation.training import Job

CONTEXT_BYTES = 0.52 * GIB
"""What a CUDA context and its libraries take on a card before the first tensor."""
RESERVED_BYTES = 0.46 * GIB
"""What the driver itself holds."""
_EXTRA_COMMANDS = (
    ("triton", "tritonserver", "tritonserver --model-repository=/models --http-port={port}"),
    ("linus", "python", "python serve.py --model bert-base --port {port}"),
    ("grace", "python", "python -m ipykernel_launcher -f kernel-{port}.json"),
    ("ken", "python", "python evaluate.py --split val --shard {port}"),
)


class World:
    """Everything of one simulated machine, at tick ``tick`` (time zero is the scenario's start)."""

    def __init__(self, setup: Setup, *, seed: int, extra_processes: int, warm_up: float) -> None:
        self.setup = setup
        self.tick = -round(warm_up * TICKS_PER_SECOND)
        self.begin = self.tick * TICK_SECONDS
        self._seed = seed
        self.devices = [
            Device(
                slot.card,
                self._rng("device", number),
                power_limit_watts=slot.power_limit_watts,
                air_celsius=slot.air_celsius,
                celsius_per_watt=slot.celsius_per_watt,
                temperature_celsius=slot.temperature_celsius,
            )
            for number, slot in enumerate(setup.slots)
        ]
        self.reads = Meter()
        self.writes = Meter()
        self.jobs: list[Job] = []
        self.tasks: list[Task] = []
        self._pids = PidCounter(self._rng("pids"))
        for number, plan in enumerate(setup.jobs):
            self._start(number, plan)
        self._start_extras(extra_processes)
        self._start_system()
        self.cores = setup.cores or (
            32 if len(setup.slots) <= 2 else 64 if len(setup.slots) <= 4 else 128
        )
        core_rng = self._rng("cores")
        order = list(range(self.cores))
        core_rng.shuffle(order)
        for number, task in enumerate(self.tasks):
            task.core = order[number % self.cores]
        self.load = [0.0, 0.0, 0.0]
        self._load_marks: dict[int, float] = {}

    def _rng(self, *name: object) -> random.Random:
        return random.Random(f"{self._seed}/{name}")

    def advance(self, now: float) -> None:
        """Move whole ticks until the next one would end after ``now``."""
        last = math.floor(now * TICKS_PER_SECOND + 1e-6)
        while self.tick < last:
            end = (self.tick + 1) * TICK_SECONDS
            for job in self.jobs:
                job.advance(end)
            for device in self.devices:
                device.tick(self.tick)
            self.tick += 1
            if self.tick % TICKS_PER_SECOND == 0:
                self._second(end)

    def lost(self, gpu: int, now: float) -> bool:
        slot = self.setup.slots[gpu]
        return slot.lost_from is not None and slot.lost_from <= now < slot.lost_until

    def _second(self, now: float) -> None:
        """Load averages, as the kernel keeps them: decaying means of the runnable count."""
        running = 0.0
        marks = self._load_marks
        for task in self.tasks:
            if task.cpu is None:
                running += task.steady_cpu if task.lives(now) else 0.0
                continue
            total = task.cpu.total(now) + (0.0 if task.wait is None else task.wait.total(now))
            running += total - marks.get(task.pid, total)
            marks[task.pid] = total
        if now <= self.begin + 2.5:
            self.load = [running * 0.98, running * 0.93, running * 0.86]
        for number, minutes in enumerate((1, 5, 15)):
            share = 1.0 - math.exp(-1.0 / (60.0 * minutes))
            self.load[number] += (running - self.load[number]) * share

    def _start(self, number: int, plan: JobPlan) -> None:
        begin = self.begin if plan.begin is None else plan.begin
        started = begin - plan.age_seconds
        if not plan.gpus:
            return
        ranks = []
        if plan.training is not None:
            job = Job(
                plan.training,
                [self.devices[gpu] for gpu in plan.gpus],
                self._rng("job", number),
                begin=begin + (0.0 if plan.begin is None else 6.0),
                reads=self.reads,
                writes=self.writes,
                end=plan.end,
            )
            self.jobs.append(job)
            ranks = job.ranks
        self._pids.skip()
        parent = 1
        command = plan.command
        if len(plan.gpus) > 1:
            script = command.removeprefix("python ")
            launcher = f"torchrun --standalone --nproc-per-node={len(plan.gpus)} {script}"
            parent = self._task(
                plan, parent, started, f"python /usr/bin/{launcher}", name="torchrun",
                resident_bytes=260 * MIB, threads=6, steady_cpu=0.003,
            ).pid  # fmt: skip
            command = f"python -u {script}"
        rng = self._rng("memory", number)
        for index, gpu in enumerate(plan.gpus):
            task = self._task(plan, parent, started + 3.1 + 0.01 * index, command, gpu=gpu)
            task.resident_bytes = plan.resident_bytes * rng.uniform(0.97, 1.04)
            task.threads = 78 if plan.training else 34
            task.gpu_share = 1.0 if plan.training else 0.0
            task.gpu_memory = self._memory(plan, gpu, rng.uniform(0.99, 1.01))
            if not ranks:
                task.steady_cpu = 0.004
                continue
            rank = ranks[index]
            task.cpu = rank.cpu
            if rank.loader is None:
                continue
            for worker in rank.loader.workers:
                child = self._task(plan, task.pid, started + 9.0, command, name="pt_data_worker")
                child.resident_bytes = rng.uniform(0.72, 0.94) * GIB
                child.threads = 2
                child.cpu = worker.cpu
                child.wait = worker.wait

    def _task(
        self,
        plan: JobPlan,
        parent: int,
        started: float,
        command: str,
        *,
        name: str | None = None,
        gpu: int | None = None,
        resident_bytes: float = 300.0 * MIB,
        threads: int = 1,
        steady_cpu: float = 0.0,
    ) -> Task:
        task = Task(
            pid=self._pids.take(),
            parent=parent,
            user=plan.user,
            name=plan.name if name is None else name,
            command=command,
            started=started,
            ended=plan.end,
            gpu=gpu,
            resident_bytes=resident_bytes,
            threads=threads,
            steady_cpu=steady_cpu,
            container=plan.container,
            slurm_job=plan.slurm_job,
        )
        self.tasks.append(task)
        return task

    def _memory(self, plan: JobPlan, gpu: int, factor: float) -> Memory:
        card = self.devices[gpu].card
        room = card.memory_bytes * plan.full_share - RESERVED_BYTES
        base = min(plan.memory_bytes * factor, card.memory_bytes * 0.82)
        return Memory(base, plan.leak_bytes_per_step, plan.leak_every_seconds, room, plan.begin)

    def _start_extras(self, count: int) -> None:
        """More processes on the cards: servers and notebooks beside the jobs."""
        gpus = len(self.devices)
        if not gpus:
            return
        rng = self._rng("extras")
        for number in range(count):
            gpu = number % gpus
            user, name, command = _EXTRA_COMMANDS[number // gpus % len(_EXTRA_COMMANDS)]
            self._pids.skip()
            plan = JobPlan(gpus=(gpu,), user=user, name=name)
            task = self._task(
                plan, 1, self.begin - rng.uniform(300, 200_000),
                command.format(port=8000 + number), gpu=gpu,
            )  # fmt: skip
            share = 0.06 / math.ceil(count / gpus)
            task.gpu_memory = Memory(
                self.devices[gpu].card.memory_bytes * share * rng.uniform(0.5, 1.0)
            )
            task.steady_cpu = rng.choice((0.001, 0.004, 0.02, 0.11))
            task.threads = rng.randrange(4, 40)
            task.resident_bytes = rng.uniform(0.3, 1.6) * GIB

    def _start_system(self) -> None:
        rng = self._rng("system")
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
            )
            self.tasks.append(task)


class Memory:
    """GPU memory of one process over time: steady, or growing in steps up to what is there."""

    __slots__ = ("_base", "_begin", "_every", "_room", "_step")

    def __init__(
        self,
        base: float,
        step: float = 0.0,
        every: float = 1.0,
        room: float = math.inf,
        begin: float | None = None,
    ) -> None:
        self._base = base
        self._step = step
        self._every = every
        self._room = room
        self._begin = begin

    def __call__(self, now: float) -> float:
        if self._begin is not None:
            # A fresh process fills the card within its first seconds.
            share = min(1.0, max(0.0, (now - self._begin) / 8.0))
            return CONTEXT_BYTES + (self._base - CONTEXT_BYTES) * share
        grown = self._base + self._step * max(0, int(now / self._every))
        return min(grown, self._room)


__all__ = ["RESERVED_BYTES", "Activity", "World"]
