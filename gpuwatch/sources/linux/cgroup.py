"""Facts from cgroups: how much CPU a process may use, and which container or job it is in.

Both hierarchies are understood: v1 (a mount a controller, ``cpu.cfs_quota_us``), v2 (one mount,
``cpu.max``) and the two side by side. See cgroups(7), cgroup_namespaces(7) and the kernel's
cgroup-v2.rst.
"""

import functools
import os
import re
from pathlib import Path
from typing import NamedTuple

from gpuwatch.sources.linux import procfs

SHORT_ID_LENGTH = 12
"""Container engines print the first twelve digits of an id."""
SHORT_POD_LENGTH = 13

_MOUNT_ESCAPE = re.compile(r"\\([0-7]{3})")


class CgroupLine(NamedTuple):
    """One line of ``/proc/PID/cgroup``; ``controllers`` is empty for v2."""

    controllers: frozenset[str]
    path: str


class CgroupMount(NamedTuple):
    """A mounted hierarchy, and which of its folders that mount shows (``root``)."""

    version: int
    controllers: frozenset[str]
    root: str
    mount_point: str


def parse_cgroup(text: str) -> tuple[CgroupLine, ...]:
    """Parse ``/proc/PID/cgroup``: ``id:controllers:path`` a line; the path may hold colons."""
    lines = []
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            controllers = frozenset(name for name in parts[1].split(",") if name)
            lines.append(CgroupLine(controllers, parts[2].removesuffix(" (deleted)")))
    return tuple(lines)


def parse_mounts(text: str) -> tuple[CgroupMount, ...]:
    """Parse the cgroup mounts in ``/proc/self/mountinfo`` (proc_pid_mountinfo(5))."""
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not separator or len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset(kind[-1].split(",")) if kind[0] == "cgroup" else frozenset[str]()
        version = 1 if kind[0] == "cgroup" else 2
        mounts.append(CgroupMount(version, controllers, _unescape(fields[3]), _unescape(fields[4])))
    return tuple(mounts)


def _unescape(field: str) -> str:
    return _MOUNT_ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)


@functools.lru_cache(maxsize=64)
def quota_folders(groups: str, mounts: tuple[CgroupMount, ...]) -> tuple[Path, ...]:
    """Return every folder whose CPU quota binds the process, its own first, up to each mount;
    ``groups`` is the text of ``/proc/PID/cgroup``, which most processes share."""
    lines, folders = parse_cgroup(groups), list[Path]()
    for mount in mounts:
        path = _path_in(mount, lines)
        if path is None:
            continue
        base = Path(mount.mount_point)
        own = base / path
        folders += [own, *(folder for folder in own.parents if folder.is_relative_to(base))]
    return tuple(folders)


def _path_in(mount: CgroupMount, lines: tuple[CgroupLine, ...]) -> str | None:
    """Return the process's folder relative to the mount; ``None`` when this mount does not bind
    it."""
    for line in lines:
        binds = not line.controllers if mount.version == 2 else "cpu" in line.controllers
        if not binds or (mount.version == 1 and "cpu" not in mount.controllers):
            continue
        root = mount.root.rstrip("/")
        path = line.path.rstrip("/")
        if path == root or path.startswith(root + "/"):
            relative = path[len(root) + 1 :]
            return None if relative.startswith("..") else relative
        # Seen from a cgroup namespace, "/.." is above it. A mount made out there shows a folder
        # over the process, and what lies between the two cannot be named from here. Any other
        # root belongs to somebody else.
        steps, outside = root.split("/")[1:], path.split("/").count("..")
        return "" if steps and set(steps) == {".."} and len(steps) >= outside else None
    return None


_QUOTA_FILES = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
"""Files of v2, with ``200000 100000`` for 2.0 cores or ``max 100000``; and of v1, where -1 is no
quota."""


def folder_quota(folder: Path) -> float | None:
    """Return the CPU quota set on one cgroup folder, in cores; ``None`` without one."""
    for names in _QUOTA_FILES:
        try:
            words = b" ".join([procfs.read_once(f"{folder}/{name}") for name in names]).split()
            quota, period = [0 if one == b"max" else int(one) for one in [*words, b"100000"][:2]]
        except (OSError, ValueError):
            continue
        return quota / period if quota > 0 and period > 0 else None
    return None


class QuotaFolder(NamedTuple):
    """A cgroup folder with a CPU quota on it."""

    path: Path
    cores: float


def read_tightest_quota(pid: int | None = None, proc: Path = procfs.PROC) -> QuotaFolder | None:
    """Return the folder that allows a process (``None``: this one) the least CPU; ``None``: no
    quota."""
    quotas = [(folder, folder_quota(folder)) for folder in read_folders(pid, proc)]
    found = [QuotaFolder(folder, cores) for folder, cores in quotas if cores is not None]
    return min(found, key=lambda folder: folder.cores, default=None)


