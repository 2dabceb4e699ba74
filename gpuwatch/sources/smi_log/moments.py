"""Rows of a log to snapshots: which rows are one moment, and when it was."""

import statistics
from collections import deque
from collections.abc import Mapping
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
    Snapshot,
)
from gpuwatch.core.model import ReasonSeconds as Seconds
from gpuwatch.sources.files.log_text import LogError, LogStats
from gpuwatch.sources.smi_log.grouping import Grouping
from gpuwatch.sources.smi_log.rows import Row

LOG_HOST = "log"
_HOST = Host(name=LOG_HOST)
UNKNOWN_NAME = "GPU"
GPUS_MAX = 64
PROCESSES_MAX = 4096
SORT_FIRST = (
    "The log has one GPU, or one field, after the other and not one time after the other: sort its "
    "rows by time first, as in (head -1 FILE; tail -n +2 FILE | sort -s -t, -k2,2) | gpuwatch "
    "diagnose - where the time is in column 2 (-k2,2g where it is a number)."
)
_JUDGED = 31
"""Distances of moments that the usual one is the median of."""
_LATE = 0.8
"""Of the usual distance of two moments: a row of a known GPU that comes later begins the next."""
_LONG = 1.75
"""Times the usual distance: moments further apart have others between, which are missing."""
_JUDGED_WITH = 9
_LOOKED_AHEAD = 4
_RECURS = 3
"""So many steps as long, among that many before a long one and those after it, and it is no gap:
two loggers write in turn, or the interval is another from here on."""
_UNJUDGED = 5
"""Moments at the beginning of a log, in which nothing is usual yet."""
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
        before, last = self._monotonic, self._last_unix
        expected = 0.0 if before is None else before + self.interval_seconds
        if unix is None:
            self._monotonic = expected
            self._last_unix = None if last is None else expected - self._offset
            return expected - self._offset, expected
        self._last_unix = unix
        if before is None or last is None:
            self._offset = 0.0 if before is None else expected - unix
            self._monotonic = unix + self._offset
            return unix, self._monotonic
        if not -_BACK_SECONDS <= unix - last <= _LEAP_SECONDS:
            self._stats.clock_jumps += 1
            self._stamps.clear()
            self._offset = expected - unix
        step, stats = unix + self._offset - before, self._stats
        if step <= 0.0:
            step = self._between_stamps(step)
        self._recent.append(step)
        # A median of every one would take longer than reading the line.
        if len(self._recent) < _JUDGED or stats.snapshots % _JUDGED == 0:
            self.usual_seconds = stats.interval_seconds = statistics.median(self._recent)
        self._monotonic = before + step
        self._stamps.append(unix)
        return self._monotonic - self._offset, self._monotonic

    def _between_stamps(self, behind: float) -> float:
        """The step where a stamp repeats (they are in whole seconds, the rows come faster): what
        one takes on average, within the second that is meant."""
        stamps = self._stamps
        passed = stamps[-1] - stamps[0] if stamps else 0.0
        average = passed / (len(stamps) - 1) if passed > 0.0 else self.interval_seconds / 8
        return min(average, max(1.0 + behind, 0.02) / 2)


class Gaps:
    """Says of each snapshot of a log which interval it was taken at, and counts what is missing.

    A step between two moments that is longer than usual is a gap, unless such steps recur: then
    what was read after it stands for all of it. A snapshot after a long step waits for the next.
    """

    def __init__(self, stats: LogStats) -> None:
        self._stats = stats
        self._steps: deque[float] = deque(maxlen=_JUDGED_WITH)
        self._waiting: list[tuple[Snapshot, float]] = []
        self._count = 0
        self._monotonic: float | None = None

    def add(self, snapshot: Snapshot) -> list[Snapshot]:
        """The snapshots that are judged now."""
        at, before = snapshot.monotonic_seconds, self._monotonic
        self._monotonic = at
        step = 0.0 if before is None else at - before
        usual = snapshot.interval_seconds
        if not self._waiting and step <= _LONG * usual:
            self._steps.append(step)
            self._count += 1
            return [self._at_interval(snapshot, usual)]
        self._waiting.append((snapshot, step))
        return self._judge() if len(self._waiting) > _LOOKED_AHEAD else []

    def rest(self) -> list[Snapshot]:
        """The snapshots that wait, at the end."""
        found = []
        while self._waiting:
            found += self._judge()
        return found

    def _judge(self) -> list[Snapshot]:
        """The first that waits, and those after it that need not."""
        found: list[Snapshot] = []
        while self._waiting:
            snapshot, step = self._waiting[0]
            usual = snapshot.interval_seconds
            if found and step > _LONG * usual:
                break
            if step > _LONG * usual:
                usual = self._long(snapshot, step)
            del self._waiting[0]
            self._steps.append(step)
            self._count += 1
            found.append(self._at_interval(snapshot, usual))
        return found

    def _long(self, snapshot: Snapshot, step: float) -> float:
        """The interval at which a snapshot was taken that comes ``step`` after the one before."""
        usual, stats = snapshot.interval_seconds, self._stats
        around = [*self._steps, *[each for _, each in self._waiting]]
        if sum(each * _LONG >= step for each in around) >= _RECURS:
            return step
        # Of stamps in whole seconds one can be off by as much.
        whole = snapshot.taken_at_unix_seconds % 1.0 == 0.0
        blurred = 1.0 if whole and usual < 1.0 else 0.0
        if self._count > _UNJUDGED and step > _LONG * usual + blurred:
            stats.missing_ticks += round(step / usual) - 1
            stats.longest_gap_seconds = max(stats.longest_gap_seconds, step)
        return usual

    def _at_interval(self, snapshot: Snapshot, usual: float) -> Snapshot:
        same = usual == snapshot.interval_seconds
        return snapshot if same else replace(snapshot, interval_seconds=usual)


