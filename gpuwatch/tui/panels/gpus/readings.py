"""Every reading a GPU reports, as (label, text, style), for the detail screen."""

from collections.abc import Callable, Sequence
from typing import Any

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading
from gpuwatch.tui.panels.gpus.metrics import throttle_text

Fact = tuple[str, str, str]
_Write = Callable[[Any], str]


def _flag(value: bool) -> str:
    return "yes" if value else "no"


def _clock(most: int | None) -> _Write:
    return ("{}MHz" if most is None else f"{{}}/{most}MHz").format


def readings(gpu: Gpu) -> tuple[list[Fact], list[str]]:
    """Known readings, in a fixed order, and the labels of what this GPU does not report."""
    everything = [*_identity(gpu.identity), *_moving(gpu)]
    if gpu.allocated_to is not None:
        everything.insert(0, ("allocated to", _jobs(gpu.allocated_to), "text"))
    known = [(label, text, style) for label, text, style in everything if text is not None]
    missing = [label for label, text, _ in everything if text is None]
    return known, missing


def _jobs(numbers: Sequence[str]) -> str:
    return f"job {', '.join(numbers)}" if numbers else "no job"


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


def _moving(gpu: Gpu) -> list[_Maybe]:
    identity, reading = gpu.identity, gpu.reading
    ages = dict(reading.late_readings)
    hot = identity.temperature_slowdown_celsius
    samples = reading.busy_samples
    reasons, reasons_style = _throttle(reading)
    power = "{:.0f}W (average)".format if reading.power_is_average else units.watts

    def of(label: str, field: str, write: _Write, style: str = "text", other: str = "") -> _Maybe:
        """A reading with its age where it is late, or the ``other`` where there is none; ``!``:
        alarming where it is not zero."""
        value = getattr(reading, field)
        if value is None and other:
            value = getattr(reading, other)
        text = None if value is None else write(value)
        if text is not None and field in ages:
            text += f" ({units.age(ages[field])} old)"
        return label, text, ("error" if value else "text") if style == "!" else style

    return [
        of("busy", "busy_percent", units.percent, "value"),
        ("fine samples", None if samples is None else f"{len(samples)} new", "text"),
        of("memory controller", "memory_controller_percent", units.percent),
        of("memory used", "memory_used_bytes", lambda _: units.gpu_memory(gpu), "value"),
        of("power", "power_watts", power, "value"),
        of("power limit", "power_limit_watts", units.watts),
        of("temperature", "temperature_celsius", units.celsius, "value"),
        ("slowdown at", None if hot is None else units.celsius(hot), "text"),
        of("memory temperature", "memory_temperature_celsius", units.celsius),
        of("fan", "fan_percent", units.percent),
        of("performance state", "performance_state", "P{}".format),
        of("SM clock", "sm_clock_mhz", _clock(identity.sm_clock_max_mhz)),
        of("memory clock", "memory_clock_mhz", _clock(identity.memory_clock_max_mhz)),
        of("throttle reasons", "throttle_reasons", lambda _: reasons, reasons_style),
        ("throttled", *_durations(reading)),
        of("PCIe link", "pcie_generation", lambda _: _link(gpu), other="pcie_width"),
        of("PCIe rx (to GPU)", "pcie_rx_bytes_per_second", units.rate),
        of("PCIe tx (to host)", "pcie_tx_bytes_per_second", units.rate),
        of("NVLink rx", "nvlink_rx_bytes_per_second", units.rate),
        of("NVLink tx", "nvlink_tx_bytes_per_second", units.rate),
        of("SM active", "sm_active_percent", units.percent),
        of("SM occupancy", "sm_occupancy_percent", units.percent),
        of("tensor active", "tensor_active_percent", units.percent),
        of("DRAM active", "dram_active_percent", units.percent),
        of("encoder", "encoder_percent", units.percent),
        of("decoder", "decoder_percent", units.percent),
        of("energy", "energy_joules", lambda joules: f"{joules / 3.6e6:.3f}kWh"),
        of("ECC corrected", "ecc_corrected_count", str),
        of("ECC uncorrected", "ecc_uncorrected_count", str, "!"),
        of(
            "remapped rows",
            "remapped_rows_correctable",
            lambda _: _remapped(reading),
            other="remapped_rows_uncorrectable",
        ),
        of("remap failed", "remapped_rows_failed", _flag, "!"),
        of("remap pending", "remapped_rows_pending", _flag, "!"),
    ]


def _throttle(reading: GpuReading) -> tuple[str, str]:
    held = throttle_text(reading)
    if held is not None:
        return held[0].removeprefix("throttled: "), held[1]
    reasons = [reason.replace("_", " ") for reason in reading.throttle_reasons or ()]
    return ", ".join(reasons) or "none", "text"


def _durations(reading: GpuReading) -> tuple[str | None, str]:
    """Since the snapshot before."""
    if reading.throttle_durations is None:
        return None, "text"
    held = [d for d in reading.throttle_durations if d.seconds > 0 and d.reason != "gpu_idle"]
    texts = [f"{one.reason.replace('_', ' ')} {one.seconds:.2f}s" for one in held]
    return ", ".join(texts) or "0s", "warn" if held else "text"


def _link(gpu: Gpu) -> str:
    reading, identity = gpu.reading, gpu.identity
    now = f"gen{units.count(reading.pcie_generation)} x{units.count(reading.pcie_width)}"
    most = f"gen{units.count(identity.pcie_generation_max)} x{units.count(identity.pcie_width_max)}"
    return f"{now} of {most}"


def _remapped(reading: GpuReading) -> str:
    correctable = units.count(reading.remapped_rows_correctable)
    return f"{correctable} correctable, {units.count(reading.remapped_rows_uncorrectable)} not"
