"""A snapshot as what has changed since the one before it, and back, exactly.

A ``delta`` line has the snapshot's ``sequence``, ``taken_at_unix_seconds`` and
``monotonic_seconds``, the sequence of the snapshot that it builds on (``base``), and of everything
else what is not as it was::

    {"kind":"delta","base":7,"sequence":8,"taken_at_unix_seconds":...,"monotonic_seconds":...,
     "host":{"cpu_percent":12.5},
     "gpus":{"changed":{"busy_percent":[99.0,98.0],"temperature_celsius":{"1":64.0}}},
     "processes":{"rows":[[0,4],[5,9],{"pid":77}],"changed":{"cpu_percent":{"3":1.5}}}}

``rows`` is there when the rows of a list are others than before, or in another order: ranges
(begin, end) of rows that stay, and new rows as whole objects; those in no range have gone.
``changed`` has a column a field: a list with a value for every row (of the new list), or, where
few have changed, an object by the row's number. The parts of jobs (``members``, ``ranks``) are
such lists again: in the column of that name where its rows are others than before, else all jobs'
one after another, as one list (``"jobs":{"parts":{"members":{"changed":...}}}``). Fine samples are
``{"first_ms":-980,"step_ms":20,"percent":[...]}``, counted from the time of the snapshot;
``step_ms`` is a list where the steps differ.

Decoding keeps the objects of the model in which nothing has changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import make_dataclass
from functools import cached_property, partial
from itertools import accumulate, chain, compress, pairwise
from operator import attrgetter, is_, ne
from typing import Any, Generic, TypeVar, cast

from gpuwatch.core import json_values
from gpuwatch.core.codec.snapshots import (
    HOST_TABLE,
    JOB_TABLE,
    OWN_COST_TABLE,
    PROBLEM_TABLE,
    PROCESS_TABLE,
    READING_TABLE,
    Decoder,
    Header,
    Table,
    dumps,
    loads,
)
from gpuwatch.core.json_values import CodecError, Json
from gpuwatch.core.model import BusySample, Gpu, GpuReading, Snapshot

T = TypeVar("T")

_SAMPLES = "tuple[BusySample, ...]"
_STEP_MOST_MS = 2**40
_NUMBERS = frozenset((int, float))
_WHOLE = frozenset((int,))
_PLAIN_MOST = 1e9
_DENSE = 3
"""A column in which a third of the rows has changed is written whole: gzip makes less of repeated
values than of row numbers."""
_KINDS = {
    "float": frozenset((float, int, type(None))),
    "int": frozenset((int, type(None))),
    "bool": frozenset((bool, type(None))),
    "str": frozenset((str, type(None))),
}
"""Of fields whose values are one thing: what they may be in JSON."""
_LONG = 24
"""Rows of a column in which it pays to look first for what has changed."""
_Samples = tuple[BusySample, ...]


class BaselessError(CodecError):
    """The snapshot that a delta builds on has not been read."""


def same_gpus(before: Snapshot, after: Snapshot) -> bool:
    """Whether ``after`` can be told as a delta: identities are only in a header."""
    if len(before.gpus) != len(after.gpus):
        return False
    return all(
        one.identity is two.identity or one.identity == two.identity
        for one, two in zip(before.gpus, after.gpus, strict=True)
    )


def delta_line(before: Snapshot, after: Snapshot) -> str:
    """``after``, given ``before``, without a line end; only where they have the ``same_gpus``."""
    return dumps(delta_object(before, after))


def delta_object(before: Snapshot, after: Snapshot) -> Json:
    """As ``delta_line``, before it is text."""
    at = after.taken_at_unix_seconds
    value: Json = {
        "kind": "delta",
        "base": before.sequence,
        "sequence": after.sequence,
        "taken_at_unix_seconds": at,
        "monotonic_seconds": after.monotonic_seconds,
    }
    for name in ("interval_seconds", "simulated"):
        if getattr(before, name) != getattr(after, name):
            value[name] = getattr(after, name)
    parts = {
        "host": _HOST.object_delta(before.host, after.host, at),
        "gpus": _gpus_delta(before.gpus, after.gpus, at),
        "processes": _PROCESSES.list_delta(before.processes, after.processes, at),
        "jobs": _JOBS.list_delta(before.jobs, after.jobs, at),
        "problems": _PROBLEMS.list_delta(before.problems, after.problems, at),
        "own_cost": _OWN_COST.object_delta(before.own_cost, after.own_cost, at),
    }
    value.update({name: part for name, part in parts.items() if part})
    return value


def apply_delta(before: Snapshot, value: Json) -> Snapshot:
    """The snapshot that ``value`` is, after ``before``. Raises ``CodecError``."""
    if _given(value, "base", json_values.whole) != before.sequence:
        raise BaselessError("What this builds on is missing.")
    at = _given(value, "taken_at_unix_seconds", json_values.moment)
    interval, simulated = value.get("interval_seconds"), value.get("simulated")
    return Snapshot(
        sequence=_given(value, "sequence", json_values.whole),
        taken_at_unix_seconds=at,
        monotonic_seconds=_given(value, "monotonic_seconds", json_values.number),
        interval_seconds=(
            before.interval_seconds
            if interval is None
            else json_values.number(interval, "delta.interval_seconds")
        ),
        simulated=(
            before.simulated
            if simulated is None
            else json_values.flag(simulated, "delta.simulated")
        ),
        host=_HOST.apply_object(before.host, value.get("host"), "host", at),
        gpus=_apply_gpus(before.gpus, value.get("gpus"), at),
        processes=_PROCESSES.apply_list(before.processes, value.get("processes"), "processes", at),
        jobs=_JOBS.apply_list(before.jobs, value.get("jobs"), "jobs", at),
        problems=_PROBLEMS.apply_list(before.problems, value.get("problems"), "problems", at),
        own_cost=_OWN_COST.apply_object(before.own_cost, value.get("own_cost"), "own_cost", at),
    )


class RecordingDecoder(Decoder):
    """Reads the lines of a recording, deltas too.

    A delta is refused (``BaselessError``) unless every line since the key frame could be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: Snapshot | None = None

    def decode(self, line: str) -> Header | Snapshot | None:
        try:
            return self.take(loads(line))
        except BaselessError:
            raise
        except CodecError:
            self.lose()
            raise

    def take(self, value: Json) -> Header | Snapshot | None:
        if value.get("kind") == "delta":
            if self._before is None:
                raise BaselessError("What this builds on is missing.")
            self._before = apply_delta(self._before, value)
            return self._before
        taken = super().take(value)
        if isinstance(taken, Snapshot):
            self._before = taken
        elif isinstance(taken, Header):
            self._before = None
        return taken

    def lose(self) -> None:
        """Something was damaged: what follows builds on it, up to the next key frame."""
        self._before = None


