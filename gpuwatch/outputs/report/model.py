"""The report of a job or of a machine over a time: what ``gpuwatch report --json`` prints.

A job's report is that of the machine cut down to the job. Times are Unix seconds; those of a log
without dates count from 1970.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import force_setattr

from gpuwatch import __version__
from gpuwatch.core.bounds import total
from gpuwatch.core.model import GpuKey, ProcessKey
from gpuwatch.diagnosis.finding import Advice, Evidence, RuledOut, Unchecked
from gpuwatch.outputs.report.parts import (
    Amount,
    Count,
    GpuUsage,
    HostUsage,
    OpenQuestion,
    Part,
    Percent,
    Phase,
    Share,
    Stretch,
    Unix,
    replaced,
    share_percent,
)
from gpuwatch.outputs.report.usage import JobUsage, ProcessUsage

SCHEMA_VERSION = 2


class Source(Part, frozen=True):
    """The file that was read."""

    name: str
    kind: str
    """``recording``, or a key of ``LOG_KINDS``."""
    interval_seconds: Amount | None = None
    """Usual time between two readings."""
    lines: Count = 0
    other_lines: Count = 0
    """Lines that are not readings."""
    torn_lines: Count = 0
    overlong_lines: Count = 0
    left_out_lines: Count = 0
    """Those together."""
    unread_values: Count = 0
    """[N/A], [Unknown Error], - and the like."""
    unread_readings: tuple[str, ...] = ()
    """Readings of GPUs, by their names in the JSON, that it has and some rows gave no value for."""
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
    """Between the two."""
    has_dates: bool = True
    """false: times count from 1970."""
    zone: str | None = None
    """The time zone of the texts."""
    snapshots: Count = 0
    """Moments that were read."""
    interval_seconds: Amount | None = None
    """Usual time between two."""
    covered_seconds: Amount = 0.0
    """The time less the gaps."""
    gap_count: Count = 0
    gap_seconds: Amount = 0.0
    gaps: tuple[Stretch, ...] = ()
    """The longest of them, in the order of their time."""
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
    """Of the time in which the shape of the busy signal was known."""
    period_seconds: Amount | None = None
    cycles_per_minute: Amount | None = None
    """Of a GPU, while it had a period."""
    energy_joules: Amount | None = None
    power_mean_watts: Amount | None = None
    """The sum of the GPUs' means."""
    received_bytes_per_second: Amount | None = None
    """Host to GPU, while it was read."""
    finding_gpu_seconds: Amount | None = None
    """Cost of all findings together."""


class FindingUse(Part, frozen=True):
    """A finding over the whole time: when it held, and what it cost."""

    rule: str
    severity: str
    """``error``: work is lost or at risk; ``warning``: time is lost; ``info``: good to know."""
    confidence: Share
    """Likelihood that the cause named is the right one, when it was surest; what follows is as it
    was then."""
    summary: str
    """A sentence: what and where, with its numbers."""
    says: str = ""
    """The same with places for the names of GPUs, as it is said of several jobs at once."""
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    job: ProcessKey | None = None
    """Its PID, and when it started."""
    gpus: tuple[GpuKey, ...] = ()
    """All it was ever about."""
    holds_at_end: bool = False
    seconds: Amount = 0.0
    """Time in which it held."""
    cost_gpu_seconds: Amount | None = None
    stretches: tuple[Stretch, ...] = ()


