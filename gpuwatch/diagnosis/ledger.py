"""The ledger of what was found: from when to when each finding held, and the GPU time lost to it.

One mechanism for screens, reports, alerts, metrics and recordings. A ledger is fed with each new
``Diagnosis``; a finding that is back within ``MERGE_SECONDS`` was never gone. Ledgers of several
files or machines add up (``merge``), and so do the pages that the frames of a recording carry.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace as replaced

from gpuwatch.core.bounds import Amount, Text, UnixSeconds
from gpuwatch.core.model import GpuKey, ProcessKey
from gpuwatch.diagnosis.finding import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Gain,
    Names,
    Pause,
    RuledOut,
    as_causes,
    cause_of,
    is_in_doubt,
)

MERGE_SECONDS = 60.0
"""Time within which a finding that is back was never gone: the diagnosis looks at windows of a
minute."""
EPISODES_OF_ONE_KEPT = 64
"""Episodes of one finding; of more, the two that lie nearest to each other become one."""
EPISODES_KEPT = 2000
"""Episodes of all findings; of more, the one that is over and lost least time is left out."""
QUESTIONS_OF_A_GPU_KEPT = 32
PAUSES_OF_A_GPU_KEPT = 1000
Share = Annotated[float, Meta(ge=0, le=1)]


class EpisodeKey(NamedTuple):
    """Identity of a finding over time. Which of a job's GPUs it names may change while it holds."""

    rule: str
    job: ProcessKey | None
    gpus: tuple[GpuKey, ...]
    """GPUs, where no job is known."""


def key_of(finding: Finding) -> EpisodeKey:
    return EpisodeKey(finding.rule, finding.job, finding.gpus if finding.job is None else ())