def _given(value: Json, name: str, check: Callable[[Any, str], T]) -> T:
    found = value.get(name)
    if found is None:
        raise CodecError(f'The delta lacks the field "{name}".')
    return check(found, f"delta.{name}")


# --- fine samples ----------------------------------------------------------------------------


def _pack(samples: _Samples | None, at: float) -> Any:
    """As pairs where the times are no whole milliseconds (nothing may be lost)."""
    if not samples or not abs(at) < 1e11:
        return samples
    times = []
    for sample in samples:
        if not abs(sample.at_unix_seconds) < 1e11:
            return samples
        time_ms = round(sample.at_unix_seconds * 1000)
        if time_ms / 1000 != sample.at_unix_seconds:
            return samples
        times.append(time_ms)
    first, *steps = [later - time for time, later in pairwise([round(at * 1000), *times])]
    if max(map(abs, (first, *steps))) > _STEP_MOST_MS:
        return samples
    packed: Json = {"first_ms": first}
    if steps:
        packed["step_ms"] = steps[0] if len(set(steps)) == 1 else steps
    packed["percent"] = [_short(percent) for _, percent in samples]
    return packed


def _short(value: float) -> float | int:
    """``99``, not ``99.0``: reads as the same."""
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _unpack(value: Any, where: str, at: float) -> _Samples:
    if isinstance(value, list):
        checked: _Samples = READING_TABLE.checks["busy_samples"](value, where)
        return checked
    packed = json_values.json_object(value, where)
    percents = json_values.json_list(packed.get("percent"), where)
    step = packed.get("step_ms", 0)
    steps = step if isinstance(step, list) else [step] * (len(percents) - 1)
    if len(steps) != len(percents) - 1:
        raise CodecError(f"{where} has not as many steps as samples.")
    if not abs(at) < 1e11:
        raise CodecError(f"{where} counts from a time that is none.")
    time = round(at * 1000) + _milliseconds(packed.get("first_ms"), where)
    if _are_plain(percents) and _are_plain(steps) and _WHOLE.issuperset(map(type, steps)):
        stamps = [stamp / 1000 for stamp in accumulate(steps, initial=time)]
        return tuple(map(_busy_sample, zip(stamps, map(float, percents), strict=True)))
    samples = []
    for place, percent in enumerate(percents):
        if place:
            time += _milliseconds(steps[place - 1], where)
        samples.append(BusySample(time / 1000, json_values.number(percent, where)))
    return tuple(samples)


