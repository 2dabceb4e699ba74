"""Python launches kernels more slowly than the GPU finishes them.

What it checks
    The training process is at a full core all the time (or all the time that the GPU idles), the
    loader workers have spare time, and GPUs are without a kernel for 15% of the time or more.

Why it matters
    The GPU runs each small kernel at once and waits for the next. A faster GPU gains nothing.

Evidence needed
    The CPU of the main thread (while the GPU idles and while it works), the workers' CPU, the
    GPUs' utilisation. Stronger with a flat, middling utilisation (thousands of tiny gaps instead
    of 0 -> 99%), low power while busy, and stacks. Where the job reports its loop (gpuwatch.torch),
    a wait for data of 60% of the idle time rules this out; one below 5% of the time, the loader.
    The clock of busy cores is shown where it is held down (heat, a power limit, the governor).

When it is wrong
    Without loader workers, loading in the main process gives the same readings: undetermined
    without stacks. PyTorch's backward pass runs on a thread of its own, so the main thread can show
    50%: the whole process counts as well. A thread that spins for the GPU (see sync_every_step) is
    at a full core, too: what counts is what it used beyond the GPU's busy time, 40% of the idle
    time or more. Where the driver keeps no samples, polls at even distances meet steps of about
    that length in the same phase: up to 30% idle, such gaps stay undetermined. A validation has no
    backward pass: where watching begins within one, it looks alike until it ends. Weights or
    optimizer states in host memory (ZeRO, FSDP with offload) cost the same time: then the process
    computes on many cores, or PCIe carries far more than batches, and this rule is quiet.

Thresholds
    training process at 85% of a core: the kernel's clock ticks and short sleeps take some percent
    of a thread that never rests. One that waits for the GPU in each step computes only while the
    GPU idles: then 90% of that time, if that is 25% or more and the thread uses 30% of a core.
    idle 15%: TensorFlow's profiler calls kernel launching "highly" bound from 15% of the step.
    workers below 75% of a core: above it they would be the cause. 6 cores for one process: that is
    no launching. 5 GB/s over PCIe: float32 images at several thousand a second stay below 2 GB/s.
    30 s at the limit before it is said of a job older than 3 minutes that is watched for less than
    one, where no other thread of the process uses 10% of a core: it may be validating.

Sources
    TensorFlow profiler, op_stats_to_input_pipeline_analysis.cc (kernel launch 3% and 15%).
    PyTorch, "Performance Tuning Guide" and "Accelerating PyTorch with CUDA Graphs".
"""

import math

from gpuwatch.diagnosis.facts.startup import LONGEST_SECONDS
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loaders, loading, open_causes, words
from gpuwatch.diagnosis.rules.shared.loading import (
    MAIN_AT_LIMIT_PERCENT,
    NO_MAIN,
    NO_WORKERS,
    Underfed,
    underfed,
)
from gpuwatch.diagnosis.sentence import number

RULE = Rule(
    title="Python-bound",
    gives_back="some",
    uses_workers=True,
    cure=(
        Advice(
            "Raise the batch size.",
            setting="batch_size",
            why="the same number of launches then does more work",
        ),
        Advice(
            "Compile the model (torch.compile or CUDA graphs; jax.jit; tf.function).",
            brief="Compile the model (torch.compile, jax.jit)",
            why="one launch then replaces many",
        ),
        Advice(
            "Do less in Python in each step: fused optimizers, no loops over samples, rare "
            "logging.",
            brief="Do less in Python in each step",
            why="the main thread is at its limit",
        ),
    ),
    explains={"batch_too_small", "busy_without_work", "oscillation"},
    # A busy main thread is also what a thread that waits for its GPU looks like.
    trust=0.90,
    look_alike=10,
    charts=("main",),
)
IDLE_SHARE = 0.15  # of the time
MAIN_THREAD_LEAST_PERCENT = 40.0
"""Where only the process as a whole is at a core, the main thread must have this much of it: else
it is some other thread that computes."""
DISK_WAIT_PERCENT = 25.0
"""Percent of the workers' time: beyond it loader_io_bound speaks."""
LINK_FULL = 0.6
"""Share of the link's rate, if all that crosses it did so while the GPU idled."""
WAITS_MOSTLY = 0.6
"""Share of the idle time, reported by the job itself: then it is data that it lacks, not
launches."""
LOW_POWER_SHARE = 0.6
"""Share of the power limit, while busy."""
STACKS_ELSEWHERE_PERCENT = 30.0
"""Percent of the main thread's samples in waiting for or making data, saving or evaluating."""

