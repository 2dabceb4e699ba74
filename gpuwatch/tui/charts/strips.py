"""Charts: columns of time as characters, and strips of them that are kept from frame to frame.

A column stands for a span of time. It is solid up to the mean of what was measured in it: that is
the work done; a level, as a temperature or a clock, is a line at that height. Of how busy a GPU is,
where columns are longer than a swing, a line marks the maximum above it: one that flips between 0
and 99% inside one column is half a bar below a line, which neither a busy GPU nor a steady 50%
looks like. Where there are no tones to be had, dots reach from the minimum to the maximum there.
Zero is a base line, a missing reading a blank. In ASCII, which has no blocks, cells are solid by
their ground, where there are colours.

All charts of a frame show the same stretch of time, each in as many columns as it is wide. A
column covers a fixed part of the clock, so what was drawn never reshuffles: with time a chart only
moves to the left, which the terminal does by itself (``terminal/canvas.py``). Over a slow link it
moves in steps of several columns.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from math import ceil
from operator import itemgetter, truediv
from typing import NamedTuple, Protocol

from gpuwatch.core.store import PolledThenSampled, Series, bucket_index
from gpuwatch.tui.terminal.frame import Run, on_ground

# -- glyphs: blocks, dots, or plain ASCII ----------------------------------------------------------


LEVELS_PER_ROW = 8

# Braille dots from the bottom row up: bit values as Unicode defines them.
_BRAILLE_ROWS = (0xC0, 0x24, 0x12, 0x09)


FULL, PALE, ON_PALE, HIGHEST, FLOOR = "01234"
"""Tones of a cell: solid; what was no work, above it; solid standing on such a cell; the line that
marks the highest; and the base line of idle time."""
SHADES = "efghij"
"""Tones of a cell that is shaded by its mean, from nearly nothing to all of the time."""
FILLS = "FGHI"
"""Tones of a cell that is a block by its ground, from nearly nothing to all of it: its character is
there for who copies it, and is not seen."""
FILLED_PALE = "P"
"""Tone of such a cell for what was no work, or for a range."""


@dataclass(frozen=True, slots=True, eq=False)
class Glyphs:
    """Characters of charts and signs. ``solid[n]`` fills n of 8 levels of a cell, 0 to 8."""

    name: str
    solid: str
    ranges: tuple[tuple[str, ...], ...]
    """``ranges[low][high]``: dots from level ``low`` to level ``high`` of one cell."""
    shades: bool
    """There are as many tones as it takes to tell how busy a GPU is: charts of one row are strips
    of them, since bars of seven heights below each other are confetti."""
    tones: bool
    """There are tones: of a range the highest is marked, instead of ``ranges``, and what was no
    work stands above the work."""
    pale: str
    """Cells of a range in which no part is solid, instead of ``ranges``; others show their solid
    part alone."""
    pale_tone: str
    lines: str
    """Line at the bottom, in the middle and at the top of a cell."""
    separator: str
    axis: str
    """Line between a chart and its scale."""
    dot: str
    ellipsis: str
    marker: str
    branch: str
    last_branch: str
    trunk: str
    rule: str
    track: str
    """Part of a gauge that is not reached: its shape differs, too, and not the colour alone."""
    corners: str
    """Corners of boxes: both ends of the top, of a line between two parts, of the bottom."""
    tick: str
    cursor: str
    up: str
    down: str
    warning: str
    grave: str
    note: str
    unread: str
    """Signs of what is a warning, worse, or good to know, and of what gpuwatch cannot read: they
    differ in shape."""
    good: str
    """Sign that nothing is wrong."""
    mark: str
    """Sign of a moment that the person marked."""
    thumb: str
    """Needle of a replay, and the part of a scroll bar that is in sight."""
    core: str
    """Per-core bars: nine characters, 0 to 8 eighths."""
    fill: str
    """Tone of a cell that is solid to each of these levels."""
    step: int
    """Levels by which bars of several rows grow: 8 where a cell is full or empty."""
    wash: str = " "
    """Room above columns that were held up: blank where a tinted ground tells it."""

    @property
    def is_ascii(self) -> bool:
        return self.solid.isascii()

    @property
    def blends(self) -> bool:
        """Return whether shades stand for the heights that there are no characters for."""
        return FILLS[0] in self.fill

    @property
    def solid_to(self) -> int:
        """Place in a ``Column`` of what a bar is solid up to: the mean, where what is above it
        looks different from a bar; else the minimum."""
        return 1 if self.tones or self.pale else 0


def _braille_range(low: int, high: int) -> str:
    first = low // 2
    last = max(first + 1, ceil(high / 2))
    return chr(0x2800 + sum(_BRAILLE_ROWS[first:last]))


def _table(draw: Callable[[int, int], str]) -> tuple[tuple[str, ...], ...]:
    levels = range(LEVELS_PER_ROW + 1)
    return tuple(tuple(draw(min(low, 7), max(high, low + 1)) for high in levels) for low in levels)


UNICODE = Glyphs(
    name="unicode",
    solid=" ▁▂▃▄▅▆▇█",
    ranges=_table(_braille_range),
    shades=True,
    tones=True,
    pale="",
    pale_tone=PALE,
    lines="▁─▔",
    separator="│",
    axis="│",
    dot="•",
    ellipsis="…",
    marker="▌",
    branch="├ ",
    last_branch="└ ",
    trunk="│ ",
    rule="─",
    track="╌",
    corners="╭╮├┤╰╯",
    tick="╵",
    cursor="▌",
    up="▲",
    down="▼",
    warning="▲",
    grave="■",
    note="○",
    good="●",
    unread="!",
    mark="◆",
    thumb="┃",
    core=" ▁▂▃▄▅▆▇█",
    fill=9 * FULL,
    step=1,
)

BARS = replace(UNICODE, name="bars", shades=False)
"""Block glyphs for a terminal of 256 colours."""
DOTS = replace(BARS, name="dots", tones=False)
"""Block glyphs for a terminal without colours in between: ranges are dotted."""
COLOURLESS = replace(DOTS, name="colourless", wash="·")
"""Block glyphs for a terminal without colours."""

ASCII = Glyphs(
    name="ascii",
    # A zero, less than half, more: with further steps a chart that moves a little would be noise.
    solid=" _...####",
    ranges=(),
    shades=False,
    tones=False,
    pale="/",
    pale_tone=PALE,
    lines="_-'",
    separator="|",
    axis="|",
    dot="-",
    ellipsis="~",
    marker=">",
    branch="|-",
    last_branch="`-",
    trunk="| ",
    rule="-",
    track="-",
    corners="++++++",
    tick="'",
    cursor="_",
    up="^",
    # No letter, which would be read with the word or the number beside it.
    down="+",
    warning="!",
    grave="X",
    note="i",
    good="+",
    unread="?",
    mark="*",
    thumb="#",
    core="__...####",
    fill=9 * FULL,
    step=8,
)
FILLED_ASCII = replace(ASCII, name="filled ascii", fill=5 * FULL + 4 * FILLS[-1])
"""ASCII for a terminal of some colours: bars are blocks of them."""
SHADED_ASCII = replace(
    ASCII,
    name="shaded ascii",
    # A character for each shade: who copies a row can tell them apart, and so can the canvas, which
    # looks for characters that have moved to the left.
    solid=" _.:::=##",
    core="__.:::=##",
    fill=f"{2 * FULL}FGGGHII",
    step=4,
    pale_tone=FILLED_PALE,
)
"""ASCII for a terminal of all colours: the top of a bar is a shade, and so is a row alone."""


def level(value: float, limit: float, rows: int = 1) -> int:
    """Return which of ``8 * rows - 1`` levels ``value`` reaches on a scale of 0 to ``limit``.

    What is written as 0% is level 1, the base line; any more is at least 2; the limit and above
    are the top, which leaves an eighth of a row free so that charts one above the other stay apart.
    """
    top = LEVELS_PER_ROW * rows - 1
    if limit <= 0 or value < 0.005 * limit:
        return 1
    return max(2, min(top, 1 + ceil((top - 1) * min(1.0, value / limit) - 0.5)))


BESIDE = "b"
"""Shade of charts that stand beside those of how busy GPUs are, and are quieter: most are flat."""

MARKED_SECONDS = 1.0
"""Length of columns from which on the highest is marked: most swings are seen in shorter ones."""
_SWING_PERCENT = 30.0
"""Least that the highest is above the mean to be marked: less is no swing, and the line noise."""
_ABOVE_PERCENT = 10.0
"""Least that it is above the bars beside it: a dip between them is no swing either."""
_SHADED_SECONDS = 1.0
"""Length of columns up to which those of one row are shaded: in longer ones swings are lost, and
all of them would be as pale."""
_SWING_SECONDS = 3.0
"""Length of a swing, peaks of which are seen at least so often."""
_MARKED_ROWS = 4
"""Rows from which on a mark has room; in lower charts it would be dust."""
_NEARLY_FULL = 6
"""Levels from which on a cell of two tones is drawn whole: the second can only be its ground."""


_SCALE_ROWS = 3


def scale_marks(rows: int) -> dict[int, str]:
    """Return the marks beside a chart of percent, by its rows from the top; 50 only where a row is
    the middle, none beside a chart that is too low for them."""
    if rows < _SCALE_ROWS:
        return {}
    return {0: "100", **({rows // 2: "50"} if rows % 2 else {}), rows - 1: "0"}


def cells(
    glyphs: Glyphs, low: int, high: int, rows: int = 1, *, apart: bool = False
) -> tuple[str, str]:
    """Draw one column of a chart: solid up to level ``low``, and a line (or dots) at level
    ``high``. ``apart``: what is above ``low`` was no work.

    Levels count from 1 (the base line), see ``level``. Returns ``rows`` characters, the top one
    first, and the tone of each.
    """
    if high - low <= 1:
        low = high
    if rows == 1:
        return _of_one_row(glyphs, low, high, apart=apart)
    solid = 0 if low == 1 < high and (apart or not glyphs.tones) else low
    characters, tones = list[str](), list[str]()
    for base in range((rows - 1) * LEVELS_PER_ROW, -1, -LEVELS_PER_ROW):
        filled = min(max(solid - base, 0), LEVELS_PER_ROW)
        reach = min(max(high - base, 0), LEVELS_PER_ROW)
        if glyphs.tones and not apart:
            is_marked = not filled and reach > 0 and high - base <= LEVELS_PER_ROW
            # In the top row the tops of bars are above the middle.
            place = 2 if not characters else min(2, (reach + 1) // 3)
            character = glyphs.lines[place] if is_marked else glyphs.solid[filled]
            tone = HIGHEST if is_marked else FULL
        else:
            if glyphs.step > 1:
                filled, reach = [
                    _rounded(one, glyphs.step, is_lowest=not base) for one in (filled, reach)
                ]
            elif glyphs.pale and base and filled == 1:
                # What is drawn for the first level is the base line of the chart, and no part of
                # a bar.
                filled = 2
            character, tone = _cell(glyphs, filled, reach)
        characters.append(character)
        tones.append(tone)
    return "".join(characters), "".join(tones)


def _rounded(levels: int, step: int, *, is_lowest: bool) -> int:
    """Return levels of a cell in whole steps, of the lowest at least that there is something."""
    whole = (levels + step // 2) // step * step
    return max(whole, min(levels, 2)) if is_lowest else whole


def _of_one_row(glyphs: Glyphs, low: int, high: int, *, apart: bool) -> tuple[str, str]:
    """Return the only cell of a column: without the highest where it has no shape of its own, and
    the work alone where nothing above it has."""
    if low == high or (not apart if glyphs.tones else apart and low > 1):
        return glyphs.solid[low], glyphs.fill[low]
    if glyphs.pale:
        return (glyphs.solid[low], glyphs.fill[low]) if low > 1 else (glyphs.pale, glyphs.pale_tone)
    if not glyphs.tones:
        return glyphs.ranges[0 if low == 1 else low][high], FULL if low > 1 else PALE
    if high >= _NEARLY_FULL and low > 1:
        return glyphs.solid[low], ON_PALE
    return glyphs.solid[high], _tone(low - 1, high - 1)


def _cell(glyphs: Glyphs, solid: int, reach: int) -> tuple[str, str]:
    """Return a cell of a taller chart: filled to ``solid`` of 8, pale or dotted up to ``reach``."""
    if solid == reach:
        return glyphs.solid[solid], glyphs.fill[solid]
    if glyphs.pale:
        if solid:
            return glyphs.solid[solid], glyphs.fill[solid]
        return glyphs.pale, glyphs.pale_tone
    if not glyphs.tones:
        # The cell in which the solid part ends has no room for dots above it.
        return (glyphs.solid[solid], FULL) if solid > 1 else (glyphs.ranges[0][reach], PALE)
    if solid and reach >= _NEARLY_FULL:
        return glyphs.solid[solid], ON_PALE
    return glyphs.solid[reach], _tone(solid, reach)


def _tone(solid: int, reach: int) -> str:
    """Return the tone of a cell with room for one: that of most of it."""
    return FULL if 2 * solid > reach else PALE


# -- columns on the clock, and the strips drawn of them --------------------------------------------


Column = tuple[float, float, float]
"""Minimum, mean, maximum."""


class _Apart(NamedTuple):
    """Column of what was busy, of which a part was no work: from zero to the work to all of it."""

    minimum: float
    work: float
    busy: float


class Columns(Protocol):
    """A history series, as far as a chart needs it."""

    def columns(self, end: float, column_seconds: float, count: int) -> Sequence[Column | None]: ...


Combine = Callable[[Sequence[Column | None]], Column | None]
"""Makes one column of those that several series have at the same time."""


def means(columns: Sequence[Column | None]) -> Column | None:
    """Return the means of their minima, means and maxima."""
    known = [one for one in columns if one is not None]
    if not known:
        return None
    low, middle, high = map(truediv, map(sum, zip(*known, strict=True)), [len(known)] * 3)
    return low, middle, high


@dataclass(frozen=True, slots=True)
class Together:
    """Series made of several. Two of the same ``names`` are equal, and what was drawn of one holds
    for the other."""

    names: Hashable
    find: Callable[[], Sequence[Columns | None]] = field(compare=False)
    combine: Combine = means

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        parts = [s.columns(end, column_seconds, count) for s in self.find() if s is not None]
        return [self.combine(column) for column in zip(*parts, strict=True)] or [None] * count


@dataclass(frozen=True, slots=True)
class Smoothed:
    """Series of which each column is the mean of so many seconds up to it."""

    series: Columns
    seconds: float

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        before = int(self.seconds / column_seconds)
        every = self.series.columns(end, column_seconds, count + before)
        return [
            None if every[at] is None else means(every[at - before : at + 1])
            for at in range(before, len(every))
        ]


class Held(NamedTuple):
    """Stretch of time in which something held up what a chart shows."""

    begin_seconds: float
    end_seconds: float
    style: str
    of_busy: bool
    """The columns have its hue: what they show was no work. Else the room above them has."""
    work: Columns | None = None
    """Part of what is busy that was work, where it was read: only what is above it has the hue. If
    it is not ``of_busy``, the work alone is drawn."""
    rest: str = ""
    """The hue of the room above columns of which a part was work."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns of one chart, by the numbers of their buckets (see ``bucket_index``): ``first`` at
    the left edge, ``end`` at the right; ``last`` is the newest that has begun."""

    column_seconds: float
    first: int
    last: int
    end: int

    @property
    def moment(self) -> float:
        """Return the middle of the last column: names it without rounding trouble at its edges."""
        return (self.last + 0.5) * self.column_seconds

    @property
    def count(self) -> int:
        """Count the columns that can show something."""
        return self.last - self.first + 1

    @property
    def begin_seconds(self) -> float:
        return self.first * self.column_seconds

    @property
    def end_seconds(self) -> float:
        return (self.end + 1) * self.column_seconds

    def columns_of(self, series: Columns) -> Sequence[Column | None]:
        """Values of ``series`` in these columns, oldest first."""
        return series.columns(self.moment, self.column_seconds, self.count)

    def place(self, at: float) -> int:
        """Return the cell of the moment ``at``, from the left; it may lie outside of the chart."""
        return bucket_index(at, self.column_seconds) - self.first


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Stretch of time that a frame shows, whatever the width of a chart. ``now`` is the newest
    moment of the history; without an ``end`` it is followed, in steps of ``step_seconds``."""

    now: float
    span_seconds: float
    step_seconds: float = 0.0
    end: float | None = None
    cursor: float | None = None

    def grid(self, width: int) -> Grid:
        """Return the columns of a chart of ``width`` cells (1 or more)."""
        return _grid(self.now, self.span_seconds, self.step_seconds, self.end, width)


