"""What a measuring process and its workers use: CPU time, reads, memory. Linux's /proc.

Standard library only. The times of children that were waited for are in their parent's
(proc(5): cutime, cstime; the same holds for io), so workers that end in between are not lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICK = os.sysconf("SC_CLK_TCK")
SHM = "/dev/shm"
"""What PyTorch's workers hand batches over in."""


class Usage(NamedTuple):
    """Counters at one moment; ``None``: cannot be read."""

    cpu_seconds: float
    disk_read_bytes: int | None
    read_bytes: int | None
    machine_busy_seconds: float | None


def read_usage(pids: Iterable[int]) -> Usage:
    cpu = 0.0
    disk: int | None = 0
    read: int | None = 0
    for pid in pids:
        cpu += read_cpu(pid)
        its = read_io(pid)
        if its is None or disk is None or read is None:
            disk, read = None, None
        else:
            read += its[0]
            disk += its[1]
    return Usage(cpu, disk, read, read_machine())


def read_cpu(pid: int) -> float:
    try:
        raw = _read(f"/proc/{pid}/stat")
    except OSError:
        return 0.0
    fields = raw[raw.rindex(b")") + 2 :].split(None, 16)
    return sum(int(field) for field in fields[11:15]) / TICK


def read_io(pid: int) -> tuple[int, int] | None:
    """Bytes that system calls read, and bytes fetched from storage."""
    try:
        raw = _read(f"/proc/{pid}/io")
    except FileNotFoundError:
        return 0, 0
    except OSError:
        return None
    values = dict(line.split(b": ") for line in raw.splitlines())
    return int(values.get(b"rchar", 0)), int(values.get(b"read_bytes", 0))


def read_machine() -> float | None:
    try:
        first = _read("/proc/stat").split(b"\n", 1)[0].split()
    except OSError:
        return None
    # user, nice, system, (idle, iowait), irq, softirq; guests are in user already.
    return sum(int(field) for field in (*first[1:4], *first[6:8])) / TICK


def read_pss(pid: int) -> int | None:
    try:
        raw = _read(f"/proc/{pid}/smaps_rollup")
        return int(raw[raw.index(b"\nPss:") + 5 :].split(None, 1)[0]) * 1024
    except (OSError, ValueError):
        return None


def shm_used() -> int | None:
    try:
        status = os.statvfs(SHM)
    except OSError:
        return None
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def shm_size() -> int | None:
    try:
        status = os.statvfs(SHM)
    except OSError:
        return None
    return status.f_blocks * status.f_frsize


def threads() -> int:
    with contextlib.suppress(OSError):
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    return 1


def killed_for_memory() -> int:
    """How many processes the kernel has killed for memory on this machine (Linux 4.13)."""
    with contextlib.suppress(OSError, ValueError):
        for line in _read("/proc/vmstat").splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return 0


def available_memory() -> int | None:
    """What the kernel could give to files' pages; a container's limit is respected."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = _read("/proc/meminfo").splitlines()
        line = next(line for line in lines if line.startswith(b"MemAvailable:"))
        found.append(int(line.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        # Clean pages of files count as used and can be given back.
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        found.append(max(0, limit - used) + int(stat.get("file", 0)))
    return min(found) if found else None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - read within measurements
        return file.read()
