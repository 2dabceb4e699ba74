"""python_bound: firing, quiet, unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.signals.waveform import Runs
from tests.diagnosis import windows as w

check = w.check_of("python_bound")

FLAT = w.gpu(busy=w.steady(45.0), power_busy_watts=240.0)


def launching(gpus: tuple[Any, ...] = (FLAT,), **facts: Any) -> Window:
    resting = w.workers(8, cpu_percent=30.0)
    known: dict[str, Any] = {
        "main_thread_percent": 96.0,
        "main_thread_when_idle_percent": None,
        "workers": resting,
        "cpu_cores": 3.5,
        "ranks": (w.rank(main_thread_percent=96.0, workers=resting),),
    }
    return w.window(gpus=gpus, job=w.job(**(known | facts)))


def test_flat_and_middling_with_a_full_core() -> None:
    """A larger batch and compilation are the advice."""
    firing = w.fires(check(launching()))
    assert firing.lost_share == pytest.approx(0.55)
    assert "torch.compile" in firing.advice[1].action
    assert firing.missing == ("stacks of the main thread",)


def test_backward_on_a_thread_of_its_own() -> None:
    """A main thread at half a core counts where the whole process fills one."""
    half = w.rank(main_thread_percent=52.0, workers=w.workers(8, cpu_percent=30.0))
    firing = w.fires(check(launching(cpu_cores=3.4, main_thread_percent=52.0, ranks=(half,))))
    assert firing.strength < w.fires(check(launching())).strength


def test_swings_speak_against_it() -> None:
    """Something longer than a launch delays a GPU that swings."""
    swings = launching(gpus=(w.gpu(busy=w.swinging(0.5)),), main_thread_when_idle_percent=95.0)
    firing = w.fires(check(swings))
    assert any(not evidence.supports for evidence in firing.evidence)
    assert firing.strength < w.fires(check(launching())).strength


def test_stacks_decide_without_workers() -> None:
    """Computing in most samples is Python, also with num_workers=0."""
    none = (w.rank(loader_workers=0, main_thread_percent=96.0, workers=None),)
    stacks = (("computing", 80.0, None), ("loading_data", 8.0, None))
    w.fires(check(launching(ranks=none, workers=None, stacks=stacks)))


QUIET = {
    "healthy": w.window(),
    "a full core, and the GPU is fed": launching(gpus=(w.gpu(),)),
    "the main thread rests": launching(
        main_thread_percent=35.0, ranks=(w.rank(main_thread_percent=35.0),)
    ),
    "it waits while idle": launching(main_thread_when_idle_percent=8.0),
    "workers at their limit": launching(
        ranks=(w.rank(main_thread_percent=96.0, workers=w.workers(2, cpu_percent=97.0)),)
    ),
    "unpinned copies": launching(
        gpus=(w.gpu(busy=w.steady(45.0), pcie_rx_idle_bytes_per_second=3e9),),
        ranks=(w.rank(main_thread_percent=96.0, pinned_memory=False),),
    ),
    "stacks wait for data": launching(stacks=(("waiting_for_data", 60.0, None),)),
    "in a pause that goes on": launching(
        gpus=(w.gpu(busy=replace(w.swinging(0.6), idle=Runs(count=0), busy=Runs(count=0))),)
    ),
    "where copies fill a slow link": launching(
        gpus=(
            w.gpu(
                busy=w.steady(75.0),
                pcie_generation_busy=1,
                pcie_width_busy=4,
                pcie_rx_bytes_per_second=0.2e9,
                pcie_rx_idle_bytes_per_second=None,
            ),
        )
    ),
}


UNKNOWN = {
    "no job": (w.gpu_only(FLAT), "job's processes"),
    "may be loading": (
        launching(ranks=(w.rank(loader_workers=0, main_thread_percent=96.0, workers=None),)),
        "stacks",
    ),
    "no CPU": (
        launching(main_thread_percent=None, ranks=(w.rank(main_thread_percent=None),)),
        "main thread",
    ),
}
