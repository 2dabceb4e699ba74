"""One window's subject, a job or a GPU, as the engine keeps it from look to look."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.engine.accounting import GpuTime
from gpuwatch.diagnosis.engine.arranging import Cause, arrange
from gpuwatch.diagnosis.engine.confidence import confidence
from gpuwatch.diagnosis.engine.hysteresis import Held
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.finding import Evidence, Finding, Pause, RuledOut, Unchecked
from gpuwatch.diagnosis.rule import Clear, Firing, Rule, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.words import named
from gpuwatch.diagnosis.sentence import filled

NEW_SHARE = 1 / 6
"""Of a window is new at its next look: ten seconds of a minute."""
GUESSED = 0.7
"""Of the strength of evidence that rests on guessed roles: before PyTorch 2.5 any child of a
training process looks like a loader worker, the environments of reinforcement learning, too."""
PAUSE_SETTLED_SECONDS = 4.0
"""What was written in a pause, and so what it was, is known a few seconds after its end."""


class Subject:
    """Follows one job, or one GPU of which no job is known; ``time`` is that of all GPUs."""

    def __init__(self, rules: Sequence[Rule], time: GpuTime, window: Window) -> None:
        self.ended = window.job is not None and window.job.has_ended
        self.rules = [rule for rule in rules if rule.after_end or not self.ended]
        self.looked_at = 0.0
        """Monotonic time of the last look, for whoever looks."""
        self.looks = 0
        self.window = window
        self.verdicts: dict[str, Verdict] = {}
        self._time = time
        self._held: dict[str, Held] = {}
        self._costs: dict[str, float] = {}
        """Seconds of its GPUs' time, by rule."""
        self._counted: dict[tuple[str, Hashable], float] = {}
        """By rule and GPU: up to when the time has been counted."""
        self._causes: list[Cause] = []
        self._watched_seconds = self._looked_at_watched = 0.0
        self._findings: tuple[Finding, ...] | None = ()
        self._unknown: tuple[Unchecked, ...] | None = ()
        """As of the last look; ``None`` until they are asked for."""

    def look(self, window: Window, now: float, watched_seconds: float) -> None:
        """Take the newest window, of monotonic time ``now``; ``watched_seconds``: so far, gaps left
        out."""
        seconds = watched_seconds - self._looked_at_watched if self.looks else 0.0
        self._looked_at_watched = watched_seconds
        passed = seconds if self.looks else window.watched_seconds
        self._watched_seconds += passed
        if not window.gpus:
            self._time.add(_key(window), now, passed, passed)
        self.looks += 1
        self.window = window
        self._findings = self._unknown = None
        for rule in self.rules:
            verdict = self.verdicts[rule.name] = _checked(rule, window)
            held = self._held.get(rule.name)
            if held is None and isinstance(verdict, Firing):
                held = self._held[rule.name] = Held(rule)
            if held is not None:
                unix, watched = window.taken_at_unix_seconds, window.watched_seconds
                held.update(verdict, seconds, unix, watched)
        led = frozenset([cause.name for cause in self._causes])
        self._causes = arrange(window, self._held, led)
        for cause in self._causes:
            if cause.firing.lost_share is not None and cause.held.fires_now:
                self._account(cause, window, now, cause.firing.lost_share)
        self.looked_at = now

    def _account(self, cause: Cause, window: Window, now: float, claim: float) -> None:
        name, firing = cause.name, cause.firing
        cost = self._costs.get(name, 0.0)
        if firing.pauses:
            self._costs[name] = cost + self._in_pauses(name, window, now, firing.pauses)
            return
        idle: dict[Hashable, float] = {gpu.uuid: gpu.idle_share for gpu in window.gpus}
        idle = idle or {_key(window): 1.0}
        busy = cause.held.loses_busy_time
        for key in firing.gpus or idle:
            of = 1.0 if busy else idle.get(key, 1.0)
            share = min(1.0, claim / of) if of > 0.0 else 0.0
            share /= self._time.sharers(key, self, now)
            since = now - window.watched_seconds
            since = max(since, self._counted.get((name, key), since))
            cost += self._time.take(key, since, now, share, busy=busy)
            self._counted[name, key] = self._time.end_of(key)
        self._costs[name] = cost

    def _in_pauses(self, rule: str, window: Window, now: float, pauses: Sequence[Pause]) -> float:
        """Seconds idled in those that were not counted yet."""
        cost = 0.0
        for pause in pauses:
            begin = pause.at_unix_seconds - window.taken_at_unix_seconds + now
            end = begin + pause.seconds
            if end > now - PAUSE_SETTLED_SECONDS:
                continue
            for key in pause.gpus or (_key(window),):
                since = max(begin, self._counted.get((rule, key), begin))
                cost += self._time.take(key, since, end, 1.0)
                self._counted[rule, key] = max(end, since)
        return cost

    @property
    def can_wait_seconds(self) -> float:
        """From one look to the next: until its window has moved, and not while anything begins or
        ends to fire."""
        if any(one.fires_now != one.raised for one in self._held.values() if one.looks):
            return 0.0
        return NEW_SHARE * min(self.window.watched_seconds, self.window.steady_seconds)

    @property
    def gpus(self) -> tuple[GpuKey, ...]:
        return tuple([gpu.uuid for gpu in self.window.gpus])

    @property
    def has_found(self) -> bool:
        """Something was found, mere information apart unless it says why the GPU idles."""
        return any(one.held.severity != "info" or one.held.rule.settles for one in self._causes)

    @property
    def is_pending(self) -> bool:
        """A fault fires and is not held long enough."""
        return any(one.fires_now and not one.raised for one in self._held.values())

    def findings(self) -> tuple[Finding, ...]:
        """The leading cause first."""
        if self._findings is None:
            self._findings = tuple([self._finding(self.window, one) for one in self._causes])
        return self._findings

    def unknown(self) -> tuple[Unchecked, ...]:
        """Rules that lack readings, those that another finding answers for left out."""
        if self._unknown is None:
            job = None if self.window.job is None else self.window.job.key
            raised = {name for name, held in self._held.items() if held.raised}
            self._unknown = tuple([
                Unchecked(rule=rule, missing=verdict.missing, gpus=self.gpus, job=job)
                for rule, verdict in self.verdicts.items()
                if isinstance(verdict, Unknown) and rule not in raised
            ])  # fmt: skip
        return self._unknown

    def _finding(self, window: Window, cause: Cause) -> Finding:
        held, firing = cause.held, cause.firing
        gpus = firing.gpus or self.gpus
        says = _named(window, firing.summary)
        lost = self._costs.get(cause.name)
        time = self._watched_seconds * (len(window.gpus) or 1)
        unread = "not read; would raise the confidence"
        return Finding(
            rule=cause.name,
            severity=held.severity,
            confidence=round(confidence(held.rule.trust, firing, held.strength), 3),
            summary=said(window, firing, says),
            says=says,
            gpus=gpus,
            job=None if window.job is None else window.job.key,
            since_unix_seconds=held.since_unix_seconds,
            evidence=(
                *[one for one in firing.evidence if one is not None],
                *[Evidence(name, says=unread, supports=False) for name in firing.missing],
            ),
            advice=held.advice,
            ruled_out=tuple(self._ruled_out(window, cause)),
            cost_share=None if lost is None or time <= 0.0 else min(1.0, lost / time),
            cost_gpu_seconds=lost if gpus else None,
            watched_gpu_seconds=time if gpus else None,
        )

    def _ruled_out(self, window: Window, cause: Cause) -> Iterator[RuledOut]:
        for symptom in cause.symptoms:
            if symptom.firing is not None:
                says = said(window, symptom.firing, symptom.firing.summary)
                why = f"a symptom of this: {_lower(says)}"
                yield RuledOut(symptom.rule.name, why)
        for rival in cause.rivals:
            yield RuledOut(rival.rule.name, "weaker evidence over the same time")
        if not cause.held.rule.has_look_alikes:
            return
        for rule in sorted(self.rules, key=lambda rule: rule.look_alike):
            verdict = self.verdicts.get(rule.name)
            other = rule.look_alike and rule.name != cause.name
            if other and isinstance(verdict, Clear) and verdict.why:
                yield RuledOut(rule.name, verdict.why)


def said(window: Window, firing: Firing, says: str) -> str:
    """A sentence of the firing, with the names of its GPUs."""
    about = [gpu for gpu in window.gpus if not firing.gpus or gpu.uuid in firing.gpus]
    return filled(says, named(about), len(about))


def _key(window: Window) -> Hashable:
    """Whose time a window without GPUs is about."""
    return None if window.job is None else window.job.key


def _checked(rule: Rule, window: Window) -> Verdict:
    """A rule that fails costs its own answer and nothing else; one that rests on guessed roles is
    less sure."""
    try:
        verdict = rule.check(window)
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
    """Of a job on no GPU nothing else in the sentence says which one it is."""
    if window.gpus or window.job is None:
        return summary
    pid = f"PID {window.job.job.pid}"
    return summary if pid in summary else f"{pid}: {_lower(summary)}"


def _lower(summary: str) -> str:
    """A sentence as a clause; names like "GPU 0" keep their capitals."""
    return summary if summary[:3] == "GPU" else summary[:1].lower() + summary[1:]
