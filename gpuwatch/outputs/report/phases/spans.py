"""A GPU's busy share over a time, cut into spans: start-up, steady work, idleness, the end.

Idle runs are cut out first; what is left is cut where its level changes for good, each time at the
place that explains most of its variance. A signal that swings has no such place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from gpuwatch.diagnosis.engine.verdict import FED_PERCENT, UNUSED_BYTES
from gpuwatch.diagnosis.facts.window import Pause

IDLE_PERCENT = 5.0
"""A desktop, or a query of the driver, keeps a GPU busy for some percent of a moment."""
IDLE_SECONDS = 60.0
"""Shorter idling between work is a pause of it."""
EDGE_SECONDS = 12.0
"""At the beginning and the end, where nothing says how much longer it was."""
BLIP_SECONDS = 10.0
"""Work that is shorter, between long rests, is no job."""
LEVELS_APART_PERCENT = 15.0
LEVELS_CLEAR = 30.0
"""How many times the variance that chance would explain a cut must explain: more than five
standard deviations."""
CELLS_LEAST = 3
SPANS_MOST = 12
"""More is a rhythm, of which a person wants to know the whole."""
LOW_SHARE = 0.25
"""Work first seen at less than this share of the level, and for less, than what follows is its
start-up; last seen so, and for less than this share of it, it is the end, or a pause."""


class Cell(NamedTuple):
    """The shortest piece of time that is looked at."""

    begin: float
    end: float
    seconds: float
    """Of it, those in which the GPU was read."""
    busy: float
    """Of those, the busy ones."""
    held: float = 0.0
    """Bytes of the card's memory in use; 0: not read."""


@dataclass(slots=True)
class Span:
    kind: str
    """``start``, ``steady``, ``idle`` or ``end``."""
    begin: float
    end: float
    seconds: float
    busy: float
    held: float
    """Seconds idled while memory was held."""
    pauses: list[Pause] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)
    """Seconds, by what they were lost to."""
    idle_lost: float = 0.0
    """Of those, the idle ones."""

    @property
    def rests(self) -> bool:
        return 100.0 * self.busy < IDLE_PERCENT * self.seconds

    @property
    def fed(self) -> bool:
        return 100.0 * self.busy >= FED_PERCENT * self.seconds

    @property
    def left(self) -> float:
        """Seconds idled that nothing has been found for."""
        return max(0.0, self.seconds - self.busy - self.idle_lost)

    def lose(self, to: str, seconds: float, *, idle: bool = True) -> None:
        seconds = min(seconds, self.left) if idle else seconds
        if seconds > 0.0:
            self.lost[to] = self.lost.get(to, 0.0) + seconds
            self.idle_lost += seconds if idle else 0.0


class _Piece(NamedTuple):
    works: bool
    cells: Sequence[Cell]

    @property
    def seconds(self) -> float:
        return sum([cell.seconds for cell in self.cells])

    @property
    def level(self) -> float:
        return sum([cell.busy for cell in self.cells]) / self.seconds

    def span(self, kind: str) -> Span:
        seconds, first, last = self.seconds, self.cells[0], self.cells[-1]
        holding = [cell for cell in self.cells if cell.held >= UNUSED_BYTES]
        held = sum([max(0.0, cell.seconds - cell.busy) for cell in holding])
        return Span(kind, first.begin, last.end, seconds, self.level * seconds, held)


def spans(cells: Sequence[Cell]) -> list[Span]:
    """In the order of time, at most ``SPANS_MOST``; of cells in which the GPU was read."""
    scale = 1.0
    while len(found := _named(_pieces(cells, scale))) > SPANS_MOST:
        scale *= 2.0
    return found


def _pieces(cells: Sequence[Cell], scale: float) -> list[_Piece]:
    seconds = sum([cell.seconds for cell in cells])
    works = [100.0 * cell.busy >= IDLE_PERCENT * cell.seconds for cell in cells]
    worked = sum([cell.seconds for cell, one in zip(cells, works, strict=True) if one])
    # A try of some seconds in a long rest is no work.
    any_ = worked >= min(BLIP_SECONDS, 0.1 * seconds)
    pieces = [_Piece(any_ and one, (cell,)) for cell, one in zip(cells, works, strict=True)]
    runs = _joined(pieces, scale)
    rests = [IDLE_SECONDS, *[0.0 if run.works else run.seconds for run in runs], IDLE_SECONDS]
    between = [min(rests[at], rests[at + 2]) >= IDLE_SECONDS for at in range(len(runs))]
    runs = _joined(
        [
            run._replace(works=run.works and not (alone and run.seconds < BLIP_SECONDS < seconds))
            for run, alone in zip(runs, between, strict=True)
        ],
        scale,
    )
    last = len(runs) - 1
    least = [IDLE_SECONDS if 0 < at < last else EDGE_SECONDS for at in range(len(runs))]
    runs = _joined(
        [
            run._replace(works=run.works or (last > 0 and run.seconds < scale * seconds))
            for run, seconds in zip(runs, least, strict=True)
        ],
        scale,
    )
    return [piece for run in runs for piece in (_levels(run, scale) if run.works else [run])]


