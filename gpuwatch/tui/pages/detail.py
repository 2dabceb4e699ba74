"""The detail of one GPU as a pure drawing: large charts, every reading, its processes."""

from collections.abc import Sequence
from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.core.model import Gpu
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.charts.past_readings import past_gpu
from gpuwatch.tui.keys import DETAIL_FOOTER
from gpuwatch.tui.pages import sheet
from gpuwatch.tui.pages.grid import has_boxes
from gpuwatch.tui.pages.layout import Drawn, Frame, Title, filled
from gpuwatch.tui.panels.gpus.metrics import scaled_metrics, throttle_text
from gpuwatch.tui.panels.gpus.readings import readings
from gpuwatch.tui.panels.gpus.state import state_of
from gpuwatch.tui.panels.processes import table as processes
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, blank, fit, left, right, spots
from gpuwatch.tui.view import View

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
    if width < 20 or height < 6 or not view.gpus:
        return Frame(lines=[blank(width)] * height), 0
    live = view.gpus[view.gpu_position()]
    boxes = has_boxes(width, height)

    def body(width: int, room: int) -> sheet.Body:
        area = width - _SIDE_WIDTH if width >= _WIDE else width
        view.chart_columns = max(1, area - _LEAD - 1)
        gpu = past_gpu(view, live)
        top = [] if boxes else [_title(view, live, width)]
        lines, zones = (_wide if width >= _WIDE else _narrow)(view, gpu, width, room - len(top))
        return top, lines, zones, time_axis.values(view, gpu, width)

    text, notes = _named(view, live)
    note, style = notes[0] if notes else ("", "label")
    title = Title(text, (), note, style)
    return sheet.draw(view, width, height, title, body, DETAIL_FOOTER, offset)


def _named(view: View, gpu: Gpu) -> tuple[str, list[Run]]:
    """``GPU 0 of 8  NVIDIA H200``, and what is wrong with it."""
    count = f" of {len(view.gpus)}" if len(view.gpus) > 1 else ""
    whole = " ".join(filter(None, [gpu.identity.machine, gpu.identity.name]))
    name = fit(whole, 40, view.glyphs.ellipsis)
    throttled = throttle_text(gpu.reading)
    notes = [("GPU is lost", "error")] if gpu.lost else []
    return f"GPU {units.gpu_label(gpu)}{count}  {name}", [*notes, *filter(None, [throttled])]


def _title(view: View, gpu: Gpu, width: int) -> Line:
    text, notes = _named(view, gpu)
    row = Row(width).add(f" {text}", "title")
    for note in notes:
        row.add("   ").add(*note)
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


def _wide(view: View, gpu: Gpu, width: int, room: int) -> Drawn:
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
    zones = _spots(0, grid, 0, area)
    spare = ((" " * (area % columns), "text"),)
    for row in range(0, most * columns, columns):
        beside = [
            _drawn(view, gpu, one, area // columns, height) for one in others[row : row + columns]
        ]
        for place, chart in enumerate(beside):
            zones += _spots(len(grid), chart, place * (area // columns), area // columns)
        for parts in zip(*beside, strict=True):
            grid.append((*[run for part in parts for run in part], *spare))
    right_side = [(("  ", "text"), *fact) for fact in facts]
    rows = max(len(grid), len(facts))
    both = zip(filled(grid, area, rows), filled(right_side, _SIDE_WIDTH, rows), strict=True)
    body = [first + second for first, second in both]
    return body[: len(grid)] + table + body[len(grid) :], zones


def _spots(top: int, lines: Sequence[Line], left: int, width: int) -> list[Zone]:
    """Of a chart with its heading, ``width`` cells wide."""
    return spots(top + 1, len(lines) - 1, left + _LEAD, max(1, width - _LEAD - 1))


def _narrow(view: View, gpu: Gpu, width: int, room: int) -> Drawn:
    """One under the other; what does not fit is reached by scrolling."""
    busy, *others = _charts(view, gpu, width)
    body: list[Line] = []
    zones: list[Zone] = []
    for chart in (busy, *others[:3]):
        rows = max(_BUSY_LEAST, min(12, room // 2)) if chart is busy else _CHART_LEAST
        drawn = _drawn(view, gpu, chart, width, rows)
        zones += _spots(len(body), drawn, 0, width)
        body += drawn
    body += processes.of_gpu(view, gpu.uuid, width, 6)
    body.append(blank(width))
    if width >= 80:
        half = width // 2
        facts = _facts(gpu, half, view)
        middle = (len(facts) + 1) // 2
        rest = ((" " * (width - 2 * half), "text"),)
        second_half = filled(facts[middle:], half, middle)
        body += [(*one, *two, *rest) for one, two in zip(facts, second_half, strict=False)]
    else:
        body += _facts(gpu, width, view)
    return body, zones


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
