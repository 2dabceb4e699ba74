"""The largest batch that fits: predicted, tried, and searched for where the line is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuwatch.tuning.memory.fit import (
    BATCH_MAX,
    expected_bytes,
    fit_points,
    leaves_margin,
    predict,
)
from gpuwatch.tuning.memory.plan import confirm
from gpuwatch.tuning.memory.records import AS_IS, Attempt, Confirmed, MemoryPoint, Prediction

GIB = 1 << 30
MIB = 1 << 20
Course = Callable[[int], float]


def point(size: int, used: float, available: int = 20 * GIB, total: int = 20 * GIB) -> MemoryPoint:
    return MemoryPoint(
        batch_size=size,
        precision=AS_IS,
        peak_bytes=int(used),
        available_bytes=available,
        total_bytes=total,
    )


def points_on(
    course: Course, sizes: tuple[int, ...], available: int = 20 * GIB
) -> list[MemoryPoint]:
    return [point(size, course(size), available) for size in sizes]


def prediction(points: list[MemoryPoint], margin: float = 0.1) -> Prediction:
    found = predict(points, margin)
    assert found is not None
    return found


def line(size: int) -> float:
    return GIB + 100 * MIB * size


def test_prediction_on_an_exact_line() -> None:
    """With 10% of 20G left free, 17G are for samples of 100M: 174 of them, 194 without."""
    found = prediction(points_on(line, (2, 4, 8, 16)))
    assert found.batch_size == 174
    assert found.without_margin == 194
    assert found.margin_bytes == pytest.approx(2 * GIB, rel=1e-6)
    assert not found.margin_is_interval
    assert found.measured_to == 16
    assert not found.capped


def test_memory_that_others_hold_is_respected() -> None:
    """What other processes hold is not there to be filled, and the margin is the device's."""
    found = prediction(points_on(line, (2, 4, 8, 16), available=12 * GIB))
    # 12G less 2G margin less 1G fixed.
    assert found.batch_size == 92


def test_an_uncertain_line_makes_its_own_margin() -> None:
    """Where the prediction's interval is wider than the margin, it is the margin."""
    noise = {2: 150, 4: -250, 8: 200, 16: -120}
    points = [point(size, line(size) + noise[size] * MIB) for size in noise]
    found = prediction(points)
    assert found.margin_is_interval
    assert found.margin_bytes > 2 * GIB
    assert found.batch_size < 174


@given(
    fixed=st.integers(0, 15 * GIB),
    per_sample=st.integers(1 * MIB, 2 * GIB),
    margin=st.floats(0, 0.5),
    available=st.integers(1 * GIB, 20 * GIB),
)
def test_prediction_is_the_largest_that_leaves_the_margin(
    fixed: int, per_sample: int, margin: float, available: int
) -> None:
    """On an exact line: the predicted size fits with its margin, one more does not."""
    points = points_on(lambda size: fixed + per_sample * size, (1, 2, 4, 8), available)
    found = prediction(points, margin)
    room = available - max(margin * 20 * GIB, found.interval_bytes or 0)
    slack = 1e-6 * (fixed + per_sample * 8) + 4096
    if found.batch_size:
        assert fixed + per_sample * found.batch_size <= room + slack
    assert fixed + per_sample * (found.batch_size + 1) > room - slack - 1e-6 * per_sample
    assert found.batch_size <= found.without_margin


def test_no_growth_no_prediction() -> None:
    """Memory that does not grow with the batch predicts nothing."""
    points = points_on(lambda _size: 3 * GIB, (2, 4, 8, 16))
    assert predict(points) is None
    assert predict([]) is None


def test_a_weightless_batch_is_capped() -> None:
    """A byte a sample predicts a batch nobody tries: it says that it stops there."""
    found = prediction([point(size, GIB + size) for size in (2, 4, 1024, 4096)], 0.1)
    assert found.batch_size == BATCH_MAX
    assert found.capped


def test_nothing_fits() -> None:
    """A model that leaves no room for a sample predicts 0."""
    assert prediction(points_on(lambda size: 19 * GIB + size * MIB, (1, 2, 4, 8))).batch_size == 0


def test_beyond_the_last_point_the_steeper_of_two_lines_counts() -> None:
    """On a course that bends upwards the last stretch says more than the line through all."""
    points = points_on(lambda size: GIB + MIB * size * size, (2, 4, 8, 16, 32))
    fit = fit_points(points)
    assert fit is not None
    assert expected_bytes(fit, points, 100) > fit.at(100)
    assert expected_bytes(fit, points, 16) == fit.at(16)


