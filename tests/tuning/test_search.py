"""The search on invented machines, whose true curves are known."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from gpuwatch.core.text import SentenceError
from gpuwatch.tuning.messages import Order
from gpuwatch.tuning.search.plan import Plan, make_plan
from gpuwatch.tuning.search.rates import scatter_of
from gpuwatch.tuning.search.search import Search
from gpuwatch.tuning.search.visits import Outcome, Visits
from gpuwatch.tuning.settings import Description, Failure, Setting, Visit

Curve = Callable[[Setting], float]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Machine:
    """A visit takes its window and some; rates scatter, some visits fail."""

    def __init__(self, curve: Curve, noise: float = 0.01, seed: int = 1) -> None:
        self.curve, self.noise = curve, noise
        self.random = random.Random(seed)
        self.clock = Clock()
        self.visited: list[Setting] = []
        self.seeds: list[int] = []
        self.interrupt_at: int | None = None
        self.fails: Callable[[Setting], Failure | None] = lambda _setting: None
        self.cold: Callable[[int], bool] = lambda _number: False
        self.cores = 1.0
        self.restart = {False: 0.5, True: 0.1}

    def visit(self, order: Order) -> Visit | Failure:
        setting = order.setting
        self.visited.append(setting)
        self.seeds.append(order.seed)
        if len(self.visited) == self.interrupt_at:
            raise KeyboardInterrupt
        self.clock.now += 1.3 * order.seconds + 0.2
        failure = self.fails(setting)
        if failure is not None:
            return failure
        cold = self.cold(len(self.visited))
        rate = self.curve(setting) * self.random.lognormvariate(0, self.noise) / (1 + 3 * cold)
        return Visit(
            round=order.round,
            samples=round(rate * 1000),
            batches=100,
            seconds=1000.0,
            first_batch_seconds=0.1,
            cores_used=self.cores,
            cold=cold,
            read_bytes=round(rate * 1000) * 1000,
            disk_read_bytes=round(rate * 1000) * 1000 if cold else 0,
            whole_epochs=order.whole_epochs,
            restart_seconds=self.restart[setting.persistent_workers] if order.restart else None,
        )


def described(**changes: Any) -> Description:
    plain: dict[str, Any] = {
        "base": Setting(batch_size=8).valid(), "fixed": {}, "takes": (), "defaults": {},
        "is_dataset": False, "iterable": False, "dataset": "a D", "samples": 10**7,
        "start_method": "fork", "accelerator": None, "line_name": "DataLoader",
        "line_arguments": (("shuffle", "True"),), "torch": "2.13",
    }  # fmt: skip
    return Description(**{**plain, **changes})


def plan(cores: float = 8, grid: bool = False, **asked: tuple[Any, ...]) -> Plan:
    asked = {"prefetch_factor": (2,), "persistent_workers": (False,), **asked}
    return make_plan(described(), asked, cores=cores, grid=grid)


def searched(machine: Machine, its_plan: Plan, budget: float = 120.0, **more: Any) -> Outcome:
    visits = Visits(machine.visit, its_plan, budget_seconds=budget, clock=machine.clock, **more)
    return Search(visits).run()


def peak(at: int, *, fall: float = 0.3) -> Curve:
    return lambda s: 100 * max(0.8, min(s.num_workers, at) - fall * max(0, s.num_workers - at))


@pytest.mark.parametrize("at", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("seed", [1, 2])
def test_finds_the_peak(at: int, seed: int) -> None:
    """Where more workers make it slower, the best count is found, within what is as good."""
    machine = Machine(peak(at), 0.01, seed)
    outcome = searched(machine, plan())
    assert peak(at)(outcome.recommended) >= 0.96 * peak(at)(Setting(num_workers=at))
    assert outcome.settled


@pytest.mark.parametrize("knee", [2, 4, 5])
def test_takes_the_fewest_workers_that_are_as_good(knee: int) -> None:
    """Beyond the knee all are as fast: the knee is recommended, not the fastest by chance."""
    for seed in range(5):
        outcome = searched(Machine(peak(knee, fall=0.0), 0.008, seed), plan())
        assert outcome.recommended.num_workers == knee
        assert outcome.undecided == []


def test_goes_beyond_the_cores_where_workers_wait() -> None:
    """Workers that leave the cores idle are multiplied until it no longer pays."""
    machine = Machine(peak(24, fall=0.0))
    outcome = searched(machine, plan(cores=2), 300)
    assert 22 <= outcome.recommended.num_workers <= 24


def test_stays_near_the_cores_where_they_are_busy() -> None:
    """With all cores in use nobody tries four times as many workers."""
    machine = Machine(peak(4, fall=0.0))
    machine.cores = 4.0
    searched(machine, plan(cores=4))
    assert max(setting.num_workers for setting in machine.visited) <= 8


def test_most_of_the_time_goes_to_what_is_near_the_best() -> None:
    """A setting that reaches a fraction of the best is not visited again and again. All see the
    same samples, so that none is compared by its luck."""
    machine = Machine(peak(8))
    outcome = searched(machine, plan())
    assert len(set(machine.seeds)) == 1
    slow = outcome.trial(outcome.groups[0][1][0])
    assert slow.setting.num_workers == 0
    assert len(slow.visits) == 1
    assert slow.dropped is not None
    best = outcome.trial(Setting(num_workers=8, prefetch_factor=2, batch_size=8))
    assert len(best.visits) >= 3


def test_one_disturbed_visit_does_not_hide_the_best() -> None:
    """The best is slowed to a third in its first visit by something else: it is found."""
    machine = Machine(peak(3))
    first = [True]

    def curve(setting: Setting) -> float:
        slow = setting.num_workers == 3 and first[0]
        first[0] = first[0] and not slow
        return peak(3)(setting) * (0.33 if slow else 1.0)

    machine.curve = curve
    outcome = searched(machine, plan(num_workers=(1, 2, 3, 4)))
    assert outcome.recommended.num_workers == 3


def test_rounds_are_interleaved() -> None:
    """Those that are raced are visited in turns, and no round begins with the same one as the
    round before."""
    machine = Machine(lambda s: 100 + s.num_workers, 0.02)
    outcome = searched(machine, plan(num_workers=(1, 2, 3)))
    assert len(outcome.trials) == 3
    rounds = [machine.visited[n : n + 3] for n in range(3, 9, 3)]
    assert all(len({setting.num_workers for setting in one}) == 3 for one in rounds)
    assert rounds[0][0] != rounds[1][0]


def test_listed_counts_are_all_measured_and_no_other() -> None:
    """Where counts are listed, each is measured, whatever the others say."""
    machine = Machine(peak(2, fall=1.0))
    searched(machine, plan(num_workers=(0, 3, 5, 16)))
    assert {setting.num_workers for setting in machine.visited} == {0, 3, 5, 16}


def test_cold_passes_are_not_compared_with_warm_ones() -> None:
    """The first visits read from the disk: they are measured again, and kept apart."""
    machine = Machine(peak(4))
    machine.cold = lambda number: number in (1, 4, 6)
    outcome = searched(machine, plan(), memory_bytes=10**15)
    assert outcome.recommended.num_workers == 4
    assert sum(len(trial.cold) for trial in outcome.trials) == 3
    assert all(not visit.cold for trial in outcome.trials for visit in trial.counted)


def test_dataset_larger_than_memory_is_always_cold() -> None:
    """What cannot stay in memory is measured cold, with other samples in each visit."""
    machine = Machine(peak(4))
    machine.cold = lambda _number: True
    outcome = searched(machine, plan(), memory_bytes=10**6)
    assert outcome.fresh_samples
    assert len(set(machine.seeds)) > 5
    assert outcome.recommended.num_workers == 4


def test_other_knobs_are_changed_only_where_it_pays() -> None:
    """A prefetch factor that gives a fifth is taken, one that gives nothing is not."""
    gains = {2: 1.0, 4: 1.2, 8: 1.2}
    asked = plan(prefetch_factor=(2, 4, 8))
    curve = peak(4)
    paying = searched(Machine(lambda s: curve(s) * gains.get(s.prefetch_factor or 2, 1.0)), asked)
    same = searched(Machine(curve), asked)
    found = paying.recommended
    assert (found.num_workers, found.prefetch_factor) == (4, 4)
    assert same.recommended.prefetch_factor == 2


@pytest.mark.parametrize(("samples", "taken"), [(2_000, True), (10**7, False)])
def test_persistent_workers_are_for_short_epochs(samples: int, taken: bool) -> None:
    """They are taken where what they save is a share of the epoch, not otherwise."""
    its = make_plan(described(samples=samples), {"prefetch_factor": (2,)}, cores=8)
    outcome = searched(Machine(peak(4)), its)
    assert outcome.restarts == {False: 0.5, True: 0.1}
    assert outcome.recommended.persistent_workers is taken


def test_short_dataset_is_measured_by_whole_epochs() -> None:
    """Where an epoch is shorter than a window, everything is measured by epochs, also what had
    been measured before."""
    machine = Machine(peak(2))
    its = make_plan(described(samples=50), {"prefetch_factor": (2,)}, cores=4)
    outcome = searched(machine, its)
    assert outcome.whole_epochs
    assert all(visit.whole_epochs for trial in outcome.trials for visit in trial.visits)


def test_failing_settings_do_not_stop_the_others() -> None:
    """Too many workers fail: the rest is measured, and the failure is kept."""
    machine = Machine(peak(8, fall=0.0))
    machine.fails = lambda s: Failure(code="shm", sentence="!") if s.num_workers > 4 else None
    outcome = searched(machine, plan())
    assert outcome.recommended.num_workers == 4
    assert any(trial.failure is not None for trial in outcome.trials)


def test_all_failing_alike_ends_early() -> None:
    """When the first two fail in the same way, the rest is not tried, and named."""
    machine = Machine(peak(8))
    machine.fails = lambda _s: Failure(code="exception", sentence="!", line="a.py:1")
    outcome = searched(machine, plan())
    assert len(machine.visited) == 2
    assert outcome.recommended is None
    assert any("num_workers=2, 4, 8, 16: not measured" in note for note in outcome.notes)


@pytest.mark.parametrize("at", [1, 2, 5, 9, 14])
def test_interrupt_keeps_what_is_measured(at: int) -> None:
    """Ctrl-C at any moment ends it with all visits before, and names what is missing."""
    machine = Machine(peak(4))
    machine.interrupt_at = at
    outcome = searched(machine, make_plan(described(), {}, cores=4))
    assert outcome.interrupted
    assert sum(len(trial.visits) for trial in outcome.trials) == at - 1
    assert (outcome.recommended is None) == (at == 1)
    assert "persistent_workers" in outcome.unmeasured


@pytest.mark.parametrize("budget", [2.0, 10.0, 40.0])
def test_budget_is_kept(budget: float) -> None:
    """No visit begins after the budget; something is always measured."""
    machine = Machine(peak(8), 0.05)
    outcome = searched(machine, make_plan(described(), {}, cores=16), budget)
    assert machine.clock.now <= budget + 1.0
    assert outcome.recommended


@pytest.mark.parametrize(
    ("grid", "budget", "missing"),
    [
        (False, 1.5, ["num_workers=4, 8", "prefetch_factor"]),
        (False, 5.0, ["prefetch_factor=4, 8"]),
        (True, 1.5, ["7 of the 9 combinations"]),
        (False, 400.0, []),
    ],
)
def test_what_was_asked_for_and_not_reached_is_named(
    grid: bool, budget: float, missing: list[str]
) -> None:
    """What the budget did not suffice for is no silent gap, and keeps it from being settled."""
    its = plan(grid=grid, num_workers=(0, 2, 4, 8)[grid:], prefetch_factor=(2, 4, 8))
    outcome = searched(Machine(peak(4)), its, budget)
    assert outcome.unmeasured == missing
    assert outcome.settled is not bool(missing)


def test_grid_measures_every_combination() -> None:
    """A grid drops nothing: each combination has the same visits, but for the round that the
    budget ended in."""
    machine = Machine(peak(2), 0.1)
    outcome = searched(machine, plan(grid=True, num_workers=(0, 1, 2), prefetch_factor=(2, 4)))
    assert len(outcome.trials) == 5
    counts = [len(trial.visits) for trial in outcome.trials]
    assert max(counts) - min(counts) <= 1
    assert outcome.unmeasured == []
    assert min(counts) >= 3


def test_search_agrees_with_the_grid() -> None:
    """What is recommended is within 3% of the grid's best by the grid's own measurements."""
    for seed in range(5):
        asked = {"num_workers": tuple(range(9)), "prefetch_factor": (2, 4)}
        found = searched(Machine(peak(5), 0.01, seed), plan(**asked))
        grid = searched(Machine(peak(5), 0.01, seed + 50), plan(grid=True, **asked), 600)
        mine, its = grid.trial(found.recommended), grid.trial(grid.best)
        mean = [sum(t.rates.values()) / len(t.rates) for t in (mine, its)]
        assert mean[0] >= 0.96 * mean[1]


def test_what_is_fixed_cannot_be_varied() -> None:
    """Asking for batch sizes of a loader that makes its own batches is refused."""
    fixed = described(fixed={"batch_size": "the dataset makes the batches"})
    with pytest.raises(SentenceError, match="the dataset makes the batches"):
        make_plan(fixed, {"batch_size": (8, 16)}, cores=2)
    make_plan(fixed, {}, cores=2)


def test_pinning_is_left_alone_without_a_gpu() -> None:
    """Without a GPU it is neither varied nor changed, and that is said."""
    without = make_plan(described(), {"pin_memory": (False, True)}, cores=2)
    assert "pin_memory" not in without.others
    assert any("pin_memory" in note for note in without.notes)
    assert make_plan(described(accelerator="cuda"), {}, cores=2).others["pin_memory"]


@pytest.mark.parametrize(
    "its",
    [
        plan(num_workers=(1, 2, 3)),
        plan(num_workers=(1, 2, 3), grid=True),
        plan(num_workers=(4,), prefetch_factor=(2, 4)),
    ],
)
def test_time_that_is_left_goes_to_what_is_not_decided(its: Plan) -> None:
    """On a noisy machine it goes on until the intervals settle or the budget is used, also with
    prefetch factors that are too close to call."""
    outcome = searched(Machine(peak(2, fall=0.0), 0.08), its, 400.0)
    assert outcome.settled or outcome.seconds > 390
    assert max(len(trial.visits) for trial in outcome.trials) > 9


@pytest.mark.parametrize("noise", [0.1, 0.25])
def test_what_is_too_close_to_call_is_listed(noise: float) -> None:
    """Where visits scatter by more than the settings differ, what is recommended is within 3% of
    the fastest as measured, and whatever may still be faster or as good is listed."""
    for seed in range(10):
        machine = Machine(peak(3, fall=0.0), noise, seed)
        outcome = searched(machine, plan(cores=4, prefetch_factor=(2, 4, 8)), 40.0)
        chosen, best = outcome.trial(outcome.measured), outcome.trial(outcome.best)
        assert chosen.compared(best, scatter_of(outcome.trials)).rate >= 0.97
        assert not outcome.settled
        assert chosen is best or chosen.setting in outcome.undecided
        assert best.setting not in outcome.undecided


def test_what_was_too_slow_for_a_part_of_the_time_gets_the_rest() -> None:
    """Where nothing could be measured within its share, the time that is left goes to it."""
    machine = Machine(peak(2))
    plain = machine.visit

    def visit(order: Order) -> Visit | Failure:
        found = plain(order)
        machine.clock.now += 3.0
        return found if order.limit_seconds > 15 else Failure(code="too_slow", sentence="!")

    machine.visit = visit  # type: ignore[method-assign]
    outcome = searched(machine, plan(num_workers=(1, 2)), 40.0)
    assert outcome.recommended
    assert outcome.trials[0].visits
