"""Columns of ``nvidia-smi``'s logs: what each heading is called, where it goes and in what unit.

``COLUMNS`` is all that is known of them: a further heading is a row. Sources:
``nvidia-smi --help-query-gpu`` (drivers 450 to 610: older names stay as aliases),
``nvidia-smi dmon -h`` and ``pmon -h``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.sources.files.log_text import LogError
from gpuwatch.sources.nvml.tables import EVENT_REASONS, PSTATE_MAX

COLUMNS_MAX = 256
TEXT_LENGTH = 200
SKIPPED = "-"
MIB = 1024 * 1024

Value = float | int | str | bool | tuple[str, ...] | None
Parse = Callable[[str], Value]

_UNREAD = frozenset(
    {
        "",
        "-",
        "n/a",
        "not supported",
        "not available",
        "unknown error",
        "gpu is lost",
        "err!",
        "nan",
    }
)
"""Texts, beside those in brackets, by which ``nvidia-smi`` says that it has no value."""


class Quantity(NamedTuple):
    """Bounds in the model's unit, and what one of each unit of the log is in it; the first unit is
    that of a number without one."""

    low: float
    high: float
    units: Mapping[str, float]
    whole: bool = False


QUANTITIES = {
    "percent": Quantity(0.0, 100.0, {"%": 1.0}),
    "fan": Quantity(0.0, 200.0, {"%": 1.0}),
    # dmon writes MB for what NVML counts in MiB.
    "bytes": Quantity(0, 2.0**50, {"MiB": MIB, "MB": MIB, "KiB": 1024, "GiB": 2.0**30}, True),
    "bytes_per_second": Quantity(0.0, 1e15, {"MB/s": MIB, "KB/s": 1024, "GB/s": 2.0**30}),
    "watts": Quantity(0.0, 20_000.0, {"W": 1.0, "mW": 0.001}),
    "celsius": Quantity(-50.0, 200.0, {"C": 1.0}),
    "mhz": Quantity(0, 100_000, {"MHz": 1.0}, True),
    "seconds": Quantity(0.0, 1e9, {"us": 1e-6, "ms": 1e-3}),
    "count": Quantity(0, 1e15, {"": 1.0}, True),
    "index": Quantity(0, 4095, {"": 1.0}, True),
    "link": Quantity(1, 64, {"": 1.0}, True),
    "pid": Quantity(1, 1 << 32, {"#": 1.0}, True),
}
_FLAGS = {
    **dict.fromkeys(("yes", "enabled", "active", "1"), True),
    **dict.fromkeys(("no", "disabled", "not active", "0"), False),
}


class Column(NamedTuple):
    """Field of a part of the snapshot (``other`` is worked out from), and what it is measured in.

    Of several columns for the same field the one with the lowest ``rank`` is taken.
    """

    part: str
    field: str
    kind: str
    """A key of ``QUANTITIES``, or ``text``, ``flag``, ``state`` or ``reasons``."""
    rank: int = 0


def _part(part: str, **fields: str) -> dict[str, Column]:
    """``field="kind heading heading..."``, the best heading first."""
    found = {}
    for field, text in fields.items():
        kind, *headings = text.split()
        for rank, heading in enumerate(headings):
            found[heading] = Column(part, field, kind, rank)
    return found


REASON = "clocks_event_reasons."
COUNTER = "clocks_event_reasons_counters."
"""Before a reason's name: ``Active`` or ``Not Active``; time since the driver was loaded."""

COLUMNS: Mapping[str, Column] = {
    **_part("other", timestamp="text timestamp", date="text date", time="text time"),
    **_part(
        "identity",
        index="index index",
        uuid="text uuid",
        name="text name",
        pci_bus_id="text pci.bus_id",
        driver_version="text driver_version",
        compute_capability="text compute_cap",
        mig_mode="flag mig.mode.current",
        memory_total_bytes="bytes memory.total",
        power_limit_default_watts="watts power.default_limit",
        power_limit_max_watts="watts power.max_limit",
        sm_clock_max_mhz="mhz clocks.max.sm clocks.max.graphics",
        memory_clock_max_mhz="mhz clocks.max.memory",
        pcie_generation_max="link pcie.link.gen.max pcie.link.gen.gpumax",
        pcie_width_max="link pcie.link.width.max",
    ),
    **_part(
        "reading",
        busy_percent="percent utilization.gpu",
        memory_controller_percent="percent utilization.memory",
        encoder_percent="percent utilization.encoder",
        decoder_percent="percent utilization.decoder",
        memory_used_bytes="bytes memory.used",
        # On drivers since 535 power.draw is the average of a second on most cards.
        power_watts="watts power.draw.instant power.draw power.draw.average",
        power_limit_watts="watts enforced.power.limit power.limit",
        temperature_celsius="celsius temperature.gpu",
        memory_temperature_celsius="celsius temperature.memory",
        fan_percent="fan fan.speed",
        sm_clock_mhz="mhz clocks.current.sm clocks.current.graphics",
        memory_clock_mhz="mhz clocks.current.memory",
        performance_state="state pstate",
        pcie_generation="link pcie.link.gen.current",
        pcie_width="link pcie.link.width.current",
        # Of dmon alone and seen from the GPU: it receives from the host.
        pcie_rx_bytes_per_second="bytes_per_second dmon.rxpci",
        pcie_tx_bytes_per_second="bytes_per_second dmon.txpci",
        sm_active_percent="percent dmon.smutil",
        sm_occupancy_percent="percent dmon.smocc",
        throttle_reasons="reasons clocks_event_reasons.active",
        ecc_corrected_count="count ecc.errors.corrected.volatile.total",
        ecc_uncorrected_count="count ecc.errors.uncorrected.volatile.total",
        remapped_rows_correctable="count remapped_rows.correctable",
        remapped_rows_uncorrectable="count remapped_rows.uncorrectable",
        remapped_rows_pending="flag remapped_rows.pending",
        remapped_rows_failed="flag remapped_rows.failure",
    ),
    **_part(
        "other",
        memory_free="bytes memory.free",
        memory_reserved="bytes memory.reserved",
        power_violation_percent="percent dmon.pviol",
        thermal_violation="flag dmon.tviol",
    ),
    **_part(
        "process",
        pid="pid pmon.pid",
        gpu_kind="text pmon.type",
        gpu_busy_percent="percent pmon.sm",
        gpu_memory_bytes="bytes pmon.fb",
        name="text pmon.command",
    ),
    **{f"{REASON}{name}": Column("reason", name, "flag") for _, name in EVENT_REASONS},
    **{f"{COUNTER}{name}": Column("counter", name, "seconds") for _, name in EVENT_REASONS},
}

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
    **{name: f"dmon.{name}" for name in ("rxpci", "txpci", "smutil", "smocc", "pviol", "tviol")},
}
PMON: Mapping[str, str] = {
    **{name: DMON[name] for name in ("date", "time", "gpu")},
    **{name: f"pmon.{name}" for name in ("pid", "type", "sm", "fb", "command")},
    "name": "pmon.command",
}

