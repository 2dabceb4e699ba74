"""Reader of the lines that gpuwatch wrote in schema 1: each snapshot says everything, with the
identity of what it names, and ``null`` for what was not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

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
    XidError,
)


class _Body(Struct):
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
    xid_errors: tuple[XidError, ...] | None = None


_BODY, _STATE, _READING = (
    msgspec.json.Decoder(_Body),
    msgspec.json.Decoder(_GpuState),
    msgspec.json.Decoder(GpuReading),
)


def snapshot_of(
    data: bytes, decoded: Callable[..., Any], identity_of: Callable[[str, str], GpuIdentity]
) -> Snapshot:
    """Return the snapshot in a line. ``decoded`` and ``identity_of`` (of ``codec``) raise
    ``CodecError``."""
    body = decoded(_BODY, data)
    values = msgspec.structs.asdict(body)
    found = []
    for place, gpu in enumerate(body.gpus):
        where = f"gpus[{place}]"
        state = decoded(_STATE, gpu, where)
        identity = identity_of(state.uuid, where)
        reading = decoded(_READING, gpu, where)
        found.append(
            Gpu(
                identity=identity,
                reading=reading,
                lost=state.lost,
                allocated_to=state.allocated_to,
                xid_errors=state.xid_errors,
            )
        )
    values |= {
        "gpus": tuple(found),
        "jobs": body.jobs or (),
        "own_cost": body.own_cost or OwnCost(),
    }
    return Snapshot(**values)
