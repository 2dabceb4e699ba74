"""All findings, to choose one."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gpuwatch.tui.keys import FINDINGS_KEYS
from gpuwatch.tui.pages import finding_selection as found
from gpuwatch.tui.pages import findings
from gpuwatch.tui.pages.finding_words import FindingKey, key_of
from gpuwatch.tui.screens.canvas_screen import CanvasScreen
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View


class FindingsScreen(CanvasScreen):
    """Draws ``findings.draw``; the finding under the cursor is ``view.finding``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, show=False) for key in FINDINGS_KEYS
    ]
    CANVAS_ID = "findings"

    def __init__(self, view: View, palette: Palette) -> None:
        super().__init__(view, palette)
        self._shown = findings.FindingsFrame(lines=[])

    def redraw(self) -> None:
        width, height = self.room
        if width and height:
            self._shown = findings.draw(self.view, width, height)
            self.show_lines(self._shown.lines)
            self.view.strips.forget_unused()

    def action_back(self) -> None:
        self.dismiss()

    def action_move(self, step: int) -> None:
        present = self._shown.selected
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
        if self._shown.selected is None:
            return False
        self.view.finding = key_of(self._shown.selected)
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

    async def action_unknown(self) -> None:
        await self.run_action("app.unknown")

    async def on_click(self, event: events.Click) -> None:
        for zone in self._shown.zones:
            if zone.y == event.screen_y and isinstance(zone.argument, FindingKey):
                again = zone.argument == self.view.finding
                self._choose(zone.argument)
                if again and event.chain > 1:
                    await self.run_action("app.evidence")
                return

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        del event
        self.action_move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        del event
        self.action_move(-1)
