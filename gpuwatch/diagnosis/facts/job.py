"""One job, its ranks and their loader workers, followed from snapshot to snapshot."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from gpuwatch.core.bounds import lowest, mean, total
from gpuwatch.core.model import Job, JobMember, JobRank, ProcessKey, TrainingLoop
from gpuwatch.diagnosis.facts import startup
from gpuwatch.diagnosis.facts.cpu_vs_gpu import HELD_SECONDS, JobSamples, Shape, rows_of, usual_step
from gpuwatch.diagnosis.facts.gpu import GpuTrack, JobOnGpu
from gpuwatch.diagnosis.facts.window import (
    PAST_SECONDS,
    STOPPED_STATES,
    FactTable,
    JobFacts,
    LoopFacts,
    RankFacts,
    WorkerFacts,
)
from gpuwatch.diagnosis.finding import WINDOW_SECONDS
from gpuwatch.diagnosis.signals.stretches import BRIEF_SECONDS, Recovery
from gpuwatch.diagnosis.signals.trend import Trend

# --- loader workers, ranks and the phases that they report ------------------------------------

PHASES_KEPT = 512
"""Changes of phase, two for each pause: the 15 minutes of which pauses are remembered."""
PAUSE_SHARE = 0.3
"""Share of a pause that a phase must cover: it is seen once a snapshot, the pause in fine
samples."""
PAUSES = ("checkpoint", "validation")

RESTS_SECONDS = 12.0
"""A loader worker that has done nothing for so long, since it was first seen, while others work,
feeds another loader."""
LATE_SECONDS = 60.0
"""One that was seen to work before: while one slow batch is made, the others rest as well, but
hardly for so long."""
APART_RESTS_SECONDS = 5.0
"""Shorter rest that is asked of workers that began apart from those that work."""
TURNS_RESTS_SECONDS = 1.5
"""Shorter rest that is asked where two loaders are known: they take turns, as training and
validation do."""
APART_SECONDS = 0.5
"""Workers of one loader are started one right after the other: a longer time lies between two
loaders."""
RESTS_PERCENT = 1.0
"""CPU use, in percent of a core, below which a worker rests: one that waits for its next batch
wakes every few seconds to see whether its training process still lives."""
RESTS_SWITCHES_PER_SECOND = 5.0
"""A few with each of those wakes, and switches are counted over two seconds."""

RESTARTS_KEPT = 128
"""Most restarts that are kept: one each seven seconds of 15 minutes."""
START_ERROR_SECONDS = 1.0
"""Start times of processes are up to so much early: the kernel tells when it began in seconds."""
QUEUED_SECONDS = 5.0
"""A GPU that has not waited so long after they were seen has no need to."""
LOST_SECONDS = 120.0
"""Longest idle time that is charged to a restart: beyond it the GPU waits for something else."""
AWAITED_TIMES = 2.0
"""Times the longest wait for new workers so far, for which others are awaited once they have
gone."""
WORKS_PERCENT = 3.0
"""A GPU that does less shows nothing: a copy, a display, a monitor."""

_read = attrgetter(
    "whole_cpu_percent",
    "run_queue_wait_percent",
    "disk_wait_percent",
    "involuntary_switches_per_second",
    "awaits_network",
)


def _occupied(worker: JobMember) -> float:
    """Return the percent of its time in which a worker computes, or waits for storage or the
    network."""
    if worker.state == "D" or worker.awaits_network:
        return 100.0
    # On a crowded machine it would have computed while it waited for a core.
    return min(100.0, (worker.whole_cpu_percent or 0.0) + (worker.run_queue_wait_percent or 0.0))


def _rests(worker: JobMember) -> bool:
    """Check whether a loader worker did next to nothing, as one does that nobody asks for data."""
    if worker.awaits_work is False or worker.awaits_network or worker.state == "D":
        return False
    switches, used = worker.voluntary_switches_per_second, worker.whole_cpu_percent
    wakes = switches is not None and switches >= RESTS_SWITCHES_PER_SECOND
    return used is not None and used < RESTS_PERCENT and not wakes


def _by_begin(workers: Sequence[JobMember]) -> list[list[JobMember]]:
    """Workers by when they began: those that were started together."""
    known = [one for one in workers if one.started_at_unix_seconds is not None]
    if len(known) < len(workers):
        return [list(workers)]
    known.sort(key=lambda one: (one.started_at_unix_seconds or 0.0, one.pid))
    begins = [one.started_at_unix_seconds or 0.0 for one in known]
    groups = [known[:1]]
    for worker, (earlier, later) in zip(known[1:], pairwise(begins), strict=True):
        if later - earlier > APART_SECONDS:
            groups.append([])
        groups[-1].append(worker)
    return groups


class Feeding:
    """Choice of the loader workers that feed the training now. Those of another loader that rests
    (validation with ``persistent_workers``) are left out."""

    def __init__(self) -> None:
        self._worked_at: dict[ProcessKey, float] = {}
        self._idle: dict[ProcessKey, bool] = {}
        """Whether each worker has done nothing since it was first seen."""
        self._fed: frozenset[ProcessKey] = frozenset()
        """Workers that fed the job at the previous look."""
        self.apart: frozenset[ProcessKey] = frozenset()
        """Workers of another loader than the one that feeds the job; they stay left out."""

    def of(self, workers: Sequence[JobMember], at: float) -> list[JobMember]:
        """Return the workers that feed: of a training process of which none is seen to work those
        that fed before, at first all."""
        before, self._worked_at = self._worked_at, {}
        idle, self._idle = self._idle, {}
        parents: dict[int | None, list[JobMember]] = {}
        for one in workers:
            rests = _rests(one)
            self._worked_at[one.key] = before.get(one.key, at) if rests else at
            known_to_work = not rests and one.cpu_percent is not None
            self._idle[one.key] = idle.get(one.key, True) and not known_to_work
            parents.setdefault(one.parent_pid, []).append(one)
        found = []
        for own in parents.values():
            fed = [one for one in own if one.key in self._fed]
            found += self._working(own, at) or fed or own
        self._fed = frozenset([one.key for one in found])
        self.apart = (self.apart & self._idle.keys()) | (self._idle.keys() - self._fed)
        return found

    def _working(self, workers: Sequence[JobMember], at: float) -> list[JobMember]:
        found: list[JobMember] = []
        in_turns = any(one.key in self.apart for one in workers)
        longest = TURNS_RESTS_SECONDS if in_turns else APART_RESTS_SECONDS
        for group in _by_begin(workers):
            rested = [at - self._worked_at[one.key] for one in group]
            if min(rested) < longest:
                pairs = zip(group, rested, strict=True)
                found += [
                    one
                    for one, seconds in pairs
                    if seconds < (RESTS_SECONDS if self._idle[one.key] else LATE_SECONDS)
                ]
        return found


class Workers:
    """The loader workers of a job or of a rank; not ``loads``: processes of its own."""

    def __init__(self, *, loads: bool = True) -> None:
        self._table = FactTable(WorkerFacts)
        self.memory = Trend()
        self._pids: tuple[int, ...] = ()
        self._orphaned = 0
        self._seen_at = -math.inf
        self.busiest: float | None = None
        self.others: float | None = None
        """How much of their time they were occupied at the last look."""
        self.resting = 0
        """How many more there are, of a loader that feeds nothing."""
        self._feeding = Feeding() if loads else None

    def push(self, members: Sequence[JobMember], at: float, seconds: float) -> float | None:
        """Take the workers of a snapshot; return their mean CPU percent."""
        if members:
            self._seen_at = at
        elif self._seen_at == -math.inf:
            return None
        else:
            self._orphaned = 0
        every = members
        if self._feeding is not None:
            apart = self._feeding.apart
            members = self._feeding.of(members, at)
            if self._feeding.apart - apart:
                # Until it was known that they are of another loader they were counted.
                self._table = FactTable(WorkerFacts)
        self.resting = len(every) - len(members)
        rows = zip(*[_read(member) for member in members], strict=True)
        columns = [[value for value in column if value is not None] for column in rows]
        cpu, queue, disk, pushed, awaits = columns or [[]] * 5
        known = [member.awaits_work for member in members if member.awaits_work is not None]
        used = mean(cpu)
        waits = float("D" in [member.state for member in members])
        worked_out = {
            # Between two epochs there may be none for a while.
            "count": float(len(members)) or None,
            "cpu_percent": used,
            "run_queue_wait_percent": mean(queue),
            "disk_wait_percent": mean(disk),
            "in_disk_wait_share": waits if members else None,
            "involuntary_switches_per_second": mean(pushed),
            "awaits_network_share": mean(awaits),
            # What is not known of one of them is not counted as work.
            "at_work_share": known.count(False) / len(members) if known else None,
        }
        self._table.observe(at, seconds, None, worked_out)
        if every:
            self._take_memory(every, at)
        occupied = sorted(
            [_occupied(member) for member in members if member.cpu_percent is not None]
        )
        self.busiest = occupied[-1] if occupied else None
        self.others = mean(occupied[:-1])
        return used

    def _take_memory(self, members: Sequence[JobMember], at: float) -> None:
        held = [member.memory_proportional_bytes for member in members]
        memory = [value for value in held if value is not None]
        pids = tuple([member.pid for member in members])
        if pids != self._pids:
            # Others than before: what they use is no growth.
            self._pids = pids
            self._orphaned = sum([member.orphaned for member in members])
            self.memory = Trend()
        if len(memory) == len(members):
            self.memory.add(at, float(sum(memory)))

    def facts(self, since: float) -> WorkerFacts | None:
        """Return the facts over the time after ``since``; ``None`` if no worker was there."""
        if self._seen_at <= since:
            return None
        slope, slope_error = self.memory.slope() or (None, None)
        means = self._table.facts(since)
        return WorkerFacts(
            **means | {"count": means["count"] or 0.0},
            memory_slope_bytes_per_second=slope,
            memory_slope_error_bytes_per_second=slope_error,
            resting=self.resting,
            orphaned=self._orphaned,
        )


class Restart(NamedTuple):
    """Time in which the GPUs idled for new loader workers: monotonic seconds."""

    begin: float
    end: float
    epoch_seconds: float
    """Time from the begin of the workers before to that of these."""


class Restarts:
    """Finder of the times in which the GPUs waited for loader workers that took the place of
    others, as they do with each epoch without ``persistent_workers``."""

    def __init__(self) -> None:
        self.found: deque[Restart] = deque(maxlen=RESTARTS_KEPT)
        """Restarts that are over and idled the GPU for longer than a moment."""
        self.open: Restart | None = None
        """Restart that goes on."""
        self.since: float | None = None
        """Start of the workers that have fed the GPU nothing yet."""
        self._epoch_seconds = 0.0
        self._named_at = 0.0
        """Moment when the newest restart was first seen."""
        self._awaited_until: float | None = None
        """Moment until which new workers are awaited after the old ones have gone, where that has
        happened before: new ones import for seconds before they are known as workers."""
        self._generation: frozenset[ProcessKey] = frozenset()
        """Workers that began together, when the first of them did, and when they were seen last."""
        self._began = self._there_at = -math.inf

    def take_workers(self, workers: Sequence[JobMember], at: float, offset: float) -> None:
        """Take the loader workers that are there; ``offset`` is unix less monotonic time."""
        began = lowest([one.started_at_unix_seconds for one in workers])
        if began is None:
            self._await(at)
            return
        keys = frozenset([worker.key for worker in workers])
        is_awaited, self._awaited_until = self._awaited_until is not None, None
        if self.since is not None and not is_awaited and not keys <= self._generation:
            # They are started one after the other.
            self._generation, self._named_at = self._generation | keys, at
        elif keys.isdisjoint(self._generation):
            # Those that were there before the others had gone are of another loader.
            since = max(began - offset, self._there_at - START_ERROR_SECONDS)
            if self._generation:
                # After a clock was set back they began later than now.
                since = min(at, since)
                self.since, self._epoch_seconds = since, since - self._began
            self._generation, self._began, self._named_at = keys, since, at
        if not keys.isdisjoint(self._generation):
            self._there_at = at

    def _await(self, at: float) -> None:
        """Note that there are no workers now."""
        if self._awaited_until is None and self.found and self.since is None:
            longest = max([one.end - one.begin for one in self.found])
            self.since, self._epoch_seconds = self._there_at, self._there_at - self._began
            self._awaited_until = at + AWAITED_TIMES * longest
        if self._awaited_until is not None:
            self._named_at = at
            if at > self._awaited_until:
                self.since = self.open = None

    def take_samples(self, samples: Sequence[tuple[float, float]], at: float) -> None:
        """Take how busy a GPU has been since then."""
        if self.since is None:
            return
        # Work soon after they began is what was queued before; and those that import first are
        # known late as workers.
        idling, worked_at = [], self.since
        for moment, percent in samples:
            if moment > worked_at and percent > WORKS_PERCENT:
                idling.append(Restart(worked_at, moment, self._epoch_seconds))
                worked_at = moment
        newest = samples[-1][0] if samples else at
        self.open = Restart(worked_at, newest, self._epoch_seconds) if newest > worked_at else None
        if self._named_at < worked_at:
            longest = max(idling, key=lambda one: one.end - one.begin)
            waited = longest.end - longest.begin >= BRIEF_SECONDS
            self.found.extend([longest] if waited else [])
            is_over = waited or at - self._named_at > QUEUED_SECONDS
        else:
            is_over = at - worked_at > LOST_SECONDS
        if is_over:
            self.since = self.open = None

    def between(self, begin: float, end: float) -> list[Restart]:
        """Return those of that time, cut to it."""
        every = [*self.found, *([] if self.open is None else [self.open])]
        return [
            one._replace(begin=max(begin, one.begin), end=min(end, one.end))
            for one in every
            if one.begin < end and begin < one.end
        ]


class Rank:
    """One rank of several, or the only one."""

    def __init__(self) -> None:
        self._table = FactTable(RankFacts)
        self._loop_table = FactTable(LoopFacts)
        self._loop: TrainingLoop | None = None
        self.workers = Workers()
        self.recovery = Recovery()
        """Recovery by its waits for data, as it reports them itself."""
        self._state: str | None = None
        self._stopped_at: float | None = None
        self.stopped_seconds: float | None = None

    def take_state(self, state: str | None, at: float) -> None:
        self._state = state
        if state not in STOPPED_STATES:
            self._stopped_at = None
            self.stopped_seconds = None if state is None else 0.0
            return
        if self._stopped_at is None:
            self._stopped_at = at
        self.stopped_seconds = at - self._stopped_at

    def push(self, rank: JobRank, member: JobMember, at: float, seconds: float) -> None:
        self._table.observe(at, seconds, member, {"collectives_behind": rank.collectives_behind})

    def push_loop(self, loop: TrainingLoop | None, at: float, seconds: float) -> None:
        self._loop = loop
        # However long ago it reported last: what it reports is counted up to now, and a wait that
        # lasts is what there is to be seen.
        if loop is None or loop.phase not in {None, "train"}:
            return
        self._loop_table.observe(at, seconds, loop)
        if loop.data_wait_share is not None:
            self.recovery.extend([(at, 100.0 * (1.0 - loop.data_wait_share), seconds)])

    def facts(self, rank: JobRank, since: float, workers: WorkerFacts | None) -> RankFacts:
        loop = self._loop
        count, pinned = rank.loader_workers, rank.pinned_memory
        if count and workers is not None and workers.resting:
            count -= min(count - 1, workers.resting)
        if loop is not None:
            count = count if loop.loader_workers is None else loop.loader_workers
            pinned = pinned if loop.pinned_memory is None else loop.pinned_memory
        return RankFacts(
            **self._table.facts(since),
            pid=rank.pid,
            rank=rank.rank,
            gpu_uuids=rank.gpu_uuids,
            loader_workers=count,
            pinned_memory=pinned,
            workers=workers,
            loop=None if loop is None else self._loop_facts(since),
            state=self._state,
            stopped_seconds=self.stopped_seconds,
        )

    def _loop_facts(self, since: float) -> LoopFacts | None:
        """Return what it reported after ``since``; ``None`` before it has reported anything."""
        if self._loop_table.seconds_since(since) <= 0.0:
            return None
        return LoopFacts(**self._loop_table.facts(since))


class Phases:
    """Phase of the job as a whole: while one rank saves, the others wait for it."""

    def __init__(self) -> None:
        self._since: deque[tuple[float, str | None]] = deque(maxlen=PHASES_KEPT)
        self._until = 0.0

    def push(self, loops: Sequence[TrainingLoop], at: float, seconds: float) -> None:
        """Take the phases as they were in the ``seconds`` up to ``at``."""
        if not loops and not self._since:
            return
        reported = [loop.phase for loop in loops]
        phase = next((one for one in PAUSES if one in reported), None)
        if phase is None and "train" in reported:
            phase = "train"
        if not self._since or self._since[-1][1] != phase:
            self._since.append((at - seconds, phase))
        self._until = at

    def pauses(self, since: float) -> list[tuple[float, float]]:
        """Return begin and end of the pauses that are over and ended after ``since``: where no GPU
        shows them, as exactly as snapshots come."""
        return [
            (begin, end)
            for (begin, phase), (end, _) in pairwise(self._since)
            if phase in PAUSES and end > since
        ]

    def between(self, begin: float, end: float) -> str | None:
        """Return the pause that was reported in a good part of that time, else ``train`` if that
        was."""
        spent: dict[str | None, float] = {}
        until = self._until
        for since, phase in reversed(self._since):
            spent[phase] = spent.get(phase, 0.0) + max(0.0, min(end, until) - max(begin, since))
            if since <= begin:
                break
            until = since
        least = PAUSE_SHARE * (end - begin)
        for phase in PAUSES:
            if spent.get(phase, 0.0) >= least > 0.0:
                return phase
        return "train" if spent.get("train", 0.0) >= 0.5 * (end - begin) else None


# --- the job ----------------------------------------------------------------------------------

WRITTEN, SENT = "write_bytes_per_second", "network_send_bytes_per_second"
MAIN, COMPILES = "main_thread_percent", "compile_share"
WORKERS, BUSIEST, OTHERS = "workers", "busiest", "others"
"""Columns of a job's table: beside the means of ``JobFacts`` the percent of its loader workers, of
the busiest and the others."""
LATELY_SECONDS = 8.0
LAG_SECONDS = 3.0
"""Jobs that nobody is attached to are read every three seconds: what they did is known later."""
RESUMES_SECONDS = 15.0
"""Time after a stop in which a job's reports still cover it: they are about ten seconds or more."""


