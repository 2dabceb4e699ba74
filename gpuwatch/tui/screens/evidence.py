"""One finding in full, on a screen that scrolls."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from gpuwatch.diagnosis.finding import Finding
from gpuwatch.tui.keys import EVIDENCE_KEYS, bindings
from gpuwatch.tui.pages import finding_selection as found
from gpuwatch.tui.pages import findings
from gpuwatch.tui.screens.canvas_screen import ScrolledScreen
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View


class EvidenceScreen(ScrolledScreen):
    """Shows ``view.finding`` as it is now or, once it is gone, as it was last."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(EVIDENCE_KEYS)
    CANVAS_ID = "evidence"

    def __init__(self, view: View, palette: Palette) -> None:
        super().__init__(view, palette)
        self._last: Finding | None = None
        self._last_at = 0.0

    def redraw(self) -> None:
        width, height = self.room
        view = self.view
        now = found.chosen(view)
        holds = now is not None and found.holds(view, now)
        if holds and view.snapshot is not None:
            self._last_at = view.snapshot.monotonic_seconds
        elif now is not None:
            self._last_at = view.job.findings_at
        shown = self._last = now or self._last
        if not width or not height or shown is None:
            return
        lines, self.body_offset = findings.draw_evidence(
            view,
            shown,
            width,
            height,
            self.body_offset,
            gone_at=None if holds else self._last_at,
            documentation=documentation_of(shown.rule),
        )
        self.show_lines(lines)
        self.view.strips.forget_unused()

    def action_other(self, step: int) -> None:
        key = findings.neighbour(self.view, step)
        if key is not None:
            self.view.finding = key
            self.body_offset = 0
            self.redraw()


def documentation_of(rule: str) -> str | None:
    """What ``gpuwatch explain`` prints of it; ``None``: no such rule."""
    from gpuwatch.diagnosis.engine.catalogue import find  # noqa: PLC0415

    try:
        return find(rule).documentation
    except KeyError:
        return None
