"""Files as plain bytes: gzip and zstd unpacked, damage passed over, several files of one recording
read as one.

``record --rotate`` puts files aside under the recording's name with a time in it. They are whole
recordings, and one after another they are the recording that was asked for.

A packed file is frames (zstd) or members (gzip), one after another. ``record`` begins one a minute,
so a torn end that something was appended to, or a bad block of a disk, costs no more than that.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gpuwatch.sources.files import zstd

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

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
    """A name and its ending: ``run`` and ``.jsonl.zst``."""
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
    """``plain``, ``gzip`` or ``zstd``, by how a file begins."""
    if data.startswith(GZIP):
        return "gzip"
    return "zstd" if data.startswith(ZSTD) or _SKIPPABLE.match(data) else "plain"


def _decompressor(data: bytes) -> _Gunzip | zstd.ZstdDecompressor | None:
    """For a frame that ``data`` begins with, if it begins with one."""
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
        """All that can be unpacked of the frames of one file."""
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
        """More of a frame, none at the end of the file. Raises ``zlib.error`` where another begins:
        the one before was torn off there."""
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
        """Where in the input a frame begins that is not a part of another."""
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
            # Those of ``record``; any other is part of what is passed over.
            return data[8:12] == ZSTD
        frame = _decompressor(data)
        try:
            out = b"" if frame is None else frame.decompress(data, _PROBE)
        except (zlib.error, zstd.ZstdError):
            return False
        return out.startswith(self._begins)

    def _find_next(self) -> bool:
        """Pass over what cannot be read, up to a frame that can."""
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
        """From ``begin`` on. One that was removed meanwhile (the oldest) is passed over."""
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
