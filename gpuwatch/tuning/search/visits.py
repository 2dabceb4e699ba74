"""Visits to settings within a budget of time: kept, and measured in another way where the
dataset wants it (whole epochs, other samples in each visit); what became of all of them, and when
a comparison is decided."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from time import monotonic
from typing import NamedTuple

from gpuwatch.tuning.failures import OutOfTimeError
from gpuwatch.tuning.messages import Order
from gpuwatch.tuning.search.plan import Plan
from gpuwatch.tuning.search.rates import Interval, Trial, best_of, interval, scatter_of
from gpuwatch.tuning.settings import WORKERS, Failure, Setting, Visit

SEED = 20_240_229
NEAR = 0.97
"""Of the best: what is faster than this is as good, and the smallest such is recommended."""
SETTLED = 0.02
"""Half an interval, as a share: what is left to decide is not worth the time."""
ROUNDS_LEAST = 3
Visiting = Callable[[Order], Visit | Failure]
"""Measures a setting once: a bench, or an invented machine."""


class Progress(NamedTuple):
    """For a bar: what is being measured, how much of the budget is used (0..1), and the fastest
    so far in samples a second."""

    phase: str
    setting: Setting
    used: float
    best: float | None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Everything that was measured. ``recommended`` is ``None`` where nothing could be.

    ``groups``: the settings of each comparison by the knob that varies in it. ``restarts``: seconds
    to a second epoch's first batch, without and with persistent workers.
    """

    trials: list[Trial] = field(default_factory=list)
    groups: list[tuple[str, list[Setting]]] = field(default_factory=list)
    recommended: Setting | None = None
    measured: Setting | None = None
    """The recommended setting as it was measured: the same, but perhaps for persistent_workers."""
    best: Setting | None = None
    undecided: list[Setting] = field(default_factory=list)
    """Those of which it is not known whether they are within 3% of the best."""
    interrupted: bool = False
    settled: bool = False
    unmeasured: list[str] = field(default_factory=list)
    """What the time did not suffice for: ``num_workers=4, 8``, or a knob."""
    notes: list[str] = field(default_factory=list)
    restarts: dict[bool, float] = field(default_factory=dict)
    whole_epochs: bool = False
    fresh_samples: bool = False
    seconds: float = 0.0

    def trial(self, setting: Setting | None) -> Trial | None:
        return next((trial for trial in self.trials if trial.setting == setting), None)


def undecided(active: Sequence[Trial], best: Trial) -> list[Setting]:
    """Settings that may be as fast as the best or not."""
    scatter = scatter_of(active)
    others = [trial for trial in active if trial is not best]
    return [one.setting for one in others if not _is_decided(one.compared(best, scatter))]


def is_settled(active: Sequence[Trial]) -> bool:
    best = best_of(active)
    if best is None or any(len(trial.counted) < ROUNDS_LEAST for trial in active):
        return False
    width = interval(best.rates, scatter_of(active)).half_width
    return width is not None and width <= 1.5 * SETTLED and not undecided(active, best)


def _is_decided(ratio: Interval) -> bool:
    """True if it is known to be within 3% of the best or not, or too little is left to know."""
    low, high, half = ratio.low, ratio.high, ratio.half_width
    if low is None or high is None or half is None:
        return False
    return low >= NEAR or high < NEAR or half <= SETTLED


@dataclass
class Visits:
    """``memory_bytes``: what files' pages may take, to know whether a dataset can stay there.
    ``phase``: the knob that is varied now; ``round``: of the visits that are compared."""

    measure: Visiting
    plan: Plan
    _: KW_ONLY
    budget_seconds: float
    memory_bytes: int | None = None
    clock: Callable[[], float] = monotonic
    report: Callable[[Progress], None] = lambda _progress: None
    round: int = 0
    phase: str = WORKERS
    whole_epochs: bool | None = None

    def __post_init__(self) -> None:
        self._window = min(2.0, max(0.3, self.budget_seconds / 60))
        self._begun = self.clock()
        self._count = 0
        self.outcome = Outcome(notes=list(self.plan.notes))

    def spent(self) -> float:
        return self.clock() - self._begun

    def left(self) -> float:
        return self.budget_seconds - self.spent()

    def seconds_each(self) -> float:
        return self.spent() / max(1, self._count)

    def ask(
        self, setting: Setting, *, restart: bool = False, share: float = 0.25
    ) -> Visit | Failure:
        """Measure once more, within a share of the time left. Raises ``OutOfTimeError``."""
        left = self.left()
        if left < 1.5 * self._window and self._count:
            raise OutOfTimeError
        best = best_of(self.outcome.trials)
        used = min(1.0, 1 - left / self.budget_seconds)
        self.report(Progress(self.phase, setting, used, None if best is None else best.typical))
        self._count += 1
        most = max(2 * self._window, min(left, max(8 * self._window, share * left)))
        return self.measure(
            Order(
                what="visit",
                setting=setting,
                round=self.round,
                seconds=self._window,
                limit_seconds=most,
                seed=SEED + (self._count if self.outcome.fresh_samples else 0),
                whole_epochs=bool(self.whole_epochs),
                restart=restart,
            )
        )

    def visit(self, setting: Setting, *, share: float = 0.25) -> Trial:
        result, trial = self.ask(setting, share=share), self.trial(setting)
        if isinstance(result, Failure):
            if result.code == "too_slow" and trial.visits:
                trial.dropped = "too slow for the time that was left"
            else:
                trial.failure = result
        elif self._switch_to_epochs(result):
            # What was measured in another way cannot be compared: begin anew.
            for one in self.outcome.trials:
                one.visits.clear()
            return self.visit(setting)
        else:
            trial.visits.append(result)
            self._judge_cache(result)
        return trial

    def _switch_to_epochs(self, visit: Visit) -> bool:
        """Where an epoch is shorter than two windows only whole ones can be timed."""
        if self.whole_epochs:
            return False
        samples = self.plan.samples or visit.epoch_samples
        self.whole_epochs = visit.whole_epochs or (
            self.whole_epochs is None
            and samples is not None
            and samples / visit.samples_per_second < 2 * self._window
        )
        return self.whole_epochs and not visit.whole_epochs

    def _judge_cache(self, visit: Visit) -> None:
        """A dataset that memory cannot hold comes from the disk in every epoch: each visit then
        gets samples of its own, or it would find those of the visit before in memory."""
        if self.memory_bytes is None or not visit.cold or not self.plan.samples:
            return
        read = max(visit.read_bytes or 0, visit.disk_read_bytes or 0)
        if read / visit.samples * self.plan.samples > 0.8 * self.memory_bytes:
            self.outcome.fresh_samples = True

    def warm_visit(self, setting: Setting) -> Trial:
        """One visit, and once more if the first read from the disk."""
        trial = self.visit(setting)
        cold = trial.alive and all(visit.cold for visit in trial.visits)
        return self.visit(setting) if cold and not self.outcome.fresh_samples else trial

    def trial(self, setting: Setting) -> Trial:
        found = self.outcome.trial(setting)
        if found is None:
            found = Trial(setting)
            self.outcome.trials.append(found)
        return found
