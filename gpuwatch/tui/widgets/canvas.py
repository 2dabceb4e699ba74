"""A widget that draws its own lines and refreshes only the cells that changed.

Textual's compositor sends whole dirty regions to the terminal, so the fewer and the smaller
they are, the less a refresh costs in CPU and in bytes: over a slow SSH link that is what a
person feels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpuwatch.tui.frame import Line, width_of
from gpuwatch.tui.palette import Palette

# Two changed spans this close are sent as one: moving the cursor costs about as many bytes.
_MERGE_GAP = 8


def changed_spans(before: Line, after: Line) -> Iterator[tuple[int, int]]:
    """Cell spans ``[start, end)`` that differ, from left to right; both lines are equally wide.

    Runs are compared pairwise while their widths agree; from the first that disagrees on, the
    rest counts as changed.
    """
    start = end = -1
    for low, high in _differences(before, after):
        if start >= 0 and low - end <= _MERGE_GAP:
            end = high
        else:
            if start >= 0:
                yield start, end
            start, end = low, high
    if start >= 0:
        yield start, end


def _differences(before: Line, after: Line) -> Iterator[tuple[int, int]]:
    x = 0
    for one, other in zip(before, after, strict=False):
        width = width_of(other[0])
        if one != other:
            if width_of(one[0]) != width:
                break
            yield from _within(one, other, width, x)
        x += width
    else:
        if len(before) == len(after):
            return
    total = max(sum(width_of(text) for text, _ in line) for line in (before, after))
    if x < total:
        yield x, total


def _within(
    one: tuple[str, str], other: tuple[str, str], width: int, x: int
) -> Iterator[tuple[int, int]]:
    """What differs of a run at ``x``; all of it where cells and characters do not agree."""
    text, new = one[0], other[0]
    if one[1] != other[1] or len(text) != width or len(new) != width:
        yield x, x + width
        return
    start = -1
    for position, (old_character, character) in enumerate(zip(text, new, strict=True), x):
        if old_character != character:
            if start < 0:
                start = position
        elif start >= 0:
            yield start, position
            start = -1
    if start >= 0:
        yield start, x + width


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
        self._strips: dict[int, Strip] = {}

    @property
    def lines(self) -> Sequence[Line]:
        """What is shown."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Show ``lines``; only cells that differ from what is shown are sent."""
        before = self._lines
        self._lines = lines
        if len(before) != len(lines):
            self._strips.clear()
            self.refresh()
            return
        regions: list[Region] = []
        for y, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old is new or old == new:
                continue
            self._strips.pop(y, None)
            regions.extend(
                Region(start, y, end - start, 1) for start, end in changed_spans(old, new)
            )
        if regions:
            self.refresh(*regions)

    def repaint(self, palette: Palette) -> None:
        """Show the same lines in other colours."""
        self.palette = palette
        self._strips.clear()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            palette = self.palette
            width = self.size.width
            if y < len(self._lines):
                segments = [Segment(text, palette[style]) for text, style in self._lines[y]]
                strip = Strip(segments).adjust_cell_length(width, palette["text"])
            else:
                strip = Strip.blank(width, palette["text"])
            self._strips[y] = strip
        return strip
