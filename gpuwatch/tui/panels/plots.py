"""Large charts with axes, drawn by plotext. Imported only when a detail screen opens."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import plotext

from gpuwatch.history import Series
from gpuwatch.tui.charts import TimeWindow
from gpuwatch.tui.frame import Line, Row
from gpuwatch.tui.glyphs import Glyphs

# What plotext draws frames with, and what stands for it where only ASCII can be shown.
_FRAME = "┌┐└┘├┤┬┴┼─│"
_ASCII_FRAME = str.maketrans(_FRAME, "+++++|+++-|")

# plotext clips to the terminal it finds; the size of a chart is ours to say.
plotext.terminal.limit(False, False)


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
    """What one unit of the label is, in the unit of the series."""


def draw(
    trace: Trace,
    window: TimeWindow,
    wall_offset: float,
    axis: Axis,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[Line]:
    """``height`` lines of ``width`` cells. ``wall_offset``: unix time less the history's clock."""
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    # Two cells for the frame, six for the labels; braille has two dots a cell.
    canvas = max(4, width - 8)
    fine = TimeWindow(window.now, window.column_seconds, window.step_columns)
    end = (fine.end_bucket() + 1) * fine.column_seconds
    start = end - canvas * fine.column_seconds
    marker = "*" if glyphs.name == "ascii" else "braille"
    drew = False
    for xs, ys in _segments(trace.series, window, start, canvas):
        signal = figure.signal(xs, [y / axis.scale for y in ys], marker=marker)
        signal.lines()
        figure.draw(signal)
        drew = True
    top = axis.limit / axis.scale
    if not drew:
        # plotext needs a point to draw a frame around; this one is outside it.
        figure.draw(figure.signal([start - 1.0], [-top], marker=" "))
    values = [top * part / 4 for part in range(5)] if height >= 9 else [0.0, top / 2, top]
    y_ruler = figure.ruler("y", "left")
    y_ruler.lim(0, top)
    y_ruler.ticks(values, [f"{_number(value)}{axis.unit}".rjust(5) for value in values])
    x_ruler = figure.ruler("x")
    x_ruler.lim(start, end)
    moments = _marks(start, end, wall_offset, canvas)
    x_ruler.ticks(
        [moment - wall_offset for moment in moments],
        [time.strftime("%H:%M:%S", time.localtime(moment)) for moment in moments],
    )
    text = figure.build().string(True)
    return [_style(line, width, trace.style, glyphs) for line in _padded(text, height)]


def _segments(
    series: Series | None, window: TimeWindow, start: float, canvas: int
) -> Iterable[tuple[list[float], list[float]]]:
    """Points of each stretch without a gap: the minimum and the maximum of every column, the one
    nearer to the point before first, so that the line does not cross the band twice."""
    if series is None:
        return
    last = window.last_bucket()
    count = last - int(start / window.column_seconds + 0.5) + 1
    if count <= 0:
        return
    width = window.column_seconds
    columns = series.columns((last + 0.5) * width, width, min(count, canvas))
    xs: list[float] = []
    ys: list[float] = []
    first = last - len(columns) + 1
    for position, column in enumerate(columns):
        if column is None:
            if xs:
                yield xs, ys
                xs, ys = [], []
            continue
        moment = (first + position + 0.5) * width
        low, high = column[0], column[2]
        pair = (low, high) if not ys or abs(ys[-1] - low) <= abs(ys[-1] - high) else (high, low)
        for offset, value in zip((-0.25, 0.25), pair, strict=True):
            xs.append(moment + offset * width)
            ys.append(value)
    if xs:
        yield xs, ys


def _marks(start: float, end: float, wall_offset: float, canvas: int) -> list[float]:
    """Round wall-clock moments within the chart, about one every 16 cells."""
    least = (end - start) * 16 / canvas
    spacing = next((s for s in (5, 10, 15, 20, 30, 60, 120, 300, 600, 1800) if s >= least), 3600)
    first = ceil((start + wall_offset) / spacing) * spacing
    return [
        float(first + number * spacing)
        for number in range(100)
        if first + number * spacing <= end + wall_offset
    ]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _padded(text: str, height: int) -> Sequence[str]:
    lines = text.split("\n")[:height]
    return lines + [""] * (height - len(lines))


def _style(line: str, width: int, style: str, glyphs: Glyphs) -> Line:
    """The frame and its labels quiet, the data in its own colour."""
    row = Row(width)
    run, data = "", False
    inside = False
    for character in line:
        if character in _FRAME:
            # The data lies between the first frame character and the last.
            inside = True
            is_data = False
        else:
            is_data = inside and (character == "*" or "\u2800" <= character <= "\u28ff")
        if is_data != data and run:
            row.add(run, style if data else "dim")
            run = ""
        data = is_data
        run += character.translate(_ASCII_FRAME) if glyphs.name == "ascii" else character
    row.add(run, style if data else "dim")
    return row.line()
