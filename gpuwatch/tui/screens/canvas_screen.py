"""A screen that is one canvas, drawn whole from the view."""

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.screen import Screen

from gpuwatch.tui.charts.glyphs import ASCII
from gpuwatch.tui.pages import finding_selection as selection
from gpuwatch.tui.pages.layout import Frame
from gpuwatch.tui.panels import practice_bar, replay_bar
from gpuwatch.tui.panels.findings import keys_in
from gpuwatch.tui.terminal.canvas import Canvas
from gpuwatch.tui.terminal.frame import Line, Row, Zone, fit
from gpuwatch.tui.view import View

END = 1_000_000
"""Rows: beyond every end."""
_WHEEL_LINES = 3

Stop = tuple[str, Any]
"""A kind of row, as its zones have it for an action, and the key of one."""


class CanvasScreen(Screen[None]):
    """Subclasses draw in ``redraw`` and hand the lines to ``show_lines``."""

    # The arrow and tab keys are ours: nothing here takes Textual's focus.
    AUTO_FOCUS = ""
    CANVAS_ID: ClassVar[str]

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        self.canvas = Canvas(view.palette, id=self.CANVAS_ID)
        self.shown = Frame(lines=[])

    def compose(self) -> ComposeResult:
        yield self.canvas

    def on_resize(self) -> None:
        self.redraw()

    def on_screen_resume(self) -> None:
        self.redraw()

    def drawn(self, width: int, height: int) -> Frame:
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw the view at the present size; only what changed goes to the terminal."""
        width, height = self.room
        if width and height:
            self.shown = self.drawn(width, height)
            self.show_lines(self.shown.lines)

    def redraw_output(self) -> None:
        """Draw what a started job prints, where it is shown."""

    @property
    def room(self) -> tuple[int, int]:
        """Width and height of the picture: the screen's, less the bar of a replay or a practice."""
        width, height = self.size
        bars = replay_bar.rows(self.view, height) + practice_bar.rows(self.view, height)
        return width, height - bars

    def show_lines(self, lines: list[Line]) -> None:
        """Show ``lines``, as wide as the screen, and over the one above the keys what is to be
        said for a moment; only what changed goes to the terminal."""
        width, height = self.size
        if self.view.message and len(lines) > 2:
            text = fit(self.view.message, width - 2, self.view.glyphs.ellipsis)
            said = Row(width, prefix="s:").add(f" {text}", "title").line()
            lines = [*lines[:-2], said, lines[-1]]
        lines = lines + replay_bar.draw(self.view, width, height)
        lines += practice_bar.draw(self.view, width, height)
        self.canvas.ascii_only = self.view.glyphs is ASCII
        self.canvas.show(lines, width)

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Once: a second key that was on its way already is not for the screen below."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_back(self) -> None:
        self.dismiss()

    # -- the mouse --------------------------------------------------------------------------------

    async def on_click(self, event: events.Click) -> None:
        x, y = event.screen_x - self.shown.inset, event.screen_y
        # A chart is in the row of what it is about.
        for zone in [one for one in self.shown.zones if one.y == y and one.left <= x < one.right]:
            await self.clicked(zone, event)

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        """Do what the zone is for, where that is the same on every screen."""
        if zone.action == "moment":
            # The second click of two takes back the cursor that the first has set.
            x = event.screen_x - self.shown.inset
            point = f"app.point({x}, {zone.left}, {zone.right - zone.left})"
            await self.run_action(point if event.chain == 1 else "app.cursor")
        elif zone.action == "finding":
            self.view.finding = zone.argument  # type: ignore[assignment]
            await self.run_action("app.evidence")
        else:
            own = any(zone.action == one.action for one in self.BINDINGS)  # type: ignore[union-attr]
            await self.run_action(zone.action if own else f"app.{zone.action}")

    async def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        await self.wheel(event.screen_y, 1)

    async def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        await self.wheel(event.screen_y, -1)

    async def wheel(self, y: int, step: int) -> None:
        """Turn the wheel by one notch over the line ``y``."""


class ListScreen(CanvasScreen):
    """A screen on which a cursor runs through findings and other rows."""

    ROWS: ClassVar[str]
    """The kind of the rows of the page's table."""
    OPENS: ClassVar[Mapping[str, str]]
    """The kinds of rows that a click chooses, and the action of another click on the same."""

    @property
    def cursor(self) -> Stop:
        """Where the cursor is, whether or not that is still there."""
        raise NotImplementedError

    @property
    def chosen(self) -> object:
        """The key of the row of the table where the cursor is, or was last."""
        raise NotImplementedError

    def put(self, kind: str, key: Any) -> None:
        """Put the cursor there."""
        raise NotImplementedError

    def stops(self) -> list[Stop]:
        """All places for the cursor, top to bottom."""
        return [*self._findings(), *[(self.ROWS, row.key) for row in self.shown.table]]

    def _findings(self) -> list[Stop]:
        return [("finding", key) for key in keys_in(self.shown.zones)]

    def page(self, width: int, height: int) -> Frame:
        """As it is before the cursor of the findings is brought into sight."""
        raise NotImplementedError

    def drawn(self, width: int, height: int) -> Frame:
        frame = self.page(width, height)
        if selection.keep_in_sight(self.view, keys_in(frame.zones)):
            frame = self.page(width, height)
        return frame

    def position(self) -> int | None:
        """The place of the chosen row; ``None``: it is not there."""
        chosen = self.chosen
        places = (place for place, row in enumerate(self.shown.table) if row.key == chosen)
        return next(places, None)

    def select(self, position: int) -> None:
        """Choose the row at ``position``, or the nearest there is."""
        table = self.shown.table
        if table:
            self.put(self.ROWS, table[max(0, min(position, len(table) - 1))].key)

    def action_move(self, step: int) -> None:
        """Up and down run through all rows."""
        here, stops = self.cursor, self.stops()
        if here in stops:
            place = min(stops.index(here) + step, len(stops) - 1)
        else:
            # Down leads to the first of its kind, if there is one, up to what is above that.
            alike = [number for number, (kind, _) in enumerate(stops) if kind == here[0]]
            place = min(alike, default=len(stops)) + min(0, step)
        if stops and place < len(stops):
            self.put(*stops[max(0, place)])
        self.redraw()

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        stop = zone.action, zone.argument
        if zone.action not in self.OPENS:
            await super().clicked(zone, event)
            return
        again = stop == self.cursor and event.chain > 1
        self.put(*stop)
        self.redraw()
        if again:
            await self.run_action(self.OPENS[zone.action])


class ScrolledScreen(CanvasScreen):
    """A screen whose picture can be longer than the terminal. Subclasses draw from the line
    ``body_offset`` on, and set it to what was possible."""

    body_offset = 0

    def action_scroll_body(self, lines: int) -> None:
        self.body_offset += lines
        self.redraw()

    def action_scroll_page(self, step: int) -> None:
        self.action_scroll_body(step * max(1, self.size.height - 3))

    def action_scroll_edge(self, end: int) -> None:
        self.body_offset = END if end else 0
        self.redraw()

    async def wheel(self, y: int, step: int) -> None:
        del y
        self.action_scroll_body(step * _WHEEL_LINES)
