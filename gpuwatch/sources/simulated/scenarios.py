"""Faults of a machine that trains: each scenario is a set of jobs and cards.

A scenario states costs (a batch takes a worker so many CPU seconds, a step so long, the copy
runs at so many bytes a second) and never what the charts shall look like.
"""

from collections.abc import Mapping
from dataclasses import replace

from gpuwatch.sources.simulated.cards import A100, GB10, GIB, RTX_4090
from gpuwatch.sources.simulated.device import Activity, Cooling
from gpuwatch.sources.simulated.plans import (
    TRAIN,
    USERS,
    Build,
    JobPlan,
    Setup,
    Slot,
    machine,
    nth_job,
    one_job,
    plain,
    shared,
    single_jobs,
)
from gpuwatch.sources.simulated.training import GB, Pause, Training

HEALTHY = Training(workers=8, batch_cpu_seconds=1.5, step_seconds=0.31)
STARVED = Training(
    workers=2, batch_cpu_seconds=3.9, step_seconds=0.62, batch_bytes=1.2 * GB,
    batch_read_bytes=42e6, pinned=False, copy_bytes_per_second=9 * GB,
)  # fmt: skip
IO_BOUND = Training(
    workers=4, batch_cpu_seconds=0.6, batch_wait_seconds=6.4, batch_read_bytes=260e6,
    step_seconds=0.6, batch_bytes=1.2 * GB,
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
SLOW_LINK = replace(
    HEALTHY, pinned=False, batch_bytes=0.5 * GB, copy_bytes_per_second=0.8 * GB, ramp=False
)
PYTHON_BOUND = replace(
    HEALTHY, compute=Activity(0.44, 0.33, 0.3, 0.11, 0.12, 0.18), main_cpu=1.0, main_share=0.93,
    ramp=False,
)  # fmt: skip
QUOTA_CORES = 4.0
# The ranks' own threads take the better part of a core each; the workers share what is left.
QUOTA_BOUND = replace(
    HEALTHY, worker_speed=(QUOTA_CORES - 0.9) / HEALTHY.workers, step_seconds=0.25
)
CROWDED = replace(
    HEALTHY, workers=24, worker_speed=15.0 / 24, batch_cpu_seconds=6.2, step_seconds=0.3
)
UNIFIED = replace(HEALTHY, workers=4, batch_cpu_seconds=1.1, batch_bytes=0.3 * GB)
# Two thirds of the batches on the way lie ready at any time, so this is all but used up.
SHM_BYTES = int(HEALTHY.workers * HEALTHY.prefetch * HEALTHY.batch_bytes * 0.72)
CHECKPOINT = Pause(every_seconds=45.0, seconds=8.0, write_bytes_per_second=2 * GB)
VALIDATION = Pause(
    every_seconds=60.0, seconds=14.0, first_seconds=20.0,
    activity=Activity(0.66, 0.45, 0.5, 0.2, 0.24, 0.3), spin_up_seconds=1.6,
)  # fmt: skip
SLEEPY_COMMANDS = (
    "python -m ipykernel_launcher -f kernel.json",
    "python serve.py --model resnet50 --port 8080",
)
FIRST_END_SECONDS = 60.0
HOT = Cooling(air_celsius=42.0, celsius_per_watt=0.105, from_second=4.0)
finished = machine(STARVED, one_job, end=FIRST_END_SECONDS)


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


def leak(gpus: int) -> Setup:
    jobs = list(shared(gpus, HEALTHY))
    jobs[:1] = [
        replace(one, leak_bytes_per_step=2.4 * GIB, memory_bytes=38.0 * GIB) for one in jobs[:1]
    ]
    return Setup(slots=plain(gpus), jobs=tuple(jobs))


def idle(gpus: int) -> Setup:
    jobs = tuple(
        JobPlan(
            gpus=(gpu,),
            user=USERS[gpu % 3],
            command=SLEEPY_COMMANDS[gpu % 2],
            memory_bytes=(18.4, 42.7, 9.6)[gpu % 3] * GIB,
            age_seconds=41_000.0 + 7_700.0 * gpu,
        )
        for gpu in range(gpus)
    )
    return Setup(slots=plain(gpus), jobs=jobs)


def orphans(gpus: int) -> Setup:
    left = tuple(
        JobPlan(
            gpus=(gpu,),
            name="pt_data_worker",
            orphaned=True,
            memory_bytes=2.1 * GIB + number * 0.03 * GIB,
            resident_bytes=1.1 * GIB,
            age_seconds=7200.0,
        )
        for gpu in range(gpus)
        for number in range(4)
    )
    return Setup(slots=plain(gpus), jobs=left)


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


def tenant(gpus: int) -> Setup:
    slower = replace(HEALTHY, step_seconds=0.54, batch_cpu_seconds=2.4)
    ours = tuple(replace(job, gpu_share=0.57) for job in single_jobs(gpus, slower))
    theirs = tuple(
        JobPlan(
            gpus=(gpu,),
            user="margaret",
            command="python sweep.py --trials 400 --device cuda:0",
            memory_bytes=22.0 * GIB,
            gpu_share=0.4,
            age_seconds=610.0,
        )
        for gpu in range(gpus)
    )
    return Setup(slots=plain(gpus), jobs=ours + theirs)


def rerun(gpus: int) -> Setup:
    """The same command again, a quarter of a minute later, with the workers it needs."""
    first = finished(gpus)
    fed = replace(STARVED, workers=6, pinned=True, copy_bytes_per_second=24 * GB)
    begin = FIRST_END_SECONDS + 15.0
    again = tuple(
        replace(job, training=fed, begin=begin, end=float("inf"), age_seconds=0.0)
        for job in first.jobs
    )
    return replace(first, jobs=first.jobs + again)


def mixed(gpus: int) -> Setup:
    """Eight cards, eight stories; more GPUs begin anew."""
    small = replace(HEALTHY, compute=HEALTHY.compute._replace(power=0.86))
    stories: tuple[tuple[Slot, Training | None], ...] = (
        (Slot(), STARVED),
        (Slot(), HEALTHY),
        (Slot(card=A100), SMALL_BATCH),
        (Slot(card=RTX_4090), small),
        (Slot(), None),
        (Slot(cooling=HOT), HEALTHY),
        (
            Slot(
                mute=("busy_samples", "energy_joules", "throttle_reasons", "throttle_durations"),
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
            job = replace(job, command=SLEEPY_COMMANDS[0], age_seconds=66_000.0)
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
    job = JobPlan(gpus=(), training=training, command=TRAIN + " --device cpu", cpu_only=True)
    return Setup(slots=(), jobs=(job,))


# fmt: off
BUILDERS: Mapping[str, tuple[str, Build]] = {
    "starved": ("Too few loader workers: the GPUs go 0-50-80-99-0, pauses of 1-2 s",
                machine(STARVED)),
    "reported": ("Jobs report their own loops, and so their waits for data", reported),
    "healthy": ("The GPUs are kept busy: 97-99% with small dips", machine(HEALTHY)),
    "imbalanced": ("One GPU of a job is slow; the others wait, busy at low power", imbalanced),
    "throttled": ("Cooling fails: the card heats up to its slowdown, clocks fall",
                  machine(HEALTHY, slot=Slot(cooling=HOT), every=4)),
    "power_capped": ("The power limit was set to 400 W: clocks fall to keep it",
                     machine(HEALTHY, slot=Slot(power_limit_watts=400.0))),
    "leak": ("GPU memory grows step by step until the card is nearly full", leak),
    "host_leak": ("The job's processes take more and more host memory",
                  machine(HEALTHY, resident_growth_bytes_per_second=55e6)),
    "checkpoint": ("Healthy, but every 45 s it stops for 8 s and writes 2 GB/s",
                   machine(replace(HEALTHY, pauses=(CHECKPOINT,)), one_job)),
    "validation": ("Healthy, but every minute a validation pass runs for 14 s",
                   machine(replace(HEALTHY, pauses=(VALIDATION,)), one_job)),
    "startup": ("A job starts: imports, loading, first batches, then full speed",
                machine(HEALTHY, begin=6.0, loading_seconds=24.0, age_seconds=0.0)),
    "idle": ("Processes hold GPU memory and do nothing", idle),
    "orphans": ("Loader workers outlived their job and hold GPU memory", orphans),
    "lost": ("One GPU falls off the bus after 20 s and is back a minute later", lost),
    "io_bound": ("Loader workers wait for a slow disk", machine(IO_BOUND)),
    "cpu_quota": ("A container's CPU quota throttles the loader workers",
                  machine(QUOTA_BOUND, single_jobs, for_each={"quota_cores": QUOTA_CORES},
                          container="8f3c1d20ab54")),
    "too_many_workers": ("More loader workers than cores",
                         machine(CROWDED, single_jobs, for_each={"cores": 16})),
    "main_process": ("num_workers=0: the training process loads its own batches",
                     machine(IN_MAIN_PROCESS)),
    "unpinned": ("Batches are copied from pageable memory while the GPU waits", machine(UNPINNED)),
    "python_bound": ("Python launches kernels more slowly than the GPU runs them",
                     machine(PYTHON_BOUND)),
    "small_batch": ("100% busy at a quarter of the power: kernels too small", machine(SMALL_BATCH)),
    "tenant": ("Another user's process takes much of the GPU", tenant),
    "shm_full": ("/dev/shm is nearly full of batches",
                 machine(HEALTHY, for_each={"shm_bytes": SHM_BYTES})),
    "pcie_degraded": ("The PCIe link runs at generation 1 with 4 lanes",
                      machine(SLOW_LINK, single_jobs, slot=Slot(pcie_generation=1, pcie_width=4))),
    "memory_errors": ("GPU 0 shows ECC errors and remaps memory rows",
                      machine(HEALTHY, slot=Slot(errors_from=10.0), every=1000)),
    "finished": ("A starved job that ends after a minute", finished),
    "rerun": ("A starved job ends and is started again with more workers", rerun),
    "mixed": ("Eight cards, eight stories: other models, a mute one, a lost one", mixed),
    "mig": ("GPU 0 is split into three MIG instances", mig),
    "unified": ("GB10: GPU and host share one memory",
                machine(UNIFIED, single_jobs, slot=Slot(card=GB10), memory_bytes=46.5 * GIB,
                        for_each={"cores": 20, "memory_bytes": 128 * GIB})),
    "no_gpu": ("A machine without an NVIDIA driver: the host half only", no_gpu),
}
# fmt: on
"""Name: (one line for a person, what it builds for a number of GPUs)."""
