"""What jobs tell of their loops, as rules see it."""

from __future__ import annotations

import pytest

from gpuwatch.core.model import TrainingLoop
from gpuwatch.diagnosis.facts.watched_loop import LoopTrack

UNIX = 1_700_000_000.0


def loop(share: float, phase: str = "train", told: float = 0.0) -> TrainingLoop:
    return TrainingLoop(pid=1, data_wait_share=share, phase=phase, told_at_unix_seconds=UNIX + told)


def test_a_wait_of_a_minute_is_seen_while_it_lasts() -> None:
    """Nothing new is told meanwhile, and just that is what is wrong."""
    track = LoopTrack(120.0)
    for at in range(1, 91):
        track.push(loop(1.0, told=0.0), float(at), 1.0)
    facts = track.facts(60.0)
    assert facts is not None
    assert facts.data_wait_share == pytest.approx(1.0)


def test_validation_and_idle_time_are_no_training() -> None:
    """What is told then is left out."""
    track = LoopTrack(120.0)
    for at in range(1, 31):
        track.push(loop(0.2 if at <= 10 else 0.9, "train" if at <= 10 else "validation"), at, 1.0)
    facts = track.facts(0.0)
    assert facts is not None
    assert facts.data_wait_share == pytest.approx(0.2)
    assert (facts.phase, facts.copy_share) == ("validation", None)


def test_before_anything_is_told_nothing_is_known() -> None:
    """Nor after it was all too long ago."""
    track = LoopTrack(120.0)
    assert track.facts(0.0) is None
    track.push(loop(0.2), 1.0, 1.0)
    assert track.facts(50.0) is None
