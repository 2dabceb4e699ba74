"""All findings, to choose one; and one in full, on a screen that scrolls."""

from typing import ClassVar

from textual import events
from textual.binding import BindingType

from gpuwatch.diagnosis.finding import Finding, FindingKey
from gpuwatch.tui.keys import EVIDENCE_KEYS, FINDINGS_KEYS, bindings
from gpuwatch.tui.pages import finding_selection as selection
from gpuwatch.tui.pages import findings
from gpuwatch.tui.pages.finding_words import rule_of
from gpuwatch.tui.pages.layout import Frame, filled
from gpuwatch.tui.screens.canvas_screen import CanvasScreen, ScrolledScreen
from gpuwatch.tui.terminal.frame import Zone
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View


class FindingsScreen(CanvasScreen):
    """Draws ``findings.draw``; the finding under the cursor is ``view.finding``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(FINDINGS_KEYS)
    CANVAS_ID = "findings"

    def drawn(self, width: int, height: int) -> Frame:
        frame = findings.draw(self.view, width, height)
        self.view.strips.forget_unused()
        return frame

    def action_move(self, step: int) -> None:
        present = findings.selected(self.view)
        if present is None:
            return
        keys = [one.key for one in selection.readable(self.view)]
        position = keys.index(present.key) if present.key in keys else 0
        self._choose(keys[max(0, min(position + step, len(keys) - 1))])

    def action_edge(self, end: int) -> None:
        every = selection.readable(self.view)
        if every:
            self._choose(every[-1 if end else 0].key)

    def _choose(self, key: FindingKey) -> None:
        self.view.finding = key
        self.redraw()

    def _settle(self) -> bool:
        """Mean the finding under the cursor from now on; true if there is one."""
        present = findings.selected(self.view)
        if present is None:
            return False
        self.view.finding = present.key
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

    async def clicked(self, zone: Zone, event: events.Click) -> None:
        if not isinstance(zone.argument, FindingKey):
            await super().clicked(zone, event)
            return
        again = zone.argument == self.view.finding
        self._choose(zone.argument)
        if again and event.chain > 1:
            await self.run_action("app.evidence")

    async def wheel(self, y: int, step: int) -> None:
        del y
        self.action_move(step)


class EvidenceScreen(ScrolledScreen):
    """Shows ``view.finding`` as it is now or, once it is gone, as it was last."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(EVIDENCE_KEYS)
    CANVAS_ID = "evidence"

    def __init__(self, view: View, palette: Palette) -> None:
        super().__init__(view, palette)
        self._last: Finding | None = None
        self._last_at = 0.0

    def drawn(self, width: int, height: int) -> Frame:
        view = self.view
        now = selection.chosen(view)
        holds = now is not None and selection.holds(view, now)
        if holds and view.snapshot is not None:
            self._last_at = view.snapshot.monotonic_seconds
        elif now is not None:
            self._last_at = view.job.findings_at
        shown = self._last = now or self._last
        if shown is None:
            return Frame(filled([], width, height))
        frame, self.body_offset = findings.draw_evidence(
            view,
            shown,
            width,
            height,
            self.body_offset,
            gone_at=None if holds else self._last_at,
            documentation=rule_of(shown.rule).documentation,
        )
        self.view.strips.forget_unused()
        return frame

    def action_other(self, step: int) -> None:
        key = findings.neighbour(self.view, step)
        if key is not None:
            self.view.finding = key
            self.body_offset = 0
            self.redraw()
