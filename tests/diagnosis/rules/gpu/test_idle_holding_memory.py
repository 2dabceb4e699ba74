"""Processes that hold a GPU's memory and do nothing."""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import GIB, check_of, fires, gpu, gpu_only, job, steady, window

check = check_of("idle_holding_memory")


def _asleep(cores: float | None = 0.02, **fields: Any) -> Window:
    idle = gpu(busy=steady(0.0), own_memory_bytes=18.0 * GIB)
    return window(gpus=(idle,), job=job(cpu_cores=cores), **fields)


def test_memory_held_on_a_gpu_that_runs_nothing_fires() -> None:
    """It is information, at the cost of the whole GPU."""
    said = fires(check(_asleep()))
    assert said.severity == "info"
    assert said.lost_share == 1.0
    assert "18.0 GiB" in said.summary


def test_it_fires_on_a_log_of_gpus_alone_less_surely() -> None:
    """Who holds the memory is not known then."""
    idle = gpu(busy=steady(0.0), memory_used_bytes=20.0 * GIB)
    said = fires(check(gpu_only(idle)))
    assert "the processes that hold it" in said.missing
    assert said.strength < fires(check(_asleep())).strength


QUIET = {
    "on an unused gpu": gpu_only(gpu(busy=steady(0.0), memory_used_bytes=0.6 * GIB)),
    "while the job works on the cpu": _asleep(cores=3.0),
    "at the start": _asleep(starting=True),
}


UNKNOWN = {
    "before half a minute": (_asleep(watched_seconds=10.0), "s of data"),
    "without the busy share": (gpu_only(gpu(busy=None)), "utilisation"),
}
