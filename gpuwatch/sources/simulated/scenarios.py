"""Faults of a machine that trains: each scenario is a set of jobs and cards.

A scenario states costs (a batch takes a worker so many CPU seconds, a step so long, the copy
runs at so many bytes a second) and never how the charts shall look.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuwatch.sources.simulated.gpus import A100, GIB, H200, RTX_4090, Activity, Slot
from gpuwatch.sources.simulated.machine import TRAIN, JobPlan, Setup
from gpuwatch.sources.simulated.training import GB, Training

Groups = Sequence[tuple[int, ...]]
"""The GPUs of each job."""
USERS = ("ada", "grace", "linus", "barbara", "ken", "margaret")
COMMANDS = (
    TRAIN,
    "python finetune.py --model llama-8b --lora-rank 16 --bf16",
    "python train.py --config configs/vit_l16.yaml --amp",
    "python pretrain.py --dataset webtext --seq-len 4096",
)
MEMORIES_GIB = (31.2, 74.6, 48.9, 96.3)

HEALTHY = Training(workers=8, batch_cpu_seconds=1.5, step_seconds=0.31)
STARVED = Training(
    workers=2, batch_cpu_seconds=3.9, step_seconds=0.62, batch_bytes=1.2 * GB,
    batch_read_bytes=42e6, pinned=False, copy_bytes_per_second=9 * GB,
)  # fmt: skip
SMALL_BATCH = Training(
    workers=4, batch_cpu_seconds=0.2, step_seconds=0.25, batch_bytes=0.01 * GB,
    batch_read_bytes=0.5e6, compute=Activity(0.99, 0.27, 0.14, 0.05, 0.03, 0.06), main_cpu=0.99,
)  # fmt: skip
IN_MAIN_PROCESS = replace(
    HEALTHY, workers=0, batch_cpu_seconds=1.3, step_seconds=0.62, pinned=False,
    copy_bytes_per_second=9 * GB,
)  # fmt: skip
UNPINNED = replace(
    HEALTHY, pinned=False, batch_bytes=1.9 * GB, copy_bytes_per_second=3.1 * GB, ramp=False
)
FIRST_END_SECONDS, SECOND_BEGIN_SECONDS = 60.0, 75.0
COOLING_FAILS_AT = 4.0
LOST_FROM, LOST_UNTIL = 20.0, 80.0
MUTE = ("busy_samples", "energy_joules", "throttle_reasons", "throttle_durations")
"""Readings that the mute card does not give."""


# -- jobs ------------------------------------------------------------------------------------------


def together(gpus: int) -> Groups:
    """Return all GPUs, for one job."""
    return [tuple(range(gpus))] if gpus else []


def apart(gpus: int) -> Groups:
    """Return a job's GPU each."""
    return [(gpu,) for gpu in range(gpus)]


