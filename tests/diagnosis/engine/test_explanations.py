"""Causes, symptoms and rivals."""

from typing import Any

import pytest

from gpuwatch.diagnosis.catalogue import find
from gpuwatch.diagnosis.finding import Diagnosis
from tests.diagnosis import engines as e
from tests.diagnosis.windows import gpu, pause, swinging, window

STARVED = window(gpus=(gpu(busy=swinging(0.4)),))


def _after(seconds: int, **says: e.Say) -> Diagnosis:
    return e.play(e.scripted(says, STARVED), range(seconds))[-1]


def _explains(*rules: str, **fields: Any) -> e.Say:
    return e.firing(explains=frozenset(rules), **fields)


CASES: dict[str, tuple[dict[str, e.Say], list[str], dict[str, str]]] = {
    "a symptom is shown under its cause": (
        {"cause": _explains("symptom", lost_share=0.3),
         "symptom": e.firing("GPU 0 swings", lost_share=0.5)},
        ["cause"], {"symptom": "GPU 0 swings"},
    ),
    "symptoms of symptoms belong to the cause": (
        {"a": _explains("b"), "b": _explains("c"), "c": e.firing()}, ["a"], {"b": "", "c": ""},
    ),
    "of two that explain each other the better evidence wins, whatever their names": (
        {"a": _explains("z", strength=0.6), "z": _explains("a", strength=0.95)},
        ["z"], {"a": ""},
    ),
    "half a suspicion explains nothing away": (
        {"weak": _explains("clear", strength=0.4), "clear": e.firing(strength=0.95)},
        ["clear", "weak"], {},
    ),
    "of rivals for the same idle time the better evidence leads": (
        {"loader": e.firing(strength=0.9, lost_share=0.6),
         "python": e.firing(strength=0.6, lost_share=0.6)},
        ["loader"], {"python": "weaker"},
    ),
    "60% idle has room for 40% and 20%": (
        {"loader": e.firing(strength=0.9, lost_share=0.4),
         "saves": e.firing(strength=0.8, lost_share=0.2)},
        ["loader", "saves"], {},
    ),
    "what a person would think of next is ruled out in words": (
        {"loader_cpu_bound": e.firing(lost_share=0.5), "thermal_throttle": e.CLEAR},
        ["loader_cpu_bound"], {"thermal_throttle": "not so"},
    ),
    "beside a danger nothing is ruled out: no growing memory is taken for a throttle": (
        {"memory_growing": e.firing(), "thermal_throttle": e.CLEAR}, ["memory_growing"], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_causes_symptoms_and_rivals(case: str) -> None:
    """The findings that are shown, and what is ruled out beneath the first, with why."""
    says, rules, ruled_out = CASES[case]
    said = _after(30, **says)
    assert e.rules_of(said) == rules
    whys = {one.rule: one.why for one in said.findings[0].ruled_out}
    assert whys.keys() == ruled_out.keys()
    assert all(words in whys[rule] for rule, words in ruled_out.items())


def test_a_circle_of_explanations_leaves_one_cause() -> None:
    """Three rules that explain each other in a ring do not vanish together."""
    said = _after(
        20,
        a=e.firing(explains=frozenset({"b"})),
        b=e.firing(explains=frozenset({"c"})),
        c=e.firing(explains=frozenset({"a"})),
    )
    assert len(said.findings) == 1


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


def test_a_checkpoint_that_costs_less_does_not_rule_out_validation() -> None:
    """Their pauses are different ones: both are told, the more costly first."""
    saves = (pause(150.0, 85.0, gpus=("GPU-0",), wrote_bytes=5e9),)
    quiet = tuple(
        [
            pause(800.0 - 180.0 * n, 80.0, gpus=("GPU-0",), wrote_bytes=0.0, busy_percent=30.0)
            for n in range(3)
        ]
    )
    paused = window(pauses=tuple(sorted((*saves, *quiet), key=lambda one: one.at_unix_seconds)))
    engine = e.Scripted([find("checkpoint_pauses"), find("validation_pauses")], paused)
    said = e.play(engine, range(60))[-1]
    assert e.rules_of(said) == ["validation_pauses", "checkpoint_pauses"]
