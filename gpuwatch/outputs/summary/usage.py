"""What jobs and processes used over a recording, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from gpuwatch.core.model import GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.outputs.summary.model import JobUse, ProcessUse
from gpuwatch.outputs.summary.timeline import Step
from gpuwatch.outputs.summary.usage_sums import Used, UsedByJob, UsedByProcess

PROCESSES_KEPT = 1024
"""Loader workers are started anew each epoch: a long recording sees very many."""
JOBS_KEPT = 256

U = TypeVar("U", bound=Used)


class Uses:
    """Fed once a snapshot; ``step`` is the time it speaks for."""

    def __init__(self) -> None:
        self._processes: dict[ProcessKey, UsedByProcess] = {}
        self._jobs: dict[ProcessKey, UsedByJob] = {}
        self._look = 0
        self.left_out = 0
        self.told_seconds = 0.0
        """For how long a job that told of its own loops was in one."""

    def add(self, snapshot: Snapshot, step: Step) -> None:
        # What a rate says holds for the time since the look before; over a gap it says nothing.
        seconds = 0.0 if step.is_gap else step.seconds
        self._look += 1
        memory = self._add_processes(snapshot, step, seconds)
        self._add_jobs(snapshot, step, seconds, memory)
        self._forget(step)

    def _process(self, key: ProcessKey, now: float) -> UsedByProcess:
        used = self._processes.get(key)
        if used is None:
            used = self._processes[key] = UsedByProcess(now)
        used.last = now
        return used

    def _add_processes(
        self, snapshot: Snapshot, step: Step, seconds: float
    ) -> Mapping[ProcessKey, int]:
        """What each holds of GPU memory, on all its GPUs."""
        memory: dict[ProcessKey, int] = {}
        now, look = step.until, self._look
        for process in snapshot.processes:
            key = (process.pid, process.started_at_unix_seconds)
            used = self._process(key, now)
            uuid, held = process.gpu_uuid, process.gpu_memory_bytes
            if uuid is not None:
                used.add_gpu(uuid, process.gpu_busy_percent, seconds)
                if held is not None:
                    memory[key] = memory.get(key, 0) + held
            # It has a row for each GPU, and the same of the host in all of them.
            if used.look != look:
                used.look = look
                used.learn(process, process.user)
                used.add_host(process.cpu_percent, process.memory_resident_bytes, seconds)
        for key, held in memory.items():
            self._processes[key].add_gpu_memory(held)
        return memory

    def _add_jobs(
        self, snapshot: Snapshot, step: Step, seconds: float, memory: Mapping[ProcessKey, int]
    ) -> None:
        busy = {gpu.uuid: gpu.reading.busy_percent for gpu in snapshot.gpus}
        told = 0.0
        for job in snapshot.jobs:
            used = self._jobs.get(job.key)
            if used is None:
                if len(self._jobs) >= JOBS_KEPT:
                    continue
                used = self._jobs[job.key] = UsedByJob(step.until)
            if job.ended_at_unix_seconds is None:
                used.last = step.until
                _add_gpus(used, job, busy, seconds)
            used.add(job, seconds)
            on_gpus = [memory[key] for key in used.keys if key in memory]
            if on_gpus:
                used.add_gpu_memory(sum(on_gpus))
            if job.loops and not step.is_gap:
                told = max(told, used.tell(job, step))
            self._add_members(job, step.until, seconds)
        self.told_seconds += told

    def _add_members(self, job: Job, now: float, seconds: float) -> None:
        look, user = self._look, job.user
        for member in job.members:
            used = self._process((member.pid, member.started_at_unix_seconds), now)
            used.learn(member, user)
            used.role = member.role
            used.add_storage(member.read_bytes_per_second, member.write_bytes_per_second, seconds)
            if used.look != look:
                used.look = look
                used.add_host(member.cpu_percent, member.memory_resident_bytes, seconds)

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
                ProcessUse(pid=pid, started_at_unix_seconds=start, **used.facts)
                for (pid, start), used in _ordered(self._processes)
            ]
        )

    def jobs(self) -> tuple[JobUse, ...]:
        return tuple(
            [
                JobUse(pid=pid, started_at_unix_seconds=start, **used.facts)
                for (pid, start), used in _ordered(self._jobs)
            ]
        )


def _add_gpus(
    used: UsedByJob, job: Job, busy: Mapping[GpuKey, float | None], seconds: float
) -> None:
    for uuid in job.gpu_uuids:
        percent = busy.get(uuid)
        used.add_gpu(uuid, None if percent is None else min(100.0, percent), seconds)


def _ordered(uses: Mapping[ProcessKey, U]) -> list[tuple[ProcessKey, U]]:
    ordered = sorted(uses.items(), key=lambda item: item[0][0])
    return sorted(ordered, key=lambda item: item[1].weight, reverse=True)
