"""One job over its time, all its processes together."""

from collections.abc import Mapping
from typing import Any

from gpuwatch.core.bounds import total
from gpuwatch.core.model import GpuKey, Job, JobMember, ProcessKey
from gpuwatch.jobs.identity.runs import essence
from gpuwatch.outputs.report.accumulators.loading import FineProfile, LoadingAccumulator
from gpuwatch.outputs.report.accumulators.loops import LoopsAccumulator
from gpuwatch.outputs.report.accumulators.steps import Step
from gpuwatch.outputs.report.accumulators.sums import Gauge, sane, whole
from gpuwatch.outputs.report.accumulators.time_profile import Grid, ProfileRecorder, profiles
from gpuwatch.outputs.report.accumulators.usage import UsageAccumulator
from gpuwatch.outputs.report.parts import Unix
from gpuwatch.outputs.report.usage import JobUsage, Loop

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
