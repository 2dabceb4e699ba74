"""Every reading a GPU reports, as (label, text, style), for the detail screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading
from gpuwatch.tui.panels.gpus.metrics import throttle_text

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
    ages = dict(reading.late_readings)

    def dated(field: str, text: str | None) -> str | None:
        age = ages.get(field)
        return text if text is None or age is None else f"{text} ({units.age(age)} old)"

    def known(field: str, write: Callable[[Any], str]) -> str | None:
        value = getattr(reading, field)
        return None if value is None else dated(field, write(value))

    def alarming(field: str, write: Callable[[Any], str]) -> tuple[str | None, str]:
        return known(field, write), "error" if getattr(reading, field) else "text"

    reasons, reasons_style = _throttle(reading)
    return [
        ("busy", known("busy_percent", units.percent), "value"),
        ("fine samples", None if samples is None else f"{len(samples)} new", "text"),
        ("memory controller", known("memory_controller_percent", units.percent), "text"),
        ("memory used", dated("memory_used_bytes", _memory(identity, reading)), "value"),
        ("power", dated("power_watts", _power(reading)), "value"),
        ("power limit", known("power_limit_watts", units.watts), "text"),
        ("temperature", known("temperature_celsius", units.celsius), "value"),
        ("slowdown at", _celsius(identity.temperature_slowdown_celsius), "text"),
        ("memory temperature", known("memory_temperature_celsius", units.celsius), "text"),
        ("fan", known("fan_percent", units.percent), "text"),
        ("performance state", known("performance_state", "P{}".format), "text"),
        ("SM clock", known("sm_clock_mhz", _clock(identity.sm_clock_max_mhz)), "text"),
        ("memory clock", known("memory_clock_mhz", _clock(identity.memory_clock_max_mhz)), "text"),
        ("throttle reasons", dated("throttle_reasons", reasons), reasons_style),
        ("throttled", *_durations(reading)),
        ("PCIe link", dated("pcie_generation", _link(identity, reading)), "text"),
        ("PCIe rx (to GPU)", known("pcie_rx_bytes_per_second", units.rate), "text"),
        ("PCIe tx (to host)", known("pcie_tx_bytes_per_second", units.rate), "text"),
        ("NVLink rx", known("nvlink_rx_bytes_per_second", units.rate), "text"),
        ("NVLink tx", known("nvlink_tx_bytes_per_second", units.rate), "text"),
        ("SM active", known("sm_active_percent", units.percent), "text"),
        ("SM occupancy", known("sm_occupancy_percent", units.percent), "text"),
        ("tensor active", known("tensor_active_percent", units.percent), "text"),
        ("DRAM active", known("dram_active_percent", units.percent), "text"),
        ("encoder", known("encoder_percent", units.percent), "text"),
        ("decoder", known("decoder_percent", units.percent), "text"),
        ("energy", known("energy_joules", _energy), "text"),
        ("ECC corrected", known("ecc_corrected_count", str), "text"),
        ("ECC uncorrected", *alarming("ecc_uncorrected_count", str)),
        ("remapped rows", dated("remapped_rows_correctable", _remapped(reading)), "text"),
        ("remap failed", *alarming("remapped_rows_failed", _flag)),
        ("remap pending", *alarming("remapped_rows_pending", _flag)),
    ]


def _celsius(value: float | None) -> str | None:
    return None if value is None else units.celsius(value)


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


def _clock(most: int | None) -> Callable[[int], str]:
    return ("{}MHz" if most is None else f"{{}}/{most}MHz").format


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


def _energy(joules: float) -> str:
    return f"{joules / 3.6e6:.3f}kWh"


def _flag(value: bool) -> str:
    return "yes" if value else "no"


def _remapped(reading: GpuReading) -> str | None:
    correctable = reading.remapped_rows_correctable
    uncorrectable = reading.remapped_rows_uncorrectable
    if correctable is None and uncorrectable is None:
        return None
    return f"{_dash(correctable)} correctable, {_dash(uncorrectable)} not"
