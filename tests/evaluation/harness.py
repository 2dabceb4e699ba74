"""Puts cases before the diagnosis and notes what it said, and when."""

import math
from dataclasses import dataclass, field
from itertools import chain

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.engine.engine import Engine
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from tests.evaluation.case import HEALTHY, UNDECIDED, Judged, Subject, Watching
from tests.evaluation.figures.baselines import Baseline

STACKS_SECONDS = 5
"""How often what a stack sampler saw is handed on."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was said of one subject."""

    case: str
    kind: str
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
    log: bool
    advice: frozenset[str] = frozenset()
    """All that was advised at any moment."""
    summary: str = ""
    baselines: dict[str, str] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        return self.said in self.accepted


def run(case: Judged, watching: Watching | None = None) -> list[Outcome]:
    """The outcomes of all subjects of a case."""
    diagnosing = Engine()
    watching = watching or case.watch()
    snapshots = iter(watching)
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
        for one in watched:
            one.baseline.push(snapshot, one.keys)
        # A person reads once a second, whatever the sampling.
        second = math.floor(last - begin)
        if second == looked:
            continue
        looked = second
        if second % STACKS_SECONDS == STACKS_SECONDS - 1 and (taken := watching.stacks()):
            diagnosing.note_stacks(*taken)
        said = diagnosing.diagnosis
        for one in watched:
            one.look(said, last - begin)
    for one in watched:
        one.look(diagnosing.diagnosis, last - begin)
    return [one.outcome(case, last - begin) for one in watched]


class _Watched:
    """One subject while its case runs."""

    def __init__(self, subject: Subject, keys: frozenset[GpuKey]) -> None:
        self.subject, self.keys = subject, keys
        self.baseline = Baseline()
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
            kind=case.kind,
            label=subject.label,
            accepted=subject.accepted,
            said=self.said,
            confidence=first.confidence if first else None,
            seconds_to_detect=None if took is None else max(0.0, took - subject.from_seconds),
            alarms=tuple(self.alarms),
            others=tuple(one.rule for one in self.findings[1:]),
            gpu_hours=len(self.keys) * seconds / 3600.0,
            log=case.log,
            advice=frozenset(self.advice),
            summary=first.summary if first else "",
            baselines=self.baseline.answers(subject),
        )
