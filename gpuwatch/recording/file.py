"""The file of a recording: how it is laid out, written, repaired and read.

A recording is JSON, a header and a line for each snapshot (``codec``), in zstd frames of a minute
each; plain and gzip files are read as well. A frame holds the very lines that ``gpuwatch stream``
prints. Before each stands a skippable frame, which ``zstdcat`` and other readers pass over, with an
``Entry``: when the frame begins, and the statistics and findings of the frame before. So a
recording can be opened anywhere, drawn and reported without unpacking its lines. From time to time
a ``Total`` adds up all entries before it, so that a week is reported as fast as an hour. Damaged
lines are skipped and counted; a recording cut short is good up to its last whole line.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import shlex
import stat
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.json import Decoder as EntryDecoder
from msgspec.json import Encoder

from gpuwatch.core.bounds import Seconds, Text, UnixSeconds
from gpuwatch.core.codec import CodecError, Decoder, decoded, safe
from gpuwatch.core.model import GpuKey, Snapshot
from gpuwatch.core.private_files import why
from gpuwatch.core.store import Column, Stat
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.diagnosis.finding import Unchecked, names_among
from gpuwatch.diagnosis.ledger import (
    CostsSoFar,
    Counted,
    Episode,
    EpisodeKey,
    Ledger,
    Page,
    by_cause,
)
from gpuwatch.recording.statistics import Course, Part, Statistics
from gpuwatch.sources.logs import text as log_text
from gpuwatch.sources.logs.text import (
    STANDARD_INPUT,
    ZSTD,
    FileSet,
    LogError,
    LogStats,
    TextLines,
    kind_of,
    zstd,
)

if TYPE_CHECKING:
    from gpuwatch.diagnosis.engine import Engine
    from gpuwatch.sources.logs.source import LogOptions

# --- layout: frames, and between them what sums them up ---------------------------------------

ENTRY = b"\x51\x2a\x4d\x18"
"""First bytes of a skippable frame; its length follows. (Those of an older gpuwatch begin with 50
and hold less: such a recording is read line by line.)"""
TOTAL = b"\x52\x2a\x4d\x18"
"""First bytes of a skippable frame with a ``Total``."""
_LENGTH_BYTES = 4
_ENTRY_MOST = 1024 * 1024
_UNPACKED_MOST = 16 * 1024 * 1024
_UNPACKED_A_BYTE = 100
"""Most bytes of all entries unpacked, for each byte of the file: many times what ``record`` writes.
Rubbish that was made to look like entries would take hours."""
_CHUNK_BYTES = 4 * 1024 * 1024
_LEVEL = 6
"""Compression level: 9 takes half as much time again and a fifteenth less room."""
_WINDOW_LOG = 20
"""Window of some snapshots of a large machine, in which what has not changed since is found."""
_encode = Encoder().encode
Offset = Annotated[int, Meta(gt=0, lt=2**60)]


class Entry(Struct, frozen=True, kw_only=True):
    """Content of the skippable frame before a frame."""

    run: Text
    """Random name of the recording: one file can hold several."""
    begin_unix_seconds: UnixSeconds | None = None
    """Time of the frame's first snapshot; ``None``: the recording ends here."""
    part: Part | None = None
    """Statistics of the time since the entry before."""
    ledger: Page = Page()
    """Findings of that time: those that hold, and those that ended since."""
    unknown: tuple[Unchecked, ...] | None = None
    """Rules that could not be checked at its end; ``None``: nobody looked."""


class Total(Struct, frozen=True, kw_only=True):
    """Sum of a recording in one file so far: all that its entries say. It stands before an entry,
    now and then."""

    entry: Entry
    """Entry that would stand here, were all frames before it a single one."""
    first_bytes: Offset
    """Bytes from the entry of the first frame to here."""
    last_bytes: Offset
    """Bytes from the entry of the last frame to here."""


class Mark(NamedTuple):
    """A place in a file where reading can begin."""

    unix_seconds: float
    file: Path
    offset: int
    begin_unix_seconds: float
    """Time in its entry; ``unix_seconds`` is the same unless a clock went back."""

    @property
    def is_there(self) -> bool:
        """Whether the entry is still there: not once the file was put aside, and another has its
        name."""
        with suppress(OSError), self.file.open("rb", buffering=0) as file:
            entry = _entry(_text_at(file.fileno(), self.offset), _DECODER)
            return entry is not None and entry.begin_unix_seconds == self.begin_unix_seconds
        return False


_DECODER = EntryDecoder(Entry)
_TOTAL_DECODER = EntryDecoder(Total)
E = TypeVar("E")


def compressor() -> zstd.ZstdCompressor:
    """Return a compressor for one frame, without a checksum, so that a frame that was torn off can
    be ended later."""
    parameter = zstd.CompressionParameter
    return zstd.ZstdCompressor(
        options={parameter.compression_level: _LEVEL, parameter.window_log: _WINDOW_LOG}
    )


