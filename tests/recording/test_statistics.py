"""Statistics that are taken out part by part and added up again."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.report.figures import gpu_usage, host_usage, job_usage
from gpuwatch.recording.statistics import Part, Statistics, by_weight
from tests.support.recordings import simulated

SCENARIOS = ("starved", "reported")


def figures(statistics: Statistics) -> dict[str, Any]:
    """All figures of a report, but for the courses that are drawn."""
    end = statistics.time.end
    assert statistics.host is not None
    gpus = [gpu_usage(gpu, end) for gpu in statistics.gpus.values()]
    jobs = [job_usage(job, end) for job in statistics.jobs.values()]
    found = {
        "time": statistics.time,
        "gpus": sorted(gpus, key=lambda gpu: gpu.index),
        "jobs": sorted(jobs, key=lambda job: job.pid),
        "processes": by_weight(statistics.processes.used.values()),
        "host": host_usage(statistics.host, end),
        "loops": statistics.noted.loop_seconds,
        "problems": statistics.noted.problems,
    }
    return flat(msgspec.to_builtins(found))


def flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items = [(f"{name}.{key}", one) for key, one in value.items() if key != "profiles"]
    elif isinstance(value, list):
        items = [(f"{name}[{place}]", one) for place, one in enumerate(value)]
    else:
        return {name: value}
    return {key: one for path, inner in items for key, one in flat(inner, path).items()}


def parts_of(taken: Iterable[Snapshot], seconds: float = 60.0) -> list[Part]:
    """Parts as they are written down and read again."""
    statistics = Statistics(in_parts=True)
    found: list[Part | None] = []
    minute = None
    for snapshot in taken:
        before, minute = minute, snapshot.taken_at_unix_seconds // seconds
        if before is not None and before != minute:
            found.append(statistics.take_part())
        statistics.add_snapshot(snapshot)
    found.append(statistics.take_part(last=True))
    return [msgspec.json.decode(msgspec.json.encode(part), type=Part) for part in found if part]


def whole(taken: Iterable[Snapshot]) -> Statistics:
    statistics = Statistics()
    for snapshot in taken:
        statistics.add_snapshot(snapshot)
    return statistics


def merged(parts: Iterable[Part]) -> Statistics:
    statistics = Statistics()
    for part in parts:
        statistics.merge(part)
    return statistics


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_parts_added_up_are_the_whole(scenario: str) -> None:
    """Every figure of a report is that of all snapshots, whatever was written down in between."""
    taken = simulated(scenario, 400.0)
    parts = parts_of(taken)
    assert len(parts) > 5
    one, other = figures(whole(taken)), figures(merged(parts))
    # What is nothing is left out.
    one |= dict.fromkeys(other.keys() - one.keys(), 0.0)
    other |= dict.fromkeys(one.keys() - other.keys(), 0.0)
    # The lowest and highest reading are those of the course, whose cells are of other times.
    drawn = ("busy_low_percent", "busy_high_percent")
    wrong = {
        name: (value, other[name])
        for name, value in one.items()
        if value != (pytest.approx(other[name]) if isinstance(value, float) else other[name])
        and not name.endswith(drawn)
    }
    assert not wrong


def test_the_course_of_parts_is_that_of_the_whole() -> None:
    """Means of half a minute agree within a percent of the scale."""
    taken = simulated("starved", 400.0, gpus=1)
    courses = []
    for statistics in (whole(taken), merged(parts_of(taken))):
        (gpu,) = statistics.gpus.values()
        found: dict[int, tuple[float, float]] = {}
        for begin, end, stat in gpu.busy_profile.cells():
            place = int((begin + end) / 2 // 32.0)
            seconds, busy = found.get(place, (0.0, 0.0))
            found[place] = (seconds + stat.seconds, busy + stat.total)
        courses.append(found)
    assert courses[0].keys() == courses[1].keys()
    for place, (seconds, busy) in courses[0].items():
        other_seconds, other_busy = courses[1][place]
        assert other_seconds == pytest.approx(seconds, abs=1.5)
        assert other_busy / other_seconds == pytest.approx(busy / seconds, abs=3.0)


def test_no_gap_is_drawn_where_one_part_ends_and_the_next_begins() -> None:
    """Between two looks, of which each is in a part of its own, the time was watched."""
    taken = simulated("starved", 90.0, gpus=1)
    end = taken[-1].taken_at_unix_seconds
    # Not at whole buckets, as recordings begin.
    late = [replace(one, taken_at_unix_seconds=one.taken_at_unix_seconds + 0.75) for one in taken]
    for snapshots in (taken, late):
        (gpu,) = merged(parts_of(snapshots)).gpus.values()
        low, *_ = gpu.busy_profile.columns(end)
        assert None not in low[:-8]


def test_counting_goes_on_after_parts() -> None:
    """The end of a recording that was cut off is added to the parts before it, as snapshots."""
    taken = simulated("starved", 300.0)
    parts = parts_of(taken[:-30])
    statistics = merged(parts)
    for snapshot in taken[-30:]:
        statistics.add_snapshot(snapshot)
    one, other = whole(taken), statistics
    assert other.time.end == one.time.end
    assert other.time.snapshots == one.time.snapshots
    assert other.time.covered_seconds == pytest.approx(one.time.covered_seconds)
    for uuid, gpu in one.gpus.items():
        found = other.gpus[uuid].sums
        assert found.watched_seconds == pytest.approx(gpu.sums.watched_seconds, abs=2.0)
        assert found.busy_seconds == pytest.approx(gpu.sums.busy_seconds, abs=2.0)


def test_a_pause_between_two_recordings_is_a_gap() -> None:
    """Parts of one that was begun later add their time, and not the time between."""
    taken = simulated("starved", 300.0)
    statistics = merged([*parts_of(taken[:100]), *parts_of(taken[200:])])
    assert statistics.time.gap_count == 1
    assert 95.0 < statistics.time.gap_seconds < 105.0
    assert statistics.time.snapshots == len(taken) - 100
