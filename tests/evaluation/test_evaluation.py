"""The diagnosis on a few clear cases and on the recordings: that all parts fit together."""

import pytest

from gpuwatch.core import codec
from gpuwatch.diagnosis.engine.catalogue import RULES
from tests.evaluation import cases, recorded
from tests.evaluation.figures.look import look_into
from tests.evaluation.harness import run
from tests.evaluation.jobs import long_runs
from tests.evaluation.second import cases as second
from tests.evaluation.second.__main__ import about_loaders, judge

CLEAR = (
    "loader_in_main_process/clear/2",
    "memory_nearly_full/clear/1",
    "hardware_errors/clear/2",
    "orphaned_workers/clear/1",
    "other_tenant/clear/1",
    "healthy/clear/1",
)
RECORDINGS = recorded.all_recordings()


@pytest.mark.parametrize("name", CLEAR)
def test_a_clear_case_is_told(name: str) -> None:
    """The first finding is a right one, and nothing wrong was raised on the way."""
    knob, _, seed = name.partition("/")
    (outcome,) = run(cases.one(knob, seed, held_out=False))
    assert outcome.said in outcome.accepted, outcome.summary
    assert outcome.alarms == ()


def test_all_rules_answer_for_a_case() -> None:
    """What the person who mends a rule is shown names each of them."""
    text = "\n".join(look_into(cases.one("straggler", "look", held_out=False)))
    assert all(f" {rule.name}:" in text for rule in RULES)


def test_healthy_machines_are_as_many_as_hours_were_asked_for() -> None:
    """Eight GPUs, half an hour each."""
    machines = long_runs.healthy(0, 12.0, held_out=True)
    assert sum(len(machine.subjects) * machine.rig.seconds for machine in machines) == 12 * 3600


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.name)
def test_a_recorded_job_is_diagnosed_right(recording: recorded.Recording) -> None:
    """And who serves requests or learns from actors is never advised on loaders."""
    assert recording.path.stat().st_size < 100_000
    (outcome,) = run(recording)
    assert outcome.right, (outcome.said, outcome.summary)
    if {"server", "actors", "learner"} & set(outcome.case.replace("/", "_").split("_")):
        assert (about_loaders(outcome), outcome.alarms) == ([], ())


SECOND = second.cases(5, 1)[::4]


def test_the_second_generator_is_the_same_each_time() -> None:
    """Everything follows from a case's name."""
    one = SECOND[0]
    assert list(one.watch()) == list(one.watch())


@pytest.mark.parametrize("case", SECOND, ids=lambda one: one.name)
def test_the_second_generator_is_diagnosed(case: second.Case) -> None:
    """Its snapshots can be written and read, and something is said of each of its subjects."""
    snapshot = next(iter(case.watch()))
    decoder = codec.Decoder()
    decoder.decode(codec.header_line(snapshot))
    assert decoder.decode(codec.snapshot_line(snapshot)) == snapshot
    assert all(outcome.said for outcome in judge(case))


@pytest.mark.parametrize("kind", ["answers_questions", "answers_requests"])
def test_a_server_gets_no_advice_on_loaders(kind: str) -> None:
    """It waits for requests, not for data."""
    servers = [one for one in second.cases(5, 2) if one.kind == kind]
    assert [about_loaders(outcome) for one in servers for outcome in judge(one)] == [[]] * 4
