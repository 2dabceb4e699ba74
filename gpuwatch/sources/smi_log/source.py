"""Logs that people already have, as snapshots: what ``nvidia-smi`` wrote over time.

Read are ``nvidia-smi --query-gpu=... --format=csv[,noheader][,nounits] -l`` (or ``-lms``) with any
columns in any order, ``nvidia-smi dmon`` and ``nvidia-smi pmon`` (any ``-s``, ``-o DT``,
``--format csv``). The first rows are looked at to see which it is; after that one line is held at
a time, so a log of any size takes the same memory.

Where no column tells the GPUs apart, the rows of one moment are the GPUs in order; how many that
is, the time stamps say, or the caller. ``pmon`` says how busy processes were, not GPUs: a GPU is
taken to be as busy as its processes together.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise

from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.sources.files.log_text import AmbiguousColumnsError, LogError, LogStats, TextLines
from gpuwatch.sources.smi_log.fields import (
    DMON,
    FIELDS,
    PMON,
    canonical,
    is_field,
    is_known,
    number,
)
from gpuwatch.sources.smi_log.guess import COLUMNS_MAX, guess_columns, is_heading
from gpuwatch.sources.smi_log.rows import RowReader
from gpuwatch.sources.smi_log.ticks import GPUS_MAX, Ticks
from gpuwatch.sources.smi_log.time import StampReader

LOOKED_AT_LINES = 512
LEFT_OUT = "-"
_LOST = re.compile(r"GPU is lost|fallen off the bus|Unable to determine the device handle", re.I)
ALIGNED = "  "
"""What parts the columns that ``column -t`` has put under each other: two spaces or more."""
SEPARATORS = (",", ";", "\t", ALIGNED)
_GAP = re.compile(r"\s{2,}")
_WORD = re.compile(r"[a-z][a-z0-9_.]*[a-z0-9]", re.ASCII)
_DMON_USUAL = {
    12: "gpu,pwr,gtemp,mtemp,sm,mem,enc,dec,-,-,mclk,pclk",
    10: "gpu,pwr,gtemp,mtemp,sm,mem,enc,dec,mclk,pclk",
    9: "gpu,pwr,temp,sm,mem,enc,dec,mclk,pclk",
}
"""Its columns without ``-s``, by their number (drivers since 535, since 418, older)."""
_TABLE = re.compile(r"\+-{20,}|\|\s*NVIDIA-SMI \d|=+NVSMI LOG=+|<!DOCTYPE nvidia_smi_log")
_STATS = re.compile(
    r"\d+, (?:pwrDraw|temp|gpuUtil|memUtil|\w+Util|procClk|memClk|viol\w+) *, *\d+,"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What a person said about a log."""

    columns: tuple[str, ...] | None = None
    """Their (canonical) names, ``-`` for those to leave out; overrides a header."""
    interval_seconds: float | None = None
    """Of a log without times."""
    gpus: int | None = None
    """How many there are, where the log does not tell them apart."""


@dataclass(slots=True)
class _Layout:
    """What the log turned out to be."""

    kind: str
    names: tuple[str | None, ...] | None = None
    """``None``: a header will say."""
    separator: str | None = ","
    """Of columns: one of ``SEPARATORS``; ``None`` for white space of any length."""
    rows_per_tick: int = 1
    same_moment_seconds: float | None = None
    forced: bool = field(default=False)
    """The names are a person's: headers are passed over."""
    guessed: bool = field(default=False)
    heading: str | None = None
    """A first line that names the columns otherwise than ``nvidia-smi``."""


def parse_columns(text: str) -> tuple[str, ...]:
    """``timestamp,utilization.gpu,-`` to canonical names. Raises ``LogError``."""
    names = [part.strip() for part in text.split(",")]
    if len(names) > COLUMNS_MAX:
        raise LogError(f"--columns names more than {COLUMNS_MAX} columns.")
    found = [name if name in {"", LEFT_OUT} else _named(name) for name in names]
    if not any(is_known(name) for name in found):
        raise LogError("--columns names no column that says anything about a GPU.")
    return tuple([name or LEFT_OUT for name in found])


