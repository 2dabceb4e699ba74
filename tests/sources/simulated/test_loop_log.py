"""Reports of a simulated rank on its own loop, as ``gpuwatch.torch`` would make them."""

import pytest

from gpuwatch.core.model import TrainingLoop
from gpuwatch.sources.simulated.training import LoopLog


def reported(log: LoopLog, now: float) -> TrainingLoop:
    loop = log.report((7, 1.0), now, 1000.0, workers=2, pinned=True, memory_bytes=None)
    assert loop is not None
    return loop


def steps(log: LoopLog, count: int, *, wait: float, work: float, begin: float = 0.0) -> float:
    """Take steps one after another; return when the last ends."""
    at = begin
    for _ in range(count):
        log.begin_step(at, waited=wait, copied=0.0, before=0.0)
        at += wait + work
        log.end_step(at)
    return at


def test_a_wait_that_lasts_counts_while_it_lasts() -> None:
    """The share grows and the rates fall, though no step ends."""
    log = LoopLog(8, 100)
    at = steps(log, 100, wait=0.0, work=0.1)
    steps(log, 1, wait=60.0, work=1.0, begin=at)
    loops = [reported(log, at + after) for after in (0.05, 10.0, 40.0)]
    shares = [loop.data_wait_share for loop in loops]
    assert shares == pytest.approx([0.005, 0.5, 0.8], abs=0.01)
    rates = [loop.steps_per_second or 0.0 for loop in loops]
    assert rates[0] == pytest.approx(10.0, rel=0.02)
    assert rates[0] > rates[1] > rates[2] > 0.0
    assert [loop.reported_at_unix_seconds for loop in loops] == [1000.0 + at] * 3
    assert {loop.steps for loop in loops} == {100}
