"""One rank of a job, the loader workers of a rank or a job, and the phases that ranks report, from
snapshot to snapshot."""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter

from gpuwatch.core.bounds import mean
from gpuwatch.core.model import JobMember, JobRank, ProcessKey, TrainingLoop
from gpuwatch.diagnosis.facts.averages import FactTable
from gpuwatch.diagnosis.facts.recovery import Recovery
from gpuwatch.diagnosis.facts.window import STOPPED_STATES, LoopFacts, RankFacts, WorkerFacts
from gpuwatch.diagnosis.signals.trend import Trend

PHASES_KEPT = 512
"""Changes of phase, two for each pause: the 15 minutes of which pauses are remembered."""
PAUSE_SHARE = 0.3
"""Of a pause: the phase is seen once a snapshot, the pause with the driver's fine samples."""
PAUSES = ("checkpoint", "validation")

RESTS_SECONDS = 12.0
"""A loader worker that has done nothing for so long, since it was first seen, while others work,
feeds another loader."""
LATE_SECONDS = 60.0
"""One that was seen to work before: while one slow batch is made, the others rest as well, but
hardly for so long."""
APART_RESTS_SECONDS = 5.0
"""The same for workers that began apart from those that work."""
APART_SECONDS = 1.0
"""Workers of one loader are started one right after the other: a longer time lies between two
loaders."""
RESTS_PERCENT = 1.0
"""Of a core: one that waits for its next batch wakes every few seconds to see whether its training
process still lives."""
RESTS_SWITCHES_PER_SECOND = 5.0
"""A few with each of those wakes, and switches are counted over two seconds."""

_read = attrgetter(
    "whole_cpu_percent",
    "run_queue_wait_percent",
    "disk_wait_percent",
    "involuntary_switches_per_second",
    "awaits_network",
)


def _occupied(worker: JobMember) -> float:
    """Percent of its time in which a worker computes, or waits for storage or the network."""
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
    """Which loader workers feed the training now. Those of another loader that rests (validation
    with ``persistent_workers``) are left out."""

    def __init__(self) -> None:
        self._worked_at: dict[ProcessKey, float] = {}
        self._idle: dict[ProcessKey, bool] = {}
        """It has done nothing since it was first seen."""

    def of(self, workers: Sequence[JobMember], at: float) -> list[JobMember]:
        """Of each training process all, while none of its workers is seen to work."""
        before, self._worked_at = self._worked_at, {}
        idle, self._idle = self._idle, {}
        parents: dict[int | None, list[JobMember]] = {}
        for one in workers:
            rests = _rests(one)
            self._worked_at[one.key] = before.get(one.key, at) if rests else at
            known_to_work = not rests and one.cpu_percent is not None
            self._idle[one.key] = idle.get(one.key, True) and not known_to_work
            parents.setdefault(one.parent_pid, []).append(one)
        return [one for own in parents.values() for one in self._working(own, at) or own]

    def _working(self, workers: Sequence[JobMember], at: float) -> list[JobMember]:
        found: list[JobMember] = []
        for group in _by_begin(workers):
            rested = [at - self._worked_at[one.key] for one in group]
            if min(rested) < APART_RESTS_SECONDS:
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
        self.changed = False
        """Others were there than at the look before."""
        self.resting = 0
        """How many more there are, of a loader that feeds nothing."""
        self._feeding = Feeding() if loads else None

    def push(self, members: Sequence[JobMember], at: float, seconds: float) -> float | None:
        """The mean CPU percent of them."""
        if members:
            self._seen_at = at
        elif self._seen_at == -math.inf:
            return None
        else:
            self._orphaned = 0
        every = members
        if self._feeding is not None:
            members = self._feeding.of(members, at)
        resting = len(every) - len(members)
        if resting > self.resting:
            # Until it was known that they feed nothing they were counted.
            self._table = FactTable(WorkerFacts)
        self.resting = resting
        rows = zip(*[_read(member) for member in members], strict=True)
        columns = [[value for value in column if value is not None] for column in rows]
        cpu, queue, disk, pushed, awaits = columns or [[]] * 5
        known = [member.awaits_work for member in members if member.awaits_work is not None]
        used = mean(cpu)
        waits = float("D" in [member.state for member in members])
        worked_out = {
            "count": float(len(members)),
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
        self.changed = self._pids not in (pids, ())
        if pids != self._pids:
            # Others than before: what they use is no growth.
            self._pids = pids
            self._orphaned = sum([member.orphaned for member in members])
            self.memory = Trend()
        if len(memory) == len(members):
            self.memory.add(at, float(sum(memory)))

    def facts(self, since: float) -> WorkerFacts | None:
        """``None`` if none was there after ``since``."""
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


class Rank:
    """One rank of several, or the only one."""

    def __init__(self) -> None:
        self._table = FactTable(RankFacts)
        self._loop_table = FactTable(LoopFacts)
        self._loop: TrainingLoop | None = None
        self.workers = Workers()
        self.recovery = Recovery()
        """Of its waiting for data, as it reports itself."""
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
        """``None`` before it has reported anything after ``since``."""
        if self._loop_table.seconds_since(since) <= 0.0:
            return None
        return LoopFacts(**self._loop_table.facts(since))


class Phases:
    """Phase of the job as a whole: while one rank saves, the others wait for it."""

    def __init__(self) -> None:
        self._since: deque[tuple[float, str | None]] = deque(maxlen=PHASES_KEPT)
        self._until = 0.0

    def push(self, loops: Sequence[TrainingLoop], at: float, seconds: float) -> None:
        """As it was in the ``seconds`` up to ``at``."""
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
        """Begin and end of those that are over and ended after ``since``: where no GPU shows
        them, as exactly as snapshots come."""
        return [
            (begin, end)
            for (begin, phase), (end, _) in pairwise(self._since)
            if phase in PAUSES and end > since
        ]

    def between(self, begin: float, end: float) -> str | None:
        """The pause that was reported in a good part of that time, else ``train`` if that was."""
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
