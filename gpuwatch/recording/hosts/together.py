"""Several machines as one: their GPUs side by side, and a job that runs on several of them as one.

Every rule, screen and report takes what comes out for a machine with all the GPUs. What exists once
on each machine is added up where all of them report it (cores, memory, traffic); what cannot be
added up (pressure, shared memory) is unknown. ``SharedJob`` puts a job together from what comes in
of each machine, as a tape that grows.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeVar

from gpuwatch.core.bounds import highest
from gpuwatch.core.model import (
    PIDS_OF_A_MACHINE,
    Gpu,
    GpuKey,
    GpuReading,
    Host,
    Identified,
    Job,
    OwnCost,
    Problem,
    Process,
    Snapshot,
)
from gpuwatch.core.text import SentenceError
from gpuwatch.jobs.identity.job_filter import only_job
from gpuwatch.recording.hosts.brief import JobBrief, JobKey, are_one, key_of, known_ranks
from gpuwatch.recording.hosts.remote import RemoteHost, RemoteTape

# --- snapshots of several machines as one -----------------------------------------------------

Of = TypeVar("Of", bound=Identified)

_NAME_LENGTH = 200
_SUMS = (
    *("load_average_1_minute", "load_average_5_minutes", "load_average_15_minutes"),
    *("memory_total_bytes", "memory_used_bytes", "swap_total_bytes", "swap_used_bytes"),
    *("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
    *("cache_refault_bytes_per_second", "network_receive_bytes_per_second"),
    *("network_transmit_bytes_per_second", "core_count", "affinity_cores", "usable_cores"),
)
_JOB_SUMS = ("affinity_cores", "quota_cores", "slurm_cores", "usable_cores")


class Machine(NamedTuple):
    """One of several machines, with its last snapshot. ``number`` is the same each time;
    ``clock_error_seconds`` is how far its clock is ahead."""

    number: int
    name: str
    snapshot: Snapshot
    fresh: bool = True
    """Whether the readings are of this moment; if not, they are left out."""
    clock_error_seconds: float = 0.0


def together(
    machines: Sequence[Machine],
    *,
    sequence: int,
    taken_at_unix_seconds: float,
    monotonic_seconds: float,
    interval_seconds: float,
) -> Snapshot:
    """Return one snapshot of all ``machines``: GPUs are numbered through in their order; PIDs begin
    at a multiple of ``PIDS_OF_A_MACHINE``."""
    gpus: list[Gpu] = []
    processes: list[Process] = []
    problems: list[Problem] = []
    jobs: dict[JobKey | tuple[int, int], list[tuple[int, Job]]] = {}
    for machine in machines:
        name, snapshot, number = machine.name, machine.snapshot, machine.number
        for gpu in snapshot.gpus:
            place = replace(gpu.identity, index=len(gpus), machine=name)
            gpus.append(replace(gpu, identity=place, reading=_reading(gpu, machine)))
        for job in snapshot.jobs:
            part = _part(job, machine)
            jobs.setdefault(key_of(job) or (number, job.pid), []).append((number, part))
        if machine.fresh:
            processes += [_moved(one, number) for one in snapshot.processes]
            problems += [
                replace(one, message=f"{name}: {one.message}"[:4096]) for one in snapshot.problems
            ]
    found = [
        one
        for parts in jobs.values()
        for one in ([_joined(parts)] if _are_one(parts) else [job for _, job in parts])
    ]
    return Snapshot(
        sequence=sequence,
        taken_at_unix_seconds=taken_at_unix_seconds,
        monotonic_seconds=monotonic_seconds,
        interval_seconds=interval_seconds,
        simulated=any(machine.snapshot.simulated for machine in machines),
        host=_host(machines),
        gpus=tuple(gpus),
        processes=tuple(processes),
        jobs=tuple(found),
        problems=tuple(problems),
        own_cost=OwnCost(),
    )


def merged(recordings: Sequence[Iterable[Snapshot]]) -> Iterator[Snapshot]:
    """Merge recordings of several machines at one time into one: a snapshot each time that one of
    them has another although it has one already. By their own clocks, which had better agree; a
    machine that has none by then is there without its readings."""
    latest: dict[int, Snapshot] = {}
    fresh: set[int] = set()
    sequence = 0
    every = heapq.merge(
        *[zip(repeat(number), each) for number, each in enumerate(recordings)],
        key=lambda one: one[1].taken_at_unix_seconds,
    )
    whose: dict[GpuKey, int] = {}
    for number, snapshot in chain(every, [(-1, None)]):
        for gpu in () if snapshot is None else snapshot.gpus:
            if whose.setdefault(gpu.uuid, number) != number:
                raise SentenceError("Two of the recordings are of the same host: name one of each.")
        if fresh and (number in fresh or snapshot is None):
            sequence += 1
            now = max([latest[one].taken_at_unix_seconds for one in fresh])
            yield together(
                [
                    Machine(one, seen.host.name or f"host {one + 1}", seen, one in fresh)
                    for one, seen in sorted(latest.items())
                ],
                sequence=sequence,
                taken_at_unix_seconds=now,
                monotonic_seconds=now,
                interval_seconds=max([latest[one].interval_seconds for one in fresh]),
            )
            fresh = set()
        if snapshot is not None:
            latest[number] = snapshot
            fresh.add(number)


def _are_one(parts: Sequence[tuple[int, Job]]) -> bool:
    return are_one([(number, known_ranks(job)) for number, job in parts])


def _reading(gpu: Gpu, machine: Machine) -> GpuReading:
    if not machine.fresh:
        return GpuReading()
    samples, error = gpu.reading.busy_samples, machine.clock_error_seconds
    if not samples or not error:
        return gpu.reading
    moved = [one._replace(at_unix_seconds=one.at_unix_seconds - error) for one in samples]
    return replace(gpu.reading, busy_samples=tuple(moved))


def _moved(one: Of, number: int) -> Of:
    shift, parent = PIDS_OF_A_MACHINE * number, getattr(one, "parent_pid", None)
    moved: dict[str, Any] = {} if parent is None else {"parent_pid": parent + shift}
    return replace(one, pid=one.pid + shift, **moved) if shift else one


def _sums(of: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the sums of the fields that all of them report."""
    values = {name: [getattr(one, name) for one in of] for name in names}
    return {name: None if None in each else sum(each) for name, each in values.items()}