def shared(gpus: int) -> Groups:
    """Return the GPUs of each job on a shared machine: one big job, then smaller ones."""
    if gpus <= 2:
        return together(gpus)
    groups, at = [tuple(range(gpus // 2))], gpus // 2
    while at < gpus:
        size = 2 if len(groups) % 2 == 1 and gpus - at >= 2 else 1
        groups.append(tuple(range(at, at + size)))
        at += size
    return groups


def nth_job(number: int, gpus: tuple[int, ...], training: Training | None, **more: Any) -> JobPlan:
    """Return a job of its own user, command, size and age."""
    usual: dict[str, Any] = {
        "user": USERS[number % len(USERS)],
        "command": COMMANDS[number % len(COMMANDS)],
        "memory_bytes": MEMORIES_GIB[number % len(MEMORIES_GIB)] * GIB,
        "age_seconds": 2840.0 * (1 + 1.7 * number),
    }
    return JobPlan(gpus=gpus, training=training, **(usual | more))


def jobs(groups: Groups, training: Training, **more: Any) -> tuple[JobPlan, ...]:
    """Return jobs of several people, all with the same trouble."""
    return tuple(nth_job(number, gpus, training, **more) for number, gpus in enumerate(groups))


def plain(gpus: int, *plans: JobPlan) -> Setup:
    """Return a machine with that many H200, all well."""
    return Setup(tuple(Slot() for _ in range(gpus)), plans)


def training(
    how: Training, groups: Callable[[int], Groups] = shared, **more: Any
) -> Callable[[int], Setup]:
    """Return what builds a machine on which every job trains so."""
    return lambda gpus: plain(gpus, *jobs(groups(gpus), how, **more))


# -- scenarios that are more than that -------------------------------------------------------------


def reported(gpus: int) -> Setup:
    """The jobs use ``gpuwatch.torch``. With several GPUs the last rank's files are slower than
    those of the others, who wait for it in the collectives."""
    alone = replace(STARVED, reports_loop=True)
    plans = []
    for job in jobs(shared(gpus), alone):
        last = len(job.gpus) - 1
        late = replace(HEALTHY, reports_loop=True, slow_loaders=((last, 2.9),))
        plans.append(replace(job, training=late if last else alone))
    return plain(gpus, *plans)


def imbalanced(gpus: int) -> Setup:
    # With one GPU there is nobody to wait for: only its steps differ, as with sequences of
    # different lengths.
    slow = () if gpus < 2 else ((max(1, gpus - 2), 2.2),)
    how = replace(HEALTHY, step_seconds=0.28, step_jitter=0.03 if slow else 0.5, slow_ranks=slow)
    return training(how, together, slurm_job="48213")(gpus)


def throttled(gpus: int) -> Setup:
    slots = tuple(
        Slot(cooling_fails_at=None if gpu % 4 else COOLING_FAILS_AT) for gpu in range(gpus)
    )
    return Setup(slots, jobs(shared(gpus), HEALTHY))


def lost(gpus: int) -> Setup:
    slots, plans = [Slot() for _ in range(gpus)], list(jobs(apart(gpus), HEALTHY))
    if gpus:
        victim = min(1, gpus - 1)
        slots[victim] = Slot(lost_from=LOST_FROM, lost_until=LOST_UNTIL)
        # The driver ends what used the card; its owner starts again once it is back.
        plans.append(replace(plans[victim], begin=LOST_UNTIL + 12.0, age_seconds=0.0))
        plans[victim] = replace(plans[victim], end=LOST_FROM)
    return Setup(tuple(slots), tuple(plans))


def rerun(gpus: int) -> Setup:
    """Return a job that ends, and its command again with the workers it needs, 15 s later."""
    fed = replace(STARVED, workers=6, pinned=True, copy_bytes_per_second=24 * GB)
    return plain(
        gpus,
        *jobs(together(gpus), STARVED, end=FIRST_END_SECONDS),
        *jobs(together(gpus), fed, begin=SECOND_BEGIN_SECONDS, age_seconds=0.0),
    )


def mixed(gpus: int) -> Setup:
    """Eight cards, eight stories; more GPUs begin anew."""
    small = replace(HEALTHY, compute=HEALTHY.compute._replace(power=0.86))
    mute = Slot(
        card=replace(H200, lacks=H200.lacks + MUTE),
        failing=(("power_watts", "power"), ("temperature_celsius", "the temperature")),
    )
    notebook = {"command": "python -m ipykernel_launcher -f kernel.json", "age_seconds": 66_000.0}
    stories: tuple[tuple[Slot, Training | None, dict[str, Any]], ...] = (
        (Slot(), STARVED, {}),
        (Slot(), HEALTHY, {}),
        (Slot(card=A100), SMALL_BATCH, {}),
        (Slot(card=RTX_4090), small, {}),
        (Slot(), None, notebook),
        (Slot(cooling_fails_at=COOLING_FAILS_AT), HEALTHY, {}),
        (mute, HEALTHY, {}),
        (Slot(lost_from=LOST_FROM, lost_until=LOST_UNTIL), HEALTHY, {"end": LOST_FROM}),
    )
    told = [stories[gpu % len(stories)] for gpu in range(gpus)]
    plans = [nth_job(gpu, (gpu,), how, **more) for gpu, (_, how, more) in enumerate(told)]
    return Setup(tuple(slot for slot, _, _ in told), tuple(plans))


def mig(gpus: int) -> Setup:
    if not gpus:
        return plain(0)
    instances = (("3g.71gb", 0.49, 3 / 7), ("2g.35gb", 0.24, 2 / 7), ("1g.18gb", 0.12, 1 / 7))
    # Three sevenths of the card at full work.
    part = replace(HEALTHY, compute=Activity(0.995, 0.47, 0.4, 0.18, 0.2, 0.22))
    plans = [
        nth_job(number, (0,), None if number else part, instance=number + 1, memory_bytes=held)
        for number, held in enumerate((52.0 * GIB, 21.0 * GIB, 6.4 * GIB))
    ]
    plans += [nth_job(gpu + 3, (gpu,), HEALTHY) for gpu in range(1, gpus)]
    return Setup((Slot(instances=instances), *[Slot()] * (gpus - 1)), tuple(plans))


def no_gpu(_gpus: int) -> Setup:
    """A machine without GPUs has none however many are asked."""
    how = Training(workers=4, batch_cpu_seconds=2.2, step_seconds=1.9, main_cpu=11.4)
    return plain(0, JobPlan(gpus=(), training=how, command=TRAIN + " --device cpu"))


BUILDERS: Mapping[str, tuple[str, Callable[[int], Setup]]] = {
    "starved": (
        "Too few loader workers: the GPUs go 0-50-80-99-0, pauses of 1-2 s", training(STARVED)
    ),
    "reported": ("Jobs report their own loops, and so their waits for data", reported),
    "healthy": ("The GPUs are kept busy: 97-99% with small dips", training(HEALTHY)),
    "main_process": (
        "num_workers=0: the training process loads its own batches", training(IN_MAIN_PROCESS)
    ),
    "unpinned": (
        "Batches are copied from pageable memory while the GPU waits", training(UNPINNED)
    ),
    "checkpoint": (
        "Healthy, but every 45 s it stops for 8 s and writes 2 GB/s",
        training(replace(HEALTHY, saves=True), together),
    ),
    "imbalanced": ("One GPU of a job is slow; the others wait, busy at low power", imbalanced),
    "throttled": ("Cooling fails: the card heats up to its slowdown, clocks fall", throttled),
    "lost": ("One GPU falls off the bus after 20 s and is back a minute later", lost),
    "rerun": ("A starved job ends and is started again with more workers", rerun),
    "mixed": ("Eight cards, eight stories: other models, a mute one, a lost one", mixed),
    "mig": ("GPU 0 is split into three MIG instances", mig),
    "no_gpu": ("A machine without an NVIDIA driver: the host half only", no_gpu),
}  # fmt: skip
"""Name: (one line for a person, what it builds for a number of GPUs)."""

GPUS: Mapping[str, int] = {"imbalanced": 4, "lost": 2, "mixed": 8}
"""GPUs that a scenario needs to show what it is about, where that is more than one."""
