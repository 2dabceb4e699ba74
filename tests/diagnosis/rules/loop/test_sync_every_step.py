"""sync_every_step: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, job, steady, window

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


QUIET = {
    "healthy": window(),
    "Python waits for a GPU that is fed": synchronising(95.0, busy=98.0),
    "rarely": synchronising(8.0),
    "waits for data more": synchronising(
        stacks=(("waiting_for_data", 55.0, None), ("synchronising", 30.0, None))
    ),
}


UNKNOWN = {
    "no job": (gpu_only(gpu(busy=steady(60.0))), "job's processes"),
    "no stacks": (synchronising(stacks=()), "stacks"),
}
