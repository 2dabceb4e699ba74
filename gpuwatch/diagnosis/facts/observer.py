"""From snapshots to windows: what the rules look at.

``Observer.push`` is called with every snapshot and only adds to sums; ``Observer.windows`` boils
them down, every few seconds. Everything it keeps is bounded by the number of GPUs, jobs and
processes there are.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import replace

from gpuwatch.core.model import Gpu, GpuKey, Job, Process, ProcessKey, Snapshot
from gpuwatch.core.store import spoken_for
from gpuwatch.diagnosis.facts.averages import WINDOW_SECONDS
from gpuwatch.diagnosis.facts.choosing import MOVES_SECONDS, Choice, Groups
from gpuwatch.diagnosis.facts.pauses import Pauses
from gpuwatch.diagnosis.facts.recovery import recovered
from gpuwatch.diagnosis.facts.watched_gpu import GpuTrack, GpuUse
from gpuwatch.diagnosis.facts.watched_host import HostTrack
from gpuwatch.diagnosis.facts.watched_job import JobTrack, is_starting
from gpuwatch.diagnosis.facts.window import GpuFacts, HostFacts, Window, WorkerFacts
from gpuwatch.diagnosis.signals.load import Exchange, agreement, exchange

FORGOTTEN_SECONDS = 60.0
"""After the last snapshot it was in, a job or GPU begins anew."""
MOVED_PERCENT = 10.0
"""Of ten seconds against a minute: in so few, a swing of seconds is cut anywhere."""
GROWS_ERRORS = 3.0
"""A slope of so many of its errors: rules ask for four."""

Stacks = tuple[tuple[str, float, str | None], ...]
SubjectKey = tuple[ProcessKey | None, tuple[GpuKey, ...]]
"""A job, or GPUs of which no job is known."""


class Observer:
    """Follows everything in the snapshots pushed."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._last: Snapshot | None = None
        self._jobs: dict[ProcessKey, JobTrack] = {}
        self._gpus: dict[tuple[GpuKey, ProcessKey | None], GpuUse] = {}
        self._host = HostTrack()
        self._choice = Choice()
        self._groups = Groups()
        self._forget_at = 0.0

    def push(self, snapshot: Snapshot) -> None:
        """Take one snapshot; they come in the order of their monotonic time. One that is older
        than the one before is the beginning of another recording: all is forgotten."""
        before = self._last
        at = snapshot.monotonic_seconds
        if before is not None and at < before.monotonic_seconds:
            self._begin()
            before = None
        seconds = spoken_for(snapshot, None if before is None else before.monotonic_seconds)
        if seconds <= 0.0:
            return
        self._last = snapshot
        self._host.push(snapshot.host, at, seconds)
        self._choice.push(snapshot, at, seconds)
        users = self._push_jobs(snapshot, seconds, first_look=before is None)
        self._push_gpus(snapshot, seconds, users)
        free = [self._gpus.get((gpu.uuid, None)) for gpu in snapshot.gpus if gpu.uuid not in users]
        self._groups.push([use.track for use in free if use is not None], at)
        if at >= self._forget_at:
            self._forget(at)

    def note_stacks(self, job: ProcessKey, stacks: Stacks) -> None:
        """Take what a stack sampler saw of this job (see ``JobFacts.stacks``), for now."""
        track = self._jobs.get(job)
        if track is not None:
            track.stacks = stacks

    def windows(self, without: Container[SubjectKey] = ()) -> tuple[Window, ...]:
        """One for every job of the newest snapshot, in its order, and one for every GPU, or group
        of GPUs, that no running job uses; those of ``without`` are not made."""
        snapshot = self._last
        if snapshot is None:
            return ()
        host = self._host.facts(snapshot.monotonic_seconds - WINDOW_SECONDS)
        made = []
        used: set[GpuKey] = set()
        for job in self._choice.of(snapshot):
            if job.ended_at_unix_seconds is None:
                used.update(job.gpu_uuids)
            if (job.key, ()) not in without:
                made.append(self._job_window(snapshot, job, host))
        for gpu in snapshot.gpus:
            if gpu.uuid in used:
                continue
            group = next((one for one in self._groups.found if gpu.uuid in one), (gpu.uuid,))
            used.update(group)
            uses = [one for uuid in group if (one := self._gpus.get((uuid, None))) is not None]
            if uses and (None, group) not in without:
                now = snapshot.monotonic_seconds
                made.append(self._window(snapshot, uses, host, None, now))
        return tuple(made)

    def has_moved(self, window: Window) -> bool:
        """Check whether its GPUs do more or less than in the window, or may; or memory grows."""
        job = None if window.job is None else window.job.key
        uses = [self._gpus.get((gpu.uuid, job)) for gpu in window.gpus]
        now = [None if use is None else use.track.recovery.lately() for use in uses]
        return (
            not now
            or _grows(window)
            or any(
                level is None or abs(level - 100.0 * (1.0 - gpu.idle_share)) > MOVED_PERCENT
                for level, gpu in zip(now, window.gpus, strict=True)
            )
        )

    @property
    def groups(self) -> tuple[tuple[GpuKey, ...], ...]:
        """GPUs without a known job that are judged together."""
        return self._groups.found

    def _push_jobs(
        self, snapshot: Snapshot, seconds: float, *, first_look: bool
    ) -> dict[GpuKey, list[JobTrack]]:
        """Users of each GPU."""
        at, unix = snapshot.monotonic_seconds, snapshot.taken_at_unix_seconds
        users: dict[GpuKey, list[JobTrack]] = {}
        for job in self._choice.of(snapshot):
            key = job.key
            track = self._jobs.get(key)
            if track is None:
                track = self._jobs[key] = JobTrack(job, at, unix, first_look=first_look)
            track.push(job, at, seconds, unix - at)
            if not track.ended:
                for uuid in dict.fromkeys(job.gpu_uuids):
                    users.setdefault(uuid, []).append(track)
        return users

    def _push_gpus(
        self, snapshot: Snapshot, seconds: float, users: dict[GpuKey, list[JobTrack]]
    ) -> None:
        at, unix = snapshot.monotonic_seconds, snapshot.taken_at_unix_seconds
        on_gpu: dict[GpuKey, list[Process]] = {}
        for process in snapshot.processes:
            if process.gpu_uuid is not None:
                on_gpu.setdefault(process.gpu_uuid, []).append(process)
        unlisted = {one.target for one in snapshot.problems if one.reading == "processes"}
        listed = snapshot.host.core_count is not None and not unlisted
        new: dict[tuple[GpuKey, float], GpuTrack] = {}
        used = [
            (gpu, job, self._use(gpu, job, at, unix - at, new))
            for gpu in snapshot.gpus
            for job in users.get(gpu.uuid, (None,))
        ]
        fed = {use for _, job, use in used if job is None or not job.is_stopped}
        for use in self._gpus.values():
            if use not in fed:
                use.part()
        for gpu, job, use in used:
            rests = use not in fed
            if use.track.seen_at != at:
                use.track.push(gpu, at, seconds, unix - at, rests=rests)
            if gpu.lost or rests or not use.push(gpu.reading, at, seconds):
                continue
            mine: list[Process] | None = None
            others: list[Process] | None = None
            if snapshot.processes and gpu.uuid not in unlisted:
                there = on_gpu.get(gpu.uuid, [])
                own = frozenset[int]() if job is None else job.pids
                mine = [process for process in there if process.pid in own]
                others = [process for process in there if process.pid not in own]
            elif job is None and listed:
                others = []
            use.see(at, mine, others)

    def _use(
        self,
        gpu: Gpu,
        job: JobTrack | None,
        at: float,
        offset: float,
        new: dict[tuple[GpuKey, float], GpuTrack],
    ) -> GpuUse:
        """One that begins shares the track with those ``new`` ones of which the driver remembers
        the same."""
        key = (gpu.uuid, None if job is None else job.job.key)
        use = self._gpus.get(key)
        if use is None:
            # Without a job, what the driver remembers is of one that has ended.
            since = at if job is None else at - WINDOW_SECONDS
            if job is not None and job.began_at is not None:
                since = max(since, job.began_at)
            stamps = [stamp - offset for stamp, _ in gpu.reading.busy_samples or ()]
            first = min([one for one in stamps if one > since], default=since)
            track = new.setdefault((gpu.uuid, first), GpuTrack(gpu, since))
            use = self._gpus[key] = GpuUse(track)
        return use

    def _forget(self, at: float) -> None:
        self._forget_at = at + FORGOTTEN_SECONDS / 2
        oldest = at - FORGOTTEN_SECONDS
        self._jobs = {key: one for key, one in self._jobs.items() if one.seen_at >= oldest}
        self._gpus = {
            key: one
            for key, one in self._gpus.items()
            # Those of an ended job are not fed any more, and still shown.
            if one.track.seen_at >= oldest or (key[1] is not None and key[1] in self._jobs)
        }

    def _job_window(self, snapshot: Snapshot, job: Job, host: HostFacts) -> Window:
        track = self._jobs[job.key]
        track.catch_up()
        uses = [
            use
            # A recording may name one twice.
            for uuid in dict.fromkeys(job.gpu_uuids)
            if (use := self._gpus.get((uuid, job.key))) is not None
        ]
        now = snapshot.monotonic_seconds
        if track.ended:
            # As it was when it ended.
            now = max([use.track.seen_at for use in uses], default=now)
        made = self._window(snapshot, uses, host, track, now)
        return made if uses or track.ended else replace(made, unused=self._unused(snapshot))

    def _as_of_job(
        self, host: HostFacts, job: JobTrack, uses: Sequence[GpuUse], now: float
    ) -> HostFacts:
        """The machine, with the growth of its memory since the job works: what was loaded before
        is none."""
        since = max([job.steady_at or -math.inf, *[use.grows_since for use in uses]])
        slope, error = self._host.memory.slope(since) or (None, None)
        return replace(
            host,
            memory_slope_bytes_per_second=slope,
            memory_slope_error_bytes_per_second=error,
            memory_trend_seconds=min(host.memory_trend_seconds or 0.0, max(0.0, now - since)),
        )

    def _unused(self, snapshot: Snapshot) -> tuple[GpuFacts, ...]:
        now = snapshot.monotonic_seconds
        uses = [self._gpus.get((gpu.uuid, None)) for gpu in snapshot.gpus]
        here = [one for one in uses if one is not None and one.track.seen_at == now]
        return tuple([one.facts(now - WINDOW_SECONDS) for one in here])

    def _window(
        self,
        snapshot: Snapshot,
        uses: Sequence[GpuUse],
        host: HostFacts,
        job: JobTrack | None,
        now: float,
    ) -> Window:
        gpus = [use.track for use in uses]
        seconds, since, compared = WINDOW_SECONDS, now - WINDOW_SECONDS, now - MOVES_SECONDS
        # Without a GPU, by what it reports itself.
        fed = recovered([gpu.recovery for gpu in gpus] or (job.recoveries if job else []))
        starting = ended = False
        if job is not None:
            ended = job.ended
            starting = not ended and is_starting(job, uses, now)
            if job.steady_at is not None:
                since = max(since, min(job.steady_at, now))
            if fed is not None and not ended:
                job.fed_since = fed
            fed = job.fed_since
        if fed is not None and since < fed < now:
            since, seconds = fed, now - fed
        watched = self._host.table.seconds_since(since)
        steady, facts = watched, tuple([use.facts(since) for use in uses])
        about = None
        if job is not None:
            host = self._as_of_job(host, job, uses, now)
            compared, watched = since, job.watched(since)
            steady = 0.0 if starting else job.steady_seconds(now)
            about = job.facts(since, list(zip(gpus, [one.busy for one in facts], strict=True)))
        pauses = Pauses(snapshot, gpus, job, self._host)
        loads = [gpu.load for gpu in gpus]
        busy, power = agreement(loads, compared)
        against = Exchange()
        if job is not None and len(loads) > 1:
            longer = max(job.steady_at or -math.inf, now - MOVES_SECONDS)
            against = exchange(loads, self._host.sent(longer), longer)
        return Window(
            taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
            seconds=seconds,
            watched_seconds=watched,
            interval_seconds=snapshot.interval_seconds,
            gpus=facts,
            job=about,
            host=host,
            starting=starting,
            pauses=pauses.over(),
            gathered_seconds=0.0 if job else max([gpu.watched_seconds for gpu in gpus]),
            ongoing=() if ended else pauses.ongoing(),
            steady_seconds=steady,
            busy_together=busy,
            power_together=power,
            exchange=against,
        )


def _grows(window: Window) -> bool:
    those: list[HostFacts | GpuFacts | WorkerFacts | None] = [window.host, *window.gpus]
    those += [] if window.job is None else [window.job.workers, window.job.own_workers]
    return any(
        (one.memory_slope_bytes_per_second or 0.0)
        > GROWS_ERRORS * (one.memory_slope_error_bytes_per_second or 0.0)
        for one in those
        if one is not None
    )
