"""memory_not_pinned: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis import windows as w

check = w.check_of("memory_not_pinned")


def unpinned(gpu_facts: dict[str, Any] | None = None, **facts: Any) -> Window:
    known: dict[str, Any] = {
        "main_thread_when_idle_percent": 90.0,
        "ranks": (w.rank(pinned_memory=False),),
    }
    card = {"busy": w.swinging(0.35, period_seconds=0.9), "pcie_rx_idle_bytes_per_second": 3e9}
    return w.window(gpus=(w.gpu(**(card | (gpu_facts or {}))),), job=w.job(**(known | facts)))


def test_copies_while_the_gpu_idles() -> None:
    """Pinning is the advice, with asynchronous copies."""
    firing = w.fires(check(unpinned()))
    assert firing.advice[0].setting == "pin_memory"
    assert "non_blocking" in firing.advice[0].action
    assert firing.strength > 0.9


def test_a_main_thread_that_rests_speaks_against_it() -> None:
    """A pageable copy is done by the main thread."""
    resting = w.fires(check(unpinned(main_thread_when_idle_percent=5.0)))
    assert resting.strength < w.fires(check(unpinned())).strength
    assert any(not evidence.supports for evidence in resting.evidence)


@pytest.mark.parametrize(("overall", "fires_too"), [(1.2e9, True), (0.2e9, False)])
def test_idle_moments_too_short_to_be_seen(overall: float, fires_too: bool) -> None:
    """Copying all of the traffic must fill a good part of the idle time."""
    flat = unpinned(
        {
            "busy": w.steady(75.0),
            "pcie_rx_idle_bytes_per_second": None,
            "pcie_rx_bytes_per_second": overall,
        },
        main_thread_when_idle_percent=None,
    )
    if fires_too:
        w.fires(check(flat))
    else:
        w.misses(check(flat), "PCIe")


QUIET = {
    "healthy": w.window(),
    "pinned": w.window(gpus=unpinned().gpus),
    "unpinned, and the GPU is fed": w.window(job=w.job(ranks=(w.rank(pinned_memory=False),))),
    "no traffic": unpinned({"pcie_rx_idle_bytes_per_second": 5e7}),
    "a degraded link": unpinned(
        {"pcie_generation_busy": 1, "pcie_width_busy": 4, "pcie_rx_idle_bytes_per_second": 0.9e9}
    ),
    "workers at their limit": unpinned(
        ranks=(w.rank(pinned_memory=False, workers=w.workers(2, cpu_percent=98.0)),)
    ),
}


UNKNOWN = {
    "no job": (w.gpu_only(*unpinned().gpus), "job's processes"),
    "not seen": (unpinned(ranks=(w.rank(pinned_memory=None, loader_workers=0),)), "pins"),
    "no traffic": (
        unpinned({"pcie_rx_idle_bytes_per_second": None, "pcie_rx_bytes_per_second": None}),
        "PCIe",
    ),
}
