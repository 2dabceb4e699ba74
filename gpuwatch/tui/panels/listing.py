"""Lists of processes: columns declared once, as many as fit, rows with a cursor, and branches."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from gpuwatch.core import units
from gpuwatch.tui.charts.glyphs import Glyphs
from gpuwatch.tui.terminal.frame import Row, left, right

Entry = TypeVar("Entry")

_PYTHON = re.compile(r"^/\S*/(python[\d.]*(?:\s|$))")


def quiet(_entry: object, text: str) -> str:
    """Return the style of a number: what is unknown or zero steps back."""
    return "dim" if text in {units.UNKNOWN, "0%"} else "text"


def always_dim(_entry: object, _text: str) -> str:
    return "dim"


def state_style(_entry: object, text: str) -> str:
    """Return the style of a process state: waiting for a disk, or a zombie."""
    return "warn" if text in {"D", "Z"} else "dim"


@dataclass(frozen=True, slots=True)
class ListColumn(Generic[Entry]):
    """A column of a list. ``importance``: the least important are dropped first. ``sort`` is the
    sort key that a click on the title chooses."""

    title: str
    width: int
    importance: int
    text: Callable[[Entry], str]
    style: Callable[[Entry, str], str] = quiet
    sort: str | None = None
    flush_left: bool = False

    def add_title(self, row: Row, style: str = "label", mark: str = "") -> None:
        title = self.title + mark if len(self.title) < self.width else self.title
        row.add((left if self.flush_left else right)(title, self.width), style).add(" ")

    def add_cell(self, row: Row, entry: Entry, ellipsis: str) -> None:
        text = self.text(entry)
        cell = (left if self.flush_left else right)(text, self.width, ellipsis)
        # The blank in the same style: one run less.
        row.add(cell + " ", self.style(entry, text))


def width_of_columns(columns: Iterable[ListColumn[Entry]], spark: int) -> int:
    """Cells that the columns take, each with a blank behind it; a spark of no cells takes none."""
    return sum(column.width + 1 for column in columns) + (spark + 1 if spark else 0)


def fitting(
    columns: Iterable[ListColumn[Entry]], spark: int, spark_importance: int, room: int
) -> tuple[list[ListColumn[Entry]], int]:
    """The columns that fit in ``room`` cells (at least one), and the spark's width (0: none)."""
    chosen = list(columns)
    while width_of_columns(chosen, spark) > room:
        least = min(chosen, key=lambda column: column.importance)
        if spark and least.importance > spark_importance:
            spark = 0
        elif len(chosen) > 1:
            chosen.remove(least)
        else:
            break
    return chosen, spark


def begin_row(width: int, glyphs: Glyphs, *, selected: bool, focused: bool) -> Row:
    """A row with the mark of the selection; ``focused``: the cursor is in this list."""
    row = Row(width, prefix="s:" if focused else "")
    return row.add(glyphs.marker if selected else " ", "marker" if focused else "dim")


@lru_cache(maxsize=256)
def brief_command(command: str) -> str:
    """Shorten a command by the folder of Python, which is long and the same in every row."""
    return _PYTHON.sub(r"\1", command, count=1) if command.startswith("/") else command


def branches(family: Sequence[tuple[int, int | None]], glyphs: Glyphs) -> list[str]:
    """Branches drawn before each process, given by (PID, parent's PID). Parents come before their
    children; one that comes later, or not at all, is none."""
    seen: set[int | None] = {None}
    is_last = []
    for _, parent in reversed(family):
        is_last.append(parent not in seen)
        seen.add(parent)
    below: dict[int | None, str] = {}
    out = []
    for (pid, parent), last in zip(family, reversed(is_last), strict=True):
        trunk = below.get(parent)
        if trunk is None or parent == pid:
            out.append("")
            below.setdefault(pid, "")
        else:
            out.append(trunk + (glyphs.last_branch if last else glyphs.branch))
            below.setdefault(pid, trunk + ("  " if last else glyphs.trunk))
    return out