def _joined(pieces: Sequence[_Piece], scale: float) -> list[_Piece]:
    """Neighbours of one kind together, where nothing long lies unread between them."""
    found: list[_Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        near = last and piece.cells[0].begin - last.cells[-1].end < scale * IDLE_SECONDS
        if last and near and last.works == piece.works:
            found[-1] = _Piece(last.works, [*last.cells, *piece.cells])
        else:
            found.append(piece)
    return found


def _levels(run: _Piece, scale: float, *, first: bool = True, last: bool = True) -> list[_Piece]:
    """Cut where its level changes; ``first`` and ``last`` of the work between two idle runs."""
    before = scale * (EDGE_SECONDS if first else IDLE_SECONDS)
    place = _cut(run.cells, before, scale * (EDGE_SECONDS if last else IDLE_SECONDS))
    if place is None:
        return [run]
    one, two = _Piece(True, run.cells[:place]), _Piece(True, run.cells[place:])
    return [
        *_levels(one, scale, first=first, last=False),
        *_levels(two, scale, first=False, last=last),
    ]


def _cut(cells: Sequence[Cell], before: float, after: float) -> int | None:
    """The place, if there is one; seconds that must lie ``before`` and ``after`` it."""
    seconds = list(accumulate([cell.seconds for cell in cells]))
    busy = list(accumulate([cell.busy for cell in cells]))
    whole, level = seconds[-1], busy[-1] / seconds[-1]
    scatter = sum([c.seconds * (c.busy / c.seconds - level) ** 2 for c in cells])
    best, place = 0.0, None
    for at in range(CELLS_LEAST, len(cells) - CELLS_LEAST + 1):
        left, right = seconds[at - 1], whole - seconds[at - 1]
        apart = abs(busy[at - 1] / left - (busy[-1] - busy[at - 1]) / right)
        explained = apart * apart * left * right / whole
        long = left >= before and right >= after
        if long and explained > best and 100.0 * apart >= LEVELS_APART_PERCENT:
            best, place = explained, at
    by_chance = (scatter - best) / max(1, len(cells) - 2)
    return place if best > LEVELS_CLEAR * by_chance else None


def _named(pieces: Sequence[_Piece]) -> list[Span]:
    works = [at for at, piece in enumerate(pieces) if piece.works]
    kinds = ["steady" if piece.works else "idle" for piece in pieces]
    for at, piece in enumerate(pieces):
        if works and not works[0] <= at <= works[-1]:
            kinds[at] = "start" if at < works[0] else "end"
        elif piece.works and at + 1 < len(pieces) and kinds[at - 1 : at] != ["steady"]:
            kinds[at] = "start" if _is_low(piece, pieces[at + 1]) else "steady"
    if len(pieces) > 1 and _is_low(pieces[-1], pieces[-2], LOW_SHARE):
        kinds[-1] = "end"
    joined = list(pieces)
    for at, (one, two) in reversed(list(enumerate(pairwise(kinds)))):
        if one == two == "start":
            joined[at : at + 2] = [_Piece(True, [*joined[at].cells, *joined[at + 1].cells])]
            del kinds[at]
    return [piece.span(kind) for piece, kind in zip(joined, kinds, strict=True)]


def _is_low(piece: _Piece, beside: _Piece, most: float = 1.0) -> bool:
    shorter = piece.seconds < most * beside.seconds
    return piece.works and beside.works and shorter and piece.level < LOW_SHARE * beside.level


def are_alike(one: Sequence[Span], other: Sequence[Span], near_seconds: float) -> bool:
    return [span.kind for span in one] == [span.kind for span in other] and all(
        abs(a.begin - b.begin) <= near_seconds
        and abs(a.end - b.end) <= near_seconds
        and abs(a.busy - b.busy) < LEVELS_APART_PERCENT / 200.0 * a.seconds
        for a, b in zip(one, other, strict=True)
    )
