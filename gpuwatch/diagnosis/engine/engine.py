"""The engine: snapshots in, a diagnosis out.

``push`` takes every snapshot; every two seconds of their own time all rules look at all windows.
What they say is held against flapping (``hysteresis``), arranged into causes and symptoms
(``arranging``), accounted (``accounting``) and put into a sentence (``verdict``). There is no
clock but the snapshots', so a recording gives the same answers as the machine did.
"""

import math
from collections.abc import Container, Hashable, Sequence
from dataclasses import replace

from gpuwatch.core.history import GAP_INTERVALS, without_late
from gpuwatch.core.model import ProcessKey, Snapshot
from gpuwatch.diagnosis.engine.accounting import GpuTime
from gpuwatch.diagnosis.engine.catalogue import RULES
from gpuwatch.diagnosis.engine.subject import Subject
from gpuwatch.diagnosis.engine.verdict import EARLY_SECONDS, Seen, questions, sentence
from gpuwatch.diagnosis.facts.observer import Observer, Stacks, SubjectKey, spoken_for
from gpuwatch.diagnosis.facts.watched_gpu import is_read
from gpuwatch.diagnosis.facts.window import STOPPED_STATES, Window
from gpuwatch.diagnosis.finding import Diagnosis, Finding, Unchecked, ordered
from gpuwatch.diagnosis.rule import Rule
from gpuwatch.diagnosis.rules.shared.pauses import real_pauses

EVALUATE_SECONDS = 2.0
"""Windows are a minute long: more often would say the same again, at a cost."""
CALM = 5.0
"""How much longer a job watched for a minute waits for its next look while nothing begins or ends
to fire on it, and no job or GPU comes or goes."""
LOOKS_AT_ONCE = 8
"""Of more jobs (and GPUs without one) than this, not all are looked at each time: they take turns,
and what is new comes first."""
EARLY_BY_SECONDS = 0.25
"""Snapshots are not taken to the millisecond; one a little early is not left out."""
LONGEST_STEP_SECONDS = 4.0
"""A pause of the watching counts as one look, not as minutes in which a fault held."""

_NOTHING_YET = Diagnosis(
    taken_at_unix_seconds=0.0, watched_seconds=0.0, verdict="No data yet.", decided=False
)


