"""What one process or one job used so far: the sums, and what is known of it."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from gpuwatch.core.model import GpuKey, Job, JobMember, Process, ProcessKey
from gpuwatch.jobs.report.loop_recorder import LoopSums
from gpuwatch.outputs.summary.timeline import Step

K = TypeVar("K", int, float)


class Used:
    """Sums that jobs and processes share."""

    __slots__ = (
        "command",
        "cpu",
        "first",
        "gpu_busy",
        "gpu_held",
        "gpu_memory",
        "gpus",
        "last",
        "memory",
        "read",
        "user",
        "written",
    )

    def __init__(self, now: float) -> None:
        self.first = self.last = now
        self.user: str | None = None
        self.command: str | None = None
        self.gpus: dict[GpuKey, None] = {}
        self.gpu_held = 0.0
        self.gpu_busy: float | None = None
        self.gpu_memory: int | None = None
        self.cpu: float | None = None
        self.memory: int | None = None
        self.read: float | None = None
        self.written: float | None = None

    def add_gpu(self, uuid: GpuKey, busy_percent: float | None, seconds: float) -> None:
        self.gpus[uuid] = None
        self.gpu_held += seconds
        if busy_percent is not None:
            self.gpu_busy = _plus(self.gpu_busy, busy_percent / 100.0 * seconds)

    def add_gpu_memory(self, held: int) -> None:
        self.gpu_memory = _most(self.gpu_memory, held)

    def add_host(self, cpu_percent: float | None, memory: int | None, seconds: float) -> None:
        if cpu_percent is not None:
            self.cpu = _plus(self.cpu, cpu_percent / 100.0 * seconds)
        if memory is not None:
            self.memory = _most(self.memory, memory)

    def add_storage(self, read: float | None, written: float | None, seconds: float) -> None:
        """Both in bytes a second."""
        if read is not None:
            self.read = _plus(self.read, read * seconds)
        if written is not None:
            self.written = _plus(self.written, written * seconds)

    @property
    def sums(self) -> dict[str, Any]:
        return {
            "user": self.user,
            "command": self.command,
            "gpus": tuple(self.gpus),
            "gpu_held_seconds": self.gpu_held,
            "gpu_busy_seconds": self.gpu_busy,
            "gpu_memory_peak_bytes": self.gpu_memory,
            "cpu_core_seconds": self.cpu,
            "memory_peak_bytes": self.memory,
            "read_bytes": self.read,
            "written_bytes": self.written,
            "first_unix_seconds": self.first,
            "last_unix_seconds": self.last,
        }

    @property
    def weight(self) -> tuple[float, float, float]:
        """Who used most comes first."""
        return (
            self.gpu_held if self.gpu_busy is None else self.gpu_held + self.gpu_busy,
            self.cpu or 0.0,
            float(self.memory or 0),
        )


class UsedByProcess(Used):
    """What is not known any more of a process that ends stays as it was known."""

    __slots__ = ("look", "name", "role")

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.name: str | None = None
        self.role: str | None = None
        self.look = 0
        """The number of the snapshot that its CPU time and memory were taken from last."""

    def learn(self, told: Process | JobMember, user: str | None) -> None:
        if user is not None:
            self.user = user
        if told.name is not None:
            self.name = told.name
        if told.command is not None:
            self.command = told.command

    @property
    def facts(self) -> dict[str, Any]:
        return {"name": self.name, "role": self.role, **self.sums}


class UsedByJob(Used):
    """A job's rates are sums over its processes: made once for each ``Job`` that says something
    new, not once a snapshot."""

    __slots__ = (
        "_job",
        "_loops",
        "_memory_now",
        "_rates",
        "exit_code",
        "keys",
        "loader_workers",
        "pinned_memory",
        "ranks",
        "slurm_job",
    )

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self._job: Job | None = None
        self._loops: LoopSums | None = None
        self._rates: tuple[float | None, float | None, float | None] = (None, None, None)
        self._memory_now: int | None = None
        self.keys: set[ProcessKey] = set()
        """Its processes, as last seen."""
        self.slurm_job: str | None = None
        self.ranks = 0
        self.loader_workers: int | None = None
        self.pinned_memory: bool | None = None
        self.exit_code: int | None = None

    def add(self, job: Job, seconds: float) -> None:
        """What it used of the host for the ``seconds`` before it was seen like this."""
        if job is not self._job:
            self._learn(job)
            self._job = job
        cpu, read, written = self._rates
        self.add_host(cpu, self._memory_now, seconds)
        self.add_storage(read, written, seconds)

    def _learn(self, job: Job) -> None:
        before = self._job
        if before is None or job.ranks is not before.ranks:
            self.ranks = max(len(job.ranks), self.ranks)
            workers, pinned = job.loader_workers, job.pinned_memory
            self.loader_workers = self.loader_workers if workers is None else workers
            self.pinned_memory = self.pinned_memory if pinned is None else pinned
        if job.user is not None:
            self.user = job.user
        if job.command is not None:
            self.command = job.command
        if job.slurm_job is not None:
            self.slurm_job = job.slurm_job
        if job.exit_code is not None:
            self.exit_code = job.exit_code
        self._take(job)

    def _take(self, job: Job) -> None:
        """Its rates, and what it holds of memory now."""
        members = job.members
        self.keys = {(one.pid, one.started_at_unix_seconds) for one in members}
        self.keys.add((job.pid, job.started_at_unix_seconds))
        if len(members) == 1:
            (one,) = members
            cpu = one.cpu_percent
            read, written = one.read_bytes_per_second, one.write_bytes_per_second
            memory = one.memory_proportional_bytes
        else:
            cpu = job.cpu_percent
            read, written = job.read_bytes_per_second, job.write_bytes_per_second
            memory = job.memory_proportional_bytes
        if memory is None:
            resident = [
                one.memory_resident_bytes
                for one in members
                if one.memory_resident_bytes is not None
            ]
            memory = sum(resident) if resident else None
        self._rates, self._memory_now = (cpu, read, written), memory

    def tell(self, job: Job, step: Step) -> float:
        """What the job says of its own loops; for how long of the step one ran."""
        if self._loops is None:
            self._loops = LoopSums(("data_wait_share",))
        did = self._loops.add(job, step.since, step.until, step.until + step.offset)
        return max([one.seconds for one in did], default=0.0)

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "slurm_job": self.slurm_job,
            "ranks": self.ranks,
            "loader_workers": self.loader_workers,
            "pinned_memory": self.pinned_memory,
            "exit_code": self.exit_code,
            **self.sums,
            **self._told,
        }

    @property
    def _told(self) -> dict[str, Any]:
        loops = self._loops
        if loops is None:
            return {}
        most = loops.waited_most
        return {
            "told_seconds": loops.seconds,
            "samples_per_second": loops.samples_per_second,
            "data_wait_percent": loops.spent["data_wait_share"].percent,
            "data_wait_most_percent": None if most is None else most[0],
            "data_wait_most_rank": None if most is None else most[1],
        }


def _plus(one: float | None, other: float) -> float | None:
    """What is no amount adds nothing."""
    if not 0.0 <= other < math.inf:
        return one
    return other if one is None else one + other


def _most(one: K | None, other: K) -> K:
    return other if one is None or other > one else one
