"""A screen whose picture can be longer than the terminal."""

from __future__ import annotations

from textual import events

from gpuwatch.tui.screens.canvas_screen import CanvasScreen
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View

_END = 1_000_000
_WHEEL_LINES = 3


class ScrolledScreen(CanvasScreen):
    """Subclasses draw from the line ``body_offset`` on, and set it to what was possible."""

    def __init__(self, view: View, palette: Palette) -> None:
        super().__init__(view, palette)
        self.body_offset = 0

    def action_back(self) -> None:
        self.dismiss()

    def action_scroll_body(self, lines: int) -> None:
        self.body_offset += lines
        self.redraw()

    def action_scroll_page(self, step: int) -> None:
        self.action_scroll_body(step * max(1, self.size.height - 3))

    def action_scroll_edge(self, end: int) -> None:
        self.body_offset = _END if end else 0
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        del event
        self.action_scroll_body(_WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        del event
        self.action_scroll_body(-_WHEEL_LINES)
