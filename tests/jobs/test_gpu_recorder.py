"""Fine samples of a GPU, summed all at once or one by one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model import BusySample
from gpuwatch.jobs.report.gpu_recorder import GpuRecorder, Span, unbroken
from gpuwatch.jobs.report.time_profile import Grid
from tests.support.snapshots import gpu

BEGIN = 1000.0
OFFSET = 500_000.0
STEPS = st.lists(
    st.tuples(st.integers(1, 1400), st.integers(0, 100)).map(lambda two: (two[0] / 1000, two[1])),
    min_size=1,
    max_size=40,
)


def sampled(steps: list[tuple[float, int]]) -> tuple[BusySample, ...]:
    at, found = BEGIN + OFFSET, []
    for seconds, percent in steps:
        at += seconds
        found.append(BusySample(at, float(percent)))
    return tuple(found)


def recorder(bucket_seconds: float) -> GpuRecorder:
    grid = Grid(BEGIN - 100.0)
    grid.seconds = bucket_seconds
    return GpuRecorder(gpu().identity, grid, BEGIN)


@given(steps=STEPS, bucket_seconds=st.sampled_from([0.25, 4.0, 64.0]))
def test_all_at_once_is_as_one_by_one(
    steps: list[tuple[float, int]], bucket_seconds: float
) -> None:
    """Busy time, watched time and the course, in buckets of any width."""
    samples = sampled(steps)
    until = samples[-1][0] - OFFSET + 0.1
    span = Span(BEGIN, until, 10.0, OFFSET)
    at_once, singly = recorder(bucket_seconds), recorder(bucket_seconds)
    at_once.add_late(samples, span)
    for sample in samples:
        singly.add_late((sample,), span)
    one, other = at_once.report(until), singly.report(until)
    assert one.busy_seconds == pytest.approx(other.busy_seconds, abs=1e-6)
    assert one.watched_seconds == pytest.approx(other.watched_seconds, abs=1e-6)
    assert one.busy_course.minimum == other.busy_course.minimum
    assert one.busy_course.maximum == other.busy_course.maximum
    for mean, wanted in zip(one.busy_course.mean, other.busy_course.mean, strict=True):
        assert mean == pytest.approx(wanted, abs=0.11)


@pytest.mark.parametrize(
    "odd",
    [
        BusySample(BEGIN + OFFSET + 1.0, math.nan),
        BusySample(BEGIN + OFFSET + 1.0, -1.0),
        BusySample(BEGIN + OFFSET + 1.0, 101.0),
        BusySample(BEGIN + OFFSET + 0.5, 50.0),
        BusySample(math.nan, 50.0),
        BusySample(BEGIN + OFFSET + 9.0, 50.0),
    ],
)
def test_odd_samples_are_looked_at_one_by_one(odd: BusySample) -> None:
    """No percent, no time, a time again, or a hole before it."""
    plain = BusySample(BEGIN + OFFSET + 0.5, 50.0)
    assert unbroken((plain,), BEGIN, OFFSET, BEGIN + 10.0) == [0.5]
    assert unbroken((plain, odd), BEGIN, OFFSET, BEGIN + 10.0) is None
    assert unbroken((plain,), BEGIN, OFFSET, BEGIN + 0.25) is None
