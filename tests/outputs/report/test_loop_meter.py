"""What a loop did from look to look, by what it has counted, or by windows that overlap."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model import TrainingLoop
from gpuwatch.recording.statistics import LoopMeter, LoopWork

UNIX = 1_700_000_000.0
Share = Callable[[float], float]


def loop(**fields: Any) -> TrainingLoop:
    return TrainingLoop(**({"pid": 1, "phase": "train"} | fields))


def told(at: float, waited: Share, steps: Callable[[float], int], **fields: Any) -> TrainingLoop:
    """As ``gpuwatch.torch`` tells at ``at`` of a loop that began at 0 and has ``waited(t)`` seconds
    by ``t``: since ten to twelve seconds ago, or its beginning; 8 samples a step."""
    base = max(0.0, 2.0 * ((at - 10.0) // 2.0))
    window = at - base
    rate = (steps(at) - steps(base)) / window
    return loop(
        window_seconds=window,
        data_wait_share=(waited(at) - waited(base)) / window,
        spent_seconds=(waited(at),),
        steps=steps(at),
        steps_per_second=rate,
        samples_per_second=8.0 * rate,
        **fields,
    )


def looked(times: list[float], waited: Share, steps: Callable[[float], int]) -> list[LoopWork]:
    meter = LoopMeter()
    return [
        meter.work_of(told(at, waited, steps), since, at, UNIX + at)
        for since, at in pairwise(times)
    ]


def spent(did: list[LoopWork]) -> float:
    return sum(one.spent[0] or 0.0 for one in did)


def starved_then_fed(at: float) -> float:
    """80% for twenty seconds, then nothing."""
    return 0.8 * min(at, 20.0)


def test_a_loop_that_was_starved_at_first_is_not_told_to_have_been_longer() -> None:
    """Windows that reach back into that time do not count it again."""
    did = looked([float(n) for n in range(61)], starved_then_fed, lambda at: int(at * 5))
    assert spent(did) == pytest.approx(16.0, abs=0.2)
    assert sum(one.spent[0] or 0.0 for one in did[25:]) == pytest.approx(0.0, abs=0.2)
    assert sum(one.samples or 0.0 for one in did) == pytest.approx(60 * 5 * 8)
    assert sum(one.seconds for one in did) == pytest.approx(60.0)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=60, max_size=60),
    st.lists(st.sampled_from([0.2, 0.5, 1.0, 2.0, 2.4]), min_size=30, max_size=60),
)
def test_the_sum_is_what_was_spent(shares: list[float], apart: list[float]) -> None:
    """Whatever the loop did and whenever it was looked at."""

    def waited(at: float) -> float:
        whole = min(int(at), len(shares))
        part = shares[whole] * (at - whole) if whole < len(shares) else 0.0
        return sum(shares[:whole]) + part

    times = [0.0]
    for step in apart:
        times.append(times[-1] + step)
    assert spent(looked(times, waited, int)) == pytest.approx(waited(times[-1]))


def test_looks_further_apart_than_the_window_speak_for_the_time_between() -> None:
    """A look a minute: what was told of ten seconds is all there is."""
    did = looked([60.0 * n for n in range(6)], lambda at: 0.3 * at, lambda at: int(at * 2))
    assert spent(did[1:]) == pytest.approx(0.3 * 240.0)
    assert sum(one.samples or 0.0 for one in did[1:]) == pytest.approx(240 * 2 * 8)


def test_nothing_is_told_of_time_that_nobody_watched() -> None:
    """Steps made meanwhile are not those of the second after."""
    meter = LoopMeter()
    first = told(10.0, lambda at: 0.5 * at, lambda at: int(at * 10))
    meter.work_of(first, 9.0, 10.0, UNIX + 10.0)
    later = told(500.0, lambda at: 0.5 * at, lambda at: int(at * 10))
    did = meter.work_of(later, 499.0, 500.0, UNIX + 500.0)
    assert did.samples == pytest.approx(80.0)
    assert did.spent[0] == pytest.approx(0.5)


def test_a_loop_that_began_since_the_look_before_is_told_from_there() -> None:
    """The time before it was no part of it."""
    meter = LoopMeter()
    did = meter.work_of(told(0.4, lambda at: at, lambda at: int(at * 10)), -0.6, 0.4, UNIX + 0.4)
    assert did.seconds == pytest.approx(0.4)
    assert did.spent[0] == pytest.approx(0.4)


def test_a_loop_that_is_over_is_told_up_to_its_end() -> None:
    """Idle time is none of its."""
    meter = LoopMeter()
    for at in range(1, 21):
        meter.work_of(told(at, lambda t: 0.4 * t, lambda t: int(t * 10)), at - 1.0, at, UNIX + at)
    over = told(20.3, lambda t: 0.4 * t, lambda t: int(t * 10))
    ended = loop(
        window_seconds=over.window_seconds + 0.7 if over.window_seconds else None,
        data_wait_share=0.38,
        steps=203,
        steps_per_second=9.5,
        samples_per_second=76.0,
        phase="idle",
        reported_at_unix_seconds=UNIX + 20.3,
    )
    did = meter.work_of(ended, 20.0, 21.0, UNIX + 21.0)
    assert did.seconds == pytest.approx(0.3)
    assert did.samples == pytest.approx(24.0)
    assert meter.work_of(ended, 21.0, 22.0, UNIX + 22.0).seconds == 0.0


@pytest.mark.parametrize("counted", [None, (), (None,), (1e9,)])
def test_without_counts_that_can_be_the_window_speaks(counted: tuple[float | None, ...]) -> None:
    """For all of the time between two looks."""
    meter = LoopMeter()
    meter.work_of(loop(window_seconds=10.0, data_wait_share=0.3, spent_seconds=(0.0,)), 0, 1, UNIX)
    later = loop(window_seconds=10.0, data_wait_share=0.3, spent_seconds=counted)
    assert meter.work_of(later, 1.0, 3.0, UNIX).spent[0] == pytest.approx(0.6)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 2.0])
def test_what_cannot_be_is_not_counted(value: float) -> None:
    """From a recording that somebody made."""
    meter = LoopMeter()
    for at in range(1, 4):
        did = meter.work_of(
            loop(window_seconds=10.0, data_wait_share=value, steps=at), at - 1.0, at, UNIX
        )
        assert did.spent[0] is None
    meter.work_of(loop(window_seconds=-value, data_wait_share=0.5), 3.0, 4.0, UNIX)
