"""Python launches kernels more slowly than the GPU finishes them.

What it checks
    The training process is at a full core all the time (or all the time that the GPU idles), the
    loader workers have spare time, and GPUs are without a kernel for 15% of the time or more.

Why it matters
    The GPU runs each small kernel at once and waits for the next. A faster GPU gains nothing.

Evidence needed
    The CPU of the main thread (while the GPU idles and while it works), the workers' CPU, the
    GPUs' utilisation. Stronger with a flat, middling utilisation (thousands of tiny gaps instead
    of 0 -> 99%), with low power while busy, and with stacks.

    Where the job reports its own loop (gpuwatch.torch), a wait for data that makes up 60% of the
    idle time rules this out; one below 5% of the time rules out the loader, with or without
    workers.

When it is wrong
    Without loader workers, loading in the main process gives the same readings, so it stays
    undetermined unless stacks were taken. PyTorch runs the backward pass on a thread of its
    own: the main thread alone can then show 50%, so the whole process counts as well, which also
    includes its helper threads. A main thread that spins for the GPU (.item(), a blocking
    synchronisation) is at a full core too: see sync_every_step.

What to do
    A larger batch; torch.compile (mode="reduce-overhead" uses CUDA graphs); CUDA graphs; fused
    optimizers (fused=True) and foreach variants; no Python loops over samples; log rarely.

Thresholds
    training process at 85% of a core: the kernel's clock ticks and short sleeps take some percent
    of a thread that never rests. One that waits for the GPU in each step computes only while the
    GPU idles: then 90% of that time, if that is 25% or more and the thread uses 30% of a core.
    idle 15%: TensorFlow's profiler calls kernel launching "highly" bound from 15% of the step.
    workers below 75% of a core: above it they would be the cause.

Sources
    TensorFlow profiler, op_stats_to_input_pipeline_analysis.cc (kernel launch 3% and 15%).
    PyTorch, "Performance Tuning Guide" and "Accelerating PyTorch with CUDA Graphs".
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import JobFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.loader.memory_not_pinned import (
    IDLE_TRAFFIC_BYTES_PER_SECOND,
    idle_traffic,
    link_rate,
)
from gpuwatch.diagnosis.rules.shared.common import (
    MAIN_AT_LIMIT_PERCENT,
    NO_WORKERS,
    Underfed,
    in_disk_wait,
    is_at_limit,
    is_one_stretch,
    is_swinging,
    stack_percent,
    strength,
    underfed,
)
from gpuwatch.diagnosis.rules.shared.gpus import mean, ramp
from gpuwatch.diagnosis.rules.shared.reported import fed_evidence, not_starved, told_copies

IDLE_SHARE = 0.15
"""Of the time: TensorFlow's profiler calls kernel launching "highly" bound from 15% of the step."""

MAIN_THREAD_LEAST_PERCENT = 40.0
"""Where only the process as a whole is at a core, the main thread must have this much of it: else
it is some other thread that computes."""

DISK_WAIT_PERCENT = 25.0
"""Of the workers' time: beyond it loader_io_bound speaks."""

LINK_FULL = 0.6
"""Of the link's rate, if all that crosses it did so while the GPU idled."""

WAITS_MOSTLY = 0.6
"""Of the idle time, told by the job itself: then it is data that it lacks, not launches."""

LOW_POWER_SHARE = 0.6
"""Of the power limit, while busy."""

STACKS_ELSEWHERE_PERCENT = 30.0
"""Of the main thread's samples in waiting for or making data, saving or evaluating."""


def check(window: Window) -> Verdict:
    found = underfed(window)
    if not isinstance(found, Underfed):
        return found
    return _by_main_thread(found)


