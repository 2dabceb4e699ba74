"""shm_full: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

from gpuwatch.core.model import JobRank
from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import GIB, check_of, fires, gpu_only, host, job, window

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


QUIET = {
    "healthy": window(),
    "room": shm(0.6),
    "a job without workers": shm(0.99, ranks=(JobRank(pid=4242, loader_workers=0),)),
    "ended": shm(0.99, ended_at_unix_seconds=1.0),
}


UNKNOWN = {"no job": (gpu_only(), "job's processes"), "not read": (shm(None), "/dev/shm")}
