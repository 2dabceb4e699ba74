"""Recorder of snapshots: follows the findings, adds up the statistics, begins frames.

A frame begins each minute (by the wall clock), where the GPUs are others, and after what could not
be written. With ``rotate_seconds`` the file is put aside from time to time under its name with the
time (UTC) of its first snapshot in it: ``run.jsonl.zst`` becomes
``run.20260131T120000Z.jsonl.zst``, so names sort by time. ``keep`` of those are kept, besides the
one that is written to.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core.background import DaemonWorker, Task
from gpuwatch.core.codec import StreamWriter, identities
from gpuwatch.core.model import Snapshot
from gpuwatch.core.private_files import why
from gpuwatch.core.text import clean
from gpuwatch.core.units import plural
from gpuwatch.diagnosis.ledger import Ledger
from gpuwatch.recording.file import (
    Entry,
    RecordingError,
    RecordingFile,
    Total,
    new_engine,
    packed_entry,
    packed_total,
)
from gpuwatch.recording.redaction import redacted
from gpuwatch.recording.statistics import Statistics
from gpuwatch.sources.logs.text import rotated_files, split_name

if TYPE_CHECKING:
    from gpuwatch.diagnosis.engine import Engine
    from gpuwatch.diagnosis.finding import Diagnosis

__all__ = ["BackgroundRecorder", "Recorder", "RecordingError", "RecordingState"]

FRAME_SECONDS = 60.0
TOTAL_SECONDS = 3600.0
"""Time between two totals, at least: that of less is added up in a moment."""
_TOTAL_SHARE = 1 / 32
"""Part of the time so far that passes until the next, at least: in a file of a week, two hundredths
are totals."""
_QUEUE_MOST = 120
"""Snapshots that wait for a disk that hangs."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingState:
    path: Path
    snapshots: int
    """Snapshots written."""
    written_bytes: int
    findings: int
    """Findings raised so far."""
    lost_snapshots: int
    """Snapshots that could not be written, or were in a file that was deleted, all in all."""
    trouble: str | None
    """The reason why nothing can be written now, as a sentence."""
    notice: str | None = None
    """The last thing that happened to the file, as a sentence; recording goes on."""


