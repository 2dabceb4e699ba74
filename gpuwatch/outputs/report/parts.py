"""The parts of a report: GPUs and the machine around them, and what all parts have in common.

As in ``core.model``, every type is frozen, units are in the names and ``None`` means "not
measured"; the bounds hold for what is read from a file.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, field
from msgspec.structs import force_setattr

from gpuwatch.core.model import GpuKey

BUCKETS_MAX = 480

# 31 December 9998: what a date can be made of in any time zone.
Unix = Annotated[float, Meta(ge=0, le=253_370_764_800)]
Amount = Annotated[float, Meta(ge=0, le=1e18)]
Count = Annotated[int, Meta(ge=0, le=10**18)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Share = Annotated[float, Meta(ge=0, le=1)]
Values = Annotated[tuple[Amount | None, ...], Meta(max_length=BUCKETS_MAX)]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all parts of a report."""


replaced = msgspec.structs.replace


class Stretch(Part, frozen=True):
    """A span of time."""

    begin_unix_seconds: Unix
    end_unix_seconds: Unix
    cost_gpu_seconds: Amount | None = None
    """Loss in it, if known."""

    @property
    def seconds(self) -> float:
        return self.end_unix_seconds - self.begin_unix_seconds


class TimeProfile(Part, frozen=True):
    """A reading over time, one value per bucket of ``time.bucket_seconds``, the first of which
    begins with the report; null where nothing was measured."""

    minimum: Values = ()
    mean: Values = ()
    maximum: Values = ()

    def __post_init__(self) -> None:
        if not len(self.minimum) == len(self.mean) == len(self.maximum):
            raise ValueError("the lists of a time profile differ in length")

    def __bool__(self) -> bool:
        return any(value is not None for value in self.mean)


Profiles = dict[str, TimeProfile]


class Throttling(Part, frozen=True):
    """A reason for lower clocks, and how long it held."""

    reason: str
    """NVML's name for it, in snake case."""
    seconds: Amount


class GpuUsage(Part, frozen=True):
    """One GPU over the time it was there (of a job: in which the job was on it). Readings of the
    GPU (all but ``job_memory_peak_bytes``) include what other tenants did there."""

    uuid: GpuKey
    """UUID, or a made-up name where a log has none."""
    index: Count
    name: str
    mig_instance: Count | None = None
    machine: str | None = None
    """The one that it is in, in a report of several."""
    mig_parent_uuid: GpuKey | None = None
    """The card that a MIG instance is a part of."""
    memory_total_bytes: Count | None = None
    temperature_slowdown_celsius: Amount | None = None
    seen_seconds: Amount = 0.0
    """Time it was there, without gaps (of a job: with them)."""
    watched_seconds: Amount | None = None
    """Part of that for which its utilisation is known."""
    busy_readings: Count = 0
    """Looks that had it."""
    busy_percent: Percent | None = None
    """Share of the time watched with a kernel resident."""
    busy_low_percent: Percent | None = None
    """The lowest."""
    busy_high_percent: Percent | None = None
    """The highest."""
    busy_last_percent: Percent | None = None
    """The newest reading."""
    busy_seconds: Amount | None = None
    idle_seconds: Amount | None = None
    """Time watched without a kernel."""
    busy_from_samples: bool = False
    """From the driver's fine samples, at least in part."""
    busy_missing: str | None = None
    """Why it was never read, as a clause."""
    sm_active_percent: Percent | None = None
    """Mean SM activity (Hopper and later)."""
    tensor_active_percent: Percent | None = None
    job_memory_peak_bytes: Count | None = None
    """Of the job's processes on it, together."""
    memory_mean_bytes: Amount | None = None
    memory_peak_bytes: Count | None = None
    power_mean_watts: Amount | None = None
    power_peak_watts: Amount | None = None
    power_limit_watts: Amount | None = None
    """As last read."""
    energy_joules: Amount | None = None
    energy_from: str | None = None
    """``counter``: the GPU's own; ``power``: power times time."""
    throttled: tuple[Throttling, ...] | None = None
    """The longest first; reasons overlap. Empty: never throttled."""
    temperature_peak_celsius: Amount | None = None
    duty: Share | None = None
    """Share of the time in busy runs."""
    rhythm_seconds: Amount | None = None
    """For how long the shape of the busy signal was known."""
    oscillating_seconds: Amount | None = None
    """For how long of that it went between idle and busy again and again."""
    period_seconds: Amount | None = None
    """From one busy run to the next, the median; null: there was no rhythm."""
    cycles: Amount | None = None
    """Busy runs, in the time in which there was a period."""
    sm_clock_mean_mhz: Amount | None = None
    sm_clock_peak_mhz: Amount | None = None
    memory_clock_mean_mhz: Amount | None = None
    received_bytes: Amount | None = None
    """Host to GPU over PCIe: rates read, times the time."""
    received_seconds: Amount = 0.0
    """For how long those were read."""
    sent_bytes: Amount | None = None
    other_tenant_seconds: Amount = 0.0
    """Of a job: how long processes of others were on this GPU too."""
    other_tenants_peak: Count = 0
    other_users: tuple[str, ...] = ()
    lost: tuple[Stretch, ...] = ()
    """When it had fallen off the bus."""
    profiles: Profiles = field(default_factory=dict)
    """``busy_percent`` (of the fine samples), ``power_watts``, ``memory_used_bytes``,
    ``temperature_celsius``; those never read are left out."""

    def __post_init__(self) -> None:
        busy, watched = self.busy_seconds, self.watched_seconds
        if busy is not None and busy > (watched or 0.0) + 0.1:
            raise ValueError(f"GPU {self.label} was busy while unwatched")
        force_setattr(self, "busy_percent", share_percent(busy, watched))
        idle = None if busy is None or watched is None else max(0.0, watched - busy)
        force_setattr(self, "idle_seconds", idle)

    @property
    def label(self) -> str:
        """``0``; ``0.3`` for MIG instance 3 of GPU 0."""
        return str(self.index) if self.mig_instance is None else f"{self.index}.{self.mig_instance}"

    @property
    def busy_shown_percent(self) -> float | None:
        """The mean; where it was read once only, which is no mean, that reading."""
        once = self.busy_percent is None and self.busy_readings == 1
        return self.busy_last_percent if once else self.busy_percent

    @property
    def power_shown_watts(self) -> float | None:
        """The mean; where it was there for one moment, what it drew then."""
        return self.power_peak_watts if self.seen_seconds == 0.0 else self.power_mean_watts

    @property
    def throttled_seconds(self) -> float | None:
        """The longest of its reasons: they overlap."""
        if self.throttled is None:
            return None
        return max((one.seconds for one in self.throttled), default=0.0)


