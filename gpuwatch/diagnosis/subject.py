"""The subject of a window, a job or GPUs of which no job is known, as the engine keeps it from look
to look: what each rule answers, which causes that makes, and what was lost to them."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.accounting import GpuTime
from gpuwatch.diagnosis.explanations import RankedFinding, arrange
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.finding import Evidence, Finding, Pause, RuledOut, Unchecked
from gpuwatch.diagnosis.gain import lost_watts, with_gains
from gpuwatch.diagnosis.rule import Clear, Firing, Rule, Unknown, Verdict
from gpuwatch.diagnosis.rule_state import RuleState, confidence
from gpuwatch.diagnosis.rules.shared import pauses
from gpuwatch.diagnosis.rules.shared.words import named
from gpuwatch.diagnosis.sentence import filled, template

NEW_SHARE = 1 / 6
"""Share of a window that is new at its next look: ten seconds of a minute."""
GUESSED = 0.7
"""Factor of evidence that rests on guessed roles: before PyTorch 2.5 any child of a training
process looks like a loader worker, the environments of reinforcement learning, too."""
JUDGED_SECONDS = 8.0
"""Steady work that rules wait for, before they say how a job is fed."""
PAUSE_SETTLED_SECONDS = 7.0
"""Time after the end of a pause at which it is known what was written in it, and so what it was."""


class Subject:
    """Follower of one job, or of GPUs of which no job is known; ``time`` is that of all GPUs."""

    def __init__(self, rules: Sequence[Rule], time: GpuTime, window: Window) -> None:
        self.ended = window.job is not None and window.job.has_ended
        self.rules = [rule for rule in rules if rule.after_end or not self.ended]
        self.looked_at = 0.0
        """Monotonic time of the last look, for whoever looks."""
        self.looks = 0
        self.window = window
        self.verdicts: dict[str, Verdict] = {}
        self._time = time
        self._states: dict[str, RuleState] = {}
        self._costs: dict[str, float] = {}
        """Seconds of its GPUs' time lost to each rule's findings."""
        self._idle_lost: dict[str, dict[Hashable, float]] = {}
        """Part of it in which they idled, by GPU."""
        self._lost_shares: dict[str, float] = {}
        """Share of all time that each rule's finding costs now, 0 to 1."""
        self._counted: dict[tuple[str, Hashable], float] = {}
        """Moment up to which time has been counted, by rule and GPU."""
        self._counted_as_lost: dict[tuple[str, Hashable], list[_Lost]] = {}
        """Times of the window that are counted as lost, with how much of each, by rule and GPU."""
        self._ranked: list[RankedFinding] = []
        self._watched_seconds = self._looked_at_watched = self._counted_watched = 0.0
        self._findings: tuple[Finding, ...] | None = ()
        """Findings of the last look, without what was lost to them, which grows until the next."""
        self._unknown: tuple[Unchecked, ...] | None = ()
        """Results of the last look; ``None`` until they are asked for."""

    def look(self, window: Window, now: float, watched_seconds: float) -> None:
        """Take the newest window, of monotonic time ``now``; ``watched_seconds``: so far, gaps left
        out."""
        if not self.looks:
            # The first reading speaks for an interval in which nobody watched.
            begun = max(0.0, window.watched_seconds - window.interval_seconds)
            self._looked_at_watched = watched_seconds
            self._counted_watched = watched_seconds - begun
        seconds = watched_seconds - self._looked_at_watched
        self._looked_at_watched = watched_seconds
        self._pass_time(now, watched_seconds)
        self.looks += 1
        late = 0.0
        if self.window.starting and not window.starting:
            late = max(0.0, window.steady_seconds - JUDGED_SECONDS)
        self.window = window
        self._findings = self._unknown = None
        for rule in self.rules:
            verdict = self.verdicts[rule.name] = _checked(rule, window)
            state = self._states.get(rule.name)
            if state is None and isinstance(verdict, Firing):
                state = self._states[rule.name] = RuleState(rule)
            if state is not None:
                unix, watched = window.taken_at_unix_seconds, window.watched_seconds
                state.update(verdict, seconds, unix, watched, late)
        led = frozenset([one.name for one in self._ranked])
        self._ranked = arrange(window, self._states, led)
        self.looked_at = now
        self._account(now)
        taken: dict[Hashable, float] = dict.fromkeys(self.gpus or (_time_key(window),), 0.0)
        for one in self._losing():
            self._lost_shares[one.name] = self._share_now(one, window, now, taken)

    def count_until(self, now: float, watched_seconds: float) -> None:
        """Count what is lost up to monotonic time ``now``, by what the last look found. Of a job
        with loader workers that is up to its next pause: whether new workers were waited for in
        it, the next look says."""
        if watched_seconds > self._counted_watched:
            self._pass_time(now, watched_seconds)
            job = self.window.job
            self._account(now, to_a_pause=job is not None and job.workers is not None)

    def _pass_time(self, now: float, watched_seconds: float) -> None:
        passed = watched_seconds - self._counted_watched
        self._counted_watched = watched_seconds
        self._watched_seconds += passed
        if not self.window.gpus:
            self._time.add(_time_key(self.window), now, passed, passed)

    def _losing(self) -> Iterator[RankedFinding]:
        """Yield the findings to which time is lost now, the leading one first."""
        for one in self._ranked:
            if one.firing.lost_share is not None and one.state.fires_now:
                yield one

    def _account(self, now: float, *, to_a_pause: bool = False) -> None:
        for one in self._losing():
            self._costs.setdefault(one.name, 0.0)
            if one.firing.pauses:
                self._account_pauses(one.name, now, one.firing.pauses)
            else:
                self._account_share(one, now, to_a_pause=to_a_pause)

    def _account_share(self, ranked: RankedFinding, now: float, *, to_a_pause: bool) -> None:
        name, firing, window = ranked.name, ranked.firing, self.window
        claim = firing.lost_share or 0.0
        idle: dict[Hashable, float] = {gpu.uuid: gpu.idle_share for gpu in window.gpus}
        idle = idle or {_time_key(window): 1.0}
        busy = ranked.state.loses_busy_time
        for key in firing.gpus or idle:
            of = 1.0 if busy else idle.get(key, 1.0)
            share = min(1.0, claim / of) if of > 0.0 else 0.0
            share /= self._time.sharers(key, self, now)
            first = self.looked_at - window.watched_seconds
            since = max(first, self._counted.get((name, key), first))
            until = self._time.end_of(key)
            if to_a_pause:
                until = self._time.worked_until(key, since)
            lost = self._counted_as_lost.setdefault((name, key), [])
            if busy and until > since:
                share = _share_of_new(lost, share, first, since, until)
            for begin, end in _outside_restarts(window, since, self.looked_at, until):
                self._lose(name, key, begin, end, share, busy=busy)
            if until > since:
                # Nothing was lost before it began.
                began = ranked.state.since_unix_seconds or 0.0
                began += self.looked_at - window.taken_at_unix_seconds
                begin = min(max(since, began), until - _LEAST_LOST_SECONDS)
                lost.append(_Lost(begin, until, share * of * (until - since)))
            self._counted[name, key] = until

    def _share_now(
        self, ranked: RankedFinding, window: Window, now: float, taken: dict[Hashable, float]
    ) -> float:
        """Return the share of the time of all GPUs that is lost to it now. What is ``taken`` of the
        time of each, 0 to 1, grows by it: no time is lost twice."""
        idle: dict[Hashable, float] = {gpu.uuid: gpu.idle_share for gpu in window.gpus}
        firing, lost = ranked.firing, 0.0
        for key in taken.keys() & firing.gpus if firing.gpus else taken:
            share = (firing.lost_share or 0.0) / self._time.sharers(key, self, now)
            # The first is believed; to the others it lost what else is idle.
            is_whole = ranked.state.loses_busy_time or not taken[key]
            left = (1.0 if is_whole else idle.get(key, 1.0)) - taken[key]
            share = max(0.0, min(share, left))
            taken[key] += share
            lost += share
        return lost / len(taken)

    def _lose(
        self, rule: str, key: Hashable, begin: float, end: float, share: float, *, busy: bool
    ) -> None:
        """Count what is left of that time of a GPU as lost to the rule's finding."""
        seconds = self._time.take(key, begin, end, share, busy=busy)
        self._costs[rule] += seconds
        if not busy:
            idle = self._idle_lost.setdefault(rule, {})
            idle[key] = idle.get(key, 0.0) + seconds

    def _account_pauses(self, rule: str, now: float, pauses: Sequence[Pause]) -> None:
        """Count what was idled in the pauses that were not counted yet."""
        for pause in pauses:
            begin = pause.at_unix_seconds - self.window.taken_at_unix_seconds + self.looked_at
            end = begin + pause.seconds
            if end > now - PAUSE_SETTLED_SECONDS:
                continue
            for key in pause.gpus or (_time_key(self.window),):
                since = max(begin, self._counted.get((rule, key), begin))
                self._lose(rule, key, since, end, 1.0, busy=False)
                self._counted[rule, key] = max(end, since)

    @property
    def can_wait_seconds(self) -> float:
        """Seconds from one look to the next: until its window has moved, and none while anything
        begins or ends to fire."""
        if any(one.fires_now != one.raised for one in self._states.values() if one.looks):
            return 0.0
        return NEW_SHARE * min(self.window.watched_seconds, self.window.steady_seconds)

    @property
    def gpus(self) -> tuple[GpuKey, ...]:
        return tuple([gpu.uuid for gpu in self.window.gpus])

    @property
    def has_found(self) -> bool:
        """Whether something was found: mere information only if it says why the GPU idles."""
        return any(one.state.severity != "info" or one.state.rule.settles for one in self._ranked)

    @property
    def is_pending(self) -> bool:
        """Whether a fault fires that has not done so for long enough."""
        return any(one.is_pending for one in self._states.values())

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, with what was lost to them so far, the leading one first."""
        if self._findings is None:
            self._findings = tuple([self._finding(self.window, one) for one in self._ranked])
        return tuple([self._with_what_was_lost(one) for one in self._findings])

    def unknown(self) -> tuple[Unchecked, ...]:
        """Return the rules that lack readings and are not raised all the same."""
        if self._unknown is None:
            job = None if self.window.job is None else self.window.job.key
            raised = {name for name, state in self._states.items() if state.raised}
            self._unknown = tuple([
                Unchecked(rule=rule, missing=verdict.missing, gpus=self.gpus, job=job)
                for rule, verdict in self.verdicts.items()
                if isinstance(verdict, Unknown) and rule not in raised
            ])  # fmt: skip
        return self._unknown

    def _finding(self, window: Window, ranked: RankedFinding) -> Finding:
        state, firing = ranked.state, ranked.firing
        gpus = firing.gpus or self.gpus
        says = _named(window, firing.summary)
        lost_share = self._lost_shares.get(ranked.name)
        lost_of = pauses.watched_seconds(window) if firing.pauses else window.watched_seconds
        unread = "not read; would raise the confidence"
        return Finding(
            rule=ranked.name,
            severity=state.severity,
            confidence=round(confidence(state.rule.trust, firing, state.strength), 3),
            summary=said(window, firing, says),
            says=template(says),
            short=tuple([template(one) for one in firing.short]),
            gpus=gpus,
            late=firing.late,
            job=None if window.job is None else window.job.key,
            since_unix_seconds=state.since_unix_seconds,
            evidence=(
                *[one for one in firing.evidence if one is not None and one.value is not None],
                *[Evidence(name, says=unread, supports=False) for name in firing.missing],
            ),
            advice=state.advice,
            gain=state.gain,
            lost_watts=lost_watts(window, firing, while_busy=state.loses_busy_time),
            ruled_out=tuple(self._ruled_out(window, ranked)),
            lost_share=lost_share,
            lost_of_seconds=None if lost_share is None else lost_of,
            wait_share=firing.wait_share,
        )

    def _with_what_was_lost(self, finding: Finding) -> Finding:
        lost, idle = self._costs.get(finding.rule), self._idle_lost.get(finding.rule, {})
        time = self._watched_seconds * (len(self.window.gpus) or 1)
        return replace(
            finding,
            cost_share=None if lost is None or time <= 0.0 else min(1.0, lost / time),
            cost_gpu_seconds=lost if finding.gpus else None,
            idle_seconds_lost=tuple(
                [(key, seconds) for key, seconds in idle.items() if isinstance(key, str)]
            ),
            watched_gpu_seconds=time if finding.gpus else None,
        )

    def _ruled_out(self, window: Window, ranked: RankedFinding) -> Iterator[RuledOut]:
        for symptom in ranked.symptoms:
            if symptom.firing is not None:
                says = said(window, symptom.firing, symptom.firing.summary)
                yield RuledOut(symptom.rule.name, _lower(says), symptom=True)
        for rival in ranked.rivals:
            yield RuledOut(rival.rule.name, "weaker evidence over the same time")
        if not ranked.state.rule.has_look_alikes:
            return
        for rule in sorted(self.rules, key=lambda rule: rule.look_alike):
            verdict = self.verdicts.get(rule.name)
            other = rule.look_alike and rule.name != ranked.name
            if other and isinstance(verdict, Clear) and verdict.why:
                yield RuledOut(rule.name, verdict.why)


def said(window: Window, firing: Firing, says: str) -> str:
    """Return a sentence of the firing with the names of its GPUs."""
    about = [gpu for gpu in window.gpus if not firing.gpus or gpu.uuid in firing.gpus]
    return filled(template(says), named(about), len(about))


def _time_key(window: Window) -> Hashable:
    """Return the key of the time of a window without GPUs: its job's."""
    return None if window.job is None else window.job.key


