"""Finding one's way in a recording without reading all of it.

``record`` begins anew about once a minute: a header line, then the bucket and finding lines since
the one before, then a whole snapshot (in gzip at the beginning of a member). So the places where
reading can begin are found by their first bytes, and the overview without unpacking the rest.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from gpuwatch.core import json_values
from gpuwatch.core.codec.snapshots import loads
from gpuwatch.core.json_values import CodecError, Json
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.recording.reader import LINE_LENGTH, read_recording
from gpuwatch.sources.files.file_set import open_set, read_at, size_of
from gpuwatch.sources.files.gzip_members import MAGIC, GzipMembers
from gpuwatch.sources.files.log_text import DAMAGE, LogError, LogStats, why

_MEMBER = MAGIC + b"\0\0\0\0\0"
"""How ``record`` begins a member: no name, no time."""
_HEADER = b'{"kind":"header"'
_HEAD_ENDS = re.compile(rb'\n\{"kind":"(?:snapshot|delta|header)"')
_HEAD_BYTES_MOST = 4 * 1024 * 1024
_HEAD_BYTES_A_BYTE = 100
"""Unpacked for heads, a byte of the file: several times what any recording takes. Rubbish that was
made to look like heads, each within the one before, would take hours."""
_STEP_BYTES = 16 * 1024
_CHUNK_BYTES = 4 * 1024 * 1024
_WINDOW_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Head:
    """A place where reading can begin, and what stands there before the snapshot."""

    offset: int
    header: Json
    lines: tuple[Json, ...]
    """Buckets and findings since the head before."""
    keyed: bool = True
    """A whole snapshot follows; none where the recording ends with this."""

    @property
    def started_at_unix_seconds(self) -> float | None:
        try:
            return json_values.moment(self.header.get("started_at_unix_seconds"), "header")
        except CodecError:
            return None

    @property
    def recording(self) -> Json | None:
        """What only ``record`` writes: ``bucket_seconds``, ``run``, ``redacted``."""
        found = self.header.get("recording")
        return found if isinstance(found, dict) else None


class RecordingFileReader:
    """A file opened to be read here and there. Raises ``LogError`` where that cannot be."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.shown = clean(path, 200)
        self._head_bytes = 0
        try:
            self._file = open_set(path)
            self.size = size_of(self._file)
            self.packed = read_at(self._file, len(MAGIC), 0) == MAGIC
        except OSError as error:
            raise LogError(f"{self.shown} cannot be read: {why(error)}.") from None
        except ValueError:
            raise LogError(f"{self.shown} cannot be read: no file has such a name.") from None

    def close(self) -> None:
        self._file.close()

    def starts(self, begin: int, end: int) -> Iterator[int]:
        """The places between ``begin`` and ``end`` that look like heads, in order."""
        mark = _MEMBER if self.packed else b"\n" + _HEADER
        skip = 0 if self.packed else 1
        if not self.packed and begin == 0 and self._read(0, len(_HEADER)) == _HEADER:
            yield 0
        at = max(0, begin - skip)
        while at < end:
            data = self._read(at, _CHUNK_BYTES)
            place = data.find(mark)
            while place >= 0 and at + place + skip < end:
                yield at + place + skip
                place = data.find(mark, place + 1)
            if len(data) < _CHUNK_BYTES:
                return
            at += len(data) - len(mark) + 1

    def head(self, offset: int) -> Head | None:
        """What stands at ``offset``, if that is a head that can be read."""
        if self._head_bytes > _HEAD_BYTES_A_BYTE * self.size + _HEAD_BYTES_MOST:
            return None
        text = self._head_text(offset)
        self._head_bytes += len(text)
        if not text.startswith(_HEADER):
            return None
        end = _HEAD_ENDS.search(text)
        whole = text[: end.start()] if end else text[: text.rfind(b"\n") + 1]
        values = []
        for line in whole.splitlines():
            try:
                values.append(loads(line.decode("utf-8", "replace")))
            except CodecError:
                continue
        if not values or values[0].get("kind") != "header":
            return None
        keyed = end is not None and end[0].endswith(b'"snapshot"')
        return Head(offset, values[0], tuple(values[1:]), keyed)

    def last_head(self) -> Head | None:
        """The last that can be read, with a snapshot or without."""
        for head in self._backwards():
            return head
        return None

    def head_before(self, unix_seconds: float) -> Head | None:
        """The last head with a snapshot that is not later than ``unix_seconds``, else the first."""
        earliest = None
        for head in self._backwards():
            if not head.keyed:
                continue
            earliest = head
            at = head.started_at_unix_seconds
            if at is not None and at <= unix_seconds:
                return head
        return earliest

    def _backwards(self) -> Iterator[Head]:
        """The heads from the last to the first."""
        end, window = self.size, _WINDOW_BYTES
        while end > 0:
            begin = max(0, end - window)
            for offset in reversed(list(self.starts(begin, end))):
                head = self.head(offset)
                if head is not None:
                    yield head
            end, window = begin, min(2 * window, 64 * _WINDOW_BYTES)

    def _head_text(self, offset: int) -> bytes:
        text = bytearray()
        member = zlib.decompressobj(31) if self.packed else None
        at = offset
        while len(text) < _HEAD_BYTES_MOST:
            data = self._read(at, _STEP_BYTES)
            at += len(data)
            if not data:
                break
            searched = max(0, len(text) - 32)
            if member is None:
                text += data
            else:
                try:
                    text += member.decompress(data, _HEAD_BYTES_MOST)
                except zlib.error:
                    break
            if _HEAD_ENDS.search(text, searched) or (member is not None and member.eof):
                break
        return bytes(text)

    def _read(self, offset: int, count: int) -> bytes:
        try:
            return read_at(self._file, count, offset)
        except OSError:
            return b""

    @contextmanager
    def lines(self, offset: int = 0) -> Iterator[Lines]:
        """The lines from ``offset`` on (a head's, in a gzip file)."""
        with (
            open_set(self.path) as raw,
            BufferedReader(cast("RawIOBase", raw), _STEP_BYTES) as file,
        ):
            file.seek(offset)
            if not self.packed:
                yield Lines(file, offset)
                return
            with GzipMembers(file) as members, BufferedReader(members, 256 * 1024) as unpacked:
                yield Lines(unpacked, None)

    def snapshots(
        self, offset: int = 0, before: Iterable[str] = (), stats: LogStats | None = None
    ) -> Iterator[Snapshot]:
        """Those from ``offset`` on; ``before`` are lines (a header) to be read first. None where
        none can be read."""
        with self.lines(offset) as lines:
            try:
                yield from read_recording(chain(before, lines), stats or LogStats())
            except LogError:
                return


