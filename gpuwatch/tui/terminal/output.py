"""The bytes of a refresh: only the cells that changed, one style after the other.

Textual's compositor knows which spans changed, but builds and sends each from the left edge of
its widget, with every run's full style and a reset after it. For a screen that changes a few
digits a second that is some ten times the bytes and several times the CPU, so a canvas that has
the whole screen to itself writes its changes itself (see ``canvas``).

Naming a colour takes some twenty bytes, going to another place three to nine: so all cells of one
style are sent before those of the next, wherever they stand. What moved to the left in a line, as
charts do, is moved by the terminal.
"""

from collections.abc import Iterable

from rich.color import ColorSystem
from rich.style import Style

from gpuwatch.tui.terminal.changes import Move, changes
from gpuwatch.tui.terminal.frame import Line, width_of
from gpuwatch.tui.terminal.palette import Palette

Codes = tuple[str, str, str]
"""Attributes, foreground and background of a style, as SGR parameters."""

_NOTHING: Codes = ("", "", "")
_NOWHERE = (-1, -1)
"""Where the cursor is while that is not known."""

Change = tuple[int, Line, Line]
"""A line number, what is shown there, and what is to be."""


class Encoder:
    """Turns changes into text with escape sequences, for one palette and one kind of terminal."""

    def __init__(self, palette: Palette, color_system: ColorSystem | None) -> None:
        self.palette = palette
        self.color_system = color_system
        self._codes: dict[str, Codes] = {}

    def encode(self, lines: Iterable[Change], width: int) -> str:
        """The text that brings the terminal, ``width`` cells wide, up to date; empty if it is. It
        leaves the style reset."""
        out: list[str] = []
        by_style: dict[Codes, list[tuple[int, int, str]]] = {}
        moves: list[Move] = []
        at = _NOWHERE
        for y, before, after in lines:
            move, pieces = changes(before, after, moves)
            if move is not None:
                start, stop, cells = move
                out.append(f"{_way(at, y, start)}\x1b[{cells}P")
                out.append(f"\x1b[{stop - cells - start}C\x1b[{cells}@")
                at = y, stop - cells
            for x, text, name in pieces:
                codes = self._codes.get(name) or self._remember(name)
                places = by_style.get(codes)
                if places is None:
                    places = by_style[codes] = []
                places.append((y, x, text))
        style = _NOTHING
        for codes, places in by_style.items():
            if codes != style:
                out.append(difference(style, codes))
                style = codes
            for y, x, text in places:
                out.append(_way(at, y, x))
                out.append(text)
                cells = width_of(text)
                # What a terminal takes to be wide, and where it is after a line's last cell, is
                # known for sure of its own characters only.
                at = (y, x + cells) if cells == len(text) and x + cells < width else _NOWHERE
        if style != _NOTHING:
            out.append("\x1b[0m")
        return "".join(out)

    def _remember(self, name: str) -> Codes:
        codes = self._codes[name] = sgr(self.palette[name], self.color_system)
        return codes


def _way(at: tuple[int, int], y: int, x: int) -> str:
    """The shortest sequence that takes the cursor from ``at`` to a line and a cell."""
    there = f"\x1b[{y + 1};{x + 1}H"
    if at is _NOWHERE:
        return there
    down, right = y - at[0], x - at[1]
    way = _steps(down, "B", "A")
    way += "\b" * -right if -4 < right < 0 else _steps(right, "C", "D")
    return way if len(way) < len(there) else there


def _steps(count: int, ahead: str, back: str) -> str:
    if count in (-1, 0, 1):
        return ("\x1b[" + back, "", "\x1b[" + ahead)[count + 1]
    return f"\x1b[{abs(count)}{ahead if count > 0 else back}"


def difference(before: Codes, codes: Codes) -> str:
    """The sequence that turns one style into the other."""
    if before[0] != codes[0]:
        changed = ["0", *filter(None, codes)]
    else:
        colours = zip(before[1:], codes[1:], ("39", "49"), strict=True)
        changed = [now or default for old, now, default in colours if old != now]
    return f"\x1b[{';'.join(changed)}m"


def sgr(style: Style, color_system: ColorSystem | None) -> Codes:
    """``style`` as SGR parameters, in the colours the terminal has."""
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
