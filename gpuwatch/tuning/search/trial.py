"""What is known of one setting: its visits, its failure, why it was dropped. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from gpuwatch.tuning.search import intervals
from gpuwatch.tuning.search.intervals import Interval, Scatter
from gpuwatch.tuning.search.setting import Failure, Setting, Visit


@dataclass(slots=True)
class Trial:
    setting: Setting
    visits: list[Visit] = field(default_factory=list)
    failure: Failure | None = None
    dropped: str | None = None
    """Why it was not measured further: a few words."""

    @property
    def counted(self) -> list[Visit]:
        """Those that are compared: later passes, unless every pass came from the disk."""
        warm = [visit for visit in self.visits if not visit.cold]
        return warm or self.visits

    @property
    def cold(self) -> list[Visit]:
        return [visit for visit in self.visits if visit.cold]

    @property
    def alive(self) -> bool:
        return self.failure is None and bool(self.visits)

    def rates(self) -> dict[int, float]:
        return {visit.round: visit.samples_per_second for visit in self.counted}

    def middle(self, of: Callable[[Visit], float | None]) -> float | None:
        """The median over the visits that have it."""
        known = [value for visit in self.counted if (value := of(visit)) is not None]
        return median(known) if known else None


def scatter_of(trials: Iterable[Trial]) -> Scatter:
    return intervals.shared_scatter([trial.rates() for trial in trials if trial.alive])


def interval_of(trial: Trial, scatter: Scatter) -> Interval:
    return intervals.interval(trial.rates(), scatter)


def compared(trial: Trial, best: Trial, scatter: Scatter) -> Interval:
    return intervals.ratio(trial.rates(), best.rates(), scatter)


def best_of(trials: Iterable[Trial]) -> Trial | None:
    """The fastest by its mean rate; of equals the one that comes first."""
    scatter = Scatter(0.0, 0.0)
    alive = [trial for trial in trials if trial.alive]
    return max(alive, key=lambda t: interval_of(t, scatter).rate, default=None)
