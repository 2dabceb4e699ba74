"""The charts of a job's report: what was busy, and what waited, over its time."""

from __future__ import annotations

from gpuwatch.jobs.report.report import GpuReport, JobReport
from gpuwatch.outputs.job_report import charts
from gpuwatch.outputs.terminal.painting import BOLD, CYAN, DIM, Painter
from gpuwatch.outputs.terminal.table import cut


def courses(report: JobReport, width: int, paint: Painter, unicode: bool) -> list[str]:
    known = [gpu for gpu in report.gpus if charts.has_values(gpu.busy_course)]
    drawn = []
    if known:
        name = f"GPU {known[0].label} busy"
        if len(known) > 1:
            name = f"GPUs busy, mean of {len(known)}"
        drawn.append((name, charts.together([gpu.busy_course for gpu in known]), 6))
    if charts.has_values(report.loop.data_wait_course):
        drawn.append(("waits for data, % of the time", report.loop.data_wait_course, 4))
    loading = report.loading
    if charts.has_values(loading.loader_worker_course):
        drawn.append(("loader workers, of a core each", loading.loader_worker_course, 4))
    if charts.has_values(loading.main_thread_course):
        drawn.append(("main thread, of a core", loading.main_thread_course, 4))
    if not drawn:
        return []
    buckets = max(len(course.mean) for _, course, _ in drawn)
    start, lead = _course_start(report, buckets)
    time = charts.TimeAxis(start, (lead + buckets) * report.course_seconds)
    lines = []
    for place, (name, course, rows) in enumerate(drawn):
        said = name if place else f"{name} (filled: mean, dots: highest)"
        lines.append(paint(cut(said, width), BOLD))
        last = place == len(drawn) - 1
        picture = charts.chart(
            charts.stretched(course, lead, buckets),
            time,
            width=width,
            rows=rows,
            unicode=unicode,
            time_labels=last,
        )
        lines += [_painted_chart(line, paint) for line in picture]
        if not place and len(known) > 1:
            named = [
                (_short_label(gpu), charts.stretched(gpu.busy_course, lead, buckets))
                for gpu in known
            ]
            lines += charts.strips(named, width=width, unicode=unicode)
    return lines


def _short_label(gpu: GpuReport) -> str:
    return f"GPU {gpu.label}" if len(gpu.label) == 1 else gpu.label


def _course_start(report: JobReport, buckets: int) -> tuple[float, int]:
    """Seconds from the job's start to the left edge of the charts, and the buckets of nothing
    before the first that was watched: where only little was missed, charts begin at 0 s."""
    start, first = report.started_at_unix_seconds, report.course_from_unix_seconds
    offset = 0.0 if start is None or first is None else max(0.0, first - start)
    if report.course_seconds <= 0:
        return offset, 0
    lead = offset / report.course_seconds
    return (0.0, round(lead)) if lead <= 0.1 * buckets else (offset, 0)


def _painted_chart(line: str, paint: Painter) -> str:
    edge = charts.LABEL_CELLS
    return paint(line[:edge], DIM) + paint(line[edge:], CYAN)
