"""Use by processes and by jobs (all their processes together), in bounded memory: of a job also how
it loaded its data, and what it reported of its own training loops.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from gpuwatch.core.bounds import total
from gpuwatch.core.model import (
    BusySample,
    GpuKey,
    Job,
    JobMember,
    Process,
    ProcessKey,
    Snapshot,
    TrainingLoop,
)
from gpuwatch.core.store import LONGEST_SAMPLE_SECONDS
from gpuwatch.jobs.identity.runs import essence
from gpuwatch.jobs.words import job_loading_sentence
from gpuwatch.outputs.report.accumulators.sums import Gauge, sane, whole
from gpuwatch.outputs.report.accumulators.time_axis import Grid, ProfileRecorder, Step, profiles
from gpuwatch.outputs.report.model import JobUsage, Loading, Loop, ProcessUsage, Unix, Usage

# --- how a job loads its data -----------------------------------------------------------------

AT_LIMIT_PERCENT = 90.0
"""Share of one core from which a process is held back by its core more than by anything else."""
STATES_KEPT = 32
_OF_WORKERS = (
    "loader_worker_cpu_percent",
    "loader_worker_at_limit_percent",
    "loader_worker_queue_wait_percent",
    "loader_worker_disk_wait_percent",
)
_OF_RANKS = (
    "main_thread_cpu_percent",
    "main_thread_at_limit_percent",
    "main_thread_queue_wait_percent",
)


@dataclass(slots=True)
class _LoadingState:
    """One way of loading the job was seen to have: so many workers, and pinned memory."""

    workers: int | None
    pinned: bool | None
    sentence: str = ""
    guessed: bool = True
    seconds: float = 0.0

    @property
    def weight(self) -> tuple[float, ...]:
        """Rank of the state: workers are started and ended with every epoch, so that there are some
        says more than the time without them."""
        some = bool(self.workers)
        return (some and self.pinned is not None, some, self.workers is not None, self.seconds)


class LoadingAccumulator:
    def __init__(self) -> None:
        self._states: dict[tuple[int | None, bool | None], _LoadingState] = {}
        self._peak: int | None = None
        self._started = 0
        self._workers: frozenset[ProcessKey] = frozenset()
        self._gauges = {name: Gauge() for name in (*_OF_WORKERS, *_OF_RANKS)}

    def add_job(self, job: Job, seconds: float) -> None:
        if job.ranks:
            self._note_state(job, seconds)
        names: tuple[str, ...]
        workers = []
        for member in job.members:
            if member.role == "loader_worker":
                workers.append(member.key)
                names, cpu = _OF_WORKERS, member.cpu_percent
            elif member.role == "rank":
                names, cpu = _OF_RANKS, member.main_thread_cpu_percent
            else:
                continue
            waits = (member.run_queue_wait_percent, member.disk_wait_percent)
            for name, percent in zip(names, (cpu, _at_limit(cpu), *waits), strict=False):
                self._gauges[name].add(percent, seconds)
        if workers or self._workers:
            now = frozenset(workers)
            self._started += len(now - self._workers)
            self._workers = now
            self._peak = max(self._peak or 0, len(now))

    def _note_state(self, job: Job, seconds: float) -> None:
        key = (job.loader_workers, job.pinned_memory)
        if key not in self._states and len(self._states) >= STATES_KEPT:
            # A rank that restarts all the time, say: what lasted longest is what matters.
            del self._states[min(self._states, key=lambda key: self._states[key].seconds)]
        state = self._states.setdefault(key, _LoadingState(*key))
        guessed = any(rank.loader_workers_guessed for rank in job.ranks)
        if guessed <= state.guessed:
            # What is certain counts; why it is unknown changes, and the last reason lasted.
            state.sentence, state.guessed = job_loading_sentence(job), guessed
        state.seconds += seconds

    def report(self) -> Loading:
        state = max(self._states.values(), key=lambda one: one.weight, default=None)
        workers = None if state is None else state.workers
        return Loading(
            sentence=None if state is None else state.sentence,
            loader_workers=workers,
            loader_workers_peak=workers if self._peak is None else self._peak,
            loader_workers_started=None if workers is None else self._started,
            pinned_memory=None if state is None else state.pinned,
            **{name: gauge.mean for name, gauge in self._gauges.items()},
        )


def _at_limit(percent: float | None) -> float | None:
    return None if percent is None else 100.0 if percent >= AT_LIMIT_PERCENT else 0.0


class FineProfile:
    """A time profile from fine samples where a job has them, else from one value a snapshot."""

    def __init__(self, profile: ProfileRecorder, now: float) -> None:
        self.profile = profile
        self._until = now

    def add_samples(
        self, samples: tuple[BusySample, ...] | None, percent: float | None, step: Step
    ) -> None:
        if samples is None:
            value = sane(percent)
            if value is not None:
                self.profile.add(step.since, step.until, value)
                self._until = step.until
            return
        for sample in samples:
            value = sane(sample[1])
            at = min(sample[0] - step.offset, step.until)
            passed = at - self._until
            if value is None or not passed > 0:
                continue
            if passed <= LONGEST_SAMPLE_SECONDS:
                self.profile.add(self._until, at, value)
            self._until = at


# --- training loops that a job reports, the ranks together ------------------------------------

RANKS_KEPT = 512
SHARES = ("data_wait_share", "compute_share", "copy_share", "validation_share", "checkpoint_share")
SAME_SECONDS = 0.5
"""Largest difference of two times of one moment, as reported and as seen."""
_KEPT_SECONDS = 60.0
"""Time for which sums are kept: windows are ten seconds, and longer by a step or a wait."""

_Sums = tuple[float, ...]


class LoopWork(NamedTuple):
    seconds: float
    """Time for which the loop ran; all else is about it."""
    samples: float | None
    spent: tuple[float | None, ...]
    """Seconds, for each of ``SHARES``; a little negative where it was reported late that
    less was spent."""


class LoopMeter:
    """Meter of one rank's loop, from look to look.

    The window that is reported reaches further back than the look before. A mean of it over the
    looks would count the beginning of a loop many times and smear what changes, so the sums behind
    it are put together again: what was spent up to now is what was spent in the window, and what
    had been spent by its beginning.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, _Sums]] = deque()
        """Seconds spent on each of ``SHARES`` up to some moments."""
        self._kinds: tuple[bool, ...] = ()
        self._steps: int | None = None
        self._idle = True
        self._until: float | None = None
        """Time of the last look."""

    def work_of(self, loop: TrainingLoop, since: float, at: float, unix: float) -> LoopWork:
        """Return the loop's work from ``since`` (the look before) to ``at``, in monotonic seconds;
        ``unix``: wall time ``at`` that moment."""
        window = sane(loop.window_seconds)
        seconds = at - since
        if self._until is None and window is not None:
            # It began after the look before.
            seconds = min(seconds, window)
        elif self._until is not None and since - self._until > SAME_SECONDS:
            # Nobody looked for a while, of which nothing is known.
            self._steps, self._kinds = None, ()
        steps, before = loop.steps, self._steps
        made = None if steps is None or before is None or steps < before else steps - before
        idle = loop.phase == "idle"
        ran = bool(made) or not (idle and self._idle)
        spent = self._spend(loop, seconds if window is None else window, seconds, at)
        if idle and loop.reported_at_unix_seconds is not None:
            # Since then it has been idle.
            seconds = max(0.0, seconds - max(0.0, unix - loop.reported_at_unix_seconds))
        self._steps, self._idle, self._until = steps, idle, at
        return LoopWork(seconds if ran else 0.0, _samples(loop, made, seconds), spent)

    def _spend(
        self, loop: TrainingLoop, window: float, seconds: float, at: float
    ) -> tuple[float | None, ...]:
        shares = [sane(getattr(loop, name), 1.0) for name in SHARES]
        kinds = tuple([share is None for share in shares])
        points = self._points
        before = self._sums_at(at - window) if kinds == self._kinds else None
        if before is None:
            # It begins to report (this), or nobody looked for longer than the window.
            self._kinds = kinds
            points.clear()
            points.append((at - window, (0.0,) * len(shares)))
            points.append((at, tuple([(share or 0.0) * window for share in shares])))
            return tuple([None if share is None else share * seconds for share in shares])
        last = points[-1][1]
        now = tuple(
            [(share or 0.0) * window + was for share, was in zip(shares, before, strict=True)]
        )
        points.append((at, now))
        while points[1][0] < at - max(window, _KEPT_SECONDS):
            points.popleft()
        return tuple(
            [None if none else one - was for none, one, was in zip(kinds, now, last, strict=True)]
        )

    def _sums_at(self, at: float) -> _Sums | None:
        """Return the sums at a moment, interpolated between those kept; ``None`` outside of
        them."""
        points = self._points
        if not points or points[-1][0] < at:
            return None
        later = points[-1]
        for point in reversed(points):
            if point[0] <= at:
                length = later[0] - point[0]
                part = (at - point[0]) / length if length > 0.0 else 0.0
                pairs = zip(point[1], later[1], strict=True)
                return tuple([was + part * (after - was) for was, after in pairs])
            later = point
        return points[0][1] if points[0][0] - at < SAME_SECONDS else None


