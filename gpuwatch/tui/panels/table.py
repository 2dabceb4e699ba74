"""Tables of the dashboard: columns of fixed widths, as many as fit; rows with a cursor."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from gpuwatch.core import units
from gpuwatch.core.bounds import mean, total
from gpuwatch.core.model import JobMember, Process, ProcessKey
from gpuwatch.jobs.identity.programs import PYTHON, parse_python, recognise
from gpuwatch.outputs import terminal
from gpuwatch.outputs.terminal import Column
from gpuwatch.tui.charts.strips import Glyphs
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Zone,
    fit,
    fit_middle,
    left,
    right,
    surface_of,
    width_of,
)
from gpuwatch.tui.view import View

Item = TypeVar("Item")
Shown = TypeVar("Shown", Process, JobMember)

_PYTHON = re.compile(r"^/\S*/(python[\d.]*(?:\s|$))")
_STEPS_BACK = {units.UNKNOWN, "0%"}


def always_dim(_item: object, _text: str) -> str:
    return "dim"


def state_style(_item: object, text: str) -> str:
    """Return the style of a process state: waiting for a disk, or a zombie."""
    return "warn" if text in {"D", "Z"} else "dim"


def width_of_columns(columns: Iterable[Column[Any]]) -> int:
    """Count the cells that the columns take, each with a blank behind it."""
    return sum(column.width + 1 for column in columns)


def fitting(columns: Sequence[Column[Item]], room: int) -> list[Column[Item]]:
    """Return the columns that fit in ``room`` cells, the one behind the last included."""
    widths = [column.width for column in columns]
    places = terminal.fitting(columns, widths, range(len(columns)), room - 1, 1)
    return [columns[place] for place in places]


def add_headings(
    row: Row,
    columns: Iterable[Column[Any]],
    sort: str | None = None,
    *,
    arrow: str = "",
    style: str = "label",
    chosen: str = "value",
    gap: str = " ",
) -> list[Zone]:
    """Append the headings, with the ``arrow`` and the style ``chosen`` where the rows are sorted by
    it; return where a click sorts by another."""
    zones = []
    for one in columns:
        start, by_this = row.used, one.sort is not None and one.sort == sort
        text = one.heading + arrow if by_this and len(one.heading) < one.width else one.heading
        place = left if one.is_text else right
        row.add(place(text, one.width), chosen if by_this else style).add(gap, style)
        if one.sort is not None:
            zones.append(Zone(0, start, row.used, "sort", one.sort))
    return zones


def add_cells(
    row: Row,
    columns: Iterable[Column[Item]],
    item: Item,
    ellipsis: str,
    gap: str = " ",
    unknown: str = units.UNKNOWN,
) -> None:
    """Append the cells of ``item``; a number that is unknown or zero steps back. ``unknown``: the
    text for one that is not known."""
    for one in columns:
        if one.runs is not None:
            row.add_runs(one.runs(item), one.width).add(gap)
            continue
        text = one.cell(item)
        text = unknown if text == units.UNKNOWN else text
        place = left if one.is_text else right
        if one.style is not None:
            style = one.style(item, text)
        else:
            style = "dim" if text in _STEPS_BACK else "text"
        # The blank in the same style: one run less.
        row.add(place(text, one.width, ellipsis) + gap, style)


def stepping_back(line: Line) -> Line:
    """Return a row quieter, but for its chart and its mark."""
    return tuple(
        [
            # The style of a chart has a tone.
            (text, look if "." in look or look.endswith("marker") else f"{surface_of(look)}dim")
            for text, look in line
        ]
    )


def begin_row(width: int, glyphs: Glyphs, *, selected: bool, focused: bool) -> Row:
    """Begin a row with the mark of the selection; ``focused``: the cursor is in this list."""
    row = Row(width, prefix="s:" if focused else "")
    return row.add(glyphs.marker if selected else " ", "marker" if focused else "dim")


@lru_cache(maxsize=256)
def brief_command(command: str) -> str:
    """Shorten a command by the folder of Python, which is long and the same in every row."""
    return _PYTHON.sub(r"\1", command, count=1) if command.startswith("/") else command


_LEAST_OF_SCRIPT = 8
_ROOM_FOR_LAUNCHER = 24


def fit_command(command: str, width: int, ellipsis: str, before: str = "") -> str:
    """Return ``before`` and a command in at most ``width`` cells. One that does not fit loses what
    tells least: the interpreter with its flags, then the launcher, then the script's folder."""
    if width - width_of(before) < _LEAST_OF_SCRIPT:
        before = before.removeprefix("rank ")
    room = width - width_of(before)
    texts = _shorter_and_shorter(command)
    if room >= _ROOM_FOR_LAUNCHER and _is_launcher(command.split()):
        # What it runs is said in the rows below it, too.
        texts = texts[:-1]
    fits = next((one for one in texts if width_of(one) <= room), None)
    return fit(before + (fits or fit_middle(texts[-1], max(room, 1), ellipsis)), width, ellipsis)


def script_of(command: str) -> str:
    """Return ``train.py``: the script or module that a command runs, or its program."""
    words = _shorter_and_shorter(command)[-1].split()
    return next((word for word in words if word != "-m"), "")


@lru_cache(maxsize=256)
def _shorter_and_shorter(command: str) -> list[str]:
    words = command.split()
    script, *rest = _from_program(words) or [command]
    own = [script if script.startswith("-") else script.rpartition("/")[2] or script, *rest]
    launched = [recognise(tuple(words)).name, *own] if _is_launcher(words) else [script, *rest]
    return [
        brief_command(command),
        *[" ".join(one) for one in (_from_script(words), launched, own)],
    ]


