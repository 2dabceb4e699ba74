"""What a cause cost."""

from __future__ import annotations

import pytest

from gpuwatch.diagnosis.finding import Finding
from gpuwatch.diagnosis.rule import Verdict
from tests.diagnosis.engines import CLEAR, always, between, firing, play, scripted
from tests.diagnosis.windows import gpu, swinging, window

TWO = window(gpus=(gpu(0, busy=swinging(0.4)), gpu(1, busy=swinging(0.4))))


def _cost(finding: Finding) -> tuple[float, float]:
    assert finding.cost_share is not None
    assert finding.cost_gpu_seconds is not None
    return finding.cost_share, finding.cost_gpu_seconds


def test_a_steady_loss_is_that_share_of_the_time_watched() -> None:
    """Half of the time of two GPUs over a minute of window and five of watching."""
    said = play(scripted({"fault": always(firing(lost_share=0.5))}, TWO), range(301))
    share, seconds = _cost(said[-1].findings[0])
    assert share == pytest.approx(0.5, rel=0.04)
    assert seconds == pytest.approx(0.5 * 2 * 360, rel=0.04)


def test_only_the_gpus_named_are_counted() -> None:
    """The other one lost nothing."""
    one = firing(lost_share=0.5, gpus=("GPU-1",))
    said = play(scripted({"fault": always(one)}, TWO), range(301))
    assert _cost(said[-1].findings[0])[1] == pytest.approx(0.5 * 360, rel=0.04)


def test_windows_that_overlap_count_once() -> None:
    """A fault of the last minute of five: each window says how much of it is lost so far."""

    def say(second: float) -> Verdict:
        lost = min(60.0, max(0.0, second - 240.0)) / 60.0 * 0.6
        return firing(lost_share=lost) if lost > 0.02 else CLEAR

    said = play(scripted({"fault": say}, window(gpus=(gpu(busy=swinging(0.4)),))), range(301))
    # The last look was up to five seconds before the end.
    assert _cost(said[-1].findings[0])[1] == pytest.approx(0.6 * 60, rel=0.09)


def test_two_causes_do_not_count_the_same_time() -> None:
    """Together they lost no more than the GPU idled."""
    says = {
        "a": always(firing(strength=0.9, lost_share=0.4)),
        "b": always(firing(strength=0.8, lost_share=0.4)),
    }
    said = play(scripted(says, window(gpus=(gpu(busy=swinging(0.4)),))), range(200))
    idle = 1.0 - 0.4 * 0.98
    assert [one.rule for one in said[-1].findings] == ["a", "b"]
    assert sum(_cost(one)[0] for one in said[-1].findings) == pytest.approx(idle, rel=0.06)


def test_what_loses_no_time_has_no_cost() -> None:
    """A full memory is no lost second."""
    said = play(scripted({"memory_nearly_full": always(firing(lost_share=None))}), range(20))
    assert said[-1].findings[0].cost_share is None
    assert said[-1].findings[0].cost_gpu_seconds is None


def test_the_cost_stays_while_a_fault_is_being_taken_back() -> None:
    """What was lost is lost, and does not grow any more."""
    said = play(scripted({"fault": between(0, 30, firing(lost_share=0.5))}, TWO), range(46))
    assert _cost(said[-1].findings[0])[1] == pytest.approx(_cost(said[31].findings[0])[1])
