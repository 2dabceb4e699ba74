"""Lines of a log that somebody else wrote: opened with care, bounded, counted.

A log may be gzip or zstd (by its first bytes, whatever its name), begin with a byte-order
mark, be in UTF-16 (what ``>`` writes in Windows PowerShell), end in the middle of a line or of a
packed block, and hold anything. Nothing is read whole: a line is held at a time.
"""

from __future__ import annotations

import codecs
import errno
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from gpuwatch.core.private_files import why
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.core.units import age
from gpuwatch.sources.files.unpacked import DAMAGE, FileSet, Unpacked

STANDARD_INPUT = "-"
LINE_LENGTH = 64 * 1024
"""A row of all query fields takes about 2 KiB; longer lines are left out and counted."""
ENDLESS_LENGTH = 64 * 1024 * 1024
"""Of a line that never ends, as a device has: reading it would not end either."""
_BUFFER_BYTES = 256 * 1024
REMARKS_KEPT = 3
REMARK_LENGTH = 160
PARTLY_READ_SHOWN = 3
_DECORATION = re.compile(r"[\W_]*|\s*(?:```|~~~)[\w ]*")
"""A rule, or the fence of a code block: it parts or frames what is said."""

LOG_KINDS = {
    **{kind: f"an nvidia-smi {kind} log" for kind in ("query", "dmon", "pmon")},
    "table": "the table of nvidia-smi over time",
    "gpustat": "gpustat over time",
    "report": "nvidia-smi -q over time",
    "xml": "nvidia-smi -q -x over time",
    "dcgm": "a dcgmi dmon log",
    "csv": "a CSV log",
    "tidy": "a log of one value a row",
    "json": "a JSON log",
    "prometheus": "a log of metrics",
}
"""What a log can be, and how a person is told so."""
_SENTENCES = {
    errno.ENOENT: "there is no such file",
    errno.EISDIR: "it is a folder",
    errno.EACCES: "you may not read it",
    errno.EPERM: "you may not read it",
    errno.ENAMETOOLONG: "its name is too long",
    errno.ELOOP: "its symbolic links go in a circle",
}


class LogError(SentenceError):
    """A file that cannot be read as a log."""


