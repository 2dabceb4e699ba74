"""The rows of a report on one time axis."""

from collections.abc import Iterable

from gpuwatch.core import units
from gpuwatch.outputs.report.content import words
from gpuwatch.outputs.report.content.document import Cards, Listed, Row, Section, Timeline
from gpuwatch.outputs.report.content.findings import Group, groups
from gpuwatch.outputs.report.content.words import Times
from gpuwatch.outputs.report.model import Report
from gpuwatch.outputs.report.parts import GpuUsage
from gpuwatch.outputs.report.usage import JobUsage

CARDS_SHOWN = 16


def meta(report: Report) -> list[Listed]:
    source = () if report.source is None else (report.source.name,)
    # A redacted recording names no machine.
    machine = filter(None, (report.machine, words.gpu_names(report)))
    time = (words.when(report), Times(report).zone())
    return [Listed((*source, *machine), "note"), Listed(time, "note")]


def timeline(report: Report, name: str = "") -> Timeline:
    found = groups(report)
    cpu = report.host.profiles.get("cpu_percent")
    row = None
    if cpu is not None:
        cores = report.host.core_count
        mean, most = (
            units.percent(value)
            for value in (report.host.cpu_mean_percent, report.host.cpu_peak_percent)
        )
        of = "" if cores is None else units.plural(cores, "core")
        row = Row("CPU", "CPU", of, cpu, mean, f"Mean {mean}, at most {most}.")
    others = [] if report.job is None else list(_job_rows(report.job))
    gpus = [_gpu_row(gpu, report, found) for gpu in report.gpus]
    return Timeline(report, [group.lane() for group in found], gpus, others, row, name)


def _gpu_row(gpu: GpuUsage, report: Report, found: Iterable[Group]) -> Row:
    percent, rhythm = units.percent(gpu.busy_shown_percent), words.oscillation(gpu)
    missing = words.busy_missing(gpu, report)
    swings = f"swings {rhythm}" if rhythm else "no oscillation"
    marks = [
        (group.severity, stretch)
        for group in found
        if group.severity != "info"
        for use in group.uses
        if gpu.uuid in use.gpus
        for stretch in use.stretches
    ]
    return Row(
        f"GPU {gpu.label}",
        f"GPU{'' if len(gpu.label) > 1 else ' '}{gpu.label}",
        gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce "),
        gpu.profiles.get("busy_percent"),
        percent,
        f"Mean {percent}, duty {words.share(gpu.duty)}, {swings}.",
        f"busy: {missing}" if gpu.busy_shown_percent is None else "one moment was read",
        marks=marks,
        lost=gpu.lost,
    )


def _job_rows(job: JobUsage) -> Iterable[Row]:
    workers, main = job.loading.loader_worker_cpu_percent, job.loading.main_thread_cpu_percent
    for name, label, of, mean in (
        ("data_wait_percent", "waits for data", "% of the time", job.loop.data_wait_percent),
        ("loader_worker_cpu_percent", "loader workers", "of a core each", workers),
        ("main_thread_cpu_percent", "main thread", "of a core", main),
    ):
        if name in job.profiles:
            end = units.percent(mean)
            yield Row(label, label, of, job.profiles[name], end, f"Mean {end}.")


def cards(report: Report) -> Section:
    """Memory, power and temperature of each GPU on their own fixed scales."""
    shown = [gpu for gpu in report.gpus if set(gpu.profiles) - {"busy_percent"}]
    made = [(f"GPU {gpu.label}", list(_card_rows(gpu))) for gpu in shown[:CARDS_SHOWN]]
    left = max(0, len(shown) - CARDS_SHOWN)
    blocks = [Cards(report, made, left)] if made else []
    return Section("Memory, power, temperature", blocks)


def _card_rows(gpu: GpuUsage) -> Iterable[Row]:
    slowdown, profiles = gpu.temperature_slowdown_celsius, gpu.profiles
    memory = units.size_of(gpu.memory_peak_bytes, gpu.memory_total_bytes)
    power = units.watts_of(gpu.power_mean_watts, gpu.power_limit_watts)
    heat = units.celsius_of(gpu.temperature_peak_celsius, slowdown)
    for name, label, limit, end in (
        ("memory_used_bytes", "Memory", gpu.memory_total_bytes, memory),
        ("power_watts", "Power", gpu.power_limit_watts, power),
        ("temperature_celsius", "Temp", slowdown or 100.0, heat),
    ):
        if name in profiles:
            # What was read beyond its limit is not cut off.
            top = max([float(limit or 1.0), *filter(None, profiles[name].maximum)])
            described = f"{end}; the scale is 0 to the limit."
            yield Row(label, label, "", profiles[name], end, described, top=top, lost=gpu.lost)