def _samples(loop: TrainingLoop, steps: int | None, seconds: float) -> float | None:
    """Return the samples by the steps, which are counted; rates are reported from step to step."""
    rate, step_rate = sane(loop.samples_per_second), sane(loop.steps_per_second)
    if rate is None:
        return None
    if steps is None or not step_rate:
        return rate * seconds
    return steps * rate / step_rate


class TimeSpent(Gauge):
    """Seconds that were spent on something, out of those in which it is known."""

    def add(self, spent: float | None, seconds: float) -> None:
        if spent is not None and seconds > 0.0:
            self.total += spent
            self.seconds += seconds

    @property
    def percent(self) -> float | None:
        return None if self.mean is None else min(100.0, max(0.0, 100.0 * self.mean))


class _ReportingRank:
    __slots__ = ("meter", "number", "steps", "waits")

    def __init__(self) -> None:
        self.meter = LoopMeter()
        self.number: int | None = None
        self.waits = TimeSpent()
        self.steps: int | None = None


class LoopsAccumulator:
    def __init__(self, profile: ProfileRecorder | None) -> None:
        self._profile = profile
        self._ranks: dict[ProcessKey, _ReportingRank] = {}
        self._spent = {name: TimeSpent() for name in SHARES}
        self._seconds = 0.0
        """Time for which a loop ran."""
        self._samples = Gauge()
        """Samples a second."""
        self._allocated, self._reserved = Gauge(), Gauge()
        self._epoch: int | None = None
        self._on_device: bool | None = None

    def add_job(self, job: Job, step: Step) -> float:
        """Take what the job reports of its loops, and return for how long of the step one ran."""
        numbers = {rank.key: rank.rank for rank in job.ranks}
        waits = TimeSpent()
        longest, samples = 0.0, 0.0
        all_known = True
        for loop in job.loops:
            rank = self._rank(loop.key)
            if rank is None:
                continue
            if numbers.get(loop.key) is not None:
                rank.number = numbers[loop.key]
            self._note(loop, rank)
            work = rank.meter.work_of(loop, step.since, step.until, step.until + step.offset)
            if work.seconds <= 0.0:
                continue
            longest = max(longest, work.seconds)
            all_known = all_known and work.samples is not None
            samples += work.samples or 0.0
            for name, spent in zip(SHARES, work.spent, strict=True):
                self._spent[name].add(spent, work.seconds)
            for one in (rank.waits, waits):
                one.add(work.spent[0], work.seconds)
        self._seconds += longest
        if longest > 0.0 and all_known:
            self._samples.add(samples / longest, longest)
        if self._profile is not None and waits.percent is not None:
            self._profile.add(step.since, step.until, waits.percent)
        return longest

    def _rank(self, key: ProcessKey) -> _ReportingRank | None:
        if key not in self._ranks and len(self._ranks) < RANKS_KEPT:
            self._ranks[key] = _ReportingRank()
        return self._ranks.get(key)

    def _note(self, loop: TrainingLoop, rank: _ReportingRank) -> None:
        peak = loop.memory_peak_bytes
        self._allocated.add(loop.memory_allocated_bytes if peak is None else peak, 0.0)
        self._reserved.add(loop.memory_reserved_bytes, 0.0)
        if loop.compute_on_device is not None:
            self._on_device = loop.compute_on_device
        if loop.epoch is not None:
            self._epoch = max(self._epoch or 0, loop.epoch)
        if loop.steps is not None:
            rank.steps = loop.steps

    def report(self) -> Loop:
        ranks = list(self._ranks.values())
        waits = [(rank.waits.percent, rank.number) for rank in ranks]
        known = [(percent, number) for percent, number in waits if percent is not None]
        # Of one rank it says nothing more.
        most = max(known, key=lambda one: one[0]) if len(known) > 1 else (None, None)
        spent = self._spent.items()
        return Loop(
            reported_seconds=self._seconds,
            ranks=len(ranks) or None,
            samples_per_second=self._samples.mean,
            steps=min([rank.steps for rank in ranks if rank.steps is not None], default=None),
            last_epoch=self._epoch,
            data_wait_most_percent=most[0],
            data_wait_most_rank=most[1],
            compute_on_device=self._on_device,
            **{f"{name.removesuffix('share')}percent": one.percent for name, one in spent},
            memory_allocated_peak_bytes=whole(self._allocated.peak),
            memory_reserved_peak_bytes=whole(self._reserved.peak),
        )


