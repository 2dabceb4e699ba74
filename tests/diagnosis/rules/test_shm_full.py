"""shm_full: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.core.model import JobRank
from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import (
    GIB,
    check_of,
    fires,
    gpu_only,
    host,
    is_clear,
    job,
    misses,
    window,
)

check = check_of("shm_full")


def shm(used: float | None, total: int | None = 16 * GIB, **model: Any) -> Window:
    return window(
        job=job(model=model),
        host=host(
            shm_total_bytes=total,
            shm_used_bytes=None if used is None or total is None else used * total,
        ),
    )


def test_nearly_full() -> None:
    """A size twice as large is named."""
    firing = fires(check(shm(0.9)))
    assert firing.advice[0].wanted == "32g"
    assert "remount" in firing.advice[0].action
    assert firing.severity == "warning"


def test_full_is_an_error() -> None:
    """At 97% the next batch can crash the job."""
    assert fires(check(shm(0.97))).severity == "error"


def test_a_containers_default_is_small() -> None:
    """64 MB are judged earlier, and the container's option is named."""
    firing = fires(check(shm(0.6, 64 * 1024**2, container="8f3c1d20ab54")))
    assert "--shm-size=8g" in firing.advice[0].action


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param(window(), id="healthy"),
        pytest.param(shm(0.6), id="room"),
        pytest.param(
            shm(0.99, ranks=(JobRank(pid=4242, loader_workers=0),)), id="a job without workers"
        ),
        pytest.param(shm(0.99, ended_at_unix_seconds=1.0), id="ended"),
    ],
)
def test_quiet(quiet: Window) -> None:
    """It speaks only of jobs that need /dev/shm."""
    is_clear(check(quiet))


@pytest.mark.parametrize(
    ("unknown", "missing"),
    [
        pytest.param(gpu_only(), "job's processes", id="no job"),
        pytest.param(shm(None), "/dev/shm", id="not read"),
    ],
)
def test_unknown(unknown: Window, missing: str) -> None:
    """What was missing is named."""
    misses(check(unknown), missing)