class Report(Part, frozen=True, kw_only=True):
    """A job, or a machine, over a time: recorded, or watched to this moment."""

    kind: str = "report"
    schema: int = SCHEMA_VERSION
    gpuwatch: str = __version__
    """Version of the program."""
    verdict: str | None = None
    """The headline sentence."""
    decided: bool = False
    """false: not diagnosed, or not enough data to say that nothing (else) was wrong."""
    simulated: bool = False
    machine: str | None = None
    pid: Count | None = None
    """The report is about the job of this process alone."""
    source: Source | None = None
    """null: watched live."""
    time: Time
    total: Total = Total()
    gpus: Annotated[tuple[GpuUsage, ...], Meta(max_length=256)] = ()
    findings: tuple[FindingUse, ...] = ()
    """Those in danger first, then by cost."""
    phases: tuple[Phase, ...] = ()
    """GPUs that did the same at the same time together, each in the order of time."""
    questions: tuple[OpenQuestion, ...] = ()
    """What could not be decided, the most costly first."""
    jobs: tuple[JobUsage, ...] = ()
    """Those that used most GPU time first."""
    processes: tuple[ProcessUsage, ...] = ()
    """Those that used most GPU time first."""
    left_out_processes: Count = 0
    """Processes with little use that are not listed."""
    loop_seconds: Amount = 0.0
    """For how long a job that reported its own loops was in one."""
    host: HostUsage = HostUsage()
    problems: tuple[str, ...] = ()
    """Sentences about what could not be read on the machine."""
    unknown: tuple[Unchecked, ...] = ()
    """Rules that could not be checked at the end."""

    def __post_init__(self) -> None:
        force_setattr(self, "total", _total(self))

    @property
    def job(self) -> JobUsage | None:
        """The job that the report is about; ``None`` if it is about the machine."""
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
        """The report of a job that is known to have ended then, or with this exit code.

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
        """The GPUs less those MIG instances whose card is there too: adding both up would count
        twice."""
        there = {gpu.uuid for gpu in self.gpus}
        return tuple([gpu for gpu in self.gpus if gpu.mig_parent_uuid not in there])

    @property
    def gpu_seconds(self) -> float:
        """Of which a cost is a share: the time watched, and that in which a GPU was lost."""
        lost = sum(stretch.seconds for gpu in self.cards for stretch in gpu.lost)
        return (self.total.watched_gpu_seconds or 0.0) + lost

    @property
    def duration_seconds(self) -> float:
        """Of a job from its start to its end, however much of that was watched."""
        job = self.job
        if job is None or job.started_at_unix_seconds is None:
            return self.time.seconds
        end = job.ended_at_unix_seconds
        # The wall clock may have been set back in between.
        last = self.time.end_unix_seconds if end is None else end
        return max(0.0, last - job.started_at_unix_seconds)

    @property
    def samples_per_second(self) -> float | None:
        """Of the jobs that reported their loops together, over the time in which one ran."""
        samples = total(
            None
            if job.loop.samples_per_second is None
            else job.loop.samples_per_second * job.loop.reported_seconds
            for job in self.jobs
        )
        return None if samples is None or self.loop_seconds <= 0.0 else samples / self.loop_seconds

    @property
    def data_wait_percent(self) -> float | None:
        """Of those jobs, by the time in which their loops ran."""
        return _weighted(
            [(job.loop.data_wait_percent, job.loop.reported_seconds) for job in self.jobs]
        )


def _weighted(pairs: list[tuple[float | None, float | None]]) -> float | None:
    known = [(value, weight) for value, weight in pairs if value is not None and weight]
    weight = sum(part for _, part in known)
    return sum(value * part for value, part in known) / weight if weight else None


def _total(report: Report) -> Total:
    cards = report.cards
    watched = total(gpu.watched_seconds for gpu in cards)
    busy = total(gpu.busy_seconds for gpu in cards)
    known = total(gpu.rhythm_seconds for gpu in cards)
    swinging = total(gpu.oscillating_seconds for gpu in cards)
    periods = sorted(gpu.period_seconds for gpu in cards if gpu.period_seconds)
    return Total(
        busy_percent=share_percent(busy, watched),
        watched_gpu_seconds=watched,
        busy_gpu_seconds=busy,
        idle_gpu_seconds=total(gpu.idle_seconds for gpu in cards),
        duty=_weighted([(gpu.duty, gpu.rhythm_seconds) for gpu in cards]),
        oscillating_share=None if swinging is None or not known else swinging / known,
        period_seconds=periods[len(periods) // 2] if periods else None,
        cycles_per_minute=sum(60.0 / one for one in periods) / len(periods) if periods else None,
        energy_joules=total(gpu.energy_joules for gpu in cards),
        power_mean_watts=total(gpu.power_mean_watts for gpu in cards),
        received_bytes_per_second=total(
            gpu.received_bytes / gpu.received_seconds
            for gpu in cards
            if gpu.received_bytes is not None and gpu.received_seconds > 0
        ),
        finding_gpu_seconds=total(use.cost_gpu_seconds for use in report.findings),
    )


def without_profiles(report: Report) -> Report:
    """For JSON in which nothing is drawn."""
    return replaced(
        report,
        gpus=tuple([replaced(gpu, profiles={}) for gpu in report.gpus]),
        jobs=tuple([replaced(job, profiles={}) for job in report.jobs]),
        host=replaced(report.host, profiles={}),
    )
