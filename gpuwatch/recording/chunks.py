"""Snapshots of something that can be read once: packed, in a temporary file."""

import io
import os
import tempfile
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import IO

from gpuwatch.core.codec import Decoder, header_line, snapshot_line
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.sources.files import zstd

_LEVEL = 1
"""Of compression: what is kept is read back once or twice."""


class ChunkStore:
    """Chunks of some snapshots each, packed, in a temporary file that has no name."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        """The reason why they are in memory instead, as a sentence."""
        self._begins: list[float] = []
        self._places: list[tuple[IO[bytes], int, int]] = []
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._places)

    def add(self, begin: float, data: bytes) -> None:
        with self._lock:
            try:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(prefix="gpuwatch-", buffering=0)  # noqa: SIM115 - it stays
                place = self._put(self._file, data)
            except OSError as error:
                self._file = io.BytesIO()
                place = self._put(self._file, data)
                self.trouble = (
                    f"What came in is kept in memory: {tempfile.gettempdir()} cannot be written "
                    f"({clean(str(error.strerror or error), 100)})."
                )
            # A clock that was set back must not hide what lies before it.
            self._begins.append(max([begin, *self._begins[-1:]]))
            self._places.append(place)

    @staticmethod
    def _put(file: IO[bytes], data: bytes) -> tuple[IO[bytes], int, int]:
        offset = file.seek(0, os.SEEK_END)
        done = 0
        while done < len(data):
            done += file.write(data[done:])
        return file, offset, len(data)

    def at_or_before(self, at: float) -> int:
        """The number of the chunk to read from."""
        begins = self._begins
        place = max(0, bisect_right(begins, at) - 1)
        # Of those that a clock that was set back makes one time of, the first.
        return bisect_left(begins, begins[place]) if begins else 0

    def chunk(self, number: int) -> list[Snapshot]:
        file, offset, size = self._places[number]
        try:
            with self._lock:
                file.seek(offset)
                data = file.read(size)
            return _unpacked(data)
        except (OSError, ValueError, zstd.ZstdError):
            # Closed meanwhile, or the disk fails.
            return []

    def close(self) -> None:
        with self._lock:
            for file in {id(file): file for file, _, _ in self._places}.values():
                file.close()


def packed(snapshots: Sequence[Snapshot]) -> bytes:
    lines = [header_line(snapshots[0]), *map(snapshot_line, snapshots)]
    return zstd.compress("\n".join(lines).encode(), _LEVEL)


def _unpacked(data: bytes) -> list[Snapshot]:
    decoder = Decoder()
    read = [decoder.decode(line) for line in zstd.decompress(data).decode().split("\n")]
    return [one for one in read if isinstance(one, Snapshot)]
