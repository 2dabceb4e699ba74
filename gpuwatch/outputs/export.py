"""Snapshots for programs: rows of CSV, and the JSON lines of ``gpuwatch stream``.

CSV is made for pandas and spreadsheets: the names of ``model`` with their units as columns, times
as ``time_utc`` (ISO 8601) and ``unix_seconds``, ``true`` and ``false``, nothing where nothing was
read. Lists are joined by ``|``. A text that a spreadsheet would take for a formula (one that
begins with ``=``, ``+``, ``-`` or ``@``) has an apostrophe before it, since anybody can name a
process; numbers never have. Control characters are replaced as everywhere (``text.clean``).
"""

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from gpuwatch.core.bounds import total
from gpuwatch.core.codec import StreamWriter, identities
from gpuwatch.core.model import (
    GpuIdentity,
    GpuReading,
    Host,
    Process,
    ProcessKey,
    RdmaPort,
    Snapshot,
    TrainingLoop,
)
from gpuwatch.core.text import clean

FORMULAS = ("=", "+", "-", "@")

_TIME = ("time_utc", "unix_seconds")
_SAMPLES = (
    "busy_samples_count",
    *[f"busy_samples_{which}_percent" for which in ("low", "mean", "high")],
)


def names(made: type[Any], *left_out: str) -> tuple[str, ...]:
    """Return the names of the fields of a class of the model."""
    return tuple([field.name for field in dataclasses.fields(made) if field.name not in left_out])


def values(item: object, wanted: Sequence[str]) -> list[Any]:
    """Return these values of ``item``; ``None`` for each where there is no ``item``."""
    return [None if item is None else getattr(item, name) for name in wanted]


_GPU = names(GpuIdentity, "machine")
_STATE = ("lost", "allocated_to")
_READINGS = names(GpuReading, "busy_samples")
_HOST = names(Host, "name", "core_percents", "network_mounts", "rdma_ports")
_PORT_COUNTS = tuple([name for name in names(RdmaPort) if name.endswith("_count")])
_PROCESS = names(Process)
_LOOP = names(TrainingLoop, "pid", "started_at_unix_seconds", "spent_seconds")
_MEMBER = (
    *("role", "rank", "main_thread_cpu_percent", "run_queue_wait_percent", "disk_wait_percent"),
    *("read_bytes_per_second", "write_bytes_per_second", "memory_proportional_bytes"),
)

GPU_COLUMNS = (*_TIME, "machine", "simulated", *_GPU, *_STATE, *_SAMPLES, *_READINGS)
PROCESS_COLUMNS = (
    *(*_TIME, "machine", "simulated", "gpu_index", *_PROCESS, "job_pid", *_MEMBER),
    *[f"loop_{name}" for name in _LOOP],
)
"""``loop_...``: what a rank reports of its own training loop."""
HOST_COLUMNS = (
    *(*_TIME, "machine", "simulated", *_HOST),
    *["rdma_ports_active", *[f"rdma_{name}" for name in _PORT_COUNTS]],
)
"""``rdma_...``: of all InfiniBand and RoCE ports together."""


