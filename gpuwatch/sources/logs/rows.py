"""Rows of a log: what it says of one GPU, or one process, at one time.

Most rows of a log are like the ones before: a cell is parsed once for each text that a column has,
and a row is read by one pass over its cells in C.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import getitem, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from gpuwatch.core.model import Process
from gpuwatch.core.text import clean
from gpuwatch.sources.logs.headings import (
    CELL_EDGES,
    COLUMNS,
    TEXT_LENGTH,
    Named,
    Parse,
    Value,
    named,
    parser,
)
from gpuwatch.sources.logs.stamps import StampReader
from gpuwatch.sources.logs.text import LogStats

_LOST = frozenset({"[gpu is lost]", "gpu is lost"})
_TEXTS_KEPT = 512
"""Different texts of a column whose values are kept."""
_LAYOUTS_KEPT = 256
_KINDS = {"C": "compute", "G": "graphics", "C+G": "compute+graphics"}
_PROCESS_KEYS = {
    **dict.fromkeys(("pid", "process id"), "pmon.pid"),
    "type": "pmon.type",
    **dict.fromkeys(("process_name", "name", "command"), "pmon.command"),
    **dict.fromkeys(("used_memory", "used gpu memory", "gpu_memory_usage"), "pmon.fb"),
}
_MIG_KEYS = 4096
"""Keys of MIG instances begin here: no GPU has such an index."""
_VIOLATIONS = (
    ("power_violation_percent", "sw_power_cap", 0.01),
    ("thermal_violation", "sw_thermal_slowdown", 1.0),
)

_NONE: Mapping[str, float] = MappingProxyType({})

Cells = Sequence[str]
"""Cells of a row as they are written, with the white space around them."""


class Row(NamedTuple):
    """Facts about one GPU at one time, before it is known which GPU that is."""

    key: str | int | None
    """Tells the GPUs of this log apart; ``None`` where no column does."""
    at_unix_seconds: float | None
    identity: dict[str, Any]
    reading: dict[str, Any]
    """Values by the fields of ``GpuReading``; ``None`` for a column without one."""
    counters: Mapping[str, float]
    """Seconds that each reason has held since the driver was loaded."""
    violations: Mapping[str, float]
    """Share (0 to 1) of the time since the row before in which each reason held."""
    process: Process | None
    lost: bool
    unread: tuple[str, ...]
    """Columns (of readings) without a value."""


RowsOrEnds = Iterator[Row | None]
"""Rows that a format makes of its text; ``None`` where a moment ends for certain."""


class _Column(dict[str, Value]):
    """Values of one column by the text of its cells, parsed at first sight."""

    def __init__(
        self, name: str, place: int, parse: Parse, lost_texts: set[str], unreadable: set[str]
    ) -> None:
        """``lost_texts`` and ``unreadable`` are filled in: cells that say that a GPU is lost, and
        names of columns with a cell that is neither a value nor says that there is none."""
        super().__init__()
        self.name = name
        self.place = place
        self._parse = parse
        self._lost_texts = lost_texts
        self._unreadable = unreadable

    def __missing__(self, cell: str) -> Value:
        text = cell.strip(CELL_EDGES)
        value = self._parse(text)
        if value is None and text.lower() in _LOST:
            self._lost_texts.add(cell)
        elif value is None and parser("text")(text) is not None:
            self._unreadable.add(self.name)
        if len(self) < _TEXTS_KEPT:
            self[cell] = value
        return value


class _Part:
    """The columns of one part of a row, by the fields that they set."""

    def __init__(self, columns: Mapping[str, _Column]) -> None:
        self.columns = columns
        self._fields = tuple(columns)
        self._columns = tuple(columns.values())
        self.names = tuple([column.name for column in self._columns])
        self.pick = _picker([column.place for column in self._columns])

    def __contains__(self, field: str) -> bool:
        return field in self.columns

    def read(self, cells: Cells) -> dict[str, Any]:
        return dict(zip(self._fields, map(getitem, self._columns, self.pick(cells)), strict=False))

    def read_known(self, cells: Cells) -> dict[str, Any]:
        """Read the fields that have a value."""
        return {field: value for field, value in self.read(cells).items() if value is not None}


def _picker(places: Sequence[int]) -> Callable[[Cells], tuple[str, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda cells: tuple([cells[place] for place in places])


class RowReader:
    """Reads the cells of rows with these (canonical) column names; unknown ones are left out."""

    def __init__(
        self, names: Sequence[str], units: Sequence[str], stamps: StampReader, stats: LogStats
    ) -> None:
        self._stamps = stamps
        self._lost_texts: set[str] = set()
        best: dict[tuple[str, str], tuple[int, int]] = {}
        for place, name in enumerate(names):
            column = COLUMNS.get(name)
            if column is not None:
                slot = (column.part, column.field)
                best[slot] = min(best.get(slot, (column.rank, place)), (column.rank, place))
        parts: dict[str, dict[str, _Column]] = {}
        for (part, field), (_rank, place) in sorted(best.items()):
            column = COLUMNS[names[place]]
            unit = (units[place] if units else "") or column.unit
            parse = parser(column.kind, unit, field)
            unreadable = stats.unreadable_columns if part == "reading" else set[str]()
            made = _Column(names[place], place, parse, self._lost_texts, unreadable)
            parts.setdefault(part, {})[field] = made
        other = parts.get("other", {})
        times = {name: other.pop(name, None) for name in ("timestamp", "time", "elapsed")}
        self._stamp, self._clock, self._elapsed = times.values()
        self._date = other.pop("date", None)
        written = [column for column in times.values() if column is not None]
        self.time_place = written[0].place if written else None
        made_of = ("reading", "identity", "reason", "counter", "process", "other")
        (
            self._reading, self._identity, self._reasons,
            self._counters, self._process, self._other,
        ) = (_Part(parts.get(part, {})) for part in made_of)  # fmt: skip
        more = (self._reasons, self._counters, self._other)
        self._has_more = any(part.columns for part in more)
        self._identities: dict[tuple[str, ...], tuple[dict[str, Any], str | int | None]] = {}
        self.has_key = any(name in self._identity for name in ("index", "uuid", "pci_bus_id"))
        power = self._reading.columns.get("power_watts")
        self._power_is_average = power is not None and power.name == "power.draw.average"

    def read(self, cells: Cells, now: float | None = None) -> Row:
        """Read as many ``cells`` as there are names; ``now``: the time of a row without one."""
        reading = self._reading.read(cells)
        unread: tuple[str, ...] = ()
        if None in reading.values():
            values = zip(self._reading.names, reading.values(), strict=True)
            unread = tuple([name for name, value in values if value is None])
        identity, key = self._identify(cells)
        if self._power_is_average and reading["power_watts"] is not None:
            reading["power_is_average"] = True
        counters: Mapping[str, float] = _NONE
        violations: Mapping[str, float] = _NONE
        if self._has_more:
            reasons, counters = self._reasons.read_known(cells), self._counters.read_known(cells)
            if reasons and reading.get("throttle_reasons") is None:
                reading["throttle_reasons"] = tuple([one for one, held in reasons.items() if held])
            other = self._other.read_known(cells)
            violations = {
                reason: share * other[field]
                for field, reason, share in _VIOLATIONS
                if field in other
            }
            if "memory_free" in other:
                identity = _third_memory(identity, reading, other)
        return Row(
            key,
            now if self.time_place is None else self._time(cells),
            identity,
            reading,
            counters,
            violations,
            self._read_process(cells) if self._process.columns else None,
            bool(unread and self._lost_texts) and not self._lost_texts.isdisjoint(cells),
            unread,
        )

    def _identify(self, cells: Cells) -> tuple[dict[str, Any], str | int | None]:
        """Return the identity and the key: the same objects for the same text, which is parsed
        once."""
        text = self._identity.pick(cells)
        found = self._identities.get(text)
        if found is None:
            if len(self._identities) >= _LAYOUTS_KEPT:
                self._identities.clear()
            identity = self._identity.read_known(cells)
            index = self._identity.columns.get("index")
            if index is not None and "index" not in identity:
                # The name of a card can stand in a column ``GPU``.
                name = parser("text")(cells[index.place].strip(CELL_EDGES))
                if name is not None and not str(name)[:1].isdigit():
                    identity.setdefault("name", name)
            found = self._identities[text] = identity, _key(identity)
        return found

    def _time(self, cells: Cells) -> float | None:
        if self._stamp is not None:
            return self._stamps.stamp(_short(cells[self._stamp.place]))
        if self._clock is None:
            assert self._elapsed is not None
            return self._elapsed[cells[self._elapsed.place]]  # type: ignore[return-value]
        time = _short(cells[self._clock.place])
        if self._date is not None:
            return self._stamps.stamp(f"{_short(cells[self._date.place])} {time}")
        at = self._stamps.clock(time)
        return self._stamps.stamp(time) if at is None else at

    def _read_process(self, cells: Cells) -> Process | None:
        found = self._process.read_known(cells)
        if "pid" not in found:
            return None
        found["gpu_kind"] = _KINDS.get(found.get("gpu_kind", ""))
        return Process(**found)


def _short(cell: str) -> str:
    return cell.strip(CELL_EDGES)[:TEXT_LENGTH]


class Rows:
    """Makes the rows of one log from the cells that a format found in its text, and counts those
    that it could not read. ``now`` is the time that the log said last, for rows without any."""

    def __init__(self, stats: LogStats) -> None:
        self.stamps = StampReader()
        self.now: float | None = None
        self.shares_to: float | None = None
        """The highest utilization so far, while all may be shares of 1."""
        self.stats = stats
        self._since: set[str | int | None] = set()
        self._layouts: dict[tuple[str, ...], RowReader] = {}

    def read(self, reader: RowReader, cells: Cells) -> Row | None:
        """Return the row; ``None`` where it says nothing of a GPU."""
        row = reader.read(cells, self.now)
        reads = len(row.reading) > len(row.unread)
        if not (reads or row.process or row.lost or (row.key is not None and row.identity)):
            return None
        if self.shares_to is not None:
            busy = row.reading.get("busy_percent") or 0.0
            if busy > 1.0:
                self.shares_to = None
            elif 0.0 < busy < 1.0:
                self.shares_to = max(self.shares_to, busy)
        stats = self.stats
        stats.rows += 1
        stats.reading_rows += row.process is None
        if row.unread:
            stats.unread_values += len(row.unread)
            stats.unread_columns[row.unread] += 1
        if row.at_unix_seconds is None and reader.time_place is not None:
            stats.unread_time = stats.unread_time or clean(cells[reader.time_place], 60)
            stats.unread_times += 1
        if self.now is not None and reader.time_place is None and row.process is None:
            # A time that stands before the rows is that of one look, and not of all after it.
            if row.key in self._since and row.key is not None:
                self.now, row = None, row._replace(at_unix_seconds=None)
            self._since.add(row.key)
        return row

    def begin_time(self, at: float | None) -> None:
        """Give the rows from here on the time ``at``."""
        self.now = at
        self._since.clear()

    def record(self, found: Mapping[str, str]) -> Row | None:
        """Return the row of a format that has a name with every value: canonical ones, some with a
        unit. ``None`` where it says nothing of a GPU."""
        names = tuple(found)
        reader = self._layouts.get(names)
        if reader is None:
            if len(self._layouts) >= _LAYOUTS_KEPT:
                self._layouts.clear()
            parted = [name.partition("|") for name in names]
            units = [unit for _, _, unit in parted]
            reader = RowReader([name for name, _, _ in parted], units, self.stamps, self.stats)
            self._layouts[names] = reader
        return self.read(reader, list(found.values()))

    def machine(self, document: Mapping[str, Any]) -> RowsOrEnds:
        """Yield the rows of one time: of its ``gpus`` (each may have ``processes``), or of those
        that its keys name, or of the one that none does."""
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
    """Yield the readings of each GPU that some key names, or of the one that none does; nothing
    where the keys name no reading."""
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
    """Return the identity with its total: two of used, free and total give the third (reserved
    memory is used)."""
    free = other["memory_free"]
    used, total = reading.get("memory_used_bytes"), identity.get("memory_total_bytes")
    if used is None and total is not None and free <= total:
        reading["memory_used_bytes"] = total - free
    elif total is None and used is not None:
        # Without the reserved part it is some hundred MiB short.
        total = used + free + other.get("memory_reserved", 0)
        return {**identity, "memory_total_bytes": total}
    return identity
