"""Cells of one row of a log, as parts of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuwatch.core.model import Process
from gpuwatch.sources.smi_log.columns import COLUMNS, Parse, Value, parser
from gpuwatch.sources.smi_log.stamps import StampReader

_LOST = frozenset({"[gpu is lost]", "gpu is lost"})
_IDENTITIES_KEPT = 256
_KINDS = {"C": "compute", "G": "graphics", "C+G": "compute+graphics"}


class Row(NamedTuple):
    """One line, before it is known which GPU it is about."""

    key: str | int | None
    """Tells the GPUs of this log apart; ``None`` where no column does."""
    at_unix_seconds: float | None
    identity: dict[str, Any]
    reading: dict[str, Any]
    counters: Mapping[str, float]
    """Seconds that each reason has held since the driver was loaded."""
    violations: Mapping[str, float]
    """Share (0 to 1) of the time since the row before in which each reason held."""
    process: Process | None
    lost: bool
    unread: tuple[str, ...]
    """Columns (of readings) without a value."""


class _Cell(NamedTuple):
    place: int
    field: str
    name: str
    parse: Parse


class RowReader:
    """Reads the cells of rows with these (canonical) column names; unknown ones are left out."""

    def __init__(self, names: Sequence[str], units: Sequence[str], stamps: StampReader) -> None:
        self.width = len(names)
        self._stamps = stamps
        self._parts: dict[str, list[_Cell]] = {}
        self._identities: dict[tuple[str, ...], dict[str, Any]] = {}
        best: dict[tuple[str, str], tuple[int, int]] = {}
        for place, name in enumerate(names):
            column = COLUMNS.get(name)
            if column is not None:
                slot = (column.part, column.field)
                best[slot] = min(best.get(slot, (column.rank, place)), (column.rank, place))
        for (part, field), (_rank, place) in sorted(best.items()):
            name = names[place]
            parse = parser(COLUMNS[name].kind, units[place] if units else "")
            self._parts.setdefault(part, []).append(_Cell(place, field, name, parse))
        self._stamp_places = {cell.field: cell.place for cell in self._parts.get("other", ())}
        self.has_time = not self._stamp_places.keys().isdisjoint({"timestamp", "time"})
        fields = {cell.field for cell in self._parts.get("identity", ())}
        self.has_key = not fields.isdisjoint({"index", "uuid", "pci_bus_id"})
        self._power_is_average = any(
            cell.name == "power.draw.average" for cell in self._parts.get("reading", ())
        )

    def read(self, cells: Sequence[str]) -> Row:
        """``cells``, stripped, as many as there are names."""
        unread: list[str] = []
        reading = self._read("reading", cells, unread)
        identity = self._identity(cells)
        reasons = self._read("reason", cells, unread) if "reason" in self._parts else {}
        if reasons and "throttle_reasons" not in reading:
            reading["throttle_reasons"] = tuple([name for name, held in reasons.items() if held])
        if self._power_is_average and "power_watts" in reading:
            reading["power_is_average"] = True
        other = self._read("other", cells)
        if "memory_free" in other:
            identity = _third_memory(identity, reading, other)
        return Row(
            key=identity.get("index", identity.get("uuid", identity.get("pci_bus_id"))),
            at_unix_seconds=self._time(other),
            identity=identity,
            reading=reading,
            counters=self._read("counter", cells) if "counter" in self._parts else {},
            violations=_violations(other) if len(other) > 1 else {},
            process=self._process(cells) if "process" in self._parts else None,
            lost=bool(unread) and not _LOST.isdisjoint(map(str.lower, cells)),
            unread=tuple(unread),
        )

    def time_text(self, cells: Sequence[str]) -> str:
        """The stamp as it is written, of a log that has times."""
        return cells[self._stamp_places.get("timestamp", self._stamp_places.get("time", 0))]

    def _read(
        self, part: str, cells: Sequence[str], unread: list[str] | None = None
    ) -> dict[str, Any]:
        found: dict[str, Value] = {}
        for place, field, name, parse in self._parts.get(part, ()):
            value = parse(cells[place])
            if value is not None:
                found[field] = value
            elif unread is not None:
                unread.append(name)
        return found

    def _identity(self, cells: Sequence[str]) -> dict[str, Any]:
        """The same object for the same text, which is parsed once."""
        text = tuple([cells[cell.place] for cell in self._parts.get("identity", ())])
        found = self._identities.get(text)
        if found is None:
            if len(self._identities) >= _IDENTITIES_KEPT:
                self._identities.clear()
            found = self._identities[text] = self._read("identity", cells)
        return found

    def _time(self, other: Mapping[str, Any]) -> float | None:
        if "timestamp" in other:
            return self._stamps.stamp(other["timestamp"])
        if "time" not in other:
            return None
        if "date" in other:
            return self._stamps.stamp(f"{other['date']} {other['time']}")
        return self._stamps.clock(other["time"])

    def _process(self, cells: Sequence[str]) -> Process | None:
        found = self._read("process", cells)
        if "pid" not in found:
            return None
        found["gpu_kind"] = _KINDS.get(found.get("gpu_kind", ""))
        return Process(**found)


def _third_memory(
    identity: dict[str, Any], reading: dict[str, Any], other: Mapping[str, Any]
) -> dict[str, Any]:
    """The identity; two of used, free and total give the third (reserved memory is used)."""
    free = other["memory_free"]
    used, total = reading.get("memory_used_bytes"), identity.get("memory_total_bytes")
    if used is None and total is not None and free <= total:
        reading["memory_used_bytes"] = total - free
    elif total is None and used is not None:
        # Without the reserved part it is some hundred MiB short.
        total = used + free + other.get("memory_reserved", 0)
        return {**identity, "memory_total_bytes": total}
    return identity


def _violations(other: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    if "power_violation_percent" in other:
        found["sw_power_cap"] = other["power_violation_percent"] / 100.0
    if "thermal_violation" in other:
        found["sw_thermal_slowdown"] = float(other["thermal_violation"])
    return found
