"""memory = fixed + batch x per sample: the line, its errors and its misfit, on known courses."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tuning.memory.fit import fit_line, interval_bytes
from gpuwatch.tuning.search.rates import t95

MIB = 1 << 20
SIZES = [2, 4, 8, 16, 32, 64]

sizes = st.lists(st.integers(1, 4096), min_size=3, max_size=12, unique=True)


@given(sizes=sizes, fixed=st.integers(0, 10**11), per_sample=st.integers(1, 10**9))
def test_an_exact_line_comes_back(sizes: list[int], fixed: int, per_sample: int) -> None:
    """Points on a line give that line, R squared 1, no deviation and no bend."""
    fit = fit_line([(size, fixed + per_sample * size) for size in sizes])
    assert fit is not None
    top = fixed + per_sample * max(sizes)
    assert fit.fixed_bytes == pytest.approx(fixed, abs=1e-6 * top + 1)
    assert fit.per_sample_bytes == pytest.approx(per_sample, rel=1e-3)
    assert fit.r_squared is not None
    assert fit.r_squared == pytest.approx(1, abs=1e-6)
    assert fit.quality == "fits"
    assert not fit.bends
    assert fit.left_out == ()
    assert fit.at(max(sizes)) == pytest.approx(top, rel=1e-6)


def test_agrees_with_the_standard_library() -> None:
    """On a scattered course the line is that of statistics.linear_regression."""
    chance = random.Random(3)
    points = [(size, 1000 * MIB + 30 * MIB * size + chance.gauss(0, 40 * MIB)) for size in SIZES]
    fit = fit_line(points)
    assert fit is not None
    known = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    assert fit.per_sample_bytes == pytest.approx(known.slope)
    assert fit.fixed_bytes == pytest.approx(known.intercept)
    correlation = statistics.correlation([x for x, _ in points], [y for _, y in points])
    assert fit.r_squared == pytest.approx(correlation**2)


def test_errors_and_intervals_hold_what_they_promise() -> None:
    """Over many noisy courses the 95% intervals hold the truth about 95% of the time."""
    chance = random.Random(11)
    rounds, slope_inside, next_inside = 600, 0, 0
    for _ in range(rounds):
        ys = [500 + 20 * size + chance.gauss(0, 30) for size in SIZES]
        fit = fit_line(list(zip(SIZES, ys, strict=True)))
        assert fit is not None
        if fit.left_out:
            # Noise that looks like a floor is another model.
            rounds -= 1
            continue
        assert fit.per_sample_error_bytes is not None
        near = t95(len(fit.sizes) - 2) * fit.per_sample_error_bytes
        slope_inside += abs(fit.per_sample_bytes - 20) <= near
        half = interval_bytes(fit, 100)
        assert half is not None
        next_inside += abs(500 + 2000 + chance.gauss(0, 30) - fit.at(100)) <= half
    assert rounds > 200
    assert slope_inside / rounds == pytest.approx(0.95, abs=0.035)
    assert next_inside / rounds == pytest.approx(0.95, abs=0.035)


@given(sizes=sizes, far=st.integers(5000, 100_000))
def test_the_interval_widens_with_the_distance(sizes: list[int], far: int) -> None:
    """Further from what was measured a prediction is less certain."""
    points = [(size, 1000 + 7 * size + (37 * size) % 11) for size in sizes]
    fit = fit_line(points)
    assert fit is not None
    near, away = (interval_bytes(fit, at) for at in (sum(fit.sizes) / len(fit.sizes), far))
    assert near is not None
    assert away is not None
    assert away >= near


@pytest.mark.parametrize("bend", [1.0, -1.0])
def test_a_bend_is_seen_with_its_direction(bend: float) -> None:
    """Memory that bends is distinguished from memory that does not, upwards and downwards."""
    points = [(size, 1000 * MIB + 20 * MIB * size + bend * 0.15 * MIB * size**2) for size in SIZES]
    fit = fit_line(points)
    assert fit is not None
    assert fit.bends == bend
    assert fit.quality != "fits"


def test_a_small_but_certain_bend_is_no_misfit() -> None:
    """A bend that chance cannot explain but that changes nothing is not called one."""
    fit = fit_line([(size, 1000 * MIB + 20 * MIB * size + 100 * size**2) for size in SIZES])
    assert fit is not None
    assert not fit.bends
    assert fit.quality == "fits"


def test_a_floor_is_left_out() -> None:
    """Where the small sizes share one peak (the optimizer's step), the line is that of the rest."""
    points = [(size, max(1500 * MIB, 900 * MIB + 30 * MIB * size)) for size in [2, 4, 20, 64, 128]]
    fit = fit_line(points)
    assert fit is not None
    assert fit.left_out == (2, 4)
    assert fit.floor_bytes == 1500 * MIB
    assert fit.per_sample_bytes == pytest.approx(30 * MIB)
    assert fit.fixed_bytes == pytest.approx(900 * MIB)
    assert fit.at(4) == 1500 * MIB
    assert fit.at(100) == pytest.approx(3900 * MIB)


def test_a_jump_names_its_place() -> None:
    """One size that takes another algorithm is the largest deviation, with its size."""
    points = [
        (size, 1000 * MIB + 20 * MIB * size + (900 * MIB if size == 16 else 0)) for size in SIZES
    ]
    fit = fit_line(points)
    assert fit is not None
    assert fit.quality == "not"
    assert fit.largest_deviation_at == 16
    assert fit.largest_deviation_bytes > 0
    assert fit.largest_deviation_share > 0.1


def test_blocks_of_the_allocator_are_a_rough_fit() -> None:
    """Memory that is taken in whole blocks still gives the line's slope."""
    block = 20 * MIB
    points = [(size, -(-(100 * MIB + 3 * MIB * size) // block) * block) for size in SIZES]
    fit = fit_line(points)
    assert fit is not None
    assert fit.quality in ("fits", "roughly")
    assert fit.per_sample_bytes == pytest.approx(3 * MIB, rel=0.15)


def test_two_points_have_no_error() -> None:
    """Two points make a line, but say nothing of how good it is."""
    fit = fit_line([(2, 300), (4, 500)])
    assert fit is not None
    assert (fit.fixed_bytes, fit.per_sample_bytes) == (100, 100)
    assert fit.fixed_error_bytes is None
    assert fit.per_sample_error_bytes is None
    assert fit.r_squared is None
    assert interval_bytes(fit, 8) is None


def test_too_few_sizes() -> None:
    """One size makes no line; of a size measured twice the larger figure counts."""
    assert fit_line([]) is None
    assert fit_line([(4, 100)]) is None
    assert fit_line([(4, 100), (4, 300)]) is None
    fit = fit_line([(2, 300), (4, 400), (4, 500)])
    assert fit is not None
    assert fit.measured_bytes == (300, 500)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 10**12)), max_size=15))
def test_any_course_gives_numbers(points: list[tuple[int, int]]) -> None:
    """Whatever is measured, nothing becomes infinite or breaks."""
    fit = fit_line([(size, float(used)) for size, used in points])
    if fit is None:
        assert len({size for size, _ in points}) < 2
        return
    assert math.isfinite(fit.fixed_bytes)
    assert math.isfinite(fit.per_sample_bytes)
    assert len(fit.sizes) >= 2
    assert set(fit.sizes) | set(fit.left_out) == {size for size, _ in points}
    assert fit.quality in ("fits", "roughly", "not")
    assert fit.largest_deviation_share >= 0
