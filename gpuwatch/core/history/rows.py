"""Rows of numbers in memory of their own."""

from __future__ import annotations

import math
import mmap
from array import array
from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Literal

_MOST = 3.4e38
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Rows:
    """Rows of ``width`` numbers of one type ("f", "d"), oldest first. What is too large for single
    precision is infinite, or no number.

    An array that grows moves again and again and leaves holes among all else that a program holds,
    after hours some MiB. A mapping stays where it is: of its room for so many rows only the
    pages that were written are there, and in the end it is given back as a whole.
    """

    __slots__ = ("_capacity", "_cells", "_code", "_count", "_pack", "_room", "_row_bytes", "width")

    def __init__(self, code: Literal["f", "d"], width: int, room: int) -> None:
        self._code = code
        self._room = room
        self._count = 0
        self._make_room(width, 0)

    def _make_room(self, width: int, rows: int) -> None:
        self.width = width
        self._capacity = rows
        self._row_bytes = width * array(self._code).itemsize
        size = rows * self._row_bytes
        # Pages can have 64 KiB, which a small room would leave empty.
        room = bytearray(size) if size < mmap.PAGESIZE else mmap.mmap(-1, size, flags=_PRIVATE)
        self._cells: memoryview[float] = memoryview(room).cast(self._code)
        self._pack = partial(Struct(f"{width}{self._code}").pack_into, room)

    def __len__(self) -> int:
        return self._count

    def column(self, number: int, start: int = 0, stop: int | None = None) -> memoryview[float]:
        """One number of the rows from ``start`` to before ``stop``; it can be written to."""
        stop = self._count if stop is None else min(stop, self._count)
        return self._cells[start * self.width + number : stop * self.width : self.width]

    def append(self, row: Sequence[float]) -> None:
        if self._count == self._capacity:
            self._grow(1)
        try:
            self._pack(self._count * self._row_bytes, *row)
        except OverflowError:
            # So says Python 3.15; earlier ones make it infinite.
            self._pack(self._count * self._row_bytes, *_limited(row))
        self._count += 1

    def insert(self, place: int, row: Sequence[float]) -> None:
        """Take one row that comes before the present number ``place``."""
        self.append(row)
        start, end = place * self.width, self._count * self.width
        new = array(self._code, self._cells[end - self.width : end])
        self._cells[start + self.width : end] = self._cells[start : end - self.width]
        self._cells[start : start + self.width] = new

    def extend(self, numbers: Sequence[float], rows: int) -> None:
        """Take several rows, one after the other."""
        if self._count + rows > self._capacity:
            self._grow(rows)
        start = self._count * self.width
        self._cells[start : start + rows * self.width] = array(self._code, _limited(numbers))
        self._count += rows

    def _grow(self, rows: int) -> None:
        kept, end = self._cells, self._count * self.width
        self._make_room(self.width, max(self._room, 2 * (self._count + rows)))
        self._cells[:end] = kept[:end]

    def drop(self, count: int) -> None:
        """Forget the oldest."""
        count = min(count, self._count)
        if count > 0:
            start, end = count * self.width, self._count * self.width
            self._cells[: end - start] = self._cells[start:end]
            self._count -= count

    def widen(self, more: int, filling: float) -> None:
        """Have room for ``more`` numbers in each."""
        kept, width, count = self._cells, self.width, self._count
        self._make_room(width + more, self._capacity)
        self._count = 0
        for start in range(0, count * width, width) if width else [0] * count:
            self.append([*kept[start : start + width], *[filling] * more])


def _limited(numbers: Sequence[float]) -> list[float]:
    return [number if abs(number) < _MOST else math.nan for number in numbers]
