"""The report of a job or of a machine over a time: what ``gpuwatch report --json`` prints.

A job's report is that of the machine cut down to the job. Times are Unix seconds; those of a log
without dates count from 1970. As in ``core.model``, every type is frozen, units are in the names
and ``None`` means "not measured"; the bounds hold for what is read from a file.

From the inside out: what all parts have in common, GPUs and the machine, processes and jobs, the
report, its JSON.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field
from msgspec.structs import force_setattr

from gpuwatch import __version__
from gpuwatch.core.bounds import total
from gpuwatch.core.codec import cleaned
from gpuwatch.core.model import GpuKey, ProcessKey
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.core.units import exit_words
from gpuwatch.diagnosis.finding import Advice, Evidence, Gain, RuledOut, Unchecked, is_in_doubt

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
    """GPU time lost in it, if known."""

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
    """NVML's name for the reason, in snake case."""
    seconds: Amount


class GpuUsage(Part, frozen=True):
    """One GPU over the time it was there (in a job's report: in which the job was on it). Readings
    of the GPU (all but ``job_memory_peak_bytes``) include what other tenants did there."""

    uuid: GpuKey
    """UUID, or a made-up name where a log has none."""
    index: Count
    name: str
    mig_instance: Count | None = None
    machine: str | None = None
    """Machine that it is in, in a report of several."""
    mig_parent_uuid: GpuKey | None = None
    """UUID of the card that a MIG instance is a part of."""
    memory_total_bytes: Count | None = None
    temperature_slowdown_celsius: Amount | None = None
    seen_seconds: Amount = 0.0
    """Time it was there, without gaps (in a job's report: with them)."""
    watched_seconds: Amount | None = None
    """Part of ``seen_seconds`` for which its utilisation is known."""
    busy_readings: Count = 0
    """Readings of its utilisation."""
    busy_percent: Percent | None = None
    """Share of the time watched with a kernel resident."""
    busy_low_percent: Percent | None = None
    """Lowest reading of its utilisation."""
    busy_high_percent: Percent | None = None
    """Highest reading of its utilisation."""
    busy_last_percent: Percent | None = None
    """Newest reading of its utilisation."""
    busy_seconds: Amount | None = None
    idle_seconds: Amount | None = None
    """Time watched without a kernel."""
    busy_from_samples: bool = False
    """Whether the busy time is from the driver's fine samples, at least in part."""
    busy_missing: str | None = None
    """Reason why its utilisation was never read, as a clause."""
    sm_active_percent: Percent | None = None
    """Mean SM activity (Hopper and later)."""
    tensor_active_percent: Percent | None = None
    job_memory_peak_bytes: Count | None = None
    """Memory of the job's processes on it, together."""
    memory_mean_bytes: Amount | None = None
    memory_peak_bytes: Count | None = None
    power_mean_watts: Amount | None = None
    power_peak_watts: Amount | None = None
    power_limit_watts: Amount | None = None
    """Power limit as last read."""
    energy_joules: Amount | None = None
    energy_from: str | None = None
    """Source of the energy: ``counter`` (the GPU's own) or ``power`` (power times time)."""
    throttled: tuple[Throttling, ...] | None = None
    """Reasons for lower clocks, the longest first; they overlap. Empty: never throttled."""
    temperature_peak_celsius: Amount | None = None
    duty: Share | None = None
    """Share of the time in busy runs."""
    rhythm_seconds: Amount | None = None
    """Time for which the shape of the busy signal was known."""
    oscillating_seconds: Amount | None = None
    """Part of ``rhythm_seconds`` in which it went between idle and busy again and again."""
    period_seconds: Amount | None = None
    """Median time from one busy run to the next; null: there was no rhythm."""
    swing_seconds: Amount | None = None
    """Mean time from one burst of work to the next, in a rhythm or not; null: it did not go all the
    way down and up."""
    sm_clock_mean_mhz: Amount | None = None
    sm_clock_peak_mhz: Amount | None = None
    memory_clock_mean_mhz: Amount | None = None
    received_bytes: Amount | None = None
    """Bytes from host to GPU over PCIe: rates read, times the time."""
    received_seconds: Amount = 0.0
    """Time for which the PCIe rates were read."""
    sent_bytes: Amount | None = None
    other_tenant_seconds: Amount = 0.0
    """Time for which processes of others were on this GPU beside the job's."""
    other_tenants_peak: Count = 0
    other_users: tuple[str, ...] = ()
    lost: tuple[Stretch, ...] = ()
    """Stretches in which it had fallen off the bus."""
    profiles: Profiles = field(default_factory=dict)
    """Time profiles ``busy_percent`` (of the fine samples), ``power_watts``, ``memory_used_bytes``,
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
        """Label of the GPU: ``0``; ``0.3`` for MIG instance 3 of GPU 0."""
        return str(self.index) if self.mig_instance is None else f"{self.index}.{self.mig_instance}"

    @property
    def busy_shown_percent(self) -> float | None:
        """Mean utilisation; where it was read once only, which is no mean, that reading."""
        once = self.busy_percent is None and self.busy_readings == 1
        return self.busy_last_percent if once else self.busy_percent

    @property
    def power_shown_watts(self) -> float | None:
        """Mean power; where it was there for one moment, what it drew then."""
        return self.power_peak_watts if self.seen_seconds == 0.0 else self.power_mean_watts

    @property
    def throttled_seconds(self) -> float | None:
        """Time with lower clocks by the longest of its reasons: they overlap."""
        if self.throttled is None:
            return None
        return max((one.seconds for one in self.throttled), default=0.0)


class Loss(Part, frozen=True):
    """GPU time lost to one thing."""

    to: str
    """Cause of the loss: a rule; ``start``: the start of a job; ``pauses``: those whose reason is
    not known; ``held``: memory was held and nothing ran; ``unknown``: what no finding explains."""
    gpu_seconds: Amount


class Phase(Part, frozen=True):
    """A part of the time in which GPUs did much the same."""

    kind: str
    """Kind of phase: ``start`` of the first work, ``steady`` work, ``idle`` between work (or
    without any), ``end`` after the last, ``lost``: the GPU did not answer."""
    gpus: tuple[GpuKey, ...]
    begin_unix_seconds: Unix
    end_unix_seconds: Unix
    seconds: Amount = 0.0
    """Time in it in which the GPUs were read; of ``lost``, all of it."""
    busy_percent: Percent | None = None
    idle_gpu_seconds: Amount = 0.0
    """GPU time without a kernel."""
    pauses: Count = 0
    """Pauses of each GPU in steady work."""
    paused_seconds: Amount = 0.0
    """Time of all its pauses together."""
    lost: tuple[Loss, ...] = ()
    """Losses, the most first; the time of ``idle`` and ``end`` is lost only where a finding says
    so."""


class OpenQuestion(Part, frozen=True):
    """A question that could not be decided."""

    about: str
    """Cause of the loss, as in ``phases``."""
    says: str
    """A sentence: what was seen, the causes that are left, and what would decide."""
    gpus: tuple[GpuKey, ...]
    seconds: Amount = 0.0
    """Time for which it was open."""
    lost_gpu_seconds: Amount = 0.0


class HostUsage(Part, frozen=True):
    """The machine around the GPUs."""

    cpu_mean_percent: Percent | None = None
    """CPU use, mean over the time, of all cores."""
    cpu_peak_percent: Percent | None = None
    cpu_iowait_mean_percent: Percent | None = None
    """CPU time spent waiting for disks."""
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
    """Time profiles ``cpu_percent``, ``memory_used_bytes``, ``disk_read_bytes_per_second``,
    ``disk_write_bytes_per_second``."""


def share_percent(part: float | None, whole: float | None) -> float | None:
    if part is None or not whole:
        return None
    return min(100.0, 100.0 * part / whole)


# --- processes and jobs: who used what --------------------------------------------------------


class Usage(Part, frozen=True):
    """Use of a process or a job while it was seen."""

    pid: Count
    started_at_unix_seconds: Unix | None = None
    user: str | None = None
    command: str | None = None
    gpus: tuple[GpuKey, ...] = ()
    gpu_held_seconds: Amount = 0.0
    """Time on GPUs, each GPU counted."""
    gpu_busy_seconds: Amount | None = None
    """GPU time used (for a job: by whoever was on its GPUs)."""
    gpu_memory_peak_bytes: Count | None = None
    """Peak of its memory on all GPUs together."""
    cpu_core_seconds: Amount | None = None
    memory_peak_bytes: Count | None = None
    """Peak of its memory: for a job PSS where it is known for all its processes, else the sum of
    RSS."""
    read_bytes: Amount | None = None
    """Bytes read from storage."""
    written_bytes: Amount | None = None
    first_unix_seconds: Unix = 0.0
    """Time at which it was first seen."""
    last_unix_seconds: Unix = 0.0

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)


class ProcessUsage(Usage, frozen=True):
    """Use of one process while it was seen."""

    name: str | None = None
    role: str | None = None
    """Role in its job: rank, loader_worker ..."""


class Loading(Part, frozen=True):
    """Ways in which the job got its data. Shares are means over the time each process was seen."""

    sentence: str | None = None
    """Sentence on its loading for most of the time in which there were workers: ``4 loader workers,
    pinned memory on``."""
    loader_workers: Count | None = None
    """Workers of all ranks together, for most of the time in which there were any."""
    loader_workers_peak: Count | None = None
    loader_workers_started: Count | None = None
    """Worker processes seen to appear: more than the peak when each epoch starts its own."""
    pinned_memory: bool | None = None
    loader_worker_cpu_percent: Amount | None = None
    """CPU use of a worker, in percent of one core."""
    loader_worker_at_limit_percent: Percent | None = None
    """Share of the workers' time in which one used 90% of a core or more."""
    loader_worker_queue_wait_percent: Amount | None = None
    """Share of the time in which one could have run and waited for a core."""
    loader_worker_disk_wait_percent: Amount | None = None
    main_thread_cpu_percent: Amount | None = None
    """CPU use of a main thread in percent of one core, mean over the ranks."""
    main_thread_at_limit_percent: Percent | None = None
    main_thread_queue_wait_percent: Amount | None = None


