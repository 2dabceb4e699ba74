"""Rows of numbers in memory of their own."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, unpack
from typing import Any, Literal

Code = Literal["e", "f", "d"]
_MOST = {"e": 65504.0, "f": 3.4e38, "d": math.inf}
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_NOTHING = memoryview(bytearray())


@lru_cache(maxsize=64)
def _row_of(code: Code, width: int) -> Struct:
    return Struct(f"{width}{code}")


class Rows:
    """Rows of ``width`` numbers of one type ("e", "f", "d": half, single, double precision), oldest
    first. What is too large for it is infinite, or no number.

    An array that grows moves again and again and leaves holes among all else that a program holds,
    after hours some MiB. A mapping stays where it is: of its room for so many rows only the
    pages that were written are there, and in the end it is given back as a whole.
    """

    __slots__ = ("_capacity", "_cells", "_code", "_room", "_row", "count", "width")

    def __init__(self, code: Code, width: int, room: int) -> None:
        self._code = code
        self._room = room
        self.count = 0
        """Of the rows; ``len`` is a call more, which what is pushed every second pays for."""
        self._make_room(width, 0)

    def _make_room(self, width: int, rows: int) -> None:
        self.width = width
        self._capacity = rows
        self._row = _row_of(self._code, width)
        size = rows * self._row.size
        self._cells: memoryview[Any] = _NOTHING
        if size:
            # Pages can have 64 KiB, which a small room would leave empty.
            small = size < mmap.PAGESIZE
            room = bytearray(size) if small else mmap.mmap(-1, size, flags=_PRIVATE)
            # Views know no half precision: moved about, two bytes are two bytes.
            self._cells = memoryview(room).cast("H" if self._code == "e" else self._code)

    def __len__(self) -> int:
        return self.count

    def column(self, number: int, start: int = 0, stop: int | None = None) -> memoryview[float]:
        """One number of the rows from ``start`` to before ``stop``; it can be written to. Not of
        half precision."""
        stop = self.count if stop is None else min(stop, self.count)
        return self._cells[start * self.width + number : stop * self.width : self.width]

    def numbers(self, number: int, start: int, stop: int) -> Sequence[float]:
        """The same of any precision, to be read only."""
        column = self.column(number, start, stop)
        return unpack(f"{len(column)}{self._code}", column.tobytes())

    def append(self, row: Sequence[float]) -> None:
        if self.count == self._capacity:
            self._grow(1)
        try:
            self._row.pack_into(self._cells, self.count * self._row.size, *row)
        except OverflowError:
            # So says Python 3.15 of single precision; earlier ones make it infinite.
            most = _MOST[self._code]
            limited = [number if abs(number) < most else math.nan for number in row]
            self._row.pack_into(self._cells, self.count * self._row.size, *limited)
        self.count += 1

    def insert(self, place: int, row: Sequence[float]) -> None:
        """Take one row that comes before the present number ``place``."""
        self.append(row)
        start, end = place * self.width, self.count * self.width
        new = self._cells[end - self.width : end].tolist()
        self._cells[start + self.width : end] = self._cells[start : end - self.width]
        self._row.pack_into(self._cells, start // self.width * self._row.size, *new)

    def _grow(self, rows: int) -> None:
        kept, end = self._cells, self.count * self.width
        self._make_room(self.width, max(self._room, 2 * (self.count + rows)))
        if end:
            self._cells[:end] = kept[:end]

    def drop(self, count: int) -> None:
        """Forget the oldest."""
        count = min(count, self.count)
        if count > 0:
            start, end = count * self.width, self.count * self.width
            self._cells[: end - start] = self._cells[start:end]
            self.count -= count

    def widen(self, more: int, filling: float) -> None:
        """Have room for ``more`` numbers in each."""
        kept, row, count = self._cells, self._row, self.count
        self._make_room(self.width + more, self._capacity)
        self.count = 0
        for place in range(count):
            self.append([*row.unpack_from(kept, place * row.size), *[filling] * more])
