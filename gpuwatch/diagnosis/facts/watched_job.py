"""One job, followed from snapshot to snapshot."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Literal

from gpuwatch.core.model import BusySample, Job, JobMember, JobRank, ProcessKey, TrainingLoop
from gpuwatch.diagnosis.facts.recovery import Recovery
from gpuwatch.diagnosis.facts.startup import LONGEST_SECONDS
from gpuwatch.diagnosis.facts.watched_gpu import AHEAD_SECONDS, GpuTrack
from gpuwatch.diagnosis.facts.watched_loop import LoopTrack, PhaseTrack
from gpuwatch.diagnosis.facts.window import STOPPED_STATES, JobFacts, RankFacts, WorkerFacts
from gpuwatch.diagnosis.signals.phase import (
    SWING_PERCENT,
    UNSEEN,
    Integral,
    Phase,
    Span,
    compare,
    split,
    together,
)
from gpuwatch.diagnosis.signals.running import Ledger, Remembered, RunningMeans
from gpuwatch.diagnosis.signals.trend import Trend
from gpuwatch.diagnosis.signals.waveform import BUSY_PERCENT, IDLE_PERCENT, Waveform

AT_LIMIT_PERCENT = 90.0
"""Of a core: a loop that is at its limit still waits for the kernel and for locks now and then."""
SAMPLES_MAX = 1024
COMPARED_MAX = 200
"""Newest CPU samples held against the GPU's: forty seconds of those that come each 0.2 s."""
COMPARED_GPUS_MAX = 4
"""The GPUs of a job keep step, and each costs."""
POLLS_A_CYCLE = 4.0
FINE_SECONDS = 0.6
"""GPU samples further apart than this are too coarse for them."""
FINE_LEAST = 20
HELD_SECONDS = 5.0
"""Jobs that nobody is attached to are read every few seconds; until then a reading is repeated,
and speaks for the time since the one before. One that stays the same for longer is one."""

RESUMES_SECONDS = 15.0
"""What a job tells is of the last ten seconds or a little more: of a stop, too, that is over."""

_read = attrgetter(
    "cpu_percent",
    "run_queue_wait_percent",
    "disk_wait_percent",
    "read_bytes_per_second",
    "involuntary_switches_per_second",
    "memory_proportional_bytes",
)
_read_rank = attrgetter(
    "main_thread_cpu_percent",
    "run_queue_wait_percent",
    "disk_wait_percent",
    "read_bytes_per_second",
    "write_bytes_per_second",
)
_CORES, _MAIN, _QUEUE, _RUNNABLE, _THROTTLED, _READ, _WRITTEN = range(7)
READ, WRITTEN = 0, 1
"""Positions in ``ledger``."""

Shape = tuple[GpuTrack, Waveform | None]
Row = tuple[float, float, float | None, float | None, float | None]
"""(from, to, main threads' percent, workers' percent, bytes written a second)."""


_Against = tuple[Phase, Phase, tuple[float | None, float | None]]


class _Workers:
    """The loader workers of a job or of a rank."""

    def __init__(self, keep_seconds: float) -> None:
        self._means = RunningMeans(8, keep_seconds)
        self.memory = Trend()
        self._pids: tuple[int, ...] = ()
        self._orphaned = 0
        self.seen_at = -math.inf

    def push(self, members: Sequence[JobMember], at: float, seconds: float) -> float | None:
        """The mean CPU percent of them."""
        count = len(members)
        if not count:
            self._orphaned = 0
            self._means.add(at, (0.0, *(None,) * 7), seconds)
            return None
        self.seen_at = at
        columns = [
            [value for value in column if value is not None]
            for column in zip(*[_read(member) for member in members], strict=True)
        ]
        cpu, queue, disk, read, pushed, memory = columns
        mean_cpu = sum(cpu) / len(cpu) if cpu else None
        waits = "D" in [member.state for member in members]
        self._means.add(
            at,
            (
                float(count),
                mean_cpu,
                None if mean_cpu is None else float(mean_cpu >= AT_LIMIT_PERCENT),
                sum(queue) / len(queue) if queue else None,
                sum(disk) / len(disk) if disk else None,
                float(waits),
                float(sum(read)) if read else None,
                sum(pushed) / len(pushed) if pushed else None,
            ),
            seconds,
        )
        self._take_memory(members, memory, at)
        return mean_cpu

    def _take_memory(
        self, members: Sequence[JobMember], memory: Sequence[float], at: float
    ) -> None:
        pids = tuple([member.pid for member in members])
        if pids != self._pids:
            # Others than before: what they use is no growth.
            self._pids = pids
            self._orphaned = sum([member.orphaned for member in members])
            self.memory = Trend()
        if len(memory) == len(members):
            self.memory.add(at, float(sum(memory)))

    def facts(self, since: float) -> WorkerFacts | None:
        """``None`` if none was there after ``since``."""
        if self.seen_at <= since:
            return None
        mean = self._means.over(since)
        slope, slope_error = self.memory.slope() or (None, None)
        return WorkerFacts(
            count=mean[0] or 0.0,
            cpu_percent=mean[1],
            at_limit_share=mean[2],
            run_queue_wait_percent=mean[3],
            disk_wait_percent=mean[4],
            in_disk_wait_share=mean[5],
            read_bytes_per_second=mean[6],
            involuntary_switches_per_second=mean[7],
            memory_slope_bytes_per_second=slope,
            memory_slope_error_bytes_per_second=slope_error,
            orphaned=self._orphaned,
        )


