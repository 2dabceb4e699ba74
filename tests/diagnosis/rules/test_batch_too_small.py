"""A batch that does not fill the GPU."""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.facts.window import GpuFacts
from tests.diagnosis.windows import (
    GIB,
    check_of,
    fires,
    gpu,
    gpu_only,
    identity,
    is_clear,
    job,
    misses,
    steady,
    swinging,
    window,
)

check = check_of("batch_too_small")


def _small(index: int = 0, **facts: Any) -> GpuFacts:
    small: dict[str, Any] = {
        "power_mean_watts": 210.0,
        "power_busy_watts": 210.0,
        "power_plateau_watts": 220.0,
        "sm_active_percent": 14.0,
        "tensor_active_percent": 5.0,
        "dram_active_percent": 8.0,
        "memory_controller_percent": 6.0,
        "memory_used_bytes": 35.0 * GIB,
        "memory_highest_bytes": 35.0 * GIB,
    }
    return gpu(index, **(small | facts))


def test_a_fed_gpu_with_free_memory_and_little_work_fires() -> None:
    """The advice says how far the batch can go for sure: to 90% of 140 GiB from 35."""
    said = fires(check(window(gpus=(_small(),))))
    assert said.advice[0].wanted == "3.6 times"
    assert "busy_without_work" in said.explains


def test_idle_tensor_cores_add_mixed_precision() -> None:
    """Only where they were read and do nothing."""
    idle = fires(check(window(gpus=(_small(tensor_active_percent=0.0),))))
    unread = fires(check(window(gpus=(_small(tensor_active_percent=None),))))
    assert [advice.setting for advice in idle.advice] == ["batch size", "precision"]
    assert [advice.setting for advice in unread.advice] == ["batch size"]


def test_power_alone_is_enough_and_less_sure() -> None:
    """Cards before Hopper have no SM activity."""
    said = fires(check(gpu_only(_small(sm_active_percent=None))))
    assert "SM activity" in said.missing
    assert said.strength < fires(check(window(gpus=(_small(),)))).strength


def test_a_flat_level_below_full_is_fed_where_python_is_not_the_limit() -> None:
    """Launches of tiny kernels leave gaps; a main thread at its limit explains them better."""
    flat = _small(busy=steady(70.0))
    fires(check(window(gpus=(flat,), job=job(main_thread_percent=50.0))))
    is_clear(check(window(gpus=(flat,), job=job(main_thread_percent=99.0))))


def test_quiet_when_the_gpu_is_filled() -> None:
    """High SM activity needs no larger batch."""
    is_clear(check(window()))


def test_quiet_without_room_in_memory() -> None:
    """No larger batch would fit."""
    full = _small(memory_used_bytes=90.0 * GIB, memory_highest_bytes=90.0 * GIB)
    assert "no room" in is_clear(check(window(gpus=(full,)))).why


def test_quiet_while_one_sibling_works_hard() -> None:
    """Then the others wait for it."""
    is_clear(check(window(gpus=(_small(0), gpu(1)))))


def test_quiet_for_a_starved_gpu() -> None:
    """Its batch is not what limits."""
    is_clear(check(window(gpus=(_small(busy=swinging(0.4)),))))


def test_quiet_when_it_drew_more_power_before() -> None:
    """A wait, not a small batch."""
    is_clear(check(window(gpus=(_small(power_plateau_watts=600.0),))))


def test_unknown_without_the_memory() -> None:
    """How far a batch could grow was not read."""
    bare = _small(identity=identity(memory_total_bytes=None))
    misses(check(gpu_only(bare)), "memory")


def test_unknown_with_neither_power_nor_sm_activity() -> None:
    """Whether it works cannot be told."""
    blind = _small(power_mean_watts=None, power_busy_watts=None, sm_active_percent=None)
    misses(check(gpu_only(blind)), "SM activity")
