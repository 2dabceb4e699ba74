"""Finds the settings worth their cost: climbs, drops what is clearly slower, settles the rest.

1. Workers: 0, 1, 2, 4, ... until more of them are no faster, then between the best and its
   neighbours. One visit each.
2. Race: those near the best are visited again and again, in rounds whose order rotates, so that
   what the machine does meanwhile meets all of them. A setting goes as soon as the interval of
   its ratio to the best lies below 97%, and all ends when every ratio is decided.
3. The other knobs in the same way, one after another, at the workers that won.
4. What time is left goes to a race of all that cannot be told apart from the best yet.

Pure but for the bench that measures, so it is tested on invented machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import monotonic
from typing import Any, Protocol

from gpuwatch.tuning.child.repeats import SENTENCE as REPEATS
from gpuwatch.tuning.search import trial as trials_of
from gpuwatch.tuning.search.intervals import Interval
from gpuwatch.tuning.search.plan import WORKERS_MOST, Plan
from gpuwatch.tuning.search.setting import KNOBS, Failure, Setting, Visit
from gpuwatch.tuning.search.trial import Trial

NEAR = 0.97
"""Of the best: what is faster than this is as good, and the smallest such is recommended."""
FAR = 0.7
"""A setting that reaches less of the best in its first visit is not visited again, unless it is
the best's neighbour."""
PAST = 0.85
"""Two rungs in a row that reach less: the top is behind."""
GAIN = 1.02
SETTLED = 0.02
"""Half an interval, as a share: what is left to decide is not worth the time."""
ROUNDS_LEAST = 3
ROUNDS_MOST = 8
"""Before the next knob has its turn."""
WORKERS_SHARE = 0.65
"""Of the budget, if there are other knobs to try."""
RACE_VISITS = 9
"""Three rounds of three settings: what must be left for them before another is tried."""
RESTARTS = 3
RESTART_GAIN = 0.01
"""Of an epoch: what persistent workers must save to be worth their memory."""


class Visiting(Protocol):
    def visit(
        self,
        setting: Setting,
        *,
        round_number: int,
        seconds: float,
        limit_seconds: float,
        seed: int,
        whole_epochs: bool = False,
        restart: bool = False,
    ) -> Visit | Failure: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """For a bar: what is being measured, and how much of the budget is used (0..1)."""

    phase: str
    setting: Setting
    used: float
    visits: int
    best: float | None


