"""The layout of a recording: zstd frames of a minute each, and between them what sums them up.

A frame holds the very lines that ``gpuwatch stream`` prints: a header, then snapshots. Before each
stands a skippable frame, which ``zstdcat`` and other readers pass over, with an ``Entry``: when the
frame begins, and the half minutes and findings that were over by then. So a recording can be
opened anywhere, and its overview drawn, without unpacking its lines.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec import Struct
from msgspec.json import Decoder, Encoder

from gpuwatch.core.bounds import Text, UnixSeconds
from gpuwatch.core.codec import CodecError, decoded, safe
from gpuwatch.recording.buckets import Bucket, FindingSpan
from gpuwatch.sources.files import zstd
from gpuwatch.sources.files.unpacked import ZSTD, FileSet

ENTRY = b"\x50\x2a\x4d\x18"
"""A skippable frame begins so; its length follows."""
_LENGTH_BYTES = 4
_ENTRY_MOST = 256 * 1024
_UNPACKED_MOST = 4 * 1024 * 1024
_UNPACKED_A_BYTE = 100
"""All entries together, a byte of the file: many times what ``record`` writes. Rubbish that was
made to look like entries would take hours."""
_CHUNK_BYTES = 4 * 1024 * 1024
_LEVEL = 6
"""Of compression: 9 takes half as much time again and a fifteenth less room."""
_WINDOW_LOG = 20
"""Some snapshots of a large machine: what has not changed since is found in them."""
_encode = Encoder().encode


class Entry(Struct, frozen=True, kw_only=True):
    """The text of the skippable frame before a frame."""

    run: Text
    """Tells recordings in one file apart."""
    begin_unix_seconds: UnixSeconds | None = None
    """When the first snapshot of the frame was taken; ``None``: the recording ends here."""
    buckets: tuple[Bucket, ...] = ()
    findings: tuple[FindingSpan, ...] = ()
    """Those that hold, and those that ended since the entry before."""


class Mark(NamedTuple):
    """A place where reading can begin."""

    unix_seconds: float
    file: Path
    offset: int
    begin_unix_seconds: float
    """As its entry has it; ``unix_seconds`` never goes back."""

    @property
    def is_there(self) -> bool:
        """False once the file was put aside, and another has its name."""
        with suppress(OSError), self.file.open("rb", buffering=0) as file:
            entry = _entry(_text_at(file.fileno(), self.offset))
            return entry is not None and entry.begin_unix_seconds == self.begin_unix_seconds
        return False


_DECODER = Decoder(Entry)


def compressor() -> zstd.ZstdCompressor:
    """For one frame. Without a checksum, so that a frame that was torn off can be ended later."""
    parameter = zstd.CompressionParameter
    return zstd.ZstdCompressor(
        options={parameter.compression_level: _LEVEL, parameter.window_log: _WINDOW_LOG}
    )


def packed_entry(entry: Entry) -> bytes:
    data = zstd.compress(_encode(entry))
    return ENTRY + len(data).to_bytes(_LENGTH_BYTES, "little") + data


def frame_end(tail: bytes) -> bytes:
    """The bytes that end the last frame of a file that ends with ``tail``: none where it is ended,
    or torn off within a block (which no reader can use)."""
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
    """All that can be read of a recording, with the file and place of each: none of any other
    file."""
    # A pipe is not opened to see.
    if Path(path).is_file():
        with suppress(OSError), closing(FileSet(path)) as files:
            for file in files:
                for offset, entry in _entries(file):
                    yield Path(file.name), offset, entry


def _entries(file: BinaryIO) -> Iterator[tuple[int, Entry]]:
    descriptor, at = file.fileno(), 0
    if os.pread(descriptor, len(ENTRY), 0) != ENTRY:
        return
    left = _UNPACKED_A_BYTE * os.fstat(descriptor).st_size + _UNPACKED_MOST
    while left > 0 and (data := os.pread(descriptor, _CHUNK_BYTES, at)):
        place = -1
        while left > 0 and (place := data.find(ENTRY, place + 1)) >= 0:
            text = _text_at(descriptor, at + place)
            left -= len(text)
            entry = _entry(text)
            if entry is not None:
                yield at + place, entry
        at += max(1, len(data) - len(ENTRY) + 1) if len(data) == _CHUNK_BYTES else len(data)


def _text_at(descriptor: int, offset: int) -> bytes:
    """The text of an entry; none where none stands at ``offset``."""
    head = os.pread(descriptor, len(ENTRY) + _LENGTH_BYTES, offset)
    size = int.from_bytes(head[len(ENTRY) :], "little")
    if not head.startswith(ENTRY) or size > _ENTRY_MOST:
        return b""
    data = os.pread(descriptor, size, offset + len(head))
    try:
        return zstd.ZstdDecompressor().decompress(data, _UNPACKED_MOST)
    except zstd.ZstdError:
        return b""


def _entry(text: bytes) -> Entry | None:
    try:
        return decoded(_DECODER, safe(text.decode())) if text else None
    except (CodecError, UnicodeError):
        return None


def marks_of(entries: Sequence[tuple[Path, int, Entry]]) -> list[Mark]:
    """In the order of the file. Their times never go back, so that a clock that was set back hides
    nothing before it."""
    marks: list[Mark] = []
    for file, offset, entry in entries:
        at = entry.begin_unix_seconds
        if at is not None:
            latest = max(at, marks[-1].unix_seconds) if marks else at
            marks.append(Mark(latest, file, offset, at))
    return marks


def mark_before(marks: Sequence[Mark], unix_seconds: float) -> Mark | None:
    """The last place at or before a moment, else the first."""
    times = [mark.unix_seconds for mark in marks]
    return marks[place_before(times, unix_seconds)] if marks else None


def place_before(times: Sequence[float], at: float) -> int:
    """The place of the last of ``times`` at or before ``at``, else of the first; of those that a
    clock that was set back makes one time of, the first."""
    place = max(0, bisect_right(times, at) - 1)
    return bisect_left(times, times[place]) if times else 0
