"""How the rows of the job screen are shared out, from 40x12 up to as large as it gets."""

from __future__ import annotations

from dataclasses import dataclass

_GROWTH = (
    *("gpu", "wait", "main", "worker", "gpu", "main", "worker", "gpu", "wait", "read"),
    *("gpu", "main", "gpu", "speed", "write", "main", "worker", "wait", "gpu", "read"),
    *("gpu", "main", "gpu", "write", "worker"),
)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Rows of each part, top to bottom; header, title and footer are one row each."""

    width: int
    height: int
    finding_rows: int
    """Reserved; those that are not used go to the table."""
    problem_rows: int
    fact_rows: int
    gpu_rows: int
    """As many as the job has GPUs, or one for all, or none."""
    each_gpu: bool
    """Each GPU has a busy chart of its own among the stacked ones."""
    gpu_line_rows: int
    """Height of each."""
    line_rows: tuple[tuple[str, int], ...]
    """Heights of the other stacked charts by kind; 0 where there is no room."""
    axis: bool
    moment: bool
    """The values of a moment of the past, below the axis."""
    rules: bool
    table_rows: int
    """With its heading; of the report where the job has ended."""
    pane_rows: int
    """With its title; 0: hidden."""


def pane_height(height: int, pane: str) -> int:
    """Rows of the output pane."""
    if pane == "hidden" or height < 10:
        return 0
    if pane == "large":
        return max(4, height * 6 // 10)
    return max(3, min(12, height // 4))


def plan(
    width: int,
    height: int,
    *,
    problems: int = 0,
    gpus: int,
    processes: int,
    pane: str = "hidden",
    report: bool = False,
    findings: int = 0,
    moment: bool = False,
    told: bool = False,
) -> JobPlan:
    """Share out ``height`` rows (6 or more). What shows who waits for whom comes first: the charts
    of GPU, main thread and loader workers; then the processes; then everything else. ``told``: it
    tells of its own loop."""
    pane_rows = pane_height(height, pane)
    tall = height - pane_rows
    room = tall - 3 - problems - findings
    kinds = _kinds(tall, told)
    facts = _fact_rows(tall, width) + (told and tall >= 14)
    facts = max(0, min(facts, room - len(kinds) - 3))
    room -= facts
    rules = tall >= 30
    room -= 2 if rules else 0
    least = _table_least(tall, report)
    # What the GPUs do once the job has ended is not about it.
    gpu_rows = 0 if report else _gpu_rows(gpus, tall, room - least - len(kinds))
    room -= gpu_rows
    rows = dict.fromkeys(kinds, 1)
    while sum(rows.values()) > max(1, room - min(least, 2)) and len(rows) > 1:
        rows.popitem()
    room -= sum(rows.values())
    axis = tall >= 20 and room - 1 >= least
    room -= axis
    wanted = _table_wanted(tall, processes, least, report)
    each_gpu = (
        2 <= gpus <= 4
        and (report or gpu_rows == gpus)
        and room - (gpus - 1) >= min(wanted, least + 3)
    )
    lines_a_row = gpus if each_gpu else 1
    room -= lines_a_row - 1
    if gpus == 0:
        # Only says that there is none.
        gpu_line_rows = rows.pop("gpu")
        room = _grow(rows, room, wanted, 1)
    else:
        room = _grow(rows, room, wanted, lines_a_row)
        gpu_line_rows = rows.pop("gpu")
    moment = moment and room > 2 - axis
    if moment:
        room -= 2 - axis
        axis = True
    return JobPlan(
        width=width,
        height=height,
        finding_rows=findings,
        problem_rows=problems,
        fact_rows=facts,
        gpu_rows=gpu_rows,
        each_gpu=each_gpu,
        gpu_line_rows=gpu_line_rows,
        line_rows=tuple(rows.items()),
        axis=axis,
        moment=moment,
        rules=rules,
        table_rows=max(0, room),
        pane_rows=pane_rows,
    )


def _kinds(height: int, told: bool) -> list[str]:
    """Which charts there are, most telling first."""
    kinds = ["gpu", "wait", "main", "worker"] if told else ["gpu", "main", "worker"]
    if height >= 18:
        kinds += ["speed", "read"] if told else ["read"]
    if height >= 36:
        kinds.append("write")
    return kinds


def _fact_rows(height: int, width: int) -> int:
    if height < 14:
        return 1
    if height < 18:
        return 2
    return 2 if width >= 110 else 3


def _gpu_rows(gpus: int, height: int, room: int) -> int:
    """A row for each GPU while they leave room for the rest, else one for all."""
    if gpus == 0 or room < 1:
        return 0
    most = 1 if height < 20 else 2 if height < 30 else 4 if height < 40 else 8
    return gpus if gpus <= min(most, room) else 1


def _table_least(height: int, report: bool) -> int:
    least = 3 if height < 16 else 5 if height < 24 else 6 if height < 30 else 8
    return least + (2 if report and height >= 16 else 0)


def _table_wanted(height: int, processes: int, least: int, report: bool) -> int:
    if report:
        return max(least, height * 11 // 20)
    return max(least, min(processes + 2, height * 2 // 5))


def _grow(rows: dict[str, int], room: int, wanted: int, gpu_lines: int) -> int:
    """Give what the table does not want to the charts, in turn; what is left of ``room``."""
    for kind in _GROWTH:
        cost = gpu_lines if kind == "gpu" else 1
        if kind in rows and room - cost >= wanted and (kind != "gpu" or rows[kind] < 8):
            rows[kind] += 1
            room -= cost
    return room
