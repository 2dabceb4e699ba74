"""What one process of a job uses between two looks, beyond what its stat line says.

``/proc/PID/schedstat``, ``status`` and the block delay in ``stat`` are those of the main thread
alone (proc(5), Documentation/scheduler/sched-stats); ``io`` and ``smaps_rollup`` of all threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from gpuwatch.sources.linux import procfs

MINIMUM_SECONDS = 0.05
PSS_SHARE = 0.002
"""Of one core: what adding up proportional memory may use, all processes together. The kernel
walks the page tables for it: about 5 ms for a PyTorch process, 10 ms a resident GiB."""
PSS_SHARE_APART = 0.0005
"""While nobody is attached to a job."""
PSS_FIRST_SECONDS = 0.03
"""What may be used at once in the beginning, so that a single look at a small job is whole."""
PSS_LONGEST_SECONDS = 0.2
"""A process for which one reading would take longer is left out: it would hold up the rest."""
PSS_SECONDS = 10.0
"""Memory moves slowly: no process is read more often."""

_GIB = 1 << 30
_FIRST_GUESS_SECONDS_PER_GIB = 0.012


def parse_schedstat(raw: bytes) -> tuple[int, int]:
    """Nanoseconds on a core, and nanoseconds runnable and waiting for one. Raises
    ``ValueError``."""
    running, waiting, _ = raw.split(None, 2)
    return int(running), int(waiting)


def parse_io(raw: bytes) -> tuple[int, int]:
    """Bytes read from and written to storage. Raises ``ValueError``."""
    # "cancelled_write_bytes" stands after both.
    reads = raw.index(b"\nread_bytes: ") + 13
    writes = raw.index(b"\nwrite_bytes: ", reads) + 14
    return int(raw[reads : raw.index(b"\n", reads)]), int(raw[writes : raw.index(b"\n", writes)])


def parse_switches(raw: bytes) -> tuple[int, int]:
    """Voluntary and involuntary context switches. Raises ``ValueError``."""
    at = raw.index(b"\nvoluntary_ctxt_switches:")
    fields = raw[at:].split(None, 4)
    return int(fields[1]), int(fields[3])


def parse_block_ticks(raw: bytes) -> int:
    """``delayacct_blkio_ticks`` of a stat line. Raises ``ValueError``."""
    fields = raw[raw.rindex(b")") + 2 :].split(None, 40)
    if len(fields) < 40:
        raise ValueError("this kernel does not count the delay")
    return int(fields[39])


def parse_pss(raw: bytes) -> int:
    """``Pss`` of ``smaps_rollup``, in bytes. Raises ``ValueError``."""
    return int(raw[raw.index(b"\nPss:") + 5 :].split(None, 1)[0]) * 1024


def accounts_for_disk_wait(proc: Path = procfs.PROC) -> bool:
    """Whether the kernel adds up how long each task waits for block devices (5.14 and later:
    off unless asked for, Documentation/accounting/delay-accounting)."""
    try:
        return procfs.read_once(proc / "sys" / "kernel" / "task_delayacct").strip() == b"1"
    except OSError:
        return False


class Rates(NamedTuple):
    """As ``JobMember`` has them."""

    main_thread_cpu_percent: float | None = None
    run_queue_wait_percent: float | None = None
    disk_wait_percent: float | None = None
    read_bytes_per_second: float | None = None
    write_bytes_per_second: float | None = None
    voluntary_switches_per_second: float | None = None
    involuntary_switches_per_second: float | None = None


NO_RATES = Rates()


class _Counters:
    """Two counters of one file, and how fast they rise."""

    __slots__ = ("_at", "_before", "_descriptor", "_path", "rates")

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._at = 0.0
        self._before: tuple[int, int] | None = None
        self.rates: tuple[float | None, float | None] = (None, None)

    def read(self, *, keep_open: bool) -> bytes:
        """Raises ``OSError``."""
        if not keep_open:
            return procfs.read_once(self._path)
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._descriptor, 4096, 0)

    def take(self, now: float, values: tuple[int, int]) -> None:
        before, seconds = self._before, now - self._at
        if before is not None:
            if seconds < MINIMUM_SECONDS:
                return
            self.rates = (
                max(0, values[0] - before[0]) / seconds,
                max(0, values[1] - before[1]) / seconds,
            )
        self._at, self._before = now, values

    def rested(self, until: float) -> None:
        self._at = max(self._at, until)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class MemberMeter:
    """Reads one process again and again. ``refused`` becomes true where its user does not let
    gpuwatch see what it reads and writes."""

    __slots__ = (
        "_delay",
        "_io",
        "_scheduling",
        "_switches",
        "keeps_open",
        "proportional_at",
        "proportional_bytes",
        "rates",
        "refused",
    )

    def __init__(self, pid: int, proc: Path = procfs.PROC, *, keep_open: bool = False) -> None:
        folder = f"{proc}/{pid}"
        self._scheduling = _Counters(f"{folder}/schedstat")
        self._io = _Counters(f"{folder}/io")
        self._switches = _Counters(f"{folder}/status")
        self._delay = _Counters(f"{folder}/stat")
        self.rates = NO_RATES
        self.keeps_open = keep_open
        self.refused = False
        self.proportional_bytes: int | None = None
        self.proportional_at: float | None = None

    def update(self, now: float, *, switches: bool, disk_wait: bool) -> Rates:
        """Read what is cheap, and the dearer ``switches`` and ``disk_wait`` if told so. Never
        raises: what cannot be read is ``None``."""
        running, waiting = self._read(now, self._scheduling, parse_schedstat)
        reads, writes = (None, None) if self.refused else self._read(now, self._io, parse_io)
        voluntary, involuntary = self._switches.rates
        if switches:
            voluntary, involuntary = self._read(now, self._switches, parse_switches)
        delay = self._delay.rates[0]
        if disk_wait:
            delay, _ = self._read(now, self._delay, _delay_pair)
        rates = Rates(
            None if running is None else min(100.0, running / 1e7),
            None if waiting is None else min(100.0, waiting / 1e7),
            None if delay is None else min(100.0, 100.0 * delay / procfs.TICKS_PER_SECOND),
            reads,
            writes,
            voluntary,
            involuntary,
        )
        if rates != self.rates:
            self.rates = rates
        return self.rates

    def rested(self, until: float) -> None:
        """It did nothing up to then: the next rates are over the time after it."""
        for counters in (self._scheduling, self._io, self._switches, self._delay):
            counters.rested(until)

    def close(self) -> None:
        for counters in (self._scheduling, self._io):
            counters.close()

    def _read(
        self, now: float, counters: _Counters, parse: Callable[[bytes], tuple[int, int]]
    ) -> tuple[float | None, float | None]:
        keep = self.keeps_open and (counters is self._scheduling or counters is self._io)
        try:
            counters.take(now, parse(counters.read(keep_open=keep)))
        except PermissionError:
            self.refused = self.refused or counters is self._io
            counters.rates = (None, None)
        except (OSError, ValueError):
            counters.rates = (None, None)
        return counters.rates


def _delay_pair(raw: bytes) -> tuple[int, int]:
    return parse_block_ticks(raw), 0


class MemoryShare:
    """Reads proportional memory within its budget of time: the process that waited longest is
    next."""

    def __init__(self, proc: Path = procfs.PROC, first_seconds: float = PSS_FIRST_SECONDS) -> None:
        self._proc = proc
        self._balance_seconds = first_seconds
        self._at: float | None = None
        self._seconds_per_gib = _FIRST_GUESS_SECONDS_PER_GIB

    def spend(
        self,
        now: float,
        members: Callable[[], Iterable[tuple[int, int | None, MemberMeter]]],
        share: float = PSS_SHARE,
    ) -> None:
        """``members`` gives PID, resident bytes and meter of each; the meters take what was
        read."""
        if self._at is not None:
            # What is not needed is not saved up.
            self._balance_seconds = min(0.0, self._balance_seconds + (now - self._at) * share)
        self._at = now
        if self._balance_seconds < 0.0:
            return
        waiting = [
            (meter.proportional_at or float("-inf"), pid, resident, meter)
            for pid, resident, meter in members()
            if not meter.refused
            and (meter.proportional_at is None or now - meter.proportional_at >= PSS_SECONDS)
        ]
        for _, pid, resident, meter in sorted(waiting, key=lambda entry: entry[:2]):
            meter.proportional_at = now
            if (resident or 0) / _GIB * self._seconds_per_gib > PSS_LONGEST_SECONDS:
                meter.proportional_bytes = None
                continue
            self._read(pid, resident, meter)
            if self._balance_seconds < 0.0:
                return

    def _read(self, pid: int, resident: int | None, meter: MemberMeter) -> None:
        started = time.perf_counter()
        try:
            raw = procfs.read_once(f"{self._proc}/{pid}/smaps_rollup", 4096)
            meter.proportional_bytes = parse_pss(raw)
        except (OSError, ValueError):
            meter.proportional_bytes = None
        seconds = time.perf_counter() - started
        self._balance_seconds -= seconds
        if resident is not None and resident > _GIB // 4:
            self._seconds_per_gib += 0.2 * (seconds * _GIB / resident - self._seconds_per_gib)