class Episode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Time for which a finding held, and the GPU time lost to it meanwhile."""

    rule: Text
    severity: Text
    summary: Text
    """Sentence that says what and where, with its numbers."""
    says: Text = ""
    """The summary with places for its GPUs, as it is said of several jobs at once."""
    short: tuple[Text, ...] = ()
    """Shorter forms of the summary, as ``Finding.short``."""
    confidence: Share = 0.0
    """Likelihood that the cause named is the right one, when it was surest; sentence, evidence and
    advice are as they were then, or as they were last (``Ledger(newest=True)``)."""
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    gain: Gain | None = None
    """Gain of its best cure, as an estimate."""
    lost_watts: Amount | None = None
    """Power of a GPU in the time that is lost."""
    ruled_out: tuple[RuledOut, ...] = ()
    job: ProcessKey | None = None
    gpus: tuple[GpuKey, ...] = ()
    """All GPUs that it was ever about."""
    late: tuple[GpuKey, ...] = ()
    """GPUs of the episode that the other GPUs waited for."""
    begin_unix_seconds: UnixSeconds = 0.0
    end_unix_seconds: UnixSeconds | None = None
    """``None`` while it holds."""
    cost_gpu_seconds: Amount | None = None
    """GPU time lost in it; ``None``: no time is lost, or it is not known how much."""
    watched_gpu_seconds: Amount | None = None
    """GPU time for which its job, or its GPUs, had been watched when it was seen last."""
    cost_share: Share | None = None
    """Share of the time of its job, while that was watched, when it was seen last."""

    @property
    def holds(self) -> bool:
        return self.end_unix_seconds is None

    @property
    def in_doubt(self) -> bool:
        """Whether its sentence says only what may be."""
        return is_in_doubt(self.advice)

    @property
    def key(self) -> EpisodeKey:
        return EpisodeKey(self.rule, self.job, self.gpus if self.job is None else ())

    def seconds(self, now: float) -> float:
        """Return its length; of one that holds, up to ``now``."""
        end = now if self.end_unix_seconds is None else self.end_unix_seconds
        return max(0.0, end - self.begin_unix_seconds)

    def finding(self) -> Finding:
        """Return the finding of this time alone, with what was lost in it."""
        return Finding(
            **{name: getattr(self, name) for name in OF_FINDING},
            since_unix_seconds=self.begin_unix_seconds,
            cost_gpu_seconds=self.cost_gpu_seconds,
            watched_gpu_seconds=self.watched_gpu_seconds,
            cost_share=self.cost_share,
            gpus=self.gpus,
        )


OF_FINDING = (
    *("rule", "severity", "confidence", "summary", "says", "short"),
    *("evidence", "advice", "gain", "lost_watts", "ruled_out", "job", "late"),
)
"""Fields of a finding that are kept of it as they are."""


class Undecided(Struct, frozen=True, kw_only=True):
    """Time for which nobody could say whether, or why, a GPU was under-used."""

    says: Text
    """The question: a sentence with places for names and numbers."""
    gpu: GpuKey
    begin_unix_seconds: UnixSeconds
    end_unix_seconds: UnixSeconds
    seconds: Amount = 0.0
    """Seconds of it in which the question was open."""


class Page(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Part of a ledger, to be kept or sent, and merged elsewhere."""

    episodes: tuple[Episode, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    pauses: tuple[Pause, ...] = ()


class Standing(NamedTuple):
    """The newest episode of a finding."""

    episode: Episode
    watched_seconds: float
    """Seconds watched since it came without a break, or since it went; gaps are left out."""


class Counted(NamedTuple):
    """Seconds that the subject of a finding has counted so far."""

    cost: float = 0.0
    watched: float = 0.0
    idle_lost: tuple[tuple[GpuKey, float], ...] = ()


class Ledger:
    """Episodes of a machine, a job or a file, with what stayed undecided, and pauses.

    Times are those of the diagnoses (Unix seconds), which come in their order.
    """

    def __init__(self, *, newest: bool = False) -> None:
        """``newest``: sentence, evidence and advice of an episode are those of its last diagnosis,
        not those of when it was surest."""
        self._newest = newest
        self._episodes: dict[EpisodeKey, list[Episode]] = {}
        self._holding: set[EpisodeKey] = set()
        self._counted: dict[EpisodeKey, Counted] = {}
        """Sums of each finding as its subject counted them last."""
        self._idle_lost: dict[GpuKey, defaultdict[str, float]] = {}
        self._turned: dict[EpisodeKey, float] = {}
        """Seconds watched by the time it came or went."""
        self._left_out = defaultdict[EpisodeKey, float](float)
        """GPU seconds lost in episodes that are not kept."""
        self._watched = 0.0
        self._at = -math.inf
        self.raised = 0
        """Number of episodes so far."""
        self.changes = 0
        """Number of times that an episode began, came back, ended or came to name another GPU: as
        long as it stays, only numbers have moved."""
        self._questions: tuple[tuple[str, GpuKey], ...] = ()
        self._undecided: dict[GpuKey, dict[str, list[Undecided]]] = {}
        self._pauses: dict[GpuKey, list[Pause]] = {}

    # -- what goes in -----------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let so many ``seconds`` of watching pass; a gap is none."""
        self._watched += seconds

    def add_diagnosis(
        self,
        diagnosis: Diagnosis,
        at_unix_seconds: float | None = None,
        offset_seconds: float = 0.0,
    ) -> None:
        """Take a new diagnosis, which holds from ``at_unix_seconds`` on (when it was made, if that
        is ``None``). ``offset_seconds`` is what its own times are ahead of that clock."""
        at = at_unix_seconds
        at = diagnosis.taken_at_unix_seconds - offset_seconds if at is None else at
        seen = self._at
        self.finish_questions(at)
        self._questions = tuple(
            [(one.says, gpu) for one in diagnosis.questions for gpu in one.gpus]
        )
        for pause in diagnosis.pauses:
            begin = pause.at_unix_seconds - offset_seconds
            self._note_pause(replace(pause, at_unix_seconds=begin) if offset_seconds else pause)
        holding = set()
        for finding in diagnosis.findings:
            key, since = key_of(finding), finding.since_unix_seconds
            holding.add(key)
            self._note(key, finding, at if since is None else min(at, since - offset_seconds))
        for key in self._holding - holding:
            self._end(key, seen)
        self._holding = holding
        self._keep_bounds()

    def leave_out_before(self, begin_unix_seconds: float, diagnosis: Diagnosis) -> None:
        """Leave out what findings that held before this ledger begins have lost by the first
        ``diagnosis``."""
        for finding in diagnosis.findings:
            since, cost = finding.since_unix_seconds, finding.cost_gpu_seconds
            if cost is not None and since is not None and since < begin_unix_seconds:
                watched = finding.watched_gpu_seconds or 0.0
                self._counted[key_of(finding)] = Counted(cost, watched, finding.idle_seconds_lost)

    def finish(self, at_unix_seconds: float) -> None:
        """End what holds: nobody watches from here on."""
        self.finish_questions(at_unix_seconds)
        self._questions = ()
        for key in self._holding:
            self._end(key, at_unix_seconds)
        self._holding = set()

    def finish_questions(self, at_unix_seconds: float) -> None:
        """Count the time up to this moment as undecided, where the last diagnosis was."""
        passed = max(0.0, at_unix_seconds - self._at) if self._at > -math.inf else 0.0
        for says, gpu in self._questions:
            asked = self._undecided.setdefault(gpu, {})
            if says in asked or len(asked) < QUESTIONS_OF_A_GPU_KEPT:
                one = Undecided(
                    says=says,
                    gpu=gpu,
                    begin_unix_seconds=self._at,
                    end_unix_seconds=self._at + passed,
                    seconds=passed,
                )
                _add_undecided(asked.setdefault(says, []), one)
        self._at = max(self._at, at_unix_seconds)

    def merge(self, other: Ledger | Page) -> None:
        """Add what another ledger or page has. The parts of one ledger come in their order: what
        comes later says more of the same episode."""
        page = other.page() if isinstance(other, Ledger) else other
        for one in page.episodes:
            self._merge_episode(one)
        for undecided in page.undecided:
            asked = self._undecided.setdefault(undecided.gpu, {})
            if undecided.says in asked or len(asked) < QUESTIONS_OF_A_GPU_KEPT:
                _merge_undecided(asked.setdefault(undecided.says, []), undecided)
        for pause in page.pauses:
            self._note_pause(pause)
        if isinstance(other, Ledger):
            for rule, seconds in other._left_out.items():
                self._left_out[rule] += seconds
        self._keep_bounds()

    # -- what it says -----------------------------------------------------------------------------

    @property
    def open(self) -> tuple[Episode, ...]:
        """Episodes that hold, in the order of their beginning."""
        return tuple([one for one in self.episodes() if one.holds])

    def episodes(self, since: float = -math.inf, until: float = math.inf) -> tuple[Episode, ...]:
        """Return the episodes that held at some time between the two, in the order of their
        beginning."""
        found = [
            one
            for row in tuple(self._episodes.values())
            for one in tuple(row)
            if one.begin_unix_seconds <= until
            and (one.end_unix_seconds is None or one.end_unix_seconds >= since)
        ]
        return tuple(sorted(found, key=_begin))

    def standing(self) -> tuple[Standing, ...]:
        """Return the newest episode of each finding that holds or held in the last minutes."""
        turned = [(self._episodes.get(key), at) for key, at in tuple(self._turned.items())]
        return tuple([Standing(row[-1], self._watched - at) for row, at in turned if row])

    def lost_by_rule(self) -> Mapping[str, float]:
        """Return the GPU time lost to each rule's findings so far; none of it ever falls."""
        lost = defaultdict[str, float](float)
        for key, seconds in self.lost_by_finding().items():
            lost[key.rule] += seconds
        return lost

    def lost_by_finding(self) -> Mapping[EpisodeKey, float]:
        """Return the GPU time lost to each finding so far, in all its episodes; none of it ever
        falls."""
        lost = defaultdict[EpisodeKey, float](float, self._left_out)
        for key, row in tuple(self._episodes.items()):
            lost[key] += sum([one.cost_gpu_seconds or 0.0 for one in tuple(row)])
        return lost

    def idle_seconds_lost(self, gpu: GpuKey) -> Mapping[str, float]:
        """Return for how long this GPU idled because of each rule's findings, as far as this ledger
        was told diagnoses and not merged; none of it ever falls."""
        return self._idle_lost.get(gpu, {})

    def undecided_seconds(self, gpu: GpuKey) -> dict[str, float]:
        """Return the seconds for which each question about this GPU was open."""
        asked = self._undecided.get(gpu, {})
        return {says: sum([one.seconds for one in rows]) for says, rows in asked.items()}

    def undecided(self, gpu: GpuKey) -> Sequence[Undecided]:
        """Return the times in which questions about this GPU were open."""
        return [one for rows in self._undecided.get(gpu, {}).values() for one in rows]

    def pauses(self, gpu: GpuKey) -> Sequence[Pause]:
        """Return the pauses of this GPU, oldest first."""
        return self._pauses.get(gpu, ())

    def page(self, since: float = -math.inf) -> Page:
        """Return what is new or has changed since then; what is a minute older as well, since a
        finding that is missing now ended when it was seen last."""
        since -= MERGE_SECONDS
        pauses = {id(one): one for own in self._pauses.values() for one in own}
        return Page(
            episodes=self.episodes(since),
            undecided=tuple(
                [
                    one
                    for asked in self._undecided.values()
                    for rows in asked.values()
                    for one in rows
                    if one.end_unix_seconds >= since
                ]
            ),
            pauses=tuple(
                [one for one in pauses.values() if one.at_unix_seconds + one.seconds >= since]
            ),
        )

    # -- episodes ---------------------------------------------------------------------------------

    def _note(self, key: EpisodeKey, finding: Finding, since: float) -> None:
        """Take a finding of the newest diagnosis, which has held ``since`` then."""
        row = self._episodes.setdefault(key, [])
        cost, watched = finding.cost_gpu_seconds, finding.watched_gpu_seconds or 0.0
        lost = None
        if cost is not None:
            before = self._counted.get(key, Counted())
            if cost < before.cost or watched < before.watched:
                # A job that began anew, or another recording, counts from zero again.
                before = Counted()
            lost = cost - before.cost
            self._counted[key] = Counted(cost, watched, finding.idle_seconds_lost)
            idle_before = dict(before.idle_lost)
            for gpu, seconds in finding.idle_seconds_lost:
                more = max(0.0, seconds - idle_before.get(gpu, 0.0))
                self._idle_lost.setdefault(gpu, defaultdict(float))[key.rule] += more
        last = row[-1] if row else None
        if last is None or (
            last.end_unix_seconds is not None and since - last.end_unix_seconds > MERGE_SECONDS
        ):
            self.raised += 1
            row.append(_episode(finding, since, lost))
        else:
            row[-1] = self._continued(last, finding, lost)
            same = row[-1].gpus == last.gpus and row[-1].severity == last.severity
            self.changes += not same
        if key not in self._holding:
            self._turned[key] = self._watched
            self.changes += 1

    def _continued(self, last: Episode, finding: Finding, lost: float | None) -> Episode:
        gpus = last.gpus
        if finding.gpus != gpus:
            gpus = tuple(dict.fromkeys([*gpus, *finding.gpus]))
        cost = last.cost_gpu_seconds
        values: dict[str, object] = {
            "gpus": gpus,
            "end_unix_seconds": None,
            "cost_gpu_seconds": cost if lost is None else (cost or 0.0) + lost,
            "watched_gpu_seconds": finding.watched_gpu_seconds,
            "cost_share": finding.cost_share,
        }
        if self._newest or finding.confidence >= last.confidence:
            values |= {name: getattr(finding, name) for name in OF_FINDING}
        return replaced(last, **values)

    def _end(self, key: EpisodeKey, at: float) -> None:
        row = self._episodes[key]
        row[-1] = replaced(row[-1], end_unix_seconds=max(at, row[-1].begin_unix_seconds))
        self._turned[key] = self._watched
        self.changes += 1

    def _merge_episode(self, one: Episode) -> None:
        row = self._episodes.setdefault(one.key, [])
        row.append(one)
        row.sort(key=_begin)
        at = row.index(one)
        # Those beside it may be the same, or parted from it by less than a minute.
        for place in (at, at + 1):
            if 0 < place < len(row) and _gap(row[place - 1], row[place]) <= MERGE_SECONDS:
                first, second = row[place - 1], row[place]
                row[place - 1 : place + 1] = [self._joined(first, second, newer=one)]
                if place == at:
                    break
        self.changes += 1
        self.raised = max(self.raised, sum(map(len, self._episodes.values())))
        if row[-1].holds:
            self._holding.add(one.key)

    def _joined(self, first: Episode, second: Episode, newer: Episode) -> Episode:
        """Return one episode of two of the same finding, of which ``newer`` was known last."""
        costs = [first.cost_gpu_seconds, second.cost_gpu_seconds]
        known = [cost for cost in costs if cost is not None]
        apart = first.end_unix_seconds is not None and (
            second.begin_unix_seconds >= first.end_unix_seconds
        )
        same = first.begin_unix_seconds == second.begin_unix_seconds
        older = first if newer is second else second
        text = newer if self._newest or newer.confidence >= older.confidence else older
        ends = [first.end_unix_seconds, second.end_unix_seconds]
        end = None if None in ends else max([x for x in ends if x is not None])
        return replaced(
            text,
            gpus=tuple(dict.fromkeys([*older.gpus, *newer.gpus])),
            begin_unix_seconds=first.begin_unix_seconds,
            end_unix_seconds=newer.end_unix_seconds if same else end,
            # Of what two have seen at the same time, only one counts.
            cost_gpu_seconds=(sum(known) if apart else max(known)) if known else None,
            watched_gpu_seconds=newer.watched_gpu_seconds,
            cost_share=newer.cost_share,
        )

    def _keep_bounds(self) -> None:
        # What was gone for so long cannot come back as the same episode.
        for key, at in tuple(self._turned.items()):
            if key not in self._holding and self._watched - at > 2.0 * MERGE_SECONDS:
                del self._turned[key]
        for row in self._episodes.values():
            if len(row) > EPISODES_OF_ONE_KEPT:
                place = min(range(len(row) - 1), key=lambda at: _gap(row[at], row[at + 1]))
                first, second = row[place : place + 2]
                row[place : place + 2] = [self._joined(first, second, newer=second)]
        surplus = sum(map(len, self._episodes.values())) - EPISODES_KEPT
        while surplus > 0 and self._leave_one_out():
            surplus -= 1

    def _leave_one_out(self) -> bool:
        settled = self._at - 2.0 * MERGE_SECONDS
        over = [
            (one.cost_gpu_seconds or 0.0, one.begin_unix_seconds, key)
            for key, row in self._episodes.items()
            for one in row
            if one.end_unix_seconds is not None and one.end_unix_seconds < settled
        ]
        if not over:
            return False
        cost, begin, key = min(over)
        row = self._episodes[key] = [
            one for one in self._episodes[key] if one.begin_unix_seconds != begin
        ]
        if not row:
            del self._episodes[key]
            self._counted.pop(key, None)
            self._turned.pop(key, None)
        self._left_out[key] += cost
        return True

    # -- pauses -----------------------------------------------------------------------------------

    def _note_pause(self, pause: Pause) -> None:
        begin = pause.at_unix_seconds
        for gpu in pause.gpus:
            own = self._pauses.setdefault(gpu, [])
            if not own or begin > own[-1].at_unix_seconds + own[-1].seconds:
                own.append(pause)
                if len(own) > PAUSES_OF_A_GPU_KEPT:
                    own.remove(min(own[:-1], key=lambda one: one.seconds))


class CostsSoFar:
    """Costs of episodes, as page after page of a ledger says more of them."""

    def __init__(self) -> None:
        self._known: dict[EpisodeKey, dict[float, float]] = {}
        """By finding and beginning."""

    def added(self, one: Episode) -> float:
        """Return what an episode has cost more than was known of it, and of those that became a
        part of it."""
        cost, noted = one.cost_gpu_seconds or 0.0, self._known.setdefault(one.key, {})
        begin = one.begin_unix_seconds
        end = math.inf if one.end_unix_seconds is None else one.end_unix_seconds
        before = sum([noted.pop(at) for at in list(noted) if begin <= at <= end])
        noted[begin] = max(cost, before)
        return max(0.0, cost - before)


def by_cause(episodes: Iterable[Episode], names: Names) -> tuple[Episode, ...]:
    """Return one episode for each cause: those of several jobs, or of GPUs of no known job, that
    say the same at about the same time are one. In the order of their beginning."""
    groups: dict[tuple[str, ...], list[tuple[float, list[Episode]]]] = {}
    for one in sorted(episodes, key=_begin):
        rows = groups.setdefault(cause_of(one), [])
        end = math.inf if one.end_unix_seconds is None else one.end_unix_seconds
        if rows and one.begin_unix_seconds - rows[-1][0] <= MERGE_SECONDS:
            until, members = rows[-1]
            rows[-1] = max(until, end), [*members, one]
        else:
            rows.append((end, [one]))
    every = [_united(members, end, names) for rows in groups.values() for end, members in rows]
    return tuple(sorted(every, key=_begin))


def _united(members: Sequence[Episode], end: float, names: Names) -> Episode:
    if len(members) == 1:
        return members[0]
    [cause] = as_causes([one.finding() for one in members], names)
    return replaced(
        _episode(cause, members[0].begin_unix_seconds, cause.cost_gpu_seconds),
        end_unix_seconds=None if end == math.inf else end,
    )


def _episode(finding: Finding, begin: float, lost: float | None) -> Episode:
    return Episode(
        **{name: getattr(finding, name) for name in OF_FINDING},
        gpus=finding.gpus,
        begin_unix_seconds=begin,
        cost_gpu_seconds=lost,
        watched_gpu_seconds=finding.watched_gpu_seconds,
        cost_share=finding.cost_share,
    )


def _begin(one: Episode) -> float:
    return one.begin_unix_seconds


def _gap(first: Episode, second: Episode) -> float:
    """Return the seconds between the two; 0 or less where they overlap."""
    end = first.end_unix_seconds
    return -math.inf if end is None else second.begin_unix_seconds - end


def _add_undecided(rows: list[Undecided], one: Undecided) -> None:
    """Add the time that comes next to that of the same question."""
    if rows and one.begin_unix_seconds - rows[-1].end_unix_seconds <= MERGE_SECONDS:
        last = rows[-1]
        rows[-1] = replaced(
            last, end_unix_seconds=one.end_unix_seconds, seconds=last.seconds + one.seconds
        )
    else:
        rows.append(one)


def _merge_undecided(rows: list[Undecided], one: Undecided) -> None:
    """Add time that may be known in part already."""
    for place, row in enumerate(rows):
        if row.begin_unix_seconds == one.begin_unix_seconds:
            rows[place] = max(row, one, key=lambda each: each.seconds)
            return
    rows.append(one)