class JobTrack:
    """A job over the last minutes. ``at`` is the monotonic time of the first look, ``first_look``
    that of gpuwatch at anything: a job of unknown age that was there then counts as old."""

    def __init__(self, job: Job, at: float, unix: float, *, first_look: bool) -> None:
        started = job.started_at_unix_seconds
        self.job = job
        self.seen_at = at
        self.began_at = at - (unix - started) if started is not None else None
        """Monotonic time of its start; ``None``: not known."""
        self.watched_seconds = 0.0
        unknown_start = -math.inf if first_look else at
        self.starts_at = unknown_start if self.began_at is None else self.began_at
        age = at - self.starts_at
        self.steady_at = self.starts_at if age > startup.LONGEST_WORK_SECONDS else None
        """When its start-up was over."""
        self.starting_until = self.starts_at if age > startup.LONGEST_SECONDS else at
        """When it was still in it at last, as far as is known."""
        self.fed_since: float | None = None
        """When it came to be fed, after it had not been: what was before does not count."""
        self.steps_since: float | None = None
        """When it was first seen to report a step."""
        self.bare_since: float | None = None
        """When it had had its time to take a GPU and had none."""
        self.compiled_at = -math.inf
        """When compilers ran among its processes last."""
        self._compiled_apart = 0.0
        """Longest time between two looks of its start-up that found one."""
        self.workers_came_at: float | None = None
        """Start of the first loader workers that it had while it started up."""
        self.prepared_at = -math.inf
        """End of its preparation as far as is known: loader workers had come, compilers ran or GPU
        memory grew as weights do; no step came before."""
        self.steps_reported = 0
        """Since then, by the rank that made the fewest."""
        self.is_stopped = False
        """All its ranks are, and were when it was looked at before: it is not watched."""
        self._resumes_until = -math.inf
        self.pids: frozenset[int] = frozenset()
        self.table = FactTable(JobFacts, (WORKERS, BUSIEST, OTHERS), keep_seconds=PAST_SECONDS)
        self.restarts = Restarts()
        self.phases = Phases()
        self.stacks: tuple[tuple[str, float, str | None], ...] = ()
        self._workers = Workers()
        self._own_workers = Workers(loads=False)
        self._ranks: dict[ProcessKey, Rank] = {}
        self._reports = False
        self._samples = JobSamples()
        self._offset = unix - at
        self._lasts = False
        """The job is read so rarely that what was read of it stands for some looks."""
        self._held_seconds = 0.0
        """For so long it has, beyond what is counted."""

    @property
    def ended(self) -> bool:
        return self.job.ended_at_unix_seconds is not None

    def push(self, job: Job, at: float, seconds: float, offset: float) -> None:
        """Take the job as it is in a snapshot; ``offset`` is unix less monotonic time."""
        same = self._lasts and job is self.job and self._held_seconds + seconds <= HELD_SECONDS
        # What was held before a gap is of the time before it.
        same = same and at - self.seen_at <= seconds + 1e-6
        if not same:
            self.catch_up()
        self.seen_at = at
        self._offset = offset
        if same:
            self._held_seconds += seconds
            return
        self.job = job
        self.pids = frozenset([member.pid for member in job.members])
        self._lasts = False
        if not self.ended:
            self._take(job, at, seconds, offset)

    def catch_up(self) -> None:
        """Count what has been the same since it was read, before anything is asked for."""
        seconds, self._held_seconds = self._held_seconds, 0.0
        if seconds:
            self._take(self.job, self.seen_at, seconds, self._offset)

    def _take(self, job: Job, at: float, seconds: float, offset: float) -> None:
        members = job.members
        by_pid = {member.pid: member for member in members}
        self._take_states(job, by_pid, at)
        stopped = any(member.state in STOPPED_STATES for member in members)
        self._lasts = not (stopped or job.attached or job.loops or self._reports)
        if self.is_stopped:
            return
        self.watched_seconds += seconds
        workers = [
            member for member in members if member.role == "loader_worker" and member.state != "Z"
        ]
        worker_cpu = self._workers.push(workers, at, seconds)
        self.restarts.take_workers(workers, at, offset)
        own = [member for member in members if member.role == "helper" and member.role_guessed]
        self._own_workers.push(own, at, seconds)
        main = self._take_ranks(job, by_pid, workers, at, seconds)
        if (job.loops or self._reports) and at >= self._resumes_until:
            self._take_loops(job, at, seconds)
        cpu = job.cpu_percent
        compiles = any(member.compiles for member in members)
        if compiles:
            apart = min(at - self.compiled_at, startup.BURST_APART_SECONDS)
            starts = self.steady_at is None or at - self.steady_at < startup.RESUMES_SECONDS
            if starts and math.isfinite(self.compiled_at):
                self._compiled_apart = max(self._compiled_apart, apart)
            self.compiled_at = at
        worked_out = {
            "cpu_cores": None if cpu is None else cpu / 100.0,
            MAIN: main,
            "cpu_throttled_percent": job.cpu_throttled_percent,
            "pressure_io_percent": job.pressure_io_some_percent,
            "pressure_memory_percent": job.pressure_memory_some_percent,
            "read_bytes_per_second": total([one.read_bytes_per_second for one in members]),
            WRITTEN: total([one.write_bytes_per_second for one in members]),
            "network_receive_bytes_per_second": total(
                [one.network_receive_bytes_per_second for one in members]
            ),
            SENT: total([one.network_send_bytes_per_second for one in members]),
            COMPILES: float(compiles),
            WORKERS: worker_cpu,
            BUSIEST: self._workers.busiest,
            OTHERS: self._workers.others,
        }
        self.table.observe(at, seconds, job, worked_out)
        self._samples.main.push(job.main_thread_samples, at, offset)
        if self._workers.resting or job.loader_worker_samples is None:
            # Those are of all of them, and of none of their child processes.
            self._samples.workers.clear()
        else:
            self._samples.workers.push(job.loader_worker_samples, at, offset)

    def _take_states(self, job: Job, by_pid: Mapping[int, JobMember], at: float) -> None:
        stopped = bool(job.ranks)
        for rank in job.ranks:
            track = self._ranks.get(rank.key)
            if track is None:
                track = self._ranks[rank.key] = Rank()
            member = by_pid.get(rank.pid)
            track.take_state(None if member is None else member.state, at)
            stopped = stopped and bool(track.stopped_seconds)
        if self.is_stopped:
            self._resumes_until = at + RESUMES_SECONDS
        self.is_stopped = stopped

    def _take_ranks(
        self,
        job: Job,
        by_pid: Mapping[int, JobMember],
        workers: Sequence[JobMember],
        at: float,
        seconds: float,
    ) -> float | None:
        """Take the ranks; return the mean percent of their main threads."""
        mains = []
        for rank in job.ranks:
            track = self._ranks[rank.key]
            member = by_pid.get(rank.pid)
            if member is not None:
                track.push(rank, member, at, seconds)
                if member.main_thread_cpu_percent is not None:
                    mains.append(member.main_thread_cpu_percent)
            if len(job.ranks) > 1:
                track.workers.push(_workers_of(rank, workers), at, seconds)
        if len(self._ranks) > len(job.ranks):
            here = {rank.key for rank in job.ranks}
            self._ranks = {key: track for key, track in self._ranks.items() if key in here}
        return mean(mains)

    def _take_loops(self, job: Job, at: float, seconds: float) -> None:
        self._reports = bool(job.loops)
        self.steps_reported = min([loop.steps or 0 for loop in job.loops], default=0)
        if self.steps_since is None and self.steps_reported:
            self.steps_since = at
        loops = {loop.key: loop for loop in job.loops}
        for key, track in self._ranks.items():
            track.push_loop(loops.get(key), at, seconds)
        self.phases.push(job.loops, at, seconds)

    def settle(self, since: float) -> None:
        """Note that its start-up was over at ``since``: nothing of before counts for what grows."""
        self.steady_at = since
        for workers in (self._workers, *[rank.workers for rank in self._ranks.values()]):
            workers.memory.forget_before(since)

    def compiled_lately(self, now: float) -> bool:
        """Check whether compilers may still be at work."""
        over = max(startup.COMPILED_SECONDS, startup.BURSTS * self._compiled_apart)
        return now - self.compiled_at < over

    def cores_lately(self, now: float) -> float | None:
        """Return the cores that its processes used in the last seconds."""
        stat = self.table.over("cpu_cores", now - LATELY_SECONDS)
        return None if stat is None else stat.mean

    def written_lately(self, now: float) -> float:
        """Return the bytes that its processes wrote in the last minute, as far as is known."""
        stat = self.table.over(WRITTEN, now - WINDOW_SECONDS)
        return 0.0 if stat is None else stat.total

    def workers_since(self) -> float:
        """Return when the youngest of its loader workers began; never, where that is not known."""
        workers = [member for member in self.job.members if member.role == "loader_worker"]
        began = [worker.started_at_unix_seconds for worker in workers]
        known = [one for one in began if one is not None]
        return max(known) - self._offset if known and len(known) == len(began) else math.inf

    @property
    def recoveries(self) -> list[Recovery]:
        """Recoveries of all its ranks from waiting for data."""
        return [rank.recovery for rank in self._ranks.values()]

    def watched(self, since: float) -> float:
        return self.table.seconds_since(since)

    def steady_seconds(self, now: float) -> float:
        """Return how long it has been watched past its start-up."""
        if self.steady_at is None:
            return 0.0
        return min(self.watched_seconds, max(0.0, now - self.steady_at))

    def facts(self, since: float, gpus: Sequence[Shape]) -> JobFacts:
        """Return the facts over the time after ``since``."""
        workers = self._workers.facts(since)
        rows = rows_of(self.table, (MAIN, WORKERS, WRITTEN, BUSIEST, OTHERS), since)
        return JobFacts(
            **self.table.facts(since),
            **self._samples.against(rows, since, gpus),
            job=self.job,
            watched_seconds=self.watched_seconds,
            workers=workers,
            own_workers=self._own_workers.facts(since),
            ranks=self._rank_facts(since, workers),
            stacks=self.stacks,
        )

    def _rank_facts(self, since: float, all_workers: WorkerFacts | None) -> tuple[RankFacts, ...]:
        alone = len(self.job.ranks) == 1
        return tuple(
            [
                track.facts(rank, since, all_workers if alone else track.workers.facts(since))
                for rank in self.job.ranks
                if (track := self._ranks.get(rank.key)) is not None
            ]
        )


