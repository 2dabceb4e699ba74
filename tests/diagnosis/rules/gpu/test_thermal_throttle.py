"""A GPU that is held back by heat."""

from __future__ import annotations

import pytest

from gpuwatch.core.model import ReasonSeconds
from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, is_clear, window

check = check_of("thermal_throttle")


def _hot(index: int = 0, **facts: object) -> object:
    hot: dict[str, object] = {
        "throttle_shares": (ReasonSeconds("sw_thermal_slowdown", 30.0),),
        "temperature_highest_celsius": 88.0,
        "sm_clock_busy_mhz": 1600.0,
    }
    return gpu(index, **(hot | facts))


def test_half_a_minute_of_thermal_slowdown_fires_with_its_cost_in_clock() -> None:
    """The loss is the clock against that of a sibling of the same model."""
    said = fires(check(window(gpus=(_hot(0), gpu(1, sm_clock_busy_mhz=2000.0)))))
    assert said.gpus == ("GPU-0",)
    assert said.lost_share == pytest.approx(0.2)
    assert "50% of the time" in said.summary
    assert "straggler" in said.explains


def test_a_hardware_slowdown_counts_as_heat_only_near_the_slowdown_temperature() -> None:
    """The same reason has other causes on a cool card."""
    slow = (ReasonSeconds("hw_slowdown", 20.0),)
    fires(check(gpu_only(_hot(throttle_shares=slow))))
    is_clear(check(gpu_only(_hot(throttle_shares=slow, temperature_highest_celsius=60.0))))


def test_a_hot_card_with_low_clocks_fires_without_reasons_less_surely() -> None:
    """Temperature and clock alone make a weaker case, and the missing reading is named."""
    said = fires(check(gpu_only(_hot(throttle_shares=None))))
    assert "throttle reasons" in said.missing
    assert said.strength < fires(check(gpu_only(_hot()))).strength


QUIET = {
    "for a moment of it": gpu_only(
        _hot(throttle_shares=(ReasonSeconds("sw_thermal_slowdown", 2.0),))
    ),
    "far below the slowdown even without reasons": gpu_only(
        gpu(throttle_shares=None, temperature_highest_celsius=60.0)
    ),
}


UNKNOWN = {
    "without reasons and temperature": (
        gpu_only(gpu(throttle_shares=None, temperature_highest_celsius=None)),
        "throttle reasons",
    )
}