def _named(name: str) -> str:
    found = canonical(name)
    if not is_known(found) and found in DMON:
        return DMON[found]
    if is_field(found):
        return found
    near = difflib.get_close_matches(found, FIELDS, 1)
    hint = f" (is it {near[0]}?)" if near else ""
    raise LogError(
        f"{clean(name, 60)!r} in --columns is not a column of nvidia-smi{hint}: write the names of "
        "the query, and - for a column to skip."
    )


def read_lines(
    lines: Iterable[str],
    stats: LogStats,
    options: LogOptions | None = None,
    *,
    shown: str = "The log",
    text: TextLines | None = None,
) -> Iterator[Snapshot]:
    """The snapshots in ``lines``, as they come; ``stats`` is filled in meanwhile.

    ``stats.kind`` is set at once, the rest grows. Raises ``LogError`` at once for what is no such
    log, and where its columns cannot be told (``AmbiguousColumnsError``).
    """
    source = iter(lines)
    options = options or LogOptions()
    first = _first_lines(source, options, stats)
    layout = _layout(first, options, shown, stats)
    stats.kind = layout.kind
    rest = iter(()) if stats.interrupted else source
    return _Reader(layout, options, stats, text, shown).snapshots(chain(first, rest))


# --- what it is ------------------------------------------------------------------------------


def _first_lines(source: Iterator[str], options: LogOptions, stats: LogStats) -> list[str]:
    """Those to look at: up to a header that says all, since a log that is being written (a pipe)
    takes minutes for more."""
    found: list[str] = []
    try:
        for line in islice(source, LOOKED_AT_LINES):
            found.append(line)
            if options.columns is None and _says_all(_stripped(line)):
                break
    except KeyboardInterrupt:
        if not found:
            raise
        stats.interrupted = True
    return found


def _says_all(line: str) -> bool:
    """A header after which nothing has to be seen from the rows."""
    if _hash_tokens(line) is not None:
        return True
    names, _ = _any_header(line)
    return names is not None and _has_key(names)


def _has_key(names: Sequence[str | None]) -> bool:
    return not {"index", "uuid", "pci.bus_id"}.isdisjoint(names)


def _stripped(line: str) -> str:
    return line.strip(" \r\ufeff\x00")


def _layout(first: Sequence[str], options: LogOptions, shown: str, stats: LogStats) -> _Layout:
    lines = [_stripped(line) for line in first]
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise LogError(_nothing(shown, stats))
    if options.columns is not None:
        return _forced(lines, options)
    for line in lines:
        tokens = _hash_tokens(line)
        if tokens is not None:
            kind = "pmon" if "pid" in tokens else "dmon"
            return _Layout(kind, separator="," if "," in line else None)
    for line in lines:
        names, separator = _any_header(line)
        if names is not None:
            return _timed(_Layout("query", names, separator), lines, options)
    return _headless(lines, options, shown)


def _nothing(shown: str, stats: LogStats) -> str:
    if stats.damage is not None:
        return f"{shown} is not a log: {stats.damage}."
    return f"{shown} holds no text." if stats.lines else f"{shown} is empty."


def _forced(lines: Sequence[str], options: LogOptions) -> _Layout:
    assert options.columns is not None
    names = tuple([None if name == LEFT_OUT else name for name in options.columns])
    separator = next((each for each in SEPARATORS if _fits(lines, each, len(names))), None)
    if len(names) == 1:
        separator = ","
    layout = _Layout("query" if separator else "dmon", names, separator, forced=True)
    return _timed(layout, lines, options)


def _fits(lines: Sequence[str], separator: str, width: int) -> bool:
    """Most lines have so many columns that way."""
    return sum(len(_cells(line, separator)) == width for line in lines) * 2 > len(lines)