def _checked(rule: Rule, window: Window) -> Verdict:
    """Return the rule's answer. One that fails costs its own answer and nothing else; one that
    rests on guessed roles is less sure."""
    try:
        verdict = rule.check(window)
        if isinstance(verdict, Firing):
            verdict = with_gains(window, rule, verdict)
    except Exception as error:
        return Unknown((f"a result from this rule, which failed ({type(error).__name__})",))
    if window.job is None or not rule.uses_workers or not isinstance(verdict, Firing):
        return verdict
    job = window.job.job
    ranks = any(rank.loader_workers_guessed for rank in job.ranks)
    if not ranks and not any(one.orphaned and one.role_guessed for one in job.members):
        return verdict
    surer = (*verdict.missing, "which processes are loader workers (guessed)")
    return replace(verdict, strength=GUESSED * verdict.strength, missing=surer)


def _named(window: Window, summary: str) -> str:
    """Return the summary with the PID of a job on no GPU: nothing else says which job it is."""
    if window.gpus or window.job is None:
        return summary
    pid = f"PID {window.job.job.pid}"
    return summary if pid in summary else f"{pid}: {_lower(summary)}"


def _lower(summary: str) -> str:
    """Return a sentence as a clause; names like "GPU 0" keep their capitals."""
    return summary if summary[:3] == "GPU" else summary[:1].lower() + summary[1:]


