"""Files of snapshots: what ``gpuwatch record`` wrote or ``gpuwatch stream`` printed, and the choice
between that and a log.

A recording is a header line and a JSON line a snapshot (``codec``, ``codec_delta``), plain or
gzip. Lines that are damaged, and those that only say what has changed since them, are left out and
counted; a recording that ends early is good up to its last whole line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from types import TracebackType

from gpuwatch.core.codec.delta import BaselessError, RecordingDecoder
from gpuwatch.core.json_values import CodecError
from gpuwatch.core.model import Snapshot
from gpuwatch.sources.files import log_text
from gpuwatch.sources.files.log_text import LogError, LogStats, TextLines
from gpuwatch.sources.smi_log.source import LogOptions, read_lines

RECORDING = "recording"
LINE_LENGTH = 16 * 1024 * 1024
"""Ten times a snapshot of 16 GPUs and 4000 processes."""
_BLANK_LINES_MAX = 1000
_SECONDS_MAX = 1e11
"""Some three thousand years: later is no time, and sums of such overflow."""


@dataclass(slots=True)
class OpenedLog:
    """A file being read: a context manager. ``snapshots`` is used once; ``stats`` grows with it.

    Iterating raises ``LogError`` at its end if the file held no snapshot.
    """

    kind: str
    """``recording``, ``query``, ``dmon`` or ``pmon``."""
    snapshots: Iterator[Snapshot]
    stats: LogStats
    shown: str
    lines: TextLines

    def __enter__(self) -> OpenedLog:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.lines.close()


def open_any(
    path: str,
    options: LogOptions | None = None,
    *,
    begin: int = 0,
) -> OpenedLog:
    """Open a recording or an ``nvidia-smi`` log, told by what is in it; ``-`` is standard input. A
    recording is read with the files that were put aside before it (``file_set``).

    ``begin`` is a place in a recording at which reading can begin (``recording_scan``). Raises
    ``LogError`` with a sentence.
    """
    stats = LogStats()
    lines = TextLines(path, stats, LINE_LENGTH, begin=begin)
    try:
        source = iter(lines)
        first = _first_lines(source)
        every = chain(first, source)
        options = options or LogOptions()
        if options.columns is None and first and _strip(first[-1])[:1] == "{":
            stats.kind = RECORDING
            snapshots = read_recording(every, stats, shown=lines.shown, text=lines)
        else:
            lines.line_length = log_text.LINE_LENGTH
            snapshots = read_lines(every, stats, options, shown=lines.shown, text=lines)
    except BaseException:
        lines.close()
        raise
    return OpenedLog(stats.kind, snapshots, stats, lines.shown, lines)


def _first_lines(source: Iterator[str]) -> list[str]:
    """Up to the first that is not blank."""
    found: list[str] = []
    for line in source:
        found.append(line)
        if _strip(line) or len(found) >= _BLANK_LINES_MAX:
            break
    return found


def _strip(line: str) -> str:
    return line.strip(" \t\ufeff\x00\r")


def read_recording(
    lines: Iterable[str],
    stats: LogStats,
    *,
    shown: str = "The recording",
    text: TextLines | None = None,
) -> Iterator[Snapshot]:
    """The snapshots of a stream, as they come. Raises ``LogError`` if there is none."""
    decoder = RecordingDecoder()
    first_error: str | None = None
    for line in lines:
        body = _strip(line)
        if not body:
            stats.blank_lines += 1
            continue
        try:
            value = decoder.decode(body)
        except BaselessError as error:
            first_error = first_error or str(error)
            stats.baseless_lines += 1
            continue
        except CodecError as error:
            first_error = first_error or str(error)
            # A line without its end is the last, and cut off.
            if text is not None and not text.terminated:
                stats.torn_lines += 1
            else:
                stats.remark(str(error))
            continue
        if isinstance(value, Snapshot) and not _has_times(value):
            first_error = first_error or "Its monotonic time or its interval is out of range."
            stats.remark("A snapshot whose monotonic time or interval is out of range.")
        elif isinstance(value, Snapshot):
            stats.snapshots += 1
            stats.interval_seconds = value.interval_seconds
            yield value
        elif value is not None:
            stats.header_lines += 1
    if stats.snapshots == 0:
        raise LogError(_nothing(shown, first_error))


def _has_times(snapshot: Snapshot) -> bool:
    return (
        abs(snapshot.monotonic_seconds) < _SECONDS_MAX
        and 0.0 <= snapshot.interval_seconds < _SECONDS_MAX
    )


def _nothing(shown: str, error: str | None) -> str:
    if error is None:
        return f"{shown} is a recording without a snapshot."
    return f"{shown} is no recording that can be read: {error}"