def _headless(lines: Sequence[str], options: LogOptions, shown: str) -> _Layout:
    if any(_TABLE.match(line) for line in lines):
        raise LogError(
            f"{shown} is the report that nvidia-smi prints, which is not read: log with "
            "nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used,power.draw "
            "--format=csv -l 1, or with gpuwatch stream."
        )
    if sum(_STATS.match(line) is not None for line in lines) * 2 > len(lines):
        raise LogError(
            f"{shown} is what nvidia-smi stats prints, which is not read: log with nvidia-smi "
            "--query-gpu=... --format=csv -lms 200."
        )
    if any("pid" in _cells(line) for line in lines):
        raise LogError(
            f"{shown} is a list of processes (--query-compute-apps), which does not say how busy "
            "the GPUs were: log with nvidia-smi --query-gpu=... or nvidia-smi pmon."
        )
    _refuse_dmon(lines, shown)
    rows = [_cells(line) for line in lines if "," in line or len(line) < 12]
    rows = [row for row in rows if len(row) <= COLUMNS_MAX and any(map(_has_digit, row))]
    if not rows:
        raise LogError(_strange(shown, lines[0]))
    width, _ = Counter(map(len, rows)).most_common(1)[0]
    same = [row for row in rows if len(row) == width]
    if len(same) * 2 < len(lines):
        raise LogError(_strange(shown, lines[0]))
    header = _cells(lines[0])
    named = header if len(header) == width and is_heading(header, same) else None
    same = same[1:] if named is not None and same[0] == named else same
    names = guess_columns(same, named, shown)
    # Under a header in other words a lone number may be anything.
    foreign = named is not None and "utilization.gpu" not in names
    if foreign or all(name in {None, "timestamp", "name", "uuid"} for name in names):
        raise LogError(_strange(shown, lines[0]))
    heading = lines[0] if named is not None else None
    layout = _Layout("query", tuple(names), guessed=True, heading=heading)
    return _timed(layout, lines, options)


def _refuse_dmon(lines: Sequence[str], shown: str) -> None:
    """Numbers between spaces say nothing without their header."""
    rows = [line.split() for line in lines if "," not in line]
    widths = Counter(
        [len(row) for row in rows if all(cell == LEFT_OUT or _is_number(cell) for cell in row)]
    )
    if not widths:
        return
    width, times = widths.most_common(1)[0]
    if width < 3 or times * 10 < len(lines) * 9:
        return
    usual = _DMON_USUAL.get(width)
    example = (
        f"if dmon was called without -s, that is --columns {usual}"
        if usual is not None
        else "as in its header, for instance gpu,pwr,gtemp,mtemp,sm,mem,..."
    )
    raise AmbiguousColumnsError(
        f"{shown} looks like nvidia-smi dmon without its header: name its {width} columns with "
        f"--columns, with - for those to leave out; {example}"
    )


def _is_number(cell: str) -> bool:
    return number(cell) is not None


def _strange(shown: str, line: str) -> str:
    text = clean(line[:80]).replace("\ufffd", "")
    # Text of any language has few characters that cannot be shown.
    if len(text) < 0.8 * len(line[:80]):
        return f"{shown} is not text: neither a recording of gpuwatch nor a log of nvidia-smi."
    return (
        f'{shown} is neither a recording of gpuwatch nor a log of nvidia-smi: it begins with "'
        f'{clean(line, 80)}".'
    )


def _has_digit(cell: str) -> bool:
    return any(map(str.isdigit, cell))


def _cells(line: str, separator: str = ",") -> list[str]:
    if separator == ALIGNED:
        parts = _GAP.split(line.strip())
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


def _any_header(line: str) -> tuple[tuple[str | None, ...] | None, str]:
    """The names in a header of a query and what parts them."""
    for separator in SEPARATORS:
        names = _header(line, separator)
        if names is not None:
            return names, separator
    return None, ","


def _header(line: str, separator: str) -> tuple[str | None, ...] | None:
    """The names in a header of a query, or ``None`` for any other line."""
    if line.startswith("#"):
        return None
    names = [canonical(cell) for cell in _cells(line, separator)]
    if len(names) > COLUMNS_MAX:
        return None
    known = [is_known(name) for name in names]
    fields = [name for name in names if is_field(name)]
    # A row can hold a word that is a name ("name" as a card's name) but not mostly such. Columns
    # without a name are row numbers that a program has added; others, fields of a newer driver.
    others = [name for name in names if name and not is_field(name)]
    words = all(_WORD.fullmatch(name) for name in others)
    if not any(known) or not words or len(others) >= len(fields):
        return None
    return tuple([name if right else None for name, right in zip(names, known, strict=True)])


def _hash_tokens(line: str) -> list[str] | None:
    """The names in a ``#`` line of dmon or pmon; ``None`` for the line of units and others."""
    if not line.startswith("#"):
        return None
    tokens = line.lstrip("#").replace(",", " ").lower().split()
    return tokens if "gpu" in tokens and len(tokens) > 1 else None


