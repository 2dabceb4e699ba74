"""too_many_workers: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis import windows as w

check = w.check_of("too_many_workers")

GPUS = (w.gpu(busy=w.swinging(0.6)),)


def crowded(count: int = 24, **facts: Any) -> Window:
    many = w.workers(count, cpu_percent=62.0, run_queue_wait_percent=36.0)
    known: dict[str, Any] = {
        "workers": many,
        "cpu_cores": 15.5,
        "ranks": (w.rank(loader_workers=count, workers=many),),
    }
    return w.window(gpus=GPUS, job=w.job(**(known | facts)))


def test_more_workers_than_cores() -> None:
    """The number named leaves a core of the 16 for the main thread."""
    firing = w.fires(check(crowded()))
    assert (firing.advice[0].present, firing.advice[0].wanted) == ("24", "15")
    assert "loader_cpu_bound" in firing.explains
    assert "24 loader workers share 16 cores" in firing.summary


def test_switches_tell_where_the_wait_is_not_read() -> None:
    """Workers that are pushed off their cores all the time, and cores that are all used."""
    pushed = w.workers(
        24, cpu_percent=62.0, run_queue_wait_percent=None, involuntary_switches_per_second=110.0
    )
    firing = w.fires(check(crowded(workers=pushed)))
    assert firing.missing == ("run-queue wait",)
    assert firing.strength < w.fires(check(crowded())).strength


QUIET = {
    "healthy": w.window(),
    "many, and the GPU is fed": w.window(gpus=(w.gpu(),), job=crowded().job),
    "fewer than cores: others take them": crowded(count=12),
    "nobody waits for a core": crowded(workers=w.workers(24, run_queue_wait_percent=2.0)),
    "a quota": crowded(model={"quota_cores": 4.0, "usable_cores": 4.0}, cpu_throttled_percent=60.0),
    "they wait for disks": crowded(
        workers=w.workers(24, disk_wait_percent=80.0, run_queue_wait_percent=12.0)
    ),
    "where others crowd the cores": crowded(cpu_cores=4.0),
}


UNKNOWN = {
    "no job": (w.gpu_only(*GPUS), "job's processes"),
    "no cores": (crowded(model={"usable_cores": None}), "cores"),
    "no wait": (crowded(workers=w.workers(24, run_queue_wait_percent=None)), "run-queue"),
}
