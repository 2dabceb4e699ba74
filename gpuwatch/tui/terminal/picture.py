"""A picture of the screen as a file: SVG that needs nothing from elsewhere.

Textual's own export names a web font to be fetched, and leaves block characters to whatever font is
found and cuts every line off, which tears charts apart. Here every word has its own place, and
blocks and lines are drawn as shapes, so the picture looks the same everywhere, offline.
"""

import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.color import Color, blend_rgb
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from gpuwatch.core.private_files import make_folder, private, state_folder

_CELL_WIDTH, _CELL_HEIGHT, _BASE_LINE, _MARGIN = 8.4, 18.0, 13.6, 10.0
_FONTS = "'Fira Code','DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace"

_BARS = {"─": (0.5, 1 / 18), "━": (0.43, 0.14), "▔": (0, 1 / 8)} | {
    block: (1 - eighths / 8, eighths / 8) for eighths, block in enumerate("▁▂▃▄▅▆▇█", start=1)
}
"""Top and height of what is as wide as its cells, as shares of a cell's height."""
_BOXES = {
    "│": "ud", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu",
    "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru", "┼": "lrud", "╵": "u",
    "╭": "rd", "╮": "ld", "╰": "ru", "╯": "lu",
}  # fmt: skip
"""Box characters as strokes from the middle of the cell: left, right, up, down; corners are
round."""
_SHAPES = "▁-█▔\u2800-\u28ff▌─━╾" + "".join(_BOXES)
# What has one place: a run of a block or of a line, any other shape, a word, blanks.
_PARTS = re.compile(rf"([▁-█▔─━])\1*|[{_SHAPES}]|[^ {_SHAPES}]+| +")


def svg(lines: Sequence[Iterable[Segment]], theme: TerminalTheme) -> str:
    """Return ``lines`` of segments, as the compositor renders them, as one SVG document."""
    grounds: list[str] = []
    shapes: list[str] = []
    columns = 0
    for y, segments in enumerate(lines):
        x = 0
        for text, style, control in segments:
            if control:
                continue
            look = style or Style.null()
            ink, ground = _colours(look, theme)
            if ground is not None:
                grounds.append(_rectangle(x, y, cell_len(text), 1.0, ground))
            more = ' font-weight="bold"' * bool(look.bold)
            if look.underline:
                grounds.append(_rectangle(x, y + 17 / 18, cell_len(text), 1 / 18, ink))
            for match in _PARTS.finditer(text):
                shapes.append(_shape(x, y, match[0], ink, more))
                x += cell_len(match[0])
        columns = max(columns, x)
    width = columns * _CELL_WIDTH + 2 * _MARGIN
    height = len(lines) * _CELL_HEIGHT + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="{_FONTS}" '
        'font-size="14" shape-rendering="crispEdges">\n'
        f'<rect width="100%" height="100%" rx="6" fill="{_hex(theme.background_color)}"/>\n'
        + "\n".join(grounds + [one for one in shapes if one])
        + "\n</svg>\n"
    )


def _colours(style: Style, theme: TerminalTheme) -> tuple[str, str | None]:
    ink, own = _resolve(style.color, theme, True), style.bgcolor
    ground = None if own is None or own.is_default else _resolve(own, theme, False)
    below = ground or _hex(theme.background_color)
    if style.dim:
        ink = _hex(blend_rgb(_triplet(below), _triplet(ink), _DIM))
    return (below, ink) if style.reverse else (ink, ground)


_DIM = 0.55
"""How much of its ink a dim cell has."""


def _triplet(colour: str) -> ColorTriplet:
    return Color.parse(colour).get_truecolor()


def _resolve(color: Color | None, theme: TerminalTheme, foreground: bool) -> str:
    if color is None or color.is_default:
        return _hex(theme.foreground_color if foreground else theme.background_color)
    return color.get_truecolor(theme, foreground).hex


