"""One process as the kernel's files show it: where it stands, its program, what is loaded in it.

``/proc/PID/stat``, ``comm`` and ``task/*/comm`` are open to everybody; ``environ``, ``maps``,
``io``, ``exe`` and ``smaps_rollup`` only to the process's user and to root (proc(5), "Governed by
a ptrace access mode").
"""

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.jobs.identity import programs, surroundings
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import clean_name

COMMAND_BYTES = 4096
ARGUMENTS_KEPT = 64
ENVIRONMENT_BYTES = 1 << 20
VALUE_LENGTH = 4096
THREADS_READ = 128
"""New threads whose names are read at one look; a process with more is read over several."""

ENVIRONMENT_NAMES = surroundings.ENVIRONMENT_NAMES | programs.words(
    """
    CUDA_VISIBLE_DEVICES GROUP_RANK LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
    MPI_LOCALNRANKS MPI_LOCALRANKID NODE_RANK OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_RANK
    OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE RANK SLURM_LOCALID SLURM_PROCID SLURM_STEP_ID
    SLURM_STEP_NUM_TASKS TORCHELASTIC_RUN_ID WORLD_SIZE
    """
)
"""The only variables that are kept: environments hold passwords and keys."""

_FRAMEWORKS = (
    ("torch", (b"/libtorch_cpu.so", b"/libtorch_python.so", b"/libtorch.so")),
    ("jax", (b"/jaxlib/", b"/libjax", b"/xla_extension.so")),
    ("tensorflow", (b"/libtensorflow_framework.so", b"_pywrap_tensorflow_internal.so")),
)
_TORCH = re.compile(rb"(/[^\n]*/torch)/lib/libtorch_cpu\.so")
_TORCH_VERSION = re.compile(rb"__version__ = '(\d+)\.(\d+)")
_NAMES_WORKERS = (2, 5)
"""The first PyTorch that names its loader workers (pytorch#128448)."""
_FOR_GPUS = (b"/libtorch_cuda", b"/libtorch_hip", b"/libtorch_xpu", b"/libc10_cuda", b"/libcuda.so")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One process as grouping and roles see it. Text is ``text.clean``."""

    pid: int
    parent: int
    started_at: float | None = None
    name: str = ""
    group: int = 0
    session: int = 0
    arguments: tuple[str, ...] = ()
    executable: str | None = None
    """``None`` also where it may not be read."""

    @property
    def program(self) -> programs.Program:
        return programs.recognise(self.arguments, self.name, self.executable)


def all_pids(proc: Path = procfs.PROC) -> list[int]:
    """Every process there is. Raises ``OSError``."""
    return [int(name) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 - names only


def read_all(proc: Path = procfs.PROC) -> dict[int, procfs.ProcessStat]:
    """All processes of the machine, by PID."""
    return {pid: stat for pid in all_pids(proc) if (stat := procfs.read_stat(pid, proc))}


def children_of(seen: Mapping[int, procfs.ProcessStat]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid, stat in seen.items():
        children.setdefault(stat.parent_pid, []).append(pid)
    return children


def read_look(pid: int, proc: Path = procfs.PROC) -> Look | None:
    """One process as it is now; ``None`` where there is none, or it is hidden or a kernel
    thread."""
    stat = procfs.read_stat(pid, proc)
    if stat is None or stat.is_kernel_thread:
        return None
    line = procfs.read_if_possible(f"{proc}/{pid}/cmdline", COMMAND_BYTES)
    executable = surroundings.read_link(pid, "exe", proc)
    return Look(
        pid=pid,
        parent=stat.parent_pid,
        started_at=procfs.start_unix_seconds(stat, proc),
        name=clean_name(stat.name),
        group=stat.group,
        session=stat.session,
        arguments=parse_arguments(line, COMMAND_BYTES)[: ARGUMENTS_KEPT + 1],
        executable=None if executable is None else clean(executable),
    )


def parse_arguments(line: bytes, length: int) -> tuple[str, ...]:
    """``/proc/PID/cmdline`` as arguments of at most ``length`` characters, each made safe; empty
    where there is none."""
    # Rewritten titles are padded with NULs or blanks up to the room the arguments had.
    text = line.rstrip(b"\0 \n")
    parts = text.split(b"\0") if text else []
    return tuple([clean(part.decode("utf-8", "replace"), length) for part in parts])


def read_environment(pid: int, proc: Path = procfs.PROC) -> dict[str, str] | None:
    """The variables in ``ENVIRONMENT_NAMES`` that the process was started with, made safe. ``None``
    where they may not be read. What a program sets later is not seen."""
    try:
        raw = procfs.read_whole(f"{proc}/{pid}/environ", ENVIRONMENT_BYTES)
    except OSError:
        return None
    kept = {}
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and (key := name.decode("ascii", "replace")) in ENVIRONMENT_NAMES:
            kept[key] = clean(value.decode("utf-8", "replace"), VALUE_LENGTH)
    return kept


def read_framework(pid: int, proc: Path = procfs.PROC) -> tuple[str | None, bool | None]:
    """The training library loaded in a process, ``None`` for none, and whether it is a PyTorch
    without the libraries for GPUs, which load with it. Raises ``OSError``.

    PyTorch first: it is what loads data when another is there too, and jobs that import
    ``transformers`` can have all of them loaded without use."""
    maps = procfs.read_whole(f"{proc}/{pid}/maps")
    for name, libraries in _FRAMEWORKS:
        if any(library in maps for library in libraries):
            for_gpus = any(library in maps for library in _FOR_GPUS)
            return name, not for_gpus if name == "torch" else None
    return None, None


def names_workers(pid: int, proc: Path = procfs.PROC) -> bool:
    """True if its PyTorch is known to be one that names its loader workers, by the version file
    beside the library, in the process's own file system."""
    try:
        library = _TORCH.search(procfs.read_whole(f"{proc}/{pid}/maps"))
        if library is None:
            return False
        # Whoever runs the process may have put anything there.
        path = f"{proc}/{pid}/root{os.fsdecode(library[1])}/version.py"
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            version = _TORCH_VERSION.search(os.read(descriptor, 1024))
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return version is not None and (int(version[1]), int(version[2])) >= _NAMES_WORKERS


