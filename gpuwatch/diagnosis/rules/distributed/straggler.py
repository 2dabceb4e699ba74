"""One rank of a job works longer than the others, and they wait for it.

What it checks
    Whether all GPUs of a job are busy all the time and one of them does clearly more work than its
    siblings (SM activity, the memory controller, or power), or runs at a lower clock than they do.

Why it matters
    Data-parallel ranks meet at every step: all of them run at the pace of the slowest. The others
    spin in a collective meanwhile and show 99%.

Evidence needed
    Two GPUs or more of one model in one job, with SM activity or power; clocks, links and the
    ranks' CPU readings to show why that one is slow.

When it is wrong
    Where the ranks' shares are unequal by design (pipeline stages, a GPU that also evaluates), the
    imbalance is real but intended. Power differs by a few percent between cards of one model.

What to do
    A slower clock: check the card's cooling and power. The same clock: its share of the data is
    more work (sequences of different lengths): bucket by length, balance the sampler, or move what
    only that rank does.

Thresholds
    all GPUs busy 85% of the time: drivers show 95 to 100% for kernels back to back, and a job that
    logs or saves now and then some points less.

    others' SM activity 90% or less of the odd one's: ranks that do the same agree better. Else the
    memory controller's time 90% or less, if the busiest shows 8% or more: NVML gives whole
    percents, and spinning leaves it alone. Else power 80% or less: it differs from card to card by
    up to a tenth, and spinning draws some.

    clock 94% or less of the others' median: two or three steps of 15 MHz are the silicon lottery.
    What the odd rank does meanwhile: see collective_wait. All are this project's choice,
    those of work set on the labelled cases in tests/evaluation. SageMaker's LoadBalancing compares
    histograms of utilisation, in which ranks that spin look busy.

Sources
    The Llama 3 report (Meta, 2024) describes single slow GPUs that hold up all others of a run.
    NVML, utilization.memory (the time in which memory was read or written, in whole percent).
    SageMaker Debugger, LoadBalancing.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.gpus import PINNED_PERCENT, named, ramp, who, works
from gpuwatch.diagnosis.rules.shared.late_rank import doing_of

LESS_SM = 0.9
"""SM activity of the others over the odd one's: ranks that do the same agree better."""
LESS_POWER = 0.8
"""Of power, which differs from card to card by up to a tenth and counts spinning as work."""
LESS_CONTROLLER = 0.9
"""Of the time the memory controller works, which spinning leaves alone."""
LEAST_CONTROLLER_PERCENT = 8.0
"""It is given in whole percent: below, a tenth of it is rounding."""
LOWER_CLOCK = 0.94
"""Of the others' clock while busy: two or three steps of 15 MHz are the lottery of the silicon."""

SYMPTOMS = frozenset({"busy_without_work", "batch_too_small", "oscillation"})


def check(window: Window) -> Verdict:
    if window.job is None:
        return Unknown(("the job's processes",))
    present = works(window.gpus)
    if not present:
        return Unknown(("the GPUs' utilisation",))
    out_of_question = _not_comparable(window, present)
    if out_of_question:
        return Clear(out_of_question)
    slow = _slow_clock(present)
    if slow is not None:
        return _by_clock(window, present, slow)
    measure = _measure(present)
    if measure is None:
        return Unknown(("SM activity", "power"))
    odd = _most_at_work(present, *measure)
    return Clear("its GPUs do the same work") if odd is None else _by_work(window, present, odd)


def _not_comparable(window: Window, gpus: list[GpuFacts]) -> str | None:
    if len(gpus) < 2:
        return "a single GPU has none to compare with"
    if window.starting:
        return "the job is starting"
    if any(gpu.busy is None or gpu.busy.mean_percent < PINNED_PERCENT for gpu in gpus):
        return "not all of its GPUs are busy all the time"
    if len({gpu.identity.name for gpu in gpus}) > 1:
        return "its GPUs are of different models"
    return None


def _sm(gpu: GpuFacts) -> float | None:
    return gpu.sm_active_percent


def _power(gpu: GpuFacts) -> float | None:
    return gpu.power_mean_watts


_Measure = tuple[Callable[[GpuFacts], float | None], float]
_SM: _Measure = (_sm, LESS_SM)
_POWER: _Measure = (_power, LESS_POWER)


def _controller(gpu: GpuFacts) -> float | None:
    return gpu.memory_controller_percent


_CONTROLLER: _Measure = (_controller, LESS_CONTROLLER)


def _measure(gpus: list[GpuFacts]) -> _Measure | None:
    """The best one that all have: spinning counts as nothing, little, or a good part of work."""
    if _complete(gpus, _SM):
        return _SM
    least = max([gpu.memory_controller_percent or 0.0 for gpu in gpus])
    if _complete(gpus, _CONTROLLER) and least >= LEAST_CONTROLLER_PERCENT:
        return _CONTROLLER
    return _POWER if _complete(gpus, _POWER) else None


def _complete(gpus: list[GpuFacts], measure: _Measure) -> bool:
    return all(measure[0](gpu) is not None for gpu in gpus)


