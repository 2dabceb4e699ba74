"""One time axis for a recording, whatever its clocks did."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.core.history import GAP_INTERVALS
from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.report.model import Time
from gpuwatch.outputs.report.parts import Stretch

GAPS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Step:
    """From one look to the next, on the time axis."""

    since: float
    until: float
    longest: float
    """Looks further apart than this have a gap between."""
    offset: float
    """Wall time less time on the axis: not 0 once the wall clock has gone back."""

    @property
    def seconds(self) -> float:
        return self.until - self.since

    @property
    def is_gap(self) -> bool:
        return self.seconds > self.longest

    def end(self) -> Step:
        """The moment of its end alone, where nothing is known of the time before."""
        return Step(self.until, self.until, self.longest, self.offset)


class Steps:
    """Wall time that never goes back: where the clock did, time goes on by the monotonic one.

    A recording can be continued by another run of gpuwatch or on a machine that was started anew,
    so the monotonic clock alone is none either.
    """

    def __init__(self) -> None:
        self.begin: float | None = None
        self.end = 0.0
        self._snapshots = 0
        self._set_back = 0
        self._covered = 0.0
        self._gap_count = 0
        self._gap_seconds = 0.0
        self._gaps: list[Stretch] = []
        self._offset = 0.0
        self._monotonic = 0.0
        self._interval = 0.0

    def step(
        self, snapshot: Snapshot, *, since: float | None = None, until: float | None = None
    ) -> Step:
        """The time that ``snapshot`` speaks for: up to ``until`` (wall time) if that is sooner; the
        first from ``since`` on, where it says something of the time before it."""
        unix, monotonic = snapshot.taken_at_unix_seconds, snapshot.monotonic_seconds
        longest = GAP_INTERVALS * max(snapshot.interval_seconds, self._interval)
        self._interval = snapshot.interval_seconds
        self._snapshots += 1
        passed = monotonic - self._monotonic
        self._monotonic = monotonic
        end = unix if until is None else min(unix, until)
        if self.begin is None:
            near = since is not None and 0.0 <= end - since <= longest
            self.begin = self.end = since if near and since is not None else end
        elif unix - self._offset < self.end:
            self._set_back += 1
            self._offset = unix - (self.end + max(0.0, passed))
        step = Step(self.end, max(self.end, end - self._offset), longest, self._offset)
        self.end = step.until
        if step.is_gap:
            self._note_gap(step)
        else:
            self._covered += step.seconds
        return step

    def _note_gap(self, step: Step) -> None:
        self._gap_count += 1
        self._gap_seconds += step.seconds
        self._gaps.append(Stretch(begin_unix_seconds=step.since, end_unix_seconds=step.until))
        if len(self._gaps) > GAPS_KEPT:
            self._gaps.remove(min(self._gaps, key=lambda gap: gap.seconds))

    def time(self, bucket_seconds: float) -> Time:
        return Time(
            begin_unix_seconds=self.begin or 0.0,
            end_unix_seconds=self.end,
            snapshots=self._snapshots,
            interval_seconds=self._interval or None,
            covered_seconds=self._covered,
            gap_count=self._gap_count,
            gap_seconds=self._gap_seconds,
            gaps=tuple(self._gaps),
            clock_set_back=self._set_back,
            bucket_seconds=bucket_seconds,
        )