class Loss(Part, frozen=True):
    """GPU time lost to one thing."""

    to: str
    """A rule; ``start``: the start of a job; ``pauses``: those whose reason is not known; ``held``:
    memory was held and nothing ran; ``unknown``: what no finding explains."""
    gpu_seconds: Amount


class Phase(Part, frozen=True):
    """A part of the time in which GPUs did much the same."""

    kind: str
    """``start`` of the first work, ``steady`` work, ``idle`` between work (or without any), ``end``
    after the last."""
    gpus: tuple[GpuKey, ...]
    begin_unix_seconds: Unix
    end_unix_seconds: Unix
    seconds: Amount = 0.0
    """Of it, those in which the GPUs were read."""
    busy_percent: Percent | None = None
    idle_gpu_seconds: Amount = 0.0
    """GPU time without a kernel."""
    pauses: Count = 0
    """Of steady work, of each GPU."""
    paused_seconds: Amount = 0.0
    """All of them together."""
    lost: tuple[Loss, ...] = ()
    """The most first; the time of ``idle`` and ``end`` is lost only where a finding says so."""


class OpenQuestion(Part, frozen=True):
    """What could not be decided."""

    about: str
    """What the time was lost to, as in ``phases``."""
    says: str
    """A sentence: what was seen, the causes that are left, and what would decide."""
    gpus: tuple[GpuKey, ...]
    seconds: Amount = 0.0
    """For how long it was so."""
    lost_gpu_seconds: Amount = 0.0


class HostUsage(Part, frozen=True):
    """The machine around the GPUs."""

    cpu_mean_percent: Percent | None = None
    """Of all cores."""
    cpu_peak_percent: Percent | None = None
    cpu_iowait_mean_percent: Percent | None = None
    """Waiting for disks."""
    core_count: Count | None = None
    usable_cores: Amount | None = None
    """Cores that a job here may use."""
    memory_total_bytes: Count | None = None
    memory_mean_bytes: Amount | None = None
    memory_peak_bytes: Count | None = None
    swap_peak_bytes: Count | None = None
    shm_total_bytes: Count | None = None
    """Size of /dev/shm."""
    shm_peak_bytes: Count | None = None
    disk_read_bytes: Amount | None = None
    disk_written_bytes: Amount | None = None
    disk_read_peak_bytes_per_second: Amount | None = None
    disk_write_peak_bytes_per_second: Amount | None = None
    network_received_bytes: Amount | None = None
    network_sent_bytes: Amount | None = None
    profiles: Profiles = field(default_factory=dict)
    """``cpu_percent``, ``memory_used_bytes``, ``disk_read_bytes_per_second``,
    ``disk_write_bytes_per_second``."""


def share_percent(part: float | None, whole: float | None) -> float | None:
    if part is None or not whole:
        return None
    return min(100.0, 100.0 * part / whole)
