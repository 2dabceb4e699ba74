"""What ranks report of their loops, as rules see it."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gpuwatch.core.model import JobMember, JobRank, TrainingLoop
from gpuwatch.diagnosis.facts.job import Rank, Workers
from gpuwatch.diagnosis.facts.window import LoopFacts, WorkerFacts


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


Look = Callable[[int], dict[str, Any]]
"""What a worker shows so many seconds after the first look."""


def busy(_second: int) -> dict[str, Any]:
    return {"state": "R", "cpu_percent": 98.0, "voluntary_switches_per_second": 20.0}


def resting(second: int) -> dict[str, Any]:
    """It wakes every five seconds to see whether its training process lives."""
    return {"state": "S", "cpu_percent": 0.2 if second % 5 == 0 else 0.0, "awaits_work": True,
            "voluntary_switches_per_second": 1.5 if second % 5 == 0 else 0.0}  # fmt: skip


def sleeping(_second: int) -> dict[str, Any]:
    """On a slow store, within a batch."""
    return {"state": "S", "cpu_percent": 0.1, "awaits_work": False,
            "voluntary_switches_per_second": 0.3}  # fmt: skip


def waits_its_turn(second: int) -> dict[str, Any]:
    """For most of the time another worker makes its slow batch."""
    return busy(second) if second < 4 else resting(second)


def trains(second: int) -> dict[str, Any]:
    """Ten seconds of training, two of validation, again and again."""
    return busy(second) if second % 12 < 10 else resting(second)


def validates(second: int) -> dict[str, Any]:
    return resting(second) if second % 12 < 10 else busy(second)


def checks_first(second: int) -> dict[str, Any]:
    """It makes a batch or two before training, as a sanity check."""
    return busy(second) if second < 2 else resting(second)


def worker_facts(workers: Iterable[tuple[float, Look]], seconds: int = 30) -> WorkerFacts:
    """Of workers that began so many seconds after the first and show that."""
    found = Workers()
    for second in range(seconds):
        members = [
            JobMember(pid=10 + n, started_at_unix_seconds=1e9 + began, role="loader_worker",
                      parent_pid=1, **shows(second))
            for n, (began, shows) in enumerate(workers)
        ]  # fmt: skip
        found.push(members, float(second), 1.0)
    facts = found.facts(-1.0)
    assert facts is not None
    return facts


LATER, AT_ONCE = 40.0, 0.04
LOADERS: dict[str, tuple[list[tuple[float, Look]], int, int, float]] = {
    "a starved loader beside one that rests": (
        [(0.0, busy), (0.02, busy), (LATER, resting), (LATER + 0.02, resting)], 2, 2, 98.0,
    ),
    "in the other order, started at once": (
        [(0.0, resting), (0.02, resting), (AT_ONCE, busy), (AT_ONCE + 0.02, busy)], 2, 2, 98.0,
    ),
    "workers that sleep within a batch are at work": (
        [(0.0, sleeping), (0.02, sleeping), (LATER, resting)], 2, 1, 0.1,
    ),
    "both rest: the GPU is fed": ([(0.0, resting), (LATER, resting)], 2, 0, 0.0),
    "training and validation that take turns": (
        [(0.0, trains), (0.02, trains), (LATER, validates), (LATER + 0.02, validates)],
        2, 2, 89.0,
    ),
    "validation that had its sanity check a moment before": (
        [(0.0, checks_first), (0.9, busy)], 1, 1, 98.0,
    ),
    "two loaders that both work": ([(0.0, busy), (LATER, busy)], 2, 0, 98.0),
    "one slow batch: the others are of the same loader": (
        [(0.0, busy), (0.02, waits_its_turn), (0.04, waits_its_turn)], 3, 0, 41.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LOADERS)
def test_workers_of_a_loader_that_rests_are_not_counted_with_those_that_feed(case: str) -> None:
    """Validation with persistent workers: told apart by when they were started, and by whether
    they do anything."""
    workers, feed, rest, cpu = LOADERS[case]
    facts = worker_facts(workers)
    # Where they take turns, a moment passes until that shows.
    assert facts.count == pytest.approx(feed, abs=0.4)
    assert facts.resting == rest
    assert facts.cpu_percent == pytest.approx(cpu, abs=3.0)


def test_a_rank_has_the_workers_of_the_loader_that_feeds_it() -> None:
    """What it would be told to raise is the ``num_workers`` of that one; what it reports itself
    stands."""
    facts = worker_facts(LOADERS["a starved loader beside one that rests"][0])
    rank = Rank()
    assert rank.facts(JobRank(pid=1, loader_workers=4), 0.0, facts).loader_workers == 2
    rank.push_loop(TrainingLoop(pid=1, phase="train", loader_workers=3), 1.0, 1.0)
    assert rank.facts(JobRank(pid=1, loader_workers=4), 0.0, facts).loader_workers == 3


def test_child_processes_of_a_worker_count_as_its_work() -> None:
    """One that waits for a decoder, which uses a core."""
    decodes = {"state": "S", "cpu_percent": 1.0, "children_cpu_percent": 96.0}
    assert worker_facts([(0.0, lambda _: decodes)]).cpu_percent == pytest.approx(97.0)