def _host(machines: Sequence[Machine]) -> Host:
    hosts = [one.snapshot.host if one.fresh else Host(name=one.name) for one in machines]
    cores = [one.core_count for one in hosts]
    percents = [one.cpu_percent for one in hosts]
    busy = None
    if None not in cores and None not in percents:
        used = sum((c or 0) * (p or 0.0) for c, p in zip(cores, percents, strict=True))
        busy = used / max(1, sum(c or 0 for c in cores))
    name = ", ".join([machine.name for machine in machines])
    return Host(name=name[:_NAME_LENGTH], cpu_percent=busy, **_sums(hosts, _SUMS))


def _part(job: Job, machine: Machine) -> Job:
    """Return the job with the machine's PIDs."""
    number, fresh = machine.number, machine.fresh
    members = [one if fresh else one.without_readings() for one in job.members]
    ended = job.ended_at_unix_seconds
    return replace(
        _moved(job, number),
        ranks=tuple([_moved(rank, number) for rank in job.ranks]),
        members=tuple([_moved(member, number) for member in members]),
        loops=tuple([_moved(loop, number) for loop in job.loops if fresh]),
        ended_at_unix_seconds=None if ended is None else ended - machine.clock_error_seconds,
    )


def _joined(parts: Sequence[tuple[int, Job]]) -> Job:
    jobs = [job for _, job in parts]
    ranks = [rank for job in jobs for rank in job.ranks]
    elsewhere = [job.behind_elsewhere for job in jobs if job.behind_elsewhere]
    ended = [job.ended_at_unix_seconds for job in jobs]
    # It has the name that it had before, whichever machine has the first of its ranks now.
    _, top = min(parts, key=lambda part: part[0])
    whole = len(ranks) >= (top.world_size or 0)
    return replace(
        top,
        attached=False,
        ranks=tuple(ranks),
        members=tuple([member for job in jobs for member in job.members]),
        loops=tuple([loop for job in jobs for loop in job.loops]),
        gpu_uuids=tuple([uuid for job in jobs for uuid in job.gpu_uuids]),
        # What is elsewhere for one machine is here, unless some machine is not watched.
        behind_elsewhere=elsewhere[0] if elsewhere and not whole else None,
        cpu_throttled_percent=highest([job.cpu_throttled_percent for job in jobs]),
        ended_at_unix_seconds=None if None in ended else highest(ended),
        main_thread_samples=None,
        loader_worker_samples=None,
        **_sums(jobs, _JOB_SUMS),
    )


