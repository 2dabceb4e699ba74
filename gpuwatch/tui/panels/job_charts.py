"""Charts of a job, one above the other on one time axis: who is busy and who waits.

They are of its GPUs, what it reports of its loop, its processes and its disk.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from operator import truediv
from typing import Any

from gpuwatch.core import units
from gpuwatch.core.bounds import mean
from gpuwatch.core.model import Gpu, Job
from gpuwatch.core.registry import Field
from gpuwatch.tui.charts.strips import (
    Column,
    Columns,
    Held,
    TimeWindow,
    highest,
    mean_shown,
    nice_ceiling,
    scale_marks,
)
from gpuwatch.tui.pages.layout import Drawn, Page, Panel
from gpuwatch.tui.panels.gpus import FED, held_up, scaled_metrics, state_of
from gpuwatch.tui.panels.time_axis import past_column, shown_gpu
from gpuwatch.tui.runs import ended_at
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Zone,
    left,
    right,
    spots,
    width_of,
)
from gpuwatch.tui.view import View

# -- the charts there are --------------------------------------------------------------------------


Combine = Callable[[Sequence[Column | None]], Column | None]
"""Makes one column of those that several series have at the same time."""


def means(columns: Sequence[Column | None]) -> Column | None:
    """Return the means of their minima, means and maxima."""
    known = [one for one in columns if one is not None]
    if not known:
        return None
    low, middle, high = map(truediv, map(sum, zip(*known, strict=True)), [len(known)] * 3)
    return low, middle, high


def spread(columns: Sequence[Column | None]) -> Column | None:
    """Return a mean with what the least and the most had: the minimum of the first, the mean of
    the second, the maximum of the third."""
    known = [one for one in columns if one is not None]
    return (known[0][0], known[1][1], known[2][2]) if len(known) == 3 else None


def envelope(columns: Sequence[Column | None]) -> Column | None:
    """Return from the least to the most that any of them had, with their mean."""
    known = [one for one in columns if one is not None]
    if not known:
        return None
    lows, middles, highs = zip(*known, strict=True)
    return min(lows), sum(middles) / len(known), max(highs)


@dataclass(frozen=True, slots=True)
class Together:
    """Series made of several. Two of the same ``names`` are equal, and what was drawn of one holds
    for the other."""

    names: Hashable
    find: Callable[[], Sequence[Columns | None]] = field(compare=False)
    combine: Combine = means

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        parts = [s.columns(end, column_seconds, count) for s in self.find() if s is not None]
        return [self.combine(column) for column in zip(*parts, strict=True)] or [None] * count


@dataclass(frozen=True, slots=True)
class Trace:
    """Chart of a job: what it is called (in full and short), its number, its series and scale."""

    kind: str
    label: str
    short: str
    text: str
    style: str
    series: Columns | None
    limit: float | None = 100.0
    """``None``: the scale follows what is shown, in steps."""
    note: str | None = None
    """Words in place of a chart that cannot be."""
    bytes: bool = True
    """A rate is one of bytes."""
    held: Sequence[Held] | None = None
    """Chart of how busy GPUs are: when findings held them up."""


def traces(
    view: View, job: Job, gpus: Sequence[Gpu], *, each_gpu: bool, ended: bool
) -> list[Trace]:
    """GPUs, main threads, loader workers, disk read and write, in the order of the screen. Of a job
    that has ended the numbers of now are not its own."""
    gpus = [shown_gpu(view, gpu) for gpu in gpus]
    shown = [
        *(gpu_traces(view, gpus) if each_gpu else [_gpu_mean(view, job, gpus)]),
        *_loop_traces(view, job),
        *host_traces(view, job),
        *disk_traces(view, job, "read"),
        *disk_traces(view, job, "write"),
    ]
    return [of_the_past(one) for one in shown] if ended and view.timeline.moment is None else shown


def of_the_past(trace: Trace) -> Trace:
    """Return a trace without what is said of now."""
    return replace(trace, text="", note=None)


def has_reported(view: View, job: Job) -> bool:
    """Return whether the job reports its own loop, or did within the charts' reach."""
    return bool(job.loops) or view.history.job_reported(job.key)


