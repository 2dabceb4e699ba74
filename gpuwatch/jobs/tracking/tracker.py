"""Turn the processes of a machine into jobs, and follow them from one snapshot to the next."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from gpuwatch.core.model import Job, Problem, Process, ProcessKey
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.jobs.identity.process_facts import (
    ProcessFacts,
    ReadFacts,
    climb,
    is_orphaned,
    read_environment,
    read_facts,
    world_of,
)
from gpuwatch.jobs.identity.roles import WORKER_NAME
from gpuwatch.jobs.identity.runs import LOOK_SECONDS as NEXT_RUN_SECONDS
from gpuwatch.jobs.identity.runs import NextRun
from gpuwatch.jobs.identity.surroundings import Listeners
from gpuwatch.jobs.loop.reader import LoopReader
from gpuwatch.jobs.tracking.fine import FineSampler
from gpuwatch.jobs.tracking.job import Moment, TrackedJob
from gpuwatch.jobs.tracking.member import (
    PSS_SHARE,
    PSS_SHARE_APART,
    MemoryShare,
    accounts_for_disk_wait,
)
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import ProcessList, user_name

# All processes of the machine, for what the tree of a job does not reach

LOOK_SECONDS = 10.0
FULL_SECONDS = 300.0
"""A PID used again between two looks is noticed only then."""


class ProcessTable:
    """The ``stat`` of every process that is not a kernel thread, looked at seldom.

    For loader workers whose parent ended before anybody watched, ranks beside one another below a
    daemon, and the next run of a job that has ended. Each process is read once, and again when its
    parent has ended.
    """

    def __init__(self, proc: Path = procfs.PROC) -> None:
        self._proc = proc
        self._list = ProcessList(proc, self._read, attrgetter("parent_pid"))
        self._looked_at = self._full_at = float("-inf")
        self._cleared: dict[int, tuple[int, int]] = {}
        """Start and parent of processes that are no orphans."""

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

    def children_of(self, parent: int) -> list[int]:
        return [pid for pid, stat in self._list.known.items() if stat.parent_pid == parent]

    def find_orphans(
        self, jobs: Sequence[TrackedJob], read: ReadFacts
    ) -> dict[int, TrackedJob | None]:
        """Find loader workers whose training process has ended before anybody watched it: by PID,
        with the job they were a part of, where that is still there."""
        known = {pid for job in jobs for pid in job.members}
        groups = {
            (member.facts.session, member.facts.group): job
            for job in jobs
            for member in job.members.values()
            if member.role.name in ("rank", "loader_worker")
        }
        found: dict[int, TrackedJob | None] = {}
        cleared = {}
        for pid, stat in self._list.known.items():
            job = groups.get((stat.session, stat.group))
            if pid in known or not (job or stat.name.startswith(WORKER_NAME.encode())):
                continue
            state = (stat.start_ticks, stat.parent_pid)
            facts = None if self._cleared.get(pid) == state else read(pid)
            if facts is None or facts.parent != stat.parent_pid:
                cleared[pid] = state
            elif is_orphaned_worker(facts, read(facts.parent)) or _was_part_of(facts, job):
                found[pid] = job
            else:
                cleared[pid] = state
        self._cleared = cleared
        return found

    def _read(self, pid: int) -> procfs.ProcessStat | None:
        stat = procfs.read_stat(pid, self._proc)
        return None if stat is None or stat.is_kernel_thread else stat


def is_orphaned_worker(process: ProcessFacts, parent: ProcessFacts | None) -> bool:
    """True if it is a worker by its name or its start method, and what started it has ended."""
    is_worker = process.name.startswith(WORKER_NAME) or process.program.started_by == "spawn"
    return is_worker and is_orphaned(process, parent)


def _was_part_of(process: ProcessFacts, job: TrackedJob | None) -> bool:
    """True if a process in a rank's process group, taken in by init, runs the rank's program. Two
    commands of one script share a group; only the same command line tells a fork."""
    if job is None or process.parent in job.members:
        return False
    ranks = [member.facts for member in job.members.values() if member.role.name == "rank"]
    same = any(process.arguments == rank.arguments for rank in ranks)
    return process.parent <= 1 and bool(process.arguments) and same


# The processes of one snapshot


class Tree:
    """The order of processes below one another; gives each out once: ``taken`` are those that a job
    has."""

    def __init__(self, rows: Mapping[int, Process]) -> None:
        self.rows = rows
        self.taken: set[int] = set()
        self._own_pid = os.getpid()
        self._children: dict[int, list[int]] = {}
        for pid, row in rows.items():
            if row.parent_pid is not None and pid != self._own_pid:
                self._children.setdefault(row.parent_pid, []).append(pid)

    def topmost(self, candidates: Iterable[int]) -> list[int]:
        """Return those with none of the others above them, by PID."""
        there = {pid for pid in candidates if pid in self.rows}
        return sorted([pid for pid in there if not self._is_below(pid, there)])

    def take_known(self, job: TrackedJob, tops: frozenset[int]) -> list[int]:
        """Take a known job's processes: all below its roots, and its orphans."""
        found = self.take_below([pid for pid in job.roots_among(self.rows) if pid in tops])
        rest = [
            pid
            for pid, member in job.members.items()
            if pid not in self.taken and pid in self.rows and self.rows[pid].key == member.key
        ]
        return found + self.take_below(self.topmost(rest))

    def take_below(self, starts: Iterable[int]) -> list[int]:
        """Take ``starts`` and all below them that nobody has, parents first."""
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
            if parent is None or parent in seen or parent == self._own_pid:
                return False
            if parent in others:
                return True
            seen.add(parent)
            pid = parent
        return False


