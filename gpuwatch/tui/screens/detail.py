"""One GPU, large."""

from typing import ClassVar

from textual.binding import BindingType

from gpuwatch.core.source import ReadOptions
from gpuwatch.tui.keys import DETAIL_KEYS, bindings
from gpuwatch.tui.pages import detail
from gpuwatch.tui.pages.layout import Frame
from gpuwatch.tui.screens.canvas_screen import ScrolledScreen
from gpuwatch.tui.view import View


class DetailScreen(ScrolledScreen):
    """Draws ``detail.draw``; shares the view (range, pause, selected GPU) with the overview."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(DETAIL_KEYS)
    CANVAS_ID = "detail"

    def __init__(self, view: View, options: ReadOptions) -> None:
        super().__init__(view)
        self._options = options

    def on_unmount(self) -> None:
        self._options.detailed_gpu = None

    def drawn(self, width: int, height: int) -> Frame:
        self._options.detailed_gpu = self.view.selected_gpu
        frame, self.body_offset = detail.draw(self.view, width, height, self.body_offset)
        return frame

    def action_other_gpu(self, step: int) -> None:
        self.view.step_gpu(step)
        self.redraw()