# All charts of a frame that are equally wide have the same.
@lru_cache(maxsize=16)
def _grid(now: float, span: float, step_seconds: float, end: float | None, width: int) -> Grid:
    seconds = span / width
    last = bucket_index(now, seconds)
    if end is not None:
        edge = bucket_index(end, seconds)
        return Grid(seconds, edge - width + 1, min(last, edge), edge)
    edge = last
    if step_seconds > 0:
        step = bucket_index(now, step_seconds) + 1
        edge = max(last, bucket_index(step * step_seconds, seconds))
        # Of one column only, the newest.
        edge = min(edge, last + width - 1)
    return Grid(seconds, edge - width + 1, last, edge)


# Fine samples arrive up to a second after the moment they describe (the driver's own buffering):
# so much of what the last frame drew, and its newest column, are drawn again.
_SETTLE_SECONDS = 1.0


class Strip:
    """Columns of one chart as they were drawn, for one series at one height and scale.

    Kept as one string of characters and one of tones a row, the newest column last, so that a
    frame costs the drawing of the few columns that are new and some string slicing.
    """

    __slots__ = ("_drawn", "_drawn_of", "_first", "_key", "_series", "_texts", "_tones")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._tones: list[str] = []
        self._first = 0
        self._key: tuple[object, ...] = ()
        self._series: Columns | None = None
        """Reference that keeps the series alive, so that no later one is taken for it."""
        self._drawn: list[list[Run]] = []
        self._drawn_of: tuple[object, ...] = ()

    def draw(
        self,
        series: Columns | None,
        window: TimeWindow,
        width: int,
        limit: float,
        glyphs: Glyphs,
        style: str,
        rows: int = 1,
        held: Sequence[Held] | None = None,
        *,
        is_level: bool = False,
    ) -> list[list[Run]]:
        """Return ``rows`` lines of runs, each exactly ``width`` cells, the top one first. With
        ``held`` it is of how busy a GPU is: zero has the quiet style of what is idle, what held
        things up its own, and the highest of long columns is marked. What ``is_level`` is a
        line."""
        if width <= 0:
            return [[] for _ in range(rows)]
        if series is None:
            return [[(" " * width, style)] for _ in range(rows)]
        grid = window.grid(width)
        self._bring_up_to(series, grid, limit, glyphs, rows, held, is_level)
        skip = grid.first - self._first
        texts = [text[skip:].ljust(width) for text in self._texts]
        tones = [one[skip:].ljust(width, FULL) for one in self._tones]
        parts = bottom = [(0, width, style, True)]
        if held is not None:
            parts, bottom = _parts(texts[-1], glyphs.solid[1], grid, style, held)
        drawn_of = (texts, tones, parts, bottom)
        if drawn_of != self._drawn_of:
            self._drawn_of = drawn_of
            rows_drawn = zip(texts, tones, strict=True)
            low = ""
            if glyphs.blends:
                low = "ground"
            elif glyphs.tones and rows == 1:
                low = "ground" if is_shaded(glyphs, grid, rows) else "faint"
            self._drawn = [
                _runs(
                    *row,
                    bottom if number == rows - 1 else parts,
                    BESIDE
                    if held is None and (glyphs.tones or glyphs.blends) and not is_level
                    else "",
                    low,
                    glyphs.wash,
                )
                for number, row in enumerate(rows_drawn)
            ]
        lines = self._drawn
        if window.cursor is not None:
            cell = grid.place(window.cursor)
            lines = [list(on_ground(line, cell, cell + 1, "c")) for line in lines]
        return lines

    def _bring_up_to(
        self,
        series: Columns,
        grid: Grid,
        limit: float,
        glyphs: Glyphs,
        rows: int,
        held: Sequence[Held] | None,
        is_level: bool,
    ) -> None:
        """Draw what is new or may still change: then the grid's first column is there, and its
        last is the newest."""
        start, last = grid.first, grid.last
        worked = tuple(one for one in held or () if one.work is not None)
        key = (grid.column_seconds, limit, glyphs.name, rows, worked, is_level)
        same = series == self._series and key == self._key
        newest = self._first + len(self._texts[0]) - 1 if self._texts else self._first - 1
        marked = held is not None and rows >= _MARKED_ROWS and grid.column_seconds >= MARKED_SECONDS
        beside = max(1, int(_SWING_SECONDS / grid.column_seconds)) if marked else 0
        settle = int(_SETTLE_SECONDS / grid.column_seconds) + 2 + beside
        if not same or start < self._first or last < newest or start > newest:
            self._series, self._key = series, key
            self._first = wanted_from = start
            self._texts = [""] * rows
            self._tones = [""] * rows
        else:
            wanted_from = max(start, newest - settle + 1)
            keep = wanted_from - self._first
            skip = start - self._first
            self._texts = [text[skip:keep] for text in self._texts]
            self._tones = [tones[skip:keep] for tones in self._tones]
            self._first = start
        count = last - wanted_from + 1
        if count <= 0:
            return
        columns = list(series.columns(grid.moment, grid.column_seconds, count + beside))
        columns = _highest_of_swings(columns, beside) if marked else _means(columns)
        for one in worked:
            _set_apart(columns, one, grid, wanted_from)
        shaded = is_shaded(glyphs, grid, rows) and held is not None and not worked
        drawn = [
            _level_line(column, limit, glyphs, rows)
            if is_level
            else _shade_cell(column, limit, glyphs)
            if shaded and type(column) is not _Apart
            else draw_column(column, limit, glyphs, rows, apart=type(column) is _Apart)
            for column in columns
        ]
        for row in range(rows):
            self._texts[row] += "".join([text[row] for text, _ in drawn])
            self._tones[row] += "".join([tones[row] for _, tones in drawn])


