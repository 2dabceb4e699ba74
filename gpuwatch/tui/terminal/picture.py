"""A picture of the screen as a file: SVG that needs nothing from elsewhere.

Textual's own export names a web font to be fetched and leaves block characters to whatever font is
found, which tears charts apart. Here every word has its own place, and blocks and lines are drawn
as shapes, so the picture looks the same everywhere, offline.
"""

import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from gpuwatch.core.private_files import make_folder, private, state_folder

_CELL_WIDTH = 8.4
_CELL_HEIGHT = 18.0
_BASE_LINE = 13.6
_MARGIN = 10.0
_FONTS = "'Fira Code','DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace"

# Box characters as strokes from the middle of the cell: left, right, up, down.
_BOXES = {
    "─": "lr", "│": "ud", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu",
    "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru", "┼": "lrud", "╵": "u",
    "╭": "rd", "╮": "ld", "╰": "ru", "╯": "lu",
}  # fmt: skip
_STROKES = {"l": (-0.5, 0.0), "r": (0.5, 0.0), "u": (0.0, -0.5), "d": (0.0, 0.5)}

_BLOCKS = "▁▂▃▄▅▆▇█"
_SHAPES = "▁-█\u2800-\u28ff▌" + "".join(_BOXES)
# What has one place: a run of a block or of a line, any other shape, a word, blanks.
_PARTS = re.compile(rf"([▁-█─])\1*|[{_SHAPES}]|[^ {_SHAPES}]+| +")


def svg(lines: Sequence[Iterable[Segment]], theme: TerminalTheme) -> str:
    """``lines`` of segments, as the compositor renders them, as one SVG document."""
    painter = _Painter(theme)
    for y, segments in enumerate(lines):
        painter.line(y, segments)
    return painter.document(len(lines))


class _Painter:
    def __init__(self, theme: TerminalTheme) -> None:
        self._theme = theme
        self._grounds: list[str] = []
        self._shapes: list[str] = []
        self._width = 0

    def line(self, y: int, segments: Iterable[Segment]) -> None:
        x = 0
        for text, style, control in segments:
            if control:
                continue
            foreground, background = self._colours(style or Style.null())
            width = cell_len(text)
            if background is not None and width:
                self._rectangle(self._grounds, x, y, width, 0.0, 1.0, background)
            self._text(x, y, text, foreground, style)
            x += width
        self._width = max(self._width, x)

    def document(self, height: int) -> str:
        width_px = self._width * _CELL_WIDTH + 2 * _MARGIN
        height_px = height * _CELL_HEIGHT + 2 * _MARGIN
        ground = _hex(self._theme.background_color)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width_px:g} {height_px:g}" '
            f'width="{width_px:g}" height="{height_px:g}" font-family="{_FONTS}" '
            'font-size="14" shape-rendering="crispEdges">\n'
            f'<rect width="100%" height="100%" rx="6" fill="{ground}"/>\n'
            + "\n".join(self._grounds + self._shapes)
            + "\n</svg>\n"
        )

    def _colours(self, style: Style) -> tuple[str, str | None]:
        theme = self._theme
        foreground = _resolve(style.color, theme, True)
        has_ground = style.bgcolor is not None and not style.bgcolor.is_default
        background = _resolve(style.bgcolor, theme, False) if has_ground else None
        if style.reverse:
            return background or _hex(theme.background_color), foreground
        return foreground, background

    def _text(self, x: int, y: int, text: str, fill: str, style: Style | None) -> None:
        """Words where they stand; runs of one block character as one rectangle."""
        bold = ' font-weight="bold"' if style is not None and style.bold else ""
        if style is not None and style.dim:
            bold += ' opacity="0.6"'
        for match in _PARTS.finditer(text):
            part = match[0]
            first, width = part[0], cell_len(part)
            if first in _BLOCKS:
                share = (_BLOCKS.index(first) + 1) / 8
                self._rectangle(self._shapes, x, y, width, 1 - share, share, fill)
            elif first in _BOXES:
                self._box(x, y, first, width, fill)
            elif first == "▌":
                self._rectangle(self._shapes, x, y, 0.45, 0.0, 1.0, fill)
            elif first != " ":
                self._word(x, y, part, fill, bold)
            x += width

    def _word(self, x: int, y: int, word: str, fill: str, more: str) -> None:
        # html and xml load a megabyte that only a picture needs.
        from html import escape  # noqa: PLC0415

        left = _MARGIN + x * _CELL_WIDTH
        base = _MARGIN + y * _CELL_HEIGHT + _BASE_LINE
        length = cell_len(word) * _CELL_WIDTH
        self._shapes.append(
            f'<text x="{left:.1f}" y="{base:.1f}" textLength="{length:.1f}" '
            f'fill="{fill}"{more}>{escape(word, quote=False)}</text>'
        )

    def _rectangle(
        self, out: list[str], x: int, y: int, width: float, top: float, height: float, fill: str
    ) -> None:
        # A hair wider and taller than the cell, so that neighbours leave no seam.
        out.append(
            f'<rect x="{_MARGIN + x * _CELL_WIDTH:.1f}" '
            f'y="{_MARGIN + (y + top) * _CELL_HEIGHT:.2f}" '
            f'width="{width * _CELL_WIDTH + 0.1:.1f}" height="{height * _CELL_HEIGHT + 0.1:.2f}" '
            f'fill="{fill}"/>'
        )

    def _box(self, x: int, y: int, character: str, length: int, fill: str) -> None:
        middle_x = _MARGIN + (x + 0.5) * _CELL_WIDTH
        middle_y = _MARGIN + (y + 0.5) * _CELL_HEIGHT
        if character == "─":
            left = middle_x - _CELL_WIDTH / 2
            path = f"M{left:.1f} {middle_y:.1f}h{length * _CELL_WIDTH:.1f}"
        else:
            path = "".join(
                f"M{middle_x:.1f} {middle_y:.1f}l{dx * _CELL_WIDTH:.1f} {dy * _CELL_HEIGHT:.1f}"
                for dx, dy in (_STROKES[side] for side in _BOXES[character])
            )
        self._shapes.append(f'<path d="{path}" stroke="{fill}" fill="none"/>')


def _resolve(color: Color | None, theme: TerminalTheme, foreground: bool) -> str:
    if color is None or color.is_default:
        return _hex(theme.foreground_color if foreground else theme.background_color)
    return color.get_truecolor(theme, foreground).hex


def _hex(colour: tuple[int, int, int]) -> str:
    return f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"


def save(text: str, moment: float, folder: Path | None = None) -> Path:
    """Write ``text`` to ``folder`` (the current one; the state folder where that cannot be
    written) under a name that says when, and return its path.

    Raises ``OSError`` where neither can be written.
    """
    name = time.strftime("gpuwatch-%Y%m%d-%H%M%S", time.localtime(moment))
    places = [Path.cwd(), state_folder()] if folder is None else [folder]
    for place in places:
        try:
            if not place.is_dir():
                make_folder(place)
            return _write_new(place, name, text)
        except OSError:
            if place is places[-1]:
                raise
    raise AssertionError


def _write_new(folder: Path, name: str, text: str) -> Path:
    """Write a new file, never over one that is there: a second picture of a second gets a
    number."""
    taken = len(list(folder.glob(f"{name}*.svg")))
    path = folder / f"{name}{f'-{taken + 1}' if taken else ''}.svg"
    with open(path, "x", encoding="utf-8", opener=private) as file:
        file.write(text)
    return path
