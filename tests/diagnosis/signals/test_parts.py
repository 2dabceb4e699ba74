"""Trends, phases, pauses and start-ups of signals that are known."""

import random

import pytest

from gpuwatch.diagnosis.facts.startup import steps_from
from gpuwatch.diagnosis.signals.phase import Integral, compare
from gpuwatch.diagnosis.signals.stretches import PauseWatch
from gpuwatch.diagnosis.signals.trend import Trend
from tests.diagnosis.waves import Samples, flat, square


def fed(values: list[float]) -> Trend:
    """One value a second."""
    made = Trend()
    for at, value in enumerate(values):
        made.add(float(at), value)
    return made


def trend(values: list[float]) -> tuple[float, float]:
    found = fed(values).slope()
    assert found is not None
    return found


def test_growth_is_found_within_its_error() -> None:
    """A leak beneath an allocator that takes and gives back."""
    for seed in range(5):
        rng = random.Random(seed)
        slope, error = trend([1000.0 + 2.0 * at + rng.uniform(0.0, 300.0) for at in range(400)])
        assert slope == pytest.approx(2.0, abs=3 * error)
        assert slope > 4 * error > 0.0


def test_one_step_is_no_growth() -> None:
    """A cache that is filled once leaves a slope that is no larger than its error."""
    for filled_at in (60, 150, 290, 380):
        slope, error = trend([1000.0 if at < filled_at else 9000.0 for at in range(450)])
        assert slope <= 2 * error


