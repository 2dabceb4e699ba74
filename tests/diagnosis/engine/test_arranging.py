"""Causes, symptoms and rivals."""

import pytest

from gpuwatch.diagnosis.engine.catalogue import find
from gpuwatch.diagnosis.finding import Diagnosis
from tests.diagnosis import engines as e
from tests.diagnosis.windows import gpu, pause, swinging, window

STARVED = window(gpus=(gpu(busy=swinging(0.4)),))


def _after(seconds: int, **says: e.Say) -> Diagnosis:
    return e.play(e.scripted(says, STARVED), range(seconds))[-1]


def _why(diagnosis: Diagnosis, rule: str) -> str:
    return next(one.why for one in diagnosis.findings[0].ruled_out if one.rule == rule)


def test_a_symptom_is_shown_under_its_cause() -> None:
    """One finding; the other is ruled out beneath it."""
    cause = e.firing("The link is slow", lost_share=0.3, explains=frozenset({"symptom"}))
    said = _after(20, cause=cause, symptom=e.firing("GPU 0 swings", lost_share=0.5))
    assert e.rules_of(said) == ["cause"]
    assert _why(said, "symptom") == "a symptom of this: GPU 0 swings"


def test_symptoms_of_symptoms_belong_to_the_cause() -> None:
    """A chain of explanations has one end."""
    said = _after(
        20,
        a=e.firing(explains=frozenset({"b"})),
        b=e.firing(explains=frozenset({"c"})),
        c=e.firing(),
    )
    assert e.rules_of(said) == ["a"]
    assert {one.rule for one in said.findings[0].ruled_out} == {"b", "c"}


def test_a_circle_of_explanations_leaves_one_cause() -> None:
    """Three rules that explain each other in a ring do not vanish together."""
    said = _after(
        20,
        a=e.firing(explains=frozenset({"b"})),
        b=e.firing(explains=frozenset({"c"})),
        c=e.firing(explains=frozenset({"a"})),
    )
    assert len(said.findings) == 1


def test_of_two_that_explain_each_other_the_better_evidence_wins() -> None:
    """Whatever their names."""
    strong = e.firing(strength=0.95, explains=frozenset({"a"}))
    weak = e.firing(strength=0.6, explains=frozenset({"z"}))
    assert e.rules_of(_after(20, a=weak, z=strong)) == ["z"]


def test_a_weak_explanation_does_not_hide_a_clear_fault() -> None:
    """Half a suspicion explains nothing away."""
    weak = e.firing(strength=0.4, explains=frozenset({"clear"}))
    said = _after(20, weak=weak, clear=e.firing(strength=0.95))
    assert "clear" in e.rules_of(said)


def test_a_symptom_waits_for_a_cause_that_is_about_to_be_raised() -> None:
    """The cause comes a little later; the symptom is not shown first."""
    cause = e.between(4, 99, e.firing(explains=frozenset({"symptom"})))
    said = e.play(e.scripted({"cause": cause, "symptom": e.firing()}), range(30))
    shown = [e.rules_of(one) for one in said if one.findings]
    assert all(rules == ["cause"] for rules in shown)


def test_a_cause_that_comes_and_goes_does_not_make_the_symptom_flicker() -> None:
    """What is on the screen stays until the cause is sure."""
    cause = e.firing(explains=frozenset({"symptom"}))
    engine = e.scripted(
        {
            "cause": lambda s: cause if s > 20 and int(s) % 12 < 4 else e.CLEAR,
            "symptom": e.firing(),
        }
    )
    assert all(e.rules_of(one) == ["symptom"] for one in e.play(engine, range(120))[10:])


def test_rivals_for_the_same_idle_time_are_one_finding() -> None:
    """The better evidence leads; the other is ruled out and costs nothing."""
    said = _after(
        30,
        loader=e.firing(strength=0.9, lost_share=0.6),
        python=e.firing(strength=0.6, lost_share=0.6),
    )
    assert e.rules_of(said) == ["loader"]
    assert "weaker" in _why(said, "python")


def test_two_causes_that_share_the_idle_time_both_stand() -> None:
    """60% idle has room for 40% and 20%."""
    said = _after(
        30,
        loader=e.firing(strength=0.9, lost_share=0.4),
        saves=e.firing(strength=0.8, lost_share=0.2),
    )
    assert e.rules_of(said) == ["loader", "saves"]


def test_two_near_equals_do_not_take_turns() -> None:
    """What leads keeps leading while the other is hardly better."""
    engine = e.scripted(
        {
            "a": lambda s: e.firing(strength=0.80 + 0.05 * (int(s / 20) % 2), lost_share=0.6),
            "b": lambda s: e.firing(strength=0.85 - 0.05 * (int(s / 20) % 2), lost_share=0.6),
        },
        STARVED,
    )
    leaders = {one.findings[0].rule for one in e.play(engine, range(200)) if one.findings}
    assert len(leaders) == 1


def test_clear_look_alikes_are_ruled_out_in_words() -> None:
    """Beside a cause of lost time, what a person would think of next."""
    said = _after(20, loader_cpu_bound=e.firing(lost_share=0.5), thermal_throttle=e.CLEAR)
    assert _why(said, "thermal_throttle") == "not so"


def test_beside_a_danger_nothing_is_ruled_out() -> None:
    """A memory that grows is not taken for a throttle."""
    said = _after(20, memory_growing=e.firing(), thermal_throttle=e.CLEAR)
    assert said.findings[0].ruled_out == ()


@pytest.mark.parametrize("severity", ["error", "warning", "info"])
def test_severity_comes_before_cost(severity: str) -> None:
    """An error that costs nothing leads a costly warning; information comes last."""
    said = _after(
        30,
        costly=e.firing(lost_share=0.5),
        other=e.firing(severity=severity, lost_share=None),
    )
    order = ["other", "costly"] if severity == "error" else ["costly", "other"]
    assert e.rules_of(said) == order


def test_a_checkpoint_that_costs_little_does_not_rule_out_validation() -> None:
    """Their pauses are different ones: both are told, the more costly first."""
    saves = (pause(80.0, 4.0, gpus=("GPU-0",), wrote_bytes=500e6),)
    quiet = tuple(
        [
            pause(400.0 - 120.0 * n, 40.0, gpus=("GPU-0",), wrote_bytes=0.0, busy_percent=30.0)
            for n in range(3)
        ]
    )
    paused = window(pauses=tuple(sorted((*saves, *quiet), key=lambda one: one.at_unix_seconds)))
    engine = e.Scripted([find("checkpoint_pauses"), find("validation_pauses")], paused)
    said = e.play(engine, range(60))[-1]
    assert e.rules_of(said) == ["validation_pauses", "checkpoint_pauses"]
