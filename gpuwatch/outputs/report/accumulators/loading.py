"""Loading of a job's data: its loader workers and its main threads over time."""

from dataclasses import dataclass

from gpuwatch.core.history import LONGEST_SAMPLE_SECONDS
from gpuwatch.core.model import BusySample, Job, ProcessKey
from gpuwatch.jobs.words import job_loading_sentence
from gpuwatch.outputs.report.accumulators.sums import Gauge, sane
from gpuwatch.outputs.report.accumulators.time_axis import ProfileRecorder, Step
from gpuwatch.outputs.report.usage import Loading

AT_LIMIT_PERCENT = 90.0
"""Of one core: a process at this much is held back by its core more than by anything else."""
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
class _State:
    """One way of loading the job was seen to have: so many workers, and pinned memory."""

    workers: int | None
    pinned: bool | None
    sentence: str = ""
    guessed: bool = True
    seconds: float = 0.0

    @property
    def weight(self) -> tuple[float, ...]:
        """Workers are started and ended with every epoch; that there are some says more than the
        time without them."""
        some = bool(self.workers)
        return (some and self.pinned is not None, some, self.workers is not None, self.seconds)


class LoadingAccumulator:
    def __init__(self) -> None:
        self._states: dict[tuple[int | None, bool | None], _State] = {}
        self._peak: int | None = None
        self._started = 0
        self._workers: frozenset[ProcessKey] = frozenset()
        self._gauges = {name: Gauge() for name in (*_OF_WORKERS, *_OF_RANKS)}

    def add(self, job: Job, seconds: float) -> None:
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
        state = self._states.setdefault(key, _State(*key))
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

    def add(
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
