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

from gpuwatch.diagnosis.facts.window import GpuFacts, RankFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import (
    idle_share,
    is_others,
    is_swinging,
    pause_share,
    percent_of,
    strength,
    too_early,
)
from gpuwatch.diagnosis.rules.shared.gpus import lasting, mean, named, ramp
from gpuwatch.diagnosis.rules.shared.reported import FED_SHARE, STARVED_SHARE, told_wait
from gpuwatch.diagnosis.signals.waveform import Waveform

IDLE_SHARE = 0.15
"""Of the time: between what TensorFlow's profiler calls moderately (5%) and highly (20%)
input-bound."""

LEAST_RUNS = 5
"""Idle runs in the window: a rhythm, not an event."""

LONGEST_IDLE_SECONDS = 15.0
"""Longer waits are pauses (saves, validation), or a job that does something else."""

MIDDLING_SHARE = 0.5
"""Of the samples: with more than this between both ends, a swing and a steady half are alike."""


def check(window: Window) -> Verdict:
    early = too_early(window)
    if early is not None:
        return early
    waves = [(gpu, gpu.busy) for gpu in window.gpus if gpu.busy is not None and not gpu.lost]
    if not waves:
        return Unknown(missing=("the GPUs' utilisation",))
    if window.job is not None:
        waves = [(gpu, wave) for gpu, wave in waves if not is_others(gpu)]
    if not waves:
        return Clear(why="only others use its GPUs now")
    idle = [(gpu, wave) for gpu, wave in waves if _idles(window, gpu, wave) >= IDLE_SHARE]
    if not idle:
        return Clear(why="the GPUs idle for less than 15% of the time")
    swinging = [(gpu, wave) for gpu, wave in idle if _oscillates(wave)]
    if swinging:
        return _firing(window, swinging)
    return _not_seen([wave for _, wave in idle])


def _idles(window: Window, gpu: GpuFacts, wave: Waveform) -> float:
    """0 to 1: the share of the time it idles outside pauses."""
    return idle_share(wave) - pause_share(window, gpu.uuid)


def _oscillates(wave: Waveform) -> bool:
    runs = wave.idle
    in_bursts = runs.mean_seconds is not None and runs.mean_seconds <= LONGEST_IDLE_SECONDS
    return is_swinging(wave) and runs.count >= LEAST_RUNS and in_bursts


def _not_seen(waves: list[Waveform]) -> Verdict:
    too_fast = [
        wave for wave in waves if wave.faster_than_seen or wave.middling_share >= MIDDLING_SHARE
    ]
    slow = max((wave.sample_seconds for wave in too_fast), default=0.0)
    if too_fast and slow > 0.3:
        return Unknown(missing=(f"GPU samples finer than {slow:.1g} s",))
    return Clear(why="the GPUs idle, but not in bursts")


def _firing(window: Window, swinging: list[tuple[GpuFacts, Waveform]]) -> Firing:
    gpus = tuple([gpu for gpu, _ in swinging])
    waves = [wave for _, wave in swinging]
    lost = sum(_idles(window, gpu, wave) for gpu, wave in swinging) / len(waves)
    period = mean([wave.period_seconds for wave in waves])
    every = "" if period is None else f" every {lasting(period)}"
    missing = () if window.job is not None else ("the job's processes",)
    first = waves[0]
    ranks = _ranks(window, gpus)
    wait = told_wait(ranks)
    told = "" if wait is None else f"; the job reports waiting for data {wait:.0%} of the time"
    return Firing(
        summary=f"{named(gpus)} {'goes' if len(gpus) == 1 else 'go'} from {first.low_percent:.0f}% "
        f"to {first.high_percent:.0f}% and back{every}, without work {lost:.0%} of the time{told}",
        evidence=(*_evidence(window, first, lost, period), *_told(wait)),
        advice=_advice(window, wait),
        # The pattern is certain; that it is the loader is only the likeliest reading.
        strength=0.75
        * strength(
            ramp(lost, IDLE_SHARE - 0.05, 0.4),
            ramp(first.idle.count, LEAST_RUNS - 1.0, 15.0),
            1.0 if period is not None else 0.3,
        ),
        missing=missing,
        gpus=tuple([gpu.uuid for gpu in gpus]),
        lost_share=lost,
    )


def _evidence(window: Window, wave: Waveform, lost: float, period: float | None) -> list[Evidence]:
    evidence = [
        Evidence(
            name="idle",
            value=percent_of(lost),
            unit="%",
            threshold=percent_of(IDLE_SHARE),
            says="of the time no kernel ran",
        ),
        Evidence(
            name="lowest samples (5%)",
            value=round(wave.low_percent, 1),
            unit="%",
            threshold=15.0,
            says="it drops to idle",
        ),
        Evidence(
            name="highest samples (5%)",
            value=round(wave.high_percent, 1),
            unit="%",
            threshold=70.0,
            says="and up to full work: the GPU could do more",
        ),
        Evidence(
            name="idle runs",
            value=float(wave.idle.count),
            threshold=float(LEAST_RUNS),
            says=f"of {lasting(wave.idle.mean_seconds or 0.0)} each, seen in "
            f"{lasting(wave.seconds)}",
        ),
    ]
    if period is not None:
        evidence.append(
            Evidence(name="period", value=round(period, 2), unit="s", says="it is periodic")
        )
    return evidence + _copies(window)


def _copies(window: Window) -> list[Evidence]:
    rate = mean([gpu.pcie_rx_idle_bytes_per_second for gpu in window.gpus])
    if rate is None:
        return []
    much = rate >= 0.5e9
    return [
        Evidence(
            name="host to GPU while it idles",
            value=round(rate),
            unit="bytes/s",
            threshold=0.5e9,
            says="batches are copied then: unpinned memory"
            if much
            else "the wait comes before the copy",
            supports=much,
        )
    ]


def _ranks(window: Window, gpus: tuple[GpuFacts, ...]) -> tuple[RankFacts, ...]:
    """Those that drive these GPUs."""
    if window.job is None:
        return ()
    keys = {gpu.uuid for gpu in gpus}
    found = [rank for rank in window.job.ranks if keys.intersection(rank.gpu_uuids)]
    return tuple(found) or window.job.ranks


def _told(wait: float | None) -> list[Evidence]:
    if wait is None:
        return []
    return [
        Evidence(
            name="waits for data",
            value=percent_of(wait),
            unit="% of the time",
            threshold=percent_of(STARVED_SHARE),
            says="reported by the job"
            if wait >= FED_SHARE
            else "reported by the job: not the loader",
            supports=wait >= STARVED_SHARE,
        )
    ]


def _advice(window: Window, wait: float | None) -> tuple[Advice, ...]:
    decide = (
        "Run gpuwatch beside the job (or gpuwatch diagnose --pid): the CPU of its main thread and "
        "workers shows which."
        if window.job is None
        else "Take stacks of the main thread (gpuwatch diagnose --stacks) to see what it waits for."
    )
    if wait is not None and wait < FED_SHARE:
        return (Advice(action=decide, why="the job has its data in time: it waits elsewhere"),)
    return (
        Advice(
            action="Raise num_workers of the DataLoader (its default is 0), up to the cores of a "
            "rank less one.",
            setting="num_workers",
            why="a loader that cannot keep up is the most common cause of this pattern",
        ),
        Advice(
            action="Set pin_memory=True and copy with non_blocking=True.",
            setting="pin_memory",
            wanted="True",
            why="otherwise each copy to the GPU delays it",
        ),
        Advice(action=decide, why="seen from the GPU alone, the causes look the same"),
    )
