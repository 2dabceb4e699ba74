"""Simulated GPUs: models of cards, their physics, and what a driver would report of them.

Work on a card becomes power, heat, clocks and samples, tick by tick.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import Any, Generic, NamedTuple, TypeVar

from gpuwatch.core.model import BusySample, Gpu, GpuIdentity, GpuReading, Problem, ReasonSeconds
from gpuwatch.sources.nvml import messages, tables
from gpuwatch.sources.nvml.readings import (
    GPM_ACTIVITIES,
    HEALTH_FIELDS,
    LINK_ERROR_FIELDS,
    RATES,
)

GIB = 1024**3
TICKS_PER_SECOND = 6
"""One tick is one sample of the driver's buffer; what happens within a tick is exact, since
the activity is a list of phases with their own times."""
TICK_SECONDS = 1.0 / TICKS_PER_SECOND
BUFFERED_SAMPLES = 120
"""Samples that drivers keep, as far as was seen: about twenty seconds."""
WARM_UP_SECONDS = 60.0
"""How long a machine has run before its scenario begins, at time zero."""


# -- cards -----------------------------------------------------------------------------------------

_ON_SERVERS = (
    *(*HEALTH_FIELDS, *RATES["nvlink"], *tables.NVLINK_ERRORS),
    *("throttle_durations", "memory_temperature_celsius"),
)
"""Readings that only the cards of servers have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU model; what is not said is the H200's.

    Sizes, clocks and limits are those of the makers' data sheets and of what NVML reports for these
    cards; thermal figures are chosen so that idle and full load settle where such cards do.
    """

    name: str = "NVIDIA H200"
    memory_bytes: int = 150_754_820_096
    limit_watts: float = 700.0
    idle_watts: float = 75.0
    ready_watts: float = 42.0
    """Drawn on top of idle while the clocks are up but nothing runs."""
    sm_clock_mhz: int = 1980
    sm_clock_idle_mhz: int = 345
    memory_clock_mhz: int = 3201
    memory_clock_idle_mhz: int = 3201
    slowdown_celsius: float = 87.0
    shutdown_celsius: float = 92.0
    air_celsius: float = 25.0
    celsius_per_watt: float = 0.056
    pcie_generation: int = 5
    compute_capability: str = "9.0"
    idle_state: int = 0
    lacks: tuple[str, ...] = ("fan_percent",)
    """Readings (fields of ``GpuReading``) that its driver does not give."""
    can_be_split: bool = True
    """MIG can be switched on."""


H200 = Card()
A100 = Card(
    name="NVIDIA A100-SXM4-80GB", memory_bytes=80 * GIB, limit_watts=400.0, idle_watts=58.0,
    ready_watts=22.0, sm_clock_mhz=1410, sm_clock_idle_mhz=210, memory_clock_mhz=1593,
    memory_clock_idle_mhz=1593, celsius_per_watt=0.085, pcie_generation=4, compute_capability="8.0",
    lacks=("fan_percent", *GPM_ACTIVITIES),
)  # fmt: skip
RTX_4090 = Card(
    name="NVIDIA GeForce RTX 4090", memory_bytes=25_757_220_864, limit_watts=450.0, idle_watts=21.0,
    ready_watts=34.0, sm_clock_mhz=3105, sm_clock_idle_mhz=210, memory_clock_mhz=10501,
    memory_clock_idle_mhz=405, slowdown_celsius=84.0, shutdown_celsius=90.0, celsius_per_watt=0.092,
    pcie_generation=4, compute_capability="8.9", idle_state=8,
    lacks=(*GPM_ACTIVITIES, *_ON_SERVERS), can_be_split=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One card in the machine and what is the matter with it."""

    card: Card = H200
    cooling_fails_at: float | None = None
    lost_from: float | None = None
    lost_until: float = float("inf")
    instances: tuple[tuple[str, float, float], ...] = ()
    """MIG instances: (profile, share of the memory, share of the multiprocessors)."""
    failing: tuple[tuple[str, str], ...] = ()
    """(field, its name for a person) of readings that end in an error each time."""

    def is_lost(self, now: float) -> bool:
        return self.lost_from is not None and self.lost_from <= now < self.lost_until


# -- physics ---------------------------------------------------------------------------------------

_FAILED_AIR_CELSIUS, _FAILED_CELSIUS_PER_WATT = 42.0, 0.105
"""How warm the air is and how badly heat leaves a card whose cooling has failed."""
_POWER_TAU_SECONDS = 0.35
_HEAT_TAU_SECONDS = 28.0
_CLOCKS_STAY_UP_SECONDS = 4.0
_IDLE_AFTER_SECONDS = 0.5
_CLOCK_POWER_EXPONENT = 2.2
_THROTTLE_MHZ_PER_CELSIUS = 120.0
_CLOCK_STEP_MHZ = 15
_LOWEST_CLOCK_SHARE = 0.3
_POWER_SHARE = 1.0 - math.exp(-TICK_SECONDS / _POWER_TAU_SECONDS)
_HEAT_SHARE = 1.0 - math.exp(-TICK_SECONDS / _HEAT_TAU_SECONDS)

