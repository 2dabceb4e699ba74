"""The polling loop: deadlines, slow and hung reads, failures, changes of the interval."""

import asyncio
import gc
import threading
from collections.abc import Callable

import pytest

from gpuwatch.core.model import Host, Problem, Snapshot
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import ManualClock, ReadOptions


class FakeSource:
    """Counts, and spends time on the clock it was given."""

    simulated = True

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.options = ReadOptions()
        self.read_seconds = 0.0
        self.error: BaseException | None = None
        self.reads = 0
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.before_read: Callable[[], object] = lambda: None

    def open(self) -> None:
        self.calls.append("open")
        self.threads.add(threading.get_ident())

    def read(self) -> Snapshot:
        self.threads.add(threading.get_ident())
        self.before_read()
        self.reads += 1
        at = self.clock.monotonic()
        self.clock.advance(self.read_seconds)
        if self.error is not None:
            raise self.error
        return Snapshot(
            sequence=self.reads,
            taken_at_unix_seconds=self.clock.unix(),
            monotonic_seconds=at,
            interval_seconds=self.options.interval_seconds,
            simulated=True,
            host=Host(name="box"),
            problems=(Problem(source="host", message="no PSI here"),),
        )

    def close(self) -> None:
        self.calls.append("close")


class EnoughError(Exception):
    """Ends a run."""


def make(interval: float = 1.0) -> tuple[Sampler, FakeSource, ManualClock]:
    clock = ManualClock(seconds=100.0)
    source = FakeSource(clock)

    async def sleep(seconds: float, wake: asyncio.Event) -> None:
        clock.advance(seconds)

    return Sampler(source, interval, clock, sleep=sleep), source, clock


def nothing(_: Snapshot) -> None:
    pass


async def take(
    sampler: Sampler, count: int, each: Callable[[Snapshot], None] = nothing
) -> list[Snapshot]:
    taken: list[Snapshot] = []

    def deliver(snapshot: Snapshot) -> None:
        taken.append(snapshot)
        each(snapshot)
        if len(taken) == count:
            raise EnoughError

    with pytest.raises(EnoughError):
        await sampler.run(deliver)
    sampler.close()
    return taken


def sampler_problems(snapshot: Snapshot) -> list[str]:
    return [problem.message for problem in snapshot.problems if problem.source == "sampler"]


@pytest.mark.parametrize(
    ("slow", "times"),
    [((0.1, 0.1, 0.1), [100, 101, 102, 103]), ((0.0, 3.4, 0.0), [100, 101, 105, 106])],
)
async def test_deadlines_do_not_drift(slow: tuple[float, ...], times: list[float]) -> None:
    """Reads that take time do not shift those after them, and a read of 3.4 intervals is followed
    by one at the next deadline, not by four."""
    sampler, source, _ = make()
    source.read_seconds = slow[0]

    def next_read(snapshot: Snapshot) -> None:
        source.read_seconds = slow[min(snapshot.sequence, 2)]

    taken = await take(sampler, 4, next_read)
    assert [s.monotonic_seconds for s in taken] == pytest.approx(times)


async def test_source_is_used_on_one_other_thread() -> None:
    """Opening, once however often it is asked for, and all reads happen on one thread that is not
    the loop's."""
    sampler, source, _ = make()
    sampler.start_opening()
    sampler.start_opening()
    taken = await take(sampler, 3)
    assert sampler.latest is taken[-1]
    assert len(source.threads) == 1
    assert threading.get_ident() not in source.threads
    assert source.calls == ["open", "close"]


async def test_interval_change_takes_effect_at_once() -> None:
    """From ten seconds to half a second: the next read follows half a second after the last."""
    sampler, _, _ = make(10.0)

    def faster(snapshot: Snapshot) -> None:
        if snapshot.sequence == 2:
            sampler.interval_seconds = 0.5

    taken = await take(sampler, 5, faster)
    assert [s.monotonic_seconds for s in taken] == pytest.approx([100, 110, 110.5, 111, 111.5])
    assert [s.interval_seconds for s in taken] == [10.0, 10.0, 0.5, 0.5, 0.5]


async def test_interval_change_ends_the_present_wait() -> None:
    """Set while the loop sleeps, a shorter interval that has passed already reads at once."""
    clock = ManualClock(seconds=100.0)
    source = FakeSource(clock)
    slept: list[float] = []

    async def sleep(seconds: float, wake: asyncio.Event) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            clock.advance(7)
            sampler.interval_seconds = 2.0
        else:
            clock.advance(seconds)

    sampler = Sampler(source, 60.0, clock, sleep=sleep)
    taken = await take(sampler, 3)
    assert [s.monotonic_seconds for s in taken] == pytest.approx([100, 107, 109])
    assert slept == pytest.approx([60, 2])


@pytest.mark.parametrize("seconds", [0.0, 0.09, 3601, -1, float("nan")])
def test_impossible_interval_is_refused(seconds: float) -> None:
    """An interval that cannot be kept is refused with a sentence, also while running."""
    sampler, _, _ = make()
    with pytest.raises(ValueError, match=r"between 0\.1 and 3600 seconds"):
        sampler.interval_seconds = seconds
    assert sampler.interval_seconds == 1.0