def packed_entry(entry: Entry) -> bytes:
    return _packed(ENTRY, entry)


def packed_total(total: Total) -> bytes:
    """Return what is written of ``total``: nothing where that is more than a reader takes."""
    data = _packed(TOTAL, total)
    return data if len(data) <= _ENTRY_MOST else b""


def _packed(begins: bytes, what: Struct) -> bytes:
    data = zstd.compress(_encode(what))
    return begins + len(data).to_bytes(_LENGTH_BYTES, "little") + data


def frame_end(tail: bytes) -> bytes:
    """Return the bytes that end the last frame of a file that ends with ``tail``: none where it is
    ended, or torn off within a block (which no reader can use)."""
    place = tail.rfind(ZSTD)
    end = b"\x01\x00\x00"
    with suppress(zstd.ZstdError):
        if place < 0 or _ends(tail[place:]):
            return b""
        if _ends(tail[place:] + end):
            return end
    return b""


def _ends(data: bytes) -> bool:
    frame = zstd.ZstdDecompressor()
    frame.decompress(data, _UNPACKED_MOST)
    while not (frame.eof or frame.needs_input):
        frame.decompress(b"", _UNPACKED_MOST)
    return frame.eof


def entries_of(path: str) -> Iterator[tuple[Path, int, Entry]]:
    """Read all entries of a recording, with the file and place of each: none of any other file."""
    # A pipe is not opened to see.
    if Path(path).is_file():
        with suppress(OSError), closing(FileSet(path)) as files:
            for file in files:
                for offset, entry in entries_in(file, _DECODER):
                    yield Path(file.name), offset, entry


def entries_in(
    file: BinaryIO,
    decoder: EntryDecoder[E],
    *,
    as_written: bool = False,
    begin: int = 0,
    end: float = math.inf,
) -> Iterator[tuple[int, E]]:
    """Read the entries of one file, with the place of each, from the byte ``begin`` up to ``end``.
    ``as_written``: texts are left as they are, which is much faster; whoever uses one cleans it."""
    descriptor, at = file.fileno(), begin
    if os.pread(descriptor, len(ENTRY), 0) != ENTRY:
        return
    left = _UNPACKED_A_BYTE * os.fstat(descriptor).st_size + _UNPACKED_MOST
    while left > 0 and at < end and (data := os.pread(descriptor, _CHUNK_BYTES, at)):
        place = -1
        while left > 0 and (place := data.find(ENTRY, place + 1)) >= 0 and at + place < end:
            text = _text_at(descriptor, at + place)
            left -= len(text)
            entry = _entry(text, decoder, as_written=as_written)
            if entry is not None:
                yield at + place, entry
        at += max(1, len(data) - len(ENTRY) + 1) if len(data) == _CHUNK_BYTES else len(data)


def _totals_in(file: BinaryIO) -> list[tuple[int, Total]]:
    """Return the last totals of one file, each with its place: together they are about as much of
    it as can be. They are looked for from its end on, and what they are about is not read."""
    descriptor = file.fileno()
    size = end = os.fstat(descriptor).st_size
    found: list[tuple[int, Total]] = []
    left = _UNPACKED_A_BYTE * size + _UNPACKED_MOST
    while end > 0 and left > 0:
        begin = max(0, end - _CHUNK_BYTES)
        # One that begins before the end reaches beyond it.
        data = os.pread(descriptor, end - begin + len(TOTAL) - 1, begin)
        end, place = begin, data.rfind(TOTAL)
        while place >= 0 and left > 0:
            text = _text_at(descriptor, begin + place, TOTAL)
            left -= len(text)
            total = _entry(text, _TOTAL_DECODER)
            if total is not None and _is_sound(descriptor, begin + place, total):
                found.append((begin + place, total))
                end = begin + place - total.first_bytes
                break
            place = data.rfind(TOTAL, 0, place + len(TOTAL) - 1)
    return found[::-1]


def _is_sound(descriptor: int, offset: int, total: Total) -> bool:
    """Whether the entries that a total adds up are where it says, and no clock was set back among
    them: then the lines know more of what came when."""
    part, places = total.entry.part, (total.first_bytes, total.last_bytes)
    if part is None or part.time.begin is None or part.time.set_back or max(places) > offset:
        return False
    entries = [_entry(_text_at(descriptor, offset - place), _DECODER) for place in places]
    return all(
        one is not None and one.begin_unix_seconds is not None and one.run == total.entry.run
        for one in entries
    )


def _text_at(descriptor: int, offset: int, begins: bytes = ENTRY) -> bytes:
    """Return the text of the entry at ``offset``; empty where there is none."""
    head = os.pread(descriptor, len(begins) + _LENGTH_BYTES, offset)
    size = int.from_bytes(head[len(begins) :], "little")
    if not head.startswith(begins) or size > _ENTRY_MOST:
        return b""
    data = os.pread(descriptor, size, offset + len(head))
    try:
        return zstd.ZstdDecompressor().decompress(data, _UNPACKED_MOST)
    except zstd.ZstdError:
        return b""


