"""The cores a job may really use (affinity, cgroup quota, Slurm's allocation) and their NUMA nodes.

Affinity already holds what cpuset cgroups allow: the kernel keeps a task's mask inside its
cpuset (cpuset(7)).
"""

import os
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gpuwatch.sources.linux import cgroup, procfs
from gpuwatch.sources.linux.host import parse_pressure, pressure_percent

SLURM_CORES = "SLURM_CPUS_ON_NODE"
"""Cores of this machine that Slurm gave the step; slurmd sets it on each machine by itself, for
all tasks there (srun(1), output environment variables)."""

ONLINE = Path("/sys/devices/system/cpu/online")
NODES = Path("/sys/devices/system/node")
"""``nodeN/cpulist`` of each (Linux, Documentation/ABI/stable/sysfs-devices-node)."""


class JobCores(NamedTuple):
    """Cores of this machine that a job may use; ``None``: not known, or no such limit.

    ``usable_cores`` is the least of those known and the machine's own; ``None`` when nothing is
    known about the job.
    """

    affinity_cores: int | None
    quota_cores: float | None
    slurm_cores: int | None
    usable_cores: float | None


def read_cores(
    pid: int,
    environment: Mapping[str, str],
    proc: Path = procfs.PROC,
    *,
    others: Iterable[int] = (),
) -> JobCores:
    """Read the limits of the process ``pid`` and all it starts.

    ``environment`` holds (at least) ``SLURM_CORES``, where it has that.
    ``others`` are further ranks of the job: launchers can pin each to cores of its own, and what
    any of them may use is the job's. What cannot be read is ``None``; never raises for what a
    machine can do wrong.
    """
    masks = [mask for one in (pid, *others) if (mask := read_allowed(one)) is not None]
    affinity = len(frozenset().union(*masks)) or None
    quota = cgroup.read_quota_cores(pid, proc)
    slurm = slurm_cores(environment)
    limits = [cores for cores in (affinity, quota, slurm) if cores is not None]
    if not limits:
        return JobCores(affinity, quota, slurm, None)
    with suppress(OSError, ValueError):
        limits += [len(parse_core_list(procfs.read_once(ONLINE).decode("ascii")))]
    return JobCores(affinity, quota, slurm, float(min(filter(None, limits))))


def read_allowed(pid: int) -> Set[int] | None:
    """Return the cores a process may be scheduled on; ``None`` where it is gone. Anybody may ask
    (sched_getaffinity(2)); cores that are offline are not among them."""
    try:
        return os.sched_getaffinity(pid)
    except (OSError, OverflowError):
        return None


def parse_core_list(text: str) -> frozenset[int]:
    """Parse ``"0-3,8"``, as the kernel writes sets of cores. Raises ``ValueError`` for anything
    else."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def read_nodes(pid: int, nodes: Path = NODES) -> tuple[int, ...] | None:
    """Return the NUMA nodes of which this process may use a core, in order; ``None`` where it is
    not known."""
    layout = _layout(nodes)
    allowed = read_allowed(pid) if layout else None
    return tuple([node for node, own in layout.items() if own & (allowed or set())]) or None


@cache
def _layout(nodes: Path) -> dict[int, frozenset[int]]:
    """Read the cores of each node; empty if not known. They do not change while a machine runs, but
    for cores taken offline."""
    found = {}
    for folder in nodes.glob("node[0-9]*"):
        try:
            cores = parse_core_list((folder / "cpulist").read_text("ascii"))
        except (OSError, ValueError):
            continue
        # A node without cores holds memory only (CXL, HBM, a GPU's).
        if cores:
            found[int(folder.name[4:])] = cores
    return dict(sorted(found.items()))


def slurm_cores(environment: Mapping[str, str]) -> int | None:
    """Return the cores that Slurm gave the job on this machine; ``None``: not Slurm, or
    nonsense."""
    text = environment.get(SLURM_CORES, "")
    return int(text) or None if text.isascii() and text.isdigit() and len(text) < 9 else None


class ThrottleMeter:
    """Share of the time in which a process was held back by the tightest CPU quota on its path.

    The share is of the quota's periods (usually 0.1 s) in which the group wanted to run at all.
    """

    def __init__(self, pid: int, proc: Path = procfs.PROC) -> None:
        self._pid, self._proc = pid, proc
        self._folder: Path | None = None
        self._before: cgroup.Periods | None = None
        self.search()

    def search(self) -> None:
        """Look for the quota again: limits are changed, and processes moved, while a job runs."""
        tightest = cgroup.read_tightest_quota(self._pid, self._proc)
        folder = None if tightest is None else tightest.path
        if folder != self._folder:
            self._folder, self._before = folder, None

    def read(self) -> float | None:
        """Return percent since the read before, 0-100: 0 also while the group did nothing. ``None``
        without a quota, at the first read, and where the file cannot be read."""
        text = procfs.read_if_possible(f"{self._folder}/cpu.stat") if self._folder else b""
        now = cgroup.parse_periods(text)
        before, self._before = self._before, now
        if now is None or before is None:
            return None
        periods, throttled = now.all - before.all, now.throttled - before.throttled
        if periods <= 0:
            # Counters of a group that was made again begin at zero.
            return 0.0 if periods == 0 else None
        return min(100.0, max(0.0, 100.0 * throttled / periods))


PRESSURES = ("cpu", "io", "memory")


class JobPressure(NamedTuple):
    """Shares of the time in which some task of a job's cgroup waited, as fields of ``Job``."""

    pressure_cpu_some_percent: float | None = None
    pressure_io_some_percent: float | None = None
    pressure_memory_some_percent: float | None = None


class PressureMeter:
    """Pressure (PSI) of the cgroup that a process is in, which containers, Slurm and systemd make
    one for each job (cgroup v2)."""

    def __init__(self, pid: int, proc: Path = procfs.PROC) -> None:
        self._folders = cgroup.read_folders(pid, proc)[:1]
        self._before: tuple[float, list[int | None]] | None = None

    def read(self, now: float) -> JobPressure:
        """Return the shares since the read before; ``now``: monotonic seconds. ``None`` at the
        first read, and where the kernel or the cgroup has no such file."""
        files = [f"{folder}/{name}.pressure" for folder in self._folders for name in PRESSURES]
        waited = [parse_pressure(procfs.read_if_possible(file)).get("some") for file in files]
        before, self._before = self._before, (now, waited)
        if before is None:
            return JobPressure()
        at, old = before
        pairs = zip(old, waited, strict=True)
        return JobPressure(*[pressure_percent(then, total, now - at) for then, total in pairs])
