"""Choice of the jobs that are followed, where there are more than can be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuwatch.core.model import Job, ProcessKey, Snapshot

FOLLOWED_JOBS_MAX = 16
"""Each job costs time and memory. Of more than so many (a machine of notebooks and small servers),
those that use GPUs most are followed, the attached one always."""
CHOSEN_SECONDS = 30.0
USE_SECONDS = 30.0
"""What counts is the use over about so long: of jobs whose GPUs swing, each is the busiest for a
moment."""
KEPT_PERCENT = 5.0
"""Those that are followed keep their place against others that are about as busy."""


class Choice:
    """The jobs followed, chosen anew each half minute."""

    def __init__(self) -> None:
        self._followed: frozenset[ProcessKey] | None = None
        self._chosen_at = -math.inf
        self._use: dict[ProcessKey, float] = {}

    def push(self, snapshot: Snapshot, at: float, seconds: float) -> None:
        if len(snapshot.jobs) <= FOLLOWED_JOBS_MAX:
            self._followed = None
            self._chosen_at = -math.inf
            self._use.clear()
            return
        self._take_use(snapshot, min(1.0, seconds / USE_SECONDS))
        before = self._followed or frozenset()
        asked_for = all(job.key in before for job in snapshot.jobs if job.attached)
        if asked_for and at < self._chosen_at + CHOSEN_SECONDS:
            return
        self._chosen_at = at

        def weight(job: Job) -> tuple[bool, bool, float]:
            kept = KEPT_PERCENT if job.key in before else 0.0
            return (job.attached, bool(job.loader_workers), self._use[job.key] + kept)

        ranked = sorted(snapshot.jobs, key=weight, reverse=True)
        self._followed = frozenset([job.key for job in ranked[:FOLLOWED_JOBS_MAX]])

    def _take_use(self, snapshot: Snapshot, share: float) -> None:
        """Add up how much each job uses GPUs, as a mean in which the newest counts ``share``."""
        busy: dict[int, float] = {}
        for process in snapshot.processes:
            if process.gpu_uuid is not None and process.gpu_busy_percent is not None:
                busy[process.pid] = busy.get(process.pid, 0.0) + process.gpu_busy_percent
        before, self._use = self._use, {}
        for job in snapshot.jobs:
            used = sum([busy.get(member.pid, 0.0) for member in job.members])
            known = before.get(job.key, used)
            self._use[job.key] = known + share * (used - known)

    def of(self, snapshot: Snapshot) -> Sequence[Job]:
        """Its jobs that are followed."""
        followed = self._followed
        if followed is None:
            return snapshot.jobs
        return [job for job in snapshot.jobs if job.key in followed]