def _means(columns: Sequence[Column | None]) -> list[Column | None]:
    return [one and _mean(one) for one in columns]


def _mean(column: Column) -> Column:
    return column[1], column[1], column[1]


def _highest_of_swings(columns: Sequence[Column | None], beside: int) -> list[Column | None]:
    """Return all but the first ``beside`` columns; between two peaks that are at most so many
    columns away the highest is that of the lower one, and the mean where that is no swing, or a bar
    beside it is as high. Columns that are shorter than a swing share its peaks, and the line
    through them is one and not many dashes."""
    tops = [-1.0 if one is None else one[2] for one in columns]
    out: list[Column | None] = []
    for at in range(beside, len(columns)):
        column = columns[at]
        reach = min(max(tops[at - beside : at + 1]), max(tops[at : at + beside + 1]))
        higher = max([one[1] for one in columns[max(0, at - 1) : at + 2] if one], default=0.0)
        if column is None:
            out.append(None)
        elif reach - column[1] >= _SWING_PERCENT and reach - higher >= _ABOVE_PERCENT:
            out.append((*column[:2], reach))
        else:
            out.append(_mean(column))
    return out


def _set_apart(columns: list[Column | None], held: Held, grid: Grid, first: int) -> None:
    """Have those of ``columns`` (from the bucket ``first`` on) in which something was held up reach
    from the mean of the work, zero where it was not read, to that of the busy time; or be the work
    alone."""
    assert held.work is not None
    start = max(0, bucket_index(held.begin_seconds, grid.column_seconds) - first)
    stop = len(columns)
    if held.end_seconds < grid.end_seconds:
        stop = min(stop, bucket_index(held.end_seconds, grid.column_seconds) + 1 - first)
    if start >= stop:
        return
    works = held.work.columns(grid.moment, grid.column_seconds, len(columns))
    for number in range(start, stop):
        column, work = columns[number], works[number]
        if column is not None:
            done = 0.0 if work is None else min(work[1], column[1])
            columns[number] = _Apart(done, done, column[1]) if held.of_busy else (done, done, done)


