"""Turns the processes of a machine into jobs, and follows them from one snapshot to the next."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.model import Job, Problem, Process, ProcessKey
from gpuwatch.core.source import Clock, ReadOptions
from gpuwatch.jobs.identity import evidence, grouping
from gpuwatch.jobs.identity.evidence import Look
from gpuwatch.jobs.identity.runs import LOOK_SECONDS as NEXT_RUN_SECONDS
from gpuwatch.jobs.identity.runs import NextRun
from gpuwatch.jobs.identity.services import Listeners
from gpuwatch.jobs.loop.reader import LoopReader
from gpuwatch.jobs.tracking.fine import FineSampler
from gpuwatch.jobs.tracking.machine import (
    LOOK_SECONDS,
    MachineLook,
    OrphanFinder,
    is_orphaned_worker,
)
from gpuwatch.jobs.tracking.membership import Moment
from gpuwatch.jobs.tracking.meters import (
    PSS_SHARE,
    PSS_SHARE_APART,
    MemberMeter,
    MemoryShare,
    accounts_for_disk_wait,
)
from gpuwatch.jobs.tracking.notes import Notes
from gpuwatch.jobs.tracking.tracked import TrackedJob
from gpuwatch.jobs.tracking.tree import Tree
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import descriptors_to_keep

CLIMB_SECONDS, CLIMB_SECONDS_LONGEST = 30.0, 120.0
"""The parents of a process are looked up again this often, at first and at last: an exec can make
it a launcher."""

HIDDEN_PERCENT = 5.0
"""Of a core: what child processes of a loader worker use beyond this is missed by its clock."""


class JobTracker:
    """A ``JobReader`` (``sources.base``). Used on one thread only, but for the thread that it
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
        self._machine = MachineLook(proc)
        self._orphans = OrphanFinder(self._machine, self._look)
        self._fine = FineSampler(clock, proc)
        self._memory = MemoryShare(proc)
        self._notes = Notes(clock)
        self._jobs: list[TrackedJob] = []
        self._attached: ProcessKey | None = None
        self._bound: TrackedJob | None = None
        """The job of ``_attached``, which stays until somebody asks for another."""
        self._next_run = NextRun(proc)
        self._looks: dict[int, Look | None] = {}
        self._tops: dict[int, tuple[float, int, float]] = {}
        """By PID: its topmost process, until when that stands and for how long it has to."""
        self._wanted: frozenset[int] = frozenset()
        self._disk_wait = accounts_for_disk_wait(proc)
        self._shared_of: tuple[object, ...] | None = None
        self._shares: list[tuple[TrackedJob, list[int]]] = []
        """The processes of each job, and from what that was worked out."""

    def roots(self, gpu_pids: Sequence[int]) -> frozenset[int]:
        """The topmost processes of all jobs to be read; see ``JobReader``."""
        now = self._clock.monotonic()
        self._looks.clear()
        if self._options.attached != self._attached:
            self._attach(self._options.attached)
            self._notes.started_again(None)
        self._look_around(now)
        # The ranks may report of their loop, where they are not known to.
        ranks = (rank.key for job in self._jobs for rank in job.ranks if not rank.reports)
        self._loops.look(now, ranks)
        wanted = {self._top(pid, now) for pid in gpu_pids}
        wanted.update([self._top(pid, now) for pid, _ in self._loops.reporting])
        if self._attached is not None and self._bound is None:
            wanted.add(self._top(self._attached[0], now))
        wanted.update(self._orphans.found, self._beside())
        for job in self._jobs:
            wanted.update(job.to_follow())
        self._wanted = frozenset(wanted - {0, 1, os.getpid()})
        return self._wanted

    def read(self, processes: tuple[Process, ...]) -> tuple[tuple[Job, ...], tuple[Problem, ...]]:
        """The jobs among ``processes``, the attached one first; see ``JobReader``."""
        rows, gpus = _by_pid(processes)
        at = Moment(self._clock.monotonic(), self._clock.unix(), rows, gpus)
        self._tops = {pid: known for pid, known in self._tops.items() if pid in rows}
        self._share_out(at)
        self._bind(at)
        for job in [job for job in self._jobs if job is not self._bound and not job.is_used]:
            self._remove(job)
        share = PSS_SHARE_APART if self._bound is None else PSS_SHARE
        self._memory.spend(at.now, self._residents, share)
        self._watch_finely()
        in_order = sorted(self._jobs, key=_job_order)
        # What was found out of new processes until here can take as long as it is to the next look.
        jobs = [
            job.resting(at.now)
            or job.publish(at._replace(now=self._clock.monotonic()), disk_wait=self._disk_wait)
            for job in in_order
        ]
        if self._bound is not None:
            mains, workers = self._fine.take()
            hidden = [one.children_cpu_percent or 0.0 for one in jobs[0].members]
            jobs[0] = replace(
                jobs[0],
                main_thread_samples=mains,
                loader_worker_samples=None
                if max(hidden, default=0.0) > HIDDEN_PERCENT
                else workers,
            )
        return tuple(jobs), self._notes.about(self._jobs, at.now)

    def close(self) -> None:
        self._fine.close()
        self._loops.close()
        for job in self._jobs:
            job.close()
        self._jobs.clear()
        self._bound = None

    # The job that was asked for

    def _attach(self, key: ProcessKey | None) -> None:
        self._attached, self._bound = key, None
        self._next_run = NextRun(self._proc)
        self._notes.attached_to(None)
        for job in self._jobs:
            job.set_attached(False, 0)

    def _bind(self, at: Moment) -> None:
        """Find the job of the process that was asked for, once."""
        if self._attached is None:
            return
        pid, started = self._attached
        if self._bound is None:
            self._bound = next((job for job in self._jobs if _holds(job, pid, started)), None)
            self._notes.attached_to(pid if self._bound is None else None)
        job = self._bound
        if job is None:
            return
        if not job.attached:
            job.set_attached(True, descriptors_to_keep() // 2)
        if job.key[0] in job.members and job.without_ranks_since(at.now) is None:
            self._next_run.learn(at.now, job.key[0])

    # What is to be read

    def _look_around(self, now: float) -> None:
        """All processes of the machine, on a slow timer."""
        job = self._bound
        ended_at = None if job is None else job.ended_at
        every = LOOK_SECONDS if ended_at is None else NEXT_RUN_SECONDS
        began = self._machine.refresh(now, every)
        if began is not None:
            self._orphans.search(self._jobs)
        if job is None or ended_at is None:
            return
        new = frozenset([pid for pid in began or () if pid not in job.members])
        top = self._next_run.find(now, new, ended_at, self._climb)
        # Somebody may have asked for another job in the meantime.
        if top is not None and self._options.attached == self._attached:
            self._options.attached = key = (top.pid, top.started_at)
            self._attach(key)
            self._notes.started_again(top.pid)

    def _top(self, pid: int, now: float) -> int:
        due, top, apart = self._tops.get(pid, (now, pid, 0.5 * CLIMB_SECONDS))
        if now >= due:
            chain, apart = self._climb(pid), min(2.0 * apart, CLIMB_SECONDS_LONGEST)
            top = chain[-1].pid if chain else pid
            # Spread out, so that not all are looked up at one moment.
            self._tops[pid] = (now + apart + pid % 32 * 0.3, top, apart)
        return top

    def _climb(self, pid: int) -> tuple[Look, ...]:
        return grouping.climb(pid, self._look)

    def _look(self, pid: int) -> Look | None:
        """Read once for each snapshot."""
        if pid not in self._looks:
            self._looks[pid] = evidence.read_look(pid, self._proc)
        return self._looks[pid]

    def _beside(self) -> set[int]:
        """Ranks of the attached job beside its own topmost process, as below ``slurmstepd``."""
        job = self._bound
        if job is None or job.world is None:
            return set()
        above = {job.members[pid].row.parent_pid for pid in job.roots if pid in job.members}
        return {
            pid
            for parent in above
            if parent is not None and parent > 1
            for pid in self._machine.beside(parent)
            if pid not in job.members and self._world(pid) == job.world
        }

    def _world(self, pid: int) -> tuple[str, ...] | None:
        look = self._look(pid)
        if look is None:
            return None
        environment = evidence.read_environment(pid, self._proc)
        return grouping.world_of(environment, self._look(look.parent))

    # What belongs to which job

    def _share_out(self, at: Moment) -> None:
        def shared_of() -> tuple[object, ...]:
            parents = {
                pid: (row.parent_pid, row.started_at_unix_seconds) for pid, row in at.rows.items()
            }
            return parents, self._wanted, self._orphans.found, list(self._jobs)

        orphans = frozenset[int]()
        if shared_of() != self._shared_of:
            orphans = self._share_anew(Tree(at.rows), at.now)
            self._shared_of = shared_of()
        for job, pids in self._shares:
            job.follow(pids, orphans, at)

    def _share_anew(self, tree: Tree, now: float) -> frozenset[int]:
        """Work out what belongs to which job; gives the PIDs that are orphans and new."""
        tops = tree.tops([*self._wanted, *[pid for job in self._jobs for pid in job.roots]])
        topmost = frozenset(tops)
        for job in list(self._jobs):
            own_roots = job.roots_among(tree.rows)
            if own_roots and topmost.isdisjoint(own_roots):
                # All of it is below the topmost process of another.
                self._remove(job)
        shares = {id(job): tree.of(job, topmost) for job in self._jobs}
        orphans = frozenset(
            [pid for pid in tops if pid not in tree.taken and self._add_root(pid, tree, now)]
        )
        self._shares = [
            (job, shares.get(id(job), []) + tree.below(job.roots_among(tree.rows)))
            for job in self._jobs
        ]
        return orphans

    def _add_root(self, pid: int, tree: Tree, now: float) -> bool:
        """Give a topmost process to its job, a new one if need be; whether it is an orphan."""
        row = tree.rows[pid]
        look = self._look(pid)
        orphaned = pid in self._orphans.found or (
            look is not None and is_orphaned_worker(look, self._look(look.parent))
        )
        job = self._orphans.found.get(pid)
        if job not in self._jobs:
            world = self._world(pid)
            if orphaned and look is not None:
                world = ("orphans", str(look.session), str(look.group))
            job = next((known for known in self._jobs if world and known.world == world), None)
            if job is None:
                job = TrackedJob(row.key, now, self._proc, self._loops, self._listeners)
                job.world = world
                self._jobs.append(job)
        assert job is not None
        job.roots[pid] = row.started_at_unix_seconds
        return orphaned

    def _remove(self, job: TrackedJob) -> None:
        self._jobs.remove(job)
        job.close()
        if job is self._bound:
            self._bound = None

    # What else is read

    def _residents(self) -> Iterable[tuple[int, int | None, MemberMeter]]:
        """Of the attached job only, if there is one: the time is short."""
        jobs = self._jobs if self._bound is None else [self._bound]
        return [
            (member.pid, member.row.memory_resident_bytes, member.meter)
            for job in jobs
            for member in job.members.values()
            if member.has_memory_to_read
        ]

    def _watch_finely(self) -> None:
        job, roles = self._bound, ("rank", "loader_worker")
        alive = [[] if job is None else job.alive(role) for role in roles]
        self._fine.watch(*[[member.key for member in members] for members in alive])


def _by_pid(processes: Iterable[Process]) -> tuple[dict[int, Process], dict[int, tuple[str, ...]]]:
    """Each process once, and the GPUs it uses. What only the driver names is left out."""
    rows: dict[int, Process] = {}
    gpus: dict[int, tuple[str, ...]] = {}
    for row in processes:
        if row.started_at_unix_seconds is None:
            continue
        rows.setdefault(row.pid, row)
        if row.gpu_uuid is not None:
            gpus[row.pid] = (*gpus.get(row.pid, ()), row.gpu_uuid)
    return rows, gpus


def _holds(job: TrackedJob, pid: int, started: float | None) -> bool:
    member = job.members.get(pid)
    return member is not None and (started is None or member.key[1] == started)


def _job_order(job: TrackedJob) -> tuple[bool, float, int]:
    return (not job.attached, job.key[1] or 0.0, job.key[0])
