"""The heart of the job screen: who is busy and who waits, one above the other on one time axis."""

from collections.abc import Sequence

from gpuwatch.core import units
from gpuwatch.tui.charts.strips import Column, TimeWindow, highest, idle_spans, nice_ceiling
from gpuwatch.tui.pages.layout import Drawn, Page, Panel
from gpuwatch.tui.panels.gpus.state import IDLE_PERCENT
from gpuwatch.tui.panels.job.header import ended_at
from gpuwatch.tui.panels.job.traces import Trace, kinds, traces
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Run,
    Zone,
    left,
    on_ground,
    right,
    spots,
    width_of,
    written_over,
)
from gpuwatch.tui.view import View

_MEGABYTE = 1024.0 * 1024.0

_GROWTH = (
    *("gpu", "wait", "main", "worker", "gpu", "main", "worker", "gpu", "wait", "read"),
    *("gpu", "main", "gpu", "speed", "write", "main", "worker", "wait", "gpu", "read"),
    *("gpu", "main", "gpu", "write", "worker"),
)
_MOST_ROWS_A_GPU = 8


def _rows(page: Page) -> int:
    """At first a row for each chart while there is room; asked again, each GPU has its own and all
    grow in turns."""
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
    """Where charts of ``rows`` lines can be clicked."""
    return spots(top, rows, *span(width))


def draw(
    view: View, shown: Sequence[tuple[Trace, int]], window: TimeWindow, width: int
) -> list[Line]:
    """Each trace in its number of rows."""
    return [line for trace, rows in shown for line in _chart(view, trace, rows, window, width)]


def _chart(view: View, trace: Trace, rows: int, window: TimeWindow, width: int) -> list[Line]:
    glyphs = view.glyphs
    lead, chart_width = span(width)
    roomy = lead >= 20
    limit, scale = trace.limit, ""
    if limit is None:
        limit, top = _scale(trace, window, chart_width)
        scale = f" {glyphs.up}{top}"
    strip = view.strips.get(("job", trace.kind, trace.label, chart_width, rows))
    chart = strip.draw(trace.series, window, chart_width, limit, glyphs, trace.style, rows)
    if trace.idle is not None and trace.series is not None and chart_width:
        chart = _shaded(chart, trace.idle, window.grid(chart_width).columns_of(trace.series))
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


def _shaded(
    chart: list[list[Run]], says: Sequence[str], columns: Sequence[Column | None]
) -> list[list[Run]]:
    """The idle spans on another ground, with what is said of them in the widest."""
    spans = idle_spans(columns, IDLE_PERCENT)
    for start, stop in spans:
        chart = [list(on_ground(line, start, stop, "i")) for line in chart]
    widest = max(spans, key=lambda span: span[1] - span[0], default=(0, 0))
    if widest[1] - widest[0] < max(map(len, says), default=0) + 2:
        return chart
    for place, text in enumerate(says):
        start = (widest[0] + widest[1] - len(text)) // 2
        chart[place] = list(written_over(chart[place], text, start, "i:label"))
    return chart


def _scale(trace: Trace, window: TimeWindow, width: int) -> tuple[float, str]:
    """The top of a rate's chart, and its name."""
    most = highest(trace.series, window, width)
    if trace.bytes:
        limit = nice_ceiling(most, _MEGABYTE)
        return limit, units.size(limit).replace(".0", "")
    limit = nice_ceiling(most, 1.0, thousand=1000.0)
    return limit, units.samples(limit).replace(".00", "").replace(".0", "")
