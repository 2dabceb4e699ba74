"""One row of an ``nvidia-smi`` log to readings: the columns of a log, made ready once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpuwatch.core.model import GpuIdentity, Process
from gpuwatch.core.text import clean
from gpuwatch.sources.files.log_text import LogStats
from gpuwatch.sources.smi_log.fields import (
    COUNTER,
    FIELDS,
    LOST,
    REASON,
    REASON_NAMES,
    UNREAD,
    Field,
    Parse,
)
from gpuwatch.sources.smi_log.time import StampReader

UNKNOWN_NAME = "GPU"
_IDENTITIES_KEPT = 256

_KINDS = {"C": "compute", "G": "graphics", "C+G": "compute+graphics"}


class Row(NamedTuple):
    """What one line says, before it is known which GPU it is about."""

    key: str | int | None
    """What tells the GPUs of this log apart; ``None`` where no column does."""
    at_unix_seconds: float | None
    identity: dict[str, Any]
    reading: dict[str, Any]
    memory_total: int | None
    counters: tuple[tuple[str, float], ...]
    """Seconds that each reason has held since the driver was loaded."""
    violations: tuple[tuple[str, float], ...]
    """Share (0 to 1) of the time since the row before in which each reason held."""
    process: Process | None
    lost: bool


class _Column(NamedTuple):
    place: int
    target: str
    parse: Parse
    name: str
    """As in the log's header (canonical)."""