def read_folders(pid: int | None = None, proc: Path = procfs.PROC) -> tuple[Path, ...]:
    """Return the cgroup folders of a process (``None``: this one), its own first, as far as they
    are of a hierarchy with CPU quotas.

    Paths in ``/proc/PID/cgroup`` and roots in ``mountinfo`` are both given from the reader's
    cgroup namespace, so this process's own mounts serve for every process under them. One that
    is not (gpuwatch in a container, looking out of it) is looked up through its own mounts, which
    takes the right to trace it.
    """
    process = "self" if pid is None else str(pid)
    groups = os.fsdecode(procfs.read_if_possible(f"{proc}/{process}/cgroup"))
    folders = quota_folders(groups, _own_mounts(proc))
    if not folders and pid is not None:
        inside = f"{proc}/{pid}/root"
        mounts = mounts_of(proc / process)
        seen = [mount._replace(mount_point=inside + mount.mount_point) for mount in mounts]
        folders = quota_folders(groups, tuple(seen))
    return folders


def read_quota_cores(pid: int | None = None, proc: Path = procfs.PROC) -> float | None:
    """Return the tightest CPU quota from a process's cgroup to the root, in cores."""
    tightest = read_tightest_quota(pid, proc)
    return None if tightest is None else tightest.cores


@functools.lru_cache(maxsize=4)
def _own_mounts(proc: Path) -> tuple[CgroupMount, ...]:
    """Return this process's mounts, read once: cgroups are mounted when a machine starts, and a
    host of many containers has thousands of other mounts to read through."""
    return mounts_of(proc / "self")


def mounts_of(process: Path) -> tuple[CgroupMount, ...]:
    text = procfs.read_if_possible(process / "mountinfo", procfs.LARGEST_BUFFER)
    return parse_mounts(os.fsdecode(text))


class Periods(NamedTuple):
    """Number of times that a group with a quota was looked at, and held back, since it was made."""

    all: int
    throttled: int


def parse_periods(text: bytes) -> Periods | None:
    """Parse ``nr_periods`` and ``nr_throttled`` of ``cpu.stat``, alike in v1 and v2; ``None``: no
    such lines. A period counts only when something in the group wanted to run."""
    values = dict(line.split(None, 1) for line in text.splitlines() if b" " in line)
    try:
        return Periods(int(values[b"nr_periods"]), int(values[b"nr_throttled"]))
    except (KeyError, ValueError):
        return None


class Membership(NamedTuple):
    """The container and the Slurm job a process runs in, as its cgroup names them."""

    container: str | None
    slurm_job: str | None


# docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope, libpod-ID.scope, nerdctl-ID.scope,
# .../docker/ID, .../kubepods/burstable/podUID/ID, ...slice:cri-containerd:ID. The monitor
# processes of podman and cri-o (conmon) are in folders of their own and not in the container.
_CONTAINER_ID = re.compile(r"(?:^|[/:-])(?<!conmon-)([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_POD_UID = re.compile(
    r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./:\s]|$)"
)
_SLURM_JOB = re.compile(r"/[^/]*slurm[^/]*/(?:[^/]+/)*?job_(\d+)(?=/|$)")


@functools.lru_cache(maxsize=256)
def parse_membership(text: str) -> Membership:
    """Parse container and Slurm job from ``/proc/PID/cgroup``, a text that most processes share.

    The innermost of nested containers is named. An id is cut to its first 12 digits, as the
    engines print it; a pod whose container is not named gives the beginning of the pod's uid.
    """
    paths = [line.path for line in parse_cgroup(text)]
    jobs = (found[1] for path in paths if (found := _SLURM_JOB.search(path)))
    return Membership(next(filter(None, map(_container, paths)), None), next(jobs, None))


def _container(path: str) -> str | None:
    if ids := _CONTAINER_ID.findall(path):
        return str(ids[-1])[:SHORT_ID_LENGTH]
    pod = parse_pod_uid(path)
    return None if pod is None else pod[:SHORT_POD_LENGTH]


def parse_pod_uid(text: str) -> str | None:
    """Parse the uid of the Kubernetes pod in ``/proc/PID/cgroup``, as the API server writes it.
    The systemd driver writes its dashes as underscores; a static pod's is a plain hash."""
    found = _POD_UID.search(text)
    return None if found is None else found[1].replace("_", "-")


def in_container(root: Path = Path("/")) -> bool:
    """Return True if this process seems to run inside a container: by the marks that engines put
    into its file system or environment, else by its cgroup."""
    return (
        any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv"))
        or not os.environ.keys().isdisjoint({"KUBERNETES_SERVICE_HOST", "container"})
        or read_membership("self", root / "proc").container is not None
    )


def read_membership(pid: int | str, proc: Path = procfs.PROC) -> Membership:
    """Return container and job of a process; both ``None`` where its cgroup cannot be read."""
    return parse_membership(os.fsdecode(procfs.read_if_possible(f"{proc}/{pid}/cgroup")))
