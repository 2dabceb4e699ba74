"""What watching costs, as the screen's corner says it."""

import time

import pytest

from gpuwatch.sources.linux.own_cpu import START_SECONDS, OwnCpu


def test_the_start_is_not_counted() -> None:
    """Nothing is said before a whole reading lies behind the start."""
    meter = OwnCpu()
    assert meter.percent(10.0) is None
    assert meter.percent(10.0 + START_SECONDS) is None
    assert meter.percent(11.0 + START_SECONDS) is not None


def test_a_share_of_one_core() -> None:
    """The CPU time since the reading before, over the time since then."""
    meter = OwnCpu()
    meter.percent(0.0)
    meter.percent(START_SECONDS)
    used = time.process_time()
    while time.process_time() - used < 0.05:
        pass
    assert meter.percent(START_SECONDS + 1.0) == pytest.approx(5.0, abs=2.0)
