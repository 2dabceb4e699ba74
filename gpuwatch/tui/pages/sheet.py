"""A page that is one box with a text or picture in it that scrolls."""

from collections.abc import Callable, Sequence

from gpuwatch.tui.keys import Footer
from gpuwatch.tui.pages.grid import has_boxes
from gpuwatch.tui.pages.layout import Frame, Title, boxed, edge, filled
from gpuwatch.tui.panels import footer, header
from gpuwatch.tui.terminal.frame import Line, Zone
from gpuwatch.tui.view import View

Body = tuple[Sequence[Line], Sequence[Line], Sequence[Zone], Sequence[Line]]
"""Lines that stay in sight, those that scroll below them, and where these can be clicked; lines
that stay below them."""


def draw(
    view: View,
    width: int,
    height: int,
    title: Title,
    body: Callable[[int, int], Body],
    keys: Footer,
    offset: int,
) -> tuple[Frame, int]:
    """Exactly ``height`` lines of exactly ``width`` cells, and ``offset`` (how far the body is
    scrolled) brought into range. ``body`` is asked for a width and a number of rows."""
    boxes = has_boxes(width, height)
    inner = width - 2 * boxes
    room = max(0, height - 2 - 2 * boxes)
    top, rest, spots, bottom = body(inner, room)
    view.strips.forget_unused()
    room = max(0, room - len(top) - len(bottom))
    offset = max(0, min(offset, len(rest) - room))
    lines = filled([*top, *rest[offset : offset + room]], inner, len(top) + room)
    lines += bottom
    if boxes:
        ends = [edge(view.glyphs, inner, one)[0] for one in (title, Title())]
        lines = [*ends[0], *lines, *ends[1]]
    first = 1 + boxes + len(top)
    zones = [zone._replace(y=zone.y - offset + first) for zone in spots]
    zones = [zone for zone in zones if first <= zone.y < first + room]
    foot, pressed = footer.draw(view, inner, keys, max(0, len(rest) - room - offset))
    zones += [zone._replace(y=height - 1) for zone in pressed]
    lines = filled([header.draw(view, inner), *lines], inner, height - 1)
    lines = [*lines, foot]
    return Frame(boxed(lines, view.glyphs) if boxes else lines, zones, inset=int(boxes)), offset
