"""Logs that people already have, as snapshots.

Each format is a function that makes rows of its text: ``_Delimited`` (``nvidia-smi --query-gpu=...
--format=csv``, ``nvidia-smi dmon`` and ``pmon``, ``dcgmi dmon``, CSV with anybody's headings), the
others in ``printed`` and ``exports``. What a log is, its first telling line says; one line is held
at a time, so a log of any size takes the same memory. Where no column distinguishes the GPUs,
``grouping`` says how many there are; ``moments`` makes snapshots of the rows.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.sources.files.log_text import LogError, LogStats, TextLines
from gpuwatch.sources.smi_log import exports, headings, pasted, printed
from gpuwatch.sources.smi_log.columns import COLUMNS
from gpuwatch.sources.smi_log.grouping import ROWS_LOOKED_AT, Grouping, group
from gpuwatch.sources.smi_log.moments import Gaps, Moments
from gpuwatch.sources.smi_log.rows import Row, RowReader, Rows, RowsOrEnds, by_gpu
from gpuwatch.sources.smi_log.stamps import is_stamp
from gpuwatch.sources.smi_log.values import CARD_WATTS_MOST

LOOKED_AT_LINES = 512
"""For a heading: a shell may have written before it."""
_GPU_IS_LOST = re.compile(
    r"GPU is lost|fallen off the bus|Unable to determine the device handle", re.IGNORECASE
)
_DOUBTFUL_WATTS = 1000.0
_LEAST_MILLIWATTS = 500.0
"""A laptop's card that sleeps draws half a watt."""
_RowsOf = Callable[[Iterable[str]], RowsOrEnds]
_FORMATS = {
    "table": (printed.TABLE, printed.table),
    "gpustat": (printed.GPUSTAT, printed.gpustat),
    "report": (printed.REPORT, printed.report),
    "xml": (printed.XML, printed.xml),
    "json": (exports.JSON, exports.objects),
    "prometheus": (exports.METRIC, exports.metrics),
}
"""Their telling line, and the function that makes rows of all; they say where moments end."""
_PRINTED_BEFORE = ("table", "gpustat")
"""One of them, printed once, is what a script prints before its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Facts about a log that a person gave."""

    columns: tuple[str, ...] | None = None
    """Their (canonical) names, ``-`` for those to leave out; overrides a heading."""
    interval_seconds: float | None = None
    gpus: int | None = None
    """How many there are, where no column of the log distinguishes them."""


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
    log, and where its columns are unknown (``LogError``).
    """
    source = iter(lines)
    reading = _Reading(stats, options or LogOptions(), text, shown)
    columns = reading.options.columns
    first: list[str] = []
    heading: headings.Heading | None = None
    found: str | None = None
    command: tuple[str, ...] = ()
    before = told = ""
    for raw in islice(source, LOOKED_AT_LINES):
        first.append(raw)
        line = pasted.without_escapes(raw)
        known = None if columns is not None else _format_of(line)
        if known is not None and (found is None or known[0] not in _PRINTED_BEFORE):
            found, before = known
            if found not in _PRINTED_BEFORE:
                break
            told = line[len(before) :][:4]
        elif known is not None and line[len(before) :].startswith(told):
            # The same table, or the same GPU, again.
            break
        command = command if columns is not None else pasted.query_columns(line) or command
        for quoted in dict.fromkeys(("", pasted.around(line), pasted.around(line, comments=True))):
            heading = _heading_of(headings.stripped(line[len(quoted) :]), columns, command)
            if heading is not None:
                before = quoted
                break
        if heading is not None:
            break
    if heading is None and found is None:
        before = min([pasted.around(one) for one in first if one.strip()], key=len, default="")
    lines = chain(first, source)
    if before or any("\x1b" in line for line in first):
        lines = pasted.unwrapped(lines, before)
    if heading is None and found is not None:
        stats.kind = found
        return reading.snapshots(lines, partial(_FORMATS[found][1], rows=reading.rows))
    if heading is None:
        bare = map(headings.stripped, pasted.unwrapped(first, before))
        rows = [line for line in bare if line and not is_stamp(line)]
        heading = headings.without_heading(rows, columns, shown, stats)
        stats.note(
            f"The log has no header of nvidia-smi: its columns count as "
            f"{', '.join(heading.names)} (--columns)."
        )
    stats.kind = "tidy" if heading.tidy else heading.kind
    return reading.snapshots(lines, _Delimited(heading, reading).rows)


def _format_of(line: str) -> tuple[str, str] | None:
    """The format that ``line`` tells, and what stands before its text."""
    for before in dict.fromkeys((pasted.around(line), pasted.around(line, comments=True))):
        text = line[len(before) :]
        for kind, (tells, _) in _FORMATS.items():
            if tells.match(text):
                return kind, before
    return None


def _heading_of(
    row: str, columns: tuple[str, ...] | None, command: tuple[str, ...]
) -> headings.Heading | None:
    """The heading that ``row`` is, or of which it is the first row: a person has named its
    ``columns``, or a ``command`` before it has."""
    if columns is not None:
        return None if is_stamp(row) else headings.named_by(columns, row)
    heading = headings.find_heading(row)
    if heading is None and command:
        heading = headings.asked_for(command, row)
    return heading


def _is_doubtful(row: Row) -> bool:
    """True where it may be in milliwatts: few cards draw as many watts."""
    watts: float = row.reading.get("power_watts", 0.0)
    return watts > _DOUBTFUL_WATTS


def _in_milliwatts(rows: Iterable[Row | None]) -> bool:
    """True where the first rows' power, as watts, is mostly beyond any card's, and never so low
    that no card would draw it in milliwatts."""
    found = [row.reading["power_watts"] for row in rows if row and "power_watts" in row.reading]
    beyond = [watts for watts in found if watts > CARD_WATTS_MOST]
    lowest = min(found, default=0.0)
    return 2 * len(beyond) > len(found) and lowest >= _LEAST_MILLIWATTS


class _Reading:
    """One log: from lines over rows to snapshots."""

    def __init__(
        self, stats: LogStats, options: LogOptions, text: TextLines | None, shown: str
    ) -> None:
        self.stats = stats
        self.options = options
        self.rows = Rows(stats)
        self.lost: list[str] = []
        self.widths: tuple[int, int] | None = None
        """The cells of the first row that had more or fewer than its heading, and those of that."""
        self._text = text
        self._shown = shown
        self._milliwatts = False
        self._interrupt: KeyboardInterrupt | None = None

    def snapshots(self, lines: Iterable[str], rows_of: _RowsOf) -> Iterator[Snapshot]:
        stats, options = self.stats, self.options
        rows = rows_of(self._whole(lines))
        ahead, grouping = self._ahead(rows)
        if all(row is None or row.at_unix_seconds is None for row in ahead):
            stats.interval_seconds = options.interval_seconds or 1.0
            if options.interval_seconds is None:
                stats.note("The log has no timestamps: one reading a second assumed (--interval).")
        self._milliwatts = _in_milliwatts(ahead)
        if self._milliwatts:
            stats.note(
                "Power is read as milliwatts: as watts its values would be beyond any card's."
            )
        moments = Moments(
            stats,
            grouping,
            interval_seconds=options.interval_seconds or 1.0,
            of_processes=stats.kind == "pmon",
            marked=stats.kind in {*_FORMATS, "tidy"},
        )
        gaps = Gaps(stats)
        for row in chain(ahead, rows, [None]):
            while self.lost:
                moments.lost(self.lost.pop())
            if row is not None:
                self._bound_power(row)
            done = moments.end_of_moment() if row is None else moments.add(row)
            if done is not None:
                yield from gaps.add(done)
        yield from gaps.rest()
        if self._interrupt is not None:
            raise self._interrupt
        if self.rows.shares_to:
            raise LogError(
                f"{self._shown} has utilizations up to {self.rows.shares_to:g}, of 1 or of 100: "
                "name its columns with --columns, one utilization.gpu [ratio] or [%]."
            )
        if stats.snapshots == 0:
            raise LogError(f"{self._shown} holds no reading of a GPU{self._misfit()}")

    def _bound_power(self, row: Row) -> None:
        """Keep what a card can draw, in watts; energy is worked out from it."""
        for field in ("power_watts", "power_limit_watts"):
            watts = row.reading.get(field, 0.0)
            if self._milliwatts and (field == "power_watts" or watts > CARD_WATTS_MOST):
                row.reading[field] = watts / 1000.0
            elif watts > CARD_WATTS_MOST:
                del row.reading[field]
                self.stats.unread_values += 1
                self.stats.note(
                    f"A power that no card draws ({watts:,.0f} W) is left out wherever it occurs."
                )

    def _misfit(self) -> str:
        if self.widths is None:
            return "."
        cells, names = self.widths
        return (
            f": its header names {names} columns and its rows have {cells} fields. Name those "
            f"{cells} with --columns, with - for those to skip."
        )

    def _ahead(self, rows: RowsOrEnds) -> tuple[list[Row | None], Grouping]:
        """As many rows as it takes to know which are of one moment, and that. Raises ``LogError``
        where that cannot be known."""
        ahead: list[Row | None] = []
        keyed = doubtful = False
        for row in islice(rows, ROWS_LOOKED_AT):
            ahead.append(row)
            keyed = keyed or (row is not None and row.key is not None)
            doubtful = doubtful or (row is not None and _is_doubtful(row))
            if keyed and not doubtful:
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
        """All but a last line that is cut off, unless it is all there is."""
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

    def __init__(self, heading: headings.Heading, reading: _Reading) -> None:
        self._reading = reading
        self._stats = reading.stats
        self._begin(heading)

    def _begin(self, heading: headings.Heading) -> None:
        self._heading = heading
        self._fits = False
        """Some row had as many cells as the heading has names."""
        self._surplus: tuple[int | None, ...] = ()
        """The place of a cell too many, or none, once that is known."""
        rows, note = self._reading.rows, self._stats.note
        self._reader = RowReader(heading.names, heading.units, rows.stamps)
        # A utilization that somebody has computed can be a share of 1.
        in_doubt = heading.kind == "csv" and ("utilization.gpu", "") in zip(
            heading.names, heading.units, strict=True
        )
        rows.shares_to = 0.0 if in_doubt else None
        if heading.kind == "pmon":
            note(
                "pmon reports processes: a GPU counts as busy as its processes together, one "
                "with a dash as 0%."
            )
        unknown = [clean(name, 40) for name in heading.names if name and name not in COLUMNS]
        if heading.kind == "csv" and unknown and not heading.tidy:
            note(f"Columns of unknown meaning are left out: {', '.join(unknown[:8])}.")

    def rows(self, lines: Iterable[str]) -> RowsOrEnds:
        rows = self._reading.rows
        if self._heading.tidy:
            interval = self._reading.options.interval_seconds or 1.0
            cells_of = filter(None, map(self._split, map(headings.stripped, lines)))
            yield from exports.tidy(cells_of, self._heading.names, rows, interval)
            return
        for line in map(headings.stripped, lines):
            cells = None if self._is_stamp(line) else self._split(line)
            row = None
            if cells is not None and line[0] != "#" and line != self._heading.line:
                if self._heading.cells:
                    for record in by_gpu(dict(zip(self._heading.cells, cells, strict=True))):
                        yield rows.record(record)
                    continue
                row = rows.take(self._reader, cells)
            if row is None:
                yield from self._other(line)
            else:
                yield row

    def _is_stamp(self, line: str) -> bool:
        """True of a date whose words could be the cells of a row."""
        if self._heading.separator != headings.SPACES or self._reader.time_place is not None:
            return False
        return ":" in line and is_stamp(line)

    def _other(self, line: str) -> RowsOrEnds:
        """A heading, a time, or nothing that is known."""
        stats, reader = self._stats, self._reader
        at = None if reader.time_place is not None else self._reading.rows.stamps.alone(line)
        asked: tuple[str, ...] = ()
        heading = None
        if at is None:
            asked = pasted.query_columns(line)
            heading = headings.of_query(asked)
            if heading is None and not line[:1].isdigit():
                heading = headings.find_heading(line)
        if at is not None:
            # What a script writes before each query.
            yield None
            self._reading.rows.now_is(at)
        elif heading is not None or asked or line[:1] == "#" or line == "ID":
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

    def _split(self, line: str) -> list[str] | None:
        separator, width = self._heading.separator, len(self._heading.names)
        # Most lines that are no rows are seen by this alone.
        if not line or (
            separator not in {headings.ALIGNED, headings.SPACES}
            and line.count(separator) < width - 1
        ):
            return None
        cells = headings.split_cells(line, separator, width)
        if len(cells) != width:
            return None if self._fits else self._misfit(cells)
        if not headings.has_digit(cells):
            return None
        self._fits = True
        return cells

    def _misfit(self, cells: list[str]) -> list[str] | None:
        """A row with more or fewer cells than the heading names, in a log that has no others: with
        one more, the one that the first such row showed to be none of them is left out."""
        if not headings.has_digit(cells):
            return None
        if not self._surplus and len(cells) == len(self._heading.names) + 1:
            place = None if self._heading.cells else headings.surplus(self._heading, cells)
            self._surplus = (place,)
            if place is not None:
                self._stats.note(
                    f"Rows have one field more than the header names: field {place + 1} "
                    f'("{clean(cells[place], 40)}") is left out.'
                )
        if len(cells) == len(self._heading.names) + 1 and self._surplus[0] is not None:
            return [*cells[: self._surplus[0]], *cells[self._surplus[0] + 1 :]]
        self._reading.widths = (len(cells), len(self._heading.names))
        return None
