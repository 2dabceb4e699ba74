"""The ledger: from when to when findings held, what was lost, and that its parts add up."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from gpuwatch.diagnosis import ledger as tested
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.diagnosis.finding import Advice, Diagnosis, Evidence, Finding, Pause, Question
from gpuwatch.diagnosis.ledger import Episode, Ledger, Page, by_cause
from tests.diagnosis.engines import machine
from tests.support.long_recording import Piece, snapshots

JOB, OTHER = (100, 1.0), (200, 1.0)


def finding(rule: str = "starved", cost: float | None = 0.0, **fields: Any) -> Finding:
    """Lost so much so far, by the count of its subject."""
    settings: dict[str, Any] = {
        "rule": rule,
        "severity": "warning",
        "confidence": 0.9,
        "summary": "GPU 0 waits for data 58% of the time",
        "says": "{gpus} {gpus|waits|wait} for data {58}% of the time",
        "gpus": ("GPU-0",),
        "job": JOB,
        "evidence": (Evidence("busy", 42.0, "%"),),
        "advice": (Advice("Raise num_workers."),),
        "cost_gpu_seconds": cost,
    }
    return Finding(**(settings | fields))


def diagnosis(at: float, *findings: Finding, **fields: Any) -> Diagnosis:
    return Diagnosis(
        taken_at_unix_seconds=at, watched_seconds=at, verdict="", findings=findings, **fields
    )


def fed(found: Iterable[tuple[float, tuple[Finding, ...]]], **settings: Any) -> Ledger:
    ledger = Ledger(**settings)
    for at, findings in found:
        ledger.add_diagnosis(diagnosis(at, *findings))
    return ledger


def spans(ledger: Ledger) -> list[tuple[float, float | None, float | None]]:
    return [
        (one.begin_unix_seconds, one.end_unix_seconds, one.cost_gpu_seconds)
        for one in ledger.episodes()
    ]


def test_a_finding_is_an_episode_from_when_it_began_to_when_it_was_seen_last() -> None:
    """It begins where the engine says that it did, and has no end while it holds."""
    began = finding(cost=4.0, since_unix_seconds=3.0)
    ledger = fed([(10.0, (began,)), (20.0, (finding(cost=9.0),))])
    assert spans(ledger) == [(3.0, None, 9.0)]
    assert [one.rule for one in ledger.open] == ["starved"]
    ledger.add_diagnosis(diagnosis(30.0))
    assert spans(ledger) == [(3.0, 20.0, 9.0)]
    assert ledger.open == ()


def test_one_that_is_back_within_a_minute_was_never_gone() -> None:
    """After a minute it is another episode, with the cost of its own."""
    ledger = fed([(0.0, (finding(cost=10.0),)), (10.0, ()), (60.0, (finding(cost=15.0),))])
    assert spans(ledger) == [(0.0, None, 15.0)]
    ledger.add_diagnosis(diagnosis(70.0))
    ledger.add_diagnosis(diagnosis(121.0, finding(cost=40.0)))
    assert spans(ledger) == [(0.0, 60.0, 15.0), (121.0, None, 25.0)]
    assert ledger.raised == 2


def test_another_gpu_of_the_job_is_the_same_finding() -> None:
    """All GPUs that it was ever about are named; without a job other GPUs are another."""
    moved = finding(gpus=("GPU-1",))
    (one,) = fed([(0.0, (finding(),)), (2.0, (moved,))]).episodes()
    assert one.gpus == ("GPU-0", "GPU-1")
    free = [replace(each, job=None) for each in (finding(), moved)]
    assert len(fed([(0.0, (free[0],)), (2.0, (free[1],))]).episodes()) == 2


@pytest.mark.parametrize(("newest", "summary"), [(False, "sure"), (True, "last")])
def test_it_says_what_was_said_when_surest_or_last(newest: bool, summary: str) -> None:
    """Over hours the clearest evidence counts, in a moment's watch the newest."""
    found = [finding(summary="sure"), finding(summary="last", confidence=0.5)]
    ledger = fed(((at, (one,)) for at, one in enumerate(found)), newest=newest)
    assert ledger.episodes()[0].summary == summary


def test_a_count_that_begins_anew_adds_to_what_was_lost() -> None:
    """A job's GPUs were gone for a while: its cost, or the time it was watched, is less again."""
    counts = [(50.0, 100.0), (5.0, 20.0), (60.0, 200.0), (80.0, 90.0)]
    found = [finding(cost=cost, watched_gpu_seconds=time) for cost, time in counts]
    ledger = fed((at, (one,)) for at, one in enumerate(found))
    assert ledger.lost_by_rule() == {"starved": 50.0 + 60.0 + 80.0}