def kinds(page: Page) -> list[str]:
    """Return which charts there are, most telling first."""
    assert page.job is not None
    reported, height = has_reported(page.view, page.job), page.tall
    wanted = ["gpu", "wait", "main", "worker"] if reported else ["gpu", "main", "worker"]
    if height >= 18:
        wanted += ["speed", "read"] if reported else ["read"]
    if height >= 36:
        wanted.append("write")
    return wanted


_WAITS = ("data_wait_least_share", "data_wait_share", "data_wait_most_share")


def _loop_traces(view: View, job: Job) -> list[Trace]:
    """Reports of its own loop; waits of several ranks from the least to the most."""
    if not has_reported(view, job):
        return []
    history, key = view.history, job.key
    wait = _trace(view, job, "data_wait_share", units.share, "wait", "waits for data", "data",
                  style="starved", limit=1.0)  # fmt: skip
    if len(job.loops) > 1:
        ranks = Together(key, lambda: [history.job(key, name) for name in _WAITS], spread)
        wait = replace(wait, series=ranks)
    speed = _trace(view, job, "samples_per_second", units.samples, "speed", "samples/s", "smp/s",
                   style="host", limit=None, bytes=False)  # fmt: skip
    return [wait, speed]


def gpu_traces(view: View, gpus: Sequence[Gpu]) -> list[Trace]:
    """Return charts of how busy each of ``gpus`` is."""
    return [
        Trace(
            kind="gpu",
            label=f"GPU {units.gpu_label(gpu)} busy",
            short=f"gpu {units.gpu_label(gpu)}",
            text="lost" if gpu.lost else units.percent(gpu.reading.busy_percent),
            style=state_of(view, gpu).hue,
            series=view.history.gpu(gpu.uuid, "busy_percent"),
            held=held_up(view, gpu.uuid),
        )
        for gpu in gpus
    ]


def spread_trace(view: View, gpus: Sequence[Gpu]) -> Trace:
    """Return a chart of how busy ``gpus`` are together, up to the busiest of them."""
    uuids, history = [gpu.uuid for gpu in gpus], view.history
    busy = [gpu.reading.busy_percent for gpu in gpus]
    known = [one for one in busy if one is not None]
    low, high = (f"{one:.0f}" for one in (min(known, default=0.0), max(known, default=0.0)))
    reach = units.UNKNOWN if not known else f"{low}%" if low == high else f"{low}-{high}%"
    find = [history.gpu(uuid, "busy_percent") for uuid in uuids]
    return Trace(
        kind="gpus",
        label=f"all {len(gpus)} GPUs",
        short=f"{len(gpus)} gpus",
        text=reach,
        style="value",
        series=Together(tuple(uuids), lambda: find, envelope),
        held=held_up(view, *[gpu.uuid for gpu in gpus]),
    )


def _brief(field: Field) -> str:
    return field.label if len(field.label) < 8 else field.short


def metric_traces(view: View, gpus: Sequence[Gpu], name: str) -> list[Trace]:
    """Memory, power or temperature of each of ``gpus``, by the name of its series."""
    return [
        Trace(
            kind=metric.field.name,
            label=f"GPU {units.gpu_label(gpu)} {_brief(metric.field)}",
            short=metric.field.short,
            text=metric.brief,
            style=metric.mood or "area",
            series=view.history.gpu(gpu.uuid, name),
            limit=metric.limit or 100.0,
        )
        for gpu in gpus
        for metric in scaled_metrics(view, gpu, 120)[1:]
        if metric.field.name == name
    ]


