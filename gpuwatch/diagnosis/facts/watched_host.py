"""The machine around the jobs, followed from snapshot to snapshot."""

from __future__ import annotations

from collections import deque
from operator import attrgetter

from gpuwatch.core.model import Host
from gpuwatch.diagnosis.facts.window import HostFacts
from gpuwatch.diagnosis.signals.running import BUCKET_SECONDS, Ledger, RunningMeans
from gpuwatch.diagnosis.signals.trend import Trend

_read = attrgetter(
    "cpu_percent",
    "cpu_iowait_percent",
    "load_average_1_minute",
    "pressure_cpu_some_percent",
    "pressure_io_some_percent",
    "pressure_io_full_percent",
    "pressure_memory_some_percent",
    "memory_used_bytes",
    "swap_used_bytes",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
)
READ, WRITTEN, CPU = range(3)
"""Positions in ``ledger``: bytes read, bytes written, CPU percent times seconds."""


class HostTrack:
    def __init__(self, keep_seconds: float, ledger_seconds: float) -> None:
        self.ledger = Ledger(3, ledger_seconds)
        self._keep = keep_seconds
        self._means = RunningMeans(11, keep_seconds)
        self._memory = Trend()
        self._swap: deque[tuple[float, int]] = deque()
        self._last: Host | None = None

    def push(self, host: Host, at: float, seconds: float) -> None:
        values = _read(host)
        self._means.add(at, values, seconds)
        self.ledger.add(at, (values[9], values[10], values[0]), seconds)
        self._memory.add(at, values[7])
        self._last = host
        swap, rows = host.swap_used_bytes, self._swap
        if swap is not None and (not rows or at >= rows[-1][0] + BUCKET_SECONDS):
            rows.append((at, swap))
            while len(rows) > 1 and rows[0][0] <= at - self._keep:
                rows.popleft()

    def facts(self, since: float) -> HostFacts:
        """Over the time after ``since``."""
        host = self._last
        if host is None:
            return HostFacts()
        mean = self._means.over(since)
        slope, slope_error = self._memory.slope() or (None, None)
        swap = [used for at, used in self._swap if at > since]
        growth = None
        if swap and host.swap_used_bytes is not None:
            growth = float(host.swap_used_bytes - swap[0])
        return HostFacts(
            cpu_percent=mean[0],
            iowait_percent=mean[1],
            core_count=host.core_count,
            load_average=mean[2],
            pressure_cpu_percent=mean[3],
            pressure_io_percent=mean[4],
            pressure_io_full_percent=mean[5],
            pressure_memory_percent=mean[6],
            memory_total_bytes=host.memory_total_bytes,
            memory_used_bytes=mean[7],
            memory_slope_bytes_per_second=slope,
            memory_slope_error_bytes_per_second=slope_error,
            swap_used_bytes=mean[8],
            swap_growth_bytes=growth,
            disk_read_bytes_per_second=mean[9],
            disk_write_bytes_per_second=mean[10],
            shm_total_bytes=host.shm_total_bytes,
            # As it is now: a worker that finds no room does not ask how the last minute was.
            shm_used_bytes=host.shm_used_bytes,
        )
