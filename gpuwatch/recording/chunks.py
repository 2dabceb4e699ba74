"""Snapshots that are kept: one object for each part that stays as it was, and packed in temporary
files, where any of them is a chunk's reading away.

A recording is decoded line by line, every name and number anew; the hundreds of snapshots that are
kept at a time would hold each command line as often.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import IO, Any

from gpuwatch.core.codec import Decoder, header_line, snapshot_line
from gpuwatch.core.model import Gpu, Host, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.core.text import clean
from gpuwatch.recording.frames import place_before
from gpuwatch.sources.files import zstd

_LEVEL = 1
"""Of compression: what is kept is read back once or twice."""


class ChunkStore:
    """Chunks of some snapshots each, packed, in temporary files that have no name: one after the
    other of ``most`` chunks, of which the last two are kept."""

    def __init__(self, most: float = math.inf) -> None:
        self._most = most
        self._in_file = 0
        self.trouble: str | None = None
        """The reason why they are in memory instead, as a sentence."""
        self._dropped = 0
        self._begins: list[float] = []
        self._places: list[tuple[IO[bytes], int, int]] = []
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._dropped + len(self._places)

    def place(self, unix_seconds: float) -> int:
        """The number of the chunk that holds this moment."""
        return self._dropped + place_before(self._begins, unix_seconds)

    def add(self, begin: float, data: bytes) -> None:
        with self._lock:
            self._in_file += 1
            if self._in_file > self._most:
                gone = [file for file, _, _ in self._places if file is not self._file]
                for file in gone:
                    file.close()
                self._dropped += len(gone)
                del self._places[: len(gone)], self._begins[: len(gone)]
                self._file, self._in_file = None, 1
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

    def chunk(self, number: int) -> list[Snapshot]:
        try:
            with self._lock:
                if number < self._dropped:
                    return []
                file, offset, size = self._places[number - self._dropped]
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


_SHARING = (Snapshot, Gpu, Host, Process, Job, JobMember, JobRank)


def share(new: Any, old: Any) -> Any:
    """``old`` where ``new`` equals it, else ``new`` with the parts of ``old`` that are equal in the
    place of its own. ``new`` was just decoded."""
    kind: type[object] = type(new)
    if kind is tuple and new and old and type(new[0]) in _SHARING:
        return (*map(share, new, old), *new[len(old) :])
    if kind not in _SHARING:
        return new
    names, get = _parts(kind)
    parts, before = get(new), get(old)
    if parts == before:
        return old
    for name, part, same in zip(names, parts, before, strict=True):
        if part is not same and part is not None:
            shared = same if part == same else share(part, same)
            if shared is not part:
                object.__setattr__(new, name, shared)
    return new


@cache
def _parts(kind: Any) -> tuple[tuple[str, ...], attrgetter[tuple[object, ...]]]:
    names = tuple([field.name for field in fields(kind)])
    return names, attrgetter(*names)
