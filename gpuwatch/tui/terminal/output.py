"""The bytes of a refresh: only the cells that changed, and of their style only what
differs from the cell before.

Textual's compositor knows which spans changed, but builds and sends each from the left edge of
its widget, with every run's full style and a reset after it. For a screen that changes a few
digits a second that is some ten times the bytes and several times the CPU, so a canvas that has
the whole screen to itself writes its changes itself (see ``canvas``).
"""

from collections.abc import Iterable, Sequence

from rich.color import ColorSystem
from rich.style import Style

from gpuwatch.tui.terminal.frame import Line, width_of
from gpuwatch.tui.terminal.palette import Palette

Codes = tuple[str, str, str]
"""Attributes, foreground and background of a style, as SGR parameters."""

_NOWHERE = -1

_NOTHING: Codes = ("", "", "")

Change = tuple[int, Line, Sequence[tuple[int, int]]]
"""A line number, what the line is now, and the spans of it that changed (ascending, apart)."""


class Encoder:
    """Turns changes into text with escape sequences, for one palette and one kind of terminal."""

    def __init__(self, palette: Palette, color_system: ColorSystem | None) -> None:
        self.palette = palette
        self.color_system = color_system
        self._codes: dict[str, Codes] = {}

    def encode(self, changes: Iterable[Change]) -> str:
        """The text that brings the terminal up to date; it leaves the style reset."""
        out: list[str] = []
        style = _NOTHING
        for y, line, spans in changes:
            style = self._line(out, style, y, line, spans)
        if style != _NOTHING:
            out.append("\x1b[0m")
        return "".join(out)

    def _line(
        self, out: list[str], style: Codes, y: int, line: Line, spans: Sequence[tuple[int, int]]
    ) -> Codes:
        rest = iter(spans)
        start, stop = next(rest)
        position, cursor = 0, _NOWHERE
        for text, name in line:
            width = width_of(text)
            after = position + width
            while start < after:
                low, high = max(start, position), min(stop, after)
                if cursor == _NOWHERE:
                    out.append(f"\x1b[{y + 1};{low + 1}H")
                elif cursor != low:
                    out.append(f"\x1b[{low - cursor}C")
                codes = self._codes.get(name) or self._remember(name)
                if codes != style:
                    out.append(difference(style, codes))
                    style = codes
                # A run with wide characters is always sent whole (see ``changed_spans``).
                out.append(text[low - position : high - position] if width == len(text) else text)
                cursor = high
                if stop > after:
                    break
                following = next(rest, None)
                if following is None:
                    return style
                start, stop = following
            position = after
        return style

    def _remember(self, name: str) -> Codes:
        codes = self._codes[name] = sgr(self.palette[name], self.color_system)
        return codes


def difference(before: Codes, codes: Codes) -> str:
    """The sequence that turns one style into the other."""
    attributes, foreground, background = codes
    changed = _attributes(before[0], attributes) if before[0] != attributes else []
    if before[1] != foreground:
        changed.append(foreground or "39")
    if before[2] != background:
        changed.append(background or "49")
    return f"\x1b[{';'.join(changed)}m"


# What takes an attribute back: bold and dim share one.
_OFF = {"1": "22", "2": "22", "4": "24", "7": "27"}


def _attributes(before: str, after: str) -> list[str]:
    old, new = set(filter(None, before.split(";"))), set(filter(None, after.split(";")))
    off = {_OFF[code] for code in old - new}
    # Taking back one of bold and dim takes back the other, which may have to come again.
    again = {code for code in new & old if _OFF[code] in off}
    return [*sorted(off), *sorted((new - old) | again)]


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
