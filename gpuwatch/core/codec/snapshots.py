"""Snapshots as JSON: the lines of a stream or recording, and the object ``status`` prints.

The names are those of ``model``. A GPU's identity and reading stand side by side in one object;
what was not read is ``null``; NaN and infinity are never written. In a stream the identities are
in the header line, once, and a snapshot refers to a GPU by ``uuid``; when the GPUs change, a
new header precedes the snapshot. Every line can be read with the last header before it.

``busy_samples`` (and a job's ``main_thread_samples`` and ``loader_worker_samples``) are pairs
``[at_unix_seconds, percent]``, ``throttle_durations`` pairs ``[reason, seconds]``,
``late_readings`` pairs ``[field, seconds]``. What ``Job`` computes from its parts is written
beside its fields, for ``jq``, and not read back. Reading ignores fields (and, after a header,
kinds of lines) it does not know and takes a missing optional field as ``None``, so that a newer
minor version is readable.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NoReturn, TypeVar

from gpuwatch import __version__
from gpuwatch.core import json_values
from gpuwatch.core.json_values import CodecError, Json
from gpuwatch.core.model import (
    BusySample,
    Gpu,
    GpuIdentity,
    GpuReading,
    Host,
    Job,
    JobMember,
    JobRank,
    OwnCost,
    Problem,
    Process,
    ReadingAge,
    ReasonSeconds,
    Snapshot,
    TrainingLoop,
)
from gpuwatch.core.text import clean

SCHEMA_VERSION = 1
DELTA_SCHEMA_VERSION = 2
"""Of a recording with lines that say only what has changed (``codec_delta``): who knows no more
than schema 1 would pass over them, and take what is left for everything."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a stream: what holds for the snapshots after it."""

    schema: int
    gpuwatch_version: str | None
    machine: str
    simulated: bool
    started_at_unix_seconds: float
    interval_seconds: float | None
    identities: tuple[GpuIdentity, ...]


# --- writing ---------------------------------------------------------------------------------


def header_line(snapshot: Snapshot, schema: int = SCHEMA_VERSION, more: Json | None = None) -> str:
    """The header for a stream that begins with ``snapshot``, without a line end.

    ``more`` are fields that only some streams have.
    """
    return dumps(
        {
            "kind": "header",
            "schema": schema,
            "gpuwatch": __version__,
            "machine": snapshot.host.name,
            "simulated": snapshot.simulated,
            "started_at_unix_seconds": snapshot.taken_at_unix_seconds,
            "interval_seconds": snapshot.interval_seconds,
            **(more or {}),
            "gpus": [IDENTITY_TABLE.encode(gpu.identity) for gpu in snapshot.gpus],
        }
    )


def snapshot_line(snapshot: Snapshot) -> str:
    """One snapshot of a stream, without a line end."""
    gpus = [
        {"uuid": gpu.identity.uuid, "lost": gpu.lost, **READING_TABLE.encode(gpu.reading)}
        for gpu in snapshot.gpus
    ]
    return dumps({"kind": "snapshot", **_body(snapshot, gpus)})


def status_object(snapshot: Snapshot) -> Json:
    """One snapshot that needs no header: what ``gpuwatch status --json`` prints."""
    gpus = [gpu_object(gpu) for gpu in snapshot.gpus]
    return {"schema": SCHEMA_VERSION, "gpuwatch": __version__, **_body(snapshot, gpus)}


def status_text(snapshot: Snapshot) -> str:
    """``status_object`` as indented JSON, without a line end."""
    return dumps(status_object(snapshot), indent=2)


def gpu_object(gpu: Gpu) -> Json:
    """A GPU's identity and reading side by side, in the order of the model."""
    return {
        **IDENTITY_TABLE.encode(gpu.identity),
        "lost": gpu.lost,
        **READING_TABLE.encode(gpu.reading),
    }


