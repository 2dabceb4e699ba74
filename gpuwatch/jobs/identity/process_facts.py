"""One process as the kernel's files show it, and which processes make one job.

``/proc/PID/stat``, ``comm`` and ``task/*/comm`` are open to everybody; ``environ``, ``maps``,
``io``, ``exe`` and ``smaps_rollup`` only to the process's user and to root (proc(5), "Governed by
a ptrace access mode").
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.jobs.identity.programs import Program, is_restart, is_title, recognise, words
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import clean_name

COMMAND_BYTES = 4096
ARGUMENTS_KEPT = 64
ENVIRONMENT_BYTES = 1 << 20
VALUE_LENGTH = 4096
THREADS_READ = 128
"""New threads whose names are read at one look; a process with more is read over several."""

ENVIRONMENT_NAMES = words(
    """
    CONDA_PREFIX CUDA_VISIBLE_DEVICES HOSTNAME KUBERNETES_SERVICE_HOST LOCAL_RANK
    MASTER_ADDR MASTER_PORT MPI_LOCALRANKID NCCL_RAS_ADDR NODE_RANK OMPI_COMM_WORLD_LOCAL_RANK
    OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PATH PMI_RANK PMI_SIZE POD_NAME POD_NAMESPACE RANK
    SLURM_CPUS_ON_NODE SLURM_JOBID SLURM_JOB_ID SLURM_LOCALID SLURM_PROCID SLURM_STEP_ID
    SLURM_STEP_NUM_TASKS VIRTUAL_ENV WORLD_SIZE
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
class ProcessFacts:
    """Facts that are constant for a process until it runs another program. Text is
    ``text.clean``."""

    pid: int
    parent: int
    started_at: float | None = None
    name: str = ""
    group: int = 0
    session: int = 0
    arguments: tuple[str, ...] = ()
    executable: str | None = None
    """``None`` also where it may not be read."""
    program: Program = field(init=False)

    def __post_init__(self) -> None:
        program = recognise(self.arguments, self.name, self.executable)
        object.__setattr__(self, "program", program)


