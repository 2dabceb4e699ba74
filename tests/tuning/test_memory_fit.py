"""memory = fixed + batch x per sample: the line, its errors, its misfit, and what it predicts."""

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tuning.memory import AS_IS, LineFit, MemoryPoint, Series, fit_line

GIB = 1 << 30
MIB = 1 << 20
SIZES = [2, 4, 8, 16, 32, 64]
Memory = Callable[[int], float]
sizes = st.lists(st.integers(1, 4096), min_size=3, max_size=12, unique=True).map(sorted)


def point(size: int, used: float, available: int = 20 * GIB) -> MemoryPoint:
    return MemoryPoint(
        batch_size=size,
        peak_bytes=int(used),
        available_bytes=available,
        total_bytes=20 * GIB,
    )


def points_on(memory: Memory, sizes: Sequence[int], available: int = 20 * GIB) -> list[MemoryPoint]:
    return [point(size, memory(size), available) for size in sizes]


def fitted(memory: Memory, sizes: Sequence[int] = SIZES) -> LineFit:
    return fit_line(points_on(memory, sizes))


def series(points: list[MemoryPoint], margin: float = 0.1) -> Series:
    return Series(precision=AS_IS, margin_share=margin, points=points)


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
    assert fit.quality == "fits"
    assert fit.at(max(sizes)) == pytest.approx(top, rel=1e-6)


def test_a_floor_is_left_out() -> None:
    """Where the small sizes share one peak (the optimizer's step), the line is that of the rest."""
    fit = fitted(lambda size: max(1500 * MIB, 900 * MIB + 30 * MIB * size), [2, 4, 20, 64, 128])
    assert fit.left_out == (2, 4)
    assert fit.per_sample_bytes == pytest.approx(30 * MIB)


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
    assert (fit.quality, fit.r_squared) == (None, None)


@given(st.dictionaries(st.integers(1, 1000), st.integers(0, 10**12), max_size=15))
def test_any_memory_gives_numbers(memory: dict[int, int]) -> None:
    """Whatever is measured, nothing becomes infinite or breaks."""
    points = points_on(lambda size: memory[size], sorted(memory))
    fit = fit_line(points)
    if fit is None:
        assert len(memory) < 2
        return
    assert math.isfinite(fit.fixed_bytes + fit.per_sample_bytes)
    assert (series(points).predicted or 0) >= 0


@pytest.mark.parametrize(("available", "largest"), [(20 * GIB, 174), (12 * GIB, 92)])
def test_prediction_on_an_exact_line(available: int, largest: int) -> None:
    """A tenth of 20G is left free, whatever others hold; the rest is for samples of 100M."""
    assert series(points_on(line, (2, 4, 8, 16), available)).predicted == largest


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
    found = series(points, margin).predicted
    slack = 1e-6 * (fixed + per_sample * 8) + 4096
    room = 20 * GIB * (1 - margin)
    if found:
        assert fixed + per_sample * found <= room + slack + 1e-5 * per_sample
    assert fixed + per_sample * (found + 1) > room - slack - 1e-5 * per_sample


def test_beyond_the_last_point_the_steeper_of_two_lines_counts() -> None:
    """Where memory bends upwards the last stretch predicts less than the line through all."""
    points = points_on(lambda size: GIB + MIB * size * size, (2, 4, 8, 16, 32))
    assert fit_line(points).at(series(points).predicted) < 0.9 * 18 * GIB


def test_a_single_step_may_use_half_of_the_margin() -> None:
    """The margin is for what differs between steps, so one of them may go into it."""
    assert series([point(8, 19 * GIB)]).fits == 8
    assert series([point(8, 19 * GIB + 1)]).fits == 0
    assert series([point(8, 20 * GIB)], 0.0).fits == 8
