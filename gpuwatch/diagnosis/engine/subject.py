"""What the engine keeps of one window's subject, a job or a GPU, from look to look."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from gpuwatch.diagnosis.engine.accounting import WHILE_BUSY, GpuTime, idle_share
from gpuwatch.diagnosis.engine.arranging import Cause, arrange
from gpuwatch.diagnosis.engine.confidence import confidence
from gpuwatch.diagnosis.engine.hysteresis import Held
from gpuwatch.diagnosis.engine.verdict import Seen
from gpuwatch.diagnosis.facts.window import Pause, Window
from gpuwatch.diagnosis.finding import Evidence, Finding, NotTold, RuledOut
from gpuwatch.diagnosis.rule import Clear, Firing, Rule, Unknown, Verdict

LOOK_ALIKES = (
    "thermal_throttle",
    "power_throttle",
    "other_tenant",
    "collective_wait",
    "checkpoint_pauses",
    "validation_pauses",
    "loader_cpu_bound",
    "loader_io_bound",
    "pcie_degraded",
    "python_bound",
)
"""What a person would think of next, and is told why not."""
LOOK_ALIKE_FOR = frozenset(
    {
        "oscillation",
        "loader_cpu_bound",
        "loader_io_bound",
        "loader_in_main_process",
        "too_many_workers",
        "cpu_quota",
        "memory_not_pinned",
        "python_bound",
        "sync_every_step",
        "checkpoint_pauses",
        "validation_pauses",
        "collective_wait",
        "straggler",
        "busy_without_work",
        "batch_too_small",
        "pcie_degraded",
        "other_tenant",
        "thermal_throttle",
        "power_throttle",
    }
)
"""Causes of lost time, which can be taken for each other; a full memory is not."""


CALM_SECONDS = 50.0
"""By then a fault that was there from the beginning has been found."""
PAUSE_SETTLED_SECONDS = 4.0
"""What was written in a pause, and so what it was, is known a few seconds after its end."""


class Subject:
    """Follows one job, or one GPU of which no job is known; ``time`` is that of all GPUs."""

    def __init__(self, rules: Sequence[Rule], time: GpuTime, ended: bool = False) -> None:
        self._rules = rules
        self._time = time
        self.ended = ended
        """Of a job that has ended."""
        self.looked_at: float | None = None
        """Monotonic time of the last look, for whoever looks."""
        self._held: dict[str, Held] = {}
        self._costs: dict[str, float] = {}
        """Seconds of its GPUs' time, by rule."""
        self._counted: dict[tuple[str, Hashable], float] = {}
        """By rule and GPU: up to when the time has been counted."""
        self._verdicts: dict[str, Verdict] = {}
        self._causes: list[Cause] = []
        self._window: Window | None = None
        self._watched_seconds = 0.0
        self._looks = 0
        self._found: tuple[Finding, ...] | None = None
        self._not_told: tuple[NotTold, ...] | None = None
        """As of the last look; ``None`` until they are asked for."""

    def look(self, window: Window, now: float, seconds: float) -> None:
        """Take the newest window, of monotonic time ``now``; ``seconds`` since the one before."""
        passed = seconds if self._looks else window.watched_seconds
        self._watched_seconds += passed
        if not window.gpus:
            self._time.add(_key(window), now, passed, passed)
        self._looks += 1
        self._window = window
        self._found = self._not_told = None
        for rule in self._rules:
            verdict = self._verdicts[rule.name] = _checked(rule, window)
            held = self._held.get(rule.name)
            if held is None:
                if not isinstance(verdict, Firing):
                    continue
                held = self._held[rule.name] = Held()
            held.update(verdict, seconds, window.taken_at_unix_seconds)
        led = frozenset([cause.rule for cause in self._causes])
        self._causes = arrange(window, self._held, led)
        self._account(window, now)
        self.looked_at = now

    def _account(self, window: Window, now: float) -> None:
        everything: dict[Hashable, float] = {gpu.uuid: idle_share(gpu) for gpu in window.gpus}
        everything = everything or {_key(window): 1.0}
        for cause in self._causes:
            firing, claim = cause.firing, cause.firing.lost_share
            if claim is None or not cause.held.fires_now:
                continue
            cost = self._costs.get(cause.rule, 0.0)
            if firing.pauses:
                cost += self._in_pauses(cause.rule, window, now, firing.pauses)
            else:
                busy = firing.lost_while_busy or cause.rule in WHILE_BUSY
                for key in firing.gpus or everything:
                    idle = 1.0 if busy else everything.get(key, 1.0)
                    share = min(1.0, claim / idle) if idle > 0.0 else 0.0
                    share /= self._time.sharers(key, self, now)
                    since = now - window.watched_seconds
                    since = max(since, self._counted.get((cause.rule, key), since))
                    cost += self._time.take(key, since, now, share, busy=busy)
                    self._counted[cause.rule, key] = self._time.end_of(key)
            self._costs[cause.rule] = cost

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
    def is_young(self) -> bool:
        """It is in its first minute."""
        window = self._window
        return window is None or min(window.watched_seconds, window.steady_seconds) < CALM_SECONDS

    @property
    def is_calm(self) -> bool:
        """Nothing begins or ends to fire, and its first minute is over."""
        return not self.is_young and all(
            one.fires_now == one.raised for one in self._held.values() if one.looks
        )

    @property
    def seen(self) -> Seen | None:
        if self._window is None:
            return None
        return Seen(
            window=self._window,
            verdicts=self._verdicts,
            looks=self._looks,
            found=any(cause.firing.severity != "info" for cause in self._causes),
            pending=any(one.fires_now and not one.raised for one in self._held.values()),
        )

    def findings(self) -> tuple[Finding, ...]:
        """The leading cause first."""
        if self._found is None:
            window = self._window
            if window is None:
                return ()
            self._found = tuple([self._finding(window, cause) for cause in self._causes])
        return self._found

    def not_told(self) -> tuple[NotTold, ...]:
        """Rules that lack readings, those that another finding answers for left out."""
        if self._not_told is None:
            self._not_told = tuple(self._lacking())
        return self._not_told

    def _lacking(self) -> Iterator[NotTold]:
        window = self._window
        if window is None:
            return
        gpus = tuple([gpu.uuid for gpu in window.gpus])
        job = None if window.job is None else window.job.key
        for rule, verdict in self._verdicts.items():
            held = self._held.get(rule)
            if isinstance(verdict, Unknown) and not (held is not None and held.raised):
                yield NotTold(rule=rule, missing=verdict.missing, gpus=gpus, job=job)

    def _finding(self, window: Window, cause: Cause) -> Finding:
        firing = cause.firing
        gpus = firing.gpus or tuple([gpu.uuid for gpu in window.gpus])
        lost = self._costs.get(cause.rule)
        time = self._watched_seconds * (len(window.gpus) or 1)
        return Finding(
            rule=cause.rule,
            severity=firing.severity,
            confidence=round(confidence(cause.rule, firing, cause.held.strength), 3),
            summary=_named(window, firing.summary),
            gpus=gpus,
            job=None if window.job is None else window.job.key,
            since_unix_seconds=cause.held.since_unix_seconds,
            evidence=firing.evidence + _not_read(firing),
            advice=firing.advice,
            ruled_out=tuple(self._ruled_out(cause)),
            cost_share=None if lost is None or time <= 0.0 else min(1.0, lost / time),
            cost_gpu_seconds=lost if gpus else None,
        )

    def _ruled_out(self, cause: Cause) -> Iterator[RuledOut]:
        for rule, firing in cause.symptoms:
            yield RuledOut(rule=rule, why=f"a symptom of this: {_lower(firing.summary)}")
        for rule, _ in cause.rivals:
            yield RuledOut(rule=rule, why="weaker evidence over the same time")
        if cause.rule not in LOOK_ALIKE_FOR:
            return
        for rule in LOOK_ALIKES:
            verdict = self._verdicts.get(rule)
            if rule != cause.rule and isinstance(verdict, Clear) and verdict.why:
                yield RuledOut(rule=rule, why=verdict.why)


def _key(window: Window) -> Hashable:
    """Whose time a window without GPUs is about."""
    return None if window.job is None else window.job.key


def _checked(rule: Rule, window: Window) -> Verdict:
    """A rule that fails costs its own answer and nothing else."""
    try:
        return rule.check(window)
    except Exception as error:
        return Unknown((f"a result from this rule, which failed ({type(error).__name__})",))


def _not_read(firing: Firing) -> tuple[Evidence, ...]:
    return tuple(
        [
            Evidence(
                name=name, value=None, says="not read; would raise the confidence", supports=False
            )
            for name in firing.missing
        ]
    )


def _named(window: Window, summary: str) -> str:
    """Of a job on no GPU nothing else in the sentence says which one it is."""
    if window.gpus or window.job is None:
        return summary
    pid = f"PID {window.job.job.pid}"
    return summary if pid in summary else f"{pid}: {_lower(summary)}"


def _lower(summary: str) -> str:
    """A sentence as a clause; names like "GPU 0" keep their capitals."""
    return summary if summary[:3] == "GPU" else summary[:1].lower() + summary[1:]
