"""A report as it is printed, on a screen that scrolls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import BindingType

from gpuwatch.tui.keys import REPORT_KEYS, bindings
from gpuwatch.tui.pages import job
from gpuwatch.tui.panels import header
from gpuwatch.tui.screens.canvas_screen import ScrolledScreen
from gpuwatch.tui.terminal.frame import Line, Row, blank
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View


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
        lines: list[Line] = [header.draw(self.view, width)]
        for text in self._texts[self.body_offset : self.body_offset + room]:
            lines.append(job.text_line(self.view, text, width))
        lines += [blank(width)] * (height - 1 - len(lines))
        lines.append(self._foot(width, max(0, len(self._texts) - self.body_offset - room)))
        self.show_lines(lines[-height:])

    def _foot(self, width: int, below: int) -> Line:
        row = Row(width, prefix="b:")
        if self.view.message:
            return row.add(f" {self.view.message}", "title").line()
        more = f" {self.view.glyphs.down}{below} more lines" if below else ""
        for key, what in (("esc", "back"), ("up down", "scroll"), ("w", "save"), ("q", "quit")):
            if row.room >= len(key) + len(what) + 3 + len(more):
                row.add(" ").add(key, "key").add(" " + what, "label").add(" ")
        row.pad_to(width - len(more) - 1).add(more, "warn")
        return row.line("label")
