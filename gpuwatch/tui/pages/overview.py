"""The overview of GPUs, host and processes: the host's panel, the page as a drawing, its screen."""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, ClassVar

from textual import events
from textual.binding import BindingType

from gpuwatch.core import units
from gpuwatch.core.bounds import mean
from gpuwatch.core.model import Host, Process
from gpuwatch.core.registry import HOST as FIELDS
from gpuwatch.core.registry import Field
from gpuwatch.diagnosis.finding import gpu_names
from gpuwatch.tui.charts.strips import (
    BESIDE,
    FULL,
    Glyphs,
    highest,
    mean_shown,
    nice_ceiling,
    scale_marks,
)
from gpuwatch.tui.keys import OVERVIEW_FOOTER, OVERVIEW_KEYS, bindings
from gpuwatch.tui.pages.layout import (
    BOTTOM,
    Drawn,
    Frame,
    GpuStyle,
    Page,
    Panel,
    Title,
    chart_legend,
    edge,
    edge_panel,
    filled,
    has_boxes,
    laid_out,
    overview_rows,
    range_keys,
    too_small,
)
from gpuwatch.tui.pages.screen import CursorPlace, ListScreen
from gpuwatch.tui.panels import findings, job_charts, processes, time_axis
from gpuwatch.tui.panels import gpus as gpu_rows
from gpuwatch.tui.panels.bars import HEADER, footer_panel
from gpuwatch.tui.panels.gpus import LEAD, NUMBER_END, gauge
from gpuwatch.tui.panels.time_axis import shown_gpu, shown_host
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, blank, left, right, width_of
from gpuwatch.tui.view import SORT_KEYS, RowKey, View

# -- the host half: CPU, memory, disk, network, and who waits for them -----------------------------


_MEGABYTE = 1024 * 1024
_CORE_WIDTH = 20
_FULL_ROWS = 11
"""Rows of a machine without a GPU before those of its cores, with their title."""
_BUSY_PERCENT, _RESTS_PERCENT = 90.0, 10.0
"""Means of a core from which on it stands out, and below which it steps back."""
_HEAD_WIDTH, _RATE_WIDTH = 6, 8
_HALVES_WIDTH = 76
"""A narrower screen has no room for both of two rates in half of it."""
_CORES_BESIDE = 18
"""Cells beside the charts that are room enough for the cores."""

_RATES = tuple(
    FIELDS[f"{name}_bytes_per_second"]
    for name in ("disk_read", "disk_write", "network_receive", "network_transmit")
)
"""Rates, each with a chart; the short label is the group and the way."""