def host_traces(view: View, job: Job) -> list[Trace]:
    """Feeders of the GPUs: main threads and loader workers."""
    count = len(job.having("loader_worker")) if job.members else job.loader_workers or 0
    nobody = "any loading is the main thread's" if job.loader_workers == 0 else "none seen"
    main = "main threads" if len(job.ranks) > 1 else "main thread"
    missing = None if job.having("rank") else "no training process seen"
    workers = units.plural(count, "worker") if count else "workers"
    field, write = "{}_cpu_percent".format, units.percent
    return [
        _trace(view, job, field("main_thread"), write, "main", main, note=missing),
        _trace(
            view, job, field("loader_worker"), write, "worker", workers, "workers",
            note=None if count else nobody,
        ),
    ]  # fmt: skip


def disk_traces(view: View, job: Job, what: str) -> list[Trace]:
    """Bytes that it ``read`` or did ``write``."""
    if what not in {"read", "write"}:
        return []
    name, label = f"{what}_bytes_per_second", f"disk {what}"
    return [_trace(view, job, name, units.rate, what, label, style="disk", limit=None)]


def _trace(
    view: View,
    job: Job,
    name: str,
    write: Callable[[float | None], str],
    kind: str,
    label: str,
    short: str | None = None,
    style: str | None = None,
    **more: Any,
) -> Trace:
    """Return the job's reading ``name``: its mean over the time that is shown, or what it was at
    the moment that is looked at."""
    series, value = view.history.job(job.key, name), getattr(job, name)
    if view.timeline.moment is not None:
        column = past_column(view, series)
        value = None if column is None else column.mean
    elif value is not None:
        shown = mean_shown(series, view.window)
        value = value if shown is None else shown
    return Trace(kind, label, short or kind, write(value), style or kind, series, **more)


def _gpu_mean(view: View, job: Job, gpus: Sequence[Gpu]) -> Trace:
    if len(gpus) == 1:
        return gpu_traces(view, gpus)[0]
    uuids, history = job.gpu_uuids, view.history
    states = {state_of(view, gpu).hue for gpu in gpus}
    together = Together(uuids, lambda: [history.gpu(uuid, "busy_percent") for uuid in uuids])
    return Trace(
        kind="gpu",
        label=f"{len(gpus)} GPUs busy" if gpus else "GPU busy",
        short=f"{len(gpus)} gpus" if gpus else "gpu",
        text=units.percent(mean(gpu.reading.busy_percent for gpu in gpus)),
        style=states.pop() if len(states) == 1 else "unknown",
        series=together if gpus else None,
        held=held_up(view, *[gpu.uuid for gpu in gpus]),
        note=None if gpus else "no process of this job uses a GPU",
    )


# -- the panel -------------------------------------------------------------------------------------


_MEGABYTE = 1024.0 * 1024.0

_GROWTH = (
    *("gpu", "wait", "main", "worker", "gpu", "main", "worker", "gpu", "wait", "read"),
    *("gpu", "main", "gpu", "speed", "write", "main", "worker", "wait", "gpu", "read"),
    *("gpu", "main", "gpu", "write", "worker"),
)
_MOST_ROWS_A_GPU = 8


def _rows(page: Page) -> int:
    """Return how many rows the charts take: at first one for each while there is room; asked again,
    each GPU has its own and all grow in turns."""
    decided, count = page.decided, len(page.gpus)
    if "heights" not in decided:
        most = max(1, page.room - min(page.table_least, 2))
        decided["heights"] = dict.fromkeys(kinds(page)[:most], 1)
        return min(most, len(kinds(page)))
    heights: dict[str, int] = decided["heights"]
    room = page.room
    decided["each_gpu"] = (
        2 <= count <= 4
        and (decided["report"] or page.rows["gpus"] == count)
        and room - (count - 1) >= min(page.table_wanted, page.table_least + 3)
    )
    gpu_lines = count if decided["each_gpu"] else 1
    room -= gpu_lines - 1
    for kind in _GROWTH:
        cost = gpu_lines if kind == "gpu" else 1
        # Of a job without a GPU the chart only says that there is none.
        grows = kind != "gpu" or (count > 0 and heights[kind] < _MOST_ROWS_A_GPU)
        if kind in heights and grows and room - cost >= page.table_wanted:
            heights[kind] += 1
            room -= cost
    return sum(heights.values()) + (gpu_lines - 1) * heights["gpu"]


