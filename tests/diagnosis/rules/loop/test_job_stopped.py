"""job_stopped: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.facts.window import RankFacts, Window
from tests.diagnosis import windows as w

check = w.check_of("job_stopped")

STOPPED: dict[str, Any] = {"state": "T", "stopped_seconds": 9.0}


def _of(*ranks: RankFacts) -> Window:
    gpus = tuple([w.gpu(n) for n in range(len(ranks))])
    return w.window(gpus=gpus, job=w.job(ranks=ranks))


def test_a_job_that_is_stopped() -> None:
    """Its PID is told, and how to continue it; nothing else is said to be wrong with it."""
    said = w.fires(check(_of(w.rank(None, **STOPPED))))
    assert said.summary == "The job (PID 4242) is stopped"
    assert "kill -CONT 4242 " in said.advice[0].action
    assert {"loader_cpu_bound", "oscillation", "idle_holding_memory"} <= said.explains
    assert said.lost_share is None


def test_all_its_ranks() -> None:
    """They are counted, and all their PIDs are in the advice."""
    said = w.fires(check(_of(*[w.rank(n, **STOPPED) for n in range(3)])))
    assert said.summary == "The job is stopped: all its 3 ranks are"
    assert "kill -CONT 4242 4243 4244 " in said.advice[0].action
    assert said.gpus == ()


def test_one_rank_of_several() -> None:
    """It is named with its GPU: the others wait for it."""
    said = w.fires(check(_of(w.rank(0), w.rank(1, **STOPPED), w.rank(2))))
    assert said.summary == "Rank 1 is stopped, and the others wait for it"
    assert said.gpus == ("GPU-1",)
    assert "collective_wait" in said.explains


def test_two_ranks_of_several() -> None:
    """Both are named."""
    said = w.fires(check(_of(w.rank(0), w.rank(1, **STOPPED), w.rank(2, **STOPPED))))
    assert said.summary == "Rank 1 and rank 2 are stopped, and the others wait for them"


def test_a_debugger() -> None:
    """Nobody is told to send a signal to what a debugger holds."""
    said = w.fires(check(_of(w.rank(None, state="t", stopped_seconds=60.0))))
    assert "held by a debugger" in said.summary
    assert "kill" not in said.advice[0].action


QUIET = {
    "healthy": w.window(),
    "starved": w.window(gpus=(w.gpu(busy=w.swinging(0.2)),)),
    "idle, and runs": w.window(gpus=(w.gpu(busy=w.steady(0.0)),)),
}


UNKNOWN = {
    "no job": (w.gpu_only(), "job's processes"),
    "no state": (_of(w.rank(None, state=None, stopped_seconds=None)), "state"),
    "no ranks": (w.window(job=w.job(ranks=())), "state"),
}
