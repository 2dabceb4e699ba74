"""memory = fixed + batch x per sample: the line, its errors, its misfit, and what it predicts."""

import math
import random
import statistics
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tuning.memory.fit import (
    expected_bytes,
    fit_line,
    interval_bytes,
    leaves_margin,
    predict,
)
from gpuwatch.tuning.memory.records import AS_IS, LineFit, MemoryPoint, Prediction
from gpuwatch.tuning.search.rates import t95

GIB = 1 << 30
MIB = 1 << 20
SIZES = [2, 4, 8, 16, 32, 64]
Memory = Callable[[int], float]
sizes = st.lists(st.integers(1, 4096), min_size=3, max_size=12, unique=True).map(sorted)


def point(size: int, used: float, available: int = 20 * GIB) -> MemoryPoint:
    return MemoryPoint(
        batch_size=size,
        precision=AS_IS,
        peak_bytes=int(used),
        available_bytes=available,
        total_bytes=20 * GIB,
    )


def points_on(memory: Memory, sizes: Sequence[int], available: int = 20 * GIB) -> list[MemoryPoint]:
    return [point(size, memory(size), available) for size in sizes]


def fitted(memory: Memory, sizes: Sequence[int] = SIZES) -> LineFit:
    return fit_line(points_on(memory, sizes))


def predicted(points: list[MemoryPoint], margin: float = 0.1) -> Prediction:
    return predict(points, margin)


def line(size: int) -> float:
    return GIB + 100 * MIB * size


@given(sizes=sizes, fixed=st.integers(0, 10**11), per_sample=st.integers(10**4, 10**9))
def test_an_exact_line_comes_back(sizes: list[int], fixed: int, per_sample: int) -> None:
    """Points on a line give that line, R squared 1 and no deviation."""
    fit = fitted(lambda size: fixed + per_sample * size, sizes)
    top = fixed + per_sample * max(sizes)
    assert fit.fixed_bytes == pytest.approx(fixed, abs=1e-6 * top + 1)
    assert fit.per_sample_bytes == pytest.approx(per_sample, rel=1e-3)
    assert fit.r_squared == pytest.approx(1, abs=1e-6)
    assert (fit.quality, fit.left_out) == ("fits", ())
    assert fit.at(max(sizes)) == pytest.approx(top, rel=1e-6)


def test_errors_and_intervals_hold_what_they_promise() -> None:
    """Over many noisy courses the 95% intervals hold the truth about 95% of the time."""
    chance = random.Random(11)
    rounds, slope_inside, next_inside = 600, 0, 0
    for _ in range(rounds):
        noise = {size: chance.gauss(0, 3000) for size in SIZES}
        fit = fitted(lambda size, noise=noise: 50_000 + 2000 * size + noise[size])  # type: ignore[misc]
        if fit.left_out:
            # Noise that looks like a floor is another model.
            rounds -= 1
            continue
        near = t95(len(fit.sizes) - 2) * fit.per_sample_error_bytes
        slope_inside += abs(fit.per_sample_bytes - 2000) <= near
        further = 50_000 + 2000 * 100 + chance.gauss(0, 3000)
        next_inside += abs(further - fit.at(100)) <= interval_bytes(fit, 100)
    assert rounds > 200
    assert slope_inside / rounds == pytest.approx(0.95, abs=0.035)
    assert next_inside / rounds == pytest.approx(0.95, abs=0.035)


@given(sizes=sizes, far=st.integers(5000, 100_000))
def test_the_interval_widens_with_the_distance(sizes: list[int], far: int) -> None:
    """Further from what was measured a prediction is less certain."""
    fit = fitted(lambda size: 1000 + 7 * size + (37 * size) % 11, sizes)
    assert interval_bytes(fit, far) >= interval_bytes(fit, statistics.fmean(fit.sizes))


def test_a_floor_is_left_out() -> None:
    """Where the small sizes share one peak (the optimizer's step), the line is that of the rest."""
    fit = fitted(lambda size: max(1500 * MIB, 900 * MIB + 30 * MIB * size), [2, 4, 20, 64, 128])
    assert fit.left_out == (2, 4)
    assert fit.floor_bytes == 1500 * MIB
    assert fit.per_sample_bytes == pytest.approx(30 * MIB)
    assert (fit.at(4), fit.at(100)) == (1500 * MIB, pytest.approx(3900 * MIB))