_LEAST_LOST_SECONDS = 0.01


class _Lost(NamedTuple):
    """Seconds that were counted as lost in a stretch of time."""

    begin: float
    end: float
    seconds: float


def _share_of_new(
    lost: list[_Lost], share: float, first: float, since: float, until: float
) -> float:
    """Return the share of the time from ``since`` to ``until`` that is lost, where ``share`` is
    the mean of all from ``first`` on, and ``lost`` what was counted of that: what began within it
    costs more now than its mean, and what ended less."""
    lost[:] = [one for one in lost if one.end > first]
    counted = sum(
        [one.seconds * (one.end - max(one.begin, first)) / (one.end - one.begin) for one in lost]
    )
    return max(0.0, min(1.0, (share * (until - first) - counted) / (until - since)))


def _outside_restarts(
    window: Window, since: float, taken_at: float, now: float
) -> Iterator[tuple[float, float]]:
    """Yield the parts of the time up to ``now`` in which no GPU waited for new loader workers, by a
    window of the moment ``taken_at``: those are lost to nothing else, however early another cause
    was found."""
    for pause in (*window.pauses, *window.ongoing):
        begin = pause.at_unix_seconds - window.taken_at_unix_seconds + taken_at
        if pause.is_restart and begin + pause.seconds > since:
            yield since, max(since, begin)
            since = min(now, begin + pause.seconds)
    yield since, now
