"""Columns of charts as characters: block glyphs, or plain ASCII.

A column stands for a span of time. It is solid up to the mean of what was measured in it, and pale
from there up to the maximum: the solid part is the work done, and a GPU that flips between 0 and
99% inside one column is half a bar below a pale one, which neither a busy GPU nor a steady 50%
looks like. Where there are no tones to be had, dots reach from the minimum to the maximum. Zero is
a base line, a missing reading is a blank: they differ in shape, not only in colour.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

LEVELS_PER_ROW = 8

# Braille dots of both columns from the bottom row up: bit values as Unicode defines them.
_BRAILLE_ROWS = (0xC0, 0x24, 0x12, 0x09)


@dataclass(frozen=True, slots=True, eq=False)
class Glyphs:
    """Characters of charts and signs. ``solid[n]`` fills n of 8 levels of a cell, 0 to 8."""

    name: str
    solid: str
    ranges: tuple[tuple[str, ...], ...]
    """``ranges[low][high]``: dots from level ``low`` to level ``high`` of one cell."""
    tones: bool
    """Ranges are solid glyphs in a paler tone, instead of ``ranges``."""
    separator: str
    dot: str
    ellipsis: str
    marker: str
    branch: str
    last_branch: str
    trunk: str
    rule: str
    corners: str
    """Corners of boxes: both ends of the top, of a line between two parts, of the bottom."""
    tick: str
    cursor: str
    up: str
    down: str
    warning: str
    grave: str
    note: str
    """Signs of what is a warning, worse, or good to know: they differ in shape."""
    mark: str
    """Sign of a moment that the person marked."""
    core: str
    """Per-core bars: nine characters, 0 to 8 eighths."""


def _braille_range(low: int, high: int) -> str:
    first = low // 2
    last = max(first + 1, ceil(high / 2))
    return chr(0x2800 + sum(_BRAILLE_ROWS[first:last]))


def _ascii_range(low: int, high: int) -> str:
    return "|" if high - low >= 5 else ":" if low >= 4 else "!"


def _table(draw: Callable[[int, int], str]) -> tuple[tuple[str, ...], ...]:
    levels = range(LEVELS_PER_ROW + 1)
    return tuple(tuple(draw(min(low, 7), max(high, low + 1)) for high in levels) for low in levels)


UNICODE = Glyphs(
    name="unicode",
    solid=" ▁▂▃▄▅▆▇█",
    ranges=_table(_braille_range),
    tones=True,
    separator="│",
    dot="·",
    ellipsis="…",
    marker="▌",
    branch="├ ",
    last_branch="└ ",
    trunk="│ ",
    rule="─",
    corners="╭╮├┤╰╯",
    tick="╵",
    cursor="▌",
    up="▲",
    down="▼",
    warning="▲",
    grave="■",
    note="○",
    mark="◆",
    core=" ▁▂▃▄▅▆▇█",
)

DOTS = replace(UNICODE, name="dots", tones=False)
"""Block glyphs for a terminal without colours in between: ranges are dotted."""

ASCII = Glyphs(
    name="ascii",
    solid=" _.-=+*##",
    ranges=_table(_ascii_range),
    tones=False,
    separator="|",
    dot="-",
    ellipsis="~",
    marker=">",
    branch="|-",
    last_branch="`-",
    trunk="| ",
    rule="-",
    corners="++++++",
    tick="'",
    cursor="_",
    up="^",
    down="v",
    warning="!",
    grave="X",
    note="i",
    mark="*",
    core="_.:-=+*##",
)


def level(value: float, limit: float, rows: int = 1) -> int:
    """Return which of ``8 * rows - 1`` levels ``value`` reaches on a scale of 0 to ``limit``.

    Zero (and below) is level 1, the base line; any more is at least 2; the limit and above are
    the top, which leaves an eighth of a row free so that charts one above the other stay apart.
    """
    top = LEVELS_PER_ROW * rows - 1
    if value <= 0 or limit <= 0:
        return 1
    return max(2, min(top, 1 + ceil((top - 1) * min(1.0, value / limit) - 0.5)))


FULL, PALE, PALE_HALF, PALE_MOST, ON_PALE = "01234"
"""Tones of a cell: the full hue; three paler ones, by how much of the bar would be solid (none,
about half, most of it); and the full hue standing on a pale cell."""


def cells(glyphs: Glyphs, low: int, high: int, rows: int = 1) -> tuple[str, str]:
    """Draw one column of a chart: solid up to level ``low``, pale (or in dots) up to ``high``.

    Levels count from 1 (the base line), see ``level``. Returns ``rows`` characters, the top one
    first, and the tone of each.
    """
    if high - low <= 1:
        low = high
    if rows == 1:
        if low == high:
            return glyphs.solid[high], FULL
        if glyphs.tones and high >= LEVELS_PER_ROW - 1:
            return glyphs.solid[low], ON_PALE
        if glyphs.tones:
            return glyphs.solid[high], _pale(low - 1, high - 1)
        return glyphs.ranges[0 if low == 1 else low][high], FULL
    solid = 0 if low == 1 < high else low
    characters, tones = [], []
    for base in range((rows - 1) * LEVELS_PER_ROW, -1, -LEVELS_PER_ROW):
        filled = min(max(solid - base, 0), LEVELS_PER_ROW)
        reach = min(max(high - base, 0), LEVELS_PER_ROW)
        character, tone = _cell(glyphs, filled, reach)
        characters.append(character)
        tones.append(tone)
    return "".join(characters), "".join(tones)


def _cell(glyphs: Glyphs, solid: int, reach: int) -> tuple[str, str]:
    """Return a cell of a taller chart: filled to ``solid`` of 8, pale up to ``reach``."""
    if solid == reach:
        return glyphs.solid[solid], FULL
    if not glyphs.tones:
        # The cell in which the solid part ends has no room for dots above it.
        return (glyphs.solid[solid] if solid > 1 else glyphs.ranges[0][reach]), FULL
    if solid == 0:
        return glyphs.solid[reach], PALE
    if reach == LEVELS_PER_ROW:
        return glyphs.solid[solid], ON_PALE
    return glyphs.solid[reach], _pale(solid, reach)


def _pale(solid: int, reach: int) -> str:
    share = solid / reach
    return PALE if share < 1 / 3 else PALE_HALF if share < 2 / 3 else PALE_MOST