class _OutOfTimeError(Exception):
    pass


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Everything that was measured. ``recommended`` is ``None`` where nothing could be.

    ``groups``: the settings of each comparison by the knob that varies in it. ``restarts``: seconds
    to a second epoch's first batch, without and with persistent workers.
    """

    trials: list[Trial]
    groups: list[tuple[str, list[Setting]]]
    recommended: Setting | None = None
    measured: Setting | None = None
    """What of the recommended was measured: the same, but perhaps for persistent_workers."""
    best: Setting | None = None
    undecided: list[Setting] = field(default_factory=list)
    """Those of which it is not known whether they are within 3% of the best."""
    interrupted: bool = False
    settled: bool = False
    unmeasured: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    restarts: dict[bool, float] = field(default_factory=dict)
    whole_epochs: bool = False
    fresh_samples: bool = False
    seconds: float = 0.0

    def trial(self, setting: Setting) -> Trial | None:
        return next((trial for trial in self.trials if trial.setting == setting), None)


class Search:
    """``memory_bytes``: what files' pages may take, to tell whether a dataset can stay there."""

    def __init__(
        self,
        bench: Visiting,
        plan: Plan,
        *,
        budget_seconds: float,
        window_seconds: float | None = None,
        memory_bytes: int | None = None,
        clock: Callable[[], float] = monotonic,
        tell: Callable[[Progress], None] = lambda _progress: None,
        seed: int = 20_240_229,
    ) -> None:
        self._bench = bench
        self._plan = plan
        self._budget = budget_seconds
        self._window = window_seconds or min(2.0, max(0.3, budget_seconds / 60))
        self._memory = memory_bytes
        self._clock = clock
        self._tell = tell
        self._seed = seed
        self._begun = clock()
        self._visits = 0
        self._round = 0
        self._phase = "workers"
        self._whole_epochs: bool | None = None
        self.outcome = Outcome(trials=[], groups=[], notes=list(plan.notes))

    def run(self) -> Outcome:
        """Until all is settled or the budget is used; Ctrl-C ends it with what there is."""
        outcome = self.outcome
        todo = self._steps()
        try:
            while todo:
                self._phase, step = todo[0]
                step()
                todo.pop(0)
        except _OutOfTimeError:
            pass
        except KeyboardInterrupt:
            outcome.interrupted = True
        self._recommend()
        outcome.unmeasured += [name for name, _ in todo if not self._has_compared(name)]
        outcome.whole_epochs = bool(self._whole_epochs)
        outcome.seconds = self._clock() - self._begun
        return outcome

    def _steps(self) -> list[tuple[str, Callable[[], None]]]:
        if self._plan.grid:
            return [("everything", self._grid)]
        steps: list[tuple[str, Callable[[], None]]] = [("num_workers", self._workers)]
        for knob in ("batch_size", "prefetch_factor", "pin_memory", "persistent_workers"):
            if knob in self._plan.others:
                steps.append((knob, lambda knob=knob: self._other(knob)))  # type: ignore[misc]
        return [*steps, ("num_workers", self._settle)]

    def _has_compared(self, knob: str) -> bool:
        """Whether at least two of its values were measured."""
        if knob == "persistent_workers" and self.outcome.restarts:
            return True
        group = next((group for name, group in self.outcome.groups if name == knob), [])
        return sum(bool(self._trial(setting).visits) for setting in group) > 1

    # --- one visit ---------------------------------------------------------------------------

    def _left(self) -> float:
        return self._budget - (self._clock() - self._begun)

    def _visit(
        self, setting: Setting, *, restart: bool = False, share: float = 0.25
    ) -> Trial | Visit | Failure:
        """Measure once more, within a share of the time left. Raises ``_OutOfTimeError``."""
        left = self._left()
        if left < 1.5 * self._window and self._visits:
            raise _OutOfTimeError
        self._say(setting)
        self._visits += 1
        seed = self._seed + (self._visits if self.outcome.fresh_samples else 0)
        result = self._bench.visit(
            setting,
            round_number=self._round,
            seconds=self._window,
            limit_seconds=max(2 * self._window, min(left, max(8 * self._window, share * left))),
            seed=seed,
            whole_epochs=bool(self._whole_epochs),
            restart=restart,
        )
        if restart:
            return result
        return self._note(setting, result)

    def _note(self, setting: Setting, result: Visit | Failure) -> Trial:
        trial = self._trial(setting)
        if isinstance(result, Failure):
            if result.code == "too_slow" and trial.visits:
                trial.dropped = "too slow for the time that was left"
            else:
                trial.failure = result
            return trial
        if self._switch_to_epochs(result):
            return self._note_again(setting)
        if self._repeats(setting, result):
            trial.failure = Failure(code="repeats", sentence=REPEATS)
            return trial
        trial.visits.append(result)
        self._judge_cache(result)
        return trial

    def _repeats(self, setting: Setting, visit: Visit) -> bool:
        """Whether the epochs of an iterable dataset grow with the number of workers."""
        if not self._plan.iterable or setting.num_workers < 2 or visit.epoch_samples is None:
            return False
        alone = [
            one.epoch_samples
            for trial in self.outcome.trials
            for one in trial.visits
            if trial.setting.num_workers < 2 and one.epoch_samples is not None
        ]
        return bool(alone) and visit.epoch_samples > 1.5 * min(alone)

    def _note_again(self, setting: Setting) -> Trial:
        """What was measured in another way cannot be compared: begin anew."""
        for trial in self.outcome.trials:
            trial.visits.clear()
        found = self._visit(setting)
        assert isinstance(found, Trial)
        return found

    def _switch_to_epochs(self, visit: Visit) -> bool:
        if self._whole_epochs:
            return False
        samples = self._plan.samples or visit.epoch_samples
        short = visit.whole_epochs or (
            self._whole_epochs is None
            and samples is not None
            and samples / visit.samples_per_second < 2 * self._window
        )
        self._whole_epochs = short
        return short and not visit.whole_epochs

    def _judge_cache(self, visit: Visit) -> None:
        """A dataset that memory cannot hold comes from the disk in every epoch: then each visit
        gets samples of its own, or it would find those of the visit before in memory."""
        if self._memory is None or not visit.cold or not self._plan.samples:
            return
        read = max(visit.read_bytes or 0, visit.disk_read_bytes or 0)
        if read / visit.samples * self._plan.samples > 0.8 * self._memory:
            self.outcome.fresh_samples = True

    def _warm_visit(self, setting: Setting) -> Trial:
        """One visit, and once more if the first read from the disk."""
        trial = self._visit(setting)
        assert isinstance(trial, Trial)
        cold = trial.alive and all(visit.cold for visit in trial.visits)
        if cold and not self.outcome.fresh_samples:
            again = self._visit(setting)
            assert isinstance(again, Trial)
        return trial

    def _trial(self, setting: Setting) -> Trial:
        found = self.outcome.trial(setting)
        if found is None:
            found = Trial(setting)
            self.outcome.trials.append(found)
        return found

    def _say(self, setting: Setting) -> None:
        best = trials_of.best_of(self.outcome.trials)
        rate = None if best is None else median(best.rates().values())
        used = min(1.0, 1 - self._left() / self._budget)
        self._tell(Progress(self._phase, setting, used, self._visits, rate))

    # --- the number of workers ---------------------------------------------------------------

    def _with_workers(self, count: int) -> Setting:
        setting = replace(self._plan.base, num_workers=count).valid()
        if count:
            # What was asked for can only be held by a setting with workers.
            for knob, values in self._plan.others.items():
                if len(values) == 1:
                    setting = setting.with_knob(knob, values[0])
        return setting

    def _workers(self) -> None:
        group: list[Setting] = []
        self.outcome.groups.append(("num_workers", group))
        others = any(len(values) > 1 for values in self._plan.others.values())
        until = self._budget * (1 - WORKERS_SHARE) if others else 0.0
        self._climb(group)
        if self._plan.workers is None:
            self._refine(group, until)
        self._race(group, until)

    def _climb(self, group: list[Setting]) -> None:
        rungs = self._plan.ladder()
        for place, count in enumerate(rungs):
            group.append(self._with_workers(count))
            self._warm_visit(group[-1])
            if self._fails_alike(group):
                more = ", ".join(str(one) for one in rungs[place + 1 :])
                if more:
                    self.outcome.unmeasured.append(f"num_workers={more}, which would fail alike")
                return
            if self._plan.workers is None and self._past_top(group):
                return
            if self._plan.workers is None and count == rungs[-1] and self._still_rising(group):
                rungs.append(count * 2)

    def _fails_alike(self, group: Sequence[Setting]) -> bool:
        """The last two failed in the same way: so will those with more workers."""
        last = [self._trial(setting).failure for setting in group[-2:]]
        if len(last) < 2 or last[0] is None or last[1] is None:
            return False
        return last[0].code == last[1].code and last[0].line == last[1].line

    def _past_top(self, group: Sequence[Setting]) -> bool:
        if len(group) < 3:
            return False
        best = trials_of.best_of([self._trial(one) for one in group])
        if best is None:
            return False
        top = median(best.rates().values())
        last = [self._trial(setting) for setting in group[-2:]]
        rates = [median(one.rates().values()) if one.alive else 0.0 for one in last]
        if all(rate < PAST * top for rate in rates):
            return True
        before = [self._trial(setting) for setting in group[:-2]]
        earlier = max((median(one.rates().values()) for one in before if one.alive), default=0.0)
        beyond = group[-2].num_workers >= self._plan.cores
        return beyond and all(rate < GAIN * earlier for rate in rates)

    def _still_rising(self, group: Sequence[Setting]) -> bool:
        """More workers than cores pay where they wait (for a network, for a disk)."""
        if len(group) < 2 or group[-1].num_workers * 2 > WORKERS_MOST:
            return False
        last, before = self._trial(group[-1]), self._trial(group[-2])
        if not last.alive or not before.alive:
            return False
        gain = median(last.rates().values()) / median(before.rates().values())
        cores = last.middle(lambda visit: visit.cores_used)
        return gain > 1.05 and cores is not None and cores < 0.75 * self._plan.cores

    def _refine(self, group: list[Setting], until_left: float) -> None:
        """Between the best and its neighbours, and below the smallest that is as good."""
        for _ in range(2):
            tried = sorted(one.num_workers for one in group if self._trial(one).alive)
            best = trials_of.best_of([self._trial(one) for one in group])
            if best is None:
                return
            top = median(best.rates().values())
            good = [
                one.num_workers
                for one in group
                if self._trial(one).alive
                and median(self._trial(one).rates().values()) >= NEAR * top
            ]
            for count in _between(tried, sorted({best.setting.num_workers, min(good)})):
                if self._left() - until_left < RACE_VISITS * self._visit_seconds():
                    return
                group.append(self._with_workers(count))
                self._warm_visit(group[-1])

    def _visit_seconds(self) -> float:
        return (self._clock() - self._begun) / max(1, self._visits)

    # --- the race ----------------------------------------------------------------------------

    def _race(self, group: Sequence[Setting], until_left: float, *, drop: bool = True) -> bool:
        """Rounds over those that are not dropped; whether every ratio is decided."""
        for turn in range(ROUNDS_MOST):
            if drop:
                self._drop(group)
            active = self._active(group)
            if not active or self._is_settled(active):
                return bool(active)
            if self._left() <= until_left:
                return False
            self._round += 1
            shift = turn % len(active)
            for trial in active[shift:] + active[:shift]:
                self._visit(trial.setting)
        if drop:
            self._drop(group)
        return self._is_settled(self._active(group))

    def _active(self, group: Sequence[Setting]) -> list[Trial]:
        trials = [self._trial(setting) for setting in group]
        # One without visits yet is new in a comparison of its own.
        return [one for one in trials if one.failure is None and one.dropped is None]

    def _drop(self, group: Sequence[Setting]) -> None:
        active = [trial for trial in self._active(group) if trial.visits]
        best = trials_of.best_of(active)
        if best is None:
            return
        scatter = trials_of.scatter_of(active)
        for trial in active:
            ratio = trials_of.compared(trial, best, scatter)
            alone = len(trial.counted) == 1 and not _are_neighbours(trial, best, active)
            if alone and ratio.rate < FAR:
                trial.dropped = f"{100 * ratio.rate:.0f}% of the best"
            elif ratio.high is not None and ratio.high < NEAR:
                trial.dropped = (
                    f"{100 * ratio.rate:.0f}% of the best (at most {100 * ratio.high:.0f}%)"
                )

    def _is_settled(self, active: Sequence[Trial]) -> bool:
        best = trials_of.best_of(active)
        if best is None or any(len(trial.counted) < ROUNDS_LEAST for trial in active):
            return False
        width = trials_of.interval_of(best, trials_of.scatter_of(active)).half_width
        return width is not None and width <= 1.5 * SETTLED and not _undecided(active, best)

    # --- the other knobs ---------------------------------------------------------------------

    def _other(self, knob: str) -> None:
        here = self._winner()
        if here is None:
            return
        if here.num_workers == 0 and knob in ("prefetch_factor", "persistent_workers"):
            return
        values = self._plan.others[knob]
        if len(values) == 1:
            return
        if knob == "persistent_workers" and not self._whole_epochs:
            self._compare_restarts(here)
            return
        group = list(dict.fromkeys([here, *(here.with_knob(knob, value) for value in values)]))
        self.outcome.groups.append((knob, group))
        self._round += 1
        left = [k for k in self._plan.others if k not in [g[0] for g in self.outcome.groups]]
        self._race(group, self._left() * len(left) / (len(left) + 1))

    def _compare_restarts(self, here: Setting) -> None:
        if self._plan.iterable:
            self.outcome.notes.append(
                "persistent_workers: not measured, since the epochs of an iterable dataset cannot "
                "be shortened for it."
            )
            return
        found: dict[bool, list[float]] = {False: [], True: []}
        try:
            for _ in range(RESTARTS):
                for value in (False, True):
                    result = self._visit(here.with_knob("persistent_workers", value), restart=True)
                    if isinstance(result, Visit) and result.restart_seconds is not None:
                        found[value].append(result.restart_seconds)
        finally:
            if all(found.values()):
                self.outcome.restarts = {value: median(its) for value, its in found.items()}

    def _winner(self) -> Setting | None:
        """The smallest of all that were measured as fast as the best, but for 3%."""
        best = trials_of.best_of(self.outcome.trials)
        if best is None:
            return None
        scatter = trials_of.scatter_of(self.outcome.trials)
        near = [
            trial.setting
            for trial in self.outcome.trials
            if trial.alive and trials_of.compared(trial, best, scatter).rate >= NEAR
        ]
        return min(near, key=self._cost)

    def _cost(self, setting: Setting) -> tuple[Any, ...]:
        """Fewer workers first, then what the user has, then less memory."""
        changed = [getattr(setting, knob) != getattr(self._plan.base, knob) for knob in KNOBS[1:4]]
        return (
            setting.num_workers,
            setting.batch_size or 0,
            sum(changed),
            setting.prefetch_factor or 0,
            setting.persistent_workers,
            setting.pin_memory,
        )

    # --- the end -----------------------------------------------------------------------------

    def _grid(self) -> None:
        group = self._plan.combinations()
        self.outcome.groups.append(("everything", group))
        for setting in group:
            self._warm_visit(setting)
        self._settle()

    def _settle(self) -> None:
        """What time is left goes to what is not decided yet."""
        if not any(trial.visits for trial in self.outcome.trials):
            self._try_slow_ones_again()
        group = [trial.setting for trial in self.outcome.trials]
        while self._active(group) and self._left() > 0:
            if self._race(group, 0.0, drop=not self._plan.grid):
                return

    def _try_slow_ones_again(self) -> None:
        """Nothing was measured: those that had too little time get what is left of it."""
        for trial in self.outcome.trials:
            if trial.failure is not None and trial.failure.code == "too_slow":
                failure, trial.failure = trial.failure, None
                try:
                    self._visit(trial.setting, share=0.7)
                except _OutOfTimeError:
                    trial.failure = failure
                    raise

    def _recommend(self) -> None:
        outcome = self.outcome
        outcome.recommended = self._winner()
        best = trials_of.best_of(outcome.trials)
        if best is not None:
            active = self._active([trial.setting for trial in outcome.trials if trial.visits])
            outcome.best = best.setting
            outcome.undecided = _undecided(active, best)
            outcome.settled = self._is_settled(active)
        chosen = outcome.measured = outcome.recommended
        if chosen is None or not outcome.restarts:
            return
        epoch = self._epoch_seconds(chosen)
        saved = outcome.restarts[False] - outcome.restarts[True]
        worth = saved > 0.2 if epoch is None else saved > RESTART_GAIN * epoch
        outcome.recommended = chosen.with_knob("persistent_workers", worth)

    def _epoch_seconds(self, setting: Setting) -> float | None:
        trial = self.outcome.trial(setting)
        if trial is None or not trial.alive or not self._plan.samples:
            return None
        return self._plan.samples / median(trial.rates().values())


