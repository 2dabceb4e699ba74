"""Processes of the simulated machine and what each has used so far."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuwatch.core.model import Gpu, Process
from gpuwatch.core.text import clean
from gpuwatch.sources.simulated.cards import GIB
from gpuwatch.sources.simulated.device import BUFFERED_SAMPLES, TICK_SECONDS
from gpuwatch.sources.simulated.loop_telemetry import Diary

MIB = 1024**2

_IN_EARNEST = 0.25


class Meter:
    """Adds up ``rate`` over the intervals it was given, some of which may lie ahead: CPU seconds,
    bytes, seconds of disk wait.

    ``total`` must be asked with times that do not go back, since what has ended is folded.
    """

    __slots__ = ("_done", "_pending")

    def __init__(self) -> None:
        self._done = 0.0
        self._pending: deque[tuple[float, float, float]] = deque()

    def add(self, start: float, end: float, rate: float) -> None:
        """``rate`` a second from ``start`` to ``end`` (simulated seconds)."""
        if end > start:
            self._pending.append((start, end, rate))

    def total(self, now: float) -> float:
        """The sum up to ``now``."""
        pending = self._pending
        while pending and pending[0][1] <= now:
            start, end, rate = pending.popleft()
            self._done += (end - start) * rate
        total = self._done
        for start, end, rate in pending:
            if start < now:
                total += ((end if end < now else now) - start) * rate
        return total

    def runs(self, now: float) -> bool:
        """True when it turns in earnest at ``now``: a few percent is a sleeper's housekeeping."""
        # A loop, since any() over a generator takes three times as long on these short queues.
        for start, end, rate in self._pending:  # noqa: SIM110
            if start <= now < end and rate >= _IN_EARNEST:
                return True
        return False


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """One process: its identity, its role in its job, and the meters of what it uses."""

    pid: int
    parent: int
    user: str
    name: str
    command: str
    started: float
    """Simulated seconds; negative is before the scenario began."""
    ended: float = float("inf")
    resident_bytes: float = 300.0 * MIB
    resident_growth: float = 0.0
    """Bytes a second from the scenario's start on."""
    own_pages: float = 0.92
    """Share of its first resident memory that counts as its own in PSS."""
    threads: int = 1
    meters: dict[str, Meter] = field(default_factory=dict)
    """``cpu``; ``main`` (its main thread, where that is not all of it); ``wait`` (for the disk);
    ``reads`` and ``writes`` (bytes from and to storage)."""
    core_share: float = 1.0
    """Of a core, whenever it wants one."""
    steady_cpu: float = 0.0
    """Share of a core for a process without a meter."""
    gpu: int | None = None
    instance: int | None = None
    gpu_memory: Callable[[float], int] | None = None
    gpu_share: float = 0.0
    """Its part of what the GPU does."""
    system: bool = False
    """Neither on a GPU nor the kin of one that is."""
    container: str | None = None
    slurm_job: str | None = None
    core: int = 0
    role: str = "rank"
    role_sign: str = "it is the job's main process"
    role_guessed: bool = False
    number: int | None = None
    """Its rank, or that of the rank it works for."""
    diary: Diary | None = None
    started_unix: float = 0.0
    used: dict[str, float] = field(default_factory=dict)
    """By meter, between the last two notes."""
    _marks: dict[str, float] = field(default_factory=dict)
    _shown: tuple[str | None, Process] | None = None
    """(GPU, row): hundreds of servers and shells never change."""

    def __post_init__(self) -> None:
        self.command = clean(self.command)
        self.user = clean(self.user)
        self.name = clean(self.name)

    def lives(self, now: float) -> bool:
        return self.started <= now < self.ended

    def note(self, now: float, elapsed: float) -> None:
        """Take what was used since the last note, ``elapsed`` seconds ago."""
        used, marks = self.used, self._marks
        used["cpu"] = self.steady_cpu * elapsed
        for name, meter in self.meters.items():
            total = meter.total(now)
            used[name] = total - marks.get(name, 0.0)
            marks[name] = total

    def state(self, now: float) -> str:
        """The kernel's letter."""
        wait, cpu = self.meters.get("wait"), self.meters.get("cpu")
        if wait is not None and wait.runs(now):
            return "D"
        return "R" if (self.steady_cpu > 0.5 if cpu is None else cpu.runs(now)) else "S"

    def facts(self, now: float, elapsed: float) -> dict[str, Any]:
        """What a list of processes and one of a job's members say alike; ``elapsed`` seconds lie
        between the last two notes."""
        return {
            "pid": self.pid,
            "started_at_unix_seconds": self.started_unix,
            "parent_pid": self.parent,
            "name": self.name,
            "command": self.command,
            "state": self.state(now),
            "cpu_percent": round(100.0 * self.used["cpu"] / elapsed, 1),
            "memory_resident_bytes": self.resident(now),
            "threads": self.threads,
        }

    def resident(self, now: float) -> int:
        return int(self.resident_bytes + self._grown(now))

    def proportional(self, now: float) -> int:
        """PSS: a forked worker shares most of what it began with, and none of what it gained."""
        return int(self.resident_bytes * self.own_pages + self._grown(now))

    def _grown(self, now: float) -> float:
        return self.resident_growth * max(0.0, now)

    def show(self, now: float, elapsed: float, gpu: Gpu | None) -> Process:
        """The process as others see it, on ``gpu`` if that is there."""
        still = not (self.meters or self.resident_growth or self.gpu_share)
        if still and self._shown is not None and self._shown[0] == (gpu and gpu.uuid):
            return self._shown[1]
        busy = None if gpu is None else gpu.reading.busy_percent
        held = None if gpu is None or self.gpu_memory is None else self.gpu_memory(now)
        process = Process(
            **self.facts(now, elapsed),
            user=self.user,
            container=self.container,
            slurm_job=self.slurm_job,
            gpu_uuid=None if gpu is None else gpu.uuid,
            gpu_memory_bytes=held,
            gpu_busy_percent=None if busy is None else float(round(busy * self.gpu_share)),
            gpu_kind=None if gpu is None else "compute",
            mig_instance=None if gpu is None else self.instance,
        )
        self._shown = (process.gpu_uuid, process)
        return process


