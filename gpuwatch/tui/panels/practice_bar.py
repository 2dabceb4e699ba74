"""A practice job's fault, what the key turns, and what cannot be seen here; below any screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuwatch.tui.terminal.frame import Line, Row, fit
from gpuwatch.tui.view import View

if TYPE_CHECKING:
    from gpuwatch.practice.control import Practice

_FooterKey = tuple[str, str, str]
KEY = "x"
_LEAST_ROWS, _ALL_ROWS = 10, 20
"""Of the screen: below, nothing, or only what the key does."""


def rows(view: View, height: int) -> int:
    """How many of a screen's rows it takes."""
    if view.practice is None or height < _LEAST_ROWS:
        return 0
    wanted = 2 if view.practice.note is None else 3
    return wanted if height >= _ALL_ROWS else 1


def keys(view: View, others: Sequence[_FooterKey]) -> tuple[_FooterKey, ...]:
    """The footer's keys, with the one that turns the knobs third."""
    practice = view.practice
    assert practice is not None
    if practice.ended or not practice.turns:
        return tuple(others)
    word = "break again" if practice.cured else "fix"
    return (*others[:2], (KEY, word, "turn"), *others[2:])


def draw(view: View, width: int, height: int) -> list[Line]:
    """Exactly ``rows`` lines."""
    practice, count = view.practice, rows(view, height)
    if practice is None or not count:
        return []
    lines = [_turns(view, practice, width)]
    if count > 1:
        lines.insert(0, _what(view, practice, width))
    if count > 2:
        row = Row(width, prefix="b:").add(" ")
        lines.insert(1, row.add(fit(practice.note or "", width - 2, view.glyphs.ellipsis)).line())
    return lines[:count]


def _what(view: View, practice: Practice, width: int) -> Line:
    row = Row(width, prefix="b:").add(" PRACTICE ", "key").add(f" {practice.cause.name}", "title")
    if row.room > 12:
        row.add(": ", "label").add(fit(practice.cause.says, row.room - 1, view.glyphs.ellipsis))
    return row.line("label")


def _turns(view: View, practice: Practice, width: int) -> Line:
    row = Row(width, prefix="b:")
    if practice.ended:
        return row.add(fit(" The job has ended: q leaves.", width, "")).line("label")
    if not practice.turns:
        return row.add(fit(" There is nothing to fix.", width, "")).line("label")
    row.add(f" {KEY}", "key").add(
        " breaks it again: " if practice.cured else " fixes it: ", "label"
    )
    row.add(fit(practice.turns, row.room - 1, view.glyphs.ellipsis), "value")
    progress = _progress(view, practice)
    if row.room > len(progress) + 4:
        row.add(f"  ({progress})", "label")
    return row.line("label")


def _progress(view: View, practice: Practice) -> str:
    """Says how far it is until the key makes sense."""
    if practice.cured:
        return "before and after: above"
    if not practice.can_be_named:
        return "not diagnosed here"
    found = () if view.diagnosis is None else view.diagnosis.findings
    if any(one.rule == practice.cause.name for one in found):
        return "diagnosed above"
    if practice.cause.press is not None:
        return practice.cause.press
    return f"diagnosed in about {practice.cause.after_seconds:.0f} s"
