"""cpu_quota: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import LoopFacts, Window
from tests.diagnosis import windows as w

check = w.check_of("cpu_quota")

GPUS = (w.gpu(busy=w.swinging(0.6)),)
QUOTA = {"quota_cores": 4.0, "usable_cores": 4.0, "container": "8f3c1d20ab54"}


def held_back(**facts: Any) -> Window:
    slow = w.workers(8, cpu_percent=38.0, run_queue_wait_percent=55.0)
    known: dict[str, Any] = {
        "model": QUOTA,
        "workers": slow,
        "cpu_cores": 3.9,
        "cpu_throttled_percent": 90.0,
        "ranks": (w.rank(loader_workers=8, workers=slow),),
    }
    return w.window(gpus=GPUS, job=w.job(**(known | facts)))


def test_throttled_job() -> None:
    """A larger quota is named, and meanwhile workers that fit into the present one."""
    firing = w.fires(check(held_back()))
    assert [advice.setting for advice in firing.advice] == ["cpu quota", "num_workers"]
    assert firing.advice[0].present == "4"
    assert firing.advice[0].wanted == "16"
    assert firing.advice[1].wanted == "3"
    assert {"too_many_workers", "loader_cpu_bound"} <= firing.explains


def on_the_cpu(wait: float, throttled: float) -> Window:
    own = LoopFacts(data_wait_share=wait)
    ranks = (w.rank(loader_workers=8, loop=own),)
    return w.window(gpus=(), job=held_back(cpu_throttled_percent=throttled, ranks=ranks).job)


def test_steps_on_the_cpu_are_throttled() -> None:
    """Although the loop has its data in time; what it costs is not known."""
    firing = w.fires(check(on_the_cpu(0.02, 95.0)))
    assert firing.summary.startswith("The steps of the training loop are slow: a CPU quota of 4")
    assert firing.lost_share is None
    assert firing.advice[0].setting == "cpu quota"
    assert "waits for data" not in [evidence.name for evidence in firing.evidence]
    assert w.fires(check(on_the_cpu(0.4, 95.0))).lost_share == pytest.approx(0.4)


def test_ranks_that_wait_for_cores_look_busy() -> None:
    """Collectives hide the idling of several ranks: their main threads' waiting tells."""
    ranks = tuple(w.rank(n, run_queue_wait_percent=60.0) for n in range(2))
    gpus = (w.gpu(0), w.gpu(1))
    held = w.job(model=QUOTA, ranks=ranks, cpu_cores=3.9, cpu_throttled_percent=90.0)
    firing = w.fires(check(w.window(gpus=gpus, job=held)))
    assert "waited for a core 60% of the time" in firing.summary
    assert firing.lost_share is None
    assert "collective_wait" in firing.explains


QUIET = {
    "healthy": w.window(),
    "throttled, and the GPU is fed": w.window(job=held_back().job),
    "no quota": held_back(model={}),
    "as large as the machine": held_back(model={"quota_cores": 16.0}),
    "not throttled": held_back(cpu_throttled_percent=2.0),
    "on the CPU, throttled now and then": on_the_cpu(0.02, 15.0),
}


UNKNOWN = {
    "no job": (w.gpu_only(*GPUS), "job's processes"),
    "no throttling read": (held_back(cpu_throttled_percent=None), "throttled"),
    "no cores read": (held_back(model={"usable_cores": None}), "quota"),
}