_busy_sample: Callable[[tuple[float, float]], BusySample] = partial(tuple.__new__, BusySample)


def _are_plain(values: list[Any]) -> bool:
    """All are ordinary numbers: told without looking at each."""
    return (
        _NUMBERS.issuperset(map(type, values))
        # First these: the sum of whole numbers without bounds may be no float at all.
        and min(values, default=0.0) > -_PLAIN_MOST
        and max(values, default=0.0) < _PLAIN_MOST
        # NaN hides from both.
        and math.isfinite(sum(values))
    )


def _milliseconds(value: Any, where: str) -> int:
    found = json_values.whole(value, where)
    if abs(found) > _STEP_MOST_MS:
        raise CodecError(f"{where} has a time that is none.")
    return found


# --- objects and lists of the model ----------------------------------------------------------


def _maker(table: Table[T]) -> Callable[[list[Any]], T]:
    """Makes one of the values of all its fields.

    A third of the time that the constructor of a frozen class takes, hundreds of times a snapshot:
    the values are set on an object that can be written, which then becomes one of the model's. None
    of these classes does anything else when one is made.
    """
    made: Any = table.made
    draft = make_dataclass(
        f"{made.__name__}Draft", table.fields, slots=True, eq=False, repr=False, match_args=False
    )

    def make(values: list[Any]) -> T:
        item: Any = draft(*values)
        item.__class__ = made
        return cast("T", item)

    return make


