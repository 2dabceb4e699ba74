"""A diagnosis as one JSON object; ``schema.py`` says what is in it.

Findings that hold at the end come first, errors and then the most costly; then those that had
ended. Times of a log without dates count from its beginning (1970-01-01). What was not read is
``null``.
"""

from __future__ import annotations

import json
from typing import Any

from gpuwatch import __version__
from gpuwatch.diagnosis.finding_json import finding_object, finite, job_object, plain
from gpuwatch.jobs.stacks.summary import StackReport
from gpuwatch.outputs.diagnosis.report import DiagnosisReport

SCHEMA = 1


def diagnosis_json(report: DiagnosisReport) -> str:
    """One JSON object, without a line end."""
    return json.dumps(diagnosis_object(report), ensure_ascii=False, allow_nan=False, indent=2)


def diagnosis_object(report: DiagnosisReport) -> dict[str, Any]:
    diagnosis, source = report.diagnosis, plain(report.source)
    simulated = source.pop("simulated")
    ended = [finding_object(one.finding, one.until_unix_seconds) for one in report.ended]
    return {
        "schema": SCHEMA,
        "gpuwatch": __version__,
        "verdict": report.verdict,
        "decided": report.decided,
        "taken_at_unix_seconds": finite(diagnosis.taken_at_unix_seconds),
        "watched_seconds": finite(diagnosis.watched_seconds),
        "simulated": simulated,
        "source": source,
        "gpus": [plain(gpu) for gpu in report.gpus],
        "findings": [finding_object(finding) for finding in diagnosis.findings] + ended,
        "unknown": [plain(one) | {"job": job_object(one.job)} for one in diagnosis.unknown],
        "stacks": [_stack_object(stacks) for stacks in report.stacks],
    }


def _stack_object(stacks: StackReport) -> dict[str, Any]:
    return {
        "pid": stacks.pid,
        "rank": stacks.rank,
        "problem": stacks.problem,
        "shares": [
            {
                "category": share.category,
                "percent": finite(share.percent),
                "line": share.lines[0].where if share.lines else None,
            }
            for share in stacks.shares
        ],
    }
