"""The machine: devices, jobs and processes, moved together in time on a fixed step."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from gpuwatch.sources.simulated.parts.crew import Crew, Trace
from gpuwatch.sources.simulated.parts.device import TICK_SECONDS, TICKS_PER_SECOND, Device
from gpuwatch.sources.simulated.plans import Setup
from gpuwatch.sources.simulated.population import Population


class World:
    """Everything of one simulated machine, at tick ``tick`` (time zero is the scenario's start).

    It starts ``warm_up`` seconds before that, so that the first look finds it warm.
    """

    def __init__(
        self, setup: Setup, *, seed: int, gpu_processes: int | None, warm_up: float
    ) -> None:
        self.setup = setup
        self.tick = -round(warm_up * TICKS_PER_SECOND)
        self.begin = self.tick * TICK_SECONDS
        self._seed = seed
        self.devices = [
            Device(
                slot.card,
                self._random("device", number),
                power_limit_watts=slot.power_limit_watts,
                cooling=slot.cooling,
            )
            for number, slot in enumerate(setup.slots)
        ]
        population = Population(
            setup=setup, devices=self.devices, begin=self.begin, random_for=self._random
        )
        population.fill(gpu_processes)
        self.jobs = population.jobs
        self.tasks = population.tasks
        self.crews = population.crews
        self.traces: list[Trace] = []
        self.reads = population.reads
        self.writes = population.writes
        self.cores = setup.cores or _usual_cores(len(setup.slots))
        self.load = [0.0, 0.0, 0.0]
        self._load_marks: dict[int, float] = {}
        self._place()

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
            for trace in self.traces:
                trace.tick(self.tick)
            if self.tick % TICKS_PER_SECOND == 0:
                self._second(end)

    def trace(self, crews: Sequence[Crew]) -> None:
        """Measure these, tick by tick, from now on; those measured already go on."""
        kept = {trace.crew: trace for trace in self.traces}
        self.traces = [kept.get(crew) or Trace(crew) for crew in crews]

    def lost(self, gpu: int, now: float) -> bool:
        slot = self.setup.slots[gpu]
        return slot.lost_from is not None and slot.lost_from <= now < slot.lost_until

    def _random(self, *name: object) -> random.Random:
        # Each part has its own stream: one more GPU changes nothing for the others.
        return random.Random(f"{self._seed}/{name}")

    def _place(self) -> None:
        order = list(range(self.cores))
        self._random("cores").shuffle(order)
        for number, task in enumerate(self.tasks):
            task.core = order[number % self.cores]

    def _second(self, now: float) -> None:
        """Load averages, as the kernel keeps them: decaying means of who runs or waits."""
        running = 0.0
        marks = self._load_marks
        for task in self.tasks:
            if task.cpu is None:
                running += task.steady_cpu if task.lives(now) else 0.0
                continue
            total = task.cpu.total(now) + (0.0 if task.wait is None else task.wait.total(now))
            running += total - marks.get(task.pid, total)
            marks[task.pid] = total
        running += self._queued()
        if now <= self.begin + 2.5:
            self.load = [running * 0.98, running * 0.93, running * 0.86]
        for number, minutes in enumerate((1, 5, 15)):
            share = 1.0 - math.exp(-1.0 / (60.0 * minutes))
            self.load[number] += (running - self.load[number]) * share

    def _queued(self) -> float:
        """Processes that could run and have no core: a share of a slowed worker each."""
        return sum(
            (1.0 - job.plan.worker_speed) * job.plan.workers * len(job.ranks)
            for job in self.jobs
            if job.plan.worker_speed < 1.0
        )


def _usual_cores(gpus: int) -> int:
    if gpus <= 2:
        return 32
    return 64 if gpus <= 4 else 128
