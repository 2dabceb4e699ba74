"""A report as blocks that every form can write."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from gpuwatch.core import units
from gpuwatch.outputs.report.model import Report
from gpuwatch.outputs.report.parts import Stretch, TimeProfile

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Said(NamedTuple):
    """A paragraph; ``style`` is ``verdict``, ``bad``, ``warn``, ``note`` or nothing."""

    text: str
    style: str = ""


class Listed(NamedTuple):
    """Facts in one line, where there is room, with dots between."""

    facts: Sequence[str]
    style: str = ""


class Labelled(NamedTuple):
    """Facts after their labels, a line each."""

    title: str
    facts: Sequence[tuple[str, str]]


class Bullets(NamedTuple):
    """Notes below a table, or (with a title) a list of its own."""

    title: str
    sentences: Sequence[str]
    style: str = "note"


class Column(NamedTuple, Generic[T_contra]):
    """One column of a table, declared once for all forms."""

    title: str
    """Of a page."""
    short: str
    """Of a terminal."""
    cell: Callable[[T_contra], str]
    kind: str = "number"
    """``number``, ``text`` or ``long`` (a command line)."""
    rank: int = 0
    """Columns of the highest rank are left out first when a terminal is narrow; 0 stays."""
    total: Callable[[Report], str] | None = None


class Table(NamedTuple):
    title: str
    columns: Sequence[Column[Any]]
    rows: Sequence[Sequence[str]]
    total: Sequence[str] | None = None
    left: int = 0
    """Number of rows left out."""
    judged: bool = False
    """The last column says ``better`` or ``worse``."""


class Found(NamedTuple):
    """One finding, or one rule of several alike."""

    name: str
    """``#1``, or what became of it."""
    rule: str
    severity: str
    when: str
    where: str
    cost: str
    what: Sequence[str]
    advice: Sequence[str]
    evidence: Sequence[tuple[str, str, str, str]] = ()
    """Reading, value, threshold, meaning; what speaks against it begins its meaning so."""
    because: Sequence[str] = ()
    """The same in a line each, without what speaks against it."""
    against: Sequence[str] = ()
    ruled_out: Sequence[str] = ()
    sure: str = ""
    """How likely the cause named is the right one."""


class Lane(NamedTuple):
    number: int
    rule: str
    severity: str
    described: str
    stretches: Sequence[Stretch]
    seconds: float


class Row(NamedTuple):
    """A time profile on the time axis."""

    label: str
    short: str
    of: str
    """A few words more about what it is of."""
    profile: TimeProfile | None
    end: str
    """The figure that stands for all of it."""
    described: str
    missing: str = ""
    top: float = 100.0
    marks: Sequence[tuple[str, Stretch]] = ()
    """Severity of what held on it, and when."""
    lost: Sequence[Stretch] = ()


class Timeline(NamedTuple):
    """Rows on one time axis."""

    report: Report
    lanes: Sequence[Lane]
    gpus: Sequence[Row]
    others: Sequence[Row]
    """Charts of their own on a terminal."""
    cpu: Row | None
    name: str = ""
    """Makes the ids of a page unique."""


class Cards(NamedTuple):
    """A few small plots for each GPU, on its own scales."""

    report: Report
    cards: Sequence[tuple[str, Sequence[Row]]]
    left: int


Block = Said | Listed | Labelled | Bullets | Table | Found | Timeline | Cards


@dataclass(frozen=True)
class Section:
    """Blocks that belong together; ``title`` is for pages."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    title: str
    heading: str
    simulated: bool
    sections: Sequence[Section]


PAGE_RANK_MAX = 9
"""Columns of a higher rank are for wide terminals only."""


def tabled(
    title: str,
    columns: Sequence[Column[T]],
    items: Sequence[T],
    form: str,
    *,
    most: int | None = None,
    totals: Report | None = None,
) -> Table:
    """The first ``most`` of ``items`` in the columns of ``form`` (``text`` or ``page``) that have
    anything in them."""
    shown = items[:most]
    kept: list[tuple[Column[T], list[str]]] = []
    for column in columns:
        if form == "page" and column.rank > PAGE_RANK_MAX:
            continue
        cells = [column.cell(item) for item in shown]
        if column.rank == 0 or not set(cells) <= {units.UNKNOWN, ""}:
            kept.append((column, cells))
    total = None
    if totals is not None:
        total = ["" if column.total is None else column.total(totals) for column, _ in kept]
    return Table(
        title,
        [column for column, _ in kept],
        list(zip(*[cells for _, cells in kept], strict=True)),
        total,
        len(items) - len(shown),
    )


def grouped(pairs: Iterable[tuple[str, T]]) -> Mapping[str, list[T]]:
    """Items of the same text together, in the order of their first."""
    found: dict[str, list[T]] = {}
    for text, item in pairs:
        found.setdefault(text, []).append(item)
    return found