def _is_launcher(words: Sequence[str]) -> bool:
    return recognise(tuple(words)).kind in ("launcher", "wrapper")


def _from_script(words: Sequence[str]) -> Sequence[str]:
    """Return a command from the script on that Python runs in it, or from ``-m`` and the module."""
    if not words or not PYTHON.fullmatch(words[0].rpartition("/")[2]):
        return words
    what, value, rest = parse_python(tuple(words))
    if what == "code" or not value:
        return words
    return ["-m", value, *rest] if what == "module" else [value, *rest]


def _from_program(words: Sequence[str]) -> Sequence[str]:
    """Return a command from the program on that a person would name: behind launchers, too."""
    own = _from_script(words)
    if not _is_launcher(words):
        return own
    # A launcher that is a module of Python: what it runs may be one as well.
    behind = 2 if own[0] == "-m" else 1
    for place in range(behind, len(own)):
        word = own[place]
        if PYTHON.fullmatch(word.rpartition("/")[2]):
            return _from_program(own[place:])
        if word.endswith(".py") or (word == "-m" and place + 1 < len(own)):
            return own[place:]
    return own


def hidden(glyphs: Glyphs, above: int, below: int) -> str:
    """Return ``▲3 ▼4``: how many rows of a list are out of sight; nothing where all are seen."""
    parts = [f"{glyphs.up}{above}"] if above > 0 else []
    return " ".join([*parts, f"{glyphs.down}{below}"] if below > 0 else parts)


def heading_notes(notes: Sequence[str], out_of_sight: str) -> list[str]:
    """Return the notes for the heading of a list, the fullest first: each with what is ``hidden``,
    which comes before how many there are in all."""
    if not out_of_sight:
        return list(notes)
    more = f"{out_of_sight} more"
    return [*[f"{note}  {more}" for note in notes], more, out_of_sight]


def branches(family: Sequence[tuple[int, int | None]], glyphs: Glyphs) -> list[str]:
    """Branches drawn before each process, given by (PID, parent's PID). Parents come before their
    children; one that comes later, or not at all, is none."""
    if {pid for pid, _ in family}.isdisjoint([parent for _, parent in family]):
        return [""] * len(family)
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


# -- rows that give way where not all fit ----------------------------------------------------------


def is_folded(view: View, count: int, room: int) -> bool:
    """Return whether the loader workers of a parent are one row: where the person wants that, else
    where ``count`` rows do not fit in ``room``."""
    return count > room if view.folded is None else view.folded


_FEW_ROWS = 5
"""A table of fewer rows has none for a launcher."""


def in_room(
    view: View,
    items: Sequence[Shown],
    room: int,
    family: Callable[[Shown], Hashable],
    on_gpu: Callable[[Shown], bool],
) -> tuple[list[Shown], dict[ProcessKey, tuple[Shown, ...]]]:
    """Return the processes of a tree as rows of a table with ``room`` for so many, and who those in
    one row are, by the key of the first. Loader workers of one ``family`` (``None``: it is none)
    are in one row where not all fit; what only launches others comes last in a low table."""
    rows: list[Shown] = list(items)
    families: dict[ProcessKey, tuple[Shown, ...]] = {}
    if is_folded(view, len(items), room):
        rows, families = _folded(items, family)
    if room < min(_FEW_ROWS, len(rows)):
        parents = {one.parent_pid for one in rows}
        rows.sort(key=lambda one: one.pid in parents and not on_gpu(one))
    return rows, families


def _folded(
    items: Sequence[Shown], family: Callable[[Shown], Hashable]
) -> tuple[list[Shown], dict[ProcessKey, tuple[Shown, ...]]]:
    """Return the rows with all workers of a family as one, and who they are."""
    workers: dict[Hashable, list[Shown]] = {}
    for one in items:
        workers.setdefault(family(one), []).append(one)
    out: list[Shown] = []
    families: dict[ProcessKey, tuple[Shown, ...]] = {}
    for one in items:
        own = workers[family(one)]
        if family(one) is None or len(own) == 1:
            out.append(one)
        elif one is own[0]:
            out.append(as_one(own))
            families[one.key] = tuple(own)
    return out, families


_MEANS = ("cpu_percent", "main_thread_cpu_percent", "run_queue_wait_percent", "disk_wait_percent")
_SUMS = (
    "read_bytes_per_second",
    "write_bytes_per_second",
    "memory_resident_bytes",
    "memory_proportional_bytes",
    "threads",
)


def as_one(family: Sequence[Shown]) -> Shown:
    """Add up a family: shares as means, bytes as sums; the state is the one most of them are in."""
    first, readings = family[0], dict[str, Any]()
    for combine, names in ((mean, _MEANS), (total, _SUMS)):
        for name in names:
            if hasattr(first, name):
                readings[name] = combine(getattr(one, name) for one in family)
    states = [one.state for one in family]
    if isinstance(first, JobMember):
        readings["role_guessed"] = any(one.role_guessed for one in family)
    return replace(first, state=max(states, key=states.count), **readings)


_SHORT_ROLES = (("training process", "train"), ("loader worker", "worker"), ("orphaned", "orphan"))


def short_role(name: str) -> str:
    """Return the name of a role in shorter words."""
    for long, short in _SHORT_ROLES:
        name = name.replace(long, short)
    return name


def share_of_each(text: str, count: int, width: int) -> str:
    """Return the mean of ``count`` processes in one row, which says so: ``8x99%``."""
    each = f"{count}x{text}"
    return each if count and text != units.UNKNOWN and len(each) <= width else text
