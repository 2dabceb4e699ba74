"""Drawings of panels: lines of styled runs, and the zones of them that a mouse can hit.

Panels are pure: from a view and a size to lines. The canvas widget turns runs into strips and
sends only what differs from the frame before to the terminal.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from gpuwatch.core.text import clean
from gpuwatch.outputs.terminal import words_of

Run = tuple[str, str]
"""Text and the name of its style (see ``palette``)."""

Line = tuple[Run, ...]

MAYBE_WIDE = re.compile(r"[^\x00-\x7e\u2500-\u25fc\u2800-\u28ff\u00b7\u2026]")
"""A character that is not one cell wide, as far as this cannot be told at once: anything outside
ASCII and the box, block and braille glyphs that charts are made of."""

_END = 100_000
"""Cells: beyond every line."""


class Zone(NamedTuple):
    """Cells ``[left, right)`` of line ``y`` that do ``action`` with ``argument`` when clicked."""

    y: int
    left: int
    right: int
    action: str
    argument: object = None


def spots(top: int, rows: int, start: int, cells: int) -> list[Zone]:
    """Return the zones of a chart of ``cells`` cells from ``start`` on: a click on it sets the
    cursor."""
    return [Zone(y, start, start + cells, "moment") for y in range(top, top + rows)]


def width_of(text: str) -> int:
    """Cells ``text`` takes."""
    # Rich remembers whatever it is asked, of charts after minutes 1 MiB.
    return len(text) if text.isascii() or not MAYBE_WIDE.search(text) else cell_len(text)


def fit(text: str, width: int, ellipsis: str = "…") -> str:
    """Return ``text`` cut to at most ``width`` cells, the cut marked; never padded."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    return set_cell_size(text, width - 1).rstrip() + ellipsis


def edited(text: str, key: str, character: str | None) -> str | None:
    """Return ``text`` after a key (with the character it stands for); ``None``: it changes no
    text."""
    match key:
        case "backspace":
            return text[:-1]
        case "ctrl+u":
            return ""
        case "ctrl+w":
            return text.rstrip().rpartition(" ")[0]
    return text + character if character is not None and character.isprintable() else None


