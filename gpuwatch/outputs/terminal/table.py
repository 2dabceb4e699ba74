"""Plain tables: aligned columns that fit a width, the least important ones left out first."""

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

GAP = "  "
T_contra = TypeVar("T_contra", contravariant=True)


class Column(NamedTuple, Generic[T_contra]):
    """One column: its title, what it says of an item, whether that is a text (left) or a number
    (right), and its rank.

    Columns of the highest ``rank`` are left out first when the width is short; rank 0 stays.
    """

    title: str
    cell: Callable[[T_contra], str] = str
    text: bool = False
    rank: int = 0


def cell_width(text: str) -> int:
    """How many terminal cells ``text`` (made safe before) takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else _WIDTHS.get(_east_asian(character), 1)
        for character in text
    )


_WIDTHS = {"W": 2, "F": 2}
_east_asian = unicodedata.east_asian_width


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, with an ellipsis where something is missing."""
    if cell_width(text) <= width:
        return text
    kept = []
    left = width - 1
    for character in text:
        left -= cell_width(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + "…" if width > 0 else ""


def wrap(
    text: str, width: int, *, first: str = "", later: str = "", most: int | None = None
) -> list[str]:
    """``text`` in lines of at most ``width`` cells, broken between words where that is possible.

    The first line begins with ``first``, those after it with ``later``; what does not fit in
    ``most`` lines ends in an ellipsis.
    """
    lines: list[str] = []
    line = first
    empty = True
    for word in text.split():
        room = width - cell_width(line) - (0 if empty else 1)
        if cell_width(word) <= room or (empty and cell_width(word) > width - cell_width(later)):
            line += cut(word, room) if empty else f" {word}"
        else:
            lines.append(line)
            line = later + cut(word, width - cell_width(later))
        empty = False
    lines = lines if empty else [*lines, line]
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], cut(f"{lines[most - 1]} …", width)]


def table(headings: Sequence[Column[Any]], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table no wider than ``width``, the titles first.

    A text in the last column is cut to what is left of the width. A column with nothing but
    ``-`` in it is left out.
    """
    widths = [
        max(cell_width(text) for text in (heading.title, *column))
        for heading, column in zip(headings, zip(*rows, strict=True), strict=True)
    ]
    shown = [
        place
        for place, heading in enumerate(headings)
        if heading.rank == 0 or any(row[place] not in {"-", ""} for row in rows)
    ]
    last = len(headings) - 1
    if headings[last].text:
        widths[last] = min(widths[last], max(len(headings[last].title), 16))
    while _total(widths, shown) > width:
        rank = max(headings[place].rank for place in shown)
        if rank == 0:
            break
        shown.remove(max(place for place in shown if headings[place].rank == rank))
    if headings[last].text and last in shown:
        widths[last] += max(0, width - _total(widths, shown))
    cells = [[heading.title for heading in headings], *rows]
    return [_line(headings, row, widths, shown, width) for row in cells]


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[place] for place in shown) + len(GAP) * (len(shown) - 1)


def _line(
    headings: Sequence[Column[Any]],
    row: Sequence[str],
    widths: Sequence[int],
    shown: Sequence[int],
    width: int,
) -> str:
    parts = []
    for place in shown:
        text = cut(row[place], widths[place])
        padding = " " * (widths[place] - cell_width(text))
        parts.append(text + padding if headings[place].text else padding + text)
    return cut(GAP.join(parts).rstrip(), width)
