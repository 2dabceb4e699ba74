"""Samples a second over the number of workers, with error bars; drawn by plotext as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuwatch.outputs.terminal.painting import ASCII_FRAME

ROWS = 9
CELLS_MOST = 72


class Point(NamedTuple):
    workers: int
    rate: float
    low: float | None
    high: float | None


def chart(points: Sequence[Point], *, width: int, unicode: bool) -> list[str]:
    """Lines no wider than ``width``; the scale begins at zero. Needs two points or more."""
    import plotext  # noqa: PLC0415 - only who draws pays for it

    # plotext clips to the terminal it finds; the size of a chart is ours to say.
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    fastest = max(point.rate for point in points)
    # The bar of a setting that was hardly measured must not flatten all others.
    top = _round_up(min(1.5 * fastest, max(point.high or point.rate for point in points)))
    labels = [f"{top * share:,.0f}" for share in (0, 0.5, 1)]
    margin = max(len(label) for label in labels)
    cells = min(width, CELLS_MOST) - margin - 1
    figure.plot_size(cells + margin + 1, ROWS + 2)
    figure.axes(False, axis="x", side="upper")
    figure.axes(False, axis="y", side="right")
    points = sorted(points)
    # Every count gets the same room: 0, 1, 2, 4, 8 would crowd on a scale of their own.
    places = [number + 0.5 for number in range(len(points))]
    joined = figure.signal(places, [p.rate for p in points], marker="braille" if unicode else ".")
    figure.draw(joined.lines())
    for place, point in zip(places, points, strict=True):
        if point.low is not None and point.high is not None:
            high = min(point.high, top)
            steps = [point.low + (high - point.low) * n / 20 for n in range(21)]
            bar = figure.signal([place] * 21, steps, marker="│" if unicode else "|")
            figure.draw(bar)
    dots = figure.signal(places, [p.rate for p in points], marker="●" if unicode else "o")
    figure.draw(dots)
    y_ruler = figure.ruler("y", "left")
    y_ruler.lim(0, top)
    y_ruler.ticks([0, top / 2, top], [label.rjust(margin) for label in labels])
    x_ruler = figure.ruler("x")
    x_ruler.lim(0, len(points))
    x_ruler.ticks(places, [str(point.workers) for point in points])
    lines = figure.build().string(True).rstrip().split("\n")
    lines = [line.rstrip() for line in lines]
    return lines if unicode else [line.translate(ASCII_FRAME) for line in lines]


def _round_up(value: float) -> float:
    """To the next of 1, 1.5, 2, 3, 4, 5, 6, 8, 10 times a power of ten."""
    power = 1.0
    while value > 10 * power:
        power *= 10
    while value <= power:
        power /= 10
    return next((n * power for n in (1.5, 2, 3, 4, 5, 6, 8, 10) if n * power >= value), 10 * power)
