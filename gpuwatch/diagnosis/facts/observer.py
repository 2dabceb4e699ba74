"""From snapshots to windows: what the rules look at.

``Observer.push`` is called with every snapshot and only adds to sums; ``Observer.windows`` boils
them down, every few seconds. Everything it keeps is bounded by the number of GPUs, jobs and
processes there are.
"""

from collections.abc import Container, Sequence

from gpuwatch.core.history import GAP_INTERVALS
from gpuwatch.core.model import Gpu, GpuKey, Job, Process, ProcessKey, Snapshot
from gpuwatch.diagnosis.facts import startup
from gpuwatch.diagnosis.facts.against import usual_step
from gpuwatch.diagnosis.facts.averages import WINDOW_SECONDS
from gpuwatch.diagnosis.facts.choosing import MOVES_SECONDS, Choice, Groups
from gpuwatch.diagnosis.facts.pauses import Pauses
from gpuwatch.diagnosis.facts.recovery import recovered
from gpuwatch.diagnosis.facts.watched_gpu import GpuTrack
from gpuwatch.diagnosis.facts.watched_host import HostTrack
from gpuwatch.diagnosis.facts.watched_job import LAG_SECONDS, LATELY_SECONDS, JobTrack
from gpuwatch.diagnosis.facts.window import GpuFacts, HostFacts, Window
from gpuwatch.diagnosis.signals.load import agreement

FORGOTTEN_SECONDS = 60.0
"""After the last snapshot it was in, a job or GPU begins anew."""

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
        self._gpus: dict[tuple[GpuKey, ProcessKey | None], GpuTrack] = {}
        self._host = HostTrack()
        self._choice = Choice()
        self._groups = Groups()
        self._looked_at: list[tuple[float, float]] = []
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
        self._looked_at.append((at, seconds))
        if self._looked_at[0][0] <= at - 2 * WINDOW_SECONDS:
            since = at - WINDOW_SECONDS
            self._looked_at = [one for one in self._looked_at if one[0] > since]
        self._choice.push(snapshot, at, seconds)
        users = self._push_jobs(snapshot, seconds, first_look=before is None)
        self._push_gpus(snapshot, seconds, users)
        free = [self._gpus.get((gpu.uuid, None)) for gpu in snapshot.gpus if gpu.uuid not in users]
        self._groups.push([gpu for gpu in free if gpu is not None], at)
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
            tracks = [one for uuid in group if (one := self._gpus.get((uuid, None))) is not None]
            if tracks and (None, group) not in without:
                made.append(self._gpu_window(snapshot, tracks, host))
        return tuple(made)

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
        at = snapshot.monotonic_seconds
        offset = snapshot.taken_at_unix_seconds - at
        on_gpu: dict[GpuKey, list[Process]] = {}
        for process in snapshot.processes:
            if process.gpu_uuid is not None:
                on_gpu.setdefault(process.gpu_uuid, []).append(process)
        listed = snapshot.host.core_count is not None and all(
            problem.reading != "processes" for problem in snapshot.problems
        )
        for gpu in snapshot.gpus:
            there = on_gpu.get(gpu.uuid, [])
            for job in users.get(gpu.uuid, (None,)):
                track = self._gpu_track(gpu, job, at)
                if job is not None and job.is_stopped:
                    track.rest(gpu, at)
                    continue
                mine: list[Process] | None = None
                others: list[Process] | None = None
                if snapshot.processes:
                    own = frozenset[int]() if job is None else job.pids
                    mine = [process for process in there if process.pid in own]
                    others = [process for process in there if process.pid not in own]
                elif job is None and listed:
                    others = []
                track.push(gpu, at, seconds, offset, mine, others)

    def _gpu_track(self, gpu: Gpu, job: JobTrack | None, at: float) -> GpuTrack:
        key = (gpu.uuid, None if job is None else job.job.key)
        track = self._gpus.get(key)
        if track is None:
            # Without a job, what the driver remembers is of one that has ended.
            not_before = at if job is None else at - WINDOW_SECONDS
            if job is not None and job.began_at is not None:
                not_before = max(not_before, job.began_at)
            track = self._gpus[key] = GpuTrack(gpu, not_before)
        return track

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
        starting = not track.ended and _is_starting(track, gpus, now)
        seconds = WINDOW_SECONDS
        since = now - seconds
        if track.steady_at is not None:
            since = max(since, min(track.steady_at, now))
        if not track.ended:
            # Without a GPU, by what it reports itself.
            fed = recovered([gpu.recovery for gpu in gpus] or track.recoveries)
            track.fed_since = track.fed_since if fed is None else fed
        if track.fed_since is not None and since < track.fed_since < now:
            since, seconds = track.fed_since, now - track.fed_since
        facts = tuple([gpu.facts(since) for gpu in gpus])
        shapes = [(gpu, one.busy) for gpu, one in zip(gpus, facts, strict=True)]
        pauses = Pauses(snapshot, gpus, track, self._host)
        busy, power = _together(gpus, since)
        return Window(
            taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
            seconds=seconds,
            watched_seconds=track.watched(since),
            interval_seconds=snapshot.interval_seconds,
            gpus=facts,
            job=track.facts(since, shapes),
            host=host,
            starting=starting,
            pauses=pauses.over(),
            ongoing=() if track.ended else pauses.ongoing(),
            steady_seconds=0.0 if starting else track.steady_seconds(now),
            unused=() if gpus or track.ended else self._unused(snapshot),
            busy_together=busy,
            power_together=power,
        )

    def _unused(self, snapshot: Snapshot) -> tuple[GpuFacts, ...]:
        now = snapshot.monotonic_seconds
        tracks = [self._gpus.get((gpu.uuid, None)) for gpu in snapshot.gpus]
        here = [one for one in tracks if one is not None and one.seen_at == now]
        return tuple([one.facts(now - WINDOW_SECONDS) for one in here])

    def _gpu_window(self, snapshot: Snapshot, gpus: list[GpuTrack], host: HostFacts) -> Window:
        now, seconds = snapshot.monotonic_seconds, WINDOW_SECONDS
        fed = recovered([gpu.recovery for gpu in gpus])
        if fed is not None and now - seconds < fed < now:
            seconds = now - fed
        watched = sum([length for at, length in self._looked_at if at > now - seconds])
        pauses = Pauses(snapshot, gpus, None, self._host)
        busy, power = _together(gpus, now - MOVES_SECONDS)
        return Window(
            taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
            seconds=seconds,
            watched_seconds=watched,
            interval_seconds=snapshot.interval_seconds,
            gpus=tuple([gpu.facts(now - seconds) for gpu in gpus]),
            host=host,
            pauses=pauses.over(),
            gathered_seconds=max([gpu.watched_seconds for gpu in gpus]),
            ongoing=pauses.ongoing(),
            steady_seconds=watched,
            busy_together=busy,
            power_together=power,
        )


