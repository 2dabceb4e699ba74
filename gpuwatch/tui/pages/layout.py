"""How the rows of a screen are shared out, from 40x12 up to as large as it gets.

What matters most gets its rows first: a row a GPU, a row for the host, a few processes. Then
the GPUs grow step by step (``GpuStyle``), then the host, then the charts' height.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class GpuStyle(Enum):
    """How one GPU is drawn; the value is its least rows and least width."""

    STACKED = (5, 40)
    """A heading and a full-width chart each for busy, memory, power, temperature."""
    PAIRED = (3, 76)
    """A heading and two lines of two charts."""
    SIDE = (2, 110)
    """Facts on the left, two lines of two charts on the right."""
    DOUBLE = (2, 50)
    """The busy chart over the full width, the rest below it."""
    SINGLE = (1, 0)
    """One line: numbers, and as many charts as fit."""

    @property
    def rows(self) -> int:
        return self.value[0]

    @property
    def least_width(self) -> int:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows of each part, top to bottom; the header and the footer are one row each."""

    width: int
    height: int
    finding_rows: int
    """Reserved; those that are not used go to the table."""
    problem_rows: int
    gpu_style: GpuStyle
    gpu_rows_each: int
    gpus_shown: int
    axis: bool
    moment: bool
    """The values of a moment of the past, below the axis."""
    host_rows: int
    table_rows: int
    """With its heading."""
    rules: bool
    """A thin line between the parts."""

    @property
    def gpu_rows(self) -> int:
        return self.gpu_rows_each * self.gpus_shown


MOST_ROWS_A_GPU = 22


def most_problem_rows(height: int, gpus: int) -> int:
    """How many lines problems may take: more where there is no GPU to show instead."""
    if gpus == 0:
        return 0 if height < 5 else 2 if height < 16 else 3
    return 0 if height < 7 else 1 if height < 24 else 2


def plan(
    width: int,
    height: int,
    *,
    gpus: int,
    processes: int,
    problems: int,
    cores: int,
    findings: int = 0,
    moment: bool = False,
) -> Plan:
    """Share out ``height`` rows. Always leaves at least one GPU row (if there is a GPU), one host
    row and, from about 9 rows up, a table."""
    if gpus == 0:
        return _without_gpus(width, height, problems, cores, findings, moment)
    problem_rows = min(problems, most_problem_rows(height, gpus))
    host_rows = 1
    room = height - 2 - problem_rows - host_rows - findings
    table_least = 2 if height < 11 else 4 if height < 20 else 5 if height < 28 else 6
    if findings and height >= 20:
        # What is wrong is worth more than the last process in sight.
        table_least -= 1
    table_least = min(table_least, max(0, room - 1))
    table_wanted = max(table_least, min(processes + 3, height * 2 // 5 if height >= 30 else 8))

    gpu_room = room - table_least
    style = GpuStyle.SINGLE
    for candidate in GpuStyle:
        spare = table_wanted if candidate.rows > 2 and height >= 16 else table_least
        if width >= candidate.least_width and candidate.rows * gpus <= room - spare:
            style = candidate
            break
    shown = max(1, min(gpus, gpu_room // style.rows))
    each = style.rows
    room -= shown * each
    rules = height >= 30
    if rules and room - 2 >= table_wanted:
        room -= 2
    else:
        rules = False
    grown = min(3, 1 + max(0, room - table_wanted)) if width >= 76 else 1
    host_rows, room = grown, room - (grown - 1)
    axis = height >= 24 and room - 1 >= table_wanted
    room -= axis
    if style in {GpuStyle.STACKED, GpuStyle.PAIRED}:
        more = max(0, room - table_wanted) // shown
        most = MOST_ROWS_A_GPU if style is GpuStyle.STACKED else 7
        more = min(more, most - each)
        each += more
        room -= more * shown
    # Who looks at the past wants to know when that was; the charts stay where they are.
    moment = moment and room > 2 - axis
    if moment:
        room -= 2 - axis
        axis = True
    return Plan(
        width=width,
        height=height,
        finding_rows=findings,
        problem_rows=problem_rows,
        gpu_style=style,
        gpu_rows_each=each,
        gpus_shown=shown,
        axis=axis,
        moment=moment,
        host_rows=host_rows,
        table_rows=max(0, room),
        rules=rules,
    )


def _without_gpus(
    width: int, height: int, problems: int, cores: int, findings: int, moment: bool
) -> Plan:
    """The host gets the room: charts, then a chart for each core where that still fits."""
    problem_rows = min(problems, most_problem_rows(height, 0))
    room = height - 2 - problem_rows - findings
    rules = height >= 30
    room -= 2 if rules else 0
    table_least = min(max(0, room - 1), max(4, room * 2 // 5))
    wanted = 1 if height < 16 else 3 if height < 22 else 7
    per_row = max(1, width // 20)
    if height >= 30:
        wanted = 9 + min(-(-cores // per_row), max(0, room - table_least - 9))
    host_rows = max(1, min(wanted, room - table_least))
    moment = moment and room - host_rows > 1
    return Plan(
        width=width,
        height=height,
        finding_rows=findings,
        problem_rows=problem_rows,
        gpu_style=GpuStyle.SINGLE,
        gpu_rows_each=0,
        gpus_shown=0,
        axis=False,
        moment=moment,
        host_rows=host_rows,
        table_rows=max(0, room - host_rows - moment),
        rules=rules,
    )


def stacked_chart_rows(rows: int) -> tuple[int, int, int, int]:
    """Heights of the busy, memory, power and temperature charts of a stacked GPU of ``rows``
    rows: the waveform grows first, then power, memory, temperature."""
    extra = max(0, rows - 5)
    busy = 1 + min(extra, 3)
    extra -= busy - 1
    heights = [busy, 1, 1, 1]
    for position in (2, 0, 2, 1, 0, 3, 0, 2, 1, 0, 3, 0, 2, 1):
        if extra > 0:
            heights[position] += 1
            extra -= 1
    return (heights[0], heights[1], heights[2], heights[3])