BACKWARD_PERCENT = 10.0
"""Percent of a core, beside the main thread: PyTorch launches its backward passes from a thread of
their own, so without it a main thread at its limit evaluates, or loops over what is no step."""
VALIDATES_SECONDS = 30.0
"""How long such a loop is waited for when watching begins: it may be in the middle of a validation,
and its usual work comes after it."""

POLLS_SHARE = 0.3
"""Idle share up to which polls of a moment show no gaps: the driver's mean over a sixth of a second
finds 30% of it idle where it meets a gap of a twentieth in each step."""
POLLS_SECONDS = 0.6
"""Time between polls from which steps may be as long."""

ELSEWHERE = ("waiting_for_data", "loading_data", "saving", "evaluating", "copying_to_device")


def check(window: Window) -> Verdict:
    found = underfed(window)
    little = f"the job's GPUs idle {words.only(100.0 * found.idle_share)} of the time"
    words.clear_if(found.idle_share < IDLE_SHARE, little)
    wait = found.reported_wait or 0.0
    for_data = f"the job reports waiting for data {wait:.0%} of the time"
    words.clear_if(wait >= WAITS_MOSTLY * found.idle_share, for_data)
    # On a crowded machine it would have run in the time it waited for a core.
    main = found.with_queue(words.required(found.main_percent, *NO_MAIN))
    process = open_causes.process_percent(found.job)
    limit = _is_at_limit(found, main, process)
    words.clear_if(not limit, f"the main thread uses only {main:.0f}% of a core")
    at_length = "the GPUs sit idle at length now and then, not a little all the time"
    words.clear_if(found.idles_at_length, at_length)
    offload = open_causes.offload(found.job, found.gpus)
    words.clear_if(offload is not None, offload or "")
    return _by_loader(found) or _by_polls(found) or _firing(window, found, main, process)


def _is_at_limit(found: Underfed, main: float, process: float | None) -> bool:
    idle = found.job.main_thread_when_idle_percent
    if idle is None and not found.job.stacks and found.reported_wait is None:
        alone = len(found.job.ranks) < 2
        # Of several ranks, threads that exchange gradients are in the process's.
        idle = found.least_while_idle(max(main, process or 0.0) if alone else main)
    if idle is not None and idle < MAIN_THREAD_LEAST_PERCENT and not found.fills_idle_time:
        return False
    if main >= MAIN_AT_LIMIT_PERCENT or found.fills_idle_time:
        return True
    return (process or 0.0) >= MAIN_AT_LIMIT_PERCENT and main >= MAIN_THREAD_LEAST_PERCENT


def _by_loader(found: Underfed) -> Clear | Unknown | None:
    """Objections from the loader's part, or that it looks just like loading."""
    elsewhere, workers = found.job.stack_percent(*ELSEWHERE), found.workers
    if elsewhere is not None and elsewhere >= STACKS_ELSEWHERE_PERCENT:
        return Clear(f"the stacks show the main thread at other work {elsewhere:.0f}% of the time")
    if elsewhere is not None:
        return None
    if not found.is_for_data or loading.not_starved(found.ranks) is not None:
        # It has its data in time, so that the loader's part says nothing.
        return _by_copies(found)
    if words.required(found.worker_count, *NO_WORKERS) == 0:
        return Unknown(("stacks: without loader workers the main thread may be loading",))
    if open_causes.reduces_on_cpu(found.job):
        return Unknown(("stacks: an exchange of gradients over gloo keeps the CPU busy, too",))
    if loaders.is_at_limit(workers):
        return Clear("the loader workers are at their limit")
    if workers is not None and (loaders.in_disk_wait(workers) or 0.0) >= DISK_WAIT_PERCENT:
        return Clear("the loader workers wait for the disk")
    return _by_copies(found)


def _by_polls(found: Underfed) -> Unknown | None:
    """Objection that the gaps were seen in polls only: where steps take about as long as the time
    between polls, these see the same moment of each, and any share of it may be idle."""
    if found.job.stacks or found.idle_share >= POLLS_SHARE:
        return None
    coarse = [
        gpu.busy.sample_seconds
        for gpu in found.gpus
        if gpu.busy and gpu.busy_polled_evenly and not gpu.busy.is_swinging
    ]
    if len(coarse) < len(found.gpus) or max(coarse) < POLLS_SECONDS:
        return None
    return Unknown((f"GPU samples finer than {max(coarse):.1g} s",))


