"""Charts of a report, drawn by plotext as plain text on one time axis.

The filled area is the mean, so that what is filled is the work done and what is empty was lost;
dots above it are the highest that was reached. Where nothing was measured nothing is drawn; a
measured zero is a line of dots on the ground. The scale is always 0 to 100%.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.outputs.report.parts import TimeProfile
from gpuwatch.outputs.terminal.painting import ASCII_FRAME

LABEL_CELLS = 5
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = "_.:-=+*#"

_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14400, 21600)
_DAY = 86400


class Column(NamedTuple):
    """The values of one column; ``None`` in a list of columns is a gap."""

    mean: float
    highest: float


class TimeAxis(NamedTuple):
    """The time charts span: seconds since the job's start."""

    start: float
    seconds: float


def columns(profile: TimeProfile, count: int) -> list[Column | None]:
    """The profile in ``count`` columns, however many buckets it has."""
    buckets = len(profile.mean)
    if not buckets:
        return [None] * count
    out: list[Column | None] = []
    for place in range(count):
        first = place * buckets // count
        last = max(first + 1, -(-(place + 1) * buckets // count))
        means = _known(profile.mean[first:last])
        highest = _known(profile.maximum[first:last])
        out.append(Column(sum(means) / len(means), max(highest)) if means and highest else None)
    return out


def stretched(profile: TimeProfile, lead: int, buckets: int) -> TimeProfile:
    """``profile`` after a gap of ``lead`` buckets, and with one at its end up to ``buckets``."""
    before, after = (None,) * lead, (None,) * (buckets - len(profile.mean))
    series = (profile.minimum, profile.mean, profile.maximum)
    minimum, mean, maximum = ((*before, *values, *after) for values in series)
    return TimeProfile(minimum=minimum, mean=mean, maximum=maximum)


def together(profiles: Sequence[TimeProfile]) -> TimeProfile:
    """The mean over several profiles, with the lowest and highest of any."""
    lows, means, highs = (
        [_known(values) for values in zip_longest(*series)]
        for series in zip(*[(one.minimum, one.mean, one.maximum) for one in profiles], strict=True)
    )
    return TimeProfile(
        minimum=tuple([min(values, default=None) for values in lows]),
        mean=tuple([sum(values) / len(values) if values else None for values in means]),
        maximum=tuple([max(values, default=None) for values in highs]),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def canvas_cells(width: int) -> int:
    """Cells of ``width`` that are left for the data."""
    return max(8, width - LABEL_CELLS - 1)


def chart(
    profile: TimeProfile, time: TimeAxis, *, width: int, rows: int, unicode: bool, time_labels: bool
) -> list[str]:
    """``rows`` lines of data and one or two of axis, none wider than ``width``."""
    import plotext  # noqa: PLC0415 - only a report with a chart pays for it

    # plotext clips to the terminal it finds; the size of a chart is ours to say.
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.plot_size(canvas_cells(width) + LABEL_CELLS + 1, rows + 1 + time_labels)
    figure.axes(False, axis="x", side="upper")
    figure.axes(False, axis="y", side="right")
    cells = canvas_cells(width)
    # Braille has 2 x 4 dots a cell; the limits of a ruler lie in the middle of the outer cells.
    across, up = (2 * cells - 1, 4 * rows - 3) if unicode else (cells, rows)
    tops, peaks = _dots(columns(profile, across), up)
    for dots, marker, fill in ((tops, "#", True), (peaks, ".", False)):
        # plotext needs a point to draw a frame around; this one is outside it.
        xs, ys = zip(*dots or [(-9.0 * across, -9.0 * up)], strict=True)
        signal = figure.signal(list(xs), list(ys), marker="braille" if unicode else marker)
        signal.fillx(fill and bool(dots))
        figure.draw(signal)
    y_ruler = figure.ruler("y", "left")
    y_ruler.lim(0, up - 1)
    y_ruler.ticks([0, up - 1], ["0%".rjust(LABEL_CELLS), "100%".rjust(LABEL_CELLS)])
    x_ruler = figure.ruler("x")
    x_ruler.lim(0, across - 1)
    marks = _marks(time, cells) if time_labels else []
    per_second = (across - 1) / time.seconds if time.seconds > 0 else 0.0
    x_ruler.ticks(
        [(moment - time.start) * per_second for moment in marks],
        [_moment(moment) for moment in marks],
    )
    text = figure.build().string(True)
    lines = [line.rstrip() for line in text.split("\n")][: rows + 1 + time_labels]
    return lines if unicode else [line.translate(ASCII_FRAME) for line in lines]


def _dots(
    drawn: Sequence[Column | None], up: int
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The top dots of the filled area, and those of the peaks above it."""
    tops: list[tuple[float, float]] = []
    peaks: list[tuple[float, float]] = []
    for place, column in enumerate(drawn):
        if column is None:
            continue
        # plotext cuts positions to whole dots: the middle of a dot stays in it.
        x = place + 0.4
        top = _level(column.mean, up)
        highest = _level(column.highest, up)
        tops.append((x, top - 0.6))
        if highest > top:
            peaks.append((x, highest - 0.6))
    return tops, peaks


def _level(percent: float, up: int) -> int:
    """Of ``up`` dots; a measured zero is one dot."""
    return max(1, min(up, round(percent / 100.0 * up)))


def _marks(time: TimeAxis, cells: int) -> list[float]:
    """Round moments within the chart, about one every 12 cells."""
    least = time.seconds * 12 / cells
    step = next((s for s in _STEPS if s >= least), None)
    if step is None:
        step = _DAY * -(-int(least) // _DAY)
    first = -(-int(time.start) // step) * step
    count = int(max(0.0, time.start + time.seconds - first) // step) + 1
    # The last label would be cut off at the edge.
    end = time.start + time.seconds * (1 - 4 / cells)
    return [
        float(moment)
        for moment in range(first, first + count * step, step)
        if time.start <= moment <= end
    ]


def _moment(seconds: float) -> str:
    """``0s``, ``5m``, ``1h30``."""
    return units.age(seconds).removesuffix("00") if seconds >= 60 else units.age(seconds)


def strips(named: Sequence[tuple[str, TimeProfile]], *, width: int, unicode: bool) -> Iterator[str]:
    """One line a profile, on the same columns as a chart of this width: its means."""
    levels = _LEVELS if unicode else _ASCII_LEVELS
    for name, profile in named:
        cells = [
            " " if column is None else levels[_level(column.mean, len(levels)) - 1]
            for column in columns(profile, canvas_cells(width))
        ]
        yield f"{name[:LABEL_CELLS]:>{LABEL_CELLS}} {''.join(cells)}".rstrip()
