"""The report of a recording as plain text for a terminal."""

from __future__ import annotations

from gpuwatch.core import units
from gpuwatch.jobs.report.report import Course
from gpuwatch.outputs.diagnosis.text import evidence_line
from gpuwatch.outputs.job_report import charts
from gpuwatch.outputs.job_report.lines import fitting
from gpuwatch.outputs.recording_report import cells, words
from gpuwatch.outputs.recording_report.words import Group, Times
from gpuwatch.outputs.summary.model import GpuSummary, JobUse, ProcessUse, Summary
from gpuwatch.outputs.terminal.page import LABEL, Page
from gpuwatch.outputs.terminal.painting import BOLD, COLOURS, CYAN, DIM, YELLOW
from gpuwatch.outputs.terminal.table import Heading, cut, wrap

CHART_ROWS = 8
STRIPS_SHOWN = 16
JOBS_SHOWN = 10
PROCESSES_SHOWN = 10
EVIDENCE_SHOWN = 4
PROBLEMS_SHOWN = 4

_GPU_HEADINGS = (
    Heading("GPU"),
    Heading("NAME", text=True, rank=9),
    Heading("BUSY"),
    Heading("DUTY", rank=5),
    Heading("IDLE", rank=1),
    Heading("PERIOD", rank=3),
    Heading("MEM-PEAK", rank=2),
    Heading("POWER", rank=4),
    Heading("ENERGY", rank=2),
    Heading("TEMP", rank=6),
    Heading("THROTTLED", rank=3),
    Heading("SM-CLOCK", rank=7),
    Heading("FROM-HOST", rank=8),
)
_JOB_HEADINGS = (
    Heading("JOB"),
    Heading("USER", text=True, rank=5),
    Heading("GPUS", text=True, rank=3),
    Heading("GPU-TIME"),
    Heading("BUSY", rank=1),
    Heading("GPU-MEM", rank=2),
    Heading("CPU-TIME", rank=2),
    Heading("READ", rank=4),
    Heading("WRITTEN", rank=6),
    Heading("COMMAND", text=True),
)
_TOLD_HEADINGS = (Heading("SAMPLES/S", rank=1), Heading("DATA-WAIT", rank=1))
"""Where a job told of its own loops."""
_PROCESS_HEADINGS = (
    Heading("PID"),
    Heading("USER", text=True, rank=5),
    Heading("GPU-TIME", rank=1),
    Heading("GPU-BUSY", rank=3),
    Heading("GPU-MEM", rank=2),
    Heading("CPU-TIME"),
    Heading("MEM", rank=2),
    Heading("READ", rank=4),
    Heading("WRITTEN", rank=6),
    Heading("COMMAND", text=True),
)


def recording_text(
    summary: Summary, *, width: int = 80, colour: bool = False, unicode: bool = True
) -> str:
    """Lines of at most ``width`` cells (40 or more), without a line end."""
    page = Page(fitting(width), colour)
    _head(page, summary)
    _gpus(page, summary)
    _charts(page, summary, unicode)
    _findings(page, summary)
    _jobs(page, summary)
    _processes(page, summary)
    _host(page, summary)
    _quality(page, summary)
    return page.text(unicode)


# --- the head --------------------------------------------------------------------------------


def _head(page: Page, summary: Summary) -> None:
    if summary.simulated:
        page.say("SIMULATED: no such machine ran.", style=YELLOW)
    page.bold(words.verdict(summary))
    page.dim(f"{summary.file.name} · {summary.machine} · {words.gpu_names(summary)}")
    page.dim(f"{words.when(summary)} ({units.age(summary.seconds)}) · {Times(summary).zone()}")
    if summary.pid is not None:
        page.say(f"Only the job of process {summary.pid}.", style=YELLOW)


# --- GPUs ------------------------------------------------------------------------------------


