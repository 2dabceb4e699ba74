"""Follows one job from snapshot to snapshot, and makes its report.

Memory is bounded however long the job runs, and a push costs a look at the job's members and at
the processes on its GPUs. What a snapshot says (rates, shares, the state of a GPU) is taken for
the time since the snapshot before; where that is long ago it is taken for nothing, and the report
says how much of the duration was watched.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from gpuwatch.core.history import GAP_INTERVALS
from gpuwatch.core.model import Gpu, GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.jobs.identity.runs import essence
from gpuwatch.jobs.report.gpu_recorder import GpuRecorder, Span, Tenants
from gpuwatch.jobs.report.process_recorder import ProcessRecorder
from gpuwatch.jobs.report.report import JobReport
from gpuwatch.jobs.report.time_profile import Grid

LATE_SECONDS = 2.0
"""How long after the end of a job the driver's samples from before it may still come."""

GPUS_KEPT = 256
START_TOLERANCE_SECONDS = 0.5
"""Start times of one process, computed from the boot time twice, differ by less."""


class JobRecorder:
    """Follows the job with ``key``: that of its topmost process, or of any of its processes."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        self._job: Job | None = None
        self._facts: dict[str, Any] = {}
        """What was last said of each of ``_FACTS``: of a process that ended little can be read."""
        self._first: Job | None = None
        self._snapshot: Snapshot | None = None
        self._seen_at = -math.inf
        """Monotonic time of the last snapshot with the job in it."""
        self._seen_unix = 0.0
        self._end: float | None = None
        self._gone = False
        self._simulated = False
        self._first_unix: float | None = None
        self._watched = 0.0
        self._ranks = 0
        self._grid: Grid | None = None
        self._processes: ProcessRecorder | None = None
        self._gpus: dict[GpuKey, GpuRecorder] = {}
        self._held: frozenset[GpuKey] = frozenset()

    @property
    def seen(self) -> bool:
        """The job was in a snapshot."""
        return self._job is not None

    @property
    def ended(self) -> bool:
        return self._job is not None and (self._gone or self._job.ended_at_unix_seconds is not None)

    def push(self, snapshot: Snapshot) -> None:
        """Take the next snapshot; one that is not newer than the last is ignored."""
        before = self._snapshot
        now = snapshot.monotonic_seconds
        if before is not None and now <= before.monotonic_seconds:
            return
        self._snapshot = snapshot
        job = self._find(snapshot.jobs)
        if job is None:
            self._note_absence(snapshot)
            return
        self._gone = False
        offset = snapshot.taken_at_unix_seconds - now
        until = now
        if job.ended_at_unix_seconds is not None:
            until = min(now, max(job.ended_at_unix_seconds - offset, self._seen_at))
        span = self._span(job, snapshot, before, until, offset)
        self._add(job, snapshot, span)

    def _find(self, jobs: tuple[Job, ...]) -> Job | None:
        pid, started = self._key if self._job is None else self._job.key
        for job in jobs:
            if job.pid == pid and _same_start(job.started_at_unix_seconds, started):
                return job
        # The launcher has ended before its ranks, or the key is that of a process below the top.
        wanted = {self._key} if self._job is None else {rank.key for rank in self._job.ranks}
        for job in jobs:
            if any(member.key in wanted for member in job.members):
                return job
        return None

    def _note_absence(self, snapshot: Snapshot) -> None:
        if self._job is None:
            return
        # With the reader of jobs out of order, nobody knows whether it is gone.
        self._gone = self._gone or not any(
            problem.source == "jobs" and problem.severity == "error"
            for problem in snapshot.problems
        )

    def _span(
        self, job: Job, snapshot: Snapshot, before: Snapshot | None, until: float, offset: float
    ) -> Span:
        if before is None:
            return Span(until, until, GAP_INTERVALS * snapshot.interval_seconds, offset)
        longest = GAP_INTERVALS * max(snapshot.interval_seconds, before.interval_seconds)
        since = self._seen_at
        if self._job is None:
            # The look before came too early: what this one says is of the time since the start.
            started = job.started_at_unix_seconds
            since = until if started is None else max(before.monotonic_seconds, started - offset)
            since = since if until - since <= longest else until
        return Span(min(since, until), until, longest, offset)

    def _add(self, job: Job, snapshot: Snapshot, span: Span) -> None:
        if self._grid is None or self._processes is None:
            self._grid = Grid(span.since)
            self._processes = ProcessRecorder(self._grid, span.since)
            self._first_unix = span.since + span.wall_offset
        if job.ended_at_unix_seconds is not None and self._end is not None:
            self._job = job
            if snapshot.monotonic_seconds <= self._end + LATE_SECONDS:
                self._add_late(job, snapshot, span)
            return
        self._end = None if job.ended_at_unix_seconds is None else span.until
        self._grid.reach(span.until)
        watched = span.seconds <= span.longest
        if watched:
            self._watched += span.seconds
            self._processes.add(job, span)
        self._add_gpus(job, snapshot, span, watched)
        self._remember(job, snapshot, span.until)

    def _add_late(self, job: Job, snapshot: Snapshot, span: Span) -> None:
        """Fine samples of the time before the end, and nothing else."""
        assert self._end is not None
        assert self._processes is not None
        late = Span(self._end, self._end, span.longest, span.wall_offset)
        self._processes.add_courses(job, late)
        for gpu in snapshot.gpus:
            recorder = self._gpus.get(gpu.uuid)
            if recorder is not None and gpu.uuid in self._held and gpu.reading.busy_samples:
                recorder.add_late(gpu.reading.busy_samples, late)

    def _remember(self, job: Job, snapshot: Snapshot, until: float) -> None:
        self._job = job
        for name in _FACTS:
            value = getattr(job, name)
            if value is not None:
                self._facts[name] = value
        if self._first is None:
            self._first = job
        self._simulated = self._simulated or snapshot.simulated
        self._seen_at = until
        self._seen_unix = snapshot.taken_at_unix_seconds
        self._ranks = max(self._ranks, len(job.ranks))

    def _add_gpus(self, job: Job, snapshot: Snapshot, span: Span, watched: bool) -> None:
        present = set(job.gpu_uuids)
        gpus = {gpu.uuid: gpu for gpu in snapshot.gpus if gpu.uuid in present | self._held}
        if self._end is not None:
            # Its processes have left the GPUs by now, but they were there until the end.
            present |= self._held
        else:
            # A lost GPU cannot list its processes.
            present |= {uuid for uuid in self._held if uuid not in gpus or gpus[uuid].lost}
        tenants = self._tenants(job, snapshot, present) if self._end is None else {}
        for uuid in present:
            self._add_gpu(uuid, gpus.get(uuid), tenants.get(uuid), span, watched)
        self._held = frozenset(present & self._gpus.keys())
        self._note_reasons(snapshot)

    def _add_gpu(
        self, uuid: GpuKey, gpu: Gpu | None, tenants: Tenants | None, span: Span, watched: bool
    ) -> None:
        recorder = self._gpus.get(uuid)
        if recorder is None:
            if gpu is None or self._grid is None or len(self._gpus) >= GPUS_KEPT:
                return
            recorder = self._gpus[uuid] = GpuRecorder(gpu.identity, self._grid, span.until)
        if uuid not in self._held:
            # Since when it is here is not known.
            span = Span(span.until, span.until, span.longest, span.wall_offset)
            recorder.arrive(span.until)
            watched = True
        if watched:
            recorder.add(gpu, span, tenants)
        else:
            recorder.skip(span, gpu)

    def _tenants(self, job: Job, snapshot: Snapshot, uuids: set[GpuKey]) -> dict[GpuKey, Tenants]:
        members = {member.pid for member in job.members}
        members.add(job.pid)
        found = {uuid: Tenants() for uuid in uuids}
        for process in snapshot.processes:
            uuid = process.gpu_uuid
            tenants = None if uuid is None else found.get(uuid)
            if tenants is None:
                continue
            if process.pid in members:
                if process.gpu_memory_bytes is not None:
                    tenants.job_bytes = (tenants.job_bytes or 0) + process.gpu_memory_bytes
            elif process.gpu_kind != "graphics":
                # A desktop draws on nearly every workstation's GPU and is no tenant.
                tenants.others += 1
                if process.user is not None:
                    tenants.users.append(process.user)
        return found

    def _note_reasons(self, snapshot: Snapshot) -> None:
        for problem in snapshot.problems:
            recorder = self._gpus.get(problem.target or "")
            if recorder is not None and problem.reading in ("busy_percent", "busy_samples", None):
                recorder.missing = problem.message

    def report(self) -> JobReport:
        """What is known so far. Raises ``ValueError`` if the job was never seen."""
        job, first, snapshot = self._job, self._first, self._snapshot
        if job is None or first is None or snapshot is None:
            raise ValueError("no snapshot has had this job in it yet")
        assert self._processes is not None
        assert self._grid is not None
        until = self._seen_at
        ended = job.ended_at_unix_seconds
        guessed = ended is None and self._gone
        gpus = [recorder.report(until) for recorder in self._gpus.values()]
        gpus.sort(key=lambda gpu: (gpu.index, -1 if gpu.mig_instance is None else gpu.mig_instance))
        return JobReport(
            **self._facts,
            pid=first.pid,
            simulated=self._simulated,
            machine=snapshot.host.name,
            started_at_unix_seconds=first.started_at_unix_seconds,
            ended_at_unix_seconds=self._seen_unix if guessed else ended,
            end_is_last_seen=guessed,
            taken_at_unix_seconds=self._seen_unix,
            exit_code=job.exit_code,
            run_digest=run_digest(self._facts),
            ranks=self._ranks or None,
            watched_from_unix_seconds=self._first_unix,
            watched_seconds=self._watched,
            course_from_unix_seconds=self._first_unix,
            course_seconds=self._grid.seconds,
            gpus=tuple(gpus),
            loading=self._processes.loading(until),
            loop=self._processes.loop(until),
            host=self._processes.host(),
        )


_FACTS = (
    "command",
    "user",
    "working_directory",
    "launcher",
    "framework",
    "world_size",
    "container",
    "pod",
    "slurm_job",
    "environment",
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
    text = "\0".join((user, folder, *essence(words, folder)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _same_start(one: float | None, other: float | None) -> bool:
    return one is None or other is None or abs(one - other) <= START_TOLERANCE_SECONDS
