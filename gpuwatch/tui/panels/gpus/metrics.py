"""Numbers and charts of a GPU: four metrics, each against its limit, and facts in words."""

import re
from dataclasses import dataclass

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading
from gpuwatch.core.throttling import REASONS
from gpuwatch.tui.charts.strips import highest, nice_ceiling
from gpuwatch.tui.terminal.frame import Run, right
from gpuwatch.tui.view import View

_POWER_SCALE_LEAST_WATTS = 50.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One chart: its field, its number beside it, its fixed scale, and how alarming it is."""

    label: str
    name: str
    text: str
    brief: str
    """``text`` without the limit."""
    value: float | None
    limit: float | None
    mood: str = ""
    """``""``, ``warn`` or ``error``: said by colour and by a sign."""

    @property
    def style(self) -> str:
        """Of a gauge or a chart of it. How busy a GPU is has the colour of its state."""
        return self.mood or "gauge"


Metrics = tuple[Metric, Metric, Metric, Metric]
CHARTED = ("busy_percent", "memory_used_bytes", "power_watts", "temperature_celsius")


def metrics(
    gpu: Gpu, host_memory_bytes: float | None = None, power_peak_watts: float | None = None
) -> Metrics:
    """Busy, memory, power and temperature of ``gpu``, each against its own limit.

    A GPU that shares the host's memory has none of its own and often states no power limit: its
    memory is drawn against ``host_memory_bytes``, its power on a scale that moves in steps above
    ``power_peak_watts``, the most that is shown.
    """
    identity, reading = gpu.identity, gpu.reading
    used, total = reading.memory_used_bytes, identity.memory_total_bytes
    watts, power_limit = reading.power_watts, _power_limit(gpu)
    heat, hot = reading.temperature_celsius, identity.temperature_slowdown_celsius
    memory_scale = host_memory_bytes if total is None and identity.memory_unified else total
    power_scale = power_limit
    if power_scale is None and power_peak_watts is not None:
        power_scale = nice_ceiling(power_peak_watts, _POWER_SCALE_LEAST_WATTS)
    memory_text = units.size_of(used, total)
    if reading.memory_used_is_process_sum:
        memory_text = f"{units.size(used)} procs"
    busy = units.percent(reading.busy_percent)
    draw, warmth = units.watts(watts), units.celsius(heat)
    power, temperature = units.watts_of(watts, power_limit), units.celsius_of(heat, hot)
    full, too_hot = _mood(used, total, 0.985), _mood(heat, hot, 1.0)
    names, taken = CHARTED, units.size(used)
    return (
        Metric("busy", names[0], busy, busy, reading.busy_percent, 100.0),
        Metric("memory", names[1], memory_text, taken, used, memory_scale, full),
        Metric("power", names[2], power, draw, watts, power_scale),
        Metric("temp", names[3], temperature, warmth, heat, hot or 100.0, too_hot),
    )


def scaled_metrics(view: View, gpu: Gpu, columns: int) -> Metrics:
    """``metrics`` with every scale there is: ``columns`` is how much of the past is shown."""
    host_memory = None if view.snapshot is None else view.snapshot.host.memory_total_bytes
    if _power_limit(gpu):
        return metrics(gpu, host_memory)
    series = view.history.gpu(gpu.uuid, "power_watts")
    peak = highest(series, view.window, columns, gpu.reading.power_watts)
    return metrics(gpu, host_memory, peak)


def _power_limit(gpu: Gpu) -> float | None:
    return gpu.reading.power_limit_watts or gpu.identity.power_limit_default_watts


def _mood(value: float | None, limit: float | None, error: float) -> str:
    if value is None or limit is None or limit <= 0:
        return ""
    share = value / limit
    return "error" if share >= error else "warn" if share >= 0.95 else ""


def throttle_text(reading: GpuReading) -> Run | None:
    """Reasons for lower clocks, and their style; ``None`` when nothing does or it is unknown."""
    held = [REASONS[one] for one in reading.throttle_reasons or () if one in REASONS]
    if not held:
        return None
    style = "error" if any(one.is_grave for one in held) else "warn"
    return "throttled: " + ", ".join(dict.fromkeys([one.label for one in held])), style


def late_text(reading: GpuReading) -> str | None:
    """How old the oldest number of a chart is, where the driver is too slow for every look."""
    ages = [seconds for name, seconds in reading.late_readings if name in CHARTED]
    return f"{units.age(max(ages)):>3} old" if ages else None


def short_name(name: str) -> str:
    """Without the maker and the family, which every row would repeat."""
    for word in ("NVIDIA ", "GeForce ", "Graphics Device ", "Tesla ", "Quadro "):
        name = name.removeprefix(word)
    return name


def placed_name(gpu: GpuIdentity) -> str:
    """In short; of a job on several machines with the machine before it."""
    short = short_name(gpu.name)
    return short if gpu.machine is None else f"{gpu.machine} {short}"


def brief_name(gpu: GpuIdentity, width: int) -> str:
    """As many of its parts as fit: ``A100-SXM4`` of ``A100-SXM4-80GB``."""
    short = placed_name(gpu)
    parts = [short[: gap.start()] for gap in re.finditer("[ -]", short) if gap.start() <= width]
    return parts[-1] if parts and len(short) > width else short


def facts(gpu: Gpu, calm: bool = False) -> list[Run]:
    """Everything worth a place on the heading, most important first, as (text, style); ``calm``
    leaves out the rates and activities, which change with every look."""
    if gpu.lost:
        return [("GPU is lost", "error")]
    reading = gpu.reading
    throttled, late = throttle_text(reading), late_text(reading)
    out = [] if throttled is None else [throttled]
    if reading.ecc_uncorrected_count:
        out.append((f"ECC errors {reading.ecc_uncorrected_count}", "error"))
    if reading.remapped_rows_failed:
        out.append(("row remap failed", "error"))
    elif reading.remapped_rows_pending:
        out.append(("row remap pending", "warn"))
    if late is not None:
        out.append((f"up to {late}", "warn"))
    numbers = _numbers(reading, gpu.identity.sm_clock_max_mhz, calm)
    out += [(form.format(value), "label") for form, value in numbers if value is not None]
    at_ease = reading.throttle_reasons is not None and throttled is None
    return [*out, ("not throttled", "dim")] if at_ease else out


def _numbers(
    reading: GpuReading, most_mhz: int | None, calm: bool
) -> list[tuple[str, float | str | None]]:
    """How each is written, and what was read."""
    received, sent = reading.pcie_rx_bytes_per_second, reading.pcie_tx_bytes_per_second
    rates = f"rx {right(units.rate(received), 8)} tx {right(units.rate(sent), 8)}"
    dram, nvlink = reading.dram_active_percent, reading.nvlink_rx_bytes_per_second
    link = reading.pcie_generation, reading.pcie_width
    moving = (
        ("{}", None if received is None and sent is None else rates),
        ("SM active {:3.0f}%", reading.sm_active_percent),
        ("tensor {:3.0f}%", reading.tensor_active_percent),
        ("DRAM {:3.0f}%", dram),
        ("mem-ctrl {:3.0f}%", reading.memory_controller_percent if dram is None else None),
        ("fan {:3.0f}%", reading.fan_percent),
        # Most jobs have no use for these two.
        ("enc {:3.0f}%", reading.encoder_percent or None),
        ("dec {:3.0f}%", reading.decoder_percent or None),
    )
    return [
        ("P{}", reading.performance_state),
        ("{:4d}MHz" if most_mhz is None else f"{{:4d}}/{most_mhz}MHz", reading.sm_clock_mhz),
        *(() if calm else moving),
        ("PCIe {}", None if None in link else "x".join(map(str, link))),
        ("NVLink {}", None if nvlink is None or calm else right(units.rate(nvlink), 8)),
        ("mem {}MHz", reading.memory_clock_mhz),
    ]