Part = tuple[int, int, str, bool]
"""First cell, cell behind the last, style, and whether there are bars: not a base line alone."""


def _parts(
    bottom: str, zero: str, grid: Grid, style: str, held: Sequence[Held]
) -> tuple[list[Part], list[Part]]:
    """Return the styles of a chart's cells by what each column was, in all rows but the lowest and
    in that: in ``bottom`` nothing but a base line is ``zero``. The room above columns has the hue
    of what held them up."""
    styles, idle = [style] * len(bottom), ["idle"] * len(bottom)
    for one in held:
        first = max(0, grid.place(one.begin_seconds))
        stop = min(len(bottom), grid.place(min(one.end_seconds, grid.end_seconds)) + 1, grid.count)
        count = max(0, stop - first)
        busy = one.style if one.work is None else f"{style}+{one.style}"
        ground = "" if one.of_busy else f"/{one.style}"
        busy += f"/{one.rest}" if one.rest else ""
        styles[first : first + count] = [busy if one.of_busy else style + ground] * count
        idle[first : first + count] = [one.style + ground] * count
    for at in [match.start() for match in re.finditer(" ", bottom)]:
        # What was not read has no ground either.
        styles[at] = style
    bars = [True] * len(bottom)
    upper = _equal_ones(styles, bars)
    for match in re.finditer(f"{re.escape(zero)}+", bottom):
        start, stop = match.span()
        styles[start:stop] = idle[start:stop]
        bars[start:stop] = [False] * (stop - start)
    return upper, _equal_ones(styles, bars)


