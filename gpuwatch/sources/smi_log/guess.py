"""Columns of a log without a header, recognised by their units, forms and ranges.

What has a unit or a form of its own (a time stamp, a UUID, ``P0``, ``212.34 W``) is plain. Two
columns of one unit are told apart by what must hold between them: a limit and a total are constant
and never less; the memory controller is hardly ever busier than the GPU. Bare numbers are told by
how they move: utilisation jumps and touches 0 or 100, a temperature creeps, a total stays. What
stays open is left out, except the utilisation, without which there is no diagnosis: then an
``AmbiguousColumnsError`` asks for the names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.core.text import clean
from gpuwatch.sources.files.log_text import AmbiguousColumnsError
from gpuwatch.sources.smi_log.fields import UNREAD, number
from gpuwatch.sources.smi_log.time import looks_like_epoch, looks_like_stamp

COLUMNS_MAX = 256
SURE_SHARE = 0.95
JUMP_PERCENT = 15.0
"""A GPU's temperature moves by a few degrees a second; its utilisation by tens of percent."""
CLOCK_MOST_MHZ = 14_500.0
"""The fastest memory clock is 14001 MHz (GDDR7): larger whole numbers are MiB."""
TEMPERATURES = (15.0, 105.0)

_MAY_BE_BUSY = re.compile(r"gpu|util|load|busy|sm", re.IGNORECASE)
_IS_ANOTHER = re.compile(r"cpu|mem|ram|disk|fan|enc|dec|temp|power", re.IGNORECASE)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}", re.ASCII)
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]", re.ASCII)
_STATE = re.compile(r"P(?:1[0-5]|[0-9])", re.ASCII)
_MASK = re.compile(r"0x[0-9A-Fa-f]{16}", re.ASCII)
_VERSION = re.compile(r"\d{3}\.\d{1,4}\.\d{1,4}", re.ASCII)
_UNITS = {"%": "percent", "MiB": "mib", "W": "watt", "MHz": "mhz", "us": "other", "mJ": "other"}
_NAMED = {
    "stamp": "timestamp",
    "uuid": "uuid",
    "bus": "pci.bus_id",
    "state": "pstate",
    "mask": "clocks_event_reasons.active",
    "version": "driver_version",
}


@dataclass(slots=True)
class _Seen:
    """One column of the first rows."""

    place: int
    form: str
    values: list[float]

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def most(self) -> float:
        return max(self.values)

    @property
    def constant(self) -> bool:
        return self.least == self.most

    def jump(self, step: int) -> float:
        """The largest change from a row to that of the same GPU after it."""
        pairs = zip(self.values, self.values[step:], strict=False)
        return max((abs(after - before) for before, after in pairs), default=0.0)