def test_what_is_lost_adds_up_by_rule() -> None:
    """A finding to which no time is lost adds none."""
    two = ("GPU-0", "GPU-1")
    ledger = fed([(0.0, (finding(cost=30.0, gpus=two), finding("saves", 6.0, job=OTHER)))])
    ledger.add_diagnosis(diagnosis(1.0, finding("full", None)))
    assert ledger.lost_by_rule() == {"starved": 30.0, "saves": 6.0, "full": 0.0}


def test_idle_time_that_is_lost_adds_up_by_gpu_and_rule() -> None:
    """Also where a job begins anew and its costs count from zero again; it never falls."""
    counts = [(50.0, 20.0, 10.0), (60.0, 25.0, 12.0), (4.0, 1.0, 3.0)]
    ledger = fed(
        (float(at), (finding(cost=cost, idle_seconds_lost=(("GPU-0", a), ("GPU-1", b))),))
        for at, (cost, a, b) in enumerate(counts)
    )
    lost = [dict(ledger.idle_seconds_lost(gpu)) for gpu in ("GPU-0", "GPU-1", "GPU-2")]
    assert lost == [{"starved": 26.0}, {"starved": 15.0}, {}]


def test_what_stands_is_counted_in_watched_seconds() -> None:
    """A gap in the watching is no time for which a finding held, or was gone."""
    ledger = Ledger()
    for at, passed, found in ((0, 0, ()), (2, 2, (finding(),)), (900, 4, (finding(),))):
        ledger.advance(passed)
        ledger.add_diagnosis(diagnosis(at, *found))
    ((one, seconds),) = ledger.standing()
    assert (one.holds, seconds) == (True, 4)
    ledger.add_diagnosis(diagnosis(902.0))
    ledger.advance(30.0)
    ((one, seconds),) = ledger.standing()
    assert (one.holds, seconds) == (False, 30)


def test_changes_are_counted_and_numbers_that_move_are_none() -> None:
    """What draws the past asks whether there is anything new."""
    ledger, seen = Ledger(), []
    moved = finding(cost=9.0, summary="GPU 0 waits for data 60% of the time")
    for at, found in enumerate(
        [(), (finding(),), (moved,), (replace(moved, gpus=("GPU-1",)),), ()]
    ):
        ledger.add_diagnosis(diagnosis(float(at), *found))
        seen.append(ledger.changes)
    assert seen == [0, 1, 1, 2, 3]


def test_what_is_undecided_is_counted_by_question_and_gpu() -> None:
    """From the diagnosis that asks to the next, or to the end."""
    asks = (Question("{gpus} {are} {share} busy; why?", ("GPU-0", "GPU-1")),)
    ledger = Ledger()
    for at, questions in ((0.0, asks), (10.0, asks), (25.0, ()), (40.0, asks)):
        ledger.add_diagnosis(diagnosis(at, questions=questions))
    ledger.finish_questions(45.0)
    assert ledger.undecided_seconds("GPU-1") == {asks[0].says: 30.0}
    assert ledger.undecided_seconds("GPU-2") == {}


def test_pauses_are_noted_once() -> None:
    """A diagnosis repeats those of the last quarter of an hour."""
    pauses = [Pause(at_unix_seconds=at, seconds=3.0, gpus=("GPU-0",)) for at in (10.0, 70.0)]
    ledger = Ledger()
    for at in (20.0, 80.0, 90.0):
        known = tuple([one for one in pauses if one.at_unix_seconds < at])
        ledger.add_diagnosis(diagnosis(at, pauses=known))
    assert list(ledger.pauses("GPU-0")) == pauses