class Trace:
    """CPU of the main threads of a job's ranks and loader workers, tick by tick.

    ``samples`` are (tick at its end, percent of one core, the mean over those that lived) by role,
    oldest first, as many as a driver's buffer keeps.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.samples: dict[str, deque[tuple[int, float]]] = {}
        self._tasks = tasks
        self._marks: dict[int, tuple[int, float]] = {}

    def tick(self, tick: int) -> None:
        """Take the tick that ends as number ``tick``."""
        shares: dict[str, list[float]] = {}
        for task in self._tasks:
            share = self._share(task, tick) if task.role in {"rank", "loader_worker"} else None
            if share is not None:
                shares.setdefault(task.role, []).append(share)
        for role, used in shares.items():
            samples = self.samples.setdefault(role, deque(maxlen=BUFFERED_SAMPLES))
            samples.append((tick, min(100.0, 100.0 * sum(used) / len(used))))

    def _share(self, task: Task, tick: int) -> float | None:
        """Of one core since the tick before; ``None`` if it did not live through it all."""
        now = tick * TICK_SECONDS
        if not task.lives(now):
            return None
        meter = task.meters.get("main") or task.meters.get("cpu")
        if meter is None:
            return task.steady_cpu
        total = meter.total(now)
        at, before = self._marks.get(task.pid, (None, 0.0))
        self._marks[task.pid] = (tick, total)
        return (total - before) / TICK_SECONDS if at == tick - 1 else None


class PidCounter:
    """Hands out PIDs as a machine that has been up for a while does: rising, with gaps."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next = 4242

    def take(self) -> int:
        pid = self._next
        self._next += 1 + int(self._rng.expovariate(0.25))
        return pid

    def skip(self) -> None:
        """Other programs ran meanwhile."""
        self._next += self._rng.randrange(20, 400)


_LEAK_SECONDS = 6.0
CONTEXT_BYTES = 0.52 * GIB
"""Taken by a CUDA context and its libraries on a card before the first tensor."""


@dataclass(slots=True)
class Memory:
    """GPU memory of one process over time: steady, growing in steps, or filling up at first."""

    base: float
    step: float = 0.0
    room: float = float("inf")
    begin: float | None = None
    seconds: float = 8.0

    def __call__(self, now: float) -> int:
        """Bytes at ``now`` (simulated seconds)."""
        if self.begin is not None:
            share = min(1.0, max(0.0, (now - self.begin) / self.seconds))
            return int(CONTEXT_BYTES + (self.base - CONTEXT_BYTES) * share)
        grown = self.base + self.step * max(0, int(now / _LEAK_SECONDS))
        return int(min(grown, self.room))