@dataclass(slots=True)
class LogStats:
    """Counts of what was read and what was not; filled in while the snapshots are taken."""

    kind: str = ""
    """``recording``, or a key of ``LOG_KINDS``."""
    lines: int = 0
    snapshots: int = 0
    other_lines: int = 0
    """Neither a reading nor a header: warnings, errors, what a shell wrote in between."""
    torn_lines: int = 0
    """Cut off: the last one, mostly."""
    overlong_lines: int = 0
    unread_values: int = 0
    """``[N/A]``, ``[Not Supported]``, ``[Unknown Error]``, ``-`` and what is no number."""
    rows: int = 0
    reading_rows: int = 0
    """Those that are about a GPU, not about one of its processes."""
    unread_columns: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Number of the ``reading_rows`` in which these columns had no value."""
    unread_times: int = 0
    """Rows whose time stamp is none, in a log that has times."""
    unread_time: str = ""
    """The first of them."""
    incomplete_ticks: int = 0
    """Left out, since it is unknown which GPUs their rows were."""
    missing_ticks: int = 0
    """Moments that the rhythm of the log lets one expect, and that are not in it."""
    longest_gap_seconds: float = 0.0
    """Between two moments where some are missing."""
    clock_jumps: int = 0
    """Times that the clock went back (summer time ends, somebody sets it) or leapt."""
    interval_seconds: float | None = None
    damage: str | None = None
    """Why it ends early, as a clause."""
    damaged_stretches: int = 0
    """Of a packed file, passed over, and how many bytes of it they are."""
    damaged_bytes: int = 0
    remarks: Counter[str] = field(default_factory=Counter)
    """The first few different ``other_lines``, made safe."""
    notes: list[str] = field(default_factory=list)
    """How it was read where that was not plain, in sentences."""

    @property
    def unread(self) -> Counter[str]:
        """Number of the ``reading_rows`` in which a column had no value."""
        found = Counter[str]()
        for names, times in self.unread_columns.items():
            for name in names:
                found[name] += times
        return found

    def remark(self, line: str) -> None:
        """Count a line that is no reading, if it says anything."""
        if _DECORATION.fullmatch(line) is not None:
            return
        self.other_lines += 1
        text = clean(line.strip(), REMARK_LENGTH)
        if text in self.remarks or len(self.remarks) < REMARKS_KEPT:
            self.remarks[text] += 1

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def sentences(self) -> list[str]:
        """Sentences on how well this could be read; none if all was plain."""
        said = list(self.notes)
        skipped = [
            _count(self.other_lines, "is not a reading", "are not readings"),
            _count(self.torn_lines, "is cut off", "are cut off"),
            _count(self.overlong_lines, "is too long", "are too long"),
        ]
        if any(skipped):
            said.append(f"Some of {self.lines} lines were skipped: {_listed(skipped)}.")
        if self.remarks:
            first, times = self.remarks.most_common(1)[0]
            said.append(f'The most frequent of those says: "{first}" ({times}).')
        gap = f" (longest gap {age(self.longest_gap_seconds)})" if self.missing_ticks > 1 else ""
        counted = [
            _count(self.missing_ticks, "moment is missing", "moments are missing") + gap,
            _count(self.incomplete_ticks, "moment is incomplete", "moments are incomplete"),
            _count(self.clock_jumps, "jump of the clock", "jumps of the clock"),
        ]
        if any(counted):
            said.append(f"In what was read: {_listed(counted)}.")
        said += self._unread()
        if self.damaged_stretches:
            places = _count(self.damaged_stretches, "place", "places")
            said.append(
                f"Its compressed data is damaged in {places}: {self.damaged_bytes} bytes are "
                "passed over."
            )
        if self.damage is not None:
            said.append(f"It ends early: {self.damage}.")
        return said

    def _unread(self) -> list[str]:
        """Columns that had a value in some rows only: what a driver never says is no news."""
        partly = [
            (name, times)
            for name, times in self.unread.most_common()
            if 0 < times < self.reading_rows
        ]
        said = []
        if partly:
            named = ", ".join(f"{name} ({times})" for name, times in partly[:PARTLY_READ_SHOWN])
            left = _count(len(partly) - PARTLY_READ_SHOWN, "other column", "other columns")
            more = f" and {left}" if len(partly) > PARTLY_READ_SHOWN else ""
            said.append(f"Without a value in some of {self.reading_rows} rows: {named}{more}.")
        if self.unread_times:
            rows = _count(self.unread_times, "row has", "rows have")
            said.append(f'{rows} a time that cannot be read, as "{self.unread_time}".')
        return said


def _count(number: int, one: str, many: str) -> str:
    return "" if number == 0 else f"{number} {one if number == 1 else many}"


def _listed(texts: list[str]) -> str:
    return ", ".join(filter(None, texts))


class TextLines:
    """The lines of a file, without their ends; a context manager and an iterator, once.

    ``stream`` is read in the place of the file ``path`` is the name of. Raises ``LogError`` where
    the file cannot be opened. What goes wrong later ends the iteration and is in ``stats.damage``.
    """

    def __init__(
        self,
        path: str,
        stats: LogStats,
        line_length: int = LINE_LENGTH,
        *,
        begin: tuple[Path, int] | None = None,
        stream: BinaryIO | None = None,
    ) -> None:
        self.shown = "standard input" if path == STANDARD_INPUT else clean(path, 200)
        self._path = Path(path)
        self.terminated = True
        """The line given last had an end: if not, it may be cut off."""
        self._stats = stats
        self.line_length = line_length
        """Longer lines are left out; may be changed between two lines."""
        self._files: FileSet | None = None
        try:
            if stream is not None or path == STANDARD_INPUT:
                self._unpacked = Unpacked(iter([stream or _standard_input()]))
            else:
                self._files = FileSet(path, begin)
                self._unpacked = Unpacked(iter(self._files))
                if self._files.aside:
                    files = _count(len(self._files.aside), "file that was", "files that were")
                    stats.note(f"It is read with {files} put aside before it.")
            self._text = self._opened()
        except LogError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise LogError(f"{self.shown} cannot be read: {why(error, _SENTENCES)}.") from None
        except ValueError:
            raise LogError(f"{self.shown} cannot be read: there is no such file.") from None

    @property
    def bytes_read(self) -> int:
        """Of the file (packed), about."""
        return self._unpacked.read_bytes

    @property
    def whole_bytes(self) -> int | None:
        """Bytes of the files when asked (packed); ``None`` of what has no size, such as a pipe."""
        if self._files is None or not self._path.is_file():
            return None
        with suppress(OSError):
            return sum(path.stat().st_size for path in (*self._files.aside, self._path))
        return None

    def __enter__(self) -> TextLines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._files is not None:
            self._files.close()

    def __iter__(self) -> Iterator[str]:
        stats = self._stats
        read = self._text.readline
        while True:
            length = self.line_length
            try:
                line = read(length)
                overlong = len(line) >= length and not line.endswith("\n")
                passed = len(line)
                while overlong and line and not line.endswith("\n"):
                    line = read(length)
                    passed += len(line)
                    if passed > ENDLESS_LENGTH:
                        stats.damage = "a line of it does not end"
                        return
            except DAMAGE:
                stats.damage = "the compressed data is damaged or cut off"
                self._count_skipped()
                return
            except OSError as error:
                stats.damage = why(error, _SENTENCES)
                return
            if overlong:
                stats.lines += 1
                stats.overlong_lines += 1
                continue
            if not line:
                self._count_skipped()
                return
            stats.lines += 1
            self.terminated = line.endswith("\n")
            yield line.rstrip("\r\n")

    def _count_skipped(self) -> None:
        self._stats.damaged_stretches = self._unpacked.stretches
        self._stats.damaged_bytes = self._unpacked.skipped_bytes

    def _opened(self) -> io.TextIOWrapper:
        buffered = io.BufferedReader(self._unpacked, _BUFFER_BYTES)
        try:
            start = buffered.peek(4)
        except DAMAGE:
            raise LogError(
                f"{self.shown} begins like a {self._unpacked.kind} file and cannot be unpacked."
            ) from None
        return io.TextIOWrapper(buffered, encoding=_encoding(start), errors="replace")


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise LogError("Standard input is closed, so there is nothing to read.")
    return sys.stdin.buffer


def _encoding(start: bytes) -> str:
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    # Some tools leave the mark out; text in a log begins with ASCII.
    if len(start) >= 4 and start[1] == start[3] == 0 and start[0] and start[2]:
        return "utf-16-le"
    if len(start) >= 4 and start[0] == start[2] == 0 and start[1] and start[3]:
        return "utf-16-be"
    # Without a mark this is plain UTF-8.
    return "utf-8-sig"
