"""Finds the settings worth their cost: climbs, drops what is clearly slower, settles the rest.

1. Workers: 0, 1, 2, 4, ... until more of them are no faster, then between the best and its
   neighbours. One visit each.
2. Race: those near the best are visited again and again, in rounds whose order rotates, so that
   what the machine does meanwhile meets all of them. A setting goes as soon as the interval of
   its ratio to the best lies below 97%, and all ends when every ratio is decided.
3. The other knobs in the same way, one after another, at the workers that won.
4. What time is left goes to a race of all that is too close to the best to call yet.

Pure but for the bench that measures, so it is tested on invented machines.
"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from gpuwatch.tuning.failures import OutOfTimeError
from gpuwatch.tuning.search.plan import WORKERS_MOST, halfway
from gpuwatch.tuning.search.rates import Trial, are_neighbours, best_of, scatter_of
from gpuwatch.tuning.search.visits import NEAR, Outcome, Visits, is_settled, undecided
from gpuwatch.tuning.settings import EVERYTHING, KNOBS, WORKERS, Failure, Setting, Visit

FAR = 0.7
"""A setting that reaches less of the best in its first visit is not visited again, unless it is
the best's neighbour."""
PAST = 0.85
"""Two rungs in a row that reach less: the top is behind."""
GAIN = 1.02
ROUNDS_MOST = 8
"""Before the next knob has its turn."""
WORKERS_SHARE = 0.65
"""Of the budget, if there are other knobs to try."""
RACE_VISITS = 9
"""Three rounds of three settings: what must be left for them before another is tried."""
RESTARTS = 3
RESTART_GAIN = 0.01
"""Of an epoch: what persistent workers must save to be worth their memory."""


