"""Jobs and their runs: which job is looked at, and which run follows one that is over.

Also before and after a change: a moment that the person marked, or the next run of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from gpuwatch.core.bounds import mean, total
from gpuwatch.core.model import GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis, Finding, about, rank
from gpuwatch.tui.view import BeforeOrAfter, JobView, MarkedChange, View, row_key

if TYPE_CHECKING:
    from gpuwatch.diagnosis.ledger import Episode, Ledger

# -- which job -------------------------------------------------------------------------------------


_START_TOLERANCE_SECONDS = 2.0
"""The end is seen late, and the kernel gives start times to the second of its boot."""
_MOST_KEPT = 64
"""Runs that are over and may have a next one."""


def find_job(jobs: Sequence[Job], key: ProcessKey | None) -> Job | None:
    """Return the job with this key, or the one that this process is a member of."""
    for job in jobs:
        if job.key == key:
            return job
    for job in jobs:
        if any(member.key == key for member in job.members):
            return job
    return None


def _attached_job(jobs: Sequence[Job]) -> Job | None:
    return next((job for job in jobs if job.attached), None)


def has_ended(job: Job) -> bool:
    return job.ended_at_unix_seconds is not None


def ended_at(view: View, job: Job) -> float | None:
    """Return when the job ended; one that left the list ended when it was missed."""
    if job.ended_at_unix_seconds is not None:
        return job.ended_at_unix_seconds
    return view.job.gone_at_unix_seconds


def next_run(jobs: Sequence[Job], ended: Job, end: float | None = None) -> Job | None:
    """Return the run after ``ended``: the same command of the same user in the same folder, begun
    after it did; or else, begun after it ended, the same script with other arguments (a change is
    often one: ``--num-workers 8``)."""
    if end is None:
        end = ended.ended_at_unix_seconds
    began = ended.started_at_unix_seconds or 0.0
    alike = None
    for job in jobs:
        started = job.started_at_unix_seconds or 0.0
        if has_ended(job) or started <= began or _whose(job) != _whose(ended):
            continue
        if job.command == ended.command:
            return job
        program = _program(job.command)
        after = end is not None and started >= end - _START_TOLERANCE_SECONDS
        if alike is None and after and program is not None and program == _program(ended.command):
            alike = job
    return alike


def _whose(job: Job) -> tuple[str | None, str | None]:
    return job.user, job.working_directory


def _program(command: str | None) -> str | None:
    """Return the path of the script, or the module, that a command runs, whatever its arguments
    are; ``None`` for anything else: two shells are not one program."""
    words = (command or "").split()
    for word in words:
        if word.endswith(".py"):
            return word
    for flag, module in pairwise(words):
        if flag == "-m":
            return module
    return None


def follow_job(view: View, snapshot: Snapshot) -> None:
    """Keep ``view.job`` on its job: a worker's key becomes its job's, a job that was started anew
    takes the place of the run before, one that left the list is kept as it was last seen."""
    state = view.job
    if state.key is None:
        return
    job = _job_now(state, snapshot.jobs)
    if job is None:
        if state.last is not None and state.gone_at_unix_seconds is None:
            state.gone_at_unix_seconds = snapshot.taken_at_unix_seconds
        return
    if job.key != state.key:
        state.look_at(job.key)
    state.last = job
    if job.ranks and not has_ended(job):
        state.alive = job
    state.gone_at_unix_seconds = None


def _job_now(state: JobView, jobs: Sequence[Job]) -> Job | None:
    """Return the job that is looked at as it is now: the run that has followed it, if any."""
    job = find_job(jobs, state.key)
    # Only the attached job may be followed elsewhere; another one that was just opened may not be
    # marked as attached yet, and the mark still be on the one before.
    if state.last is None or state.last.attached:
        attached = _attached_job(jobs)
        if attached is not None and (job is None or (has_ended(job) and not has_ended(attached))):
            job = attached
    if job is not None:
        return (next_run(jobs, job) or job) if has_ended(job) else job
    if state.last is None or state.gone_at_unix_seconds is None:
        return None
    return next_run(jobs, state.last, state.gone_at_unix_seconds)


def job_to_open(view: View) -> Job | str:
    """Return the job that the key means on the overview, or a sentence why there is none: the
    attached one, the selected process's, the selected GPU's, the only one."""
    jobs = () if view.snapshot is None else view.snapshot.jobs
    if view.job.last is not None and view.job.last.attached:
        return find_job(jobs, view.job.key) or view.job.last
    candidates: list[Job | None] = [_attached_job(jobs)]
    if view.focus == "processes" and view.selected_row is not None:
        candidates.append(find_job(jobs, view.selected_row[:2]))
    candidates += [job for job in jobs if view.selected_gpu in job.gpu_uuids]
    if len(jobs) == 1:
        candidates.append(jobs[0])
    for job in candidates:
        if job is not None:
            return job
    if not jobs:
        return "no job found: nothing is training here (--pid PID opens any process)"
    return f"{len(jobs)} jobs: select one of their processes first (tab, then up and down)"


def job_of_selected_process(view: View) -> Job | None:
    snapshot = view.snapshot
    if snapshot is None or view.selected_row is None:
        return None
    if all(row_key(process) != view.selected_row for process in snapshot.processes):
        return None
    return find_job(snapshot.jobs, view.selected_row[:2])


@dataclass(slots=True)
class Run:
    """A job as it was last seen running. Times without ``unix`` are the snapshots' own."""

    job: Job
    first_seen: float
    last_seen: float
    last_seen_unix_seconds: float

    def findings(self, ledger: Ledger | None) -> Sequence[Episode]:
        """Return what held at its end, the worst first: an engine forgets what is the matter with a
        job with the job."""
        if ledger is None:
            return ()
        end = self.last_seen_unix_seconds
        held = [*about(ledger.episodes(end, end), self.job)]
        return sorted(held, key=lambda one: rank(one.severity, one.cost_gpu_seconds))


