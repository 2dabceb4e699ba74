"""validation_pauses: firing, quiet, unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import check_of, fires, gpu_only, job, pause, window, workers

check = check_of("validation_pauses")


def pausing(*before: float, wrote: float | None = 1e5, seconds: float = 6.0) -> Window:
    return window(pauses=tuple(pause(at, seconds, wrote_bytes=wrote) for at in before))


def test_rare_pauses_without_writes() -> None:
    """It is information, not a warning."""
    firing = fires(check(pausing(370.0, 250.0, 130.0, 10.0)))
    assert firing.severity == "info"
    assert "every" in firing.summary
    assert firing.advice == ()


def test_a_large_share_gets_advice() -> None:
    """Beyond 5% of the time persistent workers are proposed."""
    firing = fires(check(pausing(370.0, 250.0, 130.0, 10.0, seconds=20.0)))
    assert firing.advice[0].setting == "persistent_workers"


def test_a_validation_that_works_loses_less() -> None:
    """Half of the GPU is used in the pause, so half of it is lost."""
    half = tuple(
        pause(at, 20.0, wrote_bytes=0.0, busy_percent=50.0) for at in (370.0, 250.0, 130.0, 10.0)
    )
    assert fires(check(window(pauses=half))).lost_share == pytest.approx(40.0 / 600.0)


def test_a_job_without_a_gpu_is_a_loop() -> None:
    """What it reports is enough, and no GPU is spoken of."""
    own = tuple(pause(at, 6.0, phase="validation") for at in (145.0, 100.0, 55.0, 10.0))
    firing = fires(check(window(gpus=(), pauses=own)))
    assert firing.summary.startswith("The training loop paused every 45 s")
    assert "GPU" not in firing.summary + " ".join(one.says for one in firing.evidence)


QUIET = {
    "healthy": window(),
    "once": pausing(60.0),
    "saves": pausing(100.0, 55.0, 10.0, wrote=9e9),
    "for waits of workers at their limit": replace(
        pausing(40.0, 30.0, 20.0, 10.0),
        job=job(workers=workers(24, cpu_percent=62.0, run_queue_wait_percent=36.0)),
    ),
}


UNKNOWN = {
    "writes not read": (pausing(100.0, 55.0, wrote=None), "written"),
    "no job": (gpu_only(), "job's processes"),
}