class Loop(Part, frozen=True):
    """Figures that the job reported of its own training loops (``gpuwatch.torch``); means are over
    the time in which they ran, and over the ranks that reported."""

    reported_seconds: Amount = 0.0
    """Time for which loops ran; 0: it reported nothing."""
    ranks: Count | None = None
    """Ranks that reported."""
    samples_per_second: Amount | None = None
    """Samples a second of all ranks together, pauses included."""
    steps: Count | None = None
    """Steps of the rank with the fewest."""
    last_epoch: Count | None = None
    data_wait_percent: Percent | None = None
    """Share of the time in which the loop waited for its data."""
    data_wait_most_percent: Percent | None = None
    """Share of the time that the rank waited that waited most, where several reported."""
    data_wait_most_rank: Count | None = None
    compute_percent: Percent | None = None
    compute_on_device: bool | None = None
    """Whether ``compute_percent`` was measured on the GPU; false: on the CPU's clock."""
    copy_percent: Percent | None = None
    validation_percent: Percent | None = None
    checkpoint_percent: Percent | None = None
    memory_allocated_peak_bytes: Count | None = None
    memory_reserved_peak_bytes: Count | None = None
    """Peak of any rank, by PyTorch's own counters."""


class JobUsage(Usage, frozen=True):
    """Use of one job while it was seen, all its processes together."""

    ended_at_unix_seconds: Unix | None = None
    end_is_last_seen: bool = False
    """Whether nobody saw it end: it was there at that moment, and gone in the next snapshot."""
    exit_code: int | None = None
    working_directory: str | None = None
    run_digest: str | None = None
    """Digest that runs of the same command by the same user in the same folder share."""
    launcher: str | None = None
    framework: str | None = None
    ranks: Count | None = None
    """Training processes on this machine, the most seen."""
    world_size: Count | None = None
    container: str | None = None
    pod: str | None = None
    slurm_job: str | None = None
    environment: str | None = None
    cpu_mean_cores: Amount | None = None
    cpu_peak_cores: Amount | None = None
    usable_cores: Amount | None = None
    quota_cores: Amount | None = None
    cpu_throttled_percent: Amount | None = None
    """Share of the quota's periods in which the job was held back, mean over the time."""
    memory_proportional_peak_bytes: Count | None = None
    """Peak of PSS: true for processes that share pages, but read seldom."""
    memory_resident_peak_bytes: Count | None = None
    """Sum of RSS, which counts shared pages once for each process."""
    loading: Loading = Loading()
    loop: Loop = Loop()
    profiles: Profiles = field(default_factory=dict)
    """Time profiles in a report about this job alone: ``loader_worker_cpu_percent`` and
    ``main_thread_cpu_percent`` (of one core, mean), ``data_wait_percent``."""

    @property
    def failed(self) -> bool:
        return self.exit_code not in (None, 0)

    @property
    def exit_words(self) -> str:
        """Words for its exit: ``exit code 3``, ``ended by SIGKILL``; ``ended`` where its exit code
        is not known."""
        return "ended" if self.exit_code is None else exit_words(self.exit_code)

    @property
    def end_words(self) -> str:
        """Short words for its end: ``running``, ``exit 3``, ``SIGKILL``."""
        if self.ended_at_unix_seconds is None:
            return "running"
        return self.exit_words.removeprefix("ended by ").replace("exit code", "exit")


