"""Accumulator from snapshots to a ``Report``: one pass, in memory that does not grow with the
time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpuwatch.core.bounds import total
from gpuwatch.core.model import Gpu, GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.core.store import without_late
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.outputs.report.accumulators.findings import FindingsAccumulator
from gpuwatch.outputs.report.accumulators.gpu import GpuAccumulator, Tenants
from gpuwatch.outputs.report.accumulators.sums import HostAccumulator
from gpuwatch.outputs.report.accumulators.time_axis import Grid, Step, Steps
from gpuwatch.outputs.report.accumulators.usage import (
    JobAccumulator,
    ProcessesAccumulator,
    by_weight,
    gpu_memory,
)
from gpuwatch.outputs.report.model import (
    BUCKETS_MAX,
    HostUsage,
    OpenQuestion,
    Phase,
    Report,
    Source,
)
from gpuwatch.outputs.report.phases import DiagnosisNotes, JudgedPhases

if TYPE_CHECKING:
    from gpuwatch.diagnosis.engine.engine import Engine

EVALUATE_SECONDS = 5.0
"""Time between two evaluations: the diagnosis looks at windows of a minute, and more often would
find no more and take longer."""
GPUS_KEPT = 256
JOBS_KEPT = 256
PROBLEMS_KEPT = 12
LIVE_BUCKETS = 240
"""Buckets of the time profiles of a live report: as fine as a terminal shows them."""


class Accumulator:
    """Push every snapshot, ask for the report at any time."""

    def __init__(
        self,
        job: ProcessKey | None = None,
        *,
        live: bool = False,
        evaluate_seconds: float = EVALUATE_SECONDS,
        newest: bool = False,
    ) -> None:
        """``job``: the report is about this job alone. ``live``: watched as it runs, by one who
        diagnoses it and says so (``note_diagnosis``); without the machine, other processes, and
        all that is drawn in HTML only."""
        self._job = job
        self._live = live
        self._steps = Steps()
        self._grid: Grid | None = None
        self._host: HostAccumulator | None = None
        self._gpus: dict[GpuKey, GpuAccumulator] = {}
        self._there: frozenset[GpuKey] = frozenset()
        """GPUs in the snapshot before."""
        self._jobs: dict[ProcessKey, JobAccumulator] = {}
        self._loop_seconds = 0.0
        self._processes = ProcessesAccumulator()
        self.engine: Engine | None = None
        self._notes: DiagnosisNotes | None = None
        if not live:
            # Slow to import.
            from gpuwatch.diagnosis.engine.engine import Engine  # noqa: PLC0415

            self.engine = Engine(evaluate_seconds=evaluate_seconds)
        self._findings = FindingsAccumulator(newest=newest)
        self._diagnosis: Diagnosis | None = None
        self._problems: dict[str, None] = {}
        self._machine: str | None = None
        self._simulated = False
        self._step: Step | None = None

    @property
    def held(self) -> frozenset[GpuKey]:
        return self._there

    def push(self, snapshot: Snapshot) -> None:
        self._add_step(snapshot, self._steps.step(snapshot), snapshot.gpus, snapshot.jobs)

    def push_job(
        self, snapshot: Snapshot, job: Job, gpus: Sequence[Gpu], since: float | None = None
    ) -> None:
        """Take the next snapshot of the job, which is on ``gpus``, and began at ``since`` if that
        was after the look before."""
        step = self._steps.step(snapshot, since=since, until=job.ended_at_unix_seconds)
        self._add_step(snapshot, step, gpus, (job,))

    def push_late(self, gpus: Iterable[Gpu], job: Job) -> None:
        """Take fine samples of the time before the end of the job, and nothing else."""
        assert self._step is not None
        end = self._step.end()
        for one in self._jobs.values():
            one.add_fine(job, end)
        for gpu in gpus:
            if gpu.uuid in self._there and gpu.reading.busy_samples:
                self._gpus[gpu.uuid].add_samples(gpu.reading.busy_samples, end)

    def _add_step(
        self, snapshot: Snapshot, step: Step, gpus: Sequence[Gpu], jobs: Sequence[Job]
    ) -> None:
        if self._grid is None:
            self._grid = Grid(step.since, LIVE_BUCKETS if self._live else BUCKETS_MAX)
            self._host = None if self._live else HostAccumulator(self._grid)
        self._grid.reach(step.until)
        self._step = step
        self._machine = snapshot.host.name
        self._simulated = self._simulated or snapshot.simulated
        if self._host is not None:
            self._host.add(snapshot.host, step)
        self._add_gpus(snapshot, step, gpus, jobs, self._grid)
        self._add_jobs(snapshot, step, jobs, self._grid)
        seconds = 0.0 if step.is_gap else step.seconds
        if not self._live:
            self._processes.add_snapshot(snapshot, jobs, step.until, seconds)
        self._note_problems(snapshot)
        if self.engine is not None:
            self.engine.push(snapshot)
            self.note_diagnosis(self.engine.diagnosis)

    def _add_gpus(
        self, snapshot: Snapshot, step: Step, gpus: Sequence[Gpu], jobs: Sequence[Job], grid: Grid
    ) -> None:
        tenants = self._tenants(snapshot, jobs)
        for gpu in without_late(tuple(gpus)):
            uuid = gpu.uuid
            one = self._gpus.get(uuid)
            if one is None:
                if len(self._gpus) >= GPUS_KEPT:
                    continue
                one = self._gpus[uuid] = GpuAccumulator(gpu, grid, step.until, fine=not self._live)
            span = step
            if uuid not in self._there:
                # Since when it is there is not known.
                span = step.end()
                one.arrive(step.until)
            one.add(gpu, span, None if tenants is None else tenants.get(uuid, (None, ())))
        self._there = frozenset([gpu.uuid for gpu in gpus if gpu.uuid in self._gpus])

    def _tenants(self, snapshot: Snapshot, jobs: Sequence[Job]) -> dict[GpuKey, Tenants] | None:
        """Return the tenants of the GPUs of the job that the report is about; its own processes
        have left them when it has ended."""
        if self._job is None or not jobs or jobs[0].ended_at_unix_seconds is not None:
            return None
        own = {jobs[0].pid, *[member.pid for member in jobs[0].members]}
        found: dict[GpuKey, tuple[list[int | None], list[str | None]]] = {}
        for process in snapshot.processes:
            mine, others = found.setdefault(process.gpu_uuid or "", ([], []))
            if process.pid in own:
                mine.append(process.gpu_memory_bytes)
            elif process.gpu_kind != "graphics":
                # A desktop draws on nearly every workstation's GPU and is no tenant.
                others.append(process.user)
        return {uuid: (total(mine), others) for uuid, (mine, others) in found.items()}

    def _add_jobs(self, snapshot: Snapshot, step: Step, jobs: Sequence[Job], grid: Grid) -> None:
        busy = {gpu.uuid: gpu.reading.busy_percent for gpu in snapshot.gpus}
        memory = gpu_memory(snapshot)
        ran = 0.0
        for job in jobs:
            # A job goes on by another name when its launcher has ended.
            key = self._job or job.key
            one = self._jobs.get(key)
            if one is None:
                if len(self._jobs) >= JOBS_KEPT:
                    continue
                alone = grid if self._job is not None else None
                one = self._jobs[key] = JobAccumulator(job, step.since, alone)
            ran = max(ran, one.add_job(job, step, busy, memory))
        self._loop_seconds += ran

    def _note_problems(self, snapshot: Snapshot) -> None:
        for problem in snapshot.problems:
            gpu = self._gpus.get(problem.target or "")
            if self._job is not None and problem.target is not None and gpu is None:
                continue
            if problem.severity != "info" and len(self._problems) < PROBLEMS_KEPT:
                self._problems[problem.message] = None
            if gpu is not None and problem.reading in ("busy_percent", "busy_samples", None):
                gpu.missing = problem.message

    def note_diagnosis(self, diagnosis: Diagnosis) -> None:
        """Take the diagnosis of the newest snapshot, or of one a moment before."""
        step = self._step
        if diagnosis is self._diagnosis or step is None:
            return
        if self._notes is None:
            self._notes = DiagnosisNotes()
        self._diagnosis = diagnosis
        self._findings.add_diagnosis(diagnosis, step.until, self._steps.begin or 0.0, step.offset)
        self._notes.add_diagnosis(diagnosis, step.until, step.offset)

    def report(self, source: Source | None = None) -> Report:
        """Return the report so far. Raises ``ValueError`` if there was no snapshot."""
        if self._grid is None:
            raise ValueError("no snapshot was pushed")
        if self.engine is not None:
            self.engine.finish()
            self.note_diagnosis(self.engine.diagnosis)
        end, diagnosis = self._steps.end, self._diagnosis
        gpus = [gpu.usage(end) for gpu in self._gpus.values()]
        gpus.sort(key=lambda gpu: (gpu.index, -1 if gpu.mig_instance is None else gpu.mig_instance))
        jobs = tuple([one.usage(end) for _, one in by_weight(self._jobs)])
        findings = self._findings.uses(end)
        phases: tuple[Phase, ...] = ()
        questions: tuple[OpenQuestion, ...] = ()
        if self._notes is not None:
            self._notes.finish(end)
            spans = {uuid: gpu.spans(end) for uuid, gpu in self._gpus.items()}
            known = bool(jobs or self._processes.usages())
            judged = JudgedPhases(gpus, spans, findings, self._notes, processes=known)
            findings, phases = judged.findings, judged.phases(2.0 * self._grid.seconds)
            questions = judged.questions()
        return Report(
            decided=diagnosis is not None and not questions,
            simulated=self._simulated,
            machine=self._machine,
            pid=jobs[0].pid if self._job is not None and jobs else None,
            source=source,
            time=self._steps.time(self._grid.seconds),
            gpus=tuple(gpus),
            findings=findings,
            phases=phases,
            questions=questions,
            jobs=jobs,
            processes=self._processes.usages(),
            left_out_processes=self._processes.left_out,
            loop_seconds=self._loop_seconds,
            host=HostUsage() if self._host is None else self._host.usage(end),
            problems=tuple(self._problems),
            unknown=() if diagnosis is None else diagnosis.unknown,
        )
