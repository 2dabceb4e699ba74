"""Finding one's way in a recording without reading all of it.

``record`` begins anew about once a minute: a header line, then the bucket and finding lines since
the one before, then a whole snapshot (in gzip at the beginning of a member). So the places where
reading can begin are found by their first bytes, and the overview without unpacking the rest.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from gpuwatch.codec import loads
from gpuwatch.json_values import CodecError, Json
from gpuwatch.model import Snapshot
from gpuwatch.sources.gzip_members import MAGIC, GzipMembers
from gpuwatch.sources.log_text import DAMAGE, LogError, LogStats, why
from gpuwatch.sources.recording import LINE_LENGTH, read_recording
from gpuwatch.text import clean

_MEMBER = MAGIC + b"\0\0\0\0\0"
"""How ``record`` begins a member: no name, no time."""
_HEADER = b'{"kind":"header"'
_HEAD_ENDS = re.compile(rb'\n\{"kind":"(?:snapshot|delta|header)"')
_HEAD_BYTES_MOST = 4 * 1024 * 1024
_STEP_BYTES = 16 * 1024
_CHUNK_BYTES = 4 * 1024 * 1024
_WINDOW_BYTES = 1024 * 1024

_STAMP = r"\.\d{8}T\d{6}Z(?:-\d+)?"
_ENDING = re.compile(r"(?:\.jsonl|\.json)?(?:\.gz)?$")


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
        at = self.header.get("started_at_unix_seconds")
        return float(at) if isinstance(at, int | float) and not isinstance(at, bool) else None

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
        try:
            self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - until close
            self.size = os.fstat(self._file.fileno()).st_size
            self.packed = os.pread(self._file.fileno(), len(MAGIC), 0) == MAGIC
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
        text = self._head_text(offset)
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
            return os.pread(self._file.fileno(), count, offset)
        except OSError:
            return b""

    @contextmanager
    def lines(self, offset: int = 0) -> Iterator[Lines]:
        """The lines from ``offset`` on (a head's, in a gzip file)."""
        with Path(self.path).open("rb") as file:
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


# --- sets of files -----------------------------------------------------------------------------


def split_name(name: str) -> tuple[str, str]:
    """A name and its ending: ``run`` and ``.jsonl.gz``."""
    found = _ENDING.search(name)
    place = len(name) if found is None else found.start()
    return name[:place], name[place:]


def rotated_files(path: Path) -> list[Path]:
    """The files that ``--rotate`` has put aside for ``path``, the oldest first."""
    stem, ending = split_name(path.name)
    wanted = re.compile(re.escape(stem) + _STAMP + re.escape(ending))
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return []
    return [path.parent / name for name in names if wanted.fullmatch(name)]


def recent_snapshots(path: str | Path, seconds: float) -> Iterator[Snapshot]:
    """The snapshots of the last ``seconds`` of a recording that may still be written to, oldest
    first; only its end is read. From files that ``--rotate`` put aside too.

    Yields nothing where nothing can be read.
    """
    newest, parts = None, []
    for file in [Path(path), *reversed(rotated_files(Path(path)))]:
        try:
            reader = RecordingFileReader(str(file))
        except LogError:
            continue
        last = reader.last_head()
        at = None if last is None else last.started_at_unix_seconds
        newest = at if newest is None else newest
        if newest is None:
            reader.close()
            continue
        head = reader.head_before(newest - seconds)
        reader.close()
        if head is None:
            continue
        parts.append((reader, head.offset))
        begin = head.started_at_unix_seconds
        if begin is not None and begin <= newest - seconds:
            break
    for reader, offset in reversed(parts):
        for snapshot in reader.snapshots(offset):
            if newest is None or snapshot.taken_at_unix_seconds >= newest - seconds:
                yield snapshot