# --- the report -------------------------------------------------------------------------------

SCHEMA_VERSION = 2


class Source(Part, frozen=True):
    """The file that was read."""

    name: str
    kind: str
    """Kind of file: ``recording``, or a key of ``LOG_KINDS``."""
    interval_seconds: Amount | None = None
    """Usual time between two readings."""
    lines: Count = 0
    other_lines: Count = 0
    """Lines that are not readings."""
    torn_lines: Count = 0
    overlong_lines: Count = 0
    left_out_lines: Count = 0
    """Lines left out: all of these together."""
    unread_values: Count = 0
    """Values such as [N/A], [Unknown Error] and -."""
    unread_readings: tuple[str, ...] = ()
    """Readings of GPUs, by their names in the JSON, that some rows gave no value for."""
    unreadable_readings: tuple[str, ...] = ()
    """Readings with a value that could not be understood."""
    incomplete_ticks: Count = 0
    """Moments with too few rows to tell the GPUs apart."""
    missing_ticks: Count = 0
    """Moments expected from the interval."""
    clock_jumps: Count = 0
    notes: tuple[str, ...] = ()
    """Sentences that the reader should know about it."""


class Time(Part, frozen=True):
    """The time covered."""

    begin_unix_seconds: Unix
    end_unix_seconds: Unix
    seconds: Amount = 0.0
    """Time from begin to end."""
    has_dates: bool = True
    """Whether the file has dates; if not, times count from 1970."""
    zone: str | None = None
    """Time zone of the texts."""
    snapshots: Count = 0
    """Moments that were read."""
    interval_seconds: Amount | None = None
    """Usual time between two moments."""
    covered_seconds: Amount = 0.0
    """The time less the gaps."""
    gap_count: Count = 0
    gap_seconds: Amount = 0.0
    gaps: tuple[Stretch, ...] = ()
    """The longest gaps, in the order of their time."""
    clock_set_back: Count = 0
    """Times that the wall clock went back; what followed is taken as if it had not."""
    bucket_seconds: Amount = 1.0
    """Width of a bucket of the time profiles."""

    def __post_init__(self) -> None:
        force_setattr(self, "seconds", max(0.0, self.end_unix_seconds - self.begin_unix_seconds))
        force_setattr(self, "has_dates", self.begin_unix_seconds > 366 * 86400.0)


