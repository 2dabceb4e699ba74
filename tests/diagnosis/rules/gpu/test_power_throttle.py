"""A GPU that is held below its speed by power."""

from __future__ import annotations

import pytest

from gpuwatch.core.model import ReasonSeconds
from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, identity, is_clear

check = check_of("power_throttle")

CAPPED = (ReasonSeconds("sw_power_cap", 55.0),)


def _capped(**facts: object) -> object:
    lowered: dict[str, object] = {
        "throttle_shares": CAPPED,
        "power_limit_watts": 400.0,
        "power_busy_watts": 396.0,
        "sm_clock_busy_mhz": 1485.0,
    }
    return gpu(**(lowered | facts))


def test_a_lowered_limit_fires_and_names_the_limit_to_set_back() -> None:
    """The advice has both numbers, the cost is the clock."""
    said = fires(check(gpu_only(_capped())))
    assert said.lost_share == pytest.approx(0.25)
    assert (said.advice[0].present, said.advice[0].wanted) == ("400 W", "700 W")


def test_power_at_a_lowered_limit_fires_without_reasons_less_surely() -> None:
    """Power that stays at the limit is the cap."""
    said = fires(check(gpu_only(_capped(throttle_shares=None))))
    assert said.missing == ("throttle reasons",)
    assert said.strength < fires(check(gpu_only(_capped()))).strength


def test_a_power_brake_fires_at_any_limit() -> None:
    """It comes from outside the card."""
    said = fires(
        check(gpu_only(gpu(throttle_shares=(ReasonSeconds("hw_power_brake_slowdown", 3.0),))))
    )
    assert "brake" in said.summary


def test_quiet_at_the_cards_own_limit() -> None:
    """A card at its default limit runs at full speed, whatever the cap says."""
    clear = is_clear(
        check(gpu_only(gpu(throttle_shares=CAPPED, power_busy_watts=695.0, sm_clock_busy_mhz=1500)))
    )
    assert "own power limit" in clear.why


def test_a_cap_that_hardly_slows_is_information() -> None:
    """One percent of clock is not worth a warning."""
    assert fires(check(gpu_only(_capped(sm_clock_busy_mhz=1970.0)))).severity == "info"


QUIET = {
    "at a lowered limit that is not reached": gpu_only(
        _capped(throttle_shares=(), power_busy_watts=300.0)
    )
}


UNKNOWN = {
    "while capped at a limit whose default is not known": (
        gpu_only(_capped(identity=identity(power_limit_default_watts=None))),
        "default power limit",
    ),
    "without reasons and power": (
        gpu_only(gpu(throttle_shares=None, power_limit_watts=None)),
        "throttle reasons",
        "the power limit",
    ),
}