def _equal_ones(styles: Sequence[str], bars: Sequence[bool]) -> list[Part]:
    parts: list[Part] = []
    stop = 0
    for (name, of_bars), cells_of_it in groupby(zip(styles, bars, strict=True)):
        start, stop = stop, stop + len(list(cells_of_it))
        parts.append((start, stop, name, of_bars))
    return parts


def is_shaded(glyphs: Glyphs, grid: Grid, rows: int) -> bool:
    """Return whether columns of how busy a GPU is have shades in the place of heights."""
    of_swings = glyphs.shades and grid.column_seconds <= _SHADED_SECONDS
    return rows == 1 and (of_swings or glyphs.blends)


def _shade_cell(column: Column | None, limit: float, glyphs: Glyphs) -> tuple[str, str]:
    """Return the only cell of a column by the shade of its mean; zero is a base line."""
    height = 0 if column is None else level(column[1], limit)
    if height < 2 or glyphs.blends:
        return glyphs.solid[height], glyphs.fill[height]
    return glyphs.solid[-2], SHADES[height - 2]


# Those that may still change mostly do not, and processes of one GPU have the same.
@lru_cache(maxsize=512)
def draw_column(
    column: Column | None, limit: float, glyphs: Glyphs, rows: int, *, apart: bool = False
) -> tuple[str, str]:
    """Return the characters of one column, the top one first, and their tones. ``apart``: what is
    above the solid part is no range, but was no work."""
    if column is None:
        return " " * rows, FULL * rows
    high = level(column[2], limit, rows)
    solid = column[glyphs.solid_to]
    low = high if solid == column[2] else level(solid, limit, rows)
    return cells(glyphs, low, high, rows, apart=apart)


