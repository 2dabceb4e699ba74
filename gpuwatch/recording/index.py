"""A recording opened to be looked at here and there, with its overview: a ``Tape``."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.recording.buckets import Bucket, BucketFolder, FindingSpan
from gpuwatch.recording.findings import FindingSpans
from gpuwatch.recording.frames import Entry, entries_of, mark_before, marks_of
from gpuwatch.recording.reader import open_any
from gpuwatch.sources.files.log_text import STANDARD_INPUT, LogError


class RecordingIndex:
    """A recording as far as it was written when it was opened. Raises ``LogError``.

    Its overview is in its entries; the moments after the last of them are read. A file without
    entries is read, and diagnosed, as a whole.
    """

    arriving = False
    progress = 1.0
    error: BaseException | None = None

    def __init__(self, path: str) -> None:
        if path == STANDARD_INPUT:
            raise LogError("Standard input can be read once only: it has no overview.")
        self.path = path
        self.shown = clean(path, 200)
        entries = list(entries_of(path))
        self._marks = marks_of(entries)
        self.buckets: tuple[Bucket, ...] = tuple(
            sorted(
                [bucket for _, _, entry in entries for bucket in entry.buckets],
                key=lambda bucket: bucket.begin_unix_seconds,
            )
        )
        """In the order of their time."""
        self.findings = _spans([entry for _, _, entry in entries])
        """In the order in which they began."""
        times = [entry.begin_unix_seconds for _, _, entry in entries]
        known = [at for at in times if at is not None]
        self.first_unix_seconds = known[0] if known else None
        self.last_unix_seconds = max(known, default=None)
        self._notes: tuple[str, ...] = ()
        self._read_end()

    def notes(self) -> tuple[str, ...]:
        """Sentences about what could not be read at its end."""
        return self._notes

    def place(self, unix_seconds: float) -> tuple[Path, int] | None:
        """Where to begin to read for what was taken from ``unix_seconds`` on."""
        mark = mark_before(self._marks, unix_seconds)
        if mark is not None and not mark.is_there:
            self._marks = marks_of(list(entries_of(self.path)))
            mark = mark_before(self._marks, unix_seconds)
        return None if mark is None else (mark.file, mark.offset)

    def snapshots(self, from_unix_seconds: float) -> Iterator[Snapshot]:
        """From the last frame that begins at or before ``from_unix_seconds`` to the end. Raises
        ``LogError`` where the file is gone."""
        with open_any(self.path, begin=self.place(from_unix_seconds)) as log, suppress(LogError):
            yield from log.snapshots

    def close(self) -> None:
        """Nothing is open; iterators that ``snapshots`` gave go on."""

    def _read_end(self) -> None:
        folder, found = BucketFolder(), list(self.buckets)
        spans = None if self._marks else FindingSpans()
        known = found[-1].end_unix_seconds if found else float("-inf")
        with open_any(self.path, begin=self.place(known)) as log:
            for snapshot in log.snapshots:
                at = snapshot.taken_at_unix_seconds
                if self.first_unix_seconds is None:
                    self.first_unix_seconds = at
                self.last_unix_seconds = max(at, self.last_unix_seconds or at)
                if spans is not None:
                    spans.push(snapshot)
                    self.findings = spans.spans
                bucket = folder.push(snapshot) if at >= known else None
                if bucket is not None:
                    found.append(bucket)
        rest = folder.end()
        self.buckets = tuple(found if rest is None else [*found, rest])
        # A recording that is still written to is always cut off.
        self._notes = tuple(replace(log.stats, damage=None, notes=[]).sentences())


def is_indexed(path: str) -> bool:
    """True of what ``record`` wrote: opening it reads no more than the last minute."""
    return path != STANDARD_INPUT and next(entries_of(path), None) is not None


def recent_snapshots(path: str | Path, seconds: float) -> Iterator[Snapshot]:
    """The snapshots of the last ``seconds`` (and up to a minute more) of a recording that may still
    be written to, oldest first; those before are not read where it is indexed. None where nothing
    can be read."""
    marks = marks_of(list(entries_of(str(path))))
    oldest = marks[-1].unix_seconds - seconds if marks else float("-inf")
    mark = mark_before(marks, oldest)
    begin = None if mark is None else (mark.file, mark.offset)
    with suppress(LogError), open_any(str(path), begin=begin) as log:
        snapshots = (one for one in log.snapshots if one.taken_at_unix_seconds >= oldest)
        yield from snapshots if marks else _last(snapshots, seconds)


def _last(snapshots: Iterator[Snapshot], seconds: float) -> Iterable[Snapshot]:
    found: deque[Snapshot] = deque()
    for snapshot in snapshots:
        found.append(snapshot)
        while found[0].taken_at_unix_seconds < snapshot.taken_at_unix_seconds - seconds:
            found.popleft()
    return found


def _spans(entries: list[Entry]) -> tuple[FindingSpan, ...]:
    spans: dict[object, FindingSpan] = {}
    before: Entry | None = None
    last = 0.0
    for entry in entries:
        if before is not None and entry.run != before.run:
            # Another recording was appended: what held before, nobody saw end.
            for key, span in spans.items():
                if span.end_unix_seconds is None:
                    end = max(last, span.begin_unix_seconds)
                    spans[key] = replace(span, end_unix_seconds=end)
        before = entry
        for span in entry.findings:
            spans[span.rule, span.gpus, span.job, span.begin_unix_seconds] = span
        ends = [bucket.end_unix_seconds for bucket in entry.buckets]
        last = max([last, *ends])
    return tuple(sorted(spans.values(), key=lambda span: span.begin_unix_seconds))
