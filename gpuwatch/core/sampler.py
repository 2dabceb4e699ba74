"""The polling loop: an event loop on one side, one blocking thread on the other.

Reads happen on a daemon thread that nothing ever joins, so a driver call that hangs can neither
freeze a screen nor keep the program from ending. A source that looks ahead is read by the thread
that looked: each thread that hands over to another is one more that wakes up every second.
Deadlines are fixed multiples of the interval from the start: a late read does not shift the next,
and a missed one is left out.
"""

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

from gpuwatch.core import memory_trim
from gpuwatch.core.background import DaemonWorker, Task
from gpuwatch.core.model import Host, Problem, Snapshot
from gpuwatch.core.source import Clock, LooksAhead, Source, SystemClock
from gpuwatch.core.text import bug_place
from gpuwatch.core.units import interval as interval_text

INTERVAL_MIN_SECONDS = 0.1
INTERVAL_MAX_SECONDS = 3600.0

# Watching must not cost the job its cores or the driver's locks: reading stays within this
# share of the time. The second is lower so that a read time between the two does not flap.
_READ_SHARE_MAX = 0.20
_READ_SHARE_CALM = 0.15
# The mean of the last reads without the slowest: one hiccup is no reason, two are.
_READS_JUDGED = 8
_READS_NEEDED = 3


class _Outcome(NamedTuple):
    found: Snapshot | BaseException
    """Snapshot that was read, or exception that escaped from the source."""
    read_seconds: float


async def sleep_unless_woken(seconds: float, wake: asyncio.Event) -> None:
    """Sleep; end early when ``wake`` is set."""
    with contextlib.suppress(TimeoutError):
        # ``wait_for`` would make a task for it each time.
        async with asyncio.timeout(seconds):
            await wake.wait()


