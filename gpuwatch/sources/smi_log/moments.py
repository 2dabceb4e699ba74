"""Rows of a log to snapshots: which rows are one moment, and when it was."""

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
from gpuwatch.sources.smi_log.rows import Row

LOG_HOST = "log"
UNKNOWN_NAME = "GPU"
GPUS_MAX = 64
PROCESSES_MAX = 4096
SAME_MOMENT_SECONDS = 0.03
"""``nvidia-smi`` writes the rows of its GPUs within milliseconds; looks are seldom so close."""
_JUDGED = 31
"""Distances of moments that the usual one is the median of."""
_BACK_SECONDS = 1.0
"""Stamps in whole seconds repeat, and a clock that is kept by NTP moves by less than this."""
_LEAP_SECONDS = 30 * 86400.0


class LogClock:
    """The time axis of a log: never goes back, whatever its stamps do."""

    def __init__(self, interval_seconds: float, stats: LogStats) -> None:
        self._assumed = interval_seconds
        self._stats = stats
        self._recent: deque[float] = deque(maxlen=_JUDGED)
        self._stamps: deque[float] = deque(maxlen=_JUDGED)
        self.usual_seconds: float | None = None
        self._offset = 0.0
        self._last_unix: float | None = None
        self._monotonic: float | None = None

    @property
    def interval_seconds(self) -> float:
        """The usual distance of two moments."""
        return self._assumed if self.usual_seconds is None else self.usual_seconds

    def moment(self, unix: float | None) -> tuple[float, float]:
        """(unix seconds, monotonic seconds) of the next moment, by its stamp."""
        before = self._monotonic
        expected = 0.0 if before is None else before + self.interval_seconds
        if unix is None:
            self._monotonic = expected
            unix = expected - self._offset
            self._last_unix = unix if self._last_unix is not None else None
            return unix, expected
        if before is None or self._last_unix is None:
            self._offset = 0.0 if before is None else expected - unix
            self._monotonic = unix + self._offset
            self._last_unix = unix
            return unix, self._monotonic
        delta = unix - self._last_unix
        self._last_unix = unix
        if delta < -_BACK_SECONDS or delta > _LEAP_SECONDS:
            self._stats.clock_jumps += 1
            self._stamps.clear()
            self._offset = expected - unix
        step = unix + self._offset - before
        if step <= 0.0:
            step = self._between_stamps()
        else:
            self._judge(step)
        self._monotonic = before + step
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
        self._note(step)
        return step

    def _judge(self, step: float) -> None:
        usual = self.usual_seconds
        if usual is not None and len(self._recent) >= 5 and step > 1.75 * usual:
            stats = self._stats
            stats.missing_ticks += round(step / usual) - 1
            stats.longest_gap_seconds = max(stats.longest_gap_seconds, step)
        self._note(step)

    def _note(self, step: float) -> None:
        self._recent.append(step)
        # A median of every one would cost more than reading the line.
        if len(self._recent) < _JUDGED or self._stats.snapshots % _JUDGED == 0:
            self.usual_seconds = statistics.median(self._recent)
            self._stats.interval_seconds = self.usual_seconds


