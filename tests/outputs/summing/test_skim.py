"""What a report does not tell is not followed in a recording, and nothing it tells changes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.commands.reading import file_seen, opened, summarise
from gpuwatch.model import BusySample, Snapshot
from gpuwatch.outputs.finding_events import FindingEvents
from gpuwatch.outputs.recorder import Recorder
from gpuwatch.outputs.summing.recorded import recorded_events
from gpuwatch.outputs.summing.summer import END_SECONDS, HEADERS_SECONDS, UNTOLD, Summer
from tests.support.recordings import simulated

INTERVAL = 2.0


class NoFindings(FindingEvents):
    """The findings of these recordings are not what they are for."""

    def push(self, snapshot: Snapshot) -> list[dict[str, object]]:
        return []


def moved(item: Any, names: frozenset[str], dice: random.Random, at: float) -> Any:
    """``item`` with other values of those fields."""

    def value(name: str) -> object:
        if name == "state":
            return dice.choice("RSDI")
        if name == "core_percents":
            return (float(dice.randint(0, 100)),)
        if name == "threads":
            return dice.randint(1, 500)
        if name.endswith("_samples"):
            return (BusySample(at, float(dice.randint(0, 100))),)
        return float(dice.randint(0, 100))

    return replace(item, **{name: value(name) for name in sorted(names)})


def restless(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """All that need not be followed is another each time."""
    at = snapshot.taken_at_unix_seconds
    jobs = []
    for job in snapshot.jobs:
        members = tuple([moved(one, UNTOLD.members, dice, at) for one in job.members])
        jobs.append(moved(replace(job, members=members), UNTOLD.jobs, dice, at))
    return replace(
        snapshot,
        host=moved(snapshot.host, UNTOLD.host, dice, at),
        gpus=tuple(
            [
                replace(gpu, reading=moved(gpu.reading, UNTOLD.gpus, dice, at))
                for gpu in snapshot.gpus
            ]
        ),
        processes=tuple([moved(one, UNTOLD.processes, dice, at) for one in snapshot.processes]),
        jobs=tuple(jobs),
    )


@pytest.mark.parametrize("scenario", ["starved", "told", "rerun", "tenant"])
def test_a_report_is_the_same_whatever_moves_that_it_does_not_tell(
    tmp_path: Path, scenario: str
) -> None:
    """Read with all that is in the recording, and without what is not told."""
    path, dice = tmp_path / "one.jsonl.gz", random.Random(7)
    seconds = END_SECONDS + 4 * HEADERS_SECONDS
    recorder = Recorder(path, findings=NoFindings())
    for snapshot in simulated(scenario, seconds, gpus=1, interval=INTERVAL):
        recorder.push(restless(snapshot, dice))
    recorder.close()
    summer = Summer(recorded_events(str(path)))
    with opened(str(path)) as log:
        for snapshot in log.snapshots:
            summer.push(snapshot)
        whole = summer.summary(file_seen(log, judged=False))
    assert summarise(str(path)) == whole


def test_a_recording_is_followed_whole_where_its_end_is_judged(tmp_path: Path) -> None:
    """What could not be told at the end is found out with everything that was recorded."""
    path, dice = tmp_path / "one.jsonl.gz", random.Random(7)
    recorder = Recorder(path, findings=NoFindings())
    taken = simulated("starved", END_SECONDS + 4 * HEADERS_SECONDS, gpus=1, interval=INTERVAL)
    for snapshot in taken:
        recorder.push(restless(snapshot, dice))
    recorder.close()
    found = recorded_events(str(path))
    assert found is not None
    with opened(str(path)) as log:
        whole = list(log.snapshots)
    with opened(str(path), skim=Summer(found).skim) as log:
        skimmed = list(log.snapshots)
    judged = found[1] - END_SECONDS
    assert [one == two for one, two in zip(whole, skimmed, strict=True)].count(False) > 30
    for one, two in zip(whole, skimmed, strict=True):
        assert one == two or one.taken_at_unix_seconds < judged


def test_a_report_that_judges_follows_everything() -> None:
    """Its diagnosis needs what no report tells."""
    assert Summer().skim is None
