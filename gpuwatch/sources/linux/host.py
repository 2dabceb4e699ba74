"""The machine around the GPUs, from ``/proc`` and ``/sys``; through psutil where there is none."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from gpuwatch.core.model import Host, Problem
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.core.text import clean
from gpuwatch.sources.linux import cgroup, host_counters, host_devices, procfs

if TYPE_CHECKING:
    from gpuwatch.sources.linux.host_portable import PortableHostReader

T = TypeVar("T")

MINIMUM_SECONDS = 0.05
"""The kernel counts CPU time in ticks of 10 ms: over less than five a share means nothing."""
SHM_SECONDS = 5.0
CORES_SECONDS = 15.0
"""Affinity and quota change when an administrator changes them."""
DEVICES_SECONDS = 15.0
"""Disks and network interfaces are listed anew this often."""

_PRESSURES = ("cpu", "io", "memory")
_Counters = dict[bytes, tuple[int, int]]


class _Sample(NamedTuple):
    """The counters at one moment."""

    at: float
    cpu: dict[bytes, host_counters.CpuTimes]
    pressure: dict[str, host_counters.Pressure]
    disks: _Counters | None
    network: _Counters | None


class _Rates(NamedTuple):
    """What two samples say."""

    cpu_percent: float | None = None
    cpu_iowait_percent: float | None = None
    core_percents: tuple[float | None, ...] | None = None
    pressure_cpu_some: float | None = None
    pressure_io_some: float | None = None
    pressure_io_full: float | None = None
    pressure_memory_some: float | None = None
    pressure_memory_full: float | None = None
    disk: tuple[float, float] | None = None
    network: tuple[float, float] | None = None


class _Cores(NamedTuple):
    affinity: int | None
    quota: float | None

    @property
    def usable(self) -> float | None:
        known = [float(value) for value in (self.affinity, self.quota) if value is not None]
        return min(known, default=None)


class HostReader:
    """Reads a Linux machine. ``proc`` and ``sys_root`` are where those file systems are mounted."""

    def __init__(
        self,
        clock: Clock,
        proc: Path = procfs.PROC,
        sys_root: Path = Path("/sys"),
        shm: Path = Path("/dev/shm"),
    ) -> None:
        self._clock = clock
        self._proc = proc
        self._sys = sys_root
        self._shm_path = shm
        self._files = {
            name: procfs.KernelFile(proc / name, single=name not in ("diskstats", "net/dev"))
            for name in ("stat", "meminfo", "loadavg", "diskstats", "net/dev")
        }
        for name in _PRESSURES:
            self._files[f"pressure/{name}"] = procfs.KernelFile(proc / "pressure" / name)
        self._name = clean(os.uname().nodename, 255)
        self._absent: set[str] = set()
        self._failures: dict[str, str] = {}
        self._sample: _Sample | None = None
        self._rates = _Rates()
        self._cores = _Every(clock, CORES_SECONDS, self._read_cores)
        self._shm = _Every(clock, SHM_SECONDS, self._read_shm)
        self._disks = _Every(clock, DEVICES_SECONDS, lambda: host_devices.whole_disks(self._sys))
        self._interfaces = _Every(
            clock, DEVICES_SECONDS, lambda: host_devices.counted_interfaces(self._sys)
        )

    def open(self) -> None:
        """Take the first sample, so that the first reading can already hold rates."""
        self._sample = self._take_sample()

    def read(self) -> tuple[Host, tuple[Problem, ...]]:
        """The machine now; rates are over the time since the reading (or ``open``) before."""
        self._failures.clear()
        self._update_rates()
        memory = self._parsed("meminfo", host_counters.parse_memory)
        load = self._parsed("loadavg", host_counters.parse_load)
        rates, cores, shm = self._rates, self._cores.value(), self._shm.value()
        host = Host(
            name=self._name,
            cpu_percent=rates.cpu_percent,
            cpu_iowait_percent=rates.cpu_iowait_percent,
            core_percents=rates.core_percents,
            load_average_1_minute=load[0] if load else None,
            load_average_5_minutes=load[1] if load else None,
            load_average_15_minutes=load[2] if load else None,
            memory_total_bytes=memory.total if memory else None,
            memory_used_bytes=memory.used if memory else None,
            swap_total_bytes=memory.swap_total if memory else None,
            swap_used_bytes=memory.swap_used if memory else None,
            pressure_cpu_some_percent=rates.pressure_cpu_some,
            pressure_io_some_percent=rates.pressure_io_some,
            pressure_io_full_percent=rates.pressure_io_full,
            pressure_memory_some_percent=rates.pressure_memory_some,
            pressure_memory_full_percent=rates.pressure_memory_full,
            disk_read_bytes_per_second=rates.disk[0] if rates.disk else None,
            disk_write_bytes_per_second=rates.disk[1] if rates.disk else None,
            network_receive_bytes_per_second=rates.network[0] if rates.network else None,
            network_transmit_bytes_per_second=rates.network[1] if rates.network else None,
            shm_total_bytes=shm[0] if shm else None,
            shm_used_bytes=shm[1] if shm else None,
            core_count=self._core_count(),
            affinity_cores=cores.affinity,
            quota_cores=cores.quota,
            usable_cores=cores.usable,
            uptime_seconds=_uptime_seconds(),
        )
        return host, self._problems()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _update_rates(self) -> None:
        before = self._sample
        if before is not None and self._clock.monotonic() - before.at < MINIMUM_SECONDS:
            return
        self._sample = self._take_sample()
        if before is not None:
            self._rates = _rates_between(before, self._sample)

    def _take_sample(self) -> _Sample:
        return _Sample(
            at=self._clock.monotonic(),
            cpu=self._parsed("stat", host_counters.parse_cpu_times) or {},
            pressure={name: self._pressure(name) for name in _PRESSURES},
            disks=self._disk_counters(),
            network=self._network_counters(),
        )

    def _pressure(self, name: str) -> host_counters.Pressure:
        found = self._parsed(f"pressure/{name}", host_counters.parse_pressure)
        return found or host_counters.Pressure(None, None)

    def _disk_counters(self) -> _Counters | None:
        chosen = self._disks.value()
        return self._parsed("diskstats", lambda text: host_counters.parse_disks(text, chosen))

    def _network_counters(self) -> _Counters | None:
        found = self._parsed("net/dev", host_counters.parse_network)
        if found is None:
            return None
        chosen = self._interfaces.value()
        if chosen is None:
            return {name: counters for name, counters in found.items() if name != b"lo"}
        return {name: counters for name, counters in found.items() if name in chosen}

    def _core_count(self) -> int | None:
        if self._sample is None:
            return None
        return sum(name != b"cpu" for name in self._sample.cpu) or None

    def _read_cores(self) -> _Cores:
        try:
            # Not 0: that is the calling thread, and what counts is the process.
            affinity = len(os.sched_getaffinity(os.getpid()))
        except OSError:
            affinity = None
        return _Cores(affinity, cgroup.read_quota_cores(self._proc))

    def _read_shm(self) -> tuple[int, int] | None:
        try:
            found = os.statvfs(self._shm_path)
        except OSError:
            return None
        total = found.f_blocks * found.f_frsize
        return total, total - found.f_bfree * found.f_frsize

    def _parsed(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        """The parsed file, or ``None``; what fails is kept for ``_problems``.

        A file that is not there, or that the kernel was built or booted without (pressure), is
        not asked for again.
        """
        if name in self._absent:
            return None
        try:
            return parse(self._files[name].read())
        except OSError as error:
            if name.startswith("pressure/") or isinstance(error, FileNotFoundError):
                self._absent.add(name)
            else:
                self._failures[name] = error.strerror or str(error)
        except (ValueError, IndexError):
            self._failures[name] = "its text is not understood"
        return None

    def _problems(self) -> tuple[Problem, ...]:
        for name in self._absent:
            if not name.startswith("pressure/"):
                self._failures.setdefault(name, "it does not exist")
        return tuple(
            Problem(
                source="host",
                reading=_SHOWN_FROM[name][0],
                message=f"{self._proc / name} cannot be read ({why}): "
                f"{_SHOWN_FROM[name][1]} not shown.",
            )
            for name, why in sorted(self._failures.items())
        )


_SHOWN_FROM = {
    "stat": ("cpu_percent", "CPU use is"),
    "meminfo": ("memory_used_bytes", "host memory is"),
    "loadavg": ("load_average_1_minute", "the load average is"),
    "diskstats": ("disk_read_bytes_per_second", "disk traffic is"),
    "net/dev": ("network_receive_bytes_per_second", "network traffic is"),
}


def _rates_between(before: _Sample, now: _Sample) -> _Rates:
    seconds = now.at - before.at
    total = host_counters.cpu_share(before.cpu.get(b"cpu"), now.cpu.get(b"cpu"))
    shares = [
        host_counters.cpu_share(before.cpu.get(name), times)
        for name, times in now.cpu.items()
        if name != b"cpu"
    ]

    def pressure(name: str, kind: str) -> float | None:
        return host_counters.pressure_percent(
            getattr(before.pressure[name], kind), getattr(now.pressure[name], kind), seconds
        )

    return _Rates(
        cpu_percent=total.busy_percent if total else None,
        cpu_iowait_percent=total.iowait_percent if total else None,
        core_percents=tuple(share.busy_percent if share else None for share in shares) or None,
        pressure_cpu_some=pressure("cpu", "some"),
        pressure_io_some=pressure("io", "some"),
        pressure_io_full=pressure("io", "full"),
        pressure_memory_some=pressure("memory", "some"),
        pressure_memory_full=pressure("memory", "full"),
        disk=host_counters.rates(before.disks, now.disks, seconds),
        network=host_counters.rates(before.network, now.network, seconds),
    )


def _uptime_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _Every(Generic[T]):
    """A value read again only when it is ``seconds`` old."""

    __slots__ = ("_clock", "_due", "_read", "_seconds", "_value")

    def __init__(self, clock: Clock, seconds: float, read: Callable[[], T]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._read = read
        self._value: T | None = None
        self._due: float | None = None

    def value(self) -> T:
        now = self._clock.monotonic()
        if self._due is None or now >= self._due:
            self._due = now + self._seconds
            self._value = self._read()
        return self._value  # type: ignore[return-value]


class HostSource:
    """The host half of a snapshot: ``HostReader`` on Linux, psutil elsewhere."""

    def __init__(self, clock: Clock, options: ReadOptions) -> None:
        self.options = options
        self._reader = _reader(clock)

    def open(self) -> None:
        """Take the first sample, so that the first reading can already hold rates."""
        self._reader.open()

    def read(self) -> tuple[Host, tuple[Problem, ...]]:
        """The machine now. A first reading less than 50 ms after ``open`` has no rates."""
        return self._reader.read()

    def close(self) -> None:
        self._reader.close()


def _reader(clock: Clock) -> HostReader | PortableHostReader:
    if sys.platform.startswith("linux"):
        return HostReader(clock)
    from gpuwatch.sources.linux.host_portable import PortableHostReader  # noqa: PLC0415 - psutil

    return PortableHostReader(clock)
