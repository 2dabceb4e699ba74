"""Findings in a few words: the cause, where, what is lost, what to change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, GpuKey, Job
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Diagnosis, Finding, FindingKey, Unchecked
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.panels.listing import brief_command

if TYPE_CHECKING:
    from gpuwatch.diagnosis.rule import Rule


SEVERITY_STYLES = {"error": "error", "warning": "warn", "info": "label"}


def by_key(findings: Iterable[Finding], key: FindingKey | None) -> Finding | None:
    """The finding as it is now; one that has moved to other GPUs of its job, or that others have
    joined, is still it."""
    if key is None:
        return None
    same = [finding for finding in findings if finding.rule == key.rule]
    for finding in same:
        if finding.key == key:
            return finding
    jobs = [one for one in same if one.job is not None and one.job == key.job]
    shared = [one for one in same if not set(one.gpus).isdisjoint(key.gpus)]
    return next(iter(jobs or shared), None)


def parts(finding: Finding) -> tuple[Finding, ...]:
    """Return the finding of each job, where it is one of several."""
    return finding.members or (finding,)


def whose(finding: Finding, jobs: Sequence[Job]) -> str:
    """``PID 4242 python train.py``, ``6 jobs``; nothing where no job is known."""
    keys = {one.job for one in parts(finding) if one.job is not None}
    if len(keys) > 1:
        return f"{len(keys)} jobs"
    commands = {job.key: brief_command(clean(job.command or "")) for job in jobs}
    return "".join([f"PID {key[0]} {commands.get(key, '')}".strip() for key in keys])


def rule_of(name: str) -> Rule:
    """The rule of this name; for that of another version one of which nothing is known."""
    # The rules come with the engine, which nobody waits for.
    from gpuwatch.diagnosis.catalogue import known  # noqa: PLC0415

    return known(name)


def cause(rule: str) -> str:
    """The cause in at most 22 characters."""
    return clean(rule_of(rule).title, 22)


def style_of(finding: Finding) -> str:
    return SEVERITY_STYLES.get(finding.severity, "warn")


def severity_sign(severity: str, glyphs: Glyphs) -> str:
    """A shape of its own for each severity."""
    signs = {"error": glyphs.grave, "info": glyphs.note}
    return signs.get(severity, glyphs.warning)


def about_gpu(diagnosis: Diagnosis | None, uuid: GpuKey) -> list[Finding]:
    """Return the findings that name this GPU, the leading one first."""
    found = () if diagnosis is None else diagnosis.findings
    return [one for one in found if uuid in one.gpus]


def gpu_names(uuids: Sequence[GpuKey], gpus: Sequence[Gpu]) -> str:
    """``GPU 0``, ``GPU 0-3,6``, ``8 GPUs`` (all); nothing where none of them is there."""
    named = [units.gpu_label(gpu) for gpu in gpus if gpu.uuid in uuids]
    if len(named) == len(gpus) > 1:
        return f"{len(gpus)} GPUs"
    return f"GPU {units.ranges(named)}" if named else ""


def place(finding: Finding, gpus: Sequence[Gpu]) -> str:
    """``GPU 0``, ``GPU 0-3,6``, ``8 GPUs`` (all), ``PID 4242``, or ``host``."""
    names = gpu_names(finding.gpus, gpus)
    if names:
        return names
    if finding.job is not None:
        return f"PID {finding.job[0]}"
    return "GPU" if finding.gpus else "host"


def lost(finding: Finding) -> str:
    """``38% lost``; nothing where no time is lost, or it is not known."""
    share = finding.cost_share
    if share is None or share <= 0:
        return ""
    return "<1% lost" if share < 0.005 else f"{share * 100:2.0f}% lost"


def lost_sentence(finding: Finding) -> list[str]:
    """Return ``lost 38% of the time, 46 GPU-seconds so far``; nothing where no time is lost."""
    parts = []
    if finding.cost_share is not None:
        parts.append(f"{finding.cost_share * 100:.0f}% of the time")
    if finding.cost_gpu_seconds is not None:
        parts.append(f"{units.gpu_time(finding.cost_gpu_seconds)} so far")
    return [f"lost {', '.join(parts)}"] if parts else []


def changes(finding: Finding, room: int) -> str:
    """Return as many changes as fit, the first in any case."""
    text = ""
    sentences = any(one.setting is None or one.wanted is None for one in finding.advice)
    between = "; " if sentences else ", "
    for advice in finding.advice:
        more = f"{text}{between}{clean(advice.change)}" if text else clean(advice.change)
        if text and len(more) > room:
            break
        text = more
    return text


def undecided(unknown: Iterable[Unchecked]) -> dict[str, list[str]]:
    """Causes that could not be decided, by the readings that were missing."""
    causes: dict[str, list[str]] = {}
    for one in unknown:
        names = causes.setdefault(clean(", ".join(one.missing)), [])
        if cause(one.rule) not in names:
            names.append(cause(one.rule))
    return causes
