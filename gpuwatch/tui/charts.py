"""Strips of history on absolute time columns, kept from frame to frame.

A column covers a fixed span of the clock (a multiple of ``column_seconds``), so what was drawn
never reshuffles: with time a chart only gains columns on the right. The window moves on in
steps of several columns ("pages") rather than one by one, so between two steps only the newest
column changes on the screen, which keeps the picture calm and the bytes few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from gpuwatch.tui.frame import Run
from gpuwatch.tui.glyphs import FULL, Glyphs, cells, level


class Columns(Protocol):
    """What a chart needs of a history series."""

    def columns(
        self, end: float, column_seconds: float, count: int
    ) -> Sequence[tuple[float, float, float] | None]: ...


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Which columns a frame shows: ``now`` on the history's clock, and how it moves on."""

    now: float
    column_seconds: float
    step_columns: int = 1

    def last_bucket(self) -> int:
        """The bucket that holds ``now``; a reading at its very end belongs to it."""
        return int(-(-self.now // self.column_seconds)) - 1

    def end_bucket(self) -> int:
        """The bucket at the right edge: ``last_bucket`` rounded up to the next step."""
        step = self.step_columns
        return (self.last_bucket() // step + 1) * step - 1


# Fine samples arrive up to a second or two after the moment they describe, and a slow reading
# fills the columns back to its last one: this much of a strip is drawn again each time.
_SETTLE_SECONDS = 4.0


class Strip:
    """One chart's drawn columns, for one series at one height and scale."""

    __slots__ = ("_columns", "_first", "_key")

    def __init__(self) -> None:
        self._columns: deque[tuple[str, str]] = deque()
        self._first = 0
        self._key: tuple[object, ...] = ()

    def draw(
        self,
        series: Columns | None,
        window: TimeWindow,
        width: int,
        limit: float,
        glyphs: Glyphs,
        style: str,
        rows: int = 1,
    ) -> list[list[Run]]:
        """Return ``rows`` lines of runs, each exactly ``width`` cells, the top one first."""
        if width <= 0:
            return [[] for _ in range(rows)]
        if series is None:
            return [[(" " * width, style)] for _ in range(rows)]
        last = window.last_bucket()
        end = window.end_bucket()
        start = end - width + 1
        self._bring_up_to(series, window, last, start, limit, glyphs, rows)
        columns = list(self._columns)[max(0, start - self._first) :]
        lead = max(0, self._first - start)
        tail = width - lead - len(columns)
        lines = []
        for row in range(rows):
            text = "".join([column[0][row] for column in columns])
            tones = "".join([column[1][row] for column in columns])
            lines.append(_runs(" " * lead + text + " " * tail, FULL * lead + tones, style))
        return lines

    def _bring_up_to(
        self,
        series: Columns,
        window: TimeWindow,
        last: int,
        start: int,
        limit: float,
        glyphs: Glyphs,
        rows: int,
    ) -> None:
        """Draw what is new or may still change; ``_columns`` then ends at bucket ``last``."""
        key = (id(series), window.column_seconds, limit, glyphs.name, rows)
        newest = self._first + len(self._columns) - 1
        settle = int(_SETTLE_SECONDS / window.column_seconds) + 2
        if key != self._key or start < self._first or last < newest or not self._columns:
            self._key = key
            self._columns.clear()
            self._first = start
            wanted_from = start
        else:
            wanted_from = max(start, min(newest + 1, last - settle + 1))
            for _ in range(max(0, newest - wanted_from + 1)):
                self._columns.pop()
            while self._columns and self._first < start:
                self._columns.popleft()
                self._first += 1
            if not self._columns:
                self._first = wanted_from
        count = last - wanted_from + 1
        if count <= 0:
            return
        # The middle of the last bucket names it without rounding trouble at its edges.
        moment = (last + 0.5) * window.column_seconds
        columns = series.columns(moment, window.column_seconds, count)
        self._columns.extend(_draw_columns(columns, limit, glyphs, rows))


def _draw_columns(
    columns: Sequence[tuple[float, float, float] | None], limit: float, glyphs: Glyphs, rows: int
) -> list[tuple[str, str]]:
    blank = (" " * rows, FULL * rows)
    out = []
    for column in columns:
        if column is None:
            out.append(blank)
        else:
            low = level(column[0], limit, rows)
            high = low if column[2] == column[0] else level(column[2], limit, rows)
            out.append(cells(glyphs, low, high, rows))
    return out


def _runs(text: str, tones: str, style: str) -> list[Run]:
    """``text`` as runs of one tone each; what follows the last tone is blank."""
    if not tones.strip(FULL):
        return [(text, style)]
    out: list[Run] = []
    position = 0
    for tone, group in groupby(tones):
        length = sum(1 for _ in group)
        name = style if tone == FULL else f"{style}.{tone}"
        out.append((text[position : position + length], name))
        position += length
    if position < len(text):
        out.append((text[position:], style))
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


def nice_ceiling(value: float, floor: float) -> float:
    """The scale of a chart without a natural limit: 1, 2 or 5 times a power of ten, in steps of
    1024 for bytes, at least ``floor`` and at least ``value``."""
    unit = floor
    while True:
        for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500):
            if unit * factor >= value:
                return unit * factor
        unit *= 1024
