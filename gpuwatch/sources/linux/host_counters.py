"""Pure parsing of the kernel's machine-wide counters (proc(5)); all of it works on literal text."""

import mmap
import re
from collections.abc import Container, Mapping
from typing import NamedTuple

SECTOR_BYTES = 512
"""The unit of /proc/diskstats whatever the disk's own block size (block/stat documentation)."""


class CpuTimes(NamedTuple):
    """Ticks since boot of one core, or of all together."""

    busy: int
    idle: int
    iowait: int


def parse_cpu_times(text: bytes) -> dict[bytes, CpuTimes]:
    """The ``cpu`` lines of ``/proc/stat`` in their order: ``cpu`` (all), then each online core.

    Guest time is left out because the kernel counts it in user time already. Stolen time is
    busy: the core was wanted and not available.
    """
    times = {}
    for line in text.splitlines():
        if not line.startswith(b"cpu"):
            break
        name, *rest = line.split(None, 9)
        ticks = [int(value) for value in rest[:8]]
        iowait = ticks[4] if len(ticks) > 4 else 0
        times[name] = CpuTimes(sum(ticks) - ticks[3] - iowait, ticks[3], iowait)
    return times


def cpu_percents(before: CpuTimes | None, now: CpuTimes) -> tuple[float | None, float | None]:
    """Busy and waiting for disks between two samples; ``None`` without the one before, and when
    no tick passed.

    The kernel's idle and iowait counters can step back a little (proc_stat(5)): a negative
    difference counts as none.
    """
    busy, idle, iowait = [max(0, new - old) for new, old in zip(now, before or now, strict=True)]
    total = busy + idle + iowait
    return (100.0 * busy / total, 100.0 * iowait / total) if total else (None, None)


_MEMORY_LINE = re.compile(
    rb"^(MemTotal|MemFree|MemAvailable|Buffers|Cached|SwapTotal|SwapFree):\s+(\d+)", re.MULTILINE
)


def parse_memory(text: bytes) -> dict[str, int | None]:
    """``/proc/meminfo`` as fields of ``Host``. Used is total less available. Kernels before 3.14
    have no ``MemAvailable``: free, buffers and cache stand in for it."""
    found = {name: int(value) * 1024 for name, value in _MEMORY_LINE.findall(text)}
    total, swap = found.get(b"MemTotal"), found.get(b"SwapTotal")
    available = found.get(b"MemAvailable")
    if available is None and b"MemFree" in found:
        available = found[b"MemFree"] + found.get(b"Buffers", 0) + found.get(b"Cached", 0)
    return {
        "memory_total_bytes": total,
        "memory_used_bytes": _less(total, available),
        "swap_total_bytes": swap,
        "swap_used_bytes": _less(swap, found.get(b"SwapFree")),
    }


def _less(total: int | None, free: int | None) -> int | None:
    return None if total is None or free is None else max(0, total - free)


_PRESSURE_LINE = re.compile(rb"^(some|full) .*total=(\d+)", re.MULTILINE)


def parse_pressure(text: bytes) -> dict[str, int]:
    """One of ``/proc/pressure/*`` (Documentation/accounting/psi.rst): microseconds since boot in
    which some (or all: ``full``) runnable tasks waited."""
    return {name.decode(): int(total) for name, total in _PRESSURE_LINE.findall(text)}


def pressure_percent(before: int | None, now: int | None, seconds: float) -> float | None:
    """Share of the time between two samples of a pressure total, 0-100."""
    if before is None or now is None or seconds <= 0:
        return None
    # The counter and our clock are read apart, so a full stall can come out a hair above 100.
    return min(100.0, max(0, now - before) / seconds / 10_000)


def parse_load(text: bytes) -> dict[str, float]:
    """``/proc/loadavg`` as fields of ``Host``."""
    names = ("load_average_1_minute", "load_average_5_minutes", "load_average_15_minutes")
    return {name: float(value) for name, value in zip(names, text.split(None, 3)[:3], strict=True)}


def parse_disks(text: bytes, whole_disks: Container[bytes]) -> dict[bytes, tuple[int, int]]:
    """``/proc/diskstats``: bytes read and written since boot, of ``whole_disks`` only."""
    disks = {}
    for line in text.splitlines():
        fields = line.split(None, 10)
        if len(fields) > 9 and fields[2] in whole_disks:
            disks[fields[2]] = (int(fields[5]) * SECTOR_BYTES, int(fields[9]) * SECTOR_BYTES)
    return disks


def parse_network(text: bytes, counted: Container[bytes] | None) -> dict[bytes, tuple[int, int]]:
    """``/proc/net/dev``: bytes received and sent since boot, of the ``counted`` interfaces; of all
    but the loopback where these are not known."""
    interfaces = {}
    for line in text.splitlines()[2:]:
        # The name may touch the first number ("eth0:123"), and an alias may hold a colon.
        name, _, counters = line.rpartition(b":")
        fields, name = counters.split(), name.strip()
        if len(fields) > 8 and (name != b"lo" if counted is None else name in counted):
            interfaces[name] = (int(fields[0]), int(fields[8]))
    return interfaces


_REFAULTS = re.compile(rb"^workingset_refault(?:_file)? (\d+)", re.MULTILINE)


def parse_refaults(text: bytes) -> dict[bytes, tuple[int, int]]:
    """``/proc/vmstat``: bytes of files since boot that came back to the page cache soon after they
    were dropped. Before Linux 5.9 the name was without "file"; none has both."""
    found = _REFAULTS.search(text)
    return {} if found is None else {b"file": (int(found[1]) * mmap.PAGESIZE, 0)}


def rates(
    before: Mapping[bytes, tuple[int, int]] | None,
    now: Mapping[bytes, tuple[int, int]] | None,
    seconds: float,
) -> tuple[float, float] | None:
    """The two counters' growth a second, summed over what is in both samples.

    A device that appears or goes, or whose counter was reset, adds nothing for that interval;
    ``None`` when the samples have no device in common.
    """
    if not before or not now or seconds <= 0:
        return None
    common = before.keys() & now.keys()
    if not common:
        return None
    first = sum(max(0, now[name][0] - before[name][0]) for name in common)
    second = sum(max(0, now[name][1] - before[name][1]) for name in common)
    return first / seconds, second / seconds
