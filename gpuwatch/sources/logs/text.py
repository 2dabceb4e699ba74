"""Files of text that anybody wrote, plain, compressed, damaged or in several parts, as lines.

A file may be gzip or zstd (by its first bytes, whatever its name), begin with a byte-order mark, be
in UTF-16 (``>`` in Windows PowerShell writes it), end in the middle of a line or of a packed block,
and hold anything. Nothing is read whole: a line is held at a time, and ``LogStats`` counts what
could not be read.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gpuwatch.core.private_files import why
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.core.units import age

# The standard library's, also where Python is older than that.
if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = [
    "DAMAGE", "LINE_LENGTH", "LOG_KINDS", "STANDARD_INPUT", "ZSTD", "FileSet", "LogError",
    "LogStats", "TextLines", "Unpacked", "kind_of", "rotated_files", "split_name", "zstd",
]  # fmt: skip

STANDARD_INPUT = "-"
LINE_LENGTH = 64 * 1024
"""A row of all query fields takes about 2 KiB; longer lines are left out and counted."""
ENDLESS_LENGTH = 64 * 1024 * 1024
"""A line that is longer never ends, as that of a device: reading it would not end either."""
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
"""The kinds of logs, and how a person is told of each."""
_SENTENCES = {
    errno.ENOENT: "there is no such file",
    errno.EACCES: "you may not read it",
    errno.EPERM: "you may not read it",
    errno.ENAMETOOLONG: "its name is too long",
    errno.ELOOP: "its symbolic links go in a circle",
}


class LogError(SentenceError):
    """A file that cannot be read as a log."""


def is_folder(shown: str) -> str:
    """Return the sentence about a folder that was named where a file is read."""
    return (
        f"{shown} is a folder: name a recording or log in it, or rank all recordings in it with "
        f"gpuwatch report {shown} --by user"
    )


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
    """Lines that are cut off: the last one, mostly."""
    overlong_lines: int = 0
    unread_values: int = 0
    """``[N/A]``, ``[Not Supported]``, ``[Unknown Error]``, ``-`` and what is no number."""
    rows: int = 0
    reading_rows: int = 0
    """Rows that are about a GPU, not about one of its processes."""
    unread_columns: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Number of the ``reading_rows`` in which these columns had no value."""
    unreadable_columns: set[str] = field(default_factory=set)
    """Columns with a cell that is neither a value nor a driver's way to say that there is none."""
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
    """Places of a packed file that were passed over, and how many bytes of it they are."""
    damaged_bytes: int = 0
    remarks: Counter[str] = field(default_factory=Counter)
    """The first few different ``other_lines``, made safe."""
    notes: list[str] = field(default_factory=list)
    """Sentences that say how it was read, where that was not plain."""

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
        """Return sentences on how well this could be read; none if all was plain."""
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
            said.append(f"The file ends early: {self.damage}.")
        return said

    def _unread(self) -> list[str]:
        """Name columns that had a value in some rows only (one that a driver never says is no
        news), and those whose values make no sense."""
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
        never = [one for one in self.unreadable_columns if self.unread[one] == self.reading_rows]
        if never:
            said.append(
                f"No value of {', '.join(sorted(never))} could be read: name the column with its "
                "unit (--columns), such as power.draw [mW]."
            )
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
            self._text = self._opened(goes_on=begin is not None)
        except LogError:
            self.close()
            raise
        except IsADirectoryError:
            self.close()
            raise LogError(is_folder(self.shown)) from None
        except OSError as error:
            self.close()
            raise LogError(f"{self.shown} cannot be read: {why(error, _SENTENCES)}.") from None
        except ValueError:
            raise LogError(f"{self.shown} cannot be read: there is no such file.") from None

    @property
    def bytes_read(self) -> int:
        """Bytes of the file that were read so far (packed), about."""
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
            except DAMAGE as error:
                cut_off = isinstance(error, EOFError)
                stats.damage = (
                    "it is still being written, or was cut off"
                    if cut_off
                    else "the compressed data is damaged"
                )
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

    def _opened(self, *, goes_on: bool) -> io.TextIOWrapper:
        buffered, start = io.BufferedReader(self._unpacked, _BUFFER_BYTES), b""
        try:
            start = buffered.peek(4)
        except DAMAGE as error:
            # Of a block that is not there to its end nothing can be unpacked. Where it is not the
            # first, that is damage like any other.
            if not goes_on:
                cut_off = (
                    "ends before its first reading does: it has only just begun, or was cut off"
                )
                damaged = f"begins like a {self._unpacked.kind} file and cannot be unpacked"
                why_not = cut_off if isinstance(error, EOFError) else damaged
                raise LogError(f"{self.shown} {why_not}.") from None
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


