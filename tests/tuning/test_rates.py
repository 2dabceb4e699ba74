"""Intervals of rates, and of their ratios."""

import random

import pytest

from gpuwatch.tuning.search.rates import interval, ratio, shared_scatter, t95


def noisy(generator: random.Random, rate: float, rounds: int, noise: float) -> dict[int, float]:
    return {number: rate * generator.lognormvariate(0, noise) for number in range(rounds)}


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2])
def test_interval_holds_the_true_rate(noise: float) -> None:
    """Of 95% intervals over four visits, beside three other settings, about 95% hold the truth."""
    generator = random.Random(3)
    held = 0
    for _ in range(1000):
        settings = [noisy(generator, rate, 4, noise) for rate in (100, 140, 180, 200)]
        found = interval(settings[0], shared_scatter(settings))
        held += found.low <= 100 <= found.high
    assert 920 <= held <= 995


def test_ratio_holds_the_true_ratio_when_rounds_are_slow_together() -> None:
    """What slows a whole round down does not blur a comparison within rounds."""
    generator = random.Random(5)
    held = widths = 0.0
    for _ in range(500):
        rounds = [generator.lognormvariate(0, 0.3) for _ in range(5)]
        pair = [
            {n: rate * slow * generator.lognormvariate(0, 0.01) for n, slow in enumerate(rounds)}
            for rate in (90, 100)
        ]
        found = ratio(pair[0], pair[1], shared_scatter([{0: 1.0, 1: 1.01, 2: 0.99, 3: 1.0}]))
        held += found.low <= 0.9 <= found.high
        widths += found.high - found.low
    assert held >= 460
    assert widths / 500 < 0.1


def test_too_few_visits_have_no_interval() -> None:
    """One visit of each setting tells nothing about the scatter."""
    settings = [{0: 100.0}, {0: 200.0}]
    found = interval(settings[0], shared_scatter(settings))
    assert found.rate == pytest.approx(100)
    assert (found.low, found.high, found.half_width) == (None, None, None)


def test_equal_visits_still_have_a_width() -> None:
    """Clocks are not perfect: visits that agree by chance give no interval of zero."""
    rates = {0: 100.0, 1: 100.0, 2: 100.0, 3: 100.0}
    found = interval(rates, shared_scatter([rates]))
    assert found.low < 100 < (found.high or 0)


@pytest.mark.parametrize(
    ("freedom", "t"),
    # From printed tables.
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042)],
)
def test_student_quantiles_of_the_tables(freedom: int, t: float) -> None:
    """Quantiles are those that tables print, but for one in a thousand."""
    assert t95(freedom) == pytest.approx(t, rel=0.0012)


def test_one_measurement_has_no_quantile() -> None:
    """No degree of freedom, no interval."""
    with pytest.raises(ValueError, match="degree of freedom"):
        t95(0)
