"""The detail of one GPU as a pure drawing: large charts, every reading, its processes."""

from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.core.model import Gpu
from gpuwatch.tui.charts import plots, time_axis
from gpuwatch.tui.charts.past_readings import past_gpu
from gpuwatch.tui.charts.plots import Axis, Trace
from gpuwatch.tui.pages.layout import Frame, filled
from gpuwatch.tui.panels import footer, header
from gpuwatch.tui.panels.gpus.metrics import scaled_metrics, throttle_text
from gpuwatch.tui.panels.gpus.readings import readings
from gpuwatch.tui.panels.processes import table as processes
from gpuwatch.tui.terminal.frame import Line, Row, blank, fit, left
from gpuwatch.tui.view import View

_FOOT = (
    ("esc", "back"),
    ("d", "why"),
    ("left right", "other GPU"),
    ("up down", "scroll"),
    ("[]", "range"),
    ("<>", "time"),
    ("c", "cursor"),
    ("p", "pause"),
    ("w", "save"),
    ("?", "help"),
    ("q", "quit"),
)
_GIB = 1024.0**3
_SIDE_WIDTH = 46
_CHART_LEAST = 7
_WIDE = 110


class _Chart(NamedTuple):
    title: str
    number: str
    name: str
    """Of its series."""
    style: str
    axis: Axis


def draw(view: View, width: int, height: int, offset: int) -> tuple[Frame, int]:
    """The frame, and ``offset`` (how far the body is scrolled) brought into range."""
    position = view.gpu_position()
    if width < 20 or height < 6 or not view.gpus:
        return Frame(lines=[blank(width)] * height), 0
    area = (width - _SIDE_WIDTH) // _grid_columns(width) if width >= _WIDE else width
    view.chart_columns = plots.canvas_cells(area)
    live = view.gpus[position]
    gpu = past_gpu(view, live)
    lines = [header.draw(view, width), _title(view, live, width)]
    if time_axis.is_shown(view):
        lines.append(time_axis.values(view, view.window, view.chart_columns, gpu, width))
    room = height - len(lines) - 1
    if width >= _WIDE:
        body = _wide(view, gpu, width, room)
    else:
        body = _narrow(view, gpu, width, room, offset)
    wanted, offset = offset, max(0, min(offset, len(body) - room))
    if width < _WIDE and offset != wanted:
        body = _narrow(view, gpu, width, room, offset)
    lines = filled([*lines, *body[offset : offset + room]], width, height - 1)
    keys = [(key, "resume" if what == "pause" and view.paused else what) for key, what in _FOOT]
    lines.append(footer.scrolling(view, width, keys, max(0, len(body) - room - offset)))
    return Frame(lines=lines), offset


def _grid_columns(width: int) -> int:
    """Charts beside each other on a wide screen."""
    return 2 if width - _SIDE_WIDTH >= 110 else 1


def _title(view: View, gpu: Gpu, width: int) -> Line:
    count = len(view.gpus)
    row = Row(width).add(f" GPU {units.gpu_label(gpu)}", "title")
    row.add(f" of {count}  " if count > 1 else "  ", "label")
    row.add(fit(gpu.identity.name, 40, view.glyphs.ellipsis), "title")
    if gpu.lost:
        row.add("   GPU is lost", "error")
    throttled = throttle_text(gpu.reading)
    if throttled is not None:
        row.add("   ").add(*throttled)
    return row.line()


def _charts(view: View, gpu: Gpu, columns: int) -> list[_Chart]:
    """Most important first."""
    busy, memory, power, temperature = scaled_metrics(view, gpu, columns)
    reading, most_clock = gpu.reading, gpu.identity.sm_clock_max_mhz
    out = [_Chart("busy", busy.text, busy.name, busy.style, Axis(100.0))]
    for title, metric, axis in (
        ("memory", memory, Axis(memory.limit or 0.0, "G", _GIB)),
        ("power", power, Axis(power.limit or 0.0, "W")),
        ("temperature", temperature, Axis(temperature.limit or 0.0, "C")),
    ):
        if metric.limit is not None:
            out.append(_Chart(title, metric.text, metric.name, metric.style, axis))
    if reading.sm_active_percent is not None:
        number = units.percent(reading.sm_active_percent)
        out.append(_Chart("SM active", number, "sm_active_percent", "busy", Axis(100.0)))
    if reading.sm_clock_mhz is not None and most_clock is not None:
        number = f"{reading.sm_clock_mhz}/{most_clock}MHz"
        out.append(_Chart("SM clock", number, "sm_clock_mhz", "host", Axis(most_clock, "")))
    return out


