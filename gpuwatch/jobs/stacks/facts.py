"""Sampled stacks of a whole job, as the diagnosis takes it."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core.model import Job
from gpuwatch.jobs.stacks.summary import StackReport


def stack_facts(
    job: Job, reports: Sequence[StackReport]
) -> tuple[tuple[str, float, str | None], ...]:
    """(category, percent, the user's line) over the job's processes, the largest first."""
    pids = {member.pid for member in job.members} | {rank.pid for rank in job.ranks} | {job.pid}
    own = [report for report in reports if report.pid in pids and report.shares]
    percents: dict[str, float] = {}
    lines: dict[str, tuple[int, str]] = {}
    for share in [share for report in own for share in report.shares]:
        category = share.category
        if category == "unread":
            continue
        percents[category] = percents.get(category, 0.0) + share.percent / len(own)
        if share.lines and share.lines[0].samples > lines.get(category, (0, ""))[0]:
            lines[category] = (share.lines[0].samples, share.lines[0].where)
    return tuple(
        [
            (category, percent, lines[category][1] if category in lines else None)
            for category, percent in sorted(percents.items(), key=lambda item: -item[1])
        ]
    )
