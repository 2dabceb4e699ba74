"""Sharing out the rows of a screen among its panels, from 40x12 up to as large as it gets.

A page lists its panels from top to bottom. Each says how many of the rows that are left it takes,
and fills those it got. Those that compete for rows are asked in the order of their importance. What
nobody takes goes to the table. No number of rows may depend on what was read or found, but
for the charts of a job, which follow the finding that leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import chain, combinations, pairwise, zip_longest
from typing import Any, NamedTuple

from gpuwatch.core.model import Gpu, Job
from gpuwatch.diagnosis.finding import WINDOW_SECONDS
from gpuwatch.tui.charts.strips import MARKED_SECONDS, Glyphs, TimeWindow
from gpuwatch.tui.charts.timeline import span_in
from gpuwatch.tui.keys import Footer
from gpuwatch.tui.terminal.frame import Line, Row, Run, Zone, blank, fit, width_of
from gpuwatch.tui.view import View

# -- the rows of the overview ----------------------------------------------------------------------


class GpuStyle(Enum):
    """Style in which one GPU is drawn; the value is its least rows and least width."""

    STACKED = (6, 60)
    """A heading, a tall busy chart, the power's chart, and gauges of memory and temperature."""
    WIDE = (2, 30)
    """The busy chart, and beside it numbers with their gauges below."""
    SINGLE = (1, 0)
    """Line with the busy chart, and what numbers it leaves room for."""

    @property
    def rows(self) -> int:
        return self.value[0]

    @property
    def least_width(self) -> int:
        return self.value[1]


MOST_ROWS_A_GPU = {GpuStyle.STACKED: 32, GpuStyle.WIDE: 5, GpuStyle.SINGLE: 1}


class OverviewRows(NamedTuple):
    """Rows of each part; header and footer have one each, the table what is left."""

    style: GpuStyle
    shown: int
    """GPUs in sight."""
    each: int
    """Rows of one GPU."""
    cause: int
    """Rows of the charts of what a GPU waits for: one that has the screen to itself has them."""
    host: int
    axis: int
    edges: int
    """Lines around the parts: above each of four, and below the last."""


def band_rows(height: int, gpus: int) -> int:
    """Rows below the header for what is wrong; that there is no GPU is said at length."""
    if not gpus:
        # Small terminals break the sentence into more lines; on large ones it is wide.
        return 0 if height < 5 else 2 if height < 16 else 5 if 22 <= height < 30 else 3
    if height >= 40:
        # Several GPUs have several things wrong more often.
        return 4 if gpus >= _SEVERAL else 3
    return 0 if height < 9 else 1 if height < 12 else 2


_SEVERAL = 5


def has_boxes(width: int, height: int) -> bool:
    """Return whether there is room for edges around the parts of a page."""
    return width >= 60 and height >= 30


_CAUSE_WIDTH = 76
_LEAST_ROOMY, _HALF_ROOMY = 10, 18
"""Rows of one GPU alone from which on there are one and four for what it waits for: most of that
hardly varies, and is a slab where it is high."""
_LOW = 14


