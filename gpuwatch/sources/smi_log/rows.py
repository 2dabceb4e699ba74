"""Rows of a log: what it says of one GPU, or one process, at one time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpuwatch.core.model import Process
from gpuwatch.core.text import clean
from gpuwatch.sources.files.log_text import LogStats
from gpuwatch.sources.smi_log.columns import COLUMNS, Named, named
from gpuwatch.sources.smi_log.stamps import StampReader
from gpuwatch.sources.smi_log.values import Parse, Value, parser

_LOST = frozenset({"[gpu is lost]", "gpu is lost"})
_KEPT = 256
_KINDS = {"C": "compute", "G": "graphics", "C+G": "compute+graphics"}
_PROCESS_KEYS = {
    **dict.fromkeys(("pid", "process id"), "pmon.pid"),
    "type": "pmon.type",
    **dict.fromkeys(("process_name", "name", "command"), "pmon.command"),
    **dict.fromkeys(("used_memory", "used gpu memory", "gpu_memory_usage"), "pmon.fb"),
}
_MIG_KEYS = 4096
"""Keys of MIG instances begin here: no GPU has such an index."""


class Row(NamedTuple):
    """What is known of one GPU at one time, before it is known which GPU that is."""

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


RowsOrEnds = Iterator[Row | None]
"""What a format makes of its text; ``None`` where a moment ends for certain."""


class _Cell(NamedTuple):
    place: int
    field: str
    name: str
    parse: Parse
    known: dict[str, Value]
    """What texts that came early stand for: most come again and again."""


_NEW = ()


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
            column = COLUMNS[name]
            parse = parser(column.kind, (units[place] if units else "") or column.unit)
            self._parts.setdefault(part, []).append(_Cell(place, field, name, parse, {}))
        places = {cell.field: cell.place for cell in self._parts.get("other", ())}
        written = [places[name] for name in ("timestamp", "time", "elapsed") if name in places]
        self.time_place = written[0] if written else None
        fields = {cell.field for cell in self._parts.get("identity", ())}
        self.has_key = not fields.isdisjoint({"index", "uuid", "pci_bus_id"})
        self._power_is_average = any(
            cell.name == "power.draw.average" for cell in self._parts.get("reading", ())
        )

    def read(self, cells: Sequence[str], now: float | None = None) -> Row:
        """``cells``, stripped, as many as there are names; ``now``: of a row without a time."""
        unread: list[str] = []
        reading = self._read("reading", cells, unread) if "reading" in self._parts else {}
        identity = self._identity(cells)
        reasons = self._read("reason", cells) if "reason" in self._parts else None
        if reasons and "throttle_reasons" not in reading:
            reading["throttle_reasons"] = tuple([name for name, held in reasons.items() if held])
        if self._power_is_average and "power_watts" in reading:
            reading["power_is_average"] = True
        other = self._read("other", cells)
        if "memory_free" in other:
            identity = _third_memory(identity, reading, other)
        return Row(
            key=_key(identity),
            at_unix_seconds=now if self.time_place is None else self._time(other),
            identity=identity,
            reading=reading,
            counters=self._read("counter", cells) if "counter" in self._parts else {},
            violations={
                reason: share * other[name] for name, reason, share in _VIOLATIONS if name in other
            },
            process=self._process(cells) if "process" in self._parts else None,
            lost=bool(unread) and not _LOST.isdisjoint(map(str.lower, cells)),
            unread=tuple(unread),
        )

    def _read(
        self, part: str, cells: Sequence[str], unread: list[str] | None = None
    ) -> dict[str, Any]:
        found: dict[str, Value] = {}
        for place, field, name, parse, known in self._parts.get(part, ()):
            text = cells[place]
            value = known.get(text, _NEW)
            if value is _NEW:
                value = parse(text)
                if len(known) < _KEPT:
                    known[text] = value
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
            if len(self._identities) >= _KEPT:
                self._identities.clear()
            found = self._identities[text] = self._named(cells, self._read("identity", cells))
        return found

    def _named(self, cells: Sequence[str], found: dict[str, Any]) -> dict[str, Any]:
        """``found``, with the name of a card that stands in a column ``GPU`` in place of its
        number."""
        for cell in self._parts.get("identity", ()):
            written = cells[cell.place]
            if cell.field == "index" and "index" not in found and not written[:1].isdigit():
                name = parser("text")(written)
                return found if name is None else {"name": name, **found}
        return found

    def _time(self, other: Mapping[str, Any]) -> float | None:
        if "timestamp" in other:
            return self._stamps.stamp(other["timestamp"])
        if "time" in other:
            time = other["time"]
            if "date" in other:
                return self._stamps.stamp(f"{other['date']} {time}")
            at = self._stamps.clock(time)
            return self._stamps.stamp(time) if at is None else at
        elapsed: float | None = other.get("elapsed")
        return elapsed

    def _process(self, cells: Sequence[str]) -> Process | None:
        found = self._read("process", cells)
        if "pid" not in found:
            return None
        found["gpu_kind"] = _KINDS.get(found.get("gpu_kind", ""))
        return Process(**found)


class Rows:
    """Makes the rows of one log of what a format found in its text, and counts what it could not
    read. ``now`` is the time that the log said last, for rows that have none of their own."""

    def __init__(self, stats: LogStats) -> None:
        self.stamps = StampReader()
        self.now: float | None = None
        self.shares_to: float | None = None
        """The highest utilization so far, while all may be shares of 1."""
        self.stats = stats
        self._since: set[str | int | None] = set()
        self._layouts: dict[tuple[str, ...], RowReader] = {}

    def take(self, reader: RowReader, cells: Sequence[str]) -> Row | None:
        """``None`` where it says nothing of a GPU."""
        row = reader.read(cells, self.now)
        if not (row.reading or row.process or row.lost or (row.key is not None and row.identity)):
            return None
        if self.shares_to is not None:
            busy = row.reading.get("busy_percent", 0.0)
            if busy > 1.0:
                self.shares_to = None
            elif 0.0 < busy < 1.0:
                self.shares_to = max(self.shares_to, busy)
        stats = self.stats
        stats.rows += 1
        stats.reading_rows += row.process is None
        if row.unread:
            stats.unread_values += len(row.unread)
            stats.unread.update(row.unread)
        if row.at_unix_seconds is None and reader.time_place is not None:
            stats.unread_time = stats.unread_time or clean(cells[reader.time_place], 60)
            stats.unread_times += 1
        if self.now is not None and reader.time_place is None and row.process is None:
            # A time that stands before the rows is that of one look, and not of all after it.
            if row.key in self._since and row.key is not None:
                self.now, row = None, row._replace(at_unix_seconds=None)
            self._since.add(row.key)
        return row

    def now_is(self, at: float | None) -> None:
        self.now = at
        self._since.clear()

    def record(self, found: Mapping[str, str]) -> Row | None:
        """Of a format that has a name with every value: canonical ones, some with a unit."""
        names = tuple(found)
        reader = self._layouts.get(names)
        if reader is None:
            if len(self._layouts) >= _KEPT:
                self._layouts.clear()
            parted = [name.partition("|") for name in names]
            units = [unit for _, _, unit in parted]
            reader = RowReader([name for name, _, _ in parted], units, self.stamps)
            self._layouts[names] = reader
        return self.take(reader, list(found.values()))

    def machine(self, document: Mapping[str, Any]) -> RowsOrEnds:
        """Of one time: its ``gpus`` (each may have ``processes``), or those that its keys name, or
        the one that none does."""
        yield None
        gpus = document.get("gpus", [{}])
        for gpu in gpus if isinstance(gpus, list) else ():
            if isinstance(gpu, dict):
                for record in by_gpu({**document, **gpu}):
                    yield self.record(record)
                which = {key: str(gpu[key]) for key in ("index", "pci.bus_id") if key in gpu}
                processes = gpu.get("processes")
                for each in processes if isinstance(processes, list) else ():
                    if isinstance(each, dict):
                        known = ((_PROCESS_KEYS.get(key.lower()), each[key]) for key in each)
                        yield self.record({**which, **{name: str(v) for name, v in known if name}})


def by_gpu(found: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The readings of each GPU that some key names, or of the one that none does; none where the
    keys name no reading."""
    shared: dict[str, str] = {}
    own: dict[int, dict[str, str]] = {}
    reads = False
    for key, value in found.items():
        known = named(key)
        column = COLUMNS.get(known.name)
        if column is not None and not isinstance(value, (dict, list)):
            place = shared if known.gpu is None else own.setdefault(known.gpu, {})
            place.setdefault(with_unit(known), "" if value is None else str(value))
            reads = reads or column.part == "reading"
    for gpu, readings in own.items():
        yield {**shared, **readings, "index": str(gpu)}
    if reads and not own:
        yield shared


def with_unit(known: Named) -> str:
    return f"{known.name}|{known.unit}" if known.unit else known.name


def _key(identity: Mapping[str, Any]) -> str | int | None:
    index: int | None = identity.get("index")
    if "mig_instance" in identity and index is not None:
        return _MIG_KEYS + 64 * index + int(identity["mig_instance"])
    # The bus is what a process of a report knows, too.
    return identity.get("pci_bus_id", identity.get("uuid")) if index is None else index


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


_VIOLATIONS = (
    ("power_violation_percent", "sw_power_cap", 0.01),
    ("thermal_violation", "sw_thermal_slowdown", 1.0),
)
