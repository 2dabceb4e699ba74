"""The physics of one simulated card: what runs on it becomes power, heat, clocks and samples."""

from __future__ import annotations

import math
import random
from collections import deque
from typing import NamedTuple

from gpuwatch.sources.simulation.cards import Card

TICKS_PER_SECOND = 12
TICK_SECONDS = 1.0 / TICKS_PER_SECOND
TICKS_PER_SAMPLE = 2
"""The driver's buffer holds a sample every sixth of a second."""
BUFFERED_SAMPLES = 120
"""Samples a real driver keeps: it has room for about twenty seconds."""

_POWER_TAU_SECONDS = 0.35
_HEAT_TAU_SECONDS = 28.0
_CLOCKS_STAY_UP_SECONDS = 4.0
_IDLE_AFTER_SECONDS = 0.5
_CLOCK_POWER_EXPONENT = 2.2
_THROTTLE_MHZ_PER_CELSIUS = 120.0
_CLOCK_STEP_MHZ = 15

REASONS = (
    "sw_power_cap",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)
"""The reasons for which drivers keep accumulated times."""


class Activity(NamedTuple):
    """What a stretch of time means for the card; shares are 0-1, traffic bytes a second."""

    busy: float = 0.0
    """Share of the time in which a kernel is resident."""
    power: float = 0.0
    """Share of the default power limit this would draw at full clocks."""
    sm: float = 0.0
    occupancy: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    rx: float = 0.0
    tx: float = 0.0
    nvlink: float = 0.0


