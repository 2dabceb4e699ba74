"""The main screen: GPUs, host, processes."""

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import events
from textual.binding import BindingType

from gpuwatch.tui.keys import OVERVIEW_KEYS, bindings
from gpuwatch.tui.pages import overview
from gpuwatch.tui.pages.layout import Frame
from gpuwatch.tui.panels.processes import table
from gpuwatch.tui.screens.canvas_screen import ListScreen, Stop
from gpuwatch.tui.terminal.frame import Zone
from gpuwatch.tui.view import SORT_KEYS, RowKey


class OverviewScreen(ListScreen):
    """Draws ``overview.draw`` and turns keys and clicks into changes of the view."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(OVERVIEW_KEYS)
    CANVAS_ID = "overview"
    ROWS = "process"
    OPENS: ClassVar[Mapping[str, str]] = {"gpu": "app.open", "process": "app.open"}

    def page(self, width: int, height: int) -> Frame:
        return overview.draw(self.view, width, height)

    # -- moving about -----------------------------------------------------------------------

    @property
    def chosen(self) -> RowKey | None:
        return self.view.selected_row

    @property
    def cursor(self) -> Stop:
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

    def stops(self) -> list[Stop]:
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
        from gpuwatch.tui.screens.dialogs.menu import Choice, Menu  # noqa: PLC0415

        at = SORT_KEYS.index(self.view.sort)
        choices = [Choice(key, key) for key in SORT_KEYS]
        menu = Menu(self.view, "sort processes by", choices, at=at)
        self.app.push_screen(menu, lambda key: self.action_sort_by(key or ""))

    def action_columns(self) -> None:
        from gpuwatch.tui.screens.dialogs.menu import Choice, Menu  # noqa: PLC0415

        view = self.view

        def choices() -> list[Choice]:
            return [
                Choice(title, f"{title:8}{about}", ticked=title not in view.hidden)
                for title, about in table.CHOICES.items()
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
