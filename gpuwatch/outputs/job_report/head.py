"""The head of a job's report: what ran, when, where and how it ended."""

from __future__ import annotations

from gpuwatch.core import units
from gpuwatch.jobs.report.report import JobReport
from gpuwatch.outputs.job_report.compare import since_last
from gpuwatch.outputs.job_report.lines import listed, wrapped
from gpuwatch.outputs.job_report.words import clock, command, exit_sentence, failed
from gpuwatch.outputs.terminal.painting import BOLD, RED, YELLOW, Painter
from gpuwatch.outputs.terminal.table import cut

COMMAND_LINES = 3


def head(report: JobReport, width: int, paint: Painter, previous: JobReport | None) -> list[str]:
    said = wrapped("", command(report), width)
    if len(said) > COMMAND_LINES:
        said = [*said[: COMMAND_LINES - 1], cut("".join(said[COMMAND_LINES - 1 :]), width)]
    lines = [paint(line, BOLD) for line in said]
    if report.simulated:
        lines.insert(0, paint("SIMULATED: no such job ran", YELLOW))
    lines += listed(_when(report), width)
    lines += listed(_where(report), width)
    if failed(report):
        lines.append(paint(exit_sentence(report), RED))
    lines += [paint(line, YELLOW) for line in _watched_lines(report, width)]
    if previous is not None:
        lines += wrapped("", since_last(previous, report), width)
    return lines


def _when(report: JobReport) -> list[str]:
    start, end = report.started_at_unix_seconds, report.ended_at_unix_seconds
    facts = []
    if start is not None and end is not None:
        same_day = clock(start, "%F") == clock(end, "%F")
        facts.append(f"{clock(start, '%F %T')} to {clock(end, '%T' if same_day else '%F %T')}")
    elif start is not None:
        facts.append(f"since {clock(start, '%F %T')}")
    duration = units.age(report.duration_seconds)
    facts.append(f"still running after {duration}" if end is None else f"took {duration}")
    if report.end_is_last_seen:
        facts.append("ended unobserved")
    if report.exit_code is not None and not failed(report):
        facts.append("exit code 0")
    return facts


def _where(report: JobReport) -> list[str]:
    facts = [f"PID {report.pid}"]
    if report.user:
        facts.append(report.user)
    if report.machine:
        facts.append(f"on {report.machine}")
    if report.ranks is not None and report.ranks > 1:
        world = report.world_size
        of = f" of {world}" if world is not None and world > report.ranks else ""
        facts.append(f"{report.ranks}{of} ranks")
    known = (
        (report.launcher, "{}"),
        (report.framework, "{}"),
        (report.environment, "{}"),
        (report.slurm_job, "Slurm job {}"),
        (report.pod, "pod {}"),
        (report.container, "container {}"),
    )
    return facts + [form.format(value) for value, form in known if value]


def _watched_lines(report: JobReport, width: int) -> list[str]:
    duration = report.duration_seconds
    if duration is None or duration - report.watched_seconds <= max(2.0, 0.02 * duration):
        return []
    share = units.percent(100.0 * report.watched_seconds / duration)
    return wrapped(
        "",
        f"Watched for {units.age(report.watched_seconds)} of it ({share}); "
        "this report covers only that time.",
        width,
    )
