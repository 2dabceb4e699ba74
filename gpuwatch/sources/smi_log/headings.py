"""Headings of logs: what a log in rows and columns is, and what its columns are called.

The headings decide. A log without them needs ``--columns``, unless its units leave no choice.
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.sources.files.log_text import LogError, LogStats
from gpuwatch.sources.smi_log.columns import (
    COLUMNS,
    COLUMNS_MAX,
    DCGMI,
    DMON,
    PMON,
    SKIPPED,
    Column,
    named,
)
from gpuwatch.sources.smi_log.stamps import StampReader
from gpuwatch.sources.smi_log.values import number, parser

ALIGNED = "  "
"""Separator of columns that ``column -t`` has put under each other: two spaces or more."""
BARS = "|"
"""Separator of the cells of a Markdown table, which may stand at both ends of a line, too."""
SEPARATORS = (",", ";", "\t", ALIGNED, BARS)
SPACES = " "
"""Separator of dmon, pmon and dcgmi: white space of any length."""
_GAP = re.compile(r"\s{2,}")
_FORMS = (
    (re.compile(r"\d{4}[/-]\d{1,2}[/-]\d{1,2}[ T]\d{1,2}:\d\d:.*|1\d{9}(\.\d+)?"), ["timestamp"]),
    (re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}"), ["uuid"]),
    (re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"), ["pci.bus_id"]),
    (re.compile(r"P(?:1[0-5]|[0-9])"), ["pstate"]),
    (re.compile(r"0x[0-9A-Fa-f]{16}"), ["clocks_event_reasons.active"]),
    (re.compile(r"\d{3}\.\d{1,4}\.\d{1,4}"), ["driver_version"]),
    (re.compile(r"[\d.]+ %"), ["utilization.gpu", "utilization.memory"]),
    (re.compile(r"[\d.]+ MiB"), ["memory.used", "memory.total"]),
    (re.compile(r"[\d.]+ W"), ["power.draw", "power.limit"]),
    (re.compile(r"[\d.]+ MHz"), ["clocks.current.sm", "clocks.current.memory"]),
    (re.compile(r"[A-Z][A-Za-z]{2}.*"), ["name"]),
)
"""Cells of a log without headings: its columns in nvidia-smi's own order."""
_CARD = re.compile(r"NVIDIA|GeForce|Tesla|Quadro")
_TAGGED = (("dcgm", "entity", DCGMI), ("pmon", "pid", PMON), ("dmon", "gpu", DMON))
_CELL = re.compile(
    r"(?:[A-Za-z_%][\w .%/#()\[\]°º\u2103\ufffd+-]{0,80}|.*system[./]gpu\.\d.*|\w*\{.*\})?",
    re.ASCII,
)
_TELLING = frozenset({"reading", "reason", "counter"})
FIELD_HEADINGS = frozenset({"field", "metric", "metric_name", "field_name"})
VALUE_HEADINGS = frozenset({"value", "values"})


class Heading(NamedTuple):
    kind: str
    """``query``, ``csv``, ``dmon``, ``pmon`` or ``dcgm``."""
    names: tuple[str, ...]
    """Of ``COLUMNS``; anything else is left out."""
    units: tuple[str, ...] = ()
    separator: str = ","
    line: str = ""
    fixed: bool = False
    """The names are a person's, or come from the forms of cells: other headings do not count."""
    cells: tuple[str, ...] = ()
    """As they are written, where there is a column for each GPU."""

    @property
    def tidy(self) -> bool:
        """A column says what is measured, another gives the value."""
        names = set(self.names)
        return not (names.isdisjoint(FIELD_HEADINGS) or names.isdisjoint(VALUE_HEADINGS))


def stripped(line: str) -> str:
    line = line.strip(" \r\ufeff\x00")
    return "" if line.isspace() else line


def named_by(names: tuple[str, ...], line: str) -> Heading | None:
    """``names`` as the heading of a log that has ``line``; ``None`` where it is no such row."""
    for separator in SEPARATORS if "," in line else (*SEPARATORS, SPACES):
        cells = split_cells(line, separator, len(names))
        if len(cells) == len(names) and has_digit(cells):
            kind = "dmon" if separator == SPACES else "query"
            return _made(kind, names, separator)._replace(fixed=True)
    return None


