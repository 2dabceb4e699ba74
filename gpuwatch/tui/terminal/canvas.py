"""A widget that draws its own lines and sends only the cells that changed.

While the canvas has the screen to itself it writes them to the terminal as they are. Under a
dialog or beside an input line Textual's compositor does it, from the same lines.

Textual's compositor knows which spans changed, but builds and sends each from the left edge of
its widget, with every run's full style and a reset after it. For a screen that changes a few
digits a second that is some ten times the bytes and several times the CPU. Here only the cells
that changed are sent, one style after the other: naming a colour takes some twenty bytes, going to
another place three to nine. Charts that only moved to the left are moved by the terminal.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, takewhile
from operator import eq, itemgetter
from typing import NamedTuple

from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpuwatch.tui.terminal.frame import MAYBE_WIDE, Line, plain, to_ascii, width_of
from gpuwatch.tui.terminal.palette import Palette

# -- which cells differ from those shown -----------------------------------------------------------


Piece = tuple[int, str, str]
"""The first cell, the text from there on, and the name of its style."""

_MERGE_GAP = 1
"""Cells between two changes of one run that are sent with them: a glyph takes the three bytes of
skipping it."""
_SPAN = re.compile(rb"x(?:\0{0,%d}x)*" % (2 * _MERGE_GAP + 1))
"""Stretches of changed cells in marks of two bytes a cell, ``x`` where they changed."""
_MARKED = b"\0" + 255 * b"x"

_MOVED_LEAST = 16
"""Cells: fewer are sent anew for about what it costs to move them."""
_PROBE = 12
"""Cells in a row that are looked for where they may have come from."""
_ASKED_MOST = 3
"""Pieces that are asked: what is new at a chart's end was nowhere before, so the longest may not be
the one."""
_BLANK = "\0"
"""Mark of a cell that shows nothing known."""


class Move(NamedTuple):
    """Move to the left: ``cells`` cells are taken out at ``start``, and as many put in before what
    stands at ``stop``, which stays."""

    start: int
    stop: int
    cells: int


class _Cells(NamedTuple):
    """Cells of a line in which every character is one cell wide. All is worked out for the whole
    line at once: what asks each cell costs ten times that."""

    text: str
    number: int
    """Number made of the text: two lines differ where the bits of their numbers do."""
    styles: str
    """A character for each cell's style."""


_marks: defaultdict[str, str] = defaultdict(lambda: chr(len(_marks) + 1))
"""A character for each style there is."""


def changes(
    before: Line, after: Line, likely: Move | None = None
) -> tuple[Move | None, list[Piece]]:
    """Return what is to be written to make one line of the other, from left to right, each piece of
    one run of ``after``; where characters may be wide it is all from the first difference on. And a
    move to the left that comes before it and makes it less: the ``likely`` one if that leaves
    little, since it costs much less to try one than to find one."""
    old, new = _cells(before), _cells(after)
    if old is None or new is None:
        return None, _all_from_the_first(before, after)
    marked = _marked(old, new)
    if likely is not None and marked.count(b"x") > 2 * _MOVED_LEAST:
        left = _marked(_moved(old, likely), new)
        if left.count(b"x") < _MOVED_LEAST:
            return likely, _pieces(left, new, after)
    pieces = _pieces(marked, new, after)
    changed = _cells_in(pieces)
    if changed < _MOVED_LEAST:
        return None, pieces
    move = _move(old.text, new.text, pieces)
    if move.stop - move.start - move.cells < _MOVED_LEAST:
        return None, pieces
    rest = _pieces(_marked(_moved(old, move), new), new, after)
    return (move, rest) if changed - _cells_in(rest) >= _MOVED_LEAST else (None, pieces)


# What was drawn last is what the next picture is compared with.
@lru_cache(maxsize=128)
def _cells(line: Line) -> _Cells | None:
    text = plain(line)
    if not text.isascii() and MAYBE_WIDE.search(text):
        return None
    styles = "".join([_marks[style] * len(run) for run, style in line])
    return _Cells(text, _number(text), styles)


def _moved(line: _Cells, by: Move) -> _Cells:
    start, stop, cells = by
    text, styles = [
        one[:start] + one[start + cells : stop] + _BLANK * cells + one[stop:]
        for one in (line.text, line.styles)
    ]
    return _Cells(text, _number(text), styles)


def _all_from_the_first(before: Line, after: Line) -> list[Piece]:
    starts = accumulate([width_of(text) for text, _ in after], initial=0)
    pieces = [(x, *run) for x, run in zip(starts, after, strict=False)]
    alike = takewhile(bool, map(eq, before, after))
    return pieces[sum(alike) :]


def _number(text: str) -> int:
    return int.from_bytes(text.encode("utf-16-le"), "little")


def _cells_in(pieces: Sequence[Piece]) -> int:
    return sum([len(text) for _, text, _ in pieces])