def _by_main_thread(found: Underfed) -> Verdict:
    if found.idle_share < IDLE_SHARE:
        return Clear(why=f"the job's GPUs idle only {found.idle_share:.0%} of the time")
    wait = found.told_wait
    if wait is not None and wait >= WAITS_MOSTLY * found.idle_share:
        return Clear(why=f"the job reports waiting for data {wait:.0%} of the time")
    used = found.main_percent
    if used is None:
        return Unknown(missing=("the main thread's CPU",))
    # On a crowded machine it would have run in the time it waited for a core.
    main = min(100.0, used + found.main_queue_percent)
    process = _process_percent(found.job)
    if not _is_at_limit(found, main, process):
        return Clear(why=f"the main thread uses only {main:.0f}% of a core")
    if all(gpu.busy is None or is_one_stretch(gpu.busy) for gpu in found.gpus):
        return Clear(why="the GPUs idled once at length, not a little all the time")
    return _by_loader(found) or _firing(found, main, process)


def _process_percent(job: JobFacts) -> float | None:
    """CPU of a training process with all its threads, in percent of a core, mean of the ranks."""
    if job.cpu_cores is None or not job.ranks:
        return None
    workers = job.workers
    loading = 0.0
    if workers is not None and workers.count > 0.0:
        if workers.cpu_percent is None:
            return None
        loading = workers.count * workers.cpu_percent / 100.0
    return max(0.0, 100.0 * (job.cpu_cores - loading) / len(job.ranks))


def _is_at_limit(found: Underfed, main: float, process: float | None) -> bool:
    idle = found.job.main_thread_when_idle_percent
    rests = idle is not None and idle < MAIN_THREAD_LEAST_PERCENT
    if main >= MAIN_AT_LIMIT_PERCENT or found.fills_idle_time:
        return not rests
    whole = process is not None and process >= MAIN_AT_LIMIT_PERCENT
    return whole and main >= MAIN_THREAD_LEAST_PERCENT and not rests


def _by_loader(found: Underfed) -> Clear | Unknown | None:
    """What the loader's part says against it, or that it cannot be told apart from loading."""
    elsewhere = stack_percent(
        found.job, "waiting_for_data", "loading_data", "saving", "evaluating", "copying_to_device"
    )
    if elsewhere is not None:
        if elsewhere < STACKS_ELSEWHERE_PERCENT:
            return None
        return Clear(
            why=f"the stacks show the main thread at other work {elsewhere:.0f}% of the time"
        )
    if not found.is_for_data or not_starved(found.ranks) is not None:
        # It has its data in time, so that the loader's part says nothing.
        return _by_copies(found)
    if found.worker_count is None:
        return Unknown(missing=(NO_WORKERS,))
    if found.worker_count == 0:
        return Unknown(missing=("stacks: without loader workers the main thread may be loading",))
    return _by_workers(found) or _by_copies(found)


def _by_workers(found: Underfed) -> Clear | None:
    workers = found.workers
    if workers is not None and is_at_limit(workers):
        return Clear(why="the loader workers are at their limit")
    if workers is not None and (in_disk_wait(workers) or 0.0) >= DISK_WAIT_PERCENT:
        return Clear(why="the loader workers wait for the disk")
    return None


def _by_copies(found: Underfed) -> Clear | None:
    copies = told_copies(found.ranks)
    if copies is not None:
        if copies < WAITS_MOSTLY * found.idle_share:
            return None
        return Clear(why=f"the job reports copies taking {copies:.0%} of the time")
    for gpu in found.gpus:
        link, rate = link_rate(gpu), gpu.pcie_rx_bytes_per_second
        if link is not None and rate is not None and rate >= LINK_FULL * link * found.idle_share:
            return Clear(why="copies over PCIe account for the GPU's idle time")
    traffic = idle_traffic(found)
    unpinned = any(rank.pinned_memory is False for rank in found.ranks)
    if unpinned and traffic is not None and traffic >= IDLE_TRAFFIC_BYTES_PER_SECOND:
        return Clear(why="the main thread copies unpinned batches")
    return None


