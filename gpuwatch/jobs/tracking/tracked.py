"""One job, followed from its first look to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.model import (
    BusySample,
    GpuKey,
    Job,
    JobMember,
    JobRank,
    Process,
    ProcessKey,
    TrainingLoop,
)
from gpuwatch.jobs.identity import roles
from gpuwatch.jobs.identity.surroundings import Surroundings, read_inner_pid, read_surroundings
from gpuwatch.jobs.resources.cores import JobCores, ThrottleMeter, read_cores
from gpuwatch.jobs.resources.numa import read_nodes
from gpuwatch.jobs.tracking.loader import LoaderLook, LoaderWatch, with_told
from gpuwatch.jobs.tracking.loop_files import StepFiles
from gpuwatch.jobs.tracking.members import Member
from gpuwatch.sources.linux import procfs

CORES_SECONDS = 10.0
CORES_SECONDS_APART = 30.0
SURROUNDINGS_SECONDS = 60.0
THROTTLE_SECONDS_APART = 3.0
RANKS_SECONDS_APART = 3.0
"""How a job that nobody is attached to loads its data is worked out this often."""
GPU_LINGER_SECONDS = 5.0
"""A driver that is slow names no process for a moment."""


class _Parts(NamedTuple):
    """What a published job is made of."""

    attached: bool
    command: str | None
    user: str | None
    surroundings: Surroundings
    launcher: str | None
    framework: str | None
    world_size: int | None
    ranks: tuple[JobRank, ...]
    members: tuple[JobMember, ...]
    loops: tuple[TrainingLoop, ...]
    gpu_uuids: tuple[GpuKey, ...]
    cores: JobCores
    throttled: float | None
    inner_pid: int | None


class TrackedJob:
    """``roots`` are its topmost processes, more than one where no launcher on this machine
    started them all. Keys tell a process from a later one of the same PID."""

    def __init__(
        self,
        key: ProcessKey,
        now: float,
        proc: Path = procfs.PROC,
        step_files: StepFiles | None = None,
    ) -> None:
        self.key = key
        self.roots: dict[int, float | None] = {key[0]: key[1]}
        self.world: tuple[str, ...] | None = None
        self.members: dict[int, Member] = {}
        self.attached = False
        self._may_keep_open = 0
        self.ended_at: float | None = None
        self.last: Job | None = None
        """As it was published last."""
        self._proc = proc
        self._step_files = step_files
        self._names_used = False
        self._gpu_at: float | None = None
        self._without_ranks_at: float | None = None
        self._watches: dict[ProcessKey, LoaderWatch] = {}
        self._cores = JobCores(None, None, None, None)
        self._cores_due = now
        self._throttle: ThrottleMeter | None = None
        self._throttle_due = now
        self._throttled: float | None = None
        self._around: tuple[ProcessKey, ...] = ()
        """The ranks whose cores and surroundings were read."""
        self._surroundings = Surroundings()
        self._surroundings_due = now
        self._inner_pid: int | None = None
        self._ranks: tuple[JobRank, ...] = ()
        self._ranks_of: tuple[object, ...] = ()
        self._ranks_due = now
        self._pids: Sequence[int] | None = None
        self._published_of: _Parts | None = None
        """What ``last`` was made of; ``None`` where that is not known."""
        self._final: tuple[JobMember, ...] = ()
        self._final_keys: frozenset[ProcessKey] = frozenset()

    # Who belongs to it

    def follow(
        self,
        pids: Sequence[int],
        left_over: frozenset[int],
        rows: Mapping[int, Process],
        gpus: Mapping[int, tuple[GpuKey, ...]],
        now: float,
        unix: float,
    ) -> None:
        """Take the rows of its processes, parents before their children. ``left_over``: new ones
        whose parent has ended. The same list as before stands for the same processes, below the
        same parents."""
        same = pids is self._pids
        changed = not same and self._forget_all_but(pids, rows)
        for pid in pids:
            row = rows[pid]
            member = self.members.get(pid)
            if member is None:
                member = Member(row, now, self._proc)
                member.left_over = pid in left_over
                member.meter.keeps_open = len(self.members) < self._may_keep_open
                self.members[pid] = member
                changed = True
            changed = member.take(row, now, unix) or changed
            if not member.tells and self._tells(member):
                changed = member.tells = True
            if member.tells and member.told_numbers is None and self._step_files is not None:
                member.told_numbers = self._step_files.numbers(member.key)
                changed = changed or member.told_numbers is not None
            if pid in gpus:
                self._gpu_at = now
                changed = changed or not member.uses_gpu
                member.uses_gpu = True
        changed = (not same and self._link(pids)) or changed
        self._pids = pids
        self._assign(now, changed)

    def _tells(self, member: Member) -> bool:
        return self._step_files is not None and self._step_files.tells(member.key)

    def _forget_all_but(self, pids: Sequence[int], rows: Mapping[int, Process]) -> bool:
        here = set(pids)
        gone = [
            pid
            for pid, member in self.members.items()
            if pid not in here or rows[pid].key != member.key
        ]
        for pid in gone:
            self.members.pop(pid).close()
        return bool(gone)

    def _link(self, pids: Sequence[int]) -> bool:
        """Who is above whom. A parent changes only when it ends."""
        changed = False
        if list(self.members) != list(pids):
            self.members = {pid: self.members[pid] for pid in pids}
            changed = True
        for member in self.members.values():
            above = member.row.parent_pid
            if member.parent is not None and above != member.parent:
                member.left_over = True
            parent = None if member.left_over or above not in self.members else above
            changed = changed or parent != member.parent
            member.parent = parent
        return changed

    def _assign(self, now: float, changed: bool) -> None:
        """Roles, and once more if they show that there is more evidence to read."""
        for _ in range(3):
            for member in self.members.values():
                changed = member.read_evidence(now, attached=self.attached) or changed
            if not changed:
                return
            changed = False
            candidates = [member.candidate() for member in self.members.values()]
            # A member that ended may have been the only one with a name.
            self._names_used = self._names_used or roles.names_are_used(candidates)
            before = {pid: member.given for pid, member in self.members.items() if member.left_over}
            given = roles.assign(candidates, names_used=self._names_used, before=before)
            for pid, member in self.members.items():
                changed = changed or member.given.role != given[pid].role
                member.given = given[pid]

    # What it is

    @property
    def ranks(self) -> list[Member]:
        """Alive, in the order of their numbers."""
        found = [m for m in self.members.values() if m.given.role == "rank" and m.is_alive]
        if len(found) > 1:
            found.sort(key=_rank_order)
        return found

    @property
    def left_over_workers(self) -> list[Member]:
        return [
            member
            for member in self.members.values()
            if member.left_over and member.is_alive and member.given.role == "loader_worker"
        ]

    @property
    def tells(self) -> bool:
        """One of its processes uses ``gpuwatch.torch``."""
        return any(m.tells and m.is_alive for m in self.members.values())

    @property
    def refused(self) -> bool:
        """Its user does not let gpuwatch see all of it."""
        return any(member.meter.refused for member in self.members.values() if member.is_alive)

    def uses_gpu(self, now: float) -> bool:
        return self._gpu_at is not None and now - self._gpu_at <= GPU_LINGER_SECONDS

    def without_ranks_since(self, now: float) -> float | None:
        """When its last rank was seen to be gone; ``None`` while it has one."""
        if any(m.given.role == "rank" and m.is_alive for m in self.members.values()):
            self._without_ranks_at = None
        elif self._without_ranks_at is None:
            self._without_ranks_at = now
        return self._without_ranks_at

    def set_attached(self, attached: bool, may_keep_open: int) -> None:
        """From now on it is (or is not) the one job that is read closely, with the counters of
        ``may_keep_open`` processes kept open."""
        self.attached, self._may_keep_open = attached, may_keep_open
        self._cores_due = 0.0
        for count, member in enumerate(self.members.values()):
            member.meter.close()
            member.meter.keeps_open = count < may_keep_open

    def is_root(self, pid: int, rows: Mapping[int, Process]) -> bool:
        """Whether the process of this PID now is one of its topmost."""
        row = rows.get(pid)
        started = None if row is None else row.started_at_unix_seconds
        return started is not None and self.roots.get(pid) == started

    def roots_among(self, rows: Mapping[int, Process]) -> list[int]:
        """Its topmost processes that are still there."""
        return [pid for pid in self.roots if self.is_root(pid, rows)]

    def with_samples(
        self, main_threads: tuple[BusySample, ...], workers: tuple[BusySample, ...]
    ) -> Job:
        """As it was just published, with the fine samples since the time before."""
        assert self.last is not None
        return replace(self.last, main_thread_samples=main_threads, loader_worker_samples=workers)

    def to_follow(self) -> list[int]:
        """The PIDs whose trees hold all of it."""
        above = [pid for pid in self.roots if pid in self.members]
        return above + [pid for pid, member in self.members.items() if member.left_over]

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        if self._throttle is not None:
            self._throttle.close()

    # What the snapshot says

    def publish(
        self, now: float, unix: float, gpus: Mapping[int, tuple[GpuKey, ...]], *, disk_wait: bool
    ) -> Job:
        """The job as it is now; once it has ended, as it was, with what is left of it."""
        attached = self.attached
        disk_wait = disk_wait and attached
        made = [
            member.make(member.measure(now, attached=attached, disk_wait=disk_wait))
            for member in self.members.values()
        ]
        gone_at = self.without_ranks_since(now)
        if gone_at is not None and not self._may_start_again():
            return self._publish_ended(unix - (now - gone_at), made, gpus)
        self.ended_at = None
        self._final = tuple(made)
        ranks = self.ranks
        self._read_around(now, ranks)
        top = self.members.get(self.key[0]) or next(iter(self.members.values()))
        before = self.last
        made_of = _Parts(
            self.attached,
            before.command if before and top.pid != self.key[0] else top.row.command,
            top.row.user,
            self._surroundings,
            self._launcher(),
            next((m.framework for m in ranks if m.framework is not None), None),
            next((m.given.numbers.world_size for m in ranks if m.given.numbers), None),
            self._publish_ranks(ranks, now, unix, gpus),
            self._final,
            self._loops(ranks, unix),
            self._gpus_so_far(gpus),
            self._cores,
            self._throttled,
            self._inner_pid,
        )
        if before is None or made_of != self._published_of:
            self._published_of = made_of
            self.last = self._make(made_of)
            return self.last
        return before

    def _make(self, parts: _Parts) -> Job:
        return Job(
            pid=self.key[0],
            started_at_unix_seconds=self.key[1],
            attached=parts.attached,
            command=parts.command,
            user=parts.user,
            working_directory=parts.surroundings.working_directory,
            launcher=parts.launcher,
            framework=parts.framework,
            world_size=parts.world_size,
            ranks=parts.ranks,
            members=parts.members,
            loops=parts.loops,
            gpu_uuids=parts.gpu_uuids,
            affinity_cores=parts.cores.affinity_cores,
            quota_cores=parts.cores.quota_cores,
            slurm_cores=parts.cores.slurm_cores,
            usable_cores=parts.cores.usable_cores,
            cpu_throttled_percent=parts.throttled,
            container=parts.surroundings.container,
            pod=parts.surroundings.pod,
            slurm_job=parts.surroundings.slurm_job,
            environment=parts.surroundings.environment,
            inner_pid=parts.inner_pid,
        )

    def _loops(self, ranks: list[Member], unix: float) -> tuple[TrainingLoop, ...]:
        files = self._step_files
        if files is None:
            return ()
        told = [files.read(rank.key, unix) for rank in ranks if rank.tells]
        return tuple([loop for loop in told if loop is not None])

    def _gpus_so_far(self, gpus: Mapping[int, tuple[GpuKey, ...]]) -> tuple[GpuKey, ...]:
        """Those it uses, and those it used before: a job that ends lets go of its GPU first, and
        which one that was is still to be seen."""
        before = () if self.last is None else self.last.gpu_uuids
        now = _all_gpus(self.members, gpus)
        return now if not before else (*before, *[uuid for uuid in now if uuid not in before])

    def _may_start_again(self) -> bool:
        """What started the ranks is still there: a launcher, or the script that was asked for."""
        return any(
            member.is_alive
            and (member.given.role == "launcher" or (pid in self.roots and not member.left_over))
            for pid, member in self.members.items()
        )

    def _publish_ended(
        self, at_unix: float, made: list[JobMember], gpus: Mapping[int, tuple[GpuKey, ...]]
    ) -> Job:
        if self.ended_at is None:
            self.ended_at = at_unix
            self._final_keys = frozenset([member.key for member in self._final])
        alive = {member.key: member for member in made}
        members = [alive.get(member.key) or _ended(member) for member in self._final]
        found_later = [member for key, member in alive.items() if key not in self._final_keys]
        self._published_of = None
        before = self.last or Job(pid=self.key[0], started_at_unix_seconds=self.key[1])
        if not self._final and made:
            before = replace(before, command=made[0].command, user=self._user())
        self.last = replace(
            before,
            attached=self.attached,
            ranks=(),
            members=(*members, *found_later),
            loops=(),
            gpu_uuids=before.gpu_uuids or _all_gpus(self.members, gpus),
            cpu_throttled_percent=None,
            ended_at_unix_seconds=self.ended_at,
        )
        return self.last

    def _user(self) -> str | None:
        return next((member.row.user for member in self.members.values()), None)

    def _launcher(self) -> str | None:
        for member in self.members.values():
            if member.given.role == "launcher" and not member.given.guessed:
                return member.look.program.name
        return None

    def _publish_ranks(
        self, ranks: list[Member], now: float, unix: float, gpus: Mapping[int, tuple[GpuKey, ...]]
    ) -> tuple[JobRank, ...]:
        of = (len(self.members), *[(rank.key, gpus.get(rank.pid)) for rank in ranks])
        if self.attached or of != self._ranks_of or now >= self._ranks_due:
            self._ranks = tuple([self._publish_rank(rank, now, unix, gpus) for rank in ranks])
            if len(self._watches) > len(self.members):
                here = {member.key for member in self.members.values()}
                self._watches = {key: one for key, one in self._watches.items() if key in here}
            self._ranks_of = of
            # Spread out, so that not all jobs are worked out at one moment.
            self._ranks_due = now + RANKS_SECONDS_APART + self.key[0] % 8 * 0.1
        return self._ranks

    def _publish_rank(
        self, rank: Member, now: float, unix: float, gpus: Mapping[int, tuple[GpuKey, ...]]
    ) -> JobRank:
        watch = self._watches.get(rank.key)
        if watch is None:
            watch = self._watches[rank.key] = LoaderWatch(now)
        facts = watch.update(now, self._loader_look(rank, unix))
        if rank.tells and self._step_files is not None:
            facts = with_told(facts, *self._step_files.loader(rank.key))
        numbers = rank.given.numbers
        return JobRank(
            pid=rank.pid,
            started_at_unix_seconds=rank.key[1],
            rank=None if numbers is None else numbers.rank,
            local_rank=None if numbers is None else numbers.local_rank,
            gpu_uuids=gpus.get(rank.pid, ()),
            loader_workers=facts.workers,
            loader_workers_sign=facts.workers_sign,
            loader_workers_guessed=facts.workers_guessed,
            pinned_memory=facts.pinned,
            pinned_memory_sign=facts.pinned_sign,
            numa_nodes=read_nodes(rank.pid, self._proc),
        )

    def _loader_look(self, rank: Member, unix: float) -> LoaderLook:
        workers = [
            member
            for member in self.members.values()
            if member.given.role == "loader_worker"
            and member.given.rank_pid == rank.pid
            and member.is_alive
            and not member.left_over
        ]
        guessed = sum(member.given.guessed for member in workers)
        started = [m.key[1] for m in workers if m.key[1] is not None]
        return LoaderLook(
            age_seconds=None if rank.key[1] is None else unix - rank.key[1],
            named_workers=len(workers) - guessed,
            guessed_workers=guessed,
            workers_age_seconds=unix - min(started) if started else None,
            framework=rank.framework,
            framework_readable=rank.framework_readable,
            threads=rank.thread_names,
            kernel_seconds=rank.kernel_seconds,
        )

    def _read_around(self, now: float, ranks: Sequence[Member]) -> None:
        """Cores and surroundings, on slow timers, and at once where they are of others than before.
        Those of a rank: a launcher can be outside its container."""
        around = tuple([rank.key for rank in ranks])
        if around and around != self._around:
            self._look_around_anew(now, moved=around[:1] != self._around[:1])
            self._around = around
        due = min(self._cores_due, self._surroundings_due, self._throttle_due)
        if now < due and not self.attached:
            return
        inside = ranks[0] if ranks else next(iter(self.members.values()))
        environment = inside.environment or {}
        if now >= self._cores_due:
            # Spread out, like all that is read of many jobs.
            apart = CORES_SECONDS_APART + self.key[0] % 8
            self._cores_due = now + (CORES_SECONDS if self.attached else apart)
            others = [member.pid for member in ranks if member.pid != inside.pid]
            self._cores = read_cores(inside.pid, environment, self._proc, others=others)
        if now >= self._surroundings_due:
            self._surroundings_due = now + SURROUNDINGS_SECONDS
            self._surroundings = read_surroundings(inside.pid, environment, self._proc)
            if self.key[0] in self.members:
                self._inner_pid = read_inner_pid(self.key[0], self._proc)
        if self.attached or now >= self._throttle_due:
            self._throttle_due = now + THROTTLE_SECONDS_APART
            if self._throttle is None:
                self._throttle = ThrottleMeter(inside.pid, self._proc)
            self._throttled = self._throttle.read()

    def _look_around_anew(self, now: float, *, moved: bool) -> None:
        """Its ranks are others. ``moved``: the first one too."""
        self._cores_due = now
        if not moved:
            return
        self._surroundings_due = self._throttle_due = now
        self._throttled = None
        if self._throttle is not None:
            self._throttle.close()
            self._throttle = None


def _rank_order(member: Member) -> tuple[float, int]:
    rank = None if member.given.numbers is None else member.given.numbers.rank
    return (float("inf") if rank is None else float(rank), member.pid)


def _all_gpus(
    members: Mapping[int, Member], gpus: Mapping[int, tuple[GpuKey, ...]]
) -> tuple[GpuKey, ...]:
    return tuple(dict.fromkeys([uuid for pid in members for uuid in gpus.get(pid, ())]))


def _ended(member: JobMember) -> JobMember:
    """Nothing that moves is known of it any more."""
    if member.state is None:
        return member
    return JobMember(
        pid=member.pid,
        started_at_unix_seconds=member.started_at_unix_seconds,
        parent_pid=member.parent_pid,
        role=member.role,
        role_sign=member.role_sign,
        role_guessed=member.role_guessed,
        rank=member.rank,
        orphaned=member.orphaned,
        name=member.name,
        command=member.command,
    )
