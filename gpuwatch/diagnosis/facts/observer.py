"""Observer: makes of snapshots the windows that rules look at.

``Observer.push`` is called with every snapshot and only adds rows to tables; ``Observer.windows``
asks them, every few seconds. Everything it keeps is bounded by the number of GPUs, jobs and
processes there are.
"""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from gpuwatch.core.bounds import highest, lowest
from gpuwatch.core.model import Gpu, GpuKey, Host, Job, Process, ProcessKey, RdmaPort, Snapshot
from gpuwatch.core.store import Table, spoken_for
from gpuwatch.diagnosis.facts.counters import Counters
from gpuwatch.diagnosis.facts.gpu import GpuTrack, JobOnGpu
from gpuwatch.diagnosis.facts.job import (
    BUSIEST,
    COMPILES,
    LAG_SECONDS,
    MAIN,
    OTHERS,
    SENT,
    WRITTEN,
    JobTrack,
    Restart,
    is_starting,
)
from gpuwatch.diagnosis.facts.window import (
    PAST_SECONDS,
    FactTable,
    GpuFacts,
    HostFacts,
    PortFacts,
    Window,
    WorkerFacts,
)
from gpuwatch.diagnosis.finding import SAVE_BYTES, WINDOW_SECONDS, Pause
from gpuwatch.diagnosis.signals.load import Exchange, Pieces, agreement, exchange, pieces_of
from gpuwatch.diagnosis.signals.stretches import KEEP_SECONDS, Stretch, recovered
from gpuwatch.diagnosis.signals.trend import Trend

# --- the machine around the jobs --------------------------------------------------------------

_port_errors = attrgetter(
    "link_downed_count", "link_recovery_count", "receive_error_count", "symbol_error_count"
)
_WRITTEN, _SENT, _SWAP = "written", "network_transmit_bytes_per_second", "swap_used_bytes"


class PortTrack:
    """An InfiniBand or RoCE port since watching began."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._was_active = False
        self._port: RdmaPort | None = None

    def add_port(self, at: float, port: RdmaPort) -> None:
        """Take the port as it is in a snapshot."""
        self._counters.add_counts(at, _port_errors(port))
        self._was_active = self._was_active or port.state == "active"
        self._port = port

    def facts(self) -> PortFacts:
        """Return what is new."""
        port = self._port
        assert port is not None
        downed, recovered, received, symbols = self._counters.rises()
        layer = "RoCE" if port.link_layer == "Ethernet" else "InfiniBand"
        return PortFacts(
            device=port.device,
            name=f"{layer} port {port.device}/{port.port}",
            is_active=port.state in ("active", None),
            was_active=self._was_active,
            link_downed_new=downed,
            link_recovery_new=recovered,
            receive_errors_new=received,
            symbol_errors_new=symbols,
        )


class HostTrack:
    """The machine's readings over the last minutes."""

    def __init__(self) -> None:
        self.table = FactTable(HostFacts, (_WRITTEN, _SWAP), keep_seconds=PAST_SECONDS)
        self.memory = Trend()
        self._last = Host(name="")
        self._ports: dict[tuple[str, int], PortTrack] = {}

    def push(self, host: Host, at: float, seconds: float) -> None:
        """Take the machine's readings of a snapshot."""
        self.table.observe(
            at,
            seconds,
            host,
            {_WRITTEN: host.disk_write_bytes_per_second, _SWAP: host.swap_used_bytes},
        )
        self.memory.add(at, host.memory_used_bytes)
        self._last = host
        ports = {(port.device, port.port): port for port in host.rdma_ports or ()}
        self._ports = {key: self._ports.get(key) or PortTrack() for key in ports}
        for key, port in ports.items():
            self._ports[key].add_port(at, port)

    def written_bytes(self, begin: float, end: float) -> float | None:
        """Return what was written to disks between the two moments."""
        return self.table.total(_WRITTEN, begin, end)

    def sent_bytes(self, begin: float, end: float) -> float | None:
        """Return what was sent over the network between the two moments."""
        return self.table.total(_SENT, begin, end)

    def sent(self, since: float) -> Pieces:
        """Return what was sent a second, piece by piece of time."""
        return pieces_of(self.table, (_SENT,), since)

    def facts(self, since: float) -> HostFacts:
        """Return the facts over the time after ``since``."""
        host = self._last
        slope, slope_error = self.memory.slope() or (None, None)
        _, (swap,) = self.table.readings_since(since, (_SWAP,))
        first = next((used for used in swap if not math.isnan(used)), None)
        known = first is not None and host.swap_used_bytes is not None
        return HostFacts(
            **self.table.facts(since),
            core_count=host.core_count,
            network_mounts=host.network_mounts,
            ports=tuple([one.facts() for one in self._ports.values()]) if self._ports else None,
            cpu_governor=host.cpu_governor,
            memory_total_bytes=host.memory_total_bytes,
            memory_slope_bytes_per_second=slope,
            memory_slope_error_bytes_per_second=slope_error,
            memory_trend_seconds=self.memory.seconds,
            swap_growth_bytes=(host.swap_used_bytes or 0) - (first or 0.0) if known else None,
            shm_total_bytes=host.shm_total_bytes,
            # As it is now: a worker that finds no room does not ask how the last minute was.
            shm_used_bytes=host.shm_used_bytes,
        )


