"""Batches: what a step gets and how many samples are in it, the pace at which workers make them,
and whether they all make the same."""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from gpuwatch.tuning.child.measure import tensors_in
from gpuwatch.tuning.child.target import make_step
from gpuwatch.tuning.child.watching import RepeatWatch, Stamps
from gpuwatch.tuning.failures import MeasureError

WORKERS = 2
Batch = Callable[[int, int], Any]
"""Of a worker and its turn."""


def batches(make: Batch, turns: int = 3) -> Iterable[Any]:
    return (make(worker, turn) for turn in range(turns) for worker in range(WORKERS))


def see(make: Batch) -> None:
    watch = RepeatWatch(WORKERS)
    for batch in batches(make):
        watch.see(batch)


def numbers(start: int) -> Any:
    return torch.arange(start, start + 16)


@pytest.mark.parametrize(
    "make",
    [
        lambda _worker, turn: numbers(16 * turn),
        lambda _worker, turn: (torch.rand(16, 3), numbers(16 * turn)),
        lambda _worker, turn: {"text": [f"{turn}-{number}" for number in range(16)]},
        lambda _worker, turn: [numbers(turn).to(torch.bfloat16)],
    ],
)
def test_the_same_from_every_worker_is_seen(make: Batch) -> None:
    """Tensors, columns of text, labels beside augmented pictures: what repeats is reported."""
    with pytest.raises(MeasureError, match="get_worker_info"):
        see(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda worker, turn: numbers(1000 * worker + 16 * turn),
        lambda _worker, _turn: torch.zeros(16),
        lambda _worker, _turn: numbers(0),
        lambda worker, _turn: (torch.rand(16), torch.tensor([worker % 2] * 16)),
        lambda _worker, turn: torch.tensor([turn, 1]),
        lambda _worker, _turn: object(),
    ],
)
def test_what_may_be_chance_is_not_reported(make: Batch) -> None:
    """Shared-out samples, constants, batches that never change, a few values: nothing is said."""
    see(make)


def stamped(times: Mapping[int, Sequence[float]]) -> Stamps:
    stamps = Stamps(lambda samples: samples)
    pairs = sorted((at, worker) for worker, its in times.items() for at in its)
    Path(stamps.path).write_bytes(b"".join(struct.pack("=qd", w, at) for at, w in pairs))
    return stamps


def every(seconds: float, begin: float, end: float) -> list[float]:
    return [begin + number * seconds for number in range(1, int((end - begin) / seconds) + 1)]


@pytest.mark.parametrize("late", [0.0, 0.3, 0.99])
def test_pace_does_not_depend_on_where_a_window_begins(late: float) -> None:
    """Two workers that take a second for a batch make two a second, wherever the window is cut."""
    its = stamped({0: every(1.0, 0, 20), 1: every(1.0, 0.5, 20)})
    assert its.pace(5 + late, 15) == pytest.approx(2.0)


def test_worker_that_waited_before_is_not_slow() -> None:
    """A worker had a full queue until the window began: only its work within it counts, and never
    more than it can do."""
    its = stamped({0: [1.0, 2.0, *every(1.0, 10, 30)], 1: every(1.0, 0.5, 30)})
    pace = its.pace(10.2, 30)
    assert 1.8 <= pace <= 2.0


def test_worker_furthest_behind_limits_what_is_ready() -> None:
    """Batches are taken in turn, so what counts is the worker that has the fewest ready."""
    its = stamped({0: every(1.0, 0, 5), 1: every(1.0, 0, 3)})
    assert its.least_ready(0.0, 10.0, 4) == 1
    assert its.least_ready(0.0, 10.0, 6) == 0


def test_no_batch_is_no_pace() -> None:
    """Where nothing was made the pace is unknown."""
    assert stamped({}).pace(0.0, 1.0) is None
    assert stamped({0: [0.5]}).pace(1.0, 2.0) is None


class Stateful:
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, batch: Any) -> None:
        self.seen += 1


def test_factories_are_called() -> None:
    """What takes no argument is called for the step; what takes a batch is the step."""

    def takes(batch: object) -> None: ...
    def takes_any(*args: object) -> None: ...
    def optional(batch: object = None) -> None: ...
    def makes() -> Any:
        return takes

    def makes_configured(*, lr: float = 0.1) -> Any:
        return takes

    assert make_step(takes, "train.py:takes") is takes
    assert make_step(makes, "train.py:makes") is takes
    assert make_step(makes_configured, "train.py:makes_configured") is takes
    assert make_step(takes_any, "train.py:takes_any") is takes_any
    assert make_step(optional, "train.py:optional") is optional
    assert isinstance(make_step(Stateful, "train.py:Stateful"), Stateful)


def test_what_is_no_step() -> None:
    """A number, a factory that returns nothing and one that raises are one sentence each."""
    with pytest.raises(MeasureError, match="is an int, not a train step"):
        make_step(3, "train.py:three")
    with pytest.raises(MeasureError, match="returned None"):
        make_step(lambda: None, "train.py:nothing")

    def broken() -> None:
        raise RuntimeError("no weights")

    with pytest.raises(MeasureError, match=r"failed: RuntimeError: no weights at .*batches\.py:"):
        make_step(broken, "train.py:broken")


def test_tensors_of_a_nested_batch() -> None:
    """All tensors of a batch are found, however it is nested; other things are passed over."""
    one, two, three = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    batch = {"a": [one, "text", {"b": (two, None)}], "c": three}
    assert [t.numel() for t in tensors_in(batch)] == [1, 2, 3]
    assert list(tensors_in("text")) == []
