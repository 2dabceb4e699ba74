"""sync_every_step: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import (
    check_of,
    fires,
    gpu,
    gpu_only,
    is_clear,
    job,
    misses,
    steady,
    window,
)

check = check_of("sync_every_step")

LINE = "train.py:88 in step: total += loss.item()"


def synchronising(percent: float = 60.0, busy: float = 62.0, **facts: Any) -> Window:
    stacks = (("synchronising", percent, LINE), ("computing", 100.0 - percent, None))
    return window(gpus=(gpu(busy=steady(busy)),), job=job(**({"stacks": stacks} | facts)))


def test_stacks_in_item() -> None:
    """The user's line is in the summary and in the advice."""
    firing = fires(check(synchronising()))
    assert LINE in firing.summary
    assert LINE in firing.advice[0].action
    assert "python_bound" in firing.explains


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param(window(), id="healthy"),
        pytest.param(synchronising(95.0, busy=98.0), id="Python waits for a GPU that is fed"),
        pytest.param(synchronising(8.0), id="rarely"),
        pytest.param(
            synchronising(stacks=(("waiting_for_data", 55.0, None), ("synchronising", 30.0, None))),
            id="waits for data more",
        ),
    ],
)
def test_quiet(quiet: Window) -> None:
    """Waiting for the GPU is no fault by itself."""
    is_clear(check(quiet))


@pytest.mark.parametrize(
    ("unknown", "missing"),
    [
        pytest.param(gpu_only(gpu(busy=steady(60.0))), "job's processes", id="no job"),
        pytest.param(synchronising(stacks=()), "stacks", id="no stacks"),
    ],
)
def test_unknown(unknown: Window, missing: str) -> None:
    """What was missing is named."""
    misses(check(unknown), missing)
