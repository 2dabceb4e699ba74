"""The memory of a device as a process on it sees it: a GPU's, or the host's for a CPU step.

For measuring processes: torch is imported when one of these is made. Each is made before the
user's code runs, in a process of its own, so peaks count from the process's start: the model's
building, the first step (where cuDNN tries algorithms) and the optimizer's state are all in.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gpuwatch.sources.linux import cgroup, procfs
from gpuwatch.tuning.child.step_gpu import GpuMemory, uuid_of


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes, as in ``MemoryPoint``."""

    peak: int
    available: int
    total: int
    allocated: int | None = None
    process: int | None = None
    device_used: int | None = None


class Device(Protocol):
    """``kind`` as torch names it."""

    kind: str

    def synchronize(self) -> None: ...

    def read(self) -> Reading: ...

    def ran_out(self, error: BaseException) -> bool:
        """Whether an exception says that this device's memory ran out."""
        ...


def make_device(kind: str, limit_bytes: int | None) -> Device:
    return HostMemory(limit_bytes) if kind == "cpu" else CudaMemory(limit_bytes)


def causes(error: BaseException) -> list[BaseException]:
    """An exception and those it was raised from, outermost first."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = one.__cause__ or one.__context__
    return found


class CudaMemory:
    """The first CUDA device that this process sees.

    What torch's allocator holds (reserved) must fit into what was free once the context stood,
    less what libraries took past the allocator meanwhile (cuBLAS, cuDNN, kernels)
    (https://docs.pytorch.org/docs/stable/notes/cuda.html, "Memory management").
    """

    kind = "cuda"

    def __init__(self, limit_bytes: int | None = None) -> None:
        import torch  # noqa: PLC0415 - only a measuring process pays for it

        self._cuda: Any = torch.cuda
        self._cuda.init()
        self._first_free, self._total = self._cuda.mem_get_info()
        self._free = self._first_free
        if limit_bytes is not None and limit_bytes < self._total:
            self._cuda.set_per_process_memory_fraction(limit_bytes / self._total)
            self._free, self._total = min(self._free, limit_bytes), limit_bytes

    def synchronize(self) -> None:
        self._cuda.synchronize()

    def read(self) -> Reading:
        taken = self._first_free - self._cuda.mem_get_info()[0]
        beside = max(0, taken - self._cuda.memory_reserved())
        nvml = GpuMemory.read(uuid_of("cuda"), os.getpid())
        return Reading(
            peak=self._cuda.max_memory_reserved(),
            available=self._free - beside,
            total=self._total,
            allocated=self._cuda.max_memory_allocated(),
            process=nvml.process_bytes,
            device_used=nvml.device_used_bytes,
        )

    def ran_out(self, error: BaseException) -> bool:
        return any(
            isinstance(one, self._cuda.OutOfMemoryError)
            or (isinstance(one, RuntimeError) and _says(one, _CUDA_SAYS))
            for one in causes(error)
        )


_CUDA_SAYS = ("CUDA out of memory", "CUDA error: out of memory", "ALLOC_FAILED")
_HOST_SAYS = ("can't allocate memory", "not enough memory", "bad_alloc", "Cannot allocate memory")


def _says(error: BaseException, texts: tuple[str, ...]) -> bool:
    said = str(error)
    return any(text in said for text in texts)


class HostMemory:
    """The memory of this host (or of this container) for a step that runs on the CPU.

    The peak is the process's largest resident size (VmHWM, proc_pid_status(5)): all of it, Python
    and torch included. So that a batch that is too large harms nobody, the process may take no
    more data than there is room for (RLIMIT_DATA; torch's allocator then raises), and should
    memory run out all the same the kernel ends this process first (oom_score_adj).
    """

    kind = "cpu"

    def __init__(self, limit_bytes: int | None = None, proc: Path = procfs.PROC) -> None:
        # What comes with torch itself is there before the guard is set.
        import torch  # noqa: F401, PLC0415 - only a measuring process pays for it

        self._proc = proc
        own = self._own("VmRSS")
        self._available = host_available(proc) + own
        self._total = host_total(proc)
        if limit_bytes is not None and limit_bytes < self._total:
            self._available, self._total = min(self._available, limit_bytes), limit_bytes
        self._guard(max(self._available - own, 1 << 20))

    def _guard(self, room: int) -> None:
        with suppress(OSError):
            (self._proc / "self/oom_score_adj").write_text("1000")
        soft = self._own("VmData") + room
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def synchronize(self) -> None:
        """Steps on the CPU are over when they return."""

    def read(self) -> Reading:
        peak = self._own("VmHWM")
        return Reading(
            peak=peak, available=self._available, total=self._total, process=self._own("VmRSS")
        )

    def _own(self, name: str) -> int:
        return status_bytes((self._proc / "self/status").read_text("ascii", "replace"), name)

    def ran_out(self, error: BaseException) -> bool:
        return any(
            isinstance(one, MemoryError)
            or (isinstance(one, RuntimeError | OSError) and _says(one, _HOST_SAYS))
            for one in causes(error)
        )


def status_bytes(status: str, name: str) -> int:
    """A size in ``/proc/PID/status`` or ``/proc/meminfo``, which both write kB.

    >>> status_bytes("VmHWM:\\t    2048 kB", "VmHWM")
    2097152
    """
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise ValueError(f"there is no {name}")


def host_available(proc: Path = procfs.PROC) -> int:
    """Bytes that a new process could take: the kernel's estimate, or what the tightest memory
    cgroup leaves."""
    free = status_bytes((proc / "meminfo").read_text("ascii", "replace"), "MemAvailable")
    return min([free, *(limit - used for limit, used in _cgroup_memory())])


def host_total(proc: Path = procfs.PROC) -> int:
    """Bytes of memory of this host or of the tightest memory cgroup."""
    whole = status_bytes((proc / "meminfo").read_text("ascii", "replace"), "MemTotal")
    return min([whole, *(limit for limit, _ in _cgroup_memory())])


def _cgroup_memory() -> list[tuple[int, int]]:
    """Limit and use, in bytes, of every cgroup v2 folder that binds this process."""
    lines = cgroup.parse_cgroup(Path("/proc/self/cgroup").read_text("utf-8", "replace"))
    mounts = cgroup.parse_mounts(Path("/proc/self/mountinfo").read_text("utf-8", "replace"))
    folders = cgroup.quota_folders(lines, tuple(one for one in mounts if one.version == 2))
    return [found for folder in folders if (found := folder_memory(folder)) is not None]


def folder_memory(folder: Path) -> tuple[int, int] | None:
    """Limit and use of one cgroup v2 folder, the file cache that it would give up taken off the
    use; ``None`` without a limit."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((folder / "memory.current").read_text())
        stat = (folder / "memory.stat").read_text().splitlines()
        cache = next((int(one.split()[1]) for one in stat if one.startswith("inactive_file ")), 0)
        return int(limit), max(0, used - cache)
    except (OSError, ValueError, IndexError):
        return None