def of_query(names: Sequence[str]) -> Heading | None:
    """The columns of a query as a heading; ``None`` where they say nothing of how a GPU does."""
    made = _made("query", names, ",")
    tells = any(COLUMNS[name].part in _TELLING for name in made.names if name in COLUMNS)
    return made if tells else None


def asked_for(names: Sequence[str], line: str) -> Heading | None:
    """The columns of a query as the heading of a log that has ``line``; ``None`` where its cells
    are not values of theirs."""
    heading = None if line[:1] == "#" else of_query(names)
    found = None if heading is None else named_by(heading.names, line)
    if heading is None or found is None:
        return None
    cells = split_cells(line, found.separator, len(names))
    values = [
        parser(column.kind, column.unit)(cell)
        for name, cell in zip(heading.names, cells, strict=True)
        if (column := COLUMNS.get(name)) is not None and column.part in _TELLING
    ]
    return heading._replace(separator=found.separator) if values != [None] * len(values) else None


def _made(kind: str, cells: Sequence[str], separator: str, line: str = "") -> Heading:
    found = list(map(named, cells))
    wide = any(each.gpu is not None and each.name in COLUMNS for each in found)
    names, units = tuple([each.name for each in found]), tuple([each.unit for each in found])
    return Heading(kind, names, units, separator, line, cells=tuple(cells) if wide else ())


def find_heading(line: str) -> Heading | None:
    """The names in a heading; ``None`` for any other line."""
    # Markdown's escape.
    line = line.removeprefix("\\")
    if line.startswith("#"):
        tokens = line.lstrip("#").replace(",", " ").lower().split()
        for kind, tag, table in _TAGGED:
            if {tag, "gpu" if tag == "pid" else tag} <= set(tokens) and sum(
                token in table for token in tokens
            ) > 1:
                names = tuple([table.get(token, SKIPPED) for token in tokens])
                return Heading(kind, names, separator="," if "," in line else SPACES, line=line)
    for separator in SEPARATORS:
        cells = split_cells(line.lstrip("# "), separator)
        if len(cells) > COLUMNS_MAX or not all(map(_CELL.fullmatch, cells)):
            continue
        made = _made("query" if "." in line else "csv", cells, separator, line)
        parts = {COLUMNS[name].part for name in made.names if name in COLUMNS}
        about = any(each.about_gpus and each.name in COLUMNS for each in map(named, cells))
        # Of a card alone ("name") a row can be, too.
        tells = not parts.isdisjoint(_TELLING) or "memory.free" in made.names
        if (about and tells) or (made.tidy and parts):
            return made
    return None


def surplus(heading: Heading, cells: Sequence[str]) -> int | None:
    """Which of ``cells``, one more than ``heading`` names, is none of its columns: that without
    which all others are values of theirs. ``None`` where no cell, or any of several, can be."""
    found: dict[tuple[str, ...], int] = {}
    for place in range(len(cells)):
        rest = [*cells[:place], *cells[place + 1 :]]
        units = heading.units or ("",) * len(rest)
        known = [
            (column, unit, cell)
            for name, unit, cell in zip(heading.names, units, rest, strict=True)
            if (column := COLUMNS.get(name)) is not None
        ]
        if all(_fits(column, unit, cell) for column, unit, cell in known):
            # Of two times that stand side by side either is one.
            values = tuple([cell for column, _, cell in known if column.part != "other"])
            found.setdefault(values, place)
    return next(iter(found.values())) if len(found) == 1 else None


def _fits(column: Column, unit: str, cell: str) -> bool:
    if column.field in {"timestamp", "time", "date"}:
        return StampReader().stamp(cell) is not None
    if column.kind == "text":
        return any(map(str.isalpha, cell))
    unread = cell != "" and parser("text")(cell) is None
    return unread or parser(column.kind, unit or column.unit)(cell) is not None


def split_cells(line: str, separator: str = ",", width: int = 0) -> list[str]:
    if separator == SPACES:
        # A command (the last column of pmon) may hold spaces; "GPU 0" of dcgmi is one cell.
        return line.removeprefix("GPU ").split(None, width - 1)
    if separator == ALIGNED:
        parts = _GAP.split(line.strip())
    elif separator == BARS:
        row = line.strip(" \t").removeprefix(BARS).removesuffix(BARS)
        # A heading may be bold or code.
        return [cell.strip(" \t*`") for cell in row.split(BARS)]
    elif '"' in line:
        parts = _quoted(line, separator)
    else:
        parts = line.split(separator)
    return [cell.strip(' \t"\ufeff\x00') for cell in parts]


