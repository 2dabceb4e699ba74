"""The outcome of a search, and when a comparison is decided. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuwatch.tuning.messages import Order
from gpuwatch.tuning.search.rates import Interval, Trial, best_of, interval, scatter_of
from gpuwatch.tuning.settings import Failure, Setting, Visit

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
    """True if further visits would change nothing."""
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
