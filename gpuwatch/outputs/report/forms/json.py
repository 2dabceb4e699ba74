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

_OF_JOB = ("pid", "started_at_unix_seconds", "ended_at_unix_seconds", "command", "exit_code")


def report_json(report: Report, tuning: Mapping[str, Any] | None = None) -> str:
    """One JSON object, without a line end. ``tuning``: what was measured of the job's loader."""
    value = msgspec.to_builtins(_worded(report))
    return dumps(value if report.job is None else {**value, "tuning": tuning})


def _worded(report: Report) -> Report:
    time = replaced(report.time, zone=Times(report).zone())
    return replaced(report, verdict=verdict(report), time=time)


def comparison_json(comparison: Comparison) -> str:
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
    reports = [
        {
            "number": one.number,
            "path": str(one.path),
            **{name: getattr(one.report.job, name) for name in _OF_JOB},
            "duration_seconds": one.report.duration_seconds,
            "busy_percent": one.report.total.busy_percent,
            "idle_gpu_seconds": one.report.total.idle_gpu_seconds,
        }
        for one in kept
    ]
    return dumps({"kind": "reports", "schema": SCHEMA_VERSION, "reports": reports})
