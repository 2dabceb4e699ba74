"""Charts of what was measured, drawn by plotext as text."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gpuwatch.core.units import size
from gpuwatch.tuning.memory import LineFit, MemoryPoint

RATE_ROWS = 9
RATE_CELLS_MOST = 72
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
Places = Iterable[tuple[float, float]]


class Point(NamedTuple):
    """Samples a second with so many workers, with an error bar."""

    workers: int
    rate: float
    low: float | None
    high: float | None


class _Figure:
    """A chart of ``width`` x ``height`` cells; in ASCII where ``unicode`` is false."""

    def __init__(self, width: int, height: int, *, unicode: bool) -> None:
        import plotext  # noqa: PLC0415 - only who draws pays for it

        # plotext clips to the terminal it finds; the size of a chart is ours to say.
        plotext.terminal.limit(False, False)
        self._figure: Any = plotext.figure
        self._figure.clear()
        self._figure.plot_size(width, height)
        self._unicode = unicode

    def open_frame(self) -> None:
        self._figure.axes(False, axis="x", side="upper")
        self._figure.axes(False, axis="y", side="right")

    def draw(self, places: Places, marker: str, plain: str, *, line: bool = False) -> None:
        """Marks, or the ``line`` through them; ``plain``: the marker in ASCII."""
        xs, ys = zip(*places, strict=True)
        marker = marker if self._unicode else plain
        signal = self._figure.signal([float(x) for x in xs], list(ys), marker=marker)
        if line:
            signal.lines()
        self._figure.draw(signal)

    def upwards(self, top: float, says: Callable[[float], str]) -> None:
        """The scale from 0 to ``top``, with a few round numbers."""
        marks = _ticks(top, 4)
        labels = [says(mark) for mark in marks]
        margin = max(map(len, labels))
        ruler = self._figure.ruler("y", "left")
        ruler.lim(0, top * 1.02)
        ruler.ticks(marks, [label.rjust(margin) for label in labels])

    def across(self, top: float, ticks: Sequence[float], labels: Sequence[str]) -> None:
        ruler = self._figure.ruler("x")
        ruler.lim(0, top)
        ruler.ticks(list(ticks), list(labels))

    def lines(self) -> list[str]:
        drawn = self._figure.build().string(True).rstrip().split("\n")
        return [line.rstrip() for line in drawn]


def rate_chart(points: Sequence[Point], *, width: int, unicode: bool) -> list[str]:
    """Samples a second over the number of workers, in lines no wider than ``width``; the scale
    begins at zero. Needs two points or more."""
    fastest = max(point.rate for point in points)
    # The bar of a setting that was hardly measured must not flatten all others.
    top = min(1.5 * fastest, max(point.high or point.rate for point in points))
    figure = _Figure(min(width, RATE_CELLS_MOST), RATE_ROWS + 2, unicode=unicode)
    figure.open_frame()
    points = sorted(points)
    # Every count gets the same room: 0, 1, 2, 4, 8 would crowd on a scale of their own.
    places = [(number + 0.5, point.rate) for number, point in enumerate(points)]
    figure.draw(places, "braille", ".", line=True)
    for (place, _), point in zip(places, points, strict=True):
        if point.low is not None and point.high is not None:
            rise = (min(point.high, top) - point.low) / 20
            figure.draw([(place, point.low + rise * n) for n in range(21)], "│", "|")
    figure.draw(places, "●", "o")
    figure.upwards(top, lambda rate: f"{rate:,g}")
    counts = [str(point.workers) for point in points]
    figure.across(len(points), [place for place, _ in places], counts)
    return figure.lines()


def memory_chart(
    points: Sequence[MemoryPoint], fit: LineFit, *, width: int, height: int, unicode: bool
) -> list[str]:
    """Lines no wider than ``width``: points are ``●``, the line dotted; the rule across is what
    could be had. The axes begin at 0."""
    available = points[-1].available_bytes
    right = max(point.batch_size for point in points)
    highest = max(*(point.peak_bytes for point in points), fit.at(right))
    # A limit far above would press everything else onto the axis.
    shows_limit = available < 4 * highest
    top = max(highest, available) if shows_limit else highest
    scale = 1.0
    while top / scale >= 1024:
        scale *= 1024
    figure = _Figure(width, height, unicode=unicode)
    line = [(0.0, fit.at(0)), (float(right), fit.at(right))]
    figure.draw([(x, y / scale) for x, y in line], "braille", ".", line=True)
    if shows_limit:
        rule = [(0.0, available / scale), (float(right), available / scale)]
        figure.draw(rule, "─", "-", line=True)
    figure.draw([(one.batch_size, one.peak_bytes / scale) for one in points], "●", "o")
    figure.upwards(top / scale, lambda mark: size(mark * scale))
    across = _ticks(right, max(2, width // 16))
    figure.across(right, across, [f"{mark:.0f}" for mark in across])
    return figure.lines()


def _ticks(top: float, count: int) -> list[float]:
    """About ``count`` round numbers from 0 to ``top``."""
    least = top / max(count, 1)
    power = 1.0
    while power * 10 <= least:
        power *= 10
    while power > least:
        power /= 10
    step = next(power * one for one in _STEPS if power * one >= least)
    return [number * step for number in range(int(top / step + 1e-9) + 1)]