def _marked(old: _Cells, new: _Cells) -> bytes:
    """Mark the cells that differ by ``x`` in one or both of their two bytes, others by zeros."""
    differ = old.number ^ new.number
    if old.styles != new.styles:
        differ |= _number(old.styles) ^ _number(new.styles)
    length = max(len(old.text), len(new.text))
    return differ.to_bytes(2 * length, "little").translate(_MARKED)


def _pieces(marked: bytes, new: _Cells, after: Line) -> list[Piece]:
    """Return what stands in the marked cells of ``new``, whose runs are those of ``after``."""
    pieces: list[Piece] = []
    runs = iter(after)
    run_end, style = 0, ""
    for span in _SPAN.finditer(marked, 0, 2 * len(new.text)):
        start, end = span.start() // 2, (span.end() + 1) // 2
        while start < end:
            while start >= run_end:
                run, style = next(runs)
                run_end += len(run)
            upto = min(end, run_end)
            pieces.append((start, new.text[start:upto], style))
            start = upto
    return pieces


def _move(old: str, new: str, pieces: Sequence[Piece]) -> Move:
    """Return the longest stretch of ``new`` that stood further to the right and holds the beginning
    of a long piece; one of no length where there is none."""
    found = []
    for at, _, _ in sorted(pieces, key=lambda piece: len(piece[1]), reverse=True)[:_ASKED_MOST]:
        place = old.find(new[at : at + _PROBE], at + 1)
        if place > 0:
            ahead = _alike_for(old[place:], new[at:])
            back = _alike_for(old[place - 1 :: -1], new[at - 1 :: -1]) if at else 0
            found.append(Move(at - back, place + ahead, place - at))
    return max(found, key=lambda one: one.stop - one.start - one.cells, default=Move(0, 0, 0))


def _alike_for(one: str, other: str) -> int:
    """Count the characters at the beginning that are the same."""
    return sum(takewhile(bool, map(eq, one, other)))


# -- the bytes of a refresh ------------------------------------------------------------------------


Codes = tuple[str, str, str]
"""Attributes, foreground and background of a style, as SGR parameters."""

_NOTHING: Codes = ("", "", "")
_NOWHERE = (-1, -1)
"""Place of the cursor while it is not known."""

Change = tuple[int, Line, Line]
"""A line number, what is shown there, and what is to be."""


class Encoder:
    """Encoder of changes as text with escape sequences, for one palette and one kind of
    terminal."""

    def __init__(self, palette: Palette, color_system: ColorSystem | None) -> None:
        self.palette = palette
        self.color_system = color_system
        self._codes: dict[str, Codes] = {}
        self._moved: dict[int, tuple[int, int]] = {}
        """First cell and end of the last move of each line."""

    def encode(self, lines: Iterable[Change], width: int) -> str:
        """Return the text that brings the terminal, ``width`` cells wide, up to date; empty if it
        is. It leaves the style reset."""
        out: list[str] = []
        moves: list[tuple[int, Move]] = []
        by_style: dict[Codes, list[tuple[int, int, str]]] = {}
        # The rows of a chart, and charts of one width, move by as many cells.
        cells = 0
        for y, before, after in lines:
            place = self._moved.get(y)
            likely = Move(*place, cells) if place is not None and cells else None
            move, pieces = changes(before, after, likely)
            if move is not None:
                cells = move.cells
                self._moved[y] = move.start, move.stop
                moves.append((y, move))
            for x, text, name in pieces:
                codes = self._codes.get(name)
                if codes is None:
                    codes = self._codes[name] = sgr(self.palette[name], self.color_system)
                by_style.setdefault(codes, []).append((y, x, text))
        at = _NOWHERE
        # Down along the beginnings and up along the ends: from line to line is the shortest way.
        for y, move in moves:
            out.append(f"{_way(at, y, move.start)}\x1b[{move.cells}P")
            at = y, move.start
        for y, move in reversed(moves):
            out.append(f"{_way(at, y, move.stop - move.cells)}\x1b[{move.cells}@")
            at = y, move.stop - move.cells
        style = _NOTHING
        # Styles on one ground follow each other: only one of the two colours is named then.
        for codes in sorted(by_style, key=itemgetter(0, 2)):
            places = by_style[codes]
            if codes != style:
                out.append(difference(style, codes))
                style = codes
            for y, x, text in places:
                out.append(_way(at, y, x))
                out.append(text)
                wide = width_of(text)
                # What a terminal takes to be wide, and where it is after a line's last cell, is
                # known for sure of its own characters only.
                at = (y, x + wide) if wide == len(text) and x + wide < width else _NOWHERE
        if style != _NOTHING:
            out.append("\x1b[0m")
        return "".join(out)


