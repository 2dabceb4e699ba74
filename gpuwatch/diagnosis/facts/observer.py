"""From snapshots to windows: what the rules look at.

``Observer.push`` is called with every snapshot and only adds to sums; ``Observer.windows`` boils
them down, every few seconds. Everything it keeps is bounded by the number of GPUs, jobs and
processes there are.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from gpuwatch.core.history import GAP_INTERVALS
from gpuwatch.core.model import Gpu, GpuKey, Job, Process, ProcessKey, Snapshot
from gpuwatch.diagnosis.facts import watched_host, watched_job
from gpuwatch.diagnosis.facts.recovery import recovered
from gpuwatch.diagnosis.facts.startup import (
    LONGEST_SECONDS,
    TOLD_STEPS,
    WITHOUT_GPU_SECONDS,
    WORK_SECONDS,
    steady_from,
)
from gpuwatch.diagnosis.facts.watched_gpu import GpuTrack, Use
from gpuwatch.diagnosis.facts.watched_host import HostTrack
from gpuwatch.diagnosis.facts.watched_job import JobTrack
from gpuwatch.diagnosis.facts.window import GpuFacts, HostFacts, Pause, Window
from gpuwatch.diagnosis.signals.stretches import KEEP_SECONDS, Stretch

FORGOTTEN_SECONDS = 60.0
"""After the last snapshot it was in, a job or GPU begins anew."""
LEDGER_SECONDS = 960.0
"""Longer than a pause is kept for: what was written in the first one must still be known."""
LAG_SECONDS = 3.0
"""Jobs that nobody is attached to are read every three seconds: what they wrote is known later."""

FOLLOWED_JOBS_MAX = 16
"""Each job costs time and memory. Of more than so many (a machine of notebooks and small servers),
those that use GPUs most are followed, the attached one always."""
CHOSEN_SECONDS = 30.0
USE_SECONDS = 30.0
"""What counts is the use over about so long: of jobs whose GPUs swing, each is the busiest for a
moment."""

Stacks = tuple[tuple[str, float, str | None], ...]
SubjectKey = tuple[ProcessKey | None, tuple[GpuKey, ...]]
"""A job, or GPUs of which no job is known."""
_Track = tuple[GpuKey, ProcessKey | None]


class Observer:
    """Follows everything in the snapshots pushed; ``window_seconds`` is how far back means go."""

    def __init__(self, window_seconds: float = 60.0) -> None:
        self.window_seconds = window_seconds
        self._begin()

    def _begin(self) -> None:
        self._last: Snapshot | None = None
        self._jobs: dict[ProcessKey, JobTrack] = {}
        self._gpus: dict[_Track, GpuTrack] = {}
        self._host = HostTrack(self.window_seconds, LEDGER_SECONDS)
        self._looked_at: list[tuple[float, float]] = []
        self._forget_at = 0.0
        self._followed: frozenset[ProcessKey] | None = None
        self._chosen_at = -math.inf
        self._use: dict[ProcessKey, float] = {}

    def push(self, snapshot: Snapshot) -> None:
        """Take one snapshot; they come in the order of their monotonic time. One that is older
        than the one before is the beginning of another recording: all is forgotten."""
        before = self._last
        at = snapshot.monotonic_seconds
        if before is not None and at < before.monotonic_seconds:
            self._begin()
            before = None
        seconds = _spoken_for(snapshot, before)
        if seconds is None:
            return
        first_look = before is None
        self._last = snapshot
        self._host.push(snapshot.host, at, seconds)
        self._watched(at, seconds)
        self._choose(snapshot, at, seconds)
        users = self._push_jobs(snapshot, seconds, first_look=first_look)
        self._push_gpus(snapshot, seconds, users)
        if at >= self._forget_at:
            self._forget(at)

    def note_stacks(self, job: ProcessKey, stacks: Stacks) -> None:
        """What a stack sampler saw of this job (see ``JobFacts.stacks``), until told otherwise."""
        track = self._jobs.get(job)
        if track is not None:
            track.stacks = stacks

    def windows(self, without: Container[SubjectKey] = ()) -> tuple[Window, ...]:
        """One for every job of the newest snapshot, in its order, then one for every GPU that no
        running job uses; those of ``without`` are not made."""
        snapshot = self._last
        if snapshot is None:
            return ()
        now = snapshot.monotonic_seconds
        host = self._host.facts(now - self.window_seconds)
        made = []
        used: set[GpuKey] = set()
        for job in self._jobs_of(snapshot):
            if job.ended_at_unix_seconds is None:
                used.update(job.gpu_uuids)
            if (job.key, ()) not in without:
                made.append(self._job_window(snapshot, job, host))
        for gpu in snapshot.gpus:
            track = self._gpus.get((gpu.uuid, None))
            free = gpu.uuid not in used and (None, (gpu.uuid,)) not in without
            if free and track is not None:
                made.append(self._gpu_window(snapshot, track, host))
        return tuple(made)

    # Taking snapshots

    def _choose(self, snapshot: Snapshot, at: float, seconds: float) -> None:
        """Which jobs are followed, for the next half minute."""
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
            # Those that are followed keep their place against others that are about as busy.
            kept = 5.0 if job.key in before else 0.0
            return (
                job.attached,
                job.loader_workers is not None and job.loader_workers > 0,
                self._use[job.key] + kept,
            )

        ranked = sorted(snapshot.jobs, key=weight, reverse=True)
        self._followed = frozenset([job.key for job in ranked[:FOLLOWED_JOBS_MAX]])

    def _take_use(self, snapshot: Snapshot, share: float) -> None:
        """How much each job uses GPUs, as a mean in which the newest counts ``share``."""
        busy: dict[int, float] = {}
        for process in snapshot.processes:
            if process.gpu_uuid is not None and process.gpu_busy_percent is not None:
                busy[process.pid] = busy.get(process.pid, 0.0) + process.gpu_busy_percent
        before = self._use
        self._use = {}
        for job in snapshot.jobs:
            key = job.key
            used = sum([busy.get(member.pid, 0.0) for member in job.members])
            known = before.get(key, used)
            self._use[key] = known + share * (used - known)

    def _jobs_of(self, snapshot: Snapshot) -> Sequence[Job]:
        followed = self._followed
        if followed is None:
            return snapshot.jobs
        return [job for job in snapshot.jobs if job.key in followed]

    def _push_jobs(
        self, snapshot: Snapshot, seconds: float, *, first_look: bool
    ) -> dict[GpuKey, list[JobTrack]]:
        """Who uses which GPU."""
        at, unix = snapshot.monotonic_seconds, snapshot.taken_at_unix_seconds
        users: dict[GpuKey, list[JobTrack]] = {}
        for job in self._jobs_of(snapshot):
            key = job.key
            track = self._jobs.get(key)
            if track is None:
                track = self._jobs[key] = JobTrack(
                    job, at, unix, self.window_seconds, LEDGER_SECONDS, first_look=first_look
                )
            track.push(job, at, seconds, unix - at)
            if not track.ended:
                for uuid in dict.fromkeys(job.gpu_uuids):
                    users.setdefault(uuid, []).append(track)
        return users

    def _push_gpus(
        self, snapshot: Snapshot, seconds: float, users: dict[GpuKey, list[JobTrack]]
    ) -> None:
        at = snapshot.monotonic_seconds
        offset = snapshot.taken_at_unix_seconds - at
        on_gpu: dict[GpuKey, list[Process]] = {}
        for process in snapshot.processes:
            if process.gpu_uuid is not None:
                on_gpu.setdefault(process.gpu_uuid, []).append(process)
        readable = bool(snapshot.processes)
        for gpu in snapshot.gpus:
            there = on_gpu.get(gpu.uuid, [])
            for job in users.get(gpu.uuid, (None,)):
                track = self._gpu_track(gpu, job, at)
                if job is not None and job.is_stopped:
                    track.rest(gpu, at)
                    continue
                own = frozenset[int]() if job is None else job.pids
                track.push(gpu, at, seconds, offset, _use(there, own, readable=readable))

    def _gpu_track(self, gpu: Gpu, job: JobTrack | None, at: float) -> GpuTrack:
        key = (gpu.uuid, None if job is None else job.job.key)
        track = self._gpus.get(key)
        if track is None:
            # Without a job, what the driver remembers is of one that has ended.
            not_before = at if job is None else at - self.window_seconds
            if job is not None and job.began_at is not None:
                not_before = max(not_before, job.began_at)
            track = self._gpus[key] = GpuTrack(gpu, self.window_seconds, not_before)
        return track

    def _watched(self, at: float, seconds: float) -> None:
        looked = self._looked_at
        looked.append((at, seconds))
        if looked[0][0] <= at - 2 * self.window_seconds:
            self._looked_at = [one for one in looked if one[0] > at - self.window_seconds]

    def _forget(self, at: float) -> None:
        self._forget_at = at + FORGOTTEN_SECONDS / 2
        oldest = at - FORGOTTEN_SECONDS
        self._jobs = {key: one for key, one in self._jobs.items() if one.seen_at >= oldest}
        self._gpus = {
            key: one
            for key, one in self._gpus.items()
            # Those of an ended job are not fed any more, and still shown.
            if one.seen_at >= oldest or (key[1] is not None and key[1] in self._jobs)
        }

    # Making windows

    def _job_window(self, snapshot: Snapshot, job: Job, host: HostFacts) -> Window:
        track = self._jobs[job.key]
        gpus = [
            gpu
            # A recording may name one twice.
            for uuid in dict.fromkeys(job.gpu_uuids)
            if (gpu := self._gpus.get((uuid, job.key))) is not None
        ]
        now = snapshot.monotonic_seconds
        if track.ended:
            # As it was when it ended.
            now = max([gpu.seen_at for gpu in gpus], default=now)
        starting = not track.ended and self._starts(track, gpus, now)
        since = now - self.window_seconds
        if track.steady_at is not None:
            since = max(since, min(track.steady_at, now))
        seconds = self.window_seconds
        if not track.ended:
            # Without a GPU, by what it tells itself.
            track.note_fed(recovered([gpu.recovery for gpu in gpus] or track.recoveries))
        fed = track.fed_since
        if fed is not None and since < fed < now:
            since, seconds = fed, now - fed
        unix = snapshot.taken_at_unix_seconds
        gpu_facts = tuple([gpu.facts(since) for gpu in gpus])
        shapes = [(gpu, one.busy) for gpu, one in zip(gpus, gpu_facts, strict=True)]
        return Window(
            taken_at_unix_seconds=unix,
            seconds=seconds,
            watched_seconds=track.watched(since),
            interval_seconds=snapshot.interval_seconds,
            gpus=gpu_facts,
            job=track.facts(since, unix, shapes),
            host=host,
            starting=starting,
            pauses=self._pauses(snapshot, gpus, track),
            ongoing=() if track.ended else self._ongoing(snapshot, gpus, track),
            steady_seconds=0.0 if starting else self._steady_seconds(track, now),
        )

    def _gpu_window(self, snapshot: Snapshot, track: GpuTrack, host: HostFacts) -> Window:
        now = snapshot.monotonic_seconds
        seconds = self.window_seconds
        fed = track.recovery.at
        if fed is not None and now - seconds < fed < now:
            seconds = now - fed
        since = now - seconds
        watched = sum([seconds for at, seconds in self._looked_at if at > since])
        facts: tuple[GpuFacts, ...] = (track.facts(since),)
        return Window(
            taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
            seconds=seconds,
            watched_seconds=watched,
            interval_seconds=snapshot.interval_seconds,
            gpus=facts,
            host=host,
            pauses=self._pauses(snapshot, [track], None),
            ongoing=self._ongoing(snapshot, [track], None),
            steady_seconds=watched,
        )

    def _starts(self, track: JobTrack, gpus: Sequence[GpuTrack], now: float) -> bool:
        """Whether the job is still in its start-up; if it just came out, what was before is left
        out from now on."""
        if track.steady_at is not None:
            return False
        age = now - track.starts_at
        if age > (LONGEST_SECONDS if gpus else WITHOUT_GPU_SECONDS):
            track.settle(now)
            return False
        told = track.steps_since
        if not gpus and told is not None and now - told >= WORK_SECONDS:
            track.settle(told)
            return False
        found = []
        for gpu in gpus:
            series = list(gpu.series)
            if len(series) > 2:
                step = watched_job.usual_step(series)
                found.append(steady_from(series, step))
        known = [since for since in found if since is not None]
        if known:
            since = min(known)
        elif told is not None and track.steps_told >= TOLD_STEPS and now - told >= WORK_SECONDS:
            since = now - WORK_SECONDS
        else:
            return True
        track.settle(since)
        for gpu in gpus:
            gpu.memory.forget_before(since)
        return False

    def _steady_seconds(self, track: JobTrack, now: float) -> float:
        if track.steady_at is None:
            return 0.0
        return min(track.watched_seconds, max(0.0, now - track.steady_at))

    def _pauses(
        self, snapshot: Snapshot, gpus: Sequence[GpuTrack], job: JobTrack | None
    ) -> tuple[Pause, ...]:
        offset = snapshot.taken_at_unix_seconds - snapshot.monotonic_seconds
        oldest = snapshot.monotonic_seconds - KEEP_SECONDS
        if job is not None and job.steady_at is not None:
            oldest = max(oldest, job.steady_at)
        if job is not None and not gpus:
            return tuple([self._made_pause(*one, offset, job) for one in job.phases.pauses(oldest)])
        found = [
            (pause, gpu.identity.uuid)
            for gpu in gpus
            for pause in gpu.pauses.found
            if pause.end > oldest
        ]
        if not found:
            return ()
        found.sort(key=lambda one: one[0].begin)
        groups: list[list[tuple[Stretch, GpuKey]]] = []
        for one in found:
            if groups and one[0].begin < max([other.end for other, _ in groups[-1]]):
                groups[-1].append(one)
            else:
                groups.append([one])
        return tuple([self._pause(group, offset, job) for group in groups])

    def _ongoing(
        self, snapshot: Snapshot, gpus: Sequence[GpuTrack], job: JobTrack | None
    ) -> tuple[Pause, ...]:
        now = snapshot.monotonic_seconds
        offset = snapshot.taken_at_unix_seconds - now
        steady = -math.inf if job is None or job.steady_at is None else job.steady_at
        # Nobody knows whether what a silent driver told last goes on.
        found = [
            (gpu.pauses.open(now if gpu.read_at is None else gpu.read_at), gpu.identity.uuid)
            for gpu in gpus
        ]
        return tuple(
            [
                self._pause([(one, uuid)], offset, job)
                for one, uuid in found
                if one is not None and one.end > steady
            ]
        )

    def _pause(
        self, group: list[tuple[Stretch, GpuKey]], offset: float, job: JobTrack | None
    ) -> Pause:
        return self._made_pause(
            min([one.begin for one, _ in group]),
            max([one.end for one, _ in group]),
            offset,
            job,
            busy_percent=sum([one.busy_percent for one, _ in group]) / len(group),
            gpus=tuple(dict.fromkeys([uuid for _, uuid in group])),
        )

    def _made_pause(
        self,
        begin: float,
        end: float,
        offset: float,
        job: JobTrack | None,
        *,
        busy_percent: float | None = None,
        gpus: tuple[GpuKey, ...] = (),
    ) -> Pause:
        wrote = read = None
        if job is not None:
            later = end if job.job.attached else end + LAG_SECONDS
            wrote = job.ledger.between(watched_job.WRITTEN, begin, later)
            read = job.ledger.between(watched_job.READ, begin, later)
        ledger = self._host.ledger
        if wrote is None:
            wrote = ledger.between(watched_host.WRITTEN, begin, end)
        if read is None:
            read = ledger.between(watched_host.READ, begin, end)
        cpu = ledger.between(watched_host.CPU, begin, end)
        return Pause(
            at_unix_seconds=begin + offset,
            seconds=end - begin,
            busy_percent=busy_percent,
            gpus=gpus,
            wrote_bytes=wrote,
            read_bytes=read,
            host_cpu_percent=None if cpu is None else cpu / (end - begin),
            phase=None if job is None else job.phases.between(begin, end),
        )


def _spoken_for(snapshot: Snapshot, before: Snapshot | None) -> float | None:
    """The seconds a snapshot's readings are for; ``None``: no time has passed."""
    interval = max(snapshot.interval_seconds, 1e-3)
    if before is None:
        return interval
    passed = snapshot.monotonic_seconds - before.monotonic_seconds
    if passed <= 0.0:
        return None
    return passed if passed <= GAP_INTERVALS * interval else interval


def _use(there: Sequence[Process], own: frozenset[int], *, readable: bool) -> Use:
    """``there``: the processes on a GPU; ``own``: PIDs of the job the question is about."""
    if not there:
        return (0.0, 0.0, 0.0, 0.0) if readable else (None, None, None, None)
    if len(there) == 1 and there[0].pid in own:
        memory = there[0].gpu_memory_bytes
        return (there[0].gpu_busy_percent, None if memory is None else float(memory), 0.0, 0.0)
    mine = [process for process in there if process.pid in own]
    others = [process for process in there if process.pid not in own]
    return (
        _added([process.gpu_busy_percent for process in mine]),
        _added([process.gpu_memory_bytes for process in mine]),
        _added([process.gpu_busy_percent for process in others]),
        _added([process.gpu_memory_bytes for process in others]),
    )


def _added(values: Sequence[float | None]) -> float | None:
    """0 of nobody; ``None`` where nothing is known of those that are there."""
    if not values:
        return 0.0
    known = [value for value in values if value is not None]
    return float(sum(known)) if known else None
