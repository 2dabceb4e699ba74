"""The GPUs of a job's report: a table, and what its numbers need beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuwatch.core import units
from gpuwatch.jobs.report.report import GpuReport, JobReport
from gpuwatch.outputs.job_report.lines import wrapped
from gpuwatch.outputs.job_report.words import REASONS, clock, grouped
from gpuwatch.outputs.terminal.painting import BOLD, YELLOW, Painter
from gpuwatch.outputs.terminal.table import Heading, table

_GPU_HEADINGS = (
    Heading("GPU"),
    Heading("NAME", text=True, rank=5),
    Heading("BUSY"),
    Heading("IDLE"),
    Heading("JOB-MEM", rank=1),
    Heading("GPU-MEM", rank=4),
    Heading("POWER", rank=2),
    Heading("PEAK", rank=6),
    Heading("ENERGY", rank=2),
    Heading("TEMP", rank=3),
    Heading("SM", rank=7),
    Heading("TENSOR", rank=8),
)
_MOST_OF_IT = 0.75
"""Importing libraries and loading a model comes before the first use of a GPU in any job."""
_ENERGY = {
    "power": "power readings, not from a counter",
    "counter and power": "a counter that was partly missing or reset, and power readings",
}


def gpus(report: JobReport, width: int, paint: Painter) -> list[str]:
    if not report.gpus:
        return wrapped("", "The job used no GPU while it was watched.", width)
    rows = [_gpu_row(gpu) for gpu in report.gpus]
    if len(rows) > 1:
        rows.append(_all_row(report))
    titles, *lines = table(_GPU_HEADINGS, rows, width)
    notes = [paint(line, YELLOW) for line in _notes(report, width)]
    return [paint(titles, BOLD), *lines, *_idle_line(report, width), *notes]


def _gpu_row(gpu: GpuReport) -> list[str]:
    return [
        gpu.label,
        gpu.name,
        units.percent(gpu.busy_percent),
        units.age(gpu.idle_seconds),
        units.size(gpu.job_memory_peak_bytes),
        units.size_of(gpu.memory_peak_bytes, gpu.memory_total_bytes),
        units.watts_of(gpu.power_mean_watts, gpu.power_limit_watts),
        units.watts(gpu.power_peak_watts),
        units.energy(gpu.energy_joules),
        units.celsius(gpu.temperature_peak_celsius),
        units.percent(gpu.sm_active_percent),
        units.percent(gpu.tensor_active_percent),
    ]


def _all_row(report: JobReport) -> list[str]:
    blank = [""] * len(_GPU_HEADINGS)
    row = dict(zip((heading.title for heading in _GPU_HEADINGS), blank, strict=True))
    row["GPU"] = "all"
    row["BUSY"] = units.percent(report.busy_percent)
    row["IDLE"] = units.age(report.idle_gpu_seconds)
    row["ENERGY"] = units.energy(report.energy_joules)
    return list(row.values())


def _idle_line(report: JobReport, width: int) -> list[str]:
    idle, busy = report.idle_gpu_seconds, report.busy_percent
    if idle is None or busy is None:
        return []
    return wrapped(
        "",
        f"{grouped(idle)} GPU-seconds idle, {units.percent(100.0 - busy)} of the time watched.",
        width,
    )


def _notes(report: JobReport, width: int) -> list[str]:
    """What a number in the table needs beside it, alike for several GPUs in one line."""
    found: dict[str, list[tuple[GpuReport, float | None]]] = {}
    for gpu in report.gpus:
        for text, seconds in _gpu_notes(gpu, report):
            found.setdefault(text, []).append((gpu, seconds))
    lines = []
    for text, places in found.items():
        labels = _span([gpu.label for gpu, _ in places], len(report.gpus))
        lines += wrapped("  ", f"{labels}: {text}{_for_seconds(places)}", width)
    return lines


def _gpu_notes(gpu: GpuReport, report: JobReport) -> Iterable[tuple[str, float | None]]:
    if gpu.lost_at_unix_seconds is not None:
        yield f"lost at {clock(gpu.lost_at_unix_seconds, '%T')}", None
    if gpu.busy_percent is None and gpu.busy_missing:
        yield f"busy unknown: {gpu.busy_missing}", None
    elif gpu.busy_percent is not None and gpu.watched_seconds is not None:
        missed = gpu.held_seconds - gpu.watched_seconds
        if missed > max(2.0, 0.05 * gpu.held_seconds):
            yield "busy unknown", missed
    for reason, seconds in gpu.throttled or ():
        if seconds >= 0.5:
            yield f"slowed down by {REASONS.get(reason, reason.replace('_', ' '))}", seconds
    if gpu.other_tenants_peak > 0:
        others = gpu.other_tenants_peak
        users = f" ({', '.join(gpu.other_users)})" if gpu.other_users else ""
        processes = "another process" if others == 1 else f"up to {others} other processes"
        yield f"shared with {processes}{users}", gpu.other_tenant_seconds
    if gpu.energy_from not in {None, "counter"}:
        yield f"energy from {_ENERGY[gpu.energy_from or '']}", None
    if gpu.held_seconds < _MOST_OF_IT * (report.duration_seconds or 0.0):
        of = units.age(report.duration_seconds)
        yield f"the job used it for {units.age(gpu.held_seconds)} of {of}", None


def _for_seconds(places: Sequence[tuple[GpuReport, float | None]]) -> str:
    known = [(gpu, seconds) for gpu, seconds in places if seconds is not None]
    if not known:
        return ""
    times = [seconds for _, seconds in known]
    least, most = units.age(min(times)), units.age(max(times))
    if len(known) > 1 and least != most:
        return f" for {least} to {most}"
    held = max(gpu.held_seconds for gpu, _ in known)
    share = f" ({units.percent(100.0 * max(times) / held)})" if held > 0 else ""
    return f" for {most}{share}"


def _span(labels: Sequence[str], of: int) -> str:
    """``GPU 0``, ``GPUs 0-3, 6``, ``all GPUs``."""
    if len(labels) == of and of > 1:
        return "all GPUs"
    if len(labels) == 1:
        return f"GPU {labels[0]}"
    spans: list[list[str]] = []
    for label in labels:
        if spans and label.isdigit() and _follows(spans[-1][-1], label):
            spans[-1].append(label)
        else:
            spans.append([label])
    return "GPUs " + ", ".join(s[0] if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)


def _follows(one: str, other: str) -> bool:
    return one.isdigit() and int(other) == int(one) + 1
