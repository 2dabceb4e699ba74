"""Makes snapshots of the rows of a log: which rows are one moment, when it was, and how many GPUs a
log is of whose rows do not say which GPU they are about.

``Moments`` puts rows together; ``LogClock`` says when they were, and ``Gaps`` at which interval;
``group`` tells the number of GPUs by the first rows.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

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
from gpuwatch.sources.logs.rows import Row
from gpuwatch.sources.logs.text import LogError, LogStats

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
"""Number of steps between moments that the usual one is the median of."""
_LATE = 0.8
"""Share of the usual step after which a row of a known GPU begins the next moment."""
_LONG = 1.75
"""Times the usual distance: moments further apart have others between, which are missing."""
_JUDGED_WITH = 9
_LOOKED_AHEAD = 4
_RECURS = 3
"""With so many steps as long among those around it, a long step is no gap: two loggers write in
turn, or the interval is another from here on."""
_UNJUDGED = 5
"""Moments at the beginning of a log, in which nothing is usual yet."""
_BACK_SECONDS = 1.0
"""Stamps in whole seconds repeat, and a clock that is kept by NTP moves by less than this."""
_LEAP_SECONDS = 30 * 86400.0


class LogClock:
    """The time axis of a log, which never goes back, whatever its stamps do."""

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
        """Usual time from one moment to the next."""
        return self._assumed if self.usual_seconds is None else self.usual_seconds

    def moment(self, unix: float | None) -> tuple[float, float]:
        """Return (unix seconds, monotonic seconds) of the next moment, by its stamp."""
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
        """Return the step where a stamp repeats (they are in whole seconds, the rows come faster):
        the average one, within the second that is meant."""
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

    def judge_next(self, snapshot: Snapshot) -> list[Snapshot]:
        """Return the snapshots that are judged now."""
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

    def judge_rest(self) -> list[Snapshot]:
        """Return the snapshots that wait, at the end."""
        found = []
        while self._waiting:
            found += self._judge()
        return found

    def _judge(self) -> list[Snapshot]:
        """Return the first that waits, and those after it that need not."""
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
        """Return the interval at which a snapshot was taken that comes ``step`` after the one
        before."""
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
    """Puts rows together: ``add_row`` gives the moment before once a row begins the next.

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
        self._places: dict[str | int | None, int] = {}
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
        self._last_rows: list[tuple[int, Row]] = []

    def add_row(self, row: Row) -> Snapshot | None:
        """Add a row. Return the moment before it, where that is whole now."""
        keyed = self._keyed = self._keyed or row.key is not None
        place = self._places.get(row.key) if keyed else len(self._rows)
        if place is None:
            place = self._new_place(row.key)
        if place is None:
            self._stats.torn_lines += 1
            return None
        done = None
        if self._rows and self._begins(row, place, keyed):
            done = self.end_moment()
            place = place if keyed else 0
        if not self._rows:
            self._began_at = row.at_unix_seconds
        self._last_at = row.at_unix_seconds
        if len(self._rows) < PROCESSES_MAX:
            self._rows.append((place, row))
            self._pairs.add((place, None if row.process is None else row.process.pid))
        return done

    def note_lost(self, line: str) -> None:
        """Note that ``nvidia-smi`` said so: GPUs that were in the log and no longer are count as
        lost."""
        self._some_lost = True
        if not self._problems:
            message = f"nvidia-smi said: {line}"
            self._problems.append(Problem(source="nvml", message=message, severity="error"))

    def end_moment(self) -> Snapshot | None:
        """Return the moment of the rows that wait: at the end, or where the log says that it
        ends."""
        rows, self._rows = self._rows, []
        self._pairs.clear()
        if not rows:
            return None
        if not self._keyed and len(rows) != self._gpus:
            self._stats.incomplete_ticks += 1
            return None
        return self._snapshot(rows)

    def _new_place(self, key: str | int | None) -> int | None:
        if key is None or len(self._places) >= GPUS_MAX:
            return None
        place = self._places[key] = key if isinstance(key, int) else len(self._places)
        return place

    def _begins(self, row: Row, place: int, keyed: bool) -> bool:
        """Return True when ``row`` is of another moment than the rows before."""
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
            gpus=tuple({gpu.identity.uuid: gpu for gpu in gpus.values()}.values()),
            processes=tuple(processes),
            problems=tuple(self._problems),
        )
        self._problems.clear()
        self._stats.snapshots += 1
        return snapshot

    def _check_order(self, rows: list[tuple[int, Row]]) -> None:
        """Raise ``LogError`` where one GPU's whole time comes after another's."""
        at, before = rows[0][1].at_unix_seconds, self._snapshot_at
        if at is not None:
            if before is not None and at < before - _BACK_SECONDS and self._keyed:
                places = {place for place, _ in rows}
                if places.isdisjoint([place for place, _ in self._last_rows]):
                    raise LogError(SORT_FIRST)
            self._snapshot_at = at
        self._last_rows = rows

    def _gpu(self, place: int, row: Row, passed: float | None) -> Gpu:
        known = self._identities.get(place)
        if known is None or (known[0] is not row.identity and known[0] != row.identity):
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
        if row.counters or row.violations or self._counters:
            row.reading["throttle_durations"] = self._held(identity.uuid, row, passed)
        return Gpu(identity=identity, reading=GpuReading(**row.reading))

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
    """Return one row for each GPU, of a log that has one for each value, and the rows of processes
    after them."""
    found: dict[int, Row] = {}
    for place, row in rows:
        if row.process is None and place in found:
            found[place].identity.update(row.identity)
            read = {name: value for name, value in row.reading.items() if value is not None}
            found[place].reading.update(read)
        elif row.process is None:
            found[place] = row._replace(identity={**row.identity})
    return [*found.items(), *(each for each in rows if each[1].process is not None)]