class Total(Part, frozen=True):
    """All GPUs together; MIG instances are not added to their card."""

    busy_percent: Percent | None = None
    watched_gpu_seconds: Amount | None = None
    busy_gpu_seconds: Amount | None = None
    idle_gpu_seconds: Amount | None = None
    duty: Share | None = None
    oscillating_share: Share | None = None
    """Share of oscillation in the time in which the shape of the busy signal was known."""
    period_seconds: Amount | None = None
    energy_joules: Amount | None = None
    power_mean_watts: Amount | None = None
    """Sum of the GPUs' means."""
    received_bytes_per_second: Amount | None = None
    """Traffic from host to GPU, while it was read."""
    finding_gpu_seconds: Amount | None = None
    """Cost of all findings together."""


class FindingUse(Part, frozen=True):
    """A finding over the whole time: when it held, and what it cost."""

    rule: str
    severity: str
    """``error``: work is lost or at risk; ``warning``: time is lost; ``info``: good to know."""
    confidence: Share
    """Likelihood that the cause named is the right one, when it was surest; summary, evidence and
    advice are as they were then."""
    summary: str
    """Sentence that says what and where, with its numbers."""
    says: str = ""
    """The summary with places for the names of GPUs, as it is said of several jobs at once."""
    short: tuple[str, ...] = ()
    """Shorter forms of the sentence, with places for the names of GPUs."""
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    gain: Gain | None = None
    """How much faster its best cure would make the job, as an estimate; null: not known."""
    lost_watts: Amount | None = None
    """Power of a GPU in the time that is lost."""
    ruled_out: tuple[RuledOut, ...] = ()
    job: ProcessKey | None = None
    """PID of the job, and when it started."""
    gpus: tuple[GpuKey, ...] = ()
    """All GPUs that it was ever about."""
    late: tuple[GpuKey, ...] = ()
    """GPUs of the finding that the other GPUs waited for."""
    holds_at_end: bool = False
    seconds: Amount = 0.0
    """Time in which it held."""
    cost_gpu_seconds: Amount | None = None
    stretches: tuple[Stretch, ...] = ()

    @property
    def in_doubt(self) -> bool:
        """Whether its sentence says only what may be."""
        return is_in_doubt(self.advice)


