"""Sample how busy the main threads and loader workers of one job are, more often than snapshots.

A starved job is busy by turns: its workers while the GPU waits, its main thread while they wait.
A mean over a second hides that, unless it says that they did nothing, or worked, all the while.
"""

import math
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuwatch.core.model import BusySample, ProcessKey
from gpuwatch.core.source import Clock
from gpuwatch.jobs.tracking.member import parse_schedstat
from gpuwatch.sources.linux import procfs

PERIOD_SECONDS = 0.2
READS_PER_SECOND = 150
"""At about 10 µs a reading (a process of a busy job is seldom in the cache) 0.15% of a core. More
processes than that are represented by the first so many: one sample a second is the least."""
EARLY_SECONDS, LATE_SECONDS = 0.05, 0.01
"""A sample that is taken so much before its time is as good, and spares a wake-up."""
SWING_PERCENT_SECONDS = 2.0
"""A sample in which they used less of a core, or left less of it, can hide no turn that matters:
one with each snapshot is fine enough."""
RESTS_SECONDS = 10.0
"""After the last that could: longer than most turns take."""
SAMPLES_KEPT = 600
"""Two minutes: a snapshot that comes later than that has a gap."""


class _SampledProcess:
    """The main thread of a process; the ``whole`` process by the kernel's clock of it, which costs
    a tenth of reading a file. While that stands still, its main thread does."""

    __slots__ = ("_at", "_before", "_clock", "_has_clock", "_path", "_pid", "_whole")

    def __init__(self, pid: int, proc: Path, whole: bool) -> None:
        self._pid = pid
        self._has_clock = procfs.has_clocks(proc)
        self._whole = whole and self._has_clock
        self._path = f"{proc}/{pid}/schedstat"
        self._at = 0.0
        self._before: float | None = None
        self._clock: float | None = None

    def percent(self, now: float) -> float | None:
        """Return percent of one core, since the call before; ``None`` where it cannot be read."""
        before, seconds, used = self._before, now - self._at, self._read()
        self._before, self._at = used, now
        if before is None or used is None or seconds <= 0.0:
            return None
        return min(100.0, max(0.0, used - before) / seconds)

    def _read(self) -> float | None:
        """Return percent seconds so far."""
        before, self._clock = self._clock, procfs.cpu_clock(self._pid) if self._has_clock else None
        if self._whole:
            return None if self._clock is None else 100.0 * self._clock
        if self._clock is not None and self._clock == before:
            return self._before
        try:
            return parse_schedstat(procfs.read_once(self._path))[0]
        except (OSError, ValueError):
            return None


class Group:
    """Processes that are sampled together: their main threads, or ``whole`` where that can be."""

    def __init__(self, proc: Path, *, whole: bool = False) -> None:
        self._proc = proc
        self._whole = whole
        self._entries: dict[ProcessKey, _SampledProcess] = {}
        self._at = self._swung_at = -math.inf
        self.due = -math.inf
        self._samples: list[BusySample] = []

    def __len__(self) -> int:
        return len(self._entries)

    def watch(self, keys: Sequence[ProcessKey]) -> None:
        """Sample these from now on; of too many, the first."""
        wanted = keys[:READS_PER_SECOND]
        for key in self._entries.keys() - set(wanted):
            del self._entries[key]
        for key in wanted:
            if key not in self._entries:
                self._entries[key] = _SampledProcess(key[0], self._proc, self._whole)

    def swings(self, now: float) -> bool:
        """True if it may be busy by turns."""
        return bool(self._entries) and now - self._swung_at < RESTS_SECONDS

    def sample(self, now: float, unix: float, reads_per_second: float) -> int:
        """Read them, if that is within their share of readings; how many that were."""
        if now < self.due - EARLY_SECONDS:
            return 0
        chosen = list(self._entries.values())[: max(1, int(reads_per_second))]
        at_once = max(1, int(reads_per_second * PERIOD_SECONDS))
        # Whole periods, so that one waking serves both groups.
        self.due = now + max(1, -(-len(chosen) // at_once)) * PERIOD_SECONDS
        shares = [share for one in chosen if (share := one.percent(now)) is not None]
        if shares:
            percent = sum(shares) / len(shares)
            self._samples.append(BusySample(unix, percent))
            del self._samples[:-SAMPLES_KEPT]
            if min(percent, 100.0 - percent) * max(1.0, now - self._at) > SWING_PERCENT_SECONDS:
                self._swung_at = now
        self._at = now
        return len(chosen)

    def samples(self) -> tuple[BusySample, ...]:
        taken = tuple(self._samples)
        self._samples.clear()
        return taken


class FineSampler:
    """Samples with every call of ``samples``; between them, on a thread of its own, while the
    processes may be busy by turns."""

    def __init__(self, clock: Clock, proc: Path = procfs.PROC) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._mains = Group(proc)
        self._workers = Group(proc, whole=True)
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    def watch(self, mains: Iterable[ProcessKey], workers: Iterable[ProcessKey]) -> None:
        """Sample these from now on; nobody at all lets the thread end."""
        with self._lock:
            self._mains.watch(tuple(mains))
            self._workers.watch(tuple(workers))
        if not len(self._mains) + len(self._workers):
            self.close()

    def samples(self) -> tuple[tuple[BusySample, ...], tuple[BusySample, ...]]:
        """Sample now, and return the samples of main threads and of workers since the last call,
        oldest first."""
        if self._sample(everybody=True) is None:
            self.close()
        elif self._thread is None:
            self._end = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._end,), name="gpuwatch-fine", daemon=True
            )
            self._thread.start()
        with self._lock:
            return self._mains.samples(), self._workers.samples()

    def _sample(self, *, everybody: bool) -> float | None:
        """Sample those whose turn it is, of all or of those that may be busy by turns; seconds to
        the next turn of these, ``None`` while there are none."""
        with self._lock:
            now, unix = self._clock.monotonic(), self._clock.unix()
            mains, workers = len(self._mains), len(self._workers)
            # Main threads first: they are few, and every one of them matters.
            to_mains = READS_PER_SECOND if not workers else min(mains * 5, READS_PER_SECOND // 2)
            shares = (self._mains, to_mains), (self._workers, READS_PER_SECOND - to_mains)
            for group, reads_per_second in shares:
                if everybody or group.swings(now):
                    group.sample(now, unix, reads_per_second)
            dues = [group.due for group, _ in shares if group.swings(now)]
            return min(dues) - now if dues else None

    def close(self) -> None:
        """End the thread; a later call of ``samples`` starts another."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end.set()
            thread.join()

    def _run(self, end: threading.Event) -> None:
        wait: float | None = None
        # A little late, so that a snapshot at that time samples first, and spares a wake-up.
        while not end.wait(LATE_SECONDS + (PERIOD_SECONDS if wait is None else max(0.0, wait))):
            wait = self._sample(everybody=False)