def _firing(found: Underfed, main: float, process: float | None) -> Firing:
    waves = [gpu.busy for gpu in found.gpus if gpu.busy is not None]
    flat = not any(is_swinging(wave) for wave in waves)
    power = _power_share(found)
    stacks = bool(found.job.stacks) or not_starved(found.ranks) is not None
    missing = ("stacks of the main thread",) if not stacks else ()
    limit = max(main, min(100.0, process or 0.0))
    return Firing(
        summary=f"{found.who} {'had' if len(found.gpus) == 1 else 'had each'} no kernel "
        f"{found.idle_share:.0%} of the time: Python, at {limit:.0f}% of a core, launches them "
        "too slowly",
        evidence=tuple(_evidence(found, main, process, flat, power)),
        advice=_advice(),
        strength=strength(
            ramp(found.idle_share, IDLE_SHARE - 0.05, 0.4),
            0.7 if found.fills_idle_time else ramp(main, MAIN_THREAD_LEAST_PERCENT, 95.0),
            1.0 if flat else 0.3,
            1.0 if stacks else 0.6,
        ),
        missing=missing,
        gpus=found.keys,
        lost_share=found.idle_share,
        explains=frozenset({"batch_too_small", "busy_without_work", "oscillation"}),
    )


def _power_share(found: Underfed) -> float | None:
    """Power while busy, of the limit; mean of the GPUs where both were read."""
    return mean(
        [
            gpu.power_busy_watts / gpu.power_limit_watts
            for gpu in found.gpus
            if gpu.power_busy_watts is not None and gpu.power_limit_watts
        ]
    )


def _evidence(
    found: Underfed, main: float, process: float | None, flat: bool, power: float | None
) -> list[Evidence]:
    evidence = [
        found.evidence,
        Evidence(
            name="main thread's CPU",
            value=round(main, 1),
            unit="% of a core",
            threshold=MAIN_AT_LIMIT_PERCENT,
            says=_says_main(found, main),
            supports=main >= MAIN_AT_LIMIT_PERCENT or found.fills_idle_time,
        ),
    ]
    if process is not None and main < MAIN_AT_LIMIT_PERCENT:
        says = "all threads of the training process together fill a core"
        evidence.append(
            Evidence(
                name="training process's CPU",
                value=round(process, 1),
                unit="% of a core",
                threshold=MAIN_AT_LIMIT_PERCENT,
                says=says,
            )
        )
    evidence.append(
        Evidence(
            name="utilisation's shape",
            value="flat" if flat else "0 to 99%",
            says="many small gaps, none of them a wait for a batch"
            if flat
            else "it swings: something longer than a launch delays it",
            supports=flat,
        )
    )
    return evidence + fed_evidence(found.ranks) + _loader(found) + _power(power)


def _says_main(found: Underfed, main: float) -> str:
    if main >= MAIN_AT_LIMIT_PERCENT:
        return "one thread can do no more"
    if found.fills_idle_time:
        return "it works while the GPU idles: they take turns"
    return "it takes turns with the thread of the backward pass"


def _loader(found: Underfed) -> list[Evidence]:
    if found.workers is None or found.workers.cpu_percent is None:
        return []
    says = "the workers have spare time: batches are ready"
    return [
        Evidence(
            name="loader workers' CPU",
            value=round(found.workers.cpu_percent, 1),
            unit="% of a core each",
            says=says,
        )
    ]


def _power(share: float | None) -> list[Evidence]:
    if share is None:
        return []
    low = share < LOW_POWER_SHARE
    return [
        Evidence(
            name="power while busy",
            value=round(100.0 * share, 1),
            unit="% of the limit",
            threshold=100.0 * LOW_POWER_SHARE,
            says="the kernels are small" if low else "the kernels use the GPU well while they run",
            supports=low,
        )
    ]


def _advice() -> tuple[Advice, ...]:
    return (
        Advice(
            action="Raise the batch size.",
            setting="batch_size",
            why="the same number of launches then does more work",
        ),
        Advice(
            action='Compile the model: torch.compile(model, mode="reduce-overhead"), or use CUDA '
            "graphs.",
            why="one launch then replaces many",
        ),
        Advice(
            action="Do less in Python in each step: fused optimizers, no loops over samples, rare "
            "logging.",
            why="the main thread is at its limit",
        ),
    )
