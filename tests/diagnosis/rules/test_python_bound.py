"""python_bound: firing, quiet, unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.signals.waveform import Runs
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

check = check_of("python_bound")

FLAT = gpu(busy=steady(45.0), power_busy_watts=240.0)


def launching(gpus: tuple[Any, ...] = (FLAT,), **facts: Any) -> Window:
    resting = workers(8, cpu_percent=30.0)
    known: dict[str, Any] = {
        "main_thread_percent": 96.0,
        "main_thread_when_idle_percent": None,
        "main_thread_when_busy_percent": None,
        "workers": resting,
        "cpu_cores": 3.5,
        "ranks": (rank(main_thread_percent=96.0, workers=resting),),
    }
    return window(gpus=gpus, job=job(**(known | facts)))


def test_flat_and_middling_with_a_full_core() -> None:
    """A larger batch and compilation are the advice."""
    firing = fires(check(launching()))
    assert firing.lost_share == pytest.approx(0.55)
    assert "torch.compile" in firing.advice[1].action
    assert firing.missing == ("stacks of the main thread",)


def test_backward_on_a_thread_of_its_own() -> None:
    """A main thread at half a core counts where the whole process fills one."""
    half = rank(main_thread_percent=52.0, workers=workers(8, cpu_percent=30.0))
    firing = fires(check(launching(cpu_cores=3.4, main_thread_percent=52.0, ranks=(half,))))
    assert firing.strength < fires(check(launching())).strength


def test_swings_speak_against_it() -> None:
    """Something longer than a launch delays a GPU that swings."""
    swings = launching(gpus=(gpu(busy=swinging(0.5)),), main_thread_when_idle_percent=95.0)
    firing = fires(check(swings))
    assert any(not evidence.supports for evidence in firing.evidence)
    assert firing.strength < fires(check(launching())).strength


def test_stacks_decide_without_workers() -> None:
    """Computing in most samples is Python, also with num_workers=0."""
    none = (rank(loader_workers=0, main_thread_percent=96.0, workers=None),)
    stacks = (("computing", 80.0, None), ("loading_data", 8.0, None))
    fires(check(launching(ranks=none, workers=None, stacks=stacks)))


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param(window(), id="healthy"),
        pytest.param(launching(gpus=(gpu(),)), id="a full core, and the GPU is fed"),
        pytest.param(
            launching(main_thread_percent=35.0, ranks=(rank(main_thread_percent=35.0),)),
            id="the main thread rests",
        ),
        pytest.param(launching(main_thread_when_idle_percent=8.0), id="it waits while idle"),
        pytest.param(
            launching(
                ranks=(rank(main_thread_percent=96.0, workers=workers(2, cpu_percent=97.0)),)
            ),
            id="workers at their limit",
        ),
        pytest.param(
            launching(
                gpus=(gpu(busy=steady(45.0), pcie_rx_idle_bytes_per_second=3e9),),
                ranks=(rank(main_thread_percent=96.0, pinned_memory=False),),
            ),
            id="unpinned copies",
        ),
        pytest.param(
            launching(stacks=(("waiting_for_data", 60.0, None),)), id="stacks wait for data"
        ),
    ],
)
def test_quiet(quiet: Window) -> None:
    """A busy main thread alone is no cause."""
    is_clear(check(quiet))


@pytest.mark.parametrize(
    ("unknown", "missing"),
    [
        pytest.param(gpu_only(FLAT), "job's processes", id="no job"),
        pytest.param(
            launching(ranks=(rank(loader_workers=0, main_thread_percent=96.0, workers=None),)),
            "stacks",
            id="may be loading",
        ),
        pytest.param(
            launching(main_thread_percent=None, ranks=(rank(main_thread_percent=None),)),
            "main thread",
            id="no CPU",
        ),
    ],
)
def test_unknown(unknown: Window, missing: str) -> None:
    """What was missing is named."""
    misses(check(unknown), missing)


def test_quiet_in_a_pause_that_goes_on() -> None:
    """One long idle stretch is no rhythm, whatever the main thread does meanwhile."""
    once = replace(swinging(0.6), idle=Runs(count=0), busy=Runs(count=0))
    is_clear(check(launching(gpus=(gpu(busy=once),))))


def test_quiet_where_copies_fill_a_slow_link() -> None:
    """A link of one generation and four lanes that is full while the GPU idles is the cause."""
    card = gpu(
        busy=steady(75.0),
        pcie_generation_busy=1,
        pcie_width_busy=4,
        pcie_rx_bytes_per_second=0.2e9,
        pcie_rx_idle_bytes_per_second=None,
    )
    is_clear(check(launching(gpus=(card,))))
