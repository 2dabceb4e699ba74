"""How a job's processes behave over time: loader workers, main threads, CPU, memory, storage."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.core.model import BusySample, Job, JobMember, ProcessKey
from gpuwatch.jobs.report.gauge import Gauge, sane, whole
from gpuwatch.jobs.report.gpu_recorder import SAMPLE_SECONDS_MAX, Span
from gpuwatch.jobs.report.loop_recorder import LoopRecorder
from gpuwatch.jobs.report.report import HostReport, LoadingReport, LoopReport
from gpuwatch.jobs.report.time_profile import CourseRecorder, Grid
from gpuwatch.jobs.report.words import job_loading_sentence

AT_LIMIT_PERCENT = 90.0
"""Of one core: a process at this much is held back by its core more than by anything else."""

STATES_KEPT = 32

GROWN_SINCE = 1.25
"""Resident memory that grew by more since the proportional one was at its peak: it was read too
early, of a process that was still importing, say."""


@dataclass(slots=True)
class _State:
    """One way of loading the job was seen to have."""

    sentence: str
    workers: int | None
    pinned: bool | None
    guessed: bool
    seconds: float = 0.0


class FineCourse:
    """A course from fine samples where a job has them, else from one value a snapshot."""

    __slots__ = ("_course", "_until")

    def __init__(self, course: CourseRecorder, now: float) -> None:
        self._course = course
        self._until = now

    def add(
        self, samples: tuple[BusySample, ...] | None, percent: float | None, span: Span
    ) -> None:
        if samples is None:
            value = sane(percent)
            if value is not None:
                self._course.add(span.since, span.until, value)
                self._until = span.until
            return
        for sample in samples:
            value = sane(sample[1])
            at = min(sample[0] - span.wall_offset, span.until)
            step = at - self._until
            if value is None or not step > 0:
                continue
            if step <= SAMPLE_SECONDS_MAX:
                self._course.add(self._until, at, value)
            self._until = at


class _Sum:
    """A sum over processes of which some may not be readable."""

    __slots__ = ("known", "total", "unknown")

    def __init__(self) -> None:
        self.total = 0.0
        self.known = 0
        self.unknown = 0

    def add(self, value: float | None) -> None:
        if value is None or not value >= 0:
            self.unknown += 1
        else:
            self.known += 1
            self.total += value

    @property
    def of_known(self) -> float | None:
        return self.total if self.known else None

    @property
    def of_all(self) -> float | None:
        return self.total if self.known and not self.unknown else None


class ProcessRecorder:
    """Fed once a snapshot with the job as it is."""

    def __init__(self, grid: Grid, now: float) -> None:
        self._worker_course = grid.course()
        self._main_course = grid.course()
        self._worker_fine = FineCourse(self._worker_course, now)
        self._main_fine = FineCourse(self._main_course, now)
        self._loops = LoopRecorder(grid)
        self._states: dict[tuple[object, ...], _State] = {}
        self._workers_peak: int | None = None
        self._workers_started = 0
        self._workers: frozenset[ProcessKey] = frozenset()
        self._gauges: dict[str, Gauge] = {name: Gauge() for name in _GAUGES}
        self._resident_at_shared_peak = 0.0
        self._usable_cores: float | None = None
        self._quota_cores: float | None = None

    def add(self, job: Job, span: Span) -> None:
        """What the snapshot at ``span.until`` says of the time ``span``."""
        self._note_state(job, span.seconds)
        self._note_limits(job)
        self._add_members(job.members, span.seconds)
        gauges = self._gauges
        gauges["throttled"].add(job.cpu_throttled_percent, span.seconds)
        self._loops.add(job, span)
        self.add_courses(job, span)

    def add_courses(self, job: Job, span: Span) -> None:
        self._worker_fine.add(job.loader_worker_samples, job.loader_worker_cpu_percent, span)
        self._main_fine.add(job.main_thread_samples, job.main_thread_cpu_percent, span)

    def _note_limits(self, job: Job) -> None:
        if job.usable_cores is not None:
            self._usable_cores = sane(job.usable_cores)
        if job.quota_cores is not None:
            self._quota_cores = sane(job.quota_cores)

    def _note_state(self, job: Job, seconds: float) -> None:
        if not job.ranks:
            return
        signature = tuple(
            [
                (rank.key, rank.loader_workers, rank.loader_workers_guessed, rank.pinned_memory)
                for rank in job.ranks
            ]
        )
        state = self._states.get(signature)
        if state is None:
            if len(self._states) >= STATES_KEPT:
                # A rank that restarts all the time, say: what lasted longest is what matters.
                del self._states[min(self._states, key=lambda key: self._states[key].seconds)]
            state = self._states[signature] = _State(
                job_loading_sentence(job),
                job.loader_workers,
                job.pinned_memory,
                any(rank.loader_workers_guessed for rank in job.ranks),
            )
        elif state.workers is None or state.pinned is None:
            # Why it is unknown changes: the last reason is the one that lasted.
            state.sentence = job_loading_sentence(job)
        state.seconds += seconds

    def _add_members(self, members: tuple[JobMember, ...], seconds: float) -> None:
        cpu, read, write, shared, resident = _Sum(), _Sum(), _Sum(), _Sum(), _Sum()
        gauges = self._gauges
        workers = []
        for member in members:
            cpu.add(member.cpu_percent)
            read.add(member.read_bytes_per_second)
            write.add(member.write_bytes_per_second)
            shared.add(member.memory_proportional_bytes)
            resident.add(member.memory_resident_bytes)
            if member.role == "loader_worker":
                workers.append(member.key)
                _add_worker(gauges, member, seconds)
            elif member.role == "rank":
                _add_rank(gauges, member, seconds)
        gauges["cpu"].add(cpu.of_known, seconds)
        gauges["read"].add(read.of_known, seconds)
        gauges["write"].add(write.of_known, seconds)
        shared_now, shared_peak = shared.of_all, gauges["shared"].peak
        if shared_now is not None and (shared_peak is None or shared_now > shared_peak):
            self._resident_at_shared_peak = resident.total
        gauges["shared"].add(shared_now, seconds)
        gauges["resident"].add(resident.of_known, seconds)
        self._note_workers(workers)

    def _note_workers(self, keys: list[ProcessKey]) -> None:
        if not keys and not self._workers:
            return
        now = frozenset(keys)
        self._workers_started += len(now - self._workers)
        self._workers = now
        self._workers_peak = max(self._workers_peak or 0, len(now))

    def _telling_state(self) -> _State | None:
        """Workers are started and ended with every epoch; that there are some says more than the
        time without them."""
        states = list(self._states.values())
        for wanted in (
            [state for state in states if state.workers and state.pinned is not None],
            [state for state in states if state.workers],
            [state for state in states if state.workers is not None],
            states,
        ):
            if wanted:
                return self._surer(max(wanted, key=lambda state: state.seconds))
        return None

    def _surer(self, state: _State) -> _State:
        """What was probable first and then certain is certain."""
        same = [
            other
            for other in self._states.values()
            if other.workers == state.workers and other.pinned is state.pinned
        ]
        certain = [other for other in same if not other.guessed]
        return max(certain, key=lambda other: other.seconds) if certain else state

    def loading(self, until: float) -> LoadingReport:
        state, gauges = self._telling_state(), self._gauges
        workers = None if state is None else state.workers
        return LoadingReport(
            sentence=None if state is None else state.sentence,
            loader_workers=workers,
            loader_workers_peak=workers if self._workers_peak is None else self._workers_peak,
            loader_workers_started=None if workers is None else self._workers_started,
            pinned_memory=None if state is None else state.pinned,
            loader_worker_cpu_percent=gauges["worker_cpu"].mean,
            loader_worker_at_limit_percent=gauges["worker_limit"].mean,
            loader_worker_queue_wait_percent=gauges["worker_queue"].mean,
            loader_worker_disk_wait_percent=gauges["worker_disk"].mean,
            main_thread_cpu_percent=gauges["main_cpu"].mean,
            main_thread_at_limit_percent=gauges["main_limit"].mean,
            main_thread_queue_wait_percent=gauges["main_queue"].mean,
            loader_worker_course=self._worker_course.course(until),
            main_thread_course=self._main_course.course(until),
        )

    def loop(self, until: float) -> LoopReport:
        return self._loops.report(until)

    def _shared_peak(self) -> int | None:
        """PSS is read seldom, and of young workers not yet: a peak over the little time in which
        all of it was known, or from before most of it was there, would leave out most of it."""
        shared, resident = self._gauges["shared"], self._gauges["resident"]
        if 2 * shared.seconds < resident.seconds:
            return None
        if (resident.peak or 0.0) > GROWN_SINCE * self._resident_at_shared_peak > 0:
            return None
        return whole(shared.peak)

    def host(self) -> HostReport:
        gauges = self._gauges
        cpu = gauges["cpu"]
        return HostReport(
            cpu_core_seconds=_part(cpu.integral, 100.0),
            cpu_mean_cores=_part(cpu.mean, 100.0),
            cpu_peak_cores=_part(cpu.peak, 100.0),
            usable_cores=self._usable_cores,
            quota_cores=self._quota_cores,
            cpu_throttled_percent=gauges["throttled"].mean,
            memory_proportional_peak_bytes=self._shared_peak(),
            memory_resident_peak_bytes=whole(gauges["resident"].peak),
            read_bytes=gauges["read"].integral,
            write_bytes=gauges["write"].integral,
        )


_GAUGES = (
    "cpu",
    "read",
    "write",
    "shared",
    "resident",
    "throttled",
    "worker_cpu",
    "worker_limit",
    "worker_queue",
    "worker_disk",
    "main_cpu",
    "main_limit",
    "main_queue",
)


def _add_worker(gauges: dict[str, Gauge], member: JobMember, seconds: float) -> None:
    percent = member.cpu_percent
    gauges["worker_cpu"].add(percent, seconds)
    gauges["worker_limit"].add(_at_limit(percent), seconds)
    gauges["worker_queue"].add(member.run_queue_wait_percent, seconds)
    gauges["worker_disk"].add(member.disk_wait_percent, seconds)


def _add_rank(gauges: dict[str, Gauge], member: JobMember, seconds: float) -> None:
    percent = member.main_thread_cpu_percent
    gauges["main_cpu"].add(percent, seconds)
    gauges["main_limit"].add(_at_limit(percent), seconds)
    gauges["main_queue"].add(member.run_queue_wait_percent, seconds)


def _at_limit(percent: float | None) -> float | None:
    if percent is None:
        return None
    return 100.0 if percent >= AT_LIMIT_PERCENT else 0.0


def _part(value: float | None, whole_value: float) -> float | None:
    return None if value is None else value / whole_value