def test_the_bounds_lose_no_gpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often findings come and go, the sum stays, and those that cost most are kept."""
    monkeypatch.setattr(tested, "EPISODES_KEPT", 20)
    monkeypatch.setattr(tested, "EPISODES_OF_ONE_KEPT", 4)
    ledger, lost = Ledger(), 0.0
    for turn in range(60):
        ledger.advance(200.0)
        one = finding(job=(turn // 6, 0.0), cost=7.0 * (turn % 6 + 1), watched_gpu_seconds=turn)
        ledger.add_diagnosis(diagnosis(200.0 * turn, one))
        ledger.add_diagnosis(diagnosis(200.0 * turn + 10.0))
        lost += 7.0
    assert sum(ledger.lost_by_rule().values()) == pytest.approx(lost)
    kept = ledger.episodes()
    assert len(kept) <= 20
    assert max([sum(1 for one in kept if one.job == (n, 0.0)) for n in range(10)]) <= 4


def test_the_pages_of_a_ledger_add_up_to_it() -> None:
    """A machine's ledger, cut into a page each half minute and read back from its JSON, has the
    same episodes, questions, pauses and losses."""
    engine, merged = Engine(), Ledger(newest=True)
    begun = 0.0
    pieces = [Piece(name, 200) for name in ("starved", "checkpoint", "healthy", "starved")]
    for number, snapshot in enumerate(snapshots(pieces, gpus=1, interval=1.0)):
        engine.push(snapshot)
        assert engine.diagnosis is not None
        if number % 30 == 29:
            data = msgspec.json.encode(engine.ledger.page(begun))
            merged.merge(msgspec.json.decode(data, type=Page))
            begun = snapshot.taken_at_unix_seconds
    merged.merge(engine.ledger.page(begun))
    assert len([one for one in engine.ledger.episodes() if not one.holds]) > 1
    assert engine.ledger.page().pauses
    assert merged.page() == engine.ledger.page()
    assert sum(merged.lost_by_rule().values()) == sum(engine.ledger.lost_by_rule().values()) > 0.0


def test_two_recordings_of_one_machine_count_each_second_once() -> None:
    """What both have seen is taken once; what follows within a minute continues it."""
    first = fed([(0.0, (finding(cost=10.0),)), (50.0, (finding(cost=30.0),))])
    second = fed([(20.0, (finding(cost=15.0),)), (60.0, (finding(cost=35.0),))])
    third = fed([(100.0, (finding(cost=8.0),))])
    for ledger, end in ((first, 50.0), (second, 60.0), (third, 110.0)):
        ledger.finish(end)
    merged = Ledger()
    for ledger in (first, second, third):
        merged.merge(ledger)
    assert spans(merged) == [(0.0, 110.0, 43.0)]


def test_machines_add_up() -> None:
    """Findings of other GPUs and jobs stay apart."""
    box = fed([(0.0, (finding(cost=10.0),))])
    box.merge(fed([(0.0, (finding(cost=5.0, job=OTHER, gpus=("GPU-b",)),))]))
    assert [one.job for one in box.episodes()] == [JOB, OTHER]
    assert sum(box.lost_by_rule().values()) == 15.0


def test_episodes_of_a_time_are_those_that_touch_it() -> None:
    """One that holds reaches to any end."""
    ledger = fed([(0.0, (finding("a"),)), (100.0, (finding("b"),)), (300.0, (finding("c"),))])
    asked = [(0.0, 50.0), (50.0, 200.0), (150.0, 200.0), (400.0, 500.0)]
    found = [[one.rule for one in ledger.episodes(*each)] for each in asked]
    assert found == [["a"], ["b"], [], ["c"]]


def test_episodes_of_one_cause_are_one_for_a_person() -> None:
    """Of several jobs at about the same time; with all their GPUs and what was lost to all."""
    other = finding(
        cost=20.0, job=OTHER, gpus=("GPU-1",), says=finding().says.replace("58", "70"),
        since_unix_seconds=4.0,
    )  # fmt: skip
    ledger = fed([(10.0, (finding(cost=5.0), other))])
    ledger.add_diagnosis(diagnosis(20.0, other))
    ledger.add_diagnosis(diagnosis(30.0))
    ledger.add_diagnosis(diagnosis(500.0, finding(cost=9.0)))
    one, late = by_cause(ledger.episodes(), " and ".join)
    assert one.summary == "GPU-1 and GPU-0 wait for data 58-70% of the time"
    assert (one.begin_unix_seconds, one.end_unix_seconds, one.cost_gpu_seconds) == (4.0, 20.0, 25.0)
    assert (late.begin_unix_seconds, late.job) == (500.0, JOB)


def test_what_is_kept_is_read_as_it_was() -> None:
    """An episode goes through its JSON with its evidence, and one of an older recording, which has
    less, is read as well."""
    (one,) = fed([(10.0, (finding(cost=4.0, late=("GPU-0",)),))]).episodes()
    assert one.finding().late == ("GPU-0",)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Episode) == one
    old = (
        b'{"rule":"a","severity":"info","summary":"b","begin_unix_seconds":5,"cost_gpu_seconds":1}'
    )
    assert msgspec.json.decode(old, type=Episode).cost_gpu_seconds == 1.0


def test_the_engine_keeps_its_ledger() -> None:
    """What it lost is what its findings cost, to the second, at any moment."""
    engine, before = Engine(), []
    for snapshot in machine("starved", 120, 2):
        engine.push(snapshot)
        lost = [one.cost_gpu_seconds or 0.0 for one in engine.diagnosis.findings]
        before.append(sum(lost))
        assert sum(engine.ledger.lost_by_rule().values()) == pytest.approx(sum(lost))
    assert before[-1] > 0.0
    assert all(one <= other for one, other in pairwise(before))
