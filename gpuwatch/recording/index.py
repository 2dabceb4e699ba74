"""A recording opened to be looked at here and there: its first picture at once, its overview soon.

What ``record`` wrote says its own overview (``recording_scan``). Any other recording, and a log of
nvidia-smi, is read whole once, on a thread, and folded.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Protocol

from gpuwatch.core.codec.snapshots import IDENTITY_TABLE
from gpuwatch.core.json_values import CodecError, Json, json_list, json_object
from gpuwatch.core.model import GpuIdentity, GpuKey, Snapshot
from gpuwatch.recording.buckets import (
    Band,
    Bucket,
    BucketFolder,
    FindingSpan,
    SpanFolder,
    read_bucket,
)
from gpuwatch.recording.reader import RECORDING, OpenedLog, open_any, read_recording
from gpuwatch.recording.scan import Head, Lines, RecordingFileReader
from gpuwatch.sources.files.log_text import STANDARD_INPUT, LogError, LogStats

__all__ = ["Band", "Bucket", "FindingSpan", "Follower", "RecordingIndex", "open_index"]

_MARK_SECONDS = 60.0
_MARK_WAIT_SECONDS = 0.02
_TAKEN_AT = re.compile(r'\{"kind":"snapshot","sequence":\d+,"taken_at_unix_seconds":([0-9.]+),')


class Follower(Protocol):
    """Finds what is wrong in snapshots: ``outputs.finding_events.FindingEvents``."""

    def push(self, snapshot: Snapshot) -> list[Json]: ...


class RecordingIndex:
    """The overview of one file. Grows on a thread until ``complete``; read from any thread.

    A file that is still written to is known as far as it was when it was opened.
    """

    def __init__(self, path: str, kind: str) -> None:
        self.path = path
        self.kind = kind
        """``recording``, ``query``, ``dmon`` or ``pmon``."""
        self.first_unix_seconds: float | None = None
        self.last_unix_seconds: float | None = None
        """Of what is known so far; of what ``record`` wrote, of all of it at once."""
        self.complete = False
        self.progress = 0.0
        """0 to 1."""
        self.error: BaseException | None = None
        """What ended the reading: a bug, or that there is nothing to read."""
        self.stats = LogStats(kind=kind)
        """How well it could be read, as far as it was (``sentences()``)."""
        self._buckets: list[Bucket] = []
        self._spans = SpanFolder()
        self._findings: tuple[FindingSpan, ...] = ()
        self._identities: dict[GpuKey, GpuIdentity] = {}
        self._marks: list[tuple[float, int, str | None]] = []
        """Time, place, and the header to be read first where none stands there."""
        self._recorded = False
        """By ``record``, so that the places are known sooner than what lies before them is read."""
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def buckets(self) -> Sequence[Bucket]:
        """In the order of their time."""
        return tuple(self._buckets)

    @property
    def findings(self) -> Sequence[FindingSpan]:
        """In the order in which they began."""
        return self._findings

    @property
    def identities(self) -> Mapping[GpuKey, GpuIdentity]:
        """Of every GPU seen so far."""
        return dict(self._identities)

    def snapshots(self, from_unix_seconds: float) -> Iterator[Snapshot]:
        """From the last snapshot at or before ``from_unix_seconds`` at which reading can begin (up
        to a minute before, or more where the file has not been read so far) to the end."""
        if self._recorded:
            self._wait_for_mark(from_unix_seconds)
        marks = self._marks
        place = bisect_right(marks, from_unix_seconds, key=lambda mark: mark[0]) - 1
        if self.kind != RECORDING:
            yield from self._of_log(from_unix_seconds)
            return
        reader = RecordingFileReader(self.path)
        try:
            if marks:
                _, offset, header = marks[_first_of(marks, max(0, place))]
                yield from reader.snapshots(offset, () if header is None else (header,))
            else:
                with reader.lines() as lines:
                    yield from _from(lines, from_unix_seconds)
        finally:
            reader.close()

    def close(self) -> None:
        """Stop reading. Iterators that ``snapshots`` gave go on."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is ``complete``; whether it is."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self.complete

    def _wait_for_mark(self, unix_seconds: float) -> None:
        """Until the place to read from is known: to read on from an earlier one takes longer."""
        thread = self._thread
        while (
            thread is not None
            and thread.is_alive()
            and not self._closing.is_set()
            and self._marks
            and self._marks[-1][0] <= unix_seconds
        ):
            thread.join(_MARK_WAIT_SECONDS)

    def _of_log(self, from_unix_seconds: float) -> Iterator[Snapshot]:
        with open_any(self.path) as log:
            yield from dropwhile(
                lambda snapshot: snapshot.taken_at_unix_seconds < from_unix_seconds, log.snapshots
            )

    def _start(self, build: Callable[[], None]) -> None:
        def run() -> None:
            try:
                build()
            except Exception as error:
                self.error = error
            self._findings = self._spans.spans
            self.progress, self.complete = 1.0, not self._closing.is_set()

        self._thread = threading.Thread(target=run, name="gpuwatch-index", daemon=True)
        self._thread.start()

    # What record wrote.

    def _begin_recorded(self, reader: RecordingFileReader, first: Head) -> None:
        self._recorded = True
        self._take_head(first)
        self.first_unix_seconds = first.started_at_unix_seconds
        last = reader.last_head()
        if last is not None:
            self.last_unix_seconds = last.started_at_unix_seconds

    def _read_recorded(self, reader: RecordingFileReader, first: Head) -> None:
        try:
            run = first.recording
            for offset in reader.starts(first.offset + 1, reader.size):
                if self._closing.is_set():
                    return
                head = reader.head(offset)
                if head is None:
                    continue
                if head.recording != run and self._buckets:
                    # Another recording was appended: what held then, nobody saw end.
                    self._spans.end(self._buckets[-1].end_unix_seconds)
                    run = head.recording
                self._take_head(head)
                self.progress = offset / max(1, reader.size)
                self._findings = self._spans.spans
            self._read_end(reader)
        finally:
            reader.close()

    def _take_head(self, head: Head) -> None:
        at = head.started_at_unix_seconds
        if at is not None:
            if head.keyed:
                # A clock that was set back must not hide what lies before it.
                before = self._marks[-1][0] if self._marks else at
                self._marks.append((max(at, before), head.offset, None))
            self.last_unix_seconds = max(at, self.last_unix_seconds or at)
        self.stats.header_lines += 1
        try:
            self._take_identities(head.header)
        except CodecError as error:
            self.stats.remark(str(error))
        for value in head.lines:
            try:
                self._take_line(value)
            except CodecError as error:
                self.stats.remark(str(error))

    def _take_identities(self, header: Json) -> None:
        for value in json_list(header.get("gpus", []), "header.gpus"):
            identity = IDENTITY_TABLE.decode(json_object(value, "header.gpus"), "header.gpus")
            self._identities[identity.uuid] = identity

    def _take_line(self, value: Json) -> None:
        if value.get("kind") == "bucket":
            self._take_bucket(read_bucket(value))
        elif value.get("kind") == "finding":
            self._spans.push(value)

    def _take_bucket(self, bucket: Bucket) -> None:
        buckets = self._buckets
        buckets.append(bucket)
        if len(buckets) > 1 and buckets[-2].begin_unix_seconds > bucket.begin_unix_seconds:
            buckets.sort(key=lambda one: one.begin_unix_seconds)

    def _read_end(self, reader: RecordingFileReader) -> None:
        """The last moments, which no bucket line tells of."""
        known = self._buckets[-1].end_unix_seconds if self._buckets else float("-inf")
        place = bisect_right(self._marks, known, key=lambda mark: mark[0]) - 1
        offset = self._marks[max(0, place)][1] if self._marks else 0
        folder, last = BucketFolder(), self.last_unix_seconds
        for snapshot in reader.snapshots(offset, stats=self.stats):
            if self._closing.is_set():
                return
            at = snapshot.taken_at_unix_seconds
            last = at if last is None else max(last, at)
            bucket = folder.push(snapshot) if at >= known else None
            if bucket is not None:
                self._take_bucket(bucket)
        self.last_unix_seconds = last
        rest = folder.end()
        if rest is not None:
            self._take_bucket(rest)

    # Anything else.

    def _fold(
        self, snapshots: Iterator[Snapshot], note: Callable[[float], None], follow: Follower | None
    ) -> None:
        folder = BucketFolder()
        for snapshot in snapshots:
            if self._closing.is_set():
                return
            at = snapshot.taken_at_unix_seconds
            if self.first_unix_seconds is None:
                self.first_unix_seconds = at
            self.last_unix_seconds = at
            for gpu in snapshot.gpus:
                self._identities.setdefault(gpu.uuid, gpu.identity)
            note(at)
            bucket = folder.push(snapshot)
            if bucket is not None:
                self._take_bucket(bucket)
            if follow is not None:
                for event in follow.push(snapshot):
                    self._spans.push(event)
                    self._findings = self._spans.spans
        rest = folder.end()
        if rest is not None:
            self._take_bucket(rest)

    def _read_stream(self, reader: RecordingFileReader, follow: Follower | None) -> None:
        header: list[str] = []

        def noted(lines: Lines) -> Iterator[str]:
            for line in lines:
                if line.startswith('{"kind":"header"'):
                    header[:] = [line]
                yield line

        try:
            with reader.lines() as lines:

                def note(at: float) -> None:
                    marks, offset = self._marks, lines.offset
                    if offset is None:
                        self.progress = min(0.99, self.progress + 1e-6)
                        return
                    self.progress = offset / max(1, reader.size)
                    if header and (not marks or at - marks[-1][0] >= _MARK_SECONDS):
                        marks.append((at, offset, header[0]))

                self._fold(
                    read_recording(noted(lines), self.stats, shown=reader.shown), note, follow
                )
        finally:
            reader.close()

    def _read_log(self, log: OpenedLog, size: int, follow: Follower | None) -> None:
        def note(_at: float) -> None:
            self.progress = min(0.99, log.lines.bytes_read / max(1, size))

        self.stats = log.stats
        with log:
            self._fold(log.snapshots, note, follow)


