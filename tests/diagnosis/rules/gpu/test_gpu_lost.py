"""A GPU that does not answer any more."""

from __future__ import annotations

from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, window

check = check_of("gpu_lost")


def test_a_lost_gpu_is_an_error_at_full_cost() -> None:
    """The lost GPU alone is named, as an error that costs all its time."""
    said = fires(check(window(gpus=(gpu(0), gpu(1, lost=True, busy=None)))))
    assert said.severity == "error"
    assert said.gpus == ("GPU-1",)
    assert said.lost_share == 1.0
    assert "GPU 1 no longer responds" in said.summary


def test_it_needs_no_job() -> None:
    """A log of GPU readings alone is enough."""
    assert fires(check(gpu_only(gpu(lost=True)))).gpus == ("GPU-0",)


def test_the_waiting_of_the_others_is_a_symptom() -> None:
    """What the ranks left do meanwhile is explained by it."""
    said = fires(check(window(gpus=(gpu(0), gpu(1, lost=True)))))
    assert {"collective_wait", "straggler", "oscillation"} <= said.explains


QUIET = {"while every gpu answers": window(gpus=(gpu(0), gpu(1)))}


UNKNOWN = {"without a gpu": (window(gpus=()), "a GPU")}
