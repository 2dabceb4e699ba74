"""Files of snapshots: what ``gpuwatch record`` wrote or ``gpuwatch stream`` printed, and the choice
between that and a log.

A recording is JSON: header lines and one line per snapshot (``codec``); plain, gzip or zstd. Lines
that are damaged are skipped and counted; a recording cut short is good up to its last whole line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType

from gpuwatch.core.codec import CodecError, Decoder
from gpuwatch.core.model import Snapshot
from gpuwatch.sources.files import log_text
from gpuwatch.sources.files.log_text import LogError, LogStats, TextLines
from gpuwatch.sources.smi_log.source import LogOptions, read_lines

RECORDING = "recording"
LINE_LENGTH = 16 * 1024 * 1024
"""Ten times a snapshot of 16 GPUs and 4000 processes."""
_BLANK_LINES_MAX = 1000
_RECORDING = re.compile(r"""[ \t\ufeff\x00]*\{(?!\s*$|\s*"(?!kind"|schema"))""")
"""Its first line; other programs write objects that begin with other keys, or with nothing else."""


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

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.lines.close()


def open_any(
    path: str, options: LogOptions | None = None, *, begin: tuple[Path, int] | None = None
) -> OpenedLog:
    """Open a recording or an ``nvidia-smi`` log, told by what is in it; ``-`` is standard input. A
    recording is read with the files that were put aside before it (``FileSet``).

    ``begin`` is a file and a place in it at which reading can begin (``RecordingIndex.place``).
    Raises ``LogError`` with a sentence.
    """
    stats = LogStats()
    lines = TextLines(path, stats, LINE_LENGTH, begin=begin)
    try:
        source = iter(lines)
        first = _first_lines(source)
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
    """Up to the first that is not blank."""
    found: list[str] = []
    for line in source:
        found.append(line)
        if _strip(line) or len(found) >= _BLANK_LINES_MAX:
            break
    return found


def _strip(line: str) -> str:
    return line.strip(" \t\ufeff\x00\r")


def _read_recording(lines: Iterable[str], stats: LogStats, text: TextLines) -> Iterator[Snapshot]:
    """The snapshots of a stream, as they come. Raises ``LogError`` if there is none."""
    decoder = Decoder()
    first_error: str | None = None
    for line in lines:
        body = _strip(line)
        if not body:
            stats.blank_lines += 1
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
        elif value is not None:
            stats.header_lines += 1
    if stats.snapshots == 0:
        raise LogError(
            f"{text.shown} is a recording without a snapshot."
            if first_error is None
            else f"{text.shown} cannot be read. {first_error}"
        )
