"""Snapshots as JSON and back."""

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings

from gpuwatch.core.codec import (
    SCHEMA_VERSION,
    CodecError,
    Decoder,
    Header,
    header_line,
    snapshot_line,
    status_text,
)
from gpuwatch.core.model import (
    BusySample,
    GpuReading,
    Host,
    Job,
    JobMember,
    JobRank,
    Problem,
    Process,
    ReasonSeconds,
    Snapshot,
)
from tests.support.snapshots import decode_status, gpu, snapshot, snapshots


def decode(*lines: str) -> Any:
    decoder = Decoder()
    return [decoder.decode(line) for line in lines][-1]


@given(snapshots())
@settings(max_examples=25)
def test_any_snapshot_comes_back(taken: Snapshot) -> None:
    """Exactly as it was: from its header and line, and from the object of ``status --json``."""
    header, line = header_line(taken), snapshot_line(taken)
    assert "\n" not in header + line
    assert decode(header, line) == taken
    assert decode_status(status_text(taken)) == taken


def test_status_has_identity_and_reading_side_by_side() -> None:
    """A GPU is one object with its name and its readings; what was not read is null."""
    taken = snapshot(gpus=(gpu(busy_percent=0.0, power_watts=212.5),))
    value = json.loads(status_text(taken))
    assert value["schema"] == SCHEMA_VERSION
    assert value["simulated"] is False
    assert value["jobs"] == []
    (card,) = value["gpus"]
    assert card["uuid"] == "GPU-a"
    assert card["name"] == "NVIDIA H200"
    assert card["busy_percent"] == 0.0
    assert card["power_watts"] == 212.5
    assert card["temperature_celsius"] is None
    assert card["lost"] is False


def test_stream_names_a_gpu_once() -> None:
    """Static facts are in the header only, with what holds for the stream; a snapshot line refers
    to them by uuid. The driver's samples and the durations are written as pairs."""
    reading = {
        "busy_samples": (BusySample(1.5, 99.0),),
        "throttle_durations": (ReasonSeconds("sw_power_cap", 0.25),),
    }
    taken = snapshot(gpus=(gpu(**reading),), simulated=True)
    (identity,) = json.loads(header_line(taken))["gpus"]
    (card,) = json.loads(snapshot_line(taken))["gpus"]
    assert identity["name"] == "NVIDIA H200"
    assert "busy_percent" not in identity
    assert card["uuid"] == "GPU-a"
    assert "name" not in card
    assert card["busy_samples"] == [[1.5, 99.0]]
    assert card["throttle_durations"] == [["sw_power_cap", 0.25]]
    header = decode(header_line(taken))
    assert isinstance(header, Header)
    assert (header.machine, header.simulated, header.schema) == ("box3", True, SCHEMA_VERSION)
    assert json.loads(header_line(snapshot()))["kind"] == "header"


TWO_RANKS = Job(
    pid=40,
    ranks=(
        JobRank(pid=41, rank=0, loader_workers=2, pinned_memory=True),
        JobRank(pid=42, rank=1, loader_workers=0, pinned_memory=True),
    ),
    members=(
        JobMember(pid=41, role="rank", cpu_percent=100.0, main_thread_cpu_percent=90.0),
        JobMember(pid=42, role="rank", cpu_percent=60.0, main_thread_cpu_percent=50.0),
        JobMember(pid=43, role="loader_worker", cpu_percent=30.0, read_bytes_per_second=0.0),
    ),
    main_thread_samples=(BusySample(1.5, 99.0),),
)


