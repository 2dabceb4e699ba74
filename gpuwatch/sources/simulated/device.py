"""The physics of one simulated card: what runs on it becomes power, heat, clocks and samples."""

import math
import random
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.sources.simulated.cards import Card

TICKS_PER_SECOND = 6
"""One tick is one sample of the driver's buffer; what happens within a tick is exact, since
the activity is a list of phases with their own times."""
TICK_SECONDS = 1.0 / TICKS_PER_SECOND
BUFFERED_SAMPLES = 120
"""Kept by drivers, as far as was seen: about twenty seconds."""

_POWER_TAU_SECONDS = 0.35
_HEAT_TAU_SECONDS = 28.0
_CLOCKS_STAY_UP_SECONDS = 4.0
_IDLE_AFTER_SECONDS = 0.5
_CLOCK_POWER_EXPONENT = 2.2
_THROTTLE_MHZ_PER_CELSIUS = 120.0
_CLOCK_STEP_MHZ = 15
_LOWEST_CLOCK_SHARE = 0.3
_LIMIT_AIM = 0.99
"""The power loop aims a little below the limit."""

_POWER_SHARE = 1.0 - math.exp(-TICK_SECONDS / _POWER_TAU_SECONDS)
_HEAT_SHARE = 1.0 - math.exp(-TICK_SECONDS / _HEAT_TAU_SECONDS)