class Device:
    """State of one card, moved on one tick at a time."""

    def __init__(
        self,
        card: Card,
        rng: random.Random,
        *,
        power_limit_watts: float | None = None,
        air_celsius: float | None = None,
        celsius_per_watt: float | None = None,
        temperature_celsius: float | None = None,
    ) -> None:
        self.card = card
        self.phases: deque[tuple[float, float, Activity]] = deque()
        self.samples: deque[tuple[int, int]] = deque(maxlen=BUFFERED_SAMPLES)
        """(tick at its end, whole percent), oldest first."""
        self.power_limit_watts = power_limit_watts or card.limit_watts
        # One card of a row of eight sits a little warmer than the next.
        self._air = (card.air_celsius if air_celsius is None else air_celsius) + rng.uniform(-1, 2)
        self._celsius_per_watt = celsius_per_watt or card.celsius_per_watt
        self.power_watts = card.idle_watts
        self.temperature_celsius = (
            self._air + card.idle_watts * self._celsius_per_watt
            if temperature_celsius is None
            else temperature_celsius
        )
        self.energy_joules = rng.uniform(1e7, 9e8)
        self.sm_clock_mhz = card.sm_clock_idle_mhz
        self.clock_ratio = 1.0
        self.idle_seconds = 60.0
        self.power_capped = False
        self.heat_capped = False
        self.extra_busy = 0.0
        self.sums = [0.0] * 6
        """Sums over ticks: sm, occupancy, tensor, dram, and NVLink in and out."""
        self.reason_seconds = dict.fromkeys(REASONS, 0.0)
        self.rx_bytes_per_second = 0.0
        self.tx_bytes_per_second = 0.0
        self._rng = rng
        self._recent_busy: deque[float] = deque(maxlen=TICKS_PER_SECOND)
        self._recent_dram: deque[float] = deque(maxlen=TICKS_PER_SECOND)
        self._sample_sum = 0.0
        self._power_share = 1.0 - math.exp(-TICK_SECONDS / _POWER_TAU_SECONDS)
        self._heat_share = 1.0 - math.exp(-TICK_SECONDS / _HEAT_TAU_SECONDS)

    @property
    def busy_percent(self) -> float:
        """Mean over the last second, in whole percent as drivers give it."""
        return _whole_percent(self._recent_busy)

    @property
    def memory_controller_percent(self) -> float:
        return _whole_percent(self._recent_dram)

    @property
    def asleep(self) -> bool:
        """Nothing ran for so long that the clocks went down."""
        return self.idle_seconds > _CLOCKS_STAY_UP_SECONDS

    def reasons(self) -> tuple[str, ...]:
        """The throttle reasons in force, in NVML's names."""
        if self.idle_seconds > _IDLE_AFTER_SECONDS:
            return ("gpu_idle",)
        if self.heat_capped:
            return ("sw_thermal_slowdown",)
        return ("sw_power_cap",) if self.power_capped else ()

    def settle(self) -> None:
        """Start at the temperature this power would settle at."""
        self.temperature_celsius = self._air + self.power_watts * self._celsius_per_watt

    def tick(self, index: int) -> None:
        """Move from tick ``index`` to the next."""
        activity = self._gather(index * TICK_SECONDS, (index + 1) * TICK_SECONDS)
        busy = activity.busy
        self._recent_busy.append(busy)
        self._recent_dram.append(activity.dram)
        self._sample_sum += busy
        if (index + 1) % TICKS_PER_SAMPLE == 0:
            mean = self._sample_sum / TICKS_PER_SAMPLE
            self.samples.append((index + 1, min(100, int(mean * 100 + 0.5))))
            self._sample_sum = 0.0
        self.idle_seconds = 0.0 if busy > 0.005 else self.idle_seconds + TICK_SECONDS
        self._move_power(activity.power)
        self._move_clocks(activity.power)
        sums = self.sums
        sums[0] += activity.sm
        sums[1] += activity.occupancy
        sums[2] += activity.tensor
        sums[3] += activity.dram
        sums[4] += activity.nvlink
        sums[5] += activity.nvlink
        self.rx_bytes_per_second = activity.rx
        self.tx_bytes_per_second = activity.tx

    def _gather(self, begin: float, end: float) -> Activity:
        """The mean activity between two times."""
        phases = self.phases
        while phases and phases[0][1] <= begin:
            phases.popleft()
        if not phases or phases[0][0] >= end:
            return _NOTHING
        if phases[0][0] <= begin and phases[0][1] >= end:
            return phases[0][2]
        total = [0.0] * 9
        for start, stop, activity in phases:
            if start >= end:
                break
            share = (min(stop, end) - max(start, begin)) * TICKS_PER_SECOND
            for channel, value in enumerate(activity):
                if value:
                    total[channel] += value * share
        return Activity(*total)

    def _move_power(self, load: float) -> None:
        card = self.card
        floor = card.idle_watts + (0.0 if self.asleep else card.ready_watts)
        wish = floor + max(0.0, load * card.limit_watts - floor) * (
            self.clock_ratio**_CLOCK_POWER_EXPONENT
        )
        wish *= 1.0 + self._rng.uniform(-0.012, 0.012)
        target = min(wish, self.power_limit_watts * 1.01)
        self.power_watts += (target - self.power_watts) * self._power_share
        self.energy_joules += self.power_watts * TICK_SECONDS
        settled = self._air + self.power_watts * self._celsius_per_watt
        self.temperature_celsius += (settled - self.temperature_celsius) * self._heat_share

    def _move_clocks(self, load: float) -> None:
        card = self.card
        over = self.temperature_celsius - (card.slowdown_celsius - 1.0)
        heat = card.sm_clock_mhz - max(0.0, over) * _THROTTLE_MHZ_PER_CELSIUS
        watts = load * card.limit_watts
        limit = self.power_limit_watts
        power = card.sm_clock_mhz * (
            1.0 if watts <= limit else (limit / watts) ** (1.0 / _CLOCK_POWER_EXPONENT)
        )
        clock = max(card.sm_clock_mhz * 0.3, min(heat, power))
        clock = int(clock / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ
        # Not every card's top clock is a multiple of the step (3105 is, 1410 is, 2418 is not).
        if heat >= card.sm_clock_mhz and power >= card.sm_clock_mhz:
            clock = card.sm_clock_mhz
        self.clock_ratio = clock / card.sm_clock_mhz
        self.heat_capped = heat < card.sm_clock_mhz
        self.power_capped = power < card.sm_clock_mhz and not self.heat_capped
        self.sm_clock_mhz = card.sm_clock_idle_mhz if self.asleep else clock
        if self.idle_seconds <= _IDLE_AFTER_SECONDS:
            if self.heat_capped:
                self.reason_seconds["sw_thermal_slowdown"] += TICK_SECONDS
            elif self.power_capped:
                self.reason_seconds["sw_power_cap"] += TICK_SECONDS


_NOTHING = Activity()


def _whole_percent(shares: deque[float]) -> float:
    if not shares:
        return 0.0
    return float(min(100, int(sum(shares) / len(shares) * 100 + 0.5)))
