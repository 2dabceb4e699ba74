"""Findings of one cause, as one: the same fault of several jobs, or of GPUs of no known job.

They are of one cause if their rule and severity are one, and their sentences differ in names of
GPUs and numbers only: another reason, or another rank to look after, stays apart.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from gpuwatch.core import units
from gpuwatch.core.bounds import highest, lowest, total
from gpuwatch.core.model import GpuIdentity, GpuKey
from gpuwatch.diagnosis.finding import Advice, Finding, rank
from gpuwatch.diagnosis.sentence import filled, shape, united

STEADY = 0.25
"""Of a cost: causes that differ by less keep their order. Two that share what is left of a machine
differ by some percent at every look, and a list that is being read must not move for that."""
WHOLE_LEAST = 3
"""GPUs of a machine that are called by their number where all are meant."""
Names = Callable[[Sequence[GpuKey]], str]
"""What GPUs are called: ``GPUs 0 and 2``, ``all 8 GPUs``."""


class Said(Protocol):
    """A finding, or an episode of one."""

    @property
    def rule(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def says(self) -> str: ...


def names_among(there: Iterable[GpuIdentity]) -> Names:
    """Return how GPUs are called among those that are there: ``GPU 0``, ``all 8 GPUs``."""
    every = sorted({gpu.uuid: gpu for gpu in there}.values(), key=lambda gpu: gpu.index)

    def names(uuids: Sequence[GpuKey]) -> str:
        wanted = [gpu for gpu in every if gpu.uuid in uuids]
        whole = len(wanted) == len(every) >= WHOLE_LEAST
        return f"all {len(every)} GPUs" if whole else units.gpus_named(wanted)

    return names


def cause_of(one: Said) -> tuple[str, ...]:
    """What it shares with those of the same cause, also of other moments."""
    return (one.rule, one.severity, shape(one.says or one.summary))


def as_causes(
    findings: Iterable[Finding], names: Names, before: Iterable[Finding] = ()
) -> list[Finding]:
    """One finding for each cause, by ``rank``; causes that cost about as much stay in the order
    of ``before``."""
    places = {cause_of(one): place for place, one in enumerate(before)}
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for one in findings:
        groups.setdefault(cause_of(one), []).append(one)
    out: list[Finding] = []
    for one in sorted([_as_one(group, names) for group in groups.values()], key=_rank):
        at, place = len(out), places.get(cause_of(one), len(places))
        while at and _is_near(out[at - 1], one):
            if place >= places.get(cause_of(out[at - 1]), len(places)):
                break
            at -= 1
        out.insert(at, one)
    return out


def _as_one(members: Sequence[Finding], names: Names) -> Finding:
    first, jobs = members[0], {one.job for one in members}
    says = united([one.says or one.summary for one in members])
    gpus = tuple(dict.fromkeys([uuid for one in members for uuid in one.gpus]))
    return replace(
        first,
        summary=filled(says, names(gpus), len(gpus), of=len(members)),
        confidence=min([one.confidence for one in members]),
        gpus=gpus,
        job=first.job if len(jobs) == 1 else None,
        since_unix_seconds=lowest(one.since_unix_seconds for one in members),
        advice=_advice(members),
        cost_share=_share(members),
        cost_gpu_seconds=total(one.cost_gpu_seconds for one in members),
        watched_gpu_seconds=_watched(members),
        members=tuple(members),
    )


def _advice(members: Sequence[Finding]) -> tuple[Advice, ...]:
    """Each change once; where only numbers differ (a job needs 6 workers, another 8), with both."""
    groups: dict[tuple[str | None, ...], list[Advice]] = {}
    for one in [advice for member in members for advice in member.advice]:
        alike = [shape(text or "") for text in (one.action, one.present, one.wanted)]
        groups.setdefault((one.setting, *alike), []).append(one)
    return tuple([_one_advice(alike) for alike in groups.values()])


def _one_advice(alike: Sequence[Advice]) -> Advice:
    present, wanted = [one.present or "" for one in alike], [one.wanted or "" for one in alike]
    return replace(
        alike[0],
        action=united([one.action for one in alike]),
        present=alike[0].present and united(present),
        wanted=alike[0].wanted and united(wanted),
    )


def _share(members: Sequence[Finding]) -> float | None:
    """Return the share of the time of all their GPUs that was lost, 0 to 1."""
    shares = [one.cost_share for one in members]
    if len(members) == 1 or None in shares:
        return shares[0]
    lost = sum([one.cost_gpu_seconds or 0.0 for one in members])
    watched = _watched(members)
    return min(1.0, lost / watched) if watched else 0.0


def _watched(members: Sequence[Finding]) -> float | None:
    """Return the GPU time that they were watched for; that of GPUs that several share, once."""
    watched: dict[tuple[GpuKey, ...], float | None] = {}
    for one in members:
        watched[one.gpus] = highest([watched.get(one.gpus), one.watched_gpu_seconds])
    return total(watched.values())


def _rank(finding: Finding) -> tuple[bool, float, float, int, float]:
    return rank(finding.severity, finding.cost_gpu_seconds, finding.cost_share, finding.confidence)


def _is_near(more: Finding, less: Finding) -> bool:
    """Compare what they cost; ``more`` ranks before ``less``."""
    if (more.severity == "error") != (less.severity == "error"):
        return False
    costs = (more.cost_gpu_seconds or 0.0, less.cost_gpu_seconds or 0.0)
    if costs == (0.0, 0.0):
        costs = (more.cost_share or 0.0, less.cost_share or 0.0)
    return costs[1] >= (1.0 - STEADY) * costs[0]