class Report(Part, frozen=True, kw_only=True):
    """A job, or a machine, over a time: recorded, or watched to this moment."""

    kind: str = "report"
    schema: int = SCHEMA_VERSION
    gpuwatch: str = __version__
    """Version of the program."""
    verdict: str | None = None
    """The headline sentence."""
    decided: bool = False
    """Whether the diagnosis is complete; false: not diagnosed, or not enough data to say that
    nothing (else) was wrong."""
    simulated: bool = False
    price_per_gpu_hour: Amount | None = None
    """Price that was given, for what is lost in money."""
    machine: str | None = None
    pid: Count | None = None
    """PID of the job that the report is about; null: it is about the machine."""
    source: Source | None = None
    """File that the report is of; null: watched live."""
    time: Time
    total: Total = Total()
    gpus: Annotated[tuple[GpuUsage, ...], Meta(max_length=256)] = ()
    findings: tuple[FindingUse, ...] = ()
    """Findings: those that endanger work first, then by cost."""
    phases: tuple[Phase, ...] = ()
    """Phases in the order of time; GPUs that did the same at the same time share theirs."""
    questions: tuple[OpenQuestion, ...] = ()
    """Open questions, the most costly first."""
    jobs: tuple[JobUsage, ...] = ()
    """Jobs, those that used most GPU time first."""
    processes: tuple[ProcessUsage, ...] = ()
    """Processes, those that used most GPU time first."""
    left_out_processes: Count = 0
    """Processes with little use that are not listed."""
    loop_seconds: Amount = 0.0
    """Time for which a job that reported its own loops was in one."""
    host: HostUsage = HostUsage()
    problems: tuple[str, ...] = ()
    """Sentences about what could not be read on the machine."""
    unknown: tuple[Unchecked, ...] = ()
    """Rules that could not be checked at the end."""

    def __post_init__(self) -> None:
        force_setattr(self, "total", _total(self))

    @property
    def job(self) -> JobUsage | None:
        """Job that the report is about; ``None`` if it is about the machine."""
        return self.jobs[0] if self.pid is not None and self.jobs else None

    @property
    def key(self) -> ProcessKey | None:
        return None if self.job is None else self.job.key

    @property
    def run_digest(self) -> str | None:
        return None if self.job is None else self.job.run_digest

    @property
    def exit_code(self) -> int | None:
        return None if self.job is None else self.job.exit_code

    @property
    def has_ended(self) -> bool:
        return self.job is not None and self.job.ended_at_unix_seconds is not None

    def with_end(
        self, unix_seconds: float | None = None, *, exit_code: int | None = None, seen: bool = False
    ) -> Report:
        """Return the report of a job that is known to have ended then, or with this exit code.

        ``seen``: it was last seen then, and nobody saw it end.
        """
        if self.job is None:
            return self
        job = self.job
        if unix_seconds is not None:
            job = replaced(job, ended_at_unix_seconds=unix_seconds, end_is_last_seen=seen)
        if exit_code is not None:
            job = replaced(job, exit_code=exit_code)
        return replaced(self, jobs=(job, *self.jobs[1:]))

    @property
    def cards(self) -> tuple[GpuUsage, ...]:
        """GPUs less those MIG instances whose card is there too: adding both up would count
        twice."""
        there = {gpu.uuid for gpu in self.gpus}
        return tuple([gpu for gpu in self.gpus if gpu.mig_parent_uuid not in there])

    @property
    def gpu_seconds(self) -> float:
        """GPU time that a cost is a share of: the time watched, and that in which a GPU was
        lost."""
        lost = sum(stretch.seconds for gpu in self.cards for stretch in gpu.lost)
        return (self.total.watched_gpu_seconds or 0.0) + lost

    @property
    def duration_seconds(self) -> float:
        """Duration of the job from its start to its end, however much of that was watched."""
        job = self.job
        if job is None or job.started_at_unix_seconds is None:
            return self.time.seconds
        end = job.ended_at_unix_seconds
        # The wall clock may have been set back in between.
        last = self.time.end_unix_seconds if end is None else end
        return max(0.0, last - job.started_at_unix_seconds)

    @property
    def samples_per_second(self) -> float | None:
        """Samples a second of all jobs that reported their loops, over the time in which one
        ran."""
        samples = total(
            None
            if job.loop.samples_per_second is None
            else job.loop.samples_per_second * job.loop.reported_seconds
            for job in self.jobs
        )
        return None if samples is None or self.loop_seconds <= 0.0 else samples / self.loop_seconds

    @property
    def data_wait_percent(self) -> float | None:
        """Data wait of all jobs that reported their loops, weighted by the time in which these
        ran."""
        return _weighted(
            [(job.loop.data_wait_percent, job.loop.reported_seconds) for job in self.jobs]
        )


