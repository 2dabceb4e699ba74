"""Changes of a practice job to its machine, taken back at its end: /dev/shm, cores, a quota."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from gpuwatch.core.text import SentenceError
from gpuwatch.practice.knobs import parse_cores

SHM = Path("/dev/shm")
SHM_LEAVES_BYTES = 2 << 30
"""Of memory, at least, is left to the machine: what is in /dev/shm is in memory."""
PERIOD_US = 100_000
SCOPE = "GPUWATCH_PRACTICE_SCOPE"
_CGROUPS = Path("/sys/fs/cgroup")


def scratch_folder() -> Path:
    """A new folder on a disk (reads from memory would not be reads). Raises ``OSError``."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path(cache).expanduser()]
    on_disk = [place for place in places if place.is_dir() and not is_in_memory(place)]
    place = (on_disk or places)[0]
    return Path(tempfile.mkdtemp(prefix="gpuwatch-practice-", dir=place))


def is_in_memory(folder: Path) -> bool:
    """True if the folder is on a file system that is memory itself: its reads are never cold."""
    here = folder.resolve()
    mounts = [
        one for one in psutil.disk_partitions(all=True) if here.is_relative_to(one.mountpoint)
    ]
    nearest = max(mounts, key=lambda one: len(one.mountpoint), default=None)
    return nearest is not None and nearest.fstype in ("tmpfs", "ramfs")


class ShmFiller:
    """Fills /dev/shm up to a share, with a file that has no name: it goes with the process."""

    def __init__(self) -> None:
        self._file: int | None = None

    def fill(self, percent: float) -> str | None:
        """Until so much of all of it is used, 0 for what others use; why less, as a sentence."""
        self.close()
        if percent <= 0:
            return None
        found = os.statvfs(SHM)
        total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        wanted = round(total * percent / 100) - (total - free)
        allowed = psutil.virtual_memory().available - SHM_LEAVES_BYTES
        if wanted > allowed:
            return (
                f"/dev/shm ({total >> 20} MiB) is not filled to {percent:g}%: that takes "
                f"{wanted >> 20} MiB of memory, and {max(0, allowed) >> 20} MiB can be spared. "
                "A container with a small one shows it: docker run --shm-size=1g"
            )
        if wanted <= 0:
            return None
        self._file = os.open(SHM, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._file, 0, wanted)
        except OSError as error:
            self.close()
            return f"/dev/shm cannot be filled: {error.strerror}"
        return None

    def close(self) -> None:
        if self._file is not None:
            # Workers that were forked meanwhile have it open, too.
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None


class Cores:
    """Moves this process to other cores, and back; what it starts from then on comes along."""

    def __init__(self) -> None:
        self._first = os.sched_getaffinity(0)

    def use(self, text: str) -> str | None:
        """Empty: those it was started on. Why not, as a sentence."""
        wanted = parse_cores(text) if text else self._first
        try:
            for task in Path("/proc/self/task").iterdir():
                # A thread may have ended meanwhile.
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), wanted)
        except OSError:
            return f"the job cannot run on the cores {text}: they are not there, or not allowed"
        return None


def far_cores(gpu_address: str) -> str | None:
    """Cores of another NUMA node than that of the GPU at a PCI address, if there are any."""
    near = Path("/sys/bus/pci/devices") / gpu_address.lower() / "numa_node"
    with contextlib.suppress(OSError, ValueError):
        node = int(near.read_text())
        for other in sorted(Path("/sys/devices/system/node").glob("node[0-9]*")):
            text = (other / "cpulist").read_text().strip()
            far = node >= 0 and other.name != f"node{node}"
            if far and parse_cores(text) & os.sched_getaffinity(0):
                return text
    return None


# -- a CPU quota ------------------------------------------------------------------------------


def enter_quota(cores: float) -> Group | Scope:
    """Limit this process to ``cores``. Where only systemd may make the cgroup, this process is
    replaced by itself in a scope. Raises ``SentenceError``."""
    scope = os.environ.get(SCOPE)
    if scope:
        return Scope(scope)
    with contextlib.suppress(OSError):
        group = Group()
        group.set(cores)
        return group
    asked = ["systemctl", "--user", "show-environment"]
    has_systemd = all(map(shutil.which, ("systemd-run", "systemctl")))
    if has_systemd and subprocess.run(asked, capture_output=True, check=False).returncode == 0:
        unit = f"gpuwatch-practice-{os.getpid()}.scope"
        os.environ[SCOPE] = unit
        limit = f"CPUQuota={max(1, round(cores * 100))}%"
        command = ["systemd-run", "--user", "--scope", "--quiet", "--unit", unit, "-p", limit]
        # The command line as it was typed: -m has become a path in sys.argv.
        os.execvp(command[0], [*command, *sys.orig_argv])
    raise SentenceError(
        "a CPU quota needs a cgroup of its own: run it as root, or in a container with a limit "
        "(docker run --cpus=0.5), or under systemd-run --user --scope -p CPUQuota=50%"
    )


class Group:
    """A cgroup below (version 1) or beside (version 2) that of this process."""

    def __init__(self) -> None:
        self._folder, self._before = _place()
        self._version_2 = (self._before / "cgroup.controllers").exists()
        self._folder.mkdir()
        try:
            if self._version_2 and not (self._folder / "cpu.max").exists():
                raise FileNotFoundError(self._folder / "cpu.max")
            (self._folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            self._folder.rmdir()
            raise

    def set(self, cores: float) -> None:
        """0: no limit. Raises ``OSError``."""
        quota = round(cores * PERIOD_US)
        if self._version_2:
            (self._folder / "cpu.max").write_text(f"{quota or 'max'} {PERIOD_US}")
        else:
            (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota or -1))

    def leave(self) -> None:
        with contextlib.suppress(OSError):
            for pid in (self._folder / "cgroup.procs").read_text().split():
                (self._before / "cgroup.procs").write_text(pid)
        for _ in range(50):
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.02)


def _place() -> tuple[Path, Path]:
    """Where the new cgroup goes, and the one this process is in. Raises ``OSError``."""
    name = f"gpuwatch-practice-{os.getpid()}"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if "cpu" in controllers.split(","):
            for mount in (_CGROUPS / controllers, _CGROUPS / "cpu"):
                if mount.is_dir():
                    # In a container the path can be one of the host's.
                    own = mount / inside if (mount / inside).is_dir() else mount
                    return own / name, own
        if number == "0" and (_CGROUPS / "cgroup.controllers").exists():
            own = _CGROUPS / inside if (_CGROUPS / inside).is_dir() else _CGROUPS
            # A cgroup with processes in it gives its groups no controllers.
            return (own.parent if inside else own) / name, own
    raise FileNotFoundError("no cgroup for the CPU")


class Scope:
    """A scope of the user's systemd that this process was started in."""

    def __init__(self, unit: str) -> None:
        self._unit = unit

    def set(self, cores: float) -> None:
        limit = "CPUQuota=" if cores <= 0 else f"CPUQuota={max(1, round(cores * 100))}%"
        command = ["systemctl", "--user", "--runtime", "set-property", self._unit, limit]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            raise OSError("systemd did not change the quota")

    def leave(self) -> None:
        """It ends with the last process in it."""


Quota = Group | Scope
"""A limit on the CPU that this process and all it starts may use."""
