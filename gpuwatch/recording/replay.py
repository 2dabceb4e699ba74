"""Snapshots that were kept, to be played from any moment on: a recording, a log, standard input.

What ``record`` wrote says its own overview (``RecordingIndex``). Anything else is read once, on a
thread, and kept packed in temporary files, so that any moment of what has come is a minute's
reading away. A recording is decoded line by line, every name and number anew; ``share`` keeps one
object for each part that stays as it was.
"""

from __future__ import annotations

import io
import math
import os
import select
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gpuwatch.core.background import DaemonWorker, Task
from gpuwatch.core.codec import Decoder, StreamWriter, identities
from gpuwatch.core.model import Gpu, Host, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import names_among
from gpuwatch.diagnosis.ledger import Counted, Episode, EpisodeKey, Ledger, by_cause
from gpuwatch.recording.file import (
    BUCKET_SECONDS,
    Bucket,
    OpenedLog,
    Overview,
    RecordingIndex,
    is_indexed,
    new_engine,
    open_any,
    place_before,
)
from gpuwatch.recording.statistics import Statistics
from gpuwatch.sources.logs.source import LogOptions
from gpuwatch.sources.logs.text import LogError, zstd

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from gpuwatch.diagnosis.finding import Diagnosis


# --- chunks of snapshots, packed in temporary files -------------------------------------------

_LEVEL = 1
"""Compression level, low: kept snapshots are read back once or twice."""


class ChunkStore:
    """Chunks of some snapshots each, packed, in temporary files that have no name: one after the
    other of ``most`` chunks, of which the last two are kept."""

    def __init__(self, most: float = math.inf) -> None:
        self._most = most
        self._in_file = 0
        self.trouble: str | None = None
        """Reason why the chunks are in memory instead, as a sentence."""
        self._dropped = 0
        self._begins: list[float] = []
        self._places: list[tuple[IO[bytes], int, int]] = []
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._dropped + len(self._places)

    def place(self, unix_seconds: float) -> int:
        """Return the number of the chunk that holds this moment."""
        return self._dropped + place_before(self._begins, unix_seconds)

    def add_chunk(self, begin: float, data: bytes) -> None:
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
    writer = StreamWriter()
    lines = [writer.header(snapshots[0]), *map(writer.lines, snapshots)]
    return zstd.compress("\n".join(lines).encode(), _LEVEL)


def _unpacked(data: bytes) -> list[Snapshot]:
    decoder = Decoder()
    read = [decoder.decode(line) for line in zstd.decompress(data).decode().split("\n")]
    return [one for one in read if isinstance(one, Snapshot)]


_SHARING = (Snapshot, Gpu, Host, Process, Job, JobMember, JobRank)


def share(new: Any, old: Any) -> Any:
    """Return ``old`` where ``new`` equals it, else ``new`` with the parts of ``old`` that are equal
    in the place of its own. ``new`` was just decoded."""
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


# --- tapes ------------------------------------------------------------------------------------

CHUNK_SECONDS = 60.0
CHUNK_SNAPSHOTS = 240
_JOIN_SECONDS = 0.5
_ENDED_SECONDS = 5.0
"""Time for a thread whose input was ended: it does no more than notice that."""
_WAIT_SECONDS = 0.25
"""Time that a reader at the end waits before it looks whether it is still wanted."""
_FOLLOW_AFTER_SECONDS, _PAUSE_SECONDS = 2.0, 0.1
"""Longest time for which findings wait for what comes in, and how long nothing must come in."""


