"""The report of a recording as Markdown: for an issue, a wiki, a message."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwatch.core import units
from gpuwatch.outputs.diagnosis.text import evidence_line
from gpuwatch.outputs.recording_report import cells, words
from gpuwatch.outputs.recording_report.words import Group, Times
from gpuwatch.outputs.summary.model import Summary

PROCESSES_SHOWN = 20
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@$^-])")


def escaped(text: str) -> str:
    """``text`` (made safe for a terminal before) as nothing but text: no link, no tag, no
    mention."""
    return _SPECIAL.sub(r"\\\1", text).replace("://", ":\N{ZERO WIDTH SPACE}//")


def recording_markdown(summary: Summary) -> str:
    """Without a line end."""
    lines = ["# GPU report" + (" (simulated)" if summary.simulated else ""), ""]
    lines += [f"**{escaped(words.verdict(summary))}**", ""]
    lines += [
        f"- File: {escaped(summary.file.name)}",
        f"- Machine: {escaped(summary.machine)}, {escaped(words.gpu_names(summary))}",
        f"- Time: {escaped(_time(summary))}",
    ]
    if summary.pid is not None:
        lines.append(f"- Only the job of process {summary.pid}")
    lines += [f"- {label}: {escaped(text)}" for label, text in cells.host_facts(summary)]
    lines += _gpus(summary) + _findings(summary) + _jobs(summary) + _processes(summary)
    lines += ["", "## Data quality", ""]
    lines += [f"- {escaped(sentence)}" for sentence in words.quality(summary)]
    lines += [f"- {escaped(problem)}" for problem in summary.problems]
    return "\n".join(lines)


def _time(summary: Summary) -> str:
    zone = Times(summary).zone()
    return f"{words.when(summary)} ({units.age(summary.seconds)}), {zone}"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells are escaped here; a heading that ends with ``:`` is of a column of text."""
    titles = [heading.removesuffix(":") for heading in headings]
    rules = [":--" if heading.endswith(":") else "--:" for heading in headings]
    cells = [f"| {' | '.join(escaped(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(titles)} |", f"| {' | '.join(rules)} |", *cells]


def _gpus(summary: Summary) -> list[str]:
    if not summary.gpus:
        return []
    rows = []
    for gpu in summary.gpus:
        core = gpu.core
        rows.append(
            [
                gpu.label,
                gpu.identity.name,
                units.percent(core.busy_percent),
                words.share(gpu.duty),
                words.hours(core.idle_seconds),
                words.oscillation(gpu) or units.UNKNOWN,
                units.size_of(core.memory_peak_bytes, gpu.identity.memory_total_bytes),
                units.watts_of(core.power_mean_watts, core.power_limit_watts),
                units.energy(core.energy_joules),
                units.celsius(core.temperature_peak_celsius),
                units.age(words.throttled_seconds(gpu)),
            ]
        )
    headings = (
        "GPU", "Name:", "Busy", "Duty", "Idle", "Swings:", "Memory peak", "Power", "Energy",
        "Hottest", "Throttled",
    )  # fmt: skip
    notes = [f"- {escaped(note)}" for note in cells.gpu_notes(summary)]
    return ["", "## GPUs", "", *markdown_table(headings, rows), *(["", *notes] if notes else [])]


def _findings(summary: Summary) -> list[str]:
    groups = words.groups(summary)
    lines = ["", "## Findings"]
    if not groups:
        return [*lines, "", "None."]
    times = Times(summary)
    for group in groups:
        lines += _finding(group, times)
    return lines


def _finding(group: Group, times: Times) -> list[str]:
    lines = ["", f"### {group.number}. {escaped(group.rule)} ({group.severity})", ""]
    lines.append(f"- When: {escaped(group.when(times))}")
    if group.told_cost():
        lines.append(f"- Cost: {escaped(group.told_cost())}")
    lines += [f"- {escaped(use.finding.summary)}" for use in group.uses]
    lines += [f"- **Do:** {escaped(line)}" for line in group.advice_lines()]
    lines += [
        f"- Because: {escaped(evidence_line(evidence))}"
        for evidence in group.finding.evidence
        if evidence.value is not None and evidence.supports
    ]
    return lines


def _jobs(summary: Summary) -> list[str]:
    if not summary.jobs:
        return []
    rows = [
        [
            str(job.pid),
            job.user or units.UNKNOWN,
            cells.gpu_labels(job.gpus, summary),
            words.hours(job.gpu_held_seconds if job.gpus else None),
            cells.busy_share(job.gpu_busy_seconds, job.gpu_held_seconds),
            units.size(job.gpu_memory_peak_bytes),
            words.hours(job.cpu_core_seconds),
            units.size(job.read_bytes),
            units.size(job.written_bytes),
            job.command or units.UNKNOWN,
        ]
        for job in summary.jobs
    ]
    headings = (
        "PID", "User:", "GPUs:", "GPU time", "Busy", "GPU memory", "CPU time", "Read", "Written",
        "Command:",
    )  # fmt: skip
    return ["", "## Jobs", "", *markdown_table(headings, rows), *_loops(summary)]


def _loops(summary: Summary) -> list[str]:
    told = [job for job in summary.jobs if cells.tells(job)]
    if not told:
        return []
    rows = [
        [
            str(job.pid),
            *cells.told_cells(job),
            cells.most_told(job),
            words.hours(job.told_seconds),
            job.command or units.UNKNOWN,
        ]
        for job in told
    ]
    headings = ("PID", "Samples/s", "Data wait", "Waits most:", "Reported for", "Command:")
    lines = ["", "## What the jobs reported of their loops", ""]
    return [*lines, *markdown_table(headings, rows)]


def _processes(summary: Summary) -> list[str]:
    shown = summary.processes[:PROCESSES_SHOWN]
    if not shown:
        return []
    rows = [
        [
            str(process.pid),
            process.user or units.UNKNOWN,
            words.hours(process.gpu_held_seconds if process.gpus else None),
            units.size(process.gpu_memory_peak_bytes),
            words.hours(process.cpu_core_seconds),
            units.size(process.memory_peak_bytes),
            units.size(process.read_bytes),
            units.size(process.written_bytes),
            cells.process_name(process),
        ]
        for process in shown
    ]
    headings = (
        "PID", "User:", "GPU time", "GPU memory", "CPU time", "Memory", "Read", "Written",
        "Command:",
    )  # fmt: skip
    lines = ["", "## Processes", "", *markdown_table(headings, rows)]
    left = len(summary.processes) - len(shown)
    return [*lines, "", f"And {left:,} more."] if left > 0 else lines
