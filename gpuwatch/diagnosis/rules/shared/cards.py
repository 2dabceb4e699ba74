"""GPUs as rules look at them: memory, clocks, links, and how hard they work while busy."""

from collections.abc import Iterable, Sequence

from gpuwatch.core import units
from gpuwatch.core.model import PIDS_OF_A_MACHINE, XidError
from gpuwatch.core.throttling import REASONS
from gpuwatch.core.xids import xid_of
from gpuwatch.diagnosis.facts.window import GpuFacts, RankFacts, Window
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rules.shared import words
from gpuwatch.diagnosis.sentence import GPUS

PINNED_PERCENT = 85.0
"""A GPU is "busy all the time" from here on: drivers show 95-100% for back-to-back kernels, and a
job that logs or saves now and then some points less."""
ENCODES = "its video encoder does the work"
"""Why rules about kernels are quiet there."""
LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Rate of one PCIe lane, one way, by generation, less what the line's encoding takes (PCI-SIG)."""
IDLE_TRAFFIC_BYTES_PER_SECOND = 0.5e9
"""Host to GPU, while no kernel is resident."""
PAGEABLE_BYTES_PER_SECOND = 5e9
"""How fast a pageable copy runs on most machines: 3 to 10 GB/s."""
COPYING_SHARE = 0.26
"""How much of the idle time copying must fill where the two are not seen apart."""
OWN_LEAST_PERCENT = 1.0
"""SM share: a process that holds memory and does nothing shows zero."""
UNUSED_PERCENT, USED_PERCENT = 1.0, 10.0
"""Busy shares: a display or a monitor causes tenths; a job that starves still shows more."""

WAITING = frozenset({
    "batch_too_small", "busy_without_work", "checkpoint_pauses", "idle_holding_memory",
    "loader_cpu_bound", "loader_in_main_process", "loader_io_bound", "oscillation",
    "python_bound", "recompiles", "straggler", "validation_pauses",
})  # fmt: skip
"""Rules that fire on a GPU which waits for something that none of them looks at."""

THERMAL = tuple([name for name, reason in REASONS.items() if reason.is_heat])
HARDWARE = "hw_slowdown"
POWER_CAP = "sw_power_cap"
POWER_BRAKE = "hw_power_brake_slowdown"

LOW_SM_PERCENT = 50.0
"""DCGM's guidance: an SM activity below 0.5 likely means that the GPU is used ineffectively."""
GOOD_SM_PERCENT = 80.0
"""DCGM's guidance: 0.8 or more is needed (though not enough) for effective use."""
LOW_POWER = 0.42
"""Share of the power limit, chosen between what matrix work that fills a card draws (most of the
limit, more or less with its data) and what kernels that spin or leave most of it empty draw (a
third or less)."""
SURE_POWER = 0.35
"""Share of the power limit, where SM activity is not known: work bound by memory bandwidth
(decoding, large embeddings) can stay near 0.4."""
QUIET_CONTROLLER_PERCENT = 10.0
"""With the memory controller this idle the work is not bound by bandwidth, and 0.4 is little; cards
of low power draw a third of their limit with nothing on them."""
BUSY_CONTROLLER_PERCENT = 40.0
"""With it this busy the work may be bound by bandwidth: power then tells nothing."""
QUIET_POWER = 0.4
"""Share of the power limit, with the memory controller quiet."""
NO_WORK_POWER = 0.28
"""Share of the power limit below which nothing works hard, whatever the activities say."""
GOOD_POWER = 0.6
"""Share of the power limit from which on nobody would ask."""
HALF_POWER = 0.5
"""On the way from here to ``GOOD_POWER`` ever fewer multiprocessors count as few: two readings that
both lie on the edge are a GPU that works."""
BANDWIDTH_PERCENT = 50.0
"""DRAM activity from which the work is bound by memory bandwidth rather than too small."""
FORMER_PLATEAU = 1.6
"""The job's own plateau over its power now: it did work much harder before."""
FORMER_USUAL = 1.3
"""Its usual power over that now, for a quarter of the time: an evaluation may draw more than
training does."""

