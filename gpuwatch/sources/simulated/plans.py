"""The parts a scenario is put together from: cards in slots, jobs on them, and the host."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gpuwatch.sources.simulated.cards import GIB, H200, Card
from gpuwatch.sources.simulated.device import Cooling
from gpuwatch.sources.simulated.training import Training

TRAIN = "python train.py --config configs/resnet50.yaml"
USERS = ("ada", "grace", "linus", "barbara", "ken", "margaret")
COMMANDS = (
    TRAIN,
    "python finetune.py --model llama-8b --lora-rank 16 --bf16",
    "python train.py --config configs/vit_l16.yaml --amp",
    "python pretrain.py --dataset webtext --seq-len 4096",
)
MEMORIES_GIB = (31.2, 74.6, 48.9, 96.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One card in the machine and what is the matter with it."""

    card: Card = H200
    power_limit_watts: float | None = None
    cooling: Cooling | None = None
    lost_from: float | None = None
    lost_until: float = float("inf")
    pcie_generation: int | None = None
    pcie_width: int = 16
    errors_from: float | None = None
    instances: tuple[tuple[str, float, float], ...] = ()
    """MIG instances: (profile, share of the memory, share of the multiprocessors)."""
    mute: tuple[str, ...] = ()
    """Readings (fields of ``GpuReading``) this card does not have."""
    failing: tuple[tuple[str, str], ...] = ()
    """(field, its name for a person) of readings that end in an error each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """One job: who runs what on which GPUs, and what it costs."""

    gpus: tuple[int, ...]
    training: Training | None = None
    """``None``: it holds its memory and does nothing."""
    user: str = "ada"
    command: str = TRAIN
    name: str = "python"
    memory_bytes: float = 31.2 * GIB
    leak_bytes_per_step: float = 0.0
    begin: float | None = None
    """When its processes start; ``None``: long before the scenario."""
    loading_seconds: float = 6.0
    """From a fresh start to the first step."""
    end: float = float("inf")
    age_seconds: float = 2840.0
    resident_bytes: float = 3.4 * GIB
    resident_growth_bytes_per_second: float = 0.0
    gpu_share: float = 1.0
    """Its part of the GPU's work where another job is there too."""
    instance: int | None = None
    container: str | None = None
    slurm_job: str | None = None
    orphaned: bool = False
    """A loader worker whose training process has ended."""
    cpu_only: bool = False
    """It trains without a GPU; ``gpus`` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    slots: tuple[Slot, ...]
    jobs: tuple[JobPlan, ...]
    cores: int | None = None
    quota_cores: float | None = None
    memory_bytes: int | None = None
    shm_bytes: int | None = None


def plain(gpus: int) -> tuple[Slot, ...]:
    """That many H200, all well."""
    return tuple(Slot() for _ in range(gpus))


def shares(gpus: int) -> list[tuple[int, ...]]:
    """GPUs of each job on a shared machine: one big job, then smaller ones."""
    if gpus <= 2:
        return [tuple(range(gpus))] if gpus else []
    half = gpus // 2
    groups = [tuple(range(half))]
    at = half
    while at < gpus:
        size = 2 if len(groups) % 2 == 1 and gpus - at >= 2 else 1
        groups.append(tuple(range(at, at + size)))
        at += size
    return groups


def nth_job(number: int, gpus: tuple[int, ...], training: Training | None) -> JobPlan:
    """A job of its own user, command, size and age."""
    return JobPlan(
        gpus=gpus,
        training=training,
        user=USERS[number % len(USERS)],
        command=COMMANDS[number % len(COMMANDS)],
        memory_bytes=MEMORIES_GIB[number % len(MEMORIES_GIB)] * GIB,
        age_seconds=2840.0 * (1 + 1.7 * number),
    )


def shared(gpus: int, training: Training) -> tuple[JobPlan, ...]:
    """The same trouble for every job of the machine."""
    return tuple(nth_job(number, group, training) for number, group in enumerate(shares(gpus)))


def one_job(gpus: int, training: Training) -> tuple[JobPlan, ...]:
    """One data-parallel job on all GPUs."""
    return (JobPlan(gpus=tuple(range(gpus)), training=training),)


def single_jobs(gpus: int, training: Training) -> tuple[JobPlan, ...]:
    return tuple(nth_job(gpu, (gpu,), training) for gpu in range(gpus))


Build = Callable[[int], Setup]
WELL = Slot()


def machine(
    training: Training,
    jobs: Callable[[int, Training], tuple[JobPlan, ...]] = shared,
    *,
    slot: Slot = WELL,
    every: int = 1,
    for_each: Mapping[str, Any] = MappingProxyType({}),
    **changes: Any,
) -> Build:
    """A machine on which the first card, and every so many after it, is ``slot`` and every job has
    ``training`` and ``changes``. ``for_each``: of the host, so much for each GPU, and for one where
    there is none."""

    def build(gpus: int) -> Setup:
        slots = tuple(WELL if gpu % every else slot for gpu in range(gpus))
        plans = tuple(replace(job, **changes) for job in jobs(gpus, training))
        host = {name: value * max(1, gpus) for name, value in for_each.items()}
        return Setup(slots=slots, jobs=plans, **host)

    return build
