"""Which processes to take stacks of, for a PID that a person gave."""

import time

from gpuwatch.core.model import Job, JobMember, ProcessKey
from gpuwatch.core.source import ReadOptions, SystemClock
from gpuwatch.jobs.stacks.sampler import StackTarget

SETTLE_SECONDS = 0.3
"""Between the two reads after which roles are known that need a process to be seen twice."""


def find_job(key: ProcessKey) -> Job | None:
    """The job that a process belongs to, from ``/proc`` alone: the driver is not asked. Takes about
    ``SETTLE_SECONDS``. ``None`` when the process has ended."""
    from gpuwatch.jobs.tracking.tracker import JobTracker  # noqa: PLC0415 - not needed for one process
    from gpuwatch.sources.linux.processes import ProcessSource  # noqa: PLC0415

    clock, options = SystemClock(), ReadOptions(interval_seconds=SETTLE_SECONDS, attached=key)
    tracker, processes = JobTracker(clock, options), ProcessSource(clock, options)
    try:
        for seconds in (0.0, SETTLE_SECONDS):
            time.sleep(seconds)
            rows, _problems = processes.read((), tracker.roots(()))
            jobs, _problems = tracker.read(rows)
        return next((job for job in jobs if job.attached), None)
    finally:
        tracker.close()
        processes.close()


def job_targets(job: Job, key: ProcessKey, *, workers: bool = False) -> list[StackTarget]:
    """The job's ranks in their order, each followed by one of its loader workers if asked for;
    where no rank is known, the process ``key``."""
    targets = []
    for rank in job.having("rank"):
        targets.append(target_of(rank))
        if workers:
            targets += [target_of(worker) for worker in _workers_of(job, rank)[:1]]
    return targets or [StackTarget(*key)]


def _workers_of(job: Job, rank: JobMember) -> list[JobMember]:
    below = {rank.pid}
    found = []
    # Parents come before their children; a fork server stands between a rank and its workers.
    for member in job.members:
        if member.parent_pid in below:
            below.add(member.pid)
            if member.role == "loader_worker" and not member.orphaned:
                found.append(member)
    return found


def target_of(member: JobMember) -> StackTarget:
    return StackTarget(**{name: getattr(member, name) for name in StackTarget._fields})
