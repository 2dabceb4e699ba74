"""checkpoint_pauses: firing, quiet, unknown."""

from __future__ import annotations

import pytest

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import check_of, fires, gpu_only, pause, window

check = check_of("checkpoint_pauses")


def saving(*before: float, wrote: float | None = 16e9) -> Window:
    return window(pauses=tuple(pause(at, 8.0, wrote_bytes=wrote) for at in before))


def test_regular_pauses_with_writes() -> None:
    """Their rhythm and their cost are named; the waits of the other ranks are explained."""
    firing = fires(check(saving(145.0, 100.0, 55.0, 10.0)))
    assert "every 45 s" in firing.summary
    assert firing.lost_share == pytest.approx(32.0 / 600.0)
    assert {"collective_wait", "oscillation"} <= firing.explains
    assert firing.severity == "warning"
    assert firing.strength > 0.9


def test_a_single_save_is_less_sure() -> None:
    """Once is no rhythm, but the writes say what it was."""
    once = fires(check(saving(20.0)))
    assert once.strength < fires(check(saving(145.0, 100.0, 55.0, 10.0))).strength
    assert once.severity == "info"


def test_a_job_without_a_gpu_is_a_loop() -> None:
    """What it reports is enough, and no GPU is spoken of."""
    own = tuple(pause(at, 3.0, phase="checkpoint") for at in (145.0, 100.0, 55.0, 10.0))
    firing = fires(check(window(gpus=(), pauses=own)))
    assert firing.summary.startswith("The training loop paused for up to 3 s every 45 s")
    assert "GPU" not in firing.summary + " ".join(one.says for one in firing.evidence)


QUIET = {
    "healthy": window(),
    "no writes": saving(100.0, 55.0, wrote=2e5),
    "a trickle is no save": window(pauses=(pause(200.0, 120.0, wrote_bytes=40e6),)),
}


UNKNOWN = {
    "writes not read": (saving(100.0, 55.0, wrote=None), "written"),
    "no job": (gpu_only(), "job's processes"),
}
