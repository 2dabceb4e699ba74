"""The jobs that were seen at work, and which of them a new one is the next run of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.core.model import GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.tui.controllers.following import has_ended, next_run
from gpuwatch.tui.pages.finding_words import about_job

_MOST_KEPT = 64
"""Runs that are over and may have a next one."""
_TOLERANCE_SECONDS = 2.0
"""The kernel gives start times to the second of its boot."""


@dataclass(slots=True)
class Run:
    """A job as it was last seen running. Times without ``unix`` are the snapshots' own."""

    job: Job
    first_seen: float
    last_seen: float
    last_seen_unix_seconds: float
    diagnosis: Diagnosis | None = None
    """The last one while it ran: an engine forgets what is the matter with a job with the job."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was the matter with it."""
        return about_job(self.diagnosis, self.job)


class Runs:
    """Knows every job of the machine, whether or not somebody looks at it."""

    def __init__(self) -> None:
        self._runs: dict[ProcessKey, Run] = {}

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis | None) -> tuple[Run, Job] | None:
        """A run that is over and the one that follows it, at the moment that one is first seen."""
        running = [job for job in snapshot.jobs if not has_ended(job)]
        followed = None
        for job in running:
            if job.key not in self._runs:
                before = self._run_before(job, running)
                if before is not None:
                    del self._runs[before.job.key]
                    followed = before, job
        for job in running:
            self._note(job, snapshot, diagnosis)
        self._forget(len(running))
        return followed

    def _forget(self, running: int) -> None:
        """The runs that were over first; none that goes on."""
        surplus = len(self._runs) - running - _MOST_KEPT
        if surplus > 0:
            for key in sorted(self._runs, key=lambda key: self._runs[key].last_seen)[:surplus]:
                del self._runs[key]

    def at_work_since(self, gpus: Sequence[GpuKey]) -> float | None:
        """From when on the jobs that are on these GPUs now were there."""
        now = max((run.last_seen for run in self._runs.values()), default=None)
        mine = set(gpus)
        return max(
            (
                run.first_seen
                for run in self._runs.values()
                if run.last_seen == now and mine.intersection(run.job.gpu_uuids)
            ),
            default=None,
        )

    def seen_seconds(self, key: ProcessKey) -> float:
        run = self._runs.get(key)
        return 0.0 if run is None else run.last_seen - run.first_seen

    def _run_before(self, job: Job, running: list[Job]) -> Run | None:
        there = {one.key for one in running}
        started = job.started_at_unix_seconds or 0.0
        over = [
            run
            for key, run in self._runs.items()
            if key not in there
            and started >= run.last_seen_unix_seconds - _TOLERANCE_SECONDS
            and next_run((job,), run.job, run.last_seen_unix_seconds) is not None
        ]
        return max(over, key=lambda run: run.last_seen, default=None)

    def _note(self, job: Job, snapshot: Snapshot, diagnosis: Diagnosis | None) -> None:
        now = snapshot.monotonic_seconds
        run = self._runs.get(job.key)
        if run is None:
            run = self._runs[job.key] = Run(job, now, now, snapshot.taken_at_unix_seconds)
        run.job, run.last_seen = job, now
        run.last_seen_unix_seconds = snapshot.taken_at_unix_seconds
        if diagnosis is not None:
            run.diagnosis = diagnosis