def key_line(snapshot: Snapshot) -> str:
    """As ``snapshot_line``, without what was not read (which reads as ``null``) and what follows
    from the rest: for recordings, where it must be small."""
    gpus = [
        {"uuid": gpu.identity.uuid, "lost": gpu.lost, **READING_TABLE.encode_known(gpu.reading)}
        for gpu in snapshot.gpus
    ]
    return dumps(
        {
            "kind": "snapshot",
            "sequence": snapshot.sequence,
            "taken_at_unix_seconds": snapshot.taken_at_unix_seconds,
            "monotonic_seconds": snapshot.monotonic_seconds,
            "interval_seconds": snapshot.interval_seconds,
            "simulated": snapshot.simulated,
            "host": HOST_TABLE.encode_known(snapshot.host),
            "gpus": gpus,
            "processes": [PROCESS_TABLE.encode_known(process) for process in snapshot.processes],
            "jobs": [JOB_TABLE.encode_known(job) for job in snapshot.jobs],
            "problems": [PROBLEM_TABLE.encode_known(problem) for problem in snapshot.problems],
            "own_cost": OWN_COST_TABLE.encode_known(snapshot.own_cost),
        }
    )


def _body(snapshot: Snapshot, gpus: list[Json]) -> Json:
    return {
        "sequence": snapshot.sequence,
        "taken_at_unix_seconds": snapshot.taken_at_unix_seconds,
        "monotonic_seconds": snapshot.monotonic_seconds,
        "interval_seconds": snapshot.interval_seconds,
        "simulated": snapshot.simulated,
        "host": HOST_TABLE.encode(snapshot.host),
        "gpus": gpus,
        "processes": [PROCESS_TABLE.encode(process) for process in snapshot.processes],
        "jobs": [JOB_TABLE.encode(job) for job in snapshot.jobs],
        "problems": [PROBLEM_TABLE.encode(problem) for problem in snapshot.problems],
        "own_cost": OWN_COST_TABLE.encode(snapshot.own_cost),
    }