def test_a_jump_names_its_place() -> None:
    """One size that takes another algorithm is the largest deviation, with its size."""
    fit = fitted(lambda size: 1000 * MIB + 20 * MIB * size + (900 * MIB if size == 16 else 0))
    assert fit.quality == "not"
    assert fit.largest_deviation_at == 16
    assert fit.largest_deviation_bytes > 0


def test_blocks_of_the_allocator_are_a_rough_fit() -> None:
    """Memory that is taken in whole blocks still gives the line's slope."""
    block = 20 * MIB
    fit = fitted(lambda size: -(-(100 * MIB + 3 * MIB * size) // block) * block)
    assert fit.quality in ("fits", "roughly")
    assert fit.per_sample_bytes == pytest.approx(3 * MIB, rel=0.15)


def test_too_few_points() -> None:
    """One size makes no line; two make one, but say nothing of how good it is."""
    assert fit_line([]) is None
    assert fit_line([point(4, 100)]) is None
    fit = fitted(lambda size: 100 + 100 * size, [2, 4])
    assert (fit.fixed_bytes, fit.per_sample_bytes) == (100, 100)
    assert (fit.per_sample_error_bytes, fit.r_squared) == (None, None)


@given(st.dictionaries(st.integers(1, 1000), st.integers(0, 10**12), max_size=15))
def test_any_memory_gives_numbers(memory: dict[int, int]) -> None:
    """Whatever is measured, nothing becomes infinite or breaks."""
    points = points_on(lambda size: memory[size], sorted(memory))
    fit = fit_line(points)
    if fit is None:
        assert len(memory) < 2
        return
    assert math.isfinite(fit.fixed_bytes + fit.per_sample_bytes)
    assert {*fit.sizes, *fit.left_out} == set(memory)
    predict(points)


@pytest.mark.parametrize(("available", "largest"), [(20 * GIB, 174), (12 * GIB, 92)])
def test_prediction_on_an_exact_line(available: int, largest: int) -> None:
    """A tenth of 20G is left free, whatever others hold; the rest is for samples of 100M."""
    found = predicted(points_on(line, (2, 4, 8, 16), available))
    assert found.batch_size == largest
    assert found.margin_bytes == pytest.approx(2 * GIB, rel=1e-6)
    assert not found.margin_is_interval
    assert found.without_margin > found.batch_size


def test_an_uncertain_line_makes_its_own_margin() -> None:
    """Where the prediction's interval is wider than the margin, it is the margin."""
    noise = {2: 150, 4: -250, 8: 200, 16: -120}
    found = predicted(points_on(lambda size: line(size) + noise[size] * MIB, list(noise)))
    assert found.margin_is_interval
    assert found.margin_bytes > 2 * GIB
    assert found.batch_size < 174


@given(
    fixed=st.integers(0, 15 * GIB),
    per_sample=st.integers(1 * MIB, 2 * GIB),
    margin=st.floats(0, 0.5),
)
def test_prediction_is_the_largest_that_leaves_the_margin(
    fixed: int, per_sample: int, margin: float
) -> None:
    """On an exact line: the predicted size fits with its margin, one more does not."""
    points = points_on(lambda size: fixed + per_sample * size, (1, 2, 4, 8))
    found = predicted(points, margin)
    slack = 1e-6 * (fixed + per_sample * 8) + 4096
    room = 20 * GIB - found.margin_bytes
    if found.batch_size:
        assert fixed + per_sample * found.batch_size <= room + slack
    assert fixed + per_sample * (found.batch_size + 1) > room - slack - 1e-6 * per_sample


def test_beyond_the_last_point_the_steeper_of_two_lines_counts() -> None:
    """Where memory bends upwards the last stretch says more than the line through all."""
    points = points_on(lambda size: GIB + MIB * size * size, (2, 4, 8, 16, 32))
    fit = fit_line(points)
    assert expected_bytes(fit, points, 100) > fit.at(100)
    assert expected_bytes(fit, points, 16) == fit.at(16)


def test_a_single_step_may_use_half_of_the_margin() -> None:
    """The margin is for what differs between steps, so one of them may go into it."""
    assert leaves_margin(point(8, 19 * GIB), 0.1)
    assert not leaves_margin(point(8, 19 * GIB + 1), 0.1)
    assert leaves_margin(point(8, 20 * GIB), 0.0)
