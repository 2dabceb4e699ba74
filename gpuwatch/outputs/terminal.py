"""Plain text for a terminal: aligned tables that fit a width, the least important columns left out
first; pages of lines that fit, painted where there are colours.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

GAP = "  "
T_contra = TypeVar("T_contra", contravariant=True)


class Column(NamedTuple, Generic[T_contra]):
    """One column of a table, declared once for terminal, dashboard and HTML."""

    heading: str
    cell: Callable[[T_contra], str] = str
    kind: str = "number"
    """Alignment: ``number`` (right), ``text`` or ``long`` (left; ``long`` is a command line)."""
    rank: int = 0
    """Order in which columns give way: the highest first when a terminal is narrow; 0 stays."""
    page: str = ""
    """Heading in HTML, where it is not the heading in sentence case."""
    total: Callable[[Any], str] | None = None
    """Cell below all rows, made of the report."""
    width: int = 0
    """Cells on the dashboard, whose columns must not move; elsewhere its texts decide."""
    style: Callable[[T_contra, str], str] | None = None
    """Name of the style of a cell on the dashboard, by the item and the text in it."""
    runs: Callable[[T_contra], Sequence[tuple[str, str]]] | None = None
    """Cell of several styles on the dashboard, as (text, style) in exactly ``width`` cells."""
    sort: str | None = None
    """Sort order that a click on the heading chooses."""

    @property
    def page_heading(self) -> str:
        return self.page or self.heading.capitalize()

    @property
    def is_text(self) -> bool:
        return self.kind != "number"


def cell_width(text: str) -> int:
    """Return how many terminal cells ``text`` (made safe before) takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else _WIDTHS.get(_east_asian(character), 1)
        for character in text
    )


_WIDTHS = {"W": 2, "F": 2}
_east_asian = unicodedata.east_asian_width


