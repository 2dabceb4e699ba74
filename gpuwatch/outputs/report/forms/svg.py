"""Charts as inline SVG, on a fixed scale: filled up to the mean, a lighter band from there to the
maximum. What is filled was used, what is empty was not.

Shapes stretch with the page (``preserveAspectRatio="none"``, lines keep their width); text is
never inside, since it would be stretched too.
"""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from gpuwatch.outputs.report.parts import TimeProfile

WIDTH = 1000
HEIGHT = 100
THINNEST = 3.0
"""A moment must be seen at all."""


class Area(NamedTuple):
    """A part of the time that is marked: 0 to 1 of the width, and the class it is drawn in."""

    begin: float
    end: float
    kind: str

    @property
    def x(self) -> float:
        return min(WIDTH - THINNEST, max(0.0, self.begin * WIDTH))

    @property
    def width(self) -> float:
        return max(THINNEST, min(1.0, self.end) * WIDTH - self.x)


def chart(
    name: str,
    title: str,
    description: str,
    profile: TimeProfile,
    *,
    top: float,
    filled: float = 1.0,
    marks: Iterable[Area] = (),
    gaps: Iterable[Area] = (),
) -> str:
    """``top`` is the value at the upper edge; the profile's buckets fill 0 to ``filled`` of the
    width. ``name`` makes the ids of the page unique."""
    parts = [_opening(name, title, description)]
    parts += [_gap(area) for area in gaps]
    if top > 0 and profile.mean:
        step = WIDTH * filled / len(profile.mean)
        highest, mean = _levels(profile.maximum, top), _levels(profile.mean, top)
        parts += [
            _path("band", highest, step, filled=True),
            _path("fill", mean, step, filled=True),
            _path("mean", mean, step),
        ]
    # A bar on the ground: over what is filled, and in nobody's way.
    parts += [_rectangle(area, 90, 10) for area in marks]
    parts.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="50" y2="50"/></svg>')
    return "".join(parts)


def lane(name: str, title: str, description: str, areas: Iterable[Area]) -> str:
    parts = [_opening(name, title, description)]
    parts.append(f'<line class="rail" x1="0" x2="{WIDTH}" y1="50" y2="50"/>')
    parts += [_rectangle(area, 12, 76) for area in areas]
    parts.append("</svg>")
    return "".join(parts)


def _opening(name: str, title: str, description: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>'
    )


def _rectangle(area: Area, top: int, height: int) -> str:
    x, width = _short(area.x), _short(area.width)
    return f'<rect class="{area.kind}" x="{x}" y="{top}" width="{width}" height="{height}"/>'


def _gap(area: Area) -> str:
    x = _short(area.x)
    line = f'<line class="gapline" x1="{x}" x2="{x}" y1="0" y2="{HEIGHT}"/>'
    return _rectangle(area._replace(kind="gapfill"), 0, HEIGHT) + line


def _path(kind: str, levels: Sequence[int | None], step: float, *, filled: bool = False) -> str:
    """Along the levels to the right (``filled``: from the ground up to them), levels alike as one
    line, and nothing where there is a gap."""
    path, place, before = "", 0, None
    for level, alike in groupby([*levels, None]):
        if level is not None:
            start = f"M{_short(place * step)} {f'{HEIGHT}V' if filled else ''}"
            path += f"{start if before is None else 'V'}{level}"
        elif filled and before is not None:
            path += f"V{HEIGHT}Z"
        place += len(list(alike))
        path += "" if level is None else f"H{_short(place * step)}"
        before = level
    return f'<path class="{kind}" d="{path}"/>' if path else ""


def _levels(values: Sequence[float | None], top: float) -> list[int | None]:
    return [None if value is None else _y(value, top) for value in values]


def _y(value: float, top: float) -> int:
    """A pixel off the edges, where half a line would be cut off."""
    part = min(1.0, max(0.0, value / top))
    return round(HEIGHT - 2 - part * (HEIGHT - 4))


def _short(value: float) -> str:
    """As few characters as say it."""
    return f"{value:.1f}".removesuffix(".0")
