"""One rank of a job works longer than the others, and they wait for it.

What it checks
    Whether all GPUs of a job are busy all the time and one of them does clearly more work than its
    siblings (SM activity, the memory controller, or power), or runs at a lower clock than they do.

Why it matters
    Data-parallel ranks meet at every step: all run at the pace of the slowest, spin and show 99%.

Evidence needed
    Two GPUs or more of one model in one job, with SM activity or power; clocks, links and the
    ranks' CPU show why that one is slow. Where no process is known: GPUs whose load rises and falls
    together, or four or more whose memory is alike and less than 70% of the card (JAX holds more).

When it is wrong
    Where the ranks' shares are unequal by design (pipeline stages, a GPU that also evaluates), the
    imbalance is real but intended. Power differs by a few percent between cards of one model.

What to do
    A slower clock: check the card's cooling and power. The same clock: its share is more work
    (longer sequences): bucket by length, balance the sampler, or move extra work (logging, metrics)
    off the slow rank.

Thresholds
    all GPUs busy 85% of the time: see busy_without_work. Others' SM activity 90% or less of the odd
    one's: ranks that do the same agree better. Else the memory controller's time 90% or less, if
    the busiest shows 8% or more (NVML gives whole percents). Else power 80% or less: it differs
    from card to card by up to a tenth, and spinning draws some.

    Where memory alone makes GPUs look like one job: the others within 85% of the highest of them.

    clock 94% or less of the others' median: two or three steps of 15 MHz are the silicon lottery.
    What the odd rank does: see collective_wait. All are this project's choice (tests/evaluation).

Sources
    The Llama 3 report (Meta, 2024) describes single slow GPUs that hold up all others of a run.
    NVML, utilization.memory. SageMaker Debugger, LoadBalancing, compares utilisation, in which
    ranks that spin look busy.
"""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import WAITING, Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loading, ranks
from gpuwatch.diagnosis.rules.shared.words import (
    briefly,
    clear_if,
    in_percent,
    keys,
    named,
    ramp,
    required,
    unknown_if,
    verb,
)
from gpuwatch.diagnosis.sentence import number

RULE = Rule(
    title="one rank is slower",
    means=WAITING,
    gives_back="some",
    explains={"busy_without_work", "batch_too_small", "oscillation"},
    lost_while_busy=True,
    charts=("power_watts",),
)
LESS_SM = 0.9  # of the odd one's, here and below
LESS_POWER = 0.8
LESS_CONTROLLER = 0.9
LEAST_CONTROLLER_PERCENT = 8.0
LOWER_CLOCK = 0.94  # of the others'
ALIKE = 0.85  # of the second
DIFFERENT = 0.06
"""Share of the larger: readings that are less apart do not show which rank is slower."""

_BALANCE = Advice(
    "Balance the work of the ranks: bucket samples by length, give each the same share, and move "
    "extra work, such as logging and metrics, off the slow rank.",
    brief="Balance the ranks: bucket samples by length",
    why="each step lasts as long as its slowest rank takes",
)
_Read = Callable[[GpuFacts], float | None]
_SHOWN: tuple[tuple[str, str | None, _Read], ...] = (
    ("SM activity", "%", lambda gpu: gpu.sm_active_percent),
    ("memory controller", "%", lambda gpu: gpu.memory_controller_percent),
    ("power", "W", lambda gpu: gpu.power_mean_watts),
    ("SM clock while busy", "MHz", lambda gpu: gpu.sm_clock_busy_mhz),
    ("highest temperature", "C", lambda gpu: gpu.temperature_highest_celsius),
)


def check(window: Window) -> Verdict:
    gpus = ranks.ranks_of(window)
    rests = any((gpu.busy_percent or 0.0) < cards.PINNED_PERCENT for gpu in gpus)
    clear_if(rests, "not all of its GPUs are busy all the time")
    clear_if(len({gpu.identity.name for gpu in gpus}) > 1, "its GPUs are of different models")
    unknown_if(not ranks.are_one_job(window, gpus), *loading.NO_JOB)
    # Of separate jobs, one on a slow card holds up no other.
    by_clock = _by_clock(window, gpus) if ranks.is_sure(window) else None
    return by_clock or _by_work(window, gpus)


