"""Logs that people already have, as snapshots.

Each form is a function that makes rows of its text: ``_Delimited`` (``nvidia-smi --query-gpu=...
--format=csv``, ``nvidia-smi dmon`` and ``pmon``, ``dcgmi dmon``, CSV with anybody's headings), the
others in ``forms``. The first telling line of a log decides its form; one line is held at a time,
so a log of any size takes the same memory. ``moments`` makes snapshots of the rows, and says how
many GPUs there are where no column distinguishes them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.sources.logs import forms, headings
from gpuwatch.sources.logs.headings import COLUMNS, Heading
from gpuwatch.sources.logs.moments import ROWS_LOOKED_AT, Gaps, Grouping, Moments, group
from gpuwatch.sources.logs.rows import Cells, Row, RowReader, Rows, RowsOrEnds, by_gpu
from gpuwatch.sources.logs.stamps import is_stamp
from gpuwatch.sources.logs.text import LogError, LogStats, TextLines

LOOKED_AT_LINES = 512
"""Lines in which a heading is looked for: a shell may have written before it."""
_GPU_IS_LOST = re.compile(
    r"GPU is lost|fallen off the bus|Unable to determine the device handle", re.IGNORECASE
)
_PRINTED_BEFORE = ("table", "gpustat")
"""Forms that a script prints once, before its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Facts about a log that a person gave."""

    columns: tuple[str, ...] | None = None
    """Their (canonical) names, ``-`` for those to leave out; overrides a heading."""
    interval_seconds: float | None = None
    gpus: int | None = None
    """Number of GPUs, where no column of the log distinguishes them."""


def read_lines(
    lines: Iterable[str],
    stats: LogStats,
    options: LogOptions | None = None,
    *,
    shown: str = "The log",
    text: TextLines | None = None,
) -> Iterator[Snapshot]:
    """Read the snapshots in ``lines``, as they come; ``stats`` is filled in meanwhile.

    ``stats.kind`` is set at once, the rest grows. Raises ``LogError`` at once for a text that is
    no such log, and where its columns are unknown.
    """
    source = iter(lines)
    reading = _Reading(stats, options or LogOptions(), text, shown)
    first, form, heading, before = _recognised(source, reading.options.columns)
    lines = chain(first, source)
    if before or any("\x1b" in line for line in first):
        lines = forms.unwrapped(lines, before)
    if form is not None:
        stats.kind, make_rows = form, forms.FORMS[form].rows
        return reading.snapshots(lines, lambda text: make_rows(text, reading.rows))
    if heading is None:
        bare = map(headings.stripped, forms.unwrapped(first, before))
        rows = [line for line in bare if line and not is_stamp(line)]
        heading = headings.without_heading(rows, reading.options.columns, shown, stats)
        stats.note(
            f"The log has no header of nvidia-smi: its columns count as "
            f"{', '.join(heading.names)} (--columns)."
        )
    stats.kind = "tidy" if heading.tidy else heading.kind
    return reading.snapshots(lines, _Delimited(heading, reading).read_rows)


def _recognised(
    source: Iterator[str], columns: tuple[str, ...] | None
) -> tuple[list[str], str | None, Heading | None, str]:
    """Return the lines that it took to recognise a log, its form or its heading, and the text that
    stands before each of its lines."""
    first: list[str] = []
    found: str | None = None
    command: tuple[str, ...] = ()
    before = told = ""
    for raw in islice(source, LOOKED_AT_LINES):
        first.append(raw)
        line = forms.without_escapes(raw)
        known = None if columns is not None else _form_of(line)
        if known is not None and (found is None or known[0] not in _PRINTED_BEFORE):
            found, before = known
            if found not in _PRINTED_BEFORE:
                return first, found, None, before
            told = line[len(before) :][:4]
        elif known is not None and line[len(before) :].startswith(told):
            # The same table, or the same GPU, again.
            return first, found, None, before
        command = command if columns is not None else forms.query_columns(line) or command
        for quoted in dict.fromkeys(("", forms.around(line), forms.around(line, comments=True))):
            heading = _heading_of(headings.stripped(line[len(quoted) :]), columns, command)
            if heading is not None:
                return first, None, heading, quoted
    if found is None:
        before = min([forms.around(one) for one in first if one.strip()], key=len, default="")
    return first, found, None, before


def _form_of(line: str) -> tuple[str, str] | None:
    """Return the form that ``line`` tells, and the text that stands before it."""
    for before in dict.fromkeys((forms.around(line), forms.around(line, comments=True))):
        text = line[len(before) :]
        for kind, form in forms.FORMS.items():
            if form.tells.match(text):
                return kind, before
    return None


def _heading_of(
    row: str, columns: tuple[str, ...] | None, command: tuple[str, ...]
) -> Heading | None:
    """Return the heading that ``row`` is, or of which it is the first row: a person has named its
    ``columns``, or a ``command`` before it has."""
    if columns is not None:
        return None if is_stamp(row) else headings.named_by(columns, row)
    heading = headings.find_heading(row)
    if heading is None and command:
        heading = headings.asked_for(command, row)
    return heading


class _Reading:
    """The reading of one log: from lines over rows to snapshots."""

    def __init__(
        self, stats: LogStats, options: LogOptions, text: TextLines | None, shown: str
    ) -> None:
        self.stats = stats
        self.options = options
        self.rows = Rows(stats)
        self.lost: list[str] = []
        self.widths: tuple[int, int] | None = None
        """Number of cells of the last row that did not fit its heading, and of the heading."""
        self._text = text
        self._shown = shown
        self._interrupt: KeyboardInterrupt | None = None

    def snapshots(
        self, lines: Iterable[str], rows_of: Callable[[Iterable[str]], RowsOrEnds]
    ) -> Iterator[Snapshot]:
        stats, options = self.stats, self.options
        rows = rows_of(self._whole(lines))
        ahead, grouping = self._ahead(rows)
        if all(row is None or row.at_unix_seconds is None for row in ahead):
            stats.interval_seconds = options.interval_seconds or 1.0
            if options.interval_seconds is None:
                stats.note("The log has no timestamps: one reading a second assumed (--interval).")
        moments = Moments(
            stats,
            grouping,
            interval_seconds=options.interval_seconds or 1.0,
            of_processes=stats.kind == "pmon",
            marked=stats.kind in {*forms.FORMS, "tidy"},
        )
        gaps = Gaps(stats)
        for row in chain(ahead, rows, [None]):
            while self.lost:
                moments.note_lost(self.lost.pop())
            done = moments.end_moment() if row is None else moments.add_row(row)
            if done is not None:
                yield from gaps.judge_next(done)
        yield from gaps.judge_rest()
        if self._interrupt is not None:
            raise self._interrupt
        if self.rows.shares_to:
            raise LogError(
                f"{self._shown} has utilizations up to {self.rows.shares_to:g}, of 1 or of 100: "
                "name its columns with --columns, one utilization.gpu [ratio] or [%]."
            )
        if stats.snapshots == 0:
            raise LogError(f"{self._shown} holds no reading of a GPU{self._misfit()}")

    def _misfit(self) -> str:
        if self.widths is None:
            return "."
        cells, names = self.widths
        return (
            f": its header names {names} columns and its rows have {cells} fields. Name those "
            f"{cells} with --columns, with - for those to skip."
        )

    def _ahead(self, rows: RowsOrEnds) -> tuple[list[Row | None], Grouping]:
        """Return as many rows as it takes to know which are of one moment, and how these are
        grouped. Raises ``LogError`` where that cannot be known."""
        ahead: list[Row | None] = []
        keyed = False
        for row in islice(rows, ROWS_LOOKED_AT):
            ahead.append(row)
            keyed = keyed or (row is not None and row.key is not None)
            if keyed:
                break
        if keyed:
            return ahead, Grouping(1)
        grouping = group(ahead, whole_seconds=self.rows.stamps.whole_seconds)
        if self.options.gpus is not None:
            return ahead, grouping._replace(gpus=self.options.gpus)
        if grouping.gpus is None:
            number = str(grouping.proposed) if grouping.proposed > 1 else "NUMBER"
            like = "" if number == "NUMBER" else f" (they look like those of {number})"
            raise LogError(
                f"{self._shown} does not say which GPU its rows are about, nor is it plain how "
                f"many GPUs it has{like}: say it with --gpus {number}, or --gpus 1."
            )
        if grouping.gpus > 1:
            self.stats.note(
                f"No column tells GPUs apart: rows come {grouping.gpus} at a time, so they are "
                f"read as those of {grouping.gpus} GPUs (--gpus)."
            )
        elif not grouping.sure:
            self.stats.note("No column tells GPUs apart: it is read as of one GPU (--gpus).")
        return ahead, grouping

    def _whole(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield all but a last line that is cut off, unless it is all there is."""
        last: str | None = None
        try:
            for line in lines:
                # One line behind: that it is the last is known only at the end.
                complete, last = last, line
                if complete is not None:
                    yield complete
        except KeyboardInterrupt as error:
            # Of a log that is being written: what was read of it counts.
            self._interrupt = error
        if last is not None:
            if self._text is None or self._text.terminated or self.stats.rows == 0:
                yield last
            elif last.strip():
                self.stats.torn_lines += 1