def _together(gpus: Sequence[GpuTrack], since: float) -> tuple[float | None, float | None]:
    cells = [gpu.load.after(since) for gpu in gpus] if len(gpus) > 1 else []
    return agreement(cells, 0), agreement(cells, 1)


def _is_starting(job: JobTrack, gpus: Sequence[GpuTrack], now: float) -> bool:
    """Check whether the job is still in its start-up; if it just came out, what was before is left
    out from now on."""
    if gpus and job.bare_since is not None and now - job.bare_since >= startup.WORK_SECONDS:
        # What it did before it took a GPU was preparation.
        job.starts_at, job.steady_at, job.bare_since = now, None, None
    if job.steady_at is not None:
        return False
    if job.job.serves is not None:
        # A server listens when it has loaded what it serves.
        job.settle(now)
        return False
    if _is_too_old(job, gpus, now):
        job.settle(job.starting_until)
        job.bare_since = None if gpus else now
        return False
    since = _steps_from(job, gpus, now)
    if since is None:
        job.starting_until = now
        return True
    job.settle(since)
    for gpu in gpus:
        gpu.memory.forget_before(since)
    return False


def _steps_from(job: JobTrack, gpus: Sequence[GpuTrack], now: float) -> float | None:
    reported = job.steps_since
    if reported is not None and now - reported >= startup.WORK_SECONDS:
        if not gpus:
            return reported
        if job.steps_reported >= startup.REPORTED_STEPS:
            return now - startup.WORK_SECONDS
    if now - job.compiled_at < startup.COMPILED_SECONDS:
        # What compilers try out on the GPU can have a rhythm as well.
        return None
    grew = [gpu.memory.rose_at for gpu in gpus if gpu.memory.grown() > startup.GROWS]
    job.prepared_at = after = max(job.prepared_at, job.compiled_at, *grew)
    loads = job.ledger.mean("busiest", now - LATELY_SECONDS, now)
    delivers = (loads or 0.0) >= startup.LOADS_PERCENT
    found: list[float | None] = []
    for gpu in gpus:
        samples = [one for one in gpu.series if one[0] > after]
        if len(samples) <= 2:
            continue
        step = usual_step(samples)
        found.append(startup.steps_from(samples, step, delivers=delivers))
        # Work before these workers came was none of theirs: a sanity check, a warm-up.
        theirs = [one for one in samples if one[0] - step > job.workers_since()]
        fed = startup.burst(theirs, step)
        if fed is not None and _waits_for_batch(job, fed[1], now):
            found.append(fed[0])
    return min([since for since in found if since is not None], default=None)


def _waits_for_batch(job: JobTrack, since: float, now: float) -> bool:
    """Check whether its main threads slept since then, and a loader worker did not."""
    since = min(now - 1.0, since + (0.0 if job.job.attached else LAG_SECONDS))
    main, busiest = [job.ledger.mean(name, since, now) for name in ("main", "busiest")]
    sleeps = main is not None and main <= startup.SLEEPS_PERCENT
    return sleeps and (busiest or 0.0) >= startup.LOADS_PERCENT


def _is_too_old(job: JobTrack, gpus: Sequence[GpuTrack], now: float) -> bool:
    """Check whether it has had its time to start, and nothing shows that it still does."""
    age = now - job.starts_at
    if not gpus or age <= startup.LONGEST_SECONDS:
        return age > (startup.LONGEST_SECONDS if gpus else startup.WITHOUT_GPU_SECONDS)
    compiles = now - job.compiled_at < startup.COMPILED_SECONDS
    cores = job.cores_lately(now)
    works = cores is None or cores >= startup.WORKING_CORES
    silent = all(startup.is_silent(gpu.series) for gpu in gpus)
    return age > startup.LONGEST_WORK_SECONDS or not (compiles or (works and silent))


def spoken_for(snapshot: Snapshot, before: float | None) -> float:
    """The seconds a snapshot's readings are for, ``before`` being the monotonic time of the one
    before; a snapshot after a gap speaks for one interval only. 0: no time has passed."""
    interval = max(snapshot.interval_seconds, 1e-3)
    passed = interval if before is None else snapshot.monotonic_seconds - before
    return passed if passed <= GAP_INTERVALS * interval else interval