def _way(at: tuple[int, int], y: int, x: int) -> str:
    """Return the shortest sequence that takes the cursor from ``at`` to a line and a cell."""
    down, right = y - at[0], x - at[1]
    if not down and right > 0:
        # By far the most, and always the shortest.
        return _steps(right, "C", "D")
    there = f"\x1b[{y + 1};{x + 1}H"
    if at is _NOWHERE:
        return there
    way = _steps(down, "B", "A")
    way += "\b" * -right if -4 < right < 0 else _steps(right, "C", "D")
    return way if len(way) < len(there) else there


def _steps(count: int, ahead: str, back: str) -> str:
    if count in (-1, 0, 1):
        return ("\x1b[" + back, "", "\x1b[" + ahead)[count + 1]
    return f"\x1b[{abs(count)}{ahead if count > 0 else back}"


def difference(before: Codes, codes: Codes) -> str:
    """Return the sequence that turns one style into the other."""
    if before[0] != codes[0]:
        changed = ["0", *filter(None, codes)]
    else:
        colours = zip(before[1:], codes[1:], ("39", "49"), strict=True)
        changed = [now or default for old, now, default in colours if old != now]
    return f"\x1b[{';'.join(changed)}m"


def sgr(style: Style, color_system: ColorSystem | None) -> Codes:
    """Return ``style`` as SGR parameters, in the colours the terminal has."""
    attributes = [
        code
        for is_set, code in (
            (style.bold, "1"),
            (style.dim, "2"),
            (style.underline, "4"),
            (style.reverse, "7"),
        )
        if is_set
    ]
    foreground = background = ""
    if color_system is not None:
        if style.color is not None:
            foreground = ";".join(style.color.downgrade(color_system).get_ansi_codes(True))
        if style.bgcolor is not None:
            background = ";".join(style.bgcolor.downgrade(color_system).get_ansi_codes(False))
    return ";".join(attributes), foreground, background


# -- the widget ------------------------------------------------------------------------------------


_TEXTUALS = "-textual-system"


class Canvas(Widget):
    """Widget that shows the lines handed to ``show``."""

    DEFAULT_CSS = """
    Canvas {
        width: 1fr;
        height: 1fr;
    }
    """

    def __init__(self, palette: Palette, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.palette = palette
        self._lines: Sequence[Line] = ()
        self._line_width = 0
        self.ascii_only = False
        """Process names too: the terminal has no other characters."""
        self._encoder = Encoder(palette, None)

    @property
    def lines(self) -> Sequence[Line]:
        """Return the lines in sight."""
        return self._lines

    def show(self, lines: Sequence[Line], width: int) -> None:
        """Show ``lines``, all of them ``width`` cells; only cells that differ are sent."""
        if self.ascii_only:
            lines = [tuple((to_ascii(text), style) for text, style in line) for line in lines]
        before = self._lines
        self._lines = lines
        if len(before) != len(lines) or width != self._line_width:
            self._line_width = width
            self.refresh()
            return
        changes: list[Change] = [
            (y, old, new)
            for y, (old, new) in enumerate(zip(before, lines, strict=True))
            if old is not new and old != new
        ]
        if changes and not self._write(changes):
            self.refresh(*[Region(0, y, width, 1) for y, _, _ in changes])

    def _write(self, changes: Sequence[Change]) -> bool:
        """Send the changes to the terminal, if nothing but this canvas is on it."""
        app, screen = self.app, self.screen
        write = getattr(app, "write_directly", None)
        # Every screen has Textual's (unused) toasts and tooltip; anything else may cover us.
        others = [one for one in screen.children if not (one is self or one.has_class(_TEXTUALS))]
        fits = self.size == screen.size == (self._line_width, len(self._lines))
        if write is None or app.screen is not screen or others or not fits:
            return False
        colors = app.console.color_system
        color_system = None if colors is None else COLOR_SYSTEMS[colors]
        encoder = self._encoder
        if encoder.palette is not self.palette or encoder.color_system is not color_system:
            encoder = self._encoder = Encoder(self.palette, color_system)
        # The same cells can be cut into other runs: then nothing changed.
        text = encoder.encode(changes, self._line_width)
        return not text or bool(write(text))

    def repaint(self, palette: Palette) -> None:
        """Show the same lines in other colours."""
        self.palette = palette
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines in ``crop``. A canvas has no border, padding or tint, and its palette
        already says what ``NO_COLOR`` and the terminal's own colours mean, so the passes that
        Textual makes over a widget's lines for those are left out."""
        left, right = crop.x, crop.right
        whole = left == 0 and right == self.size.width
        strips = [self.render_line(y) for y in range(crop.y, crop.bottom)]
        return strips if whole else [strip.crop(left, right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        # Made anew: kept, those of a screen take 0.3 MiB after a dialog was open over it.
        palette, width = self.palette, self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, palette["text"])
        segments = [Segment(text, palette[style]) for text, style in self._lines[y]]
        strip = Strip(segments, self._line_width)
        return strip.adjust_cell_length(width, palette["text"])
