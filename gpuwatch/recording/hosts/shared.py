"""A job that runs on several machines, put together from what comes in of each: a tape that grows,
diagnosed and shown as that of one machine is.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpuwatch.core.model import Job, Snapshot
from gpuwatch.jobs.identity.job_filter import only_job
from gpuwatch.recording.hosts.remote import Incoming, RemoteHost
from gpuwatch.recording.hosts.together import JobKey, Machine, are_one, key_of, together

_LOOKS_PER_INTERVAL = 8
_WAITS_INTERVALS = 2.0
"""For the machine that is last; after that, its readings are missing from the snapshot."""


class Part(NamedTuple):
    """The job on one machine, whose ``number`` is the same each time."""

    number: int
    host: RemoteHost
    snapshot: Snapshot
    job: Job


def shared_jobs(hosts: Sequence[RemoteHost]) -> dict[JobKey, Job]:
    """The jobs that run on several machines now, each as it is on the first."""
    found: dict[JobKey, list[tuple[int, Job]]] = {}
    for number, host in enumerate(hosts):
        latest = None if host.is_late else host.latest
        for job in () if latest is None else latest.jobs:
            key = None if job.ended_at_unix_seconds is not None else key_of(job)
            if key is not None:
                found.setdefault(key, []).append((number, job))
    return {key: parts[0][1] for key, parts in found.items() if are_one(parts)}


class SharedJob(Incoming):
    """Such a job."""

    def __init__(self, name: str, key: JobKey, hosts: Sequence[RemoteHost]) -> None:
        super().__init__(name, max([host.interval_seconds for host in hosts]))
        self.key = key
        self._hosts = hosts
        self._parts: dict[int, Part] = {}
        """By the number of the machine, as last seen."""

    @property
    def ended_seconds(self) -> float | None:
        ended = None if self.latest is None else self.latest.jobs[0].ended_at_unix_seconds
        return None if ended is None else max(0.0, time.time() - ended)

    @property
    def is_late(self) -> bool:
        parts = [*self._parts.values()]
        silent = bool(parts) and all(part.host.is_late for part in parts)
        return self.ended_seconds is not None or silent

    @property
    def clocks_apart_seconds(self) -> float | None:
        """How far the clocks of its machines are apart, at most; the time that snapshots took to
        come in is part of it."""
        ahead = [part.host.clock_ahead_seconds for part in [*self._parts.values()]]
        known = [each for each in ahead if each is not None]
        return max(known) - min(known) if len(known) > 1 else None

    def _snapshots(self) -> Generator[Snapshot, None, None]:
        """One each time all machines have sent another, or the last of them is overdue."""
        sequence, since = 0, time.monotonic()
        while not self._closed.wait(self.interval_seconds / _LOOKS_PER_INTERVAL):
            now, found = time.monotonic(), self._look()
            running = [one for one in found if one.job.ended_at_unix_seconds is None]
            fresh = {
                part.number
                for part in found
                if part.number not in self._parts
                or self._parts[part.number].snapshot is not part.snapshot
            }
            overdue = now - since >= _WAITS_INTERVALS * self.interval_seconds
            late = [one for one in running if one.number not in fresh and not one.host.is_late]
            over = not running and self.ended_seconds is not None
            if not fresh or (late and not overdue) or over:
                continue
            self._parts |= {part.number: part for part in found if part.number in fresh}
            sequence, since = sequence + 1, now
            parts = sorted(self._parts.values(), key=_order)
            self.latest = together(
                [_machine(part, part.number in fresh) for part in parts],
                sequence=sequence,
                taken_at_unix_seconds=time.time(),
                monotonic_seconds=now,
                interval_seconds=self.interval_seconds,
            )
            yield self.latest

    def _look(self) -> list[Part]:
        """Its parts by what has come in last; on a machine where it is gone, as one that ended."""
        found = []
        for number, host in enumerate(self._hosts):
            snapshot, known = host.latest, self._parts.get(number)
            job = None
            for one in () if snapshot is None else snapshot.jobs:
                if key_of(one) == self.key and one.ended_at_unix_seconds is None:
                    job = one
            if job is None and known is not None and snapshot is not None:
                job = _ended(known.job, snapshot.taken_at_unix_seconds)
            if job is not None and snapshot is not None:
                found.append(Part(number, host, snapshot, job))
        return found


def _order(part: Part) -> tuple[int, int]:
    """By the first of its ranks, also once it has ended."""
    ranks = [one.rank for one in part.job.members if one.rank is not None]
    return min(ranks, default=0), part.number


def _machine(part: Part, fresh: bool) -> Machine:
    """With this job alone."""
    number, host, snapshot, job = part
    alone = only_job(replace(snapshot, jobs=(job,)), job.key)
    return Machine(number, host.name, alone, fresh, host.clock_error_seconds)


def _ended(job: Job, at_unix_seconds: float) -> Job:
    if job.ended_at_unix_seconds is not None:
        return job
    left = tuple([member.without_readings() for member in job.members])
    return replace(job, ranks=(), loops=(), members=left, ended_at_unix_seconds=at_unix_seconds)
