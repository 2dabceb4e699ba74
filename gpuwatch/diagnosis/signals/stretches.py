"""Pauses of a GPU, which interrupt its work now and then and are not its usual waits; and recovery
from waits, since when it has been fed."""

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuwatch.diagnosis.signals.waveform import BUSY_PERCENT, IDLE_PERCENT, percentile

# --- pauses -----------------------------------------------------------------------------------

LEAST_SECONDS = 3.0
"""Shorter idling is a wait for a batch, a logging step, a garbage collection."""
LEAST_SAMPLES = 1.5
"""Fewest samples of a pause: in a log with few, one low sample, which speaks for a second, is
none."""
USUAL_FACTOR = 4.0
"""How many times longer than nine of ten of its idle runs a pause is."""
WORK_BEFORE_SECONDS = 10.0
"""Work since the pause before: without it, idling is the usual state."""
WORK_SHARE = 0.2
"""Busy share of that work."""
BRIEF_SECONDS = 1.5
"""Shortest idling that is worth a look at what the job did in it."""
BRIEF_WORK_SHARE = 0.5
"""Busy share of the work before it."""
BRIEF_MAX = 40
KEEP_SECONDS = 900.0
PAUSES_MAX = 200
RUNS_REMEMBERED = 200

CELL_SECONDS = 1.0
CELLS_REMEMBERED = 240
CELLS_LEAST = 12
"""Before a usual level is known."""
CELLS_APART, CELLS_PARTS = 6, 12
"""Cells between two looks at the usual level, or a part of all: a few seconds more hardly move the
median of minutes."""
CELLS_FLAT = 3
FLAT_PERCENT = 5.0
FLAT_LEAST_PERCENT = 80.0
"""A few cells that are high and alike need no more to be the usual level."""
LEVEL_LEAST_PERCENT = 50.0
DIP_PERCENT = 15.0
DIP_DEVIATIONS = 6.0
"""A dip is this far below the median of the last minutes: in percent, and in median deviations, so
that a signal that swings all the time has none."""
DIP_MAX_SECONDS = 180.0
"""Longer is the new usual."""
GAP_MAX_SECONDS = 30.0
"""Behind a longer gap it is another dip."""

CELLS_BEFORE_IDLING = 24
"""A job whose first waits for batches are seen has no usual work yet to leave."""
OPEN_MAX_SECONDS = 90.0
"""How long what may be a pause is waited for: most validation passes are over by then, and a job
that got slower for good is not kept from being found for longer."""
OPEN_FACTOR = 2.0
"""Multiple of the longest pause that was seen, if that is more."""


Sample = tuple[float, float, float]
"""(at, percent, length): the mean over the length up to then."""


@dataclass(frozen=True, slots=True)
class Stretch:
    begin: float
    end: float
    busy_percent: float


