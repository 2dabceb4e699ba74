"""What the columns of ``nvidia-smi``'s logs are called, and what they mean here.

Sources: ``nvidia-smi --help-query-gpu`` (drivers 450 to 610: older names stay as aliases),
``nvidia-smi dmon -h`` and ``pmon -h``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.sources.nvml.tables import EVENT_REASONS, PSTATE_MAX

MIB = 1024 * 1024
TEXT_LENGTH = 200

Value = float | int | str | bool | tuple[str, ...] | None
Parse = Callable[[str], Value]

UNREAD = frozenset(
    {
        "",
        "-",
        "n/a",
        "[n/a]",
        "not supported",
        "[not supported]",
        "[unknown error]",
        "unknown error",
        "[not found]",
        "[insufficient permissions]",
        "[requires reset]",
        "[reset required]",
        "[gpu requires reset]",
        "[gpu is lost]",
        "[not available]",
        "[unknown]",
        "err!",
        "error",
        "nan",
    }
)
"""How ``nvidia-smi`` writes that it has no value, in lower case."""
LOST = frozenset({"[gpu is lost]", "gpu is lost"})


class Field(NamedTuple):
    """Where a column goes: a field of the reading, of the identity, or a ``special`` one.

    Of several columns for the same field the one with the lowest ``rank`` is taken.
    """

    target: str
    parse: Parse
    part: str = "reading"
    rank: int = 0


def number(text: str) -> float | None:
    """A finite number, with or without a unit after it."""
    amount = text.partition(" ")[0]
    try:
        value = float(amount)
    except ValueError:
        # A table program of a country that writes 212,34 may have been at it.
        if amount.count(",") != 1 or not amount.replace(",", "").isdecimal():
            return None
        value = float(amount.replace(",", "."))
    # Neither NaN nor infinity is a measurement.
    return value if value - value == 0.0 else None


def _between(low: float, high: float, scale: float = 1.0) -> Parse:
    def parse(text: str) -> float | None:
        value = number(text)
        return value * scale if value is not None and low <= value <= high else None

    return parse


def _whole(low: float, high: float, scale: int = 1) -> Parse:
    def parse(text: str) -> int | None:
        value = number(text)
        return round(value * scale) if value is not None and low <= value <= high else None

    return parse


def _text(text: str) -> str | None:
    return None if text.lower() in UNREAD else clean(text, TEXT_LENGTH)


def _performance_state(text: str) -> int | None:
    value = number(text.removeprefix("P"))
    return int(value) if value is not None and 0 <= value <= PSTATE_MAX else None


def _flag(text: str) -> bool | None:
    return {
        "yes": True,
        "no": False,
        "enabled": True,
        "disabled": False,
        "active": True,
        "not active": False,
        "1": True,
        "0": False,
    }.get(text.lower())


def _reasons(text: str) -> tuple[str, ...] | None:
    """``0x0000000000000004``, or the same in decimal."""
    try:
        bits = int(text, 16) if text[:2].lower() == "0x" else int(text)
    except ValueError:
        return None
    # All ones is the driver's "not available".
    if not 0 <= bits < 1 << 32:
        return None
    return tuple([name for bit, name in EVENT_REASONS if bits & bit])


_PERCENT = _between(0.0, 100.0)
_BYTES = _whole(0, 1 << 30, MIB)
_WATTS = _between(0.0, 20_000.0)
_CELSIUS = _between(-50.0, 200.0)
_MEGAHERTZ = _whole(0, 100_000)
_COUNT = _whole(0, 1e15)
_RATE = _between(0.0, 1e9, float(MIB))

FIELDS: Mapping[str, Field] = {
    "timestamp": Field("timestamp", _text, "special"),
    "date": Field("date", _text, "special"),
    "time": Field("time", _text, "special"),
    "index": Field("index", _whole(0, 4095), "identity"),
    "uuid": Field("uuid", _text, "identity"),
    "name": Field("name", _text, "identity"),
    "pci.bus_id": Field("pci_bus_id", _text, "identity"),
    "driver_version": Field("driver_version", _text, "identity"),
    "compute_cap": Field("compute_capability", _text, "identity"),
    "mig.mode.current": Field("mig_mode", _flag, "identity"),
    "memory.total": Field("memory_total_bytes", _BYTES, "identity"),
    "power.default_limit": Field("power_limit_default_watts", _WATTS, "identity"),
    "power.max_limit": Field("power_limit_max_watts", _WATTS, "identity"),
    "clocks.max.sm": Field("sm_clock_max_mhz", _MEGAHERTZ, "identity"),
    "clocks.max.graphics": Field("sm_clock_max_mhz", _MEGAHERTZ, "identity", 1),
    "clocks.max.memory": Field("memory_clock_max_mhz", _MEGAHERTZ, "identity"),
    "pcie.link.gen.max": Field("pcie_generation_max", _whole(1, 20), "identity"),
    "pcie.link.gen.gpumax": Field("pcie_generation_max", _whole(1, 20), "identity", 1),
    "pcie.link.width.max": Field("pcie_width_max", _whole(1, 64), "identity"),
    "utilization.gpu": Field("busy_percent", _PERCENT),
    "utilization.memory": Field("memory_controller_percent", _PERCENT),
    "utilization.encoder": Field("encoder_percent", _PERCENT),
    "utilization.decoder": Field("decoder_percent", _PERCENT),
    "memory.used": Field("memory_used_bytes", _BYTES),
    "memory.free": Field("memory_free", _BYTES, "special"),
    "memory.reserved": Field("memory_reserved", _BYTES, "special"),
    # On drivers since 535 power.draw is the average of a second on most cards.
    "power.draw.instant": Field("power_watts", _WATTS),
    "power.draw": Field("power_watts", _WATTS, "reading", 1),
    "power.draw.average": Field("power_watts", _WATTS, "reading", 2),
    "enforced.power.limit": Field("power_limit_watts", _WATTS),
    "power.limit": Field("power_limit_watts", _WATTS, "reading", 1),
    "temperature.gpu": Field("temperature_celsius", _CELSIUS),
    "temperature.memory": Field("memory_temperature_celsius", _CELSIUS),
    "fan.speed": Field("fan_percent", _between(0.0, 200.0)),
    "clocks.current.sm": Field("sm_clock_mhz", _MEGAHERTZ),
    "clocks.current.graphics": Field("sm_clock_mhz", _MEGAHERTZ, "reading", 1),
    "clocks.current.memory": Field("memory_clock_mhz", _MEGAHERTZ),
    "pstate": Field("performance_state", _performance_state),
    "pcie.link.gen.current": Field("pcie_generation", _whole(1, 20)),
    "pcie.link.width.current": Field("pcie_width", _whole(1, 64)),
    "clocks_event_reasons.active": Field("throttle_reasons", _reasons),
    "ecc.errors.corrected.volatile.total": Field("ecc_corrected_count", _COUNT),
    "ecc.errors.uncorrected.volatile.total": Field("ecc_uncorrected_count", _COUNT),
    "remapped_rows.correctable": Field("remapped_rows_correctable", _COUNT),
    "remapped_rows.uncorrectable": Field("remapped_rows_uncorrectable", _COUNT),
    "remapped_rows.pending": Field("remapped_rows_pending", _flag),
    "remapped_rows.failure": Field("remapped_rows_failed", _flag),
    # Of dmon alone, in MiB a second and seen from the GPU: it receives from the host.
    "dmon.rxpci": Field("pcie_rx_bytes_per_second", _RATE),
    "dmon.txpci": Field("pcie_tx_bytes_per_second", _RATE),
    "dmon.smutil": Field("sm_active_percent", _PERCENT),
    "dmon.smocc": Field("sm_occupancy_percent", _PERCENT),
    "dmon.pviol": Field("power_violation_percent", _PERCENT, "special"),
    "dmon.tviol": Field("thermal_violation", _flag, "special"),
    # Of pmon.
    "pmon.pid": Field("pid", _whole(1, 1 << 32), "process"),
    "pmon.type": Field("gpu_kind", _text, "process"),
    "pmon.sm": Field("gpu_busy_percent", _PERCENT, "process"),
    "pmon.fb": Field("gpu_memory_bytes", _BYTES, "process"),
    "pmon.command": Field("name", _text, "process"),
}

REASON_NAMES = frozenset(name for _, name in EVENT_REASONS)
REASON = "clocks_event_reasons."
COUNTER = "clocks_event_reasons_counters."
"""Followed by a reason: ``Active`` or ``Not Active``; microseconds since the driver was loaded."""

_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "bus_id": "pci.bus_id",
    "clocks.sm": "clocks.current.sm",
    "clocks.gr": "clocks.current.graphics",
    "clocks.graphics": "clocks.current.graphics",
    "clocks.mem": "clocks.current.memory",
    "clocks.memory": "clocks.current.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "ecc.errors.corrected.volatile.dram": "ecc.errors.corrected.volatile.device_memory",
    "remapped_rows.failed": "remapped_rows.failure",
}

DMON: Mapping[str, str] = {
    "date": "date",
    "time": "time",
    "gpu": "index",
    "pwr": "power.draw",
    "temp": "temperature.gpu",
    "gtemp": "temperature.gpu",
    "mtemp": "temperature.memory",
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "enc": "utilization.encoder",
    "dec": "utilization.decoder",
    "mclk": "clocks.current.memory",
    "pclk": "clocks.current.sm",
    "fb": "memory.used",
    "sbecc": "ecc.errors.corrected.volatile.total",
    "dbecc": "ecc.errors.uncorrected.volatile.total",
    "rxpci": "dmon.rxpci",
    "txpci": "dmon.txpci",
    "smutil": "dmon.smutil",
    "smocc": "dmon.smocc",
    "pviol": "dmon.pviol",
    "tviol": "dmon.tviol",
}
PMON: Mapping[str, str] = {
    "date": "date",
    "time": "time",
    "gpu": "index",
    "pid": "pmon.pid",
    "type": "pmon.type",
    "sm": "pmon.sm",
    "fb": "pmon.fb",
    "command": "pmon.command",
    "name": "pmon.command",
}

_OTHER = re.compile(
    r"(?:clocks|clocks_throttle_reasons|clocks_event_reasons|clocks_event_reasons_counters|ecc|pci"
    r"|pcie|power|temperature|memory|utilization|encoder|decoder|retired_pages|remapped_rows|mig"
    r"|inforom|gom|gpu_operation_mode|driver_model|compute_mode|display_mode|display_active"
    r"|display_attached|persistence_mode|accounting|addressing_mode|count|serial|gpu_serial"
    r"|vbios_version|fabric|platform|protected_memory|gsp|c2c|dramEncryption|edpp_multiplier"
    r"|module|enforced|fan|hostname|board_id|kmd_version|driver|gpu_recovery_action)"
    r"(?:[._][A-Za-z0-9_.-]+)*"
)
_UNIT = re.compile(r"\s*\[[^\]]*\]\s*$")


def canonical(name: str) -> str:
    """A query field as this module calls it: ``clocks.sm [MHz]`` is ``clocks.current.sm``."""
    bare = _UNIT.sub("", name.strip().strip('"\ufeff').strip()).lower()
    bare = bare.replace("clocks_throttle_reasons", "clocks_event_reasons", 1)
    return _ALIASES.get(bare, bare)


def is_known(name: str) -> bool:
    """Whether a column of this (canonical) name says something that is kept."""
    if name in FIELDS:
        return True
    prefix, _, reason = name.rpartition(".")
    return reason in REASON_NAMES and f"{prefix}." in {REASON, COUNTER}


def is_field(name: str) -> bool:
    """Whether ``nvidia-smi`` has a query field of this (canonical) name, kept or not."""
    return is_known(name) or _OTHER.fullmatch(name) is not None