def fit_end(text: str, width: int, ellipsis: str = "…") -> str:
    """Return ``text`` with its front cut away, so that its end takes at most ``width`` cells."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    starts = range(len(text))
    start = bisect_left(starts, True, key=lambda start: width_of(text[start:]) <= width - 1)
    return ellipsis + text[start:]


_BOTH_ENDS = 22


def fit_middle(text: str, width: int, ellipsis: str = "…") -> str:
    """Return ``text`` with its middle cut away: commands differ in their last words, ``--rank 3``.
    Where there is room for little, it is for its beginning."""
    if width < _BOTH_ENDS or width_of(text) <= width:
        return fit(text, width, ellipsis)
    head = fit(text, width * 3 // 5, "")
    return head + fit_end(text, width - width_of(head), ellipsis)


def wrapped(text: str, width: int) -> list[str]:
    """Return ``text``, cleaned, in lines of at most ``width`` cells, broken at blanks where it can
    be, but not within a command."""
    width = max(1, width)
    lines: list[str] = []
    line = ""
    for word in words_of(clean(text), width):
        if line and width_of(line) + 1 + width_of(word) <= width:
            line += " " + word
            continue
        if line:
            lines.append(line)
        while width_of(word) > width:
            # A character wider than the line is dropped rather than tried for ever.
            head = fit(word, width, "") or word[0]
            if width_of(head) <= width:
                lines.append(head)
            word = word[len(head) :]  # noqa: PLW2901
        line = word
    return [*lines, line] if line else lines


def left(text: str, width: int, ellipsis: str = "…") -> str:
    """Return ``text`` in exactly ``width`` cells, flush left."""
    if text.isascii() and len(text) <= width:
        return text.ljust(width)
    text = fit(text, width, ellipsis)
    return text + " " * (width - width_of(text))


def right(text: str, width: int, ellipsis: str = "…") -> str:
    """Return ``text`` in exactly ``width`` cells, flush right."""
    if text.isascii() and len(text) <= width:
        return text.rjust(width)
    text = fit(text, width, ellipsis)
    return " " * (width - width_of(text)) + text


class Row:
    """Builder of one line from the left; what would pass ``width`` is cut. Neighbours of one style
    become one run: fewer runs are fewer segments for everything that follows."""

    __slots__ = ("_prefix", "_runs", "_width", "used")

    def __init__(self, width: int, prefix: str = "") -> None:
        self._runs: list[Run] = []
        self._width = width
        self._prefix = prefix
        self.used = 0

    @property
    def room(self) -> int:
        """Cells left."""
        return self._width - self.used

    def add(self, text: str, style: str = "text") -> Row:
        """Append ``text`` as it is, cut at the line's end."""
        width = len(text)
        if not text.isascii() and MAYBE_WIDE.search(text):
            # What has no width of its own would widen the character before it.
            text = text[next((at for at, one in enumerate(text) if cell_len(one)), _END) :]
            width = width_of(text)
        room = self._width - self.used
        if width > room:
            text, width = set_cell_size(text, room), room
        if not width:
            return self
        if self._prefix:
            style = self._prefix + style
        runs = self._runs
        before = runs.pop()[0] if runs and runs[-1][1] == style else ""
        runs.append((before + text, style))
        self.used += width
        return self

    def add_runs(self, runs: Sequence[Run], width: int) -> Row:
        """Append runs that take ``width`` cells together; each is cut at the line's end."""
        if width > self._width - self.used or self._prefix:
            for text, style in runs:
                self.add(text, style)
        else:
            self._runs.extend(runs)
            self.used += width
        return self

    def fits(self, text: str, style: str = "text") -> bool:
        """Append ``text`` only if all of it has room; say whether it had."""
        if width_of(text) > self._width - self.used:
            return False
        self.add(text, style)
        return True

    def pad_to(self, column: int, style: str = "text") -> Row:
        """Blanks up to ``column``."""
        if column > self.used:
            self.add(" " * (column - self.used), style)
        return self

    def note(self, text: str, style: str = "label", apart: int = 1) -> Row:
        """Add a note at the right, ``apart`` from what is there by so many blanks, if there is
        room; blanks behind what is there are room."""
        needed = width_of(text) + 1 + apart
        if text and self.room < needed and self._runs:
            last, look = self._runs.pop()
            self.used -= width_of(last)
            self._runs.append((last.rstrip(), look))
            self.used += width_of(last.rstrip())
        if text and self.room >= needed:
            self.pad_to(self._width - width_of(text) - 1).add(text, style)
        return self

    def line(self, fill: str = "text") -> Line:
        """Return the line, padded to its full width."""
        self.pad_to(self._width, fill)
        return tuple(self._runs)


def cut(line: Sequence[Run], start: int, stop: int) -> Line:
    """Return the cells from ``start`` up to ``stop``, all characters being one cell wide."""
    out = []
    x = 0
    for text, style in line:
        part = text[max(0, start - x) : max(0, stop - x)]
        if part:
            out.append((part, style))
        x += len(text)
    return tuple(out)


def on_ground(line: Sequence[Run], start: int, stop: int, ground: str) -> Line:
    """Return ``line`` with some of its cells on another ground (a prefix of style names), but for
    those that have one."""
    part = cut(line, start, stop)
    other = [(text, style if style[1:2] == ":" else f"{ground}:{style}") for text, style in part]
    return (*cut(line, 0, start), *other, *cut(line, stop, _END))


def surface_of(style: str) -> str:
    """Return the prefix of a style name that says on which ground it stands; empty for the page's
    own."""
    return style[:2] if style[1:2] == ":" else ""


def with_text(line: Sequence[Run], place: int, text: str, style: str) -> list[Run]:
    """Return ``line`` with ``text`` in its cells from ``place`` on, each on the ground that it has
    (a surface, or the tint of what held a chart up); as it is if it has no such cells."""
    under = cut(line, place, place + len(text))
    if place < 0 or sum([len(cells) for cells, _ in under]) < len(text):
        return list(line)
    runs, start = list[Run](), 0
    for cells, look in under:
        _, _, tint = look.partition(".")[0].partition("/")
        own = f"{surface_of(look)}{style}{f'/{tint}' if tint else ''}"
        runs.append((text[start : start + len(cells)], own))
        start += len(cells)
    return [*cut(line, 0, place), *runs, *cut(line, place + len(text), _END)]


def to_ascii(text: str) -> str:
    """Return ``text`` with a question mark for every cell that ASCII cannot show."""
    if text.isascii():
        return text
    return "".join([c if c.isascii() else "?" * cell_len(c) for c in text])


def blank(width: int) -> Line:
    return ((" " * width, "text"),)


def plain(line: Line) -> str:
    """Return the text of a line, without styles."""
    return "".join([text for text, _ in line])
