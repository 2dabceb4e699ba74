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
from gpuwatch.jobs.tracking.meters import parse_schedstat
from gpuwatch.sources.linux import procfs

PERIOD_SECONDS = 0.2
READS_PER_SECOND = 150
"""At about 10 µs a reading (a process of a busy job is seldom in the cache) 0.15% of a core. More
processes than that are represented by the first so many: one sample a second is the least."""
SAMPLES_KEPT = 600
"""Two minutes: a snapshot that comes later than that has a gap."""


class _Watched:
    """The main thread of a process; the ``whole`` process by the kernel's clock of it, which costs
    a tenth of reading a file."""

    __slots__ = ("_at", "_before", "_file", "_pid")

    def __init__(self, pid: int, proc: Path, whole: bool) -> None:
        self._pid = pid
        self._file = None if whole else procfs.KernelFile(f"{proc}/{pid}/schedstat")
        self._at = 0.0
        self._before: float | None = None

    def percent(self, now: float) -> float | None:
        """Of one core, since the call before; ``None`` where it cannot be read."""
        before, seconds, used = self._before, now - self._at, self._read()
        self._before, self._at = used, now
        if before is None or used is None or seconds <= 0.0:
            return None
        return min(100.0, max(0.0, used - before) / seconds)

    def _read(self) -> float | None:
        """Percent seconds so far."""
        if self._file is None:
            used = procfs.cpu_clock(self._pid)
            return None if used is None else 100.0 * used
        try:
            return parse_schedstat(self._file.read())[0]
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Group:
    """Processes that are sampled together: their main threads, or ``whole`` where that can be."""

    def __init__(self, proc: Path, *, whole: bool = False) -> None:
        self._proc = proc
        self._whole = whole and procfs.has_clocks(proc)
        self._entries: dict[ProcessKey, _Watched] = {}
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
                self._entries[key] = _Watched(key[0], self._proc, self._whole)

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
        shares = [share for one in chosen if (share := one.percent(now)) is not None]
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
        self._workers = Group(proc, whole=True)
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