class Search:
    """``visits`` measure, within their budget."""

    def __init__(self, visits: Visits) -> None:
        self._visits = visits
        self._plan = visits.plan
        self._budget = visits.budget_seconds
        self.outcome = visits.outcome

    def run(self) -> Outcome:
        """Until all is settled or the budget is used; Ctrl-C ends it with what there is."""
        outcome = self.outcome
        todo: list[tuple[str, Callable[[], None]]] = [(EVERYTHING, self._grid)]
        if not self._plan.grid:
            others = [knob.name for knob in KNOBS if knob.name in self._plan.others]
            todo = [
                (WORKERS, self._workers),
                *((knob, partial(self._other, knob)) for knob in others),
                (WORKERS, self._settle),
            ]
        try:
            while todo:
                self._visits.phase, step = todo[0]
                step()
                todo.pop(0)
        except OutOfTimeError:
            pass
        except KeyboardInterrupt:
            outcome.interrupted = True
        outcome.unmeasured = self._not_reached([name for name, _ in todo])
        self._recommend()
        outcome.whole_epochs = bool(self._visits.whole_epochs)
        outcome.seconds = self._visits.spent()
        return outcome

    def _not_reached(self, todo: Sequence[str]) -> list[str]:
        """What no time was left for: values of a comparison that was begun, and knobs of ``todo``
        that never had their turn."""
        found, begun = [], {name for name, _ in self.outcome.groups}
        if self.outcome.restarts:
            begun.add("persistent_workers")
        tried = [one.setting for one in self.outcome.trials if one.visits or one.failure]
        for knob, group in self.outcome.groups:
            missing = [setting for setting in group if setting not in tried]
            if knob == EVERYTHING and missing:
                found.append(f"{len(missing)} of the {len(group)} combinations")
            elif missing:
                values = ", ".join(str(getattr(setting, knob)) for setting in missing)
                found.append(f"{knob}={values}")
        return found + [knob for knob in dict.fromkeys(todo) if knob not in begun]

    # --- the number of workers ---------------------------------------------------------------

    def _workers(self) -> None:
        group: list[Setting] = []
        self.outcome.groups.append((WORKERS, group))
        until = self._budget * (1 - WORKERS_SHARE) if self._plan.varied() else 0.0
        self._climb(group)
        if self._plan.workers is None:
            self._refine(group, until)
        self._race(group, until)

    def _climb(self, group: list[Setting]) -> None:
        rungs, trials = self._plan.ladder(), []
        if self._plan.workers is not None:
            group += [self._plan.with_workers(count) for count in rungs]
        for place, count in enumerate(rungs):
            if place == len(group):
                group.append(self._plan.with_workers(count))
            trials.append(self._visits.warm_visit(group[place]))
            if len(trials) > 1 and _fail_alike(trials[-2].failure, trials[-1].failure):
                more = ", ".join(str(one) for one in rungs[place + 1 :])
                if more:
                    self.outcome.notes.append(
                        f"num_workers={more}: not measured, since they would fail alike."
                    )
                del group[place + 1 :]
                return
            if self._plan.workers is None and self._past_top(trials):
                return
            if self._plan.workers is None and count == rungs[-1] and self._still_rising(trials):
                rungs.append(count * 2)

    def _past_top(self, trials: Sequence[Trial]) -> bool:
        best = best_of(trials)
        if len(trials) < 3 or best is None:
            return False
        rates = [one.typical for one in trials[-2:]]
        if all(rate < PAST * best.typical for rate in rates):
            return True
        earlier = max(one.typical for one in trials[:-2])
        beyond = trials[-2].setting.num_workers >= self._plan.cores
        return beyond and all(rate < GAIN * earlier for rate in rates)

    def _still_rising(self, trials: Sequence[Trial]) -> bool:
        """More workers than cores pay where they wait (for a network, for a disk)."""
        if len(trials) < 2 or trials[-1].setting.num_workers * 2 > WORKERS_MOST:
            return False
        before, last = trials[-2:]
        if not last.alive or not before.alive:
            return False
        cores = last.middle(lambda visit: visit.cores_used)
        idle = cores is not None and cores < 0.75 * self._plan.cores
        return last.typical > 1.05 * before.typical and idle

    def _refine(self, group: list[Setting], until_left: float) -> None:
        """Between the best and its neighbours, and below the smallest that is as good."""
        for _ in range(2):
            alive = [trial for one in group if (trial := self._visits.trial(one)).alive]
            best = best_of(alive)
            if best is None:
                return
            good = [one for one in alive if one.typical >= NEAR * best.typical]
            fewest = min(one.setting.num_workers for one in good)
            tried = sorted(one.setting.num_workers for one in alive)
            for count in halfway(tried, sorted({fewest, best.setting.num_workers})):
                needed = RACE_VISITS * self._visits.seconds_each()
                if self._visits.left() - until_left < needed:
                    return
                group.append(self._plan.with_workers(count))
                self._visits.warm_visit(group[-1])

    # --- the race ----------------------------------------------------------------------------

    def _race(self, group: Sequence[Setting], until_left: float, *, drop: bool = True) -> bool:
        """Rounds over those that are not dropped; whether every ratio is decided."""
        for turn in range(ROUNDS_MOST):
            if drop:
                self._drop(group)
            active = self._active(group)
            if not active or is_settled(active):
                return bool(active)
            if self._visits.left() <= until_left:
                return False
            self._visits.round += 1
            shift = turn % len(active)
            for trial in active[shift:] + active[:shift]:
                self._visits.visit(trial.setting)
        if drop:
            self._drop(group)
        return is_settled(self._active(group))

    def _active(self, group: Sequence[Setting]) -> list[Trial]:
        """Also those without a visit yet, which are new in a comparison of their own."""
        trials = [self._visits.trial(setting) for setting in group]
        return [one for one in trials if one.failure is None and one.dropped is None]

    def _drop(self, group: Sequence[Setting]) -> None:
        active = [trial for trial in self._active(group) if trial.visits]
        best = best_of(active)
        if best is None:
            return
        scatter = scatter_of(active)
        for trial in active:
            its = trial.compared(best, scatter)
            alone = len(trial.counted) == 1 and not are_neighbours(trial, best, active)
            if alone and its.rate < FAR:
                trial.dropped = f"{100 * its.rate:.0f}% of the best"
            elif its.high is not None and its.high < NEAR:
                trial.dropped = f"{100 * its.rate:.0f}% of the best (at most {100 * its.high:.0f}%)"

    # --- the other knobs and the end ---------------------------------------------------------

    def _other(self, knob: str) -> None:
        here, values = self._winner(), self._plan.others[knob]
        needs_workers = knob in ("prefetch_factor", "persistent_workers")
        if here is None or len(values) == 1 or (needs_workers and not here.num_workers):
            return
        if knob == "persistent_workers" and not self._visits.whole_epochs:
            self._compare_restarts(here)
            return
        group = list(dict.fromkeys([here, *(here.with_knobs(**{knob: value}) for value in values)]))
        self.outcome.groups.append((knob, group))
        self._visits.round += 1
        tried = {name for name, _ in self.outcome.groups}
        left = len(self._plan.others.keys() - tried)
        self._race(group, self._visits.left() * left / (left + 1))

    def _compare_restarts(self, here: Setting) -> None:
        if self._plan.iterable:
            self.outcome.notes.append(
                "persistent_workers: not measured, since the epochs of an iterable dataset cannot "
                "be shortened for it."
            )
            return
        found: dict[bool, list[float]] = {False: [], True: []}
        try:
            for value in (False, True) * RESTARTS:
                result = self._visits.ask(here.with_knobs(persistent_workers=value), restart=True)
                if isinstance(result, Visit) and result.restart_seconds is not None:
                    found[value].append(result.restart_seconds)
        finally:
            if all(found.values()):
                self.outcome.restarts = {value: median(its) for value, its in found.items()}

    def _winner(self) -> Setting | None:
        """The smallest of all that were measured as fast as the best, but for 3%."""
        trials = [trial for trial in self.outcome.trials if trial.alive]
        best = best_of(trials)
        if best is None:
            return None
        scatter = scatter_of(trials)
        near = [one.setting for one in trials if one.compared(best, scatter).rate >= NEAR]
        return min(near, key=lambda setting: _cost(setting, self._plan.base))

    def _grid(self) -> None:
        group = self._plan.combinations()
        self.outcome.groups.append((EVERYTHING, group))
        for setting in group:
            self._visits.warm_visit(setting)
        self._settle()

    def _settle(self) -> None:
        if not any(trial.visits for trial in self.outcome.trials):
            self._try_slow_ones_again()
        group = [trial.setting for trial in self.outcome.trials]
        while self._active(group) and self._visits.left() > 0:
            if self._race(group, 0.0, drop=not self._plan.grid):
                return

    def _try_slow_ones_again(self) -> None:
        """Nothing was measured: those that had too little time get what is left of it."""
        for trial in self.outcome.trials:
            if trial.failure is not None and trial.failure.code == "too_slow":
                failure, trial.failure = trial.failure, None
                try:
                    self._visits.visit(trial.setting, share=0.7)
                except OutOfTimeError:
                    trial.failure = failure
                    raise

    def _recommend(self) -> None:
        outcome = self.outcome
        best = best_of(outcome.trials)
        if best is not None:
            active = self._active([trial.setting for trial in outcome.trials if trial.visits])
            outcome.best = best.setting
            outcome.undecided = undecided(active, best)
            outcome.settled = is_settled(active) and not outcome.unmeasured
        chosen = outcome.recommended = outcome.measured = self._winner()
        if chosen is None or not outcome.restarts:
            return
        saved = outcome.restarts[False] - outcome.restarts[True]
        samples, rate = self._plan.samples, self._visits.trial(chosen).typical
        worth = saved > (RESTART_GAIN * samples / rate if samples else 0.2)
        outcome.recommended = chosen.with_knobs(persistent_workers=worth)


def _fail_alike(one: Failure | None, two: Failure | None) -> bool:
    """Two settings failed in the same way: so will those with more workers."""
    return one is not None and two is not None and (one.code, one.line) == (two.code, two.line)


def _cost(setting: Setting, base: Setting) -> tuple[int, ...]:
    """Fewer workers first, then what the user has (``base``), then less memory."""
    knobs = ("pin_memory", "prefetch_factor", "persistent_workers")
    return (
        setting.num_workers,
        setting.batch_size or 0,
        sum(getattr(setting, knob) != getattr(base, knob) for knob in knobs),
        setting.prefetch_factor or 0,
        setting.persistent_workers,
        setting.pin_memory,
    )
