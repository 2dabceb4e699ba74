"""Words that the parts of a job's report share, and what they call its facts."""

from __future__ import annotations

import signal
from datetime import UTC, datetime

from gpuwatch.core import units
from gpuwatch.jobs.report.report import JobReport

REASONS = {
    "sw_power_cap": "its power limit",
    "hw_power_brake_slowdown": "the power supply (hardware brake)",
    "hw_slowdown": "the hardware",
    "sw_thermal_slowdown": "its temperature",
    "hw_thermal_slowdown": "its temperature (hardware)",
    "sync_boost": "another GPU of its boost group",
}
APART_POINTS = 5.0
"""Ranks that wait alike are told as one."""


def command(report: JobReport) -> str:
    return report.command or f"process {report.pid}"


def failed(report: JobReport) -> bool:
    return report.exit_code is not None and report.exit_code != 0


def exit_sentence(report: JobReport) -> str:
    code = report.exit_code
    if code is None:
        return units.UNKNOWN
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def end_word(report: JobReport) -> str:
    """How it ended, as a cell of a table."""
    if report.ended_at_unix_seconds is None:
        return "running"
    if report.exit_code is None:
        return "ended"
    return exit_sentence(report).removeprefix("ended by ").replace("exit code", "exit")


def moment(unix_seconds: float | None, year: str) -> str:
    """To the minute; with its year where that is not ``year``."""
    if unix_seconds is None:
        return units.UNKNOWN
    return clock(unix_seconds, "%F %H:%M").removeprefix(f"{year}-")


def clock(unix_seconds: float, form: str) -> str:
    """Local; ``form`` as for ``strftime``, with %F and %T on every platform."""
    form = form.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S")
    return datetime.fromtimestamp(unix_seconds, tz=UTC).astimezone().strftime(form)


def grouped(value: float) -> str:
    """An amount of seconds."""
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def optional_grouped(value: float | None) -> str:
    return units.UNKNOWN if value is None else grouped(value)


def ratio_word(ratio: float) -> str:
    """``same``, ``-12%``, ``11 times``."""
    if abs(ratio - 1) < 0.005:
        return "same"
    return f"{min(ratio, 9999):.0f} times" if ratio >= 10 else f"{100 * (ratio - 1):+.0f}%"
