"""The GPU half of the overview."""

from dataclasses import dataclass

from gpuwatch.tui.pages.layout import Drawn, Page, Panel, scrolled
from gpuwatch.tui.panels.gpus.painter import GpuPainter, GpuStyle
from gpuwatch.tui.terminal.frame import Line, Zone
from gpuwatch.tui.view import View

MOST_ROWS_A_GPU = 22
_MOST_ROWS = {GpuStyle.STACKED: MOST_ROWS_A_GPU, GpuStyle.WIDE: 7}


@dataclass(slots=True)
class GpuRows:
    """How the GPUs of the overview share its rows."""

    style: GpuStyle
    shown: int
    each: int
    """Rows of one GPU."""


def _rows(page: Page) -> int:
    """At first a style for which there is room and as many GPUs as fit; asked again, the charts
    of the two largest styles grow."""
    shares: GpuRows | None = page.decided.get("gpus")
    if shares is None:
        count = len(page.gpus)
        style = next((s for s in GpuStyle if _has_room(page, s, count)), GpuStyle.SINGLE)
        most = (page.room - page.table_least) // style.rows
        shares = page.decided["gpus"] = GpuRows(style, max(1, min(count, most)), style.rows)
    elif shares.style in _MOST_ROWS:
        more = max(0, page.spare) // shares.shown
        shares.each = min(shares.each + more, _MOST_ROWS[shares.style])
    return shares.shown * shares.each


def _has_room(page: Page, style: GpuStyle, count: int) -> bool:
    roomy = style.rows > 2 and page.height >= 16
    kept = page.table_wanted if roomy else page.table_least
    return page.width >= style.least_width and style.rows * count <= page.room - kept


def _draw(page: Page, _rows_given: int) -> Drawn:
    """The GPUs in view."""
    view, shares = page.view, page.decided["gpus"]
    count = len(page.gpus)
    first = scrolled(view.gpu_offset, view.gpu_position(), shares.shown, count)
    view.gpu_offset = first
    shown = page.gpus[first : first + shares.shown]
    note = _hidden(view, first, count - first - len(shown))
    # All rows give way to the note, so that their charts stay under each other.
    painter = GpuPainter(view, page.gpus, page.width - len(note), marked=True)
    lines: list[Line] = []
    zones: list[Zone] = []
    for gpu in shown:
        drawn = painter.draw(gpu, shares.style, shares.each)
        places = range(len(lines), len(lines) + len(drawn))
        zones += [Zone(y, 0, page.width, "gpu", gpu.uuid) for y in places]
        lines += drawn
    if note:
        blanks = ((" " * len(note), "text"),)
        lines = [line + blanks for line in lines[:-1]] + [(*lines[-1], (note, "warn"))]
    page.spans = painter.spans
    if painter.spans:
        view.chart_columns = max(width for _, width in painter.spans)
    return lines, zones


PANEL = Panel("gpus", _rows, _draw)


def _hidden(view: View, above: int, below: int) -> str:
    """How many GPUs are scrolled out of sight, or nothing."""
    glyphs = view.glyphs
    parts = [f" {glyphs.up}{above}"] if above else []
    if below:
        parts.append(f" {glyphs.down}{below}")
    return "".join(parts) + " GPUs" if parts else ""
