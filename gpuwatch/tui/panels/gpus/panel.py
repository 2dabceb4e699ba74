"""The GPU half of the overview."""

from gpuwatch.tui.pages.grid import GpuStyle
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, scrolled
from gpuwatch.tui.panels.gpus.painter import GpuPainter
from gpuwatch.tui.terminal.frame import Line, Zone, spots

_BESIDE_CHARTS = {GpuStyle.STACKED: (1, 1), GpuStyle.WIDE: (0, 1), GpuStyle.SINGLE: (0, 0)}
"""Lines of a GPU above and below those with a chart."""


def _draw(page: Page, _rows_given: int) -> Drawn:
    view, shares = page.view, page.grid
    count = len(page.gpus)
    first = scrolled(view.gpu_offset, view.gpu_position(), shares.shown, count)
    view.gpu_offset = first
    shown = page.gpus[first : first + shares.shown]
    note = _hidden(page, first, count - first - len(shown))
    # All rows give way to the note, so that their charts stay under each other.
    painter = GpuPainter(view, page.gpus, page.width - len(note), marked=True)
    lines: list[Line] = []
    zones: list[Zone] = []
    for gpu in shown:
        drawn = painter.draw(gpu, shares.style, shares.each)
        places = range(len(lines), len(lines) + len(drawn))
        zones += [Zone(y, 0, page.width, "gpu", gpu.uuid) for y in places]
        above, below = _BESIDE_CHARTS[shares.style]
        for span in painter.spans:
            zones += spots(len(lines) + above, len(drawn) - above - below, *span)
        lines += drawn
    if note:
        blanks = ((" " * len(note), "text"),)
        lines = [line + blanks for line in lines[:-1]] + [(*lines[-1], (note, "warn"))]
    page.spans = painter.spans
    if painter.spans:
        view.chart_columns = max(width for _, width in painter.spans)
    return lines, zones


PANEL = Panel("gpus", lambda page: page.grid.shown * page.grid.each, _draw)


def _hidden(page: Page, above: int, below: int) -> str:
    """How many GPUs are scrolled out of sight, or nothing."""
    glyphs = page.view.glyphs
    parts = [f" {glyphs.up}{above}"] if above else []
    if below:
        parts.append(f" {glyphs.down}{below}")
    return "".join(parts) + " GPUs" * (page.width >= 60) if parts else ""
