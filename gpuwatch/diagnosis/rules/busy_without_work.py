"""A GPU is "100% busy" and does little.

What it checks
    Whether a GPU that is busy all the time has low SM activity (Hopper and later), or draws little
    power for its limit, or far less than the same job drew before.

Why it matters
    "Utilisation" counts the time in which a kernel was resident, even one block on one of 132
    multiprocessors: the kernels may be too small to fill the card, or one spins in a collective.

Evidence needed
    The busy share, and SM activity or power with its limit. With power alone the threshold is lower
    and the finding less certain.

When it is wrong
    Work bound by memory bandwidth (decoding tokens, embeddings) draws less power and is not at
    fault; its DRAM activity is shown. Power also depends on the data: zeros draw less than noise.

What to do
    Profile one step. Many small kernels: a larger batch, torch.compile, CUDA graphs, fused
    optimizers. A wait: look at the other ranks (gpuwatch diagnose --stacks): one may be late.

Thresholds
    busy 85% of the time: drivers show 95 to 100% for kernels back to back, and a job that logs or
    saves now and then some points less. On all GPUs of the job: otherwise the busy ones wait for
    the idle ones.

    SM activity below 50% while busy, which DCGM calls likely ineffective, and power below 60% of
    its limit: few active multiprocessors do not draw more. From 50% on the activity must be lower
    in proportion. The lost share is counted from 80%, which DCGM calls necessary for effective use
    (without SM activity, from 60% of the power limit).

    Without SM activity: power below 35% of the limit, since work bound by memory bandwidth can stay
    near 40%; below 40% where the memory controller works 10% of the time or less; with a controller
    that works 40% of the time power is no evidence. Below 28% nothing works hard, whatever the
    activities say: a waiting warp counts as active. DRAM activity of 50% or more is work bound by
    bandwidth (DCGM: some 80% is the most that is reached).

    power 1.6 times as high at this job's plateau (95th percentile since watched), and 1.3 times as
    high for a quarter of the time: it waits. For 45 s: most evaluations are over by then; for 90 s
    where several ranks and 10 MB/s sent may show that they wait for the network. Power shares are
    this project's choice, set on the labelled cases in tests/evaluation.

Sources
    NVML: utilization.gpu is the "percent of time over the past sample period during which one or
    more kernels was executing". DCGM's guidance on SM activity and on memory bandwidth.
"""

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import (
    UNDERUSED,
    Advice,
    Clear,
    Evidence,
    Firing,
    Rule,
    Verdict,
    Window,
)
from gpuwatch.diagnosis.rules.shared import cards, words
from gpuwatch.diagnosis.rules.shared.words import clear_if, highest, unknown_if
from gpuwatch.diagnosis.sentence import GPUS, IS, either, number

RULE = Rule(
    title="busy without work",
    means=UNDERUSED,
    # Many causes look like that.
    trust=0.80,
    lost_while_busy=True,
    charts=("power_watts",),
)
OTHER_WORK_SECONDS = 45.0
SENDS_BYTES_PER_SECOND = 10e6
"""As of collective_wait: logs and monitors send less."""
NETWORK_SECONDS = 90.0
"""Time a job that exchanges over the network is watched first: collective_wait, which would
explain it, needs minutes of the traffic to be sure."""

_WAITS = Advice(
    "See where it is with gpuwatch diagnose --stacks: one of its ranks may be late, or hang.",
    brief="See where it is: gpuwatch diagnose --stacks",
    why="a kernel that spins, perhaps waiting for another rank, looks busy and draws little power",
)
_SMALL = Advice(
    "Profile one step. Small kernels: a larger batch, a compiled model or CUDA graphs. A late "
    "rank: look at what that one does.",
    brief="Profile one step: small kernels or a late rank",
    why="a resident kernel counts as busy, however little of the GPU it uses",
)


def check(window: Window) -> Verdict:
    gpus = cards.required_load(window)
    clear_if(window.starting, "the job is starting")
    busy = [gpu for gpu in gpus if (gpu.busy_percent or 0.0) >= cards.PINNED_PERCENT]
    # Those that are busy wait for those that idle, which other rules look at.
    waits = window.job is not None and len(busy) < len(gpus)
    clear_if(not busy or waits, "not all of its GPUs are busy all the time")
    computing = [gpu for gpu in busy if not cards.encodes(gpu)]
    clear_if(not computing, cards.ENCODES)
    found = [gpu for gpu in computing if _works_little(gpu)]
    if found:
        return _firing(window, found)
    unread = None in map(cards.does_little, computing)
    unknown_if(unread, "SM activity", "power and its limit")
    return Clear("it does real work while it is busy")


