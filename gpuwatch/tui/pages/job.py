"""Page of one job: what it is, its GPUs, who is busy and who waits, its processes, its output.

Once it has ended, its report takes the place of the processes. First the drawing, then the screens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual.binding import BindingType

from gpuwatch.core.model import Job, JobMember, Process, ProcessKey
from gpuwatch.tui.charts.strips import TimeWindow
from gpuwatch.tui.keys import JOB_FOOTER, JOB_KEYS, REPORT_FOOTER, REPORT_KEYS, Footer, bindings
from gpuwatch.tui.pages.layout import (
    BOTTOM,
    EDGE,
    Drawn,
    Frame,
    Page,
    Panel,
    Title,
    edge_panel,
    filled,
    has_boxes,
    laid_out,
    range_keys,
    too_small,
)
from gpuwatch.tui.pages.screen import END, ListScreen, ScrolledScreen, SheetBody, Stop, draw_sheet
from gpuwatch.tui.panels import findings, job_charts, time_axis
from gpuwatch.tui.panels.bars import HEADER, draw_footer, draw_header, footer_panel
from gpuwatch.tui.panels.job import (
    FACTS,
    GPUS,
    OUTPUT,
    TITLE,
    draw_tree,
    first_output_line,
    is_folded,
    tree_rows,
)
from gpuwatch.tui.runs import ended_at, find_job
from gpuwatch.tui.terminal.frame import Line, Row, fit
from gpuwatch.tui.view import PANES, View

# -- the drawing -----------------------------------------------------------------------------------


_OUTPUT_KEY = "o"


def _table_rows(page: Page) -> int:
    """Return no rows, as the table takes what is left, and note how much that should be."""
    report, height = page.decided["report"], page.tall
    least = 3 if height < 16 else 5 if height < 24 else 6 if height < 30 else 8
    page.table_least = least + (2 if report and height >= 16 else 0)
    wanted = height * 11 // 20 if report else height * 3 // 10
    page.table_wanted = max(page.table_least, wanted)
    return 0


def _draw_table(page: Page, rows: int) -> Drawn:
    """The processes; of a job that has ended, its report."""
    view, job = page.view, page.job
    assert job is not None
    if not page.decided["report"]:
        return draw_tree(page, job, rows)
    assert view.job.write_report is not None
    return _report(view, view.job.write_report(page.width - 1), page.width, rows), []


def _keys(view: View) -> Footer:
    """Return the keys that do something for this job."""
    job = shown_job(view)
    without = set() if view.job.output is not None else {_OUTPUT_KEY}
    if job is not None and ended_at(view, job) is not None:
        without |= {"S", "t", "k"} if shows_report(view) else {"S"}
    return [key for key in JOB_FOOTER if key[0] not in without]


def _of_processes(page: Page) -> Title:
    if page.decided["report"]:
        return Title("report", (("R", "full screen", "report"),))
    return Title("processes", (("t", "fold", "fold"), ("S", "stacks", "stacks")))


_TABLE = Panel("table", _table_rows, _draw_table)
_AXIS = time_axis.axis_panel(lambda page: page.tall >= 20 and page.room > page.table_least)
_ACTIVITY = edge_panel("activity", lambda page: Title("busy and waiting", range_keys(page)))
_PROCESSES = edge_panel("processes", _of_processes)
_FOOTER = footer_panel(_keys)

PANELS = (
    *(HEADER, TITLE, findings.PANEL, FACTS, GPUS, _ACTIVITY),
    *(job_charts.PANEL, _AXIS, _PROCESSES),
    *(_TABLE, time_axis.VALUES, OUTPUT, BOTTOM, _FOOTER),
)
"""Panels of the page, from top to bottom."""
COMPETING = (
    *(OUTPUT, FACTS, _TABLE, GPUS, job_charts.PANEL, _AXIS, job_charts.PANEL),
    time_axis.VALUES,
)
"""Panels that compete for rows, by importance: first who waits for whom, the charts of GPU, main
thread and loader workers; then the processes; then everything else."""


def draw(view: View, width: int, height: int) -> Frame:
    """Draw exactly ``height`` lines of exactly ``width`` cells. Offsets in ``view.job`` are brought
    into range so that the selection stays in sight."""
    if width < 20 or height < 6:
        return too_small(width, height, "20x6")
    job = shown_job(view)
    if job is None or view.snapshot is None:
        return _waiting(view, width, height)
    mine = [gpu for gpu in view.gpus if gpu.uuid in job.gpu_uuids]
    boxes = has_boxes(width, height)
    width -= 2 * boxes
    page = Page(view, width, height, boxes, _window(view, job), mine, job, tree_rows(view, job))
    page.decided["report"] = shows_report(view)
    view.chart_columns = max(1, job_charts.span(width)[1])
    return laid_out(page, PANELS, COMPETING, _TABLE)


def shown_job(view: View) -> Job | None:
    """The job as it is now, or as it was last seen; of one that has ended what it was stays: how it
    loaded its data, on which GPUs."""
    state = view.job
    job = state.last
    if view.snapshot is not None and state.key is not None:
        job = find_job(view.snapshot.jobs, state.key) or job
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


def _window(view: View, job: Job) -> TimeWindow:
    """The charts of a job that has ended stay at its end."""
    window, snapshot = view.window, view.snapshot
    at = ended_at(view, job)
    if at is None or snapshot is None:
        return window
    end = snapshot.monotonic_seconds - (snapshot.taken_at_unix_seconds - at)
    return replace(window, now=min(window.now, end + 1.0))


def draw_pane(view: View, frame: Frame) -> list[Line]:
    """``frame``'s lines with the output pane drawn anew: the rest stays as it was."""
    page = frame.plan
    rows = 0 if page is None else page.rows["output"]
    if page is None or not rows:
        return frame.lines
    pane, _ = OUTPUT.draw(replace(page, view=view), rows)
    side = ((view.glyphs.separator, EDGE),) * page.boxed
    pane = [(*side, *line, *side) for line in pane]
    return [*frame.lines[: page.pane_top], *pane, *frame.lines[page.pane_top + rows :]]