_HOT = "sw_thermal_slowdown"
REASONS = (
    "sw_power_cap", "sync_boost", _HOT, "hw_thermal_slowdown", "hw_power_brake_slowdown"
)  # fmt: skip
"""Reasons for which drivers keep accumulated times."""


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
    nvlink: float = 0.0


Value = TypeVar("Value")


class Timeline(Generic[Value]):
    """Values that hold over intervals, one after the other, some of which may lie ahead; between
    them is nothing. Times are simulated seconds."""

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: deque[tuple[float, float, Value]] = deque()

    def add(self, start: float, end: float, value: Value) -> None:
        """Let ``value`` hold from ``start``, which is no earlier than ends before, to ``end``."""
        if end > start:
            self._intervals.append((start, end, value))

    def between(self, begin: float, end: float) -> list[tuple[float, Value]]:
        """Return (seconds, value) of all that holds between two moments, the newest first."""
        found: list[tuple[float, Value]] = []
        for start, stop, value in reversed(self._intervals):
            if stop <= begin:
                break
            if start < end:
                seconds = (stop if stop < end else end) - (start if start > begin else begin)
                found.append((seconds, value))
        return found

    def at(self, now: float) -> Value | None:
        """Return what holds at a moment."""
        for start, stop, value in reversed(self._intervals):
            if start <= now:
                return value if now < stop else None
        return None

    def forget_before(self, moment: float) -> None:
        while self._intervals and self._intervals[0][1] <= moment:
            self._intervals.popleft()


