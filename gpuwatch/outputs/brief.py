"""What ``gpuwatch stream --brief`` prints: brief lines, and the whole snapshots when it is asked.

Who reads asks on standard input: ``full UNIX_SECONDS`` prints what was read in the last ten minutes
and after that moment (with a few snapshots from before it), and from then on each new snapshot
beside its brief line; ``brief`` ends that.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TextIO

from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.export import JsonLinesWriter
from gpuwatch.recording.file import new_engine
from gpuwatch.recording.hosts.brief import brief_of, encode
from gpuwatch.recording.replay import packed, stream_of, stream_unpacked

HISTORY_SECONDS = 600.0
_CHUNK_SNAPSHOTS = 15


class BriefWriter:
    """Judges each snapshot and writes it in brief; keeps the last ten minutes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._engine = new_engine()
        self._history: deque[tuple[float, bytes]] = deque()
        """Packed snapshots, each with the moment of the last of them."""
        self._recent: list[Snapshot] = []
        """Snapshots that are not packed yet."""
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
            self._full = None
        elif word == "full":
            try:
                after = float(since or 0.0)
            except ValueError:
                return
            with self._lock:
                parts = [stream_unpacked(data) for end, data in self._history if end > after]
                if self._recent:
                    parts.append(stream_of(self._recent))
                self._out.write("".join([f"{part}\n" for part in parts]))
                self._out.flush()
                # Its first line is a header: numbers of processes begin anew with each.
                self._full = JsonLinesWriter(self._out)

    def _keep(self, snapshot: Snapshot) -> None:
        now = snapshot.taken_at_unix_seconds
        self._recent.append(snapshot)
        if len(self._recent) >= _CHUNK_SNAPSHOTS:
            self._history.append((now, packed(self._recent)))
            self._recent = []
        while self._history and self._history[0][0] < now - HISTORY_SECONDS:
            self._history.popleft()