class _Rank:
    """One rank of several, or the only one."""

    def __init__(self, keep_seconds: float) -> None:
        self._means = RunningMeans(6, keep_seconds)
        self._keep = keep_seconds
        self._loop: LoopTrack | None = None
        self._told: TrainingLoop | None = None
        self.workers = _Workers(keep_seconds)
        self.recovery = Recovery()
        """Of its waiting for data, as it tells itself."""
        self.state: str | None = None
        self._stopped_at: float | None = None
        self.stopped_seconds: float | None = None

    def take_state(self, state: str | None, at: float) -> None:
        self.state = state
        if state not in STOPPED_STATES:
            self._stopped_at = None
            self.stopped_seconds = None if state is None else 0.0
            return
        if self._stopped_at is None:
            self._stopped_at = at
        self.stopped_seconds = at - self._stopped_at

    def push(self, member: JobMember, at: float, seconds: float) -> None:
        main, *rest = _read_rank(member)
        limit = None if main is None else float(main >= AT_LIMIT_PERCENT)
        self._means.add(at, (main, limit, *rest), seconds)

    def push_loop(self, loop: TrainingLoop | None, at: float, seconds: float) -> None:
        self._told = loop
        if loop is None:
            return
        if self._loop is None:
            self._loop = LoopTrack(self._keep)
        self._loop.push(loop, at, seconds)
        if loop.data_wait_share is not None and loop.phase in {None, "train"}:
            self.recovery.add(at, 100.0 * (1.0 - loop.data_wait_share), seconds)

    def facts(self, rank: JobRank, since: float, workers: WorkerFacts | None) -> RankFacts:
        mean = self._means.over(since)
        told = self._told
        count, pinned = rank.loader_workers, rank.pinned_memory
        if told is not None:
            count = count if told.loader_workers is None else told.loader_workers
            pinned = pinned if told.pinned_memory is None else told.pinned_memory
        return RankFacts(
            pid=rank.pid,
            rank=rank.rank,
            gpu_uuids=rank.gpu_uuids,
            loader_workers=count,
            pinned_memory=pinned,
            main_thread_percent=mean[0],
            main_thread_at_limit_share=mean[1],
            run_queue_wait_percent=mean[2],
            disk_wait_percent=mean[3],
            read_bytes_per_second=mean[4],
            write_bytes_per_second=mean[5],
            workers=workers,
            loop=None if self._loop is None or told is None else self._loop.facts(since),
            state=self.state,
            stopped_seconds=self.stopped_seconds,
        )