# --- packed files and files in several parts -------------------------------------------------

# ``record --rotate`` puts files aside under the recording's name with a time in it. They are whole
# recordings, and one after another they are the recording that was asked for.
#
# A packed file is frames (zstd) or members (gzip), one after another. ``record`` begins one a
# minute, so a torn end that something was appended to, or a bad block of a disk, costs no more than
# that.

GZIP = b"\x1f\x8b\x08"
ZSTD = b"\x28\xb5\x2f\xfd"
DAMAGE = (EOFError, gzip.BadGzipFile)
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
"""The beginning of a zstd frame that holds something else."""
_BEGINNING = re.compile(rb"\x1f\x8b\x08|\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
_CHUNK = 16 * 1024
_OUT = 256 * 1024
_PROBE = 4096
_BEGINS_LENGTH = 8
_HELD = 3
"""Bytes at the end of what was read so far: a beginning may lie across it."""
_STAMP = r"\.\d{8}T\d{6}Z(?:-\d+)?"
_ENDING = re.compile(r"(?:\.jsonl|\.json)?(?:\.gz|\.zst)?$")


def split_name(name: str) -> tuple[str, str]:
    """Split a name into stem and ending: ``run`` and ``.jsonl.zst``."""
    found = _ENDING.search(name)
    place = len(name) if found is None else found.start()
    return name[:place], name[place:]


def rotated_files(path: Path) -> list[Path]:
    """Return the files that ``--rotate`` has put aside for ``path``, the oldest first."""
    stem, ending = split_name(path.name)
    wanted = re.compile(re.escape(stem) + _STAMP + re.escape(ending))
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return []
    return [path.parent / name for name in names if wanted.fullmatch(name)]


class _Gunzip:
    """``zlib``'s decompressor with the interface of ``zstd``'s."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


def kind_of(data: bytes) -> str:
    """Return ``plain``, ``gzip`` or ``zstd``, by how a file begins."""
    if data.startswith(GZIP):
        return "gzip"
    return "zstd" if data.startswith(ZSTD) or _SKIPPABLE.match(data) else "plain"


def _decompressor(data: bytes) -> _Gunzip | zstd.ZstdDecompressor | None:
    """Make a decompressor for the frame that ``data`` begins with, if it begins with one."""
    kind = kind_of(data)
    if kind == "plain":
        return None
    return _Gunzip() if kind == "gzip" else zstd.ZstdDecompressor()


class Unpacked(io.RawIOBase):
    """The contents of ``files``. Where something was passed over stands a line end.

    Raises ``EOFError`` at the end of a file that is cut off, and ``gzip.BadGzipFile`` where it is
    damaged and nothing follows that can be read, both after all that could be.
    """

    def __init__(self, files: Iterator[BinaryIO]) -> None:
        self.stretches = 0
        """Places that were passed over, and the bytes in them (packed)."""
        self.skipped_bytes = 0
        self.read_bytes = 0
        """Bytes of the files, packed."""
        self.kind = "plain"
        """Kind of the file that is read: ``plain``, ``gzip`` or ``zstd``."""
        self._files = files
        self._file: BinaryIO | None = None
        self._input = b""
        self._out = b""
        self._begins = b'{"kind":'
        """The text that frames begin with, as the first of them did."""
        self._began = False
        self._searched = 0
        """Bytes of the input in which no frame begins that is not a part of another."""
        self._error: Exception | None = None
        self._parts = self._all_parts()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._out:
            part = next(self._parts, None)
            if part is None:
                if self._error is not None:
                    raise self._error
                return 0
            self._out = part
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._out))
        view[:count] = self._out[:count]
        self._out = self._out[count:]
        return count

    def _all_parts(self) -> Iterator[bytes]:
        last = b"\n"
        for file in self._files:
            if last[-1:] != b"\n" or self._error is not None:
                yield b"\n"
            if self._error is not None:
                self._error = None
                self.stretches += 1
            self._file, self._input, self._searched = file, b"", 0
            while len(self._input) < len(ZSTD) and self._read():
                pass
            self.kind = kind_of(self._input)
            for part in self._plain() if self.kind == "plain" else self._frames():
                if part:
                    last = part
                    yield part

    def _plain(self) -> Iterator[bytes]:
        while self._input or self._read():
            part, self._input = self._input, b""
            yield part

    def _read(self) -> bool:
        file = self._file
        assert file is not None
        more = file.read1(_CHUNK) if hasattr(file, "read1") else file.read(_CHUNK)
        self._input += more
        self.read_bytes += len(more)
        return bool(more)

    def _frames(self) -> Iterator[bytes]:
        """Yield all that can be unpacked of the frames of one file."""
        while self._input or self._read():
            self._pass(len(self._input) - len(self._input.lstrip(b"\0")))
            while 0 < len(self._input) < len(ZSTD) and self._read():
                pass
            if not self._input:
                continue
            try:
                yield from self._frame_parts()
            except (zlib.error, zstd.ZstdError):
                yield b"\n"
                if not self._find_next():
                    self._error = gzip.BadGzipFile("the compressed data is damaged")
                    return

    def _frame_parts(self) -> Iterator[bytes]:
        frame, own = _decompressor(self._input), 1
        if frame is None:
            raise zlib.error
        while not frame.eof:
            asked = frame.needs_input
            data = self._take(own) if asked else b""
            own = 0
            try:
                out = frame.decompress(data, _OUT)
            except (zlib.error, zstd.ZstdError):
                self.skipped_bytes += len(data)
                raise
            # Where the output just filled ``_OUT``, it may want more only at the next call.
            if asked and not (data or out or frame.eof):
                self._error = EOFError("the file is cut off")
                return
            if out and not self._began:
                self._began, self._begins = True, out[:_BEGINS_LENGTH]
            yield out
        self._input = frame.unused_data + self._input
        self._searched += len(frame.unused_data)

    def _take(self, skipped: int) -> bytes:
        """Return more of a frame, nothing at the end of the file. Raises ``zlib.error`` where
        another begins: the one before was torn off there."""
        while True:
            place = self._next_beginning(skipped)
            if place == 0:
                raise zlib.error
            if place is None:
                place = len(self._input) - _HELD
            if place <= 0 and not self._read():
                place = len(self._input)
            elif place <= 0:
                continue
            data = self._input[:place]
            self._pass(place)
            return data

    def _pass(self, count: int) -> None:
        self._input = self._input[count:]
        self._searched = max(0, self._searched - count)

    def _next_beginning(self, place: int) -> int | None:
        """Return where in the input a frame begins that is not a part of another."""
        place = max(place, self._searched)
        while (found := _BEGINNING.search(self._input, place)) is not None:
            self._searched = place = found.start()
            while len(self._input) - place < _PROBE and self._read():
                pass
            if self._can_begin(self._input[place : place + _CHUNK]):
                return place
            place += 1
        self._searched = max(place, len(self._input) - _HELD)
        return None

    def _can_begin(self, data: bytes) -> bool:
        if _SKIPPABLE.match(data):
            # Only ``record`` writes these; any other is part of the damage.
            return data[8:12] == ZSTD
        frame = _decompressor(data)
        try:
            out = b"" if frame is None else frame.decompress(data, _PROBE)
        except (zlib.error, zstd.ZstdError):
            return False
        return out.startswith(self._begins)

    def _find_next(self) -> bool:
        """Pass over everything up to a frame that can be read. Return False if there is none."""
        self.stretches += 1
        place = self._next_beginning(0)
        while place is None:
            passed = max(0, len(self._input) - _HELD)
            self.skipped_bytes += passed
            self._pass(passed)
            if not self._read():
                self.skipped_bytes += len(self._input)
                self._pass(_HELD)
                return False
            place = self._next_beginning(0)
        self.skipped_bytes += place
        self._pass(place)
        return True


class FileSet:
    """The files of one recording, opened one after another; the newest is held from the beginning,
    since it gets another name when it is put aside. Raises as ``open`` does."""

    def __init__(self, path: str, begin: tuple[Path, int] | None = None) -> None:
        self._path = Path(path)
        self._newest = self._path.open("rb", buffering=0)
        self._begin = begin
        self.aside = [] if begin and begin[0] == self._path else rotated_files(self._path)

    def __iter__(self) -> Iterator[BinaryIO]:
        """Open the files from ``begin`` on. One that was removed meanwhile (the oldest) is passed
        over."""
        names = [*self.aside, self._path]
        first, offset = self._begin or (names[0], 0)
        for path in names[names.index(first) :] if first in names else names:
            try:
                file = self._newest if path == self._path else path.open("rb", buffering=0)
            except OSError:
                continue
            with file:
                if path == first and offset:
                    file.seek(offset)
                yield file

    def close(self) -> None:
        self._newest.close()