class RowWriter:
    """Writes the titles at once, then rows as snapshots come; holds none of them."""

    def __init__(self, out: TextIO, columns: Sequence[str]) -> None:
        self._rows = csv.writer(out, lineterminator="\n")
        self._rows.writerow(columns)
        self.written = 0

    def write(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            self._rows.writerow([cell(value) for value in row])
            self.written += 1


def gpu_rows(snapshot: Snapshot) -> Iterator[list[Any]]:
    """Yield ``GPU_COLUMNS`` of each GPU."""
    *times, machine, simulated = _start(snapshot)
    for gpu in snapshot.gpus:
        samples, readings = _sample_cells(gpu.reading), values(gpu.reading, _READINGS)
        start = [*times, gpu.identity.machine or machine, simulated]
        state = values(gpu, _STATE)
        yield [*start, *values(gpu.identity, _GPU), *state, *samples, *readings]


def _sample_cells(reading: GpuReading) -> list[Any]:
    samples = reading.busy_samples
    if samples is None:
        return [None] * len(_SAMPLES)
    percents = [sample[1] for sample in samples]
    if not percents:
        return [0, None, None, None]
    return [len(percents), min(percents), sum(percents) / len(percents), max(percents)]


def process_rows(snapshot: Snapshot) -> Iterator[list[Any]]:
    """Yield ``PROCESS_COLUMNS`` of each process on each of its GPUs, and of each process of a
    job."""
    start = _start(snapshot)
    members = {member.key: (job.pid, member) for job in snapshot.jobs for member in job.members}
    loops = {loop.key: loop for job in snapshot.jobs for loop in job.loops}
    indices = {gpu.uuid: gpu.identity.index for gpu in snapshot.gpus}
    seen: set[ProcessKey] = set()
    for process in snapshot.processes:
        seen.add(process.key)
        job, member = members.get(process.key, (None, None))
        yield [
            *start,
            indices.get(process.gpu_uuid or ""),
            *values(process, _PROCESS),
            job,
            *values(member, _MEMBER),
            *values(loops.get(process.key), _LOOP),
        ]
    for key, (job, member) in members.items():
        if key not in seen:
            # Only what a process and a member both have is known of it.
            known = [getattr(member, name, None) for name in _PROCESS]
            cells = (*values(member, _MEMBER), *values(loops.get(key), _LOOP))
            yield [*start, None, *known, job, *cells]


def host_rows(snapshot: Snapshot) -> Iterator[list[Any]]:
    """Yield ``HOST_COLUMNS``, one row."""
    ports = snapshot.host.rdma_ports or ()
    active = [one.state == "active" for one in ports if one.state is not None]
    counts = [total([getattr(one, name) for one in ports]) for name in _PORT_COUNTS]
    active_ports = sum(active) if active else None
    yield [*_start(snapshot), *values(snapshot.host, _HOST), active_ports, *counts]


def _start(snapshot: Snapshot) -> list[Any]:
    unix = snapshot.taken_at_unix_seconds
    return [_iso(unix), unix, snapshot.host.name, snapshot.simulated]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _iso(unix_seconds: float) -> str | None:
    """Return the time in ISO 8601, to the millisecond; ``None`` for what no calendar has."""
    try:
        moment = _EPOCH + timedelta(milliseconds=round(unix_seconds * 1000))
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cell(value: Any) -> Any:
    """Return the text that is written for a value of the model."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # Six digits after the point are a microsecond; NaN and infinity are no measurement.
        return (round(value, 6) + 0.0) if value - value == 0.0 else ""
    if isinstance(value, tuple):
        return guarded("|".join(_part(part) for part in value))
    return guarded(value) if isinstance(value, str) else value


def _part(part: Any) -> str:
    """Return ``sw_power_cap``; ``sw_power_cap=1.5`` of a reason with its seconds."""
    if isinstance(part, tuple):
        return "=".join(str(cell(one)) for one in part)
    return str(part)


def guarded(text: str) -> str:
    """Return ``text`` as no spreadsheet would calculate it, nor a terminal obey."""
    shown = clean(text)
    # Some spreadsheets pass over the spaces before a formula.
    return f"'{shown}" if shown.lstrip().startswith(FORMULAS) else shown


def csv_text(snapshot: Snapshot) -> str:
    """Return ``GPU_COLUMNS`` as CSV; without a GPU only their titles."""
    out = io.StringIO()
    RowWriter(out, GPU_COLUMNS).write(gpu_rows(snapshot))
    return out.getvalue()


class JsonLinesWriter:
    """Writes snapshots to ``out``, each flushed, so that a reader sees it at once.

    A header comes first, and again whenever the GPUs are others than before. Raises what the
    file raises: ``BrokenPipeError`` when its reader has gone.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines = StreamWriter()
        self._identities: tuple[GpuIdentity, ...] | None = None
        self.written = 0
        """Snapshots so far."""

    def write(self, snapshot: Snapshot) -> None:
        gpus = identities(snapshot)
        header = self._lines.header(snapshot) + "\n" if gpus != self._identities else ""
        self._out.write(f"{header}{self._lines.lines(snapshot)}\n")
        self._out.flush()
        self._identities = gpus
        self.written += 1