# --- processes and jobs -----------------------------------------------------------------------

PROCESSES_KEPT = 1024
"""Most processes kept: loader workers are started anew each epoch, so a long recording sees very
many."""


class UsageAccumulator:
    """Sums that jobs and processes share, by the names of ``Usage``."""

    def __init__(self, now: float) -> None:
        self.first_unix_seconds = self.last_unix_seconds = now
        self.user: str | None = None
        self.command: str | None = None
        self.gpus: dict[GpuKey, None] = {}
        self.gpu_held_seconds = 0.0
        self.gpu_busy_seconds: float | None = None
        self.gpu_memory_peak_bytes: int | None = None
        self.cpu_core_seconds: float | None = None
        self.memory_peak_bytes: int | None = None
        self.read_bytes: float | None = None
        self.written_bytes: float | None = None

    def add_gpu(self, uuid: GpuKey, busy_percent: float | None, seconds: float) -> None:
        self.gpus[uuid] = None
        self.gpu_held_seconds += seconds
        self.gpu_busy_seconds = _plus(self.gpu_busy_seconds, busy_percent, seconds / 100.0)

    def add_gpu_memory(self, held: int) -> None:
        self.gpu_memory_peak_bytes = max(self.gpu_memory_peak_bytes or 0, held)

    def add_host(self, cpu_percent: float | None, memory: int | None, seconds: float) -> None:
        self.cpu_core_seconds = _plus(self.cpu_core_seconds, cpu_percent, seconds / 100.0)
        if memory is not None:
            self.memory_peak_bytes = max(self.memory_peak_bytes or 0, memory)

    def add_storage(self, read: float | None, written: float | None, seconds: float) -> None:
        """Add storage traffic; both rates are in bytes a second."""
        self.read_bytes = _plus(self.read_bytes, read, seconds)
        self.written_bytes = _plus(self.written_bytes, written, seconds)

    @property
    def sums(self) -> dict[str, Any]:
        """Fields of ``Usage`` but for who it is."""
        sums = {name: getattr(self, name) for name in Usage.__struct_fields__[2:]}
        return sums | {"gpus": tuple(self.gpus)}

    @property
    def weight(self) -> tuple[float, float, float]:
        gpu_seconds = self.gpu_held_seconds + (self.gpu_busy_seconds or 0.0)
        return (gpu_seconds, self.cpu_core_seconds or 0.0, float(self.memory_peak_bytes or 0))


