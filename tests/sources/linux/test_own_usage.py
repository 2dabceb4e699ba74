"""What watching costs, as the screen's corner says it."""

import os
import time
from pathlib import Path

import pytest

from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.host import START_SECONDS, OwnUsage


def test_a_share_of_one_core_once_the_start_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU time since the reading before, over the time since then; nothing is said before a
    whole reading lies behind the start."""
    monkeypatch.setattr(time, "process_time", iter([5.0, 6.0, 6.05, 6.05]).__next__)
    meter = OwnUsage()
    assert meter.cpu_percent(10.0) is None
    assert meter.cpu_percent(10.0 + START_SECONDS) is None
    assert meter.cpu_percent(11.0 + START_SECONDS) == pytest.approx(5.0)
    assert meter.cpu_percent(12.0 + START_SECONDS) == 0.0


def test_cpu_time_of_a_process_is_known_to_less_than_a_tick(tmp_path: Path) -> None:
    """By the clock that the kernel has of it; one of another ``/proc`` has none here."""
    before = time.process_time()
    used = procfs.cpu_clock(os.getpid())
    assert used is not None
    assert before <= used <= time.process_time()
    assert procfs.has_clocks(procfs.PROC)
    assert not procfs.has_clocks(tmp_path)
