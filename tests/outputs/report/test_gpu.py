"""Fine samples of a GPU, summed all at once or one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model import BusySample, GpuReading
from gpuwatch.outputs.report.figures import gpu_usage
from gpuwatch.outputs.report.model import TimeProfile
from gpuwatch.outputs.report.phases import SPANS_MOST, Cell, spans
from gpuwatch.recording.statistics import GpuStatistics, Grid, Rhythm, RhythmSums, Step
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


def accumulator(bucket_seconds: float) -> GpuStatistics:
    grid = Grid(BEGIN - 100.0)
    grid.seconds = bucket_seconds
    return GpuStatistics(gpu().identity, grid, BEGIN, fine=True)


@given(steps=STEPS, bucket_seconds=st.sampled_from([0.25, 4.0, 64.0]))
def test_all_at_once_is_as_one_by_one(
    steps: list[tuple[float, int]], bucket_seconds: float
) -> None:
    """Busy time, watched time and the course, in buckets of any width."""
    samples = sampled(steps)
    until = samples[-1][0] - OFFSET + 0.1
    step = Step(BEGIN, until, 10.0, OFFSET)
    at_once, singly = accumulator(bucket_seconds), accumulator(bucket_seconds)
    at_once.add_busy(GpuReading(busy_samples=tuple(samples)), step)
    for sample in samples:
        singly.add_busy(GpuReading(busy_samples=(sample,)), step)
    one, other = gpu_usage(at_once, until), gpu_usage(singly, until)
    assert one.busy_seconds == pytest.approx(other.busy_seconds, abs=1e-6)
    assert one.watched_seconds == pytest.approx(other.watched_seconds, abs=1e-6)
    profile, other_profile = (
        use.profiles.get("busy_percent", TimeProfile()) for use in (one, other)
    )
    assert profile.minimum == other_profile.minimum
    assert profile.maximum == other_profile.maximum
    for mean, wanted in zip(profile.mean, other_profile.mean, strict=True):
        assert mean == pytest.approx(wanted, abs=0.11)


def test_many_runs_with_gaps_between_are_not_more_spans_than_shown() -> None:
    """Those a minute and more apart are put together where they are too many."""
    cells = [Cell(100.0 * at, 100.0 * at + 30.0, 30.0, 15.0) for at in range(5 * SPANS_MOST)]
    assert 1 <= len(spans(cells)) <= SPANS_MOST


def samples(begin: float, seconds: float, busy: int) -> list[tuple[float, float]]:
    """``busy`` tenths of each second busy, from ``begin`` on."""
    return [(begin + n / 10, 100.0 * (n % 10 < busy)) for n in range(round(seconds * 10))]


def test_a_gap_is_in_no_window() -> None:
    """A GPU that was lost for a while has a window before and one after."""
    rhythm, sums = Rhythm(), RhythmSums()
    for at, percent in samples(0.0, 15.0, 10) + samples(35.0, 15.0, 5):
        rhythm.add_sample(at, percent, 0.5, sums)
    rhythm.close(sums)
    assert 14.0 < sums.oscillating_seconds < 16.0
