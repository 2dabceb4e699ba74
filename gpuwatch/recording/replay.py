"""Snapshots that were kept, to be played from any moment on: a recording, a log, standard input.

A recording says its own overview, or is looked through once on a thread (``recording_index``). What
can be read only from its beginning (a log of nvidia-smi, standard input) is read once too, and kept
in a temporary file as a recording is, so that any moment of what has come is a minute's reading
away.
"""

from __future__ import annotations

import io
import os
import select
import tempfile
import threading
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Protocol

from gpuwatch.core.codec.delta import RecordingDecoder, delta_line, same_gpus
from gpuwatch.core.codec.rounding import rounded
from gpuwatch.core.codec.snapshots import DELTA_SCHEMA_VERSION, header_line, key_line
from gpuwatch.core.json_values import CodecError
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.recording.buckets import Bucket, BucketFolder, FindingSpan, SpanFolder
from gpuwatch.recording.index import Follower, RecordingIndex
from gpuwatch.recording.reader import OpenedLog
from gpuwatch.sources.files.log_text import LogError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_SECONDS = 60.0
CHUNK_SNAPSHOTS = 240
_JOIN_SECONDS = 0.5
_ENDED_SECONDS = 5.0
"""For a thread whose input was ended: it does no more than notice that."""
_WAIT_SECONDS = 0.25
"""How long a reader at the end waits before it looks whether it is still wanted."""


class Tape(Protocol):
    """What the player needs. Its members are read on any thread; what is known of it grows."""

    @property
    def shown(self) -> str:
        """Its name, made safe."""
        ...

    @property
    def first_unix_seconds(self) -> float | None: ...

    @property
    def last_unix_seconds(self) -> float | None: ...

    @property
    def progress(self) -> float:
        """How much of it ``buckets`` and ``findings`` know, 0 to 1."""
        ...

    @property
    def arriving(self) -> bool:
        """Snapshots are still coming in."""
        ...

    @property
    def buckets(self) -> Sequence[Bucket]: ...

    @property
    def findings(self) -> Sequence[FindingSpan]: ...

    @property
    def error(self) -> BaseException | None:
        """A bug that ended the reading."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What could not be read, in sentences, as far as it is known."""
        ...

    def snapshots(self, from_unix_seconds: float) -> Iterator[Snapshot]:
        """In the order of the file, from the last place at or before that moment at which reading
        can begin (where there is one) to the end; at the end of what is still coming in it waits.
        """
        ...

    def close(self) -> None: ...


class FileTape:
    """A recording on a disk."""

    def __init__(self, index: RecordingIndex) -> None:
        self._index = index
        self.shown = clean(index.path, 200)
        self.arriving = False

    @property
    def first_unix_seconds(self) -> float | None:
        return self._index.first_unix_seconds

    @property
    def last_unix_seconds(self) -> float | None:
        return self._index.last_unix_seconds

    @property
    def progress(self) -> float:
        return self._index.progress

    @property
    def buckets(self) -> Sequence[Bucket]:
        return self._index.buckets

    @property
    def findings(self) -> Sequence[FindingSpan]:
        return self._index.findings

    @property
    def error(self) -> BaseException | None:
        error = self._index.error
        return None if isinstance(error, LogError) else error

    def notes(self) -> tuple[str, ...]:
        return tuple(self._index.stats.sentences())

    def snapshots(self, from_unix_seconds: float) -> Iterator[Snapshot]:
        return self._index.snapshots(from_unix_seconds)

    def close(self) -> None:
        self._index.close()