FILLED_SHARE = 0.9
"""The mean of memory in use, of its highest in the window."""
ENCODES_PERCENT = 50.0
"""Utilisation of the video encoder: what feeds it sets the pace of such a job, and no kernel."""

XIDS_UNREAD = ("the driver's errors (Xid)",)
XID_SECONDS = 1800.0
"""An error is of interest for so long."""
_WORST_FIRST = ("lost", "memory", "card", "program", "none")


def recent_xids(window: Window, gpu: GpuFacts, kinds: Sequence[str]) -> list[XidError]:
    """Xid errors of these kinds (``core/xids.py``) that the driver reported lately and since the
    GPU's job began, the worst first."""
    began = None if window.job is None else window.job.job.started_at_unix_seconds
    since = max(window.taken_at_unix_seconds - XID_SECONDS, began or 0.0)
    found = [
        error
        for error in gpu.xid_errors or ()
        if error.last_unix_seconds >= since and xid_of(error.code).kind in kinds
    ]
    return sorted(found, key=lambda error: _WORST_FIRST.index(xid_of(error.code).kind))


def xid_words(errors: Iterable[XidError]) -> str:
    """``Xid 31 (a program used GPU memory that it does not have)``."""
    codes = dict.fromkeys([error.code for error in errors])
    return units.listed([f"Xid {code} ({xid_of(code).meaning})" for code in codes])


def xid_evidence(window: Window, gpu: GpuFacts, error: XidError) -> Evidence:
    ago = words.lasting(max(0.0, window.taken_at_unix_seconds - error.last_unix_seconds))
    says = f"{xid_of(error.code).meaning}; the last was {ago} ago"
    name, unit = f"{words.named([gpu])} Xid {error.code}", "time" if error.times == 1 else "times"
    return Evidence(name, float(error.times), unit, says=says)


def present(window: Window) -> list[GpuFacts]:
    return [gpu for gpu in window.gpus if not gpu.lost]


def with_known_load(gpus: Iterable[GpuFacts]) -> list[GpuFacts]:
    """GPUs that respond and whose utilisation was read."""
    return [gpu for gpu in gpus if not gpu.lost and gpu.busy is not None]


def required_load(window: Window) -> list[GpuFacts]:
    """GPUs of the window with a known utilisation; raises ``Settled`` where there is none."""
    return words.required(with_known_load(window.gpus) or None, "the GPUs' utilisation")


def unused(window: Window) -> list[GpuFacts]:
    """GPUs on which a job of one process runs nothing while it works on another."""
    gpus = with_known_load(window.gpus)
    if window.job is None or len(window.job.ranks) != 1:
        return []
    busiest = max([gpu.busy_percent or 0.0 for gpu in gpus], default=0.0)
    rests = [gpu for gpu in gpus if (gpu.busy_percent or 0.0) < UNUSED_PERCENT]
    return rests if busiest >= USED_PERCENT else []


def is_others(gpu: GpuFacts) -> bool:
    """Check whether what the GPU does is all others' work: then its idling is theirs, too."""
    own, foreign = gpu.own_busy_percent, gpu.foreign_busy_percent
    return own is not None and foreign is not None and own < OWN_LEAST_PERCENT <= foreign


def rank_of(window: Window, gpu: GpuFacts) -> RankFacts | None:
    """The rank that runs on this GPU, where one is known."""
    ranks = () if window.job is None else window.job.ranks
    return next((rank for rank in ranks if gpu.uuid in rank.gpu_uuids), None)


def who(window: Window, gpu: GpuFacts) -> str:
    """``rank 3 on GPU 3``, or ``GPU 3`` where the rank is not known; of a job on several machines
    ``rank 3 on node2``."""
    rank, machine = rank_of(window, gpu), gpu.identity.machine
    where = words.named([gpu]) if machine is None else machine
    return words.named([gpu]) if rank is None else f"{name_of(rank)} on {where}"


def subject_briefly(window: Window) -> str:
    """The GPUs of a short sentence; ``PID 4242`` where the job has none."""
    if window.gpus or window.job is None:
        return GPUS
    return f"PID {window.job.job.own_pid}"