def _by_copies(found: Underfed) -> Clear | None:
    copies = loading.reported_copies(found.ranks)
    if copies is not None:
        much = copies >= WAITS_MOSTLY * found.idle_share
        return Clear(f"the job reports copies taking {copies:.0%} of the time") if much else None
    for gpu in found.gpus:
        link, rate = cards.busy_link_rate(gpu), gpu.pcie_rx_bytes_per_second
        if link is not None and rate is not None and rate >= LINK_FULL * link * found.idle_share:
            return Clear("copies over PCIe account for the GPU's idle time")
    unpinned = any(rank.pinned_memory is False for rank in found.ranks)
    traffic = cards.idle_traffic(found.gpus, found.idle_share) or 0.0
    copying = unpinned and traffic >= cards.IDLE_TRAFFIC_BYTES_PER_SECOND
    return Clear("the main thread copies unpinned batches") if copying else None


def _may_validate(window: Window, found: Underfed, main: float, process: float | None) -> bool:
    """Check whether it may be within a validation that began before anybody watched; a young job
    has come to none."""
    began, watched = found.job.job.started_at_unix_seconds, found.job.watched_seconds
    age = math.inf if began is None else window.taken_at_unix_seconds - began
    backward = process is not None and process - main >= BACKWARD_PERCENT
    old = age - watched >= LONGEST_SECONDS
    return old and watched < 2.0 * VALIDATES_SECONDS and not backward


def _firing(window: Window, found: Underfed, main: float, process: float | None) -> Firing:
    flat = not any(gpu.busy is not None and gpu.busy.is_swinging for gpu in found.gpus)
    stacks = bool(found.job.stacks) or loading.not_starved(found.ranks) is not None
    waits = not stacks and _may_validate(window, found, main, process)
    limit = max(main, min(100.0, process or 0.0))
    busy = 0.7 if found.fills_idle_time else words.ramp(main, MAIN_THREAD_LEAST_PERCENT, 95.0)
    return Firing(
        summary=f"{found.who} had no kernel to run {words.in_percent(found.idle_share)} of the "
        f"time: Python, at {number(limit)}% of a core, cannot launch them fast enough",
        short=found.briefly(
            f"Python, at {number(limit)}% of a core, launches kernels too slowly",
            "Python is too slow",
        ),
        evidence=[*_evidence(found, main, process, flat), loaders.held_clock(window.host)],
        strength=words.strength(
            words.ramp(found.idle_share, IDLE_SHARE - 0.05, 0.4),
            busy,
            1.0 if flat else 0.3,
            1.0 if stacks else 0.6,
        ),
        missing=() if stacks else ("stacks of the main thread",),
        hold_seconds=VALIDATES_SECONDS if waits else 0.0,
        gpus=found.keys,
        lost_share=found.idle_share,
    )


def _evidence(
    found: Underfed, main: float, process: float | None, flat: bool
) -> list[Evidence | None]:
    limit, turns = MAIN_AT_LIMIT_PERCENT, "it takes turns with the thread of the backward pass"
    if main >= limit:
        turns = "one thread can do no more"
    elif found.fills_idle_time:
        turns = "it works while the GPU idles: they take turns"
    shape = "it swings: something longer than a launch delays it"
    shape = "many small gaps, none of them a wait for a batch" if flat else shape
    return [
        found.evidence,
        Evidence("main thread's CPU", main, "% of a core", limit, turns,
                 supports=main >= limit or found.fills_idle_time),
        Evidence("training process's CPU", process if main < limit else None, "% of a core", limit,
                 "all threads of the training process together fill a core"),
        Evidence("utilisation's shape", "flat" if flat else "0 to 99%", says=shape, supports=flat),
        loading.wait_evidence(found.reported_wait, loading.FED_SHARE, fed=True),
        found.workers_evidence("the workers have spare time: batches are ready"),
        _power_evidence(found),
    ]  # fmt: skip


def _power_evidence(found: Underfed) -> Evidence:
    read = [(gpu.power_busy_watts, gpu.power_limit_watts) for gpu in found.gpus]
    power = words.mean([busy / most for busy, most in read if busy is not None and most])
    low = words.is_below(power, LOW_POWER_SHARE)
    says = "the kernels are small" if low else "the kernels use the GPU well while they run"
    percent, limit = None if power is None else 100.0 * power, 100.0 * LOW_POWER_SHARE
    return Evidence("power while busy", percent, "% of the limit", limit, says, supports=low)