def _gpus(page: Page, summary: Summary) -> None:
    if not summary.gpus:
        return
    page.gap()
    rows = [_gpu_row(gpu) for gpu in summary.gpus]
    if len(summary.cards) > 1:
        rows.append(_all_row(summary))
    page.table(_GPU_HEADINGS, rows)
    for line in cells.gpu_notes(summary):
        page.say(line, style=YELLOW, first="  ", later="    ")


def _gpu_row(gpu: GpuSummary) -> list[str]:
    core, identity = gpu.core, gpu.identity
    return [
        gpu.label,
        identity.name,
        units.percent(core.busy_percent),
        words.share(gpu.duty),
        words.hours(core.idle_seconds),
        words.period(gpu.period_seconds) if words.oscillation(gpu) else units.UNKNOWN,
        units.size_of(core.memory_peak_bytes, identity.memory_total_bytes),
        units.watts_of(core.power_mean_watts, core.power_limit_watts),
        units.energy(core.energy_joules),
        units.celsius(core.temperature_peak_celsius),
        units.age(words.throttled_seconds(gpu)),
        units.megahertz(gpu.sm_clock_mean_mhz),
        units.size(gpu.received_bytes),
    ]


def _all_row(summary: Summary) -> list[str]:
    row = dict.fromkeys((heading.title for heading in _GPU_HEADINGS), "")
    row["GPU"] = "all"
    row["BUSY"] = units.percent(summary.busy_percent)
    row["DUTY"] = words.share(summary.duty)
    row["IDLE"] = words.hours(summary.idle_gpu_seconds)
    row["ENERGY"] = units.energy(summary.energy_joules)
    row["POWER"] = units.watts(summary.power_mean_watts)
    return list(row.values())


# --- charts ----------------------------------------------------------------------------------


def _charts(page: Page, summary: Summary, unicode: bool) -> None:
    drawn = [
        (gpu, gpu.courses["busy_percent"]) for gpu in summary.gpus if "busy_percent" in gpu.courses
    ]
    cpu = summary.host.courses.get("cpu_percent")
    courses = [course for _, course in drawn] or ([] if cpu is None else [cpu])
    if not courses or summary.seconds <= 0:
        return
    page.gap()
    of = "GPU busy, mean of all" if len(drawn) > 1 else "GPU busy" if drawn else "CPU busy"
    chart = charts.together(courses)
    seconds = summary.course_seconds * len(chart.mean)
    page.dim(f"{of}: filled is the mean, dots the peak; time from the start")
    for line in charts.chart(
        chart,
        charts.TimeAxis(0.0, seconds),
        width=page.width,
        rows=CHART_ROWS,
        unicode=unicode,
        time_labels=True,
    ):
        edge = charts.LABEL_CELLS
        page.lines.append(page.paint(line[:edge], DIM) + page.paint(line[edge:], CYAN))
    strips: list[tuple[str, Course]] = []
    if len(drawn) > 1:
        strips += [(f"GPU{gpu.label}", course) for gpu, course in drawn[:STRIPS_SHOWN]]
    if cpu is not None and drawn:
        strips.append(("CPU", cpu))
    page.lines += charts.strips(strips, width=page.width, unicode=unicode)
    page.lines += _marks(page.width, summary, seconds, unicode)


def _marks(width: int, summary: Summary, seconds: float, unicode: bool) -> list[str]:
    """A lane for each finding, on the columns of the chart."""
    room = charts.canvas_cells(width)
    lines = []
    for group in words.groups(summary):
        lane = [" "] * room
        for stretch in group.stretches:
            first = (stretch.begin_unix_seconds - summary.begin_unix_seconds) / seconds
            last = (stretch.end_unix_seconds - summary.begin_unix_seconds) / seconds
            begin = min(room - 1, max(0, int(first * room)))
            for place in range(begin, min(room, max(begin + 1, round(last * room)))):
                lane[place] = "━" if unicode else "="
        lines.append(f"{f'#{group.number}':>{charts.LABEL_CELLS}} {''.join(lane)}".rstrip())
    return lines


# --- findings --------------------------------------------------------------------------------


