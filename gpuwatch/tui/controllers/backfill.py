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

from gpuwatch.core.history import BLOCK_SECONDS, History
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.tui.charts.timeline import FindingMark

if TYPE_CHECKING:
    from gpuwatch.recording.index import RecordingIndex
    from gpuwatch.recording.running import RunningRecording

_FINE_SECONDS = 900.0
"""So much is read snapshot by snapshot, the rest by the half minutes of the overview."""
_REACH_SECONDS = 12 * 3600.0
_PAUSE_SECONDS = 0.002
"""After each snapshot: the screen has the interpreter to itself for most of the time."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What was found; ``history`` holds it."""

    history: History
    path: str
    marks: tuple[FindingMark, ...]
    since_unix_seconds: float


class Filling:
    """Reads on a thread. ``push`` it every snapshot until ``take`` has given what there is."""

    def __init__(self, find: Callable[[], Sequence[RunningRecording]], simulated: bool) -> None:
        self._find = find
        self._simulated = simulated
        self._live: list[Snapshot] = []
        self._filled: Filled | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="gpuwatch-filling", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def push(self, snapshot: Snapshot) -> None:
        """One that came in while the recording is read."""
        self._live.append(snapshot)

    def take(self) -> Filled | None:
        """What there was, with all that was pushed after it; ``None``: nothing was recorded."""
        filled, self._filled = self._filled, None
        if filled is not None:
            for snapshot in self._live:
                filled.history.push(snapshot)
        self._live.clear()
        return filled

    def stop(self) -> None:
        self._stopped = True

    # On the thread.

    def _work(self) -> None:
        for recording in self._find():
            if recording.simulated == self._simulated and recording.watched_pid is None:
                self._filled = self._read(recording.path)
                if self._filled is not None:
                    return

    def _read(self, path: str) -> Filled | None:
        from gpuwatch.recording.recorder import open_index, recent_snapshots  # noqa: PLC0415
        from gpuwatch.sources.files.log_text import LogError  # noqa: PLC0415

        recent = []
        for snapshot in recent_snapshots(Path(path), _FINE_SECONDS):
            if self._stopped:
                return None
            recent.append(snapshot)
            time.sleep(_PAUSE_SECONDS)
        if not recent or any(
            one.monotonic_seconds >= other.monotonic_seconds for one, other in pairwise(recent)
        ):
            return None
        last = recent[-1]
        offset = last.taken_at_unix_seconds - last.monotonic_seconds
        history = History()
        marks: tuple[FindingMark, ...] = ()
        since = recent[0].taken_at_unix_seconds
        try:
            index = open_index(path)
        except LogError:
            pass
        else:
            since = min(since, self._overview(history, index, since, offset))
            marks = tuple(_marks(index, offset, last.monotonic_seconds))
        for snapshot in recent:
            history.push(snapshot)
            time.sleep(_PAUSE_SECONDS)
        return Filled(history, clean(path), marks, since)

    def _overview(
        self, history: History, index: RecordingIndex, until: float, offset: float
    ) -> float:
        """Fill in what lies before ``until``; when that begins."""
        first = until
        for bucket in index.buckets:
            begin = bucket.begin_unix_seconds
            if bucket.seconds != BLOCK_SECONDS or begin < until - _REACH_SECONDS:
                continue
            if bucket.end_unix_seconds > until:
                break
            # Half minutes of the wall clock lie on no half minutes of the other: the nearest.
            history.take_block(
                begin - offset,
                {
                    uuid: {n: (b.minimum, b.mean, b.maximum) for n, b in bands.items()}
                    for uuid, bands in bucket.gpus.items()
                },
                {n: (b.minimum, b.mean, b.maximum) for n, b in bucket.host.items()},
            )
            first = min(first, begin)
        return first


def _marks(index: RecordingIndex, offset: float, now: float) -> list[FindingMark]:
    """One that still holds ends now: the engine will find it again by itself."""
    return [
        FindingMark(
            rule=one.rule,
            severity=one.severity,
            summary=one.summary,
            gpus=one.gpus,
            begin_seconds=one.begin_unix_seconds - offset,
            end_seconds=now if one.end_unix_seconds is None else one.end_unix_seconds - offset,
        )
        for one in index.findings
    ]