class PauseWatch:
    """Finder of pauses in the samples of one GPU, which it takes as they come."""

    __slots__ = (
        "_begin", "_busy", "_busy_seconds", "_cell", "_dip", "_dipped_until", "_idle_area",
        "_least", "_level", "_levels", "_since_level", "_state", "_usual", "_work", "brief",
        "found",
    )  # fmt: skip

    def __init__(self) -> None:
        self.found: deque[Stretch] = deque(maxlen=PAUSES_MAX)
        """Pauses that are over, by their end."""
        self.brief: deque[Stretch] = deque(maxlen=BRIEF_MAX)
        """Idling that is too short for a pause, or too soon after another: what the job did in it
        must tell."""
        self._usual, self._levels = array("f"), array("f")
        """Lengths of its idle runs, and how busy the last cells were."""
        self._level = -math.inf
        self._since_level = 0
        self._work = 0.0
        self._busy_seconds = 0.0
        self._state: bool | None = None
        self._begin = 0.0
        self._idle_area = 0.0
        self._cell = [0.0, 0.0]
        self._dip: list[float] | None = None
        """Begin, area, seconds seen, end so far."""
        self._dipped_until = -math.inf
        self._least = LEAST_SECONDS

    def extend(self, samples: Sequence[Sample]) -> None:
        """Take samples, one at least."""
        state, cell = self._state, self._cell
        self._least = max(LEAST_SECONDS, LEAST_SAMPLES * samples[-1][2])
        for at, percent, length in samples:
            if percent >= BUSY_PERCENT:
                if state is False:
                    self._end_idling(at - length)
                state = True
            elif percent <= IDLE_PERCENT and state is not False:
                state, self._begin, self._idle_area = False, at - length, 0.0
            area = percent * length
            if state is False:
                self._idle_area += area
            else:
                self._work += length
                if state:
                    self._busy_seconds += length
            cell[0] += area
            cell[1] += length
            # Samples of a sixth of a second do not add up to a second exactly.
            if cell[1] >= 0.99 * CELL_SECONDS:
                self._end_cell(at)
        self._state = state

    def gap(self) -> None:
        """Note that nothing is known between the sample before and the next. A dip ends with it,
        unless it is still there behind a short gap."""
        self._state = None
        self._cell[0] = self._cell[1] = 0.0

    def open(self, at: float) -> Stretch | None:
        """Find what may be a pause and is not over; ``None`` where nothing is, or not any more."""
        found = self._open(at) if self._level > 0.0 else None
        if found is None or self._is_young(found):
            return None
        longest = max([one.end - one.begin for one in self.found], default=0.0)
        waits = max(OPEN_MAX_SECONDS, OPEN_FACTOR * longest)
        return found if found.end - found.begin <= min(waits, DIP_MAX_SECONDS) else None

    def _is_young(self, found: Stretch) -> bool:
        return found.busy_percent <= IDLE_PERCENT and len(self._levels) < CELLS_BEFORE_IDLING

    def _open(self, at: float) -> Stretch | None:
        seconds = at - self._begin
        if self._state is False and seconds >= self._least and self._is_pause(seconds):
            return Stretch(self._begin, at, self._idle_area / seconds)
        dip = self._dip
        if dip is None or dip[2] < self._least:
            return None
        return Stretch(dip[0], dip[3], dip[1] / dip[2])

    def forget_before(self, at: float) -> None:
        for stretches in (self.found, self.brief):
            while stretches and stretches[0].end < at:
                stretches.popleft()

    def _end_idling(self, at: float) -> None:
        seconds = at - self._begin
        if seconds >= self._least and self._is_pause(seconds):
            self.found.append(Stretch(self._begin, at, self._idle_area / seconds))
            self._work = self._busy_seconds = 0.0
            return
        if seconds >= BRIEF_SECONDS and self._busy_seconds >= BRIEF_WORK_SHARE * self._work:
            self.brief.append(Stretch(self._begin, at, self._idle_area / seconds))
        self._usual.append(seconds)
        del self._usual[:-RUNS_REMEMBERED]
        self._work += seconds

    def _is_pause(self, seconds: float) -> bool:
        steady = self._work >= WORK_BEFORE_SECONDS and (
            self._busy_seconds >= WORK_SHARE * self._work
        )
        return steady and seconds > self._usual_wait()

    def _usual_wait(self) -> float:
        return USUAL_FACTOR * percentile(sorted(self._usual), 0.9) if self._usual else 0.0

    def _end_cell(self, at: float) -> None:
        cell = self._cell
        level, seconds = cell[0] / cell[1], cell[1]
        cell[0] = cell[1] = 0.0
        self._dips(at, level, seconds)
        dip = self._dip
        if dip is not None and at - dip[0] < OPEN_MAX_SECONDS:
            # What may be a pause says nothing of the usual work.
            return
        levels = self._levels
        levels.append(level)
        del levels[:-CELLS_REMEMBERED]
        self._since_level += 1
        if len(levels) < CELLS_LEAST:
            if len(levels) == CELLS_FLAT:
                self._level = _flat_level(levels)
        elif self._since_level >= max(CELLS_APART, len(levels) // CELLS_PARTS):
            self._since_level = 0
            self._level = _usual_level(levels)

    def _dips(self, at: float, level: float, seconds: float) -> None:
        dip = self._dip
        if dip is not None and at - seconds - dip[3] > GAP_MAX_SECONDS:
            self._end_dip(dip)
            dip = None
        if level < self._level and not self._is_first_wait(level):
            if dip is None:
                dip = self._dip = [at - seconds, 0.0, 0.0, at]
            dip[1] += level * seconds
            dip[2] += seconds
            dip[3] = at
        elif dip is not None:
            self._end_dip(dip)

    def _is_first_wait(self, level: float) -> bool:
        return level <= IDLE_PERCENT and len(self._levels) < CELLS_LEAST

    def _end_dip(self, dip: list[float]) -> None:
        self._dip = None
        begin, area, seen, end = dip
        worked, self._dipped_until = begin - self._dipped_until, end
        if seen < self._least or end - begin > DIP_MAX_SECONDS or worked < WORK_BEFORE_SECONDS:
            return
        overlap = sum([max(0.0, min(end, one.end) - max(begin, one.begin)) for one in self.found])
        if overlap < 0.5 * (end - begin):
            self.found.append(Stretch(begin, end, area / seen))


def _flat_level(levels: Sequence[float]) -> float:
    flat = min(levels) >= FLAT_LEAST_PERCENT and max(levels) - min(levels) <= FLAT_PERCENT
    return min(levels) - DIP_PERCENT if flat else -math.inf


def _usual_level(levels: Sequence[float]) -> float:
    """Level that a dip is below; minus infinity where there is no usual level to leave."""
    middle = median(levels)
    if middle < LEVEL_LEAST_PERCENT:
        return -math.inf
    scatter = median([abs(one - middle) for one in levels])
    return middle - max(DIP_PERCENT, DIP_DEVIATIONS * scatter)


# --- recovery ---------------------------------------------------------------------------------

FED_CELL_SECONDS = 2.0
"""Long enough for a fed GPU's logging and optimizer gaps to be a small part."""
FULL_PERCENT = 90.0
"""Busy share of a cell in which nothing is missing."""
FED_CELLS = 6
"""Twelve seconds on end: loaders catch up for a while after each epoch."""
LATELY_CELLS = 5
REMEMBERED_CELLS = 36
BEFORE_CELLS = 8
"""Fewest cells that show what was usual before."""
RUN_CELLS = 2
"""A GPU that was ever fed for longer in that time waits in pauses, not in its steps."""
POOR_PERCENT = 80.0
"""The mean of the time before: less was plainly not fed."""


class Recovery:
    """Finder of the moment since which a GPU has been fed. It takes the GPU's samples as they come,
    or the share of the time in which a loop did not wait for data."""

    __slots__ = ("_area", "_cells", "_seconds", "at", "full_cells")

    def __init__(self) -> None:
        self.at: float | None = None
        """Since when it has been fed, the last time that it came to be."""
        self.full_cells = 0
        """Number of full cells in a row, up to now."""
        self._cells: deque[tuple[float, float]] = deque(maxlen=REMEMBERED_CELLS)
        self._area = self._seconds = 0.0

    def extend(self, samples: Sequence[Sample]) -> None:
        for at, percent, length in samples:
            self._area += percent * length
            self._seconds += length
            if self._seconds < 0.99 * FED_CELL_SECONDS:
                continue
            level = self._area / self._seconds
            self._cells.append((at - self._seconds, level))
            self._area = self._seconds = 0.0
            self.full_cells = self.full_cells + 1 if level >= FULL_PERCENT else 0
            if self.full_cells == FED_CELLS and self._was_poor():
                self.at = self._cells[-FED_CELLS][0]

    def gap(self) -> None:
        """Note that nothing is known of the time up to the next sample."""
        self._cells.clear()
        self._area = self._seconds = 0.0
        self.full_cells = 0

    def lately(self) -> float | None:
        """Return the mean of the last cells, in percent; ``None``: there are too few."""
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
    """Return since when all of a job have been fed, some of which were not before."""
    moments = [one.at for one in all_of if one.at is not None]
    return max(moments) if moments and all(one.is_fed for one in all_of) else None
