"""One job: its processes, its GPUs, what it prints."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from textual.binding import BindingType

from gpuwatch.core.model import JobMember, Process, ProcessKey
from gpuwatch.tui.keys import JOB_KEYS, bindings
from gpuwatch.tui.pages import job
from gpuwatch.tui.pages.layout import Frame
from gpuwatch.tui.panels.job import output as job_output
from gpuwatch.tui.panels.job import tree as job_tree
from gpuwatch.tui.screens.canvas_screen import END, ListScreen, Stop
from gpuwatch.tui.view import PANES

_REPORT: Stop = ("report", None)


class JobScreen(ListScreen):
    """Draws ``job.draw`` and turns keys and clicks into changes of ``view.job``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(JOB_KEYS)
    CANVAS_ID = "job"
    ROWS = "member"
    OPENS: ClassVar[Mapping[str, str]] = {"member": "open_gpu"}

    def page(self, width: int, height: int) -> Frame:
        return job.draw(self.view, width, height)

    def redraw_output(self) -> None:
        """Draw the output pane alone: it changes more often than the rest."""
        if self.shown.plan is not None and self.shown.plan.across == self.size.width:
            self.shown.lines = job.draw_pane(self.view, self.shown)
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
        return _REPORT if job.shows_report(view) else ("member", view.job.selected)

    def put(self, kind: str, key: Any) -> None:
        view = self.view
        view.in_findings, view.job.pane_focused = kind == "finding", False
        if kind == "finding":
            view.finding = key
        elif kind == "member":
            view.job.selected = key

    def stops(self) -> list[Stop]:
        return [*self._findings(), _REPORT] if job.shows_report(self.view) else super().stops()

    def selected_member(self) -> JobMember | None:
        """The process under the cursor; where there is only one, that one. Several in one row are
        none."""
        table, place = self.shown.table, self.position()
        if place is None and len(table) != 1:
            return None
        row = table[place or 0]
        return None if row.together else row.member

    def action_fold(self) -> None:
        shown = job.shown_job(self.view)
        if shown is not None:
            self.view.job.folded = not job_tree.is_folded(self.view, shown)
            self.redraw()

    def selected_process(self) -> Process | None:
        member, snapshot = self.selected_member(), self.view.snapshot
        shown = job.shown_job(self.view)
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
        """They scroll the output, and the report of a job that has ended."""
        state = self.view.job
        in_report = self.cursor == _REPORT and (step > 0 or state.report_offset > 0)
        if state.pane_focused or in_report:
            self._go(step)
            self.redraw()
        else:
            super().action_move(step)

    def _go(self, rows: int) -> None:
        """So many rows up or down in what has the cursor: output, report, or processes."""
        state = self.view.job
        if state.pane_focused:
            self._scroll_output(rows)
        elif job.shows_report(self.view):
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
        shown, place = job.shown_job(self.view), self.position()
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
        wanted = max(state.output.first, job_output.first_line(self.view, rows) + lines)
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