class Moments:
    """Puts rows together. ``add`` gives the moment before once a row begins the next.

    ``gpus`` is how many GPUs a log has in which no column distinguishes them; without it the rows
    that are written within ``SAME_MOMENT_SECONDS`` are the GPUs, in order. ``of_processes``: the
    rows are those of ``pmon``, whose dash for a process that did nothing is a zero (NVML lists only
    processes with some utilisation) once it has shown that it can say.
    """

    def __init__(
        self,
        stats: LogStats,
        *,
        interval_seconds: float = 1.0,
        gpus: int | None = None,
        of_processes: bool = False,
    ) -> None:
        self._stats = stats
        self._of_processes = of_processes
        self._some_process_was_busy = False
        self._clock = LogClock(interval_seconds, stats)
        self._gpus = gpus
        self._most_rows = gpus or 1
        self._places: dict[str | int, int] = {}
        self._identities: dict[int, tuple[dict[str, Any], GpuIdentity]] = {}
        self._counters: dict[GpuKey, tuple[float, Row]] = {}
        self._rows: list[tuple[int, Row]] = []
        self._pairs: set[tuple[int, int | None]] = set()
        self._problems: list[Problem] = []
        self._some_lost = False
        self._began_at: float | None = None
        self._last_at: float | None = None
        self._last_monotonic: float | None = None

    def add(self, row: Row, *, keyed: bool) -> Snapshot | None:
        """Take one row; ``keyed``: the log has a column that distinguishes its GPUs."""
        place = self._place(row) if keyed else len(self._rows)
        if place is None or place >= GPUS_MAX:
            self._stats.torn_lines += 1
            return None
        done = None
        if self._rows and self._begins(row, place, keyed):
            done = self.end_of_moment(keyed=keyed)
            place = place if keyed else 0
        if not self._rows:
            self._began_at = row.at_unix_seconds
        self._last_at = row.at_unix_seconds
        if len(self._rows) < PROCESSES_MAX:
            self._rows.append((place, row))
            self._pairs.add((place, None if row.process is None else row.process.pid))
        return done

    def lost(self, line: str) -> None:
        """``nvidia-smi`` said so: GPUs that were in the log and no longer are count as lost."""
        self._some_lost = True
        if not self._problems:
            message = f"nvidia-smi said: {line}"
            self._problems.append(Problem(source="nvml", message=message, severity="error"))

    def end_of_moment(self, *, keyed: bool) -> Snapshot | None:
        """The rows that wait: at the end, or where a repeated heading says that a run begins."""
        rows, self._rows = self._rows, []
        self._pairs.clear()
        if not rows:
            return None
        if not keyed and len(rows) < self._most_rows:
            self._stats.incomplete_ticks += 1
            return None
        self._most_rows = max(self._most_rows, len(rows))
        return self._snapshot(rows, keyed)

    def _place(self, row: Row) -> int | None:
        if row.key is None or isinstance(row.key, int):
            return row.key
        return self._places.setdefault(row.key, len(self._places))

    def _begins(self, row: Row, place: int, keyed: bool) -> bool:
        """True when ``row`` is of another moment than those before."""
        at = row.at_unix_seconds
        if not keyed and self._gpus is None:
            if at is None or self._last_at is None:
                return True
            return not -_BACK_SECONDS <= at - self._last_at <= SAME_MOMENT_SECONDS
        if at is not None and self._began_at is not None:
            usual = self._clock.usual_seconds
            passed = at - self._began_at
            if passed < -_BACK_SECONDS or (usual is not None and passed > usual / 2):
                return True
        if not keyed:
            return len(self._rows) >= self._most_rows
        last, before = self._rows[-1]
        if row.process is not None or before.process is not None:
            pid = None if row.process is None else row.process.pid
            return place < last or (place, pid) in self._pairs
        return place <= last

    def _snapshot(self, rows: list[tuple[int, Row]], keyed: bool) -> Snapshot:
        unix, monotonic = self._clock.moment(rows[0][1].at_unix_seconds)
        passed = None if self._last_monotonic is None else monotonic - self._last_monotonic
        self._last_monotonic = monotonic
        gpus: dict[int, Gpu] = {}
        busy: dict[int, float] = {}
        processes: list[Process] = []
        for place, row in rows:
            if place not in gpus:
                gpus[place] = self._gpu(place, row, monotonic, passed)
            if row.process is not None:
                processes.append(replace(row.process, gpu_uuid=gpus[place].uuid))
                percent = row.process.gpu_busy_percent
                if percent is not None:
                    busy[place] = min(100.0, busy.get(place, 0.0) + percent)
        if self._some_lost and keyed:
            for place, (_, identity) in self._identities.items():
                gpus.setdefault(place, Gpu(identity=identity, reading=GpuReading(), lost=True))
        self._some_process_was_busy = self._some_process_was_busy or bool(busy)
        for place, gpu in gpus.items():
            idle = 0.0 if self._some_process_was_busy and not gpu.lost else None
            if self._of_processes and gpu.reading.busy_percent is None:
                reading = GpuReading(busy_percent=busy.get(place, idle))
                gpus[place] = Gpu(identity=gpu.identity, reading=reading, lost=gpu.lost)
        snapshot = Snapshot(
            sequence=self._stats.snapshots,
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
        self._stats.snapshots += 1
        return snapshot

    def _gpu(self, place: int, row: Row, monotonic: float, passed: float | None) -> Gpu:
        known = self._identities.get(place)
        if known is None or known[0] != row.identity:
            identity = _identity(row.identity, place)
            if known is not None and identity.memory_total_bytes is None:
                identity = replace(identity, memory_total_bytes=known[1].memory_total_bytes)
            known = self._identities[place] = (row.identity, identity)
        identity = known[1]
        if row.lost:
            return Gpu(identity=identity, reading=GpuReading(), lost=True)
        held = self._held(identity.uuid, row, monotonic, passed)
        return Gpu(identity=identity, reading=GpuReading(**row.reading, throttle_durations=held))

    def _held(
        self, uuid: GpuKey, row: Row, monotonic: float, passed: float | None
    ) -> tuple[ReasonSeconds, ...] | None:
        if row.counters:
            at, before = self._counters.get(uuid, (0.0, None))
            self._counters[uuid] = (monotonic, row)
            if before is None:
                return None
            seconds = {
                reason: min(value - before.counters[reason], monotonic - at)
                for reason, value in row.counters.items()
                # It starts anew when the driver is loaded again.
                if value >= before.counters.get(reason, value + 1.0)
            }
        elif row.violations and passed is not None:
            seconds = {reason: share * passed for reason, share in row.violations.items()}
        else:
            return None
        return tuple([ReasonSeconds(reason, value) for reason, value in seconds.items()])


def _identity(found: dict[str, Any], place: int) -> GpuIdentity:
    """``place`` is the GPU's number in the log, for logs that do not say its index."""
    named = {"index": place, "name": UNKNOWN_NAME, **found}
    if "uuid" not in named:
        bus = named.get("pci_bus_id")
        named["uuid"] = f"log-gpu-{named['index']}" if bus is None else f"log-{bus}"
    return GpuIdentity(**named)
