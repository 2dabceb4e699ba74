"""How busy the main threads and loader workers of one job are, several times between snapshots.

A starved job is busy by turns: its workers while the GPU waits, its main thread while they wait.
A mean over a second hides that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuwatch.core.model import BusySample, ProcessKey
from gpuwatch.core.source import Clock
from gpuwatch.sources.linux import procfs

PERIOD_SECONDS = 0.2
READS_PER_SECOND = 150
"""At about 10 µs a reading (a process of a busy job is seldom in the cache) 0.15% of a core."""
SLOWEST_PERIODS = 5
"""Fewer than one sample a second would be coarser than the snapshots: from there on only some of
the processes are read each time, in turn."""
SAMPLES_KEPT = 600
"""Two minutes: a snapshot that comes later than that has a gap."""
DESCRIPTORS_MAX = 256


class _Entry:
    """One process's ``schedstat``, kept open, and what it said last."""

    __slots__ = ("at", "descriptor", "key", "nanoseconds", "path")

    def __init__(self, key: ProcessKey, proc: Path, *, keep_open: bool) -> None:
        self.key = key
        self.path = f"{proc}/{key[0]}/schedstat"
        self.descriptor: int | None = None
        self.nanoseconds: int | None = None
        self.at = 0.0
        if keep_open:
            try:
                self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self.descriptor = None

    def percent(self, now: float) -> float | None:
        """Of one core, since the reading before; ``None`` at the first, and once it has ended."""
        try:
            if self.descriptor is None:
                raw = procfs.read_once(self.path, 128)
            else:
                raw = os.pread(self.descriptor, 128, 0)
            nanoseconds = int(raw.split(None, 1)[0])
        except (OSError, ValueError, IndexError):
            self.nanoseconds = None
            return None
        before, seconds = self.nanoseconds, now - self.at
        if before is not None and seconds <= 0.0:
            return None
        self.nanoseconds, self.at = nanoseconds, now
        if before is None:
            return None
        return min(100.0, max(0.0, (nanoseconds - before) / seconds / 1e7))

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class Group:
    """Processes that are sampled together; ``share`` of the reads a second are theirs."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._entries: dict[ProcessKey, _Entry] = {}
        self._order: list[_Entry] = []
        self._next = 0
        self._wait = 0
        self._samples: list[BusySample] = []

    def __len__(self) -> int:
        return len(self._order)

    @property
    def kept_open(self) -> int:
        return sum(entry.descriptor is not None for entry in self._order)

    def watch(self, keys: Sequence[ProcessKey], may_open: int) -> None:
        """From now on these, of which ``may_open`` may keep their file open."""
        if len(keys) == len(self._entries) and all(key in self._entries for key in keys):
            return
        for key in self._entries.keys() - set(keys):
            self._entries.pop(key).close()
        may_open -= self.kept_open
        for key in keys:
            if key not in self._entries:
                self._entries[key] = _Entry(key, self._proc, keep_open=may_open > 0)
                may_open -= 1
        self._order = [self._entries[key] for key in keys]
        self._next = 0

    def sample(self, now: float, unix: float, reads_per_second: float) -> int:
        """Read those whose turn it is; how many that were."""
        if not self._order:
            return 0
        if self._wait > 0:
            self._wait -= 1
            return 0
        a_time = max(1.0, reads_per_second * PERIOD_SECONDS)
        periods = min(SLOWEST_PERIODS, -(-len(self._order) // int(a_time)))
        self._wait = periods - 1
        chosen = self._turn(int(a_time) * periods)
        shares = [share for entry in chosen if (share := entry.percent(now)) is not None]
        if shares:
            self._samples.append(BusySample(unix, sum(shares) / len(shares)))
            del self._samples[:-SAMPLES_KEPT]
        return len(chosen)

    def take(self) -> tuple[BusySample, ...]:
        taken = tuple(self._samples)
        self._samples.clear()
        return taken

    def close(self) -> None:
        for entry in self._entries.values():
            entry.close()
        self._entries.clear()
        self._order = []
        self._samples.clear()

    def _turn(self, most: int) -> list[_Entry]:
        if len(self._order) <= most:
            return self._order
        start, self._next = self._next, (self._next + most) % len(self._order)
        return [self._order[(start + step) % len(self._order)] for step in range(most)]


class FineSampler:
    """Samples on a thread of its own from the first ``watch`` until ``close``."""

    def __init__(self, clock: Clock, proc: Path = procfs.PROC) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._mains = Group(proc)
        self._workers = Group(proc)
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self.reads = 0
        """Made so far."""

    def watch(self, mains: Iterable[ProcessKey], workers: Iterable[ProcessKey]) -> None:
        """Sample these from now on; nobody at all lets the thread end."""
        mains, workers = tuple(mains), tuple(workers)
        with self._lock:
            self._mains.watch(mains, DESCRIPTORS_MAX)
            self._workers.watch(workers, DESCRIPTORS_MAX - self._mains.kept_open)
        if mains or workers:
            self._start()
        else:
            self._stop()

    def take(self) -> tuple[tuple[BusySample, ...], tuple[BusySample, ...]]:
        """The samples of main threads and of workers since the last call, oldest first."""
        with self._lock:
            return self._mains.take(), self._workers.take()

    def sample_once(self) -> None:
        """One round, as the thread does it every ``PERIOD_SECONDS``."""
        with self._lock:
            now, unix = self._clock.monotonic(), self._clock.unix()
            mains, workers = len(self._mains), len(self._workers)
            # Main threads first: they are few, and every one of them matters.
            to_mains = READS_PER_SECOND if not workers else min(mains * 5, READS_PER_SECOND // 2)
            self.reads += self._mains.sample(now, unix, to_mains)
            self.reads += self._workers.sample(now, unix, READS_PER_SECOND - to_mains)

    def close(self) -> None:
        self._stop()
        with self._lock:
            self._mains.close()
            self._workers.close()

    def _start(self) -> None:
        if self._thread is None:
            self._end = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._end,), name="gpuwatch-fine", daemon=True
            )
            self._thread.start()

    def _stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end.set()
            thread.join()

    def _run(self, end: threading.Event) -> None:
        due = time.monotonic()
        while True:
            due = max(due + PERIOD_SECONDS, time.monotonic())
            if end.wait(max(0.0, due - time.monotonic())):
                return
            self.sample_once()
