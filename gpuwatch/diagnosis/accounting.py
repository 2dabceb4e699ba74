"""Cost of each cause: GPU time, of which no second is counted for two causes."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from gpuwatch.core.model import GpuKey, Snapshot
from gpuwatch.core.store import busy_time, spacing_of

KEEP_SECONDS = 900.0
"""The first of two pauses is known for what it was when the second has been seen."""
CELL_SECONDS = 1.0
"""Time is kept in pieces of about this length."""
IDLE_SHARE = 0.95
SWING_SECONDS = 2.0
"""Longest idle time of a step: what is longer may be a pause of its own."""
CLAIM_SECONDS = 60.0
"""Jobs that are there and claimed time of a GPU within the last minute share it."""


class _Cells(NamedTuple):
    """Pieces of a GPU's time, in seconds, oldest first."""

    end: array[float]
    seconds: array[float]
    idle: array[float]
    left: array[float]
    """Seconds that no cause has taken."""
    idle_left: array[float]


class GpuTime:
    """The time of every GPU, and how much of it no cause has taken yet.

    Idle time is what the driver's samples say, so all causes together never cost more than the
    GPUs idled, nor a job more than the time it was watched. Times are monotonic.
    """

    def __init__(self) -> None:
        self._cells: dict[Hashable, _Cells] = {}
        self._read_until: dict[GpuKey, float] = {}
        # Weak: a job that has ended shares nothing with the one after it.
        self._claims: dict[Hashable, WeakKeyDictionary[object, float]] = {}

    def add_snapshot(self, snapshot: Snapshot, seconds: float) -> None:
        """Add the GPU time of a snapshot, which speaks for ``seconds``."""
        now = snapshot.monotonic_seconds
        offset, longest = snapshot.taken_at_unix_seconds - now, spacing_of(snapshot).longest
        for gpu in snapshot.gpus:
            reading, known_until = gpu.reading, self._read_until.get(gpu.uuid)
            sampled = reading.busy_samples is not None
            silent = reading.busy_percent is None and not sampled
            if gpu.lost or (silent and known_until is None):
                # Nothing says that it worked.
                self.add(gpu.uuid, now, seconds, seconds)
                continue
            if known_until is None:
                # The time before was nobody's that is known.
                known_until = self._read_until[gpu.uuid] = now
            new = busy_time(reading, known_until, now, seconds, longest=longest, offset=offset)
            if new is not None:
                self._read_until[gpu.uuid] = new.until
                self.add(gpu.uuid, new.until, new.seconds, new.idle_seconds)

    def add(self, key: Hashable, end: float, seconds: float, idle: float) -> None:
        """Add the ``seconds`` up to ``end``, in which it idled for ``idle``."""
        if seconds <= 0.0:
            return
        if key not in self._cells:
            # Those of jobs and GPUs that have been gone for so long go with the first of another.
            oldest = end - KEEP_SECONDS
            for gone in [one for one, cells in self._cells.items() if cells.end[-1] < oldest]:
                del self._cells[gone]
                self._claims.pop(gone, None)
            self._cells[key] = _Cells(*[array("d") for _ in _Cells._fields])
        ends, lengths, idles, left, idle_left = cells = self._cells[key]
        if (
            ends
            and left[-1] == lengths[-1] < CELL_SECONDS
            and end - seconds - ends[-1] < 0.5 * seconds
        ):
            ends[-1] = end
            lengths[-1] += seconds
            idles[-1] += idle
            left[-1] += seconds
            idle_left[-1] += idle
        else:
            for column, number in zip(cells, (end, seconds, idle, seconds, idle), strict=True):
                column.append(number)
        old = bisect_left(ends, end - KEEP_SECONDS)
        for column in cells if old else ():
            del column[:old]

    def end_of(self, key: Hashable) -> float:
        """Return up to where its time is known."""
        cells = self._cells.get(key)
        return cells.end[-1] if cells else float("-inf")

    def worked_until(self, key: Hashable, since: float) -> float:
        """Return up to when it has worked after ``since`` without a pause: what a longer one was,
        a later look says."""
        cells, until, idle = self._cells.get(key), since, 0.0
        if cells is None:
            return since
        for at in range(bisect_right(cells.end, since), len(cells.end)):
            if cells.idle[at] < IDLE_SHARE * cells.seconds[at]:
                until, idle = cells.end[at], 0.0
                continue
            idle += cells.seconds[at]
            if idle > SWING_SECONDS:
                break
        return until

    def sharers(self, key: Hashable, who: object, now: float) -> int:
        """Note that ``who`` claims time of it now; return how many do that still exist."""
        claims = self._claims.setdefault(key, WeakKeyDictionary())
        claims[who] = now
        for other in [one for one, at in claims.items() if now - at > CLAIM_SECONDS]:
            del claims[other]
        return len(claims)

    def take(
        self, key: Hashable, begin: float, end: float, share: float, *, busy: bool = False
    ) -> float:
        """Take ``share`` (0 to 1) of the idle time between the two, or with ``busy`` of all time,
        as far as it is left: how many seconds that were."""
        taken = 0.0
        cells = self._cells.get(key)
        if cells is None:
            return taken
        there = cells.seconds if busy else cells.idle
        free = cells.left if busy else cells.idle_left
        for at in range(bisect_right(cells.end, begin), len(cells.end)):
            ended, seconds = cells.end[at], cells.seconds[at]
            inside = min(ended, end) - max(ended - seconds, begin)
            if inside <= 0.0:
                continue
            part = min(share * there[at] * inside / seconds, free[at])
            left = cells.left[at] = cells.left[at] - part
            cells.idle_left[at] = min(cells.idle_left[at] - (0.0 if busy else part), left)
            taken += part
        return taken
