"""A train step is what a target names, and batches of any kind are counted."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from gpuwatch.tuning.child.step import make_step, samples_in, tensors_in
from gpuwatch.tuning.failures import MeasureError


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

    with pytest.raises(MeasureError, match=r"failed: RuntimeError: no weights at .*test_step\.py:"):
        make_step(broken, "train.py:broken")


def test_samples_in_a_batch() -> None:
    """Samples are counted in tensors, columns, dicts, lists and plain things."""
    images = torch.zeros(8, 3, 4, 4)
    assert samples_in(images) == 8
    assert samples_in([images, torch.zeros(8)]) == 8
    assert samples_in((["a.png"] * 8, images)) == 8
    assert samples_in({"image": images}) == 8
    assert samples_in({"nested": [{"text": ["a"] * 5}]}) == 5
    assert samples_in([1, 2, 3]) == 3
    assert samples_in(torch.tensor(1.0)) == 1
    assert samples_in({}) == 0
    assert samples_in([]) == 0
    assert samples_in("text") == 1
    assert samples_in(object()) == 1


def test_tensors_of_a_nested_batch() -> None:
    """All tensors of a batch are found, however it is nested; other things are passed over."""
    one, two, three = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    batch = {"a": [one, "text", {"b": (two, None)}], "c": three}
    assert [t.numel() for t in tensors_in(batch)] == [1, 2, 3]
    assert list(tensors_in("text")) == []