def _report(view: View, texts: Sequence[str], width: int, height: int) -> list[Line]:
    """The report of the job that has ended, from ``view.job.report_offset`` on."""
    state = view.job
    rows = height - 1
    state.report_offset = max(0, min(state.report_offset, len(texts) - rows))
    below = len(texts) - state.report_offset - rows
    row = Row(width, prefix="b:").add(" REPORT", "label")
    note = f"{view.glyphs.down}{below} more lines (R: all)" if below > 0 else "R: full screen"
    row.note(note, "warn" if below > 0 else "label")
    shown = texts[state.report_offset : state.report_offset + rows]
    return filled([row.line(), *[_text_line(view, one, width) for one in shown]], width, height)


def _text_line(view: View, text: str, width: int) -> Line:
    return Row(width).add(" ").add(fit(text, width - 1, view.glyphs.ellipsis)).line()


def _waiting(view: View, width: int, height: int) -> Frame:
    """No job yet: what was asked for, and why it may not be there."""
    lines = [draw_header(view, width)]
    if view.snapshot is not None and view.job.key is not None:
        says = [one.message for one in view.snapshot.problems if one.source == "jobs"]
        texts = says or [f"PID {view.job.key[0]}: its job has not been seen yet."]
        ellipsis = view.glyphs.ellipsis
        lines += filled([], width, 1)
        for text in texts:
            lines.append(Row(width).add("  ").add(fit(text, width - 3, ellipsis)).line())
        lines.append(Row(width).add("  j shows the whole machine", "label").line())
    foot, zones = draw_footer(view, width, _keys(view))
    zones = [zone._replace(y=height - 1) for zone in zones]
    return Frame([*filled(lines, width, height - 1), foot], zones)


# -- the screen ------------------------------------------------------------------------------------


_REPORT: Stop = ("report", None)


