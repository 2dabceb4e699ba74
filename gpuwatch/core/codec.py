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

import re
from dataclasses import fields
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder as JsonDecoder

from gpuwatch import __version__
from gpuwatch.core.bounds import MonotonicSeconds, Seconds, Text, UnixSeconds, Whole
from gpuwatch.core.model import (
    Gpu,
    GpuIdentity,
    GpuReading,
    Host,
    Job,
    OwnCost,
    Problem,
    Process,
    Snapshot,
)
from gpuwatch.core.text import clean

SCHEMA_VERSION = 1

T = TypeVar("T")
_COMPUTED = [name for name, item in vars(Job).items() if isinstance(item, property)]
_UNSAFE_ESCAPE = re.compile(r'\\[^"\\/]')
_ENCODER = msgspec.json.Encoder()


class CodecError(ValueError):
    """The text is not what it should be; the message is a sentence for a person."""


class Header(Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """The first line of a stream: what holds for the snapshots after it."""

    schema: int = SCHEMA_VERSION
    gpuwatch: Text | None = None
    machine: Text
    simulated: bool
    started_at_unix_seconds: UnixSeconds
    interval_seconds: float | None = None
    gpus: Annotated[tuple[GpuIdentity, ...], Meta(max_length=4096)]


class _Kind(Struct):
    kind: str | None = None
    schema: int | None = None


class _Body(Struct):
    """A snapshot, in a line or an object of its own."""

    sequence: Whole
    taken_at_unix_seconds: UnixSeconds
    monotonic_seconds: MonotonicSeconds
    interval_seconds: Seconds
    simulated: bool
    host: Host
    gpus: list[Raw]
    processes: tuple[Process, ...]
    problems: tuple[Problem, ...]
    jobs: tuple[Job, ...] | None = None
    own_cost: OwnCost | None = None


class _GpuState(Struct):
    uuid: Text
    lost: bool = False
    allocated_to: tuple[Text, ...] | None = None


_KIND, _HEADER, _BODY = JsonDecoder(_Kind), JsonDecoder(Header), JsonDecoder(_Body)
_STATE, _READING = JsonDecoder(_GpuState), JsonDecoder(GpuReading)


def identities(snapshot: Snapshot) -> tuple[GpuIdentity, ...]:
    """The GPUs, as a header describes them: where they change, another is written."""
    return tuple([gpu.identity for gpu in snapshot.gpus])


# --- writing ---------------------------------------------------------------------------------


def header_line(snapshot: Snapshot) -> str:
    """The header for a stream that begins with ``snapshot``, without a line end."""
    header = Header(
        gpuwatch=__version__,
        machine=snapshot.host.name,
        simulated=snapshot.simulated,
        started_at_unix_seconds=snapshot.taken_at_unix_seconds,
        interval_seconds=snapshot.interval_seconds,
        gpus=identities(snapshot),
    )
    return _encode(header).decode()


def snapshot_line(snapshot: Snapshot) -> str:
    """One snapshot of a stream, without a line end."""
    gpus = [
        _merged(_GpuState(gpu.uuid, gpu.lost, gpu.allocated_to), gpu.reading)
        for gpu in snapshot.gpus
    ]
    return _encode({"kind": "snapshot", **_body(snapshot, gpus)}).decode()


def status_text(snapshot: Snapshot) -> str:
    """One snapshot that needs no header: what ``gpuwatch status --json`` prints, indented, without
    a line end."""
    gpus = [
        _merged(gpu.identity, {"lost": gpu.lost, "allocated_to": gpu.allocated_to}, gpu.reading)
        for gpu in snapshot.gpus
    ]
    value = {"schema": SCHEMA_VERSION, "gpuwatch": __version__, **_body(snapshot, gpus)}
    return msgspec.json.format(_encode(value), indent=2).decode()


def _body(snapshot: Snapshot, gpus: list[Raw]) -> dict[str, Any]:
    jobs = [_merged(job, {name: getattr(job, name) for name in _COMPUTED}) for job in snapshot.jobs]
    values = {field.name: getattr(snapshot, field.name) for field in fields(Snapshot)}
    values |= {"gpus": gpus, "jobs": jobs}
    return {name: Raw(_encode(value)) for name, value in values.items()}


def _encode(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        # A name that is not UTF-8, and that no source has cleaned: it must not end a recording.
        return _ENCODER.encode(cleaned(msgspec.to_builtins(value)))


def _merged(*parts: object) -> Raw:
    """One object with the fields of all ``parts``."""
    return Raw(b"{" + b",".join([_encode(part)[1:-1] for part in parts]) + b"}")


# --- reading ---------------------------------------------------------------------------------


class Decoder:
    """Reads the lines of one stream; keeps the header the snapshots refer to."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self._identities: dict[str, GpuIdentity] = {}

    def decode(self, line: str) -> Header | Snapshot | None:
        """A header or a snapshot; ``None`` for a kind of line a newer version added. Raises
        ``CodecError`` for anything else."""
        data = safe(line)
        found = decoded(_KIND, data)
        if found.kind == "header":
            _check_schema(found)
            self.header = decoded(_HEADER, data)
            self._identities = {identity.uuid: identity for identity in self.header.gpus}
            return self.header
        if found.kind is None or self.header is None:
            if found.kind == "snapshot":
                raise CodecError("A snapshot came before the header that describes its GPUs.")
            raise CodecError('This is JSON, but not a line of gpuwatch: it has no "kind" it knows.')
        return self._snapshot(data) if found.kind == "snapshot" else None

    def _snapshot(self, data: bytes) -> Snapshot:
        body = decoded(_BODY, data)
        if len(body.gpus) > len(self._identities):
            raise CodecError("A snapshot has more GPUs than its header.")
        values = msgspec.structs.asdict(body)
        gpus = tuple([self._gpu(gpu, f"gpus[{place}]") for place, gpu in enumerate(body.gpus)])
        values |= {"gpus": gpus, "jobs": body.jobs or (), "own_cost": body.own_cost or OwnCost()}
        return Snapshot(**values)

    def _gpu(self, data: Raw, where: str) -> Gpu:
        state = decoded(_STATE, data, where)
        identity = self._identities.get(state.uuid)
        if identity is None:
            shown = clean(state.uuid, 80)
            raise CodecError(f"{where} is GPU {shown}, which the header does not list.")
        reading = decoded(_READING, data, where)
        return Gpu(
            identity=identity, reading=reading, lost=state.lost, allocated_to=state.allocated_to
        )


def decoded(decoder: JsonDecoder[T], data: bytes | Raw, where: str = "") -> T:
    """``data`` (in a snapshot at ``where``) as ``decoder`` reads it; raises ``CodecError``."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        said = str(error)
        if where:
            path = f"`$.{where}"
            said = said.replace("`$", path) if "`$" in said else f"{said} - at {path}`"
        raise CodecError(f"This is not a line of gpuwatch: {clean(said, 200)}.") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise CodecError(f"This is not JSON ({clean(str(error), 120)}).") from None


_DELTA_SCHEMA = 2
"""Recordings had it for a while; the next schema is 3."""


def _check_schema(found: _Kind) -> None:
    if found.schema is None or found.schema < 1:
        raise CodecError('This is JSON, but not from gpuwatch: it has no "schema" number.')
    if found.schema == _DELTA_SCHEMA:
        raise CodecError("This was recorded by an older gpuwatch, in a format of its own.")
    if found.schema > SCHEMA_VERSION:
        raise CodecError(
            f"This was written in schema {clean(str(found.schema), 20)}, and this gpuwatch "
            f"({__version__}) reads up to schema {SCHEMA_VERSION}: update gpuwatch to read it."
        )


_ANYTHING: JsonDecoder[Any] = JsonDecoder()


def safe(line: str) -> bytes:
    """``line`` with its texts made safe: a recording may come from anyone, and what it says reaches
    a terminal. Most lines hold nothing that ``clean`` would change, and are not looked through."""
    plain = (line.isascii() and "\x7f" not in line) or line.isprintable()
    try:
        if plain and not _UNSAFE_ESCAPE.search(line):
            return line.encode()
        found = cleaned(decoded(_ANYTHING, line.encode("utf-8", "replace")))
        return _encode(found)
    except (UnicodeError, RecursionError) as error:
        raise CodecError(f"This is not JSON ({clean(str(error), 120)}).") from None


def cleaned(value: Any, limit: int = 4096) -> Any:
    """What was read as JSON, with no text in it that could reach a terminal as a control sequence;
    none longer than ``limit``."""
    if isinstance(value, str):
        return clean(value, limit)
    if isinstance(value, dict):
        return {name: cleaned(item, limit) for name, item in value.items()}
    return [cleaned(item, limit) for item in value] if isinstance(value, list | tuple) else value