def _identity(found: dict[str, Any], place: int) -> GpuIdentity:
    """Make the identity; ``place`` is the GPU's number in the log, for logs that do not say its
    index."""
    named = {"index": place, "name": UNKNOWN_NAME, **found}
    if "uuid" not in named:
        # By its number, where it has one: another node of a cluster has another bus.
        bus = None if "index" in found else named.get("pci_bus_id")
        named["uuid"] = f"log-gpu-{named['index']}" if bus is None else f"log-{bus}"
    if "mig_instance" in named:
        named["mig_parent_uuid"] = named["uuid"]
        named["uuid"] += f"-mig-{named['mig_instance']}"
    return GpuIdentity(**named)


# --- how many GPUs a log is of ---------------------------------------------------------------

# The rows of one moment come close together, as many as there are GPUs, and then there is a pause:
# where that rhythm is plain it decides. It is plain only if the size repeats, since a hiccup of
# the logger makes groups of any size. Readings decide the rest: GPUs keep their memory and
# temperatures from moment to moment, where one GPU's rows are most like the row before. A change
# that all GPUs share, such as the start of a job, says nothing. Where these do not agree a person
# is asked.

ROWS_LOOKED_AT = 600
GPUS_MOST = 32
SAME_MOMENT_SECONDS = 0.03
"""``nvidia-smi`` writes the rows of its GPUs within milliseconds; looks are seldom so close."""
_USUAL_SHARE = 0.75
"""Share of the groups that have the size that counts: hiccups and lost rows make the others."""
_APART = 3.0
"""The gap between two moments is at least so many times that between the rows of one."""
_STEADY = 0.4
"""A gap of rows at one rhythm is seldom shorter than this share of the usual one."""
_FASTEST_POLL_SECONDS = 0.008
"""Rows that come faster are seldom looks at one GPU, since ``nvidia-smi`` takes longer for each."""
_STAMPS_BLUR_SECONDS = 0.002
"""Steps shorter than this are all alike: rows of one moment have the same millisecond or not."""
_HOLES_MOST = 3
_LIKE = 0.4
_UNLIKE = 1.25
"""A row differs so much less from the same GPU's row before than from its neighbour; and so much
more where both are of one GPU, whose readings drift."""
_CHANGES_LEAST = 8
"""A reading must change so often before its drift says anything."""
_CYCLES_LEAST = 8
"""Rows without times repeat exactly so often before that is no chance."""
_SLOW = ("memory_used_bytes", "temperature_celsius", "power_limit_watts", "fan_percent")
"""Readings that move slowly, and differ between GPUs."""


