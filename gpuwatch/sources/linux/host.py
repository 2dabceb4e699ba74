"""The machine around the GPUs, from ``/proc`` and ``/sys``."""

import contextlib
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from gpuwatch.core.model import Host, Problem
from gpuwatch.core.source import Clock
from gpuwatch.core.text import clean
from gpuwatch.sources.linux import cgroup, host_counters, host_devices, procfs

T = TypeVar("T")

MINIMUM_SECONDS = 0.2
"""The kernel counts CPU time in ticks of 10 ms: over less than twenty a core's share is too coarse,
and the one before stays."""
SHM_SECONDS = 5.0
CORES_SECONDS = 15.0
"""Affinity and quota change when an administrator changes them."""
DEVICES_SECONDS = 15.0
"""Disks and network interfaces are listed anew this often."""

_PRESSURES = {"cpu": ("some",), "io": ("some", "full"), "memory": ("some", "full")}
"""The machine as a whole always has somebody who could run."""
_Counters = dict[bytes, tuple[int, int]]


class _Sample(NamedTuple):
    """The counters at one moment."""

    at: float
    cpu: dict[bytes, host_counters.CpuTimes]
    pressure: dict[str, dict[str, int]]
    disks: _Counters | None
    network: _Counters | None
    refaults: _Counters | None


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
            for name in ("stat", "meminfo", "loadavg", "diskstats", "net/dev", "vmstat")
        }
        for name in _PRESSURES:
            self._files[f"pressure/{name}"] = procfs.KernelFile(proc / "pressure" / name)
        self._name = clean(os.uname().nodename, 255)
        self._absent: set[str] = set()
        self._failures: dict[str, str] = {}
        self._sample: _Sample | None = None
        self._rates: dict[str, Any] = {}
        """Fields of ``Host`` that are differences between two samples."""
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
        cores = {} if self._sample is None else self._sample.cpu
        fields: dict[str, Any] = {
            "name": self._name,
            "core_count": len(cores.keys() - {b"cpu"}) or None,
            "uptime_seconds": time.clock_gettime(time.CLOCK_BOOTTIME),
            **(self._parsed("meminfo", host_counters.parse_memory) or {}),
            **(self._parsed("loadavg", host_counters.parse_load) or {}),
            **self._cores.value(),
            **self._shm.value(),
            **self._rates,
        }
        return Host(**fields), self._problems()

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
            pressure={
                name: self._parsed(f"pressure/{name}", host_counters.parse_pressure) or {}
                for name in _PRESSURES
            },
            disks=self._parsed(
                "diskstats", partial(host_counters.parse_disks, whole_disks=self._disks.value())
            ),
            network=self._parsed(
                "net/dev", partial(host_counters.parse_network, counted=self._interfaces.value())
            ),
            refaults=self._parsed("vmstat", host_counters.parse_refaults),
        )

    def _read_cores(self) -> dict[str, float | None]:
        found: dict[str, float | None] = {"quota_cores": cgroup.read_quota_cores(proc=self._proc)}
        with contextlib.suppress(OSError):
            # Not 0: that is the calling thread, and what counts is the process.
            found["affinity_cores"] = len(os.sched_getaffinity(os.getpid()))
        known = [float(cores) for cores in found.values() if cores is not None]
        return found | {"usable_cores": min(known, default=None)}

    def _read_shm(self) -> dict[str, int]:
        try:
            found = os.statvfs(self._shm_path)
        except OSError:
            return {}
        total = found.f_blocks * found.f_frsize
        return {"shm_total_bytes": total, "shm_used_bytes": total - found.f_bfree * found.f_frsize}

    def _parsed(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        """The parsed file, or ``None``; what fails is kept for ``_problems``. A file that is not
        there, or that the kernel was built or booted without (pressure), is not asked for again."""
        if name in self._absent:
            return None
        try:
            return parse(self._files[name].read())
        except OSError as error:
            if name.startswith(_UNNEEDED) or isinstance(error, FileNotFoundError):
                self._absent.add(name)
            else:
                self._failures[name] = error.strerror or str(error)
        except (ValueError, IndexError):
            self._failures[name] = "its text is not understood"
        return None

    def _problems(self) -> tuple[Problem, ...]:
        for name in self._absent:
            if not name.startswith(_UNNEEDED):
                self._failures.setdefault(name, "it does not exist")
        return tuple(
            Problem(
                source="host",
                reading=_READ_FROM[name],
                message=f"{self._proc / name} cannot be read ({why}): what it has is not shown.",
            )
            for name, why in sorted(self._failures.items())
        )


_UNNEEDED = ("pressure/", "vmstat")
"""Files that a kernel may do without."""
_READ_FROM = {
    "stat": "cpu_percent",
    "meminfo": "memory_used_bytes",
    "loadavg": "load_average_1_minute",
    "diskstats": "disk_read_bytes_per_second",
    "net/dev": "network_receive_bytes_per_second",
}


def _rates_between(before: _Sample, now: _Sample) -> dict[str, Any]:
    seconds = now.at - before.at
    rates: dict[str, Any] = {}
    percents = {
        name: host_counters.cpu_percents(before.cpu.get(name), times)
        for name, times in now.cpu.items()
    }
    if percents:
        rates["cpu_percent"], rates["cpu_iowait_percent"] = percents.pop(b"cpu", (None, None))
        rates["core_percents"] = tuple([busy for busy, _ in percents.values()]) or None
    for name, kinds in _PRESSURES.items():
        for kind in kinds:
            rates[f"pressure_{name}_{kind}_percent"] = host_counters.pressure_percent(
                before.pressure[name].get(kind), now.pressure[name].get(kind), seconds
            )
    for names, old, new in (
        (("disk_read", "disk_write"), before.disks, now.disks),
        (("network_receive", "network_transmit"), before.network, now.network),
        (("cache_refault",), before.refaults, now.refaults),
    ):
        pair = host_counters.rates(old, new, seconds) or (None, None)
        for name, value in zip(names, pair, strict=False):
            rates[f"{name}_bytes_per_second"] = value
    return rates


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
