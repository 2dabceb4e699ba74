"""How busy the main threads and loader workers of one job are, several times between snapshots.

A starved job is busy by turns: its workers while the GPU waits, its main thread while they wait.
A mean over a second hides that.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuwatch.core.model import BusySample, ProcessKey
from gpuwatch.core.source import Clock
from gpuwatch.jobs.tracking.meters import Counters, parse_schedstat
from gpuwatch.sources.linux import procfs

PERIOD_SECONDS = 0.2
READS_PER_SECOND = 150
"""At about 10 µs a reading (a process of a busy job is seldom in the cache) 0.15% of a core. More
processes than that are represented by the first so many: one sample a second is the least."""
SAMPLES_KEPT = 600
"""Two minutes: a snapshot that comes later than that has a gap."""


class Group:
    """Processes that are sampled together."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._entries: dict[ProcessKey, Counters] = {}
        self._periods_left = 0
        self._samples: list[BusySample] = []

    def __len__(self) -> int:
        return len(self._entries)

    def watch(self, keys: Sequence[ProcessKey]) -> None:
        """From now on these; of too many, the first."""
        wanted = keys[:READS_PER_SECOND]
        for key in self._entries.keys() - set(wanted):
            self._entries.pop(key).close()
        for key in wanted:
            if key not in self._entries:
                path = f"{self._proc}/{key[0]}/schedstat"
                self._entries[key] = Counters(path, parse_schedstat, 100.0)

    def sample(self, now: float, unix: float, reads_per_second: float) -> int:
        """Read them, every so many calls that it is within their share of readings; how many that
        were."""
        if self._periods_left > 0:
            self._periods_left -= 1
            return 0
        most = max(1, int(reads_per_second))
        chosen = list(self._entries.values())[:most]
        at_once = max(1, int(reads_per_second * PERIOD_SECONDS))
        self._periods_left = -(-len(chosen) // at_once) - 1
        for counters in chosen:
            counters.read(now, keep_open=True)
        shares = [one.rates[0] for one in chosen if one.rates[0] is not None]
        if shares:
            self._samples.append(BusySample(unix, sum(shares) / len(shares)))
            del self._samples[:-SAMPLES_KEPT]
        return len(chosen)

    def take(self) -> tuple[BusySample, ...]:
        taken = tuple(self._samples)
        self._samples.clear()
        return taken

    def close(self) -> None:
        self.watch(())
        self._samples.clear()


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
            self._mains.watch(mains)
            self._workers.watch(workers)
        if not mains and not workers:
            self._stop()
        elif self._thread is None:
            self._end = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._end,), name="gpuwatch-fine", daemon=True
            )
            self._thread.start()

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
