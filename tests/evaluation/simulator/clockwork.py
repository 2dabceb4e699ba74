"""Time, and what programs wait for: a discrete-event kernel, cores and stores."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Generator
from itertools import count

BIN_SECONDS = 0.05
SLICE_SECONDS = 0.05

Program = Generator["float | Gate", None, None]
"""Yields how long it sleeps, or what it waits for."""


class Gate:
    """Opens once; who waits for it goes on then."""

    def __init__(self, world: World) -> None:
        self.is_open = False
        self.waiting: list[Program] = []
        self._world = world

    def open(self) -> None:
        self.is_open = True
        for program in self.waiting:
            self._world.start(program)
        self.waiting.clear()


class World:
    def __init__(self, seed: str) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self._queue: list[tuple[float, int, Program]] = []
        self._turn = count()

    def start(self, program: Program, after: float = 0.0) -> None:
        heapq.heappush(self._queue, (self.now + max(0.0, after), next(self._turn), program))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, program = heapq.heappop(self._queue)
            wait = next(program, None)
            if isinstance(wait, Gate) and not wait.is_open:
                wait.waiting.append(program)
            elif wait is not None:
                self.start(program, 0.0 if isinstance(wait, Gate) else wait)
        self.now = until

    def jitter(self, value: float, share: float = 0.05) -> float:
        return max(value * 0.1, self.random.gauss(value, value * share))


class Track:
    """How much of something there was over time, in bins."""

    __slots__ = ("_bins", "_level", "_since")

    def __init__(self) -> None:
        self._bins: dict[int, float] = defaultdict(float)
        self._since: float | None = None
        self._level = 0.0

    def add(self, start: float, end: float, level: float = 1.0) -> None:
        if end <= start:
            return
        bins, first, last = self._bins, int(start / BIN_SECONDS), int(end / BIN_SECONDS)
        if first == last:
            bins[first] += (end - start) * level
            return
        bins[first] += ((first + 1) * BIN_SECONDS - start) * level
        for place in range(first + 1, last):
            bins[place] += BIN_SECONDS * level
        bins[last] += (end - last * BIN_SECONDS) * level

    def count(self, at: float, number: float = 1.0) -> None:
        self._bins[int(at / BIN_SECONDS)] += number

    def begin(self, at: float, level: float = 1.0) -> None:
        """Of something whose end is not known yet."""
        self._since, self._level = at, level

    def end(self, at: float) -> None:
        if self._since is not None:
            self.add(self._since, at, self._level)
            self._since = None

    def mean(self, start: float, end: float) -> float:
        """Per second (or the mean level) between two moments that are past."""
        if self._since is not None and end > self._since:
            self.add(self._since, end, self._level)
            self._since = end
        if end <= start:
            return 0.0
        first, last = start / BIN_SECONDS, end / BIN_SECONDS
        total = sum([self._bins.get(place, 0.0) for place in range(int(first), int(last))])
        total -= self._bins.get(int(first), 0.0) * (first - int(first))
        total += self._bins.get(int(last), 0.0) * (last - int(last))
        return max(0.0, total) / (end - start)


class Thread:
    """What the kernel accounts for a thread (or all further threads of a process together)."""

    def __init__(self) -> None:
        self.cpu, self.queued, self.disk = Track(), Track(), Track()
        self.waits, self.pushed, self.read, self.written = Track(), Track(), Track(), Track()
        self.received, self.sent, self.socket = Track(), Track(), Track()


class Cores:
    """Cores that all runnable threads share; a quota on top holds back a container."""

    def __init__(self, world: World, number: int, quota: float | None = None) -> None:
        self.world, self.number, self.quota = world, number, quota
        self.runnable = 0.0
        self.used, self.throttled = Track(), Track()

    @property
    def usable(self) -> float:
        return min(self.number, self.quota or self.number)

    def burn(self, thread: Thread, seconds: float, width: float = 1.0) -> Program:
        """Compute so long; ``width`` threads of a pool do it side by side."""
        while seconds > 1e-6:
            part = min(seconds, SLICE_SECONDS)
            self.runnable += width
            start, stretch = self.world.now, max(1.0, self.runnable / self.usable)
            yield part * stretch
            self.runnable -= width
            self.account(thread, start, self.world.now, width / stretch)
            if stretch > 1.0:
                thread.queued.add(start, self.world.now, 1.0 - 1.0 / stretch)
                thread.pushed.count(start, 12.0 * part)
                if self.quota is not None:
                    self.throttled.add(start, self.world.now, (1.0 - 1.0 / stretch) / self.usable)
            seconds -= part
        thread.waits.count(self.world.now)

    def spin(self, thread: Thread, until: float) -> Program:
        """Ask again and again whether something is done, as CUDA's synchronise does."""
        start = self.world.now
        if until > start:
            self.runnable += 1
            yield until - start
            self.runnable -= 1
            share = min(1.0, self.usable / max(1.0, self.runnable))
            self.account(thread, start, self.world.now, share)

    def account(self, thread: Thread, start: float, end: float, cores: float) -> None:
        thread.cpu.add(start, end, cores)
        self.used.add(start, end, cores)


class Store:
    """A disk or a service: so many bytes a second for all together, each request with a latency.

    Those who wait for a block device are in uninterruptible sleep; for a socket they just sleep.
    """

    def __init__(self, world: World, speed: float, latency: float, *, network: bool) -> None:
        self.world, self.speed, self.latency, self.network = world, speed, latency, network
        self.read, self.written = Track(), Track()
        self._free = 0.0

    def move(
        self, thread: Thread, size: float, requests: float = 1.0, *, write: bool = False
    ) -> Program:
        """One after the other, as a reader of files or objects does."""
        now, drawn = self.world.now, self.world.random.lognormvariate(0.0, 0.5)
        self._free = max(self._free, now) + size / self.speed
        done = max(self._free, now + self.latency * requests * drawn + size / self.speed)
        if done > now:
            (self.written if write else self.read).add(now, done, size / (done - now))
            if self.network:
                moved, wait = thread.sent if write else thread.received, thread.socket
            else:
                moved, wait = thread.written if write else thread.read, thread.disk
            moved.add(now, done, size / (done - now))
            wait.add(now, done)
        thread.waits.count(now, requests)
        yield done - now
