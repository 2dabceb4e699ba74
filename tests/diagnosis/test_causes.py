"""What is one cause, what it is called, and in which order causes stand."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Advice, Evidence, Finding, as_causes, in_short
from gpuwatch.diagnosis.rules.shared.words import amount, lasting
from gpuwatch.diagnosis.sentence import (
    GPUS,
    GPUS_PLACE,
    IS,
    either,
    filled,
    number,
    of_several,
    plain,
    template,
)
from tests.support.snapshots import gpu

N = number
STARVED = f"{GPUS} {IS} starved %s%% of the time: %s workers{either('', ' per rank')}"
SHARED = f"{GPUS} {IS} shared by several jobs that take turns: 56% and 40% of the time"
HELD = f"{GPUS} rest while %s of memory {of_several('is', 'each is')} held"
WAITS = f"{GPUS} {either('waits', 'wait')} for rank %s, %s long"
OTHERS = "GPUs %s and %s (MIG 2) wait for each other %s%% of the time (%s.py)"
TAKES = f"{GPUS} {either('waits', 'wait')} for %s %s%% of the time"
TAKEN = ((0, 0), (0, 1), (1, 1), (1, 2))
LASTS = f"{GPUS} {either('rests', 'rest')} for %s"
FORGED = (number(5), GPUS, "{5}", "{gpus}", "{{6| s}}", "}{", "python {several|a|b} 7")
"""Names of processes that look like marks and places."""

HOW = ("warning", "error", "warning")
SHARE = {"cost_share": 0.5, "watched_gpu_seconds": 20.0}


def finding(
    rule: str, cost: float | None = 1.0, severity: str = "warning", **fields: Any
) -> Finding:
    fields = {"summary": rule, "confidence": 0.9, "cost_gpu_seconds": cost} | fields
    return Finding(rule=rule, severity=severity, **fields)


def of_job(says: str, *gpus: int, pid: int = 1, rule: str = "fault", **fields: Any) -> Finding:
    uuids = tuple([str(gpu) for gpu in gpus])
    return finding(rule, says=template(says), gpus=uuids, job=(pid, 0.0), **SHARE, **fields)


def said(*findings: Finding) -> list[str]:
    return [one.summary for one in as_causes(findings, lambda uuids: f"GPUs {' '.join(uuids)}")]


UNITED = {
    "two jobs with one cause": (
        [of_job(STARVED % (N(70), N(2)), 2, pid=2), of_job(STARVED % (N(58), N(4)), 0, 1)],
        ["GPUs 2 0 1 are starved 58-70% of the time: 2-4 workers per rank"],
    ),
    "in step: numbers that are alike are one number": (
        [of_job(STARVED % (number(70 + n), number(2)), n) for n in range(3)],
        ["GPUs 0 1 2 are starved 71% of the time: 2 workers per rank"],
    ),
    "two tenants of one GPU": (
        [of_job(SHARED, 0), of_job(SHARED, 0, pid=2)],
        ["GPUs 0 is shared by several jobs that take turns: 56% and 40% of the time"],
    ),
    "numbers of other units, and of each job": (
        [of_job(HELD % amount(751.4 * 1024**2), 0), of_job(HELD % amount(1.2 * 1024**3), 1, pid=2)],
        ["GPUs 0 1 rest while 751.4M to 1.2G of memory each is held"],
    ),
    "another rank to look after stays apart": (
        [of_job(WAITS % (3, lasting(89)), 0), of_job(WAITS % (1, lasting(120)), 1, pid=2)],
        ["GPUs 0 waits for rank 3, 89 s long", "GPUs 1 waits for rank 1, 2 min long"],
    ),
    "other GPUs, by name, stay apart, whatever a file is called": (
        [of_job(OTHERS % (n, n + 1, N(40), name), n, pid=n) for n, name in ((0, "#"), (2, "a 5"))],
        [OTHERS % (0, 1, 40, "#"), OTHERS % (2, 3, 40, "a 5")],
    ),
    "a name is no number": (
        [of_job(OTHERS % (0, 1, number(40), name), n) for n, name in enumerate(["a #", "a 5"])],
        [OTHERS % (0, 1, 40, "a #"), OTHERS % (0, 1, 40, "a 5")],
    ),
    "numbers of a name stay apart, those beside it become a range": (
        [of_job(TAKES % (f"train{n}.py", number(40 + 10 * m)), n, pid=m) for n, m in TAKEN],
        [
            "GPUs 0 waits for train0.py 40-50% of the time",
            "GPUs 1 waits for train1.py 50-60% of the time",
        ],
    ),
    "times of other units": (
        [of_job(LASTS % lasting(s), n) for n, s in enumerate((40, 300, 80))],
        ["GPUs 0 1 2 rest for 40 s to 5 min"],
    ),
    "no name forges a place or a number": (
        [of_job(TAKES % (clean(name), number(40)), n) for n, name in enumerate(FORGED)],
        [f"GPUs {n} waits for {clean(name)} 40% of the time" for n, name in enumerate(FORGED)],
    ),
    "another rule or severity stays apart": (
        [of_job(SHARED, n, rule=f"{n}", severity=HOW[n]) for n in range(3)],
        [SHARED.replace(f"{GPUS} {IS}", f"GPUs {n} is") for n in (1, 0, 2)],
    ),
    "names of processes are no numbers and no places": (
        [of_job("PID 7 (python {gpus|a}) is stopped"), of_job("PID 8 (python) is stopped")],
        ["PID 7 (python {gpus|a}) is stopped", "PID 8 (python) is stopped"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("findings", "causes"), UNITED.values(), ids=UNITED)
def test_findings_of_one_cause_are_one(findings: list[Finding], causes: list[str]) -> None:
    """One sentence holds for all of them; what differs in more than numbers is another cause."""
    assert said(*findings) == causes
    assert filled(GPUS_PLACE, "all 8 GPUs", 8) == "All 8 GPUs"


def test_one_cause_is_said_in_short_with_the_same_ranges() -> None:
    """Where a job says it in other words, that form is left out."""
    forms = [(f"{GPUS} idle {number(n)}%", f"{GPUS} idle: {'ab'[n > 60]}") for n in (58, 70)]
    jobs = [
        of_job(STARVED % (number(n), number(2)), n, pid=n, short=tuple(map(template, short)))
        for n, short in zip((58, 70), forms, strict=True)
    ]
    [cause] = as_causes(jobs, str)
    assert cause.short == ("{gpus} idle 58-70%",)


@pytest.mark.parametrize(
    ("about", "names"),
    [((0,), "GPU 0"), ((0, 1, 2), "GPU 0-2"), (range(8), "8 GPUs"), ((0, 2, 4, 6, 7), "5 GPUs")],
    ids=str,
)
def test_a_short_sentence_has_short_names(about: Sequence[int], names: str) -> None:
    """A long list is counted; without its GPUs there is none."""
    there = [gpu(f"GPU-{n}", n) for n in range(8)]
    one = finding("fault", gpus=tuple([f"GPU-{n}" for n in about]), short=("{gpus} {gpus|is|are}",))
    assert in_short(one, there) == [f"{names} {'is' if len(about) == 1 else 'are'}"]
    assert in_short(one, ()) == []


def test_a_cause_costs_and_advises_what_all_its_jobs_need() -> None:
    """GPU time that jobs share counts once; changes of which only numbers differ are one."""
    advice = [Advice(f"Use {n}.", setting="n", wanted=n) for n in (number(6), number(8))]
    shared = [of_job(SHARED, 0, pid=pid, cost=10.0, advice=advice[pid : pid + 1]) for pid in (0, 1)]
    [cause] = as_causes(shared, str)
    assert (cause.cost_gpu_seconds, cause.cost_share, cause.job) == (20.0, 1.0, None)
    assert [(one.action, one.wanted) for one in cause.advice] == [("Use 6-8.", "6-8")]
    assert list(cause.members) == shared


def test_marks_leave_a_rule_only_as_places() -> None:
    """Evidence and advice read as a person does; what was kept before advice had places reads."""
    advice = Advice(f"Use {number(6)} {{all}}.", wanted=number(6), why=f"{lasting(90)} lost")
    assert (advice.action, advice.wanted, advice.why) == ("Use 6 {all}.", "6", "2 min lost")
    assert advice.says == clean(advice.says) == "Use {6} {{all}}.||||{6}"
    assert Evidence("wait", says=f"for {lasting(3.25)}").says == "for 3.2 s"
    assert plain(number(1.25, 1, unit="G")) == "1.2G"
    old = [of_job(SHARED, n, pid=n, advice=(Advice(f"Use {n}."),)) for n in (6, 8, 6)]
    assert [one.action for one in as_causes(old, str)[0].advice] == ["Use 6.", "Use 8."]


@pytest.mark.parametrize(
    "command", ["kill 42%s 43", "nvidia-smi -i %s,9 -pl 7", "gpuwatch diagnose --stacks --pid %s"]
)
def test_commands_of_two_jobs_stay_two(command: str) -> None:
    """A range of numbers of processes or GPUs would mean others, too."""
    actions = [f"Look at it first, then: {command % n}." for n in (0, 4)]
    jobs = [of_job(SHARED, n, pid=n, advice=(Advice(actions[n]),)) for n in (0, 1)]
    assert [one.action for one in as_causes(jobs, str)[0].advice] == actions


def test_causes_are_ordered_by_cost() -> None:
    """What is in danger comes first, what costs no time last."""
    costs = {"unknown": None, "checkpoint": 2.0, "validation": 49.0}
    found = [finding(rule, cost) for rule, cost in costs.items()]
    broken = finding("broken", None, "error")
    assert said(*found, broken) == ["broken", "validation", "checkpoint", "unknown"]


@pytest.mark.parametrize(("other", "first"), [(101.0, "a"), (120.0, "a"), (140.0, "b")])
def test_the_order_keeps_still(other: float, first: str) -> None:
    """It changes only when one costs a lot more."""
    before = as_causes([finding("a", 100.0), finding("b", 70.0)], str)
    assert as_causes([finding("b", other), finding("a", 100.0)], str, before)[0].rule == first


def test_a_warning_comes_before_information_that_costs_about_as_much() -> None:
    """Whatever the order was before."""
    before = [finding("a", 100.0, "info"), finding("b", 101.0, "info")]
    now = [finding("a", 100.0, "info"), finding("b", 101.0)]
    assert [one.rule for one in as_causes(now, str, before)] == ["b", "a"]