def test_every_field_of_the_model_is_written() -> None:
    """No reading is left out: the names of the model are the names in the JSON."""
    taken = snapshot(gpus=(gpu(),), processes=(Process(pid=1),), jobs=(TWO_RANKS,))
    value = json.loads(status_text(taken))
    (card,), (process,), (job,) = value["gpus"], value["processes"], value["jobs"]
    for made, written in (
        (GpuReading, card),
        (Process, process),
        (Host, value["host"]),
        (Job, job),
        (JobRank, job["ranks"][0]),
        (JobMember, job["members"][2]),
    ):
        assert {field.name for field in dataclasses.fields(made)} <= set(written)
    assert job["main_thread_samples"] == [[1.5, 99.0]]


def test_what_a_job_computes_is_written_and_not_read() -> None:
    """Sums and means over a job stand in the JSON; a reader takes the parts at their word."""
    value = json.loads(status_text(snapshot(jobs=(TWO_RANKS,))))
    (job,) = value["jobs"]
    properties = {name for name, item in vars(Job).items() if isinstance(item, property)}
    assert properties - {"key"} <= set(job)
    assert job["loader_workers"] == 2
    assert job["pinned_memory"] is True
    assert job["cpu_percent"] == 190.0
    assert job["main_thread_cpu_percent"] == 70.0
    assert job["loader_worker_cpu_percent"] == 30.0
    assert job["read_bytes_per_second"] == 0.0
    assert job["write_bytes_per_second"] is None
    job["cpu_percent"] = "a lie"
    assert decode_status(json.dumps(value)).jobs == (TWO_RANKS,)
    # What was written before there were jobs is still readable.
    del value["jobs"]
    assert decode_status(json.dumps(value)).jobs == ()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_become_null(bad: float) -> None:
    """What is no number is never written as one, wherever it stands."""
    card = gpu(busy_percent=bad, busy_samples=(BusySample(1.0, 50.0),))
    taken = snapshot(gpus=(card,), host=Host(name="x", core_percents=(bad, 1.0)))
    value = json.loads(snapshot_line(taken), parse_constant=pytest.fail)
    assert value["gpus"][0]["busy_percent"] is None
    assert value["host"]["core_percents"] == [None, 1.0]
    assert "NaN" not in status_text(taken)


def test_names_that_are_not_utf_8_are_written_with_a_replacement() -> None:
    """A recording does not end over a file name."""
    odd = "caf\udce9"
    card = gpu(odd, busy_percent=1.0)
    processes = (Process(pid=1, command=odd),)
    taken = snapshot(gpus=(card,), processes=processes, jobs=(Job(pid=1, command=odd),))
    read = decode(header_line(taken), snapshot_line(taken))
    assert read.processes[0].command == read.jobs[0].command == read.gpus[0].uuid == "caf\ufffd"


def test_new_gpus_come_with_a_new_header() -> None:
    """A later header replaces the identities of the one before."""
    first, second = snapshot(gpus=(gpu("a"),)), snapshot(gpus=(gpu("b"),))
    lines = [header_line(first), snapshot_line(first), header_line(second), snapshot_line(second)]
    assert decode(*lines) == second


def changed(**fields: Any) -> str:
    """A good snapshot line with some fields replaced."""
    value = json.loads(snapshot_line(snapshot(gpus=(gpu(),), processes=(Process(pid=1),))))
    return json.dumps(value | fields)


def test_unknown_fields_and_kinds_are_ignored() -> None:
    """What a newer version adds does not disturb this one."""
    header = header_line(snapshot())
    line = changed(gpus=[], mood="good", host={"name": "x", "smell": 3})
    assert decode(header, line).host == Host(name="x")
    assert decode(header, '{"kind": "finding", "rule": "x"}') is None


def test_missing_optional_fields_are_none() -> None:
    """A reading that an older version did not write is not read, not an error."""
    header = header_line(snapshot(gpus=(gpu(),)))
    read = decode(header, changed(gpus=[{"uuid": "GPU-a"}], host={"name": "x"}, own_cost={}))
    assert read.gpus[0].reading == GpuReading()
    assert read.host.cpu_percent is None
    assert read.own_cost.cpu_percent is None