def _timed(layout: _Layout, lines: Sequence[str], options: LogOptions) -> _Layout:
    """See from the time stamps how many rows one moment has, where no column tells GPUs apart."""
    assert layout.names is not None
    if _has_key(layout.names):
        return layout
    if options.gpus is not None:
        layout.rows_per_tick = options.gpus
        return layout
    rows = [_cells(line, layout.separator) for line in lines] if layout.separator else []
    rows = [row for row in rows if len(row) == len(layout.names)]
    if "timestamp" not in layout.names:
        layout.rows_per_tick = rows_by_alternation(_slow_columns(layout.names, rows))
        return layout
    place = layout.names.index("timestamp")
    stamps = StampReader()
    times = [stamps.stamp(row[place]) for row in rows]
    found = rows_of_a_moment([at for at in times if at is not None])
    layout.rows_per_tick, layout.same_moment_seconds = found
    return layout


def rows_of_a_moment(times: Sequence[float]) -> tuple[int, float | None]:
    """(rows, the distance in seconds that separates moments) of rows with these times.

    Rows of one moment are milliseconds apart, moments far more: the distances fall in two groups
    with a wide gap between. ``(1, None)`` where they do not.
    """
    steps = [max(0.0, after - before) for before, after in pairwise(times)]
    ordered = sorted(steps)
    best, bound = 0.0, 0.0
    for small, large in pairwise(ordered):
        ratio = large / max(small, 0.001)
        if ratio > best:
            best, bound = ratio, (small + large) / 2
    if best < 4.0:
        return 1, None
    sizes: Counter[int] = Counter()
    run = 1
    for step in steps:
        if step > bound:
            sizes[run] += 1
            run = 1
        else:
            run += 1
    count, times_seen = sizes.most_common(1)[0] if sizes else (1, 0)
    # A pause in the log of one GPU makes two long groups, no regular ones.
    regular = times_seen >= 2 and times_seen >= 0.6 * sizes.total()
    return (count, bound) if 1 < count <= GPUS_MAX and regular else (1, None)


_SLOW = ("memory.used", "memory.total", "temperature.gpu", "temperature.memory")


def _slow_columns(names: Sequence[str | None], rows: Sequence[Sequence[str]]) -> list[list[float]]:
    """The values of what hardly changes from one moment to the next, less those not read."""
    places = [place for place, name in enumerate(names) if name in _SLOW]
    columns = [[number(row[place]) for row in rows] for place in places]
    return [
        [value for value in column if value is not None]
        for column in columns
        if sum(value is None for value in column) <= 1
    ]


