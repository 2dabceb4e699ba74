"""host_memory_growing: firing, quiet, unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import check_of, fires, gpu_only, host, job, window, workers

check = check_of("host_memory_growing")


def growing(own: float | None = 50e6, **facts: Any) -> Window:
    rates = {"memory_slope_bytes_per_second": 55e6, "memory_slope_error_bytes_per_second": 1e6}
    leaking = workers(8, memory_slope_bytes_per_second=own)
    return window(job=job(workers=leaking), host=host(**(rates | facts)))


def test_workers_that_grow() -> None:
    """The workers are named, and arrays instead of lists are the advice."""
    firing = fires(check(growing()))
    assert "loader workers' memory" in firing.summary
    assert "numpy" in firing.advice[0].action
    assert firing.lost_share is None
    assert firing.severity == "error"


def test_growth_that_is_not_the_workers() -> None:
    """The training process is looked at first."""
    firing = fires(check(growing(own=0.0)))
    assert "training process" in firing.advice[0].action


def test_swapping_alone_suffices() -> None:
    """A machine that swaps is full, whatever the trend."""
    firing = fires(check(growing(swap_growth_bytes=2e9, memory_slope_bytes_per_second=0.0)))
    assert "swaps" in firing.summary


QUIET = {
    "healthy": window(),
    "scatter": growing(memory_slope_error_bytes_per_second=40e6),
    "lasts for days": growing(memory_slope_bytes_per_second=1.2e6),
    "shrinks": growing(memory_slope_bytes_per_second=-5e6),
}


UNKNOWN = {
    "no job": (gpu_only(), "job's processes"),
    "no trend": (growing(memory_slope_bytes_per_second=None), "trend"),
    "starting": (replace(growing(), starting=True), "starting"),
    "too young": (replace(growing(), steady_seconds=20.0), "past start-up"),
}
