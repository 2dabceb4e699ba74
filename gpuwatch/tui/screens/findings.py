"""All findings, to choose one."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType

from gpuwatch.tui.keys import FINDINGS_KEYS, bindings
from gpuwatch.tui.pages import finding_selection as found
from gpuwatch.tui.pages import findings
from gpuwatch.tui.pages.finding_words import FindingKey, key_of
from gpuwatch.tui.screens.canvas_screen import CanvasScreen
from gpuwatch.tui.terminal.frame import Zone
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View


class FindingsScreen(CanvasScreen):
    """Draws ``findings.draw``; the finding under the cursor is ``view.finding``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(FINDINGS_KEYS)
    CANVAS_ID = "findings"

    def __init__(self, view: View, palette: Palette) -> None:
        super().__init__(view, palette)
        self.shown = findings.FindingsFrame(lines=[])

    def redraw(self) -> None:
        width, height = self.room
        if width and height:
            self.shown = findings.draw(self.view, width, height)
            self.show_lines(self.shown.lines)
            self.view.strips.forget_unused()

    def action_move(self, step: int) -> None:
        present = self.shown.selected
        if present is None:
            return
        keys = [key_of(one) for one in found.readable(self.view)]
        position = keys.index(key_of(present)) if key_of(present) in keys else 0
        self._choose(keys[max(0, min(position + step, len(keys) - 1))])

    def action_edge(self, end: int) -> None:
        every = found.readable(self.view)
        if every:
            self._choose(key_of(every[-1 if end else 0]))

    def _choose(self, key: FindingKey) -> None:
        self.view.finding = key
        self.redraw()

    def _settle(self) -> bool:
        """What is under the cursor is what is meant; whether there is anything."""
        if self.shown.selected is None:
            return False
        self.view.finding = key_of(self.shown.selected)
        return True

    async def action_open(self) -> None:
        if self._settle():
            await self.run_action("app.evidence")
        else:
            self.view.message = "there is no finding to open"
            self.redraw()

    async def action_copy(self) -> None:
        self._settle()
        await self.run_action("app.copy_finding")

    @property
    def zones(self) -> list[Zone]:
        return [zone for zone in self.shown.zones if isinstance(zone.argument, FindingKey)]

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        again = zone.argument == self.view.finding
        self._choose(zone.argument)  # type: ignore[arg-type]
        if again and event.chain > 1:
            await self.run_action("app.evidence")

    async def wheel(self, y: int, step: int) -> None:
        del y
        self.action_move(step)
