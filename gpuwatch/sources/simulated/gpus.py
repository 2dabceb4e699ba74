"""Simulated cards as a driver would report them: identities, readings and what fails."""

from collections.abc import Sequence
from typing import Any

from gpuwatch.core.model import BusySample, Gpu, GpuIdentity, GpuReading, Problem, ReasonSeconds
from gpuwatch.sources.nvml import messages, tables
from gpuwatch.sources.nvml.readings import GPM_ACTIVITIES, HEALTH_FIELDS, RATES
from gpuwatch.sources.simulated.device import REASONS, Device
from gpuwatch.sources.simulated.plans import Slot

DRIVER_VERSION = "580.159.04"
CUDA_VERSION = "13.0"

_FIELDS_OF = {
    "gpm": GPM_ACTIVITIES,
    "ecc": HEALTH_FIELDS,
    "nvlink": RATES["nvlink"],
    "fan": ("fan_percent",),
    "accumulators": ("throttle_durations",),
    "memory_temperature": ("memory_temperature_celsius",),
    "power_limit_known": ("power_limit_watts",),
}
"""Readings that a card has if its model has this."""
_REFUSED_WHEN_SPLIT = (
    "busy_percent",
    "busy_samples",
    "memory_controller_percent",
    *_FIELDS_OF["gpm"],
)
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
        split = bool(slot.instances)
        self._missing = {
            *slot.mute,
            *(field for field, _ in slot.failing),
            *(_REFUSED_WHEN_SPLIT if split else ()),
            *(
                field
                for flag, fields in _FIELDS_OF.items()
                for field in fields
                if not getattr(slot.card, flag)
            ),
        }
        self._sums = list(device.sums)
        self._reasons = list(device.reason_seconds.values())
        self._means = (0.0,) * len(device.sums)

    def lacks(self, field: str) -> bool:
        return field in self._missing

    def lost(self) -> Gpu:
        return Gpu(identity=self.identity, reading=GpuReading(), lost=True)

    def show(
        self, *, now: float, ticks: int, used_bytes: int, samples: tuple[BusySample, ...]
    ) -> Gpu:
        """The card at ``now``, ``ticks`` after the last time; ``samples`` are the new ones."""
        values = self._values(now, ticks, used_bytes, samples)
        known = {name: value for name, value in values.items() if name not in self._missing}
        return Gpu(identity=self.identity, reading=GpuReading(**known))

    def show_instance(self, position: int, *, used_bytes: int, works: bool) -> Gpu:
        """A MIG instance: the driver knows its memory and its GPM activities, no more. Call it
        after ``show``. ``works``: it is the instance that does what the card does."""
        identity = self.instances[position]
        scale = 100.0 / self.slot.instances[position][2] if works else 0.0
        reading = GpuReading(
            memory_used_bytes=min(used_bytes, identity.memory_total_bytes or 0),
            **(_activities(self._means, scale) if self.device.card.gpm else {}),
        )
        return Gpu(identity=identity, reading=reading)

    def _values(
        self, now: float, ticks: int, used_bytes: int, samples: tuple[BusySample, ...]
    ) -> dict[str, Any]:
        device, slot, card = self.device, self.slot, self.device.card
        asleep = device.asleep
        errors = self._errors(now)
        means = self._mean_activities(ticks)
        link, over = float(round(means[4])), device.temperature_celsius - 45.0
        return {
            "busy_percent": device.busy_percent,
            "busy_samples": samples,
            "memory_controller_percent": device.memory_controller_percent,
            "memory_used_bytes": min(used_bytes, card.memory_bytes),
            "memory_used_is_process_sum": card.unified,
            "power_watts": round(device.power_watts, 2),
            "power_limit_watts": device.power_limit_watts,
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
            "pcie_generation": 1
            if asleep and card.idle_state
            else slot.pcie_generation or card.pcie_generation,
            "pcie_width": slot.pcie_width,
            "pcie_rx_bytes_per_second": float(round(device.rx_bytes_per_second + 3e5)),
            "pcie_tx_bytes_per_second": float(round(device.tx_bytes_per_second + 2e5)),
            "encoder_percent": 0.0,
            "decoder_percent": 0.0,
            "energy_joules": round(device.energy_joules, 3),
            "ecc_corrected_count": errors * 3,
            "ecc_uncorrected_count": errors // 8,
            "remapped_rows_correctable": errors // 5,
            "remapped_rows_uncorrectable": errors // 8,
            "remapped_rows_pending": errors >= 8,
            "remapped_rows_failed": False,
            "nvlink_rx_bytes_per_second": link,
            "nvlink_tx_bytes_per_second": link,
            **_activities(means, 100.0),
        }

    def _mean_activities(self, ticks: int) -> tuple[float, ...]:
        """Means since the last look, or those of the last look when no tick has passed."""
        if ticks > 0:
            sums = self.device.sums
            self._means = tuple(
                [(new - old) / ticks for new, old in zip(sums, self._sums, strict=True)]
            )
            self._sums = list(sums)
        return self._means

    def _durations(self) -> tuple[ReasonSeconds, ...]:
        before = self._reasons
        after = list(self.device.reason_seconds.values())
        self._reasons = after
        if after == before:
            return _NEVER
        return tuple(
            ReasonSeconds(reason, round(new - old, 6))
            for reason, new, old in zip(self.device.reason_seconds, after, before, strict=True)
        )

    def _errors(self, now: float) -> int:
        """Memory errors so far: one every three seconds once they began."""
        if self.slot.errors_from is None or now < self.slot.errors_from:
            return 0
        return 1 + int((now - self.slot.errors_from) / 3.0)


def _activities(means: Sequence[float], scale: float) -> dict[str, Any]:
    return {
        name: round(min(100.0, share * scale), 1)
        for name, share in zip(_FIELDS_OF["gpm"], means, strict=False)
    }


def _identity(number: int, slot: Slot, *, seed: int, gpus: int) -> GpuIdentity:
    card = slot.card
    head = f"{(seed * 0x9E3779B1 + number * 0x85EBCA77 + 0x5EED) & 0xFFFFFFFF:08x}"
    limit = card.limit_watts if card.power_limit_known else None
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
        mig_mode=bool(slot.instances) if card.nvlink else None,
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


_NEVER = tuple(ReasonSeconds(reason, 0.0) for reason in REASONS)


def losses(views: Sequence[GpuView], unix_at_zero: float) -> list[tuple[int, Problem]]:
    """(number of the GPU, the problem while it is lost)."""
    return [
        (number, messages.lost([view.identity], tables.GPU_IS_LOST, unix_at_zero + since))
        for number, view in enumerate(views)
        if (since := view.slot.lost_from) is not None
    ]


def standing_problems(views: Sequence[GpuView], since_unix: float) -> tuple[Problem, ...]:
    """Problems that hold for as long as this machine runs, in the words of the driver's reader."""
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
