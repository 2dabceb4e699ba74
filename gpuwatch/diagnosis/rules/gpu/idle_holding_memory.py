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

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.gpus import GIB, gib, lasting, named, ramp, verb

IDLE_PERCENT = 1.0
"""The mean over the window; a monitor or a display makes some tenths."""
HELD_BYTES = GIB
"""Of processes: a bare CUDA context has some hundred MiB, by the libraries and their versions."""
UNNAMED_BYTES = 2 * GIB
"""Of the card, where the processes are not known: the driver itself reserves up to about 1 GiB."""
LONG_ENOUGH_SECONDS = 30.0
"""Checkpoints and the ends of epochs are mostly over by then."""
WORKING_CORES = 0.3
"""A job that uses more CPU than this does something; notebooks and servers that wait use less."""


def check(window: Window) -> Verdict:
    present = [gpu for gpu in window.gpus if not gpu.lost]
    known = [gpu for gpu in present if gpu.busy is not None and _held(window, gpu) is not None]
    if not known:
        return Unknown(("the GPUs' utilisation", "memory used"))
    if window.starting:
        return Clear("the job is starting")
    idle = [gpu for gpu in known if _is_idle(gpu) and (_held(window, gpu) or 0.0) >= _least(window)]
    if not idle:
        return Clear("no GPU with memory in use is idle")
    if window.watched_seconds < LONG_ENOUGH_SECONDS:
        return Unknown((f"{LONG_ENOUGH_SECONDS:.0f} s of data",))
    cores = None if window.job is None else window.job.cpu_cores
    if cores is not None and cores >= WORKING_CORES:
        return Clear(f"its processes work on the CPU ({cores:.1f} cores)")
    return _firing(window, idle, cores)


def _held(window: Window, gpu: GpuFacts) -> float | None:
    return gpu.memory_used_bytes if window.job is None else gpu.own_memory_bytes


def _least(window: Window) -> float:
    return UNNAMED_BYTES if window.job is None else HELD_BYTES


def _is_idle(gpu: GpuFacts) -> bool:
    return gpu.busy is not None and gpu.busy.mean_percent < IDLE_PERCENT


def _firing(window: Window, idle: list[GpuFacts], cores: float | None) -> Firing:
    held = sum(_held(window, gpu) or 0.0 for gpu in idle)
    missing = []
    if window.job is None:
        missing.append("the processes that hold it")
    if cores is None:
        missing.append("their CPU time")
    return Firing(
        severity="info",
        summary=f"{gib(held)} of memory is held on {named(idle)}, which "
        f"{verb(idle, 'has', 'have')} run nothing for {lasting(window.watched_seconds)}",
        evidence=(
            *[
                Evidence(
                    name=f"{named([gpu])} busy",
                    value=round(gpu.busy.mean_percent, 1),
                    unit="%",
                    threshold=IDLE_PERCENT,
                )
                for gpu in idle
                if gpu.busy is not None
            ],
            *[
                Evidence(
                    name=f"{named([gpu])} memory held",
                    value=_held(window, gpu),
                    unit="bytes",
                    threshold=float(_least(window)),
                )
                for gpu in idle
            ],
            Evidence(
                name="CPU of its processes",
                value=cores,
                unit="cores",
                threshold=WORKING_CORES,
                says="they wait" if cores is not None else "",
            ),
        ),
        advice=(
            Advice(
                action="End what is no longer needed (a notebook's kernel, a job that hangs); "
                "gpuwatch stacks shows where a process stands.",
                why="the memory is freed only when the process ends",
            ),
        ),
        strength=(0.6 if missing else 0.8)
        + 0.2 * ramp(window.watched_seconds, LONG_ENOUGH_SECONDS, 120.0),
        missing=tuple(missing),
        gpus=tuple([gpu.uuid for gpu in idle]),
        lost_share=1.0,
        explains=frozenset({"oscillation"}),
    )
