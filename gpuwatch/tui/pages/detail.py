"""The detail of one GPU as a pure drawing: large charts, every reading, its processes."""

from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.core.model import Gpu
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.charts.past_readings import past_gpu
from gpuwatch.tui.pages.layout import Frame, filled
from gpuwatch.tui.panels import footer, header
from gpuwatch.tui.panels.gpus.metrics import scaled_metrics, throttle_text
from gpuwatch.tui.panels.gpus.readings import readings
from gpuwatch.tui.panels.gpus.state import state_of
from gpuwatch.tui.panels.processes import table as processes
from gpuwatch.tui.terminal.frame import Line, Row, blank, fit, left, right
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
_BUSY_LEAST, _CHART_LEAST = 7, 5
_WIDE = 110
_LEAD = 7
"""Cells before a chart, for its ticks."""


class _Chart(NamedTuple):
    title: str
    number: str
    name: str
    """Of its series."""
    style: str
    limit: float
    """The scale goes from 0 to this, written in ``unit`` of so ``many`` units of the series."""
    unit: str = "%"
    many: float = 1.0


def draw(view: View, width: int, height: int, offset: int) -> tuple[Frame, int]:
    """The frame, and ``offset`` (how far the body is scrolled) brought into range."""
    position = view.gpu_position()
    if width < 20 or height < 6 or not view.gpus:
        return Frame(lines=[blank(width)] * height), 0
    area = width - _SIDE_WIDTH if width >= _WIDE else width
    view.chart_columns = max(1, area - _LEAD - 1)
    live = view.gpus[position]
    gpu = past_gpu(view, live)
    lines = [header.draw(view, width), _title(view, live, width)]
    if time_axis.is_shown(view):
        lines.append(time_axis.values(view, view.window, view.chart_columns, gpu, width))
    room = height - len(lines) - 1
    body = (_wide if width >= _WIDE else _narrow)(view, gpu, width, room)
    offset = max(0, min(offset, len(body) - room))
    lines = filled([*lines, *body[offset : offset + room]], width, height - 1)
    keys = [(key, "resume" if what == "pause" and view.paused else what) for key, what in _FOOT]
    lines.append(footer.scrolling(view, width, keys, max(0, len(body) - room - offset)))
    return Frame(lines=lines), offset


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
    state = state_of(view, gpu)
    number = f"{busy.text}  {state.word}"
    out = [_Chart("busy", number, busy.name, state.style, 100.0)]
    for title, metric, unit, many in (
        ("memory", memory, "G", _GIB),
        ("power", power, "W", 1.0),
        ("temperature", temperature, "C", 1.0),
    ):
        if metric.limit is not None:
            limit, style = metric.limit, metric.mood or "area"
            out.append(_Chart(title, metric.text, metric.name, style, limit, unit, many))
    if reading.sm_active_percent is not None:
        number = units.percent(reading.sm_active_percent)
        out.append(_Chart("SM active", number, "sm_active_percent", "area", 100.0))
    if reading.sm_clock_mhz is not None and most_clock is not None:
        number = f"{reading.sm_clock_mhz}/{most_clock}MHz"
        out.append(_Chart("SM clock", number, "sm_clock_mhz", "area", most_clock, ""))
    return out


def _drawn(view: View, gpu: Gpu, chart: _Chart, width: int, height: int) -> list[Line]:
    heading = Row(width).add("  " + chart.title, "label").add("  " + chart.number, "value").line()
    cells, rows = max(1, width - _LEAD - 1), height - 2
    strip = view.strips.get(("detail", gpu.uuid, chart.name, cells, rows))
    series = view.history.gpu(gpu.uuid, chart.name)
    drawn = strip.draw(series, view.window, cells, chart.limit, view.glyphs, chart.style, rows)
    lines = [heading]
    for number, runs in enumerate(drawn):
        shares = {0: 1.0, rows // 2: 0.5, rows - 1: 0.0}
        top = chart.limit / chart.many * shares.get(number, 0.0)
        tick = f"{top:.0f}{chart.unit}" if number in shares else ""
        row = Row(width).add(right(tick, _LEAD - 1), "dim").add(view.glyphs.separator, "rule")
        lines.append(row.add_runs(runs, cells).line())
    return [*lines, time_axis.draw(view, view.window, [(_LEAD, cells)], width)[0]]


def _wide(view: View, gpu: Gpu, width: int, room: int) -> list[Line]:
    """Charts on the left, the busy one over their full width and higher than the others; readings
    on the right, processes below."""
    table = processes.of_gpu(view, gpu.uuid, width, max(4, room // 5))
    facts = _facts(gpu, _SIDE_WIDTH - 2, view)
    area = width - _SIDE_WIDTH
    columns = 2 if area >= 110 else 1
    busy, *others = _charts(view, gpu, area)
    grid_room = max(room - len(table), _BUSY_LEAST)
    most = min(len(others) // columns, (grid_room - _BUSY_LEAST) // _CHART_LEAST)
    height = max(_CHART_LEAST, grid_room // (most + 2))
    grid = _drawn(view, gpu, busy, area, grid_room - most * height)
    spare = ((" " * (area % columns), "text"),)
    for row in range(0, most * columns, columns):
        beside = [
            _drawn(view, gpu, one, area // columns, height) for one in others[row : row + columns]
        ]
        for parts in zip(*beside, strict=True):
            grid.append((*[run for part in parts for run in part], *spare))
    right_side = [(("  ", "text"), *fact) for fact in facts]
    rows = max(len(grid), len(facts))
    both = zip(filled(grid, area, rows), filled(right_side, _SIDE_WIDTH, rows), strict=True)
    body = [first + second for first, second in both]
    return body[: len(grid)] + table + body[len(grid) :]


def _narrow(view: View, gpu: Gpu, width: int, room: int) -> list[Line]:
    """One under the other; what does not fit is reached by scrolling."""
    busy, *others = _charts(view, gpu, width)
    body = _drawn(view, gpu, busy, width, max(_BUSY_LEAST, min(12, room // 2)))
    for chart in others[:3]:
        body += _drawn(view, gpu, chart, width, _CHART_LEAST)
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
