"""Questions that several rules ask of a window's GPUs."""

from collections.abc import Iterable, Sequence

from gpuwatch.core.model import PIDS_OF_A_MACHINE
from gpuwatch.core.throttling import REASONS
from gpuwatch.diagnosis.facts.window import GpuFacts, RankFacts, Window
from gpuwatch.diagnosis.rules.shared.words import highest, mean, named, required

PINNED_PERCENT = 85.0
"""From here on a GPU is "busy all the time": drivers show 95-100% for back-to-back kernels, and a
job that logs or saves now and then some points less."""
LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Of one PCIe lane, one way, by generation, less what the encoding of the line takes (PCI-SIG)."""
IDLE_TRAFFIC_BYTES_PER_SECOND = 0.5e9
"""Host to GPU, while no kernel is resident."""
PAGEABLE_BYTES_PER_SECOND = 5e9
"""How fast a pageable copy runs on most machines: 3 to 10 GB/s."""
COPYING_SHARE = 0.26
"""Of the idle time: how much of it copying must fill where the two are not seen apart."""
OWN_LEAST_PERCENT = 1.0
"""SM share: a process that holds memory and does nothing shows zero."""

UNUSED_PERCENT, USED_PERCENT = 1.0, 10.0
"""Of the time: a display or a monitor causes tenths; a job that starves still shows more."""

WAITING = frozenset({
    "batch_too_small", "busy_without_work", "checkpoint_pauses", "idle_holding_memory",
    "loader_cpu_bound", "loader_in_main_process", "loader_io_bound", "oscillation",
    "python_bound", "straggler", "validation_pauses",
})  # fmt: skip
"""Rules that fire on a GPU which waits for something that none of them looks at."""

THERMAL = tuple([name for name, reason in REASONS.items() if reason.is_heat])
HARDWARE = "hw_slowdown"
POWER_CAP = "sw_power_cap"
POWER_BRAKE = "hw_power_brake_slowdown"


def present(window: Window) -> list[GpuFacts]:
    return [gpu for gpu in window.gpus if not gpu.lost]


def works(gpus: Iterable[GpuFacts]) -> list[GpuFacts]:
    """Those that are there and whose busy share is known."""
    return [gpu for gpu in gpus if not gpu.lost and gpu.busy is not None]


def with_load(window: Window) -> list[GpuFacts]:
    """Those of the window, one at least."""
    return required(works(window.gpus) or None, "the GPUs' utilisation")


def unused(window: Window) -> list[GpuFacts]:
    """Those on which a job of one process runs nothing while it works on another."""
    gpus = works(window.gpus)
    if window.job is None or len(window.job.ranks) != 1:
        return []
    rests = [gpu for gpu in gpus if (gpu.busy_percent or 0.0) < UNUSED_PERCENT]
    return (
        rests if max([gpu.busy_percent or 0.0 for gpu in gpus], default=0.0) >= USED_PERCENT else []
    )


def memory_most(gpu: GpuFacts) -> float | None:
    """Bytes in use at the most."""
    return highest([gpu.memory_highest_bytes, gpu.memory_used_bytes])


def memory_share(gpu: GpuFacts) -> float | None:
    """The same of the card's, 0 to 1."""
    used, total = memory_most(gpu), gpu.identity.memory_total_bytes
    return None if used is None or not total else used / total


def reason_share(window: Window, gpu: GpuFacts, *reasons: str) -> float | None:
    """0 to 1: of the time watched, how long the reason among these that held longest did. Reasons
    overlap (a hardware slowdown for heat is reported under two names), so they are not added up."""
    if gpu.throttle_shares is None:
        return None
    seconds = [held.seconds for held in gpu.throttle_shares if held.reason in reasons]
    return min(1.0, max(seconds, default=0.0) / max(1e-9, window.watched_seconds))


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
    seen = mean([gpu.pcie_rx_idle_bytes_per_second for gpu in gpus])
    if seen is not None:
        return seen
    overall = mean([gpu.pcie_rx_bytes_per_second for gpu in gpus])
    if overall is None or idle_share <= 0.0:
        return None
    in_idle = overall / idle_share
    return in_idle if in_idle >= COPYING_SHARE * PAGEABLE_BYTES_PER_SECOND else None


def reference_clock(window: Window, gpu: GpuFacts) -> float | None:
    """Clock that this GPU could run at: the fastest of its like here, else its own highest."""
    siblings = highest(
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
    """0 to 1: how far its clock is below what it could be."""
    reference, clock = reference_clock(window, gpu), gpu.sm_clock_busy_mhz
    if reference is None or clock is None or reference <= 0.0:
        return None
    return max(0.0, 1.0 - clock / reference)


def rank_of(window: Window, gpu: GpuFacts) -> RankFacts | None:
    """The rank that runs on this GPU, where one is known."""
    ranks = () if window.job is None else window.job.ranks
    return next((rank for rank in ranks if gpu.uuid in rank.gpu_uuids), None)


def who(window: Window, gpu: GpuFacts) -> str:
    """``rank 3 on GPU 3``, or ``GPU 3`` where the rank is not known; of a job on several machines
    ``rank 3 on node2``."""
    rank, machine = rank_of(window, gpu), gpu.identity.machine
    where = named([gpu]) if machine is None else machine
    return named([gpu]) if rank is None else f"{name_of(rank)} on {where}"


def name_of(rank: RankFacts) -> str:
    return f"PID {rank.pid % PIDS_OF_A_MACHINE}" if rank.rank is None else f"rank {rank.rank}"


def is_others(gpu: GpuFacts) -> bool:
    """Check whether what the GPU does is all others' work: then its idling is theirs, too."""
    own, foreign = gpu.own_busy_percent, gpu.foreign_busy_percent
    return own is not None and foreign is not None and own < OWN_LEAST_PERCENT <= foreign