def _quoted(line: str, separator: str) -> list[str]:
    """Of another program: a name in quotes may hold the separator."""
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    except (csv.Error, StopIteration):
        return line.split(separator)


def has_digit(cells: Sequence[str]) -> bool:
    return any(map(str.isdigit, chain.from_iterable(cells)))


def without_heading(
    lines: Sequence[str], wanted: Sequence[str] | None, shown: str, stats: LogStats
) -> Heading:
    """The columns by their units, where no other reading of them is possible."""
    if not lines and stats.damage is not None:
        raise LogError(f"{shown} is not a log: {stats.damage}.")
    if not lines:
        raise LogError(f"{shown} holds no text." if stats.lines else f"{shown} is empty.")
    if wanted is not None:
        raise LogError(f"{shown} does not begin with a row of {len(wanted)} columns.")
    spaced = [line.split() for line in lines if "," not in line]
    rows = [cells for cells in spaced if all(map(_is_value, cells)) and len(cells) > 2]
    if len(rows) * 10 >= len(lines) * 9:
        what = "looks like nvidia-smi dmon without its header"
        raise _unnamed(shown, what, rows[0], "gpu,pwr,gtemp,mtemp,sm,mem,...")
    rows = [split_cells(line) for line in lines if len(line) < 12 or "," in line]
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    rows = [row for row in rows if len(row) == width and has_digit(row)]
    first = rows[0] if rows else []
    values = all(map(_is_value, first)) or any(map(_CARD.match, first))
    if len(rows) * 2 < len(lines) or not rows or not values:
        raise LogError(_strange(shown, lines[0]))
    names, sure = _by_form(rows)
    if not sure:
        proposed = ",".join(names) if "utilization.gpu" in names else "timestamp,index,-,..."
        what = f'begins with "{clean(lines[0], 120)}", which are not column names of nvidia-smi'
        raise _unnamed(shown, what, rows[0], proposed)
    return Heading("query", names, fixed=True)


def _by_form(rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], bool]:
    """Names in nvidia-smi's own order of columns with a form or unit; whether each is sure: no
    other column has its unit, and one is the utilisation."""
    forms = [
        next((names for form, names in _FORMS if form.fullmatch(cell)), [SKIPPED])
        for cell in rows[0]
    ]
    found = [
        dict(enumerate(names)).get(forms[:place].count(names), SKIPPED)
        for place, names in enumerate(forms)
    ]
    if {"memory.used", "memory.total"} <= set(found):
        used, total = found.index("memory.used"), found.index("memory.total")
        sizes = {(number(row[used]) or 0.0) + (number(row[total]) or 0.0) for row in rows}
        if len({row[used] for row in rows}) > 1 and max(sizes) - min(sizes) < 64.0:
            found[total] = "memory.free"
    sure = all(forms.count(names) == 1 or len(names) == 1 for names in forms)
    return tuple(found), sure and "utilization.gpu" in found


def _is_value(cell: str) -> bool:
    return cell == SKIPPED or number(cell) is not None or any(f.fullmatch(cell) for f, _ in _FORMS)


def _unnamed(shown: str, what: str, row: Sequence[str], proposed: str) -> LogError:
    return LogError(
        f"{shown} {what}: if it is a log of GPUs, name its {len(row)} columns with gpuwatch "
        f"diagnose --columns, as in the query, with - for those to skip; for instance --columns "
        f"{proposed}"
    )


def _strange(shown: str, line: str) -> str:
    text = clean(line[:80]).replace("\ufffd", "")
    # Text of any language has few characters that cannot be shown.
    if len(text) < 0.8 * len(line[:80]):
        return f"{shown} is not text: neither a recording of gpuwatch nor a log of GPUs."
    return (
        f"{shown} is neither a recording of gpuwatch nor a log of GPUs that can be read: it begins "
        f'with "{clean(line, 80)}". Log with nvidia-smi --query-gpu=timestamp,index,'
        "utilization.gpu,... --format=csv -l 1"
    )