def who_briefly(window: Window, gpu: GpuFacts) -> str:
    """``GPU 3 (rank 3)``, ``GPU 3`` where the rank is not known; of a job on several machines
    ``rank 3 on node2``."""
    rank = rank_of(window, gpu)
    if gpu.identity.machine is not None:
        return who(window, gpu)
    number = "" if rank is None or rank.rank is None else f" (rank {rank.rank})"
    return words.briefly([gpu]) + number


def name_of(rank: RankFacts) -> str:
    return f"PID {rank.pid % PIDS_OF_A_MACHINE}" if rank.rank is None else f"rank {rank.rank}"


def memory_most(gpu: GpuFacts) -> float | None:
    """The most bytes in use at any time of the window."""
    return words.highest([gpu.memory_highest_bytes, gpu.memory_used_bytes])


def encodes(gpu: GpuFacts) -> bool:
    """Check whether its video encoder sets the pace of what runs on it."""
    return words.is_at_least(gpu.encoder_percent, ENCODES_PERCENT)


def is_filling(gpu: GpuFacts) -> bool:
    """Check whether its memory grew so much within the window that something is being loaded."""
    used, highest = gpu.memory_used_bytes, gpu.memory_highest_bytes
    return used is not None and highest is not None and used < FILLED_SHARE * highest


def memory_share(gpu: GpuFacts) -> float | None:
    """The most memory in use, 0 to 1 of the card's."""
    used, total = memory_most(gpu), gpu.identity.memory_total_bytes
    return None if used is None or not total else used / total


def reason_share(window: Window, gpu: GpuFacts, *reasons: str) -> float | None:
    """How long the throttle reason among these that held longest did, 0 to 1 of the time watched.
    Reasons overlap (a hardware slowdown for heat is reported under two names), so they are not
    added up."""
    if gpu.throttle_shares is None:
        return None
    seconds = [held.seconds for held in gpu.throttle_shares if held.reason in reasons]
    return min(1.0, max(seconds, default=0.0) / max(1e-9, window.watched_seconds))


def reference_clock(window: Window, gpu: GpuFacts) -> float | None:
    """Clock that this GPU could run at: the fastest of its model here, else its own highest."""
    siblings = words.highest(
        [
            other.sm_clock_busy_mhz
            for other in window.gpus
            if other.uuid != gpu.uuid and other.identity.name == gpu.identity.name
        ]
    )
    own = gpu.sm_clock_busy_mhz
    if siblings is not None and own is not None and siblings > own:
        return siblings
    top = gpu.identity.sm_clock_max_mhz
    return None if top is None else float(top)


def slowed(window: Window, gpu: GpuFacts) -> float | None:
    """How far the clock is below what it could be, 0 to 1."""
    reference, clock = reference_clock(window, gpu), gpu.sm_clock_busy_mhz
    if reference is None or clock is None or reference <= 0.0:
        return None
    return max(0.0, 1.0 - clock / reference)


def link_rate(generation: int | None, width: int | None) -> float | None:
    """Rate of a PCIe link, in bytes a second."""
    lane = LANE_BYTES_PER_SECOND.get(generation or 0)
    return None if lane is None or width is None else lane * width


def busy_link_rate(gpu: GpuFacts) -> float | None:
    """Rate of the link as it runs under load."""
    return link_rate(gpu.pcie_generation_busy, gpu.pcie_width_busy)


def idle_traffic(gpus: Sequence[GpuFacts], idle_share: float) -> float | None:
    """Host to GPU in bytes a second while they idle. Where the idle moments are too short to be
    seen apart: what it would be if all of the traffic fell into them, and that only where copying
    it at the rate of pageable memory fills a good part of them."""
    seen = words.mean([gpu.pcie_rx_idle_bytes_per_second for gpu in gpus])
    if seen is not None:
        return seen
    overall = words.mean([gpu.pcie_rx_bytes_per_second for gpu in gpus])
    if overall is None or idle_share <= 0.0:
        return None
    in_idle = overall / idle_share
    return in_idle if in_idle >= COPYING_SHARE * PAGEABLE_BYTES_PER_SECOND else None


