"""Use by processes and by jobs (all their processes together), in bounded memory."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from gpuwatch.core.bounds import total
from gpuwatch.core.model import GpuKey, Job, JobMember, Process, ProcessKey, Snapshot
from gpuwatch.jobs.identity.runs import essence
from gpuwatch.outputs.report.accumulators.loading import FineProfile, LoadingAccumulator
from gpuwatch.outputs.report.accumulators.loops import LoopsAccumulator
from gpuwatch.outputs.report.accumulators.sums import Gauge, sane, whole
from gpuwatch.outputs.report.accumulators.time_axis import Grid, ProfileRecorder, Step, profiles
from gpuwatch.outputs.report.parts import Unix
from gpuwatch.outputs.report.usage import JobUsage, Loop, ProcessUsage, Usage

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


GROWN_SINCE = 1.25
"""Resident memory that grew by more since the proportional one was at its peak: it was read too
early, of a process that was still importing, say."""
FACTS = (
    *("command", "user", "working_directory", "launcher", "framework", "world_size", "container"),
    *("pod", "slurm_job", "environment", "exit_code", "usable_cores", "quota_cores"),
)


class JobAccumulator(UsageAccumulator):
    def __init__(self, job: Job, now: float, grid: Grid | None) -> None:
        """``grid``: for time profiles, of a report about this job alone."""
        super().__init__(now)
        self._key = job.key
        self._facts: dict[str, Any] = {}
        """As last said, of each of ``FACTS``: of a process that ended little can be read."""
        self._ended: Unix | None = None
        self._ranks = 0
        self._cpu, self._throttled, self._shared, self._resident = [Gauge() for _ in range(4)]
        self._resident_at_shared_peak = 0.0
        self._loading = LoadingAccumulator()
        self._loops: LoopsAccumulator | None = None
        self._profiles: dict[str, ProfileRecorder] = {}
        if grid is not None:
            self._worker = FineProfile(grid.recorder(), now)
            self._main = FineProfile(grid.recorder(), now)
            self._profiles = {
                "loader_worker_cpu_percent": self._worker.profile,
                "main_thread_cpu_percent": self._main.profile,
                "data_wait_percent": grid.recorder(),
            }

    def add(
        self,
        job: Job,
        step: Step,
        busy: Mapping[GpuKey, float | None],
        memory: Mapping[ProcessKey, int],
    ) -> float:
        """``busy`` percent of each GPU, GPU ``memory`` of each process; for how long of the step a
        loop of the job ran."""
        # What a rate says holds for the time since the look before; over a gap it says nothing.
        seconds = 0.0 if step.is_gap else step.seconds
        for name in FACTS:
            value = getattr(job, name)
            value = sane(value) if name.endswith("_cores") else value
            if value is not None:
                self._facts[name] = value
        self._ended = job.ended_at_unix_seconds
        self._ranks = max(self._ranks, len(job.ranks))
        if self._ended is None:
            self.last_unix_seconds = step.until
            for uuid in job.gpu_uuids:
                self.add_gpu(uuid, sane(busy.get(uuid), 100.0), seconds)
        keys = {job.key, *[member.key for member in job.members]}
        held = [memory[key] for key in keys if key in memory]
        if held:
            self.add_gpu_memory(sum(held))
        self._add_members(job.members, seconds)
        self._throttled.add(job.cpu_throttled_percent, seconds)
        self._loading.add(job, seconds)
        if not step.is_gap:
            self.add_fine(job, step)
        return self._add_loops(job, step)

    def add_fine(self, job: Job, step: Step) -> None:
        if self._profiles:
            self._worker.add(job.loader_worker_samples, job.loader_worker_cpu_percent, step)
            self._main.add(job.main_thread_samples, job.main_thread_cpu_percent, step)

    def _add_loops(self, job: Job, step: Step) -> float:
        if not job.loops or step.is_gap:
            return 0.0
        if self._loops is None:
            self._loops = LoopsAccumulator(self._profiles.get("data_wait_percent"))
        return self._loops.add(job, step)

    def _add_members(self, members: tuple[JobMember, ...], seconds: float) -> None:
        if not members:
            return
        cpu = total([sane(member.cpu_percent) for member in members])
        resident = total([member.memory_resident_bytes for member in members])
        each = [member.memory_proportional_bytes for member in members]
        shared = None if None in each else total(each)
        self._cpu.add(cpu, seconds)
        self.add_host(cpu, whole(resident if shared is None else shared), seconds)
        self.add_storage(
            total([sane(member.read_bytes_per_second) for member in members]),
            total([sane(member.write_bytes_per_second) for member in members]),
            seconds,
        )
        if shared is not None and shared > (self._shared.peak or -1.0):
            self._resident_at_shared_peak = resident or 0.0
        self._shared.add(shared, seconds)
        self._resident.add(resident, seconds)

    def _shared_peak(self) -> int | None:
        """PSS is read seldom, and of young workers not yet: a peak over the little time in which
        all of it was known, or from before most of it was there, would leave out most of it."""
        if 2 * self._shared.seconds < self._resident.seconds:
            return None
        if (self._resident.peak or 0.0) > GROWN_SINCE * self._resident_at_shared_peak > 0:
            return None
        return whole(self._shared.peak)

    def usage(self, until: float) -> JobUsage:
        return JobUsage(
            **self.sums | self._facts,
            pid=self._key[0],
            started_at_unix_seconds=self._key[1],
            ended_at_unix_seconds=self._ended,
            run_digest=run_digest(self._facts),
            ranks=self._ranks or None,
            cpu_mean_cores=_cores(self._cpu.mean),
            cpu_peak_cores=_cores(self._cpu.peak),
            cpu_throttled_percent=self._throttled.mean,
            memory_proportional_peak_bytes=self._shared_peak(),
            memory_resident_peak_bytes=whole(self._resident.peak),
            loading=self._loading.report(),
            loop=Loop() if self._loops is None else self._loops.report(),
            profiles=profiles(self._profiles, until),
        )


def run_digest(facts: Mapping[str, Any]) -> str | None:
    """The same for every run of the same command by the same user in the same folder.

    Made from what a ``Job`` says, so that it holds for ended, simulated and replayed jobs too;
    ``None`` where one of the three is not known.
    """
    user, folder, command = (facts.get(n) for n in ("user", "working_directory", "command"))
    words = tuple(command.split()) if command else ()
    if user is None or folder is None or not words:
        return None
    import hashlib  # noqa: PLC0415 - it brings OpenSSL, 3 MiB, which only a report needs

    text = "\0".join((user, folder, *essence(words, folder)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _cores(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0