def cut(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` cells, with an ellipsis where something is missing."""
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
    """Return ``text`` in lines of at most ``width`` cells, broken between words where that is
    possible, and not within a command.

    The first line begins with ``first``, those after it with ``later``; what does not fit in
    ``most`` lines ends in an ellipsis.
    """
    lines: list[str] = []
    line = first
    empty = True
    for word in words_of(text, width - cell_width(later)):
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


_WORDS = re.compile(r"\S*`[^`]+`\S*|\S+(?: +--?[a-zA-Z]\S*)*")


def words_of(text: str, width: int) -> Iterator[str]:
    """Yield the words of a text; one are a command in backticks, which is copied as a whole, and a
    word with its options (``nvidia-smi -pl``), where a line of ``width`` cells has room for it."""
    for found in _WORDS.findall(text):
        words = found.split()
        together = " ".join(words)
        yield from [together] if cell_width(together) <= width else words


def as_ascii(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def table(columns: Sequence[Column[Any]], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of a table no wider than ``width``, the headings first.

    A text in the last column is cut to what is left of the width. A column with nothing but
    ``-`` in it is left out.
    """
    widths = [
        max(cell_width(text) for text in (one.heading, *cells))
        for one, cells in zip(columns, zip(*rows, strict=True), strict=True)
    ]
    shown = [
        place
        for place, one in enumerate(columns)
        if one.rank == 0 or any(row[place] not in {"-", ""} for row in rows)
    ]
    last = len(columns) - 1
    if columns[last].is_text:
        widths[last] = min(widths[last], max(len(columns[last].heading), 16))
    shown = fitting(columns, widths, shown, width, len(GAP))
    if columns[last].is_text and last in shown:
        widths[last] += max(0, width - _total(widths, shown, len(GAP)))
    cells = [[one.heading for one in columns], *rows]
    return [_line(columns, row, widths, shown, width) for row in cells]


def fitting(
    columns: Sequence[Column[Any]],
    widths: Sequence[int],
    shown: Iterable[int],
    width: int,
    gap: int,
) -> list[int]:
    """Return which of the places ``shown`` fit in ``width`` cells with ``gap`` blanks between them.

    The column of the highest rank gives way first, of equal ones the last; rank 0 stays.
    """
    left = list(shown)
    while _total(widths, left, gap) > width:
        rank = max(columns[place].rank for place in left)
        if rank == 0:
            break
        left.remove(max(place for place in left if columns[place].rank == rank))
    return left


def _total(widths: Sequence[int], shown: Sequence[int], gap: int) -> int:
    return sum(widths[place] for place in shown) + gap * (len(shown) - 1)


def _line(
    columns: Sequence[Column[Any]],
    row: Sequence[str],
    widths: Sequence[int],
    shown: Sequence[int],
    width: int,
) -> str:
    parts = []
    for place in shown:
        text = cut(row[place], widths[place])
        padding = " " * (widths[place] - cell_width(text))
        parts.append(text + padding if columns[place].is_text else padding + text)
    return cut(GAP.join(parts).rstrip(), width)


STATE_HUES = {
    "fed": ("#4fbf95", "#007a5e"),
    "starved": ("#f0b040", "#985a00"),
    "throttled": ("#c873b6", "#9a3589"),
    "waiting": ("#8599e6", "#5160c4"),
    "late": ("#f28b50", "#b8480a"),
    "idle": ("#89929b", "#626a72"),
}
"""Colour of each state of a GPU, on a dark ground and on a light one."""
BOLD, DIM, RED, YELLOW, CYAN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[36m"
COLOURS = {"error": RED, "warning": YELLOW, "info": CYAN}
"""Colour of a finding, by its severity."""
_RESET = "\x1b[0m"
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│━▁▂▃▄▅▆▇█▏▎▍▌▋▊▉…·→▸×²", "+++++|+++-|=_.:-=+*#   ####~->>x2") | {
    ord("±"): "+-",
    ord("µ"): "u",
    ord("✓"): "+",
    ord("✗"): "X",
}

Item = TypeVar("Item")

LABEL = 10
"""Cells of the label before a line."""
_KEEP = "\ue000"


class Page:
    """A page that is filled from the top; ``lines`` is its content."""

    def __init__(self, width: int, colour: bool) -> None:
        self.lines: list[str] = []
        self.width = width
        self._colour = colour

    def text(self, unicode: bool) -> str:
        text = "\n".join(self.lines).rstrip("\n")
        return text if unicode else as_ascii(text)

    def paint(self, text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if self._colour and text and style else text

    def gap(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def say(self, text: str, *, style: str = "", first: str = "", later: str = "") -> None:
        lines = wrap(text, self.width, first=first, later=later)
        self.lines += [self.paint(line, style) for line in lines]

    def facts(
        self, facts: Iterable[str], between: str = ", ", *, style: str = "", later: str = ""
    ) -> None:
        """Print facts in one line where there is room; no line ends within a fact that fits one."""
        kept = between.join(fact.replace(" ", _KEEP) for fact in facts)
        lines = wrap(kept, self.width, later=later)
        self.lines += [self.paint(line.replace(_KEEP, " "), style) for line in lines]

    def labelled(self, label: str, text: str, mark: str = "") -> None:
        """Print `` Because - busy 47% ...``, wrapped under itself."""
        first = f"  {label:<{LABEL}}{mark}"
        self.say(text, first=first, later=" " * cell_width(first))

    def table(self, columns: Sequence[Column[Any]], rows: Sequence[Sequence[str]]) -> None:
        titles, *lines = table(columns, rows, self.width)
        self.lines += [self.paint(titles, BOLD), *lines]

    def items(
        self,
        columns: Sequence[Column[Item]],
        items: Sequence[Item],
        *,
        style: Callable[[Item], str] = lambda _item: "",
        below: Callable[[Item], Iterable[str]] = lambda _item: (),
    ) -> None:
        """Print a row for each item, painted in its ``style``, with the lines ``below`` it."""
        rows = [[column.cell(item) for column in columns] for item in items]
        titles, *lines = table(columns, rows, self.width)
        self.lines.append(self.paint(titles, BOLD))
        for item, line in zip(items, lines, strict=True):
            self.lines += [self.paint(line, style(item)), *below(item)]