def test_growth_that_is_over_is_none() -> None:
    """A model that was loaded, once memory has been flat for half a minute; growth that goes on is
    some, in small steps, too."""
    loaded = [1000.0 * min(at, 140) for at in range(190)]
    assert trend(loaded)[0] == 0.0
    assert trend([1000.0 * (at // 20) for at in range(180)])[0] == pytest.approx(50.0, rel=0.1)
    rng = random.Random(1)
    noisy = [value + rng.uniform(0.0, 3000.0) for value in loaded]
    slope, error = trend(noisy)
    assert slope < 4 * error


def test_a_trend_can_be_asked_for_from_a_moment_on() -> None:
    """What was before it does not count, and half a minute of what follows must be known."""
    made = fed([1000.0 * min(at, 100) + max(0.0, at - 100.0) for at in range(200)])
    assert made.slope(105.0) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-9))
    assert made.slope(180.0) is None


def test_peaks_are_no_growth() -> None:
    """Only what is not given back counts."""
    rng = random.Random(1)
    values = [1000.0 + (5.0 * at if rng.random() < 0.5 else 0.0) for at in range(400)]
    slope, error = trend(values)
    assert abs(slope) <= 2 * error + 1e-9


def test_a_trend_needs_half_a_minute() -> None:
    """Before that, nothing is said."""
    assert fed(list(map(float, range(25)))).slope() is None


def cpu(samples: Samples, *, when_busy: float, when_idle: float, late: float = 0.0) -> Samples:
    """What a thread uses that does ``when_busy`` while the GPU is busy."""
    return [
        (at + late, when_idle + (when_busy - when_idle) * percent / 100.0)
        for at, percent in samples
    ]


def spans(samples: Samples, step: float) -> list[tuple[float, float, float]]:
    return [(at - step, at, value) for at, value in samples]


@pytest.mark.parametrize("late", [0.0, 0.12, -0.12])
@pytest.mark.parametrize(("when_busy", "sign"), [(30.0, -1.0), (95.0, 1.0)])
def test_phase_tells_who_works_while_the_gpu_waits(
    late: float, when_busy: float, sign: float
) -> None:
    """Also when the stamps of one are late by most of a sample."""
    gpu, _ = square(2.0, noise=2.0, seed=1)
    thread = cpu(gpu, when_busy=when_busy, when_idle=125.0 - when_busy, late=late)
    rows = spans(thread[::1], 1 / 6)
    found = compare(rows, Integral(gpu, 1 / 6).means([(a, b) for a, b, _ in rows]))
    assert found.correlation is not None
    assert found.correlation * sign > 0.8
    assert found.when_busy_percent == pytest.approx(when_busy, abs=8.0)
    assert found.when_idle_percent == pytest.approx(125.0 - when_busy, abs=8.0)


NEVER_RESTS = [(at, 99.0) for at, _ in square(2.0)[0]]
TWO_SAMPLES = [(number / 6, 90.0 if number % 2 else 5.0) for number in range(1, 200)]


UNRELATED = {
    # But it is known what it did while the GPU waited.
    "never rests": (square(2.0)[0], spans(NEVER_RESTS, 1 / 6), 99.0),
    # Means over a second of what swings five times a second are all alike.
    "a swing within the polls": (
        square(0.2, noise=2.0)[0],
        spans([(float(at), 50.0 + 10.0 * (at % 2)) for at in range(1, 60)], 1.0), None,
    ),
    # Late by one sample, turns look like doing the same: nothing is said of either.
    "a swing of two samples": (
        TWO_SAMPLES, spans([(at, 100.0 - value) for at, value in TWO_SAMPLES], 1 / 6), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("gpu", "rows", "when_idle"), UNRELATED.values(), ids=UNRELATED)
def test_no_phase(
    gpu: Samples, rows: list[tuple[float, float, float]], when_idle: float | None
) -> None:
    """A thread and a GPU that nothing can be said of together."""
    found = compare(rows, Integral(gpu, 1 / 6).means([(a, b) for a, b, _ in rows]))
    assert found.correlation is None
    assert found.when_idle_percent == (None if when_idle is None else pytest.approx(when_idle))


def test_a_mean_needs_half_of_its_time() -> None:
    """A gap in the samples is nothing, not zero."""
    integral = Integral([(1.0, 80.0), (2.0, 80.0), (9.0, 40.0)], 1.0)
    assert integral.means([(0.0, 2.0), (2.0, 5.0), (7.5, 9.0), (9.0, 12.0)]) == [
        pytest.approx(80.0),
        None,
        pytest.approx(40.0),
        None,
    ]


def seen(watch: PauseWatch, samples: Samples) -> PauseWatch:
    watch.extend([(at, percent, 1 / 6) for at, percent in samples])
    return watch


def pauses(samples: Samples) -> list[tuple[float, float, float]]:
    return [(one.begin, one.end, one.busy_percent) for one in seen(PauseWatch(), samples).found]


def interrupted(samples: Samples, begin: float, end: float, percent: float = 0.0) -> Samples:
    return [(at, percent if begin < at <= end else value) for at, value in samples]


BURSTS = interrupted(flat(0.0, seconds=200.0), 50.0, 52.0, 99.0)


PAUSES = {
    "a stop": (interrupted(flat(97.0), 30.0, 38.0), (30.0, 38.0, 0.0)),
    "a save of a job that waits a second for each batch": (
        interrupted(square(2.0, seconds=120.0)[0], 60.0, 72.0), (60.0, 72.0, 0.0),
    ),
    "a validation pass with smaller batches": (
        interrupted(flat(97.0, seconds=120.0), 60.0, 74.0, 62.0), (60.0, 74.0, 62.0),
    ),
    "five seconds a batch, every time": (square(7.0, duty=0.3, seconds=300.0, jitter=0.1)[0], None),
    "work for two seconds now and then": (interrupted(BURSTS, 100.0, 102.0, 99.0), None),
}  # fmt: skip


@pytest.mark.parametrize(("samples", "expected"), PAUSES.values(), ids=PAUSES)
def test_what_is_a_pause(samples: Samples, expected: tuple[float, float, float] | None) -> None:
    """What stands out of steady work, with what the GPU did meanwhile."""
    found = pauses(samples)
    assert found == ([] if expected is None else [pytest.approx(expected, abs=1.6)])


def test_bursts_after_steady_work_are_no_pauses() -> None:
    """Only the first of them stands out; what comes again at once is another way of working."""
    bursts = [(at + 120.0, percent) for at, percent in square(8.0, seconds=120.0)[0]]
    assert len(pauses([*flat(97.0, seconds=120.0), *bursts])) <= 1


def test_one_low_sample_of_a_coarse_log_is_no_pause() -> None:
    """It speaks for a second, not for the ten until the next; two in a row are one."""
    low = {20, 40, 41}
    watch = PauseWatch()
    watch.extend([(10.0 * number, 0.0 if number in low else 97.0, 10.0) for number in range(60)])
    assert [(one.begin, one.end) for one in watch.found] == [(390.0, 410.0)]


def test_a_long_gap_ends_a_pause() -> None:
    """It lasted for at least as long as was seen."""
    watch = seen(PauseWatch(), interrupted(flat(97.0), 30.0, 60.0))
    watch.gap()
    (found,) = seen(watch, [(at + 100.0, percent) for at, percent in flat(97.0)]).found
    assert (found.begin, found.end) == pytest.approx((30.0, 60.0), abs=1.1)


def test_a_pause_goes_on_behind_a_short_gap() -> None:
    """One evaluation, of which ten seconds were not seen."""
    samples = interrupted(flat(97.0, seconds=120.0), 60.0, 100.0, 55.0)
    watch = seen(PauseWatch(), [one for one in samples if one[0] <= 70.0])
    watch.gap()
    (found,) = seen(watch, [one for one in samples if one[0] > 80.0]).found
    assert (found.begin, found.end) == pytest.approx((60.0, 100.0), abs=1.1)
    assert found.busy_percent == pytest.approx(55.0, abs=1.0)


def test_a_trend_counts_how_often_it_went_up() -> None:
    """A level that was there before is no rise."""
    assert fed([5.0, 5.0, 6.0, 4.0, 6.0, 7.0, 8.0]).rises() == 3


STARTED: Samples = interrupted(flat(0.0, seconds=40.0), 25.0, 40.0, 97.0)
CYCLES, _ = square(2.0, seconds=60.0)
FLICKERS = flat(0.0, seconds=60.0)
for _at in (5.0, 9.0, 10.2, 18.0, 31.0, 31.9, 47.0):
    FLICKERS = interrupted(FLICKERS, _at, _at + 0.5, 90.0)


@pytest.mark.parametrize(
    ("samples", "since"),
    [
        pytest.param(STARTED, 25.0, id="from where it began, whatever came before"),
        pytest.param([one for one in STARTED if one[0] < 32.0], None, id="not for long"),
        pytest.param([one for one in CYCLES if one[0] < 9.0], 1.0, id="three cycles alike"),
        pytest.param([one for one in CYCLES if one[0] < 5.0], None, id="two cycles"),
        pytest.param(FLICKERS, None, id="tuning: flickers without a rhythm, then idling"),
        pytest.param(interrupted(CYCLES, 20.0, 60.0), None, id="a check is over, and it compiles"),
    ],
)
def test_since_when_work_is_steady(samples: Samples, since: float | None) -> None:
    """Without an idle run, or in cycles that are alike."""
    found = steps_from(samples, 1 / 6)
    assert found == (None if since is None else pytest.approx(since, abs=1.1))


def test_many_uneven_cycles_are_steady() -> None:
    """Samples miss edges, so cycles of one rhythm look 0.3 to 1.5 s long."""
    lengths = [0.5, 1.5, 0.5, 0.5, 1.0, 1.5, 0.5, 1.0] * 3
    samples: Samples = []
    at = 0.0
    for length in lengths:
        for number in range(round(length * 6)):
            at += 1 / 6
            samples.append((at, 72.0 if number < 2 else 0.0))
    assert steps_from(samples, 1 / 6) == pytest.approx(0.5, abs=0.4)


def test_what_goes_on_may_be_a_pause_for_a_while() -> None:
    """After a minute and a half it is another regime."""
    watch = PauseWatch()
    seen = {}
    for at, percent in interrupted(flat(97.0, seconds=300.0), 60.0, 300.0, 55.0):
        watch.extend([(at, percent, 1 / 6)])
        seen[round(at, 2)] = watch.open(at)
    assert seen[59.0] is None
    going = seen[80.0]
    assert going is not None
    assert going.begin == pytest.approx(60.0, abs=1.1)
    assert going.busy_percent == pytest.approx(55.0, abs=1.0)
    assert seen[200.0] is None


def test_the_first_waits_of_a_job_are_no_pauses_that_go_on() -> None:
    """Its usual work is not known yet."""
    watch = PauseWatch()
    for at, percent in interrupted(flat(97.0, seconds=16.0), 11.0, 16.0):
        watch.extend([(at, percent, 1 / 6)])
        assert watch.open(at) is None
