"""Output of ``gpuwatch stream --brief``: brief lines, and whole snapshots when they are asked for.

Who reads asks on standard input: ``full UNIX_SECONDS`` prints what was read in the last ten minutes
and after that moment, and from then on each new snapshot beside its brief line; ``brief`` ends
that. Of the ten minutes only the last has every snapshot: they are there within a second, and the
rules look at a minute.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TextIO

from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.export import JsonLinesWriter
from gpuwatch.recording.file import new_engine
from gpuwatch.recording.hosts.brief import brief_of, encode
from gpuwatch.recording.replay import share

HISTORY_SECONDS = 600.0
WHOLE_SECONDS = 70.0
"""Time of which every snapshot is kept."""
SPARSE_SECONDS = 15.0
"""Time between two of those that are kept of the time before; each says so as its interval."""


class BriefWriter:
    """Judges each snapshot and writes it in brief; keeps the last ten minutes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._engine = new_engine()
        self._earlier: deque[Snapshot] = deque()
        self._recent: deque[Snapshot] = deque()
        self._full: JsonLinesWriter | None = None
        self._lock = threading.Lock()
        self.written = 0
        """Brief lines so far."""

    def write(self, snapshot: Snapshot) -> None:
        """Write the next snapshot in brief. Raises what the file raises."""
        self._engine.push(snapshot)
        line = encode(brief_of(snapshot, self._engine.diagnosis))
        with self._lock:
            self._keep(snapshot)
            self._out.write(f"{line}\n")
            if self._full is not None:
                self._full.write(snapshot)
            self._out.flush()
        self.written += 1

    def answer(self, asked: str) -> None:
        """Do what a line of standard input asks; one that is not understood does nothing."""
        word, _, since = asked.strip().partition(" ")
        if word == "brief":
            with self._lock:
                self._full = None
        elif word == "full":
            try:
                after = float(since or 0.0)
            except ValueError:
                return
            with self._lock:
                every = (*self._earlier, *self._recent)
                kept = [one for one in every if one.taken_at_unix_seconds > after]
                self._full = JsonLinesWriter(self._out)
                for one in kept:
                    self._full.write(one)

    def _keep(self, snapshot: Snapshot) -> None:
        now, earlier, recent = snapshot.monotonic_seconds, self._earlier, self._recent
        # Most of a snapshot is as it was before.
        recent.append(share(snapshot, recent[-1]) if recent else snapshot)
        while recent[0].monotonic_seconds < now - WHOLE_SECONDS:
            one = recent.popleft()
            passed = one.monotonic_seconds - earlier[-1].monotonic_seconds if earlier else 0.0
            if not earlier or passed >= SPARSE_SECONDS:
                seconds = max(one.interval_seconds, SPARSE_SECONDS)
                earlier.append(replace(one, interval_seconds=seconds))
        while earlier and earlier[0].monotonic_seconds < now - HISTORY_SECONDS:
            earlier.popleft()