# --- a job on several machines, as a tape -----------------------------------------------------

_LOOKS_PER_INTERVAL = 8
_WAITS_INTERVALS = 2.0
"""Intervals to wait for the slowest machine; after that, its readings are missing from the
snapshot."""


class Part(NamedTuple):
    """A job's part on one machine, whose ``number`` is the same each time."""

    number: int
    host: RemoteHost
    snapshot: Snapshot
    job: Job


def shared_jobs(hosts: Sequence[RemoteHost]) -> dict[JobKey, str]:
    """Return the jobs that run on several machines now, and what each is called on the first."""
    found: dict[JobKey, list[tuple[int, JobBrief]]] = {}
    for number, host in enumerate(hosts):
        brief = None if host.is_late else host.brief
        for job in () if brief is None else brief.jobs:
            found.setdefault(job.key, []).append((number, job))
    return {
        key: parts[0][1].called
        for key, parts in found.items()
        if are_one([(number, job.ranks) for number, job in parts])
    }


class SharedJob(RemoteTape):
    """A job on several machines: snapshots of all its parts as one, as they come in. It reads in
    full the machines that it runs on, and no others."""

    def __init__(self, name: str, key: JobKey, hosts: Sequence[RemoteHost]) -> None:
        super().__init__(name, max([host.interval_seconds for host in hosts]))
        self.key = key
        self._hosts = hosts
        self._parts: dict[int, Part] = {}
        """Last seen part of each machine, by its number."""

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
        """Largest difference of its machines' clocks; the time that snapshots took to come in is
        part of it."""
        ahead = [part.host.clock_ahead_seconds for part in [*self._parts.values()]]
        known = [each for each in ahead if each is not None]
        return max(known) - min(known) if len(known) > 1 else None

    def _snapshots(self) -> Generator[Snapshot, None, None]:
        """Yield a snapshot each time all machines have sent another, or the last of them is
        overdue."""
        try:
            yield from self._joined_snapshots()
        finally:
            self._read_in_brief()

    def _read_in_brief(self) -> None:
        for host in self._hosts:
            host.read_in_brief(self)

    def _joined_snapshots(self) -> Iterator[Snapshot]:
        sequence, since = 0, time.monotonic()
        while not self._closed.wait(self.interval_seconds / _LOOKS_PER_INTERVAL):
            for host in self._hosts:
                brief = host.brief
                if brief is not None and any(job.key == self.key for job in brief.jobs):
                    host.read_in_full(self)
            now, found = time.monotonic(), self._latest_parts()
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
            if over:
                self._read_in_brief()
            if not fresh or (late and not overdue) or over:
                continue
            self._parts |= {part.number: part for part in found if part.number in fresh}
            sequence, since = sequence + 1, now
            parts = sorted(self._parts.values(), key=_order)
            self.latest = together(
                [_machine_of(part, part.number in fresh) for part in parts],
                sequence=sequence,
                taken_at_unix_seconds=time.time(),
                monotonic_seconds=now,
                interval_seconds=self.interval_seconds,
            )
            yield self.latest

    def _latest_parts(self) -> list[Part]:
        """Return its parts by the latest snapshots; on a machine where it is gone, as one that
        ended."""
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
    """Return the place of a part: by the first of its ranks, also once it has ended."""
    ranks = [one.rank for one in part.job.members if one.rank is not None]
    return min(ranks, default=0), part.number


def _machine_of(part: Part, fresh: bool) -> Machine:
    """Return the machine of a part, with this job alone."""
    number, host, snapshot, job = part
    alone = only_job(replace(snapshot, jobs=(job,)), job.key)
    return Machine(number, host.name, alone, fresh, host.clock_error_seconds)


def _ended(job: Job, at_unix_seconds: float) -> Job:
    if job.ended_at_unix_seconds is not None:
        return job
    left = tuple([member.without_readings() for member in job.members])
    return replace(job, ranks=(), loops=(), members=left, ended_at_unix_seconds=at_unix_seconds)
