"""The report of ``gpuwatch tune memory`` as JSON, for programs; ``null`` is not measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from gpuwatch import __version__
from gpuwatch.tuning.memory import words
from gpuwatch.tuning.memory.fit import LineFit
from gpuwatch.tuning.memory.point import MemoryPoint
from gpuwatch.tuning.memory.predict import Confirmed
from gpuwatch.tuning.memory.report import MemoryReport, PrecisionResult

SCHEMA = 1


def report_json(report: MemoryReport) -> str:
    return json.dumps(report_object(report), indent=2, ensure_ascii=False) + "\n"


def report_object(report: MemoryReport) -> dict[str, Any]:
    return {
        "kind": "tune_memory",
        "schema": SCHEMA,
        "gpuwatch": __version__,
        **asdict(report.subject),
        "margin_share": report.margin_share,
        "seconds": round(report.seconds, 3),
        "ended": report.ended or None,
        "results": [_result(one) for one in report.results],
        "differences": list(words.differences(report)),
    }


def _result(result: PrecisionResult) -> dict[str, Any]:
    return {
        "precision": result.precision,
        "largest_batch_size": result.largest,
        "largest_is_confirmed": result.confirmed is not None and result.confirmed.batch_size > 0,
        "says": words.outcome(result),
        "points": [_point(one) for one in result.points],
        "fit": _fit(result.fit),
        "allocated_fit": _fit(result.allocated_fit),
        "prediction": None if result.prediction is None else asdict(result.prediction),
        "confirmed": _confirmed(result.confirmed),
        "out_of_memory_at": result.out_of_memory_at,
        "stopped": result.stopped or None,
    }


def _point(point: MemoryPoint) -> dict[str, Any]:
    return {**asdict(point), "samples_per_second": point.samples_per_second}


def _fit(fit: LineFit | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {
        **asdict(fit),
        "quality": fit.quality,
        "largest_deviation_bytes": fit.deviation_bytes,
        "largest_deviation_share": fit.deviation_share,
        "largest_deviation_at": fit.sizes[fit.worst],
        "says": words.quality(fit),
    }


def _confirmed(found: Confirmed | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "batch_size": found.batch_size or None,
        "too_large": found.too_large,
        "predicted_held": found.predicted_held,
        "stopped": found.stopped or None,
        "attempts": [
            {
                "batch_size": one.batch_size,
                "outcome": one.outcome,
                "says": one.says or None,
                "point": None if one.point is None else _point(one.point),
            }
            for one in found.attempts
        ],
    }
