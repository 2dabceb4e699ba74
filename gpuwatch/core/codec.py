"""Snapshots as JSON: the lines of a stream or recording, and the object ``status`` prints.

The names are those of ``model``; NaN and infinity are never written. ``status`` prints one object,
with the identity and the readings of each GPU, process and job side by side, and ``null`` for what
was not read.

A stream names what it is about once. Its header has the GPUs, a line of ``identities`` comes before
the snapshot in which processes or jobs are seen first (or are something else than before), and a
snapshot has what moves: its GPUs by their ``uuid``, processes and jobs by the ``id`` of their
identity, and without the fields that were not read. A job of which nothing moved is its ``id``
alone: most jobs are read every few seconds. A header (the GPUs are others, a frame of a recording
begins) begins anew with all of that: each line can be read with those since the last header.

``busy_samples`` (and a job's ``main_thread_samples`` and ``loader_worker_samples``) are pairs
``[at_unix_seconds, percent]``, ``throttle_durations`` pairs ``[reason, seconds]``,
``late_readings`` pairs ``[field, seconds]``, ``xid_errors`` triples ``[code, times,
last_unix_seconds]``. Reading ignores fields (and, after a header, kinds of
lines) it does not know and takes a missing optional field as ``None``, so that a newer minor
version is readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder as JsonDecoder

from gpuwatch import __version__
from gpuwatch.core import schema_1
from gpuwatch.core.bounds import MonotonicSeconds, Seconds, Text, UnixSeconds, Whole
from gpuwatch.core.model import (
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
    Snapshot,
    TrainingLoop,
    XidError,
)
from gpuwatch.core.text import clean

SCHEMA_VERSION = 3
"""Version of streams and recordings; recordings had 2 for a while."""
STATUS_SCHEMA_VERSION = 1

T = TypeVar("T")
_COMPUTED = [name for name, item in vars(Job).items() if isinstance(item, property)]
_UNSAFE_ESCAPE = re.compile(r'\\[^"\\/]')
_ENCODER = msgspec.json.Encoder()


class CodecError(ValueError):
    """The text is not what it should be; the message is a sentence for a person."""


# --- what lasts and what moves ----------------------------------------------------------------


class _Part:
    """Some fields of a class of the model, as a ``Struct`` that leaves out what has its default."""

    def __init__(
        self, model: type[Any], names: Iterable[str], *more: tuple[Any, ...], **parts: _Part
    ) -> None:
        """Make the struct. ``more``: fields that the model has not, first; ``parts``: those of
        which each is a tuple of other parts."""
        hints = get_type_hints(model, include_extras=True)
        defaults = {one.name: one.default for one in fields(model)}
        self.names = tuple([name for name in names if name not in parts])
        own: list[Any] = list(more)
        for name in self.names:
            needed = defaults[name] is MISSING
            own.append((name, hints[name]) if needed else (name, hints[name], defaults[name]))
        for name, part in parts.items():
            own.append((name, tuple[part.struct, ...], ()))  # type: ignore[name-defined]
        self.struct: Any = msgspec.defstruct(
            f"{model.__name__}Part", sorted(own, key=len), frozen=True, omit_defaults=True
        )
        get = attrgetter(*self.names)
        self.values_of = get if len(self.names) > 1 else lambda item: (get(item),)

    def made_of(self, item: Any, *more: Any, **parts: Any) -> Any:
        """Return the ``Struct`` with these fields of ``item``."""
        values = dict(zip(self.names, self.values_of(item), strict=True))
        return self.struct(*more, **values, **parts)

    def fields_of(self, part: Any) -> dict[str, Any]:
        return {name: getattr(part, name) for name in self.names}


def _names(model: type[Any], *left_out: str) -> list[str]:
    return [one.name for one in fields(model) if one.name not in left_out]


_PROCESS_READINGS = (
    *("state", "cpu_percent", "memory_resident_bytes", "threads"),
    *("gpu_memory_bytes", "gpu_busy_percent"),
)
_MEMBER_LASTING = (
    *("pid", "started_at_unix_seconds", "parent_pid", "role", "role_sign", "role_guessed"),
    *("rank", "orphaned", "name", "command"),
)
_JOB_READINGS = (
    *("cpu_throttled_percent", "ended_at_unix_seconds", "exit_code"),
    *("pressure_cpu_some_percent", "pressure_io_some_percent", "pressure_memory_some_percent"),
    *("main_thread_samples", "loader_worker_samples"),
)
_ID = ("id", int)

_process = _Part(Process, _names(Process, *_PROCESS_READINGS), _ID)
_process_reading = _Part(Process, _PROCESS_READINGS, _ID)
_rank = _Part(JobRank, _names(JobRank))
_loop = _Part(TrainingLoop, _names(TrainingLoop))
_member = _Part(JobMember, _MEMBER_LASTING)
_member_reading = _Part(JobMember, _names(JobMember, *_MEMBER_LASTING))
_job = _Part(Job, _names(Job, *_JOB_READINGS, "loops"), _ID, ranks=_rank, members=_member)
_job_reading = _Part(Job, _JOB_READINGS, _ID, loops=_loop, members=_member_reading)
_gpu = _Part(
    GpuReading,
    _names(GpuReading),
    ("uuid", Text),
    ("lost", bool, False),
    ("allocated_to", tuple[Text, ...] | None, None),
    ("xid_errors", tuple[XidError, ...] | None, None),
)


class Header(Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """The first line of a stream: what holds for the snapshots after it."""

    schema: int = SCHEMA_VERSION
    gpuwatch: Text | None = None
    machine: Text
    simulated: bool
    started_at_unix_seconds: UnixSeconds
    interval_seconds: float | None = None
    gpus: Annotated[tuple[GpuIdentity, ...], Meta(max_length=4096)]


class _Identities(Struct, tag_field="kind", tag="identities", omit_defaults=True):
    """Processes and jobs that the snapshots after it are about."""

    processes: list[_process.struct] = []  # type: ignore[name-defined]
    jobs: list[_job.struct] = []  # type: ignore[name-defined]


class _Snapshot(Struct, tag_field="kind", tag="snapshot", omit_defaults=True):
    sequence: Whole
    taken_at_unix_seconds: UnixSeconds
    monotonic_seconds: MonotonicSeconds
    interval_seconds: Seconds
    simulated: bool
    host: Host
    gpus: list[_gpu.struct]  # type: ignore[name-defined]
    processes: list[_process_reading.struct]  # type: ignore[name-defined]
    jobs: list[int | _job_reading.struct] = []  # type: ignore[name-defined]
    problems: tuple[Problem, ...] = ()
    own_cost: OwnCost = OwnCost()


def identities(snapshot: Snapshot) -> tuple[GpuIdentity, ...]:
    """Return the GPUs, as a header describes them: where they change, another is written."""
    return tuple([gpu.identity for gpu in snapshot.gpus])


# --- writing ---------------------------------------------------------------------------------


class StreamWriter:
    """Makes the lines of one stream."""

    def __init__(self) -> None:
        self._processes: dict[tuple[Any, ...], int] = {}
        """Numbers of the processes of the last snapshot, by their identities."""
        self._jobs: dict[tuple[Any, ...], tuple[int, Job]] = {}
        self._number = 0

    def header(self, snapshot: Snapshot) -> str:
        """Return the header for what begins with ``snapshot``, without a line end."""
        self._processes, self._jobs, self._number = {}, {}, 0
        header = Header(
            gpuwatch=__version__,
            machine=snapshot.host.name,
            simulated=snapshot.simulated,
            started_at_unix_seconds=snapshot.taken_at_unix_seconds,
            interval_seconds=snapshot.interval_seconds,
            gpus=identities(snapshot),
        )
        return _encode(header).decode()

    def lines(self, snapshot: Snapshot) -> str:
        """Return the line of the snapshot, after one of new identities where there are any."""
        new = _Identities([], [])
        before, self._processes = self._processes, {}
        processes = []
        for process in snapshot.processes:
            identity = _process.values_of(process)
            number = before.get(identity)
            if number is None:
                number = self._processes.get(identity) or self._next()
                new.processes.append(_process.made_of(process, number))
            self._processes[identity] = number
            processes.append(_process_reading.made_of(process, number))
        body = _Snapshot(
            sequence=snapshot.sequence,
            taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
            monotonic_seconds=snapshot.monotonic_seconds,
            interval_seconds=snapshot.interval_seconds,
            simulated=snapshot.simulated,
            host=snapshot.host,
            gpus=[_gpu.made_of(gpu.reading, gpu.uuid, **_state(gpu)) for gpu in snapshot.gpus],
            processes=processes,
            jobs=list(self._job_rows(snapshot.jobs, new)),
            problems=snapshot.problems,
            own_cost=snapshot.own_cost,
        )
        line = _encode(body).decode()
        return f"{_encode(new).decode()}\n{line}" if new.processes or new.jobs else line

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _job_rows(self, jobs: Iterable[Job], new: _Identities) -> Iterator[Any]:
        before, self._jobs = self._jobs, {}
        for job in jobs:
            members = [_member.values_of(member) for member in job.members]
            identity = (*_job.values_of(job), job.ranks, *members)
            number, last = before.get(identity, (None, None))
            if number is None:
                number = self._next()
                new.jobs.append(
                    _job.made_of(
                        job,
                        number,
                        ranks=tuple(map(_rank.made_of, job.ranks)),
                        members=tuple(map(_member.made_of, job.members)),
                    )
                )
            self._jobs[identity] = number, job
            if job is last or job == last:
                yield number
            else:
                loops = tuple(map(_loop.made_of, job.loops))
                readings = tuple(map(_member_reading.made_of, job.members))
                yield _job_reading.made_of(job, number, loops=loops, members=readings)


def status_text(snapshot: Snapshot) -> str:
    """Return one snapshot as what ``gpuwatch status --json`` prints, indented, without a line
    end."""
    gpus = [_merged(gpu.identity, _state(gpu), gpu.reading) for gpu in snapshot.gpus]
    jobs = [_merged(job, {name: getattr(job, name) for name in _COMPUTED}) for job in snapshot.jobs]
    values = {field.name: getattr(snapshot, field.name) for field in fields(Snapshot)}
    values |= {"gpus": gpus, "jobs": jobs}
    about = {"schema": STATUS_SCHEMA_VERSION, "gpuwatch": __version__}
    return msgspec.json.format(_encode(about | values), indent=2).decode()


def _state(gpu: Gpu) -> dict[str, Any]:
    return {
        "lost": gpu.lost, "allocated_to": gpu.allocated_to, "xid_errors": gpu.xid_errors
    }  # fmt: skip


def _encode(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        # A name that is not UTF-8, and that no source has cleaned: it must not end a recording.
        return _ENCODER.encode(cleaned(msgspec.to_builtins(value)))


def _merged(*parts: object) -> Raw:
    """Return one object with the fields of all ``parts``."""
    return Raw(b"{" + b",".join([_encode(part)[1:-1] for part in parts]) + b"}")


# --- reading ---------------------------------------------------------------------------------


class _Kind(Struct):
    kind: str | None = None
    schema: int | None = None


_KIND, _HEADER = JsonDecoder(_Kind), JsonDecoder(Header)
_IDENTITIES, _SNAPSHOT = JsonDecoder(_Identities), JsonDecoder(_Snapshot)


class Decoder:
    """Reads the lines of one stream; keeps what the snapshots refer to."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self._gpus: dict[str, GpuIdentity] = {}
        self._processes: dict[int, dict[str, Any]] = {}
        self._jobs: dict[int, Any] = {}
        self._read_jobs: dict[int, Job] = {}
        """Jobs as they were read last."""

    def decode(self, line: str) -> Header | Snapshot | None:
        """Return a header or a snapshot; ``None`` for a line of identities, and for a kind that a
        newer version added. Raises ``CodecError`` for anything else."""
        data = safe(line)
        found = decoded(_KIND, data)
        if found.kind == "header":
            _check_schema(found)
            self.header = decoded(_HEADER, data)
            self._gpus = {identity.uuid: identity for identity in self.header.gpus}
            self._processes, self._jobs, self._read_jobs = {}, {}, {}
            return self.header
        if found.kind is None or self.header is None:
            if found.kind in ("snapshot", "identities"):
                raise CodecError("The header, its first line, is missing: it describes the GPUs.")
            raise CodecError('This is JSON, but not a line of gpuwatch: it has no "kind" it knows.')
        if found.kind == "identities":
            new = decoded(_IDENTITIES, data)
            self._processes |= {one.id: _process.fields_of(one) for one in new.processes}
            self._jobs |= {one.id: one for one in new.jobs}
            for one in new.jobs:
                self._read_jobs.pop(one.id, None)
        if found.kind != "snapshot":
            return None
        if self.header.schema == 1:
            return schema_1.snapshot_of(data, decoded, self._identity)
        return self._snapshot(decoded(_SNAPSHOT, data))

    def _snapshot(self, body: Any) -> Snapshot:
        if len(body.gpus) > len(self._gpus):
            raise CodecError("A snapshot has more GPUs than its header.")
        values = msgspec.structs.asdict(body)
        values["gpus"] = tuple(
            [
                Gpu(
                    identity=self._identity(gpu.uuid, f"gpus[{place}]"),
                    reading=GpuReading(**_gpu.fields_of(gpu)),
                    lost=gpu.lost,
                    allocated_to=gpu.allocated_to,
                    xid_errors=gpu.xid_errors,
                )
                for place, gpu in enumerate(body.gpus)
            ]
        )
        # What the line of identities was that is missing, nobody knows: its processes are left out.
        values["processes"] = tuple(
            [
                Process(**self._processes[row.id], **_process_reading.fields_of(row))
                for row in body.processes
                if row.id in self._processes
            ]
        )
        values["jobs"] = tuple([job for job in map(self._job, body.jobs) if job is not None])
        return Snapshot(**values)

    def _job(self, row: Any) -> Job | None:
        if isinstance(row, int):
            return self._read_jobs.get(row)
        identity = self._jobs.get(row.id)
        if identity is None or len(identity.members) != len(row.members):
            return None
        members = [
            JobMember(**_member.fields_of(lasting), **_member_reading.fields_of(reading))
            for lasting, reading in zip(identity.members, row.members, strict=True)
        ]
        job = Job(
            **_job.fields_of(identity),
            **_job_reading.fields_of(row),
            ranks=tuple([JobRank(**_rank.fields_of(rank)) for rank in identity.ranks]),
            members=tuple(members),
            loops=tuple([TrainingLoop(**_loop.fields_of(loop)) for loop in row.loops]),
        )
        self._read_jobs[row.id] = job
        return job

    def _identity(self, uuid: str, where: str) -> GpuIdentity:
        identity = self._gpus.get(uuid)
        if identity is None:
            shown = clean(uuid, 80)
            raise CodecError(f"{where} is GPU {shown}, which the header does not list.")
        return identity


def decoded(decoder: JsonDecoder[T], data: bytes | Raw, where: str = "") -> T:
    """Return ``data`` (in a snapshot at ``where``) as ``decoder`` reads it; raises
    ``CodecError``."""
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
    """Return ``line`` with its texts made safe: a recording may come from anyone, and what it says
    reaches a terminal. Most lines hold nothing that ``clean`` would change, and are not looked
    through."""
    plain = (line.isascii() and "\x7f" not in line) or line.isprintable()
    try:
        if plain and not _UNSAFE_ESCAPE.search(line):
            return line.encode()
        found = cleaned(decoded(_ANYTHING, line.encode("utf-8", "replace")))
        return _encode(found)
    except (UnicodeError, RecursionError) as error:
        raise CodecError(f"This is not JSON ({clean(str(error), 120)}).") from None


def cleaned(value: Any, limit: int = 4096) -> Any:
    """Return what was read as JSON, with no text in it that could reach a terminal as a control
    sequence; none longer than ``limit``."""
    if isinstance(value, str):
        return clean(value, limit)
    if isinstance(value, dict):
        return {name: cleaned(item, limit) for name, item in value.items()}
    return [cleaned(item, limit) for item in value] if isinstance(value, list | tuple) else value
