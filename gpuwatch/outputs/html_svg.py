"""Charts as inline SVG: a band from minimum to maximum with the mean as a line, on a fixed scale.

Shapes stretch with the page (``preserveAspectRatio="none"``, lines keep their width); text is
never inside, since it would be stretched too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from gpuwatch.jobs.report import Course

WIDTH = 1000
HEIGHT = 100
THINNEST = 3.0
"""A moment must be seen at all."""


@dataclass(frozen=True, slots=True)
class Area:
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
    course: Course,
    *,
    top: float,
    filled: float = 1.0,
    areas: Iterable[Area] = (),
) -> str:
    """``top`` is the value at the upper edge; the course's buckets fill 0 to ``filled`` of the
    width. ``name`` makes the ids of the page unique."""
    parts = [_opening(name, title, description)]
    parts += [_area(area) for area in areas]
    if top > 0 and course.mean:
        step = WIDTH * filled / len(course.mean)
        parts += [f'<path class="band" d="{path}"/>' for path in _bands(course, step, top) if path]
        parts += [f'<path class="mean" d="{path}"/>' for path in [_line(course, step, top)] if path]
    parts.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="50" y2="50"/></svg>')
    return "".join(parts)


def lane(name: str, title: str, description: str, areas: Iterable[Area]) -> str:
    """One line of marks on the time axis."""
    parts = [_opening(name, title, description)]
    parts.append(f'<line class="rail" x1="0" x2="{WIDTH}" y1="50" y2="50"/>')
    parts += [
        f'<rect class="{area.kind}" x="{_short(area.x)}" y="12" width="{_short(area.width)}" '
        f'height="76"/>'
        for area in areas
    ]
    parts.append("</svg>")
    return "".join(parts)


def _opening(name: str, title: str, description: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>'
    )


def _area(area: Area) -> str:
    x, width = _short(area.x), _short(area.width)
    rect = f'<rect class="{area.kind}" x="{x}" y="0" width="{width}" height="{HEIGHT}"/>'
    if area.kind == "gapfill":
        rect += f'<line class="gapline" x1="{x}" x2="{x}" y1="0" y2="{HEIGHT}"/>'
    return rect


def _runs(values: Sequence[float | None]) -> Iterable[range]:
    """Where there are values without a gap."""
    start = None
    for place, value in enumerate((*values, None)):
        if value is not None and start is None:
            start = place
        elif value is None and start is not None:
            yield range(start, place)
            start = None


def _bands(course: Course, step: float, top: float) -> Iterable[str]:
    for run in _runs(course.mean):
        high = [_y(course.maximum[place], top) for place in run]
        low = [_y(course.minimum[place], top) for place in run]
        # A thing that never moved is a line, and has no area of its own.
        if high == low:
            continue
        edge = _stairs(run, high, step)
        back = _stairs_back(run, low, step)
        yield f"M{_short(run[0] * step)} {high[0]}{edge}{back}Z"


def _stairs(run: range, levels: Sequence[int], step: float) -> str:
    """Along the levels to the right, from the first on."""
    out = []
    for place, (level, following) in enumerate(zip(levels, (*levels[1:], None), strict=True)):
        if following != level:
            out.append(f"H{_short((run[place] + 1) * step)}")
            if following is not None:
                out.append(f"V{following}")
    return "".join(out)


def _stairs_back(run: range, levels: Sequence[int], step: float) -> str:
    out = [f"V{levels[-1]}"]
    for place in range(len(levels) - 1, -1, -1):
        before = levels[place - 1] if place else None
        if before != levels[place]:
            out.append(f"H{_short(run[place] * step)}")
            if before is not None:
                out.append(f"V{before}")
    return "".join(out)


def _line(course: Course, step: float, top: float) -> str:
    out = []
    for run in _runs(course.mean):
        levels = [_y(course.mean[place], top) for place in run]
        out.append(f"M{_short(run[0] * step)} {levels[0]}{_stairs(run, levels, step)}")
    return "".join(out)


def _y(value: float | None, top: float) -> int:
    """A pixel off the edges, where half a line would be cut off."""
    part = 0.0 if value is None else min(1.0, max(0.0, value / top))
    return round(HEIGHT - 2 - part * (HEIGHT - 4))


def _short(value: float) -> str:
    """As few characters as say it."""
    return f"{value:.1f}".removesuffix(".0")
