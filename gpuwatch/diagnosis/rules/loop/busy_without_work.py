"""A GPU is "100% busy" and does little.

What it checks
    Whether a GPU that is busy all the time has a low SM activity (Hopper and later) or draws little
    of its power limit, or far less than the same job drew before.

Why it matters
    "Utilisation" counts the time in which at least one kernel was resident, even one block on one
    of 132 multiprocessors. Two things look like that: kernels too small to fill the card, and
    kernels that wait: a collective that spins for another rank, or a job that hangs in one.

Evidence needed
    The busy share, and SM activity or power with its limit. With both the case is clear; with power
    alone the threshold is lower and the finding less certain.

When it is wrong
    Work bound by memory bandwidth (decoding tokens, embeddings) draws less power and is not at
    fault; its DRAM activity is shown. Power also depends on the data: zeros draw less than noise.

What to do
    Profile one step. Many small kernels: a larger batch, torch.compile, CUDA graphs, fused
    optimizers. A wait: look at the other ranks (gpuwatch stacks shows which one is elsewhere).

Thresholds
    busy 85% of the time: drivers show 95 to 100% for kernels back to back, and a job that logs or
    saves now and then some points less. All GPUs of the job, since otherwise the busy ones wait
    for the idle ones.

    SM activity below 50% while busy: DCGM calls that likely ineffective. Power must be below 60% of
    its limit too: few active multiprocessors do not draw more. The lost share is counted from 80%,
    which DCGM calls necessary for effective use (without SM activity, from 60% of the power limit).

    Where SM activity does not exist: power below 35% of the limit, since work bound by memory
    bandwidth can stay near 40%; below 40% where the memory controller works 10% of the time or
    less, which rules that out. From 40% of the time on power is no evidence. Below 28% of the limit
    nothing works hard, whatever the activities say: a waiting warp counts as active. DRAM
    activity of 50% or more is work bound by bandwidth (DCGM: some 80% is the most that is reached).

    power 1.6 times as high at this job's plateau (95th percentile since watched), and 1.3 times as
    high for a quarter of the time: it waits. For 45 s: most evaluations are over by then. Power
    shares are this project's choice, set on the labelled cases in tests/evaluation.

Sources
    NVML: utilization.gpu is the "percent of time over the past sample period during which one or
    more kernels was executing"; DCGM's guidance on SM activity (0.8 or more for effective use,
    below 0.5 likely ineffective) and on memory bandwidth (a peak of about 0.8).
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.effort import (
    BANDWIDTH_PERCENT,
    FORMER_PLATEAU,
    LOW_SM_PERCENT,
    clearness,
    is_bandwidth_bound,
    little_work,
    little_work_share,
    power_when_busy,
    sm_when_busy,
    unused,
    waits_now,
)
from gpuwatch.diagnosis.rules.shared.gpus import PINNED_PERCENT, highest, named, verb, works

OTHER_WORK_SECONDS = 45.0
"""A GPU that drew much more before may be evaluating: with the minute that the window reaches back,
most evaluations are over by then."""


def check(window: Window) -> Verdict:
    present = works(window.gpus)
    if not present:
        return Unknown(("the GPUs' utilisation",))
    if window.starting:
        return Clear("the job is starting")
    pinned = [gpu for gpu in present if _is_pinned(gpu)]
    if len(pinned) < len(present):
        # Those that are busy wait for those that idle, which other rules look at.
        return Clear("not all of its GPUs are busy all the time")
    idling = [
        gpu
        for gpu in pinned
        if (little_work(gpu) or waits_now(gpu)) and not is_bandwidth_bound(gpu)
    ]
    if idling:
        return _firing(idling)
    if any(little_work(gpu) is None for gpu in pinned):
        return Unknown(("SM activity", "power and its limit"))
    return Clear("it works while it is busy")


def _is_pinned(gpu: GpuFacts) -> bool:
    return gpu.busy is not None and gpu.busy.mean_percent >= PINNED_PERCENT


def _firing(gpus: list[GpuFacts]) -> Firing:
    waiting = all(waits_now(gpu) for gpu in gpus)
    return Firing(
        summary=_summary(gpus, waiting),
        evidence=tuple([item for gpu in gpus for item in _evidence(gpu)]),
        advice=(_WAITS if waiting else _SMALL,),
        strength=0.8 if waiting else 0.4 + 0.4 * max(clearness(gpu) for gpu in gpus),
        missing=_missing(gpus),
        gpus=tuple([gpu.uuid for gpu in gpus]),
        lost_share=highest([unused(gpu) for gpu in gpus]),
        hold_seconds=OTHER_WORK_SECONDS if any(waits_now(gpu) for gpu in gpus) else 0.0,
    )


_WAITS = Advice(
    action="Look at the other ranks: one of them is late, or hangs; gpuwatch stacks shows where "
    "each one stands.",
    why="a collective that spins for another rank looks busy and draws little power",
)
_SMALL = Advice(
    action="Profile one step: a larger batch, torch.compile or CUDA graphs where kernels are "
    "small; where one rank is late, look at that rank.",
    why="a resident kernel counts as busy, however little of the GPU it uses",
)


def _summary(gpus: list[GpuFacts], waiting: bool) -> str:
    busy = max(gpu.busy.mean_percent for gpu in gpus if gpu.busy is not None)
    power = highest([power_when_busy(gpu) for gpu in gpus])
    names, is_ = named(gpus), verb(gpus, "is", "are")
    if waiting:
        plateau = highest([gpu.power_plateau_watts for gpu in gpus]) or 0.0
        return (
            f"{names} {is_} {busy:.0f}% busy at {power or 0.0:.0f} W, after {plateau:.0f} W "
            f"before: {verb(gpus, 'it waits', 'they wait')} and {verb(gpus, 'does', 'do')} no work"
        )
    sm = highest([sm_when_busy(gpu) for gpu in gpus])
    at = "" if power is None else f" at {power:.0f} W"
    if sm is not None:
        at += f" with {sm:.0f}% of its multiprocessors active"
    return f"{names} {is_} {busy:.0f}% busy{at}: little work is done in that time"


def _missing(gpus: list[GpuFacts]) -> tuple[str, ...]:
    names = {
        "SM activity": any(sm_when_busy(gpu) is None for gpu in gpus),
        "power": any(power_when_busy(gpu) is None for gpu in gpus),
        "the power limit": any(gpu.power_limit_watts is None for gpu in gpus),
    }
    return tuple([name for name, absent in names.items() if absent])


def _evidence(gpu: GpuFacts) -> list[Evidence]:
    name = named([gpu])
    sm = sm_when_busy(gpu)
    power, limit, plateau = power_when_busy(gpu), gpu.power_limit_watts, gpu.power_plateau_watts
    return [
        Evidence(
            name=f"{name} busy",
            value=None if gpu.busy is None else round(gpu.busy.mean_percent, 1),
            unit="%",
            threshold=PINNED_PERCENT,
        ),
        Evidence(
            name=f"{name} SM activity while busy",
            value=None if sm is None else round(sm, 1),
            unit="%",
            threshold=LOW_SM_PERCENT,
            supports=sm is not None and sm < LOW_SM_PERCENT,
        ),
        Evidence(
            name=f"{name} power while busy",
            value=None if power is None else round(power, 1),
            unit="W",
            threshold=None if limit is None else little_work_share(gpu) * limit,
            supports=power is not None
            and limit is not None
            and power < little_work_share(gpu) * limit,
        ),
        Evidence(
            name=f"{name} power of this job at its best",
            value=plateau,
            unit="W",
            threshold=None if power is None else FORMER_PLATEAU * power,
            supports=waits_now(gpu),
        ),
        Evidence(
            name=f"{name} DRAM activity",
            value=gpu.dram_active_percent,
            unit="%",
            threshold=BANDWIDTH_PERCENT,
            says="below this it is not bound by memory bandwidth",
            supports=gpu.dram_active_percent is not None,
        ),
    ]
