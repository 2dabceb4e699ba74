"""The past of a dashboard that starts later: what a running ``gpuwatch record`` has seen so far.

A thread reads it into a history of its own; the snapshots that have come meanwhile follow, and the
charts are then drawn from that. Only recordings that run on this machine now are taken (their notes
say so), so that both clocks are the same one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core.history import History
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.tui.charts.timeline import FindingMark, mark_of
from gpuwatch.tui.replay.overview import REACH_SECONDS, half_minutes, take_blocks

if TYPE_CHECKING:
    from gpuwatch.recording.running import RunningRecording

_FINE_SECONDS = 900.0
"""So much is read snapshot by snapshot, the rest by the half minutes of the overview."""
_PAUSE_SECONDS = 0.002
"""After each snapshot: the screen has the interpreter to itself for most of the time."""


@dataclass(frozen=True, slots=True)
class Past:
    """Contents of a recording; ``history`` holds them."""

    history: History
    path: str
    marks: tuple[FindingMark, ...]
    since_unix_seconds: float


class Backfill:
    """Reads on a thread, from the second snapshot on: the first picture does not wait for it.
    ``push`` it every snapshot until ``take`` has given what there is."""

    def __init__(self, find: Callable[[], Sequence[RunningRecording]], simulated: bool) -> None:
        self._find = find
        self._simulated = simulated
        self._live: list[Snapshot] = []
        self._past: Past | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="gpuwatch-backfill", daemon=True)

    @property
    def done(self) -> bool:
        return self._thread.ident is not None and not self._thread.is_alive()

    def push(self, snapshot: Snapshot) -> None:
        """Keep one that came in before the recording was read."""
        self._live.append(snapshot)
        if len(self._live) == 2:
            self._thread.start()

    def take(self) -> Past | None:
        """Hand over the past, with all that was pushed after it; ``None``: nothing was recorded."""
        past, self._past = self._past, None
        if past is not None:
            for snapshot in self._live:
                past.history.push(snapshot)
        self._live.clear()
        return past

    def stop(self) -> None:
        self._stopped = True

    # On the thread.

    def _work(self) -> None:
        for recording in self._find():
            if recording.simulated == self._simulated and recording.watched_pid is None:
                self._past = self._read(recording.path)
                if self._past is not None:
                    return

    def _read(self, path: str) -> Past | None:
        from gpuwatch.recording.reader import RecordingIndex, recent_snapshots  # noqa: PLC0415
        from gpuwatch.sources.files.log_text import LogError  # noqa: PLC0415

        recent = []
        for snapshot in recent_snapshots(Path(path), _FINE_SECONDS):
            if self._stopped:
                return None
            recent.append(snapshot)
            time.sleep(_PAUSE_SECONDS)
        times = [snapshot.monotonic_seconds for snapshot in recent]
        if not times or any(one >= other for one, other in pairwise(times)):
            return None
        last = recent[-1]
        offset = last.taken_at_unix_seconds - last.monotonic_seconds
        since = recent[0].taken_at_unix_seconds
        history = History()
        marks: tuple[FindingMark, ...] = ()
        try:
            index = RecordingIndex(path)
        except LogError:
            pass
        else:
            known = half_minutes(index.buckets, since - REACH_SECONDS)
            blocks = [block for block in known if block.end_unix_seconds <= since]
            # Half minutes of the wall clock lie on no half minutes of the other: the nearest.
            take_blocks(history, blocks, offset)
            if blocks:
                since = min(since, blocks[0].begin_unix_seconds)
            # One that still holds ends now: the engine will find it again by itself.
            now = last.taken_at_unix_seconds
            marks = tuple([mark_of(span, offset, now) for span in index.findings])
        for snapshot in recent:
            history.push(snapshot)
            time.sleep(_PAUSE_SECONDS)
        return Past(history, clean(path), marks, since)
