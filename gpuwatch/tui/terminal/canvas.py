"""A widget that draws its own lines and sends only the cells that changed.

While the canvas has the screen to itself it writes them to the terminal as they are. Under a
dialog or beside an input line Textual's compositor does it, from the same lines.
"""

from collections.abc import Sequence

from rich.console import COLOR_SYSTEMS
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpuwatch.tui.terminal.frame import Line, to_ascii
from gpuwatch.tui.terminal.output import Change, Encoder
from gpuwatch.tui.terminal.palette import Palette

_TEXTUALS = "-textual-system"


class Canvas(Widget):
    """Shows lines handed to ``show``."""

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
        """The lines in ``crop``. A canvas has no border, padding or tint, and its palette already
        says what ``NO_COLOR`` and the terminal's own colours mean, so the passes that Textual
        makes over a widget's lines for those are left out."""
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