def _drawn(view: View, gpu: Gpu, chart: _Chart, width: int, height: int) -> list[Line]:
    heading = Row(width).add("  " + chart.title, "label").add("  " + chart.number, "value").line()
    trace = Trace(view.history.gpu(gpu.uuid, chart.name), chart.style)
    offset = time_axis.wall_offset(view)
    return [
        heading,
        *plots.draw(
            trace, view.window, offset, chart.axis, width, height - 1, view.glyphs, view.spans
        ),
    ]


def _wide(view: View, gpu: Gpu, width: int, room: int) -> list[Line]:
    """Charts in a grid on the left, readings on the right, processes below."""
    table = processes.of_gpu(view, gpu.uuid, width, max(4, room // 5))
    facts = _facts(gpu, _SIDE_WIDTH - 2, view)
    area = width - _SIDE_WIDTH
    columns = _grid_columns(width)
    charts = _charts(view, gpu, area // columns)
    grid_room = max(room - len(table), _CHART_LEAST)
    fitting = max(1, grid_room // (_CHART_LEAST if columns == 1 else _CHART_LEAST + 2)) * columns
    charts = charts[: max(columns, min(len(charts) // columns * columns, fitting))]
    grid_rows = len(charts) // columns
    heights = [grid_room // grid_rows] * grid_rows
    heights[0] += grid_room - sum(heights)
    grid: list[Line] = []
    for row, height in enumerate(heights):
        drawn = [
            _drawn(view, gpu, chart, area // columns, height)
            for chart in charts[row * columns : (row + 1) * columns]
        ]
        for parts in zip(*drawn, strict=True):
            grid.append(tuple(run for part in parts for run in part))
    spare = ((" " * (area - area // columns * columns), "text"),)
    left_side = [line + spare for line in grid]
    right_side = [(("  ", "text"), *fact) for fact in facts]
    rows = max(len(grid), len(facts))
    both = zip(filled(left_side, area, rows), filled(right_side, _SIDE_WIDTH, rows), strict=True)
    body = [first + second for first, second in both]
    return body[: len(grid)] + table + body[len(grid) :]


def _narrow(view: View, gpu: Gpu, width: int, room: int, offset: int) -> list[Line]:
    """One under the other; what does not fit is reached by scrolling. Charts that are out of
    sight when it is scrolled by ``offset`` are left blank."""
    height = max(_CHART_LEAST, min(12, room // 2))
    body: list[Line] = []
    for chart in _charts(view, gpu, width)[:4]:
        in_sight = len(body) < offset + room and len(body) + height > offset
        body += _drawn(view, gpu, chart, width, height) if in_sight else [blank(width)] * height
    body += processes.of_gpu(view, gpu.uuid, width, 6)
    body.append(blank(width))
    if width >= 76:
        half = width // 2
        facts = _facts(gpu, half, view)
        middle = (len(facts) + 1) // 2
        rest = ((" " * (width - 2 * half), "text"),)
        second_half = filled(facts[middle:], half, middle)
        body += [(*one, *two, *rest) for one, two in zip(facts, second_half, strict=False)]
    else:
        body += _facts(gpu, width, view)
    return body


def _facts(gpu: Gpu, width: int, view: View) -> list[Line]:
    known, missing = readings(gpu)
    lines = []
    for label, text, style in known:
        row = Row(width).add(left(" " + label, 20), "label")
        row.add(fit(text, max(0, row.room), view.glyphs.ellipsis), style)
        lines.append(row.line())
    if missing and not gpu.lost:
        line = " not reported:"
        for label in missing:
            if len(line) + len(label) + 2 > width:
                lines.append(Row(width).add(line, "dim").line())
                line = "  "
            line += f" {label},"
        lines.append(Row(width).add(line.rstrip(","), "dim").line())
    return lines
