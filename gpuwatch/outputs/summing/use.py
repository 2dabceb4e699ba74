"""What jobs and processes used over a recording, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from gpuwatch.jobs.loop_recorder import LoopSums
from gpuwatch.model import GpuKey, Job, JobMember, Process, ProcessKey, Snapshot
from gpuwatch.outputs.summing.summary import JobUse, ProcessUse
from gpuwatch.outputs.summing.timeline import Step

PROCESSES_KEPT = 1024
"""Loader workers are started anew each epoch: a long recording sees very many."""
JOBS_KEPT = 256

K = TypeVar("K", int, float)


def _plus(one: float | None, other: float | None) -> float | None:
    """What is not known adds nothing."""
    if other is None or not 0.0 <= other < float("inf"):
        return one
    return other if one is None else one + other


def _most(one: K | None, other: K | None) -> K | None:
    if other is None:
        return one
    return other if one is None or other > one else one


class _Used:
    """Sums that jobs and processes share."""

    __slots__ = (
        "cpu",
        "facts",
        "first",
        "gpu_busy",
        "gpu_held",
        "gpu_memory",
        "gpus",
        "last",
        "loops",
        "memory",
        "read",
        "written",
    )

    def __init__(self, now: float) -> None:
        self.first = self.last = now
        self.facts: dict[str, Any] = {}
        self.gpus: dict[GpuKey, None] = {}
        self.gpu_held = 0.0
        self.gpu_busy: float | None = None
        self.gpu_memory: int | None = None
        self.cpu: float | None = None
        self.memory: int | None = None
        self.read: float | None = None
        self.written: float | None = None
        self.loops: LoopSums | None = None

    def tell(self, job: Job, step: Step) -> float:
        """What the job says of its own loops; for how long of the step one ran."""
        if self.loops is None:
            self.loops = LoopSums(("data_wait_share",))
        did = self.loops.add(job, step.since, step.until, step.until + step.offset)
        return max([one.seconds for one in did], default=0.0)

    @property
    def told(self) -> dict[str, Any]:
        loops = self.loops
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

    def learn(self, **facts: Any) -> None:
        """Of a process that ends little can be read: what was known stays."""
        for name, value in facts.items():
            if value is not None:
                self.facts[name] = value

    def sums(self) -> dict[str, Any]:
        return {
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


class Uses:
    """Fed once a snapshot; ``step`` is the time it speaks for."""

    def __init__(self) -> None:
        self._processes: dict[ProcessKey, _Used] = {}
        self._jobs: dict[ProcessKey, _Used] = {}
        self.left_out = 0
        self.told_seconds = 0.0
        """For how long a job that told of its own loops was in one."""

    def add(self, snapshot: Snapshot, step: Step) -> None:
        # What a rate says holds for the time since the look before; over a gap it says nothing.
        seconds = 0.0 if step.is_gap else step.seconds
        memory: dict[ProcessKey, int] = {}
        counted: set[ProcessKey] = set()
        for process in snapshot.processes:
            used = self._process(process.key, step)
            self._add_process(used, process, seconds, counted, memory)
        for key, held in memory.items():
            used = self._processes[key]
            used.gpu_memory = _most(used.gpu_memory, held)
        self._add_jobs(snapshot, step, seconds, counted, memory)
        self._forget(step)

    def _process(self, key: ProcessKey, step: Step) -> _Used:
        used = self._processes.get(key)
        if used is None:
            used = self._processes[key] = _Used(step.until)
        used.last = step.until
        return used

    def _add_process(
        self,
        used: _Used,
        process: Process,
        seconds: float,
        counted: set[ProcessKey],
        memory: dict[ProcessKey, int],
    ) -> None:
        if process.gpu_uuid is not None:
            used.gpus[process.gpu_uuid] = None
            used.gpu_held += seconds
            if process.gpu_busy_percent is not None:
                used.gpu_busy = _plus(used.gpu_busy, process.gpu_busy_percent / 100.0 * seconds)
            if process.gpu_memory_bytes is not None:
                key = process.key
                memory[key] = memory.get(key, 0) + process.gpu_memory_bytes
        if process.key in counted:
            return
        counted.add(process.key)
        used.learn(user=process.user, name=process.name, command=process.command)
        self._add_host(used, process.cpu_percent, process.memory_resident_bytes, seconds)

    def _add_host(self, used: _Used, cpu: float | None, memory: int | None, seconds: float) -> None:
        if cpu is not None:
            used.cpu = _plus(used.cpu, cpu / 100.0 * seconds)
        used.memory = _most(used.memory, memory)

    def _add_jobs(
        self,
        snapshot: Snapshot,
        step: Step,
        seconds: float,
        counted: set[ProcessKey],
        memory: Mapping[ProcessKey, int],
    ) -> None:
        busy = {gpu.uuid: gpu.reading.busy_percent for gpu in snapshot.gpus}
        told = 0.0
        for job in snapshot.jobs:
            if job.key not in self._jobs and len(self._jobs) >= JOBS_KEPT:
                continue
            used = self._jobs.get(job.key)
            if used is None:
                used = self._jobs[job.key] = _Used(step.until)
            if job.ended_at_unix_seconds is None:
                used.last = step.until
                self._add_gpus_of(used, job, busy, seconds)
            self._add_job(used, job, seconds, memory)
            if job.loops and not step.is_gap:
                told = max(told, used.tell(job, step))
            for member in job.members:
                self._add_member(member, job, step, seconds, counted)
        self.told_seconds += told

    def _add_gpus_of(
        self, used: _Used, job: Job, busy: Mapping[GpuKey, float | None], seconds: float
    ) -> None:
        for uuid in job.gpu_uuids:
            used.gpus[uuid] = None
            used.gpu_held += seconds
            percent = busy.get(uuid)
            if percent is not None:
                used.gpu_busy = _plus(used.gpu_busy, min(100.0, percent) / 100.0 * seconds)

    def _add_job(
        self, used: _Used, job: Job, seconds: float, memory: Mapping[ProcessKey, int]
    ) -> None:
        used.learn(
            user=job.user,
            command=job.command,
            slurm_job=job.slurm_job,
            ranks=max(len(job.ranks), used.facts.get("ranks", 0)),
            loader_workers=job.loader_workers,
            pinned_memory=job.pinned_memory,
            exit_code=job.exit_code,
        )
        keys = {job.key, *(member.key for member in job.members)}
        on_gpus = [memory[key] for key in keys if key in memory]
        if on_gpus:
            used.gpu_memory = _most(used.gpu_memory, sum(on_gpus))
        resident = [
            member.memory_resident_bytes
            for member in job.members
            if member.memory_resident_bytes is not None
        ]
        held = job.memory_proportional_bytes
        if held is None and resident:
            held = sum(resident)
        self._add_host(used, job.cpu_percent, held, seconds)
        used.read = _grown(used.read, job.read_bytes_per_second, seconds)
        used.written = _grown(used.written, job.write_bytes_per_second, seconds)

    def _add_member(
        self, member: JobMember, job: Job, step: Step, seconds: float, counted: set[ProcessKey]
    ) -> None:
        used = self._process(member.key, step)
        used.learn(user=job.user, name=member.name, command=member.command, role=member.role)
        used.read = _grown(used.read, member.read_bytes_per_second, seconds)
        used.written = _grown(used.written, member.write_bytes_per_second, seconds)
        if member.key not in counted:
            counted.add(member.key)
            self._add_host(used, member.cpu_percent, member.memory_resident_bytes, seconds)

    def _forget(self, step: Step) -> None:
        """Of those that are gone, the ones that used least."""
        if len(self._processes) <= PROCESSES_KEPT:
            return
        gone = [item for item in self._processes.items() if item[1].last < step.until]
        gone.sort(key=lambda item: item[1].weight)
        for key, _ in gone[: max(1, PROCESSES_KEPT // 4)]:
            del self._processes[key]
            self.left_out += 1

    def processes(self) -> tuple[ProcessUse, ...]:
        return tuple(
            [
                ProcessUse(pid=pid, started_at_unix_seconds=start, **used.facts, **used.sums())
                for (pid, start), used in _ordered(self._processes)
            ]
        )

    def jobs(self) -> tuple[JobUse, ...]:
        return tuple(
            [
                JobUse(
                    pid=pid,
                    started_at_unix_seconds=start,
                    **used.facts,
                    **used.sums(),
                    **used.told,
                )
                for (pid, start), used in _ordered(self._jobs)
            ]
        )


def _grown(total: float | None, rate: float | None, seconds: float) -> float | None:
    return total if rate is None else _plus(total, rate * seconds)


def _ordered(uses: Mapping[ProcessKey, _Used]) -> list[tuple[ProcessKey, _Used]]:
    ordered = sorted(uses.items(), key=lambda item: item[0][0])
    return sorted(ordered, key=lambda item: item[1].weight, reverse=True)
