"""One job, followed from its first look to its end, and what the snapshot says of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.model import Job, JobMember, JobRank, Process, ProcessKey, TrainingLoop
from gpuwatch.jobs.cores import read_nodes
from gpuwatch.jobs.identity.services import Listeners
from gpuwatch.jobs.identity.surroundings import visible_gpus
from gpuwatch.jobs.loop.reader import LoopReader
from gpuwatch.jobs.tracking.loader import LoaderLook, LoaderWatch, with_reported
from gpuwatch.jobs.tracking.members import METER_SECONDS_APART, METER_SECONDS_IN_TURNS, Member
from gpuwatch.jobs.tracking.membership import Membership, Moment
from gpuwatch.jobs.tracking.slow_readings import SlowReadings

RANKS_SECONDS_APART = 3.0
"""How a job that nobody is attached to loads its data is worked out this often."""
MEMBERS_AT_ONCE = 16
"""Of the attached job, where it has more processes, those that are no ranks take turns."""
GPU_LINGER_SECONDS = 5.0
"""A driver that is slow names no process for a moment."""


class TrackedJob:
    """``roots`` are its topmost processes, more than one where no launcher on this machine
    started them all. Keys tell a process from a later one of the same PID."""

    def __init__(
        self, key: ProcessKey, now: float, proc: Path, loops: LoopReader, listeners: Listeners
    ) -> None:
        self.key = key
        self.roots: dict[int, float | None] = {key[0]: key[1]}
        self.world: tuple[str, ...] | None = None
        self.attached = False
        self.ended_at: float | None = None
        self.last: Job | None = None  # as it was published last
        self._members = Membership(proc, loops)
        self._loops = loops
        self._gpu_at = float("-inf")
        self._uses_gpu = False
        self.refused = False
        """Its user does not let gpuwatch see all of it."""
        self._without_ranks_at: float | None = None
        self._slow = SlowReadings(key[0], now, proc, listeners)
        self._watches: dict[ProcessKey, LoaderWatch] = {}
        self._ranks: tuple[JobRank, ...] = ()
        self._ranks_of: tuple[object, ...] = ()
        self._ranks_due = now
        self._final: tuple[JobMember, ...] = ()

    # Its processes

    @property
    def members(self) -> dict[int, Member]:
        return self._members.by_pid

    @property
    def ranks(self) -> list[Member]:
        """Alive, in the order of their numbers."""
        return sorted(self.alive("rank"), key=_rank_order)

    def alive(self, role: str) -> list[Member]:
        return self._members.alive(role)

    @property
    def orphaned_workers(self) -> list[Member]:
        orphans = self._members.orphans
        return [one for one in orphans if one.role.name == "loader_worker" and one.is_alive]

    @property
    def is_used(self) -> bool:
        """By the snapshot in ``follow``, or a GPU shortly before, it is worth showing."""
        members = self._members
        return members.lives and bool(
            self._uses_gpu or members.reports or (members.orphans and self.orphaned_workers)
        )

    def follow(self, pids: Sequence[int], orphans: frozenset[int], at: Moment) -> None:
        """Take the rows of its processes; see ``Membership.follow``."""
        self._members.follow(pids, orphans, at, attached=self.attached)
        if not at.gpus.keys().isdisjoint(pids):
            self._gpu_at = at.now
        self._uses_gpu = at.now - self._gpu_at <= GPU_LINGER_SECONDS

    def without_ranks_since(self, now: float) -> float | None:
        """When its last rank was seen to be gone; ``None`` while it has one."""
        if any(member.role.name == "rank" and member.is_alive for member in self._members):
            self._without_ranks_at = None
        elif self._without_ranks_at is None:
            self._without_ranks_at = now
        return self._without_ranks_at

    def set_attached(self, attached: bool, may_keep_open: int) -> None:
        """From now on it is (or is not) the one job that is read closely, with the counters of
        ``may_keep_open`` processes kept open."""
        self.attached = attached
        self._slow.hurry()
        self._members.changed = True
        self._members.keep_open(may_keep_open)

    def roots_among(self, rows: Mapping[int, Process]) -> list[int]:
        """Its topmost processes that are still there, and not others with their PIDs."""
        return [
            pid
            for pid, started in self.roots.items()
            if pid in rows and started == rows[pid].started_at_unix_seconds is not None
        ]

    def to_follow(self) -> set[int]:
        """The PIDs whose trees hold all of it."""
        above, orphans = self.roots.keys() & self.members.keys(), self._members.orphans
        return above.union([member.pid for member in orphans]) if orphans else above

    def close(self) -> None:
        self._members.close()
        self._slow.close()

    # What the snapshot says

    def resting(self, now: float) -> Job | None:
        """As it was published last; ``None``: it is time to read it again."""
        return None if self.attached or self._members.are_due(now) else self.last

    def publish(self, at: Moment, *, disk_wait: bool) -> Job:
        """The job as it is now; once it has ended, as it was, with what is left of it. The same
        object while nothing of it changes."""
        now, attached, members = at.now, self.attached, self._members
        if attached:
            members.look_at_connections(now)
        few = len(members.by_pid) <= MEMBERS_AT_ONCE
        others = (0.0 if few else METER_SECONDS_IN_TURNS) if attached else METER_SECONDS_APART
        made = [
            member.publish(
                now,
                every=0.0 if attached and member.role.name == "rank" else others,
                disk_wait=disk_wait and attached,
                anew=members.changed,
            )
            for member in members
        ]
        members.changed = False
        self.refused = any(member.meter.refused and member.is_alive for member in members)
        gone_at = self.without_ranks_since(now)
        if gone_at is not None and not self._may_start_again():
            self.last = self._ended(at.unix - (now - gone_at), made, at)
            return self.last
        self.ended_at = None
        self._final = tuple(made)
        found = self._running(at)
        if self.last is None or found != self.last:
            self.last = found
        return self.last

    def _running(self, at: Moment) -> Job:
        ranks, before = self.ranks, self.last
        members = list(self._members)
        self._slow.read(at.now, members, ranks, attached=self.attached)
        top = self.members.get(self.key[0]) or members[0]
        loops = self._read_loops(ranks, at.unix)
        launchers = (m for m in members if m.role.name == "launcher" and not m.role.guessed)
        return Job(
            pid=self.key[0],
            started_at_unix_seconds=self.key[1],
            attached=self.attached,
            command=before.command if before and top.pid != self.key[0] else top.row.command,
            user=top.row.user,
            launcher=next((member.look.program.name for member in launchers), None),
            framework=next((m.framework for m in ranks if m.framework is not None), None),
            serves=self._slow.serves,
            simulates=self._slow.simulates,
            # Where both are there, gloo is for what lies on the CPU.
            collectives=next((n for n in ("nccl", "gloo") if _has(ranks, f"pt_{n}_")), None),
            behind_elsewhere=self._slow.collectives.behind.elsewhere,
            cpu_build=next((m.cpu_build for m in ranks if m.cpu_build is not None), None),
            world_size=next((m.role.numbers.world_size for m in ranks if m.role.numbers), None),
            ranks=self._publish_ranks(ranks, loops, at),
            members=self._final,
            loops=tuple(loops.values()),
            gpu_uuids=self._gpus_so_far(at),
            **self._slow.cores._asdict(),
            **self._slow.surroundings._asdict(),
            cpu_throttled_percent=self._slow.throttled_percent,
            inner_pid=self._slow.inner_pid,
        )

    def _read_loops(self, ranks: list[Member], unix: float) -> dict[ProcessKey, TrainingLoop]:
        found = {rank.key: self._loops.read(rank.key, unix) for rank in ranks if rank.reports}
        return {key: loop for key, loop in found.items() if loop is not None}

    def _gpus_so_far(self, at: Moment) -> tuple[str, ...]:
        """Those it uses, and those it used before: a job that ends lets go of its GPU first, and
        which one that was is still to be seen."""
        before = () if self.last is None else self.last.gpu_uuids
        return tuple(dict.fromkeys([*before, *self._gpus_now(at)]))

    def _gpus_now(self, at: Moment) -> Iterator[str]:
        return (uuid for pid in self.members for uuid in at.gpus.get(pid, ()))

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
        before = self.last or Job(pid=self.key[0], started_at_unix_seconds=self.key[1])
        if not self._final and made:
            user = next(iter(self._members)).row.user
            before = replace(before, command=made[0].command, user=user)
        here = {member.key: member for member in made}
        known = [here.get(one.key) or one.without_readings() for one in self._final]
        known_keys = {one.key for one in known}
        found_later = [one for one in made if one.key not in known_keys]
        return replace(
            before,
            attached=self.attached,
            ranks=(),
            members=(*known, *found_later),
            loops=(),
            gpu_uuids=before.gpu_uuids or tuple(dict.fromkeys(self._gpus_now(at))),
            cpu_throttled_percent=None,
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
        look = _loader_look(rank, self._members.workers.get(rank.pid, ()), at.unix)
        facts = self._watches[rank.key].update(at.now, look)
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


def _loader_look(rank: Member, workers: Sequence[Member], unix: float) -> LoaderLook:
    """``workers``: its own."""
    guessed = sum([member.role.guessed for member in workers])
    started = [member.key[1] for member in workers if member.key[1] is not None]
    return LoaderLook(
        age_seconds=None if rank.key[1] is None else unix - rank.key[1],
        named_workers=len(workers) - guessed,
        guessed_workers=guessed,
        workers_age_seconds=unix - min(started) if started else None,
        framework=rank.framework,
        framework_readable=rank.framework_readable,
        threads=rank.threads,
        kernel_seconds=rank.kernel_seconds,
    )


def _has(ranks: Sequence[Member], thread: str) -> bool:
    return any(rank.has_thread(thread) for rank in ranks)


def _rank_order(member: Member) -> tuple[float, int]:
    rank = None if member.role.numbers is None else member.role.numbers.rank
    return (float("inf") if rank is None else float(rank), member.pid)