def sm_when_busy(gpu: GpuFacts) -> float | None:
    """SM activity in percent of the time in which a kernel was resident."""
    if gpu.sm_active_percent is None or gpu.busy is None or gpu.busy.mean_percent < 1.0:
        return None
    return min(100.0, 100.0 * gpu.sm_active_percent / gpu.busy.mean_percent)


def power_when_busy(gpu: GpuFacts) -> float | None:
    return gpu.power_mean_watts if gpu.power_busy_watts is None else gpu.power_busy_watts


def power_share(gpu: GpuFacts) -> float | None:
    """Power while busy, 0 to 1 of the limit."""
    power, limit = power_when_busy(gpu), gpu.power_limit_watts
    return None if power is None or not limit else power / limit


def does_little(gpu: GpuFacts) -> bool | None:
    """Check whether it does little while it is busy; ``None`` where neither SM nor power tell."""
    sm, power = sm_when_busy(gpu), power_share(gpu)
    if words.is_below(power, NO_WORK_POWER):
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


def little_power_share(gpu: GpuFacts) -> float:
    """Share of the power limit below which the readings that are there speak of little work."""
    if sm_when_busy(gpu) is not None:
        return GOOD_POWER
    controller = gpu.memory_controller_percent
    quiet = controller is not None and controller <= QUIET_CONTROLLER_PERCENT
    return QUIET_POWER if quiet else SURE_POWER


def is_bandwidth_bound(gpu: GpuFacts) -> bool:
    """Check whether its memory works half of the time or more: low SM activity is then no waste."""
    power = power_share(gpu)
    works = power is None or power >= NO_WORK_POWER
    return works and words.is_at_least(gpu.dram_active_percent, BANDWIDTH_PERCENT)


def waits_now(gpu: GpuFacts) -> bool:
    """Check whether it drew much more power earlier in this job: what it does now is then not its
    usual work."""
    power, plateau = power_when_busy(gpu), gpu.power_plateau_watts
    if power is None or plateau is None or plateau < FORMER_PLATEAU * power:
        return False
    usual = gpu.power_usual_watts
    return usual is None or usual >= FORMER_USUAL * power


def little_work_clearness(gpu: GpuFacts) -> float:
    """How far below the thresholds it is, 0 to 1, with both readings better than with one."""
    sm, power = sm_when_busy(gpu), power_share(gpu)
    by_sm = None if sm is None else words.clamp((LOW_SM_PERCENT - sm) / 25.0)
    by_power = None if power is None else words.clamp((LOW_POWER - power) / 0.12)
    clear = words.mean([by_sm, by_power]) or 0.0
    return (0.6 if None in (by_sm, by_power) else 1.0) * clear


def wasted_share(gpu: GpuFacts) -> float | None:
    """The share of the GPU that its work leaves unused while it is busy, 0 to 1."""
    sm, power = sm_when_busy(gpu), power_share(gpu)
    if sm is not None:
        return words.clamp(1.0 - sm / GOOD_SM_PERCENT)
    return None if power is None else words.clamp(1.0 - power / GOOD_POWER)


def missing_effort(gpus: Sequence[GpuFacts]) -> tuple[str, ...]:
    """Readings of their work that would have made a finding surer."""
    return words.lacking({
        "SM activity": any(sm_when_busy(gpu) is None for gpu in gpus),
        "power": any(power_when_busy(gpu) is None for gpu in gpus),
    })  # fmt: skip


def effort_evidence(gpu: GpuFacts, busy_says: str = "") -> list[Evidence]:
    """Rows on how busy it is, and its SM activity and power in that time."""
    name, limit = words.named([gpu]), gpu.power_limit_watts
    sm, power = sm_when_busy(gpu), power_when_busy(gpu)
    least = None if limit is None else little_power_share(gpu) * limit
    little = power is not None and least is not None and power < least
    return [
        Evidence(f"{name} busy", gpu.busy_percent, "%", PINNED_PERCENT, busy_says),
        Evidence(f"{name} SM activity while busy", sm, "%", LOW_SM_PERCENT,
                 supports=words.is_below(sm, LOW_SM_PERCENT)),
        Evidence(f"{name} power while busy", power, "W", least, supports=little),
    ]  # fmt: skip
