"""The rows of the overview, by the terminal's size and the number of GPUs alone.

Nothing moves when processes come and go or something is found: each part has its rows whether or
not it has anything to say. What the GPUs do comes first, then the table, then the rest: where the
rows do not suffice for a line of every GPU, the boxes go, then the host's charts, then rows of the
table, then the time axis.
"""

from enum import Enum
from functools import lru_cache
from typing import NamedTuple


class GpuStyle(Enum):
    """How one GPU is drawn; the value is its least rows and least width."""

    STACKED = (6, 60)
    """A heading, a tall busy chart, the power's chart, and gauges of memory and temperature."""
    WIDE = (2, 30)
    """The busy chart over the full width, and a line with the rest below it."""
    SINGLE = (1, 0)
    """One line: the busy chart, and what numbers it leaves room for."""

    @property
    def rows(self) -> int:
        return self.value[0]

    @property
    def least_width(self) -> int:
        return self.value[1]


MOST_ROWS_A_GPU = {GpuStyle.STACKED: 22, GpuStyle.WIDE: 5, GpuStyle.SINGLE: 1}


class Grid(NamedTuple):
    """How many rows each part has; header and footer have one each, the table what is left."""

    style: GpuStyle
    shown: int
    """GPUs in sight."""
    each: int
    """Rows of one GPU."""
    host: int
    axis: int
    edges: int
    """Lines around the parts: above each of four, and below the last."""


def band_rows(height: int, gpus: int) -> int:
    """Rows below the header for what is wrong; that there is no GPU is said at length."""
    if not gpus:
        return 0 if height < 5 else 2 if height < 16 else 3
    return 0 if height < 9 else 1 if height < 16 else 2 if height < 40 else 3


def has_boxes(width: int, height: int) -> bool:
    """There is room for edges around the parts of a page."""
    return width >= 60 and height >= 30


@lru_cache(maxsize=8)
def grid(width: int, height: int, gpus: int) -> Grid:
    """The grid for so many GPUs, at least one."""
    charts = 3 if height >= 24 and width >= 76 else 1
    axis, edges = int(height >= 20), 5 if has_boxes(width, height) else 0
    table, least = max(4, height // 4), 3 if height >= 14 else 2 if height >= 10 else 1
    for host, above, between, kept in (
        (charts, axis, edges, table),
        (charts, axis, 0, table),
        (1, axis, 0, table),
        (1, axis, 0, least),
        (1, 0, 0, least),
    ):
        room = height - 2 - band_rows(height, gpus) - host - above - between - kept
        if room >= gpus:
            break
    shown = max(1, min(gpus, room))
    each = max(1, room // shown)
    style = next(one for one in GpuStyle if one.rows <= each and one.least_width <= width)
    return Grid(style, shown, min(each, MOST_ROWS_A_GPU[style]), host, above, between)