def _entry(text: bytes, decoder: EntryDecoder[E], *, as_written: bool = False) -> E | None:
    try:
        return decoded(decoder, text if as_written else safe(text.decode())) if text else None
    except (CodecError, UnicodeError):
        return None


def marks_of(entries: Sequence[tuple[Path, int, Entry]]) -> list[Mark]:
    """Return the marks of a recording in the order of the file. Their times never go back, so that
    a clock that was set back hides nothing before it."""
    marks: list[Mark] = []
    for file, offset, entry in entries:
        at = entry.begin_unix_seconds
        if at is not None:
            latest = max(at, marks[-1].unix_seconds) if marks else at
            marks.append(Mark(latest, file, offset, at))
    return marks


def mark_before(marks: Sequence[Mark], unix_seconds: float) -> Mark | None:
    """Return the last place at or before a moment, else the first."""
    times = [mark.unix_seconds for mark in marks]
    return marks[place_before(times, unix_seconds)] if marks else None


def place_before(times: Sequence[float], at: float) -> int:
    """Return the place of the last of ``times`` at or before ``at``, else of the first; where a
    clock that was set back made several equal, of the first of them."""
    place = max(0, bisect_right(times, at) - 1)
    return bisect_left(times, times[place]) if times else 0


# --- writing ----------------------------------------------------------------------------------

FLUSH_SECONDS = 3.0
SYNC_SECONDS = 10.0
_BUFFER_BYTES = 256 * 1024
_TAIL_BYTES = 8 * 1024 * 1024
"""Bytes at the end in which the beginning of an open frame is looked for."""


class RecordingError(SentenceError):
    """The file cannot be recorded to."""


