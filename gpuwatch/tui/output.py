"""What an update sends to the terminal: only the cells that changed, and only what changes in
their style.

Textual knows which spans of a line changed but sends each from the left edge of its widget, with
every run's full style and a reset after it. For a screen that changes a few digits a second that
is some ten times the bytes. This replaces that last step and nothing else; where a release of
Textual has no such step, its own is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import Strip

_NOTHING = ("", "", "")


class TightUpdate(ChopsUpdate):
    """A partial update that is cropped on both sides and encodes styles as differences."""

    def render_segments(self, console: Console) -> str:
        """The update as text with escape sequences; leaves the terminal's style reset."""
        encoder = _Encoder(console._color_system)
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is not None and x < x2 and end > x1:
                    start, stop = max(x, x1), min(end, x2)
                    encoder.move(start, y)
                    encoder.write(_cropped(strip, start - x, stop - x))
        return encoder.finish()


def tightened(update: object) -> object:
    """``update`` as a ``TightUpdate`` if it is one of Textual's partial updates."""
    if type(update) is ChopsUpdate:
        return TightUpdate(update.chops, update.spans, update.chop_ends)
    return update


def _cropped(strip: Strip, start: int, stop: int) -> Iterator[Segment]:
    """The segments of cells ``[start, stop)``."""
    position = 0
    for segment in strip:
        text = segment.text
        width = len(text) if text.isascii() else cell_len(text)
        after = position + width
        if after > start:
            if position >= start and after <= stop:
                yield segment
            elif len(text) == width:
                yield Segment(text[max(0, start - position) : stop - position], segment.style)
            else:
                # Wide characters: Rich knows how to cut between cells.
                whole = Strip([segment])
                yield from whole.crop(max(0, start - position), min(width, stop - position))
        position = after
        if position >= stop:
            return


class _Encoder:
    """Collects text; remembers the style in force so that only differences are written."""

    # Style -> (attributes, foreground, background) as SGR codes; styles are few and live long.
    _codes: dict[tuple[Style, ColorSystem | None], tuple[str, str, str]] = {}  # noqa: RUF012

    def __init__(self, color_system: ColorSystem | None) -> None:
        self._color_system = color_system
        self._out: list[str] = []
        self._style = _NOTHING

    def move(self, x: int, y: int) -> None:
        self._out.append(f"\x1b[{y + 1};{x + 1}H")

    def write(self, segments: Iterable[Segment]) -> None:
        out = self._out
        for text, style, control in segments:
            if control:
                continue
            codes = self._encode(style) if style is not None else _NOTHING
            if codes != self._style:
                out.append(self._difference(codes))
                self._style = codes
            out.append(text)

    def finish(self) -> str:
        if self._style != _NOTHING:
            self._out.append("\x1b[0m")
        return "".join(self._out)

    def _difference(self, codes: tuple[str, str, str]) -> str:
        attributes, foreground, background = codes
        before = self._style
        if before[0] != attributes:
            if before[0] or before == _NOTHING:
                # Attributes are only taken back together.
                return f"\x1b[{';'.join(filter(None, ('0', attributes, foreground, background)))}m"
            changed = [attributes]
        else:
            changed = []
        if before[1] != foreground:
            changed.append(foreground or "39")
        if before[2] != background:
            changed.append(background or "49")
        return f"\x1b[{';'.join(changed)}m"

    def _encode(self, style: Style) -> tuple[str, str, str]:
        key = (style, self._color_system)
        codes = self._codes.get(key)
        if codes is None:
            if len(self._codes) > 4096:
                self._codes.clear()
            codes = self._codes[key] = _sgr(style, self._color_system)
        return codes


def _sgr(style: Style, color_system: ColorSystem | None) -> tuple[str, str, str]:
    attributes = [
        code
        for is_set, code in (
            (style.bold, "1"),
            (style.dim, "2"),
            (style.italic, "3"),
            (style.underline, "4"),
            (style.reverse, "7"),
            (style.strike, "9"),
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
