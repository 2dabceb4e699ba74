"""Processes that hold a GPU's memory and do nothing."""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import (
    GIB,
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


def test_quiet_on_an_unused_gpu() -> None:
    """What the driver itself holds is nobody's."""
    is_clear(check(gpu_only(gpu(busy=steady(0.0), memory_used_bytes=0.6 * GIB))))


def test_quiet_while_the_job_works_on_the_cpu() -> None:
    """Preparing data is no idling."""
    is_clear(check(_asleep(cores=3.0)))


def test_quiet_at_the_start() -> None:
    """A model that is being loaded holds memory before its first kernel."""
    is_clear(check(_asleep(starting=True)))


def test_unknown_before_half_a_minute() -> None:
    """A pause between epochs looks the same for a while."""
    misses(check(_asleep(watched_seconds=10.0)), "s of data")


def test_unknown_without_the_busy_share() -> None:
    """Whether it idles was not read."""
    misses(check(gpu_only(gpu(busy=None))), "utilisation")
