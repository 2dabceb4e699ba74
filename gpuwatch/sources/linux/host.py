"""The machine around the GPUs, from ``/proc`` and ``/sys``, and what gpuwatch itself costs it.

``HostReader`` reads the kernel's counters and makes rates of them; the functions below it parse
one file each and know no clock (proc(5)).
"""

import contextlib
import mmap
import os
import re
import time
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from gpuwatch.core.model import Host, NetworkMount, Problem
from gpuwatch.core.source import Clock
from gpuwatch.core.text import clean
from gpuwatch.sources.linux import cgroup, infiniband, procfs

T = TypeVar("T")

MINIMUM_SECONDS = 0.2
"""The kernel counts CPU time in ticks of 10 ms: over less than twenty a core's share is too coarse,
and the one before stays."""
SHM_SECONDS = 5.0
CLOCKS_SECONDS = 15.0
CLOCKED_CORES, CLOCKED_PERCENT = 8, 50.0
"""Most cores whose clock is read, and how busy each must be: a core at rest lowers its clock."""
MOUNTS_SECONDS = 5.0
MOUNTS_KEPT = 4
PORTS_SECONDS = 15.0
"""Reading a counter of an adapter asks its firmware."""
CORES_SECONDS = 15.0
"""Affinity and quota change when an administrator changes them."""
DEVICES_SECONDS = 15.0
"""Disks and network interfaces are listed anew this often."""
START_SECONDS = 2.0
"""Imports, the first picture and a screen's first drawing are over by then; counted in, a monitor
would be said to cost ten times what it costs."""
SECTOR_BYTES = 512
"""The unit of /proc/diskstats whatever the disk's own block size (block/stat documentation)."""

_READ_FROM = {
    "stat": "cpu_percent",
    "meminfo": "memory_used_bytes",
    "loadavg": "load_average_1_minute",
    "diskstats": "disk_read_bytes_per_second",
    "net/dev": "network_receive_bytes_per_second",
}
"""The field that each file is read for, and that a problem with it is about."""
_PRESSURES = {"cpu": ("some",), "io": ("some", "full"), "memory": ("some", "full")}
"""The machine as a whole always has somebody who could run."""
_OPTIONAL_FILES = ("vmstat", "self/mountstats", *[f"pressure/{name}" for name in _PRESSURES])
"""Files that a kernel may do without."""
_LISTS_RECORDS = ("diskstats", "net/dev", "self/mountstats")

Counters = dict[bytes, tuple[int, ...]]
"""Counters of each device since boot."""


class CpuTimes(NamedTuple):
    """Ticks since boot of one core, or of all together."""

    busy: int
    idle: int
    iowait: int


