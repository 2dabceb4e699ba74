"""One time axis for a recording, whatever its clocks did."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.core.history import GAP_INTERVALS
from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.summary.model import Stretch

GAPS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Step:
    """From one look to the next, on the time axis."""

    since: float
    until: float
    longest: float
    """What lies further apart than this has a gap between."""
    offset: float
    """Wall time less time on the axis: not 0 once the wall clock has gone back."""
    first: bool = False

    @property
    def seconds(self) -> float:
        return self.until - self.since

    @property
    def is_gap(self) -> bool:
        return self.seconds > self.longest


class Timeline:
    """Wall time that never goes back: where the clock did, time goes on by the monotonic one.

    A recording can be continued by another run of gpuwatch or on a machine that was started anew,
    so the monotonic clock alone is none either.
    """

    def __init__(self) -> None:
        self.begin: float | None = None
        self.end = 0.0
        self.set_back = 0
        self.covered = 0.0
        self.gap_count = 0
        self.gap_seconds = 0.0
        self._gaps: list[Stretch] = []
        self._offset = 0.0
        self._monotonic = 0.0
        self._interval = 0.0

    def step(self, snapshot: Snapshot) -> Step:
        """The time that ``snapshot`` speaks for."""
        unix, monotonic = snapshot.taken_at_unix_seconds, snapshot.monotonic_seconds
        longest = GAP_INTERVALS * max(snapshot.interval_seconds, self._interval)
        self._interval = snapshot.interval_seconds
        passed = monotonic - self._monotonic
        self._monotonic = monotonic
        if self.begin is None:
            self.begin = self.end = unix
            return Step(unix, unix, longest, 0.0, first=True)
        since = self.end
        until = unix - self._offset
        if until < since:
            self.set_back += 1
            until = since + max(0.0, passed)
            self._offset = unix - until
        self.end = until
        step = Step(since, until, longest, self._offset)
        if step.is_gap:
            self._note_gap(step)
        else:
            self.covered += step.seconds
        return step

    def _note_gap(self, step: Step) -> None:
        self.gap_count += 1
        self.gap_seconds += step.seconds
        self._gaps.append(Stretch(begin_unix_seconds=step.since, end_unix_seconds=step.until))
        if len(self._gaps) > GAPS_KEPT:
            self._gaps.remove(min(self._gaps, key=lambda gap: gap.seconds))

    @property
    def gaps(self) -> tuple[Stretch, ...]:
        """The longest, in the order of their time."""
        return tuple(self._gaps)
