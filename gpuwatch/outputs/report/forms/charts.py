"""Charts of a report as plain text on one time axis.

The filled area is the mean, so that what is filled is the work done and what is empty was lost;
dots above it are the highest that was reached. Where nothing was measured nothing is drawn; a
measured zero is a line of dots on the ground. The scale is always 0 to 100%.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.outputs.report.parts import TimeProfile

LABEL_CELLS = 5
_LEVELS = "▁▂▃▄▅▆▇█"

_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Of a braille character: left and right, from below."""
_STEPS = (
    *(1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800),
    *(3600, 7200, 10800, 14400, 21600, 43200),
)
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
    return max(8, width - LABEL_CELLS - 1)


def chart(
    profile: TimeProfile, time: TimeAxis, *, width: int, rows: int, unicode: bool, time_labels: bool
) -> list[str]:
    """``rows`` lines of data and one or two of axis, none wider than ``width``."""
    cells = canvas_cells(width)
    # Braille has 2 x 4 dots a cell; 0 and 100% lie in the middle of the outer cells.
    across = 2 * cells - 1 if unicode else cells
    drawn = columns(profile, across)
    area = _braille(drawn, cells, rows) if unicode else _plain(drawn, rows)
    labels = [""] * rows
    labels[-1], labels[0] = "0%", "100%"
    lines = [
        f"{label:>{LABEL_CELLS}}{'┤' if label else '│'}{line}"
        for label, line in zip(labels, area, strict=True)
    ]
    axis, below = ["─"] * cells, [" "] * width
    per_second = (across - 1) / time.seconds if time.seconds > 0 else 0.0
    # About one every 12 cells; the text of the last would be cut off at the edge.
    marks = round_marks(time.start, time.seconds * (1 - 4 / cells), time.seconds * 12 / cells)[1]
    for moment in marks if time_labels and time.seconds > 0 else ():
        cell = int((moment - time.start) * per_second / (2 if unicode else 1) + 0.5)
        axis[cell] = "┬"
        text = _moment(moment)
        start = LABEL_CELLS + 1 + cell - (len(text) - 1) // 2
        below[start : start + len(text)] = text
    lines.append(f"{'':{LABEL_CELLS}}└{''.join(axis)}")
    lines += ["".join(below)] if time_labels else []
    return [line.rstrip() for line in lines]


def _heights(column: Column | None, up: int) -> tuple[int, list[int]]:
    """Of ``up`` dots, counted from the ground: how many are filled, and which are drawn."""
    if column is None:
        return 0, []
    top, highest = _level(column.mean, up), _level(column.highest, up)
    return top, [*range(top), *([highest - 1] if highest > top else [])]


def _braille(drawn: Sequence[Column | None], cells: int, rows: int) -> list[str]:
    bits = [[0] * cells for _ in range(rows)]
    for place, column in enumerate(drawn, 1):
        for height in _heights(column, 4 * rows - 3)[1]:
            row, dot = divmod(height + 2, 4)
            bits[-1 - row][place // 2] |= _DOTS[place % 2][dot]
    return ["".join([chr(0x2800 + one) if one else " " for one in row]) for row in bits]


def _plain(drawn: Sequence[Column | None], rows: int) -> list[str]:
    lines = [[" "] * len(drawn) for _ in range(rows)]
    for place, column in enumerate(drawn):
        top, drawn_at = _heights(column, rows)
        for height in drawn_at:
            lines[-1 - height][place] = "#" if height < top else "."
    return ["".join(line) for line in lines]


def _level(percent: float, up: int) -> int:
    """Of ``up`` dots; a measured zero is one dot."""
    return max(1, min(up, round(percent / 100.0 * up)))


def round_marks(start: float, seconds: float, least: float) -> tuple[int, list[float]]:
    """The shortest round step of at least so many seconds, and its multiples in a time."""
    step = next((one for one in _STEPS if one >= least), _DAY * -(-int(least) // _DAY))
    first = -(-start // step) * step
    count = int((start + seconds - first) // step) + 1
    return step, [first + number * step for number in range(count)]


def _moment(seconds: float) -> str:
    """``0s``, ``5m``, ``1h30``."""
    return units.age(seconds).removesuffix("00") if seconds >= 60 else units.age(seconds)


def strips(named: Sequence[tuple[str, TimeProfile]], width: int) -> Iterator[str]:
    """One line a profile, on the same columns as a chart of this width: its means."""
    for name, profile in named:
        cells = [
            " " if column is None else _LEVELS[_level(column.mean, len(_LEVELS)) - 1]
            for column in columns(profile, canvas_cells(width))
        ]
        yield f"{name[:LABEL_CELLS]:>{LABEL_CELLS}} {''.join(cells)}".rstrip()
