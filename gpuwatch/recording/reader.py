"""Files of snapshots: what ``gpuwatch record`` wrote or ``gpuwatch stream`` printed, the choice
between that and a log; and a recording opened to be looked at here and there, with its overview.

A recording is JSON: header lines and one line per snapshot (``codec``); plain, gzip or zstd. Lines
that are damaged are skipped and counted; a recording cut short is good up to its last whole line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from gpuwatch.core.codec import CodecError, Decoder
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.recording.buckets import Bucket, BucketFolder, FindingSpan, FindingSpans
from gpuwatch.recording.frames import Entry, entries_of, mark_before, marks_of
from gpuwatch.sources.files import log_text
from gpuwatch.sources.files.log_text import STANDARD_INPUT, LogError, LogStats, TextLines
from gpuwatch.sources.smi_log.source import LogOptions, read_lines

RECORDING = "recording"
LINE_LENGTH = 16 * 1024 * 1024
"""Ten times a snapshot of 16 GPUs and 4000 processes."""
_BLANK_LINES_MAX = 1000
_RECORDING = re.compile(r"""[ \t\ufeff\x00]*\{(?!\s*$|\s*"(?!kind"|schema"))""")
"""Its first line; other programs write objects that begin with other keys, or with nothing else."""
_RESULT = re.compile(r'\s*\{\s*"kind"\s*:\s*"(comparison|diagnosis|reports?|tune(?:_memory)?)"')
"""In the first lines of what a command prints with --json."""


@dataclass(slots=True)
class OpenedLog:
    """A file being read: a context manager. ``snapshots`` is used once; ``stats`` grows with it.

    Iterating raises ``LogError`` at its end if the file held no snapshot.
    """

    kind: str
    """``recording``, or a key of ``LOG_KINDS``."""
    snapshots: Iterator[Snapshot]
    stats: LogStats
    shown: str
    lines: TextLines

    def __enter__(self) -> OpenedLog:
        return self

    def __exit__(self, *_error: object) -> None:
        self.lines.close()


def open_any(
    path: str,
    options: LogOptions | None = None,
    *,
    begin: tuple[Path, int] | None = None,
    stream: BinaryIO | None = None,
) -> OpenedLog:
    """Open a recording or an ``nvidia-smi`` log, told by what is in it; ``-`` is standard input. A
    recording is read with the files that were put aside before it (``FileSet``).

    ``begin`` is a file and a place in it at which reading can begin (``RecordingIndex.place``);
    ``stream`` is read in the place of the file. Raises ``LogError`` with a sentence.
    """
    stats = LogStats()
    lines = TextLines(path, stats, LINE_LENGTH, begin=begin, stream=stream)
    try:
        source = iter(lines)
        first = _first_lines(source)
        _refuse_result("".join(first), lines.shown)
        every = chain(first, source)
        options = options or LogOptions()
        if options.columns is None and first and _RECORDING.match(first[-1]):
            stats.kind = RECORDING
            snapshots = _read_recording(every, stats, lines)
        else:
            lines.line_length = log_text.LINE_LENGTH
            snapshots = read_lines(every, stats, options, shown=lines.shown, text=lines)
    except BaseException:
        lines.close()
        raise
    return OpenedLog(stats.kind, snapshots, stats, lines.shown, lines)


def _first_lines(source: Iterator[str]) -> list[str]:
    """Up to the first that is neither blank nor a brace alone."""
    found: list[str] = []
    for line in source:
        found.append(line)
        if _strip(line) not in ("", "{") or len(found) >= _BLANK_LINES_MAX:
            break
    return found


def _refuse_result(text: str, shown: str) -> None:
    result = _RESULT.match(text)
    if result is not None:
        use = "gpuwatch report prints it" if result[1] == "report" else "read it with jq"
        raise LogError(
            f"{shown} is a result that gpuwatch printed ({result[1]}), not a recording or a log of "
            f"GPUs: name the file that it was made from, or {use}."
        )


def _strip(line: str) -> str:
    return line.strip(" \t\ufeff\x00\r")


def _read_recording(lines: Iterable[str], stats: LogStats, text: TextLines) -> Iterator[Snapshot]:
    """The snapshots of a stream, as they come. Raises ``LogError`` if there is none."""
    decoder = Decoder()
    first_error: str | None = None
    for line in lines:
        body = _strip(line)
        if not body:
            continue
        try:
            value = decoder.decode(body)
        except CodecError as error:
            first_error = first_error or str(error)
            # A line without its end is the last, and cut off.
            if text.terminated:
                stats.remark(str(error))
            else:
                stats.torn_lines += 1
            continue
        if isinstance(value, Snapshot):
            stats.snapshots += 1
            stats.interval_seconds = value.interval_seconds
            yield value
    if stats.snapshots == 0:
        raise LogError(
            f"{text.shown} is a recording without a snapshot."
            if first_error is None
            else f"{text.shown} cannot be read. {first_error}"
        )


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
