"""One job: its processes, its GPUs, what it prints."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType

from gpuwatch.core.model import JobMember, Process
from gpuwatch.tui.keys import JOB_KEYS, bindings
from gpuwatch.tui.pages import finding_selection as selection
from gpuwatch.tui.pages import job
from gpuwatch.tui.pages.layout import Frame
from gpuwatch.tui.panels.findings import keys_in
from gpuwatch.tui.panels.job import output as job_output
from gpuwatch.tui.panels.job import tree as job_tree
from gpuwatch.tui.screens.canvas_screen import CanvasScreen
from gpuwatch.tui.terminal.frame import Line, Zone
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import PANES, View


class JobScreen(CanvasScreen):
    """Draws ``job.draw`` and turns keys and clicks into changes of ``view.job``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(JOB_KEYS)
    CANVAS_ID = "job"
    OWN_ZONES = frozenset({"back", "pane", "open_gpu", "fold"})

    def __init__(self, view: View, palette: Palette) -> None:
        super().__init__(view, palette)
        self.shown = Frame(lines=[])

    def redraw(self) -> None:
        """Draw the job at the present size; only what changed goes to the terminal."""
        width, height = self.room
        if width and height:
            self.shown = job.draw(self.view, width, height)
            if selection.keep_in_sight(self.view, keys_in(self.shown.zones)):
                self.shown = job.draw(self.view, width, height)
            self._show(self.shown.lines)

    def redraw_output(self) -> None:
        """Draw the output pane alone: it changes more often than the rest."""
        if self.shown.plan is not None and self.shown.plan.width == self.size.width:
            self._show(job.draw_pane(self.view, self.shown))

    def _show(self, lines: list[Line]) -> None:
        self.shown.lines = lines
        self.show_lines(lines)

    # -- moving about -----------------------------------------------------------------------

    def selected_member(self) -> JobMember | None:
        """The process under the cursor; where there is only one, that one. Several in one row are
        none."""
        table = self.shown.table
        for row in table:
            if row.member.key == self.view.job.selected:
                return None if row.together else row.member
        return table[0].member if len(table) == 1 and not table[0].together else None

    def action_fold(self) -> None:
        found = job.shown_job(self.view)
        if found is not None:
            self.view.job.folded = not job_tree.is_folded(self.view, found)
            self.redraw()

    def selected_process(self) -> Process | None:
        """The selected member as the process table knows it."""
        member, snapshot = self.selected_member(), self.view.snapshot
        found = job.shown_job(self.view)
        if member is None or snapshot is None or found is None:
            return None
        for process in snapshot.processes:
            if process.key == member.key:
                return process
        return Process(
            pid=member.pid,
            started_at_unix_seconds=member.started_at_unix_seconds,
            user=found.user,
            name=member.name,
            command=member.command,
        )

    def action_back(self) -> None:
        self.view.in_findings = False
        self.dismiss()

    def action_move(self, step: int) -> None:
        """Up and down run through the findings and the processes (or the report) below them."""
        state = self.view.job
        keys = keys_in(self.shown.zones)
        if state.pane_focused:
            self._scroll_output(step)
        elif self.view.in_findings:
            if not selection.move(self.view, keys, step) and self._listed:
                self._select(0)
        elif step < 0 and self._at_top() and selection.enter_from_below(self.view, keys):
            pass
        elif not self._listed:
            state.report_offset += step
        else:
            position = self._position()
            self._select(0 if position is None else position + step)
        self.redraw()

    @property
    def _listed(self) -> bool:
        """Its processes are to be seen, rather than its report."""
        return not job.shows_report(self.view)

    def _at_top(self) -> bool:
        if self._listed:
            return self._position() in {None, 0}
        return self.view.job.report_offset == 0

    def action_page(self, step: int) -> None:
        state = self.view.job
        self.view.in_findings = False
        page = self.shown.table_page
        if state.pane_focused:
            self._scroll_output(step * max(1, self._pane_rows()))
        elif job.shows_report(self.view):
            state.report_offset += step * page
        else:
            self._select((self._position() or 0) + step * page)
        self.redraw()

    def action_edge(self, end: int) -> None:
        state = self.view.job
        self.view.in_findings = False
        if state.pane_focused:
            state.pane_first = None if end or state.output is None else state.output.first
        elif job.shows_report(self.view):
            state.report_offset = 1_000_000 if end else 0
        else:
            self._select(len(self.shown.table) - 1 if end else 0)
        self.redraw()

    def _position(self) -> int | None:
        wanted = self.view.job.selected
        for position, row in enumerate(self.shown.table):
            if row.member.key == wanted:
                return position
        return None

    def _select(self, position: int) -> None:
        table = self.shown.table
        if table:
            self.view.job.selected = table[max(0, min(position, len(table) - 1))].member.key

    async def action_open_gpu(self) -> None:
        """The detail of the selected process's GPU; without a selection of the job's first. On a
        finding, its evidence."""
        if self.view.in_findings:
            await self.run_action("app.evidence")
            return
        found = job.shown_job(self.view)
        uuids: tuple[str, ...] = () if found is None else found.gpu_uuids
        for row in self.shown.table:
            if row.member.key == self.view.job.selected:
                uuids = tuple([p.gpu_uuid for p in row.on_gpus if p.gpu_uuid is not None])
        present = {gpu.uuid for gpu in self.view.gpus}
        uuids = tuple(uuid for uuid in uuids if uuid in present)
        if uuids:
            self.view.selected_gpu = uuids[0]
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

    # -- the mouse --------------------------------------------------------------------------------

    @property
    def zones(self) -> list[Zone]:
        return self.shown.zones

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        if zone.action == "member":
            self.view.job.pane_focused = self.view.in_findings = False
            self.view.job.selected = zone.argument  # type: ignore[assignment]
            self.redraw()
        else:
            await super().clicked(zone, event)

    async def wheel(self, y: int, step: int) -> None:
        """Move what it is over."""
        plan = self.shown.plan
        if plan is not None and 0 <= y - plan.pane_top < plan.rows["output"]:
            self._scroll_output(3 * step)
            self.redraw()
        else:
            self.view.job.pane_focused = False
            self.action_move(3 * step)
