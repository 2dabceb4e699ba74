"""What each process of a job does in it, and what says so.

PyTorch names its loader workers from 2.5 on, together with the pinning thread and the threads of
its collectives (pytorch#128448): where one of those names is seen, a child without such a name is
no loader worker. Before, a worker is any child that the training process forked or spawned, which
is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.jobs.identity.evidence import Look, RankNumbers, rank_numbers
from gpuwatch.jobs.identity.grouping import is_fork, is_same_program
from gpuwatch.jobs.identity.programs import Program

WORKER_NAME = "pt_data_worker"
PIN_NAME = "pt_data_pin"
_NAMES_THAT_PROVE = (WORKER_NAME, PIN_NAME, "pt_elastic", "pt_nccl_", "pt_tcpstore", "pt_gloo_")
"""All from the change that named loader workers, or from later ones."""
TELLS_SIGN = "uses gpuwatch.torch"
_TRAINING_THREADS = (
    ("pt_autograd_", "has threads of autograd, named pt_autograd_*"),
    ("pt_nccl_", "has threads of NCCL, named pt_nccl_*"),
    ("pt_gloo_", "has a thread of Gloo, named pt_gloo_*"),
)
SETTLE_SECONDS = 1.0
"""Between fork and exec (or before it names itself) a child looks like its parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One process as far as its role depends on it."""

    look: Look
    parent: int | None = None
    """The member above it; ``None`` for the topmost, and for what was left over."""
    environment: Mapping[str, str] | None = None
    """``None`` where it may not be read."""
    threads: frozenset[str] = frozenset()
    framework: str | None = None
    uses_gpu: bool = False
    tells: bool = False
    """It says itself that it trains, through ``gpuwatch.torch``."""
    told_numbers: RankNumbers | None = None
    """Which rank it says it is."""
    settled: bool = True
    """It has been there for ``SETTLE_SECONDS``."""
    left_over: bool = False


class Given(NamedTuple):
    """A role as ``JobMember`` has it, with the rank it is or works for (its PID, ``rank_pid``)."""

    role: str
    sign: str | None = None
    guessed: bool = False
    rank_pid: int | None = None
    numbers: RankNumbers | None = None


OTHER = Given("other")


def names_are_used(candidates: Sequence[Candidate]) -> bool:
    """Whether this PyTorch is one that names loader workers and the pinning thread."""
    return any(
        _proves(candidate.look.name) or any(map(_proves, candidate.threads))
        for candidate in candidates
    )


def _proves(name: str) -> bool:
    return name.startswith(_NAMES_THAT_PROVE)


def is_training(threads: frozenset[str]) -> bool:
    """Whether the threads show that the process has run backward passes on a GPU."""
    return any(name.startswith("pt_autograd_") for name in threads)


def assign(
    candidates: Sequence[Candidate],
    *,
    names_used: bool,
    before: Mapping[int, Given] | None = None,
) -> dict[int, Given]:
    """The role of each, by PID. ``candidates`` come with parents before their children;
    ``before`` holds the roles that left-over processes had while their parent lived."""
    return _Assignment(candidates, names_used, before or {}).result


class _Assignment:
    def __init__(
        self, candidates: Sequence[Candidate], names_used: bool, before: Mapping[int, Given]
    ) -> None:
        self._by_pid = {candidate.look.pid: candidate for candidate in candidates}
        self._names_used = names_used
        self._before = before
        self.result: dict[int, Given] = {}
        for candidate in candidates:
            given = self._by_itself(candidate)
            if given is not None:
                self.result[candidate.look.pid] = given
        self._name_mains(candidates)
        for candidate in candidates:
            self._add_numbers(candidate)

    def _by_itself(self, candidate: Candidate) -> Given | None:
        """What the process's own names and environment say; ``None`` if that leaves it open."""
        look, program = candidate.look, candidate.look.program
        if program.kind == "launcher":
            return Given("launcher", f"it is {program.name}")
        if look.name.startswith(WORKER_NAME):
            return self._named_worker(candidate)
        if candidate.tells:
            return self._telling(candidate)
        helper = self._helper(candidate, program)
        if helper is None and program.kind in ("wrapper", "shell", "gpuwatch"):
            return Given("other", f"it is {program.name}")
        if helper is None and candidate.left_over and look.pid in self._before:
            return self._before[look.pid]
        return helper or self._rank_by_environment(candidate) or self._rank_by_threads(candidate)

    def _named_worker(self, candidate: Candidate) -> Given:
        if self._role_above(candidate) == "loader_worker":
            # A child of a worker inherits its name.
            return Given("other", "started by a loader worker")
        return Given("loader_worker", f"named {WORKER_NAME}")

    def _helper(self, candidate: Candidate, program: Program) -> Given | None:
        if program.helper is not None:
            return Given("helper", f"it is {program.helper}")
        if program.started_by == "resource tracker":
            return Given("helper", "the resource tracker of multiprocessing")
        if program.started_by == "forkserver" and not self._is_fork(candidate):
            return Given("helper", "the fork server of multiprocessing")
        return None

    def _telling(self, candidate: Candidate) -> Given:
        known = self._rank_by_environment(candidate) or self._rank_by_threads(candidate)
        if known is None:
            known = Given("rank", TELLS_SIGN, False, candidate.look.pid)
        told = candidate.told_numbers
        if told is not None and (known.numbers is None or known.numbers.rank is None):
            # The environment may not be read, or was set when the process ran already.
            known = known._replace(numbers=told)
        return known

    def _rank_by_environment(self, candidate: Candidate) -> Given | None:
        """Workers and helpers inherit the environment: the topmost process with it is the rank."""
        numbers = rank_numbers(candidate.environment)
        if numbers is None or not candidate.look.program.is_python:
            return None
        above = self._rank_above(candidate)
        if above is not None and above.numbers is not None and _same(above.numbers, numbers):
            return None
        return Given("rank", numbers.sign, False, candidate.look.pid, numbers)

    def _rank_by_threads(self, candidate: Candidate) -> Given | None:
        for prefix, sign in _TRAINING_THREADS:
            if any(name.startswith(prefix) for name in candidate.threads):
                return Given("rank", sign, False, candidate.look.pid)
        return None

    def _name_mains(self, candidates: Sequence[Candidate]) -> None:
        """The processes that nothing has named yet: the main ones, then those below them."""
        roots = [c for c in candidates if c.look.pid not in self.result and self._is_main(c)]
        likely = [c for c in roots if c.look.program.is_python or c.uses_gpu]
        known = any(given.role == "rank" for given in self.result.values())
        for candidate in roots:
            chosen = candidate in likely or not (likely or known)
            given = self._main(candidate, a_rank_is_known=known) if chosen else OTHER
            self.result[candidate.look.pid] = given
        for candidate in candidates:
            if candidate.look.pid not in self.result:
                self.result[candidate.look.pid] = self._child(candidate)

    def _is_main(self, candidate: Candidate) -> bool:
        """Nothing but launchers, wrappers and shells above it."""
        if candidate.left_over:
            return False
        parent = candidate.parent
        while parent is not None:
            above = self._by_pid[parent]
            if above.look.program.kind not in ("launcher", "wrapper", "shell", "gpuwatch"):
                return False
            parent = above.parent
        return True

    def _main(self, candidate: Candidate, *, a_rank_is_known: bool) -> Given:
        pid = candidate.look.pid
        if candidate.uses_gpu:
            return Given("rank", "it uses a GPU", False, pid)
        if self._started_the_others(candidate) is not None:
            return Given("rank", "it started the other ranks", False, pid)
        if self._started_ranks(pid):
            return Given("launcher", "it started the training processes", True)
        if candidate.framework is not None:
            return Given("rank", f"{candidate.framework} is loaded in it", False, pid)
        if self._started_workers(pid):
            return Given("rank", "it started loader workers", False, pid)
        return self._main_without_signs(pid, a_rank_is_known)

    def _main_without_signs(self, pid: int, a_rank_is_known: bool) -> Given:
        if any(pid in self._line(c) and self._trains(c) is not None for c in self._open()):
            return Given("launcher", "it started the training processes", True)
        if a_rank_is_known:
            return OTHER
        return Given("rank", "it is the job's main process", True, pid)

    def _started_ranks(self, pid: int) -> bool:
        """Ranks of their own, or children on GPUs while it is on none."""
        for candidate in self._by_pid.values():
            if candidate.parent is None or pid not in self._line(candidate):
                continue
            given = self.result.get(candidate.look.pid)
            if given is not None and given.role == "rank":
                return True
            if given is None and candidate.uses_gpu and candidate.look.program.is_python:
                return True
        return False

    def _started_workers(self, pid: int) -> bool:
        """Whether it is the nearest above a loader worker that is not one itself."""
        for worker, given in self.result.items():
            if given.role == "loader_worker":
                for above in self._line(self._by_pid[worker]):
                    if above == pid:
                        return True
                    role = self.result.get(above, OTHER).role
                    if role not in ("loader_worker", "helper"):
                        break
        return False

    def _open(self) -> list[Candidate]:
        return [c for c in self._by_pid.values() if c.look.pid not in self.result]

    def _trains(self, candidate: Candidate) -> str | None:
        """Why a program of its own, below the one that was asked for (``make``, a sweep), is a
        training process."""
        if not (candidate.settled and candidate.look.program.is_python) or self._is_part(candidate):
            return None
        if candidate.uses_gpu:
            return "it uses a GPU"
        if candidate.framework is not None:
            return f"{candidate.framework} is loaded in it"
        if self._started_workers(candidate.look.pid):
            return "it started loader workers"
        return None

    def _is_part(self, candidate: Candidate) -> bool:
        """Of the program that its parent runs."""
        spawned = candidate.look.program.started_by is not None
        return spawned or self._is_fork(candidate) or candidate.left_over

    def _child(self, candidate: Candidate) -> Given:
        """A process below a main one, of which neither name nor environment says anything."""
        if self._rank_above(candidate) is None and (sign := self._trains(candidate)) is not None:
            return Given("rank", sign, False, candidate.look.pid)
        spawned = candidate.look.program.started_by == "spawn"
        of_the_same_program = spawned or self._is_fork(candidate) or candidate.left_over
        if not candidate.settled or not of_the_same_program:
            return OTHER
        above = self._role_above(candidate)
        if above == "launcher" and candidate.uses_gpu:
            return Given("rank", "it uses a GPU", True, candidate.look.pid)
        if above not in ("rank", "helper") and not candidate.left_over:
            return OTHER
        sign = f"{'spawned' if spawned else 'forked'} by the training process"
        if self._names_used:
            return Given("helper", f"{sign}, not named as a worker", True)
        rank = self._rank_process(candidate)
        of_torch = rank is None or rank.framework in (None, "torch")
        return Given("loader_worker" if of_torch else "helper", sign, True)

    def _is_fork(self, candidate: Candidate) -> bool:
        parent = self._by_pid.get(candidate.parent) if candidate.parent is not None else None
        return parent is not None and is_fork(candidate.look, parent.look)

    def _line(self, candidate: Candidate) -> list[int]:
        """The PIDs of the members above it."""
        line = []
        parent = candidate.parent
        while parent is not None:
            line.append(parent)
            parent = self._by_pid[parent].parent
        return line

    def _role_above(self, candidate: Candidate) -> str | None:
        given = None if candidate.parent is None else self.result.get(candidate.parent)
        return None if given is None else given.role

    def _rank_above(self, candidate: Candidate) -> Given | None:
        for pid in self._line(candidate):
            given = self.result.get(pid)
            if given is not None and given.role == "rank":
                return given
        return None

    def _rank_process(self, candidate: Candidate) -> Candidate | None:
        given = self._rank_above(candidate)
        return None if given is None or given.rank_pid is None else self._by_pid[given.rank_pid]

    def _add_numbers(self, candidate: Candidate) -> None:
        """Which rank it is, or works for."""
        pid = candidate.look.pid
        given = self.result[pid]
        above = self._rank_above(candidate)
        if given.role == "rank" and given.numbers is None and above is None:
            numbers = rank_numbers(candidate.environment) or self._started_the_others(candidate)
            self.result[pid] = given._replace(numbers=numbers or self._spawned_as(candidate))
        if given.role in ("rank", "launcher"):
            return
        before = self._before.get(pid) if candidate.left_over else None
        if (of := above or before) is not None:
            self.result[pid] = given._replace(rank_pid=of.rank_pid, numbers=of.numbers)

    def _started_the_others(self, candidate: Candidate) -> RankNumbers | None:
        """The numbers of a first rank that started the other ones of this machine itself, as
        Lightning's does: only the environment of those says theirs."""
        started = [self.result[other.look.pid].numbers for other in self._parts_of(candidate)]
        numbers = min(filter(None, started), key=lambda one: one.local_rank or 0, default=None)
        if numbers is None or not numbers.local_rank:
            return None
        first = None if numbers.rank is None else numbers.rank - numbers.local_rank
        return RankNumbers(first, 0, numbers.world_size, "it started the other ranks")

    def _spawned_as(self, candidate: Candidate) -> RankNumbers | None:
        """By the order in which one program started its ranks, as ``torch.multiprocessing.spawn``
        does: which it is, they hear through a pipe."""
        parent = None if candidate.parent is None else self._by_pid[candidate.parent]
        if parent is None or self._role_above(candidate) != "launcher":
            return None
        ranks = sorted(
            self._parts_of(parent), key=lambda one: (one.look.started_at or 0.0, one.look.pid)
        )
        if candidate not in ranks:
            return None
        index, node = ranks.index(candidate), (parent.environment or {}).get("NODE_RANK", "0")
        sign = "by the order in which the ranks were started"
        return RankNumbers(index if node == "0" else None, index, None, sign)

    def _parts_of(self, candidate: Candidate) -> list[Candidate]:
        """The ranks among its children that run the same program as it."""
        return [
            other
            for other in self._by_pid.values()
            if other.parent == candidate.look.pid
            and self.result.get(other.look.pid, OTHER).role == "rank"
            and is_same_program(other.look, candidate.look)
        ]


def _same(one: RankNumbers, other: RankNumbers) -> bool:
    return (one.rank, one.local_rank) == (other.rank, other.local_rank)
