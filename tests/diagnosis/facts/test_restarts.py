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


def watch(
    looks: dict[int, list[JobMember]], *idle: tuple[float, float], seconds: int = 60
) -> Restarts:
    """A GPU that works but for ``idle``; the workers as they are from each second."""
    restarts, there = Restarts(), list[JobMember]()
    samples = [
        (at / 4, 0.0 if any(begin < at / 4 <= end for begin, end in idle) else 80.0)
        for at in range(4 * seconds)
    ]
    for at in range(seconds):
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


def test_workers_that_begin_later_than_now_began_when_they_were_seen() -> None:
    """A clock that is set back by an hour puts the kernel's start times into the future."""
    found = watch({0: workers(1.0), 30: workers(3630.0)}, (30.0, 36.0)).found
    assert [(one.begin, one.end) for one in found] == [(30.0, 36.25)]


def test_workers_of_a_second_loader_replace_none() -> None:
    """Those of a validation come and go beside workers that stay."""
    stay = workers(1.0, 1.1)
    looks = {0: stay, 30: [*stay, *workers(30.0, 30.1)], 40: stay}
    assert not watch(looks, (30.0, 36.0)).found


def test_a_gpu_that_does_not_wait_for_them() -> None:
    """The others had made enough batches."""
    assert not watch({0: workers(1.0), 30: workers(30.0)}, (30.0, 31.0)).found


TWICE = {0: workers(1.0), 20: [], 22: workers(20.2), 45: []}


def test_where_workers_were_replaced_before_the_wait_begins_when_they_go() -> None:
    """New processes import for seconds before they are known as workers: that is lost to nothing
    else."""
    found = watch(TWICE, (20.0, 26.0), (45.0, 90.0), seconds=49).open
    assert found is not None
    assert found.begin == pytest.approx(45.0, abs=1.1)
    assert found.epoch_seconds == pytest.approx(24.0, abs=1.1)


def test_workers_that_do_not_come_again_are_awaited_for_twice_as_long_as_before() -> None:
    """What the job does then is something else."""
    assert watch(TWICE, (20.0, 26.0), (45.0, 90.0), seconds=70).open is None


def test_workers_that_come_after_they_were_awaited_make_one_restart() -> None:
    """From their start, as if nothing had been awaited."""
    looks = {**TWICE, 48: workers(45.3)}
    _, found = watch(looks, (20.0, 26.0), (45.0, 51.0)).found
    assert (found.begin, found.end) == pytest.approx((45.3, 51.2), abs=0.4)
