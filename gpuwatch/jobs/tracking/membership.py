"""The processes of one job and their roles, from snapshot to snapshot."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.model import GpuKey, Process
from gpuwatch.jobs.identity import roles
from gpuwatch.jobs.identity.evidence import RankNumbers
from gpuwatch.jobs.loop.reader import LoopReader
from gpuwatch.jobs.tracking.members import Member
from gpuwatch.sources.linux.connections import UNSEEN, ConnectionWatch


class Moment(NamedTuple):
    """One snapshot: its time, the rows of processes, and the GPUs that each of them uses."""

    now: float
    unix: float
    rows: Mapping[int, Process]
    gpus: Mapping[int, tuple[GpuKey, ...]]


class Membership:
    """``by_pid`` has parents before their children."""

    def __init__(self, proc: Path, loops: LoopReader) -> None:
        self.by_pid: dict[int, Member] = {}
        self._proc = proc
        self._loops = loops
        self._connections = ConnectionWatch(proc)
        self._may_keep_open = 0
        self._names_used = False
        self._pids: Sequence[int] | None = None
        self._at: float | None = None
        self.changed = True
        """Processes, their roles or what they use are others than when this was set to false."""
        self.due = 0.0
        """When readings of one of them are to be taken again."""
        self.lives = False
        """One of them does."""
        self.reports = False
        """One of them uses ``gpuwatch.torch``."""
        self.orphans: list[Member] = []
        self.workers: dict[int | None, list[Member]] = {}
        """The loader workers that are alive and no orphans, by the PID of their rank."""

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_pid.values())

    def alive(self, role: str) -> list[Member]:
        return [member for member in self if member.role.name == role and member.is_alive]

    def are_due(self, now: float) -> bool:
        return self.changed or self.reports or now >= self.due

    def keep_open(self, count: int) -> None:
        """From now on the counters of so many processes are kept open; all are read at once."""
        self._may_keep_open = count
        for at, member in enumerate(self):
            member.traffic, member.due = UNSEEN, 0.0
            member.meter.close()
            member.meter.keeps_open = at < count

    def look_at_connections(self, now: float) -> None:
        """Who waits for the network."""
        if now >= self._connections.due:
            parents = {one.pid: one.parent for one in self if one.is_alive}
            traffic = self._connections.look(now, parents)
            for member in self:
                member.traffic = traffic.get(member.pid, UNSEEN)

    def follow(
        self, pids: Sequence[int], orphans: frozenset[int], at: Moment, *, attached: bool
    ) -> None:
        """Take the rows of its processes, parents before their children. ``orphans``: new ones
        whose parent has ended. The same list as before stands for the same processes, below the
        same parents."""
        now, unix, rows, gpus = at
        same = pids is self._pids
        changed = not same and self._forget_all_but(pids, rows)
        anybody_reports = bool(self._loops.reporting)
        apart, self._at = now - (now if self._at is None else self._at), now
        due = evidence_due = math.inf
        for pid in pids:
            row = rows[pid]
            member = self.by_pid.get(pid)
            if member is None:
                member = Member(row, now, self._proc)
                member.orphaned = pid in orphans
                member.meter.keeps_open = len(self.by_pid) < self._may_keep_open
                self.by_pid[pid] = member
                changed = True
            changed = member.take(row, now, unix, apart) or changed
            due = min(due, member.due)
            evidence_due = min(evidence_due, member.evidence_due)
            if anybody_reports:
                changed = self._take_reported(member) or changed
            uses = gpus.get(pid, ())
            if uses != member.gpus:
                member.gpus = uses
                member.uses_gpu = changed = True
        changed = (not same and self._link(pids)) or changed
        self._pids, self.due = pids, due
        if not changed and now < evidence_due:
            return
        if self._assign(now, changed, attached=attached):
            self.changed = True
            self.lives = any(member.is_alive for member in self)
            self.reports = any(member.reports and member.is_alive for member in self)
            self.orphans = [member for member in self if member.orphaned]
            self.workers = {}
            for one in self.alive("loader_worker"):
                if not one.orphaned:
                    self.workers.setdefault(one.role.rank_pid, []).append(one)
            self._find_below_workers()

    def _find_below_workers(self) -> None:
        below: dict[int, list[int]] = {}
        for member in self:
            member.below = ()
            if member.role.name == "loader_worker":
                member.below = below.setdefault(member.pid, [])
            elif member.parent in below:
                below[member.pid] = below[member.parent]
                below[member.pid].append(member.pid)

    def _take_reported(self, member: Member) -> bool:
        changed = False
        if not member.reports and self._loops.reports(member.key):
            changed = member.reports = True
        if member.reports and member.reported_numbers is None:
            found = self._loops.rank_of(member.key)
            if found is not None:
                sign = f"reports that it is rank {found[0]}"
                member.reported_numbers = RankNumbers(*found, sign)
                changed = True
        return changed

    def _forget_all_but(self, pids: Sequence[int], rows: Mapping[int, Process]) -> bool:
        here = set(pids)
        gone = [
            pid
            for pid, member in self.by_pid.items()
            if pid not in here or rows[pid].key != member.key
        ]
        for pid in gone:
            self.by_pid.pop(pid).meter.close()
        return bool(gone)

    def _link(self, pids: Sequence[int]) -> bool:
        """Set the parents; one changes only when it ends."""
        changed = list(self.by_pid) != list(pids)
        self.by_pid = {pid: self.by_pid[pid] for pid in pids}
        for member in self:
            above = member.row.parent_pid
            if member.parent is not None and above != member.parent:
                member.orphaned = True
            parent = None if member.orphaned or above not in self.by_pid else above
            changed = changed or parent != member.parent
            member.parent = parent
        return changed

    def _assign(self, now: float, changed: bool, *, attached: bool) -> bool:
        """Roles, and once more if they show that there is more evidence to read; whether anything
        has changed."""
        anything = changed
        for _ in range(3):
            for member in self:
                changed = member.read_evidence(now, attached=attached, anew=changed) or changed
            if not changed:
                break
            anything, changed = True, False
            members = list(self)
            # A member that ended may have been the only one with a name.
            self._names_used = self._names_used or roles.names_are_used(members)
            before = {member.pid: member.role for member in members if member.orphaned}
            found = roles.assign(members, names_used=self._names_used, before=before)
            for member in members:
                changed = changed or member.role.name != found[member.pid].name
                member.role = found[member.pid]
        return anything

    def close(self) -> None:
        for member in self:
            member.meter.close()
