"""A job's report against that of another run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuwatch.core import units
from gpuwatch.jobs.report.report import JobReport
from gpuwatch.outputs.job_report.lines import fitting, wrapped
from gpuwatch.outputs.job_report.words import (
    clock,
    command,
    end_word,
    exit_sentence,
    failed,
    moment,
    optional_grouped,
    ratio_word,
)
from gpuwatch.outputs.terminal.painting import BOLD, Painter, painter, to_ascii
from gpuwatch.outputs.terminal.table import Heading, table


def compare_text(
    before: JobReport,
    after: JobReport,
    width: int = 80,
    *,
    colour: bool = False,
    unicode: bool = True,
) -> str:
    """Two reports side by side, in lines of at most ``width`` cells."""
    width = fitting(width)
    paint = painter(colour)
    lines = comparison(before, after, width, paint)
    if before.run_digest is None or before.run_digest != after.run_digest:
        lines += ["", *wrapped("before: ", command(before), width)]
        lines += wrapped("after:  ", command(after), width)
    text = "\n".join(lines)
    return text if unicode else to_ascii(text)


def since_last(before: JobReport, after: JobReport) -> str:
    changes = []
    workers, now = before.loading.loader_workers, after.loading.loader_workers
    if workers != now and workers is not None and now is not None:
        changes.append(f"loader workers {workers} -> {now}")
    speed, faster = before.loop.samples_per_second, after.loop.samples_per_second
    if speed is not None and faster is not None:
        changes.append(f"samples/s {units.samples(speed)} -> {units.samples(faster)}")
    if before.busy_percent is not None and after.busy_percent is not None:
        changes.append(
            f"busy {units.percent(before.busy_percent)} -> {units.percent(after.busy_percent)}"
        )
    changes.append(
        f"duration {units.age(before.duration_seconds)} -> {units.age(after.duration_seconds)}"
    )
    return f"Since the last run{_began(before)}: {', '.join(changes)}"


def _began(report: JobReport) -> str:
    """When, and how it ended if not well: then its duration says little."""
    start = report.started_at_unix_seconds
    facts = [] if start is None else [clock(start, "%F %H:%M")]
    if failed(report):
        facts.append(exit_sentence(report))
    return f" ({', '.join(facts)})" if facts else ""


def comparison(before: JobReport, after: JobReport, width: int, paint: Painter) -> list[str]:
    rows = [row for row in _compared(before, after) if _worth_a_row(*row)]
    headings = (
        Heading("COMPARED", text=True),
        Heading("BEFORE"),
        Heading("AFTER"),
        Heading("CHANGE", text=True, rank=1),
    )
    titles, *lines = table(headings, rows, width)
    return [paint(titles, BOLD), *lines]


def _worth_a_row(name: str, before: str, after: str, _change: str) -> bool:
    if before == after == units.UNKNOWN:
        return False
    # Of these only a difference says something.
    return before != after or name not in {"GPUs", "throttled"}


def _compared(before: JobReport, after: JobReport) -> Iterable[list[str]]:
    def row(name: str, show: Callable[[JobReport], str], change: str = "") -> list[str]:
        return [name, show(before), show(after), change]

    def ratio(
        name: str, value: Callable[[JobReport], float | None], show: Callable[[float | None], str]
    ) -> list[str]:
        return row(name, lambda report: show(value(report)), _ratio(value(before), value(after)))

    year = clock(after.started_at_unix_seconds or 0.0, "%Y")
    yield row("started", lambda r: moment(r.started_at_unix_seconds, year))
    yield ratio("duration", lambda r: r.duration_seconds, units.age)
    yield row("end", end_word)
    yield row("GPUs", lambda r: str(len(r.gpus)))
    yield ratio("samples/s", lambda r: r.loop.samples_per_second, units.samples)
    yield row(
        "waits for data",
        lambda r: units.percent(r.loop.data_wait_percent),
        _difference(before.loop.data_wait_percent, after.loop.data_wait_percent),
    )
    yield row("GPU busy", lambda r: units.percent(r.busy_percent), _points(before, after))
    yield ratio("idle GPU-s", lambda r: r.idle_gpu_seconds, optional_grouped)
    yield ratio("GPU energy", lambda r: r.energy_joules, units.energy)
    yield ratio("job GPU memory", _job_memory, units.size)
    yield row("throttled", lambda r: units.age(_throttled_seconds(r)))
    yield row("loader workers", lambda r: _count(r.loading.loader_workers))
    yield row("pinned memory", lambda r: _flag(r.loading.pinned_memory))
    yield row("worker CPU", lambda r: units.percent(r.loading.loader_worker_cpu_percent))
    yield row("main CPU", lambda r: units.percent(r.loading.main_thread_cpu_percent))
    yield ratio("cores busy", lambda r: r.host.cpu_mean_cores, _cores)
    if None in [r.host.memory_proportional_peak_bytes for r in (before, after)]:
        # What only one of them has cannot be compared.
        yield ratio("memory (RSS)", lambda r: r.host.memory_resident_peak_bytes, units.size)
    else:
        yield ratio("memory (PSS)", lambda r: r.host.memory_proportional_peak_bytes, units.size)
    yield ratio("storage read", lambda r: r.host.read_bytes, units.size)


def _job_memory(report: JobReport) -> float | None:
    """The most of any GPU."""
    known = [g.job_memory_peak_bytes for g in report.gpus if g.job_memory_peak_bytes is not None]
    return max(known, default=None)


def _throttled_seconds(report: JobReport) -> float | None:
    """The longest of any GPU and reason: reasons overlap."""
    known = [gpu.throttled for gpu in report.gpus if gpu.throttled is not None]
    if not known:
        return None
    return max((seconds for reasons in known for _, seconds in reasons), default=0.0)


def _points(before: JobReport, after: JobReport) -> str:
    return _difference(before.busy_percent, after.busy_percent)


def _difference(before: float | None, after: float | None) -> str:
    return "" if before is None or after is None else f"{after - before:+.0f} points"


def _ratio(before: float | None, after: float | None) -> str:
    if before is None or after is None or before <= 0:
        return ""
    return ratio_word(after / before)


def _cores(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.1f}"


def _count(value: int | None) -> str:
    return units.UNKNOWN if value is None else str(value)


def _flag(value: bool | None) -> str:
    return units.UNKNOWN if value is None else "on" if value else "off"
