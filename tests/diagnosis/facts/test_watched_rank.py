"""What ranks report of their loops, as rules see it."""

from collections.abc import Iterable

import pytest

from gpuwatch.core.model import JobRank, TrainingLoop
from gpuwatch.diagnosis.facts.watched_rank import Rank
from gpuwatch.diagnosis.facts.window import LoopFacts


def facts(loops: Iterable[tuple[float, str]], since: float) -> LoopFacts | None:
    """Of loops reported each second: (share of waiting for data, phase)."""
    rank = Rank()
    for at, (share, phase) in enumerate(loops, 1):
        loop = TrainingLoop(
            pid=1, data_wait_share=share, phase=phase, reported_at_unix_seconds=1_700_000_000.0
        )
        rank.push_loop(loop, float(at), 1.0)
    return rank.facts(JobRank(pid=1), since, None).loop


def test_a_wait_of_a_minute_is_seen_while_it_lasts() -> None:
    """Nothing new is reported meanwhile, and just that is what is wrong."""
    found = facts([(1.0, "train")] * 90, 60.0)
    assert found is not None
    assert found.data_wait_share == pytest.approx(1.0)


def test_validation_and_idle_time_are_no_training() -> None:
    """What is reported meanwhile does not count."""
    found = facts([(0.2, "train")] * 10 + [(0.9, "validation")] * 20, 0.0)
    assert found is not None
    assert found.data_wait_share == pytest.approx(0.2)
    assert found.copy_share is None


@pytest.mark.parametrize("loops", [[], [(0.2, "train")]])
def test_before_anything_is_reported_nothing_is_known(loops: list[tuple[float, str]]) -> None:
    """Nor after it was all too long ago."""
    assert facts(loops, 50.0) is None
