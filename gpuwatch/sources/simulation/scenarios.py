"""What can be wrong with a machine that trains: each scenario is a set of jobs and cards.

A scenario states costs (a batch takes a worker so many CPU seconds, a step so long) and never
what the charts shall look like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gpuwatch.sources.simulation.cards import A100, GIB, H200, RTX_4090, Card
from gpuwatch.sources.simulation.device import Activity
from gpuwatch.sources.simulation.training import GB, Pause, Training

TRAIN = "python train.py --config configs/resnet50.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One card in the machine and how it is cooled and limited."""

    card: Card = H200
    power_limit_watts: float | None = None
    air_celsius: float | None = None
    celsius_per_watt: float | None = None
    temperature_celsius: float | None = None
    lost_from: float | None = None
    lost_until: float = float("inf")


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
    """Of each rank on its GPU."""
    leak_bytes_per_step: float = 0.0
    leak_every_seconds: float = 6.0
    full_share: float = 0.985
    """A leak stops at this share of the card: the allocator frees and tries again."""
    begin: float | None = None
    end: float = float("inf")
    resident_bytes: float = 3.4 * GIB
    age_seconds: float = 2840.0
    container: str | None = None
    slurm_job: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A machine and its jobs."""

    slots: tuple[Slot, ...]
    jobs: tuple[JobPlan, ...]
    quota_cores: float | None = None
    cores: int | None = None
    problems: tuple[str, ...] = field(default=())


Builder = Callable[[int], Setup]

STARVED = Training(
    workers=2,
    batch_cpu_seconds=3.6,
    step_seconds=0.62,
    batch_bytes=1.2 * GB,
    batch_read_bytes=42e6,
    pinned=False,
    copy_bytes_per_second=9 * GB,
)
HEALTHY = Training(workers=8, batch_cpu_seconds=1.5, step_seconds=0.31)


def _plain(gpus: int) -> tuple[Slot, ...]:
    return tuple(Slot() for _ in range(gpus))


def _shares(gpus: int) -> list[tuple[int, ...]]:
    """Who gets which GPUs on a shared machine: one big job, then smaller ones."""
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


_USERS = ("ada", "grace", "linus", "barbara", "ken", "margaret")
_COMMANDS = (
    TRAIN,
    "python finetune.py --model llama-8b --lora-rank 16 --bf16",
    "python train.py --config configs/vit_l16.yaml --amp",
    "python pretrain.py --dataset webtext --seq-len 4096",
)
_MEMORIES = (31.2, 74.6, 48.9, 96.3)


def _shared(gpus: int, training: Training) -> tuple[JobPlan, ...]:
    """The same trouble for every job of the machine."""
    return tuple(
        JobPlan(
            gpus=group,
            training=training,
            user=_USERS[number % len(_USERS)],
            command=_COMMANDS[number % len(_COMMANDS)],
            memory_bytes=_MEMORIES[number % len(_MEMORIES)] * GIB,
            age_seconds=2840.0 * (1 + 1.7 * number),
        )
        for number, group in enumerate(_shares(gpus))
    )


def _one_job(gpus: int, training: Training, **more: float) -> tuple[JobPlan, ...]:
    plan = JobPlan(gpus=tuple(range(gpus)), training=training)
    return (replace(plan, **more),) if more else (plan,)


def starved(gpus: int) -> Setup:
    return Setup(slots=_plain(gpus), jobs=_shared(gpus, STARVED))


def healthy(gpus: int) -> Setup:
    return Setup(slots=_plain(gpus), jobs=_shared(gpus, HEALTHY))


def idle(gpus: int) -> Setup:
    jobs = tuple(
        JobPlan(
            gpus=(gpu,),
            user=_USERS[gpu % 3],
            command=(
                "python -m ipykernel_launcher -f kernel.json",
                "python serve.py --model resnet50 --port 8080",
            )[gpu % 2],
            memory_bytes=(18.4, 42.7, 9.6)[gpu % 3] * GIB,
            age_seconds=41_000.0 + 7_700.0 * gpu,
        )
        for gpu in range(gpus)
    )
    return Setup(slots=_plain(gpus), jobs=jobs)


def imbalanced(gpus: int) -> Setup:
    training = replace(
        HEALTHY,
        slow_ranks=((max(0, gpus - 2) if gpus > 2 else gpus - 1, 1.65),),
        step_seconds=0.3,
        step_jitter=0.03,
    )
    if gpus == 1:
        training = replace(training, slow_ranks=(), step_jitter=0.5)
    return Setup(slots=_plain(gpus), jobs=_one_job(gpus, training))


def throttled(gpus: int) -> Setup:
    hot = Slot(air_celsius=42.0, celsius_per_watt=0.105, temperature_celsius=58.0)
    slots = tuple(hot if gpu % 4 == 0 else Slot() for gpu in range(gpus))
    return Setup(slots=slots, jobs=_shared(gpus, HEALTHY))


def leak(gpus: int) -> Setup:
    return Setup(
        slots=_plain(gpus),
        jobs=tuple(
            replace(plan, leak_bytes_per_step=2.4 * GIB, memory_bytes=38.0 * GIB)
            if number == 0
            else plan
            for number, plan in enumerate(_shared(gpus, HEALTHY))
        ),
    )


def checkpoint(gpus: int) -> Setup:
    pause = Pause(every_seconds=45.0, seconds=8.0, write_bytes_per_second=2 * GB)
    return Setup(slots=_plain(gpus), jobs=_one_job(gpus, replace(HEALTHY, pauses=(pause,))))


def lost(gpus: int) -> Setup:
    victim = min(1, gpus - 1)
    slots = tuple(
        Slot(lost_from=20.0, lost_until=80.0) if gpu == victim else Slot() for gpu in range(gpus)
    )
    jobs = []
    for gpu in range(gpus):
        plan = JobPlan(
            gpus=(gpu,),
            training=HEALTHY,
            user=_USERS[gpu % 3],
            command=_COMMANDS[gpu % len(_COMMANDS)],
            memory_bytes=_MEMORIES[gpu % len(_MEMORIES)] * GIB,
            age_seconds=2840.0 + 911.0 * gpu,
        )
        if gpu == victim:
            # The driver ends what used the card; its owner starts again once it is back.
            jobs.append(replace(plan, end=20.0))
            jobs.append(replace(plan, begin=92.0, age_seconds=0.0))
        else:
            jobs.append(plan)
    return Setup(slots=slots, jobs=tuple(jobs))


BUILDERS: Mapping[str, tuple[str, Builder]] = {
    "starved": ("Too few loader workers: the GPUs go 0-50-80-99-0 with pauses of 1-2 s", starved),
    "healthy": ("The GPUs are fed: 97-99% busy with small dips", healthy),
    "imbalanced": (
        "One GPU of a job is slow; the others wait for it, busy at low power",
        imbalanced,
    ),
    "throttled": (
        "Cooling fails: the card heats up to its slowdown and the clocks fall",
        throttled,
    ),
    "leak": ("GPU memory grows step by step until the card is nearly full", leak),
    "checkpoint": (
        "Healthy, but every 45 s training stops for 8 s to write a checkpoint",
        checkpoint,
    ),
    "idle": ("Processes hold GPU memory and do nothing", idle),
    "lost": ("One GPU falls off the bus after 20 s and is back a minute later", lost),
}

__all__ = ["A100", "BUILDERS", "RTX_4090", "Activity", "JobPlan", "Setup", "Slot"]