GOOD_HEADER = header_line(snapshot(gpus=(gpu(),)))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["garbage"], "not JSON"),
        ([""], "not JSON"),
        (['{"a":' + "[" * 100_000], "not JSON"),
        (["[1]"], "Expected `object`"),
        (["{}"], "not a line of gpuwatch"),
        (['{"kind": "finding"}'], "not a line of gpuwatch"),
        (['{"kind": "header"}'], "not from gpuwatch"),
        (['{"kind": "header", "schema": true}'], r"got `bool` - at `\$.schema`"),
        (['{"kind": "header", "schema": 2}'], "older gpuwatch"),
        (['{"kind": "header", "schema": 3}'], "schema 3.*update gpuwatch"),
        (['{"kind": "header", "schema": 1}'], "missing required field `machine`"),
        ([changed()], "before the header"),
        ([GOOD_HEADER, changed(host=None)], r"got `null` - at `\$.host`"),
        ([GOOD_HEADER, changed(sequence="7")], r"got `str` - at `\$.sequence`"),
        ([GOOD_HEADER, changed(sequence=2**65)], r"at `\$.sequence`"),
        ([GOOD_HEADER, changed(monotonic_seconds=1e308)], r"at `\$.monotonic_seconds`"),
        ([GOOD_HEADER, changed(taken_at_unix_seconds=1e300)], r"at `\$.taken_at_unix_seconds`"),
        ([GOOD_HEADER, changed(gpus=[{"uuid": "z"}])], "the header does not list"),
        ([GOOD_HEADER, changed(gpus=[{"uuid": "GPU-a"}] * 2)], "more GPUs than its header"),
        (
            [GOOD_HEADER, changed(gpus=[{"uuid": "GPU-a", "busy_samples": [[1]]}])],
            r"length 2 - at `\$.gpus\[0\].busy_samples\[0\]`",
        ),
        (
            [GOOD_HEADER, changed(gpus=[{"uuid": "GPU-a", "power_watts": -5e300}])],
            r"`float` >= 0.0 - at `\$.gpus\[0\].power_watts`",
        ),
        ([GOOD_HEADER, changed(processes=[{"pid": 1, "name": "x" * 5000}])], "length <= 4096"),
        (
            [GOOD_HEADER, changed(jobs=[{"pid": 1, "members": [{"pid": 1}, {"pid": "x"}]}])],
            r"at `\$.jobs\[0\].members\[1\].pid`",
        ),
        ([GOOD_HEADER, changed().replace("1700000100.0", "NaN")], "not JSON"),
        ([GOOD_HEADER, changed().replace("1700000100.0", "1e999")], "out of range"),
        ([GOOD_HEADER, changed()[:200]], "not JSON"),
        ([GOOD_HEADER, changed() + "\udc80"], "not JSON"),
    ],
)
def test_bad_lines_are_refused_with_a_sentence(lines: list[str], says: str) -> None:
    """Each way of being no line of gpuwatch has a sentence of its own."""
    with pytest.raises(CodecError, match=says):
        decode(*lines)


def test_text_read_from_a_file_is_made_safe() -> None:
    """Escape sequences in a recording do not reach the terminal, in values or in errors."""
    evil = "a\x1b[2Jb\nc"
    line = changed(
        problems=[{"source": "nvml", "message": evil}],
        processes=[{"pid": 1, "command": evil}],
        jobs=[{"pid": 1, "members": [{"pid": 1, "role_sign": evil}]}],
    )
    read = decode(GOOD_HEADER, line)
    assert read.problems == (Problem(source="nvml", message="a\ufffd[2Jb c"),)
    assert read.processes[0].command == "a\ufffd[2Jb c"
    assert read.jobs[0].members[0].role_sign == "a\ufffd[2Jb c"
    with pytest.raises(CodecError) as caught:
        decode(GOOD_HEADER, changed(sequence=evil))
    assert "\x1b" not in str(caught.value)
