"""The screen of one job as a pure drawing: what it is, its GPUs, who is busy and who waits, its
processes, and what it prints; once it has ended, its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpuwatch.core.model import Gpu, Job
from gpuwatch.tui.charts import time_axis
from gpuwatch.tui.charts.strips import TimeWindow
from gpuwatch.tui.controllers.following import find
from gpuwatch.tui.pages.job_layout import JobPlan, plan
from gpuwatch.tui.panels import findings, footer, gpus, header
from gpuwatch.tui.panels.job import header as job_header
from gpuwatch.tui.panels.job import lines as job_lines
from gpuwatch.tui.panels.job import output as job_output
from gpuwatch.tui.panels.job import tree as job_tree
from gpuwatch.tui.panels.job.tree import TreeRow
from gpuwatch.tui.terminal.frame import Line, Row, Zone, blank, fit
from gpuwatch.tui.view import View

_OUTPUT_KEY = "o"


@dataclass(slots=True)
class JobFrame:
    """What is on the screen, and what the screen needs to know to move about in it."""

    lines: list[Line]
    zones: list[Zone] = field(default_factory=list)
    plan: JobPlan | None = None
    table: list[TreeRow] = field(default_factory=list)
    table_page: int = 0
    pane_top: int = 0
    """The row of the pane's title."""


def draw(view: View, width: int, height: int) -> JobFrame:
    """Exactly ``height`` lines of exactly ``width`` cells. Offsets in ``view.job`` are brought
    into range so that the selection stays in sight."""
    if width < 20 or height < 6:
        return _too_small(width, height)
    job = shown_job(view)
    if job is None or view.snapshot is None:
        return _waiting(view, width, height)
    mine = [gpu for gpu in view.gpus if gpu.uuid in job.gpu_uuids]
    table = job_tree.rows(view, job)
    problems = header.problem_texts(view, width, 1 if height >= 16 else 0)
    shape = plan(
        width,
        height,
        problems=len(problems),
        gpus=len(mine),
        processes=len(table),
        pane=view.job.pane if view.job.output is not None else "hidden",
        report=shows_report(view),
        findings=findings.reserved_rows(view, height) + findings.mark_rows(view, height, job),
        moment=time_axis.is_shown(view),
        told=job_lines.has_told(view, job),
    )
    view.chart_columns = max(1, job_lines.cells_of(width))
    window = window_of(view, job)
    painter = _Painter(view, job, mine, shape, window)
    painter.top(problems)
    painter.middle()
    painter.bottom(table)
    view.strips.forget_unused()
    return painter.frame


def shown_job(view: View) -> Job | None:
    """The job as it is now, or as it was last seen; of one that has ended what it was stays: how it
    loaded its data, on which GPUs."""
    state = view.job
    job = state.last
    if view.snapshot is not None and state.key is not None:
        job = find(view.snapshot.jobs, state.key) or job
    alive = state.alive
    if job is None or alive is None or job.ended_at_unix_seconds is None:
        return job
    return replace(job, ranks=job.ranks or alive.ranks, gpu_uuids=job.gpu_uuids or alive.gpu_uuids)


def shows_report(view: View) -> bool:
    """The report takes the place of the processes: the job has ended and none of them is left.
    Orphans hold memory until somebody ends them, and are to be seen for that."""
    if view.job.write_report is None:
        return False
    job = shown_job(view)
    there = () if view.snapshot is None else view.snapshot.jobs
    return job is None or not (
        any(one.key == job.key for one in there) and any(one.orphaned for one in job.members)
    )


def window_of(view: View, job: Job) -> TimeWindow:
    """The charts of a job that has ended stay at its end."""
    window = view.window
    snapshot = view.snapshot
    at = job_header.ended_at(view, job)
    if at is None or snapshot is None:
        return window
    end = snapshot.monotonic_seconds - (snapshot.taken_at_unix_seconds - at)
    return replace(window, now=min(window.now, end + 1.0))


def selected_gpu(view: View, among: Sequence[Gpu]) -> Gpu | None:
    """The selected GPU where it is one of these, else the first."""
    return next((gpu for gpu in among if gpu.uuid == view.selected_gpu), next(iter(among), None))


