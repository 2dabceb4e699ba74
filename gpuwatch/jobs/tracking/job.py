"""One job, followed from its first look to its end, and what the snapshot says of it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from gpuwatch.core.model import GpuKey, Job, JobMember, JobRank, Process, ProcessKey, TrainingLoop
from gpuwatch.jobs.cores import (
    JobCores,
    JobPressure,
    PressureMeter,
    ThrottleMeter,
    read_cores,
    read_nodes,
)
from gpuwatch.jobs.identity import roles
from gpuwatch.jobs.identity.process_facts import read_inner_pid
from gpuwatch.jobs.identity.roles import is_training
from gpuwatch.jobs.identity.surroundings import (
    Listeners,
    Surroundings,
    read_surroundings,
    service_sign,
    simulator,
    visible_gpus,
)
from gpuwatch.jobs.loop.reader import LoopReader
from gpuwatch.jobs.tracking.collectives import Collectives
from gpuwatch.jobs.tracking.loader import LoaderSigns, LoaderWatch, with_reported
from gpuwatch.jobs.tracking.member import METER_SECONDS_APART, METER_SECONDS_IN_TURNS, Member
from gpuwatch.sources.linux.connections import UNSEEN, ConnectionWatch, Traffic

T = TypeVar("T")

# Its processes and their roles


class Moment(NamedTuple):
    """One snapshot: its time, the rows of processes, and the GPUs that each of them uses."""

    now: float
    unix: float
    rows: Mapping[int, Process]
    gpus: Mapping[int, tuple[GpuKey, ...]]


class Membership:
    """The processes of one job and their roles; ``by_pid`` has parents before their children."""

    def __init__(self, proc: Path, loops: LoopReader) -> None:
        self.by_pid: dict[int, Member] = {}
        self._proc = proc
        self._loops = loops
        self._connections = ConnectionWatch(proc)
        self._traffic: Mapping[int, Traffic] = {}
        self._names_used = False
        self._pids: Sequence[int] | None = None
        self._followed_at: float | None = None
        self.changed = True
        """Processes, their roles or what they use are others than when they were published last."""
        self._due = 0.0
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
        return self.changed or self.reports or now >= self._due

    def read_anew(self) -> None:
        """Read all of them with the next look."""
        self._traffic = {}
        self.changed = True
        for member in self:
            member.meter.due = -math.inf

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
        apart = 0.0 if self._followed_at is None else now - self._followed_at
        self._pids, self._followed_at = pids, now
        due = evidence_due = math.inf
        for pid in pids:
            row = rows[pid]
            member = self.by_pid.get(pid)
            if member is None:
                member = Member(row, now, self._proc, orphaned=pid in orphans)
                self.by_pid[pid] = member
                changed = True
            changed = member.follow_row(row, now, unix, apart) or changed
            due = min(due, member.meter.due)
            evidence_due = min(evidence_due, member.evidence_due)
            if anybody_reports:
                changed = member.follow_reports(self._loops) or changed
            uses = gpus.get(pid, ())
            if uses != member.gpus:
                member.use_gpus(uses)
                changed = True
        self._due = due
        if not same:
            changed = self._link(pids) or changed
        if (changed or now >= evidence_due) and self._assign(now, changed, attached=attached):
            self._sum_up()

    def _sum_up(self) -> None:
        """Note what follows from its processes and their roles."""
        self.changed = True
        self.lives = any(member.is_alive for member in self)
        self.reports = any(member.reports and member.is_alive for member in self)
        self.orphans = [member for member in self if member.orphaned]
        self.workers = {}
        for one in self.alive("loader_worker"):
            if not one.orphaned:
                self.workers.setdefault(one.role.rank_pid, []).append(one)
        below: dict[int, list[int]] = {}
        """PIDs below each loader worker, by that of the worker and of all below it."""
        for member in self:
            own: list[int] = []
            if member.role.name == "loader_worker":
                below[member.pid] = own
            elif member.parent in below:
                below[member.pid] = below[member.parent]
                below[member.pid].append(member.pid)
            member.measure_below(own)

    def _forget_all_but(self, pids: Sequence[int], rows: Mapping[int, Process]) -> bool:
        here = set(pids)
        gone = [
            pid
            for pid, member in self.by_pid.items()
            if pid not in here or rows[pid].key != member.key
        ]
        for pid in gone:
            del self.by_pid[pid]
        return bool(gone)

    def _link(self, pids: Sequence[int]) -> bool:
        """Find the parents; whether anything is other than before."""
        changed = list(self.by_pid) != list(pids)
        self.by_pid = {pid: self.by_pid[pid] for pid in pids}
        for member in self:
            changed = member.find_parent(self.by_pid) or changed
        return changed

    def _assign(self, now: float, changed: bool, *, attached: bool) -> bool:
        """Assign roles, and once more if they show that there is more evidence to read; whether
        anything has changed."""
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
                changed = member.take_role(found[member.pid]) or changed
        return anything

    def publish(self, at: Moment, *, attached: bool, disk_wait: bool) -> list[JobMember]:
        """Return its processes as the snapshot has them, read closely if ``attached``."""
        now = at.now
        if attached and now >= self._connections.due:
            # Who waits for the network.
            parents = {one.pid: one.parent for one in self if one.is_alive}
            self._traffic = self._connections.look(now, parents)
        few = len(self.by_pid) <= MEMBERS_AT_ONCE
        others = (0.0 if few else METER_SECONDS_IN_TURNS) if attached else METER_SECONDS_APART
        made = [
            member.publish(
                now,
                self._traffic.get(member.pid, UNSEEN),
                every=0.0 if attached and member.role.name == "rank" else others,
                disk_wait=disk_wait and attached,
                anew=self.changed,
            )
            for member in self
        ]
        self.changed = False
        return made


# Readings that change seldom

CORES_SECONDS = 10.0
CORES_SECONDS_APART = 30.0
SURROUNDINGS_SECONDS = 60.0
RARELY = 4.0
"""Times as long at last, for jobs nobody is attached to: what has stayed what it is for minutes."""
METERS_SECONDS_APART = 3.0
COLLECTIVE_THREADS = ("pt_nccl_", "pt_gloo_", "pt_tcpstore")
LISTENERS_AT_MOST = 16
"""Processes whose sockets are listed; those at the top listen."""


class SlowReadings:
    """The cores a job may use, its quota, where it runs, and what it does other than train from a
    loader: read on slow timers, and at once where the ranks are others than before."""

    def __init__(self, pid: int, now: float, proc: Path, listeners: Listeners) -> None:
        self.cores = JobCores(None, None, None, None)
        self.throttled_percent: float | None = None
        self.surroundings = Surroundings()
        self.inner_pid: int | None = None
        self.serves: str | None = None
        self.simulates: str | None = None
        self.collectives = Collectives(now, proc, listeners)
        self._pid = pid
        self._proc = proc
        self._listeners = listeners
        self._ranks: Sequence[ProcessKey] = ()
        self.pressure = JobPressure()
        self._meters: tuple[ThrottleMeter, PressureMeter] | None = None
        self._cores_due = self._surroundings_due = self._meters_due = now
        self._times = 0.0

    def read(
        self, now: float, members: Sequence[Member], ranks: Sequence[Member], attached: bool
    ) -> None:
        """Read what is due, of a rank: a launcher can be outside its container."""
        self._note_ranks(now, [rank.key for rank in ranks])
        inside = ranks[0] if ranks else members[0]
        if now >= self._cores_due:
            # Spread out, like all that is read of many jobs.
            self._times = min(RARELY, self._times + 1.0)
            apart = self._times * CORES_SECONDS_APART + self._pid % 8
            self._cores_due = now + (CORES_SECONDS if attached else apart)
            others = [rank.pid for rank in ranks if rank is not inside]
            environment = inside.environment or {}
            self.cores = read_cores(inside.pid, environment, self._proc, others=others)
            self._read_purpose(now, members, ranks)
            if self._meters is not None:
                self._meters[0].search()
        if now >= self._surroundings_due:
            self._surroundings_due = now + (1.0 if attached else self._times) * SURROUNDINGS_SECONDS
            self.surroundings = read_surroundings(inside.pid, inside.environment or {}, self._proc)
            if any(member.pid == self._pid for member in members):
                self.inner_pid = read_inner_pid(self._pid, self._proc)
        self.collectives.read(now, ranks, attached)
        if attached or now >= self._meters_due:
            self._meters_due = now + METERS_SECONDS_APART
            self._read_meters(now, inside.pid)

    def _note_ranks(self, now: float, keys: Sequence[ProcessKey]) -> None:
        """Read all anew where the first rank is another than before, and the cores where any is."""
        if not keys or keys == self._ranks:
            return
        self._cores_due, self._times = now, 0.0
        if keys[:1] != self._ranks[:1]:
            self._surroundings_due = self._meters_due = now
            self._meters = None
        self._ranks = keys

    def _read_meters(self, now: float, pid: int) -> None:
        if self._meters is None:
            self._meters = ThrottleMeter(pid, self._proc), PressureMeter(pid, self._proc)
        throttle, pressure = self._meters
        self.throttled_percent, self.pressure = throttle.read(), pressure.read(now)

    def _read_purpose(self, now: float, members: Sequence[Member], ranks: Sequence[Member]) -> None:
        """Find out whether it serves or simulates. Whoever runs backward passes, or has a loader,
        trains: its port is for something else."""
        own = [one for one in members if one.role.name == "helper" and one.role.guessed]
        for one in (*own[:1], *ranks[:1]):
            self.simulates = self.simulates or simulator(one.facts, self._proc)
        named = any(one.role.name == "loader_worker" and not one.role.guessed for one in members)
        if named or any(rank.reports or is_training(rank.threads or frozenset()) for rank in ranks):
            self.serves = None
            return
        processes = [one.facts for one in members if one.facts.program.helper is None]
        processes = processes[:LISTENERS_AT_MOST]
        store = len(ranks) > 1 or any(rank.has_thread(*COLLECTIVE_THREADS) for rank in ranks)
        self.serves = service_sign(processes, self._listeners, now, only_known=store)

    def hurry(self) -> None:
        """Read the cores with the next look."""
        self._cores_due = 0.0


# The job

RANKS_SECONDS_APART = 3.0
"""How a job that nobody is attached to loads its data is worked out this often."""
MEMBERS_AT_ONCE = 16
"""Where the attached job has more processes, those that are no ranks take turns."""
GPU_LINGER_SECONDS = 5.0
"""A driver that is slow names no process for a moment."""


class TrackedJob:
    """One job. Keys tell a process from a later one of the same PID."""

    def __init__(
        self,
        key: ProcessKey,
        world: tuple[str, ...] | None,
        now: float,
        proc: Path,
        loops: LoopReader,
        listeners: Listeners,
    ) -> None:
        self.key = key
        self.world = world
        """The mark that its ranks share; see ``world_of``."""
        self.roots: dict[int, float | None] = {}
        """The PIDs of its topmost processes and their starts, more than one where no launcher on
        this machine started them all."""
        self.attached = False
        self.ended_at: float | None = None
        self.refused = False
        """Its user does not let gpuwatch see all of it."""
        self._members = Membership(proc, loops)
        self._loops = loops
        self._slow = SlowReadings(key[0], now, proc, listeners)
        self._gpu_at = -math.inf
        self._uses_gpu = False
        self._without_ranks_at: float | None = None
        self._watches: dict[ProcessKey, LoaderWatch] = {}
        self._ranks: tuple[JobRank, ...] = ()
        self._ranks_of: tuple[object, ...] = ()
        self._ranks_due = now
        self._published: Job | None = None
        self._last_members: tuple[JobMember, ...] = ()
        """Its processes while it ran, as they were last."""

    # Its processes

    @property
    def members(self) -> Mapping[int, Member]:
        return self._members.by_pid

    @property
    def ranks(self) -> list[Member]:
        """The ranks that are alive, in the order of their numbers."""
        return sorted(self.alive("rank"), key=_rank_order)

    def alive(self, role: str) -> list[Member]:
        return self._members.alive(role)

    @property
    def orphaned_workers(self) -> list[Member]:
        orphans = self._members.orphans
        return [one for one in orphans if one.role.name == "loader_worker" and one.is_alive]

    @property
    def is_used(self) -> bool:
        """True if, by the snapshot in ``follow`` or a GPU shortly before, it is worth showing."""
        members = self._members
        return members.lives and bool(
            self._uses_gpu or members.reports or (members.orphans and self.orphaned_workers)
        )

    def add_root(self, process: Process) -> None:
        self.roots[process.pid] = process.started_at_unix_seconds

    def follow(self, pids: Sequence[int], orphans: frozenset[int], at: Moment) -> None:
        """Take the rows of its processes; see ``Membership.follow``."""
        self._members.follow(pids, orphans, at, attached=self.attached)
        if not at.gpus.keys().isdisjoint(pids):
            self._gpu_at = at.now
        self._uses_gpu = at.now - self._gpu_at <= GPU_LINGER_SECONDS

    def without_ranks_since(self, now: float) -> float | None:
        """Return when its last rank was seen to be gone; ``None`` while it has one."""
        if self.alive("rank"):
            self._without_ranks_at = None
        elif self._without_ranks_at is None:
            self._without_ranks_at = now
        return self._without_ranks_at

    def set_attached(self, attached: bool) -> None:
        """Read it closely from now on, or not any more."""
        self.attached = attached
        self._slow.hurry()
        self._members.read_anew()

    def roots_among(self, rows: Mapping[int, Process]) -> list[int]:
        """Return its topmost processes that are still there, and not others with their PIDs."""
        return [
            pid
            for pid, started in self.roots.items()
            if pid in rows and started == rows[pid].started_at_unix_seconds is not None
        ]

    def to_follow(self) -> set[int]:
        """Return the PIDs whose trees hold all of it."""
        above, orphans = self.roots.keys() & self.members.keys(), self._members.orphans
        return above.union([member.pid for member in orphans]) if orphans else above

    def holds(self, pid: int, started: float | None) -> bool:
        member = self.members.get(pid)
        return member is not None and (started is None or member.key[1] == started)

    # What the snapshot says

    def resting(self, now: float) -> Job | None:
        """Return it as it was published last; ``None``: it is time to read it again."""
        return None if self.attached or self._members.are_due(now) else self._published

    def publish(self, at: Moment, *, disk_wait: bool) -> Job:
        """Return the job as it is now; once it has ended, as it was, with what is left of it. The
        same object while nothing of it changes."""
        made = self._members.publish(at, attached=self.attached, disk_wait=disk_wait)
        self.refused = any(member.meter.refused and member.is_alive for member in self._members)
        gone_at = self.without_ranks_since(at.now)
        if gone_at is not None and not self._may_start_again():
            self._published = self._ended(at.unix - (at.now - gone_at), made, at)
            return self._published
        self.ended_at = None
        self._last_members = tuple(made)
        found = self._running(at)
        if self._published is None or found != self._published:
            self._published = found
        return self._published

    def _running(self, at: Moment) -> Job:
        ranks, before, slow = self.ranks, self._published, self._slow
        members = list(self._members)
        slow.read(at.now, members, ranks, attached=self.attached)
        top = self.members.get(self.key[0]) or members[0]
        reported = {rank.key: self._loops.read(rank.key, at.unix) for rank in ranks if rank.reports}
        loops = {key: loop for key, loop in reported.items() if loop is not None}
        launchers = [m for m in members if m.role.name == "launcher" and not m.role.guessed]
        # Where both are there, gloo is for what lies on the CPU.
        collectives = [one for one in ("nccl", "gloo") if _has(ranks, f"pt_{one}_")]
        libraries = [rank.libraries for rank in ranks]
        return Job(
            pid=self.key[0],
            started_at_unix_seconds=self.key[1],
            attached=self.attached,
            command=before.command if before and top.pid != self.key[0] else top.row.command,
            user=top.row.user,
            launcher=_first([one.facts.program.name for one in launchers]),
            framework=_first([one.framework for one in libraries]),
            serves=slow.serves,
            simulates=slow.simulates,
            collectives=_first(collectives),
            behind_elsewhere=slow.collectives.behind.elsewhere,
            cpu_build=_first([one.cpu_build for one in libraries]),
            world_size=_first([one.role.numbers.world_size for one in ranks if one.role.numbers]),
            ranks=self._publish_ranks(ranks, loops, at),
            members=self._last_members,
            loops=tuple(loops.values()),
            gpu_uuids=self._gpus_so_far(at),
            **slow.cores._asdict(),
            **slow.surroundings._asdict(),
            cpu_throttled_percent=slow.throttled_percent,
            **slow.pressure._asdict(),
            inner_pid=slow.inner_pid,
        )

    def _gpus_so_far(self, at: Moment) -> tuple[str, ...]:
        """Return the GPUs it uses, and those it used before: a job that ends lets go of its GPU
        first, and which one that was is still to be seen."""
        before = () if self._published is None else self._published.gpu_uuids
        now = [uuid for pid in self.members for uuid in at.gpus.get(pid, ())]
        return tuple(dict.fromkeys([*before, *now]))

    def _may_start_again(self) -> bool:
        """True while a launcher, or the script that was asked for, can start ranks anew."""
        return any(
            member.is_alive
            and (
                member.role.name == "launcher" or (member.pid in self.roots and not member.orphaned)
            )
            for member in self._members
        )

    def _ended(self, ended_at: float, made: list[JobMember], at: Moment) -> Job:
        if self.ended_at is None:
            self.ended_at = ended_at
        before = self._published or Job(pid=self.key[0], started_at_unix_seconds=self.key[1])
        if not self._last_members and made:
            user = next(iter(self._members)).row.user
            before = replace(before, command=made[0].command, user=user)
        here = {member.key: member for member in made}
        known = [here.get(one.key) or one.without_readings() for one in self._last_members]
        known_keys = {one.key for one in known}
        found_later = [one for one in made if one.key not in known_keys]
        return replace(
            before,
            attached=self.attached,
            ranks=(),
            members=(*known, *found_later),
            loops=(),
            gpu_uuids=before.gpu_uuids or self._gpus_so_far(at),
            cpu_throttled_percent=None,
            **JobPressure()._asdict(),
            ended_at_unix_seconds=self.ended_at,
        )

    # Its ranks and their loaders

    def _publish_ranks(
        self, ranks: list[Member], loops: Mapping[ProcessKey, TrainingLoop], at: Moment
    ) -> tuple[JobRank, ...]:
        of = (len(self.members), *[(rank.key, at.gpus.get(rank.pid)) for rank in ranks])
        if self.attached or of != self._ranks_of or at.now >= self._ranks_due:
            # Those of ranks that have ended are forgotten.
            self._watches = {
                rank.key: self._watches.get(rank.key) or LoaderWatch(at.now) for rank in ranks
            }
            self._ranks = tuple(
                [self._publish_rank(rank, loops.get(rank.key), at) for rank in ranks]
            )
            self._ranks_of = of
            # Spread out, so that not all jobs are worked out at one moment.
            self._ranks_due = at.now + RANKS_SECONDS_APART + self.key[0] % 8 * 0.1
        return self._ranks

    def _publish_rank(self, rank: Member, loop: TrainingLoop | None, at: Moment) -> JobRank:
        signs = _loader_signs(rank, self._members.workers.get(rank.pid, ()), at.unix)
        facts = self._watches[rank.key].update(at.now, signs)
        if loop is not None:
            facts = with_reported(facts, loop.loader_workers, loop.pinned_memory)
        numbers = rank.role.numbers
        return JobRank(
            pid=rank.pid,
            started_at_unix_seconds=rank.key[1],
            rank=None if numbers is None else numbers.rank,
            local_rank=None if numbers is None else numbers.local_rank,
            gpu_uuids=at.gpus.get(rank.pid, ()),
            visible_gpus=visible_gpus(rank.environment),
            loader_workers=facts.workers,
            loader_workers_sign=facts.workers_sign,
            loader_workers_guessed=facts.workers_guessed,
            pinned_memory=facts.pinned,
            pinned_memory_sign=facts.pinned_sign,
            numa_nodes=read_nodes(rank.pid),
            collectives_behind=self._slow.collectives.behind.by_pid.get(rank.pid),
        )


def _loader_signs(rank: Member, workers: Sequence[Member], unix: float) -> LoaderSigns:
    """Gather what shows of a rank's loader; ``workers``: its own."""
    guessed = sum([member.role.guessed for member in workers])
    started = [member.key[1] for member in workers if member.key[1] is not None]
    return LoaderSigns(
        age_seconds=None if rank.key[1] is None else unix - rank.key[1],
        named_workers=len(workers) - guessed,
        guessed_workers=guessed,
        workers_age_seconds=unix - min(started) if started else None,
        framework=rank.libraries.framework,
        libraries_readable=rank.libraries_readable,
        threads=rank.threads,
        kernel_seconds=rank.kernel_seconds,
    )


def _first(values: Iterable[T | None]) -> T | None:
    """Return the first that is known."""
    return next((one for one in values if one is not None), None)


def _has(ranks: Sequence[Member], thread: str) -> bool:
    return any(rank.has_thread(thread) for rank in ranks)


def _rank_order(member: Member) -> tuple[float, int]:
    rank = None if member.role.numbers is None else member.role.numbers.rank
    return (math.inf if rank is None else float(rank), member.pid)