def _host_rows(page: Page) -> int:
    """Return how many rows the host takes. Without a GPU it gets the room: charts, then a chart for
    each core where that still fits."""
    if page.gpus:
        return page.overview.host
    height, room = page.height, page.room - page.table_least
    narrow = page.width < 2 * LEAD
    wanted = 1 if height < 16 or narrow else 3 if height < 22 else 7
    if height >= 30 and not narrow:
        snapshot = page.view.snapshot
        cores = () if snapshot is None else snapshot.host.core_percents or ()
        rows = -(-len(cores) // _core_columns(len(cores), page.width))
        wanted = _FULL_ROWS + min(rows, max(-1, room - _FULL_ROWS))
    return max(1, min(wanted, room))


def _core_columns(count: int, width: int) -> int:
    """Return in how many columns so many cores stand: as many as fit, or a few less where that
    leaves no hole."""
    most = max(1, width // _CORE_WIDTH)
    even = (columns for columns in range(most, most // 2, -1) if count % columns == 0)
    return next(even, most)


def _draw_host(page: Page, rows: int) -> Drawn:
    # Its chart stands where those of the GPUs above do, on their time axis.
    above = page.spans[0] if page.spans and page.width >= _HALVES_WIDTH else None
    return draw_host(page.view, page.width, rows, above), []


HOST = Panel("host", _host_rows, _draw_host)


def draw_host(view: View, width: int, rows: int, span: tuple[int, int] | None = None) -> list[Line]:
    """Draw ``rows`` lines about the host: one is a summary, three add charts, more add cores.
    ``span``: first cell and cells of the charts above."""
    if view.snapshot is None:
        return filled([], width, rows)
    span = span or (LEAD, width - LEAD - 1)
    painter = _HostPainter(view, shown_host(view, view.snapshot.host), width, span)
    if rows == 1:
        return [painter.summary()]
    halves = rows <= 3 and width >= _HALVES_WIDTH
    return painter.halves(rows) if halves else painter.full(rows)


_CPU, _MEMORY, _IOWAIT = (
    FIELDS[name] for name in ("cpu_percent", "memory_used_bytes", "cpu_iowait_percent")
)
_SHM, _SWAP = FIELDS["shm_used_bytes"], FIELDS["swap_used_bytes"]
_PRESSURES = [FIELDS[f"pressure_{what}_some_percent"] for what in ("cpu", "io", "memory")]


def _cpu_text(host: Host) -> str:
    cores = "" if host.core_count is None else f" of {host.core_count}"
    return f"{right(_CPU.text(host.cpu_percent), 4)}{cores}"


def _iowait(host: Host) -> Run:
    waits = host.cpu_iowait_percent
    return f"{_IOWAIT.short} {right(_IOWAIT.text(waits), 4)}", "warn" if (
        waits or 0
    ) >= 10 else "label"


def _host_facts(host: Host) -> list[Run]:
    """Facts that need no chart, most telling first."""
    pressures = [
        (f"{one.short} {right(one.text(value), 4)}", "warn" if value >= 20 else "label")
        for one in _PRESSURES
        if (value := getattr(host, one.name)) is not None
    ]
    high = [one for one in pressures if one[1] == "warn"]
    return [
        *_usable_cores(host),
        _iowait(host),
        *high,
        *_loads(host),
        *_in_memory(host),
        *[one for one in pressures if one not in high],
    ]


def _usable_cores(host: Host) -> list[Run]:
    if host.usable_cores in (None, host.core_count):
        return []
    why = "quota" if host.quota_cores == host.usable_cores else "affinity"
    return [(f"usable {host.usable_cores:g} ({why})", "warn" if host.quota_cores else "label")]


def _loads(host: Host) -> list[Run]:
    if host.load_average_1_minute is None:
        return []
    loads = (host.load_average_5_minutes, host.load_average_15_minutes)
    later = [units.UNKNOWN if one is None else f"{one:.1f}" for one in loads]
    return [(f"load {host.load_average_1_minute:.1f} {' '.join(later)}", "label")]


def _in_memory(host: Host) -> list[Run]:
    """Return shared memory and swap."""
    facts, shm = [], host.shm_used_bytes
    if shm is not None and host.shm_total_bytes is not None:
        mood = "warn" if shm >= 0.9 * host.shm_total_bytes > 0 else "label"
        facts.append((f"{_SHM.short} {_SHM.text(shm, host.shm_total_bytes)}", mood))
    if host.swap_total_bytes:
        text = _SWAP.text(host.swap_used_bytes, host.swap_total_bytes)
        facts.append((f"{_SWAP.short} {text}", "label"))
    return facts


def _core_bar(percents: tuple[float | None, ...], glyphs: Glyphs) -> tuple[str, str]:
    """Return the bar of a few cores and its tone: of their mean, so that all bars together are as
    full as all cores are busy."""
    busy = mean(percents)
    if busy is None:
        return " ", FULL
    eighths = max(1, min(8, round(busy / 12.5)))
    return glyphs.core[eighths], glyphs.fill[eighths]


class _HostPainter:
    def __init__(self, view: View, host: Host, width: int, span: tuple[int, int]) -> None:
        self._view = view
        self._lead, self._room = lead, _ = span
        self._number_end = NUMBER_END if lead == LEAD else lead - 2
        self._host = host
        self._width = width
        self._glyphs = view.glyphs
        self._window = view.window

    def _chart(self, name: str, width: int, limit: float | None, rows: int = 1) -> list[list[Run]]:
        view, series = self._view, self._view.history.host(name)
        key = "host", name
        return view.chart(key, series, width, limit, "host", rows, self._window)

    def _ceiling(self, name: str, width: int) -> float:
        series = self._view.history.host(name)
        most = highest(series, self._window, width, getattr(self._host, name))
        return nice_ceiling(most, _MEGABYTE)

    def _text(self, field: Field) -> str:
        return field.text(getattr(self._host, field.name))

    def _memory(self) -> Run:
        used, total = self._host.memory_used_bytes, self._host.memory_total_bytes
        text = _MEMORY.text(used, total)
        if used is not None and total is not None and used >= 0.95 * total > 0:
            return self._glyphs.warning + text, "warn"
        return text, "value"

    def summary(self) -> Line:
        """Draw everything that fits on one line, most important first."""
        host = self._host
        row = Row(self._width).add(f" {_CPU.label} ", "label")
        self._add_number(row, _cpu_text(host), "value")
        memory, mood = self._memory()
        spark = max(0, min(24, self._width - 66))
        if spark >= 8:
            # It is on no axis: the cursor would be elsewhere.
            self._window = replace(self._window, cursor=None)
            row.add(" ").add_runs(self._chart("cpu_percent", spark, 100.0)[0], spark)
        before = f"{'  ' if self._width >= 50 else ' '}{_MEMORY.short} "
        if row.room >= len(before) + len(memory):
            self._add_number(row.add(before, "label"), memory, mood)
        iowait, iowait_mood = _iowait(host)
        row.fits("  " + iowait, iowait_mood)
        for one in _RATES:
            row.fits(f"  {one.short}{right(self._text(one), 9)}", "label")
        return row.line()

    # -- up to three lines of two cells, aligned with the GPUs' charts above

    def halves(self, rows: int) -> list[Line]:
        """CPUs on the time axis of the charts above, the cores beside them or in the last line,
        memory, disks and network, and facts."""
        half, beside = self._width // 2, self._width - self._lead - self._room - 1
        rest, facts = self._width - half, _host_facts(self._host)
        cpu = self._cpu(self._width - beside)[0]
        memory, network = self._memory_line(half), self._network(half)
        disk = self._facts(self._disk(rest), facts)
        if beside < _CORES_BESIDE:
            lines = [(*cpu, *blank(beside)), (*memory, *disk)]
            last = self._cores(Row(rest))
        else:
            lines = [(*cpu, *self._cores(Row(beside)).line()), (*memory, *disk)]
            last = Row(rest)
        return [*lines, (*network, *self._facts(last, facts))][:rows]

    def _cpu(self, width: int, rows: int = 1) -> list[Line]:
        cpu, text = _CPU.name, _cpu_text(self._host)
        ticks = scale_marks(rows)
        return self._charted(_CPU.short, text, cpu, 100.0, width, rows, ticks=ticks)

    def _memory_line(self, width: int) -> Line:
        """Draw memory, which moves slowly, as a gauge."""
        used, total = self._host.memory_used_bytes, self._host.memory_total_bytes
        row = self._label(Row(width), _MEMORY.label, *self._memory()).pad_to(self._lead)
        if used is not None and total:
            room = max(0, width - self._lead - 1)
            row.add_runs(gauge(self._glyphs, used / total, room, "host"), room)
        return row.line()

    def _label(self, row: Row, label: str, text: str, style: str) -> Row:
        """Add a label and its number, up to where the charts begin."""
        row.add("  ").add(label, "label").pad_to(self._number_end - width_of(text))
        return self._add_number(row, text, style)

    def _add_number(self, row: Row, text: str, style: str) -> Row:
        """Add a number and, in a quieter tone, what it is of: a limit, or a second."""
        number = re.split("/| of", text, maxsplit=1)[0]
        return row.add(number, style).add(text.removeprefix(number), "label")

    def _charted(
        self,
        label: str,
        value: str,
        name: str,
        limit: float | None,
        width: int,
        rows: int = 1,
        *,
        ticks: Mapping[int, str] | None = None,
    ) -> list[Line]:
        """Draw a chart with its label, its number and marks of its scale."""
        room = max(0, width - self._lead - 1)
        lines = []
        for number, drawn in enumerate(self._chart(name, room, limit, rows)):
            row = Row(width)
            if number == 0:
                self._label(row, label, value, "value")
            tick = (ticks or {}).get(number, "")
            row.pad_to(self._lead - 1 - len(tick)).add(tick, "dim")
            lines.append(row.add(self._glyphs.axis, "rule").add_runs(drawn, room).line())
        return lines

    def _network(self, width: int) -> Line:
        """Draw both rates, the first where the numbers of the lines above are."""
        receive, transmit = _RATES[2:]
        row = self._label(Row(width), receive.short, self._text(receive), "value")
        row.pad_to(self._lead).add(f"{transmit.short.partition(' ')[2]} ", "label")
        return self._add_number(row, right(self._text(transmit), _RATE_WIDTH), "value").line()

    def _disk(self, width: int) -> Row:
        row = Row(width).add("  ").add(left("disk", _HEAD_WIDTH), "label")
        for one, gap in zip(_RATES[:2], ("", "   "), strict=True):
            row.add(f"{gap}{one.short.partition(' ')[2]} ", "label")
            self._add_number(row, right(self._text(one), _RATE_WIDTH), "value")
        return row

    def _cores(self, row: Row) -> Row:
        """Add a bar for each core, now; where they are too many, one for each few."""
        row.add("  ").add(left("cores", _HEAD_WIDTH), "label")
        percents = self._host.core_percents or ()
        count, bars, note = len(percents), len(percents), ""
        if count >= row.room:
            longest = len(" 10-11 cores a bar")
            has_note = row.room > 2 * longest
            bars = row.room - (longest if has_note else 1)
            fewest, most = count // bars, -(-count // bars)
            each = f"{fewest}-{most}" if fewest < most else f"{most}"
            note = f" {each} cores a bar" if has_note else ""
        ends = [count * place // max(1, bars) for place in range(bars + 1)]
        groups = [percents[first:end] for first, end in pairwise(ends)]
        for tone, alike in groupby(
            [_core_bar(group, self._glyphs) for group in groups], itemgetter(1)
        ):
            row.add("".join([bar for bar, _ in alike]), f"host.{tone}{BESIDE}")
        return row.add(note, "dim")

    def _facts(self, row: Row, facts: list[Run]) -> Line:
        """Add as many of ``facts`` as fit, which are then gone from them, and end the line."""
        for text, mood in tuple(facts):
            if len(text) + 2 < row.room:
                row.add("  ").add(text, mood)
                facts.remove((text, mood))
        return row.line()

    # -- a line for each chart

    def full(self, rows: int) -> list[Line]:
        """Draw a machine without a GPU: a chart a line, then a chart for every core."""
        self._window = self._view.window
        high = 3 if rows >= _FULL_ROWS - 1 else 1
        lines = [*self._cpu(self._width, high), self._memory_line(self._width)]
        room = max(1, self._width - self._lead - 1)
        for one in _RATES:
            ceiling = self._ceiling(one.name, room)
            ticks = {0: units.size(ceiling).replace(".0", "")}
            text = self._text(one)
            lines += self._charted(one.short, text, one.name, ceiling, self._width, ticks=ticks)
        if rows >= _FULL_ROWS - 3:
            self._view.chart_columns = room
            axis, _ = time_axis.draw(self._view, self._window, [(self._lead, room)], self._width)
            lines.append(axis)
        lines.append(self._facts(Row(self._width), _host_facts(self._host)))
        if rows > _FULL_ROWS:
            lines += edge(self._view.glyphs, self._width, Title("cores"))[0]
            lines += self._core_grid(rows - _FULL_ROWS)
        return filled(lines, self._width, rows)

    def _core_grid(self, rows: int) -> list[Line]:
        """Draw a small chart over time for each core, in columns, as many as fit."""
        view, percents = self._view, self._host.core_percents or ()
        columns = _core_columns(len(percents), self._width)
        cell = self._width // columns
        lines = []
        for first in range(max(0, rows)):
            row = Row(self._width)
            for column, core in enumerate(range(first, len(percents), rows)[:columns]):
                row.pad_to(column * cell).add(f" {core:3d} ", "dim")
                series, shown = view.history.host_core(core), percents[core]
                if view.timeline.moment is None:
                    shown = mean_shown(series, self._window)
                style, hue = "text", "area"
                if shown is not None and shown >= _BUSY_PERCENT:
                    style, hue = "value", "host"
                elif shown is not None and shown < _RESTS_PERCENT:
                    style = "dim"
                row.add(right(units.percent(shown), 4), style).add(" ")
                drawn = view.chart(("core", core), series, cell - 11, 100.0, hue)
                row.add_runs(drawn[0], cell - 11)
            lines.append(row.line())
        return lines


# -- what a GPU waits for ------------------------------------------------------------------------


def _draw_cause(page: Page, rows: int) -> Drawn:
    """Draw what shows the finding that leads, or who feeds the GPU, as the page of its job does,
    and the next of its charts where there is room; without a job its temperature."""
    view, (gpu,) = page.view, page.gpus
    jobs = () if view.snapshot is None else view.snapshot.jobs
    job = next((one for one in jobs if gpu.uuid in one.gpu_uuids), None)
    lanes = [] if job is None else job_charts.lanes(view, job, [[gpu]])[1:]
    traces = [one for one in lanes if one.kind not in _DRAWN_ABOVE]
    traces.append(job_charts.metric_trace(view, [shown_gpu(view, gpu)], "temperature_celsius"))
    second = rows // 2 if rows >= _TWO_LANES and len(traces) > 1 else 0
    heights = [(traces[0], rows - second), *[(one, second) for one in traces[1:2] if second]]
    lines = job_charts.draw(view, heights, page.window, page.width)
    return lines, job_charts.clicks(0, rows, page.width)


_TWO_LANES = 4
"""Rows below a GPU's own charts from which on there are two of its job's."""
_DRAWN_ABOVE = {"gpu", "power_watts"}
_CAUSE = Panel("cause", lambda page: page.overview.cause, _draw_cause)


# -- the drawing -----------------------------------------------------------------------------------


_FOOTER = footer_panel(lambda _: OVERVIEW_FOOTER)


_AXIS = time_axis.axis_panel(lambda page: page.overview.axis > 0)
_VERDICT = edge_panel("verdict", lambda _: Title("verdict", (("d", "why", "findings"),)))


def _of_gpus(page: Page) -> Title:
    name, headings = gpu_rows.title(page)
    keys = range_keys(page)
    # Low charts have no room for the line.
    stacked = page.overview.style is GpuStyle.STACKED
    legend = chart_legend(page, LEAD) if stacked else gpu_rows.shade_legend(page)
    return Title(name, keys, headings, legend=legend)


_GPUS = edge_panel("gpus", _of_gpus)
_HOST_EDGE = edge_panel("host", lambda page: Title("host", () if page.gpus else range_keys(page)))


def _of_processes(page: Page) -> Title:
    view = page.view
    first = gpu_names(processes.gpus_first(view), view.gpus) if view.sort == "gpu" else ""
    by = ("s", f"sort: {view.sort}" + (f", {first} first" if first else ""), "sort")
    return Title("processes", (("/", "filter", "filter"), by, ("t", "tree", "tree")))


_PROCESSES = edge_panel("processes", _of_processes)

PANELS = (
    *(HEADER, _VERDICT, findings.PANEL),
    *(_GPUS, gpu_rows.PANEL, _CAUSE, _AXIS, _HOST_EDGE, HOST),
    *(_PROCESSES, processes.PANEL, time_axis.VALUES, BOTTOM, _FOOTER),
)
"""Panels of the page, from top to bottom."""
_OF_GPUS = (_GPUS, gpu_rows.PANEL, _CAUSE, _AXIS)
COMPETING = (time_axis.VALUES,)
"""Panels that compete for rows: what the person asks for takes its row from the table; all others
have those of `overview_rows`."""

COMPETING_WITHOUT_GPU = (processes.PANEL, HOST, time_axis.VALUES)


def draw(view: View, width: int, height: int) -> Frame:
    """Draw exactly ``height`` lines of exactly ``width`` cells. Scroll offsets in ``view`` are
    brought into range so that the selections stay in sight."""
    if width < 20 or height < 4:
        return too_small(width, height, "20x4")
    columns = view.chart_columns
    frame = _draw(view, width, height)
    if view.chart_columns != columns and view.timeline.moment is not None:
        # The numbers beside the charts were those of other columns.
        frame = _draw(view, width, height)
    return frame


def _draw(view: View, width: int, height: int) -> Frame:
    gpus = view.gpus
    boxes = overview_rows(width, height, len(gpus)).edges > 0 if gpus else has_boxes(width, height)
    page = Page(view, width - 2 * boxes, height, boxes, view.window, gpus)
    if gpus:
        return laid_out(page, PANELS, COMPETING, processes.PANEL)
    panels = [one for one in PANELS if one not in _OF_GPUS]
    return laid_out(page, panels, COMPETING_WITHOUT_GPU, processes.PANEL)


# -- the screen ------------------------------------------------------------------------------------


class OverviewScreen(ListScreen):
    """Screen of the overview; turns keys and clicks into changes of the view."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(OVERVIEW_KEYS)
    CANVAS_ID = "overview"
    ROWS = "process"
    OPENS: ClassVar[Mapping[str, str]] = {"gpu": "app.open", "process": "app.open"}

    def page(self, width: int, height: int) -> Frame:
        return draw(self.view, width, height)

    # -- moving about -----------------------------------------------------------------------

    @property
    def chosen(self) -> RowKey | None:
        return self.view.selected_row

    @property
    def cursor(self) -> CursorPlace:
        view = self.view
        if view.in_findings:
            return "finding", view.finding
        on_gpus = view.focus == "gpus" and view.gpus
        return ("gpu", view.selected_gpu) if on_gpus else ("process", view.selected_row)

    def put(self, kind: str, key: Any) -> None:
        view = self.view
        view.in_findings = kind == "finding"
        if kind == "finding":
            view.finding = key
        elif kind == "gpu":
            view.focus, view.selected_gpu = "gpus", key
        else:
            view.focus, view.selected_row = "processes", key

    def stops(self) -> list[CursorPlace]:
        rows = [(self.ROWS, row.key) for row in self.shown.table]
        return [*self._findings(), *[("gpu", gpu.uuid) for gpu in self.view.gpus], *rows]

    def action_gpu(self, step: int) -> None:
        self.view.in_findings = False
        self.view.step_gpu(step)
        self.redraw()

    def action_page(self, step: int) -> None:
        self._jump((self.position() or 0) + step * self.shown.table_page)

    def action_edge(self, end: int) -> None:
        self._jump(len(self.shown.table) - 1 if end else 0)

    def action_switch_focus(self) -> None:
        view = self.view
        if view.focus == "gpus" or not view.gpus:
            self._jump(self.position() or 0)
        else:
            view.focus, view.in_findings = "gpus", False
            self.redraw()

    def _jump(self, position: int) -> None:
        if not self.shown.table_page:
            # A low screen with many GPUs has no table.
            return
        self.view.focus, self.view.in_findings = "processes", False
        self.select(position)
        self.redraw()

    # -- the table --------------------------------------------------------------------------

    def action_sort(self) -> None:
        self._sort_by(SORT_KEYS[(SORT_KEYS.index(self.view.sort) + 1) % len(SORT_KEYS)])

    def _sort_by(self, key: str) -> None:
        if self.view.sort == key:
            self.view.reverse = not self.view.reverse
        else:
            self.view.sort, self.view.reverse = key, False
        self.redraw()

    def action_sort_by(self, key: str) -> None:
        if key and key != self.view.sort:
            self._sort_by(key)

    def action_reverse(self) -> None:
        self.view.reverse = not self.view.reverse
        self.redraw()

    def action_tree(self) -> None:
        """Show each worker of a tree where they are in one row, then a list, then the tree."""
        view = self.view
        if any(row.together for row in self.shown.table):
            view.folded = False
        else:
            view.tree, view.folded = not view.tree, None
        self.redraw()

    def selected_process(self) -> Process | None:
        """Return the process under the cursor, or the only one that there is or that a filter
        finds. Several in one row are none."""
        table, place = self.shown.table, self.position()
        rows = [row for row in table if row.matches] if place is None else [table[place]]
        return None if len(rows) != 1 or rows[0].together else rows[0].process

    def action_clear(self) -> None:
        self.view.filter_text = ""
        self.redraw()

    # -- the mouse --------------------------------------------------------------------------------

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        if zone.action == "sort" and zone.argument is not None:
            self._sort_by(str(zone.argument))
        else:
            await super().clicked(zone, event)

    async def wheel(self, y: int, step: int) -> None:
        """Move the selection of whatever it is over."""
        over = next((zone.action for zone in self.shown.zones if zone.y == y), None)
        if over == "gpu":
            self.action_gpu(step)
        elif over == "moment":
            await self.run_action(f"app.scroll_time({-step})")
        else:
            self._jump((self.position() or 0) + 3 * step)
