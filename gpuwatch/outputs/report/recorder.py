"""Recorders of jobs' reports, from snapshot to snapshot.

What a snapshot says (rates, shares, the state of a GPU) is taken for the time since the snapshot
before; where that is long ago it is taken for nothing, and the report says how much of the
duration was watched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuwatch.core.model import Gpu, Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis, cut_to
from gpuwatch.jobs.identity.job_filter import only_job
from gpuwatch.outputs.report.accumulator import Accumulator
from gpuwatch.recording.statistics import gpu_memory

if TYPE_CHECKING:
    from gpuwatch.outputs.report.model import Report, Source

LATE_SECONDS = 2.0
"""Time after the end of a job in which the driver's samples from before it may still come."""
START_TOLERANCE_SECONDS = 0.5
"""Largest difference of one process's start time, computed from the boot time twice."""
JOBS_RECORDED = 8
"""Jobs recorded before anybody asks: each takes some 0.3 ms of a snapshot, where the diagnosis of
eight GPUs takes 4."""


class JobRecorder:
    """Follower of the job with ``key``: that of its topmost process, or of any of its processes."""

    def __init__(self, key: ProcessKey, *, command: str | None = None, live: bool = True) -> None:
        """``command``: as it was started, for a job that ends before its command line is read;
        ``live``: see ``Accumulator``."""
        self._key = key
        self._command = command
        self._live = live
        self._job: Job | None = None
        self._accumulator: Accumulator | None = None
        self._before: Snapshot | None = None
        self._diagnosis: Diagnosis | None = None
        """Newest diagnosis that was taken."""
        self._end: float | None = None
        """Monotonic time at which it was first seen to have ended."""
        self._gone = False

    @property
    def seen(self) -> bool:
        return self._job is not None

    @property
    def ended(self) -> bool:
        return self._job is not None and (self._gone or self._job.ended_at_unix_seconds is not None)

    @property
    def job(self) -> Job | None:
        """The job as it was seen last."""
        return self._job

    def is_of(self, key: ProcessKey) -> bool:
        """Return whether this is a key of its job, or of one of its processes."""
        job = self._job
        if key == self._key or job is None:
            return key == self._key
        return key in _keys(job)

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis | None = None) -> None:
        """Take the next snapshot; one that is not newer than the last is ignored. ``diagnosis``:
        the newest of the machine, of whoever watches it live."""
        before = self._before
        newest = -math.inf if before is None else before.monotonic_seconds
        if self._live and snapshot.monotonic_seconds <= newest:
            return
        self._before = snapshot
        job = self._find(snapshot.jobs)
        if job is None:
            # With the reader of jobs out of order, nobody knows whether it is gone.
            gone = self.seen and not _jobs_unread(snapshot)
            if gone and not self._gone and _is_about(diagnosis, self._job):
                # Its last seconds were looked at when it was missed.
                self.note_diagnosis(diagnosis)
            self._gone = self._gone or gone
            return
        self._gone = False
        if (job.command or "[").startswith("["):
            # What has ended has no command line, and is shown as its name in brackets.
            job = replace(job, command=self._command or job.command)
        else:
            self._command = job.command
        if self._accumulator is None:
            self._accumulator = Accumulator(job.key, live=self._live)
        if self._end is not None and job.ended_at_unix_seconds is not None:
            if snapshot.monotonic_seconds <= self._end + LATE_SECONDS:
                self._accumulator.push_late(snapshot.gpus, job)
        else:
            self._add(self._accumulator, job, snapshot, before)
        self._job = job
        self.note_diagnosis(diagnosis)

    def note_diagnosis(self, diagnosis: Diagnosis | None) -> None:
        """Take the newest diagnosis of the machine."""
        if diagnosis is None or diagnosis is self._diagnosis:
            return
        if self._job is not None and self._accumulator is not None:
            self._diagnosis = diagnosis
            self._accumulator.note_diagnosis(cut_to(diagnosis, self._job))

    def _add(
        self, accumulator: Accumulator, job: Job, snapshot: Snapshot, before: Snapshot | None
    ) -> None:
        # The look before came too early: what this one says is of the time since the start.
        since = None if before is None else job.started_at_unix_seconds
        if before is not None and since is not None:
            since = max(before.taken_at_unix_seconds, since)
        self._end = None
        if job.ended_at_unix_seconds is not None:
            self._end = snapshot.monotonic_seconds
        gpus = _gpus_of(job, snapshot, accumulator)
        cut = snapshot if self._live else only_job(snapshot, job.key)
        accumulator.push_job(cut, job, gpus, since)

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

    def report(self, source: Source | None = None) -> Report:
        """Return the report so far. Raises ``ValueError`` if the job was never seen."""
        if self._accumulator is None:
            raise ValueError("no snapshot has had this job in it yet")
        report = self._accumulator.report(source)
        job = report.job
        if job is None or job.ended_at_unix_seconds is not None or not self._gone:
            return report
        return report.with_end(report.time.end_unix_seconds, seen=True)


