"""Readings that change seldom around a job: the cores it may use, its quota, where it runs, and
what it does other than train from a loader."""

from collections.abc import Sequence
from pathlib import Path

from gpuwatch.core.model import ProcessKey
from gpuwatch.jobs.cores import JobCores, ThrottleMeter, read_cores
from gpuwatch.jobs.identity.roles import is_training
from gpuwatch.jobs.identity.services import Listeners, service_sign, simulator
from gpuwatch.jobs.identity.surroundings import Surroundings, read_inner_pid, read_surroundings
from gpuwatch.jobs.tracking.collectives import Collectives
from gpuwatch.jobs.tracking.members import Member

CORES_SECONDS = 10.0
CORES_SECONDS_APART = 30.0
SURROUNDINGS_SECONDS = 60.0
RARELY = 4.0
"""Times as long at last, for jobs nobody is attached to: what has stayed what it is for minutes."""
THROTTLE_SECONDS_APART = 3.0
COLLECTIVE_THREADS = ("pt_nccl_", "pt_gloo_", "pt_tcpstore")
LOOKED_AT_MOST = 16
"""Processes whose sockets are listed; those at the top listen."""


class SlowReadings:
    """Read on slow timers, and at once where the ranks are others than before."""

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
        self._ranks: tuple[ProcessKey, ...] = ()
        self._throttle: ThrottleMeter | None = None
        self._cores_due = self._surroundings_due = self._throttle_due = now
        self._times = 0.0

    def read(
        self, now: float, members: Sequence[Member], ranks: Sequence[Member], attached: bool
    ) -> None:
        """Those of a rank: a launcher can be outside its container."""
        keys = tuple([rank.key for rank in ranks])
        if keys and keys != self._ranks:
            self._cores_due, self._times = now, 0.0
            if keys[:1] != self._ranks[:1]:
                self._surroundings_due = self._throttle_due = now
                self.close()
            self._ranks = keys
        inside = ranks[0] if ranks else members[0]
        environment = inside.environment or {}
        if now >= self._cores_due:
            # Spread out, like all that is read of many jobs.
            self._times = min(RARELY, self._times + 1.0)
            apart = self._times * CORES_SECONDS_APART + self._pid % 8
            self._cores_due = now + (CORES_SECONDS if attached else apart)
            others = [rank.pid for rank in ranks if rank is not inside]
            self.cores = read_cores(inside.pid, environment, self._proc, others=others)
            self._read_purpose(now, members, ranks)
        if now >= self._surroundings_due:
            self._surroundings_due = now + (1.0 if attached else self._times) * SURROUNDINGS_SECONDS
            self.surroundings = read_surroundings(inside.pid, environment, self._proc)
            if any(member.pid == self._pid for member in members):
                self.inner_pid = read_inner_pid(self._pid, self._proc)
        self.collectives.read(now, ranks, attached)
        if attached or now >= self._throttle_due:
            self._throttle_due = now + THROTTLE_SECONDS_APART
            if self._throttle is None:
                self._throttle = ThrottleMeter(inside.pid, self._proc)
            self.throttled_percent = self._throttle.read()

    def _read_purpose(self, now: float, members: Sequence[Member], ranks: Sequence[Member]) -> None:
        """Whoever runs backward passes, or has a loader, trains: its port is for something else."""
        own = [one for one in members if one.role.name == "helper" and one.role.guessed]
        for one in (*own[:1], *ranks[:1]):
            self.simulates = self.simulates or simulator(one.look, self._proc)
        named = any(one.role.name == "loader_worker" and not one.role.guessed for one in members)
        if named or any(rank.reports or is_training(rank.threads or frozenset()) for rank in ranks):
            self.serves = None
            return
        looks = [one.look for one in members if one.look.program.helper is None]
        store = len(ranks) > 1 or any(rank.has_thread(*COLLECTIVE_THREADS) for rank in ranks)
        looks = looks[:LOOKED_AT_MOST]
        self.serves = service_sign(looks, self._listeners, now, only_known=store)

    def hurry(self) -> None:
        """Cores are to be read with the next look."""
        self._cores_due = 0.0

    def close(self) -> None:
        self.throttled_percent = None
        if self._throttle is not None:
            self._throttle.close()
            self._throttle = None
