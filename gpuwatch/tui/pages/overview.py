"""The overview of GPUs, host and processes: a drawing from a view and a size, and its screen."""

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import events
from textual.binding import BindingType

from gpuwatch.tui.keys import OVERVIEW_FOOTER, OVERVIEW_KEYS, bindings
from gpuwatch.tui.pages.layout import (
    BOTTOM,
    Frame,
    Page,
    Title,
    edge_panel,
    has_boxes,
    laid_out,
    overview_rows,
    range_keys,
    too_small,
)
from gpuwatch.tui.pages.screen import CursorPlace, ListScreen
from gpuwatch.tui.panels import findings, host, processes, time_axis
from gpuwatch.tui.panels import gpus as gpu_rows
from gpuwatch.tui.panels.bars import HEADER, footer_panel
from gpuwatch.tui.terminal.frame import Zone
from gpuwatch.tui.view import SORT_KEYS, RowKey, View

# -- the drawing -----------------------------------------------------------------------------------


_FOOTER = footer_panel(lambda _: OVERVIEW_FOOTER)
_AXIS = time_axis.axis_panel(lambda page: page.overview.axis > 0)
_VERDICT = edge_panel("verdict", lambda _: Title("verdict", (("d", "why", "findings"),)))
_GPUS = edge_panel(
    "gpus", lambda page: Title("GPUs", (("enter", "open", "open"), *range_keys(page)))
)
_HOST = edge_panel("host", lambda page: Title("host", () if page.gpus else range_keys(page)))


def _of_processes(page: Page) -> Title:
    by = ("s", f"sort: {page.view.sort}", "sort")
    return Title("processes", (("/", "filter", "filter"), by, ("t", "tree", "tree")))


_PROCESSES = edge_panel("processes", _of_processes)

PANELS = (
    *(HEADER, _VERDICT, findings.PANEL),
    *(_GPUS, gpu_rows.PANEL, _AXIS, _HOST, host.PANEL),
    *(_PROCESSES, processes.PANEL, time_axis.VALUES, BOTTOM, _FOOTER),
)
"""Panels of the page, from top to bottom."""
_OF_GPUS = (_GPUS, gpu_rows.PANEL, _AXIS)
COMPETING = (time_axis.VALUES,)
"""Panels that compete for rows: what the person asks for takes its row from the table; all others
have those of `overview_rows`."""

COMPETING_WITHOUT_GPU = (processes.PANEL, host.PANEL, time_axis.VALUES)


def draw(view: View, width: int, height: int) -> Frame:
    """Draw exactly ``height`` lines of exactly ``width`` cells. Scroll offsets in ``view`` are
    brought into range so that the selections stay in sight."""
    if width < 20 or height < 4:
        return too_small(width, height, "20x4")
    columns = view.chart_columns
    frame = _draw(view, width, height)
    if view.chart_columns != columns and view.timeline.moment is not None:
        # The numbers beside the charts were those of other columns.
        frame = _draw(view, width, height)
    return frame


def _draw(view: View, width: int, height: int) -> Frame:
    gpus = view.gpus
    boxes = overview_rows(width, height, len(gpus)).edges > 0 if gpus else has_boxes(width, height)
    page = Page(
        view, width - 2 * boxes, height, boxes, view.window, gpus, table=processes.table_rows(view)
    )
    if gpus:
        return laid_out(page, PANELS, COMPETING, processes.PANEL)
    panels = [one for one in PANELS if one not in _OF_GPUS]
    return laid_out(page, panels, COMPETING_WITHOUT_GPU, processes.PANEL)


# -- the screen ------------------------------------------------------------------------------------