@lru_cache(maxsize=8)
def overview_rows(width: int, height: int, gpus: int) -> OverviewRows:
    """Return the rows for so many GPUs, at least one."""
    band = band_rows(height, gpus)
    charts, low = 3 if height >= 24 and width >= 76 else 1, height < _LOW
    axis, edges = int(height >= 20), 5 if has_boxes(width, height) else 0
    table, least = (
        # Fewer GPUs run fewer processes, and their charts get the room; a row for one more finding
        # is none of the charts'.
        max(3 if low else 4, height // (8 if gpus == 1 else 5 if gpus <= 4 else 4) - (band > 3)),
        2 if low and height >= 10 else 1 if low else 3,
    )
    for host, above, between, kept in (
        (charts, axis, edges, table),
        (charts, axis, 0, table),
        (1, axis, 0, table),
        (1, axis, 0, least),
        (1, axis, 0, 2),
        # One process is no table.
        *([(1, 0, 0, 0), (0, 0, 0, 0)] if low else []),
        (1, 0, 0, least),
    ):
        room = height - 2 - band - host - above - between - kept
        if room >= gpus:
            break
    shown = max(1, min(gpus, room))
    each = max(1, room // shown)
    style = next(one for one in GpuStyle if one.rows <= each and one.least_width <= width)
    cause = 0
    if gpus == 1 and style is GpuStyle.STACKED and width >= _CAUSE_WIDTH:
        cause = 4 if each >= _HALF_ROOMY else 1 if each >= _LEAST_ROOMY else 0
    each = min(each - cause, MOST_ROWS_A_GPU[style])
    return OverviewRows(style, shown, each, cause, host, above, between)


# -- pages and panels ------------------------------------------------------------------------------


Drawn = tuple[list[Line], list[Zone]]
"""Lines, and zones in them: the first line of a panel is line 0."""

EDGE = "edge"
"""The style of the lines that bound boxes; a line that begins with it is one of them."""


class Panel(NamedTuple):
    """A part of a page. ``rows`` gives how many rows it takes in all of ``Page.room`` (when it is
    asked again, with those it has); ``draw`` fills them, or fewer."""

    name: str
    rows: Callable[[Page], int]
    draw: Callable[[Page, int], Drawn]


@dataclass(slots=True)
class Page:
    """Page while it is laid out and drawn. ``boxed``: what is between the first and the last of its
    edges gets sides, a cell each beyond ``width``."""

    view: View
    width: int
    height: int
    boxed: bool
    window: TimeWindow
    gpus: Sequence[Gpu] = ()
    """GPUs that the page is about."""
    job: Job | None = None
    table: Sequence[Any] = ()
    """The rows of the table, whether or not they fit."""
    room: int = 0
    """Rows that nobody has taken yet."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows that each panel has, by its name."""
    table_least: int = 0
    table_wanted: int = 0
    """Rows, with the heading, that should be left to the table."""
    decided: dict[str, Any] = field(default_factory=dict)
    """Results of panels from when they were asked for their rows, by name."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Places of the charts above the time axis: first cell and width."""
    table_page: int = 1
    """Rows of the table that are in sight; 0: the page has none."""
    below: int = 0
    """Lines below those in sight, which the footer says."""
    lines: list[Line] = field(default_factory=list)
    zones: list[Zone] = field(default_factory=list)

    @property
    def across(self) -> int:
        """Cells with the sides of boxes."""
        return self.width + 2 * self.boxed

    @property
    def tall(self) -> int:
        """Rows without the output pane of a job."""
        return self.height - self.rows.get("output", 0)

    @property
    def overview(self) -> OverviewRows:
        """Return the rows of an overview with GPUs."""
        return overview_rows(self.across, self.height, len(self.gpus))

    @property
    def pane_top(self) -> int:
        """Return the row of the output pane's title."""
        return self.height - 1 - self.boxed - self.rows.get("output", 0)

    def give(self, name: str, rows: int) -> None:
        self.room -= rows - self.rows.get(name, 0)
        self.rows[name] = rows

    def share(self, panels: Sequence[Panel], competing: Sequence[Panel]) -> None:
        """Fill ``rows``: the panels that do not compete get what they ask for."""
        self.room = self.height
        for panel in (*(one for one in panels if one not in competing), *competing):
            self.give(panel.name, panel.rows(self))

    def fill(self, panels: Sequence[Panel], table: Panel) -> None:
        """Draw all panels; the table down to those below it: rounding never leaves a hole."""
        below = sum(self.rows[one.name] for one in panels[panels.index(table) + 1 :])
        for panel in panels:
            rows = self.rows[panel.name]
            if panel is table:
                rows = max(0, self.height - below - len(self.lines))
                self.table_page = max(1, rows - 1)
            if rows or panel is table:
                lines, zones = panel.draw(self, rows)
                top = len(self.lines)
                self.zones += [Zone(top + zone.y, *zone[1:]) for zone in zones]
                self.lines += lines
            if panel is table:
                del self.lines[max(0, self.height - below) :]


@dataclass(slots=True)
class Frame:
    """A picture, and all that the screen needs to know to move about in it."""

    lines: list[Line]
    zones: list[Zone] = field(default_factory=list)
    plan: Page | None = None
    inset: int = 0
    """The cells before the first that zones count."""

    @property
    def table(self) -> Sequence[Any]:
        return () if self.plan is None else self.plan.table

    @property
    def table_page(self) -> int:
        return 0 if self.plan is None else self.plan.table_page


def laid_out(
    page: Page, panels: Sequence[Panel], competing: Sequence[Panel], table: Panel
) -> Frame:
    """Return the frame of a page: exactly its height in lines of exactly its width."""
    page.share(panels, competing)
    page.fill(panels, table)
    page.view.strips.forget_unused()
    lines = boxed(page.lines, page.view.glyphs) if page.boxed else page.lines
    return Frame(lines, page.zones, page, int(page.boxed))


def fixed(name: str, rows: int, draw: Callable[[Page, int], Drawn]) -> Panel:
    """Return a panel that always has so many rows."""
    return Panel(name, lambda _: rows, draw)


class Title(NamedTuple):
    """Text in the upper edge of a box: its name and beside it what is said of it, keys for what is
    in it, a note at the right, and before that, where there is room for both, a legend."""

    text: str = ""
    keys: Footer = ()
    note: str = ""
    note_style: str = "label"
    legend: str = ""
    said: Sequence[Run] = ()


def edge_panel(name: str, title: Callable[[Page], Title]) -> Panel:
    """Return an edge with a title, on a page that has boxes."""

    def draw(page: Page, _rows: int) -> Drawn:
        return edge(page.view.glyphs, page.width, title(page))

    return Panel(f"edge {name}", lambda page: int(page.boxed), draw)


def range_keys(page: Page) -> Footer:
    """Return the key that changes how much time the charts show, how much that is, and of how much
    the numbers beside them are means, where that is more."""
    span = span_in(page.view.timeline.span_seconds, (" s", " min", " h"))
    return (("[]", f"charts: {span}{means_in_words(page.view)}", "zoom(1)"),)


def means_in_words(view: View) -> str:
    """Return ``, numbers: 1 min`` where numbers are of another time than the charts beside them."""
    is_now, span = view.timeline.moment is None and view.mark is None, view.timeline.span_seconds
    differs = span < WINDOW_SECONDS or (view.means_of_look and span > WINDOW_SECONDS)
    return ", numbers: 1 min" if is_now and differs else ""


def chart_legend(page: Page, lead: int) -> str:
    """Return what charts behind ``lead`` cells show of a column, for the edge above them, where it
    is more than the height of its mean."""
    columns = max(1, page.width - lead - 2)
    marked = page.view.window.span_seconds / columns >= MARKED_SECONDS
    return "bar: mean, line: highest" if page.view.glyphs.tones and marked else ""


BOTTOM = edge_panel("bottom", lambda _: Title())


def edge(glyphs: Glyphs, width: int, title: Title) -> Drawn:
    """Return a line that bounds a box, without its corners."""
    row, zones = Row(width).add(glyphs.rule, EDGE), []
    note = f" {title.note} " if title.note else ""
    if title.text:
        name = fit(title.text, max(8, row.room - 4 - width_of(note)), glyphs.ellipsis)
        row.add(f" {name} ", "title")
        for text, style in title.said:
            row.add(f" {text} ", style)
        row.add(glyphs.rule, EDGE)
    for key, what, action in title.keys:
        if row.room < len(key) + len(what) + len(note) + 6:
            break
        start = row.used
        row.add(f" {key}", "key").add(f" {what} ", "label").add(glyphs.rule, EDGE)
        zones.append(Zone(0, start, row.used - 1, action))
    if row.room < width_of(note) + 1:
        note = ""
    if title.legend and row.room >= width_of(title.legend) + width_of(note) + 6:
        row.add(f" {title.legend} ", "label").add(glyphs.rule, EDGE)
    row.add(glyphs.rule * (row.room - width_of(note) - 1), EDGE).add(note, title.note_style)
    return [row.add(glyphs.rule, EDGE).line()], zones


def boxed(lines: Sequence[Line], glyphs: Glyphs) -> list[Line]:
    """Return ``lines`` two cells wider: those from the first edge to the last have sides."""
    edges = [y for y, line in enumerate(lines) if line[0][1] == EDGE]
    top, bottom = (edges[0], edges[-1]) if edges else (0, -1)
    out: list[Line] = []
    for y, line in enumerate(lines):
        if not top <= y <= bottom:
            out.append(((" ", line[0][1]), *line, (" ", line[-1][1])))
            continue
        place = 0 if y == top else 4 if y == bottom else 2
        corners = glyphs.corners[place : place + 2]
        # Of two columns one may have an edge where the other has text.
        sides = [
            (corner if run[1] == EDGE else glyphs.separator, EDGE)
            for corner, run in zip(corners, (line[0], line[-1]), strict=True)
        ]
        out.append((sides[0], *line, sides[1]))
    return out


def abreast(columns: Sequence[Sequence[Line]], widths: Sequence[int], gap: int) -> list[Line]:
    """Return lines in columns of these widths beside each other, ``gap`` cells between them."""
    lines = []
    for each in zip_longest(*columns):
        row, before = Row(sum(widths) + gap * (len(widths) - 1)), (" ", "text")
        for one, cells in zip(each, widths, strict=True):
            line = one or blank(cells)
            if row.used:
                # Edges beside each other are one.
                joined = before[1] == line[0][1] == EDGE
                row.add((before[0][-1] if joined else " ") * gap, EDGE if joined else "text")
            # Of two columns one may be a cell wider than what was drawn for it.
            short = cells - sum([width_of(text) for text, _ in line])
            line = (*line, *blank(short)) if short > 0 else line
            row.add_runs(line, cells)
            before = line[-1]
        lines.append(row.line())
    return lines


def in_columns(blocks: Sequence[Sequence[Line]], count: int, apart: int) -> list[list[Line]]:
    """Share out blocks, in their order, among at most ``count`` columns, so that the highest is
    low; in a column they are ``apart`` by so many empty lines."""
    between: list[Line] = [()] * apart
    cuts = [
        [blocks[start:stop] for start, stop in pairwise((0, *places, len(blocks)))]
        for places in combinations(range(1, len(blocks)), max(0, min(count, len(blocks)) - 1))
    ]
    columns = [[[*chain(*[[*between, *one] for one in column])] for column in cut] for cut in cuts]
    lowest = min(columns, key=lambda each: max(map(len, each)), default=[])
    return [column[apart:] for column in lowest]


def too_small(width: int, height: int, needed: str) -> Frame:
    text = f"gpuwatch needs {needed}"[: max(0, width)]
    return Frame(filled([((text.ljust(width), "warn"),)], width, height))


def filled(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Return ``lines`` with blank ones below them, ``height`` in all."""
    return [*lines, *[blank(width)] * (height - len(lines))][: max(0, height)]


def scrolled(offset: int, position: int | None, page: int, count: int) -> int:
    """Return ``offset`` into ``count`` rows brought into range, so that the row at ``position`` is
    among the ``page`` that are in sight."""
    if position is not None:
        offset = max(position - page + 1, min(offset, position))
    return max(0, min(offset, count - page))
