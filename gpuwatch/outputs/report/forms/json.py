"""Reports and comparisons as JSON; the classes that are written are the schema."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpuwatch.outputs.report.comparison import Comparison, without_profiles
from gpuwatch.outputs.report.content import changes
from gpuwatch.outputs.report.content.verdict import verdict
from gpuwatch.outputs.report.content.words import Times
from gpuwatch.outputs.report.encoding import dumps
from gpuwatch.outputs.report.model import SCHEMA_VERSION, Report
from gpuwatch.outputs.report.parts import replaced
from gpuwatch.outputs.report.store import Kept


def report_json(report: Report, tuning: Mapping[str, Any] | None = None) -> str:
    """One JSON object, without a line end. ``tuning``: what was measured of the job's loader."""
    value = msgspec.to_builtins(_worded(report))
    return dumps(value if report.job is None else {**value, "tuning": tuning})


def _worded(report: Report) -> Report:
    time = replaced(report.time, zone=Times(report).zone())
    return replaced(report, verdict=verdict(report), time=time)


def comparison_json(comparison: Comparison) -> str:
    """One JSON object, without a line end."""
    doubts = tuple(changes.doubts(comparison))
    made = replaced(
        comparison,
        verdict=changes.verdict(comparison),
        comparable=not doubts,
        doubts=doubts,
        before=without_profiles(_worded(comparison.before)),
        after=without_profiles(_worded(comparison.after)),
    )
    return dumps(made)


def list_json(kept: Sequence[Kept]) -> str:
    """The list of kept reports."""
    reports = []
    for one in kept:
        report, job = one.report, one.report.job
        assert job is not None
        reports.append(
            {
                "number": one.number,
                "path": str(one.path),
                "pid": job.pid,
                "started_at_unix_seconds": job.started_at_unix_seconds,
                "ended_at_unix_seconds": job.ended_at_unix_seconds,
                "command": job.command,
                "exit_code": job.exit_code,
                "duration_seconds": report.duration_seconds,
                "busy_percent": report.total.busy_percent,
                "idle_gpu_seconds": report.total.idle_gpu_seconds,
            }
        )
    return dumps({"kind": "reports", "schema": SCHEMA_VERSION, "reports": reports})