class JobRecorders:
    """Recorders of a machine's jobs, each from when it was first seen: of those with the most GPU
    memory, whether or not somebody looks at them."""

    def __init__(self) -> None:
        self._recorders: list[JobRecorder] = []

    def push(
        self, snapshot: Snapshot, jobs: Sequence[Job], diagnosis: Diagnosis | None = None
    ) -> None:
        """Take the next snapshot, of which these ``jobs`` may be recorded, with the newest
        ``diagnosis`` of the machine."""
        for one in self._recorders:
            one.push(snapshot, diagnosis)
        recorded = {one.job.key for one in self._recorders if one.job is not None}
        new = [job for job in jobs if job.key not in recorded and not job.ended_at_unix_seconds]
        if not new:
            return
        self._forget_ended(len(new))
        places = max(0, JOBS_RECORDED - len(self._recorders))
        if places < len(new):
            held = gpu_memory(snapshot)
            new.sort(key=lambda job: -sum(held.get(key, 0) for key in _keys(job)))
        for job in new[:places]:
            self.recorder(job.key).push(snapshot, diagnosis)

    def recorder(self, key: ProcessKey, command: str | None = None) -> JobRecorder:
        """Return the recorder of the job with this process; one that begins now, if there is
        none."""
        for one in self._recorders:
            if one.is_of(key):
                return one
        made = JobRecorder(key, command=command)
        self._recorders.append(made)
        return made

    def _forget_ended(self, wanted: int) -> None:
        """Make room for so many new ones; none of a job that runs goes."""
        surplus = len(self._recorders) + wanted - JOBS_RECORDED
        ended = [one for one in self._recorders if one.ended]
        for one in ended[: max(0, surplus)]:
            self._recorders.remove(one)


def _keys(job: Job) -> set[ProcessKey]:
    return {job.key, *[member.key for member in job.members]}


def _gpus_of(job: Job, snapshot: Snapshot, accumulator: Accumulator) -> Sequence[Gpu]:
    """Return the GPUs the job is on: it was there until its end, when its processes have left; and
    a lost GPU cannot list its processes."""
    over = job.ended_at_unix_seconds is not None
    return [
        gpu
        for gpu in snapshot.gpus
        if gpu.uuid in job.gpu_uuids or (gpu.uuid in accumulator.held and (over or gpu.lost))
    ]


def _is_about(diagnosis: Diagnosis | None, job: Job | None) -> bool:
    found = () if diagnosis is None else diagnosis.findings
    return job is not None and any(one.job == job.key for one in found)


def _jobs_unread(snapshot: Snapshot) -> bool:
    return any(
        problem.source == "jobs" and problem.severity == "error" for problem in snapshot.problems
    )


def _same_start(one: float | None, other: float | None) -> bool:
    return one is None or other is None or abs(one - other) <= START_TOLERANCE_SECONDS