class _Painter:
    def __init__(
        self, view: View, job: Job, mine: Sequence[Gpu], shape: JobPlan, window: TimeWindow
    ) -> None:
        self._view = view
        self._job = job
        self._gpus = mine
        self._plan = shape
        self._window = window
        self.frame = JobFrame(lines=[], plan=shape)

    def top(self, problems: list[tuple[str, str]]) -> None:
        view, shape, lines = self._view, self._plan, self.frame.lines
        lines.append(header.draw(view, shape.width))
        drawn, zones = findings.draw(view, shape.width, shape.height, len(lines), self._job)
        lines += drawn
        self.frame.zones += zones
        drawn, zones = header.draw_problems(problems, shape.width, shape.problem_rows, len(lines))
        lines += drawn
        self.frame.zones += zones
        lines.append(job_header.title(view, self._job, shape.width))
        lines += job_header.lines(view, self._job, shape.width, shape.fact_rows)
        if shape.gpu_rows and shape.gpu_rows == len(self._gpus):
            lines += gpus.draw_lines(
                view, self._gpus, shape.width, busy_chart=not shape.each_gpu and len(self._gpus) > 1
            )
        elif shape.gpu_rows:
            lines.append(gpus.summary(view, self._gpus, shape.width))
        self._rule()

    def middle(self) -> None:
        view, shape, lines = self._view, self._plan, self.frame.lines
        ended = job_header.ended_at(view, self._job) is not None
        traces = job_lines.traces(view, self._job, self._gpus, each_gpu=shape.each_gpu, ended=ended)
        heights = {"gpu": shape.gpu_line_rows} | dict(shape.line_rows)
        shown = [(trace, heights[trace.kind]) for trace in traces if heights.get(trace.kind)]
        lines += job_lines.draw(view, shown, self._window, shape.width)
        cells = job_lines.cells_of(shape.width)
        if shape.axis:
            line, zones = job_lines.axis(view, self._window, shape.width, y=len(lines))
            lines.append(line)
            self.frame.zones += zones
        if shape.moment:
            gpu = selected_gpu(view, self._gpus)
            lines.append(time_axis.values(view, self._window, cells, gpu, shape.width))
        self._rule()

    def bottom(self, table: list[TreeRow]) -> None:
        view, shape, frame = self._view, self._plan, self.frame
        lines, width = frame.lines, shape.width
        height = shape.height
        # The rest, down to the pane and the footer: rounding in the plan never leaves a hole.
        room = max(0, height - 1 - shape.pane_rows - len(lines))
        frame.table, frame.table_page = table, max(1, room - 1)
        if view.job.write_report is not None and shows_report(view):
            lines += _report(view, view.job.write_report(width - 1), width, room)
        else:
            _keep_in_sight(view, table, frame.table_page)
            drawn, zones = job_tree.draw(
                view, self._job, table, self._window, width, room, len(lines)
            )
            lines += drawn
            frame.zones += zones
        del lines[max(0, height - 1 - shape.pane_rows) :]
        frame.pane_top = len(lines)
        lines += job_output.draw(view, width, shape.pane_rows)
        foot, zones = footer.draw(view, width, height - 1, _keys(view, self._job))
        lines.append(foot)
        frame.zones += zones

    def _rule(self) -> None:
        if self._plan.rules:
            self.frame.lines.append(((self._view.glyphs.rule * self._plan.width, "rule"),))


def _keys(view: View, job: Job | None = None) -> Sequence[tuple[str, str, str]]:
    """Those that do something."""
    without = set() if view.job.output is not None else {_OUTPUT_KEY}
    if job is not None and job_header.ended_at(view, job) is not None:
        without |= {"S"}
        without |= {"t", "k"} if shows_report(view) else set()
    return tuple(key for key in footer.JOB_KEYS if key[0] not in without)


def draw_pane(view: View, frame: JobFrame) -> list[Line]:
    """``frame``'s lines with the output pane drawn anew: the rest stays as it was."""
    shape = frame.plan
    if shape is None or not shape.pane_rows:
        return frame.lines
    top = frame.pane_top
    pane = job_output.draw(view, shape.width, shape.pane_rows)
    return [*frame.lines[:top], *pane, *frame.lines[top + shape.pane_rows :]]


def _report(view: View, texts: Sequence[str], width: int, height: int) -> list[Line]:
    """The report of the job that has ended, from ``view.job.report_offset`` on."""
    if height <= 0:
        return []
    state = view.job
    rows = height - 1
    state.report_offset = max(0, min(state.report_offset, len(texts) - rows))
    below = len(texts) - state.report_offset - rows
    row = Row(width, prefix="b:").add(" REPORT", "label")
    note = f"{view.glyphs.down}{below} more lines (R: all)" if below > 0 else "R: full screen"
    if row.room >= len(note) + 2:
        row.pad_to(width - len(note) - 1).add(note, "warn" if below > 0 else "label")
    lines = [row.line()]
    for text in texts[state.report_offset : state.report_offset + rows]:
        lines.append(text_line(view, text, width))
    return lines + [blank(width)] * (height - len(lines))


def text_line(view: View, text: str, width: int) -> Line:
    return Row(width).add(" ").add(fit(text, width - 1, view.glyphs.ellipsis)).line()


def _keep_in_sight(view: View, table: list[TreeRow], page: int) -> None:
    state = view.job
    position = next((n for n, row in enumerate(table) if row.member.key == state.selected), None)
    offset = state.offset
    if position is not None:
        offset = max(position - page + 1, min(offset, position))
    state.offset = max(0, min(offset, len(table) - page))


def _waiting(view: View, width: int, height: int) -> JobFrame:
    """No job yet: what was asked for, and why it may not be there."""
    lines = [header.draw(view, width)]
    snapshot = view.snapshot
    if snapshot is not None and view.job.key is not None:
        pid = view.job.key[0]
        says = [p.message for p in snapshot.problems if p.source == "jobs"]
        texts = says or [f"PID {pid}: its job has not been seen yet."]
        lines.append(blank(width))
        for text in texts:
            lines.append(
                Row(width).add("  ").add(fit(text, width - 3, view.glyphs.ellipsis)).line()
            )
        lines.append(Row(width).add("  j shows the whole machine", "label").line())
    lines = lines[: height - 1]
    lines += [blank(width)] * (height - 1 - len(lines))
    foot, zones = footer.draw(view, width, height - 1, _keys(view))
    lines.append(foot)
    return JobFrame(lines=lines, zones=zones)


def _too_small(width: int, height: int) -> JobFrame:
    text = "gpuwatch needs 20x6"[: max(0, width)]
    lines: list[Line] = [((text.ljust(width), "warn"),)]
    lines += [blank(width)] * (height - 1)
    return JobFrame(lines=lines[:height])