class Sampler:
    """Takes a snapshot from ``source`` every ``interval_seconds``. ``sleep`` is how it waits for
    the next deadline; a test with a clock of its own hands in one that turns that clock."""

    def __init__(
        self,
        source: Source,
        interval_seconds: float,
        clock: Clock | None = None,
        *,
        sleep: Callable[[float, asyncio.Event], Awaitable[None]] = sleep_unless_woken,
    ) -> None:
        self.source = source
        self.clock: Clock = SystemClock() if clock is None else clock
        self.latest: Snapshot | None = None
        """The snapshot delivered last, with the problems of reading it."""
        self._sleep = sleep
        self._worker = DaemonWorker("gpuwatch-sampler")
        self._in_use = threading.Lock()
        """Lock of whoever reads or closes the source."""
        self._opening: Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._interval_seconds = checked_interval(interval_seconds)
        self._read_started: float | None = None
        self._good: Snapshot | None = None
        self._good_at: float | None = None
        self._first_read_done = False
        self._recent_read_seconds: deque[float] = deque(maxlen=_READS_JUDGED)
        self._usual_read_seconds = 0.0
        self._slow_since_unix_seconds: float | None = None

    @property
    def interval_seconds(self) -> float:
        """The interval asked for; setting it takes effect at once."""
        return self._interval_seconds

    @interval_seconds.setter
    def interval_seconds(self, seconds: float) -> None:
        self._interval_seconds = checked_interval(seconds)
        if self._wake is not None:
            self._wake.set()

    @property
    def effective_interval_seconds(self) -> float:
        """The interval in force: longer than the one asked for while reads are slow."""
        if self._slow_since_unix_seconds is None:
            return self._interval_seconds
        return max(self._interval_seconds, self._usual_read_seconds / _READ_SHARE_MAX)

    @property
    def in_flight_seconds(self) -> float | None:
        """Time for which the read under way has been running; ``None``: none is."""
        if self._read_started is None:
            return None
        return self.clock.monotonic() - self._read_started

    @property
    def age_seconds(self) -> float | None:
        """Age of the newest good snapshot; ``None`` before the first."""
        return None if self._good_at is None else self.clock.monotonic() - self._good_at

    @property
    def overdue(self) -> bool:
        """Whether the newest snapshot is older than two intervals: a screen should show its age."""
        age = self.age_seconds
        if age is None:
            age = self.in_flight_seconds or 0.0
        return age > 2 * self.effective_interval_seconds

    def start_opening(self) -> None:
        """Open the source on its thread, without waiting; once, however often it is called. Needs
        no event loop, so the driver can wake up while the interface is being imported."""
        if self._opening is None:
            memory_trim.share_one_heap()
            self._opening = self._worker.submit(self.source.open)

    async def run(self, deliver: Callable[[Snapshot], None]) -> None:
        """Deliver a snapshot per interval, on the event loop's thread, until cancelled."""
        self.start_opening()
        self._wake = asyncio.Event()
        start, interval = self.clock.monotonic(), self.effective_interval_seconds
        while True:
            read_at = self.clock.monotonic()
            deliver(self._judge(await self._read()))
            if interval != self.effective_interval_seconds:
                start, interval = read_at, self.effective_interval_seconds
            await self._wait(start, read_at, self._wake)

    async def _wait(self, start: float, read_at: float, wake: asyncio.Event) -> None:
        """Return at the next deadline, whatever the interval becomes meanwhile."""
        interval = self.effective_interval_seconds
        while True:
            wake.clear()
            now = self.clock.monotonic()
            if interval != self.effective_interval_seconds:
                start, interval = read_at, self.effective_interval_seconds
                if start + interval <= now:
                    return
            await self._sleep(next_deadline(start, interval, now) - now, wake)
            if not wake.is_set():
                return

    def close(self, timeout_seconds: float = 0.5) -> None:
        """Close the source on its thread; gives up waiting after ``timeout_seconds``."""
        with contextlib.suppress(RuntimeError):
            closing = self._worker.submit(self._close_source)
            self._worker.stop()
            closing.wait(timeout_seconds)

    def _close_source(self) -> None:
        with self._in_use:
            self.source.close()

    async def _read(self) -> _Outcome:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Outcome] = loop.create_future()
        source, started = self.source, self.clock.monotonic()
        source.options.interval_seconds = self.effective_interval_seconds
        begun = threading.Lock()

        def arrive(outcome: _Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        def read_and_hand_over() -> None:
            # Of the two threads that may come here, the first reads.
            if not begun.acquire(blocking=False):
                return
            outcome = self._read_blocking(started)
            # The loop may have ended while the driver hung.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(arrive, outcome)

        self._read_started, wait_seconds, timer = started, None, None
        # The first read follows the opening, on its thread.
        if self._first_read_done and isinstance(source, LooksAhead):
            wait_seconds = source.look_ahead(read_and_hand_over)
        if wait_seconds is None:
            self._worker.submit(read_and_hand_over)
        else:
            timer = loop.call_later(wait_seconds, self._worker.submit, read_and_hand_over)
        try:
            outcome = await future
        finally:
            # Nobody begins any more once this is cancelled: the source may be closed then.
            begun.acquire(blocking=False)
            if timer is not None:
                timer.cancel()
        if isinstance(outcome.found, Snapshot):
            self._good_at = started
        self._read_started = None
        return outcome

    def _read_blocking(self, started: float) -> _Outcome:
        found: Snapshot | BaseException
        try:
            if self._opening is not None and self._opening.done:
                self._opening.result()
            with self._in_use:
                found = self.source.read()
        # Whatever escapes a source must reach the screen as a sentence; the loop goes on.
        except BaseException as escaped:
            found = escaped
        return _Outcome(found, self.clock.monotonic() - started)

    def _judge(self, outcome: _Outcome) -> Snapshot:
        """The snapshot to deliver: what was read, and what there is to say about reading it."""
        self._measure(outcome.read_seconds)
        problems: tuple[Problem, ...] = ()
        if isinstance(outcome.found, Snapshot):
            self._good = outcome.found
        else:
            problems = (self._bug(outcome.found),)
        if self._slow_since_unix_seconds is not None:
            problems += (self._slowness(),)
        base = self._good or self._nothing()
        self.latest = replace(base, problems=base.problems + problems) if problems else base
        return self.latest

    def _measure(self, read_seconds: float) -> None:
        if not self._first_read_done:
            # The first read fills caches: it says nothing about the others.
            self._first_read_done = True
            return
        recent = self._recent_read_seconds
        recent.append(read_seconds)
        if len(recent) < _READS_NEEDED:
            return
        self._usual_read_seconds = (sum(recent) - max(recent)) / (len(recent) - 1)
        share = self._usual_read_seconds / self._interval_seconds
        if share < _READ_SHARE_CALM:
            self._slow_since_unix_seconds = None
        elif share > _READ_SHARE_MAX and self._slow_since_unix_seconds is None:
            self._slow_since_unix_seconds = self.clock.unix()

    def _slowness(self) -> Problem:
        effective = float(f"{self.effective_interval_seconds:.2g}")
        return Problem(
            source="sampler",
            message=(
                f"A read takes {self._usual_read_seconds * 1000:.0f} ms, so the screen is "
                f"refreshed every {interval_text(effective)} instead of every "
                f"{interval_text(self._interval_seconds)} to leave the machine to the job."
            ),
            since_unix_seconds=self._slow_since_unix_seconds,
            severity="info",
        )

    def _bug(self, error: BaseException) -> Problem:
        return Problem(
            source="sampler",
            message=(
                f"A read failed: {bug_place(error)}. What is shown is from before it. "
                "This is a bug in gpuwatch: please report it."
            ),
            since_unix_seconds=self.clock.unix(),
            severity="error",
        )

    def _nothing(self) -> Snapshot:
        return Snapshot(
            sequence=0,
            taken_at_unix_seconds=self.clock.unix(),
            monotonic_seconds=self.clock.monotonic(),
            interval_seconds=self._interval_seconds,
            simulated=self.source.simulated,
            host=Host(name=""),
        )


def checked_interval(seconds: float) -> float:
    """Return ``seconds`` if a sampler can keep it. Raises ``ValueError`` with a sentence."""
    if not INTERVAL_MIN_SECONDS <= seconds <= INTERVAL_MAX_SECONDS:
        raise ValueError(
            f"the interval must be between {INTERVAL_MIN_SECONDS:g} and "
            f"{INTERVAL_MAX_SECONDS:g} seconds, not {seconds:g}"
        )
    return seconds


def next_deadline(start: float, interval: float, now: float) -> float:
    """The first ``start + n * interval`` after ``now``: missed ones are skipped, not queued."""
    passed = math.floor((now - start) / interval)
    deadline = start + (passed + 1) * interval
    # Rounding can put it on (or before) the present moment.
    return deadline if deadline > now else deadline + interval
