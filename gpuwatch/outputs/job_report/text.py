"""The report of a job as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.jobs.report.report import JobReport
from gpuwatch.outputs.job_report.compare import comparison
from gpuwatch.outputs.job_report.courses import courses
from gpuwatch.outputs.job_report.facts import facts_block
from gpuwatch.outputs.job_report.gpus import gpus
from gpuwatch.outputs.job_report.head import head
from gpuwatch.outputs.job_report.lines import fitting
from gpuwatch.outputs.terminal.painting import painter, to_ascii


def report_text(
    report: JobReport,
    *,
    width: int = 80,
    colour: bool = False,
    unicode: bool = True,
    previous: JobReport | None = None,
    tuning: Mapping[str, Any] | None = None,
) -> str:
    """The report in lines of at most ``width`` cells (40 or more), without a line end.

    ``tuning``: what was measured of its loader, as ``outputs.tuning.summary`` has it.
    """
    width = fitting(width)
    paint = painter(colour)
    blocks = [
        head(report, width, paint, previous),
        gpus(report, width, paint),
        facts_block(report, width, paint, tuning),
        courses(report, width, paint, unicode),
        [] if previous is None else comparison(previous, report, width, paint),
    ]
    text = "\n\n".join("\n".join(block) for block in blocks if block)
    return text if unicode else to_ascii(text)
