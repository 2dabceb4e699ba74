"""One rank that works longer than the others."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import GpuFacts
from tests.diagnosis.windows import (
    check_of,
    fires,
    gpu,
    gpu_only,
    identity,
    is_clear,
    job,
    misses,
    rank,
    swinging,
    window,
)

check = check_of("straggler")

FOUR = job(ranks=tuple([rank(n) for n in range(4)]))


def _waiting(index: int, **facts: Any) -> GpuFacts:
    waits: dict[str, Any] = {"power_mean_watts": 390.0, "sm_active_percent": 44.0}
    return gpu(index, **(waits | facts))


def test_the_rank_with_the_most_work_is_named() -> None:
    """All are busy all the time, one of them does twice as much."""
    gpus = (_waiting(0), _waiting(1), gpu(2), _waiting(3))
    said = fires(check(window(gpus=gpus, job=FOUR)))
    assert "wait for rank 2 on GPU 2" in said.summary
    assert said.gpus[0] == "GPU-2"
    assert said.lost_share == pytest.approx(0.5 * 3 / 4)


def test_power_alone_is_enough_and_less_sure() -> None:
    """Cards before Hopper have no SM activity."""
    blind = {"sm_active_percent": None, "memory_controller_percent": 3.0}
    gpus = (_waiting(0, **blind), gpu(1, **blind))
    said = fires(check(window(gpus=gpus, job=FOUR)))
    assert said.missing == ("SM activity",)
    assert said.strength < fires(check(window(gpus=(_waiting(0), gpu(1)), job=FOUR))).strength


def test_the_memory_controller_tells_where_power_hardly_differs() -> None:
    """A light model draws little more than spinning does."""
    light = {"sm_active_percent": None, "power_mean_watts": 200.0}
    gpus = (
        gpu(0, memory_controller_percent=66.0, **light),
        gpu(1, memory_controller_percent=76.0, **light),
    )
    assert fires(check(window(gpus=gpus, job=FOUR))).gpus[0] == "GPU-1"


def test_a_slower_clock_is_the_reason_named() -> None:
    """The others wait for the card that runs slower."""
    gpus = (gpu(0), gpu(1, sm_clock_busy_mhz=1500.0), gpu(2))
    said = fires(check(window(gpus=gpus, job=FOUR)))
    assert "1500 MHz" in said.summary
    assert said.gpus[0] == "GPU-1"


def test_quiet_when_all_do_the_same() -> None:
    """Some percent of power between cards are no straggler."""
    gpus = (gpu(0), gpu(1, power_mean_watts=570.0, sm_active_percent=86.0))
    is_clear(check(window(gpus=gpus, job=FOUR)))


def test_quiet_when_two_work_and_two_do_not() -> None:
    """That is a layout, not one slow rank."""
    gpus = (gpu(0), gpu(1), _waiting(2), _waiting(3))
    is_clear(check(window(gpus=gpus, job=FOUR)))


def test_quiet_while_a_gpu_idles() -> None:
    """Then another rule names it."""
    is_clear(check(window(gpus=(gpu(0), gpu(1, busy=swinging(0.5))), job=FOUR)))


def test_quiet_between_different_models() -> None:
    """Their power and clocks cannot be compared."""
    other = _waiting(1, identity=identity(1, name="NVIDIA A100"))
    is_clear(check(window(gpus=(gpu(0), other), job=FOUR)))


def test_quiet_for_one_gpu() -> None:
    """It has no sibling."""
    is_clear(check(window()))


def test_unknown_with_neither_power_nor_sm_activity() -> None:
    """Who works cannot be told."""
    blind = {
        "power_mean_watts": None,
        "sm_active_percent": None,
        "sm_clock_busy_mhz": None,
        "memory_controller_percent": None,
    }
    misses(check(window(gpus=(gpu(0, **blind), gpu(1, **blind)), job=FOUR)), "SM activity")


def test_unknown_without_a_job() -> None:
    """GPUs of different jobs are no siblings."""
    misses(check(gpu_only(gpu(0), _waiting(1))), "processes")
