"""Output of the job, in a pane below it."""

from gpuwatch.core import units
from gpuwatch.tui.pages.layout import Drawn, Page, Panel, filled
from gpuwatch.tui.terminal.frame import Line, Row, fit, fit_end
from gpuwatch.tui.view import View


def first_line(view: View, rows: int) -> int:
    """The number of the line at the pane's top: the end is followed unless it was scrolled."""
    output = view.job.output
    if output is None:
        return 0
    newest = max(output.first, output.total - rows)
    wanted = view.job.pane_first
    return newest if wanted is None else max(output.first, min(wanted, newest))


def _rows(page: Page) -> int:
    """With the title; 0: hidden."""
    pane, height = page.view.job.pane, page.height
    if page.view.job.output is None or pane == "hidden" or height < 10:
        return 0
    return max(4, height * 6 // 10) if pane == "large" else max(3, min(12, height // 4))


def _draw(page: Page, height: int) -> Drawn:
    view, width, rows = page.view, page.width, height - 1
    output = view.job.output
    total = 0 if output is None else output.total
    first = first_line(view, rows)
    lines = [_title(view, width, first, total, rows)]
    for text in output.lines(first, rows) if output is not None else ():
        lines.append(Row(width).add(" ").add(fit(text, width - 2, view.glyphs.ellipsis)).line())
    if total == 0:
        lines.append(Row(width).add(" nothing printed yet", "dim").line())
    return filled(lines, width, height), []


PANEL = Panel("output", _rows, _draw)


def _title(view: View, width: int, first: int, total: int, rows: int) -> Line:
    state = view.job
    row = Row(width, prefix="b:")
    row.add(view.glyphs.marker if state.pane_focused else " ", "marker").add("OUTPUT", "label")
    below = max(0, total - first - rows)
    if state.pane_first is not None and below:
        note, style = f"{view.glyphs.down}{below} more, end follows", "warn"
    else:
        note, style = units.plural(total, "line"), "label"
    if state.output_name is not None:
        # Which file it is stands at the end of its path.
        room = row.room - len(note) - 4
        row.add("  ").add(fit_end(state.output_name, room, view.glyphs.ellipsis))
    return row.note(note, style).line()
