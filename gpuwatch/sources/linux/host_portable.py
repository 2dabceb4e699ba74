"""The machine through psutil, for systems without Linux's ``/proc``: no pressure, no quota."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import psutil

from gpuwatch.core.model import Host, Problem
from gpuwatch.core.source import Clock
from gpuwatch.core.text import clean
from gpuwatch.sources.linux import host_counters
from gpuwatch.sources.linux.host_counters import CpuTimes

T = TypeVar("T")

_MICROSECONDS = 1_000_000


class PortableHostReader:
    """What psutil can say of any system it supports."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: tuple[float, list[CpuTimes], dict[bytes, tuple[int, int]]] | None = None
        self._shares: list[host_counters.CpuShare | None] = []
        self._rates: dict[bytes, tuple[float, float] | None] = {}

    def open(self) -> None:
        self._update()

    def read(self) -> tuple[Host, tuple[Problem, ...]]:
        """The machine now; rates are over the time since the reading before."""
        self._update()
        memory = _attempt(psutil.virtual_memory)
        swap = _attempt(psutil.swap_memory)
        load = _attempt(os.getloadavg)
        booted = _attempt(psutil.boot_time)
        cores = _attempt(psutil.cpu_count)
        total = self._shares[0] if self._shares else None
        disk, network = self._rates.get(b"disk"), self._rates.get(b"network")
        host = Host(
            name=clean(os.uname().nodename, 255),
            cpu_percent=total.busy_percent if total else None,
            cpu_iowait_percent=total.iowait_percent if total else None,
            core_percents=tuple(s.busy_percent if s else None for s in self._shares[1:]) or None,
            load_average_1_minute=load[0] if load else None,
            load_average_5_minutes=load[1] if load else None,
            load_average_15_minutes=load[2] if load else None,
            memory_total_bytes=memory.total if memory else None,
            memory_used_bytes=memory.total - memory.available if memory else None,
            swap_total_bytes=swap.total if swap else None,
            swap_used_bytes=swap.used if swap else None,
            disk_read_bytes_per_second=disk[0] if disk else None,
            disk_write_bytes_per_second=disk[1] if disk else None,
            network_receive_bytes_per_second=network[0] if network else None,
            network_transmit_bytes_per_second=network[1] if network else None,
            core_count=cores,
            usable_cores=None if cores is None else float(cores),
            uptime_seconds=None if booted is None else max(0.0, self._clock.unix() - booted),
        )
        return host, ()

    def close(self) -> None:
        """Nothing is held open."""

    def _update(self) -> None:
        at = self._clock.monotonic()
        if self._before is not None and at - self._before[0] < 0.05:
            return
        now = (at, _cpu_times(), _traffic())
        if self._before is not None:
            before_at, before_cpu, before_traffic = self._before
            pairs = zip(before_cpu, now[1], strict=False)
            self._shares = [host_counters.cpu_share(before, after) for before, after in pairs]
            self._rates = {
                name: host_counters.rates(
                    {name: before_traffic[name]}, {name: counters}, at - before_at
                )
                for name, counters in now[2].items()
                if name in before_traffic
            }
        self._before = now


def _attempt(function: Callable[[], T]) -> T | None:
    """psutil raises what each system raises; a reading that fails is a reading not there."""
    try:
        return function()
    except (OSError, RuntimeError, NotImplementedError, psutil.Error):
        return None


def _cpu_times() -> list[CpuTimes]:
    """All cores together first, then each, in microseconds."""
    found = [_attempt(psutil.cpu_times), *(_attempt(lambda: psutil.cpu_times(percpu=True)) or [])]
    return [_times(times) for times in found if times is not None]


def _times(times: object) -> CpuTimes:
    values = {name: getattr(times, name) for name in getattr(times, "_fields", ())}
    idle, iowait = values.pop("idle", 0.0), values.pop("iowait", 0.0)
    # Where they exist, psutil counts guest time in user time as the kernel does.
    busy = sum(value for name, value in values.items() if not name.startswith("guest"))
    return CpuTimes(*(int(value * _MICROSECONDS) for value in (busy, idle, iowait)))


def _traffic() -> dict[bytes, tuple[int, int]]:
    found = {}
    if disk := _attempt(psutil.disk_io_counters):
        found[b"disk"] = (disk.read_bytes, disk.write_bytes)
    interfaces = _attempt(lambda: psutil.net_io_counters(pernic=True)) or {}
    counted = [counters for name, counters in interfaces.items() if not name.startswith("lo")]
    if counted:
        received = sum(counters.bytes_recv for counters in counted)
        found[b"network"] = (received, sum(counters.bytes_sent for counters in counted))
    return found