class _Delimited:
    """Rows of columns that a heading names."""

    def __init__(self, heading: Heading, reading: _Reading) -> None:
        self._reading = reading
        self._stats = reading.stats
        self._begin(heading)

    def _begin(self, heading: Heading) -> None:
        self._heading = heading
        self._width = len(heading.names)
        self._fits = False
        """Some row had as many cells as the heading has names."""
        self._surplus: tuple[int | None, ...] = ()
        """The place of a cell too many, or none, once that is known."""
        rows, note = self._reading.rows, self._stats.note
        self._reader = RowReader(heading.names, heading.units, rows.stamps, rows.stats)
        # A utilization that somebody has computed can be a share of 1.
        in_doubt = heading.kind == "csv" and ("utilization.gpu", "") in zip(
            heading.names, heading.units, strict=True
        )
        rows.shares_to = 0.0 if in_doubt else None
        self._dates_look_like_rows = (
            heading.separator == headings.SPACES and self._reader.time_place is None
        )
        if heading.kind == "pmon":
            note(
                "pmon reports processes: a GPU counts as busy as its processes together, one "
                "with a dash as 0%."
            )
        unknown = [clean(name, 40) for name in heading.names if name and name not in COLUMNS]
        if heading.kind == "csv" and unknown and not heading.tidy:
            note(f"Columns of unknown meaning are left out: {', '.join(unknown[:8])}.")

    def read_rows(self, lines: Iterable[str]) -> RowsOrEnds:
        rows = self._reading.rows
        if self._heading.tidy:
            interval = self._reading.options.interval_seconds or 1.0
            split = filter(None, map(self._split, map(headings.stripped, lines)))
            cells_of = ([cell.strip(headings.CELL_EDGES) for cell in cells] for cells in split)
            yield from forms.tidy(cells_of, self._heading.names, rows, interval)
            return
        for line in map(headings.stripped, lines):
            row = None
            cells = self._split(line)
            if cells is not None and line[0] != "#" and line != self._heading.line:
                if self._heading.cells:
                    for record in by_gpu(dict(zip(self._heading.cells, cells, strict=True))):
                        yield rows.record(record)
                    continue
                row = rows.read(self._reader, cells)
            if row is None:
                yield from self._read_other(line)
            else:
                yield row

    def _read_other(self, line: str) -> RowsOrEnds:
        """Read a heading, a time, or nothing that is known."""
        stats, reader = self._stats, self._reader
        at = None if reader.time_place is not None else self._reading.rows.stamps.alone(line)
        if at is not None:
            # A script writes it before each query.
            yield None
            self._reading.rows.begin_time(at)
            return
        asked = forms.query_columns(line)
        heading = headings.of_query(asked)
        if heading is None and not line[:1].isdigit():
            heading = headings.find_heading(line)
        if heading is not None or asked or line[:1] == "#" or line == "ID":
            # The first heading, one again, or that of another log in the same file.
            if heading is None or heading.kind != self._heading.kind or self._heading.fixed:
                return
            if reader.time_place is None and not reader.has_key:
                # A loop of single queries writes a heading each time.
                yield None
            if heading.names != self._heading.names:
                self._begin(heading)
        elif line:
            stats.remark(line)
            if _GPU_IS_LOST.search(line):
                self._reading.lost.append(clean(line, 200))

    def _split(self, line: str) -> Cells | None:
        """Return the cells of a row, with the white space around them; ``None`` for another
        line."""
        if self._dates_look_like_rows and ":" in line and is_stamp(line):
            return None
        separator, plain = self._heading.separator, self._heading.separator in headings.CHARACTERS
        if plain and '"' not in line:
            cells = line.split(separator)
            # Most lines that are no rows are seen by this alone.
            if len(cells) < self._width:
                return None
        elif not line or (separator == headings.BARS and line.count(separator) < self._width - 1):
            return None
        else:
            cells = headings.split_cells(line, separator, self._width)
        if len(cells) != self._width:
            return None if self._fits else self._misfit(line)
        if not headings.has_digit(line):
            return None
        self._fits = True
        return cells

    def _misfit(self, line: str) -> Cells | None:
        """Return the cells of a row with more or fewer than the heading names, in a log that has no
        others: with one more, the one that the first such row showed to be none of them is left
        out."""
        if not headings.has_digit(line):
            return None
        cells = headings.split_cells(line, self._heading.separator, self._width)
        if not self._surplus and len(cells) == self._width + 1:
            place = None if self._heading.cells else headings.surplus(self._heading, cells)
            self._surplus = (place,)
            if place is not None:
                self._stats.note(
                    f"Rows have one field more than the header names: field {place + 1} "
                    f'("{clean(cells[place], 40)}") is left out.'
                )
        if len(cells) == self._width + 1 and self._surplus[0] is not None:
            return [*cells[: self._surplus[0]], *cells[self._surplus[0] + 1 :]]
        self._reading.widths = (len(cells), self._width)
        return None
