"""Charts of a report as plain text on one time axis.

The filled area is the mean, so that what is filled is the work done and what is empty was lost;
a dot above it is the highest that was reached. Where nothing was measured nothing is drawn; a
measured zero is a line on the ground. The scale is always 0 to 100%.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.outputs.report.parts import TimeProfile

LABEL_CELLS = 5
_LEVELS = "▁▂▃▄▅▆▇█"


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
    profile: TimeProfile, time: TimeAxis, *, width: int, rows: int, time_labels: bool
) -> list[str]:
    """``rows`` lines of data and one or two of axis, none wider than ``width``."""
    cells = canvas_cells(width)
    area = [[" "] * cells for _ in range(rows)]
    for place, column in enumerate(columns(profile, cells)):
        if column is None:
            continue
        eighths = _level(column.mean, 8 * rows)
        for row in range(-(-eighths // 8)):
            area[-1 - row][place] = _LEVELS[min(7, eighths - 8 * row - 1)]
        highest = (_level(column.highest, 8 * rows) - 1) // 8
        if area[-1 - highest][place] == " ":
            area[-1 - highest][place] = "·"
    labels = [""] * rows
    labels[-1], labels[0] = "0%", "100%"
    lines = [
        f"{label:>{LABEL_CELLS}}{'┤' if label else '│'}{''.join(line)}"
        for label, line in zip(labels, area, strict=True)
    ]
    axis, below = ["─"] * cells, [" "] * width
    # About one every 12 cells; the text of the last would be cut off at the edge.
    marks = units.round_marks(
        time.start, time.seconds * (1 - 4 / cells), time.seconds * 12 / cells
    )[1]
    for moment in marks if time_labels and time.seconds > 0 else ():
        cell = int((moment - time.start) / time.seconds * (cells - 1) + 0.5)
        axis[cell] = "┬"
        text = _moment(moment)
        start = LABEL_CELLS + 1 + cell - (len(text) - 1) // 2
        below[start : start + len(text)] = text
    lines.append(f"{'':{LABEL_CELLS}}└{''.join(axis)}")
    lines += ["".join(below)] if time_labels else []
    return [line.rstrip() for line in lines]


def _level(percent: float, up: int) -> int:
    """Of ``up`` steps; a measured zero is one."""
    return max(1, min(up, round(percent / 100.0 * up)))


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