class Device:
    """A device of known memory with a known course, that runs out as a device does."""

    def __init__(self, course: Course, available: int, margin: float) -> None:
        self.course, self.available, self.margin = course, available, margin
        self.tried: list[int] = []

    def __call__(self, size: int) -> Attempt:
        self.tried.append(size)
        used = self.course(size)
        if used > self.available:
            return Attempt(size, "memory", "out of memory")
        found = point(size, used, self.available)
        return Attempt(size, "fits" if leaves_margin(found, self.margin) else "margin", None, found)

    def largest(self) -> int:
        """The truth: the largest size that leaves what a step must leave."""
        size = 0
        while leaves_margin(point(size + 1, self.course(size + 1), self.available), self.margin):
            size += 1
        return size


def search(device: Device, sizes: tuple[int, ...] = (2, 4, 8, 16), tries: int = 4) -> Confirmed:
    points = points_on(device.course, sizes, device.available)
    return confirm(
        prediction(points, device.margin), points, device, margin_share=device.margin, tries=tries
    )


def test_a_line_that_holds_takes_one_step() -> None:
    """On an exact line the predicted size is tried once and kept."""
    device = Device(line, 20 * GIB, 0.1)
    found = search(device)
    assert device.tried == [174]
    assert found.batch_size == 174
    assert found.predicted_held
    assert found.too_large is None


def test_running_out_backs_off() -> None:
    """A jump beyond what was measured runs out of memory, and a smaller size is found."""

    def course(size: int) -> float:
        return line(size) + (8 * GIB if size > 100 else 0)

    device = Device(course, 20 * GIB, 0.1)
    found = search(device, tries=6)
    assert found.attempts[0].outcome == "memory"
    assert not found.predicted_held
    assert found.batch_size is not None
    assert 80 <= found.batch_size <= 100
    assert found.too_large is not None
    assert found.too_large > found.batch_size


def test_a_size_that_ran_out_before_is_not_tried_again() -> None:
    """What ran out while measuring bounds the search from above."""
    device = Device(line, 20 * GIB, 0.1)
    points = points_on(line, (2, 4, 8, 16))
    found = confirm(prediction(points), points, device, too_large=100)
    assert device.tried
    assert max(device.tried) < 100
    assert (found.batch_size or 0) < 100


def test_a_step_that_fails_ends_the_search() -> None:
    """Another failure than memory is not searched around."""
    points = points_on(line, (2, 4, 8, 16))
    found = confirm(prediction(points), points, lambda size: Attempt(size, "failed", "it crashed"))
    assert len(found.attempts) == 1
    assert found.stopped == "it crashed"
    assert found.batch_size == 16


@given(
    fixed=st.integers(0, 10 * GIB),
    per_sample=st.integers(5 * MIB, 500 * MIB),
    square=st.integers(0, 4 * MIB),
    jump_at=st.integers(17, 4000),
    jump=st.integers(0, 5 * GIB),
    margin=st.floats(0, 0.3),
    tries=st.integers(1, 8),
)
def test_what_is_confirmed_did_fit(
    fixed: int, per_sample: int, square: int, jump_at: int, jump: int, margin: float, tries: int
) -> None:
    """Whatever the course: the size given fits with its margin, the one called too large does
    not, nothing is tried twice, and the tries are kept."""

    def course(size: int) -> float:
        return fixed + per_sample * size + square * size * size + (jump if size > jump_at else 0)

    device = Device(course, 20 * GIB, margin)
    assume(leaves_margin(point(16, course(16)), margin))
    found = search(device, tries=tries)
    assert len(device.tried) <= tries
    assert len(set(device.tried)) == len(device.tried)
    assert found.batch_size is not None
    assert leaves_margin(point(found.batch_size, course(found.batch_size)), margin)
    assert found.batch_size >= 16
    if found.too_large is not None:
        assert not leaves_margin(point(found.too_large, course(found.too_large)), margin)
        assert found.too_large > found.batch_size


@given(
    per_sample=st.integers(20 * MIB, 200 * MIB),
    square=st.integers(0, 2 * MIB),
    margin=st.floats(0.02, 0.2),
)
def test_enough_tries_come_close(per_sample: int, square: int, margin: float) -> None:
    """With many tries the search ends within a fifth of the truth."""
    device = Device(lambda size: GIB + per_sample * size + square * size**2, 20 * GIB, margin)
    found = search(device, tries=30)
    assert found.batch_size is not None
    assert found.batch_size >= 0.8 * device.largest() * (1 - margin) - 1
    assert found.batch_size <= device.largest()


def test_a_single_step_may_use_half_of_the_margin() -> None:
    """The margin is for what differs between steps, so one of them may go into it."""
    assert leaves_margin(point(8, 19 * GIB), 0.1)
    assert not leaves_margin(point(8, 19 * GIB + 1), 0.1)
    assert leaves_margin(point(8, 20 * GIB), 0.0)
