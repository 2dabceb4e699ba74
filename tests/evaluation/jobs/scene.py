"""What every knob starts from: a healthy job on a machine, and what can be changed about it.

Ranges are those of real jobs (steps of 30 ms to 1.2 s, 1 to 16 workers, batches of 2 to 600 MB,
cards from 70 to 1000 W), not those at which a rule fires.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuwatch.sources.simulated.cards import Card
from gpuwatch.sources.simulated.device import Activity
from gpuwatch.sources.simulated.plans import JobPlan, Slot
from tests.evaluation.case import HEALTHY, UNDECIDED, judge
from tests.evaluation.jobs import cards
from tests.evaluation.jobs.draw import Draw
from tests.evaluation.jobs.physics import Work

GIB = 1024**3
LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9}
"""PCIe bytes a second and lane, by generation."""
PCIE_EFFICIENCY = 0.8

Label = tuple[str, frozenset[str]]


@dataclass(slots=True, kw_only=True)
class Scene:
    """What a knob's function makes: one job on all GPUs of a machine, and the truth about it."""

    work: Work
    label: Label
    seconds: float = 90.0
    cores: int
    quota: float | None = None
    slots: tuple[Slot, ...] = ()
    plan: JobPlan | None = None
    beside: tuple[JobPlan, ...] = ()
    from_seconds: float = 0.0
    filled: tuple[tuple[int, float], ...] = ()
    shm_bytes: int | None = None
    memory_bytes: int | None = None
    world_size_factor: int = 1
    interval: float | None = None
    log_label: Label | None = None
    """The truth that GPU readings alone can tell; ``None``: not a case without a host."""


def compute(draw: Draw) -> Activity:
    """What a step's kernels do to the card, for a job that fills it."""
    kind = draw.any(("convolutions", "transformer", "memory", "fp32", "big"))
    line = draw.line
    if kind == "convolutions":
        numbers = (line(0.72, 0.95), line(0.82, 0.96), line(0.2, 0.5), line(0.4, 0.65))
    elif kind == "transformer":
        numbers = (line(0.8, 0.99), line(0.88, 0.98), line(0.4, 0.65), line(0.25, 0.5))
    elif kind == "memory":
        # Embeddings, graph networks, normalisation: bandwidth, and little else.
        numbers = (line(0.45, 0.65), line(0.6, 0.9), line(0.0, 0.05), line(0.65, 0.88))
    elif kind == "fp32":
        numbers = (line(0.6, 0.85), line(0.84, 0.96), 0.0, line(0.3, 0.5))
    else:
        # Large matrices that stay in the caches: busy with next to no memory traffic.
        numbers = (line(0.7, 0.95), line(0.9, 0.98), line(0.5, 0.75), line(0.05, 0.15))
    power, sm, tensor, dram = numbers
    return Activity(draw.line(0.98, 1.0), power, sm, draw.line(0.25, 0.6), tensor, dram)


def small_kernels(draw: Draw) -> Activity:
    """Kernels that fill a few of the multiprocessors."""
    line = draw.line
    sm = line(0.04, 0.22)
    tensor = sm * line(0.0, 0.3)
    return Activity(line(0.96, 1.0), line(0.14, 0.34), sm, sm * 0.3, tensor, line(0.02, 0.12))


@dataclass(slots=True)
class Bench:
    """The machine a scene is set on."""

    draw: Draw
    card: Card
    gpus: int

    @property
    def link(self) -> float:
        return self.link_rate(self.card.pcie_generation, 16)

    def link_rate(self, generation: int, width: int) -> float:
        return LANE[generation] * width * PCIE_EFFICIENCY

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(Slot(card=self.card) for _ in range(self.gpus))

    def discrete(self) -> None:
        """Take a card with memory and a power limit of its own."""
        if self.card.unified:
            some = cards.HELD_OUT if self.draw.held_out else cards.TUNING
            self.card = self.draw.any([card for card in some if not card.unified])

    def healthy_work(self) -> Work:
        """A job whose GPU is fed: loader, launches and copies each have room."""
        draw = self.draw
        gpu = draw.span(0.03, 1.2)
        workers = draw.one((2, 3, 4, 5, 6, 8, 10, 12, 14, 16))
        room = draw.span(1.35, 8.0)
        pinned = draw.chance(0.8)
        # Pageable memory is first staged, by one thread of the driver.
        rate = self.link if pinned else min(self.link, draw.span(1.5e9, 6e9))
        batch = min(draw.span(2e6, 600e6), 0.02 * gpu * rate)
        return Work(
            workers=workers,
            prefetch=draw.any((2, 2, 2, 4)),
            batch_cpu=workers * gpu / room,
            batch_spread=draw.span(0.03, 0.35),
            read_bytes=batch * draw.line(0.05, 0.5),
            batch_bytes=batch,
            pinned=pinned,
            copy_rate=rate,
            gpu=gpu,
            # Sequences of different lengths make steps that differ by a third.
            gpu_spread=draw.span(0.004, 0.3),
            python=gpu * draw.line(0.08, 0.6),
            main_share=draw.line(0.4, 0.7),
            spins=draw.chance(0.6),
            log_every=draw.any((10, 20, 50, 100)),
            compute=compute(draw),
            reduce=gpu * draw.line(0.01, 0.12),
            spin_power=draw.line(0.18, 0.4),
        )

    def cores_for(self, work: Work) -> int:
        """A machine with room for this job."""
        sold = self.draw.any((8, 12, 16, 24, 32, 48, 64, 96, 128))
        return max(sold, self.gpus * (work.workers + 2) + self.draw.any((0, 2, 8)))

    def judged(self, work: Work, cures: Mapping[str, Work]) -> Label:
        """By what each cure gains."""
        return judge(work, self.gpus, cures)[:2]

    def scene(self, work: Work, label: Label, *, in_log: bool = False, **fields: Any) -> Scene:
        """On a machine with room for it; ``in_log``: GPU readings alone show as much."""
        if in_log:
            fields["log_label"] = label
        return Scene(work=work, label=label, cores=self.cores_for(work), **fields)


def starved(work: Work, supply: float, *, disk: float = 0.0) -> Work:
    """Its loader makes ``supply`` times the batches its GPU could take; ``disk`` is the share of
    a batch's time spent waiting for storage."""
    seconds = max(1, work.workers) * work.gpu / supply
    return replace(work, batch_cpu=seconds * (1 - disk), disk_wait=seconds * disk)


def fed(work: Work) -> Work:
    """The same with a loader that has room."""
    return replace(work, workers=8, batch_cpu=0.5 * work.gpu, disk_wait=0.0, worker_speed=1.0)


def always(rule: str, *others: str) -> Label:
    """Whatever it costs; the others are right as well."""
    return rule, frozenset({rule, *others})


def with_either(label: Label, *others: str) -> Label:
    """More right answers, unless nothing is wrong."""
    return label if label[0] == HEALTHY else (label[0], label[1] | set(others))


def from_log(label: Label, interval: float, work: Work) -> Label:
    """What GPU readings alone can tell of a job that waits for data: the pattern, or, where it
    is too fast for the samples, nothing."""
    if label[0] == HEALTHY:
        return label
    right = {"oscillation", *label[1]}
    if work.gpu < 2 * interval:
        right.add(UNDECIDED)
    return "oscillation", frozenset(right)