class KeptTape:
    """A tape of anything but an indexed recording, read once from its beginning. Raises
    ``LogError`` where nothing can be read.

    ``size`` is that of the file, ``None`` where it has none. ``diagnoses``: findings are looked
    for. ``end`` has reading end that may wait for what comes in. ``chunk_seconds`` are held before
    they are packed; what is older than ``kept_seconds`` is forgotten, sooner or later.
    """

    def __init__(
        self,
        log: OpenedLog,
        *,
        size: int | None = None,
        diagnoses: bool = True,
        end: Callable[[], None] | None = None,
        chunk_seconds: float = CHUNK_SECONDS,
        kept_seconds: float = math.inf,
    ) -> None:
        self.shown = log.shown
        self.arriving = True
        """Whether snapshots are still coming in."""
        self._log = log
        self._size = size
        self._end = end
        self._chunk_seconds = chunk_seconds
        self._closing = False
        self._tasks: list[Task[None]] = []
        self._grown = threading.Condition()
        self._kept_seconds = kept_seconds
        self._store = ChunkStore(kept_seconds / chunk_seconds)
        self._open: list[Snapshot] = []
        """The chunk that is not stored yet."""
        self._overview = Overview()
        self._statistics = Statistics(in_parts=True)
        """Since the overview was brought up to date."""
        self._followed = 0.0 if diagnoses else 1.0
        self.findings: Sequence[Episode] = ()
        """Episodes of each cause, in the order in which they began."""
        self.ledger = Ledger()
        self.diagnosis: Diagnosis | None = None
        """Diagnosis of the snapshots up to now."""
        self.first_unix_seconds: float | None = None
        self.last_unix_seconds: float | None = None
        try:
            self._take(next(log.snapshots))
        except StopIteration:
            raise LogError(f"{self.shown} holds no snapshot.") from None
        self._start("gpuwatch-tape", self._read)
        if diagnoses:
            self._start("gpuwatch-findings", self._follow)

    @property
    def error(self) -> BaseException | None:
        """Bug that ended the reading. Where nothing more can be read, what there was is kept."""
        errors = [] if self._closing else [task.error for task in self._tasks]
        return next((one for one in errors if one and not isinstance(one, LogError)), None)

    @property
    def progress(self) -> float:
        """Share of the tape that ``buckets`` and ``findings`` cover, 0 to 1."""
        if not self.arriving:
            return self._followed
        if self._size is None:
            return 1.0
        return min(0.99, self._log.lines.bytes_read / max(1, self._size))

    @property
    def buckets(self) -> Sequence[Bucket]:
        """Half minutes, with the one that has begun: for live input, half a minute is long to wait
        for."""
        with self._grown:
            if self.arriving:
                self._overview.add_part(self._statistics.take_part())
            return self._overview.buckets()

    def notes(self) -> tuple[str, ...]:
        """Return sentences about what could not be read, as far as it is known."""
        notes = tuple(self._log.stats.sentences())
        return notes if self._store.trouble is None else (*notes, self._store.trouble)

    def snapshots(self, from_unix_seconds: float) -> Iterator[Snapshot]:
        """Yield snapshots in the order of the file, from at most a minute before that moment to the
        end, where it waits for what is still coming in."""
        while not self._closing:
            with self._grown:
                last = self.last_unix_seconds
                if not self.arriving or (last is not None and last >= from_unix_seconds):
                    break
                self._grown.wait(_WAIT_SECONDS)
        with self._grown:
            number, taken = self._store.place(from_unix_seconds), 0
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

    def lost_before(self, unix_seconds: float) -> dict[EpisodeKey, Counted]:
        """Return nothing: what was lost by a moment is kept by recordings alone."""
        del unix_seconds
        return {}

    def close(self) -> None:
        """Stop reading; what is read and not given yet is not given."""
        self._closing = True
        if self._end is not None:
            # A thread that is still reading when the interpreter ends takes it down with it.
            self._end()
        with self._grown:
            self._grown.notify_all()
        seconds = _JOIN_SECONDS if self._end is None else _ENDED_SECONDS
        ended = [task.wait(seconds) for task in self._tasks]
        if all(ended):
            self._log.lines.close()
        self._store.close()

    def _start(self, name: str, work: Callable[[], None]) -> None:
        worker = DaemonWorker(name)
        self._tasks.append(worker.submit(work))
        worker.stop()

    def _read(self) -> None:
        try:
            for snapshot in self._log.snapshots:
                if self._closing:
                    return
                self._take(snapshot)
        finally:
            with self._grown:
                self._overview.add_part(self._statistics.take_part())
                self.arriving = False
                self._grown.notify_all()

    def _take(self, snapshot: Snapshot) -> None:
        at = snapshot.taken_at_unix_seconds
        begun = self._open
        if begun and (
            not 0 <= at - begun[0].taken_at_unix_seconds < self._chunk_seconds
            or len(begun) >= CHUNK_SNAPSHOTS
            or identities(begun[-1]) != identities(snapshot)
        ):
            data = packed(begun)
            with self._grown:
                self._store.add_chunk(begun[0].taken_at_unix_seconds, data)
                self._open = []
        with self._grown:
            self._open.append(snapshot)
            oldest = at - self._kept_seconds
            first = self.first_unix_seconds
            self.first_unix_seconds = max(at if first is None else first, oldest)
            self.last_unix_seconds = max(at, self.last_unix_seconds or at)
            self._statistics.add_snapshot(snapshot)
            if self._statistics.is_due(BUCKET_SECONDS):
                self._overview.add_part(self._statistics.take_part())
                self._overview.forget_oldest(self._kept_seconds / BUCKET_SECONDS)
            self._grown.notify_all()

    def _wait_for_pause(self) -> None:
        """Wait until nothing has come in for a moment, but not for long: the first picture of a
        host waits for its last ten minutes, and not for what is found in them."""
        until = time.monotonic() + _FOLLOW_AFTER_SECONDS
        with self._grown:
            while self.arriving and time.monotonic() < until and self._grown.wait(_PAUSE_SECONDS):
                pass

    def _follow(self) -> None:
        self._wait_for_pause()
        engine, changes = new_engine(), 0
        self.ledger = engine.ledger
        assert self.first_unix_seconds is not None
        for snapshot in self.snapshots(self.first_unix_seconds):
            engine.push(snapshot)
            self.diagnosis = engine.diagnosis
            if engine.ledger.changes != changes:
                changes = engine.ledger.changes
                names = names_among(gpu.identity for gpu in snapshot.gpus)
                self.findings = by_cause(engine.ledger.episodes(), names)
            if not self.arriving and self.last_unix_seconds is not None:
                past = snapshot.taken_at_unix_seconds - self.first_unix_seconds
                whole = self.last_unix_seconds - self.first_unix_seconds
                self._followed = min(0.99, past / whole) if whole > 0 else 1.0
        self._followed = 1.0


Tape = RecordingIndex | KeptTape
"""A source of the player. Its members are read on any thread; what is known of it grows."""


def open_tape(
    path: str, options: LogOptions | None = None, *, end: Callable[[], None] | None = None
) -> Tape:
    """Open ``path`` to be played; ``-`` is standard input, whose reading ``end`` ends. Raises
    ``LogError`` with a sentence."""
    if is_indexed(path):
        return RecordingIndex(path)
    log = open_any(path, options)
    try:
        file = Path(path)
        size = file.stat().st_size if log.shown != "standard input" and file.is_file() else None
        return KeptTape(log, size=size, end=end)
    except BaseException:
        log.lines.close()
        raise


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
        """End the input: a reader gets what there is and the end."""
        self._ended = True
        os.write(self._waker, b"x")


def on_wall_clock(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the time of its charts on the wall clock, which all parts of a file
    and its overview share; a machine's monotonic clock begins anew at each start."""
    return replace(snapshot, monotonic_seconds=snapshot.taken_at_unix_seconds)