class Engine:
    """Follows a machine, or a recording of one."""

    def __init__(
        self,
        rules: Sequence[Rule] = RULES,
        *,
        observer: Observer | None = None,
        evaluate_seconds: float = EVALUATE_SECONDS,
    ) -> None:
        self._rules = tuple(rules)
        self._observer = Observer() if observer is None else observer
        self._every = evaluate_seconds
        self._begin()

    def _begin(self) -> None:
        self._subjects: dict[SubjectKey, Subject] = {}
        self._time = GpuTime()
        self._diagnosis = _NOTHING_YET
        self._stale = False
        self._last: float | None = None
        self._newest: Snapshot | None = None
        self._before: float | None = None
        self._watched = 0.0
        self._unix = 0.0
        self._changed = True
        self._there: tuple[object, ...] = ()
        self._read: tuple[bool, ...] = ()
        self._turns = 1

    def push(self, snapshot: Snapshot) -> None:
        """Take a snapshot; they come in the order of their time. One that is older than the one
        before is the beginning of another recording."""
        # Readings of different moments side by side would show faults that are not there.
        snapshot = replace(snapshot, gpus=without_late(snapshot.gpus))
        now = snapshot.monotonic_seconds
        if self._before is not None and now < self._before:
            self._begin()
        seconds = spoken_for(snapshot, self._before)
        if self._before is not None:
            step = now - self._before
            longest = max(LONGEST_STEP_SECONDS, GAP_INTERVALS * snapshot.interval_seconds)
            self._watched += min(step, longest)
        self._before = now
        self._observer.push(snapshot)
        self._time.push(snapshot, seconds)
        # What was said of GPUs that cannot be read any more does not stand for a moment longer.
        at_once = self._take_there(snapshot)
        if at_once or self._last is None or now - self._last >= self._every - EARLY_BY_SECONDS:
            self._unix = snapshot.taken_at_unix_seconds
            self._evaluate(now, snapshot.interval_seconds)
        self._newest = snapshot

    def finish(self) -> None:
        """Nothing comes any more: look at everything once again, so that the last seconds count."""
        newest = self._newest
        if newest is not None and newest.monotonic_seconds != self._last:
            self._changed = True
            self._unix = newest.taken_at_unix_seconds
            self._evaluate(newest.monotonic_seconds, newest.interval_seconds)

    def _take_there(self, snapshot: Snapshot) -> bool:
        """Notes what is there, and whether the GPUs of which there are readings are others now."""
        there = (*_there(snapshot), self._observer.groups)
        read = tuple([is_read(gpu.reading) for gpu in snapshot.gpus])
        others = read != self._read
        if others or there != self._there:
            self._changed = True
        self._there, self._read = there, read
        return others

    def note_stacks(self, job: ProcessKey, stacks: Stacks) -> None:
        """Take what a stack sampler saw of a job's main threads (see ``JobFacts.stacks``)."""
        self._observer.note_stacks(job, stacks)

    @property
    def diagnosis(self) -> Diagnosis:
        """As of the last evaluation; the same object until the next one."""
        if self._stale:
            self._stale = False
            self._diagnosis = self._compose()
        return self._diagnosis

    def _evaluate(self, now: float, interval: float) -> None:
        self._last = now
        resting = {} if self._changed else self._resting(now)
        self._turns = max(1, math.ceil((len(self._subjects) - len(resting)) / LOOKS_AT_ONCE))
        if self._turns > 1 and not self._changed:
            resting |= self._waiting(resting)
        if resting and len(resting) == len(self._subjects):
            return
        self._changed = False
        self._stale = True
        subjects: dict[SubjectKey, Subject] = {}
        for window in self._observer.windows(resting):
            if _has_ended(window) and not _left_some(window):
                continue
            key = _key(window)
            subject = self._subjects.get(key)
            if subject is None or subject.ended != _has_ended(window):
                rules, ended = self._rules_for(window)
                subject = Subject(rules, self._time, ended)
            subject.look(window, now, self._seconds_since(subject, now, interval))
            subjects[key] = subject
        both = {**resting, **subjects}
        # In the order they had: of findings that rank alike none jumps.
        self._subjects = {key: both[key] for key in (*self._subjects, *subjects) if key in both}

    def _seconds_since(self, subject: Subject, now: float, interval: float) -> float:
        if subject.looked_at is None:
            return 0.0
        apart = max(self._every, interval)
        rested = self._every * CALM if subject.is_calm else apart
        waited = rested + (self._turns - 1) * apart
        longest = max(LONGEST_STEP_SECONDS, 1.5 * interval, 1.2 * waited)
        return min(now - subject.looked_at, longest)

    def _resting(self, now: float) -> dict[SubjectKey, Subject]:
        """Those whose next look can wait."""
        calm = CALM * self._every - EARLY_BY_SECONDS
        return {
            key: subject
            for key, subject in self._subjects.items()
            if subject.is_calm and subject.looked_at is not None and now - subject.looked_at < calm
        }

    def _waiting(self, resting: Container[SubjectKey]) -> dict[SubjectKey, Subject]:
        """Those whose turn is a later one."""
        due = [one for one in self._subjects.items() if one[0] not in resting]
        due.sort(key=lambda one: one[1].looked_at or 0.0)
        return dict(due[LOOKS_AT_ONCE:])

    def _rules_for(self, window: Window) -> tuple[tuple[Rule, ...], bool]:
        if not _has_ended(window):
            return self._rules, False
        return tuple([rule for rule in self._rules if rule.after_end]), True

    def _compose(self) -> Diagnosis:
        findings: list[Finding] = []
        unknown: list[Unchecked] = []
        seen: list[Seen] = []
        for subject in self._subjects.values():
            findings += subject.findings()
            unknown += subject.unknown()
            if subject.window is not None and not subject.ended:
                seen.append(Seen(subject, subject.window))
        shown = self._without_repeats(ordered(findings, self._diagnosis.findings))
        undecided = [gpu.uuid for one in seen if not one.is_decided for gpu in one.window.gpus]
        return Diagnosis(
            taken_at_unix_seconds=self._unix,
            watched_seconds=self._watched,
            verdict=sentence(shown, seen),
            findings=tuple(shown),
            unknown=tuple(unknown),
            decided=self._watched >= EARLY_SECONDS and not undecided,
            undecided_gpus=tuple(dict.fromkeys(undecided)),
            questions=tuple(questions(seen)),
            pauses=tuple([pause for one in seen for pause in real_pauses(one.window)]),
        )

    def _without_repeats(self, findings: list[Finding]) -> list[Finding]:
        """Faults of a card once, not for each job on it, and nothing that another one covers."""
        rules = {rule.name: rule for rule in self._rules}
        covered = {
            (name, uuid) for one in findings for name in rules[one.rule].covers for uuid in one.gpus
        }
        shown: dict[Hashable, Finding] = {}
        for one in findings:
            if one.gpus and all((one.rule, uuid) in covered for uuid in one.gpus):
                continue
            key = one.key._replace(job=None) if rules[one.rule].of_card else one.key
            shown.setdefault(key, one)
        return list(shown.values())


def _there(snapshot: Snapshot) -> tuple[object, ...]:
    """Jobs that run, on what, whether one is stopped, and GPUs that answer."""
    jobs = [
        (
            job.key,
            job.ended_at_unix_seconds is None,
            job.gpu_uuids,
            any(member.state in STOPPED_STATES for member in job.members),
        )
        for job in snapshot.jobs
    ]
    return (*jobs, *[(gpu.identity.uuid, gpu.lost) for gpu in snapshot.gpus])


def _has_ended(window: Window) -> bool:
    return window.job is not None and window.job.has_ended


def _left_some(window: Window) -> bool:
    return window.job is not None and any(one.orphaned for one in window.job.job.members)


def _key(window: Window) -> SubjectKey:
    if window.job is not None:
        return (window.job.key, ())
    return (None, tuple([gpu.uuid for gpu in window.gpus]))