class RecordingFile:
    """The file ``path``, opened (or made, readable by the owner alone) to be written: zstd by its
    ending ``.zst``, else plain. Raises ``RecordingError`` where that cannot be done, or the file
    holds something else.

    It is append only, and good up to the last few seconds whatever ends the writing. One recorder
    at a time: it holds a lock (flock(2)) while it writes. Blocks are written in the order in which
    they came; what a full disk does not take is kept and tried again, so the file has no hole in
    it: it is the recorder that leaves snapshots out meanwhile (see ``stuck``). A frame that a crash
    left open is ended where that can be done by appending, so that ``zstdcat`` reads on. ``write``
    and ``begin`` raise nothing for what a disk can do: see ``trouble``.
    """

    def __init__(
        self,
        path: Path,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.path = path
        self.packed = path.name.endswith(".zst")
        self.written_bytes = 0
        """Bytes added to the file so far (packed)."""
        self.trouble: OSError | None = None
        """The error of the last attempt to write, if it did not succeed."""
        self._monotonic = monotonic
        self._write = write
        self._frame: zstd.ZstdCompressor | None = None
        self._pending = bytearray()
        self._unflushed = False
        self._flushed_at = self._synced_at = monotonic()
        self._descriptor = self._open()
        try:
            self._prepare()
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def end_offset(self) -> int:
        """The place in the file where the next frame begins, once the last is ended."""
        return os.fstat(self._descriptor).st_size + len(self._pending)

    @property
    def stuck(self) -> bool:
        """Whether the disk refused something, which waits to be written."""
        return self.trouble is not None

    def begin(self, entry: bytes, text: str) -> None:
        """End the frame before, and begin one with ``text``; in a packed file ``entry`` goes before
        it."""
        self.end_frame()
        if self.packed:
            self._pending += entry
            self._frame = compressor() if text else None
        self.write(text)
        self.flush()

    def write(self, text: str) -> None:
        """Add ``text``: it is in the file after ``FLUSH_SECONDS`` at most, as long as something
        is written."""
        data = text.encode("utf-8", "replace")
        self._pending += data if self._frame is None else self._frame.compress(data)
        self._unflushed = self._frame is not None
        if self._monotonic() - self._flushed_at >= FLUSH_SECONDS or self._frame is None:
            self.flush()
        elif len(self._pending) > _BUFFER_BYTES:
            self._put()

    def flush(self) -> None:
        """Make all that was written readable from now on, if the machine goes on."""
        if self._frame is not None and self._unflushed:
            self._pending += self._frame.flush(self._frame.FLUSH_BLOCK)
            self._unflushed = False
        self._flushed_at = self._monotonic()
        self._put()
        if self._flushed_at - self._synced_at >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Make all that was flushed durable, also if the machine does not go on."""
        self._synced_at = self._monotonic()
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # A file system without it has none to offer.
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
                self.trouble = self.trouble or error

    def retry(self) -> bool:
        self._put()
        return not self.stuck

    def fate(self) -> str | None:
        """Return ``moved`` or ``deleted`` where the file no longer has its name, else ``None``."""
        own = os.fstat(self._descriptor)
        try:
            if os.path.samestat(self.path.lstat(), own):
                return None
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            # Whether it is there cannot be seen: writing says what is the matter.
            return None
        return "moved" if own.st_nlink else "deleted"

    def close(self) -> None:
        """End the file well, as far as the disk takes it."""
        self.end_frame()
        self._put()
        with suppress(OSError):
            os.fsync(self._descriptor)
        with suppress(OSError):
            os.close(self._descriptor)

    def end_frame(self) -> None:
        """End the last frame, where one is open."""
        if self._frame is not None:
            self._pending += self._frame.flush()
            self._frame, self._unflushed = None, False

    def _put(self) -> None:
        while self._pending:
            try:
                count = self._write(self._descriptor, bytes(self._pending))
            except OSError as error:
                self.trouble = error
                return
            self.written_bytes += count
            del self._pending[:count]
        self.trouble = None

    def _open(self) -> int:
        """Open the file and lock it. It must be this user's: another could read on in theirs, or
        plant it."""
        if self.path.name.endswith(".gz"):
            raise RecordingError(
                "A recording is compressed with zstd, not gzip: choose a name that ends in "
                ".jsonl.zst."
            )
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        shown = clean(str(self.path), 200)
        try:
            descriptor = os.open(self.path, flags | os.O_NOFOLLOW, 0o600)
        except (OSError, ValueError) as error:
            reason = why(error) if isinstance(error, OSError) else "there is no such file"
            raise RecordingError(f"{shown} cannot be written: {reason}.") from None
        try:
            self._claim(descriptor, shown)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _claim(self, descriptor: int, shown: str) -> None:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise RecordingError(
                f"{shown} is not a regular file: to write to a pipe, use gpuwatch stream."
            )
        if found.st_uid != os.geteuid():
            raise RecordingError(f"{shown} belongs to another user: choose another name.")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = holder_of(found)
            who = "Another process" if holder is None else f"Process {holder[0]}"
            name = clean(shlex.quote(str(self.path)), 4096)
            ends = holder is not None and holder[1]
            end = f", or end it with gpuwatch record --stop {name}" if ends else ""
            raise RecordingError(
                f"{who} records to {shown} already: choose another name{end}."
            ) from None
        except OSError:
            # Some network file systems have no locks.
            return

    # What is in the file already.

    def _prepare(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size == 0:
            return
        shown = clean(str(self.path), 200)
        first = os.pread(self._descriptor, 8, 0)
        kind = kind_of(first)
        if kind == "plain" and not first.startswith((b'{"kin', b'{ "ki')):
            raise RecordingError(
                f"{shown} exists and is not a recording: choose another name, or remove it."
            )
        if kind != ("zstd" if self.packed else "plain"):
            wanted = "a zstd" if self.packed else "a plain"
            raise RecordingError(
                f"{shown} would become {wanted} file by its name, and is a {kind} file: choose "
                "another name."
            )
        if self.packed:
            begin = max(0, size - _TAIL_BYTES)
            self._pending += frame_end(os.pread(self._descriptor, size - begin, begin))
        elif os.pread(self._descriptor, 1, size - 1) != b"\n":
            self._pending += b"\n"


def holder_of(found: os.stat_result) -> tuple[int, bool] | None:
    """Return the PID of the gpuwatch (of this user and PID namespace) that has locked the file to
    write to it, and whether that is all it does (``gpuwatch record``); ``None`` where none can be
    seen."""
    for process in Path("/proc").glob("[1-9]*"):
        with suppress(OSError, ValueError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            names = [word.rpartition(b"/")[2] for word in words[:4]]
            if b"gpuwatch" not in names:
                continue
            for link in (process / "fd").iterdir():
                locked = "FLOCK" in (process / "fdinfo" / link.name).read_text()
                if locked and os.path.samestat(link.stat(), found):
                    only = words[names.index(b"gpuwatch") + 1 :][:1] == [b"record"]
                    return int(process.name), only
    return None


# --- reading: a recording or a log, told by what is in it -------------------------------------

RECORDING = "recording"
LINE_LENGTH = 16 * 1024 * 1024
"""Longest line: ten times a snapshot of 16 GPUs and 4000 processes."""
_BLANK_LINES_MAX = 1000
_RECORDING = re.compile(r"""[ \t\ufeff\x00]*\{(?!\s*$|\s*"(?!kind"|schema"))""")
"""First line of a recording; other programs write objects that begin with other keys, or with
nothing else."""
_RESULT = re.compile(
    r'\s*\{\s*"kind"\s*:\s*"(comparison|diagnosis|ranking|reports?|tune(?:_memory)?)"'
)
"""First lines of what a command prints with --json."""


@dataclass(slots=True)
class OpenedLog:
    """A file being read: a context manager. ``snapshots`` is used once; ``stats`` grows with it.

    Iterating raises ``LogError`` at its end if the file held no snapshot.
    """

    kind: str
    """``recording``, or a key of ``LOG_KINDS``."""
    snapshots: Iterator[Snapshot]
    stats: LogStats
    shown: str
    lines: TextLines

    def __enter__(self) -> OpenedLog:
        return self

    def __exit__(self, *_error: object) -> None:
        self.lines.close()


def open_any(
    path: str,
    options: LogOptions | None = None,
    *,
    begin: tuple[Path, int] | None = None,
    stream: BinaryIO | None = None,
) -> OpenedLog:
    """Open a recording or an ``nvidia-smi`` log, told by what is in it; ``-`` is standard input. A
    recording is read with the files that were put aside before it (``FileSet``).

    ``begin`` is a file and a place in it at which reading can begin (``RecordingIndex.place``);
    ``stream`` is read in the place of the file. Raises ``LogError`` with a sentence.
    """
    stats = LogStats()
    lines = TextLines(path, stats, LINE_LENGTH, begin=begin, stream=stream)
    try:
        source = iter(lines)
        first = _first_lines(source)
        _refuse_result("".join(first), lines.shown)
        every = chain(first, source)
        named = options is not None and options.columns is not None
        goes_on = begin is not None and not any(map(_stripped, first))
        if goes_on or (not named and first and _RECORDING.match(first[-1])):
            stats.kind = RECORDING
            snapshots = _read_recording(every, stats, lines, goes_on=begin is not None)
        else:
            # One who records reads no logs.
            from gpuwatch.sources.logs.source import LogOptions, read_lines  # noqa: PLC0415

            lines.line_length = log_text.LINE_LENGTH
            options = options or LogOptions()
            snapshots = read_lines(every, stats, options, shown=lines.shown, text=lines)
    except BaseException:
        lines.close()
        raise
    return OpenedLog(stats.kind, snapshots, stats, lines.shown, lines)


def _first_lines(source: Iterator[str]) -> list[str]:
    """Return the lines up to the first that is neither blank nor a brace alone."""
    found: list[str] = []
    for line in source:
        found.append(line)
        if _stripped(line) not in ("", "{") or len(found) >= _BLANK_LINES_MAX:
            break
    return found


def _refuse_result(text: str, shown: str) -> None:
    result = _RESULT.match(text)
    if result is not None:
        use = "gpuwatch report prints it" if result[1] == "report" else "read it with jq"
        raise LogError(
            f"{shown} is a result that gpuwatch printed ({result[1]}), not a recording or a log of "
            f"GPUs: name the file that it was made from, or {use}."
        )


def _stripped(line: str) -> str:
    return line.strip(" \t\ufeff\x00\r")


def _read_recording(
    lines: Iterable[str], stats: LogStats, text: TextLines, *, goes_on: bool
) -> Iterator[Snapshot]:
    """Read the snapshots of a stream, as they come. Raises ``LogError`` if there is none, unless
    this ``goes_on`` with one that had some."""
    decoder = Decoder()
    first_error: str | None = None
    for line in lines:
        body = _stripped(line)
        if not body:
            continue
        try:
            value = decoder.decode(body)
        except CodecError as error:
            first_error = first_error or str(error)
            # A line without its end is the last, and cut off.
            if text.terminated:
                stats.remark(str(error))
            else:
                stats.torn_lines += 1
            continue
        if isinstance(value, Snapshot):
            stats.snapshots += 1
            stats.interval_seconds = value.interval_seconds
            yield value
    if stats.snapshots == 0 and not goes_on:
        raise LogError(
            f"{text.shown} is a recording without a snapshot."
            if first_error is None
            else f"{text.shown} cannot be read. {first_error}"
        )


# --- the overview of a recording: lowest, mean and highest readings of half a minute each -----

BUCKET_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Half a minute (by the wall clock) of a machine. What was never read in it has no column; the
    busy share is that of the fine samples, where the driver has them."""

    begin_unix_seconds: UnixSeconds
    seconds: Seconds
    gpus: Mapping[GpuKey, Mapping[str, Column]]
    """Columns of each GPU by the names of its readings."""
    host: Mapping[str, Column]

    @property
    def end_unix_seconds(self) -> float:
        return self.begin_unix_seconds + self.seconds


_OPEN_MOST = 3
"""Half minutes to which the next part may still add: its cells begin a few seconds before it."""


class Overview:
    """Half minutes of a recording, from its parts."""

    def __init__(self) -> None:
        self._closed: list[Bucket] = []
        self._open: dict[float, dict[tuple[GpuKey | None, str], Stat]] = {}
        """Statistics of open half minutes by their begin: of each GPU, and (``None``) the host."""

    def add_part(self, part: Part) -> None:
        for gpu in part.gpus:
            self._add_courses(gpu.identity.uuid, gpu.profiles)
        if part.host is not None:
            self._add_courses(None, part.host.profiles)
        while len(self._open) > _OPEN_MOST:
            begin = min(self._open)
            self._closed.append(_bucket(begin, self._open.pop(begin)))

    def forget_oldest(self, most: float) -> None:
        """Keep the newest ``most``, by their number: a clock can be set back and forth."""
        if len(self._closed) > most:
            del self._closed[: len(self._closed) - int(most)]

    def buckets(self) -> tuple[Bucket, ...]:
        """Return the half minutes in the order of their time."""
        found = [*self._closed, *[_bucket(begin, rows) for begin, rows in self._open.items()]]
        return tuple(sorted(found, key=lambda bucket: bucket.begin_unix_seconds))

    def _add_courses(self, uuid: GpuKey | None, courses: Mapping[str, Course]) -> None:
        halves = self._open
        for name, course in courses.items():
            key = (uuid, name)
            # Hours of many GPUs have hundred thousands of cells.
            for middle, seconds, mean, low, high in course.middles():
                begin = middle // BUCKET_SECONDS * BUCKET_SECONDS
                rows = halves.get(begin)
                if rows is None:
                    rows = halves[begin] = {}
                stat = Stat(low, high, seconds * mean, seconds)
                held = rows.setdefault(key, stat)
                if held is not stat:
                    held.merge(stat)


def _bucket(begin: float, rows: Mapping[tuple[GpuKey | None, str], Stat]) -> Bucket:
    gpus: dict[GpuKey, dict[str, Column]] = {}
    host: dict[str, Column] = {}
    for (uuid, name), one in rows.items():
        columns = host if uuid is None else gpus.setdefault(uuid, {})
        column = one.column
        assert column is not None
        columns[name] = column
    return Bucket(begin_unix_seconds=begin, seconds=BUCKET_SECONDS, gpus=gpus, host=host)


class RecordingIndex:
    """A recording as far as it was written when it was opened. Raises ``LogError``.

    Its overview is in its entries; the moments after the last of them are read. A file without
    entries is read, and diagnosed, as a whole.
    """

    arriving = False
    progress = 1.0
    error: BaseException | None = None

    def __init__(self, path: str) -> None:
        if path == STANDARD_INPUT:
            raise LogError("Standard input can be read once only: it has no overview.")
        self.path = path
        self.shown = clean(path, 200)
        placed = list(entries_of(path))
        entries = [entry for _, _, entry in placed]
        parts = [entry.part for entry in entries if entry.part is not None]
        overview = Overview()
        for part in parts:
            overview.add_part(part)
        self._marks = marks_of(placed)
        self._ledger = ledger_of(entries)
        self._losses = list(_losses(entries))
        self._identities = {gpu.identity.uuid: gpu.identity for part in parts for gpu in part.gpus}
        known = [mark.begin_unix_seconds for mark in self._marks]
        self.first_unix_seconds = known[0] if known else None
        self.last_unix_seconds = max(known, default=None)
        self._notes: tuple[str, ...] = ()
        if entries and entries[-1].begin_unix_seconds is None:
            ends = [part.time.end for part in parts]
            self.last_unix_seconds = max([*ends, *known], default=None)
        else:
            self._read_end(overview)
        names = names_among(self._identities.values())
        self.findings = by_cause(self._ledger.episodes(), names)
        """Episodes of each cause, in the order in which they began."""
        self.buckets = overview.buckets()
        """Half minutes in the order of their time."""

    def notes(self) -> tuple[str, ...]:
        """Return sentences about what could not be read at its end."""
        return self._notes

    def place(self, unix_seconds: float) -> tuple[Path, int] | None:
        """Return where to begin to read for what was taken from ``unix_seconds`` on."""
        mark = mark_before(self._marks, unix_seconds)
        if mark is not None and not mark.is_there:
            self._marks = marks_of(list(entries_of(self.path)))
            mark = mark_before(self._marks, unix_seconds)
        return None if mark is None else (mark.file, mark.offset)

    def lost_before(self, unix_seconds: float) -> dict[EpisodeKey, Counted]:
        """Return what was lost to each finding before a moment, and for how long it was watched:
        within a minute in proportion."""
        found: dict[EpisodeKey, Counted] = {}
        for begin, end, key, seconds, watched in self._losses:
            if begin < unix_seconds:
                share = min(1.0, (unix_seconds - begin) / (end - begin)) if end > begin else 1.0
                before = found.get(key, Counted())
                found[key] = Counted(
                    before.cost + share * seconds,
                    before.watched + share * max(0.0, watched - before.watched),
                )
        return found

    def snapshots(self, from_unix_seconds: float) -> Iterator[Snapshot]:
        """Read from the last frame that begins at or before ``from_unix_seconds`` to the end.
        Raises ``LogError`` where the file is gone."""
        with open_any(self.path, begin=self.place(from_unix_seconds)) as log, suppress(LogError):
            yield from log.snapshots

    def close(self) -> None:
        """Do nothing: no file is open; iterators that ``snapshots`` gave go on."""

    def _read_end(self, overview: Overview) -> None:
        """Read what no entry has yet."""
        engine = None if self._marks else new_engine()
        statistics = Statistics(in_parts=True)
        last = self._marks[-1] if self._marks else None
        place = None if last is None else (last.file, last.offset)
        with open_any(self.path, begin=place) as log:
            for snapshot in log.snapshots:
                at = snapshot.taken_at_unix_seconds
                if self.first_unix_seconds is None:
                    self.first_unix_seconds = at
                self.last_unix_seconds = max(at, self.last_unix_seconds or at)
                if engine is not None:
                    engine.push(snapshot)
                    self._ledger = engine.ledger
                    self._identities |= {gpu.uuid: gpu.identity for gpu in snapshot.gpus}
                statistics.add_snapshot(snapshot)
                # A plain file is all end.
                if statistics.is_due(BUCKET_SECONDS):
                    overview.add_part(statistics.take_part())
        if statistics.grid is not None:
            overview.add_part(statistics.take_part())
        # A recording that is still written to is always cut off.
        self._notes = tuple(replace(log.stats, damage=None, notes=[]).sentences())


def _losses(
    entries: Iterable[Entry],
) -> Iterator[tuple[float, float, EpisodeKey, float, float]]:
    """Yield begin and end of a minute, and the GPU seconds that were lost in it to a finding, with
    those for which its job had been watched by then."""
    run, costs = "", CostsSoFar()
    for entry in entries:
        run, costs = entry.run, costs if entry.run == run else CostsSoFar()
        time = None if entry.part is None else entry.part.time
        at = entry.begin_unix_seconds or 0.0
        begin, end = (at, at) if time is None or time.begin is None else (time.begin, time.end)
        for one in entry.ledger.episodes:
            if (seconds := costs.added(one)) > 0.0:
                yield begin, end, one.key, seconds, one.watched_gpu_seconds or 0.0


def is_indexed(path: str) -> bool:
    """Whether ``record`` wrote the file, of which opening it reads no more than the last minute."""
    return path != STANDARD_INPUT and next(entries_of(path), None) is not None


def new_engine() -> Engine:
    """Return an engine; loading the rules takes a while."""
    from gpuwatch.diagnosis.engine import Engine  # noqa: PLC0415

    return Engine()


def ledger_of(entries: Iterable[Entry]) -> Ledger:
    """Return the ledger of a recording, as its entries say."""
    ledger = Ledger(newest=True)
    before: Entry | None = None
    last = 0.0
    for entry in entries:
        if before is not None and entry.run != before.run:
            # Another recording was appended: what held before, nobody saw end.
            ledger.finish(last)
        before = entry
        ledger.merge(entry.ledger)
        last = max(last, 0.0 if entry.part is None else entry.part.time.end)
    return ledger


# --- frames, and what sums them up ------------------------------------------------------------


class Frame(NamedTuple):
    """A frame of a recording, between the entries before and after it; or all frames that a total
    adds up, as one."""

    file: Path
    offset: int
    """Place of its entry; of several, that of the last."""
    begin_unix_seconds: float
    opening: Entry
    summed: Entry | None
    """The entry after it, which sums it up; of a frame in which the recording was cut off, what
    such an entry would have said. ``None``: nothing in it can be read."""
    stats: LogStats | None = None
    """How well its lines could be read, where they had to be."""


def frames_of(path: str, *, whole: bool = False) -> list[Frame]:
    """Return the frames of a recording in the order of the file: none of any other file. ``whole``:
    only all of it together is asked for, so that those of a total are one."""
    found: list[Frame] = []
    # A pipe is not opened to see.
    if Path(path).is_file():
        with suppress(OSError), closing(FileSet(path)) as files:
            for file in files:
                _add_frames(found, file, whole=whole)
    for place, frame in enumerate(found):
        if frame.summed is None:
            before = found[place - 1] if place else None
            until = found[place + 1].begin_unix_seconds if place + 1 < len(found) else math.inf
            found[place] = _summed(path, before, frame, until)
    return found


def _add_frames(found: list[Frame], file: BinaryIO, *, whole: bool) -> None:
    name, begin = Path(file.name), 0

    def add_until(end: float) -> None:
        for offset, entry in entries_in(file, _DECODER, begin=begin, end=end):
            if found and found[-1].summed is None and _sums_up(entry, found[-1]):
                found[-1] = found[-1]._replace(summed=entry)
            if entry.begin_unix_seconds is not None:
                found.append(Frame(name, offset, entry.begin_unix_seconds, entry, None))

    for offset, total in _totals_in(file) if whole else ():
        first = offset - total.first_bytes
        # With the entry of its first frame, which sums up the one before.
        add_until(first + 1)
        begin = first + 1
        if found and (found[-1].file, found[-1].offset) == (name, first):
            found[-1] = found[-1]._replace(offset=offset - total.last_bytes, summed=total.entry)
            begin = offset
    add_until(math.inf)


def _sums_up(entry: Entry, frame: Frame) -> bool:
    """Whether ``entry`` is about all of the frame: not if one between them is damaged."""
    begin = None if entry.part is None else entry.part.time.begin
    own = entry.run == frame.opening.run
    return own and begin is not None and begin <= frame.begin_unix_seconds


def _summed(path: str, before: Frame | None, frame: Frame, until: float) -> Frame:
    """Sum up a frame by its lines; those of the frame ``before`` show what held already."""
    engine, statistics = new_engine(), Statistics(in_parts=True)
    begin, lost = frame.begin_unix_seconds, None
    first = before if before is not None and before.opening.run == frame.opening.run else frame
    with open_any(path, begin=(first.file, first.offset)) as log:
        for snapshot in log.snapshots:
            at = snapshot.taken_at_unix_seconds
            if at >= until:
                break
            if at >= begin and lost is None:
                # As the entry before was written: with what could wait, up to this frame.
                engine.finish()
                lost = _lost(engine.ledger)
                if statistics.grid is not None:
                    statistics.take_part()
            engine.push(snapshot)
            statistics.add_snapshot(snapshot)
    if lost is None:
        return frame._replace(stats=log.stats)
    engine.finish()
    page = engine.ledger.page(begin)
    entry = Entry(
        # As if another run went on with it: what it continues is counted apart.
        run=f"{frame.opening.run} to its end",
        part=statistics.take_part(last=True),
        ledger=Page(
            episodes=tuple([_from(one, begin, lost) for one in page.episodes]),
            undecided=page.undecided,
            pauses=page.pauses,
        ),
        unknown=engine.diagnosis.unknown,
    )
    return frame._replace(summed=entry, stats=log.stats)


_Lost = dict[tuple[EpisodeKey, float], float]
"""GPU seconds lost in each episode, by its key and its beginning."""


def _lost(ledger: Ledger) -> _Lost:
    episodes = ledger.episodes()
    return {(one.key, one.begin_unix_seconds): one.cost_gpu_seconds or 0.0 for one in episodes}


def _from(one: Episode, begin: float, lost: _Lost) -> Episode:
    """Cut off what an episode was, and lost, before it is to ``begin``."""
    cost = one.cost_gpu_seconds
    if cost is not None:
        cost = max(0.0, cost - lost.get((one.key, one.begin_unix_seconds), 0.0))
    return msgspec.structs.replace(
        one, begin_unix_seconds=max(begin, one.begin_unix_seconds), cost_gpu_seconds=cost
    )


def ledger_between(frames: Sequence[Frame], begin: float | None, end: float | None) -> Page:
    """Return what the ledger of a recording says of a part of its time, with what was lost in that
    part (within a minute in proportion)."""
    first, last = frames[0].begin_unix_seconds if begin is None else begin, end or math.inf
    before = _lost_by(frames, first)
    until = _lost_by(frames, last)
    page = ledger_of(_entries_until(frames, last)).page(first)
    episodes = []
    for one in page.episodes:
        cost, key = one.cost_gpu_seconds, (one.key, one.begin_unix_seconds)
        if cost is not None:
            cost = max(0.0, until.get(key, 0.0) - before.get(key, 0.0))
        if one.begin_unix_seconds <= last:
            episodes.append(msgspec.structs.replace(one, cost_gpu_seconds=cost))
    return Page(
        episodes=tuple(episodes),
        undecided=tuple([one for one in page.undecided if one.begin_unix_seconds <= last]),
        pauses=tuple([one for one in page.pauses if one.at_unix_seconds <= last]),
    )


def _entries_until(frames: Sequence[Frame], at: float) -> list[Entry]:
    """Return the entries that say what was found in the frames that begin by then, after what was
    found before the first."""
    passed = [frame for frame in frames if frame.begin_unix_seconds <= at]
    return [frames[0].opening, *[one.summed for one in passed if one.summed is not None]]


def _lost_by(frames: Sequence[Frame], at: float) -> _Lost:
    """Return what was lost in each episode by then."""
    entries = _entries_until(frames, at)
    lost = _lost(ledger_of(entries))
    edge = entries[-1]
    if edge.part is None or edge.part.time.begin is None or edge.part.time.end <= at:
        return lost
    earlier = _lost(ledger_of(entries[:-1]))
    begin = edge.part.time.begin
    share = min(1.0, max(0.0, (at - begin) / (edge.part.time.end - begin)))
    return {key: earlier.get(key, 0.0) * (1.0 - share) + share * x for key, x in lost.items()}