_OTHER = re.compile(
    r"(?:clocks|clocks_event_reasons|clocks_event_reasons_counters|ecc|pci|pcie|power|temperature"
    r"|memory|utilization|encoder|decoder|retired_pages|remapped_rows|mig|inforom|gom"
    r"|gpu_operation_mode|driver_model|compute_mode|display_mode|display_active|display_attached"
    r"|persistence_mode|accounting|addressing_mode|count|serial|gpu_serial|vbios_version|fabric"
    r"|platform|protected_memory|gsp|c2c|dramencryption|edpp_multiplier|module|enforced|fan"
    r"|hostname|board_id|kmd_version|driver|gpu_recovery_action)(?:[._][a-z0-9_.-]+)*"
)
_UNIT = re.compile(r"\s*\[([^\]]*)\]\s*$")


def canonical(heading: str) -> str:
    """A query field as this module calls it: ``clocks.sm [MHz]`` is ``clocks.current.sm``."""
    bare = _UNIT.sub("", heading.strip().strip('"\ufeff').strip()).lower()
    bare = bare.replace("clocks_throttle_reasons", "clocks_event_reasons", 1)
    return _ALIASES.get(bare, bare)


def heading_unit(heading: str) -> str:
    """``MiB`` of ``memory.used [MiB]``; empty where none is written."""
    found = _UNIT.search(heading)
    return "" if found is None else found[1].strip()


def is_field(name: str) -> bool:
    """True where ``nvidia-smi`` has a query field of this (canonical) name, kept or not."""
    return name in COLUMNS or _OTHER.fullmatch(name) is not None


def parse_columns(text: str) -> tuple[str, ...]:
    """``timestamp,utilization.gpu,-`` to canonical names. Raises ``LogError``."""
    names = [part.strip() for part in text.split(",")]
    if len(names) > COLUMNS_MAX:
        raise LogError(f"--columns names more than {COLUMNS_MAX} columns.")
    found = [SKIPPED if name in {"", SKIPPED} else _named(name) for name in names]
    if COLUMNS.keys().isdisjoint(found):
        raise LogError("--columns names no column that says anything about a GPU.")
    return tuple(found)


def _named(name: str) -> str:
    found = canonical(name)
    if found not in COLUMNS and found in DMON:
        return DMON[found]
    if is_field(found):
        return found
    near = difflib.get_close_matches(found, COLUMNS, 1)
    hint = f" (is it {near[0]}?)" if near else ""
    raise LogError(
        f"{clean(name, 60)!r} in --columns is not a column of nvidia-smi{hint}: write the names of "
        "the query, and - for a column to skip."
    )


# --- values ----------------------------------------------------------------------------------


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


def parser(kind: str, unit: str = "") -> Parse:
    """A reader of cells of this kind: ``None`` for what has no value or one out of range.

    ``unit`` is the heading's; a cell's own goes before it.
    """
    quantity = QUANTITIES.get(kind)
    if quantity is None:
        return _TEXTS[kind]
    low, high, units, whole = quantity
    usual = units.get(unit, next(iter(units.values())))

    def parse(text: str) -> float | int | None:
        amount, _, own = text.partition(" ")
        try:
            value: float | None = float(amount)
        except ValueError:
            value = number(amount)
        if value is None:
            return None
        value *= units.get(own, usual) if own else usual
        # Neither NaN nor infinity is within bounds.
        if low <= value <= high:
            return round(value) if whole else value
        return None

    return parse


def _text(text: str) -> str | None:
    unread = text[:1] == "[" or text.lower() in _UNREAD
    return None if unread else clean(text, TEXT_LENGTH)


def _performance_state(text: str) -> int | None:
    value = number(text.removeprefix("P"))
    return int(value) if value is not None and 0 <= value <= PSTATE_MAX else None


def _flag(text: str) -> bool | None:
    return _FLAGS.get(text.lower())


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


_TEXTS: Mapping[str, Parse] = {
    "text": _text,
    "flag": _flag,
    "state": _performance_state,
    "reasons": _reasons,
}