class Runs:
    """Runs of every job of the machine, whether or not somebody looks at it."""

    def __init__(self) -> None:
        self._runs: dict[ProcessKey, Run] = {}

    def take_snapshot(self, snapshot: Snapshot) -> tuple[Run, Job] | None:
        """Follow all jobs. Return a run that is over and the one that follows it, when that
        is first seen."""
        running = [job for job in snapshot.jobs if not has_ended(job)]
        followed = None
        for job in running:
            if job.key not in self._runs:
                before = self._run_before(job, running)
                if before is not None:
                    del self._runs[before.job.key]
                    followed = before, job
        now, at = snapshot.monotonic_seconds, snapshot.taken_at_unix_seconds
        for job in running:
            key = job.key
            run = self._runs.get(key)
            if run is None:
                run = self._runs[key] = Run(job, now, now, at)
            run.job, run.last_seen, run.last_seen_unix_seconds = job, now, at
        self._forget(len(running))
        return followed

    def _forget(self, running: int) -> None:
        """Forget the runs that were over first; none that goes on."""
        surplus = len(self._runs) - running - _MOST_KEPT
        if surplus > 0:
            for key in sorted(self._runs, key=lambda key: self._runs[key].last_seen)[:surplus]:
                del self._runs[key]

    def at_work_since(self, gpus: Sequence[GpuKey]) -> float | None:
        """Return since when the jobs that are on these GPUs now were there."""
        now = max((run.last_seen for run in self._runs.values()), default=None)
        there = [run for run in self._runs.values() if run.last_seen == now]
        mine = [run.first_seen for run in there if not set(gpus).isdisjoint(run.job.gpu_uuids)]
        return max(mine, default=None)

    def seen_seconds(self, key: ProcessKey) -> float:
        run = self._runs.get(key)
        return 0.0 if run is None else run.last_seen - run.first_seen

    def _run_before(self, job: Job, running: list[Job]) -> Run | None:
        there = {one.key for one in running}
        started = job.started_at_unix_seconds or 0.0
        over = [
            run
            for key, run in self._runs.items()
            if key not in there
            and started >= run.last_seen_unix_seconds - _START_TOLERANCE_SECONDS
            and next_run((job,), run.job, run.last_seen_unix_seconds) is not None
        ]
        return max(over, key=lambda run: run.last_seen, default=None)


# -- before and after a change ---------------------------------------------------------------------


_WINDOW_SECONDS = 60.0
"""Longest time for the means of both sides, so that a restart in between slides out of it."""
_COLUMN_SECONDS = 1.0
_SETTLE_SECONDS = 5.0
"""Time after the change before which what is measured is mostly the change itself."""
_AT_WORK_PERCENT = 5.0


def mark_now(
    view: View, snapshot: Snapshot, diagnosis: Diagnosis | None, runs: Runs
) -> MarkedChange:
    """Return a mark of this moment: the person changed something just now."""
    now = snapshot.monotonic_seconds
    gpus = _gpus(view, snapshot)
    # The run before this one is not what was changed.
    since = runs.at_work_since(gpus)
    seconds = _WINDOW_SECONDS if since is None else min(_WINDOW_SECONDS, max(1.0, now - since))
    job = None if gpus or view.job.last is None else view.job.last.key
    findings = () if diagnosis is None else diagnosis.findings
    before = _side(view, _jobs(view, gpus, snapshot), gpus, job, findings, now, seconds)
    at = snapshot.taken_at_unix_seconds
    return MarkedChange(now, at, gpus, False, now, before, after_from=now, job=job)


