"""Results of the diagnosis: findings with their evidence, and what could not be checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple, TypeVar

from gpuwatch.core.model import GpuKey, Job, ProcessKey

SEVERITIES = ("error", "warning", "info")
"""``error``: work is lost or at risk; ``warning``: time is lost; ``info``: good to know."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reading a verdict rests on. ``supports`` is false for what speaks against it."""

    name: str
    """In words: ``busy``, ``loader workers' CPU``, ``run-queue wait``."""
    value: float | str | bool | None = None
    unit: str | None = None
    """``%``, ``W``, ``s``, ``cores``, ``bytes/s``, ``C`` ..."""
    threshold: float | None = None
    """What ``value`` was held against, in the same unit."""
    says: str = ""
    """A clause for a person: ``the workers are at the limit of a core each``."""
    _: KW_ONLY
    supports: bool = True


@dataclass(frozen=True, slots=True)
class Advice:
    """One change to make. ``setting`` names a knob where there is one (``num_workers``)."""

    action: str
    """A sentence in the imperative: ``Raise num_workers from 2 to 8.``"""
    _: KW_ONLY
    setting: str | None = None
    present: str | None = None
    """What the setting is now."""
    wanted: str | None = None
    """What to set it to."""
    why: str = ""

    @property
    def change(self) -> str:
        """``num_workers 2 -> 8``, ``pin_memory=True``, ``batch size: 2 times``, or the action."""
        if self.setting is None or self.wanted is None:
            return self.action.rstrip(".")
        if self.present is None:
            return f"{self.setting}{'=' if self.setting.isidentifier() else ': '}{self.wanted}"
        return f"{self.setting} {self.present} -> {self.wanted}"


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A rule that fired, or could have been thought of, and is not the cause here."""

    rule: str
    why: str


def severity_place(severity: str) -> int:
    """0 for the gravest; one that a later version made counts as a warning."""
    return SEVERITIES.index(severity if severity in SEVERITIES else "warning")


class FindingKey(NamedTuple):
    """Identity of a finding: it is the same one a second later."""

    rule: str
    gpus: tuple[GpuKey, ...]
    job: ProcessKey | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause of under-use (or a danger) that holds now."""

    rule: str
    severity: str
    confidence: float
    """0 to 1: how likely the cause named is the right one."""
    summary: str
    """A sentence: what and where, with its numbers."""
    gpus: tuple[GpuKey, ...] = ()
    job: ProcessKey | None = None
    since_unix_seconds: float | None = None
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    cost_share: float | None = None
    """0 to 1: of the GPU time of its job while it was watched. The shares of one job add up to 1
    at most."""
    cost_gpu_seconds: float | None = None
    """GPU time lost to it so far."""
    watched_gpu_seconds: float | None = None
    """GPU time that the share is of."""
    says: str = ""
    """The summary with places for its GPUs (``sentence.filled``)."""
    members: tuple[Finding, ...] = ()
    """Those of which it is made where several jobs, or GPUs of no known job, have one cause."""

    @property
    def key(self) -> FindingKey:
        return FindingKey(self.rule, self.gpus, self.job)


def rank(
    severity: str, gpu_seconds: float | None, share: float | None = None, sure: float = 0.0
) -> tuple[bool, float, float, int, float]:
    """Sorts what is in danger first, then by cost, the most costly first. This is the order of
    findings everywhere."""
    return (
        severity != "error",
        -(gpu_seconds or 0.0),
        -(share or 0.0),
        severity_place(severity),
        -sure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """A rule that could not be checked, and the readings that were missing."""

    rule: str
    missing: tuple[str, ...]
    gpus: tuple[GpuKey, ...] = ()
    job: ProcessKey | None = None


class Question(NamedTuple):
    """Something that cannot be decided."""

    says: str
    """A sentence with places for names and numbers (``sentence.filled``)."""
    gpus: tuple[GpuKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A stretch of idling of a GPU that had been steadily busy, longer than its usual waits, or
    one in which it was far less busy than usual (see ``busy_percent``)."""

    at_unix_seconds: float
    seconds: float
    busy_percent: float | None = None
    """Mean of those GPUs meanwhile: near 0 is idling, more is another kind of work (a validation
    pass with smaller batches)."""
    gpus: tuple[GpuKey, ...] = ()
    """Which paused."""
    wrote_bytes: float | None = None
    sent_bytes: float | None = None
    """Over the network; where only the machine's traffic was read, what was more than before."""
    main_thread_percent: float | None = None
    busiest_worker_percent: float | None = None
    other_workers_percent: float | None = None
    """As of ``JobFacts``, in the pause."""
    workers_changed: bool = False
    """Loader workers began or ended in it."""
    phase: str | None = None
    """What the job reported that it did: ``checkpoint``, ``validation`` or ``train``."""
    memory_freed_share: float | None = None
    """0 to 1: how much of the GPU memory held just before was given back in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything the engine says at one moment, the most costly cause first."""

    taken_at_unix_seconds: float
    watched_seconds: float
    verdict: str
    """One sentence for a person."""
    findings: tuple[Finding, ...] = ()
    """One for each job, or GPUs of no known job."""
    causes: tuple[Finding, ...] = ()
    """The same, those of one cause as one: for a person."""
    unknown: tuple[Unchecked, ...] = ()
    decided: bool = True
    """False while it is too early, or too little can be read, to say that nothing is wrong."""
    undecided_gpus: tuple[GpuKey, ...] = ()
    """Those of which it cannot be said."""
    questions: tuple[Question, ...] = ()
    """What is undecided of them, and of GPUs that cannot be read now."""
    pauses: tuple[Pause, ...] = ()
    """Of the last 15 minutes."""

    def __post_init__(self) -> None:
        if not self.causes:
            object.__setattr__(self, "causes", self.findings)


def about_job(diagnosis: Diagnosis | None, job: Job) -> tuple[Finding, ...]:
    """The findings that name the job or a GPU of it, and those about the whole machine."""
    return () if diagnosis is None else tuple(_about(diagnosis.findings, job))


def cut_to(diagnosis: Diagnosis, job: Job) -> Diagnosis:
    """Cut ``diagnosis`` down to the job: what is said of other jobs and their GPUs is left out."""
    return replace(
        diagnosis,
        findings=about_job(diagnosis, job),
        causes=(),
        unknown=tuple(_about(diagnosis.unknown, job)),
    )


Said = TypeVar("Said", Finding, Unchecked)


def _about(said: Iterable[Said], job: Job) -> Iterator[Said]:
    mine = set(job.gpu_uuids)
    for one in said:
        of_machine = not one.gpus or not mine.isdisjoint(one.gpus)
        if one.job == job.key or (one.job is None and of_machine):
            yield one