def dumps(value: Json, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else None
    try:
        return json.dumps(value, separators=separators, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=separators, indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    """A copy with NaN and infinity as ``None``: they are no JSON and no measurement."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


# --- reading ---------------------------------------------------------------------------------


class Decoder:
    """Reads the lines of one stream; keeps the header the snapshots refer to."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self._identities: dict[str, GpuIdentity] = {}

    def decode(self, line: str) -> Header | Snapshot | None:
        """What ``line`` says; ``None`` for a kind of line a newer version added.

        Raises ``CodecError`` for anything else that is not a header or a snapshot.
        """
        return self.take(loads(line))

    def take(self, value: Json) -> Header | Snapshot | None:
        """As ``decode``, of the object in a line."""
        kind = value.get("kind")
        if kind == "header":
            self.header = _decode_header(value)
            self._identities = {identity.uuid: identity for identity in self.header.identities}
            return self.header
        if kind == "snapshot":
            if self.header is None:
                raise CodecError("A snapshot came before the header that describes its GPUs.")
            return _decode_snapshot(value, self._gpu)
        if isinstance(kind, str) and self.header is not None:
            return None
        raise CodecError('This is JSON, but not a line of gpuwatch: it has no "kind" it knows.')

    def _gpu(self, value: Json, where: str) -> Gpu:
        uuid = _field(value, "uuid", where, json_values.text)
        identity = self._identities.get(uuid)
        if identity is None:
            raise CodecError(f"{where} is GPU {uuid}, which the header does not list.")
        return _decode_gpu(value, where, identity)


def decode_status(text: str) -> Snapshot:
    """Read what ``gpuwatch status --json`` printed; raises ``CodecError``."""
    value = loads(text)
    _check_schema(value)
    return _decode_snapshot(
        value, lambda gpu, where: _decode_gpu(gpu, where, IDENTITY_TABLE.decode(gpu, where))
    )


def loads(text: str) -> Json:
    try:
        value = _JSON.decode(text)
    except CodecError:
        raise
    except (ValueError, RecursionError) as error:
        raise CodecError(f"This is not JSON ({clean(str(error), 120)}).") from None
    if not isinstance(value, dict):
        raise CodecError("This is JSON, but not a line of gpuwatch: it is no object.")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise CodecError(f"{name} is no number that gpuwatch writes: a missing reading is null.")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def _check_schema(value: Json) -> int:
    schema = value.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise CodecError('This is JSON, but not from gpuwatch: it has no "schema" number.')
    if schema > DELTA_SCHEMA_VERSION:
        raise CodecError(
            f"This was written in schema {schema}, and this gpuwatch ({__version__}) reads up to "
            f"schema {DELTA_SCHEMA_VERSION}: update gpuwatch to read it."
        )
    return schema


def _decode_header(value: Json) -> Header:
    schema = _check_schema(value)
    version = value.get("gpuwatch")
    interval = value.get("interval_seconds")
    return Header(
        schema=schema,
        gpuwatch_version=None if version is None else json_values.text(version, "header.gpuwatch"),
        machine=_field(value, "machine", "header", json_values.text),
        simulated=_field(value, "simulated", "header", json_values.flag),
        started_at_unix_seconds=_field(
            value, "started_at_unix_seconds", "header", json_values.moment
        ),
        interval_seconds=None
        if interval is None
        else json_values.number(interval, "header.interval_seconds"),
        identities=tuple(_objects(value, "gpus", "header", IDENTITY_TABLE.decode)),
    )


def _decode_snapshot(value: Json, gpu: Callable[[Json, str], Gpu]) -> Snapshot:
    where = "snapshot"
    own_cost = value.get("own_cost")
    jobs = value.get("jobs")
    return Snapshot(
        sequence=_field(value, "sequence", where, json_values.whole),
        taken_at_unix_seconds=_field(value, "taken_at_unix_seconds", where, json_values.moment),
        monotonic_seconds=_field(value, "monotonic_seconds", where, json_values.number),
        interval_seconds=_field(value, "interval_seconds", where, json_values.number),
        simulated=_field(value, "simulated", where, json_values.flag),
        host=HOST_TABLE.decode(_field(value, "host", where, json_values.json_object), "host"),
        gpus=tuple(_objects(value, "gpus", where, gpu)),
        processes=tuple(_objects(value, "processes", where, PROCESS_TABLE.decode)),
        jobs=() if jobs is None else tuple(_objects(value, "jobs", where, JOB_TABLE.decode)),
        problems=tuple(_objects(value, "problems", where, PROBLEM_TABLE.decode)),
        own_cost=(
            OwnCost()
            if own_cost is None
            else OWN_COST_TABLE.decode(json_values.json_object(own_cost, "own_cost"), "own_cost")
        ),
    )


def _decode_gpu(value: Json, where: str, identity: GpuIdentity) -> Gpu:
    lost = value.get("lost")
    return Gpu(
        identity=identity,
        reading=READING_TABLE.decode(value, where),
        lost=False if lost is None else json_values.flag(lost, f"{where}.lost"),
    )


def _objects(value: Json, name: str, where: str, decode: Callable[[Json, str], T]) -> Iterable[T]:
    items = _field(value, name, where, json_values.json_list)
    for place, item in enumerate(items):
        here = f"{name}[{place}]"
        yield decode(json_values.json_object(item, here), here)


def _field(value: Json, name: str, where: str, check: Callable[[Any, str], T]) -> T:
    found = value.get(name)
    if found is None:
        raise CodecError(f'The {where} lacks the field "{name}".')
    return check(found, f"{where}.{name}")


# --- values of the model --------------------------------------------------------------------


def _many(check: Callable[[Any, str], T]) -> Callable[[Any, str], tuple[T, ...]]:
    def check_all(value: Any, where: str) -> tuple[T, ...]:
        return tuple([check(item, where) for item in json_values.json_list(value, where)])

    return check_all


def _optional_number(value: Any, where: str) -> float | None:
    return None if value is None else json_values.number(value, where)


def _busy_sample(value: Any, where: str) -> BusySample:
    at, percent = json_values.pair(value, where)
    return BusySample(json_values.number(at, where), json_values.number(percent, where))


def _reason_seconds(value: Any, where: str) -> ReasonSeconds:
    reason, seconds = json_values.pair(value, where)
    return ReasonSeconds(json_values.text(reason, where), json_values.number(seconds, where))


def _reading_age(value: Any, where: str) -> ReadingAge:
    name, seconds = json_values.pair(value, where)
    return ReadingAge(json_values.text(name, where), json_values.number(seconds, where))


_CHECKS: Mapping[str, Callable[[Any, str], Any]] = {
    "str": json_values.text,
    "GpuKey": json_values.text,
    "bool": json_values.flag,
    "int": json_values.whole,
    "float": json_values.number,
    "tuple[str, ...]": _many(json_values.text),
    "tuple[GpuKey, ...]": _many(json_values.text),
    "tuple[int, ...]": _many(json_values.whole),
    "tuple[float | None, ...]": _many(_optional_number),
    "tuple[BusySample, ...]": _many(_busy_sample),
    "tuple[ReasonSeconds, ...]": _many(_reason_seconds),
    "tuple[ReadingAge, ...]": _many(_reading_age),
}
"""By a field's annotation, as written in ``model``, less its ``| None``."""


def _check(name: str, annotation: str) -> Callable[[Any, str], Any]:
    return json_values.moment if name.endswith("_unix_seconds") else _CHECKS[annotation]


class Table(Generic[T]):
    """The fields of one dataclass of the model, ready to write and read (also by ``codec_delta``).

    ``parts`` are fields that hold a tuple of another dataclass; ``computed`` are properties that
    are written too and not read.
    """

    def __init__(
        self,
        made: type[T],
        *,
        parts: Mapping[str, Table[Any]] | None = None,
        computed: Sequence[str] = (),
    ) -> None:
        fields = dataclasses.fields(made)  # type: ignore[arg-type]
        self.made = made
        self.fields = tuple([field.name for field in fields])
        self.parts: Mapping[str, Table[Any]] = dict(parts or {})
        self.optional = frozenset(
            field.name for field in fields if str(field.type).endswith(" | None")
        )
        self.annotations = {field.name: str(field.type).removesuffix(" | None") for field in fields}
        self.checks: Mapping[str, Callable[[Any, str], Any]] = {
            name: self.parts[name].decode_all if name in self.parts else _check(name, annotation)
            for name, annotation in self.annotations.items()
        }
        """What takes a field's value out of JSON; ``None`` is not among what they take."""
        self._names = (*self.fields, *computed)
        self._values = attrgetter(*self._names)
        self._checks = tuple(self.checks.items())
        self._required = frozenset(
            field.name for field in fields if field.default is dataclasses.MISSING
        )

    def encode(self, item: T) -> Json:
        value = dict(zip(self._names, self._values(item), strict=True))
        for name, table in self.parts.items():
            value[name] = [table.encode(part) for part in value[name]]
        return value

    def encode_known(self, item: T) -> Json:
        """Without what was not read and what is computed: as much, in fewer characters."""
        value = {
            name: found
            for name in self.fields
            if (found := getattr(item, name)) is not None or name not in self.optional
        }
        for name, table in self.parts.items():
            value[name] = [table.encode_known(part) for part in value[name]]
        return value

    def decode(self, value: Json, where: str) -> T:
        found = {}
        for name, check in self._checks:
            item = value.get(name)
            if item is not None:
                try:
                    found[name] = check(item, name)
                except CodecError:
                    # Once more, to say where: a text for each field would take longer than all.
                    check(item, f"{where}.{name}")
                    raise
            elif name in self._required:
                raise CodecError(f'The {where} lacks the field "{name}".')
        return self.made(**found)

    def decode_all(self, value: Any, where: str) -> tuple[T, ...]:
        here = [f"{where}[{place}]" for place in range(len(json_values.json_list(value, where)))]
        items = [json_values.json_object(item, at) for item, at in zip(value, here, strict=True)]
        return tuple([self.decode(item, at) for item, at in zip(items, here, strict=True)])


IDENTITY_TABLE = Table(GpuIdentity)
READING_TABLE = Table(GpuReading)
PROCESS_TABLE = Table(Process)
RANK_TABLE = Table(JobRank)
LOOP_TABLE = Table(TrainingLoop)
MEMBER_TABLE = Table(JobMember)
JOB_TABLE = Table(
    Job,
    parts={"ranks": RANK_TABLE, "members": MEMBER_TABLE, "loops": LOOP_TABLE},
    computed=(
        "loader_workers",
        "pinned_memory",
        "cpu_percent",
        "main_thread_cpu_percent",
        "loader_worker_cpu_percent",
        "read_bytes_per_second",
        "write_bytes_per_second",
        "memory_proportional_bytes",
        "data_wait_share",
        "samples_per_second",
    ),
)
HOST_TABLE = Table(Host)
PROBLEM_TABLE = Table(Problem)
OWN_COST_TABLE = Table(OwnCost)