class RankNumbers(NamedTuple):
    """A rank's place among the ranks, as its launcher said it; ``sign`` says by what."""

    rank: int | None
    local_rank: int | None
    world_size: int | None
    sign: str


_RANK_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    # SLURM_PROCID is 0 in a batch script too; only those of srun hear the number of tasks.
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"),
)


def rank_numbers(environment: Mapping[str, str] | None) -> RankNumbers | None:
    """A rank's numbers by its environment; ``None`` when it names none."""

    def number(name: str) -> int | None:
        text = environment.get(name, "") if environment else ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    for rank_name, local_name, size_name in _RANK_VARIABLES:
        rank, size = number(rank_name), number(size_name)
        if rank is not None and not (rank_name == "SLURM_PROCID" and size in (None, 1)):
            sign = f"{rank_name}={rank} in its environment"
            return RankNumbers(rank, number(local_name), size, sign)
    # Lightning starts ranks 1, 2, ... of a machine by itself and gives them only these.
    local, of_all = number("LOCAL_RANK"), number("NODE_RANK") == 0
    if local is None:
        return None
    sign = f"LOCAL_RANK={local} in its environment"
    return RankNumbers(local if of_all else None, local, number("WORLD_SIZE"), sign)


class ThreadNames:
    """The names of a process's threads, each read twice: a thread names itself after it began."""

    __slots__ = ("_names", "_path", "_settled", "complete")

    def __init__(self, pid: int, proc: Path = procfs.PROC) -> None:
        self._path = f"{proc}/{pid}/task"
        self._names: dict[str, str] = {}
        self._settled: set[str] = set()
        self.complete = False
        """Every thread of the last look has been read."""

    def refresh(self) -> frozenset[str]:
        """The names now. Raises ``OSError`` where the threads cannot be listed."""
        now = set(os.listdir(self._path))  # noqa: PTH208 - names only, no Path each
        self._settled &= now
        self._names = {thread: name for thread, name in self._names.items() if thread in now}
        # Newest last, so that on the first look at very many the old ones are known first.
        waiting = sorted(now - self._settled, key=int)
        for thread in waiting[:THREADS_READ]:
            # It may have ended since.
            with contextlib.suppress(OSError):
                name = procfs.read_once(f"{self._path}/{thread}/comm", 64)
                if thread in self._names:
                    self._settled.add(thread)
                self._names[thread] = clean_name(name.rstrip(b"\n"))
        self.complete = len(waiting) <= THREADS_READ
        return frozenset(self._names.values())
