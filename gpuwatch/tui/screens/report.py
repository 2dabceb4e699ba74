"""A report as it is printed, on a screen that scrolls."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import BindingType

from gpuwatch.tui.keys import REPORT_FOOTER, REPORT_KEYS, bindings
from gpuwatch.tui.pages import job, sheet
from gpuwatch.tui.pages.layout import Frame, Title
from gpuwatch.tui.screens.canvas_screen import ScrolledScreen
from gpuwatch.tui.view import View


class ReportScreen(ScrolledScreen):
    """``write`` gives the report's lines for a width; it is asked once for each width."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(REPORT_KEYS)
    CANVAS_ID = "report"

    def __init__(self, view: View, write: Callable[[int], Sequence[str]]) -> None:
        super().__init__(view)
        self._write = write
        self._texts: Sequence[str] = ()
        self._width = 0

    def drawn(self, width: int, height: int) -> Frame:
        frame, self.body_offset = sheet.draw(
            self.view, width, height, Title("report"), self._body, REPORT_FOOTER, self.body_offset
        )
        return frame

    def _body(self, width: int, _room: int) -> sheet.Body:
        if width != self._width:
            self._texts, self._width = self._write(width - 1), width
        return [], [job.text_line(self.view, text, width) for text in self._texts], [], []
