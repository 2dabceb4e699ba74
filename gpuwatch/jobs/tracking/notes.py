"""Sentences that a person should know about the jobs.

They name jobs by their PIDs alone: a redacted recording holds them as they are, so no command line,
user or folder may be in them.
"""

import os
from collections.abc import Iterable

from gpuwatch.core.model import Problem
from gpuwatch.core.source import Clock
from gpuwatch.jobs.tracking.tracked import TrackedJob
from gpuwatch.sources.linux.processes import user_name

ORPHANED_SECONDS = 10.0
"""PyTorch's workers look every 5 s whether their parent is there, and end by themselves."""
STARTED_AGAIN_SECONDS = 60.0
PIDS_NAMED = 6


class Notes:
    """Gives each sentence the time since when it holds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._orphaned_since: dict[str, float] = {}
        self._attached: str | None = None
        self._again: tuple[float, str] | None = None

    def attached_to(self, missing: int | None) -> None:
        """``missing``: the PID that was asked for, when no process has it (or another has)."""
        self._attached = None
        if missing is not None:
            self._attached = f"Process {missing} has ended: there is no job to show."

    def started_again(self, pid: int | None) -> None:
        self._again = None
        if pid is not None:
            sentence = (
                f"The job was started again, as process {pid}: the same command by the same user "
                "in the same folder. That run is shown now."
            )
            self._again = (self._clock.monotonic() + STARTED_AGAIN_SECONDS, sentence)

    def about(self, jobs: Iterable[TrackedJob], now: float) -> tuple[Problem, ...]:
        sentences: dict[str, tuple[str, str]] = {}
        if self._attached is not None:
            sentences["attached"] = ("warning", self._attached)
        if self._again is not None and now < self._again[0]:
            sentences["again"] = ("info", self._again[1])
        waiting = {}
        for job in jobs:
            if job.refused:
                sentences[f"refused {job.key}"] = ("warning", _refused(job))
            if job.orphaned_workers and job.without_ranks_since(now) is not None:
                name = f"orphans {job.key}"
                waiting[name] = self._orphaned_since.get(name, now)
                if now - waiting[name] >= ORPHANED_SECONDS:
                    sentences[name] = ("warning", _orphans(job))
        self._orphaned_since = waiting
        unix = self._clock.unix()
        self._since = {name: self._since.get(name, unix) for name in sentences}
        return tuple(
            [
                Problem(
                    source="jobs",
                    message=message,
                    since_unix_seconds=self._since[name],
                    severity=severity,
                )
                for name, (severity, message) in sentences.items()
            ]
        )


def _refused(job: TrackedJob) -> str:
    user = next((member.row.user for member in job.members.values() if member.meter.refused), None)
    owner = "" if user in (None, user_name(os.geteuid())) else ", because another user owns it"
    return (
        f"The environment, libraries, I/O and shared memory of job {job.key[0]} cannot be read"
        f"{owner}: run gpuwatch as that user or as root (in a container with SYS_PTRACE)."
    )


def _orphans(job: TrackedJob) -> str:
    pids = [str(member.pid) for member in job.orphaned_workers]
    one = len(pids) == 1
    shown = " ".join(pids[:PIDS_NAMED]) + (" ..." if len(pids) > PIDS_NAMED else "")
    return (
        f"{'1 loader worker is' if one else f'{len(pids)} loader workers are'} left over from a "
        f"job that has ended, and {'holds' if one else 'hold'} memory: end "
        f"{'it' if one else 'them'} with `kill {shown}`."
    )
