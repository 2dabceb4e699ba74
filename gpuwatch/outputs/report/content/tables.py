"""The tables of a report: each column declared once, for every form."""

from collections.abc import Iterable

from gpuwatch.core import units
from gpuwatch.core.model import PIDS_OF_A_MACHINE
from gpuwatch.core.throttling import REASONS
from gpuwatch.core.units import percent, samples, size
from gpuwatch.outputs.report.content import words
from gpuwatch.outputs.report.content.document import Block, Bullets, Column, grouped, tabled
from gpuwatch.outputs.report.content.words import Times, hours, share
from gpuwatch.outputs.report.model import Report
from gpuwatch.outputs.report.parts import GpuUsage, Phase, share_percent
from gpuwatch.outputs.report.usage import JobUsage, ProcessUsage, Usage

MOST_OF_IT = 0.75
"""Importing libraries and loading a model comes before the first use of a GPU in any job."""
SHOWN = {"text": {"jobs": 10, "processes": 10}, "page": {"jobs": 30, "processes": 40}}
LOSSES_SHOWN = 3
LOSS_SHARE = 0.1
"""Of the most: less is for --json."""
_N, _T = "number", "text"


def _period(gpu: GpuUsage) -> str:
    return words.period(gpu.period_seconds) if words.oscillation(gpu) else units.UNKNOWN


GPU_COLUMNS: tuple[Column[GpuUsage], ...] = (
    Column("GPU", "GPU", lambda g: g.label, total="all".format),
    Column("Host", "HOST", lambda g: g.machine or units.UNKNOWN, _T, 1),
    Column("Name", "NAME", lambda g: g.name.removeprefix("NVIDIA "), _T, 9,
           lambda r: units.plural(len(r.cards), "GPU")),
    Column("Busy", "BUSY", lambda g: percent(g.busy_shown_percent), _N, 0,
           lambda r: percent(r.total.busy_percent)),
    Column("Duty", "DUTY", lambda g: share(g.duty), _N, 5, lambda r: share(r.total.duty)),
    Column("Idle", "IDLE", lambda g: hours(g.idle_seconds), _N, 1,
           lambda r: hours(r.total.idle_gpu_seconds)),
    Column("Period", "PERIOD", _period, _N, 3),
    Column("Job memory", "JOB-MEM", lambda g: size(g.job_memory_peak_bytes), _N, 1),
    Column("Memory peak", "MEM-PEAK",
           lambda g: units.size_of(g.memory_peak_bytes, g.memory_total_bytes), _N, 2),
    Column("Power mean", "POWER",
           lambda g: units.watts_of(g.power_shown_watts, g.power_limit_watts), _N, 4,
           lambda r: units.watts(r.total.power_mean_watts)),
    Column("Power peak", "PEAK", lambda g: units.watts(g.power_peak_watts), _N, 10),
    Column("Energy", "ENERGY", lambda g: units.energy(g.energy_joules), _N, 2,
           lambda r: units.energy(r.total.energy_joules)),
    Column("Hottest", "TEMP", lambda g: units.celsius(g.temperature_peak_celsius), _N, 6),
    Column("Throttled", "THROTTLED", lambda g: units.age(g.throttled_seconds), _N, 3),
    Column("SM clock", "SM-CLOCK", lambda g: units.megahertz(g.sm_clock_mean_mhz), _N, 7),
    Column("From host", "FROM-HOST", lambda g: size(g.received_bytes), _N, 8),
    Column("SM active", "SM", lambda g: percent(g.sm_active_percent), _N, 11),
    Column("Tensor", "TENSOR", lambda g: percent(g.tensor_active_percent), _N, 12),
)  # fmt: skip


def _busy(usage: Usage) -> str:
    return percent(share_percent(usage.gpu_busy_seconds, usage.gpu_held_seconds))


def _held(usage: Usage) -> str:
    return hours(usage.gpu_held_seconds if usage.gpus else None)


def _used(*, cpu: int, memory: int) -> tuple[Column[Usage], ...]:
    """``cpu`` and ``memory``: the ranks of these columns."""
    return (
        Column("GPU memory", "GPU-MEM", lambda u: size(u.gpu_memory_peak_bytes), _N, 2),
        Column("CPU time", "CPU-TIME", lambda u: hours(u.cpu_core_seconds), _N, cpu),
        Column("Memory", "MEM", lambda u: size(u.memory_peak_bytes), _N, memory),
        Column("Read", "READ", lambda u: size(u.read_bytes), _N, 4),
        Column("Written", "WRITTEN", lambda u: size(u.written_bytes), _N, 6),
    )


def _who(report: Report, title: str, gpus_rank: int) -> tuple[Column[Usage], ...]:
    return (
        Column("PID", title, lambda u: str(u.pid % PIDS_OF_A_MACHINE)),
        Column("User", "USER", lambda u: u.user or units.UNKNOWN, _T, 5),
        Column("GPUs", "GPUS", lambda u: words.gpu_labels(u.gpus, report), _T, gpus_rank),
    )


def job_columns(report: Report) -> tuple[Column[JobUsage], ...]:
    moment = Times(report).moment

    def seen(job: JobUsage) -> str:
        return f"{moment(job.first_unix_seconds)} to {moment(job.last_unix_seconds)}"

    return (
        *_who(report, "JOB", 3),
        Column("Seen", "SEEN", seen, _T, 9),
        Column("GPU time", "GPU-TIME", _held),
        Column("Busy", "BUSY", _busy, _N, 1),
        Column("Samples/s", "SAMPLES/S", lambda j: samples(j.loop.samples_per_second), _N, 1),
        Column("Data wait", "DATA-WAIT", lambda j: percent(j.loop.data_wait_percent), _N, 1),
        *_used(cpu=2, memory=7),
        Column("Command", "COMMAND", lambda j: j.command or units.UNKNOWN, "long"),
    )