def _by_clock(window: Window, gpus: list[GpuFacts]) -> Firing | None:
    clocks = [clock for gpu in gpus if (clock := gpu.sm_clock_busy_mhz) is not None]
    if len(clocks) < len(gpus):
        return None
    own = min(clocks)
    odd = gpus[clocks.index(own)]
    others = [gpu for gpu in gpus if gpu is not odd]
    theirs = median([gpu.sm_clock_busy_mhz or 0.0 for gpu in others])
    if own > LOWER_CLOCK * theirs:
        return None
    lost, slower = 1.0 - own / theirs, cards.who(window, odd)
    speeds = f"{number(own)} MHz, the others, at {number(theirs)}"
    settings = Advice(
        f"Look at the cooling, the power limit and the clocks of {named([odd])} "
        "(nvidia-smi -q -d PERFORMANCE,CLOCK).",
        brief="Look at its cooling, power limit and clocks",
        why=_BALANCE.why,
    )
    return Firing(
        summary=f"{slower[:1].upper()}{slower[1:]} runs at {number(own)} MHz, the others at "
        f"{number(theirs)} MHz: they wait for it{ranks.looks(window)}",
        short=(
            f"{cards.who_briefly(window, odd)} runs at {speeds} MHz, wait for it",
            f"Others wait for {briefly([odd])} ({number(own)} MHz)",
        ),
        evidence=(*_evidence(odd, others), ranks.likeness(window, gpus)),
        advice=(settings,),
        strength=0.7 + 0.3 * ramp(lost, 1.0 - LOWER_CLOCK, 0.2),
        gpus=keys([odd, *others]),
        late=keys([odd]),
        lost_share=lost,
        wait_share=lost,
    )


class _Measure(NamedTuple):
    """A reading of work; ``less`` is the share of the odd one's that the others may have."""

    read: _Read
    less: float
    strength: float
    least: float = 0.0
    """Least value of the highest, for the readings to mean something."""


# The best first: spinning counts as nothing, little, or a good part of work.
_MEASURES = (
    _Measure(_SHOWN[0][2], LESS_SM, 0.75),
    _Measure(_SHOWN[1][2], LESS_CONTROLLER, 0.7, LEAST_CONTROLLER_PERCENT),
    _Measure(_SHOWN[2][2], LESS_POWER, 0.6),
)


def _measured(gpus: list[GpuFacts]) -> tuple[_Measure, list[float]] | None:
    """Return the best measure that all of them have, and what it reads of each."""
    for measure in _MEASURES:
        values = [value for gpu in gpus if (value := measure.read(gpu)) is not None]
        if len(values) == len(gpus) and max(values) >= measure.least:
            return measure, values
    return None


def _by_work(window: Window, gpus: list[GpuFacts]) -> Firing:
    """Find the slow rank by the best measure that all GPUs have. With power alone the loss is a
    lower bound."""
    measure, values = required(_measured(gpus), "SM activity", "power")
    most, second = sorted(values, reverse=True)[:2]
    clear_if(most <= 0.0 or second > measure.less * most, "its GPUs do the same work")
    odd = gpus[values.index(most)]
    others = [gpu for gpu in gpus if gpu is not odd]
    theirs, sure = [measure.read(gpu) or 0.0 for gpu in others], ranks.is_sure(window)
    unknown_if(not sure and min(theirs) < ALIKE * second, *loading.NO_JOB)
    lost, doing = max(0.0, 1.0 - median(theirs) / most), ranks.work_of_late_rank(window, odd)
    why, cure = (f" ({doing.says})", doing.advice) if doing.known else ("", ())
    guess = ", if these GPUs run one job, as their memory makes it look"
    strength = measure.strength + 0.25 * ramp(lost, 1.0 - LESS_SM, 0.4)
    return Firing(
        summary=f"{named(others)} {verb(others, 'spends', 'spend')} {in_percent(lost)} of the time "
        f"waiting for {cards.who(window, odd)}, which has more to do{why}"
        f"{ranks.looks(window) if sure else guess}",
        short=ranks.waits_briefly(window, others, odd, lost, ", which has more to do"),
        evidence=(*_evidence(odd, others), *doing.evidence, ranks.likeness(window, gpus)),
        advice=(_BALANCE, *cure),
        strength=strength - 0.15 * (window.job is None) - 0.15 * (not sure),
        missing=() if measure is _MEASURES[0] else ("SM activity",),
        gpus=keys([odd, *others]),
        late=keys([odd]),
        lost_share=lost * len(others) / len(gpus),
        wait_share=lost,
    )


def _evidence(odd: GpuFacts, others: list[GpuFacts]) -> list[Evidence]:
    rows = []
    for name, unit, read in _SHOWN:
        known, own = [value for gpu in others if (value := read(gpu)) is not None], read(odd)
        theirs, apart = median(known) if known else None, False
        if own is not None and theirs is not None:
            apart = abs(own - theirs) > DIFFERENT * max(abs(own), abs(theirs))
        says = "against the others"
        rows.append(Evidence(f"{named([odd])} {name}", own, unit, theirs, says, supports=apart))
    return rows
