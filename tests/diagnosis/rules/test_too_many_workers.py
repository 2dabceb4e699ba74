"""too_many_workers: firing, quiet, unknown."""

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
    rank,
    swinging,
    window,
    workers,
)

check = check_of("too_many_workers")

GPUS = (gpu(busy=swinging(0.6)),)


def crowded(count: int = 24, **facts: Any) -> Window:
    many = workers(count, cpu_percent=62.0, at_limit_share=0.0, run_queue_wait_percent=36.0)
    known: dict[str, Any] = {
        "workers": many,
        "cpu_cores": 15.5,
        "runnable": 25.0,
        "run_queue_wait_percent": 35.0,
        "ranks": (rank(loader_workers=count, workers=many),),
    }
    return window(gpus=GPUS, job=job(**(known | facts)))


def test_more_workers_than_cores() -> None:
    """The number named leaves a core of the 16 for the main thread."""
    firing = fires(check(crowded()))
    assert (firing.advice[0].present, firing.advice[0].wanted) == ("24", "15")
    assert "loader_cpu_bound" in firing.explains
    assert "24 loader workers share 16 cores" in firing.summary


def test_switches_tell_where_the_wait_is_not_read() -> None:
    """Workers that are pushed off their cores all the time, and cores that are all used."""
    pushed = workers(
        24, cpu_percent=62.0, run_queue_wait_percent=None, involuntary_switches_per_second=110.0
    )
    firing = fires(check(crowded(workers=pushed)))
    assert firing.missing == ("run-queue wait",)
    assert firing.strength < fires(check(crowded())).strength


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param(window(), id="healthy"),
        pytest.param(window(gpus=(gpu(),), job=crowded().job), id="many, and the GPU is fed"),
        pytest.param(crowded(count=12), id="fewer than cores: others take them"),
        pytest.param(
            crowded(workers=workers(24, run_queue_wait_percent=2.0)), id="nobody waits for a core"
        ),
        pytest.param(
            crowded(model={"quota_cores": 4.0, "usable_cores": 4.0}, cpu_throttled_percent=60.0),
            id="a quota",
        ),
        pytest.param(
            crowded(workers=workers(24, disk_wait_percent=80.0, run_queue_wait_percent=12.0)),
            id="they wait for disks",
        ),
    ],
)
def test_quiet(quiet: Window) -> None:
    """A large number alone is no fault."""
    is_clear(check(quiet))


@pytest.mark.parametrize(
    ("unknown", "missing"),
    [
        pytest.param(gpu_only(*GPUS), "job's processes", id="no job"),
        pytest.param(crowded(model={"usable_cores": None}), "cores", id="no cores"),
        pytest.param(
            crowded(workers=workers(24, run_queue_wait_percent=None)), "run-queue", id="no wait"
        ),
    ],
)
def test_unknown(unknown: Window, missing: str) -> None:
    """What was missing is named."""
    misses(check(unknown), missing)


def test_quiet_where_others_crowd_the_cores() -> None:
    """A job that gets a quarter of the cores does not crowd them itself."""
    is_clear(check(crowded(cpu_cores=4.0)))
