"""Faults of a machine that trains: each scenario is a set of jobs and cards.

A scenario states costs (a batch takes a worker so many CPU seconds, a step so long, the copy
runs at so many bytes a second) and never what the charts shall look like.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpuwatch.sources.simulated.gpus import A100, GIB, H200, RTX_4090, Activity, Slot
from gpuwatch.sources.simulated.machine import TRAIN, JobPlan, Setup
from gpuwatch.sources.simulated.training import GB, Training

Build = Callable[[int], Setup]
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
NOTEBOOK = "python -m ipykernel_launcher -f kernel.json"
FIRST_END_SECONDS = 60.0
COOLING_FAILS_AT = 4.0
MUTE = ("busy_samples", "energy_joules", "throttle_reasons", "throttle_durations")
"""Readings that the mute card does not give."""


# -- machines --------------------------------------------------------------------------------------


def plain(gpus: int) -> tuple[Slot, ...]:
    """Return that many H200, all well."""
    return tuple(Slot() for _ in range(gpus))


def shares(gpus: int) -> list[tuple[int, ...]]:
    """Return the GPUs of each job on a shared machine: one big job, then smaller ones."""
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
    """Return a job of its own user, command, size and age."""
    return JobPlan(
        gpus=gpus,
        training=training,
        user=USERS[number % len(USERS)],
        command=COMMANDS[number % len(COMMANDS)],
        memory_bytes=MEMORIES_GIB[number % len(MEMORIES_GIB)] * GIB,
        age_seconds=2840.0 * (1 + 1.7 * number),
    )


def shared(gpus: int, training: Training) -> tuple[JobPlan, ...]:
    """Return jobs of several people, all with the same trouble."""
    return tuple(nth_job(number, group, training) for number, group in enumerate(shares(gpus)))


def one_job(gpus: int, training: Training) -> tuple[JobPlan, ...]:
    """Return one data-parallel job on all GPUs."""
    return (JobPlan(gpus=tuple(range(gpus)), training=training),) if gpus else ()


def single_jobs(gpus: int, training: Training) -> tuple[JobPlan, ...]:
    return tuple(nth_job(gpu, (gpu,), training) for gpu in range(gpus))


def machine(
    training: Training,
    jobs: Callable[[int, Training], tuple[JobPlan, ...]] = shared,
    **changes: Any,
) -> Build:
    """Return what builds a machine on which every job has ``training`` and ``changes``."""

    def build(gpus: int) -> Setup:
        plans = tuple(replace(job, **changes) for job in jobs(gpus, training))
        return Setup(slots=plain(gpus), jobs=plans)

    return build


# -- scenarios that are more than that -------------------------------------------------------------


def reported(gpus: int) -> Setup:
    """The jobs use ``gpuwatch.torch``. With several GPUs the last rank's files are slower than
    those of the others, who wait for it in the collectives."""

    def training(last: int) -> Training:
        if last == 0:
            return replace(STARVED, reports_loop=True)
        return replace(HEALTHY, reports_loop=True, slow_loaders=((last, 2.9),))

    jobs = shared(gpus, STARVED)
    slow = tuple(replace(job, training=training(len(job.gpus) - 1)) for job in jobs)
    return Setup(slots=plain(gpus), jobs=slow)


def imbalanced(gpus: int) -> Setup:
    # With one GPU there is nobody to wait for: only its steps differ, as with sequences of
    # different lengths.
    slow = () if gpus < 2 else ((max(1, gpus - 2), 2.2),)
    training = replace(
        HEALTHY, step_seconds=0.28, step_jitter=0.03 if slow else 0.5, slow_ranks=slow
    )
    return machine(training, one_job, slurm_job="48213")(gpus)


def throttled(gpus: int) -> Setup:
    slots = tuple(
        Slot(cooling_fails_at=None if gpu % 4 else COOLING_FAILS_AT) for gpu in range(gpus)
    )
    return Setup(slots=slots, jobs=shared(gpus, HEALTHY))


def lost(gpus: int) -> Setup:
    victim = min(1, gpus - 1)
    slots = list(plain(gpus))
    jobs = list(single_jobs(gpus, HEALTHY))
    if gpus:
        slots[victim] = Slot(lost_from=20.0, lost_until=80.0)
        # The driver ends what used the card; its owner starts again once it is back.
        again = replace(jobs[victim], begin=92.0, age_seconds=0.0)
        jobs[victim] = replace(jobs[victim], end=20.0)
        jobs.append(again)
    return Setup(slots=tuple(slots), jobs=tuple(jobs))


def rerun(gpus: int) -> Setup:
    """Return a job that ends, and its command again with the workers it needs, 15 s later."""
    first = tuple(replace(job, end=FIRST_END_SECONDS) for job in one_job(gpus, STARVED))
    fed = replace(STARVED, workers=6, pinned=True, copy_bytes_per_second=24 * GB)
    begin = FIRST_END_SECONDS + 15.0
    again = tuple(
        replace(job, training=fed, begin=begin, end=float("inf"), age_seconds=0.0) for job in first
    )
    return Setup(slots=plain(gpus), jobs=first + again)


def mixed(gpus: int) -> Setup:
    """Eight cards, eight stories; more GPUs begin anew."""
    small = replace(HEALTHY, compute=HEALTHY.compute._replace(power=0.86))
    stories: tuple[tuple[Slot, Training | None], ...] = (
        (Slot(), STARVED),
        (Slot(), HEALTHY),
        (Slot(card=A100), SMALL_BATCH),
        (Slot(card=RTX_4090), small),
        (Slot(), None),
        (Slot(cooling_fails_at=COOLING_FAILS_AT), HEALTHY),
        (
            Slot(
                card=replace(H200, lacks=H200.lacks + MUTE),
                failing=(
                    ("power_watts", "power"),
                    ("temperature_celsius", "the temperature"),
                ),
            ),
            HEALTHY,
        ),
        (Slot(lost_from=20.0, lost_until=80.0), HEALTHY),
    )  # fmt: skip
    slots = []
    jobs = []
    for gpu in range(gpus):
        slot, training = stories[gpu % len(stories)]
        slots.append(slot)
        job = nth_job(gpu, (gpu,), training)
        if training is None:
            job = replace(job, command=NOTEBOOK, age_seconds=66_000.0)
        if slot.lost_from is not None:
            job = replace(job, end=slot.lost_from)
        jobs.append(job)
    return Setup(slots=tuple(slots), jobs=tuple(jobs))


def mig(gpus: int) -> Setup:
    instances = (("3g.71gb", 0.49, 3 / 7), ("2g.35gb", 0.24, 2 / 7), ("1g.18gb", 0.12, 1 / 7))
    slots = (Slot(instances=instances), *plain(gpus - 1)) if gpus else ()
    # Three sevenths of the card at full work.
    part = replace(HEALTHY, compute=Activity(0.995, 0.47, 0.4, 0.18, 0.2, 0.22))
    jobs = [
        replace(
            nth_job(number, (0,), part if number == 0 else None),
            instance=number + 1,
            memory_bytes=room * GIB,
        )
        for number, room in enumerate((52.0, 21.0, 6.4))
        if gpus
    ]
    jobs += [nth_job(gpu + 3, (gpu,), HEALTHY) for gpu in range(1, gpus)]
    return Setup(slots=slots, jobs=tuple(jobs))


def no_gpu(_gpus: int) -> Setup:
    """A machine without GPUs has none however many are asked."""
    training = Training(workers=4, batch_cpu_seconds=2.2, step_seconds=1.9, main_cpu=11.4)
    job = JobPlan(gpus=(), training=training, command=TRAIN + " --device cpu")
    return Setup(slots=(), jobs=(job,))


BUILDERS: Mapping[str, tuple[str, Build]] = {
    "starved": (
        "Too few loader workers: the GPUs go 0-50-80-99-0, pauses of 1-2 s", machine(STARVED)
    ),
    "reported": ("Jobs report their own loops, and so their waits for data", reported),
    "healthy": ("The GPUs are kept busy: 97-99% with small dips", machine(HEALTHY)),
    "main_process": (
        "num_workers=0: the training process loads its own batches", machine(IN_MAIN_PROCESS)
    ),
    "unpinned": ("Batches are copied from pageable memory while the GPU waits", machine(UNPINNED)),
    "checkpoint": (
        "Healthy, but every 45 s it stops for 8 s and writes 2 GB/s",
        machine(replace(HEALTHY, saves=True), one_job),
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
