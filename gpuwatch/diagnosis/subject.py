"""What the engine keeps of one window's subject, a job or a GPU, from look to look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuwatch.diagnosis.accounting import Ledger
from gpuwatch.diagnosis.arranging import Cause, arrange
from gpuwatch.diagnosis.confidence import confidence
from gpuwatch.diagnosis.finding import Evidence, Finding, NotTold, RuledOut
from gpuwatch.diagnosis.hysteresis import Held
from gpuwatch.diagnosis.rule import Clear, Firing, Rule, Unknown, Verdict
from gpuwatch.diagnosis.verdict import Seen
from gpuwatch.diagnosis.window import Window

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


class Subject:
    """Follows one job, or one GPU of which no job is known."""

    def __init__(self, rules: Sequence[Rule], ended: bool = False) -> None:
        self._rules = rules
        self.ended = ended
        """Of a job that has ended."""
        self.looked_at: float | None = None
        """Monotonic time of the last look, for whoever looks."""
        self._held: dict[str, Held] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._causes: list[Cause] = []
        self._window: Window | None = None
        self._watched_seconds = 0.0
        self._looks = 0
        self._first_unix_seconds = 0.0
        self._found: tuple[Finding, ...] | None = None
        self._not_told: tuple[NotTold, ...] | None = None
        """As of the last look; ``None`` until they are asked for."""

    def look(self, window: Window, seconds: float) -> None:
        """Take the newest window; ``seconds`` since the one before."""
        self._watched_seconds += seconds if self._looks else window.watched_seconds
        if not self._looks:
            self._first_unix_seconds = window.taken_at_unix_seconds
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
        self._account(window)

    def _account(self, window: Window) -> None:
        for cause in self._causes:
            if cause.lost_share is not None and cause.held.fires_now:
                ledger = self._ledgers.get(cause.rule)
                if ledger is None:
                    ledger = self._ledgers[cause.rule] = Ledger()
                gpus = len(cause.firing.gpus or window.gpus) or 1
                since = cause.held.since_unix_seconds
                # What held at the first look held before it, too.
                known = None if since is None or since <= self._first_unix_seconds else since
                ledger.add(window, cause.lost_share, gpus, known)

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
        ledger = self._ledgers.get(cause.rule)
        gpus = firing.gpus or tuple([gpu.uuid for gpu in window.gpus])
        lost = None if ledger is None else ledger.gpu_seconds
        time = self._watched_seconds * (len(gpus) or 1)
        return Finding(
            rule=cause.rule,
            severity=firing.severity,
            confidence=round(confidence(cause.rule, firing, cause.held.strength), 3),
            summary=firing.summary,
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
            yield RuledOut(rule=rule, why="the evidence for this one, in the same time, is weaker")
        if cause.rule not in LOOK_ALIKE_FOR:
            return
        for rule in LOOK_ALIKES:
            verdict = self._verdicts.get(rule)
            if rule != cause.rule and isinstance(verdict, Clear) and verdict.why:
                yield RuledOut(rule=rule, why=verdict.why)


def _checked(rule: Rule, window: Window) -> Verdict:
    """A rule that fails costs its own answer and nothing else."""
    try:
        return rule.check(window)
    except Exception as error:
        return Unknown((f"an answer of this rule, which failed ({type(error).__name__})",))


def _not_read(firing: Firing) -> tuple[Evidence, ...]:
    return tuple(
        [
            Evidence(
                name=name, value=None, says="not read; it would make this surer", supports=False
            )
            for name in firing.missing
        ]
    )


def _lower(summary: str) -> str:
    """A sentence as a clause; names like "GPU 0" keep their capitals."""
    return summary if summary[:3] == "GPU" else summary[:1].lower() + summary[1:]