def _weighted(pairs: list[tuple[float | None, float | None]]) -> float | None:
    known = [(value, weight) for value, weight in pairs if value is not None and weight]
    weight = sum(part for _, part in known)
    return sum(value * part for value, part in known) / weight if weight else None


def _total(report: Report) -> Total:
    cards = report.cards

    def together(name: str) -> float | None:
        return total(getattr(gpu, name) for gpu in cards)

    watched, busy = together("watched_seconds"), together("busy_seconds")
    known, swinging = together("rhythm_seconds"), together("oscillating_seconds")
    periods = sorted(gpu.period_seconds for gpu in cards if gpu.period_seconds)
    return Total(
        busy_percent=share_percent(busy, watched),
        watched_gpu_seconds=watched,
        busy_gpu_seconds=busy,
        idle_gpu_seconds=together("idle_seconds"),
        duty=_weighted([(gpu.duty, gpu.rhythm_seconds) for gpu in cards]),
        oscillating_share=None if swinging is None or not known else swinging / known,
        period_seconds=periods[len(periods) // 2] if periods else None,
        energy_joules=together("energy_joules"),
        power_mean_watts=together("power_mean_watts"),
        received_bytes_per_second=total(
            gpu.received_bytes / gpu.received_seconds
            for gpu in cards
            if gpu.received_bytes is not None and gpu.received_seconds > 0
        ),
        finding_gpu_seconds=total(use.cost_gpu_seconds for use in report.findings),
    )


def without_profiles(report: Report) -> Report:
    """Return the report without time profiles, for JSON from which nothing is drawn."""
    return replaced(
        report,
        gpus=tuple([replaced(gpu, profiles={}) for gpu in report.gpus]),
        jobs=tuple([replaced(job, profiles={}) for job in report.jobs]),
        host=replaced(report.host, profiles={}),
    )


def priced(report: Report, price_per_gpu_hour: float) -> Report:
    """Return the report with what is lost in money, too."""
    return replaced(report, price_per_gpu_hour=price_per_gpu_hour)


# --- its JSON, as it is kept and as it is printed ---------------------------------------------

TEXT_MAX = 65_536


class ReportError(SentenceError):
    """A file or text is no report."""


def encode(report: msgspec.Struct) -> bytes:
    """Return the JSON that is kept: exact, on one line, without a line end."""
    return msgspec.json.encode(report)


def dumps(value: object, indent: int | None = 2) -> str:
    """Return the JSON that is printed: numbers rounded to what means something, without a line
    end."""
    return json.dumps(
        _rounded(msgspec.to_builtins(value)), ensure_ascii=False, allow_nan=False, indent=indent
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4) if value - value == 0.0 else None
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def decode(data: bytes) -> Report:
    """Read what ``encode`` or ``dumps`` wrote; raises ``ReportError``.

    A file may come from anyone: text is cleaned, numbers are checked, lengths are bounded, and
    fields that a newer version added are ignored.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReportError(f"This is not a report: not JSON ({clean(str(error), 80)}).") from None
    if not isinstance(value, dict) or value.get("kind") != "report":
        raise ReportError('This is JSON, but not a gpuwatch report: its "kind" is not "report".')
    schema = value.get("schema")
    if schema != SCHEMA_VERSION or isinstance(schema, bool):
        raise ReportError(
            f"This report is of schema {clean(str(schema), 20)}, and this gpuwatch ({__version__}) "
            f"reads schema {SCHEMA_VERSION} only."
        )
    try:
        return msgspec.convert(cleaned(value, TEXT_MAX), Report)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise ReportError(f"This report is damaged: {clean(str(error), 200)}.") from None
