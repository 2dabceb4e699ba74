"""A report as it is printed, on a screen that scrolls."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import BindingType

from gpuwatch.tui.keys import REPORT_KEYS, bindings
from gpuwatch.tui.pages import job
from gpuwatch.tui.pages.layout import filled
from gpuwatch.tui.panels import footer, header
from gpuwatch.tui.screens.canvas_screen import ScrolledScreen
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View

_FOOT = (("esc", "back"), ("up down", "scroll"), ("w", "save"), ("q", "quit"))


class ReportScreen(ScrolledScreen):
    """``write`` gives the report's lines for a width; it is asked once for each width."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(REPORT_KEYS)
    CANVAS_ID = "report"

    def __init__(self, view: View, palette: Palette, write: Callable[[int], Sequence[str]]) -> None:
        super().__init__(view, palette)
        self._write = write
        self._texts: Sequence[str] = ()
        self._width = 0

    def redraw(self) -> None:
        width, height = self.room
        if not width or not height:
            return
        if width != self._width:
            self._texts, self._width = self._write(width - 1), width
        room = max(0, height - 2)
        self.body_offset = max(0, min(self.body_offset, len(self._texts) - room))
        shown = self._texts[self.body_offset : self.body_offset + room]
        lines = [job.text_line(self.view, text, width) for text in shown]
        lines = filled([header.draw(self.view, width), *lines], width, height - 1)
        below = max(0, len(self._texts) - self.body_offset - room)
        self.show_lines([*lines, footer.scrolling(self.view, width, _FOOT, below)])
