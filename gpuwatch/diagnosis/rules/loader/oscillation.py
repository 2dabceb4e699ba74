"""The GPU goes 0% -> 99% -> 0%: it works in bursts and waits between them.

What it checks
    The shape of the utilisation alone: repeated idle runs that reach the bottom between busy runs
    that reach the top, outside pauses. It is what remains when only GPU readings exist (a log of
    nvidia-smi); with the job's processes in view another rule names the cause, and this is its
    symptom.

Why it matters
    The mean hides it: 50% can be a GPU that is always half used or one that waits half the time.
    The second can be twice as fast.

Evidence needed
    Samples finer than half a swing: several per second. With one per second only swings slower
    than two seconds are visible; faster ones stay undetermined.

    Where the job reports its own loop (gpuwatch.torch), how long it waits for data shows whether
    the loader is the cause.

When it is wrong
    Bursts are right for a server that waits for requests, for interactive work, and for training
    on several nodes where the others are slower. Low means and two-peaked histograms alone are
    not evidence: healthy jobs show both.

What to do
    In order of how often it is the cause: raise num_workers above 0 and towards the cores a rank
    may use; pin_memory=True with non_blocking=True; look for slow storage, checkpoints,
    validation. Run gpuwatch beside the job to see which.

Thresholds
    5 idle runs in the window: a rhythm, not an event. Lowest samples at 15% or less and highest
    at 70% or more: swings that reach both ends (SageMaker's LowGPUUtilization calls it
    fluctuation when the 5th percentile is under 10% and the 95th over 70%).
    idle 15%: above what TensorFlow's profiler calls moderately input-bound, below its 20%.

Sources
    SageMaker Debugger, LowGPUUtilization. TensorFlow profiler (5% and 20%).
    NVIDIA NVML, nvmlUtilization_t: the share of the sample period in which a kernel ran; the
    period is between 1/6 s and 1 s.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared.gpus import (
    IDLE_TRAFFIC_BYTES_PER_SECOND,
    is_others,
    works,
)
from gpuwatch.diagnosis.rules.shared.loading import driving, too_early
from gpuwatch.diagnosis.rules.shared.pauses import pause_share
from gpuwatch.diagnosis.rules.shared.reported import FED_SHARE, STARVED_SHARE, reported_wait
from gpuwatch.diagnosis.rules.shared.words import (
    keys,
    lasting,
    mean,
    named,
    percent_of,
    ramp,
    strength,
)
from gpuwatch.diagnosis.signals.waveform import Waveform

RULE = Rule(
    title="starved in bursts",
    cure=(
        Advice(
            "Raise num_workers of the DataLoader (its default is 0), up to the cores of a rank "
            "less one.",
            setting="num_workers",
            why="a loader that cannot keep up is the most common cause of this pattern",
        ),
        Advice(
            "Set pin_memory=True and copy with non_blocking=True.",
            setting="pin_memory",
            wanted="True",
            why="otherwise each copy to the GPU delays it",
        ),
    ),
    # The pattern is sure, the cause behind it is not named.
    trust=0.85,
    suspect="bursts faster than the sampling",
    suspected=12,
)
IDLE_SHARE = 0.15  # of the time
LEAST_RUNS = 5
LONGEST_IDLE_SECONDS = 15.0
"""Longer waits are pauses (saves, validation), or a job that does something else."""
MIDDLING_SHARE = 0.5
"""Of the samples: with more than this between both ends, a swing and a steady half are alike."""
FINE_SECONDS = 0.3
"""Of samples: the driver's own are no further apart."""


def check(window: Window) -> Verdict:
    early = too_early(window)
    if early is not None:
        return early
    gpus = works(window.gpus)
    if not gpus:
        return Unknown(("the GPUs' utilisation",))
    if window.job is not None:
        gpus = [gpu for gpu in gpus if not is_others(gpu)]
    if not gpus:
        return Clear("only others use its GPUs now")
    idle = [(gpu, gpu.busy) for gpu in gpus if gpu.busy and _idles(window, gpu) >= IDLE_SHARE]
    if not idle:
        return Clear("the GPUs idle for less than 15% of the time")
    swinging = [(gpu, wave) for gpu, wave in idle if _oscillates(wave)]
    if swinging:
        return _firing(window, swinging)
    hidden = [
        wave.sample_seconds
        for _, wave in idle
        if wave.faster_than_seen or wave.middling_share >= MIDDLING_SHARE
    ]
    slow = max(hidden, default=0.0)
    if slow > FINE_SECONDS:
        return Unknown((f"GPU samples finer than {slow:.1g} s",))
    return Clear("the GPUs idle, but not in bursts")


