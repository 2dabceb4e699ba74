"""Before and after a change: a moment that the person marked, or the next run of the job."""

from collections.abc import Sequence

from gpuwatch.core.bounds import mean, total
from gpuwatch.core.model import GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.tui.controllers.following import Run, Runs
from gpuwatch.tui.view import Mark, Side, View

_WINDOW_SECONDS = 60.0
"""Both sides are means over at most this long, so that a restart in between slides out of it."""
_COLUMN_SECONDS = 1.0
_SETTLE_SECONDS = 5.0
"""Measured sooner than this after the change, it is mostly the change itself."""
_AT_WORK_PERCENT = 5.0


def mark_now(view: View, snapshot: Snapshot, diagnosis: Diagnosis | None, runs: Runs) -> Mark:
    """The person changed something just now."""
    now = snapshot.monotonic_seconds
    gpus = _gpus(view, snapshot)
    # The run before this one is not what was changed.
    since = runs.at_work_since(gpus)
    seconds = _WINDOW_SECONDS if since is None else min(_WINDOW_SECONDS, max(1.0, now - since))
    job = None if gpus or view.job.last is None else view.job.last.key
    findings = () if diagnosis is None else diagnosis.findings
    before = _side(view, _jobs(view, gpus, snapshot), gpus, job, findings, now, seconds)
    at = snapshot.taken_at_unix_seconds
    return Mark(now, at, gpus, next_run=False, before=before, after_from=now, job=job)


def mark_run(view: View, snapshot: Snapshot, before: Run, after: Job) -> Mark:
    """``after`` is the next run of ``before``, which was measured to its last moment."""
    job, end = before.job, before.last_seen
    gpus = job.gpu_uuids or after.gpu_uuids
    seconds = min(_WINDOW_SECONDS, end - before.first_seen)
    side = _side(view, (job,), gpus, job.key, before.findings, end, seconds)
    now, at = snapshot.monotonic_seconds, snapshot.taken_at_unix_seconds
    return Mark(now, at, gpus, next_run=True, before=side, after_from=None, job=after.key)


def is_about(mark: Mark, job: Job) -> bool:
    """True if it says something of this job."""
    if mark.job == job.key or not (mark.gpus or mark.job):
        return True
    return not set(mark.gpus).isdisjoint(job.gpu_uuids)


def gives_way(mark: Mark | None, before: Run) -> bool:
    """True if the next run of a job may take its place: a mark of the person's stays while
    other GPUs' jobs come and go."""
    return mark is None or mark.next_run or is_about(mark, before.job)


def bring_up_to_date(
    mark: Mark, view: View, snapshot: Snapshot, diagnosis: Diagnosis | None
) -> None:
    """Measure what came after."""
    now = snapshot.monotonic_seconds
    for job in snapshot.jobs:
        if job.key == mark.job and job.gpu_uuids:
            # It may have been given others than the run before.
            mark.gpus = job.gpu_uuids
    jobs = [job for job in snapshot.jobs if job.key == mark.job]
    if not mark.next_run:
        jobs = _jobs(view, mark.gpus, snapshot)
    since = 0.0 if mark.after_from is None else now - mark.after_from
    findings = () if diagnosis is None else diagnosis.findings
    seconds = min(since, _WINDOW_SECONDS)
    side = _side(view, jobs, mark.gpus, mark.job, findings, now, seconds)
    mark.after = side if since >= _SETTLE_SECONDS else None
    if mark.after_from is None:
        readings = [gpu.reading.busy_percent for gpu in snapshot.gpus if gpu.uuid in mark.gpus]
        at_work = any(value is not None and value >= _AT_WORK_PERCENT for value in readings)
        if at_work or (not mark.gpus and side.reported):
            mark.after_from = now


def busy(view: View, gpus: tuple[GpuKey, ...], end: float, seconds: float) -> float | None:
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
    findings: Sequence[Finding],
    end: float,
    seconds: float,
) -> Side:
    """How it went on these GPUs and for these jobs in the ``seconds`` up to ``end``. Of the
    findings those about the GPUs, or ``job`` where there are none, or about neither."""
    loops = [loop for one in jobs for loop in one.loops]
    mine = set(gpus)
    about = (None, job) if job is not None and not gpus else None
    rules = [
        one.rule
        for one in findings
        if mine.intersection(one.gpus) or (not one.gpus and (about is None or one.job in about))
    ]
    return Side(
        busy_percent=busy(view, gpus, end, seconds),
        samples_per_second=total(loop.samples_per_second for loop in loops),
        data_wait_share=mean(loop.data_wait_share for loop in loops),
        rules=tuple(dict.fromkeys(rules)),
    )


def _jobs(view: View, gpus: tuple[GpuKey, ...], snapshot: Snapshot) -> list[Job]:
    """The job looked at; else those on these GPUs; without any GPU those that there are."""
    if view.job.last is not None:
        return [job for job in snapshot.jobs if job.key == view.job.last.key]
    mine = set(gpus)
    return [job for job in snapshot.jobs if not mine or mine.intersection(job.gpu_uuids)]


def _gpus(view: View, snapshot: Snapshot) -> tuple[GpuKey, ...]:
    """Those of the job looked at; else those that jobs use; else all."""
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