def _hex(colour: tuple[int, int, int]) -> str:
    return f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"


def _shape(x: int, y: int, part: str, fill: str, more: str) -> str:
    """Return a word where it stands, or a block or a box character as a shape."""
    # html loads a megabyte that only a picture needs.
    from html import escape  # noqa: PLC0415

    first, cells = part[0], cell_len(part)
    left, top = _MARGIN + x * _CELL_WIDTH, _MARGIN + y * _CELL_HEIGHT
    if first == " ":
        return ""
    if first in _BARS:
        down, share = _BARS[first]
        return _rectangle(x, y + down, cells, share, fill)
    if first == "▌":
        return _rectangle(x, y, 0.45, 1.0, fill)
    if first == "╾":
        halves = (x, 0.5, "━"), (x + 0.5, 0.5, "─")
        return "".join(
            [
                _rectangle(at, y + _BARS[bar][0], wide, _BARS[bar][1], fill)
                for at, wide, bar in halves
            ]
        )
    if first in _BOXES:
        # On whole points, where a stroke is sharp.
        across, along = int(left + _CELL_WIDTH / 2) + 0.5, top + _CELL_HEIGHT / 2 + 0.5
        edges = {"l": f"H{left:.1f}", "r": f"H{left + _CELL_WIDTH:.1f}"}
        edges |= {"u": f"V{top:.1f}", "d": f"V{top + _CELL_HEIGHT:.1f}"}
        sides = _BOXES[first]
        if first in "╭╮╰╯":
            begin = across + (4.0 if sides[0] == "r" else -4.0)
            bend = along + (4.0 if sides[1] == "d" else -4.0)
            ways = f"M{begin} {along}Q{across} {along} {across} {bend}{edges[sides[1]]}"
            ways += f"M{begin} {along}{edges[sides[0]]}"
        else:
            ways = "".join([f"M{across} {along}{edges[side]}" for side in sides])
        curved = ' shape-rendering="auto"' * (first in "╭╮╰╯")
        return f'<path d="{ways}" stroke="{fill}" fill="none"{curved}/>'
    return (
        f'<text x="{left:.1f}" y="{top + _BASE_LINE:.1f}" textLength="{cells * _CELL_WIDTH:.1f}" '
        f'fill="{fill}"{more}>{escape(part, quote=False)}</text>'
    )


def _rectangle(x: float, y: float, width: float, height: float, fill: str) -> str:
    # A hair wider and taller than the cell, so that neighbours leave no seam.
    return (
        f'<rect x="{_MARGIN + x * _CELL_WIDTH:.1f}" y="{_MARGIN + y * _CELL_HEIGHT:.2f}" '
        f'width="{width * _CELL_WIDTH + 0.1:.1f}" height="{height * _CELL_HEIGHT + 0.1:.2f}" '
        f'fill="{fill}"/>'
    )


def save(text: str, moment: float, what: str = "gpuwatch", ending: str = "svg") -> Path:
    """Write ``text`` to the current folder (the state folder where that cannot be written) under a
    name that says ``what`` it is and when it was made, and return its path.

    Raises ``OSError`` where neither can be written.
    """
    name = what + time.strftime("-%Y%m%d-%H%M%S", time.localtime(moment))
    places = [Path.cwd(), state_folder()]
    for place in places:
        try:
            if not place.is_dir():
                make_folder(place)
            return _write_new(place, name, ending, text)
        except OSError:
            if place is places[-1]:
                raise
    raise AssertionError


def _write_new(folder: Path, name: str, ending: str, text: str) -> Path:
    """Write a new file, never over one that is there: a second one of a second gets a number."""
    taken = len(list(folder.glob(f"{name}*.{ending}")))
    path = folder / f"{name}{f'-{taken + 1}' if taken else ''}.{ending}"
    with open(path, "x", encoding="utf-8", opener=private) as file:
        file.write(text)
    return path