class JobTrack:
    """``at`` is the monotonic time of the first look, ``first_look`` that of gpuwatch at anything:
    a job of unknown age that was there then counts as old."""

    def __init__(
        self, job: Job, at: float, unix: float, keep_seconds: float, ledger_seconds: float,
        *, first_look: bool
    ) -> None:  # fmt: skip
        started = job.started_at_unix_seconds
        self.job = job
        self.seen_at = at
        self.began_at = at - (unix - started) if started is not None else None
        """Monotonic time of its start; ``None``: not known."""
        self.watched_seconds = 0.0
        unknown_start = -math.inf if first_look else at
        self.starts_at = unknown_start if self.began_at is None else self.began_at
        self.steady_at: float | None = None
        """When its start-up was over."""
        self.fed_since: float | None = None
        """When it came to be fed, after it had not been: what was before does not count."""
        self.steps_since: float | None = None
        """When it was first seen to tell of a step."""
        self.steps_told = 0
        """Since then, by the rank that made the fewest."""
        if at - self.starts_at > LONGEST_SECONDS:
            self.steady_at = self.starts_at
        self.is_stopped = False
        """All its ranks are, and were when it was looked at before: it is not watched."""
        self._resumes_until = -math.inf
        self.pids: frozenset[int] = frozenset()
        self.ledger = Ledger(2, ledger_seconds)
        self.stacks: tuple[tuple[str, float, str | None], ...] = ()
        self._keep = keep_seconds
        self._means = RunningMeans(7, keep_seconds)
        self._workers = _Workers(keep_seconds)
        self._ranks: dict[ProcessKey, _Rank] = {}
        self._tells = False
        self.phases = PhaseTrack()
        self._against = Remembered[_Against]()
        self._rows: deque[Row] = deque(maxlen=SAMPLES_MAX)
        self._main_samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        self._worker_samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)

    @property
    def ended(self) -> bool:
        return self.job.ended_at_unix_seconds is not None

    def push(self, job: Job, at: float, seconds: float, offset: float) -> None:
        """``offset`` is unix less monotonic time."""
        self.job = job
        self.seen_at = at
        self.pids = frozenset([member.pid for member in job.members])
        if self.ended:
            return
        members = job.members
        by_pid = {member.pid: member for member in members}
        self._take_states(job, by_pid, at)
        if self.is_stopped:
            return
        self.watched_seconds += seconds
        workers = [member for member in members if member.role == "loader_worker"]
        worker_cpu = self._workers.push(workers, at, seconds)
        main = self._take_ranks(job, by_pid, workers, at, seconds)
        if (job.loops or self._tells) and at >= self._resumes_until:
            self._take_loops(job, at, seconds)
        reads = [m.read_bytes_per_second for m in members if m.read_bytes_per_second is not None]
        writes = [m.write_bytes_per_second for m in members if m.write_bytes_per_second is not None]
        cpus = [m.cpu_percent for m in members if m.cpu_percent is not None]
        read = float(sum(reads)) if reads else None
        written = float(sum(writes)) if writes else None
        queue, runnable = _waiting(members)
        self._means.add(
            at,
            (
                sum(cpus) / 100.0 if cpus else None,
                main,
                queue,
                runnable,
                job.cpu_throttled_percent,
                read,
                written,
            ),
            seconds,
        )
        self.ledger.add(at, (read, written), seconds)
        self._take_row(at, seconds, main, worker_cpu, written)
        _extend(self._main_samples, job.main_thread_samples, at, offset, self._keep)
        _extend(self._worker_samples, job.loader_worker_samples, at, offset, self._keep)

    def _take_states(self, job: Job, by_pid: Mapping[int, JobMember], at: float) -> None:
        stopped = bool(job.ranks)
        for rank in job.ranks:
            track = self._ranks.get(rank.key)
            if track is None:
                track = self._ranks[rank.key] = _Rank(self._keep)
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
        """The mean of the ranks' main threads."""
        several = len(job.ranks) > 1
        mains = []
        for rank in job.ranks:
            track = self._ranks[rank.key]
            member = by_pid.get(rank.pid)
            if member is not None:
                track.push(member, at, seconds)
                if member.main_thread_cpu_percent is not None:
                    mains.append(member.main_thread_cpu_percent)
            if several:
                track.workers.push(_workers_of(rank, workers), at, seconds)
        if len(self._ranks) > len(job.ranks):
            here = {rank.key for rank in job.ranks}
            self._ranks = {key: track for key, track in self._ranks.items() if key in here}
        return sum(mains) / len(mains) if mains else None

    def _take_loops(self, job: Job, at: float, seconds: float) -> None:
        self._tells = bool(job.loops)
        told_steps = min([loop.steps or 0 for loop in job.loops], default=0)
        if self.steps_since is None and told_steps:
            self.steps_since = at
        self.steps_told = told_steps
        told = {loop.key: loop for loop in job.loops}
        for key, track in self._ranks.items():
            track.push_loop(told.get(key), at, seconds)
        self.phases.push(job.loops, at, seconds)

    def _take_row(
        self,
        at: float,
        seconds: float,
        main: float | None,
        workers: float | None,
        written: float | None,
    ) -> None:
        rows = self._rows
        begin = at - seconds
        if rows:
            before = rows[-1]
            same = before[2:] == (main, workers, written)
            if same and at - before[0] <= HELD_SECONDS and begin <= before[1] + 1e-6:
                rows[-1] = (before[0], at, main, workers, written)
                return
        rows.append((begin, at, main, workers, written))
        while len(rows) > 1 and rows[0][1] <= at - self._keep:
            rows.popleft()

    def settle(self, since: float) -> None:
        """Its start-up was over at ``since``: nothing of before counts for what grows."""
        self.steady_at = since
        for workers in (self._workers, *[rank.workers for rank in self._ranks.values()]):
            workers.memory.forget_before(since)

    # What it says

    def note_fed(self, since: float | None) -> None:
        if since is not None:
            self.fed_since = since

    @property
    def recoveries(self) -> list[Recovery]:
        """Of all its ranks."""
        return [rank.recovery for rank in self._ranks.values()]

    def watched(self, since: float) -> float:
        return self._means.over(since).watched_seconds

    def facts(self, since: float, unix: float, gpus: Sequence[Shape]) -> JobFacts:
        """Over the time after ``since``; ``unix`` is the wall time of the newest snapshot."""
        mean = self._means.over(since)
        main, workers, (idle_written, busy_written) = self._against.get(
            (since, self.seen_at), lambda: self._held_against(since, gpus)
        )
        all_workers = self._workers.facts(since)
        job, started = self.job, self.job.started_at_unix_seconds
        return JobFacts(
            job=job,
            age_seconds=None if started is None else max(0.0, unix - started),
            watched_seconds=self.watched_seconds,
            cpu_cores=mean[_CORES],
            main_thread_percent=mean[_MAIN],
            main_thread_when_idle_percent=main.when_idle_percent,
            main_thread_when_busy_percent=main.when_busy_percent,
            workers=all_workers,
            workers_when_idle_percent=workers.when_idle_percent,
            workers_when_busy_percent=workers.when_busy_percent,
            main_thread_phase=main.correlation,
            workers_phase=workers.correlation,
            run_queue_wait_percent=mean[_QUEUE],
            runnable=mean[_RUNNABLE],
            cpu_throttled_percent=mean[_THROTTLED],
            read_bytes_per_second=mean[_READ],
            write_bytes_per_second=mean[_WRITTEN],
            write_when_idle_bytes_per_second=idle_written,
            write_when_busy_bytes_per_second=busy_written,
            ranks=self._rank_facts(since, all_workers),
            stacks=self.stacks,
        )

    def _rank_facts(self, since: float, all_workers: WorkerFacts | None) -> tuple[RankFacts, ...]:
        found = []
        for rank in self.job.ranks:
            track = self._ranks.get(rank.key)
            if track is not None:
                alone = len(self.job.ranks) == 1
                workers = all_workers if alone else track.workers.facts(since)
                found.append(track.facts(rank, since, workers))
        return tuple(found)

    def _held_against(self, since: float, gpus: Sequence[Shape]) -> _Against:
        """The phases of the main threads and of the workers, and what was written while the GPUs
        idled and while they were busy."""
        rows = [row for row in self._rows if row[1] > since]
        shapes = [(gpu, shape) for gpu, shape in gpus if shape is not None]
        if not rows or not shapes:
            return UNSEEN, UNSEEN, (None, None)
        low = min([shape.low_percent for _, shape in shapes])
        high = max([shape.high_percent for _, shape in shapes])
        if high - low < 2.0 * SWING_PERCENT:
            return self._without_swing(rows, low, high)
        tracks = [gpu for gpu, _ in shapes[:COMPARED_GPUS_MAX]]
        integrals = [Integral(list(gpu.series), usual_step(gpu.series)) for gpu in tracks]
        coarse = max([shape.sample_seconds for _, shape in shapes]) > FINE_SECONDS
        busy = _busy_over(rows, integrals)

        def by_rows(position: Literal[2, 3]) -> Phase:
            if coarse and _too_fast(shapes):
                return UNSEEN
            return _by_rows(rows, position, busy, exact=not coarse)

        mains = self._fine(self._main_samples, since, coarse=coarse)
        workers = self._fine(self._worker_samples, since, coarse=coarse)
        fine = _busy_over(mains, integrals) if mains else []
        if mains and [span[:2] for span in workers] == [span[:2] for span in mains]:
            fine_workers = fine
        else:
            fine_workers = _busy_over(workers, integrals) if workers else []
        return (
            compare(mains, fine) if mains else by_rows(2),
            compare(workers, fine_workers) if workers else by_rows(3),
            split([(row[4], gpu) for row, gpu in zip(rows, busy, strict=True)]),
        )

    def _without_swing(self, rows: Sequence[Row], low: float, high: float) -> _Against:
        """The GPUs did the same all the time."""
        means = []
        for position in (2, 3, 4):
            known = [value for row in rows if (value := row[position]) is not None]
            means.append(sum(known) / len(known) if known else None)
        main, workers, written = means
        if low >= BUSY_PERCENT:
            return (
                Phase(when_busy_percent=main),
                Phase(when_busy_percent=workers),
                (None, written),
            )
        if high <= IDLE_PERCENT:
            return (
                Phase(when_idle_percent=main),
                Phase(when_idle_percent=workers),
                (written, None),
            )
        return UNSEEN, UNSEEN, (None, None)

    def _fine(
        self, samples: Sequence[tuple[float, float]], since: float, *, coarse: bool
    ) -> list[Span]:
        """Spans of the newest CPU samples; none where they, or the GPU's, are too coarse."""
        recent = [] if coarse else [sample for sample in samples if sample[0] > since]
        recent = recent[-COMPARED_MAX:]
        if len(recent) < FINE_LEAST:
            return []
        step = usual_step(recent)
        spans: list[Span] = []
        before = recent[0][0] - step
        for at, percent in recent:
            spans.append((max(before, at - 2.5 * step), at, percent))
            before = at
        return spans


