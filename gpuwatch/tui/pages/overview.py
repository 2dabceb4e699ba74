"""The overview as a pure drawing: from a view and a size to a frame of lines and zones."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.pages.layout import Plan, most_problem_rows, plan
from gpuwatch.tui.panels import findings, footer, gpus, header, host, processes
from gpuwatch.tui.panels.processes import TableRow
from gpuwatch.tui.terminal.frame import Line, Zone, blank
from gpuwatch.tui.view import View, row_key


@dataclass(slots=True)
class Frame:
    """What is on the screen, and what the app needs to know to move about in it."""

    lines: list[Line]
    zones: list[Zone] = field(default_factory=list)
    plan: Plan | None = None
    table: list[TableRow] = field(default_factory=list)
    table_page: int = 0


def draw(view: View, width: int, height: int) -> Frame:
    """Exactly ``height`` lines of exactly ``width`` cells. Scroll offsets in ``view`` are brought
    into range so that the selections stay in sight."""
    if width < 20 or height < 4:
        return _too_small(width, height)
    columns = view.chart_columns
    frame = _draw(view, width, height)
    if view.chart_columns != columns and view.timeline.moment is not None:
        # The numbers beside the charts were those of other columns.
        frame = _draw(view, width, height)
    view.strips.forget_unused()
    return frame


def _draw(view: View, width: int, height: int) -> Frame:
    snapshot = view.snapshot
    table = processes.rows(view)
    cores = 0
    if snapshot is not None and snapshot.host.core_percents is not None:
        cores = len(snapshot.host.core_percents)
    most = most_problem_rows(height, len(view.gpus))
    problems = header.problem_texts(view, width, most)
    shape = plan(
        width,
        height,
        gpus=len(view.gpus),
        processes=len(table),
        problems=len(problems),
        cores=cores,
        findings=findings.reserved_rows(view, height) + findings.mark_rows(view, height),
        moment=time_axis.is_shown(view),
    )
    _keep_in_sight(view, shape, table)
    lines: list[Line] = [header.draw(view, width)]
    zones: list[Zone] = []

    finding_lines, finding_zones = findings.draw(view, width, height, len(lines))
    lines += finding_lines
    zones += finding_zones

    problem_lines, problem_zones = header.draw_problems(
        problems, width, shape.problem_rows, len(lines)
    )
    lines += problem_lines
    zones += problem_zones

    gpu_lines, gpu_zones = gpus.draw(view, shape, len(lines))
    lines += gpu_lines
    zones += gpu_zones
    if shape.rules and gpu_lines:
        lines.append(_rule(view, width))

    lines += host.draw(view, width, shape.host_rows)
    if shape.moment and not view.gpus:
        lines.append(time_axis.values(view, view.window, view.chart_columns, None, width))
    if shape.rules:
        lines.append(_rule(view, width))

    # The rest, down to the footer: rounding in the plan never leaves a hole.
    table_height = max(0, height - len(lines) - 1)
    table_lines, table_zones = processes.draw(view, table, width, table_height, len(lines))
    lines += table_lines
    zones += table_zones
    lines = lines[: height - 1]
    foot, foot_zones = footer.draw(view, width, height - 1)
    lines.append(foot)
    return Frame(
        lines=lines,
        zones=zones + foot_zones,
        plan=shape,
        table=table,
        table_page=max(1, table_height - 1),
    )


def _rule(view: View, width: int) -> Line:
    return ((view.glyphs.rule * width, "rule"),)


def _keep_in_sight(view: View, shape: Plan, table: list[TableRow]) -> None:
    gpu_count = len(view.gpus)
    position = view.gpu_position()
    view.gpu_offset = _scrolled(view.gpu_offset, position, shape.gpus_shown, gpu_count)
    page = max(1, shape.table_rows - 1)
    selected = next(
        (n for n, row in enumerate(table) if row_key(row.process) == view.selected_row), None
    )
    if selected is None:
        view.process_offset = max(0, min(view.process_offset, len(table) - page))
    else:
        view.process_offset = _scrolled(view.process_offset, selected, page, len(table))


def _scrolled(offset: int, position: int, page: int, count: int) -> int:
    offset = max(position - page + 1, min(offset, position))
    return max(0, min(offset, count - page))


def _too_small(width: int, height: int) -> Frame:
    text = "gpuwatch needs 20x4"[: max(0, width)]
    lines: list[Line] = [((text.ljust(width), "warn"),)]
    lines += [blank(width)] * (height - 1)
    return Frame(lines=lines[:height])
