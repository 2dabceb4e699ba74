"""Snapshots for tests: small ones by hand, and any that the model allows, for hypothesis."""

import dataclasses
import functools
import json
from typing import Any

from hypothesis import strategies as st

from gpuwatch.core.codec import Decoder, StreamWriter
from gpuwatch.core.model import (
    BusySample,
    Gpu,
    GpuIdentity,
    GpuReading,
    Host,
    Job,
    JobMember,
    JobRank,
    NetworkMount,
    OwnCost,
    Problem,
    Process,
    RdmaPort,
    ReadingAge,
    ReasonSeconds,
    Snapshot,
    TrainingLoop,
    XidError,
)
from gpuwatch.core.text import clean

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)
AMOUNTS = st.floats(0.0, 9e17)
MOMENTS = st.floats(-6.1e10, 9.9e10)
"""Times that a calendar has."""
TEXTS = st.text(max_size=20).map(clean)

_BY_ANNOTATION: dict[str, st.SearchStrategy[Any]] = {
    "Text": TEXTS,
    "GpuKey": TEXTS,
    "bool": st.booleans(),
    "Whole": st.integers(-(2**63), 2**63 - 1),
    "float": NUMBERS,
    "Amount": AMOUNTS,
    "UnixSeconds": MOMENTS,
    "tuple[GpuKey, ...]": st.lists(TEXTS, max_size=3).map(tuple),
    "tuple[Text, ...]": st.lists(TEXTS, max_size=3).map(tuple),
    "tuple[Whole, ...]": st.lists(st.integers(0, 64), max_size=3).map(tuple),
    "tuple[Amount | None, ...]": st.lists(st.none() | AMOUNTS, max_size=4).map(tuple),
    "tuple[NetworkMount, ...]": st.lists(
        st.builds(NetworkMount, TEXTS, TEXTS, *[AMOUNTS] * 5), max_size=2
    ).map(tuple),
    "tuple[BusySample, ...]": st.lists(st.builds(BusySample, MOMENTS, AMOUNTS), max_size=4).map(
        tuple
    ),
    "tuple[ReadingAge, ...]": st.lists(st.builds(ReadingAge, TEXTS, AMOUNTS), max_size=3).map(
        tuple
    ),
    "tuple[ReasonSeconds, ...]": st.lists(st.builds(ReasonSeconds, TEXTS, AMOUNTS), max_size=3).map(
        tuple
    ),
}


_XIDS = st.lists(
    st.builds(XidError, st.integers(0, 999), st.integers(0, 2**40), MOMENTS), max_size=3
).map(tuple)


@functools.cache
def jobs() -> st.SearchStrategy[Job]:
    """Any job, whether its parts agree or not."""
    return any_of(
        Job,
        ranks=st.lists(any_of(JobRank), max_size=3).map(tuple),
        members=st.lists(any_of(JobMember), max_size=3).map(tuple),
        loops=st.lists(any_of(TrainingLoop), max_size=2).map(tuple),
    )


@functools.cache
def any_of(made: type[Any], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any value of a dataclass of the model; optional fields are often ``None``.

    ``given`` are the fields that hold other dataclasses. Made once: a test draws many, and what is
    drawn from the same strategy is drawn in the same way.
    """
    fields = dict(given)
    for field in dataclasses.fields(made):
        if field.name in given:
            continue
        annotation = str(field.type)
        strategy = _BY_ANNOTATION[annotation.removesuffix(" | None")]
        fields[field.name] = st.none() | strategy if annotation.endswith(" | None") else strategy
    return st.builds(made, **fields)


@functools.cache
def _ports() -> st.SearchStrategy[Any]:
    return st.none() | st.lists(any_of(RdmaPort), max_size=2).map(tuple)


@functools.cache
def snapshots() -> st.SearchStrategy[Snapshot]:
    """Any snapshot whose GPUs have each a uuid of their own."""
    gpus = st.lists(
        st.builds(
            Gpu,
            identity=any_of(GpuIdentity),
            reading=any_of(GpuReading),
            lost=st.booleans(),
            allocated_to=st.none() | _BY_ANNOTATION["tuple[Text, ...]"],
            xid_errors=st.none() | _XIDS,
        ),
        max_size=3,
        unique_by=lambda gpu: gpu.uuid,
    )
    return st.builds(
        Snapshot,
        sequence=st.integers(0, 2**40),
        taken_at_unix_seconds=MOMENTS,
        monotonic_seconds=st.floats(-9e10, 9e10),
        interval_seconds=st.floats(0, 9e10),
        simulated=st.booleans(),
        host=any_of(Host, rdma_ports=_ports()),
        gpus=gpus.map(tuple),
        processes=st.lists(any_of(Process), max_size=3).map(tuple),
        jobs=st.lists(jobs(), max_size=2).map(tuple),
        problems=st.lists(any_of(Problem), max_size=3).map(tuple),
        own_cost=any_of(OwnCost),
    )


def gpu(uuid: str = "GPU-a", index: int = 0, lost: bool = False, **reading: Any) -> Gpu:
    """A GPU with just these readings."""
    identity = GpuIdentity(
        index=index, uuid=uuid, name="NVIDIA H200", memory_total_bytes=150_754_820_096
    )
    return Gpu(identity=identity, reading=GpuReading(**reading), lost=lost)


def snapshot(at: float = 100.0, sequence: int = 1, **fields: Any) -> Snapshot:
    """A snapshot taken at monotonic ``at``; wall time is 1.7e9 s later."""
    settings: dict[str, Any] = {
        "sequence": sequence,
        "taken_at_unix_seconds": 1_700_000_000.0 + at,
        "monotonic_seconds": at,
        "interval_seconds": 1.0,
        "simulated": False,
        "host": Host(name="box3"),
    }
    return Snapshot(**(settings | fields))


def decode_status(text: str) -> Snapshot:
    """What ``gpuwatch status --json`` printed, read as a stream of one snapshot: its GPUs hold
    their identities too."""
    value = {"kind": "snapshot", **json.loads(text)}
    name, began = value["host"]["name"], value["taken_at_unix_seconds"]
    header = {**value, "kind": "header", "machine": name, "started_at_unix_seconds": began}
    decoder = Decoder()
    decoder.decode(json.dumps(header))
    read = decoder.decode(json.dumps(value))
    assert isinstance(read, Snapshot)
    return read


def stream_lines(*snapshots: Snapshot) -> list[str]:
    """The lines of a stream: a header, and the snapshots with what they name before them."""
    writer = StreamWriter()
    lines = [writer.header(snapshots[0]), *map(writer.lines, snapshots)]
    return "\n".join(lines).split("\n")
