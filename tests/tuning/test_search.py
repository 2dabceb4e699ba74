"""The search on invented machines, whose true curves are known."""

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gpuwatch.core.text import SentenceError
from gpuwatch.outputs.tuning import tune_text
from gpuwatch.tuning.records import Failure, Loaded, Order, Setting, Visit
from gpuwatch.tuning.search import ROUNDS, Result, Search, as_json

Curve = Callable[[Setting], float]


class Machine:
    """A visit takes its window and some; rates scatter, some visits fail."""

    def __init__(self, curve: Curve, noise: float = 0.01, seed: int = 1) -> None:
        self.curve, self.noise = curve, noise
        self.random = random.Random(seed)
        self.now = 0.0
        self.visited: list[Setting] = []
        self.interrupt_at: int | None = None
        self.fails: Callable[[Setting], Failure | None] = lambda _setting: None
        self.cores = 1.0

    def visit(self, order: Order) -> Visit | Failure:
        self.visited.append(order.setting)
        if len(self.visited) == self.interrupt_at:
            raise KeyboardInterrupt
        self.now += 1.3 * order.seconds + 0.2
        failure = self.fails(order.setting)
        if failure is not None:
            return failure
        rate = self.curve(order.setting) * self.random.lognormvariate(0, self.noise)
        return Visit(
            samples=round(rate * 1000),
            seconds=1000.0,
            first_batch_seconds=0.1,
            cores_used=self.cores,
        )


def described(**changes: Any) -> Loaded:
    plain: dict[str, Any] = {"base": Setting(batch_size=8), "samples": 1000, "torch": "2.13"}
    return Loaded(**{**plain, **changes})


def searched(
    machine: Machine,
    *,
    cores: float = 8.0,
    budget: float = 120.0,
    description: Loaded | None = None,
    **asked: tuple[Any, ...],
) -> Result:
    description = description or described()
    result = Result(
        target="train.py:loader",
        step=None,
        torch=description.torch,
        samples=description.samples,
        usable_cores=cores,
        budget_seconds=budget,
    )
    Search(result, description, asked, machine.visit, clock=lambda: machine.now).run()
    return result


def peak(at: int, *, fall: float = 0.3) -> Curve:
    return lambda s: 100 * max(0.8, min(s.num_workers, at) - fall * max(0, s.num_workers - at))


@pytest.mark.parametrize(("at", "seed"), [(1, 1), (2, 2), (3, 1), (4, 2), (6, 1), (8, 2)])
def test_finds_the_peak(at: int, seed: int) -> None:
    """Where more workers make it slower, the best count is found, within what is as good."""
    result = searched(Machine(peak(at), 0.01, seed), prefetch_factor=(2,))
    assert peak(at)(result.recommended) >= 0.96 * peak(at)(Setting(num_workers=at))


@pytest.mark.parametrize("knee", [2, 4])
def test_takes_the_fewest_workers_that_are_as_good(knee: int) -> None:
    """Beyond the knee all are as fast: the knee is recommended, not the fastest by chance."""
    for seed in range(5):
        result = searched(Machine(peak(knee, fall=0.0), 0.008, seed), prefetch_factor=(2,))
        assert result.recommended.num_workers == knee


def test_workers_that_sleep_are_added_beyond_the_cores() -> None:
    """Workers that leave the cores idle are multiplied until it no longer pays."""
    result = searched(Machine(peak(32)), cores=2, prefetch_factor=(2,))
    assert result.recommended.num_workers == 32


def test_no_more_workers_are_tried_once_the_cores_are_full() -> None:
    """With all cores in use nobody tries four times as many workers."""
    machine = Machine(peak(2, fall=0.0))
    machine.cores = 2.0
    result = searched(machine, cores=2, prefetch_factor=(2,))
    assert max(one.num_workers for one in machine.visited) <= 4
    assert any("uses 2.0 of the 2 usable cores" in one for one in result.reasons)


def test_settings_are_visited_in_turns_and_hopeless_ones_once() -> None:
    """Each that is near the fastest is visited three times, in rounds; the others once."""
    machine = Machine(peak(8), 0.0)
    result = searched(machine, num_workers=(1, 7, 8), prefetch_factor=(2,))
    counts = [one.num_workers for one in machine.visited]
    assert counts[:3] == [1, 7, 8]
    assert sorted(counts[3:5]) == [7, 8]
    assert {row.setting.num_workers: len(row.visits) for row in result.settings} == {
        1: 1, 7: ROUNDS, 8: ROUNDS}  # fmt: skip


def test_one_knob_at_a_time_after_the_workers() -> None:
    """A prefetch factor that gives a fifth is taken, pinning that gives nothing is not."""

    def curve(setting: Setting) -> float:
        return peak(4)(setting) * (1.2 if (setting.prefetch_factor or 0) >= 4 else 1)

    result = searched(Machine(curve), description=described(gpu="H100"))
    assert result.recommended == Setting(num_workers=4, prefetch_factor=4, batch_size=8)
    assert list(result.comparisons) == ["num_workers", "prefetch_factor", "pin_memory"]


