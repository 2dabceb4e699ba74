"""Simulated GPUs: models of cards, their physics, and what a driver would report of them.

What runs on a card becomes power, heat, clocks and samples, tick by tick.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuwatch.core.model import BusySample, Gpu, GpuIdentity, GpuReading, Problem, ReasonSeconds
from gpuwatch.sources.nvml import messages, tables
from gpuwatch.sources.nvml.readings import GPM_ACTIVITIES, HEALTH_FIELDS, RATES

GIB = 1024**3
TICKS_PER_SECOND = 6
"""One tick is one sample of the driver's buffer; what happens within a tick is exact, since
the activity is a list of phases with their own times."""
TICK_SECONDS = 1.0 / TICKS_PER_SECOND
BUFFERED_SAMPLES = 120
"""Samples that drivers keep, as far as was seen: about twenty seconds."""


# -- cards -----------------------------------------------------------------------------------------

_ON_SERVERS = (*HEALTH_FIELDS, *RATES["nvlink"], "throttle_durations", "memory_temperature_celsius")
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
    unified: bool = False
    """GPU and host share one memory."""


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
GB10 = Card(
    name="NVIDIA GB10", memory_bytes=128 * GIB, limit_watts=100.0, idle_watts=5.0, ready_watts=6.0,
    sm_clock_mhz=2418, sm_clock_idle_mhz=208, memory_clock_mhz=8533, memory_clock_idle_mhz=8533,
    celsius_per_watt=0.48, compute_capability="12.1", idle_state=8, can_be_split=False,
    unified=True, lacks=("fan_percent", "power_limit_watts", *GPM_ACTIVITIES, *_ON_SERVERS),
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
    mute: tuple[str, ...] = ()
    """Readings (fields of ``GpuReading``) this card does not have."""
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


class Device:
    """State of one card, moved on one tick at a time."""

    def __init__(
        self, card: Card, rng: random.Random, cooling_fails_at: float | None = None
    ) -> None:
        self.card = card
        self.phases: deque[tuple[float, float, Activity]] = deque()
        """(start, end, activity) in order and apart, some of them ahead; between them nothing
        runs."""
        self.samples: deque[tuple[int, int]] = deque(maxlen=BUFFERED_SAMPLES)
        """(tick at its end, whole percent), oldest first."""
        self.power_watts = card.idle_watts
        self.energy_joules = rng.uniform(1e7, 9e8)
        self.clock_ratio = 1.0
        self.clock_mhz = card.sm_clock_mhz
        self.idle_seconds = 60.0
        self.is_hot = False
        self.hot_seconds = 0.0
        """Time in which heat held back what ran."""
        self.rx_bytes_per_second = 0.0
        self._rng = rng
        # One card of a row of eight sits a little warmer than the next.
        self._warmer = rng.uniform(-1.0, 2.0)
        self._air = card.air_celsius + self._warmer
        self._celsius_per_watt = card.celsius_per_watt
        self._failure_tick = (
            None if cooling_fails_at is None else round(cooling_fails_at * TICKS_PER_SECOND)
        )
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
        """Return the throttle reasons in force, in NVML's names."""
        if self.idle_seconds > _IDLE_AFTER_SECONDS:
            return ("gpu_idle",)
        return (_HOT,) if self.is_hot else ()

    def tick(self, index: int) -> None:
        if index == self._failure_tick:
            self._air = _FAILED_AIR_CELSIUS + self._warmer
            self._celsius_per_watt = _FAILED_CELSIUS_PER_WATT
        activity = self.activity(index * TICK_SECONDS, (index + 1) * TICK_SECONDS)
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
        self._move_clocks()
        self.rx_bytes_per_second = activity.rx

    def activity(self, begin: float, end: float) -> Activity:
        """Return the mean of what runs between two moments."""
        # Written out: this is the simulation's hottest loop.
        busy = power = sm = occupancy = tensor = dram = rx = nvlink = 0.0
        for start, stop, activity in reversed(self.phases):
            if stop <= begin:
                break
            if start >= end:
                continue
            if start <= begin and stop >= end:
                return activity
            share = (stop if stop < end else end) - (start if start > begin else begin)
            share /= end - begin
            busy += activity[0] * share
            power += activity[1] * share
            sm += activity[2] * share
            occupancy += activity[3] * share
            tensor += activity[4] * share
            dram += activity[5] * share
            rx += activity[6] * share
            nvlink += activity[7] * share
        return Activity(busy, power, sm, occupancy, tensor, dram, rx, nvlink)

    def forget_before(self, moment: float) -> None:
        while self.phases and self.phases[0][1] <= moment:
            self.phases.popleft()

    def _move_power(self, load: float, wobble: float) -> None:
        card = self.card
        floor = card.idle_watts if self.asleep else card.idle_watts + card.ready_watts
        wish = load * card.limit_watts
        if wish > floor:
            floor += (wish - floor) * self.clock_ratio**_CLOCK_POWER_EXPONENT
        floor *= 0.988 + 0.024 * wobble
        # The driver's power loop lets the limit be passed for moments only.
        limit = card.limit_watts * 1.01
        self.power_watts += ((floor if floor < limit else limit) - self.power_watts) * _POWER_SHARE
        self.energy_joules += self.power_watts * TICK_SECONDS
        settled = self._air + self.power_watts * self._celsius_per_watt
        self.temperature_celsius += (settled - self.temperature_celsius) * _HEAT_SHARE

    def _move_clocks(self) -> None:
        """Clocks fall with every degree above the slowdown; nothing here asks for more power than
        the limit."""
        top = self.card.sm_clock_mhz
        over = self.temperature_celsius - (self.card.slowdown_celsius - 1.0)
        self.is_hot = over > 0.0
        if not self.is_hot:
            self.clock_ratio, self.clock_mhz = 1.0, top
            return
        clock = max(top * _LOWEST_CLOCK_SHARE, top - over * _THROTTLE_MHZ_PER_CELSIUS)
        self.clock_mhz = int(clock / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ
        self.clock_ratio = self.clock_mhz / top
        if self.idle_seconds <= _IDLE_AFTER_SECONDS:
            self.hot_seconds += TICK_SECONDS


def _whole_percent(shares: deque[float]) -> float:
    return float(min(100, int(sum(shares) * 100.0 / TICKS_PER_SECOND + 0.5)))


# -- what the driver reports -----------------------------------------------------------------------

DRIVER_VERSION = "580.159.04"
CUDA_VERSION = "13.0"
_REFUSED_WHEN_SPLIT = (
    "busy_percent", "busy_samples", "memory_controller_percent", *GPM_ACTIVITIES
)  # fmt: skip
"""With MIG on, the driver refuses these for the whole card."""


class GpuView:
    """One card as the source shows it, with the marks its differences are taken from."""

    def __init__(self, number: int, slot: Slot, device: Device, *, seed: int, gpus: int) -> None:
        self.slot = slot
        self.device = device
        self.identity = _identity(number, slot, seed=seed, gpus=gpus)
        self.instances = [
            _instance(self.identity, slot, position) for position in range(len(slot.instances))
        ]
        self._missing = {
            *slot.card.lacks,
            *slot.mute,
            *(field for field, _ in slot.failing),
            *(_REFUSED_WHEN_SPLIT if slot.instances else ()),
        }
        self._hot_seconds = device.hot_seconds

    def lacks(self, field: str) -> bool:
        return field in self._missing

    def lost(self) -> Gpu:
        return Gpu(identity=self.identity, reading=GpuReading(), lost=True)

    def show(self, *, mean: Activity, used_bytes: int, samples: tuple[BusySample, ...]) -> Gpu:
        """Return the card; ``mean`` and ``samples`` are of the time since the look before."""
        values = self._values(mean, used_bytes, samples)
        known = {name: value for name, value in values.items() if name not in self._missing}
        return Gpu(identity=self.identity, reading=GpuReading(**known))

    def show_instance(self, position: int, *, mean: Activity, used_bytes: int, works: bool) -> Gpu:
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
        device, card = self.device, self.device.card
        asleep = device.asleep
        link, over = float(round(mean.nvlink)), device.temperature_celsius - 45.0
        return {
            "busy_percent": device.busy_percent,
            "busy_samples": samples,
            "memory_controller_percent": device.memory_controller_percent,
            "memory_used_bytes": min(used_bytes, card.memory_bytes),
            "memory_used_is_process_sum": card.unified,
            "power_watts": round(device.power_watts, 2),
            "power_limit_watts": card.limit_watts,
            "temperature_celsius": float(int(device.temperature_celsius)),
            "memory_temperature_celsius": float(int(device.temperature_celsius * 1.04 + 5.0)),
            # A fan stands still while the card is cool and follows its temperature when it is not.
            "fan_percent": 0.0 if over < 0.0 else float(min(100, int(30.0 + over * 1.6))),
            "sm_clock_mhz": device.sm_clock_mhz,
            "memory_clock_mhz": card.memory_clock_idle_mhz if asleep else card.memory_clock_mhz,
            "performance_state": card.idle_state if asleep else 0,
            "throttle_reasons": device.reasons(),
            "throttle_durations": self._durations(),
            # Cards that sleep deeply also let their link fall back.
            "pcie_generation": 1 if asleep and card.idle_state else card.pcie_generation,
            "pcie_width": 16,
            "pcie_rx_bytes_per_second": float(round(device.rx_bytes_per_second + 3e5)),
            "pcie_tx_bytes_per_second": 2e5,
            "encoder_percent": 0.0,
            "decoder_percent": 0.0,
            "energy_joules": round(device.energy_joules, 3),
            **dict.fromkeys(HEALTH_FIELDS, 0),
            "remapped_rows_pending": False,
            "remapped_rows_failed": False,
            "nvlink_rx_bytes_per_second": link,
            "nvlink_tx_bytes_per_second": link,
            **_shares(mean, 100.0),
        }

    def _durations(self) -> tuple[ReasonSeconds, ...]:
        before, self._hot_seconds = self._hot_seconds, self.device.hot_seconds
        hot = round(self._hot_seconds - before, 6)
        if not hot:
            return _NEVER
        return tuple(ReasonSeconds(one, hot if one == _HOT else 0.0) for one in REASONS)


_NEVER = tuple(ReasonSeconds(reason, 0.0) for reason in REASONS)


def _shares(mean: Activity, scale: float) -> dict[str, Any]:
    shares = (mean.sm, mean.occupancy, mean.tensor, mean.dram)
    return {
        name: round(min(100.0, share * scale), 1)
        for name, share in zip(GPM_ACTIVITIES, shares, strict=True)
    }


def _identity(number: int, slot: Slot, *, seed: int, gpus: int) -> GpuIdentity:
    card = slot.card
    head = f"{(seed * 0x9E3779B1 + number * 0x85EBCA77 + 0x5EED) & 0xFFFFFFFF:08x}"
    limit = None if "power_limit_watts" in card.lacks else card.limit_watts
    return GpuIdentity(
        index=number,
        uuid=f"GPU-{head}-51d0-4eed-a000-{number:012x}",
        name=card.name,
        pci_bus_id=f"{number // 8:08X}:{0x18 + 0x11 * (number % 8):02X}:00.0",
        driver_version=DRIVER_VERSION,
        cuda_version=CUDA_VERSION,
        memory_total_bytes=None if card.unified else card.memory_bytes,
        memory_unified=card.unified,
        power_limit_default_watts=limit,
        power_limit_max_watts=limit,
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


def losses(views: Sequence[GpuView], unix_at_zero: float) -> list[tuple[Slot, Problem]]:
    """Return each slot that loses its card, and the problem while it is lost."""
    return [
        (view.slot, messages.lost([view.identity], tables.GPU_IS_LOST, unix_at_zero + since))
        for view in views
        if (since := view.slot.lost_from) is not None
    ]


def standing_problems(views: Sequence[GpuView], since_unix: float) -> tuple[Problem, ...]:
    """Return problems that hold for as long as this machine runs, in the words of the driver's
    reader."""
    if not views:
        sentence = messages.cannot_start(tables.DRIVER_NOT_LOADED, False)
        return (Problem(source=messages.SOURCE, message=sentence, severity="error"),)
    failing: dict[tuple[str, str], list[GpuIdentity]] = {}
    for view in views:
        for reading in view.slot.failing:
            failing.setdefault(reading, []).append(view.identity)
    found = [
        messages.cannot_read([(words, field)], gpus, tables.UNKNOWN, since_unix)
        for (field, words), gpus in failing.items()
    ]
    for sentence, field, lacking in (
        (messages.NO_SAMPLES, "busy_samples", [v for v in views if v.lacks("busy_samples")]),
        (messages.NO_PROCESS_BUSY, "gpu_busy_percent", [v for v in views if v.slot.instances]),
    ):
        if lacking:
            gpus = [view.identity for view in lacking]
            found.append(messages.unsupported(sentence, field, gpus))
    return tuple(found)
