"""Lines of a report that fit its width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from gpuwatch.outputs.terminal.table import cell_width

WIDTH_MIN = 40
WIDTH_MAX = 140
"""Wider charts and sentences are no easier to read."""
LABEL = 10
"""Cells of what stands before a line of facts."""
_KEEP = "\N{NO-BREAK SPACE}"


def fitting(width: int) -> int:
    return min(max(width, WIDTH_MIN), WIDTH_MAX)


def listed(facts: Sequence[str], width: int) -> list[str]:
    """Facts with dots between; no line ends within a fact that fits one."""
    kept = " · ".join(fact.replace(" ", _KEEP) for fact in facts)
    return [line.replace(_KEEP, " ") for line in wrapped("", kept, width)]


def labelled(label: str, text: str, width: int) -> list[str]:
    """``text`` after its label, as deep in all its lines."""
    first, *rest = wrapped(" " * LABEL, text, width)
    return [label.ljust(LABEL) + first[LABEL:], *rest]


def wrapped(indent: str, text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` cells, each after ``indent`` (or as deep)."""
    room = width - cell_width(indent)
    lines = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    if not text.isascii():
        # Wide characters take two cells, which textwrap does not know.
        lines = [part for line in lines for part in _folded(line, room)]
    deep = " " * cell_width(indent)
    return [(indent if place == 0 else deep) + line for place, line in enumerate(lines)]


def _folded(line: str, room: int) -> list[str]:
    parts, part, used = [], "", 0
    for character in line:
        cells = cell_width(character)
        if used + cells > room:
            parts.append(part)
            part, used = "", 0
        part += character
        used += cells
    return [*parts, part]
