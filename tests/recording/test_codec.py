"""Snapshots as JSON and back."""

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings

from gpuwatch.core.codec import (
    SCHEMA_VERSION,
    STATUS_SCHEMA_VERSION,
    CodecError,
    Decoder,
    Header,
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
from tests.support.snapshots import decode_status, gpu, snapshot, snapshots, stream_lines


def decode(*lines: str) -> Any:
    decoder = Decoder()
    return [decoder.decode(line) for line in lines][-1]


@given(snapshots())
@settings(max_examples=25)
def test_any_snapshot_comes_back(taken: Snapshot) -> None:
    """Exactly as it was: from its header and line, and from the object of ``status --json``."""
    assert decode(*stream_lines(taken)) == taken
    assert decode_status(status_text(taken)) == taken


def test_status_has_identity_and_reading_side_by_side() -> None:
    """A GPU is one object with its name and its readings; what was not read is null."""
    taken = snapshot(gpus=(gpu(busy_percent=0.0, power_watts=212.5),))
    value = json.loads(status_text(taken))
    assert value["schema"] == STATUS_SCHEMA_VERSION
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
    header_line, line = stream_lines(taken)
    (identity,), (card,) = json.loads(header_line)["gpus"], json.loads(line)["gpus"]
    assert identity["name"] == "NVIDIA H200"
    assert "busy_percent" not in identity
    assert card["uuid"] == "GPU-a"
    assert "name" not in card
    assert card["busy_samples"] == [[1.5, 99.0]]
    assert card["throttle_durations"] == [["sw_power_cap", 0.25]]
    header = decode(header_line)
    assert isinstance(header, Header)
    assert (header.machine, header.simulated, header.schema) == ("box3", True, SCHEMA_VERSION)
    assert json.loads(header_line)["kind"] == "header"


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
    value = json.loads(stream_lines(taken)[-1], parse_constant=pytest.fail)
    assert value["gpus"][0]["busy_percent"] is None
    assert value["host"]["core_percents"] == [None, 1.0]
    assert "NaN" not in status_text(taken)


def test_names_that_are_not_utf_8_are_written_with_a_replacement() -> None:
    """A recording does not end over a file name."""
    odd = "caf\udce9"
    card = gpu(odd, busy_percent=1.0)
    processes = (Process(pid=1, command=odd),)
    taken = snapshot(gpus=(card,), processes=processes, jobs=(Job(pid=1, command=odd),))
    read = decode(*stream_lines(taken))
    assert read.processes[0].command == read.jobs[0].command == read.gpus[0].uuid == "caf\ufffd"


def test_a_stream_names_processes_and_jobs_once() -> None:
    """What they are comes before the snapshot that has them first; then only what moves."""
    process = Process(pid=9, command="python train.py", user="ada", cpu_percent=50.0)
    first = snapshot(100.0, processes=(process,), jobs=(TWO_RANKS,))
    moved = dataclasses.replace(process, cpu_percent=70.0)
    second = snapshot(101.0, processes=(moved,), jobs=(TWO_RANKS,))
    renamed = dataclasses.replace(moved, command="python eval.py")
    third = snapshot(102.0, processes=(renamed,), jobs=(TWO_RANKS,))
    lines = stream_lines(first, second, third)
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["header", "identities", "snapshot", "snapshot", "identities", "snapshot"]
    row = json.loads(lines[3])
    assert row["processes"] == [{"id": 1, "cpu_percent": 70.0}]
    # Of the job nothing moved.
    assert row["jobs"] == [2]
    assert json.loads(lines[4])["processes"][0]["command"] == "python eval.py"
    decoder = Decoder()
    read = [one for one in map(decoder.decode, lines) if isinstance(one, Snapshot)]
    assert read == [first, second, third]


def test_without_the_line_that_names_it_a_process_is_left_out() -> None:
    """A torn line costs what it named, and nothing else."""
    read = decode(GOOD_HEADER, GOOD_LINE)
    assert (read.processes, read.jobs) == ((), ())
    assert read.gpus == NAMED.gpus


def test_new_gpus_come_with_a_new_header() -> None:
    """A later header replaces the identities of the one before."""
    first, second = snapshot(gpus=(gpu("a"),)), snapshot(gpus=(gpu("b"),))
    assert decode(*stream_lines(first), *stream_lines(second)) == second


NAMED = snapshot(gpus=(gpu(),), processes=(Process(pid=1),), jobs=(TWO_RANKS,))
GOOD_HEADER, GOOD_NAMES, GOOD_LINE = stream_lines(NAMED)


def changed(line: str = GOOD_LINE, **fields: Any) -> str:
    """A good line with some fields replaced."""
    return json.dumps(json.loads(line) | fields)


def test_unknown_fields_and_kinds_are_ignored() -> None:
    """What a newer version adds does not disturb this one."""
    line = changed(gpus=[], mood="good", host={"name": "x", "smell": 3})
    assert decode(GOOD_HEADER, line).host == Host(name="x")
    assert decode(GOOD_HEADER, '{"kind": "finding", "rule": "x"}') is None


def test_missing_optional_fields_are_none() -> None:
    """A reading that an older version did not write is not read, not an error."""
    read = decode(GOOD_HEADER, changed(gpus=[{"uuid": "GPU-a"}], host={"name": "x"}, own_cost={}))
    assert read.gpus[0].reading == GpuReading()
    assert read.host.cpu_percent is None
    assert read.own_cost.cpu_percent is None


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
        (['{"kind": "header", "schema": 4}'], "schema 4.*update gpuwatch"),
        (['{"kind": "header", "schema": 1}'], "missing required field `machine`"),
        ([changed()], "The header, its first line, is missing"),
        ([GOOD_NAMES], "The header, its first line, is missing"),
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
        (
            [GOOD_HEADER, changed(GOOD_NAMES, processes=[{"id": 1, "pid": 1, "name": "x" * 5000}])],
            "length <= 4096",
        ),
        (
            [GOOD_HEADER, changed(jobs=[{"id": 1, "members": [{}, {"threads": "x"}]}])],
            r"at `\$.jobs\[0\].members\[1\].threads`",
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
    names = changed(
        GOOD_NAMES,
        processes=[{"id": 1, "pid": 1, "command": evil}],
        jobs=[{"id": 2, "pid": 1, "members": [{"pid": 1, "role_sign": evil}]}],
    )
    line = changed(
        problems=[{"source": "nvml", "message": evil}],
        processes=[{"id": 1}],
        jobs=[{"id": 2, "members": [{}]}],
    )
    read = decode(GOOD_HEADER, names, line)
    assert read.problems == (Problem(source="nvml", message="a\ufffd[2Jb c"),)
    assert read.processes[0].command == "a\ufffd[2Jb c"
    assert read.jobs[0].members[0].role_sign == "a\ufffd[2Jb c"
    with pytest.raises(CodecError) as caught:
        decode(GOOD_HEADER, changed(sequence=evil))
    assert "\x1b" not in str(caught.value)