class OverviewScreen(ListScreen):
    """Screen of the overview; turns keys and clicks into changes of the view."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(OVERVIEW_KEYS)
    CANVAS_ID = "overview"
    ROWS = "process"
    OPENS: ClassVar[Mapping[str, str]] = {"gpu": "app.open", "process": "app.open"}

    def page(self, width: int, height: int) -> Frame:
        return draw(self.view, width, height)

    # -- moving about -----------------------------------------------------------------------

    @property
    def chosen(self) -> RowKey | None:
        return self.view.selected_row

    @property
    def cursor(self) -> CursorPlace:
        view = self.view
        if view.in_findings:
            return "finding", view.finding
        on_gpus = view.focus == "gpus" and view.gpus
        return ("gpu", view.selected_gpu) if on_gpus else ("process", view.selected_row)

    def put(self, kind: str, key: Any) -> None:
        view = self.view
        view.in_findings = kind == "finding"
        if kind == "finding":
            view.finding = key
        elif kind == "gpu":
            view.focus, view.selected_gpu = "gpus", key
        else:
            view.focus, view.selected_row = "processes", key

    def stops(self) -> list[CursorPlace]:
        rows = [(self.ROWS, row.key) for row in self.shown.table]
        return [*self._findings(), *[("gpu", gpu.uuid) for gpu in self.view.gpus], *rows]

    def action_gpu(self, step: int) -> None:
        self.view.in_findings = False
        self.view.step_gpu(step)
        self.redraw()

    def action_page(self, step: int) -> None:
        self._jump((self.position() or 0) + step * self.shown.table_page)

    def action_edge(self, end: int) -> None:
        self._jump(len(self.shown.table) - 1 if end else 0)

    def action_switch_focus(self) -> None:
        view = self.view
        if view.focus == "gpus" or not view.gpus:
            self._jump(self.position() or 0)
        else:
            view.focus, view.in_findings = "gpus", False
            self.redraw()

    def _jump(self, position: int) -> None:
        self.view.focus, self.view.in_findings = "processes", False
        self.select(position)
        self.redraw()

    # -- the table --------------------------------------------------------------------------

    def action_sort(self) -> None:
        self._sort_by(SORT_KEYS[(SORT_KEYS.index(self.view.sort) + 1) % len(SORT_KEYS)])

    def _sort_by(self, key: str) -> None:
        if self.view.sort == key:
            self.view.reverse = not self.view.reverse
        else:
            self.view.sort, self.view.reverse = key, False
        self.redraw()

    def action_sort_by(self, key: str) -> None:
        if key and key != self.view.sort:
            self._sort_by(key)

    def action_sort_menu(self) -> None:
        from gpuwatch.tui.pages.dialogs import Choice, Menu  # noqa: PLC0415

        at = SORT_KEYS.index(self.view.sort)
        choices = [Choice(key, key) for key in SORT_KEYS]
        menu = Menu(self.view, "sort processes by", choices, at=at)
        self.app.push_screen(menu, lambda key: self.action_sort_by(key or ""))

    def action_columns(self) -> None:
        from gpuwatch.tui.pages.dialogs import Choice, Menu  # noqa: PLC0415

        view = self.view

        def choices() -> list[Choice]:
            return [
                Choice(title, f"{title:8}{about}", ticked=title not in view.hidden)
                for title, about in processes.CHOICES.items()
            ]

        def toggle(title: str) -> list[Choice]:
            view.hidden ^= {title}
            self.redraw()
            return choices()

        self.app.push_screen(Menu(view, "columns: as many as fit", choices(), toggle=toggle))

    def action_reverse(self) -> None:
        self.view.reverse = not self.view.reverse
        self.redraw()

    def action_tree(self) -> None:
        self.view.tree = not self.view.tree
        self.redraw()

    def action_this_gpu(self) -> None:
        self.view.this_gpu_only = not self.view.this_gpu_only and bool(self.view.gpus)
        self.redraw()

    def action_clear(self) -> None:
        self.view.filter_text = ""
        self.view.this_gpu_only = False
        self.redraw()

    # -- the mouse --------------------------------------------------------------------------------

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        if zone.action == "sort" and zone.argument is not None:
            self._sort_by(str(zone.argument))
        else:
            await super().clicked(zone, event)

    async def wheel(self, y: int, step: int) -> None:
        """Move the selection of whatever it is over."""
        over = next((zone.action for zone in self.shown.zones if zone.y == y), None)
        if over == "gpu":
            self.action_gpu(step)
        elif over == "moment":
            await self.run_action(f"app.scroll_time({-step})")
        else:
            self._jump((self.position() or 0) + 3 * step)