def is_starting(job: JobTrack, uses: Sequence[JobOnGpu], now: float) -> bool:
    """Check whether the job is still in its start-up; if it just came out, what was before is left
    out from now on."""
    gpus = [use.track for use in uses]
    if gpus and job.bare_since is not None and now - job.bare_since >= startup.WORK_SECONDS:
        # What it did before it took a GPU was preparation.
        job.starts_at, job.steady_at, job.bare_since = now, None, None
    if job.steady_at is not None:
        after = job.compiled_at - job.steady_at
        if not gpus or not 0.0 < after < startup.RESUMES_SECONDS:
            return False
        if any(startup.is_at_work(gpu.samples()) for gpu in gpus):
            return False
        job.steady_at = None
    if job.job.serves is not None:
        # A server listens when it has loaded what it serves.
        job.settle(now)
        return False
    if _is_too_old(job, gpus, now):
        job.settle(job.starting_until)
        job.bare_since = None if gpus else now
        return False
    since = _steps_from(job, uses, now)
    if since is None:
        job.starting_until = now
        return True
    job.settle(since)
    for use in uses:
        use.memory.forget_before(since)
    return False


def _steps_from(job: JobTrack, uses: Sequence[JobOnGpu], now: float) -> float | None:
    reported = job.steps_since
    if reported is not None and now - reported >= startup.WORK_SECONDS:
        if not uses:
            return reported
        if job.steps_reported >= startup.REPORTED_STEPS:
            return now - startup.WORK_SECONDS
    if job.compiled_lately(now):
        # What compilers try out on the GPU can have a rhythm as well.
        return None
    if job.workers_came_at is None and job.workers_since() < math.inf:
        job.workers_came_at = job.workers_since()
    grew = [use.memory.rose_at for use in uses if use.memory.grown() > startup.GROWS]
    prepared = (job.prepared_at, job.compiled_at, job.workers_came_at or -math.inf)
    job.prepared_at = after = max(*prepared, *grew)
    loads = job.table.mean(BUSIEST, now - LATELY_SECONDS, now)
    delivers = (loads or 0.0) >= startup.LOADS_PERCENT
    found: list[float | None] = []
    for use in uses:
        samples = use.track.samples(after)
        if len(samples) <= 2:
            continue
        step = usual_step(samples)
        found.append(startup.steps_from(samples, step, delivers=delivers))
        # Work before these workers came was none of theirs: a sanity check, a warm-up.
        theirs = [one for one in samples if one[0] - step > job.workers_since()]
        fed = startup.burst(theirs, step)
        if fed is not None and _waits_for_batch(job, fed[1], now):
            found.append(fed[0])
    return lowest(found)