def _draw(page: Page, _rows_given: int) -> Drawn:
    view, job, decided = page.view, page.job, page.decided
    assert job is not None
    ended = ended_at(view, job) is not None
    every = traces(view, job, page.gpus, each_gpu=decided["each_gpu"], ended=ended)
    heights = decided["heights"]
    shown = [(trace, heights[trace.kind]) for trace in every if trace.kind in heights]
    page.spans = [span(page.width)]
    lines = draw(view, shown, page.window, page.width)
    return lines, clicks(0, len(lines), page.width)


PANEL = Panel("charts", _rows, _draw)


LEAD = 28
"""Cells before the charts where there is room for ticks."""
_TICK_WIDTH = 5


def span(width: int) -> tuple[int, int]:
    """First cell and width of the charts; before them: the label, the number, the line between."""
    lead = LEAD if width >= 76 else 15
    return lead, max(0, width - lead - 1)


def clicks(top: int, rows: int, width: int) -> list[Zone]:
    """Return where charts of ``rows`` lines can be clicked."""
    return spots(top, rows, *span(width))


def draw(
    view: View, shown: Sequence[tuple[Trace, int]], window: TimeWindow, width: int
) -> list[Line]:
    """Draw each trace in its number of rows."""
    return [line for trace, rows in shown for line in _chart(view, trace, rows, window, width)]


def _chart(view: View, trace: Trace, rows: int, window: TimeWindow, width: int) -> list[Line]:
    lead, chart_width = span(width)
    limit, ticks = trace.limit, dict[int, str]()
    if limit is None:
        limit, ticks[0] = _scale(trace, window, chart_width)
    elif limit in (1.0, 100.0):
        ticks = scale_marks(rows)
    key = "job", trace.kind, trace.label
    held, style = trace.held, trace.style if trace.held is None else FED.hue
    chart = view.chart(key, trace.series, chart_width, limit, style, rows, window, held)
    out = []
    for number, drawn in enumerate(chart):
        row = Row(width)
        if number == 0:
            _name(row, trace, lead, view.glyphs.ellipsis)
        if lead == LEAD:
            row.pad_to(lead - 1 - _TICK_WIDTH).add(right(ticks.get(number, ""), _TICK_WIDTH), "dim")
        row.pad_to(lead - 1).add(view.glyphs.separator, "rule")
        if trace.note is not None:
            row.add("" if number else f" {trace.note}", "dim")
        else:
            row.add_runs(drawn, chart_width)
        out.append(row.line())
    return out


def _name(row: Row, trace: Trace, lead: int, ellipsis: str) -> None:
    """Add what a chart is called, in short where that has no room, and its number."""
    if lead == LEAD:
        end = lead - 1 - _TICK_WIDTH
        whole = 3 + width_of(trace.label + trace.text) <= end
        row.add("  ").add(trace.label if whole else trace.short, "label")
    else:
        end = lead - 2
        row.add(" ").add(left(trace.short, 7), "label")
    row.add(right(trace.text, end - row.used, ellipsis), trace.style)


def _scale(trace: Trace, window: TimeWindow, width: int) -> tuple[float, str]:
    """Return the top of a rate's chart, and its name."""
    most = highest(trace.series, window, width)
    if trace.bytes:
        limit = nice_ceiling(most, _MEGABYTE)
        return limit, units.size(limit).replace(".0", "")
    limit = nice_ceiling(most, 1.0, thousand=1000.0)
    return limit, units.samples(limit).replace(".00", "").replace(".0", "")