def all_pids(proc: Path = procfs.PROC) -> list[int]:
    """Return the PID of every process. Raises ``OSError``."""
    return [int(name) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 - names only


def read_all(proc: Path = procfs.PROC) -> dict[int, procfs.ProcessStat]:
    """Read all processes of the machine, by PID."""
    return {pid: stat for pid in all_pids(proc) if (stat := procfs.read_stat(pid, proc))}


def children_of(seen: Mapping[int, procfs.ProcessStat]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid, stat in seen.items():
        children.setdefault(stat.parent_pid, []).append(pid)
    return children


def read_link(pid: int | str, name: str, proc: Path = procfs.PROC) -> str | None:
    """Return ``cwd`` or ``exe`` of a process; ``None`` where it may not be read. The kernel
    answers: the file system behind it, which may hang, is not asked."""
    try:
        return os.readlink(f"{proc}/{pid}/{name}")  # noqa: PTH115 - text, not a Path
    except OSError:
        return None


def read_inner_pid(pid: int, proc: Path = procfs.PROC) -> int | None:
    """Return the PID inside the process's own PID namespace, if that is another than ``pid``."""
    inner = procfs.inner_pids(pid, proc)
    return inner[-1] if inner and inner[-1] != pid else None


def read_facts(pid: int, proc: Path = procfs.PROC) -> ProcessFacts | None:
    """Read one process as it is now; ``None`` where there is none, or it is hidden or a kernel
    thread."""
    stat = procfs.read_stat(pid, proc)
    if stat is None or stat.is_kernel_thread:
        return None
    line = procfs.read_if_possible(f"{proc}/{pid}/cmdline", COMMAND_BYTES)
    executable = read_link(pid, "exe", proc)
    return ProcessFacts(
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
    """Split ``/proc/PID/cmdline`` into arguments of at most ``length`` characters, each made safe;
    empty where there is none."""
    # Rewritten titles are padded with NULs or blanks up to the room the arguments had.
    text = line.rstrip(b"\0 \n")
    parts = text.split(b"\0") if text else []
    return tuple([clean(part.decode("utf-8", "replace"), length) for part in parts])


def read_environment(pid: int, proc: Path = procfs.PROC) -> dict[str, str] | None:
    """Read the variables in ``ENVIRONMENT_NAMES`` that the process was started with, made safe.
    ``None`` where they may not be read. What a program sets later is not seen."""
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


class Libraries(NamedTuple):
    """Training library that a process has loaded."""

    framework: str | None = None
    """``torch``, ``jax`` or ``tensorflow``."""
    cpu_build: bool | None = None
    """A PyTorch without the libraries for GPUs, which load with it."""
    names_workers: bool = False
    """A PyTorch that is known to name its loader workers."""


NO_LIBRARIES = Libraries()


def read_libraries(pid: int, proc: Path = procfs.PROC) -> Libraries:
    """Read which training library a process has loaded. Raises ``OSError``.

    PyTorch first: it is what loads data when another is there too, and jobs that import
    ``transformers`` can have all of them loaded without use."""
    maps = procfs.read_whole(f"{proc}/{pid}/maps")
    for name, libraries in _FRAMEWORKS:
        if any(library in maps for library in libraries):
            if name != "torch":
                return Libraries(name)
            for_gpus = any(library in maps for library in _FOR_GPUS)
            return Libraries(name, not for_gpus, _names_workers(pid, maps, proc))
    return NO_LIBRARIES


def _names_workers(pid: int, maps: bytes, proc: Path) -> bool:
    """True if so says the version file beside PyTorch's library, in the process's own file
    system."""
    library = _TORCH.search(maps)
    if library is None:
        return False
    try:
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
    """Return a rank's numbers by its environment; ``None`` when it names none."""

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
        """Return the names now. Raises ``OSError`` where the threads cannot be listed."""
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


# Which processes make one job: from any of them up to the topmost

DEEPEST = 64

ReadFacts = Callable[[int], ProcessFacts | None]


def climb(pid: int, read: ReadFacts) -> tuple[ProcessFacts, ...]:
    """Return the process and those above it that belong to its job, the topmost last.

    Launchers belong to the job, and so do parents that run the same program (``fork``, the start
    methods of Python's multiprocessing, or a script that starts itself again, as Lightning does).
    Wrappers and shells do only below a launcher that started them; everything else ends the
    climb. Empty where there is no such process.
    """
    first = read(pid)
    if first is None:
        return ()
    chain = [first]
    while len(chain) < DEEPEST and (above := _above(chain[-1], read)):
        chain += above
    return tuple(chain)


def _above(child: ProcessFacts, read: ReadFacts) -> list[ProcessFacts]:
    passed: list[ProcessFacts] = []
    while len(passed) < DEEPEST:
        parent = read(child.parent) if child.parent > 1 else None
        if parent is None:
            return []
        kind = parent.program.kind
        if kind == "launcher":
            return [*passed, parent]
        if kind in ("boundary", "gpuwatch"):
            return []
        if not passed and is_same_program(child, parent):
            return [parent]
        if kind not in ("wrapper", "shell"):
            return []
        passed.append(parent)
        child = parent
    return []


def is_same_program(child: ProcessFacts, parent: ProcessFacts) -> bool:
    """True if ``child`` is a part of the program that ``parent`` runs, not one it started."""
    mine, other = child.program, parent.program
    if other.kind not in ("python", "other"):
        return False
    if mine.started_by is not None or mine.helper is not None or is_fork(child, parent):
        return True
    return mine.is_python and other.is_python and is_restart(child.arguments, parent.arguments)


def is_fork(child: ProcessFacts, parent: ProcessFacts) -> bool:
    """True if both run the same program: the same arguments, or the same executable under a
    title that one of them gave itself since."""
    if child.arguments and child.arguments == parent.arguments:
        return True
    return _has_title(child, parent) and child.executable == parent.executable is not None


def is_orphaned(worker: ProcessFacts, parent: ProcessFacts | None) -> bool:
    """True if the process that started a loader worker has ended. A loader worker is a fork of a
    Python process, or started by its multiprocessing: any other parent is one that took it in."""
    if parent is None or worker.parent <= 1 or parent.program.kind not in ("python", "other"):
        return True
    if is_same_program(worker, parent):
        return not parent.program.is_python and not _has_title(worker, parent)
    # Other users' executables cannot be read: a title then says nothing.
    known = worker.executable is not None and parent.executable is not None
    return known or not _has_title(worker, parent)


def _has_title(one: ProcessFacts, other: ProcessFacts) -> bool:
    return is_title(one.arguments) or is_title(other.arguments)


def world_of(
    environment: Mapping[str, str] | None, parent: ProcessFacts | None
) -> tuple[str, ...] | None:
    """Return the mark that all ranks of one job on a machine share although no launcher here
    started all of them; ``None`` for a job of one rank.

    Where ``srun`` runs on another machine, only ``slurmstepd`` is above the ranks. Actors of Ray
    are all below its ``raylet``; which of several programs in one cluster they work for does not
    show.
    """
    if parent is not None and parent.program.name == "raylet":
        return ("ray", str(parent.pid), str(parent.started_at))
    if not environment:
        return None
    if parent is not None and parent.program.name == "slurmstepd":
        job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
        if job and step:
            return ("slurm", job, step)
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if address and port and environment.get("WORLD_SIZE", "1") != "1" and "RANK" in environment:
        return ("world", address, port, environment["WORLD_SIZE"])
    return None