class Recorder:
    """Writes snapshots to ``path`` (appending). ``push`` blocks as a disk does, and raises nothing
    for what a disk can do: see ``state``. Raises ``RecordingError`` where it cannot begin.

    ``write`` stands for ``os.write``, ``monotonic`` for the clock that says when to flush.
    """

    def __init__(
        self,
        path: Path,
        *,
        rotate_seconds: float | None = None,
        keep: int | None = None,
        redact: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.path = path
        self._rotate_seconds = rotate_seconds
        self._keep = keep
        self._redact = redact
        self._lines = StreamWriter()
        self._engine: Engine | None = None
        self._diagnosis: Diagnosis | None = None
        self._ledger = Ledger(newest=True)
        self._ledger_until = -math.inf
        """Up to when the entries have the ledger."""
        self._statistics = Statistics(in_parts=True)
        """Since the frame before; while a disk is full, that is long."""
        self._monotonic = monotonic
        self._write = write
        self._run = os.urandom(6).hex()
        self._file: RecordingFile | None = self._opened()
        self._file_began: float | None = None
        """Time of the file's first snapshot."""
        self._total: _RunningTotal | None = None
        """Sum of the entries in the file."""
        self._file_snapshots = 0
        self._closed_bytes = 0
        self._before: Snapshot | None = None
        """The last snapshot of the frame that is written."""
        self._latest: float | None = None
        self._snapshots = 0
        self._lost = 0
        self._trouble: str | None = None
        self._notice: str | None = None

    @property
    def state(self) -> RecordingState:
        file = self._file
        return RecordingState(
            path=self.path,
            snapshots=self._snapshots,
            written_bytes=self._closed_bytes + (0 if file is None else file.written_bytes),
            findings=self._ledger.raised,
            lost_snapshots=self._lost,
            trouble=self._trouble,
            notice=self._notice,
        )

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis | None = None) -> None:
        """Record ``snapshot``. It is diagnosed, unless ``diagnosis`` says what was found in it."""
        if self._redact:
            snapshot, diagnosis = redacted(snapshot), None
        can_write = self._can_write()
        begins = self._needs_frame(snapshot)
        if begins and self._engine is not None and self._latest is not None:
            # What sums up the frame before says all that was lost in it, and nothing of this one.
            self._engine.finish()
            self._note_diagnosis(self._latest, self._engine.diagnosis)
        written = can_write and self._put(snapshot, begins=begins)
        self._latest = snapshot.taken_at_unix_seconds
        # What a frame says of its minute is written after it, before the next.
        self._statistics.add_snapshot(snapshot)
        self._note_diagnosis(self._latest, diagnosis or self._diagnosed(snapshot))
        if not written:
            self._lost += 1
            self._before = None
            return
        self._before = snapshot
        self._snapshots += 1
        self._file_snapshots += 1
        self._note_trouble()

    def _diagnosed(self, snapshot: Snapshot) -> Diagnosis:
        if self._engine is None:
            self._engine = new_engine()
        self._engine.push(snapshot)
        return self._engine.diagnosis

    def _note_diagnosis(self, at_unix_seconds: float, diagnosis: Diagnosis) -> None:
        if diagnosis is not self._diagnosis:
            if self._diagnosis is None:
                # Whoever diagnoses may have watched before this recording began.
                self._ledger.leave_out_before(at_unix_seconds, diagnosis)
            self._diagnosis = diagnosis
            self._ledger.add_diagnosis(diagnosis, at_unix_seconds)

    def close(self, diagnosis: Diagnosis | None = None) -> None:
        """End the recording with what was found up to its last second: ``diagnosis``, where
        somebody else looks for it."""
        fate = self._leave_lost_file()
        if fate is not None:
            self._trouble = f"{fate}."
        elif self._latest is not None:
            if self._engine is not None:
                self._engine.finish()
                diagnosis = self._engine.diagnosis
            if diagnosis is not None:
                self._note_diagnosis(self._latest, diagnosis)
            self._write_end()
        if self._file is not None:
            self._leave_file(self._file)
            self._note_trouble()

    def _needs_frame(self, snapshot: Snapshot) -> bool:
        before = self._before
        if before is None or identities(before) != identities(snapshot):
            return True
        minutes = [one.taken_at_unix_seconds // FRAME_SECONDS for one in (before, snapshot)]
        return minutes[0] != minutes[1] or self._rotation_due(snapshot)

    def _rotation_due(self, snapshot: Snapshot) -> bool:
        began, rotate = self._file_began, self._rotate_seconds
        if began is None or rotate is None:
            return False
        return snapshot.taken_at_unix_seconds - began >= rotate

    def _put(self, snapshot: Snapshot, *, begins: bool) -> bool:
        """Write ``snapshot``, which begins a frame or goes on with one; return false without a file
        for it."""
        if begins:
            self._turn_over(snapshot)
        file = self._file
        if file is None:
            return False
        if begins:
            # Each frame can be read alone.
            header = self._lines.header(snapshot)
            text = f"{header}\n{self._lines.lines(snapshot)}\n"
            self._begin_frame(file, snapshot.taken_at_unix_seconds, text)
        else:
            file.write(f"{self._lines.lines(snapshot)}\n")
        return True

    def _write_end(self) -> None:
        """Write the statistics of the last frame of the file."""
        if self._file is not None and self._file_snapshots and self._can_write():
            self._begin_frame(self._file, None, "")

    def _begin_frame(self, file: RecordingFile, begin: float | None, text: str) -> None:
        """Begin a frame with ``text``, or (``begin`` is ``None``) end the file, after what sums up
        the frame before; and all frames before, where enough was added."""
        entry = self._taken_entry(begin)
        data = packed_entry(entry)
        file.end_frame()
        total = b""
        if self._total is not None:
            total = self._total.added_entry(entry, self._ledger, file.end_offset)
        if file.packed and begin is not None:
            self._total = self._total or _RunningTotal(begin)
            self._total.note_frame(file.end_offset + len(total))
        file.begin(total + data, text)

    def _taken_entry(self, begin: float | None) -> Entry:
        counted = self._statistics.grid is not None
        entry = Entry(
            run=self._run,
            begin_unix_seconds=begin,
            part=self._statistics.take_part(last=begin is None) if counted else None,
            ledger=self._ledger.page(self._ledger_until),
            unknown=None if self._diagnosis is None else self._diagnosis.unknown,
        )
        self._ledger_until = self._latest or -math.inf
        return entry

    # The file.

    def _opened(self) -> RecordingFile:
        return RecordingFile(self.path, monotonic=self._monotonic, write=self._write)

    def _leave_file(self, file: RecordingFile) -> None:
        file.close()
        self._closed_bytes += file.written_bytes
        self._file, self._file_began, self._file_snapshots = None, None, 0
        self._total = None

    def _leave_lost_file(self) -> str | None:
        """End a file that no longer has its name, and return what happened, as a clause. Checked
        with every snapshot, since what goes into a deleted file is lost."""
        file = self._file
        fate = None if file is None else file.fate()
        if file is None or fate is None:
            return None
        # The name alone: a line of the screen holds what happened to it, too.
        clause = f"{clean(self.path.name, 60)} was {fate} during the recording"
        if fate == "deleted":
            lost = self._file_snapshots
            clause += f", with {plural(lost, 'snapshot')} in it"
            self._snapshots -= lost
            self._lost += lost
            self._closed_bytes -= file.written_bytes
        self._leave_file(file)
        self._before = None
        return clause

    def _can_write(self) -> bool:
        lost_file = self._leave_lost_file()
        if self._file is None:
            try:
                self._file = self._opened()
            except RecordingError as error:
                self._trouble = str(error) if lost_file is None else f"{lost_file}. {error}"
                return False
            if lost_file is not None:
                self._notice = f"{lost_file}: recording goes on in another file of that name."
        file = self._file
        if file.stuck and not file.retry():
            full = file.trouble is not None and file.trouble.errno in _FULL
            if not (full and self._remove_oldest(0) and file.retry()):
                self._note_trouble()
                return False
        return True

    def _note_trouble(self) -> None:
        error = None if self._file is None else self._file.trouble
        if error is None:
            self._trouble = None if self._file is not None else self._trouble
            return
        self._trouble = (
            f"{clean(str(self.path), 200)} cannot be written: {why(error)}. What is in it is kept, "
            "and writing is retried."
        )

    def _turn_over(self, snapshot: Snapshot) -> None:
        file, began = self._file, self._file_began
        assert file is not None
        if began is None or not self._rotation_due(snapshot):
            self._file_began = snapshot.taken_at_unix_seconds if began is None else began
            return
        self._write_end()
        self._leave_file(file)
        # Where it cannot be renamed it is written to on and on.
        with contextlib.suppress(OSError):
            self._put_aside(began)
        try:
            self._file, self._file_began = self._opened(), snapshot.taken_at_unix_seconds
        except RecordingError as error:
            self._trouble = str(error)
        if self._keep is not None:
            self._remove_oldest(self._keep)

    def _put_aside(self, began: float) -> None:
        stem, ending = split_name(self.path.name)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began))
        target = self.path.with_name(f"{stem}.{stamp}{ending}")
        number = 1
        while target.exists():
            number += 1
            target = self.path.with_name(f"{stem}.{stamp}-{number}{ending}")
        self.path.rename(target)

    def _remove_oldest(self, keep: int) -> bool:
        """Remove files put aside down to ``keep`` of them, or one where the disk is full (``keep``
        0)."""
        if self._rotate_seconds is None or self._keep is None:
            return False
        aside = rotated_files(self.path)
        surplus = aside[: len(aside) - keep] if keep else aside[:1]
        removed = False
        for path in surplus:
            with contextlib.suppress(OSError):
                path.unlink()
                removed = True
        return removed


