"""Counters that only rise, over the last quarter of an hour."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

KEPT_SECONDS = 900.0


class Counters:
    """By how much some counters rose lately. One that falls counts anew: its driver was loaded
    again, or somebody set it to 0."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, tuple[int | None, ...]]] = deque()
        """Counts, and from when on they were so; the first can be older than what is kept."""
        self._seen_at = -math.inf

    def add_counts(self, at: float, counts: Sequence[int | None]) -> None:
        """Add the counts of a look at monotonic time ``at``."""
        self._seen_at = at
        if not self._rows or self._rows[-1][1] != tuple(counts):
            self._rows.append((at, tuple(counts)))
        while len(self._rows) > 1 and self._rows[1][0] <= at - KEPT_SECONDS:
            self._rows.popleft()

    @property
    def seconds(self) -> float | None:
        """Time that the rises are about; ``None`` where nothing was read."""
        if all(one is None for one in self.rises()):
            return None
        return min(KEPT_SECONDS, self._seen_at - self._rows[0][0])

    def rises(self) -> tuple[int | None, ...]:
        """Return by how much each has risen; ``None`` for one that was not read."""
        rows = [counts for _, counts in self._rows]
        return tuple([_rise(column) for column in zip(*rows, strict=True)])


def _rise(counts: Sequence[int | None]) -> int | None:
    read = [one for one in counts if one is not None]
    return sum([max(0, later - one) for one, later in pairwise(read)]) if read else None