class KeptTape:
    """What is read once, from its beginning. Raises ``LogError`` where nothing can be read.

    ``size`` is that of the file, ``None`` where it has none. ``findings`` makes what finds the
    findings. ``end`` has reading end that may wait for what comes in.
    """

    def __init__(
        self,
        log: OpenedLog,
        *,
        size: int | None,
        findings: Callable[[], Follower] | None = None,
        end: Callable[[], None] | None = None,
    ) -> None:
        self.shown = log.shown
        self.arriving = True
        self.error: BaseException | None = None
        self._log = log
        self._size = size
        self._end = end
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._grown = threading.Condition()
        self._store = _Store()
        self._open: list[Snapshot] = []
        """The chunk that is not stored yet."""
        self._buckets: list[Bucket] = []
        self._folder = BucketFolder()
        self._spans: tuple[FindingSpan, ...] = ()
        self._followed = 0.0
        self._follows = findings is not None
        self.first_unix_seconds: float | None = None
        self.last_unix_seconds: float | None = None
        try:
            self._take(next(log.snapshots))
        except StopIteration:
            raise LogError(f"{self.shown} holds no snapshot.") from None
        self._start("gpuwatch-tape", self._read)
        if findings is not None:
            self._start("gpuwatch-findings", lambda: self._follow(findings()))

    @property
    def progress(self) -> float:
        if not self.arriving:
            return self._followed if self._follows else 1.0
        if self._size is None:
            return 1.0
        return min(0.99, self._log.lines.bytes_read / max(1, self._size))

    @property
    def buckets(self) -> Sequence[Bucket]:
        """With the one that has begun: of what comes in, half a minute is long to wait for."""
        with self._grown:
            begun = self._folder.so_far() if self.arriving else None
            return tuple(self._buckets) if begun is None else (*self._buckets, begun)

    @property
    def findings(self) -> Sequence[FindingSpan]:
        return self._spans

    def notes(self) -> tuple[str, ...]:
        notes = tuple(self._log.stats.sentences())
        return notes if self._store.trouble is None else (*notes, self._store.trouble)

    def snapshots(self, from_unix_seconds: float) -> Iterator[Snapshot]:
        while not self._closing:
            with self._grown:
                last = self.last_unix_seconds
                if not self.arriving or (last is not None and last >= from_unix_seconds):
                    break
                self._grown.wait(_WAIT_SECONDS)
        with self._grown:
            number, taken = self._store.at_or_before(from_unix_seconds), 0
            if self._open and self._open[0].taken_at_unix_seconds <= from_unix_seconds:
                number = len(self._store)
        while not self._closing:
            with self._grown:
                whole = number < len(self._store)
                fresh = [] if whole else self._open[taken:]
                if not whole and not fresh:
                    if not self.arriving:
                        return
                    self._grown.wait(_WAIT_SECONDS)
                    continue
            if whole:
                for place, snapshot in enumerate(self._store.chunk(number)):
                    if place >= taken:
                        yield snapshot
                number, taken = number + 1, 0
            else:
                taken += len(fresh)
                yield from fresh

    def close(self) -> None:
        """Stop reading; what is read and not given yet is not given."""
        self._closing = True
        if self._end is not None:
            # A thread that is still reading when the interpreter ends takes it down with it.
            self._end()
        with self._grown:
            self._grown.notify_all()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS if self._end is None else _ENDED_SECONDS)
        if not any(thread.is_alive() for thread in self._threads):
            self._log.lines.close()
        self._store.close()

    def _start(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except LogError:
                # Nothing more can be read; what there was is kept.
                return
            except Exception as error:
                if not self._closing:
                    self.error = error

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _read(self) -> None:
        try:
            for snapshot in self._log.snapshots:
                if self._closing:
                    return
                self._take(snapshot)
        finally:
            with self._grown:
                rest = self._folder.end()
                if rest is not None:
                    self._buckets.append(rest)
                self.arriving = False
                self._grown.notify_all()

    def _take(self, snapshot: Snapshot) -> None:
        at = snapshot.taken_at_unix_seconds
        begun = self._open
        if begun and (
            not 0 <= at - begun[0].taken_at_unix_seconds < CHUNK_SECONDS
            or len(begun) >= CHUNK_SNAPSHOTS
            or not same_gpus(begun[-1], snapshot)
        ):
            packed = _packed(begun)
            with self._grown:
                self._store.add(begun[0].taken_at_unix_seconds, packed)
                self._open = []
        with self._grown:
            self._open.append(snapshot)
            if self.first_unix_seconds is None:
                self.first_unix_seconds = at
            self.last_unix_seconds = max(at, self.last_unix_seconds or at)
            bucket = self._folder.push(snapshot)
            if bucket is not None:
                self._buckets.append(bucket)
            self._grown.notify_all()

    def _follow(self, follower: Follower) -> None:
        spans = SpanFolder()
        assert self.first_unix_seconds is not None
        for snapshot in self.snapshots(self.first_unix_seconds):
            for event in follower.push(snapshot):
                spans.push(event)
                self._spans = spans.spans
            if not self.arriving and self.last_unix_seconds is not None:
                past = snapshot.taken_at_unix_seconds - self.first_unix_seconds
                whole = self.last_unix_seconds - self.first_unix_seconds
                self._followed = min(0.99, past / whole) if whole > 0 else 1.0
        self._followed = 1.0


class _Store:
    """Chunks of some snapshots each, packed, in a temporary file that has no name."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        """Why they are in memory instead, as a sentence."""
        self._begins: list[float] = []
        self._latest = float("-inf")
        self._places: list[tuple[int, int] | bytes] = []
        self._file: IO[bytes] | None = None
        self._end = 0

    def __len__(self) -> int:
        return len(self._places)

    def add(self, begin: float, packed: bytes) -> None:
        place: tuple[int, int] | bytes = packed
        try:
            if self._file is None and self.trouble is None:
                self._file = tempfile.TemporaryFile(prefix="gpuwatch-")  # noqa: SIM115 - it stays
            if self._file is not None:
                self._put(self._file.fileno(), packed)
                place = (self._end, len(packed))
                self._end += len(packed)
        except OSError as error:
            self._file = None if not self._end else self._file
            self.trouble = (
                f"What came in is kept in memory: {tempfile.gettempdir()} cannot be written "
                f"({clean(str(error.strerror or error), 100)})."
            )
        # A clock that was set back must not hide what lies before it.
        self._latest = max(self._latest, begin)
        self._begins.append(self._latest)
        self._places.append(place)

    def _put(self, descriptor: int, packed: bytes) -> None:
        done = 0
        while done < len(packed):
            done += os.pwrite(descriptor, packed[done:], self._end + done)

    def at_or_before(self, at: float) -> int:
        """The number of the chunk to read from."""
        begins = self._begins
        place = max(0, bisect_right(begins, at) - 1)
        # Of those that a clock that was set back makes one time of, the first.
        return bisect_left(begins, begins[place]) if begins else 0

    def chunk(self, number: int) -> list[Snapshot]:
        place = self._places[number]
        if isinstance(place, bytes):
            return _unpacked(place)
        try:
            assert self._file is not None
            return _unpacked(os.pread(self._file.fileno(), place[1], place[0]))
        except (OSError, ValueError, zlib.error):
            # Closed meanwhile, or the disk fails.
            return []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _packed(snapshots: Sequence[Snapshot]) -> bytes:
    """As a recording has them: a header, the first whole, of the others what has changed."""
    given, before = snapshots[0], rounded(snapshots[0])
    lines = [header_line(before, DELTA_SCHEMA_VERSION), key_line(before)]
    for snapshot in snapshots[1:]:
        after = rounded(snapshot, (given, before))
        lines.append(delta_line(before, after))
        given, before = snapshot, after
    return zlib.compress("\n".join(lines).encode("utf-8", "replace"), 1)


def _unpacked(packed: bytes) -> list[Snapshot]:
    decoder, found = RecordingDecoder(), []
    for line in zlib.decompress(packed).decode("utf-8", "replace").split("\n"):
        try:
            value = decoder.decode(line)
        except CodecError:
            continue
        if isinstance(value, Snapshot):
            found.append(value)
    return found


class EndableInput(io.RawIOBase):
    """A descriptor to read from that another thread can end, also while it is waited for."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._wake, self._waker = os.pipe()
        self._ended = False

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if self._ended:
            return 0
        ready, _, _ = select.select([self._descriptor, self._wake], [], [])
        if self._wake in ready:
            return 0
        data = os.read(self._descriptor, len(view))
        view[: len(data)] = data
        return len(data)

    def end(self) -> None:
        """Whoever reads is told that it ends here."""
        self._ended = True
        os.write(self._waker, b"x")


def on_wall_clock(snapshot: Snapshot) -> Snapshot:
    """With the time of its charts counted as the wall clock counts, which all parts of a file and
    its overview share; a machine's monotonic clock begins anew at each start."""
    return replace(snapshot, monotonic_seconds=snapshot.taken_at_unix_seconds)