class _RunningTotal:
    """Sum of the entries of one file so far, which is written at longer and longer intervals."""

    def __init__(self, begin_unix_seconds: float) -> None:
        self._begin = self._written_until = begin_unix_seconds
        self._statistics = Statistics()
        self._first_offset: int | None = None
        self._last_offset = 0

    def note_frame(self, offset: int) -> None:
        """Note where the entry of the next frame is."""
        self._first_offset = offset if self._first_offset is None else self._first_offset
        self._last_offset = offset

    def added_entry(self, entry: Entry, ledger: Ledger, offset: int) -> bytes:
        """Add the entry after the last frame, and return the total to be written at ``offset``:
        nothing while little came since the last."""
        if entry.part is None or self._first_offset is None:
            return b""
        self._statistics.merge(entry.part)
        end, is_last = entry.part.time.end, entry.begin_unix_seconds is None
        passed = end - self._begin
        since = passed if is_last else end - self._written_until
        if since < max(TOTAL_SECONDS, 0.0 if is_last else _TOTAL_SHARE * passed):
            return b""
        self._written_until = end
        return packed_total(
            Total(
                entry=Entry(
                    run=entry.run,
                    part=self._statistics.whole_part(),
                    ledger=ledger.page(self._begin),
                    unknown=entry.unknown,
                ),
                first_bytes=offset - self._first_offset,
                last_bytes=offset - self._last_offset,
            )
        )


class BackgroundRecorder:
    """A ``Recorder`` on a thread of its own: ``push`` never waits for a disk. What comes while a
    disk hangs for minutes is left out, and counted."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._dropped = 0
        self._worker = DaemonWorker("gpuwatch-recorder")
        self._pushed: deque[Task[None]] = deque()
        """Tasks that are not done, and those that went wrong."""
        self._closing: Task[None] | None = None

    @property
    def error(self) -> BaseException | None:
        """A bug: what comes after it may not be written."""
        return next((task.error for task in self._pushed if task.error is not None), None)

    @property
    def state(self) -> RecordingState:
        state = self._recorder.state
        if not self._dropped:
            return state
        return replace(state, lost_snapshots=state.lost_snapshots + self._dropped)

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis | None = None) -> None:
        """Have ``snapshot`` recorded, with what was found in it if that is known."""
        while self._pushed and self._pushed[0].done and self._pushed[0].error is None:
            self._pushed.popleft()
        if len(self._pushed) >= _QUEUE_MOST:
            self._dropped += 1
            return
        self._pushed.append(self._worker.submit(partial(self._recorder.push, snapshot, diagnosis)))

    def close(self, seconds: float = 10.0, diagnosis: Diagnosis | None = None) -> bool:
        """Have the end written (see ``Recorder.close``), and return whether that was done within
        ``seconds``."""
        if self._closing is None:
            self._closing = self._worker.submit(partial(self._recorder.close, diagnosis))
            self._pushed.append(self._closing)
            self._worker.stop()
        return self._closing.wait(seconds) and self.error is None