# --- what is judged: jobs, and GPUs without a known job that look like one --------------------

FOLLOWED_JOBS_MAX = 16
"""Each job costs time and memory. Of more than so many (a machine of notebooks and small servers),
those that use GPUs most are followed, the attached one always."""
CHOSEN_SECONDS = 30.0
USE_SECONDS = 30.0
"""Time over which the use of a job counts: where GPUs swing, each job is the busiest for a
moment."""
KEPT_PERCENT = 5.0
"""Lead of the jobs that are followed over others that are about as busy."""

HELD_BYTES = 2 * 1024**3
"""Memory that no driver or desktop holds by itself."""
ALIKE_BYTES, ALIKE_SHARE = 1.5 * 1024**3, 0.1
"""By how much the memory of data-parallel ranks may differ: the first gathers, logs and keeps
contexts of the others; sequences of different lengths leave caches of different sizes."""
TOGETHER, UNRELATED = 0.7, 0.5
"""Mean correlation from which GPUs are one group whatever they hold (as much of the opposite are
turns), and below which each moves for itself: runs of a sweep. But ranks do, too, that wait for
each other in every step: those spin."""
STAYS = 0.2
"""Less suffices for what they are already."""
LOOK_SECONDS = 5.0
"""Two looks must agree: ranks fill their memory within seconds of each other, not at once."""
SETTLED_SECONDS = 15.0
"""Between two looks, while they agree and memory in use stays what it is."""
MOVES_SECONDS = 180.0
"""How far back their load is compared: in a minute, two pauses are alike by chance."""

_Group = tuple[GpuKey, ...]


