"""Unpacks a gzip file that may be damaged: goes on at the next member that can be read.

A gzip file is members one after another. ``record`` begins one a minute, so a torn end that
something was appended to, or a bad block of a disk, costs no more than that.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC = b"\x1f\x8b\x08"
RECORDING_BEGINS = b'{"kind":"header"'
_CHUNK = 64 * 1024
_OUT = 256 * 1024
_RECENT = 256 * 1024
"""What of a member is looked through again once it turns out to be damaged: what is wrong shows
only some way behind the place."""
_GONE_BACK_MOST = 4
"""Times what was read: a torn member is gone through again once. More is what somebody made to
look like members within members, each of which would be gone through again."""
_PROBE = 4096
_BEGINS_LENGTH = 8


class GzipMembers(io.RawIOBase):
    """What ``raw`` holds, unpacked. Where something was passed over stands a line end.

    Raises ``EOFError`` at the end of a file that is cut off, and ``gzip.BadGzipFile`` where it is
    damaged and nothing follows that can be read, both after all that could be.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self.stretches = 0
        """Places that were passed over, and the bytes in them (packed)."""
        self.skipped_bytes = 0
        self._raw = raw
        self._read_bytes = self._gone_back_bytes = 0
        self._input = b""
        self._recent = b""
        self._out = b""
        self._member: zlib._Decompress | None = None
        self._begins = RECORDING_BEGINS
        self._began = False
        self._error: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if not self._out:
            self._out = self._more()
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._out))
        view[:count] = self._out[:count]
        self._out = self._out[count:]
        return count

    def _more(self) -> bytes:
        """The next bytes; none at the end."""
        while True:
            if self._error is not None:
                raise self._error
            if not self._input and not self._read():
                return self._end()
            if self._member is None and not self._begin():
                continue
            assert self._member is not None
            given, before = self._input, self._member.copy()
            try:
                out = self._member.decompress(given, _OUT)
            except zlib.error:
                out, taken = _salvage(before, given)
                self._resync(self._from_damage(given, taken))
                return out + b"\n"
            left = self._member.unconsumed_tail
            if self._member.eof:
                left, self._member = self._member.unused_data, None
                self._recent = b""
            else:
                self._recent = (self._recent + given[: len(given) - len(left)])[-_RECENT:]
            self._input = left
            if out:
                if not self._began:
                    self._begins, self._began = out[:_BEGINS_LENGTH], True
                return out

    def _from_damage(self, given: bytes, taken: int) -> bytes:
        """Where to look for the next member: what was passed on the way to the place that is
        damaged can hold one, too."""
        self._gone_back_bytes += len(self._recent) + taken
        if self._gone_back_bytes > _GONE_BACK_MOST * self._read_bytes + _RECENT:
            return given[max(1, taken) :]
        # Less the beginning of the damaged member, which would be found again.
        return (self._recent + given)[1:]

    def _read(self) -> bool:
        more = self._raw.read1(_CHUNK) if hasattr(self._raw, "read1") else self._raw.read(_CHUNK)
        self._input += more
        self._read_bytes += len(more)
        return bool(more)

    def _end(self) -> bytes:
        if self._member is None:
            return b""
        self._error = EOFError("the file is cut off")
        out = self._member.flush()
        if out:
            return out
        raise self._error

    def _begin(self) -> bool:
        """Start the member that the input begins with; padding is passed over."""
        self._input = self._input.lstrip(b"\0")
        while 0 < len(self._input) < len(MAGIC) and self._read():
            pass
        if not self._input:
            return False
        if self._input.startswith(MAGIC) or not self._began:
            self._member = zlib.decompressobj(31)
            return True
        self._resync(self._input)
        return False

    def _resync(self, data: bytes) -> None:
        """Pass over what cannot be read, up to something that can."""
        self._member, self._recent, self._input = None, b"", data
        self.stretches += 1
        place = 0
        while True:
            if place > _CHUNK:
                self.skipped_bytes += place
                self._input, place = self._input[place:], 0
            place = self._input.find(MAGIC, place)
            if place < 0:
                kept = self._input[-len(MAGIC) + 1 :]
                self.skipped_bytes += len(self._input) - len(kept)
                self._input, place = kept, 0
                if not self._read():
                    self.skipped_bytes += len(kept)
                    self._input = b""
                    self._error = gzip.BadGzipFile("the compressed data is damaged")
                    return
                continue
            while len(self._input) - place < _PROBE and self._read():
                pass
            if self._can_begin(self._input[place : place + _CHUNK]):
                self.skipped_bytes += place
                self._input = self._input[place:]
                return
            place += 1

    def _can_begin(self, data: bytes) -> bool:
        try:
            out = zlib.decompressobj(31).decompress(data, _PROBE)
        except zlib.error:
            return False
        return out.startswith(self._begins)


def _salvage(member: zlib._Decompress, data: bytes) -> tuple[bytes, int]:
    """What ``member`` gives before the place in ``data`` at which it fails, and that place."""
    out = bytearray()
    step, place = 1024, 0
    while place < len(data):
        before = member.copy() if step > 1 else member
        try:
            out += member.decompress(data[place : place + step])
        except zlib.error:
            if step == 1:
                break
            member, step = before, 1
            continue
        place += step
    return bytes(out), min(place, len(data))
