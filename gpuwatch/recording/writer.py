"""The file that a recording is written to: append only, and good up to the last few seconds
whatever ends the writing. One recorder at a time: it holds a lock (flock(2)) while it writes.

Text is compressed in gzip members, one a key frame, and written in whole blocks (``Z_SYNC_FLUSH``),
in the order in which it came. What a full disk does not take is kept and tried again, so the file
has no hole in it: it is the recorder that leaves snapshots out meanwhile (see ``stuck``). A member
that a crash left open is closed where that can be done by appending, so that ``zcat`` reads on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from gpuwatch.core.text import clean
from gpuwatch.sources.files.gzip_members import MAGIC

LEVEL = 9
"""Of compression: 6 takes half the time (0.3 ms a second) and a twentieth more room."""
FLUSH_SECONDS = 3.0
SYNC_SECONDS = 10.0
_BUFFER_BYTES = 256 * 1024
_TAIL_BYTES = 8 * 1024 * 1024
"""In which the beginning of an open member is looked for."""
_GZIP = 31
_MEMBER = MAGIC + b"\0\0\0\0\0"

_SENTENCES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "the largest file size allowed (ulimit -f) is reached",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "you may not write there",
    errno.EPERM: "you may not write there",
    errno.ENOENT: "there is no such folder",
    errno.ENOTDIR: "a part of its name is no folder",
    errno.EISDIR: "it is a folder",
    errno.ENAMETOOLONG: "its name is too long",
    errno.EIO: "the disk reports an error",
    errno.ELOOP: "it is a symbolic link, which is not followed",
    errno.ESTALE: "the network file system has lost it",
}


class RecordingError(Exception):
    """The file cannot be recorded to; the message is a sentence."""


def why(error: OSError) -> str:
    """As a clause."""
    return _SENTENCES.get(error.errno or 0) or clean(str(error.strerror or error), 100)


class RecordingFile:
    """Opens (or makes, readable by the owner alone) ``path``; gzip by ending.

    Raises ``RecordingError`` where that cannot be done, or the file holds something else.
    ``write`` and ``begin`` raise nothing for what a disk can do: see ``trouble``.
    """

    def __init__(
        self,
        path: Path,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.path = path
        self.packed = path.name.endswith(".gz")
        self.written_bytes = 0
        """That this has added to the file (packed)."""
        self.trouble: OSError | None = None
        """Why the last attempt to write did not succeed."""
        self._monotonic = monotonic
        self._write = write
        self._member: zlib._Compress | None = None
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
    def stuck(self) -> bool:
        """Something was not taken by the disk, and waits."""
        return self.trouble is not None

    def begin(self, text: str) -> None:
        """End the member before, and begin one with ``text``."""
        self._end_member()
        if self.packed:
            self._member = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
        self.write(text)
        self.flush()

    def write(self, text: str) -> None:
        """Add ``text``: it is in the file after ``FLUSH_SECONDS`` at most, as long as something
        is written."""
        data = text.encode("utf-8", "replace")
        self._pending += data if self._member is None else self._member.compress(data)
        self._unflushed = self._member is not None
        if self._monotonic() - self._flushed_at >= FLUSH_SECONDS or self._member is None:
            self.flush()
        elif len(self._pending) > _BUFFER_BYTES:
            self._put()

    def flush(self) -> None:
        """All that was written can be read from now on, if the machine goes on."""
        if self._member is not None and self._unflushed:
            self._pending += self._member.flush(zlib.Z_SYNC_FLUSH)
            self._unflushed = False
        self._flushed_at = self._monotonic()
        self._put()
        if self._flushed_at - self._synced_at >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Also if the machine does not."""
        self._synced_at = self._monotonic()
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # A file system without it has none to offer.
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
                self.trouble = self.trouble or error

    def retry(self) -> bool:
        """Try again what was not taken; whether all is written now."""
        self._put()
        return not self.stuck

    def fate(self) -> str | None:
        """``moved`` or ``deleted`` where the file no longer has its name, else ``None``."""
        own = os.fstat(self._descriptor)
        try:
            if os.path.samestat(self.path.lstat(), own):
                return None
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            # Whether it is there cannot be seen: writing tells what is the matter.
            return None
        return "moved" if own.st_nlink else "deleted"

    def close(self) -> None:
        """End it well, as far as the disk takes it."""
        self._end_member()
        self._put()
        with contextlib.suppress(OSError):
            os.fsync(self._descriptor)
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _end_member(self) -> None:
        if self._member is not None:
            self._pending += self._member.flush(zlib.Z_FINISH)
            self._member, self._unflushed = None, False

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
        """The file, locked. Only one of this user: another could read on in theirs, or plant it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        shown = clean(str(self.path), 200)
        try:
            descriptor = os.open(self.path, flags | os.O_NOFOLLOW, 0o600)
        except (OSError, ValueError) as error:
            reason = why(error) if isinstance(error, OSError) else "no file has such a name"
            raise RecordingError(f"{shown} cannot be written: {reason}.") from None
        try:
            self._claim(descriptor, shown)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @staticmethod
    def _claim(descriptor: int, shown: str) -> None:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise RecordingError(
                f"{shown} is no file to record to: for a pipe there is gpuwatch stream."
            )
        if found.st_uid != os.geteuid():
            raise RecordingError(f"{shown} belongs to another user: choose another name.")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(found)
            who = "Another process" if holder is None else f"Process {holder}"
            end = "" if holder is None else f", or end it with gpuwatch record --stop {holder}"
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
        first = os.pread(self._descriptor, 4096, 0)
        packed = first.startswith(MAGIC)
        if packed:
            with contextlib.suppress(zlib.error):
                first = zlib.decompressobj(_GZIP).decompress(first, 256)
        # A crash within the first moments leaves no line to know it by.
        if first[:5] not in (b'{"kin', b'{ "ki') and not (packed and first.startswith(MAGIC)):
            raise RecordingError(
                f"{shown} is there and is no recording: choose another name, or remove it."
            )
        if packed != self.packed:
            kinds = ("a plain", "a gzip") if packed else ("a gzip", "a plain")
            raise RecordingError(
                f"{shown} would become {kinds[0]} file by its name, and is {kinds[1]} file: choose "
                "another name."
            )
        if packed:
            self._close_open_member(size)
        elif os.pread(self._descriptor, 1, size - 1) != b"\n":
            self._pending += b"\n"

    def _close_open_member(self, size: int) -> None:
        begin = max(0, size - _TAIL_BYTES)
        tail = os.pread(self._descriptor, size - begin, begin)
        place = tail.rfind(_MEMBER)
        if place < 0:
            return
        member = zlib.decompressobj(_GZIP)
        crc = length = 0
        left = tail[place:]
        try:
            while left and not member.eof:
                out = member.decompress(left, _BUFFER_BYTES)
                crc, length = zlib.crc32(out, crc), length + len(out)
                left = member.unconsumed_tail
            if member.eof:
                return
            end = b"\x03\x00" + struct.pack("<II", crc, length & 0xFFFFFFFF)
            member.decompress(end)
        except zlib.error:
            return
        if member.eof:
            self._pending += end


def _holder(found: os.stat_result) -> int | None:
    """Who holds the lock of a file (proc_locks(5)); ``None`` where that cannot be seen."""
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text("ascii", "replace").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5] == wanted:
                return int(fields[4])
    return None