class Moments:
    """Puts rows together. ``add`` gives the moment before once a row begins the next.

    ``grouping`` is that of a log in which no column distinguishes the GPUs. ``of_processes``: the
    rows are those of ``pmon``, whose dash for a process that did nothing is a zero (NVML lists only
    processes with some utilisation) once it has shown that it can say. ``marked``: the log itself
    says where a moment ends.
    """

    def __init__(
        self,
        stats: LogStats,
        grouping: Grouping,
        *,
        interval_seconds: float = 1.0,
        of_processes: bool = False,
        marked: bool = False,
    ) -> None:
        self._stats = stats
        self._of_processes = of_processes
        self._marked = marked
        self._some_process_was_busy = False
        self._clock = LogClock(interval_seconds, stats)
        self._gap_seconds = grouping.gap_seconds
        self._gpus = grouping.gpus or 1
        self._places: dict[str | int, int] = {}
        self._identities: dict[int, tuple[dict[str, Any], GpuIdentity]] = {}
        self._counters: dict[GpuKey, Mapping[str, float]] = {}
        self._rows: list[tuple[int, Row]] = []
        self._pairs: set[tuple[int, int | None]] = set()
        self._problems: list[Problem] = []
        self._some_lost = False
        self._keyed = False
        self._began_at: float | None = None
        self._last_at: float | None = None
        self._last_monotonic: float | None = None
        self._snapshot_at: float | None = None
        self._last_places: set[int] = set()

    def add(self, row: Row) -> Snapshot | None:
        keyed = self._keyed = self._keyed or row.key is not None
        place = self._place(row) if keyed else len(self._rows)
        if place is None:
            self._stats.torn_lines += 1
            return None
        done = None
        if self._rows and self._begins(row, place, keyed):
            done = self.end_of_moment()
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

    def end_of_moment(self) -> Snapshot | None:
        """The rows that wait: at the end, or where the log says that a moment ends."""
        rows, self._rows = self._rows, []
        self._pairs.clear()
        if not rows:
            return None
        if not self._keyed and len(rows) != self._gpus:
            self._stats.incomplete_ticks += 1
            return None
        return self._snapshot(rows)

    def _place(self, row: Row) -> int | None:
        if row.key is None:
            return None
        place = self._places.get(row.key)
        if place is None and len(self._places) < GPUS_MAX:
            place = row.key if isinstance(row.key, int) else len(self._places)
            self._places[row.key] = place
        return place

    def _begins(self, row: Row, place: int, keyed: bool) -> bool:
        """True when ``row`` is of another moment than those before."""
        if self._marked:
            return False
        at = row.at_unix_seconds
        if at is not None and self._began_at is not None and self._last_at is not None:
            usual = self._clock.usual_seconds
            passed = at - self._began_at
            # The rows of eight GPUs take most of a short interval to be written.
            late = usual is not None and passed > usual * (_LATE if keyed else 0.5)
            if self._gap_seconds is not None and not keyed:
                late = (late or usual is None) and at - self._last_at > self._gap_seconds
            if passed < -_BACK_SECONDS or late:
                return True
        if not keyed:
            return len(self._rows) >= self._gpus
        last, before = self._rows[-1]
        if at is not None and row.process is None:
            # In any order, each once.
            return (place, None) in self._pairs
        if row.process is not None or before.process is not None:
            pid = None if row.process is None else row.process.pid
            return place < last or (place, pid) in self._pairs
        return place <= last

    def _snapshot(self, rows: list[tuple[int, Row]]) -> Snapshot:
        self._check_order(rows)
        unix, monotonic = self._clock.moment(rows[0][1].at_unix_seconds)
        passed = None if self._last_monotonic is None else monotonic - self._last_monotonic
        self._last_monotonic = monotonic
        gpus: dict[int, Gpu] = {}
        busy: dict[int, float] = {}
        processes: list[Process] = []
        if self._marked:
            rows = _merged(rows)
        for place, row in rows:
            if place not in gpus:
                gpus[place] = self._gpu(place, row, passed)
            if row.process is None:
                continue
            processes.append(replace(row.process, gpu_uuid=gpus[place].uuid))
            percent = row.process.gpu_busy_percent
            if percent is not None:
                busy[place] = min(100.0, busy.get(place, 0.0) + percent)
        if self._some_lost and self._keyed:
            for place, (_, identity) in self._identities.items():
                gpus.setdefault(place, Gpu(identity=identity, reading=GpuReading(), lost=True))
        self._some_process_was_busy = self._some_process_was_busy or bool(busy)
        for place, gpu in gpus.items() if self._of_processes else ():
            idle = 0.0 if self._some_process_was_busy and not gpu.lost else None
            if gpu.reading.busy_percent is None:
                reading = GpuReading(busy_percent=busy.get(place, idle))
                gpus[place] = Gpu(identity=gpu.identity, reading=reading, lost=gpu.lost)
        snapshot = Snapshot(
            sequence=self._stats.snapshots,
            taken_at_unix_seconds=unix,
            monotonic_seconds=monotonic,
            interval_seconds=self._clock.interval_seconds,
            simulated=False,
            host=_HOST,
            # A damaged line can give a GPU another's key.
            gpus=tuple({gpu.uuid: gpu for gpu in gpus.values()}.values()),
            processes=tuple(processes),
            problems=tuple(self._problems),
        )
        self._problems.clear()
        self._stats.snapshots += 1
        return snapshot

    def _check_order(self, rows: list[tuple[int, Row]]) -> None:
        """Raises ``LogError`` where one GPU's whole time comes after another's."""
        at, before = rows[0][1].at_unix_seconds, self._snapshot_at
        places = {place for place, _ in rows}
        if at is not None:
            back = before is not None and at < before - _BACK_SECONDS
            if back and self._keyed and places.isdisjoint(self._last_places):
                raise LogError(SORT_FIRST)
            self._snapshot_at = at
        self._last_places = places

    def _gpu(self, place: int, row: Row, passed: float | None) -> Gpu:
        known = self._identities.get(place)
        if known is None or known[0] != row.identity:
            identity = _identity(row.identity, place)
            if known is not None:
                total = identity.memory_total_bytes or known[1].memory_total_bytes
                # Runs on one node after the other, in one log: the same place.
                uuid = identity.uuid if "uuid" in row.identity else known[1].uuid
                identity = replace(identity, memory_total_bytes=total, uuid=uuid)
            known = self._identities[place] = (row.identity, identity)
        identity = known[1]
        if row.lost:
            return Gpu(identity=identity, reading=GpuReading(), lost=True)
        held = self._held(identity.uuid, row, passed)
        return Gpu(identity=identity, reading=GpuReading(**row.reading, throttle_durations=held))

    def _held(self, uuid: GpuKey, row: Row, passed: float | None) -> tuple[Seconds, ...] | None:
        before, self._counters[uuid] = self._counters.get(uuid, {}), row.counters
        if passed is None or not (row.violations or (row.counters and before)):
            return None
        held = {reason: share * passed for reason, share in row.violations.items()}
        for reason, value in row.counters.items():
            # A counter starts anew when the driver is loaded again.
            if reason in before and value >= before[reason]:
                held[reason] = min(value - before[reason], passed)
        return tuple([Seconds(reason, seconds) for reason, seconds in held.items()])


def _merged(rows: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """One row for each GPU, of a log that has one for each value; those of processes after them."""
    found: dict[int, Row] = {}
    for place, row in rows:
        if row.process is None and place in found:
            found[place].identity.update(row.identity)
            found[place].reading.update(row.reading)
        elif row.process is None:
            found[place] = row._replace(identity={**row.identity})
    return [*found.items(), *(each for each in rows if each[1].process is not None)]


def _identity(found: dict[str, Any], place: int) -> GpuIdentity:
    """``place`` is the GPU's number in the log, for logs that do not say its index."""
    named = {"index": place, "name": UNKNOWN_NAME, **found}
    if "uuid" not in named:
        # By its number, where it has one: another node of a cluster has another bus.
        bus = None if "index" in found else named.get("pci_bus_id")
        named["uuid"] = f"log-gpu-{named['index']}" if bus is None else f"log-{bus}"
    if "mig_instance" in named:
        named["mig_parent_uuid"] = named["uuid"]
        named["uuid"] += f"-mig-{named['mig_instance']}"
    return GpuIdentity(**named)
