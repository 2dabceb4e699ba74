"""What a panel draws: lines of styled runs, and the zones of them that a mouse can hit.

Panels are pure: from a view and a size to lines. The canvas widget turns runs into strips and
sends only what differs from the frame before to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

Run = tuple[str, str]
"""Text and the name of its style (see ``palette``)."""

Line = tuple[Run, ...]


class Zone(NamedTuple):
    """Cells ``[left, right)`` of line ``y`` that do ``action`` with ``argument`` when clicked."""

    y: int
    left: int
    right: int
    action: str
    argument: object = None


def width_of(text: str) -> int:
    """Cells ``text`` takes."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, ellipsis: str = "…") -> str:
    """``text`` cut to at most ``width`` cells, the cut marked; never padded."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    return set_cell_size(text, width - 1).rstrip() + ellipsis


def left(text: str, width: int, ellipsis: str = "…") -> str:
    """``text`` in exactly ``width`` cells, flush left."""
    text = fit(text, width, ellipsis)
    return text + " " * (width - width_of(text))


def right(text: str, width: int, ellipsis: str = "…") -> str:
    """``text`` in exactly ``width`` cells, flush right."""
    text = fit(text, width, ellipsis)
    return " " * (width - width_of(text)) + text


class Row:
    """Builds one line from the left; what would pass ``width`` is cut."""

    __slots__ = ("_runs", "_width", "prefix", "used")

    def __init__(self, width: int, prefix: str = "") -> None:
        self._runs: list[Run] = []
        self._width = width
        self.prefix = prefix
        self.used = 0

    @property
    def room(self) -> int:
        return self._width - self.used

    def add(self, text: str, style: str = "text") -> Row:
        """Append ``text`` as it is, cut at the line's end."""
        width = width_of(text)
        if width > self.room:
            text = set_cell_size(text, self.room)
            width = self.room
        if width:
            self._runs.append((text, self.prefix + style))
            self.used += width
        return self

    def add_runs(self, runs: Iterable[Run]) -> Row:
        """Append runs as they are, each cut at the line's end."""
        for text, style in runs:
            self.add(text, style)
        return self

    def fits(self, text: str, style: str = "text") -> bool:
        """Append ``text`` only if all of it has room; say whether it had."""
        if width_of(text) > self.room:
            return False
        self.add(text, style)
        return True

    def pad_to(self, column: int, style: str = "text") -> Row:
        """Blanks up to ``column``."""
        if column > self.used:
            self.add(" " * (column - self.used), style)
        return self

    def line(self, fill: str = "text") -> Line:
        """The line, padded to its full width."""
        self.pad_to(self._width, fill)
        return tuple(self._runs)


def blank(width: int) -> Line:
    return ((" " * width, "text"),)


def plain(line: Line) -> str:
    """The text of a line, without styles."""
    return "".join([text for text, _ in line])
