"""GPUs: what does not change of them, and what moves."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpuwatch.core.bounds import Amount, Text, UnixSeconds, Whole
from gpuwatch.core.model.records import dataclass, reading

GpuKey = Text

_GENERATIONS, _LANES, _ROWS = (1, 15), (1, 32), (0, 1_000_000)
_LINKS = (0, 1e14)
"""NVLink, all links together."""
_SUMMED = "Added up from the rate."
_ECC = "Memory errors since the driver was loaded."
_REMAPPED = "Rows of memory replaced for such errors, ever."
_NVLINK_ERRORS = "NVLink errors, all links together, since the driver was loaded."


class BusySample(NamedTuple):
    """One sample of the driver's own utilisation buffer.

    ``at_unix_seconds`` is the driver's time stamp (wall clock); ``percent`` the share of the
    driver's sample period, 0-100, in which at least one kernel was resident.
    """

    at_unix_seconds: UnixSeconds
    percent: Amount


class ReasonSeconds(NamedTuple):
    """Time for which one throttle reason held, in seconds, since the snapshot before."""

    reason: Text
    seconds: Amount


class ReadingAge(NamedTuple):
    """A reading that is shown late: the field it sets, and its age in seconds."""

    field: Text
    seconds: Amount


class XidError(NamedTuple):
    """Xid errors of one code (``core/xids.py``): how many, and when the last was reported."""

    code: Whole
    times: Whole
    last_unix_seconds: UnixSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentity:
    """Facts that do not change while a GPU is there.

    A MIG instance is a GPU of its own: ``mig_parent_uuid`` names the card it is a part of and
    ``mig_instance`` is its number there. ``index`` is NVML's (PCI bus order), not CUDA's.
    """

    index: Whole
    uuid: GpuKey
    name: Text
    pci_bus_id: Text | None = reading("PCI bus")
    driver_version: Text | None = reading("driver")
    cuda_version: Text | None = reading("CUDA")
    memory_total_bytes: Whole | None = reading(
        "memory size", between=(1, 1 << 46), help="Memory it has."
    )
    memory_unified: bool = False
    """The GPU shares the host's memory (GB10 and the like), so there is no total of its own."""
    power_limit_default_watts: Amount | None = reading("usual power limit")
    power_limit_max_watts: Amount | None = reading("highest power limit")
    temperature_slowdown_celsius: float | None = reading("slowdown at")
    temperature_shutdown_celsius: float | None = reading("shutdown at")
    sm_clock_max_mhz: Whole | None = reading("highest SM clock")
    memory_clock_max_mhz: Whole | None = reading("highest memory clock")
    pcie_generation_max: Whole | None = reading(
        between=_GENERATIONS, help="The highest that card and slot allow."
    )
    pcie_width_max: Whole | None = reading(
        between=_LANES, metric="pcie_lanes_max", help="PCIe lanes that card and slot have."
    )
    compute_capability: Text | None = reading("compute capability")
    mig_mode: bool | None = reading("MIG")
    mig_parent_uuid: GpuKey | None = None
    mig_instance: Whole | None = reading("MIG instance", between=(0, 255))
    numa_node: Whole | None = reading("NUMA node")
    machine: Text | None = None
    """The one that it is in, in a snapshot of a job on several."""

    def divided(self, **own: Any) -> GpuIdentity:
        """A MIG instance of this card: what it shares it has from the card."""
        shared = ("index", "pci_bus_id", "driver_version", "cuda_version", "compute_capability")
        facts = {name: getattr(self, name) for name in (*shared, "numa_node")}
        return GpuIdentity(mig_parent_uuid=self.uuid, **facts, **own)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """Values that move. Every field is ``None`` where it was not read.

    ``busy_percent`` is NVML's ``utilization.gpu``: the share of the driver's sample period in
    which a kernel was resident, which is not the share in which the GPU worked.
    ``throttle_reasons`` is the tuple of reasons in force, empty when none is (reason names are
    NVML's clocks-event reasons in snake case: ``gpu_idle``, ``sw_power_cap``, ``hw_slowdown``,
    ``sw_thermal_slowdown``, ``hw_thermal_slowdown``, ``hw_power_brake_slowdown``, ``sync_boost``,
    ``applications_clocks_setting``, ``display_clock_setting``).
    The ``sm_active``, ``sm_occupancy``, ``tensor_active`` and ``dram_active`` activities come
    from GPM and exist on Hopper and later only.
    """

    busy_percent: Amount | None = reading("busy")
    busy_samples: tuple[BusySample, ...] | None = reading("fine samples")
    """Driver samples since the snapshot before, oldest first; ``None``: this GPU keeps none."""
    memory_controller_percent: Amount | None = reading(
        "memory controller",
        "mem-ctrl",
        help="Share of time in which GPU memory was read or written.",
    )
    memory_used_bytes: Whole | None = reading(
        "memory", "mem", limit="memory_total_bytes", help="Memory in use."
    )
    memory_used_is_process_sum: bool = False
    """The driver reports no total on unified memory: this is the sum over its processes."""
    power_watts: Amount | None = reading("power", limit="power_limit_watts", help="Power it draws.")
    power_is_average: bool = False
    """The driver gave only its one-second average, not the instant value."""
    power_limit_watts: Amount | None = reading("power limit", help="Power limit in force.")
    temperature_celsius: float | None = reading(
        "temperature",
        "temp",
        limit="temperature_slowdown_celsius",
        help="Temperature of the chip.",
    )
    memory_temperature_celsius: float | None = reading(
        "memory temperature", help="Temperature of its memory."
    )
    fan_percent: Amount | None = reading("fan", between=(0, 200), help="Fan speed, of its highest.")
    """Over 100 is possible: the speed is relative to the fan's nominal maximum."""
    sm_clock_mhz: Whole | None = reading(
        "SM clock", "clock", limit="sm_clock_max_mhz", help="Clock of the SMs."
    )
    memory_clock_mhz: Whole | None = reading(
        "memory clock", "mem clock", limit="memory_clock_max_mhz", help="Clock of the memory."
    )
    performance_state: Whole | None = reading(
        "performance state", "P-state", between=(0, 15), form="P{}"
    )
    """0 (fastest) to 15, as in P0 to P15."""
    throttle_reasons: tuple[Text, ...] | None = reading("throttle reasons")
    throttle_durations: tuple[ReasonSeconds, ...] | None = reading("throttled")
    pcie_generation: Whole | None = reading(
        "PCIe link",
        "PCIe",
        between=_GENERATIONS,
        help="PCIe generation now; an idle GPU lowers it.",
    )
    pcie_width: Whole | None = reading(
        between=_LANES, metric="pcie_lanes", help="PCIe lanes in use."
    )
    pcie_rx_bytes_per_second: Amount | None = reading(
        "PCIe rx (to GPU)", "rx", metric="pcie_receive_bytes_total", help=_SUMMED
    )
    """Host to GPU."""
    pcie_tx_bytes_per_second: Amount | None = reading(
        "PCIe tx (to host)", "tx", metric="pcie_transmit_bytes_total", help=_SUMMED
    )
    """GPU to host."""
    encoder_percent: Amount | None = reading(
        "encoder", "enc", help="Utilization of the video encoder."
    )
    decoder_percent: Amount | None = reading(
        "decoder", "dec", help="Utilization of the video decoder."
    )
    energy_joules: Amount | None = reading(
        "energy", metric="energy_joules_total", help="Energy used since the driver was loaded."
    )
    """Since the driver was loaded."""
    ecc_corrected_count: Whole | None = reading(
        "ECC corrected", metric="ecc_errors_total", kind="corrected", help=_ECC
    )
    ecc_uncorrected_count: Whole | None = reading(
        "ECC uncorrected", metric="ecc_errors_total", kind="uncorrected", help=_ECC
    )
    """Since the driver was loaded (NVML's volatile counters)."""
    remapped_rows_correctable: Whole | None = reading(
        "remapped rows",
        between=_ROWS,
        metric="remapped_rows_total",
        kind="corrected",
        help=_REMAPPED,
    )
    remapped_rows_uncorrectable: Whole | None = reading(
        between=_ROWS, metric="remapped_rows_total", kind="uncorrected", help=_REMAPPED
    )
    remapped_rows_pending: bool | None = reading(
        "remap pending", help="1: a row remapping needs a reset."
    )
    remapped_rows_failed: bool | None = reading("remap failed", help="1: no spare rows were left.")
    pcie_replay_count: Whole | None = reading(
        metric="pcie_replays_total", help="PCIe packets that had to be sent again."
    )
    nvlink_crc_count: Whole | None = reading(
        metric="nvlink_errors_total", kind="crc", help=_NVLINK_ERRORS
    )
    nvlink_replay_count: Whole | None = reading(
        metric="nvlink_errors_total", kind="replay", help=_NVLINK_ERRORS
    )
    nvlink_recovery_count: Whole | None = reading(
        metric="nvlink_errors_total", kind="recovery", help=_NVLINK_ERRORS
    )
    """Times that a link failed and was trained again, which stalls whatever uses it."""
    nvlink_rx_bytes_per_second: Amount | None = reading(
        "NVLink rx", "NVLink", between=_LINKS, metric="nvlink_receive_bytes_total", help=_SUMMED
    )
    nvlink_tx_bytes_per_second: Amount | None = reading(
        "NVLink tx", between=_LINKS, metric="nvlink_transmit_bytes_total", help=_SUMMED
    )
    sm_active_percent: Amount | None = reading("SM active", "SM", help="SMs at work (GPM).")
    sm_occupancy_percent: Amount | None = reading(
        "SM occupancy", help="Warps, of those that SMs can hold (GPM)."
    )
    tensor_active_percent: Amount | None = reading(
        "tensor active", "tensor", help="Use of the tensor cores (GPM)."
    )
    dram_active_percent: Amount | None = reading(
        "DRAM active", "DRAM", help="Use of the memory's bandwidth (GPM)."
    )
    late_readings: tuple[ReadingAge, ...] = ()
    """Fields (of this, or of ``Process``) whose values are older than usual, because the driver
    is too slow to be asked at every look. What is not here is as old as the snapshot, or is read
    every few seconds on any driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU at one moment. A ``lost`` GPU keeps its identity; its reading is all ``None``."""

    identity: GpuIdentity
    reading: GpuReading
    lost: bool = False
    allocated_to: tuple[Text, ...] | None = None
    """Numbers of the batch jobs that a scheduler has given it to; ``None``: nothing says."""
    xid_errors: tuple[XidError, ...] | None = None
    """Errors that the driver reported, of a lost GPU as well: since the machine started where the
    kernel's log may be read, else since watching began; ``None``: neither says."""

    @property
    def uuid(self) -> GpuKey:
        return self.identity.uuid
