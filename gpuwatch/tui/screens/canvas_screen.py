"""A screen that is one canvas, drawn whole from the view."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.screen import Screen

from gpuwatch.tui.charts.glyphs import ASCII
from gpuwatch.tui.panels import practice_bar, replay_bar
from gpuwatch.tui.terminal.canvas import Canvas
from gpuwatch.tui.terminal.frame import Line
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View


class CanvasScreen(Screen[None]):
    """Subclasses draw in ``redraw`` and hand the lines to ``show``."""

    # The arrow and tab keys are ours: nothing here takes Textual's focus.
    AUTO_FOCUS = ""
    CANVAS_ID: ClassVar[str]

    def __init__(self, view: View, palette: Palette) -> None:
        super().__init__()
        self.view = view
        self.canvas = Canvas(palette, id=self.CANVAS_ID)

    def compose(self) -> ComposeResult:
        yield self.canvas

    def on_resize(self) -> None:
        self.redraw()

    def on_screen_resume(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Draw the view at the present size."""
        raise NotImplementedError

    def repaint(self, palette: Palette) -> None:
        """The same picture in other colours."""
        self.canvas.repaint(palette)

    @property
    def room(self) -> tuple[int, int]:
        """Width and height of the picture: the screen's, less the bar of a replay or a practice."""
        width, height = self.size
        bars = replay_bar.rows(self.view, height) + practice_bar.rows(self.view, height)
        return width, height - bars

    def point_at(self, x: int, chart: object) -> None:
        """Put the cursor where the time axis of a chart (its first cell, its width) was clicked."""
        assert isinstance(chart, tuple)
        start, cells = chart
        view = self.view
        if view.snapshot is None:
            return
        grid = view.window.grid(cells)
        at = grid.begin_seconds + (x - start + 0.5) * grid.column_seconds
        now = view.snapshot.monotonic_seconds
        view.timeline = view.timeline.with_cursor(min(at, now), now)
        self.redraw()

    def show_lines(self, lines: list[Line]) -> None:
        """Show ``lines``, as wide as the screen; only what changed goes to the terminal."""
        width, height = self.size
        lines = lines + replay_bar.draw(self.view, width, height)
        lines += practice_bar.draw(self.view, width, height)
        self.canvas.few_bytes = self.view.slow_link
        self.canvas.ascii_only = self.view.glyphs is ASCII
        self.canvas.show(lines, width)
