"""Which processes make one job: from any of them up to the topmost."""

from collections.abc import Callable, Mapping

from gpuwatch.jobs.identity.evidence import Look
from gpuwatch.jobs.identity.programs import is_restart, is_title

DEEPEST = 64

Looker = Callable[[int], Look | None]


def climb(pid: int, look: Looker) -> tuple[Look, ...]:
    """The process and those above it that belong to its job, the topmost last.

    Launchers belong to the job, and so do parents that run the same program (``fork``, the start
    methods of Python's multiprocessing, or a script that starts itself again, as Lightning does).
    Wrappers and shells do only below a launcher that started them; everything else ends the
    climb. Empty where there is no such process.
    """
    first = look(pid)
    if first is None:
        return ()
    chain = [first]
    while len(chain) < DEEPEST and (above := _above(chain[-1], look)):
        chain += above
    return tuple(chain)


def _above(child: Look, look: Looker) -> list[Look]:
    passed: list[Look] = []
    while len(passed) < DEEPEST:
        parent = look(child.parent) if child.parent > 1 else None
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


def is_same_program(child: Look, parent: Look) -> bool:
    """True if ``child`` is a part of the program that ``parent`` runs, not one it started."""
    mine, other = child.program, parent.program
    if other.kind not in ("python", "other"):
        return False
    if mine.started_by is not None or mine.helper is not None or is_fork(child, parent):
        return True
    return mine.is_python and other.is_python and is_restart(child.arguments, parent.arguments)


def is_fork(child: Look, parent: Look) -> bool:
    """True if both run the same program: the same arguments, or the same executable under a
    title that one of them gave itself since."""
    if child.arguments and child.arguments == parent.arguments:
        return True
    return _has_title(child, parent) and child.executable == parent.executable is not None


def is_orphaned(worker: Look, parent: Look | None) -> bool:
    """True if the process that started a loader worker has ended. A loader worker is a fork of a
    Python process, or started by its multiprocessing: any other parent is one that took it in."""
    if parent is None or worker.parent <= 1 or parent.program.kind not in ("python", "other"):
        return True
    if is_same_program(worker, parent):
        return not parent.program.is_python and not _has_title(worker, parent)
    # Other users' executables cannot be read: a title then says nothing.
    known = worker.executable is not None and parent.executable is not None
    return known or not _has_title(worker, parent)


def _has_title(one: Look, other: Look) -> bool:
    return is_title(one.arguments) or is_title(other.arguments)


def world_of(environment: Mapping[str, str] | None, parent: Look | None) -> tuple[str, ...] | None:
    """The mark that all ranks of one job on a machine share although no launcher here started
    all of them; ``None`` for a job of one rank.

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