class RowReader:
    """Reads the cells of rows with these (canonical) column names; ``None`` leaves one out."""

    def __init__(self, names: Sequence[str | None], stamps: StampReader, stats: LogStats) -> None:
        self.names = tuple(names)
        self.width = len(self.names)
        self._stamps = stamps
        self._stats = stats
        self._reading: list[_Column] = []
        self._identity: list[_Column] = []
        self._process: list[_Column] = []
        self._special: dict[str, _Column] = {}
        self._reasons: list[tuple[int, str]] = []
        self._counters: list[tuple[int, str]] = []
        self._identities: dict[tuple[str, ...], dict[str, Any]] = {}
        self._missed: list[str] = []
        self._power_is_average = False
        self._prepare()
        self.has_time = not self._special.keys().isdisjoint({"timestamp", "time"})

    @property
    def has_key(self) -> bool:
        """Some column tells the GPUs apart."""
        targets = {column.target for column in self._identity}
        return not targets.isdisjoint({"index", "uuid", "pci_bus_id"})

    @property
    def has_processes(self) -> bool:
        return any(column.target == "pid" for column in self._process)

    def _prepare(self) -> None:
        best: dict[tuple[str, str], tuple[int, int, Field]] = {}
        for place, name in enumerate(self.names):
            if name is None:
                continue
            field = FIELDS.get(name)
            if field is not None:
                slot = (field.part, field.target)
                if slot not in best or field.rank < best[slot][0]:
                    best[slot] = (field.rank, place, field)
                continue
            prefix, _, reason = name.rpartition(".")
            if reason in REASON_NAMES and f"{prefix}." == REASON:
                self._reasons.append((place, reason))
            elif reason in REASON_NAMES and f"{prefix}." == COUNTER:
                self._counters.append((place, reason))
        for (part, target), (_rank, place, field) in sorted(best.items()):
            column = _Column(place, target, field.parse, self.names[place] or "")
            if part == "special":
                self._special[target] = column
            else:
                {
                    "reading": self._reading,
                    "identity": self._identity,
                    "process": self._process,
                }[part].append(column)
                if target == "power_watts":
                    self._power_is_average = self.names[place] == "power.draw.average"

    def read(self, cells: Sequence[str]) -> Row:
        """``cells``, stripped, as many as there are names."""
        self._stats.rows += 1
        self._missed.clear()
        reading = self._read_reading(cells)
        identity = self._read_identity(cells)
        memory_total = self._memory(cells, identity, reading)
        lost = any(cell.lower() in LOST for cell in cells if cell[:1] in "[gG" and cell)
        return Row(
            key=identity.get("index", identity.get("uuid", identity.get("pci_bus_id"))),
            at_unix_seconds=self._time(cells),
            identity=identity,
            reading=reading,
            memory_total=memory_total,
            counters=self._read_counters(cells) if self._counters else (),
            violations=self._violations(cells) if self._special else (),
            process=self._read_process(cells) if self._process else None,
            lost=lost,
        )

    def take_back(self) -> None:
        """The line that was read last is no row after all: count nothing of it."""
        stats = self._stats
        stats.rows -= 1
        stats.unread_values -= len(self._missed)
        stats.unread.subtract(self._missed)

    def _read_reading(self, cells: Sequence[str]) -> dict[str, Any]:
        reading: dict[str, Any] = {}
        stats = self._stats
        for place, target, parse, name in self._reading:
            value = parse(cells[place])
            if value is None:
                stats.unread_values += 1
                stats.unread[name] += 1
                self._missed.append(name)
            else:
                reading[target] = value
        if self._reasons and "throttle_reasons" not in reading:
            answers = [(reason, cells[place].lower()) for place, reason in self._reasons]
            known = [(reason, said) for reason, said in answers if said not in UNREAD]
            if known:
                held = [reason for reason, said in known if said in {"active", "1", "yes"}]
                reading["throttle_reasons"] = tuple(held)
            stats.unread_values += len(answers) - len(known)
        if self._power_is_average and "power_watts" in reading:
            reading["power_is_average"] = True
        return reading

    def _read_identity(self, cells: Sequence[str]) -> dict[str, Any]:
        written = tuple([cells[column.place] for column in self._identity])
        found = self._identities.get(written)
        if found is None:
            found = {}
            for place, target, parse, _ in self._identity:
                value = parse(cells[place])
                if value is not None:
                    found[target] = value
            if len(self._identities) >= _IDENTITIES_KEPT:
                self._identities.clear()
            self._identities[written] = found
        return found

    def _memory(
        self, cells: Sequence[str], identity: dict[str, Any], reading: dict[str, Any]
    ) -> int | None:
        """The total where no column says it: two of used, free and total say the third (reserved
        memory counts as used)."""
        column = self._special.get("memory_free")
        free = None if column is None else column.parse(cells[column.place])
        if not isinstance(free, int):
            return None
        used, total = reading.get("memory_used_bytes"), identity.get("memory_total_bytes")
        if used is None and total is not None and free <= total:
            reading["memory_used_bytes"] = total - free
        elif total is None and used is not None:
            column = self._special.get("memory_reserved")
            reserved = None if column is None else column.parse(cells[column.place])
            # Without the reserved part it is some hundred MiB short.
            return int(used) + free + (reserved if isinstance(reserved, int) else 0)
        return None

    def count_unread_time(self, cells: Sequence[str]) -> None:
        """Of a row that has no time in a log that has."""
        stats = self._stats
        if not stats.unread_times:
            column = self._special.get("timestamp") or self._special["time"]
            stats.unread_time = clean(cells[column.place], 60)
        stats.unread_times += 1

    def _time(self, cells: Sequence[str]) -> float | None:
        stamp = self._special.get("timestamp")
        if stamp is not None:
            return self._stamps.stamp(cells[stamp.place])
        clock, date = self._special.get("time"), self._special.get("date")
        if clock is None:
            return None
        if date is not None:
            return self._stamps.date_and_clock(cells[date.place], cells[clock.place])
        return self._stamps.clock(cells[clock.place])

    def _read_counters(self, cells: Sequence[str]) -> tuple[tuple[str, float], ...]:
        parse = FIELDS["ecc.errors.corrected.volatile.total"].parse
        counted = [(reason, parse(cells[place])) for place, reason in self._counters]
        return tuple([(reason, value / 1e6) for reason, value in counted if isinstance(value, int)])

    def _violations(self, cells: Sequence[str]) -> tuple[tuple[str, float], ...]:
        found: list[tuple[str, float]] = []
        power, thermal = (
            self._special.get("power_violation_percent"),
            self._special.get("thermal_violation"),
        )
        if power is not None and isinstance(share := power.parse(cells[power.place]), float):
            found.append(("sw_power_cap", share / 100.0))
        if thermal is not None and (held := thermal.parse(cells[thermal.place])) is not None:
            found.append(("sw_thermal_slowdown", 1.0 if held else 0.0))
        return tuple(found)

    def _read_process(self, cells: Sequence[str]) -> Process | None:
        found: dict[str, Any] = {}
        for place, target, parse, _ in self._process:
            found[target] = parse(cells[place])
        if found.get("pid") is None:
            return None
        found["gpu_kind"] = _KINDS.get(found.get("gpu_kind") or "")
        return Process(**found)


def make_identity(found: dict[str, Any], place: int, memory_total: int | None) -> GpuIdentity:
    """``place`` is the GPU's number in the log, for logs that do not say its index."""
    named = {"index": place, "name": UNKNOWN_NAME, **found}
    if "uuid" not in named:
        bus = named.get("pci_bus_id")
        named["uuid"] = f"log-gpu-{named['index']}" if bus is None else f"log-{bus}"
    if memory_total is not None:
        named.setdefault("memory_total_bytes", memory_total)
    return GpuIdentity(**named)
