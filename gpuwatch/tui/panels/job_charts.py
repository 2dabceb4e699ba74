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
from gpuwatch.tui.charts.strips import (
    Column,
    Columns,
    Held,
    TimeWindow,
    highest,
    idle_spans,
    mean_shown,
    nice_ceiling,
)
from gpuwatch.tui.pages.layout import Drawn, Page, Panel
from gpuwatch.tui.panels.gpus import FED, IDLE_PERCENT, held_up, scaled_metrics, state_of
from gpuwatch.tui.panels.time_axis import past_column, shown_gpu
from gpuwatch.tui.runs import ended_at
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Run,
    Zone,
    cut,
    left,
    right,
    spots,
    width_of,
    written_over,
)
from gpuwatch.tui.view import View

# -- the charts there are --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Together:
    """Series made of several: the means of their minima, means and maxima, column by column. Two of
    the same ``names`` are equal, and what was drawn of one holds for the other."""

    names: Hashable
    find: Callable[[], Sequence[Columns | None]] = field(compare=False)

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        parts = [s.columns(end, column_seconds, count) for s in self.find() if s is not None]
        if not parts:
            return [None] * count
        return [self.combine(column) for column in zip(*parts, strict=True)]

    def combine(self, columns: Sequence[Column | None]) -> Column | None:
        known = [one for one in columns if one is not None]
        if not known:
            return None
        low, mean, high = map(truediv, map(sum, zip(*known, strict=True)), [len(known)] * 3)
        return low, mean, high


class Spread(Together):
    """A mean over several with what the least and the most of them had: the minima of the first
    series, the means of the second, the maxima of the third."""

    def combine(self, columns: Sequence[Column | None]) -> Column | None:
        known = [one for one in columns if one is not None]
        return (known[0][0], known[1][1], known[2][2]) if len(known) == 3 else None


class Envelope(Together):
    """Series made of several: from the least to the most that any of them had, with their mean."""

    def combine(self, columns: Sequence[Column | None]) -> Column | None:
        known = [one for one in columns if one is not None]
        if not known:
            return None
        lows, means, highs = zip(*known, strict=True)
        return min(lows), sum(means) / len(known), max(highs)


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
    idle: tuple[str, ...] | None = None
    """Words written into the widest idle span: a line for each row."""
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
        spread = Spread(key, lambda: [history.job(key, name) for name in _WAITS])
        wait = replace(wait, series=spread)
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
        series=Envelope(tuple(uuids), lambda: find),
        held=held_up(view, *[gpu.uuid for gpu in gpus]),
    )


def metric_traces(view: View, gpus: Sequence[Gpu], name: str) -> list[Trace]:
    """Memory, power or temperature of each of ``gpus``, by the name of its series."""
    return [
        Trace(
            kind=metric.field.name,
            label=f"GPU {units.gpu_label(gpu)} {metric.field.label}",
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
    nobody = "the main thread loads" if job.loader_workers == 0 else "none seen"
    main = "main threads" if len(job.ranks) > 1 else "main thread"
    missing = None if job.having("rank") else "no training process seen"
    workers = units.plural(count, "worker") if count else "workers"
    load = f"{count} load" if count else "load"
    field, write = "{}_cpu_percent".format, units.percent
    return [
        _trace(view, job, field("main_thread"), write, "main", main, note=missing),
        _trace(
            view, job, field("loader_worker"), write, "worker", workers, load,
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


def span(width: int) -> tuple[int, int]:
    """First cell and width of the charts; before them: the label, the number, the line between."""
    lead = 28 if width >= 76 else 15
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
    glyphs = view.glyphs
    lead, chart_width = span(width)
    roomy = lead >= 20
    limit, scale = trace.limit, ""
    if limit is None:
        limit, top = _scale(trace, window, chart_width)
        scale = f" {glyphs.up}{top}"
    key = "job", trace.kind, trace.label
    held, style = trace.held, trace.style if trace.held is None else FED.hue
    chart = view.chart(key, trace.series, chart_width, limit, style, rows, window, held)
    if trace.idle is not None and trace.series is not None and chart_width:
        chart = _written(chart, trace.idle, window.grid(chart_width).columns_of(trace.series))
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
        elif roomy and rows >= 3 and trace.limit == 100.0 and number in {0, rows // 2}:
            row.pad_to(lead - 5).add("100" if number == 0 else " 50", "dim")
        row.pad_to(lead - 1).add(glyphs.separator, "rule")
        if trace.note is not None:
            row.add(f" {trace.note}" if last else "", "dim")
        else:
            row.add_runs(drawn, chart_width)
        out.append(row.line())
    return out


def _written(
    chart: list[list[Run]], says: Sequence[str], columns: Sequence[Column | None]
) -> list[list[Run]]:
    """Return ``chart`` with what is said of its idle spans written into the widest."""
    spans = idle_spans(columns, IDLE_PERCENT)
    first, stop = max(spans, key=lambda span: span[1] - span[0], default=(0, 0))
    if stop - first < max(map(len, says), default=0) + 2:
        return chart
    for place, text in enumerate(says):
        start = (first + stop - len(text)) // 2
        _, _, ground = cut(chart[place], start, start + 1)[0][1].partition("/")
        style = f"label/{ground}" if ground else "label"
        chart[place] = list(written_over(chart[place], text, start, style))
    return chart


def _scale(trace: Trace, window: TimeWindow, width: int) -> tuple[float, str]:
    """Return the top of a rate's chart, and its name."""
    most = highest(trace.series, window, width)
    if trace.bytes:
        limit = nice_ceiling(most, _MEGABYTE)
        return limit, units.size(limit).replace(".0", "")
    limit = nice_ceiling(most, 1.0, thousand=1000.0)
    return limit, units.samples(limit).replace(".00", "").replace(".0", "")
