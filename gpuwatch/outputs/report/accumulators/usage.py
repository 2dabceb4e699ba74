"""Use by processes and jobs, in bounded memory."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from gpuwatch.core.model import GpuKey, Job, JobMember, Process, ProcessKey, Snapshot
from gpuwatch.outputs.report.usage import ProcessUsage, Usage

PROCESSES_KEPT = 1024
"""Loader workers are started anew each epoch: a long recording sees very many."""


class UsageAccumulator:
    """Sums that jobs and processes share, by the names of ``Usage``."""

    def __init__(self, now: float) -> None:
        self.first_unix_seconds = self.last_unix_seconds = now
        self.user: str | None = None
        self.command: str | None = None
        self.gpus: dict[GpuKey, None] = {}
        self.gpu_held_seconds = 0.0
        self.gpu_busy_seconds: float | None = None
        self.gpu_memory_peak_bytes: int | None = None
        self.cpu_core_seconds: float | None = None
        self.memory_peak_bytes: int | None = None
        self.read_bytes: float | None = None
        self.written_bytes: float | None = None

    def add_gpu(self, uuid: GpuKey, busy_percent: float | None, seconds: float) -> None:
        self.gpus[uuid] = None
        self.gpu_held_seconds += seconds
        self.gpu_busy_seconds = _plus(self.gpu_busy_seconds, busy_percent, seconds / 100.0)

    def add_gpu_memory(self, held: int) -> None:
        self.gpu_memory_peak_bytes = max(self.gpu_memory_peak_bytes or 0, held)

    def add_host(self, cpu_percent: float | None, memory: int | None, seconds: float) -> None:
        self.cpu_core_seconds = _plus(self.cpu_core_seconds, cpu_percent, seconds / 100.0)
        if memory is not None:
            self.memory_peak_bytes = max(self.memory_peak_bytes or 0, memory)

    def add_storage(self, read: float | None, written: float | None, seconds: float) -> None:
        """Both in bytes a second."""
        self.read_bytes = _plus(self.read_bytes, read, seconds)
        self.written_bytes = _plus(self.written_bytes, written, seconds)

    @property
    def sums(self) -> dict[str, Any]:
        """The fields of ``Usage`` but for who it is."""
        sums = {name: getattr(self, name) for name in Usage.__struct_fields__[2:]}
        return sums | {"gpus": tuple(self.gpus)}

    @property
    def weight(self) -> tuple[float, float, float]:
        gpu_seconds = self.gpu_held_seconds + (self.gpu_busy_seconds or 0.0)
        return (gpu_seconds, self.cpu_core_seconds or 0.0, float(self.memory_peak_bytes or 0))


def _plus(sum_: float | None, rate: float | None, seconds: float) -> float | None:
    """The sum with ``rate`` times ``seconds``, if that is an amount."""
    if rate is None or not 0.0 <= rate < math.inf:
        return sum_
    return (sum_ or 0.0) + rate * seconds


class _OfProcess(UsageAccumulator):
    """Keeps what is not known any more of a process that ends."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.name: str | None = None
        self.role: str | None = None
        self.look = 0
        """The number of the snapshot that its CPU time and memory were taken from last."""

    def see(
        self, process: Process | JobMember, user: str | None, look: int, seconds: float
    ) -> None:
        """Once a snapshot: it has a row for each GPU, with the same of the host in all of them."""
        if self.look == look:
            return
        self.look = look
        self.user = user or self.user
        self.name = process.name or self.name
        self.command = process.command or self.command
        self.add_host(process.cpu_percent, process.memory_resident_bytes, seconds)


class ProcessesAccumulator:
    """Fed once a snapshot."""

    def __init__(self) -> None:
        self._processes: dict[ProcessKey, _OfProcess] = {}
        self._look = 0
        self.left_out = 0

    def add(self, snapshot: Snapshot, jobs: Iterable[Job], now: float, seconds: float) -> None:
        """``seconds``: what rates hold for."""
        self._look += 1
        for process in snapshot.processes:
            used = self._process((process.pid, process.started_at_unix_seconds), now)
            if process.gpu_uuid is not None:
                used.add_gpu(process.gpu_uuid, process.gpu_busy_percent, seconds)
            used.see(process, process.user, self._look, seconds)
        for key, held in gpu_memory(snapshot).items():
            self._processes[key].add_gpu_memory(held)
        for job in jobs:
            for member in job.members:
                used = self._process((member.pid, member.started_at_unix_seconds), now)
                used.role = member.role
                used.see(member, job.user, self._look, seconds)
                read, written = member.read_bytes_per_second, member.write_bytes_per_second
                used.add_storage(read, written, seconds)
        self._forget(now)

    def _process(self, key: ProcessKey, now: float) -> _OfProcess:
        used = self._processes.get(key)
        if used is None:
            used = self._processes[key] = _OfProcess(now)
        used.last_unix_seconds = now
        return used

    def _forget(self, now: float) -> None:
        """Of those that are gone, the ones that used least."""
        if len(self._processes) <= PROCESSES_KEPT:
            return
        gone = [item for item in self._processes.items() if item[1].last_unix_seconds < now]
        gone.sort(key=lambda item: item[1].weight)
        for key, _ in gone[: max(1, PROCESSES_KEPT // 4)]:
            del self._processes[key]
            self.left_out += 1

    def usages(self) -> tuple[ProcessUsage, ...]:
        return tuple(
            ProcessUsage(pid=pid, started_at_unix_seconds=start, name=u.name, role=u.role, **u.sums)
            for (pid, start), u in by_weight(self._processes)
        )


def gpu_memory(snapshot: Snapshot) -> dict[ProcessKey, int]:
    """Bytes that each process holds, on all its GPUs."""
    memory: dict[ProcessKey, int] = {}
    for process in snapshot.processes:
        if process.gpu_uuid is not None and process.gpu_memory_bytes is not None:
            key = (process.pid, process.started_at_unix_seconds)
            memory[key] = memory.get(key, 0) + process.gpu_memory_bytes
    return memory


U = TypeVar("U", bound=UsageAccumulator)


def by_weight(usages: Mapping[ProcessKey, U]) -> list[tuple[ProcessKey, U]]:
    ordered = sorted(usages.items(), key=lambda item: item[0][0])
    return sorted(ordered, key=lambda item: item[1].weight, reverse=True)
