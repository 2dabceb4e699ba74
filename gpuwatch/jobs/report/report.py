"""What a job did while it was watched: the words of a report.

As in ``model``, every type is frozen, units are in the names and ``None`` means "not measured".
``report_json`` writes and reads reports, ``recorder`` makes them, ``store`` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuwatch.core.model import GpuKey, ProcessKey, ReasonSeconds

COURSE_BUCKETS = 240


class ReportError(ValueError):
    """A file or text is no report; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One reading over the time watched, in buckets of ``JobReport.course_seconds`` each, the
    first at ``JobReport.course_from_unix_seconds``. Where nothing was measured all three are
    ``None``; they are equally long, at most ``COURSE_BUCKETS``."""

    minimum: tuple[float | None, ...] = ()
    mean: tuple[float | None, ...] = ()
    maximum: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """One GPU, for the time in which the job was on it. Readings of the GPU (all but
    ``job_memory_peak_bytes``) include what other tenants did there."""

    index: int
    uuid: GpuKey
    name: str
    mig_instance: int | None = None
    memory_total_bytes: int | None = None
    power_limit_watts: float | None = None
    held_seconds: float = 0.0
    """How long the job was on this GPU."""
    watched_seconds: float | None = None
    """For how much of that it is known whether the GPU was busy."""
    busy_seconds: float | None = None
    """``watched_seconds`` times the busy share; both are ``None`` when it was never read."""
    busy_from_samples: bool = False
    """From the driver's fine samples, at least in part, and not only from one value a look."""
    busy_missing: str | None = None
    """Why the busy share was never read, as a clause, where that is known."""
    sm_active_percent: float | None = None
    tensor_active_percent: float | None = None
    job_memory_peak_bytes: int | None = None
    """Of the job's processes on it, together."""
    memory_peak_bytes: int | None = None
    power_mean_watts: float | None = None
    power_peak_watts: float | None = None
    energy_joules: float | None = None
    energy_from: str | None = None
    """``counter``: the GPU's own; ``power``: power times time; ``counter and power``: the counter
    was reset or missing for a part."""
    throttled: tuple[ReasonSeconds, ...] | None = None
    """How long each reason held, the longest first; reasons overlap. Empty: never throttled."""
    temperature_peak_celsius: float | None = None
    other_tenant_seconds: float = 0.0
    """How long processes of others were on this GPU too."""
    other_tenants_peak: int = 0
    other_users: tuple[str, ...] = ()
    lost_at_unix_seconds: float | None = None
    busy_course: Course = Course()

    @property
    def label(self) -> str:
        """``0``; ``0.3`` for MIG instance 3 of GPU 0."""
        return str(self.index) if self.mig_instance is None else f"{self.index}.{self.mig_instance}"

    @property
    def busy_percent(self) -> float | None:
        return _share(self.busy_seconds, self.watched_seconds)

    @property
    def idle_seconds(self) -> float | None:
        """GPU-seconds in which no kernel was resident."""
        if self.busy_seconds is None or self.watched_seconds is None:
            return None
        return max(0.0, self.watched_seconds - self.busy_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingReport:
    """How the job got its data. Shares are means over the time each process was seen."""

    sentence: str | None = None
    """As seen for most of the time in which there were workers: ``4 loader workers, pinned
    memory on``."""
    loader_workers: int | None = None
    """Of all ranks together, by the same rule."""
    loader_workers_peak: int | None = None
    loader_workers_started: int | None = None
    """Worker processes seen to appear: more than the peak when each epoch starts its own."""
    pinned_memory: bool | None = None
    loader_worker_cpu_percent: float | None = None
    """Of one core each."""
    loader_worker_at_limit_percent: float | None = None
    """Share of the workers' time in which one used 90% of a core or more."""
    loader_worker_queue_wait_percent: float | None = None
    """Share of the time in which one could have run and waited for a core."""
    loader_worker_disk_wait_percent: float | None = None
    main_thread_cpu_percent: float | None = None
    """Of one core, mean over the ranks."""
    main_thread_at_limit_percent: float | None = None
    main_thread_queue_wait_percent: float | None = None
    loader_worker_course: Course = Course()
    """Mean over the workers of how much of a core each used."""
    main_thread_course: Course = Course()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReport:
    """What the job told of its own training loops (``gpuwatch.torch``); means are over the time in
    which it told, and over the ranks that did."""

    told_seconds: float = 0.0
    """0: it told nothing."""
    ranks: int | None = None
    """That told."""
    samples_per_second: float | None = None
    """Of all of them together, pauses included."""
    steps: int | None = None
    """Of the rank with the fewest."""
    last_epoch: int | None = None
    data_wait_percent: float | None = None
    """Share of the time in which the loop waited for its data."""
    data_wait_most_percent: float | None = None
    """Of the rank that waited most, where several told."""
    data_wait_most_rank: int | None = None
    compute_percent: float | None = None
    compute_on_device: bool | None = None
    """``compute_percent`` was measured on the GPU; ``False``: on the CPU's clock."""
    copy_percent: float | None = None
    validation_percent: float | None = None
    checkpoint_percent: float | None = None
    memory_allocated_peak_bytes: int | None = None
    memory_reserved_peak_bytes: int | None = None
    """Of any rank, by PyTorch's own counters."""
    data_wait_course: Course = Course()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """CPU, memory and storage of all the job's processes together."""

    cpu_core_seconds: float | None = None
    cpu_mean_cores: float | None = None
    cpu_peak_cores: float | None = None
    usable_cores: float | None = None
    quota_cores: float | None = None
    cpu_throttled_percent: float | None = None
    """Share of the quota's periods in which the job was held back, mean over the time."""
    memory_proportional_peak_bytes: int | None = None
    """PSS: true for processes that share pages, but read seldom."""
    memory_resident_peak_bytes: int | None = None
    """Sum of RSS, which counts shared pages once for each process."""
    read_bytes: float | None = None
    write_bytes: float | None = None
    """From and to storage, in the time watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job from its start to its end, or to the moment of the report."""

    pid: int
    simulated: bool = False
    machine: str | None = None
    started_at_unix_seconds: float | None = None
    ended_at_unix_seconds: float | None = None
    """``None`` while it still runs."""
    end_is_last_seen: bool = False
    """Nobody saw it end: it was there at that moment, and gone at the next look."""
    taken_at_unix_seconds: float | None = None
    """When the last reading in this report was taken."""
    exit_code: int | None = None
    command: str | None = None
    user: str | None = None
    working_directory: str | None = None
    run_digest: str | None = None
    """The same for the same command of the same user in the same folder."""
    launcher: str | None = None
    framework: str | None = None
    ranks: int | None = None
    """Training processes seen on this machine."""
    world_size: int | None = None
    container: str | None = None
    pod: str | None = None
    slurm_job: str | None = None
    environment: str | None = None
    watched_from_unix_seconds: float | None = None
    watched_seconds: float = 0.0
    """Time between looks at the job that were near enough to each other to speak for it."""
    course_from_unix_seconds: float | None = None
    course_seconds: float = 1.0
    gpus: tuple[GpuReport, ...] = ()
    loading: LoadingReport = LoadingReport()
    loop: LoopReport = LoopReport()
    host: HostReport = HostReport()

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)

    @property
    def duration_seconds(self) -> float | None:
        """From the start of the process (or of watching) to the end (or the report)."""
        start = self.started_at_unix_seconds
        if start is None:
            start = self.watched_from_unix_seconds
        end = self.ended_at_unix_seconds
        if end is None:
            end = self.taken_at_unix_seconds
        # The wall clock may have been set back in between.
        return None if start is None or end is None else max(0.0, end - start)

    @property
    def busy_percent(self) -> float | None:
        """Of all GPUs together, each weighted by the time it was watched."""
        return _share(
            _sum(gpu.busy_seconds for gpu in self.gpus),
            _sum(gpu.watched_seconds for gpu in self.gpus),
        )

    @property
    def idle_gpu_seconds(self) -> float | None:
        return _sum(gpu.idle_seconds for gpu in self.gpus)

    @property
    def energy_joules(self) -> float | None:
        return _sum(gpu.energy_joules for gpu in self.gpus)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _share(part: float | None, whole: float | None) -> float | None:
    if part is None or whole is None or whole <= 0:
        return None
    return min(100.0, 100.0 * part / whole)
