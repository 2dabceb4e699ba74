"""Every reading a GPU reports, as (label, text, style), for the detail screen."""

from __future__ import annotations

from gpuwatch import units
from gpuwatch.model import Gpu, GpuIdentity, GpuReading
from gpuwatch.tui.panels.gpus import throttle_text

Fact = tuple[str, str, str]


def readings(gpu: Gpu) -> tuple[list[Fact], list[str]]:
    """What is known, in a fixed order, and the labels of what this GPU does not report."""
    identity, reading = gpu.identity, gpu.reading
    everything = [*_identity(identity), *_moving(identity, reading)]
    known = [(label, text, style) for label, text, style in everything if text is not None]
    missing = [label for label, text, _ in everything if text is None]
    return known, missing


_Maybe = tuple[str, str | None, str]


def _identity(identity: GpuIdentity) -> list[_Maybe]:
    mig = {True: "on", False: "off", None: None}[identity.mig_mode]
    return [
        ("driver", identity.driver_version, "text"),
        ("CUDA", identity.cuda_version, "text"),
        ("compute capability", identity.compute_capability, "text"),
        ("PCI bus", identity.pci_bus_id, "text"),
        ("NUMA node", None if identity.numa_node is None else str(identity.numa_node), "text"),
        ("MIG", mig, "text"),
        ("UUID", identity.uuid, "dim"),
    ]


def _moving(identity: GpuIdentity, reading: GpuReading) -> list[_Maybe]:
    samples = reading.busy_samples
    state = reading.performance_state
    return [
        ("busy", _percent(reading.busy_percent), "value"),
        ("fine samples", None if samples is None else f"{len(samples)} new", "text"),
        ("memory controller", _percent(reading.memory_controller_percent), "text"),
        ("memory used", _memory(identity, reading), "value"),
        ("power", _power(reading), "value"),
        ("power limit", _known(units.watts, reading.power_limit_watts), "text"),
        ("temperature", _known(units.celsius, reading.temperature_celsius), "value"),
        ("slowdown at", _known(units.celsius, identity.temperature_slowdown_celsius), "text"),
        ("memory temperature", _known(units.celsius, reading.memory_temperature_celsius), "text"),
        ("fan", _percent(reading.fan_percent), "text"),
        ("performance state", None if state is None else f"P{state}", "text"),
        ("SM clock", _clock(reading.sm_clock_mhz, identity.sm_clock_max_mhz), "text"),
        ("memory clock", _clock(reading.memory_clock_mhz, identity.memory_clock_max_mhz), "text"),
        ("throttle reasons", *_throttle(reading)),
        ("throttled", *_durations(reading)),
        ("PCIe link", _link(identity, reading), "text"),
        ("PCIe rx (to GPU)", _known(units.rate, reading.pcie_rx_bytes_per_second), "text"),
        ("PCIe tx (to host)", _known(units.rate, reading.pcie_tx_bytes_per_second), "text"),
        ("NVLink rx", _known(units.rate, reading.nvlink_rx_bytes_per_second), "text"),
        ("NVLink tx", _known(units.rate, reading.nvlink_tx_bytes_per_second), "text"),
        ("SM active", _percent(reading.sm_active_percent), "text"),
        ("SM occupancy", _percent(reading.sm_occupancy_percent), "text"),
        ("tensor active", _percent(reading.tensor_active_percent), "text"),
        ("DRAM active", _percent(reading.dram_active_percent), "text"),
        ("encoder", _percent(reading.encoder_percent), "text"),
        ("decoder", _percent(reading.decoder_percent), "text"),
        ("energy", _energy(reading.energy_joules), "text"),
        ("ECC corrected", _count(reading.ecc_corrected_count), "text"),
        ("ECC uncorrected", *_alarming(reading.ecc_uncorrected_count)),
        ("remapped rows", _remapped(reading), "text"),
        ("remap failed", *_flag(reading.remapped_rows_failed)),
        ("remap pending", *_flag(reading.remapped_rows_pending)),
    ]


def _percent(value: float | None) -> str | None:
    return None if value is None else units.percent(value)


def _known(write: object, value: float | None) -> str | None:
    assert callable(write)
    return None if value is None else str(write(value))


def _memory(identity: GpuIdentity, reading: GpuReading) -> str | None:
    if reading.memory_used_bytes is None:
        return None
    if reading.memory_used_is_process_sum:
        return f"{units.size(reading.memory_used_bytes)} (of processes)"
    return units.size_of(reading.memory_used_bytes, identity.memory_total_bytes)


def _power(reading: GpuReading) -> str | None:
    if reading.power_watts is None:
        return None
    return units.watts(reading.power_watts) + (" (average)" if reading.power_is_average else "")


def _clock(value: int | None, most: int | None) -> str | None:
    if value is None:
        return None
    return f"{value}MHz" if most is None else f"{value}/{most}MHz"


def _throttle(reading: GpuReading) -> tuple[str | None, str]:
    if reading.throttle_reasons is None:
        return None, "text"
    held = throttle_text(reading)
    if held is not None:
        return held[0].removeprefix("throttled: "), held[1]
    if reading.throttle_reasons:
        return ", ".join(reason.replace("_", " ") for reason in reading.throttle_reasons), "text"
    return "none", "text"


def _durations(reading: GpuReading) -> tuple[str | None, str]:
    """Since the snapshot before."""
    if reading.throttle_durations is None:
        return None, "text"
    held = [d for d in reading.throttle_durations if d.seconds > 0 and d.reason != "gpu_idle"]
    if not held:
        return "0s", "text"
    return ", ".join(f"{d.reason.replace('_', ' ')} {d.seconds:.2f}s" for d in held), "warn"


def _link(identity: GpuIdentity, reading: GpuReading) -> str | None:
    if reading.pcie_generation is None and reading.pcie_width is None:
        return None
    now = f"gen{_dash(reading.pcie_generation)} x{_dash(reading.pcie_width)}"
    most = f"gen{_dash(identity.pcie_generation_max)} x{_dash(identity.pcie_width_max)}"
    return f"{now} of {most}"


def _dash(value: int | None) -> str:
    return units.UNKNOWN if value is None else str(value)


def _energy(joules: float | None) -> str | None:
    return None if joules is None else f"{joules / 3.6e6:.3f}kWh"


def _count(value: int | None) -> str | None:
    return None if value is None else str(value)


def _alarming(value: int | None) -> tuple[str | None, str]:
    return _count(value), "error" if value is not None and value > 0 else "text"


def _flag(value: bool | None) -> tuple[str | None, str]:
    if value is None:
        return None, "text"
    return ("yes", "error") if value else ("no", "text")


def _remapped(reading: GpuReading) -> str | None:
    correctable = reading.remapped_rows_correctable
    uncorrectable = reading.remapped_rows_uncorrectable
    if correctable is None and uncorrectable is None:
        return None
    return f"{_dash(correctable)} correctable, {_dash(uncorrectable)} not"
