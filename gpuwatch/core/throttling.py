"""Reasons for which a GPU's clocks are held down, as the driver names them: one table for charts,
reports and rules. What is not in it does not hold a GPU back: it idles, or a person set its clocks.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    label: str
    """``power cap``."""
    cause: str
    """As in "held back by its power limit"."""
    is_grave: bool = True
    is_heat: bool = False


REASONS = {
    "sw_power_cap": Reason("power cap", "its power limit", is_grave=False),
    "hw_power_brake_slowdown": Reason("power brake", "the power supply (hardware brake)"),
    "hw_slowdown": Reason("hardware slowdown", "the hardware"),
    "sw_thermal_slowdown": Reason("thermal", "its temperature", is_heat=True),
    "hw_thermal_slowdown": Reason("thermal", "its temperature (hardware)", is_heat=True),
    "sync_boost": Reason("sync boost", "another GPU of its boost group", is_grave=False),
}
