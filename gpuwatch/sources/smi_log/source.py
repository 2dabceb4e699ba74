"""Logs that people already have, as snapshots: ``nvidia-smi`` written over time.

Read are ``nvidia-smi --query-gpu=... --format=csv[,nounits] -l`` (or ``-lms``) with any columns in
any order, ``nvidia-smi dmon`` and ``nvidia-smi pmon`` (any ``-s``, ``-o DT``, ``--format csv``).
The headings say what a log is; one line is held at a time, so a log of any size takes the same
memory. A log without headings needs ``--columns``, unless its units leave no choice.

Where no column distinguishes the GPUs, the rows of one moment are the GPUs in order. ``pmon`` says
how busy processes were, not GPUs: a GPU is taken to be as busy as its processes together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.sources.files.log_text import LogError, LogStats, TextLines
from gpuwatch.sources.smi_log.headings import (
    ALIGNED,
    SPACES,
    Heading,
    find_heading,
    has_digit,
    named_by,
    split_cells,
    stripped,
    without_heading,
)
from gpuwatch.sources.smi_log.moments import Moments
from gpuwatch.sources.smi_log.rows import Row, RowReader
from gpuwatch.sources.smi_log.stamps import StampReader

LOOKED_AT_LINES = 512
"""For a heading: a shell may have written before it."""
_GPU_IS_LOST = re.compile(
    r"GPU is lost|fallen off the bus|Unable to determine the device handle", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Facts about a log that a person gave."""

    columns: tuple[str, ...] | None = None
    """Their (canonical) names, ``-`` for those to leave out; overrides a heading."""
    interval_seconds: float | None = None
    """Of a log without times."""
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
    log, and where its columns are unknown (``AmbiguousColumnsError``).
    """
    source = iter(lines)
    options = options or LogOptions()
    first: list[str] = []
    heading = None
    for line in islice(source, LOOKED_AT_LINES):
        first.append(line)
        row = stripped(line)
        named = options.columns
        heading = find_heading(row) if named is None else named_by(named, row)
        if heading is not None:
            break
    if heading is None:
        rows = [line for line in map(stripped, first) if line]
        heading = without_heading(rows, options.columns, shown, stats)
        stats.note(
            f"The log has no header of nvidia-smi: its columns count as "
            f"{', '.join(heading.names)} (--columns)."
        )
    stats.kind = heading.kind
    return _Reader(heading, options, stats, text, shown).snapshots(chain(first, source))


# --- reading ---------------------------------------------------------------------------------


class _Reader:
    def __init__(
        self,
        heading: Heading,
        options: LogOptions,
        stats: LogStats,
        text: TextLines | None,
        shown: str,
    ) -> None:
        self._heading = heading
        self._options = options
        self._stats = stats
        self._text = text
        self._shown = shown
        self._stamps = StampReader()
        self._rows = RowReader(heading.names, heading.units, self._stamps)
        self._moments = Moments(
            stats,
            interval_seconds=options.interval_seconds or 1.0,
            gpus=options.gpus,
            of_processes=heading.kind == "pmon",
        )
        self._explain()

    def snapshots(self, lines: Iterable[str]) -> Iterator[Snapshot]:
        last: str | None = None
        interrupt: KeyboardInterrupt | None = None
        try:
            for line in lines:
                # One line behind: the last may be cut off, and is known only at the end.
                complete, last = last, line
                if complete is not None:
                    yield from self._take(complete)
        except KeyboardInterrupt as error:
            # Of a log that is being written: what was read of it counts.
            interrupt = error
        if last is not None:
            whole = self._text is None or self._text.terminated
            if whole or self._stats.snapshots == 0:
                yield from self._take(last)
            elif last.strip():
                self._stats.torn_lines += 1
        yield from self._end()
        if interrupt is not None:
            raise interrupt
        if self._stats.snapshots == 0:
            raise LogError(f"{self._shown} holds no reading of a GPU.")

    def _end(self) -> Iterator[Snapshot]:
        snapshot = self._moments.end_of_moment(keyed=self._rows.has_key)
        if snapshot is not None:
            yield snapshot

    def _explain(self) -> None:
        note, rows, options = self._stats.note, self._rows, self._options
        if not rows.has_time:
            self._stats.interval_assumed = True
            self._stats.interval_seconds = options.interval_seconds or 1.0
            if options.interval_seconds is None:
                note("The log has no times: one second from row to row is assumed (--interval).")
            if options.gpus is None and not rows.has_key:
                note("No column tells GPUs apart, so the log is read as that of one GPU (--gpus).")
        if self._heading.kind == "pmon":
            note(
                "pmon reports processes: a GPU counts as busy as its processes together, one "
                "with a dash as 0%."
            )

    def _take(self, line: str) -> Iterator[Snapshot]:
        line = stripped(line)
        if not line:
            self._stats.blank_lines += 1
        elif line[0] == "#" or line == self._heading.line:
            yield from self._repeated(find_heading(line))
        elif not line[0].isdigit() and (found := find_heading(line, [self._heading.separator])):
            yield from self._repeated(found)
        else:
            snapshot = self._reading(line)
            if snapshot is not None:
                yield snapshot

    def _repeated(self, heading: Heading | None) -> Iterator[Snapshot]:
        """The first heading, one again, or that of another log in the same file."""
        self._stats.header_lines += 1
        if heading is None or heading.kind != self._heading.kind or self._heading.fixed:
            return
        if not self._rows.has_time and not self._rows.has_key:
            # A loop of single queries writes a heading each time.
            yield from self._end()
        if heading != self._heading:
            self._heading = heading
            self._rows = RowReader(heading.names, heading.units, self._stamps)
            self._explain()

    def _reading(self, line: str) -> Snapshot | None:
        stats, rows = self._stats, self._rows
        cells = self._split(line)
        row = None if cells is None else rows.read(cells)
        if cells is None or row is None or not _says_something(row):
            stats.remark(line)
            if _GPU_IS_LOST.search(line):
                self._moments.lost(clean(line, 200))
            return None
        stats.rows += 1
        stats.unread_values += len(row.unread)
        stats.unread.update(row.unread)
        if row.at_unix_seconds is None and rows.has_time:
            stats.unread_time = stats.unread_time or clean(rows.time_text(cells), 60)
            stats.unread_times += 1
        return self._moments.add(row, keyed=rows.has_key)

    def _split(self, line: str) -> list[str] | None:
        separator, width = self._heading.separator, self._rows.width
        # Most lines that are no rows are seen by this alone.
        if separator not in {ALIGNED, SPACES} and line.count(separator) < width - 1:
            return None
        cells = split_cells(line, separator, width)
        return cells if len(cells) == width and has_digit(cells) else None


def _says_something(row: Row) -> bool:
    if row.reading or row.process is not None or row.lost:
        return True
    return row.key is not None and bool(row.identity)