class JobScreen(ListScreen):
    """Screen of a job; turns keys and clicks into changes of ``view.job``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(JOB_KEYS)
    CANVAS_ID = "job"
    ROWS = "member"
    OPENS: ClassVar[Mapping[str, str]] = {"member": "open_gpu"}

    def page(self, width: int, height: int) -> Frame:
        return draw(self.view, width, height)

    def redraw_output(self) -> None:
        """Draw the output pane alone: it changes more often than the rest."""
        if self.shown.plan is not None and self.shown.plan.across == self.size.width:
            self.shown.lines = draw_pane(self.view, self.shown)
            self.show_lines(self.shown.lines)

    # -- moving about -----------------------------------------------------------------------

    @property
    def chosen(self) -> ProcessKey | None:
        return self.view.job.selected

    @property
    def cursor(self) -> Stop:
        view = self.view
        if view.in_findings:
            return "finding", view.finding
        return _REPORT if shows_report(view) else ("member", view.job.selected)

    def put(self, kind: str, key: Any) -> None:
        view = self.view
        view.in_findings, view.job.pane_focused = kind == "finding", False
        if kind == "finding":
            view.finding = key
        elif kind == "member":
            view.job.selected = key

    def stops(self) -> list[Stop]:
        return [*self._findings(), _REPORT] if shows_report(self.view) else super().stops()

    def selected_member(self) -> JobMember | None:
        """The process under the cursor; where there is only one, that one. Several in one row are
        none."""
        table, place = self.shown.table, self.position()
        if place is None and len(table) != 1:
            return None
        row = table[place or 0]
        return None if row.together else row.member

    def action_fold(self) -> None:
        shown = shown_job(self.view)
        if shown is not None:
            self.view.job.folded = not is_folded(self.view, shown)
            self.redraw()

    def selected_process(self) -> Process | None:
        member, snapshot = self.selected_member(), self.view.snapshot
        shown = shown_job(self.view)
        if member is None or snapshot is None or shown is None:
            return None
        for process in snapshot.processes:
            if process.key == member.key:
                return process
        return Process(
            pid=member.pid,
            started_at_unix_seconds=member.started_at_unix_seconds,
            user=shown.user,
            name=member.name,
            command=member.command,
        )

    def action_back(self) -> None:
        self.view.in_findings = False
        self.dismiss()

    def action_move(self, step: int) -> None:
        """Move the cursor; scroll the output, or the report of a job that has ended."""
        state = self.view.job
        in_report = self.cursor == _REPORT and (step > 0 or state.report_offset > 0)
        if state.pane_focused or in_report:
            self._go(step)
            self.redraw()
        else:
            super().action_move(step)

    def _go(self, rows: int) -> None:
        """Move by so many rows in what has the cursor: output, report, or processes."""
        state = self.view.job
        if state.pane_focused:
            self._scroll_output(rows)
        elif shows_report(self.view):
            state.report_offset += rows
        else:
            position = self.position()
            self.select(rows - 1 if position is None else position + rows)

    def _jump(self, rows: int) -> None:
        self.view.in_findings = False
        self._go(rows)
        self.redraw()

    def action_page(self, step: int) -> None:
        focused = self.view.job.pane_focused
        self._jump(step * max(1, self._pane_rows() if focused else self.shown.table_page))

    def action_edge(self, end: int) -> None:
        self._jump(END if end else -END)

    async def action_open_gpu(self) -> None:
        """The detail of the selected process's GPU; without a selection of the job's first. On a
        finding, its evidence."""
        if self.view.in_findings:
            await self.run_action("app.evidence")
            return
        shown, place = shown_job(self.view), self.position()
        uuids: Iterable[str | None] = () if shown is None else shown.gpu_uuids
        if place is not None:
            uuids = [process.gpu_uuid for process in self.shown.table[place].on_gpus]
        present = {gpu.uuid for gpu in self.view.gpus}
        uuid = next((uuid for uuid in uuids if uuid in present), None)
        if uuid is not None:
            self.view.selected_gpu = uuid
            await self.run_action("app.open_gpu")
        else:
            self.view.message = "this process uses no GPU"
            self.redraw()

    # -- the output pane ----------------------------------------------------------------------

    def action_pane(self) -> None:
        state = self.view.job
        if state.output is None:
            self.view.message = "only a job started with gpuwatch run has output to show"
        else:
            state.pane = PANES[(PANES.index(state.pane) + 1) % len(PANES)]
            if state.pane == "hidden":
                state.pane_focused = False
        self.redraw()

    def action_switch_focus(self) -> None:
        state = self.view.job
        state.pane_focused = not state.pane_focused and self._pane_rows() > 0
        self.view.in_findings = False
        self.redraw()

    def _pane_rows(self) -> int:
        plan = self.shown.plan
        return 0 if plan is None else max(0, plan.rows["output"] - 1)

    def _scroll_output(self, lines: int) -> None:
        state = self.view.job
        rows = self._pane_rows()
        if state.output is None or not rows:
            return
        newest = max(state.output.first, state.output.total - rows)
        wanted = max(state.output.first, first_output_line(self.view, rows) + lines)
        # At the end it is followed again.
        state.pane_first = None if wanted >= newest else wanted

    async def wheel(self, y: int, step: int) -> None:
        """Move what it is over."""
        plan = self.shown.plan
        if plan is not None and 0 <= y - plan.pane_top < plan.rows["output"]:
            self._scroll_output(3 * step)
            self.redraw()
        else:
            self.view.job.pane_focused = False
            self.action_move(3 * step)


# -- its report, full screen -----------------------------------------------------------------------


class ReportScreen(ScrolledScreen):
    """Screen of a report: ``write`` gives its lines for a width; it is asked once for each
    width."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(REPORT_KEYS)
    CANVAS_ID = "report"

    def __init__(self, view: View, write: Callable[[int], Sequence[str]]) -> None:
        super().__init__(view)
        self._write = write
        self._texts: Sequence[str] = ()
        self._width = 0

    def drawn(self, width: int, height: int) -> Frame:
        frame, self.body_offset = draw_sheet(
            self.view, width, height, Title("report"), self._body, REPORT_FOOTER, self.body_offset
        )
        return frame

    def _body(self, width: int, _room: int) -> SheetBody:
        if width != self._width:
            self._texts, self._width = self._write(width - 1), width
        return [], [_text_line(self.view, text, width) for text in self._texts], [], []