def _findings(page: Page, summary: Summary) -> None:
    times = Times(summary)
    for group in words.groups(summary):
        page.gap()
        _finding(page, group, times)


def _finding(page: Page, group: Group, times: Times) -> None:
    mark = f"#{group.number} {group.severity}:"
    lines = wrap(f"{mark} {group.rule}, {group.when(times)}", page.width, later="  ")
    painted = page.paint(mark, COLOURS.get(group.severity, ""))
    page.lines += [painted + lines[0].removeprefix(mark), *lines[1:]]
    cost = group.told_cost()
    if cost:
        page.labelled("Cost", cost)
    for number, use in enumerate(group.uses):
        told = use.finding.summary
        if len(group.uses) > 1 and use.cost_gpu_seconds is not None:
            told = f"{told.rstrip('.')} ({words.gpu_time(use.cost_gpu_seconds)})"
        page.labelled("What" if number == 0 else "", told, "- ")
    for number, line in enumerate(group.advice_lines()):
        page.labelled("Do" if number == 0 else "", line, "- ")
    read = [one for one in group.finding.evidence if one.value is not None and one.supports]
    for number, evidence in enumerate(read[:EVIDENCE_SHOWN]):
        page.labelled("Because" if number == 0 else "", evidence_line(evidence), "- ")


# --- jobs and processes ----------------------------------------------------------------------


def _jobs(page: Page, summary: Summary) -> None:
    if not summary.jobs:
        return
    page.gap()
    shown = summary.jobs[:JOBS_SHOWN]
    headings: tuple[Heading, ...] = _JOB_HEADINGS
    rows = [_job_row(job, summary) for job in shown]
    if cells.told_any(summary):
        headings = (*headings[:5], *_TOLD_HEADINGS, *headings[5:])
        rows = [
            [*row[:5], *cells.told_cells(job), *row[5:]]
            for row, job in zip(rows, shown, strict=True)
        ]
    page.table(headings, rows)
    for job in shown:
        if most := cells.most_told(job):
            page.dim(f"{job.pid}: waited most for data: {most} of the time.")
    _more(page, len(summary.jobs) - len(shown), "job")


def _job_row(job: JobUse, summary: Summary) -> list[str]:
    return [
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


def _processes(page: Page, summary: Summary) -> None:
    # Of a job of one process the table above has said it all.
    if len(summary.processes) <= len(summary.jobs):
        return
    page.gap()
    shown = summary.processes[:PROCESSES_SHOWN]
    page.table(_PROCESS_HEADINGS, [_process_row(process) for process in shown])
    left = len(summary.processes) - len(shown)
    if left > 0:
        page.dim(f"and {left:,} more (--json, export --processes)")


def _process_row(process: ProcessUse) -> list[str]:
    return [
        str(process.pid),
        process.user or units.UNKNOWN,
        words.hours(process.gpu_held_seconds if process.gpus else None),
        cells.busy_share(process.gpu_busy_seconds, process.gpu_held_seconds),
        units.size(process.gpu_memory_peak_bytes),
        words.hours(process.cpu_core_seconds),
        units.size(process.memory_peak_bytes),
        units.size(process.read_bytes),
        units.size(process.written_bytes),
        cells.process_name(process),
    ]


def _more(page: Page, left: int, noun: str) -> None:
    if left > 0:
        page.dim(f"and {words.plural(left, f'more {noun}')}")


# --- the host, and how well it could be read -------------------------------------------------


def _host(page: Page, summary: Summary) -> None:
    told = cells.host_facts(summary)
    if told:
        page.gap()
    for label, text in told:
        first, *rest = wrap(text, page.width, first=label.ljust(LABEL), later=" " * LABEL)
        page.lines += [page.paint(first[:LABEL], BOLD) + first[LABEL:], *rest]


def _quality(page: Page, summary: Summary) -> None:
    page.gap()
    for sentence in words.quality(summary):
        page.dim(sentence)
    for problem in summary.problems[:PROBLEMS_SHOWN]:
        page.say(cut(problem, 400), style=YELLOW)
