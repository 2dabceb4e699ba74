"""The report of a recording as one HTML file that needs nothing else: no script, no font, no
network. The verdict first, then when, why and who."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gpuwatch.core import units
from gpuwatch.outputs.diagnosis.text import quantity
from gpuwatch.outputs.html.parts import bullets, element, page, table
from gpuwatch.outputs.html.timeline import cards, timeline
from gpuwatch.outputs.recording_report import cells, words
from gpuwatch.outputs.recording_report.words import Group, Times
from gpuwatch.outputs.summary.model import Summary

JOBS_SHOWN = 30
PROCESSES_SHOWN = 40
SEVERITY_MARKS = {"error": "\u25b2 error", "warning": "\u25cf warning", "info": "\u25cb info"}
"""A shape beside the colour."""


def recording_html(summary: Summary) -> str:
    """The whole file."""
    title = f"GPU report: {summary.machine}, {words.when(summary)}"
    return page(title, _body(summary))


def _body(summary: Summary) -> Iterable[str]:
    yield from _head(summary)
    if summary.gpus or summary.host.courses:
        yield "<h2>Over time</h2>"
        yield from timeline(summary)
    yield from _findings(summary)
    yield from _gpus(summary)
    if any(set(gpu.courses) - {"busy_percent"} for gpu in summary.gpus):
        yield "<h2>Memory, power, temperature</h2>"
        yield from cards(summary)
    yield from _jobs(summary)
    yield from _loops(summary)
    yield from _processes(summary)
    yield from _host(summary)
    yield "<h2>Data quality</h2>"
    yield bullets([*words.quality(summary), *summary.problems])


def _head(summary: Summary) -> Iterable[str]:
    yield element("h1", "GPU report")
    if summary.simulated:
        yield element("div", "SIMULATED \u2014 no such machine ran", "badge")
    head, why = words.verdict_parts(summary)
    yield element("p", head, "verdict")
    if why:
        yield element("p", why, "why")
    yield meta(summary)
    if summary.pid is not None:
        yield element("p", f"Only the job of process {summary.pid}.", "note")
    figures = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(figure)}</dd><dd>{escape(of)}</dd></div>"
        for name, figure, of in words.facts(summary)
    )
    if figures:
        yield f'<dl class="facts">{figures}</dl>'


def meta(summary: Summary) -> str:
    """The line that says what is told of."""
    parts = (
        summary.machine,
        words.gpu_names(summary),
        f"{words.when(summary)} ({units.age(summary.seconds)})",
        Times(summary).zone(),
        summary.file.name,
    )
    return f'<p class="meta">{"".join(element("span", part) for part in parts)}</p>'


# --- findings --------------------------------------------------------------------------------


def _findings(summary: Summary) -> Iterable[str]:
    groups = words.groups(summary)
    if not groups:
        return
    yield "<h2>Findings</h2>"
    times = Times(summary)
    for group in groups:
        yield from _finding(group, times)


def _finding(group: Group, times: Times) -> Iterable[str]:
    yield f'<section class="finding {group.severity}"><header>'
    yield f"<h3>#{group.number} {escape(group.rule)}</h3>"
    yield element("span", SEVERITY_MARKS[group.severity], "sev")
    cost = group.told_cost()
    if cost:
        yield element("span", cost, "cost")
    yield "</header>"
    gpus = words.labels(group.gpus, group.summary)
    yield element("p", f"{group.when(times)} \u00b7 {gpus}", "when")
    for use in group.uses:
        told = use.finding.summary
        if len(group.uses) > 1 and use.cost_gpu_seconds is not None:
            told = f"{told.rstrip('.')} ({words.gpu_time(use.cost_gpu_seconds)})."
        yield element("p", told, "what")
    yield "<dl>"
    for number, line in enumerate(group.advice_lines()):
        yield element("dt", "Do" if number == 0 else "")
        yield element("dd", line, "do" if number == 0 else "")
    yield f"<dt>Because</dt><dd>{_evidence(group)}</dd>"
    yield from _ruled_out(group)
    yield "</dl></section>"


def _evidence(group: Group) -> str:
    rows = []
    for evidence in group.finding.evidence:
        if evidence.value is None:
            continue
        unit = "%" if (evidence.unit or "").startswith("%") else evidence.unit
        says = evidence.says
        if not evidence.supports:
            says = f"against it: {says}" if says else "evidence against it"
        rows.append(
            [
                evidence.name,
                quantity(evidence.value, evidence.unit),
                "" if evidence.threshold is None else quantity(evidence.threshold, unit),
                says,
            ]
        )
    if not rows:
        return element("span", "see the summary", "note")
    return table(f"Evidence for finding {group.number}", EVIDENCE, rows)


EVIDENCE = ("Reading:", "Value", "Threshold", "Meaning:")


def _ruled_out(group: Group) -> Iterable[str]:
    others = group.finding.ruled_out
    if others:
        told = "; ".join(f"{other.rule}: {other.why}" for other in others)
        yield f'<dt>Not</dt><dd class="note">{escape(told)}</dd>'


# --- tables ----------------------------------------------------------------------------------


def _gpus(summary: Summary) -> Iterable[str]:
    if not summary.gpus:
        return
    rows = []
    for gpu in summary.gpus:
        core, identity = gpu.core, gpu.identity
        rows.append(
            [
                gpu.label,
                identity.name.removeprefix("NVIDIA "),
                units.percent(core.busy_percent),
                words.share(gpu.duty),
                words.hours(core.idle_seconds),
                words.oscillation(gpu).removesuffix(" of the time") or "none",
                units.size_of(core.memory_peak_bytes, identity.memory_total_bytes),
                units.watts_of(core.power_mean_watts, core.power_limit_watts),
                units.energy(core.energy_joules),
                units.celsius(core.temperature_peak_celsius),
                units.age(words.throttled_seconds(gpu)),
                units.megahertz(gpu.sm_clock_mean_mhz),
                units.size(gpu.received_bytes),
            ]
        )
    total = None
    if len(summary.cards) > 1:
        total = [
            "all",
            words.plural(len(summary.cards), "GPU"),
            units.percent(summary.busy_percent),
            words.share(summary.duty),
            words.hours(summary.idle_gpu_seconds),
            "",
            "",
            units.watts(summary.power_mean_watts),
            units.energy(summary.energy_joules),
            *[""] * 4,
        ]
    yield "<h2>GPUs</h2>"
    yield table("GPUs", GPU_HEADINGS, rows, total)
    notes = cells.gpu_notes(summary)
    if notes:
        yield bullets(notes)


GPU_HEADINGS = (
    "GPU", "Name:", "Busy", "Duty", "Idle", "Swings:", "Memory peak", "Power mean", "Energy",
    "Hottest", "Throttled", "SM clock", "From host",
)  # fmt: skip


def _jobs(summary: Summary) -> Iterable[str]:
    shown = summary.jobs[:JOBS_SHOWN]
    if not shown:
        return
    times = Times(summary)
    rows = [
        [
            str(job.pid),
            job.user or units.UNKNOWN,
            cells.gpu_labels(job.gpus, summary),
            f"{times.moment(job.first_unix_seconds)} to {times.moment(job.last_unix_seconds)}",
            words.hours(job.gpu_held_seconds if job.gpus else None),
            cells.busy_share(job.gpu_busy_seconds, job.gpu_held_seconds),
            units.size(job.gpu_memory_peak_bytes),
            words.hours(job.cpu_core_seconds),
            units.size(job.memory_peak_bytes),
            units.size(job.read_bytes),
            units.size(job.written_bytes),
            job.command or units.UNKNOWN,
        ]
        for job in shown
    ]
    yield "<h2>Jobs</h2>"
    yield table("Jobs", JOB_HEADINGS, rows)
    yield from _more(len(summary.jobs) - len(shown))


def _loops(summary: Summary) -> Iterable[str]:
    """A table of its own: beside all else of a job it would push its command off the page."""
    told = [job for job in summary.jobs if cells.tells(job)]
    if not told:
        return
    rows = [
        [
            str(job.pid),
            cells.gpu_labels(job.gpus, summary),
            *cells.told_cells(job),
            cells.most_told(job),
            words.hours(job.told_seconds),
            job.command or units.UNKNOWN,
        ]
        for job in told[:JOBS_SHOWN]
    ]
    yield "<h2>What the jobs reported of their loops</h2>"
    yield table("What the jobs reported of their loops", LOOP_HEADINGS, rows)
    yield from _more(len(told) - len(rows))


LOOP_HEADINGS = (
    "PID", "GPUs:", "Samples/s", "Data wait", "Waits most:", "Reported for", "Command::",
)  # fmt: skip

JOB_HEADINGS = (
    "PID", "User:", "GPUs:", "Seen:", "GPU time", "Busy", "GPU memory", "CPU time", "Memory",
    "Read", "Written", "Command::",
)  # fmt: skip


def _processes(summary: Summary) -> Iterable[str]:
    shown = summary.processes[:PROCESSES_SHOWN]
    if not shown:
        return
    rows = [
        [
            str(process.pid),
            process.user or units.UNKNOWN,
            cells.gpu_labels(process.gpus, summary),
            words.hours(process.gpu_held_seconds if process.gpus else None),
            cells.busy_share(process.gpu_busy_seconds, process.gpu_held_seconds),
            units.size(process.gpu_memory_peak_bytes),
            words.hours(process.cpu_core_seconds),
            units.size(process.memory_peak_bytes),
            units.size(process.read_bytes),
            units.size(process.written_bytes),
            cells.process_name(process),
        ]
        for process in shown
    ]
    yield "<h2>Processes</h2>"
    yield table("Processes", PROCESS_HEADINGS, rows)
    yield from _more(len(summary.processes) - len(shown))


PROCESS_HEADINGS = (
    "PID", "User:", "GPUs:", "GPU time", "GPU busy", "GPU memory", "CPU time", "Memory", "Read",
    "Written", "Command::",
)  # fmt: skip


def _more(left: int) -> Iterable[str]:
    if left > 0:
        yield element("p", f"And {left:,} more: gpuwatch report --json has them.", "note")


def _host(summary: Summary) -> Iterable[str]:
    told = cells.host_facts(summary)
    if told:
        yield "<h2>Machine</h2>"
        yield table("Machine", ("Part:", "Use:"), [[label, said] for label, said in told])