def _works_little(gpu: GpuFacts) -> bool:
    little = cards.does_little(gpu) or cards.waits_now(gpu)
    return little and not cards.is_bandwidth_bound(gpu)


def _firing(window: Window, gpus: list[GpuFacts]) -> Firing:
    waits = [cards.waits_now(gpu) for gpu in gpus]
    clear = max([cards.little_work_clearness(gpu) for gpu in gpus])
    unlimited = any(gpu.power_limit_watts is None for gpu in gpus)
    hold = OTHER_WORK_SECONDS if any(waits) else 0.0
    summary, *short = _sentences(gpus, all(waits))
    return Firing(
        summary=summary,
        short=tuple(short),
        evidence=[item for gpu in gpus for item in _evidence(gpu)],
        advice=(_WAITS if all(waits) else _SMALL,),
        strength=0.8 if all(waits) else 0.4 + 0.4 * clear,
        missing=cards.missing_effort(gpus) + (("the power limit",) if unlimited else ()),
        gpus=words.keys(gpus),
        lost_share=highest(map(cards.wasted_share, gpus)),
        hold_seconds=NETWORK_SECONDS if _exchanges(window) else hold,
    )


def _exchanges(window: Window) -> bool:
    """Check whether several ranks may wait for what the machine sends over the network."""
    sent = window.host.network_transmit_bytes_per_second
    several = window.job is not None and (
        len(window.gpus) > 1 or (window.job.job.world_size or 1) > 1
    )
    return several and words.is_at_least(sent, SENDS_BYTES_PER_SECOND)


def _sentences(gpus: list[GpuFacts], waiting: bool) -> tuple[str, str, str]:
    """Return the summary and its short forms."""
    busy = highest([gpu.busy_percent for gpu in gpus]) or 0.0
    power, sm = highest(map(cards.power_when_busy, gpus)), highest(map(cards.sm_when_busy, gpus))
    is_busy = f"{GPUS} {IS} {number(busy)}% busy"
    if waiting:
        plateau = highest([gpu.power_plateau_watts for gpu in gpus]) or 0.0
        down = f"{number(power or 0.0)} W, down from {number(plateau)} W"
        it_waits = f"{either('it is', 'they are')} waiting"
        return (
            f"{is_busy} but {either('draws', 'draw')} {down}: {it_waits}, not working",
            f"{is_busy} at {down}: {it_waits}",
            f"{is_busy} but only {either('waits', 'wait')}",
        )
    # Busy nearly all the time: its mean, which stands beside its name, is what it draws then.
    power = highest([gpu.power_mean_watts for gpu in gpus]) or power
    limits = {gpu.power_limit_watts for gpu in gpus}
    limit = limits.pop() if len(limits) == 1 else None
    of = "" if limit is None else f" of {number(limit)} W"
    at = "" if power is None else f" at {number(power)} W{of}"
    active = (
        ""
        if sm is None
        else f" with {number(sm)}% of {either('its', 'their')} multiprocessors active"
    )
    little = "little of it is work"
    return (
        f"{is_busy}{at}{active}: {little}",
        f"{is_busy}{at or active}: {little}",
        f"{GPUS}: {number(busy)}% busy, little work",
    )


def _evidence(gpu: GpuFacts) -> list[Evidence]:
    name, power, waits = words.named([gpu]), cards.power_when_busy(gpu), cards.waits_now(gpu)
    best = None if power is None else cards.FORMER_PLATEAU * power
    return [
        *cards.effort_evidence(gpu),
        Evidence(f"{name} power of this job at its best", gpu.power_plateau_watts, "W", best,
                 "it has worked harder" if waits else "it has not worked harder before",
                 supports=waits),
        Evidence(f"{name} DRAM activity", gpu.dram_active_percent, "%", cards.BANDWIDTH_PERCENT,
                 "below this it is not bound by memory bandwidth"),
    ]  # fmt: skip
