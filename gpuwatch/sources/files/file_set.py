"""The files of one recording, read as if they were one.

``record --rotate`` puts files aside under the recording's name with a time in it. They are whole
recordings, and one after another they are the recording that was asked for.
"""

from __future__ import annotations

import io
import os
import re
import stat
import threading
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_STAMP = r"\.\d{8}T\d{6}Z(?:-\d+)?"
_ENDING = re.compile(r"(?:\.jsonl|\.json)?(?:\.gz)?$")


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


def open_set(path: str) -> BinaryIO:
    """``path`` with what was put aside for it before; unbuffered. Raises as ``open`` does."""
    # This one gets another name when it is put aside: it is held from now on.
    newest = Path(path).open("rb", buffering=0)  # noqa: SIM115 - its owner closes it
    aside = rotated_files(Path(path))
    return cast("BinaryIO", FileSet(aside, newest) if aside else newest)


class FileSet(io.RawIOBase):
    """The files put aside, then ``newest``, as one that can be read here and there, on any thread
    with ``pread``. Of one that is removed meanwhile (the oldest) nothing is read."""

    def __init__(self, aside: list[Path], newest: io.FileIO) -> None:
        self._newest = newest
        sizes = [(path, _size(path)) for path in aside]
        self.aside = [path for path, size in sizes if size]
        self._begins = [0, *accumulate(size for _, size in sizes if size)]
        self._padding = b"\0" if str(newest.name).endswith(".gz") else b"\n"
        self._at = 0
        self._lock = threading.Lock()
        self._opened: tuple[int, io.FileIO] | None = None

    @property
    def size(self) -> int:
        return self._begins[-1] + os.fstat(self._newest.fileno()).st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self.pread(len(view), self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def pread(self, count: int, offset: int) -> bytes:
        """Fewer than ``count`` bytes where a file ends; none at the end of all."""
        with self._lock:
            last = self._begins[-1]
            if offset >= last:
                return os.pread(self._newest.fileno(), count, offset - last)
            number = bisect_right(self._begins, offset) - 1
            begin, end = self._begins[number : number + 2]
            count = min(count, end - offset)
            # What is gone is read as padding, which is passed over in gzip and in lines.
            return self._read(number, count, offset - begin) or self._padding * count

    def close(self) -> None:
        if not self.closed:
            self._newest.close()
            if self._opened is not None:
                self._opened[1].close()
        super().close()

    def _read(self, number: int, count: int, offset: int) -> bytes:
        try:
            if self._opened is None or self._opened[0] != number:
                if self._opened is not None:
                    self._opened[1].close()
                    self._opened = None
                self._opened = (number, self.aside[number].open("rb", buffering=0))
            return os.pread(self._opened[1].fileno(), count, offset)
        except OSError:
            return b""


def read_at(file: BinaryIO, count: int, offset: int) -> bytes:
    """Of what ``open_set`` gave: ``count`` bytes, fewer at the end only."""
    if not isinstance(file, FileSet):
        return os.pread(file.fileno(), count, offset)
    parts = []
    while count > 0 and (part := file.pread(count, offset)):
        parts.append(part)
        count -= len(part)
        offset += len(part)
    return b"".join(parts)


def size_of(file: BinaryIO) -> int:
    return file.size if isinstance(file, FileSet) else os.fstat(file.fileno()).st_size


def _size(path: Path) -> int:
    try:
        found = path.stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
