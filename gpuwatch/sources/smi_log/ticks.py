"""Rows of an ``nvidia-smi`` log to snapshots: which rows are one moment, and when it was."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import replace
from typing import Any

from gpuwatch.core.model import (
    Gpu,
    GpuIdentity,
    GpuKey,
    GpuReading,
    Host,
    Problem,
    Process,
    ReasonSeconds,
    Snapshot,
)
from gpuwatch.sources.files.log_text import LogStats
from gpuwatch.sources.smi_log.rows import Row, make_identity

LOG_HOST = "log"
GPUS_MAX = 64
PROCESSES_MAX = 4096
_JUDGED = 31
"""Distances of moments that the usual one is the median of."""
_BACK_SECONDS = 1.0
"""Stamps in whole seconds repeat, and a clock that is kept by NTP moves by less than this."""
_LEAP_SECONDS = 30 * 86400.0
_SAME_MOMENT_SHARE = 0.5
"""Rows of one moment are written within a few milliseconds; half an interval is another one."""


class LogClock:
    """The time axis of a log: never goes back, whatever its stamps do."""

    def __init__(self, interval_seconds: float, stats: LogStats) -> None:
        self._assumed = interval_seconds
        self._stats = stats
        self._recent: deque[float] = deque(maxlen=_JUDGED)
        self._stamps: deque[float] = deque(maxlen=_JUDGED)
        self._usual: float | None = None
        self._offset = 0.0
        self._last_unix: float | None = None
        self._monotonic: float | None = None

    @property
    def interval_seconds(self) -> float:
        """The usual distance of two moments."""
        return self._assumed if self._usual is None else self._usual

    @property
    def known_interval_seconds(self) -> float | None:
        return self._usual

    def moment(self, unix: float | None) -> tuple[float, float]:
        """(unix seconds, monotonic seconds) of the next moment, by its stamp."""
        if unix is None:
            return self._unstamped()
        if self._monotonic is None or self._last_unix is None:
            self._offset = 0.0 if self._monotonic is None else self._next() - unix
            self._monotonic = unix + self._offset
            self._last_unix = unix
            return unix, self._monotonic
        delta = unix - self._last_unix
        self._last_unix = unix
        if delta < -_BACK_SECONDS or delta > _LEAP_SECONDS:
            self._stats.clock_jumps += 1
            self._stamps.clear()
            self._offset = self._next() - unix
        now = unix + self._offset
        step = now - self._monotonic
        if step <= 0.0:
            step = self._between_stamps()
        else:
            self._judge(step)
        self._monotonic += step
        self._stamps.append(unix)
        return unix, self._monotonic

    def _between_stamps(self) -> float:
        """The step where a stamp repeats (they are in whole seconds, the rows come faster): what
        one takes on average."""
        stamps = self._stamps
        passed = stamps[-1] - stamps[0] if stamps else 0.0
        if len(stamps) < _JUDGED or passed <= 0.0:
            return self.interval_seconds / 2
        step = min(passed / (len(stamps) - 1), self.interval_seconds)
        self._recent.append(step)
        if self._stats.snapshots % _JUDGED == 0:
            self._usual = statistics.median(self._recent)
            self._stats.interval_seconds = self._usual
        return step

    def _unstamped(self) -> tuple[float, float]:
        self._monotonic = 0.0 if self._monotonic is None else self._next()
        unix = self._monotonic - self._offset
        self._last_unix = unix if self._last_unix is not None else None
        return unix, self._monotonic

    def _next(self) -> float:
        return (self._monotonic or 0.0) + self.interval_seconds

    def _judge(self, step: float) -> None:
        usual = self._usual
        if usual is not None and len(self._recent) >= 5 and step > 1.75 * usual:
            stats = self._stats
            stats.missing_ticks += round(step / usual) - 1
            stats.longest_gap_seconds = max(stats.longest_gap_seconds, step)
        self._recent.append(step)
        # A median of every one would cost more than reading the line.
        if len(self._recent) < _JUDGED or self._stats.snapshots % _JUDGED == 0:
            self._usual = statistics.median(self._recent)
            self._stats.interval_seconds = self._usual


class Ticks:
    """Puts rows together. ``add`` gives the moment before once a row begins the next.

    ``rows_per_tick`` is how many GPUs a log has that does not tell them apart. ``of_processes``:
    the rows are those of ``pmon``, whose dash for a process that did nothing is a zero (NVML lists
    only processes with some utilisation) once it has shown that it can tell.
    """

    def __init__(
        self,
        stats: LogStats,
        *,
        interval_seconds: float = 1.0,
        rows_per_tick: int = 1,
        same_moment_seconds: float | None = None,
        of_processes: bool = False,
    ) -> None:
        self._stats = stats
        self._of_processes = of_processes
        self._processes_told = False
        self._clock = LogClock(interval_seconds, stats)
        self._rows_per_tick = rows_per_tick
        self._same_moment = same_moment_seconds
        self._places: dict[str | int, int] = {}
        self._identities: dict[int, tuple[dict[str, Any], GpuIdentity]] = {}
        self._counters: dict[GpuKey, tuple[float, dict[str, float]]] = {}
        self._rows: list[tuple[int, Row]] = []
        self._pairs: set[tuple[int, int | None]] = set()
        self._problems: list[Problem] = []
        self._some_lost = False
        self._began_at: float | None = None
        self._last_monotonic: float | None = None
        self._sequence = 0

    def add(self, row: Row, *, keyed: bool) -> Snapshot | None:
        """Take one row; ``keyed``: the log has a column that tells its GPUs apart."""
        place = self._place(row) if keyed else len(self._rows)
        if place is None or place >= GPUS_MAX:
            self._stats.torn_lines += 1
            return None
        done = None
        if self._rows and self._begins(row, place, keyed):
            done = self._finish(keyed)
            place = place if keyed else 0
        if not self._rows:
            self._began_at = row.at_unix_seconds
        if len(self._rows) < PROCESSES_MAX:
            self._rows.append((place, row))
            self._pairs.add((place, None if row.process is None else row.process.pid))
        return done

    def lost(self, line: str) -> None:
        """``nvidia-smi`` said so: GPUs that were in the log and no longer are count as lost."""
        self._some_lost = True
        if not self._problems:
            self._problems.append(
                Problem(source="nvml", message=f"nvidia-smi said: {line}", severity="error")
            )

    def end_of_moment(self, *, keyed: bool) -> Snapshot | None:
        """What is pending: at the end, or where a repeated header says that a new run begins."""
        return self._finish(keyed) if self._rows else None

    def _place(self, row: Row) -> int | None:
        if row.key is None:
            return None
        if isinstance(row.key, int):
            return row.key
        return self._places.setdefault(row.key, len(self._places))

    def _begins(self, row: Row, place: int, keyed: bool) -> bool:
        """Whether ``row`` is of another moment than those before."""
        if row.at_unix_seconds is not None and self._began_at is not None:
            passed = row.at_unix_seconds - self._began_at
            if passed > self._tolerance() or passed < -_BACK_SECONDS:
                return True
        if not keyed:
            return len(self._rows) >= self._rows_per_tick
        last = self._rows[-1][0]
        if row.process is not None or self._rows[-1][1].process is not None:
            pid = None if row.process is None else row.process.pid
            return place < last or (place, pid) in self._pairs
        return place <= last

    def _tolerance(self) -> float:
        if self._same_moment is not None:
            return self._same_moment
        usual = self._clock.known_interval_seconds
        return float("inf") if usual is None else usual * _SAME_MOMENT_SHARE

    def _finish(self, keyed: bool) -> Snapshot | None:
        rows, self._rows = self._rows, []
        self._pairs.clear()
        if not keyed and len(rows) < self._rows_per_tick:
            self._stats.incomplete_ticks += 1
            return None
        unix, monotonic = self._clock.moment(rows[0][1].at_unix_seconds)
        passed = None if self._last_monotonic is None else monotonic - self._last_monotonic
        self._last_monotonic = monotonic
        gpus: dict[int, Gpu] = {}
        busy: dict[int, list[float]] = {}
        processes: list[Process] = []
        for place, row in rows:
            gpu = gpus.get(place)
            if gpu is None:
                gpu = gpus[place] = self._gpu(place, row, monotonic, passed)
            if row.process is not None:
                processes.append(_on(row.process, gpu.uuid))
                if row.process.gpu_busy_percent is not None:
                    busy.setdefault(place, []).append(row.process.gpu_busy_percent)
        if self._some_lost and keyed:
            for place, (_, identity) in self._identities.items():
                if place not in gpus:
                    gpus[place] = Gpu(identity=identity, reading=GpuReading(), lost=True)
        self._fill_in_zeros(gpus, busy)
        for place, shares in busy.items():
            gpu = gpus[place]
            if gpu.reading.busy_percent is None:
                reading = GpuReading(busy_percent=min(100.0, sum(shares)))
                gpus[place] = Gpu(identity=gpu.identity, reading=reading, lost=gpu.lost)
        snapshot = Snapshot(
            sequence=self._sequence,
            taken_at_unix_seconds=unix,
            monotonic_seconds=monotonic,
            interval_seconds=self._clock.interval_seconds,
            simulated=False,
            host=Host(name=LOG_HOST),
            gpus=tuple(gpus.values()),
            processes=tuple(processes),
            problems=tuple(self._problems),
        )
        self._problems.clear()
        self._sequence += 1
        self._stats.snapshots = self._sequence
        return snapshot

    def _fill_in_zeros(self, gpus: dict[int, Gpu], busy: dict[int, list[float]]) -> None:
        self._processes_told = self._processes_told or bool(busy)
        if not self._of_processes or not self._processes_told:
            return
        for place, gpu in gpus.items():
            if not gpu.lost:
                busy.setdefault(place, [0.0])

    def _gpu(self, place: int, row: Row, monotonic: float, passed: float | None) -> Gpu:
        known = self._identities.get(place)
        if known is None or known[0] is not row.identity:
            total = row.memory_total
            if total is None and known is not None:
                total = known[1].memory_total_bytes
            known = (row.identity, make_identity(row.identity, place, total))
            self._identities[place] = known
        identity = known[1]
        if row.lost:
            return Gpu(identity=identity, reading=GpuReading(), lost=True)
        reading = row.reading
        held = self._held(identity.uuid, row, monotonic, passed)
        if held is not None:
            reading["throttle_durations"] = held
        return Gpu(identity=identity, reading=GpuReading(**reading))

    def _held(
        self, uuid: GpuKey, row: Row, monotonic: float, passed: float | None
    ) -> tuple[ReasonSeconds, ...] | None:
        if row.counters:
            before = self._counters.get(uuid)
            self._counters[uuid] = (monotonic, dict(row.counters))
            if before is None:
                return None
            at, then = before
            return tuple(
                [
                    ReasonSeconds(reason, min(value - then[reason], monotonic - at))
                    for reason, value in row.counters
                    # It starts anew when the driver is loaded again.
                    if reason in then and value >= then[reason]
                ]
            )
        if row.violations and passed is not None:
            return tuple(
                [ReasonSeconds(reason, share * passed) for reason, share in row.violations]
            )
        return None


def _on(process: Process, uuid: GpuKey) -> Process:
    return replace(process, gpu_uuid=uuid)
