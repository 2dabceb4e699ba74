"""What the job prints, in a pane below it."""

from __future__ import annotations

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


def draw(view: View, width: int, height: int) -> list[Line]:
    """The title, which names the file, and the lines; ``height`` lines in all."""
    if height <= 0:
        return []
    output = view.job.output
    rows = height - 1
    total = 0 if output is None else output.total
    first = first_line(view, rows)
    lines = [_title(view, width, first, total, rows)]
    ellipsis = view.glyphs.ellipsis
    texts = output.lines(first, rows) if output is not None and rows > 0 else ()
    for text in texts:
        lines.append(Row(width).add(" ").add(fit(text, width - 2, ellipsis)).line())
    if total == 0 and rows > 0:
        lines.append(Row(width).add(" nothing printed yet", "dim").line())
    lines += [((" " * width, "text"),)] * (height - len(lines))
    return lines[:height]


def _title(view: View, width: int, first: int, total: int, rows: int) -> Line:
    state = view.job
    row = Row(width, prefix="b:")
    row.add(view.glyphs.marker if state.pane_focused else " ", "marker").add("OUTPUT", "label")
    below = max(0, total - first - rows)
    if state.pane_first is not None and below:
        note, style = f"{view.glyphs.down}{below} more, end follows", "warn"
    else:
        note, style = f"{total} line{'' if total == 1 else 's'}", "label"
    if state.output_name is not None:
        # Which file it is stands at the end of its path.
        room = row.room - len(note) - 4
        row.add("  ").add(fit_end(state.output_name, room, view.glyphs.ellipsis))
    if row.room >= len(note) + 2:
        row.pad_to(width - len(note) - 1).add(note, style)
    return row.line()