class Choice:
    """Choice of the jobs that are followed, made anew each half minute."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._followed: frozenset[ProcessKey] | None = None
        self._chosen_at = -math.inf
        self._use: dict[ProcessKey, float] = {}
        self._busy: dict[int, float] = {}
        """Percent times seconds of each process, since it was counted for its job."""
        self._seconds = 0.0

    def push(self, snapshot: Snapshot, at: float, seconds: float) -> None:
        if len(snapshot.jobs) <= FOLLOWED_JOBS_MAX:
            self._begin()
            return
        busy = self._busy
        for process in snapshot.processes:
            if process.gpu_busy_percent:
                used = seconds * process.gpu_busy_percent
                busy[process.pid] = busy.get(process.pid, 0.0) + used
        self._seconds += seconds
        before = self._followed or frozenset()
        asked_for = all(job.key in before for job in snapshot.jobs if job.attached)
        due = not asked_for or at >= self._chosen_at + CHOSEN_SECONDS
        if (due or self._seconds >= LOOK_SECONDS) and self._seconds > 0.0:
            self._take_use(snapshot.jobs)
        if not due:
            return
        self._chosen_at = at

        def weight(job: Job) -> tuple[bool, bool, float]:
            kept = KEPT_PERCENT if job.key in before else 0.0
            return (job.attached, bool(job.loader_workers), self._use[job.key] + kept)

        ranked = sorted(snapshot.jobs, key=weight, reverse=True)
        self._followed = frozenset([job.key for job in ranked[:FOLLOWED_JOBS_MAX]])

    def _take_use(self, jobs: Sequence[Job]) -> None:
        """Work out how much each job uses GPUs, as a mean in which the newest counts most."""
        busy, seconds, before = self._busy, self._seconds, self._use
        share = min(1.0, seconds / USE_SECONDS)
        self._busy, self._seconds, self._use = {}, 0.0, {}
        for job in jobs:
            used = sum([busy.get(member.pid, 0.0) for member in job.members]) / seconds
            known = before.get(job.key, used)
            self._use[job.key] = known + share * (used - known)

    def of(self, snapshot: Snapshot) -> Sequence[Job]:
        """Return the jobs of a snapshot that are followed."""
        followed = self._followed
        if followed is None:
            return snapshot.jobs
        pids = {pid for pid, _ in followed}
        return [job for job in snapshot.jobs if job.pid in pids and job.key in followed]


class Groups:
    """GPUs without a known job that look like one job: the same model, with memory in
    use that is alike, or readings that move together or in turns."""

    def __init__(self) -> None:
        self.found: tuple[_Group, ...] = ()
        self._wanted: tuple[_Group, ...] = ()
        self._looked_at = -math.inf
        self._held: dict[GpuKey, int] = {}
        """Memory in use at the last look, roughly."""

    def push(self, gpus: Sequence[GpuTrack], at: float) -> None:
        """Group ``gpus``, which are all that no running job uses."""
        uuids = {gpu.identity.uuid for gpu in gpus}
        gone = any(not uuids.issuperset(group) for group in self.found)
        if at < self._looked_at + LOOK_SECONDS and not gone:
            return
        held = {gpu.identity.uuid: round(_held(gpu) / ALIKE_BYTES) for gpu in gpus}
        settled = held == self._held and self._wanted == self.found
        if settled and at < self._looked_at + SETTLED_SECONDS and not gone:
            return
        self._looked_at, self._held = at, held
        whole = sorted([gpu for gpu in gpus if gpu.identity.mig_instance is None], key=_model)
        by_model = [self._of([*of_model], at) for _, of_model in groupby(whole, _model)]
        wanted = tuple([group for groups in by_model for group in groups])
        if gone or not self.found or wanted == self._wanted:
            self.found = wanted
        self._wanted = wanted

    def _of(self, gpus: list[GpuTrack], at: float) -> list[_Group]:
        """Return the groups among ``gpus``, which are of one model."""
        before = {uuid: group for group in self.found for uuid in group}
        # Once they are a group, the end of the job that they run is no other job.
        gpus = [gpu for gpu in gpus if _may_run_a_job(gpu) or gpu.identity.uuid in before]
        uuids, since = _keys(gpus), at - MOVES_SECONDS
        less = STAYS if uuids in self.found else 0.0
        busy, power = agreement([gpu.load for gpu in gpus], since)
        moves = highest([busy, power]) or 0.0
        turns = -(lowest([busy, power]) or 0.0) * (len(gpus) - 1)
        if max(moves, turns) >= TOGETHER - less:
            return [uuids]
        alone = busy is not None and moves < UNRELATED - less
        if alone and not all(gpu.load.spins(since)[1] for gpu in gpus):
            return []
        return [_keys(group) for group in _alike(gpus, before) if len(group) > 1]


def _alike(gpus: Sequence[GpuTrack], before: Mapping[GpuKey, _Group]) -> list[list[GpuTrack]]:
    """Return GPUs by how much memory is in use; those that were one group ``before`` may differ
    more."""
    groups: list[list[GpuTrack]] = []
    for gpu in sorted(gpus, key=_held):
        least = groups[-1][0] if groups else gpu
        were = 2.0 if gpu.identity.uuid in before.get(least.identity.uuid, ()) else 1.0
        slack = were * max(ALIKE_BYTES, ALIKE_SHARE * _held(gpu))
        if not groups or _held(gpu) - _held(least) > slack:
            groups.append([])
        groups[-1].append(gpu)
    return groups


def _may_run_a_job(gpu: GpuTrack) -> bool:
    return gpu.memory_used_bytes is None or gpu.memory_used_bytes >= HELD_BYTES


def _held(gpu: GpuTrack) -> float:
    return float(gpu.memory_used_bytes or 0)


def _model(gpu: GpuTrack) -> str:
    return gpu.identity.name or ""


def _keys(gpus: Sequence[GpuTrack]) -> _Group:
    return tuple([gpu.identity.uuid for gpu in sorted(gpus, key=lambda gpu: gpu.identity.index)])


# --- pauses, with what else happened in them --------------------------------------------------

_Found = tuple[Stretch, GpuKey]

LATE_SECONDS = 4.0
"""Time after a pause in which writes still belong to it: pages are written back while the GPU
works again."""
USUAL_SECONDS = 60.0
"""Time before a pause that shows what is usually written."""
SAVING_SHARE = 0.6
"""Share of the brief stretches of idling that must be saves for them to count: a job that writes
all the time, or now and then, also writes in some of its waits."""
LEAST_SAVES = 2


class Pauses:
    """Pauses of one job with its GPUs, or of one GPU of which no job is known."""

    def __init__(
        self, snapshot: Snapshot, gpus: Sequence[GpuTrack], job: JobTrack | None, host: HostTrack
    ) -> None:
        self._now = snapshot.monotonic_seconds
        self._offset = snapshot.taken_at_unix_seconds - self._now
        self._gpus, self._job, self._host = gpus, job, host
        steady = None if job is None else job.steady_at
        self._steady = -math.inf if steady is None else steady

    def over(self) -> tuple[Pause, ...]:
        """Return the pauses that are over, oldest first."""
        oldest = max(self._now - KEEP_SECONDS, self._steady)
        if self._job is not None and not self._gpus:
            return tuple([self._made(*one) for one in self._job.phases.pauses(oldest)])
        whole = self._grouped(
            [(pause, gpu.identity.uuid) for gpu in self._gpus for pause in gpu.pauses.found], oldest
        )
        found = [self._of(group) for group in whole]
        found += self._brief_saves(oldest, whole)
        found += self._restarts(oldest, found)
        return tuple(sorted(found, key=lambda pause: pause.at_unix_seconds))

    def _restarts(self, oldest: float, pauses: Sequence[Pause]) -> list[Pause]:
        """Return the idling for new loader workers that is in none of ``pauses``, as that of a GPU
        which waits for its batches all the time."""
        idling = [] if self._job is None else self._job.restarts.found
        made = [self._restart(one) for one in idling if one.end > oldest]
        return [one for one in made if not any(one.overlaps(other) for other in pauses)]

    def _brief_saves(self, oldest: float, whole: Sequence[Sequence[_Found]]) -> list[Pause]:
        """Return the stretches of idling too short, or too near each other, for pauses in which
        the job saved, where it did in most of them; ``whole``: those that are pauses."""
        job = self._job
        if job is None or job.written_lately(self._now) < SAVE_BYTES:
            return []
        brief = self._grouped(
            [(one, gpu.identity.uuid) for gpu in self._gpus for one in gpu.pauses.brief], oldest
        )
        taken = [one for group in whole for one, _ in group]
        brief = [
            group
            for group in brief
            if not any(a.begin < b.end and b.begin < a.end for a, _ in group for b in taken)
        ]
        saves = [pause for group in brief if (pause := self._of(group)).is_save]
        enough = len(saves) >= max(LEAST_SAVES, SAVING_SHARE * len(brief))
        return saves if enough else []

    def _restart(self, found: Restart) -> Pause:
        gpus = tuple([gpu.identity.uuid for gpu in self._gpus])
        return self._made(found.begin, found.end, busy_percent=0.0, gpus=gpus)

    @staticmethod
    def _grouped(found: Sequence[_Found], oldest: float) -> list[list[_Found]]:
        """Return stretches of several GPUs that overlap as one, without those of before
        ``oldest``."""
        found = [one for one in found if one[0].end > oldest]
        groups: list[list[_Found]] = []
        for one in sorted(found, key=lambda one: one[0].begin):
            if groups and one[0].begin < max([other.end for other, _ in groups[-1]]):
                groups[-1].append(one)
            else:
                groups.append([one])
        return groups

    def ongoing(self) -> tuple[Pause, ...]:
        """Return the pauses that are not over, by GPU."""
        found = [
            # Nobody knows whether what a silent driver reported last goes on.
            (gpu.pauses.open(self._now if gpu.read_at is None else gpu.read_at), gpu.identity.uuid)
            for gpu in self._gpus
        ]
        pauses = [
            self._of([(one, uuid)])
            for one, uuid in found
            if one is not None and one.end > self._steady
        ]
        restart = None if self._job is None or pauses else self._job.restarts.open
        return tuple(pauses) if restart is None else (self._restart(restart),)

    def _of(self, group: Sequence[_Found]) -> Pause:
        begin, end = min([one.begin for one, _ in group]), max([one.end for one, _ in group])
        uuids = tuple(dict.fromkeys([uuid for _, uuid in group]))
        freed = [_freed(gpu.memory, begin, end) for gpu in self._gpus if gpu.identity.uuid in uuids]
        return self._made(
            begin,
            end,
            busy_percent=sum([one.busy_percent for one, _ in group]) / len(group),
            gpus=uuids,
            memory_freed_share=highest(freed),
        )

    def _made(
        self,
        begin: float,
        end: float,
        *,
        busy_percent: float | None = None,
        gpus: tuple[GpuKey, ...] = (),
        memory_freed_share: float | None = None,
    ) -> Pause:
        job, host = self._job, self._host
        wrote = sent = main = busiest = others = compiled = None
        restarts: list[Restart] = []
        if job is not None:
            table, lag = job.table, 0.0 if job.job.attached else LAG_SECONDS
            wrote = _written(table, begin, end, lag)
            sent = table.total(SENT, begin, end)
            compiled = table.total(COMPILES, begin, end + lag)
            restarts = job.restarts.between(begin, end)
            main, busiest, others = [table.mean(n, begin, end) for n in (MAIN, BUSIEST, OTHERS)]
        if wrote is None:
            wrote = host.written_bytes(begin, end)
        return Pause(
            at_unix_seconds=begin + self._offset,
            seconds=end - begin,
            busy_percent=busy_percent,
            gpus=gpus,
            wrote_bytes=wrote,
            sent_bytes=highest([sent, _excess(host, begin, end)]),
            main_thread_percent=main,
            busiest_worker_percent=busiest,
            other_workers_percent=others,
            restart_seconds=sum([one.end - one.begin for one in restarts]),
            epoch_seconds=sum([one.epoch_seconds for one in restarts]),
            phase=None if job is None else job.phases.between(begin, end),
            memory_freed_share=memory_freed_share,
            compiled=(compiled or 0.0) > 0.0,
        )


def _written(table: Table, begin: float, end: float, lag: float) -> float | None:
    """Return the bytes written in a pause, with what is written soon after it beyond the usual."""
    wrote = table.total(WRITTEN, begin, end + lag)
    late = table.total(WRITTEN, end + lag, end + lag + LATE_SECONDS)
    earliest = begin if table.earliest_at is None else table.earliest_at
    usual = table.mean(WRITTEN, max(earliest, begin - USUAL_SECONDS), begin)
    if wrote is None or late is None or usual is None:
        return wrote
    return wrote + max(0.0, late - LATE_SECONDS * usual)


def _freed(memory: Table, begin: float, end: float) -> float | None:
    """Return the share of the memory held just before that was not held in the middle of the
    pause."""
    edge = (end - begin) / 4.0
    before, within = memory.mean("memory_used_bytes", begin - edge, begin), None
    if before:
        within = memory.mean("memory_used_bytes", begin + edge, end - edge)
    return None if not before or within is None else max(0.0, 1.0 - within / before)


def _excess(host: HostTrack, begin: float, end: float) -> float | None:
    """Return the bytes sent beyond those in as much time before."""
    now = host.sent_bytes(begin, end)
    before = host.sent_bytes(2.0 * begin - end, begin)
    return None if now is None else max(0.0, now - (before or 0.0))


# --- windows ----------------------------------------------------------------------------------

FORGOTTEN_SECONDS = 60.0
"""After the last snapshot it was in, a job or GPU begins anew."""
MOVED_PERCENT = 10.0
"""Difference of ten seconds from a minute: in so few, a swing of seconds is cut anywhere."""
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
        self._gpus: dict[tuple[GpuKey, ProcessKey | None], JobOnGpu] = {}
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
        """Return a window for every job of the newest snapshot, in its order, and one for every
        GPU, or group of GPUs, that no running job uses; those of ``without`` are not made."""
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
        """Take the jobs of a snapshot; return the users of each GPU."""
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
        processes = _ProcessesOnGpus(snapshot)
        for gpu, job, use in used:
            rests = use not in fed
            if use.track.seen_at != at:
                use.track.push(gpu, at, seconds, unix - at, rests=rests)
            if not gpu.lost and not rests and use.push(gpu.reading, at, seconds):
                use.see(at, *processes.split(gpu.uuid, job))
            if job is not None and job.restarts.since is not None:
                job.restarts.take_samples(use.track.samples(), at)

    def _use(
        self,
        gpu: Gpu,
        job: JobTrack | None,
        at: float,
        offset: float,
        new: dict[tuple[GpuKey, float], GpuTrack],
    ) -> JobOnGpu:
        """Return a GPU as a job uses it. One that begins shares the track with those ``new`` ones
        of which the driver remembers the same."""
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
            use = self._gpus[key] = JobOnGpu(track)
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
        self, host: HostFacts, job: JobTrack, uses: Sequence[JobOnGpu], now: float
    ) -> HostFacts:
        """Return the machine's facts with the growth of its memory since the job works: what was
        loaded before is none."""
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
        uses: Sequence[JobOnGpu],
        host: HostFacts,
        job: JobTrack | None,
        now: float,
    ) -> Window:
        gpus = [use.track for use in uses]
        starting = job is not None and not job.ended and is_starting(job, uses, now)
        since, seconds = _begin_of_window(gpus, job, now)
        facts = tuple([use.facts(since) for use in uses])
        pauses = Pauses(snapshot, gpus, job, self._host)
        made = Window(
            taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
            seconds=seconds,
            watched_seconds=self._host.table.seconds_since(since),
            back_seconds=now - max(since, (job.began_at if job else None) or -math.inf),
            interval_seconds=snapshot.interval_seconds,
            gpus=facts,
            host=host,
            starting=starting,
            pauses=pauses.over(),
            ongoing=() if job is not None and job.ended else pauses.ongoing(),
        )
        loads = [gpu.load for gpu in gpus]
        if job is None:
            busy, power = agreement(loads, now - MOVES_SECONDS)
            return replace(
                made,
                gathered_seconds=max([gpu.watched_seconds for gpu in gpus]),
                steady_seconds=made.watched_seconds,
                busy_together=busy,
                power_together=power,
            )
        busy, power = agreement(loads, since)
        longer = max(job.steady_at or -math.inf, now - MOVES_SECONDS)
        several = len(loads) > 1
        return replace(
            made,
            watched_seconds=job.watched(since),
            job=job.facts(since, list(zip(gpus, [one.busy for one in facts], strict=True))),
            host=self._as_of_job(host, job, uses, now),
            steady_seconds=0.0 if starting else job.steady_seconds(now),
            busy_together=busy,
            power_together=power,
            exchange=exchange(loads, self._host.sent(longer), longer) if several else Exchange(),
        )


def _begin_of_window(
    gpus: Sequence[GpuTrack], job: JobTrack | None, now: float
) -> tuple[float, float]:
    """Return from when on, and for how long, a window counts: not before the job's steady work, nor
    before it was fed again."""
    since = now - WINDOW_SECONDS
    # Without a GPU, by what it reports itself.
    fed = recovered([gpu.recovery for gpu in gpus] or (job.recoveries if job else []))
    if job is not None:
        if job.steady_at is not None:
            since = max(since, min(job.steady_at, now))
        if fed is not None and not job.ended:
            job.fed_since = fed
        fed = job.fed_since
    return (fed, now - fed) if fed is not None and since < fed < now else (since, WINDOW_SECONDS)


class _ProcessesOnGpus:
    """Processes of a snapshot by the GPU that they use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._there = bool(snapshot.processes)
        self._unlisted = {one.target for one in snapshot.problems if one.reading == "processes"}
        self._all_listed = snapshot.host.core_count is not None and not self._unlisted
        self._on_gpu: dict[GpuKey, list[Process]] = {}
        for process in snapshot.processes:
            if process.gpu_uuid is not None:
                self._on_gpu.setdefault(process.gpu_uuid, []).append(process)

    def split(
        self, uuid: GpuKey, job: JobTrack | None
    ) -> tuple[list[Process] | None, list[Process] | None]:
        """Return those of the job on this GPU, and the others; ``None``: they are not known."""
        if self._there and uuid not in self._unlisted:
            there = self._on_gpu.get(uuid, [])
            own = frozenset[int]() if job is None else job.pids
            return [one for one in there if one.pid in own], [
                one for one in there if one.pid not in own
            ]
        return None, [] if job is None and self._all_listed else None


def _grows(window: Window) -> bool:
    those: list[HostFacts | GpuFacts | WorkerFacts | None] = [window.host, *window.gpus]
    those += [] if window.job is None else [window.job.workers, window.job.own_workers]
    return any(
        (one.memory_slope_bytes_per_second or 0.0)
        > GROWS_ERRORS * (one.memory_slope_error_bytes_per_second or 0.0)
        for one in those
        if one is not None
    )
