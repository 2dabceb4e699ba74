"""A diagnosis as one JSON object: what is written under a field is also its description in
``gpuwatch diagnose --schema``. ``schema`` is raised when a name goes or changes its meaning; new
names may come at any time.
"""

from collections.abc import Sequence
from typing import Literal

from gpuwatch import __version__
from gpuwatch.core.bounds import total
from gpuwatch.core.model import GpuKey, ProcessKey
from gpuwatch.diagnosis.finding import Advice, Evidence, RuledOut
from gpuwatch.jobs.stacks.summary import StackReport
from gpuwatch.outputs.diagnosis.report import DiagnosisReport
from gpuwatch.outputs.report.content.findings import Group, groups
from gpuwatch.outputs.report.encoding import dumps
from gpuwatch.outputs.report.model import FindingUse, Report, Source
from gpuwatch.outputs.report.parts import (
    Amount,
    Count,
    GpuUsage,
    Part,
    Percent,
    Phase,
    Share,
    TimeProfile,
    Unix,
)  # fmt: skip

_ALIKE = ("rule", "severity", "confidence", "summary", "gpus", "evidence", "ruled_out")


class SourceSeen(Source, frozen=True, kw_only=True):
    """Where the readings came from and how well they could be read; live, the counts of lines and
    of what is missing are 0."""

    name: str | None = None  # type: ignore[assignment]
    """Of the file."""
    kind: str
    """``live``, ``simulated``, ``recording``, or the form of the log."""
    snapshots: Count
    """Moments that were read."""
    seconds: Amount
    """From the first to the last."""
    started_at_unix_seconds: Unix | None
    """The first moment."""


class GpuSeen(Part, frozen=True):
    """What a GPU did while it was watched."""

    uuid: GpuKey
    """UUID, or a made-up name where the log has none."""
    index: Count
    """Number of the GPU."""
    name: str
    """The card, or GPU."""
    readings: Count
    """Readings of its utilisation."""
    busy_percent: Percent | None
    """Mean utilisation."""
    busy_low_percent: Percent | None
    """The lowest."""
    busy_high_percent: Percent | None
    """The highest."""
    power_watts: Amount | None
    """Mean power."""


class JobSeen(Part, frozen=True):
    """A job, by its first process."""

    pid: Count
    """Process number."""
    started_at_unix_seconds: Unix | None
    """When that process began."""


class AdviceSeen(Part, frozen=True, rename={"before": "from", "wanted": "to"}):
    """A change."""

    action: str
    """A sentence."""
    setting: str | None
    """The setting to change."""
    before: str | None
    """Its value now."""
    wanted: str | None
    """The value to try."""
    why: str
    """Why that helps."""


class Cost(Part, frozen=True):
    """What it cost over the time watched."""

    share: Share | None
    """Of all GPU time of its job while watched; those of a job add up to at most 1."""
    gpu_seconds: Amount | None
    """GPU-seconds lost."""


class FindingSeen(Part, frozen=True):
    """Something that is wrong."""

    rule: str
    """As in gpuwatch explain."""
    severity: Literal["error", "warning", "info"]
    """error: work is at risk; warning: time is lost; info: good to know."""
    confidence: Share
    """How likely the cause named is the right one."""
    summary: str
    """A sentence."""
    gpus: tuple[GpuKey, ...]
    """UUIDs of the GPUs."""
    job: JobSeen | None
    """The job it is about."""
    since_unix_seconds: Unix | None
    """Since when."""
    until_unix_seconds: Unix | None
    """Until when; null while it holds."""
    evidence: tuple[Evidence, ...]
    """The readings it rests on."""
    ruled_out: tuple[RuledOut, ...]
    """What else it could have been."""
    advice: tuple[AdviceSeen, ...]
    """What to do."""
    cost: Cost
    """What was lost to it."""
    cause: Count
    """Place in causes: findings of several jobs can have one."""


class UnknownSeen(Part, frozen=True):
    """A rule that could not be checked."""

    rule: str
    """Its name."""
    missing: tuple[str, ...]
    """The readings it needed, in words."""
    gpus: tuple[GpuKey, ...]
    """UUIDs of the GPUs."""
    job: JobSeen | None
    """The job it is about."""


class StackShare(Part, frozen=True):
    """One kind of work of a main thread."""

    category: str
    """What it is."""
    percent: Percent
    """Of the samples."""
    line: str | None
    """The line seen most often in it."""


class StacksSeen(Part, frozen=True):
    """What a process of the job was doing (--stacks)."""

    pid: Count
    """Process number."""
    rank: Count | None
    """Rank in the job."""
    problem: str | None
    """Why there are none."""
    shares: tuple[StackShare, ...]
    """What its main thread did."""


