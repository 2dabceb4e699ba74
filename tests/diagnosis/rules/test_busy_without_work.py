"""A GPU that is "100% busy" and does little."""

from __future__ import annotations

from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, is_clear, misses, steady, window

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


def test_quiet_when_it_works() -> None:
    """High power and SM activity are work."""
    is_clear(check(window()))


def test_quiet_for_work_bound_by_memory_bandwidth() -> None:
    """Low SM activity beside full DRAM is no waste."""
    is_clear(check(gpu_only(gpu(**(LITTLE | {"dram_active_percent": 75.0})))))


def test_hardly_any_power_is_no_work_whatever_the_activities_say() -> None:
    """A multiprocessor counts as active while a warp waits on it."""
    spins = {"power_mean_watts": 150.0, "power_busy_watts": 150.0, "power_plateau_watts": 155.0}
    fires(check(gpu_only(gpu(**spins))))


def test_quiet_without_sm_activity_where_the_memory_controller_is_busy() -> None:
    """Before Hopper that is what tells work bound by bandwidth."""
    bound = LITTLE | {"sm_active_percent": None, "memory_controller_percent": 70.0}
    is_clear(check(gpu_only(gpu(**bound))))


def test_quiet_when_it_is_not_busy_all_the_time() -> None:
    """Idling is for other rules."""
    is_clear(check(gpu_only(gpu(busy=steady(45.0), **LITTLE))))


def test_quiet_on_a_rank_that_waits_for_one_that_idles() -> None:
    """The one that idles is to blame."""
    is_clear(check(window(gpus=(gpu(0, **LITTLE), gpu(1, busy=steady(50.0))))))


def test_unknown_with_neither_power_nor_sm_activity() -> None:
    """Utilisation alone says nothing about work."""
    blind = gpu(power_mean_watts=None, power_busy_watts=None, sm_active_percent=None)
    misses(check(gpu_only(blind)), "SM activity", "power")
