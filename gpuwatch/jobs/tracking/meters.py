"""Usage of one process of a job between two looks, beyond what its stat line says.

``/proc/PID/schedstat``, ``status`` and the block delay in ``stat`` are those of the main thread
alone (proc(5), Documentation/scheduler/sched-stats); ``io`` and ``smaps_rollup`` of all threads.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
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
"""This much may be used at once in the beginning, so that a single look at a small job is whole."""
PSS_LONGEST_SECONDS = 0.2
"""A process for which one reading would take longer is left out: it would hold up the rest."""
PSS_SECONDS = 10.0
"""Memory moves slowly: no process is read more often."""

_GIB = 1 << 30
_FIRST_GUESS_SECONDS_PER_GIB = 0.012

Pair = tuple[float, float]


def parse_schedstat(raw: bytes) -> Pair:
    """Percent seconds (of a core): running, and runnable but waiting for one."""
    running, waiting, _ = raw.split(None, 2)
    return int(running) / 1e7, int(waiting) / 1e7


def parse_io(raw: bytes) -> Pair:
    """Bytes read from and written to storage."""
    # "cancelled_write_bytes" stands after both.
    reads = raw.index(b"\nread_bytes: ") + 13
    writes = raw.index(b"\nwrite_bytes: ", reads) + 14
    return int(raw[reads : raw.index(b"\n", reads)]), int(raw[writes : raw.index(b"\n", writes)])


def parse_switches(raw: bytes) -> Pair:
    """Voluntary and involuntary context switches."""
    fields = raw[raw.index(b"\nvoluntary_ctxt_switches:") :].split(None, 4)
    return int(fields[1]), int(fields[3])


def parse_block_delay(raw: bytes) -> Pair:
    """Percent seconds of ``delayacct_blkio_ticks`` in a stat line."""
    fields = raw[raw.rindex(b")") + 2 :].split(None, 40)
    if len(fields) < 40:
        raise ValueError("this kernel does not count the delay")
    return 100.0 * int(fields[39]) / procfs.TICKS_PER_SECOND, 0.0


def parse_waited_ticks(raw: bytes) -> tuple[int, int]:
    """Clock ticks of a process itself, and of its children that have ended and were waited for
    (with theirs), in a stat line."""
    user, system, below_user, below_system = map(
        int, raw[raw.rindex(b")") + 2 :].split(None, 15)[11:15]
    )
    return user + system, below_user + below_system


def parse_pss(raw: bytes) -> int:
    """``Pss`` of ``smaps_rollup``, in bytes. Raises ``ValueError``."""
    return int(raw[raw.index(b"\nPss:") + 5 :].split(None, 1)[0]) * 1024


def accounts_for_disk_wait(proc: Path = procfs.PROC) -> bool:
    """True if the kernel adds up how long each task waits for block devices (5.14 and later:
    off unless asked for, Documentation/accounting/delay-accounting)."""
    return procfs.read_if_possible(proc / "sys/kernel/task_delayacct").strip() == b"1"


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
_AT_REST = (0.0, 0.0)


class Counters:
    """Two counters of one file, and how fast they rise a second; each rate at most ``most``.
    ``parse`` raises ``ValueError`` for what is no such file."""

    __slots__ = ("_at", "_before", "_file", "_most", "_parse", "path", "rates")

    def __init__(
        self, path: str, parse: Callable[[bytes], Pair], most: float = float("inf")
    ) -> None:
        self.path = path
        self._parse = parse
        self._most = most
        self._file: procfs.KernelFile | None = None
        self._at = 0.0
        self._before: Pair | None = None
        self.rates: tuple[float | None, float | None] = (None, None)

    def read(self, now: float, *, keep_open: bool = False) -> bool:
        """Read them if some time has passed; whether that was refused. Without rates where they
        cannot be read."""
        try:
            if keep_open:
                if self._file is None:
                    self._file = procfs.KernelFile(self.path)
                values = self._parse(self._file.read())
            else:
                values = self._parse(procfs.read_once(self.path))
        except (OSError, ValueError) as error:
            self._before, self.rates = None, (None, None)
            return isinstance(error, PermissionError)
        before, seconds = self._before, now - self._at
        if before is not None and seconds < MINIMUM_SECONDS:
            return False
        if values == before:
            self.rates = _AT_REST
        elif before is not None:
            self.rates = (
                min(self._most, max(0.0, (values[0] - before[0]) / seconds)),
                min(self._most, max(0.0, (values[1] - before[1]) / seconds)),
            )
        self._at, self._before = now, values
        return False

    def rested(self, until: float) -> None:
        self._at = max(self._at, until)
        if self._before is not None:
            self.rates = _AT_REST

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class ChildrenMeter:
    """CPU of all processes below one. What a child used moves to its parent's counters when it has
    ended, so that the sum misses none, however short it lives."""

    def __init__(self, pid: int, proc: Path = procfs.PROC) -> None:
        self._pid = pid
        self._proc = proc
        self._before: tuple[float, int] | None = None

    def update(self, now: float, below: Sequence[int], *, ran: bool) -> float | None:
        """Percent of one core since the call before; ``below``: the PIDs of those there now.
        Without any, a parent that has not ``ran`` since has not waited for one either."""
        if not (ran or below) and self._before is not None:
            self._before = (now, self._before[1])
            return 0.0
        try:
            ticks = self._read(self._pid)[1]
        except (OSError, ValueError):
            self._before = None
            return None
        for pid in below:
            # One that has just ended is in its parent's, now or with the next look.
            with contextlib.suppress(OSError, ValueError):
                ticks += sum(self._read(pid))
        before, self._before = self._before, (now, ticks)
        if before is None or now - before[0] < MINIMUM_SECONDS:
            return None
        used = max(0, ticks - before[1]) / procfs.TICKS_PER_SECOND
        return 100.0 * used / (now - before[0])

    def _read(self, pid: int) -> tuple[int, int]:
        return parse_waited_ticks(procfs.read_once(f"{self._proc}/{pid}/stat", 1024))


class MemberMeter:
    """Reads one process again and again. ``refused`` becomes true where its user does not let
    gpuwatch see what it reads and writes."""

    def __init__(self, pid: int, proc: Path = procfs.PROC, *, keep_open: bool = False) -> None:
        folder = f"{proc}/{pid}"
        self._scheduling = Counters(f"{folder}/schedstat", parse_schedstat, 100.0)
        self._io = Counters(f"{folder}/io", parse_io)
        self._switches = Counters(f"{folder}/status", parse_switches)
        self._delay = Counters(f"{folder}/stat", parse_block_delay, 100.0)
        self.rates = NO_RATES
        self._found: tuple[object, ...] = ()
        self.keeps_open = keep_open
        self.refused = False
        self.proportional_bytes: int | None = None
        self.proportional_at: float | None = None

    def update(self, now: float, *, switches: bool, disk_wait: bool) -> Rates:
        """Read what is cheap, and the dearer ``switches`` and ``disk_wait`` if asked to. Never
        raises: what cannot be read is ``None``."""
        self._scheduling.read(now, keep_open=self.keeps_open)
        self.refused = self.refused or self._io.read(now, keep_open=self.keeps_open)
        if switches:
            self._switches.read(now)
        if disk_wait:
            self._delay.read(now)
        return self._found_rates()

    def _found_rates(self) -> Rates:
        found = self._scheduling.rates, self._delay.rates, self._io.rates, self._switches.rates
        if found != self._found:
            self._found = found
            cpu, delay, io, switch = found
            self.rates = Rates(*cpu, delay[0], *io, *switch)
        return self.rates

    def rested(self, until: float) -> Rates:
        """It did nothing up to then: the next rates are over the time after it."""
        for counters in (self._scheduling, self._io, self._switches, self._delay):
            counters.rested(until)
        return self._found_rates()

    def close(self) -> None:
        self._scheduling.close()
        self._io.close()


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
            (meter.proportional_at or float("-inf"), pid, resident or 0, meter)
            for pid, resident, meter in members()
            if not meter.refused
            and (meter.proportional_at is None or now - meter.proportional_at >= PSS_SECONDS)
        ]
        for _, pid, resident, meter in sorted(waiting, key=lambda entry: entry[:2]):
            meter.proportional_at, meter.proportional_bytes = now, None
            if resident / _GIB * self._seconds_per_gib > PSS_LONGEST_SECONDS:
                continue
            meter.proportional_bytes = self._read(pid, resident)
            if self._balance_seconds < 0.0:
                return

    def _read(self, pid: int, resident: int) -> int | None:
        started = time.perf_counter()
        try:
            found = parse_pss(procfs.read_once(f"{self._proc}/{pid}/smaps_rollup", 4096))
        except (OSError, ValueError):
            found = None
        seconds = time.perf_counter() - started
        self._balance_seconds -= seconds
        if resident > _GIB // 4:
            self._seconds_per_gib += 0.2 * (seconds * _GIB / resident - self._seconds_per_gib)
        return found
