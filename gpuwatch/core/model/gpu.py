"""GPUs: what does not change of them, and what moves."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpuwatch.core.bounds import Amount, Text, UnixSeconds, Whole
from gpuwatch.core.model.records import dataclass

GpuKey = Text


class BusySample(NamedTuple):
    """One sample of the driver's own utilisation buffer.

    ``at_unix_seconds`` is the driver's time stamp (wall clock); ``percent`` the share of the
    driver's sample period, 0-100, in which at least one kernel was resident.
    """

    at_unix_seconds: UnixSeconds
    percent: Amount


class ReasonSeconds(NamedTuple):
    """How long one throttle reason held, in seconds, since the snapshot before."""

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
    pci_bus_id: Text | None = None
    driver_version: Text | None = None
    cuda_version: Text | None = None
    memory_total_bytes: Whole | None = None
    memory_unified: bool = False
    """The GPU shares the host's memory (GB10 and the like), so there is no total of its own."""
    power_limit_default_watts: Amount | None = None
    power_limit_max_watts: Amount | None = None
    temperature_slowdown_celsius: float | None = None
    temperature_shutdown_celsius: float | None = None
    sm_clock_max_mhz: Whole | None = None
    memory_clock_max_mhz: Whole | None = None
    pcie_generation_max: Whole | None = None
    pcie_width_max: Whole | None = None
    compute_capability: Text | None = None
    mig_mode: bool | None = None
    mig_parent_uuid: GpuKey | None = None
    mig_instance: Whole | None = None
    numa_node: Whole | None = None
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

    busy_percent: Amount | None = None
    busy_samples: tuple[BusySample, ...] | None = None
    """Driver samples since the snapshot before, oldest first; ``None``: this GPU keeps none."""
    memory_controller_percent: Amount | None = None
    memory_used_bytes: Whole | None = None
    memory_used_is_process_sum: bool = False
    """The driver reports no total on unified memory: this is the sum over its processes."""
    power_watts: Amount | None = None
    power_is_average: bool = False
    """The driver gave only its one-second average, not the instant value."""
    power_limit_watts: Amount | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    fan_percent: Amount | None = None
    sm_clock_mhz: Whole | None = None
    memory_clock_mhz: Whole | None = None
    performance_state: Whole | None = None
    """0 (fastest) to 15, as in P0 to P15."""
    throttle_reasons: tuple[Text, ...] | None = None
    throttle_durations: tuple[ReasonSeconds, ...] | None = None
    pcie_generation: Whole | None = None
    pcie_width: Whole | None = None
    pcie_rx_bytes_per_second: Amount | None = None
    """Host to GPU."""
    pcie_tx_bytes_per_second: Amount | None = None
    """GPU to host."""
    encoder_percent: Amount | None = None
    decoder_percent: Amount | None = None
    energy_joules: Amount | None = None
    """Since the driver was loaded."""
    ecc_corrected_count: Whole | None = None
    ecc_uncorrected_count: Whole | None = None
    """Since the driver was loaded (NVML's volatile counters)."""
    remapped_rows_correctable: Whole | None = None
    remapped_rows_uncorrectable: Whole | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failed: bool | None = None
    nvlink_rx_bytes_per_second: Amount | None = None
    nvlink_tx_bytes_per_second: Amount | None = None
    sm_active_percent: Amount | None = None
    sm_occupancy_percent: Amount | None = None
    tensor_active_percent: Amount | None = None
    dram_active_percent: Amount | None = None
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