def is_heading(cells: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether ``cells``, of the first line, name the columns of ``rows`` (in words of their own)
    rather than hold values."""
    if any(_cell_form(cell) != "text" for cell in cells if cell):
        return False
    forms = [_form([row[place] for row in rows[1:]]) for place in range(len(cells))]
    return any(form not in {"text", "none"} for form in forms)


def guess_columns(
    rows: Sequence[Sequence[str]], header: Sequence[str] | None = None, shown: str = "The log"
) -> list[str | None]:
    """The canonical name of each column, ``None`` for those left out; ``rows`` are of one width.

    ``header``: names that somebody else gave them, which must not speak against it. Raises
    ``AmbiguousColumnsError``.
    """
    width = len(rows[0])
    names: list[str | None] = [None] * width
    forms = [_form([row[place] for row in rows]) for place in range(width)]
    for place, form in enumerate(forms):
        name = _NAMED.get(form)
        if name is not None and name not in names:
            names[place] = name
    _name_of_card(rows, forms, names)
    columns = {
        place: _Seen(place, forms[place], _values(rows, place))
        for place in range(width)
        if forms[place] in {"percent", "mib", "watt", "mhz", "int", "float"}
    }
    columns = {place: column for place, column in columns.items() if column.values}
    step = _index(columns, names, rows)
    left = [column for place, column in columns.items() if names[place] is None]
    by_form = {form: [column for column in left if column.form == form] for form in set(forms)}
    with_units = any(by_form.get(form) for form in ("percent", "mib", "watt", "mhz"))
    open_question = _busy(by_form.get("percent", []), names, step) if with_units else False
    _power(by_form.get("watt", []), names)
    _memory(by_form.get("mib", []), names)
    _clocks(by_form.get("mhz", []), names)
    bare = by_form.get("int", [])
    if not with_units:
        _power(by_form.get("float", []), names)
        large = [column for column in bare if column.most > 100.0]
        _memory([column for column in large if _is_memory(column, large)], names)
        small = [column for column in bare if column.least >= 0.0 and column.most <= 100.0]
        open_question = _bare_busy(small, names, step)
    _temperature(bare, names, step)
    candidates = [] if "utilization.gpu" in names else _candidates(left, names)
    if open_question and header is None:
        raise AmbiguousColumnsError(_question(shown, rows[0], names, candidates))
    if header is not None:
        _agree(shown, header, names, candidates)
    return names


def _agree(
    shown: str,
    header: Sequence[str],
    names: list[str | None],
    candidates: Sequence[_Seen],
) -> None:
    """Ask where the words of a header do not say that the guess is right."""
    sure = "utilization.gpu" in names
    if not sure and candidates:
        names[candidates[0].place] = "utilization.gpu"
    if "utilization.gpu" not in names:
        return
    word = header[names.index("utilization.gpu")]
    if not sure or not _MAY_BE_BUSY.search(word) or _IS_ANOTHER.search(word):
        raise AmbiguousColumnsError(_foreign(shown, header, names))


def _candidates(columns: Sequence[_Seen], names: Sequence[str | None]) -> list[_Seen]:
    """What may be the utilisation: those that move first."""
    found = [
        column
        for column in columns
        if names[column.place] is None
        and column.form in {"percent", "int"}
        and column.least >= 0.0
        and column.most <= 100.0
    ]
    return sorted(found, key=lambda column: (column.constant, column.constant and not column.place))


def _form(cells: Sequence[str]) -> str:
    counted = Counter(_cell_form(cell) for cell in cells if cell.lower() not in UNREAD)
    if not counted:
        return "none"
    form, times = counted.most_common(1)[0]
    if form in {"int", "float"} and counted.keys() <= {"int", "float"}:
        return "float" if counted["float"] else "int"
    return form if times >= SURE_SHARE * counted.total() else "mixed"


def _cell_form(cell: str) -> str:
    if looks_like_stamp(cell) or looks_like_epoch(cell):
        return "stamp"
    for pattern, form in (
        (_UUID, "uuid"),
        (_BUS, "bus"),
        (_STATE, "state"),
        (_MASK, "mask"),
        (_VERSION, "version"),
    ):
        if pattern.fullmatch(cell):
            return form
    if cell in {"Active", "Not Active"}:
        return "flag"
    amount, _, unit = cell.partition(" ")
    if unit in _UNITS and number(amount) is not None:
        return _UNITS[unit]
    if number(cell) is None or " " in cell:
        return "text"
    return "int" if cell.lstrip("-").isdigit() else "float"


def _values(rows: Sequence[Sequence[str]], place: int) -> list[float]:
    found = [number(row[place]) for row in rows if row[place].lower() not in UNREAD]
    return [value for value in found if value is not None]


def _name_of_card(
    rows: Sequence[Sequence[str]], forms: Sequence[str], names: list[str | None]
) -> None:
    for place, form in enumerate(forms):
        text = rows[0][place]
        if form == "text" and re.search(r"[A-Za-z]{2}", text) and len(text) > 4:
            names[place] = "name"
            return


def _index(
    columns: dict[int, _Seen], names: list[str | None], rows: Sequence[Sequence[str]]
) -> int:
    """Name the column that counts 0, 1, ... over and over; how many rows one round has."""
    for place, column in columns.items():
        count = int(column.most) + 1 if column.most < 64 else 0
        if column.form != "int" or count < 2 or len(column.values) != len(rows):
            continue
        turns = sum(
            after == (before + 1) % count
            for before, after in zip(column.values, column.values[1:], strict=False)
        )
        if len(rows) >= 2 * count and turns >= SURE_SHARE * (len(rows) - 1):
            names[place] = "index"
            return count
    return 1


def _busy(columns: list[_Seen], names: list[str | None], step: int) -> bool:
    """Name the utilisation among columns of percents; true where it cannot be told."""
    if not columns:
        return False
    if len(columns) == 1:
        names[columns[0].place] = "utilization.gpu"
        return False
    moving = [column for column in columns if column.jump(step) > JUMP_PERCENT] or columns
    if len(moving) == 1:
        # Beside a fan, which creeps, or encoders, which idle.
        names[moving[0].place] = "utilization.gpu"
        return False
    first = next((column for column in moving if _is_above(column, moving)), None)
    if first is None:
        return True
    names[first.place] = "utilization.gpu"
    if len(moving) == 2:
        second = moving[1] if moving[0] is first else moving[0]
        names[second.place] = "utilization.memory"
    return False


def _is_above(column: _Seen, others: Sequence[_Seen]) -> bool:
    """Hardly ever less than any other, and more than it at least once (or written first)."""
    for other in others:
        if other is column:
            continue
        pairs = list(zip(column.values, other.values, strict=False))
        above = sum(mine >= its for mine, its in pairs)
        if above < SURE_SHARE * len(pairs):
            return False
        if all(mine == its for mine, its in pairs) and other.place < column.place:
            return False
    return True


def _bare_busy(columns: list[_Seen], names: list[str | None], step: int) -> bool:
    """The same among bare numbers of 0 to 100."""
    if not columns:
        return False
    moving = [column for column in columns if column.jump(step) > JUMP_PERCENT]
    if moving:
        return _busy(moving, names, step)
    # It does not move: only a column that is no temperature, fan, index or link can be it.
    full = [column for column in columns if column.most >= 99.0]
    if len(full) == 1:
        names[full[0].place] = "utilization.gpu"
        return False
    if len(columns) == 1 and not _creeps(columns[0], step):
        names[columns[0].place] = "utilization.gpu"
        return False
    return True


def _creeps(column: _Seen, step: int) -> bool:
    low, high = TEMPERATURES
    inside = low <= column.least and column.most <= high
    return inside and column.jump(step) <= JUMP_PERCENT


def _temperature(columns: list[_Seen], names: list[str | None], step: int) -> None:
    creeping = [
        column for column in columns if names[column.place] is None and _creeps(column, step)
    ]
    if len(creeping) == 1:
        names[creeping[0].place] = "temperature.gpu"


def _power(columns: list[_Seen], names: list[str | None]) -> None:
    moving = [column for column in columns if not column.constant]
    if len(columns) == 1:
        names[columns[0].place] = "power.draw"
        return
    if len(moving) != 1:
        return
    names[moving[0].place] = "power.draw"
    limits = [column for column in columns if column.constant and column.least >= moving[0].most]
    if len({column.least for column in limits}) == 1:
        names[limits[0].place] = "power.limit"


def _memory(columns: list[_Seen], names: list[str | None]) -> None:
    """Used, free and total among columns of MiB."""
    if len(columns) == 1:
        names[columns[0].place] = "memory.used"
        return
    totals = [
        column
        for column in columns
        if column.constant and all(other.most <= column.least for other in columns)
    ]
    if len(totals) != 1:
        return
    names[totals[0].place] = "memory.total"
    others = [column for column in columns if column is not totals[0]]
    if len(others) == 1:
        names[others[0].place] = "memory.used"
    elif len(others) == 2:
        # nvidia-smi's own order is used, free; nothing in the numbers says so.
        names[others[0].place] = "memory.used"
        names[others[1].place] = "memory.free"


def _is_memory(column: _Seen, large: Sequence[_Seen]) -> bool:
    """Too large for a clock; or no clock, since it moves by more than clocks do and some other
    column is a total."""
    if column.most > CLOCK_MOST_MHZ:
        return True
    totals = [other for other in large if other.constant and other.least > CLOCK_MOST_MHZ]
    return bool(totals) and len(large) == 2


def _clocks(columns: list[_Seen], names: list[str | None]) -> None:
    moving = [column for column in columns if not column.constant]
    if len(columns) == 1:
        names[columns[0].place] = "clocks.current.sm"
    elif len(moving) == 1:
        names[moving[0].place] = "clocks.current.sm"


def _question(
    shown: str, row: Sequence[str], names: Sequence[str | None], candidates: Sequence[_Seen]
) -> str:
    first = clean(", ".join(row), 120)
    asked = (
        f'{shown} has no header, and which of its {len(row)} columns ("{first}") is the GPU\'s '
        "utilisation is unclear: name them with --columns, as in the query, with - for those to "
        "skip."
    )
    if not candidates:
        return asked
    place = candidates[0].place
    proposed = [*names[:place], "utilization.gpu", *names[place + 1 :]]
    return f"{asked} If it is column {place + 1}: --columns {_option(proposed)}"


def _foreign(shown: str, header: Sequence[str], names: Sequence[str | None]) -> str:
    first = clean(",".join(header), 120)
    return (
        f'{shown} begins with "{first}", which are no names of nvidia-smi. If it is a log of GPUs, '
        "say which columns they are, with - for those to leave out; by their values they could be "
        f"--columns {_option(names)}"
    )


def _option(names: Sequence[str | None]) -> str:
    return ",".join("-" if name is None else name for name in names)
