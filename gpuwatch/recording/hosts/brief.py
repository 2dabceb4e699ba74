"""Brief lines: what a machine found about itself, in about a kilobyte, for a list of many machines.

The machine that is watched judges itself; a list of hosts needs neither its processes nor its
readings one by one. ``gpuwatch stream --brief`` prints a line for each reading (``encode``), and
the list draws from it. For a host that sends snapshots only (an older gpuwatch, nvidia-smi) the
same is made here (``brief_of``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from gpuwatch import __version__
from gpuwatch.core.bounds import Amount, Number, Seconds, Text, UnixSeconds, Whole, mean
from gpuwatch.core.codec import CodecError, decoded, safe
from gpuwatch.core.model import Gpu, GpuIdentity, Job, Problem, Snapshot
from gpuwatch.core.store import busy_name
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import LOST_AFTER_SECONDS, Diagnosis, Finding, in_short, lost_gpus

FINDINGS_MOST = 8
JOBS_MOST = 64
FOUND_MOST = 256
_SUMMARY_LENGTH = 300
BEGINS_WITH = ('{"kind":"brief"', '{"kind":"found"')
"""Beginnings of these lines: a line of a stream has another kind."""

JobKey = tuple[str, int]
"""Text that all parts of a job have in common, and its number of ranks."""


class Busy(NamedTuple):
    """How busy a GPU was since the line before, in percent."""

    low: Amount
    mean: Amount
    high: Amount


class GpuBrief(Struct, frozen=True, omit_defaults=True):
    busy_percent: Busy | None = None
    memory_percent: Amount | None = None
    power_watts: Amount | None = None
    temperature_celsius: Number | None = None


class FindingBrief(Struct, frozen=True, omit_defaults=True):
    """A cause that is open in the ledger."""

    rule: Text
    severity: Text
    summary: Text
    short: tuple[Text, ...] = ()
    """Shorter forms of the sentence, the longest first."""
    since_unix_seconds: UnixSeconds | None = None
    cost_gpu_seconds: Amount | None = None
    """GPU time lost to it so far."""
    lost_share: Amount | None = None
    """Share of the time of its GPUs that is lost now, 0 to 1."""
    change: Text = ""
    """The first change to make, in few words."""
    gain: Text = ""
    """``about 1.8x as fast``; empty where nothing is promised."""


class JobBrief(Struct, frozen=True):
    """A part of a job that has ranks on other machines too."""

    key: JobKey
    called: Text
    """``job 4711``, or the script that it runs."""
    ranks: tuple[int, ...]


class Brief(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="brief"):
    """A machine at one moment, as it judges itself."""

    gpuwatch: Text
    """Version of gpuwatch there."""
    taken_at_unix_seconds: UnixSeconds
    interval_seconds: Seconds
    gpus: Annotated[tuple[GpuBrief, ...], Meta(max_length=4096)] = ()
    lost_gpus: Amount | None = None
    """How many GPUs' time is lost to what was found; ``None`` in the first half minute."""
    verdict: Text = ""
    findings: Annotated[tuple[FindingBrief, ...], Meta(max_length=FINDINGS_MOST)] = ()
    """The gravest first, then what loses most."""
    problem: Problem | None = None
    """The first thing that could not be read and is more than good to know."""
    jobs: Annotated[tuple[JobBrief, ...], Meta(max_length=JOBS_MOST)] = ()
    simulated: bool = False


class FoundJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that a finding is about."""

    pid: Whole
    started_at_unix_seconds: UnixSeconds
    user: Text | None = None
    slurm_job: Text | None = None


class Found(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="found"):
    """All that a machine finds about itself at one moment, in full: alerts are made from it."""

    taken_at_unix_seconds: UnixSeconds
    watched_seconds: Seconds
    findings: Annotated[tuple[Finding, ...], Meta(max_length=FOUND_MOST)] = ()
    gpus: Annotated[tuple[GpuIdentity, ...], Meta(max_length=4096)] = ()
    jobs: Annotated[tuple[FoundJob, ...], Meta(max_length=FOUND_MOST)] = ()


def found_of(snapshot: Snapshot, diagnosis: Diagnosis) -> Found:
    """Return what was found up to ``snapshot``, with the GPUs and jobs that it is about."""
    findings = diagnosis.findings[:FOUND_MOST]
    about = {one.job for one in findings}
    return Found(
        taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
        watched_seconds=diagnosis.watched_seconds,
        findings=findings,
        gpus=tuple([gpu.identity for gpu in snapshot.gpus]),
        jobs=tuple(
            [
                FoundJob(
                    pid=job.pid,
                    started_at_unix_seconds=job.started_at_unix_seconds or 0.0,
                    user=job.user,
                    slurm_job=job.slurm_job,
                )
                for job in snapshot.jobs
                if job.key in about
            ]
        ),
    )


def brief_of(snapshot: Snapshot, diagnosis: Diagnosis | None) -> Brief:
    """Return ``snapshot``, with what was found up to it, in brief."""
    known = diagnosis is not None and diagnosis.watched_seconds >= LOST_AFTER_SECONDS
    lost = (
        lost_gpus(diagnosis.findings, snapshot) if diagnosis and known and snapshot.gpus else None
    )
    grave = [one for one in snapshot.problems if one.severity != "info"]
    return Brief(
        gpuwatch=__version__,
        taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
        interval_seconds=snapshot.interval_seconds,
        gpus=tuple([_gpu(gpu) for gpu in snapshot.gpus]),
        lost_gpus=None if lost is None else round(lost, 2),
        verdict="" if diagnosis is None else clean(diagnosis.verdict, _SUMMARY_LENGTH),
        findings=tuple(
            [
                FindingBrief(
                    rule=one.rule,
                    severity=one.severity,
                    summary=clean(one.summary, _SUMMARY_LENGTH),
                    short=tuple(
                        [clean(says, _SUMMARY_LENGTH) for says in in_short(one, snapshot.gpus)]
                    ),
                    since_unix_seconds=_rounded(one.since_unix_seconds),
                    cost_gpu_seconds=_rounded(one.cost_gpu_seconds),
                    lost_share=None if one.share_lost is None else round(one.share_lost, 2),
                    change=_change(one),
                    gain="" if one.gain is None or not one.promise else one.gain.brief,
                )
                for one in (() if diagnosis is None else diagnosis.causes[:FINDINGS_MOST])
            ]
        ),
        problem=grave[0] if grave else None,
        jobs=tuple(_parts(snapshot.jobs))[:JOBS_MOST],
        simulated=snapshot.simulated,
    )


def _change(finding: Finding) -> str:
    for advice in finding.advice[:1]:
        return clean(advice.brief or advice.change, _SUMMARY_LENGTH)
    return ""


def encode(said: Brief | Found) -> str:
    """Return the line, without its end."""
    return msgspec.json.encode(said).decode()


_DECODER: msgspec.json.Decoder[Brief | Found] = msgspec.json.Decoder(Brief | Found)


def decode(line: str) -> Brief | Found:
    """Return what such a line says. Raises ``CodecError``."""
    return decoded(_DECODER, safe(line))


class _Written(Struct):
    gpuwatch: Text | None = None


_WRITTEN = msgspec.json.Decoder(_Written)


def version_in(line: str) -> str | None:
    """Return the version of gpuwatch that a line says it was written by, also where nothing else of
    it can be read."""
    try:
        return decoded(_WRITTEN, safe(line)).gpuwatch
    except CodecError:
        return None


def upgrade_note(there: str | None) -> str | None:
    """Return a sentence that says which side to upgrade, where gpuwatch ``there`` has another
    version than this one."""
    if there is None or there == __version__:
        return None
    side = "here" if _version(there) > _version(__version__) else "there"
    return f"gpuwatch is {clean(there, 20)} there and {__version__} here: upgrade it {side}."


def _version(text: str) -> tuple[int, ...]:
    released = text.partition("+")[0].split(".")
    return tuple([int(part) for part in released if part.isdecimal()])


def key_of(job: Job) -> JobKey | None:
    """Return the key of a job that has ranks on other machines too: where its ranks met, else its
    Slurm job, else whose command it is; ``None`` for any other job."""
    world = job.world_size
    if world is None or world <= len(job.ranks):
        return None
    return job.rendezvous or job.slurm_job or f"{job.user}: {job.command}", world


def known_ranks(job: Job) -> tuple[int, ...]:
    return tuple([one.rank for one in job.ranks if one.rank is not None])


def are_one(parts: Sequence[tuple[int, Sequence[int]]]) -> bool:
    """Check whether what may be parts of a job, by the number of their machine and their ranks, are
    one job's: on several machines, and no rank twice."""
    ranks = [rank for _, given in parts for rank in given]
    machines = {number for number, _ in parts}
    return 1 < len(machines) == len(parts) and len(set(ranks)) == len(ranks)


def _parts(jobs: Sequence[Job]) -> list[JobBrief]:
    running = [(key_of(job), job) for job in jobs if job.ended_at_unix_seconds is None]
    return [JobBrief(key, _called(job), known_ranks(job)) for key, job in running if key]


def _called(job: Job) -> str:
    script = next((one for one in (job.command or "").split() if one.endswith(".py")), "job")
    return clean(f"job {job.slurm_job}" if job.slurm_job else script.rpartition("/")[2], 60)


def _gpu(gpu: Gpu) -> GpuBrief:
    reading, whole = gpu.reading, gpu.identity.memory_total_bytes
    # Since the snapshot before, where the driver has fine samples: a poll that beats with the
    # steps of a job would say anything.
    percents = [one.percent for one in reading.busy_samples or ()]
    polled = getattr(reading, busy_name(reading))
    if not percents and polled is not None:
        percents = [polled]
    average, used = mean(percents), reading.memory_used_bytes
    return GpuBrief(
        busy_percent=None
        if average is None
        else Busy(round(min(percents), 1), round(average, 1), round(max(percents), 1)),
        memory_percent=_rounded(100 * used / whole if used is not None and whole else None),
        power_watts=_rounded(reading.power_watts),
        temperature_celsius=_rounded(reading.temperature_celsius),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
