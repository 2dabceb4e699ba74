"""A batch that does not fill the GPU."""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.facts.window import GpuFacts
from tests.diagnosis import windows as w

check = w.check_of("batch_too_small")


def _small(index: int = 0, **facts: Any) -> GpuFacts:
    small: dict[str, Any] = {
        "power_mean_watts": 210.0,
        "power_busy_watts": 210.0,
        "power_plateau_watts": 220.0,
        "sm_active_percent": 14.0,
        "tensor_active_percent": 5.0,
        "dram_active_percent": 8.0,
        "memory_controller_percent": 6.0,
        "memory_used_bytes": 35.0 * w.GIB,
        "memory_highest_bytes": 35.0 * w.GIB,
    }
    return w.gpu(index, **(small | facts))


def test_a_fed_gpu_with_free_memory_and_little_work_fires() -> None:
    """The advice says how far the batch can go for sure: to 90% of 140 GiB from 35."""
    said = w.fires(check(w.window(gpus=(_small(),))))
    assert said.advice[0].wanted == "3.6 times"
    assert "busy_without_work" in said.explains


def test_idle_tensor_cores_add_mixed_precision() -> None:
    """Only where they were read and do nothing."""
    idle = w.fires(check(w.window(gpus=(_small(tensor_active_percent=0.0),))))
    unread = w.fires(check(w.window(gpus=(_small(tensor_active_percent=None),))))
    assert [advice.setting for advice in idle.advice] == ["batch size", "precision"]
    assert [advice.setting for advice in unread.advice] == ["batch size"]


def test_power_alone_is_enough_and_less_sure() -> None:
    """Cards before Hopper have no SM activity."""
    said = w.fires(check(w.gpu_only(_small(sm_active_percent=None))))
    assert "SM activity" in said.missing
    assert said.strength < w.fires(check(w.window(gpus=(_small(),)))).strength


def test_a_flat_level_below_full_is_fed_where_python_is_not_the_limit() -> None:
    """Launches of tiny kernels leave gaps; a main thread at its limit explains them better."""
    flat = _small(busy=w.steady(70.0))
    w.fires(check(w.window(gpus=(flat,), job=w.job(main_thread_percent=50.0))))
    w.is_clear(check(w.window(gpus=(flat,), job=w.job(main_thread_percent=99.0))))


def test_quiet_without_room_in_memory() -> None:
    """No larger batch would fit."""
    full = _small(memory_used_bytes=90.0 * w.GIB, memory_highest_bytes=90.0 * w.GIB)
    assert "no room" in w.is_clear(check(w.window(gpus=(full,)))).why


QUIET = {
    "when the gpu is filled": w.window(),
    "while one sibling works hard": w.window(gpus=(_small(0), w.gpu(1))),
    "for a starved gpu": w.window(gpus=(_small(busy=w.swinging(0.4)),)),
    "when it drew more power before": w.window(gpus=(_small(power_plateau_watts=600.0),)),
}


UNKNOWN = {
    "without the memory": (
        w.gpu_only(_small(identity=w.identity(memory_total_bytes=None))),
        "memory",
    ),
    "with neither power nor sm activity": (
        w.gpu_only(_small(power_mean_watts=None, power_busy_watts=None, sm_active_percent=None)),
        "SM activity",
    ),
}