# What a person should know about the jobs

STARTED_AGAIN_SECONDS = 60.0


def _refused(job: TrackedJob) -> str:
    user = next((member.row.user for member in job.members.values() if member.meter.refused), None)
    owner = "" if user in (None, user_name(os.geteuid())) else ", because another user owns it"
    return (
        f"The environment, libraries, I/O and shared memory of job {job.key[0]} cannot be read"
        f"{owner}: run gpuwatch as that user or as root (in a container with SYS_PTRACE)."
    )


# The tracker

CLIMB_SECONDS, CLIMB_SECONDS_LONGEST = 30.0, 120.0
"""The parents of a process are looked up again this often, at first and at last: an exec can make
it a launcher."""

HIDDEN_PERCENT = 5.0
"""Child processes of a loader worker that use more of a core are missed by its clock."""


class JobTracker:
    """A ``JobReader`` (``core.source``). Used on one thread only, but for the thread that it
    starts itself to sample the attached job finely, which ``close`` ends."""

    def __init__(
        self,
        clock: Clock,
        options: ReadOptions,
        proc: Path = procfs.PROC,
        loops: LoopReader | None = None,
    ) -> None:
        self._clock = clock
        self._options = options
        self._proc = proc
        self._loops = LoopReader(proc) if loops is None else loops
        self._listeners = Listeners(proc)
        self._table = ProcessTable(proc)
        self._orphans: dict[int, TrackedJob | None] = {}
        self._fine = FineSampler(clock, proc)
        self._memory = MemoryShare()
        self._started_again: tuple[float, int] | None = None
        """The next run that is watched now: until when that is said, and its PID."""
        self._since: dict[str, float] = {}
        """Unix times since when there is something to say."""
        self._jobs: list[TrackedJob] = []
        self._attached: ProcessKey | None = None
        self._bound: TrackedJob | None = None
        """The job of ``_attached``, which stays until somebody asks for another."""
        self._next_run = NextRun(proc)
        self._facts: dict[int, ProcessFacts | None] = {}
        """Facts read for this snapshot."""
        self._tops: dict[int, tuple[float, int, float]] = {}
        """By PID: its topmost process, until when that stands and for how long it has to."""
        self._wanted: frozenset[int] = frozenset()
        self._disk_wait = accounts_for_disk_wait(proc)
        self._shares: list[tuple[TrackedJob, list[int]]] = []
        self._shares_of: tuple[object, ...] | None = None
        """The processes of each job, and from what that was worked out."""

    def roots(self, gpu_pids: Sequence[int]) -> frozenset[int]:
        """Return the topmost processes of all jobs to be read; see ``JobReader``."""
        now = self._clock.monotonic()
        self._facts.clear()
        if self._options.attached != self._attached:
            self._attach(self._options.attached)
        self._look_around(now)
        # The ranks may report of their loop, where they are not known to.
        ranks = (rank.key for job in self._jobs for rank in job.ranks if not rank.reports)
        self._loops.look(now, ranks)
        wanted = {self._top(pid, now) for pid in gpu_pids}
        wanted.update([self._top(pid, now) for pid, _ in self._loops.reporting])
        if self._attached is not None and self._bound is None:
            wanted.add(self._top(self._attached[0], now))
        wanted.update(self._orphans, self._ranks_beside())
        for job in self._jobs:
            wanted.update(job.to_follow())
        self._wanted = frozenset(wanted - {0, 1, os.getpid()})
        return self._wanted

    def read(self, processes: tuple[Process, ...]) -> tuple[tuple[Job, ...], tuple[Problem, ...]]:
        """Return the jobs among ``processes``, the attached one first; see ``JobReader``."""
        rows, gpus = _by_pid(processes)
        at = Moment(self._clock.monotonic(), self._clock.unix(), rows, gpus)
        self._tops = {pid: known for pid, known in self._tops.items() if pid in rows}
        self._share_out(at)
        self._bind(at)
        for job in [job for job in self._jobs if job is not self._bound and not job.is_used]:
            self._remove(job)
        self._read_memory(at.now)
        bound = self._bound
        roles = ("rank", "loader_worker")
        alive = [[] if bound is None else bound.alive(role) for role in roles]
        self._fine.watch(*[[member.key for member in members] for members in alive])
        in_order = sorted(self._jobs, key=_job_order)
        # What was found out of new processes until here can take as long as it is to the next look.
        jobs = [
            job.resting(at.now)
            or job.publish(at._replace(now=self._clock.monotonic()), disk_wait=self._disk_wait)
            for job in in_order
        ]
        if bound is not None:
            mains, workers = self._fine.samples()
            hidden = [one.children_cpu_percent or 0.0 for one in jobs[0].members]
            jobs[0] = replace(
                jobs[0],
                main_thread_samples=mains,
                loader_worker_samples=None
                if max(hidden, default=0.0) > HIDDEN_PERCENT
                else workers,
            )
        return tuple(jobs), self._problems(at.now)

    def close(self) -> None:
        self._fine.close()
        self._loops.close()
        self._jobs.clear()
        self._bound = None

    # The job that was asked for

    def _attach(self, key: ProcessKey | None) -> None:
        self._attached, self._bound = key, None
        self._next_run = NextRun(self._proc)
        self._started_again = None
        for job in self._jobs:
            job.set_attached(False)

    def _bind(self, at: Moment) -> None:
        """Find the job of the process that was asked for, once."""
        if self._attached is None:
            return
        if self._bound is None:
            self._bound = next((job for job in self._jobs if job.holds(*self._attached)), None)
        job = self._bound
        if job is None:
            return
        if not job.attached:
            job.set_attached(True)
        if job.key[0] in job.members and job.without_ranks_since(at.now) is None:
            self._next_run.learn(at.now, job.key[0])

    # What is to be read

    def _look_around(self, now: float) -> None:
        """Look at all processes of the machine, on a slow timer."""
        job = self._bound
        ended_at = None if job is None else job.ended_at
        began = self._table.refresh(now, LOOK_SECONDS if ended_at is None else NEXT_RUN_SECONDS)
        if began is not None:
            self._orphans = self._table.find_orphans(self._jobs, self._read_facts)
        if job is None or ended_at is None:
            return
        new = frozenset([pid for pid in began or () if pid not in job.members])
        top = self._next_run.find(now, new, ended_at, self._climb)
        # Somebody may have asked for another job in the meantime.
        if top is not None and self._options.attached == self._attached:
            self._options.attached = key = (top.pid, top.started_at)
            self._attach(key)
            self._started_again = now + STARTED_AGAIN_SECONDS, top.pid

    def _top(self, pid: int, now: float) -> int:
        due, top, apart = self._tops.get(pid, (now, pid, 0.5 * CLIMB_SECONDS))
        if now >= due:
            chain, apart = self._climb(pid), min(2.0 * apart, CLIMB_SECONDS_LONGEST)
            top = chain[-1].pid if chain else pid
            # Spread out, so that not all are looked up at one moment.
            self._tops[pid] = (now + apart + pid % 32 * 0.3, top, apart)
        return top

    def _climb(self, pid: int) -> tuple[ProcessFacts, ...]:
        return climb(pid, self._read_facts)

    def _read_facts(self, pid: int) -> ProcessFacts | None:
        """Read a process once for each snapshot."""
        if pid not in self._facts:
            self._facts[pid] = read_facts(pid, self._proc)
        return self._facts[pid]

    def _ranks_beside(self) -> set[int]:
        """Find ranks of the attached job beside its own topmost process, as below
        ``slurmstepd``."""
        job = self._bound
        if job is None or job.world is None:
            return set()
        above = {job.members[pid].row.parent_pid for pid in job.roots if pid in job.members}
        return {
            pid
            for parent in above
            if parent is not None and parent > 1
            for pid in self._table.children_of(parent)
            if pid not in job.members and self._world(pid) == job.world
        }

    def _world(self, pid: int) -> tuple[str, ...] | None:
        facts = self._read_facts(pid)
        if facts is None:
            return None
        environment = read_environment(pid, self._proc)
        return world_of(environment, self._read_facts(facts.parent))

    # What belongs to which job

    def _share_out(self, at: Moment) -> None:
        def shares_of() -> tuple[object, ...]:
            parents = {
                pid: (row.parent_pid, row.started_at_unix_seconds) for pid, row in at.rows.items()
            }
            return parents, self._wanted, self._orphans, list(self._jobs)

        orphans = frozenset[int]()
        if shares_of() != self._shares_of:
            orphans = self._share_anew(Tree(at.rows), at.now)
            self._shares_of = shares_of()
        for job, pids in self._shares:
            job.follow(pids, orphans, at)

    def _share_anew(self, tree: Tree, now: float) -> frozenset[int]:
        """Work out what belongs to which job; gives the PIDs that are orphans and new."""
        tops = tree.topmost([*self._wanted, *[pid for job in self._jobs for pid in job.roots]])
        for job in list(self._jobs):
            own_roots = job.roots_among(tree.rows)
            if own_roots and not set(own_roots).intersection(tops):
                # All of it is below the topmost process of another.
                self._remove(job)
        topmost = frozenset(tops)
        shares = {id(job): tree.take_known(job, topmost) for job in self._jobs}
        orphans = frozenset(
            [pid for pid in tops if pid not in tree.taken and self._add_root(tree.rows[pid], now)]
        )
        self._shares = [
            (job, shares.get(id(job), []) + tree.take_below(job.roots_among(tree.rows)))
            for job in self._jobs
        ]
        return orphans

    def _add_root(self, row: Process, now: float) -> bool:
        """Give a topmost process to its job, a new one if need be; whether it is an orphan."""
        facts = self._read_facts(row.pid)
        orphaned = row.pid in self._orphans or (
            facts is not None and is_orphaned_worker(facts, self._read_facts(facts.parent))
        )
        job = self._orphans.get(row.pid)
        if job is None or job not in self._jobs:
            world = self._world(row.pid)
            if orphaned and facts is not None:
                world = ("orphans", str(facts.session), str(facts.group))
            job = next((known for known in self._jobs if world and known.world == world), None)
            if job is None:
                job = TrackedJob(row.key, world, now, self._proc, self._loops, self._listeners)
                self._jobs.append(job)
        job.add_root(row)
        return orphaned

    def _remove(self, job: TrackedJob) -> None:
        self._jobs.remove(job)
        if job is self._bound:
            self._bound = None

    def _problems(self, now: float) -> tuple[Problem, ...]:
        """Return what is to be said now. Jobs are named by their PIDs alone: a redacted recording
        holds the sentences as they are, so no command line, user or folder may be in them."""
        said = {("warning", _refused(job)) for job in self._jobs if job.refused}
        if self._attached is not None and self._bound is None:
            ended = f"Process {self._attached[0]} has ended: there is no job to show."
            said.add(("warning", ended))
        if self._started_again is not None and now < self._started_again[0]:
            again = (
                f"The job was started again, as process {self._started_again[1]}: the same command "
                "by the same user in the same folder. That run is shown now."
            )
            said.add(("info", again))
        unix = self._clock.unix()
        self._since = {message: self._since.get(message, unix) for _, message in said}
        return tuple(
            [
                Problem(
                    source="jobs",
                    message=message,
                    since_unix_seconds=self._since[message],
                    severity=severity,
                )
                for severity, message in sorted(said)
            ]
        )

    # What else is read

    def _read_memory(self, now: float) -> None:
        """Read proportional memory, of the attached job only if there is one: the time is short."""
        jobs = self._jobs if self._bound is None else [self._bound]
        share = PSS_SHARE_APART if self._bound is None else PSS_SHARE
        self._memory.read(now, (one for job in jobs for one in job.members.values()), share)


def _by_pid(processes: Iterable[Process]) -> tuple[dict[int, Process], dict[int, tuple[str, ...]]]:
    """Return each process once, and the GPUs it uses. What only the driver names is left out."""
    rows: dict[int, Process] = {}
    gpus: dict[int, tuple[str, ...]] = {}
    for row in processes:
        if row.started_at_unix_seconds is None:
            continue
        rows.setdefault(row.pid, row)
        if row.gpu_uuid is not None:
            gpus[row.pid] = (*gpus.get(row.pid, ()), row.gpu_uuid)
    return rows, gpus


def _job_order(job: TrackedJob) -> tuple[bool, float, int]:
    return (not job.attached, job.key[1] or 0.0, job.key[0])
