"""Processes hold a GPU's memory and do nothing.

What it checks
    Whether a GPU ran no kernel in all the time watched while much of its memory is held by
    processes that do not work on the CPU either.

Why it matters
    Nobody else can use the card: a forgotten notebook or a hanging job costs as much as one that
    trains. A deadlocked training job looks like this, too.

Evidence needed
    The busy share over at least half a minute, the memory held, and the CPU time of the job's
    processes where they can be read.

When it is wrong
    Servers wait for requests by design, and a job between two phases (downloading, preparing data
    on the CPU, validating elsewhere) will come back: those that use the CPU are left alone, and
    what is found is only information.

What to do
    A notebook: shut its kernel down (deleting the variables is not enough; the allocator keeps the
    memory). A training job: see where it is stuck (gpuwatch stacks), end it if it hangs.

Thresholds
    mean utilisation below 1% over the window: a monitor or a display causes a few tenths. For 30 s:
    checkpoints and the ends of epochs are mostly over by then.

    1 GiB held by the job's processes: a CUDA context alone takes some 300 MB in PyTorch since CUDA
    11.7 (before, it could be 1 GB). 2 GiB of the card where the processes are not known, since what
    the driver reserves is in it.

    CPU below 0.3 cores: processes that use more are working; waiting notebooks and servers use
    less. All but the size of a context are this project's choice.

Sources
    nvidia-smi's process list shows memory per process; PyTorch's notes on its caching allocator
    (memory of freed tensors stays reserved until the process ends or empties the cache) and its
    issues 107667 and 28394 (size of a CUDA context).
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared.gpus import present
from gpuwatch.diagnosis.rules.shared.words import (
    GIB,
    gib,
    keys,
    lasting,
    named,
    ramp,
    rounded,
    verb,
)

RULE = Rule(
    title="idle, holds memory",
    severity="info",
    cure=(
        Advice(
            "End what is no longer needed (a notebook's kernel, a job that hangs); gpuwatch stacks "
            "shows where a process stands.",
            why="the memory is freed only when the process ends",
        ),
    ),
    explains=frozenset({"oscillation"}),
    has_look_alikes=False,
    chart="memory_used_bytes",
)
IDLE_PERCENT = 1.0
HELD_BYTES = GIB  # of the job's processes
UNNAMED_BYTES = 2 * GIB  # of the card
LONG_ENOUGH_SECONDS = 30.0
WORKING_CORES = 0.3


def check(window: Window) -> Verdict:
    job, watched = window.job, window.watched_seconds
    known = [
        (gpu, held)
        for gpu in present(window)
        if gpu.busy is not None and (held := _held(window, gpu)) is not None
    ]
    if not known:
        return Unknown(("the GPUs' utilisation", "memory used"))
    if window.starting:
        return Clear("the job is starting")
    least = UNNAMED_BYTES if job is None else HELD_BYTES
    idle = [
        (gpu, held)
        for gpu, held in known
        if (gpu.busy_percent or 0.0) < IDLE_PERCENT and held >= least
    ]
    if not idle:
        return Clear("no GPU with memory in use is idle")
    if watched < LONG_ENOUGH_SECONDS:
        return Unknown((f"{LONG_ENOUGH_SECONDS:.0f} s of data",))
    cores = None if job is None else job.cpu_cores
    if cores is not None and cores >= WORKING_CORES:
        return Clear(f"its processes work on the CPU ({cores:.1f} cores)")
    gpus = [gpu for gpu, _ in idle]
    missing = [] if job is not None else ["the processes that hold it"]
    missing += [] if cores is not None else ["their CPU time"]
    waits = "they wait" if cores is not None else ""
    evidence = [
        *[Evidence(f"{named([gpu])} busy", rounded(gpu.busy_percent), "%", IDLE_PERCENT)
          for gpu in gpus],
        *[Evidence(f"{named([gpu])} memory held", held, "bytes", float(least))
          for gpu, held in idle],
        Evidence("CPU of its processes", cores, "cores", WORKING_CORES, waits),
    ]  # fmt: skip
    return Firing(
        summary=f"{gib(sum(held for _, held in idle))} of memory is held on {named(gpus)}, which "
        f"{verb(gpus, 'has', 'have')} run nothing for {lasting(watched)}",
        evidence=evidence,
        strength=(0.6 if missing else 0.8) + 0.2 * ramp(watched, LONG_ENOUGH_SECONDS, 120.0),
        missing=missing,
        gpus=keys(gpus),
        lost_share=1.0,
    )


def _held(window: Window, gpu: GpuFacts) -> float | None:
    return gpu.memory_used_bytes if window.job is None else gpu.own_memory_bytes
