"""Effort of a GPU while it is busy: shared by "busy without work" and "batch too small"."""

from collections.abc import Sequence

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rules.shared.cards import PINNED_PERCENT
from gpuwatch.diagnosis.rules.shared.words import clamp, mean, named, rounded

LOW_SM_PERCENT = 50.0
"""DCGM's guidance: an SM activity below 0.5 likely means that the GPU is used ineffectively."""
GOOD_SM_PERCENT = 80.0
"""DCGM's guidance: 0.8 or more is needed (though not enough) for effective use."""
LOW_POWER = 0.42
"""Of the power limit, chosen between what matrix work that fills a card draws (most of the limit,
more or less with its data) and what kernels that spin or leave most of it empty draw (a third or
less)."""
SURE_POWER = 0.35
"""Of the power limit, where SM activity is not known: work bound by memory bandwidth (decoding,
large embeddings) can stay near 0.4."""
QUIET_CONTROLLER_PERCENT = 10.0
"""With the memory controller this idle the work is not bound by bandwidth, and 0.4 is little; cards
of low power draw a third of their limit with nothing on them."""
BUSY_CONTROLLER_PERCENT = 40.0
"""With it this busy the work may be bound by bandwidth: power then tells nothing."""
QUIET_POWER = 0.4
"""Of the power limit, with the memory controller quiet."""
NO_WORK_POWER = 0.28
"""Of the power limit: below, nothing works hard, whatever the activities say."""
GOOD_POWER = 0.6
"""Of the power limit: from here on nobody would ask."""
HALF_POWER = 0.5
"""On the way from here to ``GOOD_POWER`` ever fewer multiprocessors count as few: two readings that
both lie on the edge are a GPU that works."""
BANDWIDTH_PERCENT = 50.0
"""DRAM activity from which the work is bound by memory bandwidth rather than too small."""
FORMER_PLATEAU = 1.6
"""The job's own plateau over its power now: it did work much harder before."""
FORMER_USUAL = 1.3
"""And for more than a quarter of the time: an evaluation may draw more than training does."""


def sm_when_busy(gpu: GpuFacts) -> float | None:
    """SM activity in percent, of the time in which a kernel was resident."""
    if gpu.sm_active_percent is None or gpu.busy is None or gpu.busy.mean_percent < 1.0:
        return None
    return min(100.0, 100.0 * gpu.sm_active_percent / gpu.busy.mean_percent)


def power_when_busy(gpu: GpuFacts) -> float | None:
    return gpu.power_mean_watts if gpu.power_busy_watts is None else gpu.power_busy_watts


def power_share(gpu: GpuFacts) -> float | None:
    """0 to 1: of its power limit, while busy."""
    power, limit = power_when_busy(gpu), gpu.power_limit_watts
    return None if power is None or not limit else power / limit


def little_work(gpu: GpuFacts) -> bool | None:
    """Check whether it does little while it is busy; ``None`` where neither SM nor power tell."""
    sm, power = sm_when_busy(gpu), power_share(gpu)
    if power is not None and power < NO_WORK_POWER:
        # Multiprocessors count as active while a warp waits on them.
        return True
    if sm is not None:
        # Low SM activity at high power would be a contradiction: then the power is believed.
        short = 1.0 if power is None else (GOOD_POWER - power) / (GOOD_POWER - HALF_POWER)
        return sm < LOW_SM_PERCENT * min(1.0, short)
    if power is None:
        return None
    controller = gpu.memory_controller_percent
    if controller is None or controller >= BUSY_CONTROLLER_PERCENT:
        return power < SURE_POWER and controller is None
    return power < (QUIET_POWER if controller <= QUIET_CONTROLLER_PERCENT else SURE_POWER)


def little_work_share(gpu: GpuFacts) -> float:
    """0 to 1 of the power limit: below it the readings that are there speak of little work."""
    if sm_when_busy(gpu) is not None:
        return GOOD_POWER
    controller = gpu.memory_controller_percent
    quiet = controller is not None and controller <= QUIET_CONTROLLER_PERCENT
    return QUIET_POWER if quiet else SURE_POWER


def is_bandwidth_bound(gpu: GpuFacts) -> bool:
    """Its memory works half of the time or more: low SM activity is then no waste."""
    power, dram = power_share(gpu), gpu.dram_active_percent
    works = power is None or power >= NO_WORK_POWER
    return works and dram is not None and dram >= BANDWIDTH_PERCENT


def waits_now(gpu: GpuFacts) -> bool:
    """It drew much more power earlier in this job: what it does now is not its usual work."""
    power, plateau = power_when_busy(gpu), gpu.power_plateau_watts
    if power is None or plateau is None or plateau < FORMER_PLATEAU * power:
        return False
    usual = gpu.power_usual_watts
    return usual is None or usual >= FORMER_USUAL * power


def clearness(gpu: GpuFacts) -> float:
    """0 to 1: how far below the thresholds it is, with both readings better than with one."""
    sm, power = sm_when_busy(gpu), power_share(gpu)
    by_sm = None if sm is None else clamp((LOW_SM_PERCENT - sm) / 25.0)
    by_power = None if power is None else clamp((LOW_POWER - power) / 0.12)
    return (0.6 if None in (by_sm, by_power) else 1.0) * (mean([by_sm, by_power]) or 0.0)


def unused(gpu: GpuFacts) -> float | None:
    """0 to 1: the share of the GPU that this work leaves unused."""
    sm, power = sm_when_busy(gpu), power_share(gpu)
    if sm is not None:
        return clamp(1.0 - sm / GOOD_SM_PERCENT)
    return None if power is None else clamp(1.0 - power / GOOD_POWER)


def missing(gpus: Sequence[GpuFacts]) -> tuple[str, ...]:
    """Readings that would have made it surer."""
    names = {
        "SM activity": any(sm_when_busy(gpu) is None for gpu in gpus),
        "power": any(power_when_busy(gpu) is None for gpu in gpus),
    }
    return tuple([name for name, absent in names.items() if absent])


def evidence(gpu: GpuFacts, busy_says: str = "") -> list[Evidence]:
    """Rows on how busy it is, and its SM activity and power in that time."""
    name, limit = named([gpu]), gpu.power_limit_watts
    sm, power = sm_when_busy(gpu), power_when_busy(gpu)
    least = None if limit is None else little_work_share(gpu) * limit
    little = power is not None and least is not None and power < least
    return [
        Evidence(f"{name} busy", rounded(gpu.busy_percent), "%", PINNED_PERCENT, busy_says),
        Evidence(f"{name} SM activity while busy", rounded(sm), "%", LOW_SM_PERCENT,
                 supports=sm is not None and sm < LOW_SM_PERCENT),
        Evidence(f"{name} power while busy", rounded(power), "W", least, supports=little),
    ]  # fmt: skip
