"""Iterable datasets whose workers all give the same samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from gpuwatch.tuning.child.repeats import RepeatsError, Watch

WORKERS = 2
Batch = Callable[[int, int], Any]
"""Of a worker and its turn."""


def batches(make: Batch, turns: int = 3) -> Iterable[Any]:
    return (make(worker, turn) for turn in range(turns) for worker in range(WORKERS))


def see(make: Batch) -> None:
    watch = Watch(WORKERS)
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
    """Tensors, columns of text, labels beside augmented pictures: what repeats is told."""
    with pytest.raises(RepeatsError, match="get_worker_info"):
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
def test_what_may_be_chance_is_not_told(make: Batch) -> None:
    """Shared-out samples, constants, batches that never change, a few values: nothing is said."""
    see(make)
