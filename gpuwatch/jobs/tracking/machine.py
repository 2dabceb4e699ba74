"""A slow look at all processes of the machine, for what the tree of a job does not reach.

Loader workers whose parent ended before anybody watched, ranks beside one another below a
daemon, and the next run of a job that has ended. Each process is read once, and again when its
parent has ended.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from gpuwatch.jobs.identity.evidence import Look
from gpuwatch.jobs.identity.grouping import Looker, is_orphaned
from gpuwatch.jobs.identity.roles import WORKER_NAME
from gpuwatch.jobs.tracking.tracked import TrackedJob
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import ProcessList
from gpuwatch.sources.linux.procfs import ProcessStat

LOOK_SECONDS = 10.0
FULL_SECONDS = 300.0
"""A PID used again between two looks is noticed only then."""


class MachineLook:
    """The ``stat`` of every process that is not a kernel thread."""

    def __init__(self, proc: Path = procfs.PROC) -> None:
        self._proc = proc
        self._list = ProcessList(proc, self._read, attrgetter("parent_pid"))
        self.stats: Mapping[int, ProcessStat] = self._list.known
        self._looked_at = self._full_at = float("-inf")

    def refresh(self, now: float, every: float = LOOK_SECONDS) -> frozenset[int] | None:
        """Look if the last look is ``every`` seconds old: the PIDs that are new, or have a new
        parent, since the look before; ``None`` if it was not time."""
        if now - self._looked_at < every:
            return None
        self._looked_at = now
        anew = now - self._full_at >= FULL_SECONDS
        if anew:
            self._full_at = now
        try:
            return frozenset(self._list.refresh(anew=anew)[0])
        except OSError:
            return frozenset()

    def beside(self, parent: int) -> list[int]:
        """The children of ``parent``."""
        return [pid for pid, stat in self.stats.items() if stat.parent_pid == parent]

    def _read(self, pid: int) -> ProcessStat | None:
        stat = procfs.read_stat(pid, self._proc)
        return None if stat is None or stat.is_kernel_thread else stat


class OrphanFinder:
    """Finds loader workers whose training process has ended before anybody watched it."""

    def __init__(self, machine: MachineLook, look: Looker) -> None:
        self._machine = machine
        self._look = look
        self.found: dict[int, TrackedJob | None] = {}
        """By PID, with the job it was a part of, where that is still there."""
        self._cleared: dict[int, tuple[int, int]] = {}

    def search(self, jobs: Sequence[TrackedJob]) -> None:
        known = {pid for job in jobs for pid in job.members}
        groups = {
            (member.look.session, member.look.group): job
            for job in jobs
            for member in job.members.values()
            if member.role.name in ("rank", "loader_worker")
        }
        self.found = {}
        cleared = {}
        for pid, stat in self._machine.stats.items():
            job = groups.get((stat.session, stat.group))
            if pid in known or not (job or stat.name.startswith(WORKER_NAME.encode())):
                continue
            state = (stat.start_ticks, stat.parent_pid)
            if self._cleared.get(pid) == state or not self._is_orphan(pid, stat, job):
                cleared[pid] = state
            else:
                self.found[pid] = job
        self._cleared = cleared

    def _is_orphan(self, pid: int, stat: ProcessStat, job: TrackedJob | None) -> bool:
        look = self._look(pid)
        if look is None or look.parent != stat.parent_pid:
            return False
        return is_orphaned_worker(look, self._look(look.parent)) or (
            job is not None and look.parent not in job.members and _was_part_of(look, job)
        )


def is_orphaned_worker(look: Look, parent: Look | None) -> bool:
    """True if it is a worker by its name or its start method, and what started it has ended."""
    is_worker = look.name.startswith(WORKER_NAME) or look.program.started_by == "spawn"
    return is_worker and is_orphaned(look, parent)


def _was_part_of(look: Look, job: TrackedJob) -> bool:
    """True if a process in a rank's process group, taken in by init, runs the rank's program. Two
    commands of one script share a group; only the same command line tells a fork."""
    ranks = [member.look for member in job.members.values() if member.role.name == "rank"]
    same = any(look.arguments == rank.arguments for rank in ranks)
    return look.parent <= 1 and bool(look.arguments) and same