class Lines:
    """Lines as text; what is damaged or too long ends or leaves them out."""

    def __init__(self, file: BinaryIO | BufferedReader, offset: int | None) -> None:
        self._file = file
        self.next_offset = offset
        """Behind the line given last; ``None`` in a gzip file."""
        self.offset = offset
        """Of the line given last."""
        self.damaged = False

    def __iter__(self) -> Iterator[str]:
        while True:
            try:
                line = self._file.readline(LINE_LENGTH)
            except (*DAMAGE, OSError):
                self.damaged = True
                return
            if not line.endswith(b"\n"):
                # Cut off, still being written, or endless.
                return
            self.offset = self.next_offset
            if self.next_offset is not None:
                self.next_offset += len(line)
            yield line.decode("utf-8", "replace").rstrip("\r\n")


def recent_snapshots(path: str | Path, seconds: float) -> Iterator[Snapshot]:
    """The snapshots of the last ``seconds`` of a recording that may still be written to, oldest
    first; only its end is read. From files that ``--rotate`` put aside too.

    Yields nothing where nothing can be read.
    """
    try:
        reader = RecordingFileReader(str(path))
    except LogError:
        return
    try:
        last = reader.last_head()
        newest = None if last is None else last.started_at_unix_seconds
        head = None if newest is None else reader.head_before(newest - seconds)
    finally:
        reader.close()
    if head is None or newest is None:
        return
    for snapshot in reader.snapshots(head.offset):
        if snapshot.taken_at_unix_seconds >= newest - seconds:
            yield snapshot


def ends_of(path: str) -> tuple[float | None, float | None]:
    """When the first and the last snapshot of a recording of ``record`` were taken; ``None`` of
    anything else, and where that cannot be told without reading it."""
    try:
        reader = RecordingFileReader(path)
    except LogError:
        return None, None
    try:
        head = reader.head(0)
        if head is None or head.recording is None:
            return None, None
        last_head = reader.head_before(math.inf)
        last = None
        if last_head is not None and last_head.recording is not None:
            for snapshot in reader.snapshots(last_head.offset):
                last = snapshot.taken_at_unix_seconds
        return head.started_at_unix_seconds, last
    finally:
        reader.close()


def place_of(path: str, unix_seconds: float) -> int:
    """Where to begin to read a recording of ``record`` for what was taken from ``unix_seconds``
    on; 0 where its clock was set back, so that places do not tell times."""
    try:
        reader = RecordingFileReader(path)
    except LogError:
        return 0
    try:
        place, before = 0, -math.inf
        for offset in reader.starts(0, reader.size):
            head = reader.head(offset)
            at = None if head is None else head.started_at_unix_seconds
            if head is None or at is None or not head.keyed:
                continue
            if at < before:
                return 0
            before = at
            if at <= unix_seconds:
                place = offset
        return place
    finally:
        reader.close()