def _first_of(marks: Sequence[tuple[float, int, str | None]], place: int) -> int:
    """Of marks of one time, which a clock that was set back makes, the first."""
    return bisect_left(marks, marks[place][0], key=lambda mark: mark[0])


def _from(lines: Lines, from_unix_seconds: float) -> Iterator[Snapshot]:
    """Without marks: what is too early is passed over without being read, as far as lines tell."""

    def wanted() -> Iterator[str]:
        for line in lines:
            found = _TAKEN_AT.match(line)
            if found is None or float(found[1]) >= from_unix_seconds:
                yield line

    try:
        yield from read_recording(wanted(), LogStats())
    except LogError:
        return


def open_index(path: str, *, findings: Callable[[], Follower] | None = None) -> RecordingIndex:
    """Open a recording or a log; raises ``LogError`` with a sentence where it cannot be read.

    ``findings`` makes what finds the findings in a file that does not tell them
    (``outputs.recorder.open_index`` hands in the diagnosis).
    """
    if path == STANDARD_INPUT:
        raise LogError("Standard input can be read once only: it has no overview.")
    reader = RecordingFileReader(path)
    try:
        first = next((head for head in _heads(reader) if head.recording is not None), None)
        if first is not None and first.offset == 0:
            index = RecordingIndex(path, RECORDING)
            index._begin_recorded(reader, first)
            index._start(lambda: index._read_recorded(reader, first))
            return index
        log = open_any(path)
        follow = None if findings is None else findings()
        index = RecordingIndex(path, log.kind)
        if log.kind == RECORDING:
            with log:
                index.first_unix_seconds = next(log.snapshots).taken_at_unix_seconds
            index._start(lambda: index._read_stream(reader, follow))
        else:
            size = reader.size
            reader.close()
            index._start(lambda: index._read_log(log, size, follow))
    except BaseException:
        reader.close()
        raise
    return index


def _heads(reader: RecordingFileReader) -> Iterator[Head]:
    """The first one only: what stands at the beginning decides."""
    for offset in reader.starts(0, 1):
        head = reader.head(offset)
        if head is not None:
            yield head
