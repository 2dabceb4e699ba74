"""The shape of signals that are known, sampled as drivers sample them."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnosis.signals.waveform import Waveform, analyse
from tests.diagnosis.waves import Samples, flat, square


def series(steps: list[tuple[float, float]]) -> Samples:
    at, made = 0.0, []
    for spacing, percent in steps:
        at += spacing
        made.append((at, percent))
    return made


def shape(samples: Samples) -> Waveform:
    found = analyse(samples)
    assert found is not None
    return found


SERIES = st.lists(
    st.tuples(st.floats(0.05, 5.0), st.floats(0.0, 100.0)), min_size=2, max_size=80
).map(series)


@pytest.mark.parametrize(("jitter", "noise"), [(0.0, 0.0), (0.05, 3.0), (0.1, 5.0)])
@pytest.mark.parametrize("duty", [0.3, 0.5, 0.7])
@pytest.mark.parametrize(
    ("hertz", "period"),
    [(6.0, period) for period in (0.7, 0.9, 1.0, 1.3, 1.8, 2.5, 4.3, 7.0, 12.0, 19.0, 60.0)]
    + [(1.0, period) for period in (4.3, 5.5, 7.0, 12.0, 19.0, 60.0)],
)
def test_a_rhythm_that_samples_can_show_has_its_period(
    hertz: float, period: float, duty: float, jitter: float, noise: float
) -> None:
    """Within 10%, whatever the phase of the samples, for edges and values that wander."""
    samples, true = square(period, duty=duty, hertz=hertz, jitter=jitter, noise=noise, seed=4)
    found = shape(samples)
    assert found.period_seconds == pytest.approx(true, rel=0.1)
    if min(duty, 1.0 - duty) * period * hertz > 2.0:
        assert found.duty == pytest.approx(duty, abs=0.1)
    assert found.mean_percent == pytest.approx(100 * duty, abs=6)
    assert not found.faster_than_seen


def test_runs_of_any_length_have_no_rhythm() -> None:
    """Of few of them, chance makes one in twenty windows look like it."""
    draw = random.Random(2)
    for _ in range(100):
        runs: list[float] = []
        while len(runs) < 60:
            for percent, mean in ((0.0, 3.0), (97.0, 5.0)):
                runs += [percent] * max(1, round(draw.expovariate(1.0 / mean)))
        found = shape([(float(at), percent) for at, percent in enumerate(runs[:60])])
        assert found.period_seconds is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("hertz", "period"),
    [(6.0, 0.1), (6.0, 0.2), (6.0, 0.25), (1.0, 0.2), (1.0, 0.5), (1.0, 1.0), (1.0, 1.3)],
)
def test_a_swing_within_a_sample_may_be_faster_than_seen(
    hertz: float, period: float, seed: int
) -> None:
    """It has no period, although it beats with the sampling, and is said to be perhaps there."""
    samples, _ = square(period, hertz=hertz, jitter=0.05, noise=3.0, seed=seed)
    found = shape(samples)
    assert found.period_seconds is None
    assert found.faster_than_seen


@pytest.mark.parametrize("percent", [15.0, 45.0, 70.0, 88.0])
def test_steady_partial_use_cannot_be_told_from_a_fast_swing(percent: float) -> None:
    """Both are a middling line."""
    found = shape(flat(percent))
    assert found.faster_than_seen
    assert found.mean_percent == pytest.approx(percent)


@pytest.mark.parametrize(("percent", "duty"), [(0.0, 0.0), (98.0, 1.0), (45.0, 0.45)])
def test_a_line_has_a_duty_and_no_runs(percent: float, duty: float) -> None:
    """Its busy run began before and ends later; one between the thresholds has its mean."""
    found = shape(flat(percent))
    assert found.duty == pytest.approx(duty)
    assert (found.busy.count, found.idle.count) == (0, 0)
    assert found.period_seconds is None


@pytest.mark.parametrize("percent", [0.0, 98.0])
def test_a_line_at_an_end_hides_nothing(percent: float) -> None:
    """A swing would show."""
    found = shape(flat(percent))
    assert not found.faster_than_seen


def test_runs_are_those_that_began_and_ended_inside() -> None:
    """One second busy, two idle; what is cut off at either end does not count."""
    samples, _ = square(3.0, duty=1 / 3, seconds=30.0)
    found = shape(samples)
    assert (found.busy.count, found.idle.count) == (9, 10)
    assert found.busy.mean_seconds == pytest.approx(1.0, abs=0.09)
    assert found.idle.mean_seconds == pytest.approx(2.0, abs=0.09)


@pytest.mark.parametrize(
    ("idle", "once"),
    [([(10, 14)], True), ([(0, 4), (10, 14)], True), ([(1, 4), (6, 9), (11, 13)], False)],
)
def test_the_third_idle_stretch_makes_a_rhythm(idle: list[tuple[int, int]], once: bool) -> None:
    """Also while it goes on."""
    found = shape([(at, 0.0 if any(a <= at < b for a, b in idle) else 97.0) for at in range(13)])
    assert found.idles_at_length is once


def test_what_stays_between_the_thresholds_turns_nothing() -> None:
    """A busy run lasts through 40%, an idle one through 50%."""
    values = [0, 0, 100, 100, 40, 100, 100, 0, 50, 0, 100, 0]
    found = shape([(float(at), float(value)) for at, value in enumerate(values)])
    assert (found.busy.count, found.busy.mean_seconds) == (2, 3.0)
    assert (found.idle.count, found.idle.mean_seconds) == (1, 3.0)
    assert found.middling_share == pytest.approx(2 / 12)


def test_waits_of_any_length_have_no_period() -> None:
    """Bursts that come at random are no rhythm."""
    for seed in range(10):
        rng = random.Random(seed)
        values: list[float] = []
        while len(values) < 360:
            values += [100.0] * (1 + int(rng.expovariate(0.2)))
            values += [0.0] * (1 + int(rng.expovariate(0.1)))
        found = shape([(at / 6, value) for at, value in enumerate(values)])
        assert found.period_seconds is None


def test_two_cycles_are_no_rhythm() -> None:
    """At least three must be seen."""
    samples, _ = square(25.0, seconds=60.0)
    found = shape(samples)
    assert found.period_seconds is None


def test_a_gap_is_in_no_run() -> None:
    """The runs it touches are cut off, and its time is not counted."""
    samples = [(float(at), 0.0 if at in (3, 4) else 100.0) for at in range(10)]
    moved = [(at + (60.0 if at >= 4 else 0.0), percent) for at, percent in samples]
    whole, torn = shape(samples), shape(moved)
    assert (whole.idle.count, torn.idle.count) == (1, 0)
    assert torn.seconds == 10.0
    assert torn.duty == pytest.approx(0.8)


def test_too_little_has_no_shape() -> None:
    """Nor have samples that all bear the same stamp."""
    assert analyse([]) is None
    assert analyse([(1.0, 50.0)]) is None
    assert analyse([(1.0, 50.0), (1.0, 60.0)]) is None


@given(SERIES)
def test_shares_are_shares(samples: Samples) -> None:
    """Duty lies between 0 and 1, and percentiles and mean between the extremes."""
    found = shape(samples)
    assert 0.0 <= found.duty <= 1.0
    assert 0.0 <= found.middling_share <= 1.0
    values = [percent for _, percent in samples]
    assert min(values) <= found.low_percent <= found.high_percent <= max(values)
    assert min(values) - 1e-6 <= found.mean_percent <= max(values) + 1e-6
    assert found.busy.count + found.idle.count <= len(samples)


@given(SERIES, st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_time_scales(samples: Samples, factor: float) -> None:
    """The same signal at another speed has runs and a period of as many times the length."""
    found = shape(samples)
    scaled = shape([(at * factor, percent) for at, percent in samples])
    assert scaled.duty == pytest.approx(found.duty)
    for ours, theirs in ((found.busy, scaled.busy), (found.idle, scaled.idle)):
        assert theirs.count == ours.count
        if ours.mean_seconds is not None:
            assert theirs.mean_seconds == pytest.approx(ours.mean_seconds * factor)
    if found.period_seconds is not None:
        assert scaled.period_seconds == pytest.approx(found.period_seconds * factor)


@given(SERIES, st.data())
def test_a_gap_never_makes_a_run(samples: Samples, data: st.DataObject) -> None:
    """Tearing a signal apart somewhere leaves it with as many runs, or fewer."""
    at = data.draw(st.integers(1, len(samples) - 1))
    step = sorted(b - a for (a, _), (b, _) in pairwise(samples))[(len(samples) - 1) // 2]
    torn = samples[:at] + [(when + 1000.0, percent) for when, percent in samples[at:]]
    before = analyse(samples, sample_seconds=step)
    after = analyse(torn, sample_seconds=step)
    assert before is not None
    assert after is not None
    for whole, rest in ((before.busy, after.busy), (before.idle, after.idle)):
        assert rest.count <= whole.count