def _by_rows(
    rows: Sequence[Row], position: Literal[2, 3], busy: Sequence[float | None], *, exact: bool
) -> Phase:
    spans: list[Span] = []
    gpu: list[float | None] = []
    for row, one in zip(rows, busy, strict=True):
        value = row[position]
        if value is not None:
            spans.append((row[0], row[1], value))
            gpu.append(one)
    return compare(spans, gpu, exact=exact)


def _too_fast(shapes: Sequence[tuple[GpuTrack, Waveform]]) -> bool:
    """Polls of an instant show nothing of what the GPU did between them."""
    return any(
        shape.faster_than_seen
        or (
            shape.period_seconds is not None
            and shape.period_seconds < POLLS_A_CYCLE * shape.sample_seconds
        )
        for _, shape in shapes
    )


def _busy_over(
    spans: Sequence[Sequence[float | None]], integrals: Sequence[Integral]
) -> list[float | None]:
    ends = [(span[0], span[1]) for span in spans]
    return together([integral.means(ends) for integral in integrals])  # type: ignore[arg-type]


def usual_step(samples: Sequence[tuple[float, float]]) -> float:
    """Their usual distance, by the newest few."""
    count = len(samples)
    last = [samples[at][0] for at in range(max(0, count - 16), count)]
    distances = sorted([later - earlier for earlier, later in pairwise(last)])
    return distances[len(distances) // 2] if distances else 1.0


def _extend(
    samples: deque[tuple[float, float]],
    fresh: tuple[BusySample, ...] | None,
    at: float,
    offset: float,
    keep: float,
) -> None:
    if not fresh:
        return
    newest = samples[-1][0] if samples else at - keep
    for stamp, percent in fresh:
        moment = stamp - offset
        if newest < moment <= at + AHEAD_SECONDS:
            samples.append((moment, percent))
            newest = moment
    while samples and samples[0][0] <= at - keep:
        samples.popleft()


def _waiting(members: Sequence[JobMember]) -> tuple[float | None, float | None]:
    """Mean run-queue wait of ranks and workers, and how many main threads ran or could have."""
    waits: list[float] = []
    runnable, known = 0.0, False
    for member in members:
        wait, main = member.run_queue_wait_percent, member.main_thread_cpu_percent
        if wait is not None and main is not None:
            runnable += (wait + main) / 100.0
            known = True
        elif member.state is not None:
            runnable += member.state == "R"
            known = True
        if wait is not None and member.role in ("rank", "loader_worker"):
            waits.append(wait)
    return sum(waits) / len(waits) if waits else None, runnable if known else None


def _workers_of(rank: JobRank, workers: Sequence[JobMember]) -> list[JobMember]:
    return [
        worker
        for worker in workers
        if worker.parent_pid == rank.pid
        or (rank.rank is not None and worker.rank == rank.rank and worker.parent_pid is None)
    ]
