"""What a recording says, added up: the words of ``gpuwatch report FILE``.

As in ``model``, every type is frozen, units are in the names and ``None`` means "not measured".
Times are Unix seconds; those of a log without dates count from 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuwatch.core.model import GpuIdentity, GpuKey, ProcessKey
from gpuwatch.diagnosis.finding import Finding, NotTold
from gpuwatch.jobs.report.report import Course, GpuReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of the time, with what it cost where that is known."""

    begin_unix_seconds: float
    end_unix_seconds: float
    cost_gpu_seconds: float | None = None

    @property
    def seconds(self) -> float:
        return self.end_unix_seconds - self.begin_unix_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSummary:
    """One GPU over the time it was in the recording."""

    identity: GpuIdentity
    core: GpuReport
    """Busy and idle time, memory, power, energy, throttling: as a job's report has them."""
    duty: float | None = None
    """0 to 1: share of the time in busy runs."""
    rhythm_seconds: float | None = None
    """For how long the shape of its busy signal could be told."""
    oscillating_seconds: float | None = None
    """For how long of that it went between idle and busy again and again."""
    period_seconds: float | None = None
    """The middle one of the periods seen; ``None``: there was none."""
    cycles: float | None = None
    """From one busy run to the next, in the time in which there was a period."""
    sm_clock_mean_mhz: float | None = None
    sm_clock_peak_mhz: float | None = None
    memory_clock_mean_mhz: float | None = None
    memory_mean_bytes: float | None = None
    received_bytes: float | None = None
    """Host to GPU over PCIe: the rates that were read, times the time."""
    received_seconds: float = 0.0
    sent_bytes: float | None = None
    lost: tuple[Stretch, ...] = ()
    courses: Mapping[str, Course] = field(default_factory=dict)
    """By the names of ``GpuReading``: ``busy_percent`` (of the fine samples), ``power_watts``,
    ``memory_used_bytes``, ``temperature_celsius``. Readings never taken are not in it."""

    @property
    def uuid(self) -> GpuKey:
        return self.identity.uuid

    @property
    def label(self) -> str:
        return self.core.label


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSummary:
    """The machine around the GPUs."""

    cpu_mean_percent: float | None = None
    cpu_peak_percent: float | None = None
    cpu_iowait_mean_percent: float | None = None
    core_count: int | None = None
    usable_cores: float | None = None
    memory_total_bytes: int | None = None
    memory_mean_bytes: float | None = None
    memory_peak_bytes: int | None = None
    swap_peak_bytes: int | None = None
    shm_total_bytes: int | None = None
    shm_peak_bytes: int | None = None
    disk_read_bytes: float | None = None
    disk_written_bytes: float | None = None
    disk_read_peak_bytes_per_second: float | None = None
    disk_write_peak_bytes_per_second: float | None = None
    network_received_bytes: float | None = None
    network_sent_bytes: float | None = None
    courses: Mapping[str, Course] = field(default_factory=dict)
    """``cpu_percent``, ``memory_used_bytes``, ``disk_read_bytes_per_second``,
    ``disk_write_bytes_per_second``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingUse:
    """A finding over the whole time: when it held, and what it cost."""

    finding: Finding
    """As it was when it was surest."""
    gpus: tuple[GpuKey, ...] = ()
    """All it was ever about."""
    stretches: tuple[Stretch, ...] = ()
    cost_gpu_seconds: float | None = None
    holds: bool = False
    """At the end of the time."""

    @property
    def seconds(self) -> float:
        return sum(stretch.seconds for stretch in self.stretches)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """What one process used while it was in the recording."""

    pid: int
    started_at_unix_seconds: float | None = None
    user: str | None = None
    name: str | None = None
    command: str | None = None
    role: str | None = None
    """As in a job's members."""
    gpus: tuple[GpuKey, ...] = ()
    gpu_held_seconds: float = 0.0
    """Time on GPUs, each counted."""
    gpu_busy_seconds: float | None = None
    """Its share of the GPUs' time where the driver tells it."""
    gpu_memory_peak_bytes: int | None = None
    """On all GPUs together."""
    cpu_core_seconds: float | None = None
    memory_peak_bytes: int | None = None
    read_bytes: float | None = None
    written_bytes: float | None = None
    first_unix_seconds: float = 0.0
    last_unix_seconds: float = 0.0

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """What one job used while it was in the recording, all its processes together."""

    pid: int
    started_at_unix_seconds: float | None = None
    user: str | None = None
    command: str | None = None
    slurm_job: str | None = None
    ranks: int = 0
    loader_workers: int | None = None
    """As last seen."""
    pinned_memory: bool | None = None
    samples_per_second: float | None = None
    data_wait_percent: float | None = None
    """Both as the job told of its own loops, over the time in which they ran; a wait is the mean
    of its ranks'."""
    data_wait_most_percent: float | None = None
    data_wait_most_rank: int | None = None
    """Of the rank that waited most, where several told."""
    told_seconds: float = 0.0
    """For how long those loops ran."""
    gpus: tuple[GpuKey, ...] = ()
    gpu_held_seconds: float = 0.0
    gpu_busy_seconds: float | None = None
    """Of the GPUs it was on, whoever kept them busy."""
    gpu_memory_peak_bytes: int | None = None
    cpu_core_seconds: float | None = None
    memory_peak_bytes: int | None = None
    """PSS where it is known for all its processes, else the sum of RSS."""
    read_bytes: float | None = None
    written_bytes: float | None = None
    first_unix_seconds: float = 0.0
    last_unix_seconds: float = 0.0
    exit_code: int | None = None

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSeen:
    """What was read, and how well that went."""

    name: str
    kind: str
    """``recording``, ``query``, ``dmon`` or ``pmon``."""
    lines: int = 0
    left_out_lines: int = 0
    notes: tuple[str, ...] = ()
    """Sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A recording, or the part of it that was asked for."""

    file: FileSeen
    machine: str
    simulated: bool
    begin_unix_seconds: float
    end_unix_seconds: float
    snapshots: int
    interval_seconds: float | None
    covered_seconds: float
    """Of the time from begin to end, less the gaps."""
    gap_count: int = 0
    gap_seconds: float = 0.0
    gaps: tuple[Stretch, ...] = ()
    """The longest of them, in the order of their time."""
    clock_set_back: int = 0
    """Times that the wall clock went back; what followed is told as if it had not."""
    course_seconds: float = 1.0
    """Width of the courses' buckets, the first of which begins at ``begin_unix_seconds``."""
    pid: int | None = None
    """The report is about the job of this process alone."""
    decided: bool = True
    """False: at the end too little had been seen to say that nothing (else) was wrong."""
    gpus: tuple[GpuSummary, ...] = ()
    host: HostSummary = HostSummary()
    findings: tuple[FindingUse, ...] = ()
    """Those in danger first, then by cost (``diagnosis.finding.rank``)."""
    not_told: tuple[NotTold, ...] = ()
    jobs: tuple[JobUse, ...] = ()
    """Those that used most GPU time first."""
    told_seconds: float = 0.0
    """For how long a job that told of its own loops was in one."""
    processes: tuple[ProcessUse, ...] = ()
    left_out_processes: int = 0
    """Of those that used little, where there were very many."""
    problems: tuple[str, ...] = ()
    """What could not be read on the machine, in sentences."""

    @property
    def seconds(self) -> float:
        return self.end_unix_seconds - self.begin_unix_seconds

    @property
    def has_dates(self) -> bool:
        """False for a log without dates, whose times count from 1970."""
        return self.begin_unix_seconds > 366 * 86400.0

    @property
    def cards(self) -> tuple[GpuSummary, ...]:
        """The GPUs less those MIG instances whose card is there too: adding both up would count
        twice."""
        there = {gpu.uuid for gpu in self.gpus}
        return tuple([gpu for gpu in self.gpus if gpu.identity.mig_parent_uuid not in there])

    @property
    def watched_gpu_seconds(self) -> float | None:
        return total(gpu.core.watched_seconds for gpu in self.cards)

    @property
    def busy_gpu_seconds(self) -> float | None:
        return total(gpu.core.busy_seconds for gpu in self.cards)

    @property
    def idle_gpu_seconds(self) -> float | None:
        return total(gpu.core.idle_seconds for gpu in self.cards)

    @property
    def busy_percent(self) -> float | None:
        busy, watched = self.busy_gpu_seconds, self.watched_gpu_seconds
        if busy is None or not watched:
            return None
        return min(100.0, 100.0 * busy / watched)

    @property
    def energy_joules(self) -> float | None:
        return total(gpu.core.energy_joules for gpu in self.cards)

    @property
    def power_mean_watts(self) -> float | None:
        return total(gpu.core.power_mean_watts for gpu in self.cards)

    @property
    def duty(self) -> float | None:
        return _weighted([(gpu.duty, gpu.rhythm_seconds) for gpu in self.cards])

    @property
    def oscillating_share(self) -> float | None:
        """0 to 1, of the time in which the shape of the busy signal could be told."""
        swinging = total(gpu.oscillating_seconds for gpu in self.cards)
        told = total(gpu.rhythm_seconds for gpu in self.cards)
        return None if swinging is None or not told else swinging / told

    @property
    def cycles_per_minute(self) -> float | None:
        """Of one GPU, in the time in which there was a period."""
        rates = [60.0 / gpu.period_seconds for gpu in self.cards if gpu.period_seconds]
        return sum(rates) / len(rates) if rates else None

    @property
    def period_seconds(self) -> float | None:
        periods = sorted(gpu.period_seconds for gpu in self.cards if gpu.period_seconds)
        return periods[len(periods) // 2] if periods else None

    @property
    def received_bytes_per_second(self) -> float | None:
        """Host to GPU, all GPUs together."""
        return total(
            gpu.received_bytes / gpu.received_seconds
            for gpu in self.cards
            if gpu.received_bytes is not None and gpu.received_seconds > 0
        )

    @property
    def samples_per_second(self) -> float | None:
        """Of the jobs that told of their loops together, over the time in which one of them ran."""
        samples = total(
            None if job.samples_per_second is None else job.samples_per_second * job.told_seconds
            for job in self.jobs
        )
        return None if samples is None or self.told_seconds <= 0.0 else samples / self.told_seconds

    @property
    def data_wait_percent(self) -> float | None:
        """Of those jobs, by the time in which their loops ran."""
        return _weighted([(job.data_wait_percent, job.told_seconds) for job in self.jobs])

    @property
    def lost_gpu_seconds(self) -> float | None:
        """What all findings cost together."""
        return total(use.cost_gpu_seconds for use in self.findings)


def total(values: Iterable[float | None]) -> float | None:
    """The sum of those that are known; ``None`` if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _weighted(pairs: list[tuple[float | None, float | None]]) -> float | None:
    known = [(value, weight) for value, weight in pairs if value is not None and weight]
    weight = sum(part for _, part in known)
    return sum(value * part for value, part in known) / weight if weight else None
