"""memory_not_pinned: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import (
    check_of,
    fires,
    gpu,
    gpu_only,
    is_clear,
    job,
    misses,
    rank,
    steady,
    swinging,
    window,
    workers,
)

check = check_of("memory_not_pinned")


def unpinned(gpu_facts: dict[str, Any] | None = None, **facts: Any) -> Window:
    known: dict[str, Any] = {
        "main_thread_when_idle_percent": 90.0,
        "ranks": (rank(pinned_memory=False),),
    }
    card = {"busy": swinging(0.35, period_seconds=0.9), "pcie_rx_idle_bytes_per_second": 3e9}
    return window(gpus=(gpu(**(card | (gpu_facts or {}))),), job=job(**(known | facts)))


def test_copies_while_the_gpu_idles() -> None:
    """Pinning is the advice, with asynchronous copies."""
    firing = fires(check(unpinned()))
    assert firing.advice[0].setting == "pin_memory"
    assert "non_blocking" in firing.advice[0].action
    assert firing.strength > 0.9


def test_a_main_thread_that_rests_speaks_against_it() -> None:
    """A pageable copy is done by the main thread."""
    resting = fires(check(unpinned(main_thread_when_idle_percent=5.0)))
    assert resting.strength < fires(check(unpinned())).strength
    assert any(not evidence.supports for evidence in resting.evidence)


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param(window(), id="healthy"),
        pytest.param(window(gpus=unpinned().gpus), id="pinned"),
        pytest.param(
            window(job=job(ranks=(rank(pinned_memory=False),))), id="unpinned, and the GPU is fed"
        ),
        pytest.param(unpinned({"pcie_rx_idle_bytes_per_second": 5e7}), id="no traffic"),
        pytest.param(
            unpinned(
                {
                    "pcie_generation_busy": 1,
                    "pcie_width_busy": 4,
                    "pcie_rx_idle_bytes_per_second": 0.9e9,
                }
            ),
            id="a degraded link",
        ),
        pytest.param(
            unpinned(ranks=(rank(pinned_memory=False, workers=workers(2, cpu_percent=98.0)),)),
            id="workers at their limit",
        ),
    ],
)
def test_quiet(quiet: Window) -> None:
    """Unpinned memory alone is no cause."""
    is_clear(check(quiet))


@pytest.mark.parametrize(
    ("unknown", "missing"),
    [
        pytest.param(gpu_only(*unpinned().gpus), "job's processes", id="no job"),
        pytest.param(
            unpinned(ranks=(rank(pinned_memory=None, loader_workers=0),)), "pins", id="not seen"
        ),
        pytest.param(
            unpinned({"pcie_rx_idle_bytes_per_second": None, "pcie_rx_bytes_per_second": None}),
            "PCIe",
            id="no traffic",
        ),
    ],
)
def test_unknown(unknown: Window, missing: str) -> None:
    """What was missing is named."""
    misses(check(unknown), missing)


@pytest.mark.parametrize(("overall", "fires_too"), [(1.2e9, True), (0.2e9, False)])
def test_idle_moments_too_short_to_be_seen(overall: float, fires_too: bool) -> None:
    """Copying all of the traffic must fill a good part of the idle time."""
    flat = unpinned(
        {
            "busy": steady(75.0),
            "pcie_rx_idle_bytes_per_second": None,
            "pcie_rx_bytes_per_second": overall,
        },
        main_thread_when_idle_percent=None,
    )
    if fires_too:
        fires(check(flat))
    else:
        misses(check(flat), "PCIe")