class DiagnosisSeen(Part, frozen=True, kw_only=True):
    """A diagnosis. Times are Unix seconds; those of logs without dates count from 1970. What was
    not read is null."""

    schema: Literal[1] = 1
    """Version of this schema."""
    gpuwatch: str = __version__
    """Version of the program."""
    verdict: str
    """The headline sentence."""
    decided: bool
    """false: not enough data to say that nothing (else) is wrong."""
    taken_at_unix_seconds: Unix
    """The last sample."""
    watched_seconds: Amount
    """Time watched, without gaps."""
    simulated: bool
    """Of a simulated machine."""
    source: SourceSeen
    """Where the readings came from."""
    gpus: tuple[GpuSeen, ...]
    """The GPUs seen."""
    phases: tuple[Phase, ...]
    """Of a file: what its GPUs did, each in the order of time."""
    findings: tuple[FindingSeen, ...]
    """What was found, one for each job: errors first, then the most costly."""
    causes: tuple[str, ...]
    """The same in a sentence for each cause."""
    unknown: tuple[UnknownSeen, ...]
    """What could not be checked at the end."""
    stacks: tuple[StacksSeen, ...]
    """Python stacks, if requested."""


def diagnosis_json(diagnosis: DiagnosisReport) -> str:
    report, time = diagnosis.report, diagnosis.report.time
    causes = groups(report)
    source = report.source or Source(name="", kind="simulated" if report.simulated else "live")
    made = {name: getattr(source, name) for name in source.__struct_fields__}
    made["name"] = source.name or None
    made["interval_seconds"] = source.interval_seconds or time.interval_seconds
    return dumps(
        DiagnosisSeen(
            verdict=diagnosis.verdict,
            decided=diagnosis.decided,
            taken_at_unix_seconds=time.end_unix_seconds,
            watched_seconds=time.covered_seconds,
            simulated=report.simulated,
            source=SourceSeen(
                **made,
                snapshots=time.snapshots,
                seconds=time.seconds,
                started_at_unix_seconds=time.begin_unix_seconds,
            ),
            gpus=tuple([_gpu(gpu) for gpu in report.gpus]),
            phases=report.phases if diagnosis.is_file else (),
            findings=tuple([_finding(use, report, causes) for use in report.findings]),
            causes=tuple([group.cause.summary for group in causes]),
            unknown=tuple(
                UnknownSeen(rule=x.rule, missing=x.missing, gpus=x.gpus, job=_job(x.job))
                for x in report.unknown
            ),
            stacks=tuple([_stacks(stacks) for stacks in diagnosis.stacks]),
        )
    )


def _gpu(gpu: GpuUsage) -> GpuSeen:
    profile = gpu.profiles.get("busy_percent", TimeProfile())
    return GpuSeen(
        **{name: getattr(gpu, name) for name in ("uuid", "index", "name", "busy_percent")},
        readings=gpu.busy_readings,
        busy_low_percent=min([x for x in profile.minimum if x is not None], default=None),
        busy_high_percent=max([x for x in profile.maximum if x is not None], default=None),
        power_watts=gpu.power_mean_watts,
    )


def _finding(use: FindingUse, report: Report, causes: Sequence[Group]) -> FindingSeen:
    # Of its job, or of its GPUs where it is of none.
    gpus = {uuid for job in report.jobs if job.key == use.job for uuid in job.gpus} or {*use.gpus}
    watched = total(gpu.watched_seconds for gpu in report.gpus if gpu.uuid in gpus)
    cost = use.cost_gpu_seconds
    return FindingSeen(
        **{name: getattr(use, name) for name in _ALIKE},
        job=_job(use.job),
        since_unix_seconds=use.stretches[0].begin_unix_seconds,
        until_unix_seconds=None if use.holds_at_end else use.stretches[-1].end_unix_seconds,
        advice=tuple([_advice(advice) for advice in use.advice]),
        cost=Cost(
            share=min(1.0, cost / watched) if cost is not None and watched else None,
            gpu_seconds=cost,
        ),
        cause=next(n for n, group in enumerate(causes) if use in group.uses),
    )


def _advice(one: Advice) -> AdviceSeen:
    named = {name: getattr(one, name) for name in ("action", "setting", "wanted", "why")}
    return AdviceSeen(**named, before=one.present)


def _job(key: ProcessKey | None) -> JobSeen | None:
    return None if key is None else JobSeen(pid=key[0], started_at_unix_seconds=key[1])


def _stacks(one: StackReport) -> StacksSeen:
    shares = [
        StackShare(
            category=share.category,
            percent=share.percent,
            line=share.lines[0].where if share.lines else None,
        )
        for share in one.shares
    ]
    return StacksSeen(pid=one.pid, rank=one.rank, problem=one.problem, shares=tuple(shares))
