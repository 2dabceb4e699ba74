"""Findings that can be read: what holds now, and the last of a job that ended."""

from collections.abc import Sequence

from gpuwatch.diagnosis.finding import Finding, FindingKey, about_job
from gpuwatch.tui.pages.finding_words import by_key, parts
from gpuwatch.tui.panels.job.header import ended_at
from gpuwatch.tui.view import View


def present(view: View) -> tuple[Finding, ...]:
    """One for each cause; those of the job that is looked at come first."""
    diagnosis, job = view.diagnosis, view.job.last
    if diagnosis is None or job is None:
        return () if diagnosis is None else diagnosis.causes
    own = {id(one) for one in about_job(diagnosis, job)}
    return tuple(sorted(diagnosis.causes, key=lambda one: own.isdisjoint(map(id, parts(one)))))


def of_ended_job(view: View) -> tuple[Finding, ...]:
    """Findings about the job looked at when it ended; none while it runs."""
    job = view.job.last
    return () if job is None or ended_at(view, job) is None else view.job.findings


def readable(view: View) -> tuple[Finding, ...]:
    """Those that hold, then those of a job that ended."""
    now = present(view)
    keys = {one.key for one in now}
    return (*now, *[one for one in of_ended_job(view) if one.key not in keys])


def holds(view: View, finding: Finding) -> bool:
    return any(one is finding for one in present(view))


def chosen(view: View) -> Finding | None:
    """The one under the cursor, as it is now."""
    return by_key(readable(view), view.finding)


def keep_in_sight(view: View, keys: Sequence[FindingKey]) -> bool:
    """The panel shows ``keys`` now: if the cursor was on one that is gone, it goes to another, or
    leaves the panel. Whether it had to."""
    if not view.in_findings or view.finding in keys:
        return False
    one = chosen(view)
    view.in_findings = bool(keys)
    if keys:
        view.finding = one.key if one is not None and one.key in keys else keys[0]
    return True