def _waits_for_batch(job: JobTrack, since: float, now: float) -> bool:
    """Check whether its main threads slept since then, and a loader worker did not."""
    since = min(now - 1.0, since + (0.0 if job.job.attached else LAG_SECONDS))
    main, busiest = [job.table.mean(name, since, now) for name in (MAIN, BUSIEST)]
    sleeps = main is not None and main <= startup.SLEEPS_PERCENT
    return sleeps and (busiest or 0.0) >= startup.LOADS_PERCENT


def _is_too_old(job: JobTrack, gpus: Sequence[GpuTrack], now: float) -> bool:
    """Check whether it has had its time to start, and nothing shows that it still does."""
    age = now - job.starts_at
    if not gpus or age <= startup.LONGEST_SECONDS:
        return age > (startup.LONGEST_SECONDS if gpus else startup.WITHOUT_GPU_SECONDS)
    if any(startup.is_at_work(gpu.samples()) for gpu in gpus):
        return True
    compiles = job.compiled_lately(now)
    cores = job.cores_lately(now)
    works = cores is None or cores >= startup.WORKING_CORES
    silent = all(startup.is_silent(gpu.samples()) for gpu in gpus)
    return age > startup.LONGEST_WORK_SECONDS or not (compiles or (works and silent))


def _workers_of(rank: JobRank, workers: Sequence[JobMember]) -> list[JobMember]:
    return [
        worker
        for worker in workers
        if worker.parent_pid == rank.pid
        or (rank.rank is not None and worker.rank == rank.rank and worker.parent_pid is None)
    ]