def phase_columns(report: Report) -> tuple[Column[Phase], ...]:
    moment = Times(report).moment
    lost_to = {"start": "start-up", "held": "held memory", "unknown": "not known"}

    def lost(phase: Phase) -> str:
        parts = [
            f"{hours(one.gpu_seconds)} {lost_to.get(one.to, one.to)}"
            for one in phase.lost
            if one.gpu_seconds >= max(1.0, LOSS_SHARE * phase.lost[0].gpu_seconds)
        ]
        return ", ".join(parts[:LOSSES_SHOWN]) or units.UNKNOWN

    def paused(phase: Phase) -> str:
        return f"{phase.pauses}, {units.age(phase.paused_seconds)}" if phase.pauses else "-"

    return (
        Column("GPU", "GPU", lambda p: words.gpu_labels(p.gpus, report), _T),
        Column("Phase", "PHASE", lambda p: p.kind, _T),
        Column("From", "FROM", lambda p: moment(p.begin_unix_seconds), _T, 2),
        Column("To", "TO", lambda p: moment(p.end_unix_seconds), _T, 3),
        Column("Time", "TIME", lambda p: units.age(p.seconds)),
        Column("Busy", "BUSY", lambda p: percent(p.busy_percent)),
        Column("Pauses", "PAUSES", paused, _N, 1),
        Column("Lost to", "GPU TIME LOST TO", lost, "long"),
    )


def process_columns(report: Report) -> tuple[Column[ProcessUsage], ...]:
    return (
        *_who(report, "PID", 7),
        Column("GPU time", "GPU-TIME", _held, _N, 1),
        Column("GPU busy", "GPU-BUSY", _busy, _N, 3),
        *_used(cpu=0, memory=2),
        Column("Command", "COMMAND", words.process_name, "long"),
    )


def gpus(report: Report, form: str) -> Iterable[Block]:
    if not report.gpus:
        return
    totals = report if len(report.cards) > 1 else None
    yield tabled("GPUs", GPU_COLUMNS, report.gpus, form, totals=totals)
    notes = list(gpu_notes(report))
    if notes:
        yield Bullets("", notes, "warn")


def gpu_notes(report: Report) -> Iterable[str]:
    """Explanations of numbers in the table, alike for several GPUs in one line."""
    found = grouped(
        (text, (gpu, seconds)) for gpu in report.gpus for text, seconds in _notes_of(gpu, report)
    )
    for text, places in found.items():
        named = words.labels([gpu.uuid for gpu, _ in places], report)
        yield f"{named}: {text}{_for_seconds(places)}"


def _notes_of(gpu: GpuUsage, report: Report) -> Iterable[tuple[str, float | None]]:
    for stretch in gpu.lost:
        yield f"lost, {Times(report).stretch(stretch)}", None
    if gpu.busy_shown_percent is None:
        if not gpu.lost:
            yield f"busy unknown: {words.busy_missing(gpu, report)}", None
    elif gpu.watched_seconds is not None:
        missed = gpu.seen_seconds - gpu.watched_seconds - report.time.gap_seconds
        if missed > max(2.0, 0.05 * gpu.seen_seconds) and not gpu.lost:
            yield "busy unknown", missed
    for one in gpu.throttled or ():
        if one.seconds >= 0.5:
            known = REASONS.get(one.reason)
            why = one.reason.replace("_", " ") if known is None else known.cause
            yield f"slowed down by {why}", one.seconds
    if gpu.other_tenants_peak > 0:
        others = gpu.other_tenants_peak
        users = f" ({', '.join(gpu.other_users)})" if gpu.other_users else ""
        processes = "another process" if others == 1 else f"up to {others} other processes"
        yield f"shared with {processes}{users}", gpu.other_tenant_seconds
    if gpu.energy_from == "power":
        yield "energy from power readings, not from a counter", None
    if report.job is not None and gpu.seen_seconds < MOST_OF_IT * report.time.seconds:
        of = units.age(report.time.seconds)
        yield f"the job used it for {units.age(gpu.seen_seconds)} of {of}", None


def _for_seconds(places: list[tuple[GpuUsage, float | None]]) -> str:
    known = [seconds for _, seconds in places if seconds is not None]
    if not known:
        return ""
    least, most = units.age(min(known)), units.age(max(known))
    if least != most:
        return f" for {least} to {most}"
    seen = max(gpu.seen_seconds for gpu, _ in places)
    part = f" ({percent(100.0 * max(known) / seen)})" if seen > 0 else ""
    return f" for {most}{part}"


def phases(report: Report, form: str) -> Iterable[Block]:
    if report.phases:
        yield tabled("Phases", phase_columns(report), report.phases, form)


def jobs(report: Report, form: str) -> Iterable[Block]:
    """Of a report about one job all of it has been said."""
    if report.job is not None or not report.jobs:
        return
    yield tabled("Jobs", job_columns(report), report.jobs, form, most=SHOWN[form]["jobs"])
    notes = [
        f"{job.pid}: waited most for data: {most}."
        for job in report.jobs
        if (most := words.waited_most(job))
    ]
    if notes:
        yield Bullets("", notes)


def processes(report: Report, form: str) -> Iterable[Block]:
    # Of a job of one process the table above has said it all.
    if len(report.processes) > (len(report.jobs) if form == "text" else 0):
        columns = process_columns(report)
        yield tabled("Processes", columns, report.processes, form, most=SHOWN[form]["processes"])