def _plus(sum_: float | None, rate: float | None, seconds: float) -> float | None:
    """Return the sum with ``rate`` times ``seconds`` added, if that is an amount."""
    if rate is None or not 0.0 <= rate < math.inf:
        return sum_
    return (sum_ or 0.0) + rate * seconds


class _ProcessUsageAccumulator(UsageAccumulator):
    """Sums of one process, with facts that are not known any more once it ends."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.name: str | None = None
        self.role: str | None = None
        self.snapshot_number = 0
        """Number of the snapshot that its CPU time and memory were taken from last."""

    def add_process(
        self, process: Process | JobMember, user: str | None, number: int, seconds: float
    ) -> None:
        """Add CPU time and memory once a snapshot: a process has a row for each GPU, with the same
        readings of the host in all of them."""
        if self.snapshot_number == number:
            return
        self.snapshot_number = number
        self.user = user or self.user
        self.name = process.name or self.name
        self.command = process.command or self.command
        self.add_host(process.cpu_percent, process.memory_resident_bytes, seconds)


class ProcessesAccumulator:
    def __init__(self) -> None:
        self._processes: dict[ProcessKey, _ProcessUsageAccumulator] = {}
        self._snapshots = 0
        self.left_out = 0

    def add_snapshot(
        self, snapshot: Snapshot, jobs: Iterable[Job], now: float, seconds: float
    ) -> None:
        """Add all processes of a snapshot; ``seconds``: the time that rates hold for."""
        self._snapshots += 1
        for process in snapshot.processes:
            used = self._process((process.pid, process.started_at_unix_seconds), now)
            if process.gpu_uuid is not None:
                used.add_gpu(process.gpu_uuid, process.gpu_busy_percent, seconds)
            used.add_process(process, process.user, self._snapshots, seconds)
        for key, held in gpu_memory(snapshot).items():
            self._processes[key].add_gpu_memory(held)
        for job in jobs:
            for member in job.members:
                used = self._process((member.pid, member.started_at_unix_seconds), now)
                used.role = member.role
                used.add_process(member, job.user, self._snapshots, seconds)
                read, written = member.read_bytes_per_second, member.write_bytes_per_second
                used.add_storage(read, written, seconds)
        self._forget(now)

    def _process(self, key: ProcessKey, now: float) -> _ProcessUsageAccumulator:
        used = self._processes.get(key)
        if used is None:
            used = self._processes[key] = _ProcessUsageAccumulator(now)
        used.last_unix_seconds = now
        return used

    def _forget(self, now: float) -> None:
        """Forget those gone processes that used least."""
        if len(self._processes) <= PROCESSES_KEPT:
            return
        gone = [item for item in self._processes.items() if item[1].last_unix_seconds < now]
        gone.sort(key=lambda item: item[1].weight)
        for key, _ in gone[: max(1, PROCESSES_KEPT // 4)]:
            del self._processes[key]
            self.left_out += 1

    def usages(self) -> tuple[ProcessUsage, ...]:
        return tuple(
            ProcessUsage(pid=pid, started_at_unix_seconds=start, name=u.name, role=u.role, **u.sums)
            for (pid, start), u in by_weight(self._processes)
        )


def gpu_memory(snapshot: Snapshot) -> dict[ProcessKey, int]:
    """Return the bytes that each process holds, on all its GPUs."""
    memory: dict[ProcessKey, int] = {}
    for process in snapshot.processes:
        if process.gpu_uuid is not None and process.gpu_memory_bytes is not None:
            key = (process.pid, process.started_at_unix_seconds)
            memory[key] = memory.get(key, 0) + process.gpu_memory_bytes
    return memory


U = TypeVar("U", bound=UsageAccumulator)


def by_weight(usages: Mapping[ProcessKey, U]) -> list[tuple[ProcessKey, U]]:
    ordered = sorted(usages.items(), key=lambda item: item[0][0])
    return sorted(ordered, key=lambda item: item[1].weight, reverse=True)


GROWN_SINCE = 1.25
"""Growth of resident memory since the proportional one's peak from which that was read too early:
of a process that was still importing, say."""
FACTS = (
    *("command", "user", "working_directory", "launcher", "framework", "world_size", "container"),
    *("pod", "slurm_job", "environment", "exit_code", "usable_cores", "quota_cores"),
)


class JobAccumulator(UsageAccumulator):
    def __init__(self, job: Job, now: float, grid: Grid | None) -> None:
        """``grid``: for time profiles, of a report about this job alone."""
        super().__init__(now)
        self._key = job.key
        self._facts: dict[str, Any] = {}
        """Last known value of each of ``FACTS``: little can be read of a process that ended."""
        self._ended: Unix | None = None
        self._ranks = 0
        self._cpu, self._throttled, self._shared, self._resident = [Gauge() for _ in range(4)]
        self._resident_at_shared_peak = 0.0
        self._loading = LoadingAccumulator()
        self._loops: LoopsAccumulator | None = None
        self._profiles: dict[str, ProfileRecorder] = {}
        if grid is not None:
            self._worker = FineProfile(grid.recorder(), now)
            self._main = FineProfile(grid.recorder(), now)
            self._profiles = {
                "loader_worker_cpu_percent": self._worker.profile,
                "main_thread_cpu_percent": self._main.profile,
                "data_wait_percent": grid.recorder(),
            }

    def add_job(
        self,
        job: Job,
        step: Step,
        busy: Mapping[GpuKey, float | None],
        memory: Mapping[ProcessKey, int],
    ) -> float:
        """Add a snapshot of the job, with the ``busy`` percent of each GPU and the GPU ``memory``
        of each process; return for how long of the step a loop of the job ran."""
        # What a rate says holds for the time since the look before; over a gap it says nothing.
        seconds = 0.0 if step.is_gap else step.seconds
        for name in FACTS:
            value = getattr(job, name)
            value = sane(value) if name.endswith("_cores") else value
            if value is not None:
                self._facts[name] = value
        self._ended = job.ended_at_unix_seconds
        self._ranks = max(self._ranks, len(job.ranks))
        if self._ended is None:
            self.last_unix_seconds = step.until
            for uuid in job.gpu_uuids:
                self.add_gpu(uuid, sane(busy.get(uuid), 100.0), seconds)
        keys = {job.key, *[member.key for member in job.members]}
        held = [memory[key] for key in keys if key in memory]
        if held:
            self.add_gpu_memory(sum(held))
        self._add_members(job.members, seconds)
        self._throttled.add(job.cpu_throttled_percent, seconds)
        self._loading.add_job(job, seconds)
        if not step.is_gap:
            self.add_fine(job, step)
        return self._add_loops(job, step)

    def add_fine(self, job: Job, step: Step) -> None:
        if self._profiles:
            self._worker.add_samples(job.loader_worker_samples, job.loader_worker_cpu_percent, step)
            self._main.add_samples(job.main_thread_samples, job.main_thread_cpu_percent, step)

    def _add_loops(self, job: Job, step: Step) -> float:
        if not job.loops or step.is_gap:
            return 0.0
        if self._loops is None:
            self._loops = LoopsAccumulator(self._profiles.get("data_wait_percent"))
        return self._loops.add_job(job, step)

    def _add_members(self, members: tuple[JobMember, ...], seconds: float) -> None:
        if not members:
            return
        cpu = total([sane(member.cpu_percent) for member in members])
        resident = total([member.memory_resident_bytes for member in members])
        each = [member.memory_proportional_bytes for member in members]
        shared = None if None in each else total(each)
        self._cpu.add(cpu, seconds)
        self.add_host(cpu, whole(resident if shared is None else shared), seconds)
        self.add_storage(
            total([sane(member.read_bytes_per_second) for member in members]),
            total([sane(member.write_bytes_per_second) for member in members]),
            seconds,
        )
        if shared is not None and shared > (self._shared.peak or -1.0):
            self._resident_at_shared_peak = resident or 0.0
        self._shared.add(shared, seconds)
        self._resident.add(resident, seconds)

    def _shared_peak(self) -> int | None:
        """Return the peak of PSS where it is worth something. PSS is read seldom, and not yet for
        young workers: a peak over the little time in which all of it was known, or from before most
        of it was there, would leave out most of it."""
        if 2 * self._shared.seconds < self._resident.seconds:
            return None
        if (self._resident.peak or 0.0) > GROWN_SINCE * self._resident_at_shared_peak > 0:
            return None
        return whole(self._shared.peak)

    def usage(self, until: float) -> JobUsage:
        return JobUsage(
            **self.sums | self._facts,
            pid=self._key[0],
            started_at_unix_seconds=self._key[1],
            ended_at_unix_seconds=self._ended,
            run_digest=run_digest(self._facts),
            ranks=self._ranks or None,
            cpu_mean_cores=_cores(self._cpu.mean),
            cpu_peak_cores=_cores(self._cpu.peak),
            cpu_throttled_percent=self._throttled.mean,
            memory_proportional_peak_bytes=self._shared_peak(),
            memory_resident_peak_bytes=whole(self._resident.peak),
            loading=self._loading.report(),
            loop=Loop() if self._loops is None else self._loops.report(),
            profiles=profiles(self._profiles, until),
        )


def run_digest(facts: Mapping[str, Any]) -> str | None:
    """Return a digest that is equal for every run of the same command by the same user in the same
    folder.

    Made from what a ``Job`` says, so that it holds for ended, simulated and replayed jobs too;
    ``None`` where one of the three is not known.
    """
    user, folder, command = (facts.get(n) for n in ("user", "working_directory", "command"))
    words = tuple(command.split()) if command else ()
    if user is None or folder is None or not words:
        return None
    import hashlib  # noqa: PLC0415 - it brings OpenSSL, 3 MiB, which only a report needs

    text = "\0".join((user, folder, *essence(words, folder)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _cores(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0