class Grouping(NamedTuple):
    """The number of GPUs of a log, and the pause between two of its moments."""

    gpus: int | None
    """``None``: a person has to say."""
    gap_seconds: float | None = None
    """A longer gap between rows parts two moments."""
    proposed: int = 1
    sure: bool = True


def group(rows: Sequence[Row | None], *, whole_seconds: bool = False) -> Grouping:
    """Tell how many GPUs the first rows of a log are of; ``None`` among them stands where a moment
    ends for certain. ``whole_seconds``: its stamps say no less."""
    found = [row for row in rows if row is not None]
    ends = [place for place, row in enumerate([*rows, None]) if row is None]
    marked = [size for size in (b - a - 1 for a, b in pairwise([-1, *ends])) if size]
    if len(marked) > 2 and max(marked) <= GPUS_MOST:
        size, share = _usual(marked)
        return Grouping(size if share >= _USUAL_SHARE else None, None, size)
    times = [row.at_unix_seconds for row in found if row.at_unix_seconds is not None]
    if len(times) < max(2, len(found)):
        size = _alike(found)
        cycles = _likeness(found, size) == 0.0 and len(found) >= _CYCLES_LEAST * size
        return Grouping(size if size == 1 or cycles else None, None, size, sure=cycles)
    rhythm = _rhythm(times)
    size = rhythm.size
    many = rhythm.usual and (_likeness(found, size) or _UNLIKE) < _LIKE
    one = not many and _drifts(found, rhythm.gaps, rhythm.border, size)
    # One GPU that is read several times a second looks the same by stamps of a second.
    told = not (whole_seconds and rhythm.between <= 1.0)
    if many or (rhythm.parted and rhythm.close and told and not one):
        return Grouping(size, rhythm.border, size)
    if _looks_like_one(found, times, rhythm, drifts=one):
        return Grouping(1)
    return Grouping(None, rhythm.border, size if 1 < size <= GPUS_MOST else _alike(found))


class _Rhythm(NamedTuple):
    """The groups that the times of rows fall into."""

    gaps: list[float]
    border: float
    """A longer gap parts two groups."""
    between: float
    """Usual gap between two groups."""
    size: int
    """Rows of the usual group."""
    usual: bool
    """Most groups have that size, and there can be as many GPUs."""
    close: bool
    """Rows of a group are as close together as those of one moment."""
    parted: bool
    """The groups are plain."""


def _rhythm(times: Sequence[float]) -> _Rhythm:
    steps = [after - before for before, after in pairwise(times)]
    usual_gap = statistics.median(steps)
    # A clock that was set back says nothing.
    gaps = [step if step >= 0.0 else usual_gap for step in steps]
    border, within, between = _border(gaps)
    begins = [place for place, gap in enumerate(gaps, 1) if gap > border]
    sizes = [b - a for a, b in pairwise([0, *begins, len(times)])]
    # The first and the last may be cut off.
    size, share = _usual(sizes[1:-1] or sizes)
    usual = share >= _USUAL_SHARE and 1 < size <= GPUS_MOST
    at_once = within <= SAME_MOMENT_SECONDS
    # A hole or two make groups of a size, too.
    often = len(sizes) > _HOLES_MOST + 1
    parted = usual and between >= _APART * within and between > 0.0 and (at_once or often)
    close = at_once or within * size <= between
    return _Rhythm(gaps, border, between, size, usual, close, parted)


