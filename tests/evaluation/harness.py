"""Puts cases before the diagnosis and notes what it said, and when."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from gpuwatch.core.model import GpuKey, Snapshot
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from tests.evaluation.case import HEALTHY, UNDECIDED, Judged, Subject
from tests.evaluation.simulator.cases import ABOUT_LOADERS, Case

LOADER_ADVICE = "loader advice"
EVENTS = frozenset({"hardware_errors", "gpu_lost"})
"""Of these a report keeps what was said when they happened."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was said of one subject."""

    case: str
    label: str
    accepted: frozenset[str]
    said: str
    """The rule of the first finding at the end, ``healthy`` or ``undecided``."""
    confidence: float | None
    seconds_to_detect: float | None
    """Until a right answer came first, from when the fault began."""
    alarms: tuple[str, ...]
    """Rules whose findings (not mere information) were raised and are no right answer."""
    others: tuple[str, ...]
    """The findings after the first, at the end."""
    gpu_hours: float
    advice: frozenset[str] = frozenset()
    """All that was advised at any moment."""
    summary: str = ""

    @property
    def right(self) -> bool:
        return self.said in self.accepted


def run(case: Judged, watching: Iterable[Snapshot] | None = None) -> list[Outcome]:
    """The outcomes of all subjects of a case."""
    diagnosing = Engine()
    snapshots = iter(watching or case.watch())
    # On a crowded machine the first look can be over before the driver answers.
    first = next((one for one in snapshots if one.gpus), None)
    if first is None:
        raise ValueError(f"{case.name} has no snapshots")
    keys = [gpu.identity.uuid for gpu in first.gpus]
    watched = [
        _Watched(subject, frozenset(keys[gpu] for gpu in subject.gpus)) for subject in case.subjects
    ]
    begin = last = first.monotonic_seconds
    looked = -1
    for snapshot in chain((first,), snapshots):
        diagnosing.push(snapshot)
        last = snapshot.monotonic_seconds
        # A person reads once a second, whatever the sampling.
        second = math.floor(last - begin)
        if second == looked:
            continue
        looked = second
        said = diagnosing.diagnosis
        for one in watched:
            one.look(said, last - begin)
    for one in watched:
        one.look(diagnosing.diagnosis, last - begin)
    return [one.outcome(case, last - begin) for one in watched]


def judge(case: Case) -> list[Outcome]:
    """As ``run``; times count from its first step on, and advice on a loader to a job that has
    none, or a good one, is wrong at any moment, whatever was said with it."""
    watching = case.watch()
    outcomes = run(case, watching)
    for one, subject in zip(outcomes, case.subjects, strict=True):
        if one.seconds_to_detect is not None:
            begins = watching.begins(subject.gpus)
            one.seconds_to_detect = max(0.0, one.seconds_to_detect - begins)
            one.said = one.label if one.label in EVENTS else one.said
        if case.loader_fine and about_loaders(one):
            one.said, one.others = LOADER_ADVICE, (one.said, *one.others)
    return outcomes


def about_loaders(outcome: Outcome) -> list[str]:
    return [advice for advice in sorted(outcome.advice) if ABOUT_LOADERS.search(advice)]


class _Watched:
    """One subject while its case runs."""

    def __init__(self, subject: Subject, keys: frozenset[GpuKey]) -> None:
        self.subject, self.keys = subject, keys
        self.right_at: float | None = None
        self.findings: list[Finding] = []
        self.said = UNDECIDED
        self.alarms: list[str] = []
        self.advice: set[str] = set()
        self._raised: set[str] = set()

    def look(self, diagnosis: Diagnosis, elapsed: float) -> None:
        self.findings = [one for one in diagnosis.findings if self._about(one)]
        if self.findings:
            self.said = self.findings[0].rule
        else:
            open_here = self.keys.intersection(diagnosis.undecided_gpus)
            early = not diagnosis.decided and not diagnosis.undecided_gpus
            self.said = UNDECIDED if open_here or early else HEALTHY
        # Silence is no detection, right as it may be.
        found = self.said in self.subject.accepted - {HEALTHY, UNDECIDED}
        if found and self.right_at is None:
            self.right_at = elapsed
        raised = {one.rule for one in self.findings if one.severity != "info"}
        wrong = raised - self.subject.accepted - self.subject.beside - {self.subject.label}
        self.alarms += sorted(wrong - self._raised)
        self._raised = wrong
        self.advice.update(advice.action for one in self.findings for advice in one.advice)

    def _about(self, finding: Finding) -> bool:
        return not finding.gpus or bool(self.keys.intersection(finding.gpus))

    def outcome(self, case: Judged, seconds: float) -> Outcome:
        subject = self.subject
        first = self.findings[0] if self.findings else None
        took = self.right_at
        return Outcome(
            case=case.name,
            label=subject.label,
            accepted=subject.accepted,
            said=self.said,
            confidence=first.confidence if first else None,
            seconds_to_detect=None if took is None else max(0.0, took - subject.from_seconds),
            alarms=tuple(self.alarms),
            others=tuple(one.rule for one in self.findings[1:]),
            gpu_hours=len(self.keys) * seconds / 3600.0,
            advice=frozenset(self.advice),
            summary=first.summary if first else "",
        )
