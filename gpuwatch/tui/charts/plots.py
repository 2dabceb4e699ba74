"""Large charts with axes, drawn by plotext. Imported only when a detail screen opens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import plotext

from gpuwatch.core.history import Series
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.charts.strips import Grid, TimeWindow
from gpuwatch.tui.charts.timeline import FindingMark
from gpuwatch.tui.terminal.frame import Line, Run

# What plotext draws frames with, and what stands for it where only ASCII can be shown.
_FRAME = "┌┐└┘├┤┬┴┼─│"
_ASCII_FRAME = str.maketrans(_FRAME, "+++++|+++-|")

# plotext clips to the terminal it finds; the size of a chart is ours to say.
plotext.terminal.limit(False, False)


Segment = tuple[tuple[float, ...], tuple[float, ...]]
"""Moments and values of a line without a gap."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One line of a chart and its style."""

    series: Series | None
    style: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A fixed scale: from 0 to ``limit``, in steps of ``limit / parts``, written by ``scale``."""

    limit: float
    unit: str = "%"
    scale: float = 1.0
    """One unit of the label, in the unit of the series."""


def draw(
    trace: Trace,
    window: TimeWindow,
    wall_offset: float,
    axis: Axis,
    width: int,
    height: int,
    glyphs: Glyphs,
    marks: Sequence[FindingMark] = (),
) -> list[Line]:
    """``height`` lines of ``width`` cells. ``wall_offset``: unix time less the history's clock;
    ``marks`` are put on the frame's lower side."""
    canvas = canvas_cells(width)
    grid = window.grid(canvas)
    begin, end = grid.begin_seconds, grid.end_seconds
    ticks = time_axis.ticks(
        begin + wall_offset, end + wall_offset, canvas, window.now + wall_offset
    )
    text = _text(
        tuple(_segments(trace.series, grid)),
        (begin, end),
        tuple((moment - wall_offset, label) for moment, label in ticks),
        axis,
        width,
        height,
        "*" if glyphs.name == "ascii" else "braille",
    )
    over = time_axis.mark_cells(marks, window, canvas, glyphs)
    cursor = -1 if window.cursor is None else grid.place(window.cursor)
    return [_line(one, width, trace.style, glyphs, over, cursor) for one in text]


# plotext takes milliseconds a chart. Most are the same when a key is pressed, and those of a long
# range for many seconds.
@lru_cache(maxsize=16)
def _text(
    segments: tuple[Segment, ...],
    span: tuple[float, float],
    ticks: tuple[tuple[float, str], ...],
    axis: Axis,
    width: int,
    height: int,
    marker: str,
) -> tuple[str, ...]:
    """Drawing of plotext, ``height`` lines. ``span``: the moments at both ends of the canvas."""
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    for xs, ys in segments:
        signal = figure.signal(list(xs), [y / axis.scale for y in ys], marker=marker)
        signal.lines()
        figure.draw(signal)
    top = axis.limit / axis.scale
    if not segments:
        # plotext needs a point to draw a frame around; this one is outside it.
        figure.draw(figure.signal([span[0] - 1.0], [-top], marker=" "))
    values = [top * part / 4 for part in range(5)] if height >= 9 else [0.0, top / 2, top]
    y_ruler = figure.ruler("y", "left")
    y_ruler.lim(0, top)
    y_ruler.ticks(values, [f"{_number(value)}{axis.unit}".rjust(5) for value in values])
    x_ruler = figure.ruler("x")
    x_ruler.lim(*span)
    x_ruler.ticks([moment for moment, _ in ticks], [label for _, label in ticks])
    lines = figure.build().string(True).split("\n")[:height]
    return (*lines, *[""] * (height - len(lines)))


def canvas_cells(width: int) -> int:
    """Columns of a chart ``width`` cells wide: without the frame (two) and the labels (six)."""
    return max(4, width - 8)


def _segments(series: Series | None, grid: Grid) -> Iterator[Segment]:
    """Points of each stretch without a gap: the minimum and the maximum of every column, the one
    nearer to the point before first, so that the line does not cross the band twice. Where the
    line stays level, its two ends."""
    if series is None:
        return
    width = grid.column_seconds
    columns = series.columns(grid.moment, width, grid.count)
    xs: list[float] = []
    ys: list[float] = []
    first = grid.last - len(columns) + 1
    for position, column in enumerate(columns):
        if column is None:
            if xs:
                yield tuple(xs), tuple(ys)
                xs, ys = [], []
            continue
        moment = (first + position + 0.5) * width
        low, high = column[0], column[2]
        pair = (low, high) if not ys or abs(ys[-1] - low) <= abs(ys[-1] - high) else (high, low)
        for offset, value in zip((-0.25, 0.25), pair, strict=True):
            if len(ys) > 1 and ys[-1] == ys[-2] == value:
                xs[-1] = moment + offset * width
                continue
            xs.append(moment + offset * width)
            ys.append(value)
    if xs:
        yield tuple(xs), tuple(ys)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _line(
    text: str,
    width: int,
    style: str,
    glyphs: Glyphs,
    over: Sequence[Run | None],
    cursor: int,
) -> Line:
    """The frame and its labels quiet, the data in its own colour; the findings ``over`` the frame's
    lower side, the cursor over its column of the canvas."""
    plain = glyphs.name == "ascii"
    cells: list[Run] = []
    inside = False
    for character in text[:width]:
        # The data lies between the first frame character and the last.
        inside = inside or character in _FRAME
        is_data = inside and (character == "*" or "\u2800" <= character <= "\u28ff")
        shown = character.translate(_ASCII_FRAME) if plain else character
        cells.append((shown, style if is_data else "dim"))
    corner = text.find("└") + 1
    for place, cell in enumerate(over[: len(cells) - corner] if corner else ()):
        if cell is not None:
            cells[corner + place] = cell
    edges = [text.find(one) for one in "┤│└┌├" if one in text]
    place = min(edges, default=width) + 1 + cursor
    if 0 <= cursor < len(over) and place < len(cells):
        cells[place] = (cells[place][0], f"c:{cells[place][1]}")
    return (*time_axis.joined(cells), (" " * (width - len(cells)), "text"))
