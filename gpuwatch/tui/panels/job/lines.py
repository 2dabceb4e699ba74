"""The heart of the job screen: who is busy and who waits, one above the other on one time axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import truediv

from gpuwatch.core import units
from gpuwatch.core.history import Series
from gpuwatch.core.model import Gpu, Job
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.charts.past_readings import column_then, gpu_then
from gpuwatch.tui.charts.strips import Columns, TimeWindow, rate_ceiling
from gpuwatch.tui.panels.gpus import scaled_metrics
from gpuwatch.tui.terminal.frame import Line, Row, Zone, left, right, width_of
from gpuwatch.tui.view import View

_MEGABYTE = 1024.0 * 1024.0

_METRIC_TEXTS: dict[str, Callable[[float | None], str]] = {
    "memory_used_bytes": units.size,
    "power_watts": units.watts,
    "temperature_celsius": units.celsius,
}

Column = tuple[float, float, float]


class Together:
    """Several series as one: the means of their minima, means and maxima, column by column."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[], Sequence[Series | None]]) -> None:
        self._find = find

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        parts = [s.columns(end, column_seconds, count) for s in self._find() if s is not None]
        if not parts:
            return [None] * count
        out: list[Column | None] = []
        for column in zip(*parts, strict=True):
            known = [one for one in column if one is not None]
            if not known:
                out.append(None)
                continue
            sums = map(sum, zip(*known, strict=True))
            low, mean, high = map(truediv, sums, [len(known)] * 3)
            out.append((low, mean, high))
        return out


class Spread:
    """A mean over several with what the least and the most of them had: the minima of the first
    series, the means of the second, the maxima of the third."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[], Sequence[Series | None]]) -> None:
        self._find = find

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        parts = [s.columns(end, column_seconds, count) for s in self._find() if s is not None]
        if len(parts) != 3:
            return [None] * count
        return [
            None if None in column else (column[0][0], column[1][1], column[2][2])
            for column in zip(*parts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Trace:
    """One chart: what it is called (in full and short), its number, its series and scale."""

    kind: str
    label: str
    short: str
    text: str
    style: str
    series: Columns | None
    limit: float | None = 100.0
    """``None``: the scale follows what is shown, in steps."""
    note: str | None = None
    """Said in place of a chart that cannot be."""
    bytes: bool = True
    """A rate is one of bytes."""


def traces(
    view: View, job: Job, gpus: Sequence[Gpu], *, each_gpu: bool, ended: bool
) -> list[Trace]:
    """GPUs, main threads, loader workers, disk read and write, in the order of the screen. Of a job
    that has ended the numbers of now are not its own."""
    gpus = [gpu_then(view, gpu) for gpu in gpus]
    shown = [
        *(gpu_traces(view, gpus) if each_gpu else [_gpu_mean(view, job, gpus)]),
        *told_traces(view, job),
        *host_traces(view, job),
        _disk(view, job, "read"),
        _disk(view, job, "write"),
    ]
    return [of_the_past(one) for one in shown] if ended and not _past(view) else shown


def of_the_past(trace: Trace) -> Trace:
    """Without what is said of now."""
    return replace(trace, text="", note=None)


def host_traces(view: View, job: Job) -> list[Trace]:
    """Who feeds the GPUs: main threads and loader workers."""
    return [_main(view, job), _workers(view, job)]


def has_told(view: View, job: Job) -> bool:
    """It tells of its own loop, or did within the charts' reach."""
    return bool(job.loops) or view.history.job_reported(job.key)


def told_traces(view: View, job: Job) -> list[Trace]:
    """What it tells of its own loop; nothing where nobody tells."""
    if not has_told(view, job):
        return []
    history = view.history
    return [
        Trace(
            kind="wait",
            label="waits for data",
            short="data",
            text=_then(view, job, "data_wait_share", units.share),
            style="power",
            series=_waits(view, job),
            limit=1.0,
        ),
        Trace(
            kind="speed",
            label="samples/s",
            short="smp/s",
            text=_then(view, job, "samples_per_second", units.samples),
            style="host",
            series=history.job(job.key, "samples_per_second"),
            limit=None,
            bytes=False,
        ),
    ]


def _waits(view: View, job: Job) -> Columns | None:
    """Of several ranks from the least to the most."""
    history, key = view.history, job.key
    if len(job.loops) < 2:
        return history.job(key, "data_wait_share")
    series = view.job.series.get(("waits", key))
    if not isinstance(series, Spread):
        series = Spread(lambda: [history.job(key, name) for name in _WAITS])
        view.job.series["waits", key] = series
    return series


_WAITS = ("data_wait_least_share", "data_wait_share", "data_wait_most_share")


def gpu_traces(view: View, gpus: Sequence[Gpu]) -> list[Trace]:
    """How busy each of ``gpus`` is."""
    return [
        Trace(
            kind="gpu",
            label=f"GPU {_index(gpu)} busy",
            short=f"gpu {_index(gpu)}",
            text=units.percent(gpu.reading.busy_percent),
            style="busy",
            series=view.history.gpu(gpu.uuid, "busy_percent"),
            note="lost" if gpu.lost else None,
        )
        for gpu in gpus
    ]


def metric_traces(view: View, gpus: Sequence[Gpu], name: str) -> list[Trace]:
    """Memory, power or temperature of each of ``gpus``, by the name of its series."""
    return [
        Trace(
            kind=metric.name,
            label=f"GPU {_index(gpu)} {metric.label}",
            short=metric.label[:7],
            text=_METRIC_TEXTS[name](getattr(gpu.reading, name)),
            style=metric.style,
            series=view.history.gpu(gpu.uuid, name),
            limit=metric.limit or 100.0,
        )
        for gpu in gpus
        for metric in scaled_metrics(view, gpu, 120)
        if metric.name == name and name in _METRIC_TEXTS
    ]


