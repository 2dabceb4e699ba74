"""Before and after a change: a moment that the person marked, or the next run of the job."""

from collections.abc import Sequence

from gpuwatch.core.model import GpuKey, Job, ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.tui.controllers.following import Run, Runs
from gpuwatch.tui.view import Mark, Pace, View

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
    return Mark(
        at=now,
        at_unix_seconds=snapshot.taken_at_unix_seconds,
        gpus=gpus,
        next_run=False,
        busy_before=busy(view, gpus, now, seconds),
        rules_before=_rules(diagnosis.findings if diagnosis is not None else (), gpus, job),
        after_from=now,
        job=job,
        pace_before=pace(_job_keys(view, gpus, snapshot), snapshot),
    )


def mark_run(view: View, snapshot: Snapshot, before: Run, after: Job) -> Mark:
    """``after`` is the next run of ``before``, which was measured to its last moment."""
    gpus = before.job.gpu_uuids or after.gpu_uuids
    seconds = min(_WINDOW_SECONDS, before.last_seen - before.first_seen)
    return Mark(
        at=snapshot.monotonic_seconds,
        at_unix_seconds=snapshot.taken_at_unix_seconds,
        gpus=gpus,
        next_run=True,
        busy_before=busy(view, gpus, before.last_seen, seconds),
        rules_before=_rules(before.findings, gpus, None if gpus else before.job.key),
        after_from=None,
        pace_before=_pace_of((before.job,)),
        job=after.key,
    )


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
    if mark.after_from is None:
        readings = [gpu.reading.busy_percent for gpu in snapshot.gpus if gpu.uuid in mark.gpus]
        at_work = any(value is not None and value >= _AT_WORK_PERCENT for value in readings)
        if at_work or (not mark.gpus and pace((mark.job,), snapshot) is not None):
            mark.after_from = now
        return
    since = now - mark.after_from
    mark.measured = since >= _SETTLE_SECONDS
    if not mark.measured:
        return
    mark.busy_after = busy(view, mark.gpus, now, min(since, _WINDOW_SECONDS))
    keys = (mark.job,) if mark.next_run else _job_keys(view, mark.gpus, snapshot)
    mark.pace_after = pace(keys, snapshot)
    present = _rules(() if diagnosis is None else diagnosis.findings, mark.gpus, mark.job)
    mark.rules_gone = tuple([rule for rule in mark.rules_before if rule not in present])
    mark.rules_new = tuple([rule for rule in present if rule not in mark.rules_before])


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
    return sum(means) / len(means) if means else None


def pace(keys: Sequence[ProcessKey | None], snapshot: Snapshot) -> Pace | None:
    """Reports of these jobs on their loops now; ``None``: there are none."""
    return _pace_of([job for job in snapshot.jobs if job.key in keys])


def _pace_of(jobs: Sequence[Job]) -> Pace | None:
    loops = [loop for job in jobs for loop in job.loops]
    rates = [one.samples_per_second for one in loops if one.samples_per_second is not None]
    waits = [one.data_wait_share for one in loops if one.data_wait_share is not None]
    if not rates and not waits:
        return None
    return Pace(
        samples_per_second=sum(rates) if rates else None,
        data_wait_share=sum(waits) / len(waits) if waits else None,
    )


def _job_keys(
    view: View, gpus: tuple[GpuKey, ...], snapshot: Snapshot
) -> tuple[ProcessKey | None, ...]:
    """The job looked at; else those on these GPUs; without any GPU those that there are."""
    if view.job.last is not None:
        return (view.job.last.key,)
    mine = set(gpus)
    return tuple([job.key for job in snapshot.jobs if not mine or mine.intersection(job.gpu_uuids)])


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


def _rules(
    findings: tuple[Finding, ...], gpus: tuple[GpuKey, ...], job: ProcessKey | None
) -> tuple[str, ...]:
    """Rules of the findings that are about these GPUs, or this job where it has none, or about
    neither GPU nor job; each once."""
    mine = set(gpus)
    only = None if gpus else job
    return tuple(
        dict.fromkeys(
            one.rule
            for one in findings
            if mine.intersection(one.gpus)
            or (not one.gpus and (only is None or one.job in (None, only)))
        )
    )
