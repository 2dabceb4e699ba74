"""Which cells of a line differ from what is shown of it, and charts that only moved to the left."""

import re
from collections.abc import Sequence
from itertools import accumulate, chain

from gpuwatch.tui.terminal.frame import Line, plain, width_of

Piece = tuple[int, str, str]
"""The first cell, the text from there on, and the name of its style."""

# A character that is not one cell wide, as far as this cannot be told at once: anything outside
# ASCII and the box, block and braille glyphs that charts are made of.
_MAYBE_WIDE = re.compile(r"[^\x00-\x7e\u2500-\u25ff\u2800-\u28ff\u00b7\u2026]")

_CHUNK = 8
_MERGE_GAP = 4
"""Cells between two changes of one run that are sent with them: skipping takes as many bytes."""

_MOVED_LEAST = 24
"""Cells: fewer are sent anew for about what it costs to move them."""
_PROBE = 12
"""So many cells in a row are looked for where they may have come from."""
_TRIED_MOST = 8
_ASKED_MOST = 3
_BLANK = "\0"
"""Stands for a cell that shows nothing known."""
_BEYOND = (_BLANK * 10_000, "")
"""What a line that is too short shows."""


def _may_be_wide(text: str) -> bool:
    return not text.isascii() and _MAYBE_WIDE.search(text) is not None


def differences(before: Line, after: Line) -> list[Piece]:
    """What is to be written to make one line of the other, from left to right, each piece of one
    run of ``after``. Where characters may be wide it is all from the first difference on."""
    most = min(len(before), len(after))
    head = tail = 0
    while head < most and before[head] == after[head]:
        head += 1
    while tail < most - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    if head == len(before) == len(after):
        return []
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    same = plain(before[:head])
    x = sum([width_of(text) for text, _ in before[:head]]) if _may_be_wide(same) else len(same)
    if not _may_be_wide(plain(old)) and not _may_be_wide(plain(new)):
        return _differences(old, new, x)
    starts = accumulate([width_of(text) for text, _ in after[head:]], initial=x)
    return [(x, *run) for x, run in zip(starts, after[head:], strict=False)]


def _differences(before: Line, after: Line, x: int) -> list[Piece]:
    """Of runs in which every character is one cell wide; they need not be cut alike."""
    pieces: list[Piece] = []
    old_runs = chain(before, [_BEYOND])
    old, old_style = next(old_runs)
    old_x, old_end = x, x + len(old)
    for text, style in after:
        run_x, end, written_to = x, x + len(text), -_MERGE_GAP - 1
        while x < end:
            upto = end if end < old_end else old_end
            if style != old_style:
                spans = [(x, upto)]
            else:
                spans = _rewritten(old[x - old_x : upto - old_x], text[x - run_x : upto - run_x], x)
            for start, stop in spans:
                # What was written of this run before, and ends near, goes on.
                first = pieces.pop()[0] if start - written_to <= _MERGE_GAP else start
                pieces.append((first, text[first - run_x : stop - run_x], style))
                written_to = stop
            x = upto
            if x == old_end:
                old, old_style = next(old_runs)
                old_x, old_end = x, x + len(old)
    return pieces


def _rewritten(old: str, new: str, x: int) -> list[tuple[int, int]]:
    """Where characters differ, to a few cells, as (first, behind the last)."""
    if old == new:
        return []
    high = len(new)
    low = _alike_for(old, new) if high > _CHUNK else 0
    spans = []
    for start in range(low, high, _CHUNK):
        was, now = old[start : start + _CHUNK], new[start : start + _CHUNK]
        if was != now:
            first, last = 0, len(now)
            while was[first] == now[first]:
                first += 1
            while was[last - 1] == now[last - 1]:
                last -= 1
            spans.append((x + start + first, x + start + last))
    return spans


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


def moved(before: Line, after: Line, pieces: Sequence[Piece]) -> tuple[int, int, int, Line] | None:
    """What moved to the left in a line with these differences, if that is worth it: (start, stop,
    cells, the line once it is done). So many cells are taken out at ``start``, and as many put in
    before what stands at ``stop``, which stays."""
    changed = sum([len(text) for _, text, _ in pieces])
    if changed < _MOVED_LEAST:
        return None
    old, new = plain(before), plain(after)
    if _may_be_wide(old) or _may_be_wide(new):
        return None
    # What is new at a chart's end was nowhere before, so the longest piece may not be the one.
    longest = sorted(pieces, key=lambda piece: len(piece[1]), reverse=True)[:_ASKED_MOST]
    found = [_found_again(old, new, at) for at, _, _ in longest]
    start, stop, cells = max(found, key=lambda one: one[1] - one[0] - one[2])
    if not cells:
        return None
    blank: Line = ((_BLANK * cells, ""),)
    shown = (
        *(_cut(before, 0, start) + _cut(before, start + cells, stop)),
        *(blank + _cut(before, stop, len(old))),
    )
    left = sum([len(text) for _, text, _ in differences(shown, after)])
    return (start, stop, cells, shown) if changed - left >= _MOVED_LEAST else None


def _found_again(old: str, new: str, at: int) -> tuple[int, int, int]:
    """Where the longest stretch begins that holds the cell ``at`` and stood further to the right,
    where it ended there, and by how many cells it moved; 0 if there is none."""
    best = (at, at, 0)
    place = at
    for _ in range(_TRIED_MOST):
        place = old.find(new[at : at + _PROBE], place + 1)
        if place < 0:
            break
        ahead = _alike_for(old[place:], new[at:])
        back = _alike_for(old[place - 1 :: -1], new[at - 1 :: -1]) if at else 0
        if ahead + back > best[1] - best[0] - best[2]:
            best = (at - back, place + ahead, place - at)
    return best


def _cut(line: Line, start: int, stop: int) -> Line:
    """The cells from ``start`` up to ``stop``, all characters being one cell wide."""
    out = []
    x = 0
    for text, style in line:
        part = text[max(0, start - x) : max(0, stop - x)]
        if part:
            out.append((part, style))
        x += len(text)
    return tuple(out)