class _Sample(NamedTuple):
    """The counters at one moment, monotonic seconds."""

    at: float
    cpu: dict[bytes, CpuTimes]
    pressure: dict[str, dict[str, int]]
    disks: Counters | None
    network: Counters | None
    refaults: Counters | None


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
        self._files = {
            name: procfs.KernelFile(proc / name, single=name not in _LISTS_RECORDS)
            for name in (*_READ_FROM, *_OPTIONAL_FILES)
        }
        self._name = clean(os.uname().nodename, 255)
        self._absent: set[str] = set()
        self._failures: dict[str, str] = {}
        self._sample: _Sample | None = None
        self._rates: dict[str, Any] = {}
        """Fields of ``Host`` that are differences between two samples."""
        self._cores = _Every(clock, CORES_SECONDS, lambda: _read_cores(proc))
        self._shm = _Every(clock, SHM_SECONDS, lambda: _read_shm(shm))
        self._cpu = sys_root / "devices" / "system" / "cpu"
        self._clocks = _Every(clock, CLOCKS_SECONDS, self._read_clocks)
        self._throttles: dict[str, int] = {}
        """Times that each core or its package was held down by heat, at the last look."""
        self._mounts = _Every(clock, MOUNTS_SECONDS, self._read_mounts)
        self._requests: tuple[float, dict[str, Requests]] | None = None
        """Requests of each network mount since it was mounted, and of when."""
        self._ports = _Every(clock, PORTS_SECONDS, lambda: infiniband.read_ports(sys_root))
        self._disks = _Every(clock, DEVICES_SECONDS, lambda: whole_disks(sys_root))
        self._interfaces = _Every(clock, DEVICES_SECONDS, lambda: counted_interfaces(sys_root))

    def open(self) -> None:
        """Take the first sample, so that the first reading can already hold rates."""
        self._sample = self._take_sample()

    def read(self) -> tuple[Host, tuple[Problem, ...]]:
        """Return the machine now; rates are over the time since the reading (or ``open``)
        before."""
        self._failures.clear()
        self._update_rates()
        cores = {} if self._sample is None else self._sample.cpu
        fields: dict[str, Any] = {
            "name": self._name,
            "core_count": len(cores.keys() - {b"cpu"}) or None,
            "uptime_seconds": time.clock_gettime(time.CLOCK_BOOTTIME),
            **(self._parsed("meminfo", parse_memory) or {}),
            **(self._parsed("loadavg", parse_load) or {}),
            **self._cores.value(),
            **self._shm.value(),
            "network_mounts": self._mounts.value(),
            "rdma_ports": self._ports.value(),
            **self._clocks.value(),
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
        disks, interfaces = self._disks.value(), self._interfaces.value()
        return _Sample(
            at=self._clock.monotonic(),
            cpu=self._parsed("stat", parse_cpu_times) or {},
            pressure={
                name: self._parsed(f"pressure/{name}", parse_pressure) or {} for name in _PRESSURES
            },
            disks=self._parsed("diskstats", lambda text: parse_disks(text, disks)),
            network=self._parsed("net/dev", lambda text: parse_network(text, interfaces)),
            refaults=self._parsed("vmstat", parse_refaults),
        )

    def _read_clocks(self) -> dict[str, Any]:
        percents = self._rates.get("core_percents") or ()
        names = [name.decode() for name in (self._sample.cpu if self._sample else ())][1:]
        busy = [
            name
            for name, percent in zip(names, percents, strict=False)
            if (percent or 0.0) >= CLOCKED_PERCENT
        ]
        before = self._throttles
        found, self._throttles = read_clocks(self._cpu, busy[:CLOCKED_CORES])
        rises = [self._throttles[name] > before[name] for name in self._throttles if name in before]
        return found | {"cpu_thermal_throttled": any(rises) if rises else None}

    def _read_mounts(self) -> tuple[NetworkMount, ...] | None:
        now = self._parsed("self/mountstats", parse_mount_requests)
        before, at = self._requests, self._clock.monotonic()
        self._requests = None if now is None else (at, now)
        if now is None or before is None or at <= before[0]:
            return None
        return network_mounts(before[1], now, at - before[0])

    def _parsed(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        """Return the parsed file, or ``None``; failures are kept for ``_problems``. A file that is
        not there, or that the kernel was built or booted without, is not asked for again."""
        if name in self._absent:
            return None
        try:
            return parse(self._files[name].read())
        except OSError as error:
            if name in _OPTIONAL_FILES or isinstance(error, FileNotFoundError):
                self._absent.add(name)
            else:
                self._failures[name] = error.strerror or str(error)
        except (ValueError, IndexError):
            self._failures[name] = "its text is not understood"
        return None

    def _problems(self) -> tuple[Problem, ...]:
        absent = dict.fromkeys(self._absent.difference(_OPTIONAL_FILES), "it does not exist")
        failures = {**absent, **self._failures}
        return tuple(
            Problem(
                source="host",
                reading=_READ_FROM.get(name),
                message=f"{self._proc / name} cannot be read ({why}): what it has is not shown.",
            )
            for name, why in sorted(failures.items())
        )


class _Every(Generic[T]):
    """A value read again only when it is ``seconds`` old."""

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


class OwnUsage:
    """CPU and memory of this process itself, all its threads together."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._before: tuple[float, float] | None = None
        self._statm = procfs.KernelFile(procfs.PROC / "self" / "statm")

    def cpu_percent(self, now: float) -> float | None:
        """Return the share of one core since the call before; ``now``: monotonic seconds. ``None``
        until the start is over."""
        if self._began is None:
            self._began = now
        before, self._before = self._before, (now, time.process_time())
        if before is None or now <= before[0] or before[0] - self._began < START_SECONDS:
            return None
        return 100.0 * (self._before[1] - before[1]) / (now - before[0])

    def resident_bytes(self) -> int | None:
        """Return the resident memory; ``None`` where the kernel does not say."""
        try:
            return int(self._statm.read().split(None, 2)[1]) * procfs.PAGE_BYTES
        except OSError:
            return None

    def close(self) -> None:
        self._statm.close()


def _read_cores(proc: Path) -> dict[str, float | None]:
    found: dict[str, float | None] = {"quota_cores": cgroup.read_quota_cores(proc=proc)}
    with contextlib.suppress(OSError):
        # Not 0: that is the calling thread, and what counts is the process.
        found["affinity_cores"] = len(os.sched_getaffinity(os.getpid()))
    known = [float(cores) for cores in found.values() if cores is not None]
    return found | {"usable_cores": min(known, default=None)}


def _read_shm(path: Path) -> dict[str, int]:
    try:
        found = os.statvfs(path)
    except OSError:
        return {}
    total = found.f_blocks * found.f_frsize
    return {"shm_total_bytes": total, "shm_used_bytes": total - found.f_bfree * found.f_frsize}


def read_clocks(folder: Path, cores: Sequence[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """Read how fast these cores run (cpufreq and thermal_throttle of ``/sys/devices/system/cpu``),
    as fields of ``Host``; and how often heat held each or its package down since boot."""

    def mhz(core: str, *names: str) -> float | None:
        for name in names:
            text = procfs.read_if_possible(folder / core / name).strip()
            if text.isdigit() and int(text):
                # Nominal frequencies are in MHz, all others in kHz.
                return int(text) / (1.0 if name == _NOMINAL else 1000.0)
        return None

    clocks = [mhz(core, "cpufreq/scaling_cur_freq") for core in cores]
    known = [clock for clock in clocks if clock is not None]
    counts: dict[str, int] = {}
    for core in cores:
        for name in ("core_throttle_count", "package_throttle_count"):
            text = procfs.read_if_possible(folder / core / "thermal_throttle" / name).strip()
            if text.isdigit():
                counts[f"{core} {name}"] = int(text)
    if not known:
        return {}, counts
    governor = procfs.read_if_possible(folder / cores[0] / "cpufreq/scaling_governor")
    return {
        "cpu_clock_mhz": sum(known) / len(known),
        "cpu_clock_base_mhz": mhz(cores[0], "cpufreq/base_frequency", _NOMINAL),
        "cpu_clock_max_mhz": mhz(cores[0], "cpufreq/cpuinfo_max_freq"),
        "cpu_governor": clean(os.fsdecode(governor.strip()), 40) or None,
    }, counts


_NOMINAL = "acpi_cppc/nominal_freq"


# --- the kernel's counters -------------------------------------------------------------------


def parse_cpu_times(text: bytes) -> dict[bytes, CpuTimes]:
    """Parse the ``cpu`` lines of ``/proc/stat`` in their order: ``cpu`` (all), then each online
    core.

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


_MEMORY_LINE = re.compile(
    rb"^(MemTotal|MemFree|MemAvailable|Buffers|Cached|SwapTotal|SwapFree):\s+(\d+)", re.MULTILINE
)


def parse_memory(text: bytes) -> dict[str, int | None]:
    """Parse ``/proc/meminfo`` into fields of ``Host``. Used is total less available; kernels before
    3.14 have no ``MemAvailable``, and free, buffers and cache stand in for it."""
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
    """Parse one of ``/proc/pressure/*`` (Documentation/accounting/psi.rst): microseconds since boot
    in which some (or all: ``full``) runnable tasks waited."""
    return {name.decode(): int(total) for name, total in _PRESSURE_LINE.findall(text)}


def parse_load(text: bytes) -> dict[str, float]:
    """Parse ``/proc/loadavg`` into fields of ``Host``."""
    names = ("load_average_1_minute", "load_average_5_minutes", "load_average_15_minutes")
    return {name: float(value) for name, value in zip(names, text.split(None, 3)[:3], strict=True)}


def parse_disks(text: bytes, counted: Container[bytes]) -> Counters:
    """Parse ``/proc/diskstats``: bytes read and written since boot, reads and the milliseconds that
    they took, by the disks ``counted``."""
    disks: Counters = {}
    for line in text.splitlines():
        fields = line.split(None, 10)
        if len(fields) > 9 and fields[2] in counted:
            reads, sectors, milliseconds, written = (int(fields[at]) for at in (3, 5, 6, 9))
            moved = (sectors * SECTOR_BYTES, written * SECTOR_BYTES)
            disks[fields[2]] = (*moved, reads, milliseconds)
    return disks


class Requests(NamedTuple):
    """Requests of a network mount since it was mounted, all together, without writes."""

    kind: str
    number: int = 0
    read_bytes: int = 0
    queue_milliseconds: int = 0
    round_trip_milliseconds: int = 0
    execute_milliseconds: int = 0
    """Time from a request to the end of dealing with its answer."""


_NFS_MOUNT = re.compile(r"device .* mounted on (.*) with fstype (nfs\d*)\b")
_WRITES = ("NULL", "WRITE", "COMMIT")


def parse_mount_requests(text: bytes) -> dict[str, Requests]:
    """Parse ``/proc/self/mountstats``, by the mount point. Only NFS says more than its name there:
    for each operation its count, transmissions, timeouts, bytes sent and received, and milliseconds
    in the queue, to the answer, and altogether (nfs-utils, mountstats(8))."""
    mounts: dict[str, Requests] = {}
    place = ""
    for line in os.fsdecode(text).splitlines():
        if line.startswith("device "):
            found = _NFS_MOUNT.match(line)
            place = "" if found is None else found[1]
            if found is not None:
                mounts[place] = Requests(found[2])
        elif place:
            name, _, rest = line.strip().partition(": ")
            numbers = rest.split()
            # Other lines begin with lower case; old kernels have 8 numbers, new ones 9.
            if name.isupper() and name not in _WRITES and len(numbers) >= 8:
                count, _, _, _, received, *times = [int(one) for one in numbers[:8]]
                more = (count, received if name.startswith("READ") else 0, *times)
                kind, *so_far = mounts[place]
                sums = [old + new for old, new in zip(so_far, more, strict=True)]
                mounts[place] = Requests(kind, *sums)
    return mounts


def network_mounts(
    before: Mapping[str, Requests], now: Mapping[str, Requests], seconds: float
) -> tuple[NetworkMount, ...]:
    """Return the mounts that were asked for something between the two, the most waited for
    first."""
    found = []
    for place, requests in now.items():
        # A file system that was mounted anew counts from zero.
        old = before.get(place)
        count = 0 if old is None else requests.number - old.number
        if old is None or count <= 0:
            continue
        found.append(
            NetworkMount(
                mount_point=clean(place.replace("\\040", " "), 255),
                kind=clean(requests.kind, 20),
                requests_per_second=count / seconds,
                read_bytes_per_second=max(0, requests.read_bytes - old.read_bytes) / seconds,
                queue_milliseconds=(requests.queue_milliseconds - old.queue_milliseconds) / count,
                round_trip_milliseconds=(
                    (requests.round_trip_milliseconds - old.round_trip_milliseconds) / count
                ),
                waiting_requests=(
                    (requests.execute_milliseconds - old.execute_milliseconds) / (1000.0 * seconds)
                ),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.waiting_requests)[:MOUNTS_KEPT])


def parse_network(text: bytes, counted: Container[bytes] | None) -> Counters:
    """Parse ``/proc/net/dev``: bytes received and sent since boot, by the interfaces ``counted``;
    by all but the loopback where these are not known."""
    interfaces: Counters = {}
    for line in text.splitlines()[2:]:
        # The name may touch the first number ("eth0:123"), and an alias may hold a colon.
        name, _, counters = line.rpartition(b":")
        fields, name = counters.split(), name.strip()
        if len(fields) > 8 and (name != b"lo" if counted is None else name in counted):
            interfaces[name] = (int(fields[0]), int(fields[8]))
    return interfaces


_REFAULTS = re.compile(rb"^workingset_refault(?:_file)? (\d+)", re.MULTILINE)


def parse_refaults(text: bytes) -> Counters:
    """Parse ``/proc/vmstat``: bytes of files since boot that came back to the page cache soon after
    they were dropped. Before Linux 5.9 the name was without "file"; none has both."""
    found = _REFAULTS.search(text)
    return {} if found is None else {b"file": (int(found[1]) * mmap.PAGESIZE,)}


# --- rates between two samples ---------------------------------------------------------------


def _rates_between(before: _Sample, now: _Sample) -> dict[str, Any]:
    seconds = now.at - before.at
    rates: dict[str, Any] = {}
    percents = {name: cpu_percents(before.cpu.get(name), times) for name, times in now.cpu.items()}
    if percents:
        rates["cpu_percent"], rates["cpu_iowait_percent"] = percents.pop(b"cpu", (None, None))
        rates["core_percents"] = tuple([busy for busy, _ in percents.values()]) or None
    for name, kinds in _PRESSURES.items():
        for kind in kinds:
            rates[f"pressure_{name}_{kind}_percent"] = pressure_percent(
                before.pressure[name].get(kind), now.pressure[name].get(kind), seconds
            )
    disks = counter_rates(before.disks, now.disks, seconds)
    for names, grown in (
        (("disk_read", "disk_write"), disks),
        (
            ("network_receive", "network_transmit"),
            counter_rates(before.network, now.network, seconds),
        ),
        (("cache_refault",), counter_rates(before.refaults, now.refaults, seconds)),
    ):
        for name, value in zip(names, grown or (None, None), strict=False):
            rates[f"{name}_bytes_per_second"] = value
    if disks is not None:
        *_, reads, milliseconds = disks
        rates["disk_read_milliseconds"] = milliseconds / reads if reads else None
    return rates


def cpu_percents(before: CpuTimes | None, now: CpuTimes) -> tuple[float | None, float | None]:
    """Return the shares of busy time and of waiting for disks; ``None`` without the sample before,
    and when no tick passed.

    The kernel's idle and iowait counters can step back a little (proc_stat(5)): a negative
    difference counts as none.
    """
    busy, idle, iowait = [max(0, new - old) for new, old in zip(now, before or now, strict=True)]
    total = busy + idle + iowait
    return (100.0 * busy / total, 100.0 * iowait / total) if total else (None, None)


def pressure_percent(before: int | None, now: int | None, seconds: float) -> float | None:
    """Return the share of the time that a pressure total grew by, 0-100."""
    if before is None or now is None or seconds <= 0:
        return None
    # The counter and our clock are read apart, so a full stall can come out a hair above 100.
    return min(100.0, max(0, now - before) / seconds / 10_000)


def counter_rates(
    before: Mapping[bytes, tuple[int, ...]] | None,
    now: Mapping[bytes, tuple[int, ...]] | None,
    seconds: float,
) -> tuple[float, ...] | None:
    """Return the growth of each counter a second, summed over the devices of both samples.

    A device that appears or goes, or whose counter was reset, adds nothing for that interval;
    ``None`` when the samples have no device in common.
    """
    if not before or not now or seconds <= 0:
        return None
    common = before.keys() & now.keys()
    if not common:
        return None
    grown = [
        [max(0, new - old) for old, new in zip(before[name], now[name], strict=True)]
        for name in common
    ]
    return tuple([sum(counter) / seconds for counter in zip(*grown, strict=True)])


# --- which disks and interfaces count, so that no byte is counted twice -----------------------

_CONSTRUCTS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "zd", "bcache", "drbd")
_NO_LINK = ("lo", "ifb", "dummy", "docker", "virbr", "cni", "flannel", "cali", "tunl", "sit")


def whole_disks(sys_root: Path) -> frozenset[bytes]:
    """Return the kernel's names of the disks that are no construct on top of others; empty when
    ``/sys/block`` cannot be read.

    The kernel puts loop, ram, zram, device-mapper, md, bcache and zvol devices under
    ``devices/virtual/block``; their bytes are counted at the disks beneath. NVMe multipath heads
    live under ``devices/virtual/nvme-subsystem`` and count, the hidden paths beneath them do not;
    network block devices (``nbd``) are virtual but have no disk beneath, so they count.
    """
    try:
        names = os.listdir(sys_root / "block")  # noqa: PTH208 - names only, no Path each
    except OSError:
        return frozenset()
    return frozenset(name.encode() for name in names if _is_whole_disk(sys_root / "block" / name))


def _is_whole_disk(entry: Path) -> bool:
    if entry.name.startswith(("nbd", *_CONSTRUCTS)):
        return entry.name.startswith("nbd")
    with contextlib.suppress(OSError):
        if (entry / "hidden").read_bytes().strip() == b"1":
            return False
    return "/virtual/block/" not in os.path.realpath(entry)


def counted_interfaces(sys_root: Path) -> frozenset[bytes] | None:
    """Return the names of the interfaces with hardware behind them
    (``/sys/class/net/NAME/device``); ``None`` when sysfs does not list any.

    Bonds, bridges, VLANs, tunnels and the host ends of containers carry the same bytes again.
    Where none has hardware (inside a container, ``eth0`` is one end of a pair) all count except
    the loopback, bridges, interfaces that are enslaved to one, and dummies.
    """
    folder = sys_root / "class" / "net"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names only, no Path each
    except OSError:
        return None
    hardware = [name for name in names if (folder / name / "device").exists()]
    chosen = hardware or [name for name in names if _is_link(folder / name)]
    return frozenset(os.fsencode(name) for name in chosen)


def _is_link(entry: Path) -> bool:
    is_part = (entry / "bridge").exists() or (entry / "master").exists()
    return not (is_part or entry.name.startswith(_NO_LINK))
