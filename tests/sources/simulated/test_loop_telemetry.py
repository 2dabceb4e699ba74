"""Reports of a simulated rank, as ``gpuwatch.torch`` would."""

import pytest

from gpuwatch.core.model import TrainingLoop
from gpuwatch.sources.simulated.loop_telemetry import Diary, Entry

KEY = (7, 1.0)


def reported(diary: Diary, now: float) -> TrainingLoop:
    loop = diary.report(KEY, now, 1000.0, workers=2, pinned=True, memory_bytes=None)
    assert loop is not None
    return loop


def steps(diary: Diary, count: int, *, wait: float, work: float, begin: float = 0.0) -> float:
    """Steps one after another; when the last ends."""
    at = begin
    for _ in range(count):
        diary.begin_step(at, waited=wait, copied=0.0, before=0.0)
        at += wait + work
        diary.end_step(at)
    return at


def test_a_wait_that_lasts_counts_while_it_lasts() -> None:
    """The share grows and the rates fall, though no step ends."""
    diary = Diary(8, 100)
    at = steps(diary, 100, wait=0.0, work=0.1)
    steps(diary, 1, wait=60.0, work=1.0, begin=at)
    loops = [reported(diary, at + after) for after in (0.05, 10.0, 40.0)]
    shares = [loop.data_wait_share for loop in loops]
    assert shares == pytest.approx([0.005, 0.5, 0.8], abs=0.01)
    rates = [loop.steps_per_second or 0.0 for loop in loops]
    assert rates[0] == pytest.approx(10.0, rel=0.02)
    assert rates[0] > rates[1] > rates[2] > 0.0
    assert [loop.reported_at_unix_seconds for loop in loops] == [1000.0 + at] * 3
    assert {loop.steps for loop in loops} == {100}


def test_a_checkpoint_that_goes_on_is_reported() -> None:
    """As its phase and as its share."""
    diary = Diary(8, 100)
    at = steps(diary, 100, wait=0.0, work=0.1)
    diary.add(Entry(at, at + 20.0, "checkpoint"))
    loop = reported(diary, at + 10.0)
    assert loop.phase == "checkpoint"
    assert loop.checkpoint_share == pytest.approx(0.5, abs=0.01)
    assert reported(diary, at + 20.0).phase == "train"
