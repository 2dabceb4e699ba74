"""Findings as JSON values: what ``diagnose --json``, reports and recordings write."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gpuwatch.core.model import ProcessKey
from gpuwatch.diagnosis.finding import Finding


def finding_object(finding: Finding, until_unix_seconds: float | None = None) -> dict[str, Any]:
    """A finding in the words of ``outputs/diagnosis/schema.py``."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "confidence": finite(finding.confidence),
        "summary": finding.summary,
        "gpus": list(finding.gpus),
        "job": job_object(finding.job),
        "since_unix_seconds": finite(finding.since_unix_seconds),
        "until_unix_seconds": finite(until_unix_seconds),
        "evidence": [plain(one) for one in finding.evidence],
        "ruled_out": [plain(one) for one in finding.ruled_out],
        "advice": [
            {
                "action": advice.action,
                "setting": advice.setting,
                "from": advice.present,
                "to": advice.wanted,
                "why": advice.why,
            }
            for advice in finding.advice
        ],
        "cost": {
            "share": finite(finding.cost_share),
            "gpu_seconds": finite(finding.cost_gpu_seconds),
        },
    }


def plain(record: Any) -> dict[str, Any]:
    """A flat dataclass by its fields."""
    return {field.name: finite(getattr(record, field.name)) for field in fields(record)}


def job_object(key: ProcessKey | None) -> dict[str, Any] | None:
    return None if key is None else {"pid": key[0], "started_at_unix_seconds": finite(key[1])}


def finite(value: Any) -> Any:
    """Rounded to what means something; NaN and infinity are no measurement."""
    if isinstance(value, float):
        return round(value, 4) if value - value == 0.0 else None
    return list(value) if isinstance(value, tuple) else value
