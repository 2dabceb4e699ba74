"""Loading of a job's data: its loader workers and its main threads over time."""

from dataclasses import dataclass

from gpuwatch.core.history import LONGEST_SAMPLE_SECONDS
from gpuwatch.core.model import BusySample, Job, ProcessKey
from gpuwatch.jobs.words import job_loading_sentence
from gpuwatch.outputs.report.accumulators.steps import Step
from gpuwatch.outputs.report.accumulators.sums import Gauge, sane
from gpuwatch.outputs.report.accumulators.time_profile import ProfileRecorder
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
    """One way of loading the job was seen to have."""

    sentence: str
    workers: int | None
    pinned: bool | None
    guessed: bool
    seconds: float = 0.0


class LoadingAccumulator:
    def __init__(self) -> None:
        self._states: dict[tuple[object, ...], _State] = {}
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
        signature = tuple(
            (rank.key, rank.loader_workers, rank.loader_workers_guessed, rank.pinned_memory)
            for rank in job.ranks
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

    def _usual(self) -> _State | None:
        """Workers are started and ended with every epoch; that there are some says more than the
        time without them."""

        def weight(state: _State) -> tuple[float, ...]:
            some = bool(state.workers)
            known = state.workers is not None
            return (some and state.pinned is not None, some, known, state.seconds)

        usual = max(self._states.values(), key=weight, default=None)
        return None if usual is None else self._surer(usual)

    def _surer(self, state: _State) -> _State:
        """The state itself, or the same one once it was certain."""
        certain = [
            other
            for other in self._states.values()
            if (other.workers, other.pinned) == (state.workers, state.pinned) and not other.guessed
        ]
        return max(certain, key=lambda other: other.seconds, default=state)

    def report(self) -> Loading:
        state = self._usual()
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
