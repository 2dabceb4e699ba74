"""Loader workers that take the place of others, and how long a GPU waits for them."""

import pytest

from gpuwatch.core.model import JobMember
from gpuwatch.diagnosis.facts.job import Restarts


def workers(*started_at: float) -> list[JobMember]:
    """By when their processes started."""
    return [
        JobMember(pid=round(10 * at), role="loader_worker", started_at_unix_seconds=at)
        for at in started_at
    ]


def watch(looks: dict[int, list[JobMember]], idle: tuple[float, float]) -> Restarts:
    """A minute of a GPU that works but for ``idle``; the workers as they are from each second."""
    restarts, there = Restarts(), list[JobMember]()
    samples = [(at / 4, 0.0 if idle[0] < at / 4 <= idle[1] else 80.0) for at in range(240)]
    for at in range(60):
        there = looks.get(at, there)
        restarts.take_workers(there, float(at), 0.0)
        restarts.take_samples([one for one in samples if one[0] <= at], float(at))
    return restarts


def test_from_the_first_of_the_new_to_the_next_work() -> None:
    """They are spawned one after the other, and known as workers once they have imported."""
    looks = {0: workers(1.0, 1.1), 30: [], 33: workers(30.2), 36: workers(30.2, 33.0)}
    (found,) = watch(looks, (30.0, 39.0)).found
    assert found.begin == pytest.approx(30.2, abs=0.3)
    assert found.end == pytest.approx(39.2, abs=0.3)
    assert found.epoch_seconds == pytest.approx(29.2, abs=0.3)


def test_work_that_was_queued_before_is_not_theirs() -> None:
    """The kernel's start times are up to a second early, and a GPU has steps queued."""
    looks = {0: workers(1.0), 31: workers(30.0)}
    (found,) = watch(looks, (31.5, 36.0)).found
    assert found.begin == pytest.approx(31.5, abs=0.3)


def test_workers_of_a_second_loader_replace_none() -> None:
    """Those of a validation come and go beside workers that stay."""
    stay = workers(1.0, 1.1)
    looks = {0: stay, 30: [*stay, *workers(30.0, 30.1)], 40: stay}
    assert not watch(looks, (30.0, 36.0)).found


def test_a_gpu_that_does_not_wait_for_them() -> None:
    """The others had made enough batches."""
    assert not watch({0: workers(1.0), 30: workers(30.0)}, (30.0, 31.0)).found