class _Deltas(Generic[T]):
    """Deltas of one dataclass of the model, and of tuples of it.

    ``key`` says which rows are the same thing at two times.
    """

    def __init__(
        self,
        table: Table[T],
        key: Callable[[T], Any] | None = None,
        parts: Mapping[str, _Deltas[Any]] | None = None,
    ) -> None:
        self._table = table
        self._key = key
        self._parts = dict(parts or {})
        self.fields = table.fields
        self.values: Callable[[T], tuple[Any, ...]] = attrgetter(*table.fields)
        self._places = {name: place for place, name in enumerate(table.fields)}
        self._samples = frozenset(
            name for name, annotation in table.annotations.items() if annotation == _SAMPLES
        )
        self._numbers = frozenset(
            name for name, annotation in table.annotations.items() if annotation == "float"
        )
        self._kinds = {
            name: kinds
            for name, annotation in table.annotations.items()
            if (kinds := _KINDS.get(annotation)) is not None
        }

    # Writing.

    def object_delta(self, before: T, after: T, at: float) -> Json:
        """The fields of ``after`` that differ; empty where none does."""
        if before is after:
            return {}
        was, now = self.values(before), self.values(after)
        if was == now:
            return {}
        return {
            name: self._written(name, new, at)
            for name, old, new in zip(self.fields, was, now, strict=True)
            if old != new
        }

    def list_delta(self, before: tuple[T, ...], after: tuple[T, ...], at: float) -> Json:
        """What makes ``after`` of ``before``; empty where they are equal."""
        delta: Json = {}
        bases = self._bases(before, after, delta)
        columns = self.columns(bases, after, at)
        if columns:
            delta["changed"] = columns
        parts = {name: self._part_columns(name, bases, after, at) for name in self._parts}
        if any(parts.values()):
            delta["parts"] = {name: {"changed": part} for name, part in parts.items() if part}
        return delta

    def _part_columns(
        self, name: str, bases: Sequence[T | None], after: Sequence[T], at: float
    ) -> Json:
        """Of the parts of all rows, one after another; those that ``columns`` tells are equal."""
        part = self._parts[name]
        olds: list[Any] = []
        news: list[Any] = []
        for base, item in zip(bases, after, strict=True):
            new = getattr(item, name)
            old = new if base is None else getattr(base, name)
            news += new
            olds += old if part.same_rows(old, new) else new
        return part.columns(olds, news, at)

    def same_rows(self, before: tuple[T, ...], after: tuple[T, ...]) -> bool:
        """Whether the rows are the same things in the same order."""
        key = self._key
        assert key is not None
        return before is after or (
            len(before) == len(after)
            and all(key(old) == key(new) for old, new in zip(before, after, strict=True))
        )

    def columns(self, bases: Sequence[T | None], after: Sequence[T], at: float) -> Json:
        """The column of every field in which a row is not as its base."""
        values, parts = self.values, self._parts
        found: dict[str, dict[int, Any]] = {}
        for row, (base, item) in enumerate(zip(bases, after, strict=True)):
            if base is None or base is item:
                continue
            was, now = values(base), values(item)
            if was == now:
                continue
            for name, old, new in zip(self.fields, was, now, strict=True):
                if old is new or old == new:
                    continue
                if name in parts:
                    if parts[name].same_rows(old, new):
                        continue
                    new = parts[name].list_delta(old, new, at)  # noqa: PLW2901
                found.setdefault(name, {})[row] = new
        return {name: self._column(name, column, after, at) for name, column in found.items()}

    def _column(self, name: str, column: dict[int, Any], after: Sequence[T], at: float) -> Any:
        if name in self._parts:
            return {str(row): change for row, change in column.items()}
        if _DENSE * len(column) <= len(after):
            return {str(row): self._written(name, new, at) for row, new in column.items()}
        return [self._written(name, getattr(item, name), at) for item in after]

    def _written(self, name: str, value: Any, at: float) -> Any:
        if name in self._samples:
            return _pack(value, at)
        return _short(value) if type(value) is float else value

    def _bases(
        self, before: tuple[T, ...], after: tuple[T, ...], delta: Json
    ) -> Sequence[T | None]:
        """For each row of ``after`` what it was in ``before``; adds ``rows`` to ``delta``."""
        key = self._key
        assert key is not None
        keys = [key(item) for item in after]
        old_keys = [key(item) for item in before]
        if keys == old_keys:
            return before
        places: dict[Any, list[int]] = {}
        for place in range(len(before) - 1, -1, -1):
            places.setdefault(old_keys[place], []).append(place)
        rows: list[Any] = []
        bases: list[T | None] = []
        for item, wanted in zip(after, keys, strict=True):
            left = places.get(wanted)
            if not left:
                rows.append(self._table.encode_known(item))
                bases.append(None)
                continue
            place = left.pop()
            bases.append(before[place])
            if rows and isinstance(rows[-1], list) and rows[-1][1] == place:
                rows[-1][1] = place + 1
            else:
                rows.append([place, place + 1])
        delta["rows"] = rows
        return bases

    # Reading.

    def apply_object(self, before: T, value: Any, where: str, at: float) -> T:
        if value is None:
            return before
        values = list(self.values(before))
        for name, new in json_values.json_object(value, where).items():
            place = self._places.get(name)
            if place is not None:
                values[place] = self._read(name, new, where, at)
        return self._made(values)

    def apply_list(self, before: tuple[T, ...], value: Any, where: str, at: float) -> tuple[T, ...]:
        if value is None:
            return before
        delta = json_values.json_object(value, where)
        rows, changed, parts = delta.get("rows"), delta.get("changed"), delta.get("parts")
        items = before if rows is None else self._rows(before, rows, where)
        if changed is not None:
            columns = json_values.json_object(changed, where)
            items = self.apply_columns(items, columns, where, at)
        if parts is not None:
            for name, part in json_values.json_object(parts, where).items():
                if name in self._parts:
                    items = self._apply_part(name, items, part, at)
        return items

    def _apply_part(self, name: str, items: tuple[T, ...], value: Any, at: float) -> tuple[T, ...]:
        columns = json_values.json_object(value, name).get("changed", {})
        olds = [getattr(item, name) for item in items]
        flat = tuple(chain.from_iterable(olds))
        news = self._parts[name].apply_columns(
            flat, json_values.json_object(columns, name), name, at
        )
        if news is flat:
            return items
        made, begin, place = list(items), 0, self._places[name]
        for row, old in enumerate(olds):
            new = news[begin : begin + len(old)]
            begin += len(old)
            if not all(map(is_, old, new)):
                values = list(self.values(items[row]))
                values[place] = new
                made[row] = self._made(values)
        return tuple(made)

    def _rows(self, before: tuple[T, ...], rows: Any, where: str) -> tuple[T, ...]:
        items: list[T] = []
        kept = 0
        for row in json_values.json_list(rows, where):
            if isinstance(row, dict):
                items.append(self._table.decode(row, where))
                continue
            begin, end = json_values.pair(row, where)
            begin, end = json_values.whole(begin, where), json_values.whole(end, where)
            kept += end - begin
            # A row stays once: a small line cannot make a long list.
            if not 0 <= begin <= end <= len(before) or kept > len(before):
                raise CodecError(f"{where} keeps rows that are not there.")
            items += before[begin:end]
        return tuple(items)

    def apply_columns(
        self, items: tuple[T, ...], columns: Json, where: str, at: float
    ) -> tuple[T, ...]:
        """``items`` with what the columns change; a row in which nothing does is the same."""
        values = self.values
        drafts: dict[int, list[Any]] = {}
        touched: set[int] = set()
        for name, column in columns.items():
            place = self._places.get(name)
            if place is None:
                continue
            read, is_number = self._reader(name, where, at), name in self._numbers
            for row, new in self._cells(name, column, items, where):
                draft = drafts.get(row)
                if draft is None:
                    draft = drafts[row] = list(values(items[row]))
                old = draft[place]
                if new is old:
                    continue
                kind = type(new)
                # 99 is how 99.0 is written.
                if new == old and (kind is type(old) or (kind is int and is_number)):
                    continue
                if is_number and kind is float and -math.inf < new < math.inf:
                    value = new
                else:
                    value = read(old, new)
                if value is not old:
                    draft[place] = value
                    touched.add(row)
        if not touched:
            return items
        made = list(items)
        for row in touched:
            made[row] = self._made(drafts[row])
        return tuple(made)

    def _reader(self, name: str, where: str, at: float) -> Callable[[Any, Any], Any]:
        """What makes a field's new value of the old one and what is written."""
        part = self._parts.get(name)
        if part is not None:
            return lambda old, new: part.apply_list(old, new, where, at)
        if name in self._samples or name not in self._table.optional:
            return lambda _old, new: self._read(name, new, where, at)
        check, here = self._table.checks[name], f"{where}.{name}"
        return lambda _old, new: None if new is None else check(new, here)

    def _cells(
        self, name: str, column: Any, items: tuple[T, ...], where: str
    ) -> Iterable[tuple[int, Any]]:
        """The row and the new value of what may have changed."""
        if isinstance(column, list):
            if len(column) != len(items):
                raise CodecError(f"{where} has a column of another length.")
            kinds = self._kinds.get(name) if len(column) >= _LONG else None
            if kinds is not None and kinds.issuperset(map(type, column)):
                # What equals is the same then, also 99 and 99.0.
                return compress(enumerate(column), map(ne, column, map(attrgetter(name), items)))
            return enumerate(column)
        return _rows_of(column, len(items), where)

    def _read(self, name: str, value: Any, where: str, at: float) -> Any:
        if value is None:
            if name not in self._table.optional:
                raise CodecError(f"{where}.{name} is null where a value belongs.")
            return None
        if name in self._samples:
            return _unpack(value, where, at)
        return self._table.checks[name](value, where)

    @cached_property
    def _made(self) -> Callable[[list[Any]], T]:
        return _maker(self._table)


