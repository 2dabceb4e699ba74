"""Which cells of a line differ from what is shown of it, and charts that only moved to the left."""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, takewhile
from operator import eq
from typing import NamedTuple

from gpuwatch.tui.terminal.frame import MAYBE_WIDE, Line, plain, width_of

Piece = tuple[int, str, str]
"""The first cell, the text from there on, and the name of its style."""

_MERGE_GAP = 1
"""Cells between two changes of one run that are sent with them: a glyph takes the three bytes of
skipping it."""
_SPAN = re.compile(rb"x(?:\0{0,%d}x)*" % (2 * _MERGE_GAP + 1))
"""Of cells that are two bytes each, ``x`` where they changed."""
_MARKED = b"\0" + 255 * b"x"

_MOVED_LEAST = 24
"""Cells: fewer are sent anew for about what it costs to move them."""
_PROBE = 12
"""So many cells in a row are looked for where they may have come from."""
_TRIED_MOST = 8
_ASKED_MOST = 3
_BLANK = "\0"
"""Stands for a cell that shows nothing known."""


class Move(NamedTuple):
    """So many ``cells`` are taken out at ``start``, and as many put in before what stands at
    ``stop``, which stays."""

    start: int
    stop: int
    cells: int


class _Cells(NamedTuple):
    """Of a line in which every character is one cell wide. All is worked out for the whole line at
    once: what asks each cell costs ten times that."""

    text: str
    number: int
    """The text as one: two lines differ where the bits of their numbers do."""
    styles: str
    """A character for each cell's style."""


_marks: defaultdict[str, str] = defaultdict(lambda: chr(len(_marks) + 1))
"""A character for each style there is."""


def changes(
    before: Line, after: Line, moves: list[Move] | None = None
) -> tuple[Move | None, list[Piece]]:
    """What is to be written to make one line of the other, from left to right, each piece of one
    run of ``after``; where characters may be wide it is all from the first difference on. And a
    move to the left that makes it less: ``moves`` are those of the lines above, to which one is
    added, as charts under each other move alike."""
    old, new = _cells(before), _cells(after)
    if old is None or new is None:
        return None, _all_from_the_first(before, after)
    pieces = _pieces(old, new, after)
    if moves is None or (changed := _cells_in(pieces)) < _MOVED_LEAST:
        return None, pieces
    move = _move(old.text, new.text, pieces, moves)
    rest = pieces if move is None else _pieces(_moved(old, move), new, after)
    return (move, rest) if changed - _cells_in(rest) >= _MOVED_LEAST else (None, pieces)


# What was drawn last is what the next picture is compared with.
@lru_cache(maxsize=128)
def _cells(line: Line) -> _Cells | None:
    text = plain(line)
    if not text.isascii() and MAYBE_WIDE.search(text):
        return None
    styles = "".join([_marks[style] * len(run) for run, style in line])
    return _Cells(text, _number(text), styles)


def _moved(line: _Cells, by: Move) -> _Cells:
    start, stop, cells = by
    text, styles = [
        one[:start] + one[start + cells : stop] + _BLANK * cells + one[stop:]
        for one in (line.text, line.styles)
    ]
    return _Cells(text, _number(text), styles)


def _all_from_the_first(before: Line, after: Line) -> list[Piece]:
    starts = accumulate([width_of(text) for text, _ in after], initial=0)
    pieces = [(x, *run) for x, run in zip(starts, after, strict=False)]
    alike = takewhile(bool, map(eq, before, after))
    return pieces[sum(alike) :]


def _number(text: str) -> int:
    return int.from_bytes(text.encode("utf-16-le"), "little")


def _cells_in(pieces: Sequence[Piece]) -> int:
    return sum([len(text) for _, text, _ in pieces])


def _pieces(old: _Cells, new: _Cells, after: Line) -> list[Piece]:
    differ = old.number ^ new.number
    if old.styles != new.styles:
        differ |= _number(old.styles) ^ _number(new.styles)
    length = max(len(old.text), len(new.text))
    marked = differ.to_bytes(2 * length, "little").translate(_MARKED)
    pieces: list[Piece] = []
    runs = iter(after)
    run_end, style = 0, ""
    for span in _SPAN.finditer(marked, 0, 2 * len(new.text)):
        start, end = span.start() // 2, (span.end() + 1) // 2
        while start < end:
            while start >= run_end:
                run, style = next(runs)
                run_end += len(run)
            upto = min(end, run_end)
            pieces.append((start, new.text[start:upto], style))
            start = upto
    return pieces


def _move(old: str, new: str, pieces: Sequence[Piece], moves: list[Move]) -> Move | None:
    """A stretch of ``new`` that stood further to the right."""
    for start, _, cells in moves:
        alike = _alike_for(old[start + cells :], new[start:])
        if alike >= _MOVED_LEAST:
            return Move(start, start + cells + alike, cells)
    # What is new at a chart's end was nowhere before, so the longest piece may not be the one.
    longest = sorted(pieces, key=lambda piece: len(piece[1]), reverse=True)[:_ASKED_MOST]
    best = max([_found_again(old, new, _edge(*piece)) for piece in longest], key=_length)
    if _length(best) < _MOVED_LEAST:
        return None
    moves.append(best)
    return best


def _edge(start: int, text: str, _style: str) -> int:
    """Where the characters at the beginning of a piece end, if others follow: they alone are found
    again in too many places."""
    alike = len(text) - len(text.lstrip(text[0]))
    return start + alike - 1 if alike < len(text) else start


def _length(move: Move) -> int:
    return move.stop - move.start - move.cells


def _alike_for(one: str, other: str) -> int:
    """How many characters at the beginning are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _found_again(old: str, new: str, at: int) -> Move:
    """Where the longest stretch begins that holds the cell ``at`` and stood further to the right,
    where it ended there, and by how many cells it moved; nothing if there is none."""
    best = Move(at, at, 0)
    place = at
    for _ in range(_TRIED_MOST):
        place = old.find(new[at : at + _PROBE], place + 1)
        if place < 0:
            break
        ahead = _alike_for(old[place:], new[at:])
        back = _alike_for(old[place - 1 :: -1], new[at - 1 :: -1]) if at else 0
        found = Move(at - back, place + ahead, place - at)
        best = max(best, found, key=_length)
    return best