def _past(view: View) -> bool:
    return view.timeline.moment is not None


def _then(view: View, job: Job, name: str, write: Callable[[float | None], str]) -> str:
    """The job's reading ``name``, of now or of the moment that is looked at."""
    if not _past(view):
        return write(getattr(job, name))
    column = column_then(view, view.history.job(job.key, name))
    return write(None if column is None else column.mean)


def disk_traces(view: View, job: Job, what: str) -> list[Trace]:
    """What it ``read`` or did ``write``."""
    return [_disk(view, job, what)] if what in {"read", "write"} else []


def _index(gpu: Gpu) -> str:
    identity = gpu.identity
    part = "" if identity.mig_instance is None else f".{identity.mig_instance}"
    return f"{identity.index}{part}"


def _gpu_mean(view: View, job: Job, gpus: Sequence[Gpu]) -> Trace:
    if len(gpus) == 1:
        return gpu_traces(view, gpus)[0]
    known = [g.reading.busy_percent for g in gpus if g.reading.busy_percent is not None]
    uuids = job.gpu_uuids
    series = view.job.series.get(uuids)
    if not isinstance(series, Together):
        history = view.history
        series = Together(lambda: [history.gpu(uuid, "busy_percent") for uuid in uuids])
        view.job.series[uuids] = series
    return Trace(
        kind="gpu",
        label=f"{len(gpus)} GPUs busy" if gpus else "GPU busy",
        short=f"{len(gpus)} gpus" if gpus else "gpu",
        text=units.percent(sum(known) / len(known) if known else None),
        style="busy",
        series=series if gpus else None,
        note=None if gpus else "no process of this job uses a GPU",
    )


def _main(view: View, job: Job) -> Trace:
    several = len(job.ranks) > 1
    return Trace(
        kind="main",
        label="main threads" if several else "main thread",
        short="main",
        text=_then(view, job, "main_thread_cpu_percent", units.percent),
        style="main",
        series=view.history.job(job.key, "main_thread_cpu_percent"),
        note=None if job.having("rank") else "no training process seen",
    )


def _workers(view: View, job: Job) -> Trace:
    count = len(job.having("loader_worker")) if job.members else job.loader_workers or 0
    note = None
    if count == 0:
        note = "the main thread loads" if job.loader_workers == 0 else "none seen"
    return Trace(
        kind="worker",
        label=f"{count} worker{'' if count == 1 else 's'}" if count else "workers",
        short=f"{count} load" if count else "load",
        text=_then(view, job, "loader_worker_cpu_percent", units.percent),
        style="worker",
        series=view.history.job(job.key, "loader_worker_cpu_percent"),
        note=note,
    )


def _disk(view: View, job: Job, what: str) -> Trace:
    return Trace(
        kind=what,
        label=f"disk {what}",
        short=what,
        text=_then(view, job, f"{what}_bytes_per_second", units.rate),
        style="disk",
        series=view.history.job(job.key, f"{what}_bytes_per_second"),
        limit=None,
    )


# -- drawing ------------------------------------------------------------------------------


def lead_of(width: int) -> int:
    """Cells before the charts: the label, the number, the line between."""
    return 28 if width >= 76 else 15


def draw(
    view: View, shown: Sequence[tuple[Trace, int]], window: TimeWindow, width: int
) -> list[Line]:
    """Each trace in its number of rows."""
    lines: list[Line] = []
    for trace, rows in shown:
        lines += _draw(view, trace, rows, window, width)
    return lines


def _draw(view: View, trace: Trace, rows: int, window: TimeWindow, width: int) -> list[Line]:
    glyphs = view.glyphs
    lead = lead_of(width)
    roomy = lead >= 20
    chart_width = max(0, width - lead - 1)
    limit, scale = trace.limit, ""
    if limit is None:
        limit, top = _scale(trace, window, chart_width)
        scale = f" {glyphs.up}{top}"
    strip = view.strips.get(("job", trace.kind, trace.label, chart_width, rows))
    chart = strip.draw(trace.series, window, chart_width, limit, glyphs, trace.style, rows)
    out = []
    for number, drawn in enumerate(chart):
        row = Row(width)
        last = number == rows - 1
        if last:
            row.add("  " if roomy else " ")
            # A blank stays between the scale and the number.
            whole = row.used + width_of(trace.label + scale + trace.text) < lead - 2
            name = trace.label if whole or not scale else trace.short
            row.add(name if roomy else left(trace.short, 7), "label")
            row.add(scale if roomy else "", "dim").pad_to(18 if roomy else 8)
            row.add(right(trace.text, lead - 2 - row.used, glyphs.ellipsis), trace.style)
        row.pad_to(lead - 1).add(glyphs.separator, "rule")
        if trace.note is not None:
            row.add(f" {trace.note}" if last else "", "dim")
        else:
            row.add_runs(drawn, chart_width)
        out.append(row.line())
    return out


def _scale(trace: Trace, window: TimeWindow, width: int) -> tuple[float, str]:
    """The top of a rate's chart, and its name."""
    if trace.bytes:
        limit = rate_ceiling(trace.series, window, width, _MEGABYTE)
        return limit, units.size(limit).replace(".0", "")
    limit = rate_ceiling(trace.series, window, width, 1.0, thousand=1000.0)
    return limit, units.samples(limit).replace(".00", "").replace(".0", "")


def cells_of(width: int) -> int:
    """Columns of the charts."""
    return max(0, width - lead_of(width) - 1)


def axis(view: View, window: TimeWindow, width: int, y: int = 0) -> tuple[Line, list[Zone]]:
    """Clock times and findings under the charts."""
    return time_axis.draw(view, window, [(lead_of(width), cells_of(width))], width, y)
