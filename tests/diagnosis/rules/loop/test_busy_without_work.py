"""A GPU that is "100% busy" and does little."""

from __future__ import annotations

from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, steady, window

check = check_of("busy_without_work")

LITTLE = {
    "power_mean_watts": 210.0,
    "power_busy_watts": 212.0,
    "power_plateau_watts": 220.0,
    "sm_active_percent": 14.0,
    "dram_active_percent": 8.0,
    "memory_controller_percent": 6.0,
}


def test_busy_at_low_power_and_low_sm_activity_fires() -> None:
    """Both readings agree."""
    said = fires(check(window(gpus=(gpu(**LITTLE),))))
    assert "97% busy at 212 W" in said.summary
    assert said.missing == ()


def test_power_alone_is_enough_and_less_sure() -> None:
    """Cards before Hopper have no SM activity."""
    said = fires(check(gpu_only(gpu(**(LITTLE | {"sm_active_percent": None})))))
    assert "SM activity" in said.missing
    assert said.strength < fires(check(window(gpus=(gpu(**LITTLE),)))).strength


def test_power_far_below_the_jobs_own_plateau_is_a_wait() -> None:
    """It worked before: a collective that spins, or hangs."""
    hung = LITTLE | {"power_plateau_watts": 640.0}
    assert "waits" in fires(check(window(gpus=(gpu(**hung),)))).summary


QUIET = {
    "when it works": window(),
    "for work bound by memory bandwidth": gpu_only(gpu(**(LITTLE | {"dram_active_percent": 75.0}))),
    "without sm activity where the memory controller is busy": gpu_only(
        gpu(**LITTLE | {"sm_active_percent": None, "memory_controller_percent": 70.0})
    ),
    "when it is not busy all the time": gpu_only(gpu(busy=steady(45.0), **LITTLE)),
    "on a rank that waits for one that idles": window(
        gpus=(gpu(0, **LITTLE), gpu(1, busy=steady(50.0)))
    ),
}


UNKNOWN = {
    "with neither power nor sm activity": (
        gpu_only(gpu(power_mean_watts=None, power_busy_watts=None, sm_active_percent=None)),
        "SM activity",
        "power",
    )
}


FIRING = {
    "hardly any power is no work whatever the activities say": gpu_only(
        gpu(**{"power_mean_watts": 150.0, "power_busy_watts": 150.0, "power_plateau_watts": 155.0})
    )
}
