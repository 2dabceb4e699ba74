"""One rank that works longer than the others."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import GpuFacts
from tests.diagnosis import windows as w

check = w.check_of("straggler")

FOUR = w.job(ranks=tuple([w.rank(n) for n in range(4)]))


def _waiting(index: int, **facts: Any) -> GpuFacts:
    waits: dict[str, Any] = {"power_mean_watts": 390.0, "sm_active_percent": 44.0}
    return w.gpu(index, **(waits | facts))


def test_the_rank_with_the_most_work_is_named() -> None:
    """All are busy all the time, one of them does twice as much."""
    gpus = (_waiting(0), _waiting(1), w.gpu(2), _waiting(3))
    said = w.fires(check(w.window(gpus=gpus, job=FOUR)))
    assert "wait for rank 2 on GPU 2" in said.summary
    assert said.gpus[0] == "GPU-2"
    assert said.lost_share == pytest.approx(0.5 * 3 / 4)


def test_power_alone_is_enough_and_less_sure() -> None:
    """Cards before Hopper have no SM activity."""
    blind = {"sm_active_percent": None, "memory_controller_percent": 3.0}
    gpus = (_waiting(0, **blind), w.gpu(1, **blind))
    said = w.fires(check(w.window(gpus=gpus, job=FOUR)))
    assert said.missing == ("SM activity",)
    assert said.strength < w.fires(check(w.window(gpus=(_waiting(0), w.gpu(1)), job=FOUR))).strength


def test_the_memory_controller_tells_where_power_hardly_differs() -> None:
    """A light model draws little more than spinning does."""
    light = {"sm_active_percent": None, "power_mean_watts": 200.0}
    gpus = (
        w.gpu(0, memory_controller_percent=66.0, **light),
        w.gpu(1, memory_controller_percent=76.0, **light),
    )
    assert w.fires(check(w.window(gpus=gpus, job=FOUR))).gpus[0] == "GPU-1"


def test_a_slower_clock_is_the_reason_named() -> None:
    """The others wait for the card that runs slower."""
    gpus = (w.gpu(0), w.gpu(1, sm_clock_busy_mhz=1500.0), w.gpu(2))
    said = w.fires(check(w.window(gpus=gpus, job=FOUR)))
    assert "1500 MHz" in said.summary
    assert said.gpus[0] == "GPU-1"


def test_unknown_with_neither_power_nor_sm_activity() -> None:
    """Who works cannot be told."""
    blind = {
        "power_mean_watts": None,
        "sm_active_percent": None,
        "sm_clock_busy_mhz": None,
        "memory_controller_percent": None,
    }
    w.misses(check(w.window(gpus=(w.gpu(0, **blind), w.gpu(1, **blind)), job=FOUR)), "SM activity")


QUIET = {
    "when all do the same": w.window(
        gpus=(w.gpu(0), w.gpu(1, power_mean_watts=570.0, sm_active_percent=86.0)), job=FOUR
    ),
    "when two work and two do not": w.window(
        gpus=(w.gpu(0), w.gpu(1), _waiting(2), _waiting(3)), job=FOUR
    ),
    "while a gpu idles": w.window(gpus=(w.gpu(0), w.gpu(1, busy=w.swinging(0.5))), job=FOUR),
    "between different models": w.window(
        gpus=(w.gpu(0), _waiting(1, identity=w.identity(1, name="NVIDIA A100"))), job=FOUR
    ),
    "for one gpu": w.window(),
}


UNKNOWN = {"without a job": (w.gpu_only(w.gpu(0), _waiting(1)), "processes")}