def _rows_of(column: Any, rows: int, where: str) -> list[tuple[int, Any]]:
    cells = []
    for row, new in json_values.json_object(column, where).items():
        number = int(row) if row.isascii() and row.isdigit() and len(row) < 10 else rows
        if number >= rows:
            raise CodecError(f"{where} changes a row that is not there.")
        cells.append((number, new))
    return cells


_BY_KEY = attrgetter("pid", "started_at_unix_seconds")
_HOST = _Deltas(HOST_TABLE)
_OWN_COST = _Deltas(OWN_COST_TABLE)
_READINGS: _Deltas[GpuReading] = _Deltas(READING_TABLE)
_PROCESSES = _Deltas(PROCESS_TABLE, attrgetter("pid", "started_at_unix_seconds", "gpu_uuid"))
_PROBLEMS = _Deltas(PROBLEM_TABLE, lambda problem: problem)
_JOBS = _Deltas(
    JOB_TABLE,
    _BY_KEY,
    {name: _Deltas(table, _BY_KEY) for name, table in JOB_TABLE.parts.items()},
)


def _gpus_delta(before: tuple[Gpu, ...], after: tuple[Gpu, ...], at: float) -> Json:
    columns = _READINGS.columns([gpu.reading for gpu in before], [gpu.reading for gpu in after], at)
    lost = {
        str(row): new.lost
        for row, (old, new) in enumerate(zip(before, after, strict=True))
        if old.lost != new.lost
    }
    if lost:
        columns["lost"] = lost
    return {"changed": columns} if columns else {}


def _apply_gpus(before: tuple[Gpu, ...], value: Any, at: float) -> tuple[Gpu, ...]:
    if value is None:
        return before
    columns = json_values.json_object(value, "gpus").get("changed")
    if columns is None:
        return before
    columns = json_values.json_object(columns, "gpus")
    old = tuple([gpu.reading for gpu in before])
    new = _READINGS.apply_columns(old, columns, "gpus", at)
    lost = [gpu.lost for gpu in before]
    for row, flag in json_values.json_object(columns.get("lost", {}), "gpus").items():
        if not row.isascii() or not row.isdigit() or len(row) > 9 or int(row) >= len(lost):
            raise CodecError("gpus changes a row that is not there.")
        lost[int(row)] = json_values.flag(flag, "gpus.lost")
    return tuple(
        [
            gpu
            if reading is gpu.reading and is_lost == gpu.lost
            else Gpu(identity=gpu.identity, reading=reading, lost=is_lost)
            for gpu, reading, is_lost in zip(before, new, lost, strict=True)
        ]
    )
