"""What a person should know about the jobs, as sentences.

They name jobs by their PIDs alone: a redacted recording holds them as they are, so no command line,
user or folder may be in them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from gpuwatch.core.model import Problem
from gpuwatch.core.source import Clock
from gpuwatch.jobs.tracking.tracked import TrackedJob
from gpuwatch.sources.linux.process_details import user_name

LEFT_OVER_SECONDS = 10.0
"""PyTorch's workers look every 5 s whether their parent is there, and end by themselves."""
STARTED_AGAIN_SECONDS = 60.0
PIDS_TOLD = 6


class Notes:
    """Gives each sentence the time since when it holds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._left_over_since: dict[str, float] = {}
        self._attached: str | None = None
        self._again: tuple[float, str] | None = None

    def attached_to(self, missing: int | None, *, recycled: bool = False) -> None:
        """``missing``: the PID that was asked for, when no process has it (or another has)."""
        self._attached = None
        if missing is not None and recycled:
            self._attached = (
                f"Process {missing} has ended, and its number belongs to another process now: "
                "attach to that one if it is the job you mean."
            )
        elif missing is not None:
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
        told: dict[str, tuple[str, str]] = {}
        if self._attached is not None:
            told["attached"] = ("warning", self._attached)
        if self._again is not None and now < self._again[0]:
            told["again"] = ("info", self._again[1])
        waiting = {}
        for job in jobs:
            if job.refused:
                told[f"refused {job.key}"] = ("warning", _refused(job))
            if job.left_over_workers and job.without_ranks_since(now) is not None:
                name = f"left over {job.key}"
                waiting[name] = self._left_over_since.get(name, now)
                if now - waiting[name] >= LEFT_OVER_SECONDS:
                    told[name] = ("warning", _left_over(job))
        self._left_over_since = waiting
        unix = self._clock.unix()
        self._since = {name: self._since.get(name, unix) for name in told}
        return tuple(
            [
                Problem(
                    source="jobs",
                    message=message,
                    since_unix_seconds=self._since[name],
                    severity=severity,
                )
                for name, (severity, message) in told.items()
            ]
        )


def _refused(job: TrackedJob) -> str:
    user = next((member.row.user for member in job.members.values() if member.meter.refused), None)
    what = f"The environment, libraries, I/O and shared memory of job {job.key[0]} cannot be read"
    if user is None or user == user_name(os.geteuid()):
        return (
            f"{what}: run gpuwatch as root, or in a container with the capability SYS_PTRACE, to "
            "see them."
        )
    return f"{what}, because another user owns it: run gpuwatch as that user or as root."


def _left_over(job: TrackedJob) -> str:
    pids = [str(member.pid) for member in job.left_over_workers]
    one = len(pids) == 1
    shown = " ".join(pids[:PIDS_TOLD]) + (" ..." if len(pids) > PIDS_TOLD else "")
    return (
        f"{'1 loader worker is' if one else f'{len(pids)} loader workers are'} left over from a "
        f"job that has ended, and {'holds' if one else 'hold'} memory: end "
        f"{'it' if one else 'them'} with `kill {shown}`."
    )
