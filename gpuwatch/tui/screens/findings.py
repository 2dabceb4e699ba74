"""All findings, to choose one; and one in full, on a screen that scrolls."""

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.binding import BindingType

from gpuwatch.diagnosis.finding import Finding
from gpuwatch.tui.keys import EVIDENCE_KEYS, FINDINGS_KEYS, bindings
from gpuwatch.tui.pages import finding_selection as selection
from gpuwatch.tui.pages import findings
from gpuwatch.tui.pages.finding_words import rule_of
from gpuwatch.tui.pages.layout import Frame, filled
from gpuwatch.tui.screens.canvas_screen import END, ListScreen, ScrolledScreen, Stop


class FindingsScreen(ListScreen):
    """Draws ``findings.draw``; the finding under the cursor is ``view.finding``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(FINDINGS_KEYS)
    CANVAS_ID = "findings"
    OPENS: ClassVar[Mapping[str, str]] = {"finding": "app.evidence"}

    def drawn(self, width: int, height: int) -> Frame:
        return findings.draw(self.view, width, height)

    @property
    def cursor(self) -> Stop:
        present = findings.selected(self.view)
        return "finding", None if present is None else present.key

    def put(self, kind: str, key: Any) -> None:
        del kind
        self.view.finding = key

    def stops(self) -> list[Stop]:
        return [("finding", one.key) for one in selection.readable(self.view)]

    def action_edge(self, end: int) -> None:
        self.action_move(END if end else -END)

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

    async def wheel(self, y: int, step: int) -> None:
        del y
        self.action_move(step)


class EvidenceScreen(ScrolledScreen):
    """Shows ``view.finding`` as it is now or, once it is gone, as it was last."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(EVIDENCE_KEYS)
    CANVAS_ID = "evidence"

    _last: Finding | None = None
    _last_at = 0.0

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
        return frame

    def action_other(self, step: int) -> None:
        key = findings.neighbour(self.view, step)
        if key is not None:
            self.view.finding = key
            self.body_offset = 0
            self.redraw()