async def test_hung_read_blocks_neither_loop_nor_quitting() -> None:
    """While a read hangs the loop runs, the age grows, and cancelling returns at once."""
    clock = ManualClock(seconds=100.0)
    source = FakeSource(clock)
    release, inside = threading.Event(), threading.Event()
    arrived = asyncio.Event()

    async def sleep(seconds: float, wake: asyncio.Event) -> None:
        clock.advance(seconds)

    def hang_on_second() -> None:
        if source.reads == 1:
            inside.set()
            release.wait(20)

    source.before_read = hang_on_second
    sampler = Sampler(source, 1.0, clock, sleep=sleep)
    assert (sampler.in_flight_seconds, sampler.age_seconds, sampler.overdue) == (None, None, False)
    run = asyncio.create_task(sampler.run(lambda _: arrived.set()))
    await arrived.wait()
    await asyncio.to_thread(inside.wait, 20)
    clock.advance(30)
    assert sampler.in_flight_seconds == pytest.approx(30)
    assert sampler.age_seconds == pytest.approx(31)
    assert sampler.overdue
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    sampler.close(timeout_seconds=0.01)
    assert "close" not in source.calls
    release.set()


@pytest.mark.parametrize(("wait_seconds", "reads"), [(60.0, 1), (0.0, 2)])
async def test_what_looked_ahead_for_too_long_reads_nothing(
    wait_seconds: float, reads: int
) -> None:
    """Whether the sampler was ended meanwhile, or has gone on without it."""
    sampler, source, _ = make()
    looks: list[Callable[[], object]] = []
    enough = asyncio.Event()

    def look_ahead(then: Callable[[], object]) -> float:
        looks.append(then)
        if len(looks) == reads:
            enough.set()
        return wait_seconds

    source.look_ahead = look_ahead  # type: ignore[attr-defined]
    run = asyncio.create_task(sampler.run(nothing))
    await enough.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    sampler.close(60.0)
    read = source.reads
    looks[0]()
    assert source.reads == read
    assert source.calls == ["open", "close"]


def test_read_that_ends_after_the_loop_is_no_error() -> None:
    """A driver that answers when the loop is long closed does not raise in its thread."""
    clock = ManualClock()
    source = FakeSource(clock)
    release = threading.Event()
    source.before_read = lambda: release.wait(20)
    sampler = Sampler(source, 1.0, clock)
    escaped: list[object] = []
    hook, threading.excepthook = threading.excepthook, escaped.append
    try:

        async def quit_while_hung() -> None:
            task = asyncio.create_task(sampler.run(nothing))
            await asyncio.sleep(0.01)
            task.cancel()

        asyncio.run(quit_while_hung())
        release.set()
        sampler.close(timeout_seconds=20)
        gc.collect()
    finally:
        threading.excepthook = hook
    assert source.calls == ["open", "close"]
    assert escaped == []


async def test_exception_becomes_a_problem_and_the_loop_goes_on() -> None:
    """An escaped exception shows the last snapshot with a sentence, until reads work again."""
    sampler, source, _ = make()

    def fail_once(snapshot: Snapshot) -> None:
        fails = snapshot.sequence == 1 and source.error is None
        source.error = ZeroDivisionError("a\x1b[31mb") if fails else None

    taken = await take(sampler, 3, fail_once)
    assert [s.sequence for s in taken] == [1, 1, 3]
    assert taken[1].monotonic_seconds == taken[0].monotonic_seconds
    (message,) = sampler_problems(taken[1])
    assert "ZeroDivisionError" in message
    assert "bug" in message
    assert "\x1b" not in message
    assert taken[1].problems[0].message == "no PSI here"
    assert sampler_problems(taken[2]) == []


async def test_failing_open_is_reported() -> None:
    """An exception out of ``open`` is a problem too, not a silent empty screen."""
    sampler, source, _ = make()
    source.open = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    (snapshot,) = await take(sampler, 1)
    assert "ZeroDivisionError in test_sampler.py" in sampler_problems(snapshot)[0]


async def test_slow_reads_stretch_the_interval_and_fast_ones_give_it_back() -> None:
    """Reading stays within a fifth of the time, says so, and recovers."""
    sampler, source, _ = make()
    source.read_seconds = 0.5

    def recover(snapshot: Snapshot) -> None:
        if snapshot.sequence == 30:
            source.read_seconds = 0.01

    taken = await take(sampler, 60, recover)
    times = [s.monotonic_seconds for s in taken]
    assert times[29] - times[28] == pytest.approx(2.5, rel=0.01)
    assert taken[29].interval_seconds == pytest.approx(2.5, rel=0.01)
    (message,) = sampler_problems(taken[29])
    assert "500 ms" in message
    assert "2.5s instead of every 1s" in message
    assert sampler_problems(taken[59]) == []
    assert times[59] - times[58] == pytest.approx(1.0)
    assert sampler.interval_seconds == 1.0


@pytest.mark.parametrize(("hiccups", "stretched"), [(1, False), (2, True)])
async def test_one_slow_read_in_eight_is_no_reason_and_two_are(
    hiccups: int, stretched: bool
) -> None:
    """The slowest of the last reads is left out of what a read usually takes."""
    sampler, source, _ = make()
    source.read_seconds = 0.05

    def hiccup(snapshot: Snapshot) -> None:
        source.read_seconds = 1.9 if 8 <= snapshot.sequence < 8 + hiccups else 0.05

    taken = await take(sampler, 14, hiccup)
    assert any(sampler_problems(snapshot) for snapshot in taken) == stretched


@pytest.mark.parametrize("interval", [1.0, 10.0])
async def test_a_snapshot_is_overdue_after_two_intervals(interval: float) -> None:
    """A screen shows the age of the newest snapshot from then on, and not before."""
    sampler, _, clock = make(interval)
    (snapshot,) = await take(sampler, 1)
    for intervals, overdue in ((2.0, False), (2.01, True)):
        clock.seconds = snapshot.monotonic_seconds + intervals * interval
        assert sampler.overdue == overdue