class SimulatedGpu:
    """One card, moved on one tick at a time, and what a driver reports of it: some of that is
    counted from one report to the next."""

    def __init__(
        self, number: int, slot: Slot, rng: random.Random, *, seed: int, gpus: int
    ) -> None:
        card = slot.card
        self.slot, self.card = slot, card
        self.phases: Timeline[Activity] = Timeline()
        self.samples: deque[tuple[int, int]] = deque(maxlen=BUFFERED_SAMPLES)
        """(tick at its end, whole percent), oldest first."""
        self.power_watts = card.idle_watts
        self.energy_joules = rng.uniform(1e7, 9e8)
        self.clock_ratio = 1.0
        self.identity = _identity(number, slot, seed=seed, gpus=gpus)
        self.instances = [
            _instance(self.identity, slot, position) for position in range(len(slot.instances))
        ]
        self._missing = {
            *card.lacks,
            *(field for field, _ in slot.failing),
            *(_REFUSED_WHEN_SPLIT if slot.instances else ()),
        }
        self._clock_mhz = card.sm_clock_mhz
        self._idle_seconds = 60.0
        self._is_hot = False
        self._hot_seconds = self._hot_seconds_reported = 0.0
        """Time in which heat held back what ran."""
        self._ended = 0.0
        self._rng = rng
        # One card of a row of eight sits a little warmer than the next.
        self._warmer = rng.uniform(-1.0, 2.0)
        self._air = card.air_celsius + self._warmer
        self._celsius_per_watt = card.celsius_per_watt
        self._temperature_celsius = self._air + card.idle_watts * self._celsius_per_watt

    def tick(self, index: int) -> None:
        begin, self._ended = index * TICK_SECONDS, (index + 1) * TICK_SECONDS
        failing = self.slot.cooling_fails_at
        if failing is not None and index == round(failing * TICKS_PER_SECOND):
            self._air = _FAILED_AIR_CELSIUS + self._warmer
            self._celsius_per_watt = _FAILED_CELSIUS_PER_WATT
        activity = self.activity(begin, self._ended)
        wobble = self._rng.random()
        # Between kernels lie launch gaps of a few microseconds, now more, now fewer.
        self.samples.append((index + 1, int(activity.busy * (100.0 - 1.8 * wobble * wobble) + 0.5)))
        self._idle_seconds = 0.0 if activity.busy > 0.005 else self._idle_seconds + TICK_SECONDS
        self._move_power(activity.power, wobble)
        self._move_clocks()

    def activity(self, begin: float, end: float) -> Activity:
        """Return the mean of what runs between two moments."""
        means = [0.0] * len(Activity._fields)
        for seconds, activity in self.phases.between(begin, end):
            if seconds == end - begin:
                return activity
            share = seconds / (end - begin)
            means = [mean + share * one for mean, one in zip(means, activity, strict=True)]
        return Activity(*means)

    def _move_power(self, load: float, wobble: float) -> None:
        card = self.card
        watts = card.idle_watts if self._asleep else card.idle_watts + card.ready_watts
        wish = load * card.limit_watts
        if wish > watts:
            watts += (wish - watts) * self.clock_ratio**_CLOCK_POWER_EXPONENT
        # The driver's power loop lets the limit be passed for moments only.
        watts = min(watts * (0.988 + 0.024 * wobble), card.limit_watts * 1.01)
        self.power_watts += (watts - self.power_watts) * _POWER_SHARE
        self.energy_joules += self.power_watts * TICK_SECONDS
        settled = self._air + self.power_watts * self._celsius_per_watt
        self._temperature_celsius += (settled - self._temperature_celsius) * _HEAT_SHARE

    def _move_clocks(self) -> None:
        """Clocks fall with every degree above the slowdown; nothing here asks for more power than
        the limit."""
        top = self.card.sm_clock_mhz
        over = self._temperature_celsius - (self.card.slowdown_celsius - 1.0)
        self._is_hot = over > 0.0
        self._clock_mhz = top
        if self._is_hot:
            clock = max(top * _LOWEST_CLOCK_SHARE, top - over * _THROTTLE_MHZ_PER_CELSIUS)
            self._clock_mhz = int(clock / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ
            self._hot_seconds += 0.0 if self._idle else TICK_SECONDS
        self.clock_ratio = self._clock_mhz / top

    @property
    def _idle(self) -> bool:
        return self._idle_seconds > _IDLE_AFTER_SECONDS

    @property
    def _asleep(self) -> bool:
        """Nothing ran for so long that the clocks went down."""
        return self._idle_seconds > _CLOCKS_STAY_UP_SECONDS

    # -- what the driver reports -------------------------------------------------------------------

    def sampled_percent(self, seconds: float) -> float:
        """Return the mean of the samples of the last ``seconds``, as the driver has it of each
        process, too."""
        count = max(1, round(seconds / TICK_SECONDS))
        return fmean([percent for _, percent in islice(reversed(self.samples), count)] or [0.0])

    def lacks(self, field: str) -> bool:
        return field in self._missing

    def report(
        self, *, mean: Activity, used_bytes: int, samples: tuple[BusySample, ...], now: float
    ) -> Gpu:
        """Return the card; ``mean`` and ``samples`` are of the time since the report before."""
        if self.slot.is_lost(now):
            return Gpu(identity=self.identity, reading=GpuReading(), lost=True)
        values = self._values(mean, used_bytes, samples)
        known = {name: value for name, value in values.items() if name not in self._missing}
        return Gpu(identity=self.identity, reading=GpuReading(**known))

    def report_instance(
        self, position: int, *, mean: Activity, used_bytes: int, works: bool
    ) -> Gpu:
        """Return a MIG instance: the driver knows its memory and its GPM activities, no more.
        ``works``: it is the instance that does what the card does."""
        identity = self.instances[position]
        scale = 100.0 / self.slot.instances[position][2] if works else 0.0
        reading = GpuReading(
            memory_used_bytes=min(used_bytes, identity.memory_total_bytes or 0),
            **_shares(mean, scale),
        )
        return Gpu(identity=identity, reading=reading)

    def _values(
        self, mean: Activity, used_bytes: int, samples: tuple[BusySample, ...]
    ) -> dict[str, Any]:
        card, asleep, celsius = self.card, self._asleep, self._temperature_celsius
        # Drivers report the last second.
        last = self.activity(self._ended - 1.0, self._ended)
        link = float(round(mean.nvlink))
        running = self.activity(self._ended - TICK_SECONDS, self._ended)
        return {
            "busy_percent": _whole_percent(last.busy),
            "busy_samples": samples,
            "memory_controller_percent": _whole_percent(last.dram),
            "memory_used_bytes": min(used_bytes, card.memory_bytes),
            "power_watts": round(self.power_watts, 2),
            "power_limit_watts": card.limit_watts,
            "temperature_celsius": float(int(celsius)),
            "memory_temperature_celsius": float(int(celsius * 1.04 + 5.0)),
            # A fan stands still while the card is cool and follows its temperature when it is not.
            "fan_percent": 0.0 if celsius < 45.0 else float(min(100, int(celsius * 1.6 - 42.0))),
            "sm_clock_mhz": card.sm_clock_idle_mhz if asleep else self._clock_mhz,
            "memory_clock_mhz": card.memory_clock_idle_mhz if asleep else card.memory_clock_mhz,
            "performance_state": card.idle_state if asleep else 0,
            "throttle_reasons": ("gpu_idle",) if self._idle else (_HOT,) * self._is_hot,
            "throttle_durations": self._durations(),
            # Cards that sleep deeply also let their link fall back.
            "pcie_generation": 1 if asleep and card.idle_state else card.pcie_generation,
            "pcie_width": 16,
            "pcie_rx_bytes_per_second": float(round(running.rx + 3e5)),
            "pcie_tx_bytes_per_second": 2e5,
            "encoder_percent": 0.0,
            "decoder_percent": 0.0,
            "energy_joules": round(self.energy_joules, 3),
            **dict.fromkeys((*HEALTH_FIELDS, *LINK_ERROR_FIELDS), 0),
            "remapped_rows_pending": False,
            "remapped_rows_failed": False,
            "nvlink_rx_bytes_per_second": link,
            "nvlink_tx_bytes_per_second": link,
            **_shares(mean, 100.0),
        }

    def _durations(self) -> tuple[ReasonSeconds, ...]:
        hot = round(self._hot_seconds - self._hot_seconds_reported, 6)
        self._hot_seconds_reported = self._hot_seconds
        return tuple(ReasonSeconds(one, hot if one == _HOT else 0.0) for one in REASONS)


DRIVER_VERSION, CUDA_VERSION = "580.159.04", "13.0"
_REFUSED_WHEN_SPLIT = (
    "busy_percent", "busy_samples", "memory_controller_percent", *GPM_ACTIVITIES
)  # fmt: skip
"""Readings that the driver refuses for a whole card with MIG on."""


def _whole_percent(share: float) -> float:
    return float(min(100, int(share * 100.0 + 0.5)))


def _shares(mean: Activity, scale: float) -> dict[str, Any]:
    shares = (mean.sm, mean.occupancy, mean.tensor, mean.dram)
    return {
        name: round(min(100.0, share * scale), 1)
        for name, share in zip(GPM_ACTIVITIES, shares, strict=True)
    }


def _identity(number: int, slot: Slot, *, seed: int, gpus: int) -> GpuIdentity:
    card = slot.card
    head = f"{(seed * 0x9E3779B1 + number * 0x85EBCA77 + 0x5EED) & 0xFFFFFFFF:08x}"
    return GpuIdentity(
        index=number,
        uuid=f"GPU-{head}-51d0-4eed-a000-{number:012x}",
        name=card.name,
        pci_bus_id=f"{number // 8:08X}:{0x18 + 0x11 * (number % 8):02X}:00.0",
        driver_version=DRIVER_VERSION,
        cuda_version=CUDA_VERSION,
        memory_total_bytes=card.memory_bytes,
        power_limit_default_watts=card.limit_watts,
        power_limit_max_watts=card.limit_watts,
        temperature_slowdown_celsius=card.slowdown_celsius,
        temperature_shutdown_celsius=card.shutdown_celsius,
        sm_clock_max_mhz=card.sm_clock_mhz,
        memory_clock_max_mhz=card.memory_clock_mhz,
        pcie_generation_max=card.pcie_generation,
        pcie_width_max=16,
        compute_capability=card.compute_capability,
        mig_mode=bool(slot.instances) if card.can_be_split else None,
        numa_node=number * 2 // max(1, gpus),
    )


def _instance(parent: GpuIdentity, slot: Slot, position: int) -> GpuIdentity:
    profile, share, _ = slot.instances[position]
    number = position + 1
    return parent.divided(
        uuid=f"MIG{parent.uuid[3:-1]}{number:x}",
        name=f"{parent.name} MIG {profile}",
        memory_total_bytes=int((parent.memory_total_bytes or 0) * share),
        mig_instance=number,
    )


def problems_now(gpus: Sequence[SimulatedGpu], now: float, unix_at_zero: float) -> list[Problem]:
    """Return what a reader of this driver would complain of, in its words; ``unix_at_zero`` is when
    the scenario began."""
    if not gpus:
        sentence = messages.cannot_start(tables.DRIVER_NOT_LOADED, False)
        return [Problem(source=messages.SOURCE, message=sentence, severity="error")]
    found = [
        messages.lost([gpu.identity], tables.GPU_IS_LOST, unix_at_zero + (gpu.slot.lost_from or 0))
        for gpu in gpus
        if gpu.slot.is_lost(now)
    ]
    since = unix_at_zero - WARM_UP_SECONDS
    for field, words in dict.fromkeys(one for gpu in gpus for one in gpu.slot.failing):
        those = [gpu.identity for gpu in gpus if (field, words) in gpu.slot.failing]
        found.append(messages.cannot_read([(words, field)], those, tables.UNKNOWN, since))
    if those := [gpu.identity for gpu in gpus if gpu.slot.instances]:
        found.append(messages.no_utilisation(those, divided=True))
    whole = [gpu for gpu in gpus if not gpu.slot.instances]
    if those := [gpu.identity for gpu in whole if gpu.lacks("busy_samples")]:
        found.append(messages.unsupported(messages.NO_SAMPLES, "busy_samples", those))
    return found
