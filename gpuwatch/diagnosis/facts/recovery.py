"""Recovery of a GPU (or a loop) that waited again and again and came to be fed: what was before is
no part of what is.

Without it a minute's means still show, for most of a minute, a trouble that was mended.
"""

from collections import deque
from collections.abc import Sequence

from gpuwatch.diagnosis.signals.stretches import Sample

CELL_SECONDS = 2.0
"""Long enough for a fed GPU's logging and optimizer gaps to be a small part."""
FULL_PERCENT = 90.0
"""Of a cell: nothing is missing."""
FED_CELLS = 6
"""Twelve seconds on end: loaders catch up for a while after each epoch."""
LATELY_CELLS = 5
REMEMBERED_CELLS = 36
BEFORE_CELLS = 8
"""So much is looked at, at least, to know what was usual before."""
RUN_CELLS = 2
"""A GPU that was ever fed for longer in that time waits in pauses, not in its steps."""
POOR_PERCENT = 80.0
"""The mean of the time before: less was plainly not fed."""


class Recovery:
    """Fed with the samples of one GPU as they come, or with the share of the time in which a loop
    did not wait for data."""

    __slots__ = ("_area", "_cells", "_seconds", "at", "full_cells")

    def __init__(self) -> None:
        self.at: float | None = None
        """Since when it has been fed, the last time that it came to be."""
        self.full_cells = 0
        """So many in a row, up to now."""
        self._cells: deque[tuple[float, float]] = deque(maxlen=REMEMBERED_CELLS)
        self._area = self._seconds = 0.0

    def extend(self, samples: Sequence[Sample]) -> None:
        for at, percent, length in samples:
            self._area += percent * length
            self._seconds += length
            if self._seconds < 0.99 * CELL_SECONDS:
                continue
            level = self._area / self._seconds
            self._cells.append((at - self._seconds, level))
            self._area = self._seconds = 0.0
            self.full_cells = self.full_cells + 1 if level >= FULL_PERCENT else 0
            if self.full_cells == FED_CELLS and self._was_poor():
                self.at = self._cells[-FED_CELLS][0]

    def gap(self) -> None:
        """Nothing is known of the time up to the next sample."""
        self._cells.clear()
        self._area = self._seconds = 0.0
        self.full_cells = 0

    def lately(self) -> float | None:
        """The mean of the last cells, in percent; ``None``: there are too few."""
        newest = [level for _, level in self._cells][-LATELY_CELLS:]
        return sum(newest) / LATELY_CELLS if len(newest) == LATELY_CELLS else None

    @property
    def is_fed(self) -> bool:
        return self.full_cells >= FED_CELLS

    def _was_poor(self) -> bool:
        before = [level for _, level in self._cells][:-FED_CELLS]
        if len(before) < BEFORE_CELLS or sum(before) / len(before) > POOR_PERCENT:
            return False
        longest = run = 0
        for level in before:
            run = run + 1 if level >= FULL_PERCENT else 0
            longest = max(longest, run)
        return longest <= RUN_CELLS


def recovered(all_of: list[Recovery]) -> float | None:
    """Since when all of a job have been fed, some of which were not before."""
    moments = [one.at for one in all_of if one.at is not None]
    return max(moments) if moments and all(one.is_fed for one in all_of) else None
