"""The diagnosis on simulated machines and on the recordings: that all parts fit together."""

from itertools import count

import pytest

from gpuwatch.core import codec
from gpuwatch.diagnosis.catalogue import RULES
from tests.evaluation import recorded
from tests.evaluation.harness import about_loaders, judge, run
from tests.evaluation.look import look_into
from tests.evaluation.simulator.cases import Case, case
from tests.evaluation.simulator.kinds import KINDS
from tests.evaluation.simulator.setting import Kind
from tests.support.snapshots import stream_lines

RECORDINGS = recorded.all_recordings()
RECORDED = {subject.label for recording in RECORDINGS for subject in recording.subjects}


def first(kind: Kind) -> Case:
    """One of the half that is looked at while rules are mended."""
    return next(one for number in count() if (one := case(kind, number, 5)).half == "dev")


SIMULATED = [first(kind) for kind in KINDS if kind.odd or kind.cause not in RECORDED]


@pytest.mark.parametrize("simulated", SIMULATED, ids=lambda one: one.name)
def test_a_simulated_machine_is_diagnosed_right(simulated: Case) -> None:
    """What was recorded of no real job: a loader is never blamed without one, no false alarm is
    raised, and its snapshots can be written and read."""
    snapshot = next(iter(simulated.watch()))
    decoder = codec.Decoder()
    assert [decoder.decode(line) for line in stream_lines(snapshot)][-1] == snapshot
    for outcome in judge(simulated):
        assert outcome.right, (outcome.said, outcome.summary)
        assert outcome.alarms == ()


@pytest.mark.parametrize("number", range(4))
def test_programs_of_one_person_are_not_sent_to_another_gpu(number: int) -> None:
    """Who shares a GPU with other programs of their own, through MPS or by turns, is at most told
    what these take."""
    kind = next(kind for kind in KINDS if kind.name == "shares_with_itself")
    for outcome in judge(case(kind, number, 5)):
        assert not [advice for advice in outcome.advice if "another GPU" in advice]
        assert outcome.alarms == ()


def test_a_simulated_machine_is_the_same_each_time() -> None:
    """Everything follows from a case's name."""
    one = SIMULATED[0]
    assert list(one.watch()) == list(one.watch())


def test_all_rules_answer_for_a_case() -> None:
    """What the person who mends a rule is shown names each of them."""
    text = "\n".join(look_into(SIMULATED[0]))
    assert all(f" {rule.name}:" in text for rule in RULES)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.name)
def test_a_recorded_job_is_diagnosed_right(recording: recorded.Recording) -> None:
    """And who serves requests or learns from actors is never advised on loaders."""
    assert recording.path.stat().st_size < 100_000
    (outcome,) = run(recording)
    assert outcome.right, (outcome.said, outcome.summary)
    if {"server", "actors", "learner"} & set(outcome.case.replace("/", "_").split("_")):
        assert (about_loaders(outcome), outcome.alarms) == ([], ())
