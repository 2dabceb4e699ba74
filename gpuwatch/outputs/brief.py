"""Output of ``gpuwatch stream --brief``: brief lines, and whole snapshots when they are asked for.

Who reads asks on standard input: ``full UNIX_SECONDS`` prints what was read in the last ten minutes
and after that moment, and from then on each new snapshot beside its brief line; ``brief`` ends
that. Of the ten minutes only the last has every snapshot: they are there within a second, and the
rules look at a minute.

With ``--findings`` all that is found stands in a line of its own, whenever it changes and every
ten seconds.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TextIO

from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.export import JsonLinesWriter
from gpuwatch.recording.file import new_engine
from gpuwatch.recording.hosts.brief import brief_of, encode, found_of
from gpuwatch.recording.replay import share

HISTORY_SECONDS = 600.0
WHOLE_SECONDS = 70.0
"""Time of which every snapshot is kept."""
FINDINGS_SECONDS = 10.0
SPARSE_SECONDS = 15.0
"""Time between two of those that are kept of the time before; each says so as its interval."""


class BriefWriter:
    """Judges each snapshot and writes it in brief; keeps the last ten minutes."""

    def __init__(self, out: TextIO, *, findings: bool = False) -> None:
        """``findings``: with lines of all that is found."""
        self._out = out
        self._says_findings = findings
        self._findings_said: tuple[int, float] | None = None
        """Changes of the ledger when they were said last, and when that was."""
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
            if self._says_findings and self._are_due(snapshot.monotonic_seconds):
                found = found_of(snapshot, self._engine.diagnosis)
                self._out.write(f"{encode(found)}\n")
            self._out.write(f"{line}\n")
            if self._full is not None:
                self._full.write(snapshot)
            self._out.flush()
        self.written += 1

    def _are_due(self, now: float) -> bool:
        changes, said = self._engine.ledger.changes, self._findings_said
        if said is not None and said[0] == changes and now - said[1] < FINDINGS_SECONDS:
            return False
        self._findings_said = changes, now
        return True

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