def _looks_like_one(
    rows: Sequence[Row], times: Sequence[float], rhythm: _Rhythm, *, drifts: bool
) -> bool:
    """Return True where the rows are of one GPU: of one kind, at one rhythm or in bursts too large
    to be of one moment."""
    totals = [row.identity.get("memory_total_bytes", 0) for row in rows]
    # The sum of used and free memory moves by some MiB.
    if min(totals) < 0.98 * max(totals) or len(_names(rows)) != 1:
        return False
    # Or all in bursts, too large to be of one moment or of stamps in whole seconds.
    if drifts and (rhythm.size > GPUS_MOST or all(at % 1.0 == 0.0 for at in times)):
        return True
    known = sorted(rhythm.gaps)
    usual_gap = statistics.median(known)
    steady = known[len(known) // 20] > _STEADY * usual_gap and not rhythm.parted
    return usual_gap >= _FASTEST_POLL_SECONDS and (drifts or steady)


def _usual(sizes: Sequence[int]) -> tuple[int, float]:
    """Return the size that most have, and the share that has it."""
    size, times = Counter(sizes).most_common(1)[0]
    return size, times / len(sizes)


def _border(gaps: Sequence[float]) -> tuple[float, float, float]:
    """Return the border between gaps within moments and gaps between them, where the sorted gaps
    leap most; then the usual longest of the one kind and the usual one of the other. Few long ones
    are hiccups."""
    known = sorted(gaps)
    if known[-1] <= SAME_MOMENT_SECONDS and len(known) < GPUS_MOST:
        return SAME_MOMENT_SECONDS, 0.0, math.inf
    last = len(gaps) - max(1, len(gaps) // (2 * GPUS_MOST))
    blurred = [gap + _STAMPS_BLUR_SECONDS for gap in known]
    leaps = [blurred[place + 1] / blurred[place] for place in range(last)] or [1.0]
    place = max(range(len(leaps)), key=leaps.__getitem__)
    border = blurred[place] * min(leaps[place], 100.0) ** 0.5
    return border, known[place * 9 // 10], statistics.median(known[place + 1 :] or [0.0])


def _names(rows: Sequence[Row]) -> list[str]:
    return sorted({row.identity.get("name", "") for row in rows})


def _series(rows: Sequence[Row]) -> Iterator[list[float]]:
    names = _names(rows)
    yield [names.index(row.identity.get("name", "")) for row in rows]
    every = [{**row.identity, **row.reading} for row in rows]
    for field in ("memory_total_bytes", *_SLOW):
        values = [each[field] for each in every if each.get(field) is not None]
        if len(values) == len(rows):
            yield values


def _changes(values: Sequence[float], apart: int = 1) -> list[float]:
    return [abs(after - before) for before, after in zip(values, values[apart:], strict=False)]


def _mean(changes: Sequence[float]) -> float:
    return statistics.fmean(changes) if changes else 0.0


def _likeness(rows: Sequence[Row], size: int) -> float | None:
    """Return how much rows ``size`` apart differ, as a share of how much neighbours do; the least
    of the slow readings. ``None`` where none differs."""
    found: list[float] = []
    for values in _series(rows) if 1 < size < len(rows) else ():
        near = _mean(_changes(values))
        if near > 0.0:
            found.append(_mean(_changes(values, size)) / near)
    return min(found, default=None)


def _drifts(rows: Sequence[Row], gaps: Sequence[float], border: float, size: int) -> bool:
    """Return True where a reading moves from row to row as one GPU's does: by as much within a
    group as from one group to the next, and by more where rows are further apart."""
    size = size if 1 < size < len(rows) // 3 else 4
    for values in _series(rows):
        changes = _changes(values)
        inside = [each for each, gap in zip(changes, gaps, strict=True) if gap <= border]
        across = [each for each, gap in zip(changes, gaps, strict=True) if gap > border]
        if sum(each > 0.0 for each in inside) < _CHANGES_LEAST:
            continue
        near, far = _mean(inside), _mean(_changes(values, size))
        next_group = _mean(across) if across else near
        if far >= _UNLIKE * near and next_group < (near * far) ** 0.5:
            return True
    return False


def _alike(rows: Sequence[Row]) -> int:
    """Return the number of GPUs by which each row is like one before, though not like its
    neighbour."""
    for size in range(2, min(GPUS_MOST, len(rows) // 3) + 1):
        alike = _likeness(rows, size)
        if alike is not None and alike < _LIKE:
            return size
    return 1
