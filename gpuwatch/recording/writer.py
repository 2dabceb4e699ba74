"""The file that a recording is written to: append only, and good up to the last few seconds
whatever ends the writing. One recorder at a time: it holds a lock (flock(2)) while it writes.

Text is compressed in zstd frames (``frames``) and written in whole blocks, in the order in which it
came. What a full disk does not take is kept and tried again, so the file has no hole in it: it is
the recorder that leaves snapshots out meanwhile (see ``stuck``). A frame that a crash left open is
ended where that can be done by appending, so that ``zstdcat`` reads on.
"""

import contextlib
import errno
import fcntl
import os
import shlex
import stat
import time
from collections.abc import Callable
from pathlib import Path

from gpuwatch.core.private_files import why
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.recording.frames import compressor, frame_end
from gpuwatch.sources.files import zstd
from gpuwatch.sources.files.unpacked import kind_of

FLUSH_SECONDS = 3.0
SYNC_SECONDS = 10.0
_BUFFER_BYTES = 256 * 1024
_TAIL_BYTES = 8 * 1024 * 1024
"""In which the beginning of an open frame is looked for."""


class RecordingError(SentenceError):
    """The file cannot be recorded to."""


class RecordingFile:
    """Opens (or makes, readable by the owner alone) ``path``; zstd by its ending ``.zst``, else
    plain.

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
        self.packed = path.name.endswith(".zst")
        self.written_bytes = 0
        """That this has added to the file (packed)."""
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
    def stuck(self) -> bool:
        """Something was not taken by the disk, and waits."""
        return self.trouble is not None

    def begin(self, entry: bytes, text: str) -> None:
        """End the frame before, and begin one with ``text``; in a packed file ``entry`` goes before
        it."""
        self._end_frame()
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
        """All that was written can be read from now on, if the machine goes on."""
        if self._frame is not None and self._unflushed:
            self._pending += self._frame.flush(self._frame.FLUSH_BLOCK)
            self._unflushed = False
        self._flushed_at = self._monotonic()
        self._put()
        if self._flushed_at - self._synced_at >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """As ``flush``, also if the machine does not go on."""
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
        """``moved`` or ``deleted`` where the file no longer has its name, else ``None``."""
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
        """End it well, as far as the disk takes it."""
        self._end_frame()
        self._put()
        with contextlib.suppress(OSError):
            os.fsync(self._descriptor)
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _end_frame(self) -> None:
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
        """The file, locked. Only one of this user: another could read on in theirs, or plant it."""
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
    """The gpuwatch of this user and PID namespace that has locked the file to write to it, and
    whether that is all it does (``gpuwatch record``); ``None`` where none can be seen."""
    for process in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError, ValueError):
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