def _idles(window: Window, gpu: GpuFacts) -> float:
    """0 to 1: the share of the time it idles outside pauses."""
    return gpu.idle_share - pause_share(window, gpu.uuid)


def _oscillates(wave: Waveform) -> bool:
    runs = wave.idle
    in_bursts = runs.mean_seconds is not None and runs.mean_seconds <= LONGEST_IDLE_SECONDS
    return wave.is_swinging and runs.count >= LEAST_RUNS and in_bursts


def _firing(window: Window, swinging: list[tuple[GpuFacts, Waveform]]) -> Firing:
    gpus, first = [gpu for gpu, _ in swinging], swinging[0][1]
    lost = sum(_idles(window, gpu) for gpu in gpus) / len(gpus)
    period = mean([wave.period_seconds for _, wave in swinging])
    every = "" if period is None else f" every {lasting(period)}"
    wait = None
    if window.job is not None:
        wait = reported_wait(driving(window.job, {gpu.uuid for gpu in gpus}))
    reports = "" if wait is None else f"; the job reports waiting for data {wait:.0%} of the time"
    clear = strength(
        ramp(lost, IDLE_SHARE - 0.05, 0.4),
        ramp(first.idle.count, LEAST_RUNS - 1.0, 15.0),
        1.0 if period is not None else 0.3,
    )
    return Firing(
        summary=f"{named(gpus)} {'goes' if len(gpus) == 1 else 'go'} from {first.low_percent:.0f}% "
        f"to {first.high_percent:.0f}% and back{every}, without work {lost:.0%} of the time"
        f"{reports}",
        evidence=_evidence(window, first, lost, period, wait),
        advice=_advice(window, wait),
        # The pattern is certain; that it is the loader is only the likeliest reading.
        strength=0.75 * clear,
        missing=() if window.job is not None else ("the job's processes",),
        gpus=keys(gpus),
        lost_share=lost,
    )


def _evidence(
    window: Window, wave: Waveform, lost: float, period: float | None, wait: float | None
) -> list[Evidence | None]:
    rate = mean([gpu.pcie_rx_idle_bytes_per_second for gpu in window.gpus])
    much = (rate or 0.0) >= IDLE_TRAFFIC_BYTES_PER_SECOND
    copies = "batches are copied then: unpinned memory"
    copies = copies if much else "the wait comes before the copy"
    by_job = "reported by the job" + ("" if (wait or 0.0) >= FED_SHARE else ": not the loader")
    runs, each = float(wave.idle.count), lasting(wave.idle.mean_seconds or 0.0)
    return [
        Evidence("idle", percent_of(lost), "%", percent_of(IDLE_SHARE),
                 "of the time no kernel ran"),
        Evidence("lowest samples (5%)", round(wave.low_percent, 1), "%", 15.0, "it drops to idle"),
        Evidence("highest samples (5%)", round(wave.high_percent, 1), "%", 70.0,
                 "and up to full work: the GPU could do more"),
        Evidence("idle runs", runs, None, float(LEAST_RUNS),
                 f"of {each} each, seen in {lasting(wave.seconds)}"),
        None if period is None else
        Evidence("period", round(period, 2), "s", says="it is periodic"),
        None if rate is None else
        Evidence("host to GPU while it idles", round(rate), "bytes/s",
                 IDLE_TRAFFIC_BYTES_PER_SECOND, copies, supports=much),
        None if wait is None else
        Evidence("waits for data", percent_of(wait), "% of the time", percent_of(STARVED_SHARE),
                 by_job, supports=wait >= STARVED_SHARE),
    ]  # fmt: skip


def _advice(window: Window, wait: float | None) -> tuple[Advice, ...]:
    decide = (
        "Run gpuwatch beside the job (or gpuwatch diagnose --pid): the CPU of its main thread and "
        "workers shows which."
        if window.job is None
        else "Take stacks of the main thread (gpuwatch diagnose --stacks) to see what it waits for."
    )
    if wait is not None and wait < FED_SHARE:
        return (Advice(decide, why="the job has its data in time: it waits elsewhere"),)
    return (*RULE.cure, Advice(decide, why="seen from the GPU alone, the causes look the same"))
