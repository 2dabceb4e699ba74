"""One GPU, large."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gpuwatch.sources.base import ReadOptions
from gpuwatch.tui import detail
from gpuwatch.tui.keys import DETAIL_KEYS
from gpuwatch.tui.palette import Palette
from gpuwatch.tui.screens.canvas_screen import CanvasScreen
from gpuwatch.tui.view import View


class DetailScreen(CanvasScreen):
    """Draws ``detail.draw``; shares the view (range, pause, selected GPU) with the overview."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, show=False) for key in DETAIL_KEYS
    ]
    CANVAS_ID = "detail"

    def __init__(self, view: View, palette: Palette, options: ReadOptions) -> None:
        super().__init__(view, palette)
        self._options = options
        self._offset = 0

    def on_unmount(self) -> None:
        self._options.detailed_gpu = None

    def redraw(self) -> None:
        width, height = self.room
        self._options.detailed_gpu = self.view.selected_gpu
        if width and height:
            frame, self._offset = detail.draw(self.view, width, height, self._offset)
            self.show_lines(frame.lines)

    def action_back(self) -> None:
        self.dismiss()

    def action_other_gpu(self, step: int) -> None:
        gpus = self.view.gpus
        if gpus:
            position = (self.view.gpu_position() + step) % len(gpus)
            self.view.selected_gpu = gpus[position].uuid
            self.redraw()

    def action_scroll_body(self, lines: int) -> None:
        self._offset += lines
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        del event
        self.action_scroll_body(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        del event
        self.action_scroll_body(-3)
