"""CPU time, reads and memory of a measuring process and its workers; and the memory there is.

The times of children that were waited for are in their parent's (proc(5): cutime, cstime; the
same holds for io), so workers that end in between are not lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import psutil

from gpuwatch.sources.linux import cgroup, procfs
from gpuwatch.tuning.failures import SHM

COLD_BYTES = 2**20
COLD_SHARE = 0.05
"""Of what is read: more from the disk than this, and it is called cold."""


class Usage(NamedTuple):
    """Counters at one moment, or their difference; ``None``: cannot be read."""

    cpu_seconds: float
    disk_read_bytes: int | None
    read_bytes: int | None
    """By system calls."""
    machine_busy_seconds: float

    def since(self, before: Usage) -> Usage:
        pairs = zip(self, before, strict=True)
        return Usage(*(None if a is None or b is None else max(0, a - b) for a, b in pairs))  # type: ignore[arg-type]

    def plus(self, other: Usage) -> Usage:
        pairs = zip(self, other, strict=True)
        return Usage(*(None if a is None or b is None else a + b for a, b in pairs))  # type: ignore[arg-type]

    @property
    def is_cold(self) -> bool:
        """True if a good part of what was read came from the disk."""
        disk = self.disk_read_bytes
        if disk is None or disk < COLD_BYTES:
            return False
        return disk >= COLD_SHARE * max(self.read_bytes or 0, disk)


NOTHING = Usage(0.0, 0, 0, 0.0)


@dataclass(slots=True)
class Window:
    """Stretches of a measurement, added up. ``seconds`` is what its batches took to be made,
    ``looked_seconds`` the time on the clock that ``used`` is of."""

    samples: int = 0
    batches: int = 0
    seconds: float = 0.0
    looked_seconds: float = 0.0
    waited_seconds: float = 0.0
    used: Usage = NOTHING
    begun: float = 0.0
    before: Usage = NOTHING

    def begin(self, pids: Iterable[int]) -> None:
        self.begun = perf_counter()
        self.before = read_usage(pids)

    def add(
        self, samples: int, batches: int, seconds: float, wait_share: float, pids: Iterable[int]
    ) -> None:
        self.samples += samples
        self.batches += batches
        self.seconds += seconds
        self.waited_seconds += min(1.0, wait_share) * seconds
        self.used = self.used.plus(read_usage(pids).since(self.before))
        self.looked_seconds += perf_counter() - self.begun

    @property
    def wait_share(self) -> float:
        return min(1.0, self.waited_seconds / self.seconds)

    @property
    def cores_used(self) -> float:
        return self.used.cpu_seconds / self.looked_seconds

    @property
    def other_cores_used(self) -> float:
        return max(0.0, self.used.machine_busy_seconds / self.looked_seconds - self.cores_used)


def read_usage(pids: Iterable[int]) -> Usage:
    machine = psutil.cpu_times()
    busy = machine.user + machine.nice + machine.system + machine.irq + machine.softirq
    total = Usage(0.0, 0, 0, busy)
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            # Without the wait for disks, which is no work.
            cpu = sum(process.cpu_times()[:4])
            disk = read = None
            with contextlib.suppress(psutil.AccessDenied, NotImplementedError):
                counters = process.io_counters()
                disk, read = counters.read_bytes, counters.read_chars
            total = total.plus(Usage(cpu, disk, read, 0.0))
    return total


def read_pss(pid: int) -> int | None:
    """Memory of a process, what it shares with others in parts."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_full_info().pss)
    return None


def shm_used() -> int | None:
    with contextlib.suppress(OSError):
        return int(psutil.disk_usage(SHM).used)
    return None


def available_memory() -> int:
    """Bytes that a new process could take: the kernel's estimate, or what the tightest memory
    cgroup leaves."""
    free = int(psutil.virtual_memory().available)
    return min([free, *(limit - used for limit, used in _memory_cgroups())])


def total_memory() -> int:
    """Bytes of memory of this host or of the tightest memory cgroup."""
    whole = int(psutil.virtual_memory().total)
    return min([whole, *(limit for limit, _ in _memory_cgroups())])


def _memory_cgroups() -> list[tuple[int, int]]:
    """Limit and use, in bytes, of every cgroup v2 folder that binds this process."""
    groups = os.fsdecode(procfs.read_if_possible("/proc/self/cgroup"))
    mounts = tuple(one for one in cgroup.mounts_of(Path("/proc/self")) if one.version == 2)
    folders = cgroup.quota_folders(groups, mounts)
    return [found for folder in folders if (found := folder_memory(folder)) is not None]


def folder_memory(folder: Path) -> tuple[int, int] | None:
    """Limit and use of one cgroup v2 folder, the file cache that it would give up taken off the
    use; ``None`` without a limit."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return int(limit), max(0, used - int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
