"""The processes of one snapshot, and which is below which."""

import os
from collections.abc import Collection, Iterable, Mapping

from gpuwatch.core.model import Process
from gpuwatch.jobs.tracking.tracked import TrackedJob


class Tree:
    """Gives each process out once: ``taken`` are those that a job has."""

    def __init__(self, rows: Mapping[int, Process]) -> None:
        self.rows = rows
        self.taken: set[int] = set()
        self._children: dict[int, list[int]] = {}
        # A call of the kernel: once, and not for each of them.
        own = os.getpid()
        for pid, row in rows.items():
            if row.parent_pid is not None and pid != own:
                self._children.setdefault(row.parent_pid, []).append(pid)

    def tops(self, candidates: Collection[int]) -> list[int]:
        """Those with none of the others above them, by PID."""
        there = {pid for pid in candidates if pid in self.rows}
        return sorted([pid for pid in there if not self._is_below(pid, there)])

    def of(self, job: TrackedJob, tops: frozenset[int]) -> list[int]:
        """A known job's processes: all below its roots, and its orphans."""
        found = self.below([pid for pid in job.roots_among(self.rows) if pid in tops])
        rest = [
            pid
            for pid, member in job.members.items()
            if pid not in self.taken and pid in self.rows and self.rows[pid].key == member.key
        ]
        there = set(rest)
        return found + self.below([pid for pid in rest if not self._is_below(pid, there)])

    def below(self, starts: Iterable[int]) -> list[int]:
        """``starts`` and all below them, parents first; each is given out once."""
        found = []
        waiting = sorted(starts, reverse=True)
        while waiting:
            pid = waiting.pop()
            if pid in self.taken:
                continue
            self.taken.add(pid)
            found.append(pid)
            waiting += sorted(self._children.get(pid, ()), reverse=True)
        return found

    def _is_below(self, pid: int, others: Collection[int]) -> bool:
        seen = {pid}
        while (row := self.rows.get(pid)) is not None:
            parent = row.parent_pid
            # What gpuwatch started is no part of the job that started gpuwatch.
            if parent is None or parent in seen or parent == os.getpid():
                return False
            if parent in others:
                return True
            seen.add(parent)
            pid = parent
        return False
