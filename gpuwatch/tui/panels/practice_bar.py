"""What a practice job has, what the key turns, and what cannot be seen here; below any screen."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.tui.frame import Line, Row, fit
from gpuwatch.tui.view import View

_FooterKey = tuple[str, str, str]
KEY = "x"


def rows(view: View, height: int) -> int:
    """How many of a screen's rows it takes."""
    if view.practice is None or height < 10:
        return 0
    wanted = 2 if view.practice.note is None else 3
    return wanted if height >= 20 else 1


def keys(view: View, others: Sequence[_FooterKey]) -> tuple[_FooterKey, ...]:
    """The footer's keys, with the one that turns the knobs third."""
    assert view.practice is not None
    word = "ill again" if view.practice.cured else "cure"
    return (*others[:2], (KEY, word, "turn"), *others[2:])


def draw(view: View, width: int, height: int) -> list[Line]:
    """Exactly ``rows`` lines."""
    practice, count = view.practice, rows(view, height)
    if practice is None or not count:
        return []
    lines = [_turns(view, width)]
    if count > 1:
        lines.insert(0, _what(view, width))
    if count > 2:
        row = Row(width, prefix="b:").add(" ")
        lines.insert(1, row.add(fit(practice.note or "", width - 2, view.glyphs.ellipsis)).line())
    return lines[:count]


def _what(view: View, width: int) -> Line:
    practice = view.practice
    assert practice is not None
    row = Row(width, prefix="b:").add(" PRACTICE ", "key").add(f" {practice.name}", "title")
    if row.room > 12:
        row.add(": ", "label").add(fit(practice.says, row.room - 1, view.glyphs.ellipsis))
    return row.line("label")


def _turns(view: View, width: int) -> Line:
    practice = view.practice
    assert practice is not None
    row = Row(width, prefix="b:").add(f" {KEY}", "key")
    row.add(" makes it ill again: " if practice.cured else " turns it back: ", "label")
    turns = fit(practice.turns or "nothing is wrong", row.room - 1, view.glyphs.ellipsis)
    return row.add(turns, "value").line("label")