def _level_line(column: Column | None, limit: float, glyphs: Glyphs, rows: int) -> tuple[str, str]:
    """Return a column in which a line stands at the height of its mean, in steps of half a row.
    Only what is at its limit is at the top, and only nothing at the bottom."""
    if column is None or limit <= 0:
        return " " * rows, FULL * rows
    share, top = column[1] / limit, 2 * rows
    step = round(top * share)
    step = top if share >= _AT_LIMIT else max(1, min(step, top - 1)) if share > 0 else 0
    row = min(step // 2, rows - 1)
    texts = [" "] * rows
    texts[-1 - row] = glyphs.lines[step - 2 * row]
    return "".join(texts), HIGHEST * rows


_AT_LIMIT = 0.99


_SAME_TONE = re.compile(r"(.)\1*")


def _runs(
    text: str, tones: str, parts: Sequence[Part], shade: str, low: str, wash: str
) -> list[Run]:
    """Return ``text`` as runs of one style and tone each. Of the only row of a chart, base lines on
    the ground of what held it up are ``low``: ``faint``, or only the ``ground``. Many below each
    other would be the loudest of all."""
    out: list[Run] = []
    for start, stop, style, of_bars in parts:
        for match in _SAME_TONE.finditer(tones, start, stop):
            tone = FLOOR if match[1] == FULL and not of_bars else match[1]
            part, of_ground = text[match.start() : match.end()], tone == FLOOR and "/" in style
            if of_ground and low == "ground":
                part = " " * len(part)
            elif "/" in style:
                part = part.replace(" ", wash)
            faint = BESIDE if of_ground and low else shade
            out.append((part, f"{style}.{tone}{faint}"))
    return out


class StripCache:
    """Strips by what they show; those not drawn for a while are forgotten."""

    def __init__(self) -> None:
        self._strips: dict[object, Strip] = {}
        self._used: set[object] = set()

    def get(self, key: object) -> Strip:
        self._used.add(key)
        strip = self._strips.get(key)
        if strip is None:
            strip = self._strips[key] = Strip()
        return strip

    def forget_unused(self) -> None:
        """Drop every strip that was not asked for since the last call."""
        if len(self._strips) > len(self._used):
            self._strips = {key: s for key, s in self._strips.items() if key in self._used}
        self._used.clear()


def nice_ceiling(value: float | None, floor: float, thousand: float = 1024.0) -> float:
    """Return the scale of a chart without a natural limit, which rarely moves: 1, 2 or 5 times a
    power of ten, in steps of 1024 for bytes (else of ``thousand``), at least ``floor`` and
    ``value``."""
    unit = floor
    while True:
        for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500):
            if unit * factor >= (value or 0.0):
                return unit * factor
        unit *= thousand


def highest(
    series: Columns | None, window: TimeWindow, width: int, least: float | None = None
) -> float | None:
    """Return the most that a chart of ``width`` columns shows, or ``least`` if that is more."""
    if series is None or width <= 0:
        return least
    known = filter(None, window.grid(width).columns_of(series))
    most = max(map(itemgetter(2), known), default=least)
    return most if least is None or most is None else max(least, most)


_MEAN_COLUMNS = 30


def mean_shown(series: Series | PolledThenSampled | None, window: TimeWindow) -> float | None:
    """Return the mean of what charts show of ``series``; ``None`` where they show nothing."""
    if series is None:
        return None
    grid = window.grid(_MEAN_COLUMNS)
    return series.mean(grid.moment, grid.column_seconds, grid.count)
