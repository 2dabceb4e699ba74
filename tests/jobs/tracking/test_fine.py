"""Fine samples of one job's main threads and workers."""

import threading

import pytest

from gpuwatch.core.source import SystemClock
from gpuwatch.jobs.tracking.fine import PERIOD_SECONDS, READS_PER_SECOND, FineSampler, Group
from tests.support.children import children, wait_until
from tests.support.fake_proc import FakeProc


def ran(proc: FakeProc, pid: int, seconds: float) -> None:
    proc.write(f"{pid}/schedstat", f"{seconds * 1e9:.0f} 0 1\n")


@pytest.fixture
def group(fake: FakeProc) -> Group:
    return Group(fake.root)


def test_a_sample_is_the_mean_share_of_a_core(fake: FakeProc, group: Group) -> None:
    """Over the processes that are there, in the time up to the moment it is stamped with."""
    for pid in (1, 2):
        ran(fake, pid, 5.0)
    group.watch([(1, None), (2, None)])
    group.sample(10.0, 1000.0, READS_PER_SECOND)
    ran(fake, 1, 5.2)
    ran(fake, 2, 5.1)
    group.sample(10.2, 1000.2, READS_PER_SECOND)
    fake.write("1/schedstat", "")
    ran(fake, 2, 5.3)
    group.sample(10.4, 1000.4, READS_PER_SECOND)
    samples = [(sample.at_unix_seconds, sample.percent) for sample in group.samples()]
    assert samples == [(1000.2, pytest.approx(75.0)), (1000.4, pytest.approx(100.0))]
    assert group.samples() == ()


@pytest.mark.parametrize("count", [1, 22, 64, 300])
def test_many_workers_are_read_less_often(fake: FakeProc, group: Group, count: int) -> None:
    """The budget holds, and there is a sample a second at least."""
    for pid in range(1, count + 1):
        ran(fake, pid, 1.0)
    group.watch([(pid, None) for pid in range(1, count + 1)])
    seconds = 10
    reads = sum(
        group.sample(step * PERIOD_SECONDS, 0.0, 110)
        for step in range(round(seconds / PERIOD_SECONDS))
    )
    assert reads <= 110 * seconds
    assert len(group.samples()) >= seconds - 1


def test_samples_that_nobody_takes_do_not_pile_up(fake: FakeProc, group: Group) -> None:
    """A dashboard that hangs for an hour keeps two minutes of them."""
    ran(fake, 1, 0.0)
    group.watch([(1, None)])
    for step in range(2000):
        group.sample(step * PERIOD_SECONDS, step * PERIOD_SECONDS, READS_PER_SECOND)
    assert len(group.samples()) == 600


@pytest.mark.parametrize(
    ("used", "swings"), [(0.0, False), (0.019, False), (0.3, True), (0.985, False), (1.0, False)]
)
def test_turns_are_looked_for_where_there_can_be_any(
    fake: FakeProc, group: Group, used: float, swings: bool
) -> None:
    """Who hardly ran in a second, or never rested, was not busy by turns; who may have been is
    sampled finely until nothing has shown it for ten."""
    for second in range(3):
        ran(fake, 1, used * second)
        group.watch([(1, None)])
        group.sample(float(second), 0.0, READS_PER_SECOND)
    assert group.swings(2.0) is swings
    assert not group.swings(12.5)
    group.watch([])
    assert not group.swings(2.0)


def test_the_thread_samples_real_processes_and_ends() -> None:
    """One busy by turns shows as that; with nobody to watch, and after closing, no thread is
    left."""

    others = set(threading.enumerate())

    def threads() -> list[threading.Thread]:
        own = set(threading.enumerate()) - others
        return [thread for thread in own if thread.name == "gpuwatch-fine"]

    with children() as started:
        busy = started.python(
            "ready()\nwhile os.getppid() != 1:\n    sum(range(1000000))\n    time.sleep(0.02)\n"
        )
        started.ready(busy)
        sampler = FineSampler(SystemClock())
        sampler.watch([(busy.pid, None)], [])
        seen: list[float] = []

        def sampled() -> bool:
            seen.extend(sample.percent for sample in sampler.samples()[0])
            # The cores are shared with whatever else runs here.
            return bool(threads()) and len(seen) >= 3 and max(seen) > 1

        wait_until(sampled)
        sampler.watch([], [])
        assert threads() == []
        sampler.close()
        assert threads() == []