def test_batch_sizes_are_compared_where_they_are_listed() -> None:
    """The smallest batch that is as fast is taken; a loader with its own batches refuses."""
    result = searched(Machine(lambda s: min(32, s.batch_size or 1)), batch_size=(8, 32, 64))
    assert result.recommended.batch_size == 32
    with pytest.raises(SentenceError, match="batch_size cannot be varied: its sampler"):
        searched(Machine(peak(1)), description=described(fixed="its sampler"), batch_size=(8, 9))


def test_keeps_what_one_has_where_nothing_is_faster() -> None:
    """A setting within 3% of the fastest is not changed for another of the same size."""
    mine = described(base=Setting(num_workers=4, prefetch_factor=8, batch_size=8))
    result = searched(Machine(peak(4)), description=mine)
    assert result.chosen.own
    assert "Keep what you have" in tune_text(result, width=80, unicode=True)


def test_failures_are_kept_and_the_rest_is_measured() -> None:
    """Too many workers fail: the best of the others is recommended."""
    machine = Machine(peak(16))
    failure = Failure(code="shm", sentence="Too little /dev/shm.")
    machine.fails = lambda s: failure if s.num_workers > 4 else None
    result = searched(machine, prefetch_factor=(2,))
    assert result.recommended.num_workers == 4
    assert "8 failed (see below)" in " ".join(result.reasons)
    machine.fails = lambda _setting: failure
    assert len(searched(machine).settings) == 2


@pytest.mark.parametrize("at", [1, 2, 5, 9])
def test_interrupt_at_any_moment_keeps_what_was_measured(at: int) -> None:
    """Ctrl-C ends it with all visits before."""
    machine = Machine(peak(4))
    machine.interrupt_at = at
    result = searched(machine, num_workers=(0, 2, 4))
    assert result.interrupted
    assert sum(len(row.visits) for row in result.settings) == at - 1
    assert (result.recommended is None) == (at == 1)


def test_the_budget_ends_it_and_names_the_rest() -> None:
    """No visit begins after the budget; counts that were asked for and not reached are named."""
    machine = Machine(peak(4))
    result = searched(machine, budget=1.0, num_workers=(0, 1, 2, 4, 8))
    assert result.recommended is not None
    reached = {row.setting.num_workers for row in result.settings}
    assert reached | {one.num_workers for one in result.unmeasured} == {0, 1, 2, 4, 8}
    assert "Not measured, as the budget ended: num_workers=" in tune_text(
        result, width=200, unicode=True
    )


def test_text_says_what_to_change_first() -> None:
    """The recommendation comes first, with how many times it is what the user has."""
    mine = described(base=Setting(num_workers=1, prefetch_factor=2, batch_size=8))
    result = searched(Machine(peak(4), 0.0), description=mine, num_workers=(1, 2, 4))
    lines = tune_text(result, width=100, unicode=True).splitlines()
    assert " 1,000 samples · 8 usable cores · torch 2.13" in lines[0]
    words = " ".join(lines[2:4])
    assert words.startswith("num_workers=4: 400 samples/s from the loader (400 to 400 in 3 visits)")
    assert "4 times what you have (100)." in words


def test_text_of_a_smaller_setting_that_is_no_slower_says_as_fast() -> None:
    """Nobody reads that it is 1 times what they have."""
    mine = described(base=Setting(num_workers=8, prefetch_factor=2, batch_size=8))
    result = searched(Machine(lambda _: 100.0, 0.0), description=mine, num_workers=(4, 8))
    words = " ".join(tune_text(result, width=200, unicode=True).split())
    assert "num_workers=4: 100 samples/s" in words
    assert ", as fast as what you have (100)." in words


@pytest.mark.parametrize(("width", "unicode"), [(40, True), (80, False), (200, True)])
def test_text_fits_its_width_and_is_harmless(width: int, unicode: bool) -> None:
    """No line is wider than the terminal; without Unicode there is only ASCII; nothing that a
    user's code says reaches the terminal as a control sequence."""
    evil = "\x1b]0;owned\x07"
    machine = Machine(peak(4))
    failure = Failure(code="hang", sentence=f"No batch came {evil}" * 9, output=(evil + "x" * 99,))
    machine.fails = lambda s: failure if s.num_workers == 8 else None
    result = searched(machine)
    result.target = f"{evil}.py:x"
    shown = tune_text(result, width=width, unicode=unicode)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert unicode or shown.isascii()
    assert "\x1b" not in shown
    assert "Failed with num_workers=8" in " ".join(shown.split())


def test_json_has_settings_with_their_medians() -> None:
    """Programs get a row for each setting, its knobs beside what was measured."""
    found = json.loads(msgspec.json.encode(as_json(searched(Machine(peak(2), 0.0)))))
    row = next(one for one in found["settings"] if one["recommended"])
    assert (row["num_workers"], row["samples_per_second"], row["visits"]) == (2, 200.0, ROUNDS)
    assert row["cores_used"] == 1.0
    assert found["recommended"]["num_workers"] == 2