def rows_by_alternation(columns: Sequence[Sequence[float]]) -> int:
    """How many rows one moment has in a log without times, by values that hardly change in a
    second: if they alternate from row to row and repeat every ``n`` rows, the log is of ``n`` GPUs.
    """
    columns = [column for column in columns if max(column, default=0.0) > min(column, default=0.0)]
    if not columns:
        return 1
    shortest = min(map(len, columns))
    one = _change(columns, 1)
    for count in range(2, min(GPUS_MAX, shortest // 3) + 1):
        if _change(columns, count) <= 0.2 * one:
            return count
    return 1


def _change(columns: Sequence[Sequence[float]], step: int) -> float:
    """Mean change over ``step`` rows, each column's in shares of its range."""
    total = 0.0
    for column in columns:
        span = max(column) - min(column)
        changes = [abs(b - a) for a, b in zip(column, column[step:], strict=False)]
        total += sum(changes) / len(changes) / span
    return total / len(columns)


# --- reading ---------------------------------------------------------------------------------


class _Reader:
    def __init__(
        self,
        layout: _Layout,
        options: LogOptions,
        stats: LogStats,
        text: TextLines | None,
        shown: str,
    ) -> None:
        self._layout = layout
        self._options = options
        self._stats = stats
        self._text = text
        self._shown = shown
        self._stamps = StampReader()
        self._rows: RowReader | None = None
        self._hash_line = ""
        self._ticks = Ticks(
            stats,
            interval_seconds=options.interval_seconds or 1.0,
            rows_per_tick=layout.rows_per_tick,
            same_moment_seconds=layout.same_moment_seconds,
            of_processes=layout.kind == "pmon",
        )
        if layout.names is not None:
            self._use(layout.names)

    def snapshots(self, lines: Iterable[str]) -> Iterator[Snapshot]:
        last: str | None = None
        for line in lines:
            # One line behind: the last may be cut off, and is known only at the end.
            if last is not None:
                yield from self._take(last)
            last = line
        if last is not None:
            whole = self._text is None or self._text.terminated
            if whole or self._stats.snapshots == 0:
                yield from self._take(last)
            elif last.strip():
                self._stats.torn_lines += 1
        yield from self._end()
        if self._stats.snapshots == 0:
            raise LogError(f"{self._shown} holds no reading of a GPU.")

    def _end(self) -> Iterator[Snapshot]:
        keyed = self._rows is not None and self._rows.has_key
        snapshot = self._ticks.end_of_moment(keyed=keyed)
        if snapshot is not None:
            yield snapshot

    def _use(self, names: Sequence[str | None]) -> None:
        if self._rows is not None and self._rows.names == tuple(names):
            return
        self._rows = RowReader(names, self._stamps, self._stats)
        self._explain(self._rows)

    def _explain(self, rows: RowReader) -> None:
        note = self._stats.note
        if not rows.has_time:
            seconds = self._options.interval_seconds
            self._stats.interval_assumed = True
            self._stats.interval_seconds = seconds or 1.0
            if seconds is None:
                note("The log has no times: one second from row to row is assumed (--interval).")
        alone = self._layout.rows_per_tick == 1 and self._options.gpus is None
        if alone and not rows.has_key and not rows.has_time:
            note("No column tells GPUs apart, so the log is read as that of one GPU (--gpus).")
        if self._layout.kind == "pmon":
            note(
                "pmon reports processes: a GPU counts as busy as its processes together, one "
                "with a dash as 0%."
            )
        if self._layout.guessed:
            named = ", ".join(name or LEFT_OUT for name in rows.names)
            note(f"The log has no header of nvidia-smi: its columns count as {named} (--columns).")

    def _take(self, line: str) -> Iterator[Snapshot]:
        line = _stripped(line)
        if not line or line.isspace():
            self._stats.blank_lines += 1
        elif line == self._layout.heading:
            self._stats.header_lines += 1
        elif line[0] == "#" or (not line[0].isdigit() and self._is_header(line)):
            yield from self._heading(line)
        else:
            snapshot = self._reading(line)
            if snapshot is not None:
                yield snapshot

    def _is_header(self, line: str) -> bool:
        layout = self._layout
        return layout.kind == "query" and _header(line, layout.separator or ",") is not None

    def _heading(self, line: str) -> Iterator[Snapshot]:
        stats = self._stats
        stats.header_lines += 1
        if line == self._hash_line:
            return
        if line[0] == "#":
            tokens = _hash_tokens(line)
            if tokens is None or self._layout.forced or self._layout.kind == "query":
                return
            self._hash_line = line
            table = PMON if self._layout.kind == "pmon" else DMON
            self._layout.separator = "," if "," in line else None
            self._use([table.get(token) for token in tokens])
            return
        if self._layout.forced:
            return
        names = _header(line, self._layout.separator or ",")
        assert names is not None
        if self._rows is not None and not self._rows.has_time and not self._rows.has_key:
            # A loop of single queries writes a header each time.
            yield from self._end()
        self._use(names)

    def _reading(self, line: str) -> Snapshot | None:
        rows = self._rows
        cells = None if rows is None else self._split(line, rows.width)
        if rows is None or cells is None:
            self._stats.remark(line)
            if _LOST.search(line):
                self._ticks.lost(clean(line, 200))
            return None
        row = rows.read(cells)
        told = row.reading or row.process is not None or row.lost
        if not told and (row.key is None or not row.identity):
            rows.take_back()
            self._stats.remark(line)
            return None
        if row.at_unix_seconds is None and rows.has_time:
            rows.count_unread_time(cells)
        return self._ticks.add(row, keyed=rows.has_key)

    def _split(self, line: str, width: int) -> list[str] | None:
        separator = self._layout.separator
        if separator is not None:
            # Most lines that are no rows are seen by this alone.
            if separator != ALIGNED and line.count(separator) < width - 1:
                return None
            cells = _cells(line, separator)
        else:
            # A command (the last column of pmon) may hold spaces.
            cells = line.split(None, width - 1)
        if len(cells) != width:
            return None
        return cells if any(map(_has_digit, cells)) else None
