"""Snapshots as what has changed, and back."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.codec.delta import (
    BaselessError,
    RecordingDecoder,
    apply_delta,
    delta_line,
    delta_object,
    same_gpus,
)
from gpuwatch.core.codec.rounding import rounded
from gpuwatch.core.codec.snapshots import DELTA_SCHEMA_VERSION, header_line, key_line, snapshot_line
from gpuwatch.core.json_values import CodecError
from gpuwatch.core.model import (
    BusySample,
    GpuReading,
    Host,
    Job,
    JobMember,
    Problem,
    Process,
    ReasonSeconds,
    Snapshot,
)
from gpuwatch.core.source import ManualClock
from gpuwatch.sources.simulated.source import SCENARIOS, SimulatedSource
from tests.support.snapshots import any_of, gpu, jobs, snapshot, snapshots


def simulated(count: int, scenario: str = "starved", gpus: int = 2) -> list[Snapshot]:
    clock = ManualClock()
    source = SimulatedSource(scenario, gpus, clock=clock)
    found = []
    for _ in range(count):
        found.append(source.read())
        clock.advance(1.0)
    return found


def through_json(before: Snapshot, after: Snapshot) -> Snapshot:
    return apply_delta(before, json.loads(delta_line(before, after)))


@st.composite
def followers(draw: st.DrawFn, first: Snapshot) -> Snapshot:
    """A snapshot after ``first``: readings change, rows come, go, stay and change places."""
    after = draw(snapshots())

    def mixed(old: tuple[Any, ...], new: tuple[Any, ...], change: Any) -> tuple[Any, ...]:
        kept = [change(item) if draw(st.booleans()) else item for item in old]
        return tuple(draw(st.permutations([*kept, *new]))[: draw(st.integers(0, 6))])

    def other_process(process: Process) -> Process:
        reading = draw(any_of(Process))
        return replace(
            reading,
            pid=process.pid,
            started_at_unix_seconds=process.started_at_unix_seconds,
            gpu_uuid=process.gpu_uuid,
        )

    def other_job(job: Job) -> Job:
        reading = draw(jobs())
        members = mixed(job.members, reading.members, lambda member: replace(member, threads=7))
        return replace(
            reading,
            pid=job.pid,
            started_at_unix_seconds=job.started_at_unix_seconds,
            members=members,
        )

    gpus = tuple(
        replace(each, reading=draw(any_of(GpuReading)), lost=draw(st.booleans()))
        if draw(st.booleans())
        else each
        for each in first.gpus
    )
    return replace(
        after,
        gpus=gpus,
        processes=mixed(first.processes, after.processes, other_process),
        jobs=mixed(first.jobs, after.jobs, other_job),
        problems=mixed(first.problems, after.problems, lambda problem: problem),
    )


@given(st.data())
@settings(max_examples=12)
def test_any_snapshot_comes_back_from_what_has_changed(data: st.DataObject) -> None:
    """Whatever comes, goes, changes places, begins or ceases to be read."""
    before = data.draw(snapshots())
    for _ in range(3):
        after = data.draw(followers(before))
        assert through_json(before, after) == after
        before = after


@given(snapshots())
@settings(max_examples=15)
def test_a_key_line_alone_gives_the_snapshot(taken: Snapshot) -> None:
    """Although it leaves out what was not read."""
    decoder = RecordingDecoder()
    decoder.decode(header_line(taken, DELTA_SCHEMA_VERSION))
    assert decoder.decode(key_line(taken)) == taken


@given(snapshots())
@settings(max_examples=15)
def test_rounding_twice_changes_nothing_more(taken: Snapshot) -> None:
    """So a recording of a recording is the same."""
    once = rounded(taken)
    assert rounded(once) == once


def test_what_is_recorded_is_close_to_what_was_read() -> None:
    """Milliseconds, hundredths of a percent, tenths of a watt, four digits of a rate."""
    busy = (BusySample(1_700_000_000.123456, 98.7654), BusySample(math.nan, 1.0))
    taken = snapshot(
        at=12.3456789,
        host=Host(name="a", core_percents=(1.23, None), disk_read_bytes_per_second=123_456.7),
        gpus=(gpu(busy_percent=12.3456, power_watts=math.inf, busy_samples=busy),),
        processes=(Process(pid=1, memory_resident_bytes=123_456_789),),
    )
    found = rounded(taken)
    reading = found.gpus[0].reading
    assert found.taken_at_unix_seconds == 1_700_000_012.346
    assert found.monotonic_seconds == 12.346
    assert (reading.busy_percent, reading.power_watts) == (12.35, None)
    assert reading.busy_samples == (BusySample(1_700_000_000.123, 98.77),)
    assert found.host.core_percents == (1.2, None)
    assert found.host.disk_read_bytes_per_second == 123_500.0
    assert found.processes == taken.processes


def test_objects_in_which_nothing_changed_are_kept() -> None:
    """A replay makes few objects anew."""
    one = snapshot(
        host=Host(name="a"),
        processes=(Process(pid=1), Process(pid=2, cpu_percent=1.0)),
        jobs=(Job(pid=1, members=(JobMember(pid=1), JobMember(pid=2))), Job(pid=9)),
        gpus=(gpu("A"), gpu("B")),
    )
    two = replace(
        one,
        sequence=2,
        processes=(Process(pid=1), Process(pid=2, cpu_percent=2.0)),
        jobs=(Job(pid=1, members=(JobMember(pid=1), JobMember(pid=2, threads=3))), Job(pid=9)),
        gpus=(gpu("A"), gpu("B", busy_percent=3.0)),
    )
    read = through_json(one, two)
    assert read == two
    assert read.host is one.host
    assert read.processes[0] is one.processes[0]
    assert read.jobs[1] is one.jobs[1]
    assert read.jobs[0].members[0] is one.jobs[0].members[0]
    assert read.gpus[0] is one.gpus[0]
    assert read.gpus[1].identity is one.gpus[1].identity


def test_what_a_delta_makes_is_of_the_model() -> None:
    """Not of a class that looks like it, and as frozen."""
    one = snapshot(processes=(Process(pid=1, cpu_percent=1.0),))
    read = through_json(one, replace(one, processes=(Process(pid=1, cpu_percent=2.0),)))
    (process,) = read.processes
    assert type(process) is Process
    assert process == Process(pid=1, cpu_percent=2.0)
    assert hash(process) == hash(Process(pid=1, cpu_percent=2.0))
    with pytest.raises(FrozenInstanceError):
        process.pid = 7  # type: ignore[misc]


MANY = snapshot(
    sequence=7, processes=tuple([Process(pid=row, cpu_percent=1.0) for row in range(100)])
)


def test_of_a_long_list_only_the_rows_that_changed_are_made_anew() -> None:
    """Also where the column has all of them, and 1.0 is written as 1."""
    percents: list[float | None] = [1] * 100
    percents[17], percents[40] = 2.5, None
    columns = {"cpu_percent": percents}
    read = apply_delta(MANY, json.loads(delta(processes={"changed": columns})))
    kept = [new is old for new, old in zip(read.processes, MANY.processes, strict=True)]
    assert [row for row, same in enumerate(kept) if not same] == [17, 40]
    assert read.processes[17] == Process(pid=17, cpu_percent=2.5)
    assert read.processes[40] == Process(pid=40)


@pytest.mark.parametrize("odd", [True, "1", [1.0], {}])
def test_in_a_long_column_nothing_odd_passes_for_what_was(odd: Any) -> None:
    """``true`` equals 1 and is no number."""
    columns = {"cpu_percent": [1.0] * 99 + [odd]}
    with pytest.raises(CodecError):
        apply_delta(MANY, json.loads(delta(processes={"changed": columns})))


def test_what_has_not_changed_is_not_written() -> None:
    """Of two equal snapshots only the times."""
    one = simulated(1)[0]
    assert set(delta_object(one, replace(one, sequence=9))) == {
        "kind",
        "base",
        "sequence",
        "taken_at_unix_seconds",
        "monotonic_seconds",
    }


def test_fine_samples_are_packed() -> None:
    """Regular ones take little more than their percents."""
    samples = tuple(BusySample(1_700_000_100.02 + 0.02 * n, float(n % 3)) for n in range(50))
    one = snapshot(gpus=(gpu(),))
    two = rounded(snapshot(gpus=(gpu(busy_samples=samples),)))
    packed = delta_object(one, two)["gpus"]["changed"]["busy_samples"][0]
    assert packed["first_ms"] == 20
    assert packed["step_ms"] == 20
    assert through_json(one, two) == two


def test_fine_samples_of_another_time_come_back() -> None:
    """Steps of centuries are not packed."""
    samples = (BusySample(-6e10, 1.0), BusySample(6e10, 2.0))
    one, two = snapshot(gpus=(gpu(),)), snapshot(gpus=(gpu(busy_samples=samples),))
    assert through_json(one, two) == two


def test_other_gpus_need_a_header() -> None:
    """Identities are in no delta."""
    one = snapshot(gpus=(gpu("A"),))
    assert same_gpus(one, snapshot(gpus=(gpu("A", busy_percent=1.0),)))
    assert not same_gpus(one, snapshot(gpus=(gpu("B"),)))
    assert not same_gpus(one, snapshot())


@pytest.mark.parametrize("scenario", [*SCENARIOS][:4])
def test_an_hour_s_minutes_come_back_exactly(scenario: str) -> None:
    """Line by line, as they are in a file."""
    taken = [rounded(each) for each in simulated(40, scenario)]
    decoder = RecordingDecoder()
    decoder.decode(header_line(taken[0], DELTA_SCHEMA_VERSION))
    assert decoder.decode(key_line(taken[0])) == taken[0]
    for one, two in pairwise(taken):
        line = delta_line(one, two)
        assert decoder.decode(line) == two
        assert len(line) < len(snapshot_line(two)) / 2


def test_reasons_and_problems_change() -> None:
    """Lists in lists."""
    one = snapshot(
        gpus=(gpu(throttle_durations=(ReasonSeconds("sw_power_cap", 0.5),)),),
        problems=(Problem(source="nvml", message="a"), Problem(source="nvml", message="b")),
    )
    two = snapshot(
        gpus=(gpu(throttle_durations=None, throttle_reasons=("gpu_idle",)),),
        problems=(Problem(source="nvml", message="b"), Problem(source="host", message="c")),
    )
    assert through_json(one, two) == two
    assert through_json(two, one) == one


# --- what is not right -------------------------------------------------------------------------

BASE = snapshot(
    sequence=7,
    gpus=(gpu("A"),),
    processes=(Process(pid=1), Process(pid=2)),
    jobs=(Job(pid=1, members=(JobMember(pid=1),)),),
)


def delta(**fields: Any) -> str:
    times = {"sequence": 8, "taken_at_unix_seconds": 1.0, "monotonic_seconds": 1.0}
    return json.dumps({"kind": "delta", "base": 7, **times, **fields})


def prepared() -> RecordingDecoder:
    decoder = RecordingDecoder()
    decoder.decode(header_line(BASE, DELTA_SCHEMA_VERSION))
    decoder.decode(key_line(BASE))
    return decoder


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence": None},
        {"taken_at_unix_seconds": "now"},
        {"host": 7},
        {"host": {"name": None}},
        {"host": {"cpu_percent": "much"}},
        {"gpus": []},
        {"gpus": {"changed": {"busy_percent": [1, 2]}}},
        {"gpus": {"changed": {"busy_percent": {"7": 1}}}},
        {"gpus": {"changed": {"busy_percent": {"-1": 1}}}},
        {"gpus": {"changed": {"busy_percent": {"x": 1}}}},
        {"gpus": {"changed": {"lost": {"4": True}}}},
        {"gpus": {"changed": {"lost": {"0": 1}}}},
        {"gpus": {"changed": {"busy_samples": [{"first_ms": 1}]}}},
        {"gpus": {"changed": {"busy_samples": [{"first_ms": 1, "percent": ["a"]}]}}},
        {"gpus": {"changed": {"busy_samples": [{"first_ms": 2**62, "percent": [1]}]}}},
        {"gpus": {"changed": {"busy_samples": [{"first_ms": 1, "percent": [10**400]}]}}},
        {
            "gpus": {
                "changed": {
                    "busy_samples": [{"first_ms": 1, "step_ms": [10**400], "percent": [1, 2]}]
                }
            }
        },
        {
            "gpus": {
                "changed": {"busy_samples": [{"first_ms": 1, "step_ms": [], "percent": [1, 2]}]}
            }
        },
        {"processes": {"rows": 7}},
        {"processes": {"rows": [[0, 3]]}},
        {"processes": {"rows": [[1, 0]]}},
        {"processes": {"rows": [[0, 2], [0, 2]]}},
        {"processes": {"rows": [[0]]}},
        {"processes": {"rows": [{"name": "no pid"}]}},
        {"processes": {"changed": {"pid": [1, None]}}},
        {"processes": {"changed": {"pid": [1, True]}}},
        {"jobs": {"changed": {"members": [7]}}},
        {"jobs": {"changed": {"members": {"0": {"rows": [[0, 9]]}}}}},
        {"problems": {"rows": [{}]}},
    ],
)
def test_bad_deltas_are_refused_with_a_sentence(fields: dict[str, Any]) -> None:
    """And what builds on them."""
    decoder = prepared()
    with pytest.raises(CodecError) as caught:
        decoder.decode(delta(**fields))
    assert str(caught.value).isprintable()
    with pytest.raises(BaselessError):
        decoder.decode(delta())


def test_a_delta_builds_on_the_snapshot_it_says() -> None:
    """Not on another one, nor on none, nor on one of another header."""
    with pytest.raises(BaselessError):
        RecordingDecoder().decode(delta())
    decoder = prepared()
    with pytest.raises(BaselessError):
        decoder.decode(delta(base=6))
    decoder = prepared()
    decoder.decode(header_line(BASE, DELTA_SCHEMA_VERSION))
    with pytest.raises(BaselessError):
        decoder.decode(delta())


def test_fields_of_a_newer_version_are_passed_over() -> None:
    """In objects and in columns."""
    decoder = prepared()
    line = delta(
        host={"moons": 2}, processes={"changed": {"colour": ["red", "blue"]}}, comets={"a": 1}
    )
    read = decoder.decode(line)
    assert isinstance(read, Snapshot)
    assert read.host is BASE.host or read.host == BASE.host
    assert read.processes == BASE.processes


def test_other_kinds_of_lines_do_no_harm() -> None:
    """Findings and buckets stand between snapshots."""
    decoder = prepared()
    assert decoder.decode('{"kind":"finding","event":"raised"}') is None
    assert isinstance(decoder.decode(delta()), Snapshot)


def test_text_in_a_delta_is_made_safe() -> None:
    """It reaches the terminal."""
    read = prepared().decode(delta(processes={"changed": {"command": ["a\x1b[2Jb", None]}}))
    assert isinstance(read, Snapshot)
    assert read.processes[0].command == "a\ufffd[2Jb"
