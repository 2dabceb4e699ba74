"""Snapshots as ``nvidia-smi`` writes them to a log, and read back."""

import time
from collections.abc import Callable, Iterable, Sequence

from gpuwatch.core.model import Gpu, Snapshot
from gpuwatch.sources.logs.source import LogOptions, read_lines
from gpuwatch.sources.logs.text import LogStats
from gpuwatch.sources.nvml.tables import EVENT_REASONS
from tests.support.simulated import looks

MIB = 1024 * 1024

COLUMNS: dict[str, tuple[str, str, Callable[[Gpu], object]]] = {
    # name: (unit, format, value)
    "timestamp": ("", "", lambda _gpu: None),
    "index": ("", "d", lambda gpu: gpu.identity.index),
    "name": ("", "s", lambda gpu: gpu.identity.name),
    "uuid": ("", "s", lambda gpu: gpu.identity.uuid),
    "pci.bus_id": ("", "s", lambda gpu: gpu.identity.pci_bus_id),
    "driver_version": ("", "s", lambda gpu: gpu.identity.driver_version),
    "utilization.gpu": ("%", ".0f", lambda gpu: gpu.reading.busy_percent),
    "utilization.memory": ("%", ".0f", lambda gpu: gpu.reading.memory_controller_percent),
    "memory.used": ("MiB", ".0f", lambda gpu: _mib(gpu.reading.memory_used_bytes)),
    "memory.total": ("MiB", ".0f", lambda gpu: _mib(gpu.identity.memory_total_bytes)),
    "power.draw": ("W", ".2f", lambda gpu: gpu.reading.power_watts),
    "power.limit": ("W", ".2f", lambda gpu: gpu.reading.power_limit_watts),
    "temperature.gpu": ("", ".0f", lambda gpu: gpu.reading.temperature_celsius),
    "fan.speed": ("%", ".0f", lambda gpu: gpu.reading.fan_percent),
    "clocks.current.sm": ("MHz", "d", lambda gpu: gpu.reading.sm_clock_mhz),
    "clocks.current.memory": ("MHz", "d", lambda gpu: gpu.reading.memory_clock_mhz),
    "pstate": ("", "s", lambda gpu: f"P{gpu.reading.performance_state}"),
    "pcie.link.gen.current": ("", "d", lambda gpu: gpu.reading.pcie_generation),
    "pcie.link.width.current": ("", "d", lambda gpu: gpu.reading.pcie_width),
    "clocks_event_reasons.active": ("", "s", lambda gpu: _mask(gpu.reading.throttle_reasons)),
    "ecc.errors.corrected.volatile.total": ("", "d", lambda gpu: gpu.reading.ecc_corrected_count),
}
ALL = tuple(COLUMNS)
USUAL = (
    "timestamp", "index", "utilization.gpu", "utilization.memory", "memory.used", "memory.total",
    "power.draw", "power.limit", "temperature.gpu",
)  # fmt: skip


def _mib(value: int | None) -> float | None:
    return None if value is None else value / MIB


def _mask(reasons: tuple[str, ...] | None) -> str | None:
    if reasons is None:
        return None
    return f"0x{sum(bit for bit, name in EVENT_REASONS if name in reasons):016x}"


def stamp(unix_seconds: float) -> str:
    """Local time with milliseconds, as ``timestamp`` is written."""
    whole, milliseconds = divmod(round(unix_seconds * 1000), 1000)
    return f"{time.strftime('%Y/%m/%d %H:%M:%S', time.localtime(whole))}.{milliseconds:03d}"


def header(columns: Sequence[str]) -> str:
    return ", ".join(
        f"{name} [{COLUMNS[name][0]}]" if COLUMNS[name][0] else name for name in columns
    )


def row(gpu: Gpu, at_unix_seconds: float, columns: Sequence[str], *, units: bool = True) -> str:
    cells = []
    for name in columns:
        unit, spec, value_of = COLUMNS[name]
        value = value_of(gpu)
        if name == "timestamp":
            cells.append(stamp(at_unix_seconds))
        elif value is None or value == "PNone":
            cells.append("[N/A]")
        else:
            cells.append(f"{value:{spec}}" + (f" {unit}" if units and unit else ""))
    return ", ".join(cells)


def query_log(
    snapshots: Iterable[Snapshot],
    columns: Sequence[str] = USUAL,
    *,
    with_header: bool = True,
    units: bool = True,
) -> str:
    """``nvidia-smi --query-gpu=COLUMNS --format=csv -l``; the GPUs' rows are 2 ms apart."""
    lines = [header(columns)] if with_header else []
    for snapshot in snapshots:
        for place, gpu in enumerate(snapshot.gpus):
            at = snapshot.taken_at_unix_seconds + 0.002 * place
            lines.append(row(gpu, at, columns, units=units))
    return "\n".join(lines) + "\n"


def simulated(
    scenario: str = "starved", gpus: int = 2, count: int = 40, interval: float = 1.0
) -> list[Snapshot]:
    """A simulated machine, ``count`` looks at it."""
    return list(looks(scenario, count, gpus=gpus, interval=interval))


def read(text: str, stats: LogStats | None = None, **options: object) -> list[Snapshot]:
    """The snapshots in a log; ``options`` are those of ``LogOptions``."""
    given = LogOptions(**options)  # type: ignore[arg-type]
    return list(read_lines(text.splitlines(), stats or LogStats(), given))


def busy(snapshots: Sequence[Snapshot]) -> list[list[float | None]]:
    return [[gpu.reading.busy_percent for gpu in snapshot.gpus] for snapshot in snapshots]