REASONS = (
    "sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)  # fmt: skip
"""The reasons for which drivers keep accumulated times."""


class Activity(NamedTuple):
    """A stretch of time as the card sees it; shares are 0-1, traffic is bytes a second."""

    busy: float = 0.0
    """Share of the time in which a kernel is resident."""
    power: float = 0.0
    """Share of the card's power limit this would draw at full clocks."""
    sm: float = 0.0
    occupancy: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    rx: float = 0.0
    tx: float = 0.0
    nvlink: float = 0.0


_NOTHING = Activity()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """How warm the air is and how well heat leaves the card."""

    air_celsius: float
    celsius_per_watt: float
    from_second: float = 0.0
    """When this takes the place of the card's own cooling."""


class Device:
    """State of one card, moved on one tick at a time."""

    def __init__(
        self,
        card: Card,
        rng: random.Random,
        *,
        power_limit_watts: float | None = None,
        cooling: Cooling | None = None,
    ) -> None:
        self.card = card
        self.phases: deque[tuple[float, float, Activity]] = deque()
        """(start, end, activity) in order and apart; between them nothing runs."""
        self.samples: deque[tuple[int, int]] = deque(maxlen=BUFFERED_SAMPLES)
        """(tick at its end, whole percent), oldest first."""
        self.power_limit_watts = (
            card.limit_watts if power_limit_watts is None else power_limit_watts
        )
        self.power_watts = card.idle_watts
        self.energy_joules = rng.uniform(1e7, 9e8)
        self.clock_ratio = 1.0
        self.clock_mhz = card.sm_clock_mhz
        self.idle_seconds = 60.0
        self.power_capped = False
        self.heat_capped = False
        self.sums = [0.0] * 5
        """Sums over ticks of the shares: SM, occupancy, tensor, DRAM; and NVLink traffic."""
        self.reason_seconds = dict.fromkeys(REASONS, 0.0)
        self.rx_bytes_per_second = 0.0
        self.tx_bytes_per_second = 0.0
        self._rng = rng
        # One card of a row of eight sits a little warmer than the next.
        self._warmer = rng.uniform(-1.0, 2.0)
        self._air = card.air_celsius + self._warmer
        self._celsius_per_watt = card.celsius_per_watt
        self._cooling = cooling
        self._cooling_tick = None if cooling is None else int(cooling.from_second / TICK_SECONDS)
        self.temperature_celsius = self._air + card.idle_watts * self._celsius_per_watt
        self._recent_busy: deque[float] = deque([0.0] * TICKS_PER_SECOND, TICKS_PER_SECOND)
        self._recent_dram: deque[float] = deque([0.0] * TICKS_PER_SECOND, TICKS_PER_SECOND)

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

    @property
    def sm_clock_mhz(self) -> int:
        return self.card.sm_clock_idle_mhz if self.asleep else self.clock_mhz

    def reasons(self) -> tuple[str, ...]:
        """The throttle reasons in force, in NVML's names."""
        if self.idle_seconds > _IDLE_AFTER_SECONDS:
            return ("gpu_idle",)
        if self.heat_capped:
            return ("sw_thermal_slowdown",)
        return ("sw_power_cap",) if self.power_capped else ()

    def tick(self, index: int) -> None:
        if index == self._cooling_tick and self._cooling is not None:
            self._air = self._cooling.air_celsius + self._warmer
            self._celsius_per_watt = self._cooling.celsius_per_watt
        activity = self._gather(index * TICK_SECONDS, (index + 1) * TICK_SECONDS)
        wobble = self._rng.random()
        busy = activity.busy
        self._recent_busy.append(busy)
        self._recent_dram.append(activity.dram)
        # Between kernels lie launch gaps of a few microseconds, now more, now fewer.
        self.samples.append((index + 1, int(busy * (100.0 - 1.8 * wobble * wobble) + 0.5)))
        if busy > 0.005:
            self.idle_seconds = 0.0
        else:
            self.idle_seconds += TICK_SECONDS
        self._move_power(activity.power, wobble)
        self._move_clocks(activity.power)
        if activity is not _NOTHING:
            sums = self.sums
            sums[0] += activity.sm
            sums[1] += activity.occupancy
            sums[2] += activity.tensor
            sums[3] += activity.dram
            sums[4] += activity.nvlink
        self.rx_bytes_per_second = activity.rx
        self.tx_bytes_per_second = activity.tx

    def _gather(self, begin: float, end: float) -> Activity:
        phases = self.phases
        while phases and phases[0][1] <= begin:
            phases.popleft()
        if not phases:
            return _NOTHING
        first_start, first_stop, first = phases[0]
        if first_start >= end:
            return _NOTHING
        if first_start <= begin and first_stop >= end:
            return first
        # Written out: this is the simulation's hottest loop.
        busy = power = sm = occupancy = tensor = dram = rx = tx = nvlink = 0.0
        for start, stop, activity in phases:
            if start >= end:
                break
            share = (stop if stop < end else end) - (start if start > begin else begin)
            share *= TICKS_PER_SECOND
            busy += activity[0] * share
            power += activity[1] * share
            sm += activity[2] * share
            occupancy += activity[3] * share
            tensor += activity[4] * share
            dram += activity[5] * share
            rx += activity[6] * share
            tx += activity[7] * share
            nvlink += activity[8] * share
        return Activity(busy, power, sm, occupancy, tensor, dram, rx, tx, nvlink)

    def _move_power(self, load: float, wobble: float) -> None:
        card = self.card
        floor = card.idle_watts if self.asleep else card.idle_watts + card.ready_watts
        wish = load * card.limit_watts
        if wish > floor:
            floor += (wish - floor) * self.clock_ratio**_CLOCK_POWER_EXPONENT
        floor *= 0.988 + 0.024 * wobble
        # The driver's power loop lets the limit be passed for moments only.
        limit = self.power_limit_watts * 1.01
        self.power_watts += ((floor if floor < limit else limit) - self.power_watts) * _POWER_SHARE
        self.energy_joules += self.power_watts * TICK_SECONDS
        settled = self._air + self.power_watts * self._celsius_per_watt
        self.temperature_celsius += (settled - self.temperature_celsius) * _HEAT_SHARE

    def _move_clocks(self, load: float) -> None:
        card = self.card
        top = card.sm_clock_mhz
        over = self.temperature_celsius - (card.slowdown_celsius - 1.0)
        watts = load * card.limit_watts
        self.heat_capped = over > 0.0
        self.power_capped = not self.heat_capped and watts > self.power_limit_watts
        if over <= 0.0 and watts <= self.power_limit_watts:
            self.clock_ratio = 1.0
            self.clock_mhz = top
            return
        heat = top - max(0.0, over) * _THROTTLE_MHZ_PER_CELSIUS
        floor = card.idle_watts + card.ready_watts
        share = (self.power_limit_watts * _LIMIT_AIM - floor) / max(1.0, watts - floor)
        power = top * min(1.0, max(0.0, share)) ** (1.0 / _CLOCK_POWER_EXPONENT)
        clock = max(top * _LOWEST_CLOCK_SHARE, min(heat, power))
        self.clock_mhz = int(clock / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ
        self.clock_ratio = self.clock_mhz / top
        if self.idle_seconds <= _IDLE_AFTER_SECONDS:
            reason = "sw_thermal_slowdown" if self.heat_capped else "sw_power_cap"
            self.reason_seconds[reason] += TICK_SECONDS


def _whole_percent(shares: deque[float]) -> float:
    return float(min(100, int(sum(shares) * 100.0 / TICKS_PER_SECOND + 0.5)))