def _slow_clock(gpus: list[GpuFacts]) -> GpuFacts | None:
    clocks = [gpu.sm_clock_busy_mhz for gpu in gpus]
    known = [clock for clock in clocks if clock is not None]
    if len(known) < len(gpus):
        return None
    slowest = min(gpus, key=lambda gpu: gpu.sm_clock_busy_mhz or 0.0)
    others = median([gpu.sm_clock_busy_mhz or 0.0 for gpu in gpus if gpu is not slowest])
    return slowest if (slowest.sm_clock_busy_mhz or 0.0) <= LOWER_CLOCK * others else None


def _most_at_work(
    gpus: list[GpuFacts], measure: Callable[[GpuFacts], float | None], less: float
) -> GpuFacts | None:
    """The one GPU that does clearly more than the next one does."""
    ordered = sorted(gpus, key=lambda gpu: measure(gpu) or 0.0, reverse=True)
    most, second = measure(ordered[0]) or 0.0, measure(ordered[1]) or 0.0
    return ordered[0] if most > 0.0 and second <= less * most else None


def _others(gpus: list[GpuFacts], odd: GpuFacts) -> list[GpuFacts]:
    return [gpu for gpu in gpus if gpu is not odd]


def _lost(gpus: list[GpuFacts], odd: GpuFacts) -> float:
    """0 to 1: of the others' time. With power alone it is a lower bound: spinning draws some."""
    measure = _measure(gpus) or _POWER
    own = measure[0](odd) or 0.0
    theirs = median([measure[0](gpu) or 0.0 for gpu in _others(gpus, odd)])
    return max(0.0, 1.0 - theirs / own) if own > 0.0 else 0.0


def _by_work(window: Window, gpus: list[GpuFacts], odd: GpuFacts) -> Firing:
    lost = _lost(gpus, odd)
    by_sm = _complete(gpus, _SM)
    surely = 0.75 if by_sm else 0.7 if _measure(gpus) is _CONTROLLER else 0.6
    others = _others(gpus, odd)
    doing = doing_of(window, odd)
    why = f" ({doing.says})" if doing.known else ""
    return Firing(
        summary=f"{named(others)} {'waits' if len(others) == 1 else 'wait'} for "
        f"{who(window, odd)}, which has more to do: {100 * lost:.0f}% of their time{why}",
        evidence=(*_evidence(gpus, odd), *doing.evidence),
        advice=(
            Advice(
                action="Balance the work of the ranks: bucket samples by length, give each the "
                "same share, and move what only that rank does elsewhere.",
                why="each step lasts as long as its slowest rank takes",
            ),
            *(doing.advice if doing.known else ()),
        ),
        strength=surely + 0.25 * ramp(lost, 1.0 - LESS_SM, 0.4),
        missing=() if by_sm else ("SM activity",),
        gpus=(odd.uuid, *[gpu.uuid for gpu in others]),
        lost_share=lost * len(others) / len(gpus),
        explains=SYMPTOMS,
    )


def _by_clock(window: Window, gpus: list[GpuFacts], odd: GpuFacts) -> Firing:
    others = _others(gpus, odd)
    own = odd.sm_clock_busy_mhz or 0.0
    theirs = median([gpu.sm_clock_busy_mhz or 0.0 for gpu in others])
    lost = 1.0 - own / theirs
    return Firing(
        summary=f"{who(window, odd)[:1].upper()}{who(window, odd)[1:]} runs at {own:.0f} MHz, "
        f"the others at {theirs:.0f} MHz: they wait for it",
        evidence=_evidence(gpus, odd),
        advice=(
            Advice(
                action=f"Look at the cooling, the power limit and the clock settings of "
                f"{named([odd])} (nvidia-smi -q -d PERFORMANCE,CLOCK).",
                why="each step lasts as long as its slowest rank takes",
            ),
        ),
        strength=0.7 + 0.3 * ramp(lost, 1.0 - LOWER_CLOCK, 0.2),
        gpus=(odd.uuid, *[gpu.uuid for gpu in others]),
        lost_share=lost,
        explains=SYMPTOMS,
    )


def _evidence(gpus: list[GpuFacts], odd: GpuFacts) -> tuple[Evidence, ...]:
    others = _others(gpus, odd)
    rows: tuple[tuple[str, str, Callable[[GpuFacts], float | None]], ...] = (
        ("SM activity", "%", _sm),
        ("memory controller", "%", _controller),
        ("power", "W", _power),
        ("SM clock while busy", "MHz", lambda gpu: gpu.sm_clock_busy_mhz),
        ("highest temperature", "C", lambda gpu: gpu.temperature_highest_celsius),
        ("PCIe generation under load", "", lambda gpu: gpu.pcie_generation_busy),
        ("PCIe lanes under load", "", lambda gpu: gpu.pcie_width_busy),
    )
    out = []
    for name, unit, read in rows:
        theirs = [value for gpu in others if (value := read(gpu)) is not None]
        own = read(odd)
        out.append(
            Evidence(
                name=f"{named([odd])} {name}",
                value=None if own is None else round(own, 1),
                unit=unit or None,
                threshold=round(median(theirs), 1) if theirs else None,
                says="against the others",
                supports=own is not None and bool(theirs) and _differs(own, median(theirs)),
            )
        )
    return tuple(out)


def _differs(own: float, theirs: float) -> bool:
    return abs(own - theirs) > 0.06 * max(abs(own), abs(theirs))