def _undecided(active: Sequence[Trial], best: Trial) -> list[Setting]:
    scatter = trials_of.scatter_of(active)
    return [
        trial.setting
        for trial in active
        if trial is not best and not _is_decided(trials_of.compared(trial, best, scatter))
    ]


def _is_decided(ratio: Interval) -> bool:
    """Whether it is known to be within 3% of the best or not, or too little is left to know."""
    low, high, half = ratio.low, ratio.high, ratio.half_width
    if low is None or high is None or half is None:
        return False
    return low >= NEAR or high < NEAR or half <= SETTLED


def _are_neighbours(trial: Trial, best: Trial, active: Sequence[Trial]) -> bool:
    """Whether no other count of workers lies between: there one visit that something disturbed
    would hide the best."""
    ends = sorted((trial.setting.num_workers, best.setting.num_workers))
    return not any(ends[0] < one.setting.num_workers < ends[1] for one in active)


def _between(tried: Sequence[int], around: Sequence[int]) -> list[int]:
    """Halfway to the neighbours of ``around``, where a fifth or more lies between."""
    found: list[int] = []
    for one in around:
        place = tried.index(one)
        for other in (*tried[max(0, place - 1) : place], *tried[place + 1 : place + 2]):
            middle = (one + other) // 2
            new = middle not in tried and middle not in found
            if new and abs(one - other) > max(1, one // 5):
                found.append(middle)
    return found
