"""A widget that draws its own lines and sends only the cells that changed.

While the canvas has the screen to itself it writes them to the terminal as they are. Under a
dialog or beside an input line Textual's compositor does it, from the same lines.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from rich.console import COLOR_SYSTEMS
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpuwatch.tui.terminal.frame import Line, plain, to_ascii, width_of
from gpuwatch.tui.terminal.output import Change, Encoder
from gpuwatch.tui.terminal.palette import Palette

# Two changed spans this close are sent as one: moving the cursor costs about as many bytes.
_MERGE_GAP = 8

# A character that is not one cell wide, as far as this cannot be told at once: anything outside
# ASCII and the box, block and braille glyphs that charts are made of.
_MAYBE_WIDE = re.compile(r"[^\x20-\x7e\u2500-\u25ff\u2800-\u28ff\u00b7\u2026]")

_CHUNK = 16

_TEXTUALS_OWN = "-textual-system"


@lru_cache(maxsize=128)
def _text(line: Line) -> tuple[str, bool]:
    """Without styles, and whether a character may be wide; kept, since the next frame's line is
    held against this one."""
    text = plain(line)
    return text, _MAYBE_WIDE.search(text) is not None


def changed_spans(before: Line, after: Line) -> list[tuple[int, int]]:
    """Cell spans ``[start, end)`` that differ, from left to right; both lines are equally wide.

    Lines with characters that may be wide count as changed from their first difference on.
    """
    (old, old_wide), (new, new_wide) = _text(before), _text(after)
    if old_wide or new_wide:
        return _from_first_difference(before, after)
    spans = _restyled(before, after)
    if old != new:
        spans = sorted([*spans, *_rewritten(old, new)])
    return _merged(spans)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for start, end in spans:
        if out and start - out[-1][1] <= _MERGE_GAP:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def _rewritten(old: str, new: str) -> list[tuple[int, int]]:
    """Where characters differ, to a few cells."""
    spans = []
    for start in range(0, len(new), _CHUNK):
        end = start + _CHUNK
        if old[start:end] == new[start:end]:
            continue
        end = min(end, len(new))
        while old[start] == new[start]:
            start += 1  # noqa: PLW2901
        while old[end - 1] == new[end - 1]:
            end -= 1
        spans.append((start, end))
    return spans


def _restyled(before: Line, after: Line) -> list[tuple[int, int]]:
    """Where styles differ; the runs of the two lines need not be alike."""
    spans = []
    old_runs, new_runs = iter(before), iter(after)
    x = old_end = new_end = 0
    old_style = new_style = ""
    for _ in range(len(before) + len(after)):
        if x == old_end:
            text, old_style = next(old_runs, ("", ""))
            old_end += len(text)
        if x == new_end:
            text, new_style = next(new_runs, ("", ""))
            new_end += len(text)
        end = min(old_end, new_end)
        if end == x:
            break
        if old_style != new_style:
            spans.append((x, end))
        x = end
    return spans


def _from_first_difference(before: Line, after: Line) -> list[tuple[int, int]]:
    x = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        x += width_of(new[0])
    total = max(sum(width_of(text) for text, _ in line) for line in (before, after))
    return [(x, total)] if x < total else []


class Canvas(Widget):
    """Shows lines handed to ``show``; ``render_line`` only looks them up."""

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
        self.few_bytes = False
        """Settle for 256 colours, which take half the bytes to name."""
        self._encoder = Encoder(palette, None)
        self._strips: dict[int, Strip] = {}

    @property
    def lines(self) -> Sequence[Line]:
        """The lines in sight."""
        return self._lines

    def show(self, lines: Sequence[Line], width: int) -> None:
        """Show ``lines``, all of them ``width`` cells; only cells that differ are sent."""
        if self.ascii_only:
            lines = [tuple((to_ascii(text), style) for text, style in line) for line in lines]
        before = self._lines
        self._lines = lines
        if len(before) != len(lines) or width != self._line_width:
            self._line_width = width
            self._strips.clear()
            self.refresh()
            return
        changes: list[Change] = []
        for y, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old is not new and old != new:
                self._strips.pop(y, None)
                spans = changed_spans(old, new)
                # The same cells can be cut into other runs: then nothing changed.
                if spans:
                    changes.append((y, new, spans))
        if changes and not self._write(changes):
            self.refresh(
                *(
                    Region(start, y, end - start, 1)
                    for y, _, spans in changes
                    for start, end in spans
                )
            )

    def _write(self, changes: Sequence[Change]) -> bool:
        """Send the changes to the terminal, if nothing but this canvas is on it."""
        app, screen = self.app, self.screen
        write = getattr(app, "write_directly", None)
        if write is None or app.screen is not screen:
            return False
        # Every screen has Textual's (unused) toasts and tooltip; anything else may cover us.
        if any(
            child is not self and not child.has_class(_TEXTUALS_OWN) for child in screen.children
        ):
            return False
        if self.size != screen.size or self.size != (self._line_width, len(self._lines)):
            return False
        colors = app.console.color_system
        if self.few_bytes and colors == "truecolor":
            colors = "256"
        color_system = None if colors is None else COLOR_SYSTEMS[colors]
        encoder = self._encoder
        if encoder.palette is not self.palette or encoder.color_system is not color_system:
            encoder = self._encoder = Encoder(self.palette, color_system)
        return bool(write(encoder.encode(changes)))

    def repaint(self, palette: Palette) -> None:
        """Show the same lines in other colours."""
        self.palette = palette
        self._strips.clear()
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines in ``crop``. A canvas has no border, padding or tint, and its palette already
        says what ``NO_COLOR`` and the terminal's own colours mean, so the passes that Textual
        makes over a widget's lines for those are left out."""
        left, right = crop.x, crop.right
        whole = left == 0 and right == self.size.width
        strips = [self.render_line(y) for y in range(crop.y, crop.bottom)]
        return strips if whole else [strip.crop(left, right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            palette = self.palette
            width = self.size.width
            if y < len(self._lines):
                line = self._lines[y]
                segments = [Segment(text, palette[style]) for text, style in line]
                strip = Strip(segments, self._line_width)
                if width != self._line_width:
                    strip = strip.adjust_cell_length(width, palette["text"])
            else:
                strip = Strip.blank(width, palette["text"])
            self._strips[y] = strip
        return strip
