"""The engine: snapshots in, a diagnosis out.

``push`` takes every snapshot; every two seconds of their own time all rules look at all windows.
What they say is held against flapping (``rule_state``), arranged into causes and symptoms
(``explanations``), accounted (``accounting``), put into a sentence (``verdict``) and entered into
the ledger. There is no clock but the snapshots', so a recording gives the same answers as the
machine did.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuwatch.core.model import Job, ProcessKey, Snapshot
from gpuwatch.core.store import GAP_INTERVALS, spoken_for, without_late
from gpuwatch.diagnosis.accounting import GpuTime
from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.diagnosis.facts.gpu import is_read
from gpuwatch.diagnosis.facts.observer import Observer, Stacks, SubjectKey
from gpuwatch.diagnosis.facts.window import STOPPED_STATES, Window
from gpuwatch.diagnosis.finding import (
    Diagnosis,
    Finding,
    Look,
    Unchecked,
    as_causes,
    names_among,
)
from gpuwatch.diagnosis.ledger import Counted, EpisodeKey, Ledger, key_of
from gpuwatch.diagnosis.rule import Rule
from gpuwatch.diagnosis.subject import NEW_SHARE, Subject
from gpuwatch.diagnosis.verdict import (
    EARLY_SECONDS,
    NO_GPU,
    SubjectStatus,
    questions,
    sentence,
)

EVALUATE_SECONDS = 2.0
"""Windows are a minute long: more often would say the same again, at a cost."""
LOOKS_AT_ONCE = 4
"""Most jobs (and GPUs without one) that are looked at each time: more take turns, and what is new
comes first."""
UNMOVED = 2.0
"""Times as long waits what has been watched for a whole window, while its GPUs do the same."""
EARLY_BY_SECONDS = 0.25
"""Snapshots are not taken to the millisecond; one a little early is not left out."""
LONGEST_STEP_SECONDS = 4.0
"""A pause of the watching counts as one look, not as minutes in which a fault held."""

_NOTHING_YET = Diagnosis(
    taken_at_unix_seconds=0.0, watched_seconds=0.0, verdict="No data yet.", decided=False
)


class Engine:
    """Follower of a machine, or of a recording of one."""

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
        self._ledger = Ledger(newest=True)
        self._lost_before: dict[EpisodeKey, Counted] = {}
        self._begin()

    def _begin(self) -> None:
        self._seen: dict[SubjectKey, SubjectStatus] = {}
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
        self._rows: dict[int, tuple[object, ...]] = {}
        """Facts of each job of the newest snapshot, which keeps the jobs, by their ``id``."""
        self._read: tuple[bool, ...] = ()

    def go_on_from(self, lost: Mapping[EpisodeKey, Counted]) -> None:
        """Count on from what was ``lost`` by now, as somebody says who saw more of the time."""
        every = [one for each in self._seen.values() for one in each.subject.findings()]
        own = {
            key_of(one): Counted(one.cost_gpu_seconds or 0.0, one.watched_gpu_seconds or 0.0)
            for one in every
        }
        for key, there in lost.items():
            known, here = self._lost_before.get(key, Counted()), own.get(key, Counted())
            # Never less than was said already: nothing that was lost comes back.
            self._lost_before[key] = Counted(
                max(known.cost, there.cost - here.cost),
                max(known.watched, there.watched - here.watched),
            )
        self._stale = self._stale or bool(every)

    def push(self, snapshot: Snapshot) -> None:
        """Take a snapshot; they come in the order of their time. One that is older than the one
        before is the beginning of another recording."""
        # Readings of different moments side by side would show faults that are not there.
        gpus = without_late(snapshot.gpus)
        if gpus is not snapshot.gpus:
            snapshot = replace(snapshot, gpus=gpus)
        now = snapshot.monotonic_seconds
        if self._before is not None and now < self._before:
            self._begin()
        seconds = spoken_for(snapshot, self._before)
        if self._before is not None:
            step = now - self._before
            longest = max(LONGEST_STEP_SECONDS, GAP_INTERVALS * snapshot.interval_seconds)
            self._watched += min(step, longest)
            self._ledger.advance(min(step, longest))
        self._before = now
        if self._ends_a_job(snapshot):
            self.finish()
            # Into the ledger, before what follows drops the job.
            assert self.diagnosis is not None
        self._observer.push(snapshot)
        self._time.add_snapshot(snapshot, seconds)
        # What was said of GPUs that cannot be read any more does not stand for a moment longer.
        at_once = self._take_there(snapshot)
        self._unix = snapshot.taken_at_unix_seconds
        if at_once or self._last is None or now - self._last >= self._every - EARLY_BY_SECONDS:
            self._evaluate(now)
        for one in self._seen.values():
            one.subject.count_until(now, self._watched)
        self._stale = True
        self._newest = snapshot

    def finish(self) -> None:
        """Look at everything once again, so that the last seconds count: nothing comes any more."""
        newest = self._newest
        if newest is None:
            return
        # At the last look those that could wait were left out.
        now = newest.monotonic_seconds
        if self._last != now or any(one.subject.looked_at < now for one in self._seen.values()):
            self._changed = True
            self._evaluate(now)

    def _ends_a_job(self, snapshot: Snapshot) -> bool:
        """Check whether a job that ran until now is over: its last seconds count."""
        if self._newest is None or self._newest.jobs is snapshot.jobs:
            return False
        running = {job.key for job in snapshot.jobs if job.ended_at_unix_seconds is None}
        before = [job.key for job in self._newest.jobs if job.ended_at_unix_seconds is None]
        return not running.issuperset(before)

    def _take_there(self, snapshot: Snapshot) -> bool:
        """Note what is there; return whether the GPUs that are read are others now."""
        self._rows = {id(job): self._rows.get(id(job)) or _row(job) for job in snapshot.jobs}
        gpus = [(gpu.identity.uuid, gpu.lost) for gpu in snapshot.gpus]
        there = (*self._rows.values(), *gpus, self._observer.groups)
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
        """Diagnosis up to the newest snapshot: causes as they were when they were looked at last,
        and what was lost to them by now."""
        if self._stale:
            self._stale = False
            self._diagnosis = self._compose()
            self._ledger.add_diagnosis(self._diagnosis)
        return self._diagnosis

    @property
    def ledger(self) -> Ledger:
        """Ledger of when findings held and what was lost to them, up to the last evaluation;
        one ledger as long as the engine, also over recordings that follow each other."""
        assert self.diagnosis is not None
        return self._ledger

    def _evaluate(self, now: float) -> None:
        self._last = now
        resting = {} if self._changed else self._resting(now)
        if resting and len(resting) == len(self._seen):
            return
        self._changed = False
        self._stale = True
        looked: dict[SubjectKey, SubjectStatus] = {}
        for window in self._observer.windows(resting):
            job, key = window.job, _key(window)
            ended = job is not None and job.has_ended
            if job is not None and ended and not any(one.orphaned for one in job.job.members):
                continue
            before = self._seen.get(key)
            same = before is not None and before.subject.ended == ended
            subject = (
                before.subject if before and same else Subject(self._rules, self._time, window)
            )
            subject.look(window, now, self._watched)
            looked[key] = SubjectStatus(subject, window)
        both = {**resting, **looked}
        # In the order they had: of findings that rank alike none jumps.
        self._seen = {key: both[key] for key in (*self._seen, *looked) if key in both}

    def _resting(self, now: float) -> dict[SubjectKey, SubjectStatus]:
        """Return the subjects whose next look can wait, or whose turn is a later one, while no job
        or GPU comes or goes."""
        due = [
            # Those that share GPUs together: much of what is to be known of them is the same.
            (one.subject.looked_at, one.subject.gpus, place, key)
            for place, (key, one) in enumerate(self._seen.items())
            if self._is_due(one.subject, now)
        ]
        first = [key for *_, key in sorted(due)[:LOOKS_AT_ONCE]]
        return {key: one for key, one in self._seen.items() if key not in first}

    def _is_due(self, subject: Subject, now: float) -> bool:
        waited, wait = now - subject.looked_at + EARLY_BY_SECONDS, subject.can_wait_seconds
        if waited < wait:
            return False
        young = wait < 0.9 * NEW_SHARE * subject.window.seconds
        return young or waited >= UNMOVED * wait or self._observer.has_moved(subject.window)

    def _compose(self) -> Diagnosis:
        findings: list[Finding] = []
        unknown: list[Unchecked] = []
        seen = [one for one in self._seen.values() if not one.subject.ended]
        for one in self._seen.values():
            findings += one.subject.findings()
            unknown += one.subject.unknown()
        findings = [self._with_what_was_lost(one) for one in findings]
        names = names_among(gpu.identity for one in self._seen.values() for gpu in one.window.gpus)
        causes = as_causes(self._without_covered(findings), names, self._diagnosis.causes)
        undecided = [gpu.uuid for one in seen if not one.is_decided for gpu in one.window.gpus]
        return Diagnosis(
            taken_at_unix_seconds=self._unix,
            watched_seconds=self._watched,
            verdict=sentence(causes, seen) if seen or self._has_gpus() else NO_GPU,
            findings=tuple([one for cause in causes for one in cause.members]),
            causes=tuple(causes),
            unknown=tuple(unknown),
            decided=self._watched >= EARLY_SECONDS and not undecided,
            undecided_gpus=tuple(dict.fromkeys(undecided)),
            questions=tuple(questions(seen)),
            pauses=tuple([pause for one in seen for pause in one.pauses]),
            looks=tuple([_look(one) for one in seen]),
        )

    def _has_gpus(self) -> bool:
        return self._newest is None or bool(self._newest.gpus)

    def _with_what_was_lost(self, one: Finding) -> Finding:
        before, cost = self._lost_before.get(key_of(one)), one.cost_gpu_seconds
        if before is None or cost is None:
            return one
        cost, watched = before.cost + cost, before.watched + (one.watched_gpu_seconds or 0.0)
        return replace(
            one,
            cost_gpu_seconds=cost,
            watched_gpu_seconds=watched,
            cost_share=min(1.0, cost / watched) if watched > 0.0 else one.cost_share,
        )

    def _without_covered(self, findings: list[Finding]) -> list[Finding]:
        """Return the findings that no other finding about the same GPUs covers."""
        covers = {rule.name: rule.covers for rule in self._rules}
        covered = {
            (name, uuid) for one in findings for name in covers[one.rule] for uuid in one.gpus
        }
        return [
            one
            for one in findings
            if not one.gpus or not all((one.rule, uuid) in covered for uuid in one.gpus)
        ]


def _row(job: Job) -> tuple[object, ...]:
    """Return whether a job runs, on what, and whether a part of it is stopped."""
    stopped = any(member.state in STOPPED_STATES for member in job.members)
    return (job.key, job.ended_at_unix_seconds is None, job.gpu_uuids, stopped)


def _look(status: SubjectStatus) -> Look:
    subject, window = status.subject, status.window
    job = None if window.job is None else window.job.key
    return Look(subject.gpus, job, subject.looked_at, window.back_seconds)


def _key(window: Window) -> SubjectKey:
    if window.job is not None:
        return (window.job.key, ())
    return (None, tuple([gpu.uuid for gpu in window.gpus]))