def mark_run(
    view: View, snapshot: Snapshot, before: Run, after: Job, ledger: Ledger | None
) -> MarkedChange:
    """Return a mark of ``after``, the next run of ``before``, which was measured to its last
    moment."""
    job, end = before.job, before.last_seen
    gpus = job.gpu_uuids or after.gpu_uuids
    seconds = min(_WINDOW_SECONDS, end - before.first_seen)
    side = _side(view, (job,), gpus, job.key, before.findings(ledger), end, seconds)
    now, at = snapshot.monotonic_seconds, snapshot.taken_at_unix_seconds
    return MarkedChange(now, at, gpus, True, end, side, after_from=None, job=after.key)


def is_about(mark: MarkedChange, job: Job) -> bool:
    """Return whether ``mark`` says something of this job."""
    if mark.job == job.key or not (mark.gpus or mark.job):
        return True
    return not set(mark.gpus).isdisjoint(job.gpu_uuids)


def gives_way(mark: MarkedChange | None, before: Run) -> bool:
    """Return whether the next run of a job may take the place of ``mark``: a mark of the person's
    stays while other GPUs' jobs come and go."""
    return mark is None or mark.next_run or is_about(mark, before.job)


def measure_after(
    mark: MarkedChange, view: View, snapshot: Snapshot, diagnosis: Diagnosis | None
) -> None:
    """Measure what came after."""
    now = snapshot.monotonic_seconds
    jobs = [job for job in snapshot.jobs if job.key == mark.job]
    # It may have been given others than the run before.
    mark.gpus = next((job.gpu_uuids for job in jobs if job.gpu_uuids), mark.gpus)
    if not mark.next_run:
        jobs = _jobs(view, mark.gpus, snapshot)
    since = 0.0 if mark.after_from is None else now - mark.after_from
    findings = () if diagnosis is None else diagnosis.findings
    seconds = min(since, _WINDOW_SECONDS)
    side = _side(view, jobs, mark.gpus, mark.job, findings, now, seconds)
    mark.after = side if since >= _SETTLE_SECONDS else None
    if mark.after_from is None and (
        _at_work(snapshot, mark.gpus) or (not mark.gpus and side.reported)
    ):
        mark.after_from = now


def _at_work(snapshot: Snapshot, gpus: Sequence[GpuKey]) -> bool:
    readings = [gpu.reading.busy_percent for gpu in snapshot.gpus if gpu.uuid in gpus]
    return any(value is not None and value >= _AT_WORK_PERCENT for value in readings)


def mean_busy_percent(
    view: View, gpus: tuple[GpuKey, ...], end: float, seconds: float
) -> float | None:
    """Mean of what is known of these GPUs in the ``seconds`` up to ``end``."""
    width = _COLUMN_SECONDS
    count = max(1, round(seconds / width))
    means: list[float] = []
    for uuid in gpus:
        series = view.history.gpu(uuid, "busy_percent")
        if series is not None:
            columns = series.columns(end - width / 2, width, count)
            means += [column[1] for column in columns if column is not None]
    return mean(means)


def _side(
    view: View,
    jobs: Sequence[Job],
    gpus: tuple[GpuKey, ...],
    job: ProcessKey | None,
    findings: Sequence[Finding | Episode],
    end: float,
    seconds: float,
) -> BeforeOrAfter:
    """Measure how it went on these GPUs and for these jobs in the ``seconds`` up to ``end``.
    Findings are those about the GPUs, or ``job`` where there are none, or about neither."""
    loops = [loop for one in jobs for loop in one.loops]
    mine = set(gpus)
    about = (None, job) if job is not None and not gpus else None
    there = [
        one
        for one in findings
        if mine.intersection(one.gpus) or (not one.gpus and (about is None or one.job in about))
    ]
    return BeforeOrAfter(
        busy_percent=mean_busy_percent(view, gpus, end, seconds),
        samples_per_second=total(loop.samples_per_second for loop in loops),
        data_wait_share=mean(loop.data_wait_share for loop in loops),
        rules=tuple(dict.fromkeys([one.rule for one in there])),
        predicted=next((one.gain for one in there if one.gain is not None), None),
    )


def _jobs(view: View, gpus: tuple[GpuKey, ...], snapshot: Snapshot) -> list[Job]:
    """Return the job looked at; else those on these GPUs; without any GPU those that there are."""
    if view.job.last is not None:
        return [job for job in snapshot.jobs if job.key == view.job.last.key]
    mine = set(gpus)
    return [job for job in snapshot.jobs if not mine or mine.intersection(job.gpu_uuids)]


def _gpus(view: View, snapshot: Snapshot) -> tuple[GpuKey, ...]:
    """Return the GPUs of the job looked at; else those that jobs use; else all."""
    job = view.job.last
    if job is not None and job.loops and not job.gpu_uuids:
        # It trains on the CPU: what GPUs do beside it is others' work.
        return ()
    present = [gpu.uuid for gpu in snapshot.gpus]
    used = {uuid for one in snapshot.jobs for uuid in one.gpu_uuids}
    for wanted in (set() if job is None else set(job.gpu_uuids), used):
        chosen = tuple([uuid for uuid in present if uuid in wanted])
        if chosen:
            return chosen
    return tuple(present)
