"""Before and after a change: a moment that the person marked, or the next run of the job."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.model import GpuKey, Job, Snapshot
from gpuwatch.tui.following import has_ended, next_run
from gpuwatch.tui.view import View

_WINDOW_SECONDS = 60.0
"""Both sides are means over at most this long, so that a restart in between slides out of it."""
_SETTLE_SECONDS = 5.0
"""What is measured sooner than this after the change is mostly the change itself."""
_AT_WORK_PERCENT = 5.0


@dataclass(slots=True)
class Mark:
    """Times are on the snapshots' monotonic clock; busy is the mean of ``gpus``."""

    at: float
    at_unix_seconds: float
    gpus: tuple[GpuKey, ...]
    next_run: bool
    """The job was started anew, as opposed to marked with a key."""
    busy_before: float | None
    rules_before: tuple[str, ...]
    after_from: float | None
    """From when on it counts; ``None``: a new run that has not used its GPU yet."""
    busy_after: float | None = None
    rules_gone: tuple[str, ...] = ()
    rules_new: tuple[str, ...] = ()
    told: bool = False
    """Enough has been seen since to say what changed."""


def mark_now(view: View, snapshot: Snapshot, diagnosis: Diagnosis | None) -> Mark:
    """The person changed something just now."""
    now = snapshot.monotonic_seconds
    gpus = _gpus(view, snapshot)
    return Mark(
        at=now,
        at_unix_seconds=snapshot.taken_at_unix_seconds,
        gpus=gpus,
        next_run=False,
        busy_before=busy(view, gpus, now, _WINDOW_SECONDS),
        rules_before=_rules(diagnosis.findings if diagnosis is not None else (), gpus),
        after_from=now,
    )


def mark_run(
    view: View, snapshot: Snapshot, before: Job, after: Job, findings: tuple[Finding, ...]
) -> Mark:
    """``after`` is the next run of ``before``, of which ``findings`` were the last."""
    ended = before.ended_at_unix_seconds or after.started_at_unix_seconds
    now, unix = snapshot.monotonic_seconds, snapshot.taken_at_unix_seconds
    end = now if ended is None else now - max(0.0, unix - ended)
    gpus = before.gpu_uuids or after.gpu_uuids
    return Mark(
        at=now,
        at_unix_seconds=unix,
        gpus=gpus,
        next_run=True,
        busy_before=busy(view, gpus, end, _WINDOW_SECONDS),
        rules_before=_rules(findings, gpus),
        after_from=None,
    )


def is_next_run(before: Job | None, after: Job | None, snapshot: Snapshot) -> bool:
    """Whether the job looked at is the run after the one looked at before."""
    if before is None or after is None or before.key == after.key:
        return False
    over = has_ended(before) or all(
        job.key != before.key or has_ended(job) for job in snapshot.jobs
    )
    return over and next_run((after,), before) is not None


def bring_up_to_date(
    mark: Mark, view: View, snapshot: Snapshot, diagnosis: Diagnosis | None
) -> None:
    """Measure what came after."""
    now = snapshot.monotonic_seconds
    if mark.after_from is None:
        readings = [gpu.reading.busy_percent for gpu in snapshot.gpus if gpu.uuid in mark.gpus]
        if any(value is not None and value >= _AT_WORK_PERCENT for value in readings):
            mark.after_from = now
        return
    since = now - mark.after_from
    mark.told = since >= _SETTLE_SECONDS
    if not mark.told:
        return
    mark.busy_after = busy(view, mark.gpus, now, min(since, _WINDOW_SECONDS))
    present = _rules(() if diagnosis is None else diagnosis.findings, mark.gpus)
    mark.rules_gone = tuple([rule for rule in mark.rules_before if rule not in present])
    mark.rules_new = tuple([rule for rule in present if rule not in mark.rules_before])


def busy(view: View, gpus: tuple[GpuKey, ...], end: float, seconds: float) -> float | None:
    """Mean of what is known of these GPUs in the ``seconds`` up to ``end``."""
    width = view.column_seconds
    count = max(1, round(seconds / width))
    means: list[float] = []
    for uuid in gpus:
        series = view.history.gpu(uuid, "busy_percent")
        if series is not None:
            columns = series.columns(end - width / 2, width, count)
            means += [column[1] for column in columns if column is not None]
    return sum(means) / len(means) if means else None


def _gpus(view: View, snapshot: Snapshot) -> tuple[GpuKey, ...]:
    """Those of the job looked at; else those that jobs use; else all."""
    job = view.job.last
    present = [gpu.uuid for gpu in snapshot.gpus]
    used = {uuid for one in snapshot.jobs for uuid in one.gpu_uuids}
    for wanted in (set() if job is None else set(job.gpu_uuids), used):
        chosen = tuple([uuid for uuid in present if uuid in wanted])
        if chosen:
            return chosen
    return tuple(present)


def _rules(findings: tuple[Finding, ...], gpus: tuple[GpuKey, ...]) -> tuple[str, ...]:
    """Rules of the findings that are about these GPUs or about no GPU, each once."""
    mine = set(gpus)
    return tuple(
        dict.fromkeys(one.rule for one in findings if not one.gpus or mine.intersection(one.gpus))
    )
