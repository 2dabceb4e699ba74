"""The main screen: GPUs, host, processes."""

from typing import ClassVar

from textual import events
from textual.binding import BindingType

from gpuwatch.core.text import clean
from gpuwatch.tui.keys import OVERVIEW_KEYS, bindings
from gpuwatch.tui.pages import finding_selection as selection
from gpuwatch.tui.pages import overview
from gpuwatch.tui.pages.layout import Frame
from gpuwatch.tui.panels.processes import table
from gpuwatch.tui.screens.canvas_screen import ListScreen
from gpuwatch.tui.terminal.frame import Zone, edited
from gpuwatch.tui.view import SORT_KEYS, RowKey

_FILTERS = {"slash", "f3", "f4"}


class OverviewScreen(ListScreen):
    """Draws ``overview.draw`` and turns keys and clicks into changes of the view."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(OVERVIEW_KEYS)
    CANVAS_ID = "overview"

    def page(self, width: int, height: int) -> Frame:
        return overview.draw(self.view, width, height)

    @property
    def chosen(self) -> RowKey | None:
        return self.view.selected_row

    def choose(self, key: RowKey) -> None:
        self.view.selected_row = key

    # -- moving about -----------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """Up and down run through the findings, the GPUs and the processes, and back."""
        view = self.view
        keys = self.finding_keys
        if view.in_findings:
            if not selection.move(view, keys, step):
                self._first_below()
        elif view.focus == "gpus" and view.gpus:
            position = view.gpu_position() + step
            if position < 0:
                selection.enter_from_below(view, keys)
            elif 0 <= position < len(view.gpus):
                view.selected_gpu = view.gpus[position].uuid
            elif position >= len(view.gpus) and self.shown.table:
                view.focus = "processes"
                if self.position() is None:
                    self.select(0)
        else:
            row = self.position()
            if step < 0 and row in {None, 0} and view.gpus:
                view.focus = "gpus"
                view.selected_gpu = view.gpus[-1].uuid
            elif not (step < 0 and row in {None, 0} and selection.enter_from_below(view, keys)):
                view.focus = "processes"
                self.select(0 if row is None else row + step)
        self.redraw()

    def _first_below(self) -> None:
        view = self.view
        if view.gpus:
            view.focus, view.selected_gpu = "gpus", view.gpus[0].uuid
        else:
            view.focus = "processes"
            self.select(0)

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
        menu = Menu("sort processes by", choices, self.canvas.palette, self.view.glyphs, at=at)
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

        title, palette = "columns: as many as fit", self.canvas.palette
        self.app.push_screen(Menu(title, choices(), palette, view.glyphs, toggle=toggle))

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

    # -- typing a filter ----------------------------------------------------------------------
    # Keys are taken here rather than by an input widget: that one would be mounted a moment after
    # the key that opens it, and what is typed in that moment would act as commands.

    def action_filter(self) -> None:
        self.view.filtering = True
        self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a filter is typed, keys are text."""
        del action, parameters
        return not self.view.filtering

    def on_key(self, event: events.Key) -> None:
        view = self.view
        if not view.filtering and event.key not in _FILTERS:
            return
        # At once, not by the binding: bindings run a moment later, after what is typed behind it.
        event.stop()
        event.prevent_default()
        match event.key:
            case "slash" | "f3" | "f4" if not view.filtering:
                view.filtering = True
            case "enter":
                view.filtering = False
            case "escape":
                view.filtering, view.filter_text = False, ""
            case key:
                text = edited(view.filter_text, key, event.character)
                view.filter_text = view.filter_text if text is None else text
        self.redraw()

    def on_paste(self, event: events.Paste) -> None:
        if self.view.filtering:
            self.view.filter_text += clean(event.text.strip(), 200)
            self.redraw()

    # -- the mouse --------------------------------------------------------------------------------

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        view = self.view
        if zone.action in ("gpu", "process"):
            before = view.focus, view.selected_gpu, view.selected_row
            if zone.action == "gpu":
                view.focus, view.selected_gpu = "gpus", str(zone.argument)
            else:
                view.focus = "processes"
                view.selected_row = zone.argument  # type: ignore[assignment]
            view.in_findings = False
            self.redraw()
            if event.chain > 1 and before == (view.focus, view.selected_gpu, view.selected_row):
                await self.run_action("app.open")
        elif zone.action == "sort" and zone.argument is not None:
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
