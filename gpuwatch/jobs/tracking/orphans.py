"""Loader workers whose training process has ended before anybody watched it."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.jobs.identity.evidence import Lineage, Look
from gpuwatch.jobs.identity.grouping import Looker, is_left_over
from gpuwatch.jobs.identity.roles import WORKER_NAME
from gpuwatch.jobs.tracking.machine import MachineLook
from gpuwatch.jobs.tracking.tracked import TrackedJob


class LeftOverFinder:
    """Finds them among all processes, on the slow timer of ``MachineLook``."""

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
            if member.given.role in ("rank", "loader_worker")
        }
        self.found = {}
        cleared = {}
        for pid, lineage in self._machine.lineages():
            job = groups.get((lineage.session, lineage.group))
            if pid in known or not (job or lineage.name.startswith(WORKER_NAME)):
                continue
            if self._cleared.get(pid) == (lineage.start_ticks, lineage.parent):
                cleared[pid] = self._cleared[pid]
            elif self._is_left_over(pid, lineage, job):
                self.found[pid] = job
            else:
                cleared[pid] = (lineage.start_ticks, lineage.parent)
        self._cleared = cleared

    def _is_left_over(self, pid: int, lineage: Lineage, job: TrackedJob | None) -> bool:
        look = self._look(pid)
        if look is None or look.parent != lineage.parent:
            return False
        return is_worker_left_over(look, self._look(look.parent)) or (
            job is not None and look.parent not in job.members and _was_part_of(look, job)
        )


def is_worker_left_over(look: Look, parent: Look | None) -> bool:
    """Whether it is a worker by its name or its start method, and what started it has ended."""
    is_worker = look.name.startswith(WORKER_NAME) or look.program.started_by == "spawn"
    return is_worker and is_left_over(look, parent)


def _was_part_of(look: Look, job: TrackedJob) -> bool:
    """Whether a process in a rank's process group, taken in by init, runs the rank's program.

    Two commands of one script share a group; only the same command line tells a fork.
    """
    ranks = [member.look for member in job.members.values() if member.given.role == "rank"]
    return look.parent <= 1 and any(
        bool(look.arguments) and look.arguments == rank.arguments for rank in ranks
    )
