"""Raising and clearing: nothing flaps."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from gpuwatch.diagnosis.finding import Gain, Pause
from gpuwatch.diagnosis.rule import Clear, Firing, Rule, Unknown, Verdict
from gpuwatch.diagnosis.rule_state import RuleState
from gpuwatch.diagnosis.rules.shared.loaders import set_workers
from tests.diagnosis.engines import CLEAR, between, firing, play, scripted
from tests.diagnosis.windows import NOW

FIRES = firing(lost_share=0.4)


@pytest.mark.parametrize(("strength", "second"), [(0.4, 8), (0.9, 6)])
def test_the_clearer_a_fault_the_sooner_it_is_raised(strength: float, second: int) -> None:
    """Not by the first look, and well before 15 s."""
    said = play(scripted({"fault": firing(strength=strength)}), range(16))
    assert next(at for at, one in enumerate(said) if one.findings) == second


def test_a_moment_of_it_is_never_raised() -> None:
    """Four seconds are an accident."""
    said = play(scripted({"fault": between(10, 14, FIRES)}), range(60))
    assert not any(one.findings for one in said)


def test_an_error_is_raised_at_once_and_stays_a_minute() -> None:
    """A lost GPU waits for no second look."""
    said = play(scripted({"gone": between(20, 22, firing(severity="error"))}), range(120))
    seconds = [second for second, one in enumerate(said) if one.findings]
    assert seconds[0] <= 22
    assert 60 <= len(seconds) <= 70


def test_what_is_over_beyond_doubt_is_taken_back_at_once() -> None:
    """A GPU that answers again is not called lost any more."""
    over = Clear("it answers", at_once=True)
    said = play(scripted({"gone": between(20, 30, firing(severity="error"), over)}), range(60))
    seconds = [second for second, one in enumerate(said) if one.findings]
    assert seconds[0] <= 22
    assert seconds[-1] <= 32


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_noise_raises_or_clears_once_at_most(seed: int, share: float) -> None:
    """A rule that errs in one look of ten does not make the screen flicker."""
    dice = random.Random(seed)
    noise = {second: dice.random() < share for second in range(0, 600)}
    engine = scripted({"fault": lambda s: FIRES if noise[int(s)] else CLEAR})
    shown = [bool(one.findings) for one in play(engine, range(600))]
    changes = sum(before != after for before, after in pairwise(shown))
    assert changes <= 1
    assert shown[-1] is (share > 0.5)


def test_slow_snapshots_need_three_looks() -> None:
    """With one a minute, time alone would be a single look."""
    said = play(scripted({"fault": FIRES}), range(0, 600, 60), interval=60.0)
    assert [bool(one.findings) for one in said[:4]] == [False, False, True, True]


def test_a_pause_of_the_watching_is_one_look() -> None:
    """A computer that slept has not seen the fault hold for an hour."""
    engine = scripted({"fault": FIRES})
    said = play(engine, [0.0, 2.0, 3600.0])
    assert said[-1].watched_seconds < 10.0
    assert said[-1].findings == () or said[-1].findings[0].since_unix_seconds is not None


@pytest.mark.parametrize(
    ("grows", "pauses", "began"),
    [
        (1 / 60, (), 10.0),
        (0.0, (), -40.0),
        (0.0, (Pause(at_unix_seconds=NOW + 5.0, seconds=4.0),), 5.0),
        (None, (), 20.0),
    ],
)
def test_it_says_since_when(grows: float | None, pauses: tuple[Pause, ...], began: float) -> None:
    """Since its share of the last minute grows; one that does not has been there for all of it.
    What costs nothing: from the first look that found it."""

    def fault(second: float) -> Verdict:
        lost = None if grows is None else 1 / 6 + grows * (second - 20.0)
        return firing(lost_share=lost, pauses=pauses) if second >= 20.0 else CLEAR

    since = play(scripted({"fault": fault}), range(60))[-1].findings[0].since_unix_seconds
    assert since is not None
    assert abs(since - NOW - began) <= 5.0


@pytest.mark.parametrize(
    ("severity", "verdict", "seconds"),
    [
        ("warning", CLEAR, 20),
        ("warning", Unknown(("power",)), 40),
        ("error", CLEAR, 60),
        ("error", Unknown(("power",)), 120),
    ],
)
def test_a_raised_finding_drains_at_its_own_pace(
    severity: str, verdict: Verdict, seconds: int
) -> None:
    """However long it held; a reading that is missing drains it half as fast."""
    held = RuleState(Rule(title="a fault"))
    for second in range(300):
        held.update(firing(severity=severity), 1.0, second)
    drained = 0
    while held.raised:
        held.update(verdict, 1.0, 300 + drained)
        drained += 1
    assert drained == seconds


def test_what_is_not_raised_drains_twice_as_fast_as_it_filled() -> None:
    """Five seconds of it are forgotten within three."""
    held = RuleState(Rule(title="a fault"))
    for second in range(5):
        held.update(firing(strength=0.4), 1.0, second)
    looks = []
    for second in range(5, 8):
        held.update(CLEAR, 1.0, second)
        looks.append(held.looks)
    assert looks == [5, 5, 0]


def test_a_start_up_that_is_seen_late_to_be_over_delays_no_finding() -> None:
    """With steps of four seconds, three of which show that a job trains, the window reaches back
    over them: what fires then has held as long, and is named a look of four seconds later."""
    late, usual = RuleState(Rule(title="a fault")), RuleState(Rule(title="a fault"))
    late.update(firing(strength=0.9), 4.0, 0.0, 14.0, 6.0)
    usual.update(firing(strength=0.9), 4.0, 0.0, 14.0)
    assert not late.raised
    for state in (late, usual):
        state.update(firing(strength=0.9), 4.0, 4.0, 18.0)
    assert (late.raised, usual.raised) == (True, False)
    assert late.since_unix_seconds is not None


def advised(workers: int, worth: float) -> Firing:
    """Raise ``num_workers`` from 2, which makes the job so many times faster."""
    gain = Gain(worth, worth - 0.1, worth + 0.1, f"{workers} workers")
    change = set_workers("Raise num_workers", 2, workers, "they are maxed out")
    return firing(lost_share=0.6, advice=(replace(change, gain=gain),), gain=gain)


def test_what_is_advised_does_not_wander_on_a_steady_load() -> None:
    """Of eight workers or nine, nobody tries both; twice as many are another thing."""
    state = RuleState(Rule(title="a fault"))
    estimates = [(8, 2.4)] * 20 + [(9, 2.5), (8, 2.4), (7, 2.3)] * 5 + [(16, 2.6)]
    said = []
    for second, (workers, worth) in enumerate(estimates):
        state.update(advised(workers, worth), 1.0, second)
        gain = state.gain
        assert gain is not None
        said.append((state.advice[0].wanted, gain.limited_by))
    assert set(said[:-1]) == {("8", "8 workers")}
    assert said[-1] == ("16", "16 workers")


def test_no_gain_is_held_that_is_more_than_what_is_lost_now() -> None:
    """The number of workers stays; the gain comes down with its ceiling, and not up again."""
    state = RuleState(Rule(title="a fault"))
    said = []
    for second, lost in enumerate([0.65] * 20 + [0.62] * 5 + [0.64] * 5):
        most = round(1.0 / (1.0 - lost), 2)
        gain = Gain(most, round(0.9 * most, 2), most, "the GPU")
        workers = 8 if lost > 0.63 else 7
        change = set_workers("Raise num_workers", 2, workers, "they are maxed out")
        advice = (replace(change, gain=gain),)
        state.update(firing(lost_share=lost, advice=advice, gain=gain), 1.0, second)
        assert state.gain is not None
        said.append((state.advice[0].wanted, state.gain.worth))
    assert (said[19], said[24], said[29]) == (("8", 2.86), ("8", 2.63), ("8", 2.63))
