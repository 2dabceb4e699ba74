"""The role of each process of a job, and what shows it.

PyTorch names its loader workers from 2.5 on, together with the pinning thread and the threads of
its collectives (pytorch#128448): where that version or one of those names is seen, a child without
such a name is no loader worker. Before, a worker is any child that the training process forked or
spawned, which is a guess.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuwatch.jobs.identity.process_facts import (
    NO_LIBRARIES,
    Libraries,
    ProcessFacts,
    RankNumbers,
    is_fork,
    is_same_program,
    rank_numbers,
)

WORKER_NAME = "pt_data_worker"
PIN_NAME = "pt_data_pin"
_NAMES_THAT_PROVE = (WORKER_NAME, PIN_NAME, "pt_elastic", "pt_nccl_", "pt_tcpstore", "pt_gloo_")
"""All from the change that named loader workers, or from later ones."""
REPORTS_SIGN = "uses gpuwatch.torch"
_TRAINING_THREADS = (
    ("pt_autograd_", "has threads of autograd, named pt_autograd_*"),
    ("pt_nccl_", "has threads of NCCL, named pt_nccl_*"),
    ("pt_gloo_", "has a thread of Gloo, named pt_gloo_*"),
)
_STARTERS = ("launcher", "wrapper", "shell", "gpuwatch")
SETTLE_SECONDS = 1.0
"""Between fork and exec (or before it names itself) a child looks like its parent."""


class Role(NamedTuple):
    """A role as ``JobMember`` has it, with the rank it is or works for (its PID, ``rank_pid``)."""

    name: str
    sign: str | None = None
    guessed: bool = False
    rank_pid: int | None = None
    numbers: RankNumbers | None = None


OTHER = Role("other")


@dataclass(slots=True, kw_only=True)
class Evidence:
    """One process as far as its role depends on it."""

    facts: ProcessFacts
    pid: int = field(init=False)
    parent: int | None = None
    """The member above it; ``None`` for the topmost, and for orphans."""
    environment: Mapping[str, str] | None = None
    """``None`` where it may not be read."""
    threads: frozenset[str] | None = None
    """Their names; ``None`` until all have been read once."""
    libraries: Libraries = NO_LIBRARIES
    uses_gpu: bool = False
    reports: bool = False
    """Whether the process reports its training loop through ``gpuwatch.torch``."""
    reported_numbers: RankNumbers | None = None
    """Which rank it says it is."""
    settled: bool = True
    """Whether the process is at least ``SETTLE_SECONDS`` old."""
    orphaned: bool = False
    """Its parent has ended."""

    def __post_init__(self) -> None:
        self.pid = self.facts.pid

    def has_thread(self, *prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in self.threads or ())


def names_are_used(members: Sequence[Evidence]) -> bool:
    """True if this PyTorch is one that names loader workers and the pinning thread."""
    return any(
        member.libraries.names_workers
        or member.facts.name.startswith(_NAMES_THAT_PROVE)
        or member.has_thread(*_NAMES_THAT_PROVE)
        for member in members
    )


def is_training(threads: frozenset[str]) -> bool:
    """True if the threads show that the process has run backward passes on a GPU."""
    return any(name.startswith("pt_autograd_") for name in threads)


def assign(
    members: Sequence[Evidence], *, names_used: bool, before: Mapping[int, Role] | None = None
) -> dict[int, Role]:
    """Return the role of each, by PID. ``members`` come with parents before their children;
    ``before`` holds the roles that orphans had while their parent lived."""
    return _Assignment(members, names_used, before or {}).roles


class _Assignment:
    def __init__(
        self, members: Sequence[Evidence], names_used: bool, before: Mapping[int, Role]
    ) -> None:
        self._members = {member.pid: member for member in members}
        self._names_used = names_used
        self._before = before
        self._above: dict[int, tuple[int, ...]] = {}
        """The PIDs of the members above each, the nearest first."""
        self.roles: dict[int, Role] = {}
        for member in members:
            up = member.parent
            self._above[member.pid] = () if up is None else (up, *self._above[up])
        for member in members:
            role = self._by_itself(member)
            if role is not None:
                self.roles[member.pid] = role
        self._name_mains(members)
        for member in members:
            self._add_numbers(member)

    # By its own names and environment

    def _by_itself(self, member: Evidence) -> Role | None:
        """``None`` if that leaves it open."""
        program = member.facts.program
        if program.kind == "launcher":
            return Role("launcher", f"it is {program.name}")
        if member.facts.name.startswith(WORKER_NAME):
            # A child of a worker inherits its name.
            inherited = self._role_above(member) == "loader_worker"
            own = Role("loader_worker", f"named {WORKER_NAME}")
            return Role("other", "started by a loader worker") if inherited else own
        shown = self._rank_by_environment(member) or self._rank_by_threads(member)
        if member.reports:
            return self._reporting(member, shown)
        if (sign := self._helper_sign(member)) is not None:
            return Role("helper", sign)
        if program.kind in _STARTERS:
            return Role("other", f"it is {program.name}")
        known = self._before.get(member.pid) if member.orphaned else None
        return known or shown

    def _helper_sign(self, member: Evidence) -> str | None:
        program = member.facts.program
        if program.helper is not None:
            return f"it is {program.helper}"
        if program.started_by == "resource tracker":
            return "the resource tracker of multiprocessing"
        if program.started_by == "forkserver" and not self._is_fork(member):
            return "the fork server of multiprocessing"
        return None

    def _reporting(self, member: Evidence, shown: Role | None) -> Role:
        role = shown or Role("rank", REPORTS_SIGN, False, member.pid)
        reported = member.reported_numbers
        if reported is not None and (role.numbers is None or role.numbers.rank is None):
            # The environment may not be read, or was set when the process ran already.
            role = role._replace(numbers=reported)
        return role

    def _rank_by_environment(self, member: Evidence) -> Role | None:
        """Workers and helpers inherit the environment: the topmost process with it is the rank."""
        numbers = rank_numbers(member.environment)
        if numbers is None or not member.facts.program.is_python:
            return None
        above = self._rank_above(member)
        if above is not None and above.numbers is not None and above.numbers[:2] == numbers[:2]:
            return None
        return Role("rank", numbers.sign, False, member.pid, numbers)

    def _rank_by_threads(self, member: Evidence) -> Role | None:
        for prefix, sign in _TRAINING_THREADS:
            if member.has_thread(prefix):
                return Role("rank", sign, False, member.pid)
        return None

    # By its place in the tree

    def _name_mains(self, members: Sequence[Evidence]) -> None:
        """Name the processes that nothing has named yet: the main ones, then those below them."""
        mains = [m for m in members if m.pid not in self.roles and self._is_main(m)]
        likely = {m.pid for m in mains if m.facts.program.is_python or m.uses_gpu}
        known = any(role.name == "rank" for role in self.roles.values())
        known = known or (len(mains) > 1 and any(m.uses_gpu for m in mains))
        for member in mains:
            chosen = member.pid in likely or not (likely or known)
            self.roles[member.pid] = self._main(member, a_rank_is_known=known) if chosen else OTHER
        for member in members:
            if member.pid not in self.roles:
                self.roles[member.pid] = self._child(member)

    def _is_main(self, member: Evidence) -> bool:
        """Nothing but launchers, wrappers and shells above it."""
        above = [self._members[pid] for pid in self._above[member.pid]]
        return not member.orphaned and all(up.facts.program.kind in _STARTERS for up in above)

    def _main(self, member: Evidence, *, a_rank_is_known: bool) -> Role:
        pid, framework = member.pid, member.libraries.framework
        below = [one for one in self._members.values() if pid in self._above[one.pid]]
        signs = (
            (member.uses_gpu, "it uses a GPU"),
            (self._started_the_others(member) is not None, "it started the other ranks"),
            (any(map(self._is_rank_or_may_be, below)), None),
            (framework is not None, f"{framework} is loaded in it"),
            (self._started_workers(pid), "it started loader workers"),
            (any(one.pid not in self.roles and self._trains(one) for one in below), None),
        )
        for shown, sign in signs:
            if shown and sign is None:
                return Role("launcher", "it started the training processes", True)
            if shown:
                return Role("rank", sign, False, pid)
        return OTHER if a_rank_is_known else Role("rank", "it is the job's main process", True, pid)

    def _is_rank_or_may_be(self, member: Evidence) -> bool:
        """A rank of its own, or on a GPU while the one above it is on none."""
        role = self.roles.get(member.pid)
        if role is None:
            return member.uses_gpu and member.facts.program.is_python
        return role.name == "rank"

    def _started_workers(self, pid: int) -> bool:
        """True if it is the nearest above a loader worker that is not one itself."""
        for worker, role in self.roles.items():
            if role.name == "loader_worker":
                for up in self._above[worker]:
                    if up == pid:
                        return True
                    if self.roles.get(up, OTHER).name not in ("loader_worker", "helper"):
                        break
        return False

    def _trains(self, member: Evidence) -> str | None:
        """Say why a program of its own, below the one that was asked for (``make``, a sweep), is a
        training process."""
        is_part = self._is_part(member)
        if is_part or not (member.settled and member.facts.program.is_python):
            return None
        if member.uses_gpu:
            return "it uses a GPU"
        if member.libraries.framework is not None:
            return f"{member.libraries.framework} is loaded in it"
        return "it started loader workers" if self._started_workers(member.pid) else None

    def _is_part(self, member: Evidence, *methods: str) -> bool:
        """True if it is a part of the program that its parent runs; only if it was started by one
        of ``methods`` of multiprocessing, or forked."""
        started_by = member.facts.program.started_by
        spawned = started_by in methods if methods else started_by is not None
        return spawned or self._is_fork(member) or member.orphaned

    def _child(self, member: Evidence) -> Role:
        """A process below a main one, of which neither name nor environment says anything."""
        if self._rank_above(member) is None and (sign := self._trains(member)) is not None:
            return Role("rank", sign, False, member.pid)
        if not (member.settled and self._is_part(member, "spawn")):
            return OTHER
        above = self._role_above(member)
        if above == "launcher" and member.uses_gpu:
            return Role("rank", "it uses a GPU", True, member.pid)
        if above not in ("rank", "helper") and not member.orphaned:
            return OTHER
        spawned = member.facts.program.started_by == "spawn"
        sign = f"{'spawned' if spawned else 'forked'} by the training process"
        if self._names_used:
            return Role("helper", f"{sign}, not named as a worker", True)
        rank = self._rank_above(member)
        trains = None if rank is None or rank.rank_pid is None else self._members[rank.rank_pid]
        of_torch = trains is None or trains.libraries.framework in (None, "torch")
        return Role("loader_worker" if of_torch else "helper", sign, True)

    def _is_fork(self, member: Evidence) -> bool:
        return member.parent is not None and is_fork(
            member.facts, self._members[member.parent].facts
        )

    def _role_above(self, member: Evidence) -> str | None:
        role = None if member.parent is None else self.roles.get(member.parent)
        return None if role is None else role.name

    def _rank_above(self, member: Evidence) -> Role | None:
        roles = (self.roles.get(pid, OTHER) for pid in self._above[member.pid])
        return next((role for role in roles if role.name == "rank"), None)

    # Which rank it is, or works for

    def _add_numbers(self, member: Evidence) -> None:
        role, above = self.roles[member.pid], self._rank_above(member)
        if role.name == "rank" and role.numbers is None and above is None:
            numbers = rank_numbers(member.environment) or self._started_the_others(member)
            self.roles[member.pid] = role._replace(numbers=numbers or self._spawned_as(member))
        if role.name in ("rank", "launcher"):
            return
        of = above or (self._before.get(member.pid) if member.orphaned else None)
        if of is not None:
            self.roles[member.pid] = role._replace(rank_pid=of.rank_pid, numbers=of.numbers)

    def _started_the_others(self, member: Evidence) -> RankNumbers | None:
        """Return the numbers of a first rank that started the other ones of this machine itself, as
        Lightning's does: only the environment of those says theirs."""
        started = [self.roles[other.pid].numbers for other in self._ranks_of(member)]
        numbers = min(filter(None, started), key=lambda one: one.local_rank or 0, default=None)
        if numbers is None or not numbers.local_rank:
            return None
        first = None if numbers.rank is None else numbers.rank - numbers.local_rank
        return RankNumbers(first, 0, numbers.world_size, "it started the other ranks")

    def _spawned_as(self, member: Evidence) -> RankNumbers | None:
        """Return its number by the order in which one program started its ranks, as
        ``torch.multiprocessing.spawn`` does: which it is, they hear through a pipe."""
        if member.parent is None or self._role_above(member) != "launcher":
            return None
        parent = self._members[member.parent]
        ranks = sorted([(one.facts.started_at or 0.0, one.pid) for one in self._ranks_of(parent)])
        pids = [pid for _, pid in ranks]
        if member.pid not in pids:
            return None
        index, node = pids.index(member.pid), (parent.environment or {}).get("NODE_RANK", "0")
        sign = "by the order in which the ranks were started"
        return RankNumbers(index if node == "0" else None, index, None, sign)

    def _ranks_of(self, member: Evidence) -> list[Evidence]:
        """Return the ranks among its children that run the same program as it."""
        return [
            other
            for other in self._members.values()
            if other.parent == member.pid
            and self.roles.get(other.pid, OTHER).name == "rank"
            and is_same_program(other.facts, member.facts)
        ]
