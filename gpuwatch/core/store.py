"""Readings over time, and every statistic of them: one store for charts and rules.

A ``Table`` holds readings that are taken together, a named column each. Rows are kept as they came
for a while; what is older is folded, for tables that say so, into buckets of 1 s, 5 s and 30 s with
their lowest, mean and highest value, so that an oscillation of the last hours is still one and
never a mean. A statistic over a time is a query: ``Table.over``, ``Table.means``, ``Table.total``,
and ``Series.columns`` for charts. A reading that was missing is a gap and stays one everywhere.
Times are the source's monotonic seconds.

From the bottom up: what a query answers, gaps, rows of numbers, tiers of old readings, tables, the
series that charts draw, and the ``Store`` of a machine.
"""

from __future__ import annotations

import math
import mmap
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from operator import attrgetter, itemgetter, mul
from struct import pack_into, unpack
from typing import Any, Literal, NamedTuple, Self, TypeVar

from msgspec import Struct

from gpuwatch.core.bounds import Number, Seconds
from gpuwatch.core.model import BusySample, Gpu, GpuKey, GpuReading, Job, ProcessKey, Snapshot
from gpuwatch.core.registry import GPU, HOST, charted

# --- what a query answers ---------------------------------------------------------------------

NAN = math.nan

# Times are sums of floats: a reading meant for 0.3 s must not fall into the next bucket.
TOLERANCE = 1e-6

Band = tuple[float, float, float]
"""Minimum, mean, maximum."""


class Column(NamedTuple):
    """Lowest, mean and highest reading in one column of a chart."""

    minimum: float
    mean: float
    maximum: float


class Stat(Struct, array_like=True, gc=False):
    """Lowest, highest and total (value times seconds) of a reading over a time. Those of times that
    follow each other add up (``merge``)."""

    low: Number | None = None
    high: Number | None = None
    total: Number = 0.0
    seconds: Seconds = 0.0
    """Time in which it was read."""

    @property
    def mean(self) -> float | None:
        """Mean, weighted with the time that each value held; ``None`` when it was never read for a
        time."""
        if self.seconds <= 0.0:
            return None
        mean = self.total / self.seconds
        if self.low is None or self.high is None:
            return mean
        # One value is its own mean, whatever rounding makes of it.
        return self.low if mean < self.low else self.high if mean > self.high else mean

    @property
    def whole_high(self) -> int | None:
        """Highest value of a reading that is a whole number."""
        return None if self.high is None else round(self.high)

    @property
    def integral(self) -> float | None:
        """Value times seconds; ``None`` when it was never read for a time."""
        return self.total if self.seconds > 0.0 else None

    @property
    def column(self) -> Column | None:
        """Column of a chart; ``None`` when it was never read for a time."""
        low, mean, high = self.low, self.mean, self.high
        return None if low is None or mean is None or high is None else Column(low, mean, high)

    def add_value(self, value: float | None, seconds: float) -> None:
        """Add ``value``, which held for ``seconds`` (0: it was seen, and says nothing of a mean).
        What is negative or infinite is no measurement."""
        if value is None or not 0.0 <= value < math.inf:
            return
        if self.high is None or value > self.high:
            self.high = float(value)
        if self.low is None or value < self.low:
            self.low = float(value)
        if seconds > 0.0:
            self.seconds += seconds
            self.total += value * seconds

    def merge(self, later: Stat) -> None:
        """Add the statistic of another time."""
        if later.low is not None and (self.low is None or later.low < self.low):
            self.low = later.low
        if later.high is not None and (self.high is None or later.high > self.high):
            self.high = later.high
        self.total += later.total
        self.seconds += later.seconds


def stat_of(values: Sequence[float], seconds: Sequence[float]) -> Stat | None:
    """Return the statistic of readings, each weighted with the time it speaks for; ``None`` where
    all are gaps (no finite number)."""
    if len(values) < 2:
        value = values[0] if values else NAN
        if not math.isfinite(value):
            return None
        held = seconds[0] or MOMENT_SECONDS
        return Stat(value, value, value * held, held)
    held = sum(seconds)
    if held <= 0.0:
        # Readings that speak for no time count alike.
        return stat_of(values, [MOMENT_SECONDS] * len(values))
    total = sum(map(mul, values, seconds))
    if math.isfinite(total):
        return Stat(min(values), max(values), total, held)
    read = [pair for pair in zip(values, seconds, strict=True) if math.isfinite(pair[0])]
    return stat_of([value for value, _ in read], [seconds for _, seconds in read])


def merged(stats: Iterable[Stat]) -> Stat | None:
    """Return the statistic of all these times together; ``None`` for none."""
    together = Stat()
    for one in stats:
        together.merge(one)
    return together if together.seconds > 0.0 else None


def column_of(values: Sequence[float], seconds: Sequence[float]) -> Column | None:
    """Return the column of readings, each weighted with the time it speaks for."""
    stat = stat_of(values, seconds)
    return None if stat is None else stat.column


def bucket_index(at: float, column_seconds: float) -> int:
    """Return the number of the bucket that holds the moment ``at``.

    Bucket ``k`` is the time after ``k * column_seconds`` up to and including
    ``(k + 1) * column_seconds``, so a reading taken on a boundary belongs to the time it covers.
    """
    return math.ceil(at / column_seconds - TOLERANCE) - 1


# --- gaps -------------------------------------------------------------------------------------

GAP_INTERVALS = 2.5
"""Intervals after which the time between two readings is a gap, of which nothing is known."""

LONGEST_SAMPLE_SECONDS = 1.5
"""Longest time that a fine sample speaks for: NVML's sample period is at most 1 s."""

MOMENT_SECONDS = 1e-9
"""Time that a reading speaks for which is known to hold for its own moment only."""


class Spacing(NamedTuple):
    """Distance that polls are meant to have, and the longest: from there on it is a gap."""

    interval: float
    longest: float

    def covered(self, passed: float) -> float:
        """Return the seconds that a reading speaks for, ``passed`` seconds after the one before:
        all of them, or after a gap one interval only."""
        return passed if passed <= self.longest else self.interval


def spacing_of(snapshot: Snapshot, interval_before: float = 0.0) -> Spacing:
    """Return the spacing of snapshots; ``interval_before``: that of the snapshot before, since
    after "faster" is pressed the time since the last poll is still the slower interval."""
    interval = max(snapshot.interval_seconds, 1e-3)
    return Spacing(interval, GAP_INTERVALS * max(interval, interval_before))


def spoken_for(snapshot: Snapshot, before: float | None) -> float:
    """Return the seconds a snapshot's readings speak for, ``before`` being the monotonic time of
    the one before; the first speaks for one interval. 0: no time has passed."""
    passed = math.inf if before is None else snapshot.monotonic_seconds - before
    # A machine that was started again counts from zero.
    return spacing_of(snapshot).covered(passed if passed >= 0.0 else math.inf)


# --- how busy a GPU was -----------------------------------------------------------------------


FineSample = tuple[float, float, float]
"""One of the samples that come several to a snapshot: when it was taken, its value, and the seconds
it speaks for (since the one before; 0 after a hole, of which nothing is known)."""


def fine_samples(
    samples: Iterable[BusySample],
    after: float,
    *,
    until: float = math.inf,
    offset: float = 0.0,
    most: float = math.inf,
) -> list[FineSample]:
    """Return the samples taken after ``after``. Their stamps are wall time, which ``offset`` takes
    to the caller's; one after ``until`` is of a driver's clock that runs ahead. What is not
    between 0 and ``most`` is no sample."""
    found = []
    for stamp, value in samples:
        at = min(stamp - offset, until)
        seconds = at - after
        if seconds > 0.0 and 0.0 <= value <= most and value < math.inf:
            known = seconds <= LONGEST_SAMPLE_SECONDS
            found.append((at, float(value), seconds if known else 0.0))
            after = at
    return found


class BusyTime(NamedTuple):
    """Time of which a snapshot says how busy a GPU was."""

    until: float
    seconds: float
    percent: float
    """Mean of these seconds."""
    samples: Sequence[FineSample]
    """Samples that the mean is of: the driver's fine ones, or the one reading that was polled."""

    @property
    def idle_seconds(self) -> float:
        return self.seconds * (1.0 - self.percent / 100.0)


def busy_name(reading: GpuReading) -> str:
    """Return the reading that says how busy a GPU is: of an instance of one (MIG), which has no
    utilisation, how active its SMs are."""
    active = reading.busy_percent is None and reading.sm_active_percent is not None
    return "sm_active_percent" if active else "busy_percent"


def busy_time(
    reading: GpuReading,
    known_until: float,
    at: float,
    seconds: float,
    *,
    longest: float,
    offset: float = 0.0,
) -> BusyTime | None:
    """Return how busy a GPU was in the time that its reading at ``at`` adds to what is known: after
    ``known_until``, so that no second counts twice. ``None``: it adds none.

    A polled reading speaks for ``seconds``. Fine samples speak up to the last of them, which may be
    a second old. With seldom looks the driver's buffer holds only the newest part of the time
    between two looks, and stands for all of it if that is no longer than ``longest``.
    """
    if reading.busy_samples is None:
        percent = reading.busy_percent
        if percent is None or not 0.0 <= percent <= 100.0 or at < known_until:
            return None
        # The first reading there is speaks for its moment, and for no time.
        seconds = min(seconds, at - known_until)
        return BusyTime(at, seconds, percent, ((at, float(percent), seconds),))
    samples = fine_samples(reading.busy_samples, known_until, until=at, offset=offset, most=100.0)
    if not samples:
        return None
    covered = sum([seconds for _, _, seconds in samples])
    if covered > 0.0:
        percent = sum([value * seconds for _, value, seconds in samples]) / covered
    else:
        # All lie behind holes.
        percent = sum([value for _, value, _ in samples]) / len(samples)
    until = samples[-1][0]
    passed = until - known_until
    return BusyTime(until, passed if passed <= longest else covered, percent, samples)


# --- rows of numbers in memory of their own ---------------------------------------------------

Code = Literal["e", "f", "d"]
"""Half, single, double precision."""
_BYTES = {"e": 2, "f": 4, "d": 8}
_MOST = {"e": 65504.0, "f": 3.4e38, "d": math.inf}
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_NOTHING = memoryview(bytearray())


class Rows:
    """Rows of ``width`` numbers of one type, oldest first. What is too large for it is no number.

    An array that grows moves again and again and leaves holes among all else that a program holds,
    after hours some MiB. A mapping stays where it is: of its room for so many rows only the
    pages that were written are there, and in the end it is given back as a whole.
    """

    __slots__ = ("_capacity", "_cells", "_code", "_room", "count", "width")

    def __init__(self, code: Code, width: int, room: int) -> None:
        self._code: Code = code
        self._room = room
        self.count = 0
        """Number of rows: an attribute, since ``len`` is one call more for each reading."""
        self._make_room(width, 0)

    def _make_room(self, width: int, rows: int) -> None:
        self.width = width
        self._capacity = rows
        size = rows * width * _BYTES[self._code]
        self._cells: memoryview[Any] = _NOTHING
        if size:
            # Pages can have 64 KiB, which a small room would leave empty.
            small = size < mmap.PAGESIZE
            room = bytearray(size) if small else mmap.mmap(-1, size, flags=_PRIVATE)
            # Views know no half precision: moved about, two bytes are two bytes.
            self._cells = memoryview(room).cast("H" if self._code == "e" else self._code)

    def __len__(self) -> int:
        return self.count

    def __deepcopy__(self, _: object) -> Self:
        new = copy(self)
        new._make_room(self.width, self._capacity)
        new._cells[:] = self._cells
        return new

    def column(self, number: int, start: int = 0, stop: int | None = None) -> memoryview[float]:
        """Return one column of the rows from ``start`` to before ``stop``, writable; not for half
        precision."""
        stop = self.count if stop is None else min(stop, self.count)
        return self._cells[start * self.width + number : stop * self.width : self.width]

    def values(self, number: int, start: int, stop: int) -> list[float]:
        """Return one column of the rows from ``start`` to before ``stop``; not for half
        precision."""
        found: Any = self._cells[start * self.width + number : stop * self.width : self.width]
        return found.tolist()  # type: ignore[no-any-return]

    def cells(self, start: int, stop: int) -> list[float]:
        """Return all numbers of the rows from ``start`` to before ``stop``, row by row; not for
        half precision."""
        found: Any = self._cells[start * self.width : stop * self.width]
        return found.tolist()  # type: ignore[no-any-return]

    def numbers(self, number: int, start: int, stop: int) -> Sequence[float]:
        """Return one column of the rows from ``start`` to before ``stop``, in any precision,
        read-only."""
        column = self.column(number, start, stop)
        return unpack(f"{len(column)}{self._code}", column.tobytes())

    def extend(self, numbers: Sequence[float], count: int) -> None:
        """Append ``count`` rows, whose numbers follow each other."""
        if self.count + count > self._capacity:
            self._grow(count)
        pattern = f"{len(numbers)}{self._code}"
        start = self.count * self.width * _BYTES[self._code]
        try:
            pack_into(pattern, self._cells, start, *numbers)
        except OverflowError:
            # So says Python 3.15 of single precision; earlier ones make it infinite.
            most = _MOST[self._code]
            limited = [number if abs(number) < most else NAN for number in numbers]
            pack_into(pattern, self._cells, start, *limited)
        self.count += count

    def _grow(self, rows: int) -> None:
        kept, end = self._cells, self.count * self.width
        self._make_room(self.width, max(self._room, 2 * (self.count + rows)))
        if end:
            self._cells[:end] = kept[:end]

    def drop(self, count: int) -> None:
        """Forget the oldest ``count`` rows."""
        count = min(count, self.count)
        if count > 0:
            start, end = count * self.width, self.count * self.width
            self._cells[: end - start] = self._cells[start:end]
            self.count -= count

    def widen(self, more: int, filling: float) -> None:
        """Make each row ``more`` numbers wider, filled with ``filling``."""
        kept, width, count = self._cells, self.width, self.count
        self._make_room(width + more, self._capacity)
        self.count = 0
        if count:
            # New cells are zero bytes; half precision is moved as the two bytes it is.
            self.extend([filling] * (count * self.width), count)
            for number in range(width):
                self.column(number)[:] = kept[number : count * width : width]


# --- tiers: buckets of what is too old to be kept as it came ----------------------------------

BLOCK_SECONDS = 30.0
"""Readings are folded in whole blocks: a multiple of every tier's width."""

Tiers = tuple[tuple[float, float], ...]
TIERS: Tiers = ((1.0, 15 * 60.0), (5.0, 3600.0), (30.0, 12 * 3600.0))
"""(bucket width, reach) in seconds, finest first."""
_GAP = (NAN, NAN, NAN)
LONG_TIERS = TIERS[1:]
SPARK_TIERS = ((5.0, 15 * 60.0), (60.0, 12 * 3600.0))
"""Tiers for series that are only drawn as sparklines, up to now."""
_UNITS = {"bytes": float(1 << 27), "samples": float(1 << 8)}
"""Units in which half precision reaches 8 TiB in steps of 8 KiB, and 16 million samples a
second."""


def stored_unit(name: object) -> float:
    """Return the unit in which a tier stores the series: a power of two, which costs no
    precision."""
    return next((unit for word, unit in _UNITS.items() if word in str(name)), 1.0)


class Tier:
    """Contiguous buckets of one width: lowest, mean and highest of each series. ``first`` is the
    number of the oldest.

    In half precision (0.05%, of numbers up to 65504): charts show less, and hours of a machine with
    many GPUs and processes are some MiB. Bytes and samples are therefore kept in larger units.
    """

    __slots__ = ("_rows", "_units", "first", "reach", "width")

    def __init__(self, width: float, reach: float) -> None:
        self.width = width
        self.reach = reach
        self.first = 0
        self._units: list[float] = []
        # Blocks come before those that have become too old are dropped.
        self._rows = Rows("e", 0, round(reach / width) + 64)

    def __len__(self) -> int:
        return self._rows.count

    def widen(self, names: Sequence[object]) -> None:
        """Begin to hold these series as well."""
        self._units += map(stored_unit, names)
        self._rows.widen(3 * len(names), NAN)

    def extend(self, bucket: int, columns: Sequence[Sequence[Band | None]]) -> None:
        """Append the buckets of each series from number ``bucket`` on, with gaps since the last
        one."""
        missing = bucket - self.first - len(self)
        if not self or missing * self.width > self.reach:
            self._drop(len(self))
            self.first = bucket
            missing = 0
        cells = [NAN] * (missing * self._rows.width)
        for bands in zip(*columns, strict=True):
            for band, unit in zip(bands, self._units, strict=True):
                cells += _GAP if band is None else [number / unit for number in band]
        self._rows.extend(cells, missing + len(columns[0]))

    def forget_before(self, at: float) -> None:
        self._drop(max(0, int(at / self.width) - self.first))

    def _drop(self, count: int) -> None:
        self._rows.drop(count)
        self.first += count

    def stats(self, series: int, start: float, end: float) -> list[Stat]:
        """Return the buckets with a reading in (start, end], each with the seconds that lie in
        it."""
        width = self.width
        low = max(0, math.floor(start / width + TOLERANCE) - self.first)
        high = max(0, math.ceil(end / width - TOLERANCE) - self.first)
        unit = self._units[series]
        lows, means, highs = [
            [unit * one for one in self._rows.numbers(3 * series + number, low, high)]
            for number in range(3)
        ]
        seconds = [width] * len(lows)
        if seconds:
            seconds[0] -= max(0.0, start - (self.first + low) * width)
            seconds[-1] -= max(0.0, (self.first + low + len(seconds)) * width - end)
        return [
            Stat(low, high, mean * held, held)
            for low, mean, high, held in zip(lows, means, highs, seconds, strict=True)
            if math.isfinite(mean)
        ]


# --- tables of readings that are taken together -----------------------------------------------

READINGS_KEPT = 1024
_ROOM = 128
"""Room for readings beyond those kept, since whole blocks are folded."""
_PENDING_MOST = 16
"""Rows that wait as they came until they are written together, or asked for."""
_STALE = 1.25
"""Rows are forgotten when the oldest is so many times as old as they are kept: each time, what is
left is moved."""

Values = Sequence[float | None]


class Table:
    """Readings that are taken together, a named column each: one more row costs an append.

    Row ``i`` was taken at ``at[i]``, which ascends, and speaks for the ``seconds[i]`` up to then.
    About ``kept`` rows are kept as they came, then they are folded into the ``tiers``; without
    tiers they are forgotten, as are those older than ``keep_seconds``. A column is there from its
    first reading on.
    """

    def __init__(
        self,
        names: Sequence[Hashable],
        kept: int = READINGS_KEPT,
        tiers: Tiers = TIERS,
        *,
        code: Code = "f",
        keep_seconds: float = math.inf,
    ) -> None:
        self.kept = kept
        self._keep_seconds = keep_seconds
        self._block = max(BLOCK_SECONDS, tiers[-1][0]) if tiers else BLOCK_SECONDS
        self.tiers = [Tier(width, reach) for width, reach in tiers]
        self.latest_at = -math.inf
        self.folded_until = -math.inf
        self.places: dict[Hashable, int] = {}
        """Place in each row of every column that has had a reading."""
        self._pending: list[tuple[float, float, Values]] = []
        """Newest rows, which are not written yet: (at, seconds, values)."""
        room = kept + _ROOM if tiers else _ROOM
        self.times = Rows("d", 2, room)
        """Time of each reading, and the seconds that it speaks for."""
        self.readings = Rows(code, 0, room)
        self.name(names)

    # -- what goes in ----------------------------------------------------------------------

    def name(self, names: Sequence[Hashable]) -> None:
        """Set the names of the readings that come from now on: those before, and more after
        them."""
        self.write()
        self.names = names
        self._read = [names.index(name) for name in self.places]
        self._unread = [each for each in enumerate(names) if each[1] not in self.places]

    def begin(self, names: Iterable[Hashable]) -> None:
        """Begin to keep these columns, from now on."""
        new = [name for name in names if name not in self.places]
        if new:
            for name in new:
                self.places[name] = len(self.places)
            self.readings.widen(len(new), NAN)
            for tier in self.tiers:
                tier.widen(new)
            self._read = [self.names.index(name) for name in self.places]
            self._unread = [each for each in self._unread if each[1] not in self.places]

    def add_row(self, at: float, seconds: float, values: Values) -> None:
        """Take one reading of every column, in the order of ``names`` (``None``: not read), taken
        at ``at`` for the ``seconds`` up to then; times ascend."""
        self.latest_at = at
        pending = self._pending
        pending.append((at, seconds, values))
        if len(pending) >= _PENDING_MOST:
            self.write()

    def write(self) -> None:
        """Write the rows that wait; what is asked for begins with it."""
        rows = self._pending
        if not rows:
            return
        self._pending, count = [], len(rows)
        if self._unread:
            columns = list(zip(*[values for _, _, values in rows], strict=True))
            new = [name for place, name in self._unread if columns[place].count(None) < count]
            if new:
                self.begin(new)
        places = self._read
        self.times.extend([number for at, seconds, _ in rows for number in (at, seconds)], count)
        numbers = [
            NAN if (value := values[place]) is None else value
            for _, _, values in rows
            for place in places
        ]
        self.readings.extend(numbers, count)
        self._shorten()

    def take_block(self, block: int, bands: Mapping[Hashable, Band]) -> None:
        """Take the bands of a whole block before the first reading, by the columns' names."""
        self.write()
        end = (block + 1) * BLOCK_SECONDS
        if (self.times and end > self.at[0]) or end <= self.folded_until:
            return
        self.begin(bands)
        if self.places:
            self.tiers[-1].extend(block, [[bands.get(name)] for name in self.places])
        self.folded_until = end

    def clear(self) -> None:
        """Forget all rows that are kept as they came."""
        self._pending = []
        self._drop(self.times.count)
        self.latest_at = -math.inf

    # -- what is asked ---------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of rows kept as they came."""
        return self.times.count + len(self._pending)

    @property
    def at(self) -> memoryview[float]:
        """Time of each row that is written."""
        return self.times.column(0)

    @property
    def seconds(self) -> memoryview[float]:
        """Seconds that each row that is written speaks for."""
        return self.times.column(1)

    @property
    def earliest_at(self) -> float | None:
        """Earliest moment of which something is kept."""
        self.write()
        begins = [tier.first * tier.width for tier in self.tiers if tier]
        return min([*begins, *self.at[:1]], default=None)

    def over(self, name: Hashable, since: float, until: float = math.inf) -> Stat | None:
        """Return the statistic of the readings taken after ``since`` and up to ``until``, each
        weighted with the time it speaks for; ``None`` where nothing was read."""
        place = self._place(name)
        if place is None:
            return None
        start, stop = self.between(since, until)
        values = self.readings.values(place, start, stop)
        rest = stat_of(values, self.times.values(1, start, stop))
        if since >= self.folded_until:
            return rest
        parts = self.folded(place, since, min(until, self.folded_until))
        return merged(parts if rest is None else [*parts, rest])

    def means(self, since: float) -> list[float | None]:
        """Return the mean of each column, in the order of ``names``, over the readings taken after
        ``since``; ``None`` where nothing was read."""
        self.write()
        if since < self.folded_until:
            stats = [self.over(name, since) for name in self.names]
            return [None if stat is None else stat.mean for stat in stats]
        start, stop = self.between(since, math.inf)
        seconds, cells = self.times.values(1, start, stop), self.readings.cells(start, stop)
        total, width = sum(seconds), self.readings.width
        means: list[float | None] = []
        for name in self.names:
            place = self.places.get(name)
            mean = NAN
            if place is not None and total > 0.0:
                mean = sum(map(mul, cells[place::width], seconds)) / total
            if place is None or math.isfinite(mean):
                means.append(None if place is None else mean)
            else:
                stat = stat_of(cells[place::width], seconds)
                means.append(None if stat is None else stat.mean)
        return means

    def seconds_since(self, since: float) -> float:
        """Return the seconds that the rows after ``since`` speak for."""
        self.write()
        start, stop = self.between(since, math.inf)
        return sum(self.times.values(1, start, stop))

    def total(self, name: Hashable, begin: float, end: float) -> float | None:
        """Return what went through between two moments, of a reading that is a rate a second; time
        in which it was not read counts as nothing. ``None``: it was never read, or ``begin`` is
        longer ago than is kept."""
        place, earliest = self._place(name), self.earliest_at
        if place is None or earliest is None:
            return None
        at, seconds = self.at, self.seconds
        if begin < (min(earliest, at[0] - seconds[0]) if at else earliest):
            return None
        amount = 0.0
        if begin < self.folded_until:
            parts = self.folded(place, begin, min(end, self.folded_until))
            amount = sum([part.total for part in parts])
        start, stop = self.between(begin, end)
        for row in range(start, min(stop + 1, len(at))):
            rate = self.readings.column(place)[row]
            inside = min(end, at[row]) - max(begin, at[row] - seconds[row])
            if inside > 0.0 and math.isfinite(rate):
                amount += rate * inside
        return amount

    def mean(self, name: Hashable, begin: float, end: float) -> float | None:
        """Return ``total`` for each second between the two moments."""
        total = self.total(name, begin, end)
        return None if total is None or end <= begin else total / (end - begin)

    def readings_since(
        self, since: float, names: Iterable[Hashable]
    ) -> tuple[list[float], list[list[float]]]:
        """Return the time of each row after ``since`` that is kept as it came, and the readings of
        each of these columns (no number: not read)."""
        self.write()
        start, stop = self.between(since, math.inf)
        found = [
            self.readings.values(place, start, stop)
            if (place := self._place(name)) is not None
            else [NAN] * (stop - start)
            for name in names
        ]
        return self.times.values(0, start, stop), found

    def series(self, name: Hashable) -> Series | None:
        """Return a column as charts draw it; ``None`` before its first reading."""
        if name not in self.places:
            self.write()
        place = self.places.get(name)
        if place is None:
            return None
        return self._series.setdefault(name, Series(self, place))

    @cached_property
    def _series(self) -> dict[Hashable, Series]:
        return {}

    # -- rows and buckets, by their numbers ------------------------------------------------

    def _place(self, name: Hashable) -> int | None:
        """Return the place of a column in each row; ``None`` before its first reading."""
        self.write()
        place = self.places.get(name)
        if place is None and name not in self.names:
            raise KeyError(name)
        return place

    def between(self, since: float, until: float) -> tuple[int, int]:
        """Return which of the written rows were taken after ``since`` and up to ``until``: (start,
        stop)."""
        at = self.at
        stop = len(at) if until >= self.latest_at else bisect_right(at, until)
        return bisect_right(at, since, 0, stop), stop

    def buckets(self, first: int, last: int, width: float) -> list[tuple[int, int]]:
        """Return which readings belong to the buckets ``first`` to ``last``: (start, stop) of
        each.

        A bucket holds the readings taken in it; one in which none was taken holds the one that
        speaks for it, and none (``start == stop``) where none does.
        """
        at, seconds = self.at, self.seconds
        length = len(at)
        slack = width * TOLERANCE
        start = bisect_right(at, first * width + slack)
        found = []
        for bucket in range(first, last + 1):
            end = (bucket + 1) * width
            stop = start
            if start < length:
                if at[start] > end + slack:
                    covered = at[start] - seconds[start] < end - slack
                    found.append((start, start + covered))
                    continue
                stop += 1
                if stop < length and at[stop] <= end + slack:
                    stop = bisect_right(at, end + slack, stop + 1)
            found.append((start, stop))
            start = stop
        return found

    def stats(self, place: int, buckets: Sequence[tuple[int, int]]) -> list[Stat | None]:
        """Return one column's statistic over each (start, stop) of the written rows."""
        if not buckets:
            return []
        first, last = buckets[0][0], buckets[-1][1]
        if last - first == 1:
            # A live chart mostly asks for the newest reading alone.
            one = stat_of(
                self.readings.values(place, first, last), self.times.values(1, first, last)
            )
            return [one if start < stop else None for start, stop in buckets]
        values = self.readings.values(place, first, last)
        seconds = self.times.values(1, first, last)
        # Where columns are narrow, several in a row hold the same reading.
        made = {
            (start, stop): stat_of(
                values[start - first : stop - first], seconds[start - first : stop - first]
            )
            for start, stop in dict.fromkeys(buckets)
        }
        return [made[one] for one in buckets]

    def folded(self, place: int, start: float, end: float, width: float = 0.0) -> list[Stat]:
        """Return the buckets of the tiers between ``start`` and ``end``, for a column of a chart of
        this ``width``; 0: as fine as there are."""
        filled = [tier for tier in self.tiers if tier]
        if not filled:
            return []
        reaching = [tier for tier in filled if tier.first * tier.width <= start]
        # The coarsest that is still fine beside the column: what a column costs to put together
        # must not grow with its width.
        reaching = [t for t in reaching if t.width * _PARTS_LEAST <= width][::-1] or reaching
        # Where none divides the width, or none reaches: the finest that reaches, or the longest.
        fallback = reaching[0] if reaching else filled[-1]
        tier = next((one for one in reaching if _divides(one.width, width)), fallback)
        return tier.stats(place, start, end)

    def _shorten(self) -> None:
        """Fold or forget the oldest rows if there are too many, or they are too old."""
        if self.times.count > self.kept:
            if self.tiers:
                self._fold()
            else:
                self._drop(self.times.count - self.kept)
        elif self.at[0] < self.latest_at - _STALE * self._keep_seconds:
            self._drop(bisect_right(self.at, self.latest_at - self._keep_seconds))

    def _fold(self) -> None:
        """Move the oldest whole blocks into the tiers until few enough readings are left."""
        while self.times.count > self.kept:
            at = self.at
            latest, block = self.latest_at, bucket_index(at[0], self._block)
            end = (block + 1) * self._block
            # What comes next may still begin in a block that has only just ended.
            if end + BLOCK_SECONDS > latest:
                return
            for tier in self.tiers:
                tier.forget_before(latest - tier.reach)
                if not self.places or end <= latest - tier.reach:
                    # Nothing was read, or the rows as they came reach further back than this tier.
                    continue
                per_block = round(self._block / tier.width)
                first = block * per_block
                buckets = self.buckets(first, first + per_block - 1, tier.width)
                stats = [self.stats(place, buckets) for place in self.places.values()]
                tier.extend(
                    first, [[None if one is None else one.column for one in own] for own in stats]
                )
            self._drop(bisect_right(at, end + BLOCK_SECONDS * TOLERANCE))
            self.folded_until = end

    def _drop(self, count: int) -> None:
        self.times.drop(count)
        self.readings.drop(count)


# --- series, as charts draw them --------------------------------------------------------------

_PARTS_LEAST = 12
"""Least number of a tier's buckets that make a column, if there are any as fine."""
_VIEWS_KEPT = 3
"""Widths remembered: the overview's, a detail's, a mark's. Old widths are not asked for again."""
_FEW_READINGS = 256
"""Most readings whose mean is worked out from all of them each time: that of more is put together
from columns, of which only the newest is new."""
_SPARE_COLUMNS = 32
"""Columns no longer shown by any chart that are kept until they are forgotten together."""


def _divides(part: float, width: float) -> bool:
    return abs(width / part - round(width / part)) < TOLERANCE <= width


class _View:
    """Columns of one width that were made before, from the bucket ``first`` on."""

    __slots__ = ("columns", "first", "seen", "widest")

    def __init__(self, first: int) -> None:
        self.first = first
        self.columns: list[Column | None] = []
        self.seen = -math.inf
        """Time of the newest reading that the columns include."""
        self.widest = 0

    def reaches(self, first: int) -> bool:
        """Whether a chart that begins at ``first`` can reuse these columns."""
        return self.first <= first <= self.first + len(self.columns)

    def begin(self, first: int, count: int) -> None:
        """Forget most of what lies before ``first``, of a chart of ``count`` columns."""
        self.widest = max(self.widest, count)
        if len(self.columns) > self.widest + _SPARE_COLUMNS:
            surplus = min(len(self.columns) - self.widest, first - self.first)
            del self.columns[:surplus]
            self.first += surplus

    def outdated_from(self, width: float, *, fed: bool) -> int:
        """Return the first column that is missing or may have changed; ``fed``: there are
        readings."""
        end = self.first + len(self.columns)
        if self.seen > -math.inf:
            return max(self.first, min(end, bucket_index(self.seen, width)))
        # What was put together so far was made of nothing: the first reading may lie behind it.
        return self.first if fed else end


class Series:
    """One column of a table as charts draw it. What was drawn is remembered: the next frame
    computes only what is new."""

    __slots__ = ("_place", "_views", "table")

    def __init__(self, table: Table, place: int) -> None:
        self.table = table
        self._place = place
        self._views: dict[float, _View] = {}

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        """Return the last ``count`` columns up to the one that holds ``end``, oldest first.

        The boundaries are multiples of ``column_seconds`` (see ``bucket_index``), so a column
        keeps its content while time passes; ``None`` is a gap. The finest tier that reaches back to
        a column and divides its width is used for it; where none divides it, a bucket that
        straddles two columns counts in both, in each mean for the time that lies in it.
        """
        if count <= 0:
            return []
        table = self.table
        table.write()
        last = bucket_index(end, column_seconds)
        first = last - count + 1
        view = self._views.get(column_seconds)
        if view is None or not view.reaches(first):
            if view is None and len(self._views) >= _VIEWS_KEPT:
                del self._views[next(iter(self._views))]
            view = self._views[column_seconds] = _View(first)
        view.begin(first, count)
        start = view.outdated_from(column_seconds, fed=table.times.count > 0)
        if start <= last:
            view.columns[start - view.first :] = self._compute(start, last, column_seconds)
            view.seen = table.latest_at
        return view.columns[first - view.first : last + 1 - view.first]

    def mean(self, end: float, column_seconds: float, count: int) -> float | None:
        """Return the mean over the last ``count`` columns up to the one that holds ``end``;
        ``None`` where nothing was read."""
        table = self.table
        table.write()
        last = bucket_index(end, column_seconds)
        start, stop = table.between(
            (last - count + 1) * column_seconds, (last + 1) * column_seconds
        )
        if stop - start > _FEW_READINGS or (last - count) * column_seconds < table.folded_until:
            return mean_of(self.columns(end, column_seconds, count))
        values, seconds = [
            rows.values(place, start, stop)
            for rows, place in ((table.readings, self._place), (table.times, 1))
        ]
        stat = stat_of(values, seconds)
        return None if stat is None else stat.mean

    def _compute(self, first: int, last: int, width: float) -> list[Column | None]:
        columns: list[Column | None] = []
        folded = self.table.folded_until - width * TOLERANCE
        while first <= last and first * width < folded:
            columns.append(self._from_tiers(first, width))
            first += 1
        stats = self.table.stats(self._place, self.table.buckets(first, last, width))
        return columns + [None if stat is None else stat.column for stat in stats]

    def _from_tiers(self, bucket: int, width: float) -> Column | None:
        """Return a column that lies in the tiers, at least in part."""
        start, end = bucket * width, (bucket + 1) * width
        table, folded = self.table, self.table.folded_until
        parts = table.folded(self._place, start, min(end, folded), width)
        low, high = bisect_right(table.at, folded), bisect_right(table.at, end)
        (rest,) = table.stats(self._place, [(low, high)])
        if rest is not None and rest.mean is not None:
            seconds = min(end, table.at[high - 1]) - folded
            parts.append(Stat(rest.low, rest.high, rest.mean * seconds, seconds))
        stat = merged(parts)
        return None if stat is None else stat.column


def mean_of(columns: Sequence[Column | None]) -> float | None:
    """Return the mean of columns that are equally wide; ``None`` where nothing was read."""
    means = [one.mean for one in columns if one is not None]
    return sum(means) / len(means) if means else None


SAMPLES_KEPT = 4096
_ALONE = (None,)
"""Name of a series that is not read together with others."""


class SampledSeries(Series):
    """A reading with a table of its own, fed with samples or polled."""

    __slots__ = ()

    def __init__(self, readings_kept: int = SAMPLES_KEPT) -> None:
        table = Table(_ALONE, readings_kept)
        table.begin(_ALONE)
        super().__init__(table, 0)

    def add_reading(self, at: float, value: float | None, since: float | None = None) -> None:
        """Take one reading made at ``at`` that speaks for the time after ``since``.

        Without ``since`` it speaks for its own moment. ``None`` (and NaN, and infinity) is a
        gap. A reading that is not later than the last is dropped.
        """
        table = self.table
        if at > max(table.latest_at, table.folded_until):
            since = at if since is None else max(since, table.latest_at)
            known = value is not None and math.isfinite(value)
            table.add_row(at, max(at - since, MOMENT_SECONDS), (value if known else None,))

    def add_samples(self, samples: Iterable[BusySample], offset: float = 0.0) -> None:
        """Take fine samples, each for the time since the one before. Their stamps are wall time,
        ``offset`` ahead of this table's. Samples more than a second apart have a gap between
        them."""
        table = self.table
        after = max(table.latest_at, table.folded_until)
        for at, value, seconds in fine_samples(samples, after, offset=offset):
            table.add_row(at, max(seconds, MOMENT_SECONDS), (value,))

    def add_latest(
        self,
        samples: Iterable[BusySample] | None,
        value: float | None,
        at: float,
        offset: float,
        spacing: Spacing,
    ) -> None:
        """Take the readings of a snapshot at ``at``: fine samples, else the one polled
        ``value``. ``offset`` is that of ``add_samples``."""
        table = self.table
        if samples is not None:
            table.kept = SAMPLES_KEPT
            self.add_samples(samples, offset)
        else:
            self.add_reading(at, value, at - spacing.covered(at - table.latest_at))


class PolledThenSampled:
    """A series that is polled up to ``since`` and has ``fine`` samples after it."""

    def __init__(self, polled: Table, name: Hashable, since: float) -> None:
        self.fine = SampledSeries()
        self._polled, self._name, self._since = polled, name, since

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        """Return columns as ``Series.columns`` does."""
        columns = self.fine.columns(end, column_seconds, count)
        polled = self._polled.series(self._name)
        first = bucket_index(end, column_seconds) - count + 1
        before = min(count, int(self._since / column_seconds) - first)
        if polled is not None and before > 0:
            columns[:before] = polled.columns(end, column_seconds, count)[:before]
        return columns

    def mean(self, end: float, column_seconds: float, count: int) -> float | None:
        """Return the mean of columns as ``Series.mean`` does."""
        return mean_of(self.columns(end, column_seconds, count))


# --- the series of a machine ------------------------------------------------------------------

GPU_SERIES = tuple([name for name in charted(GPU) if name != "busy_percent"])
"""Readings of a GPU that have a series, beside ``busy_percent``, which has its own table."""
_MOVING = {*GPU_SERIES, "busy_percent", "throttle_reasons", "pcie_generation", "pcie_width"}
_MOVING -= {"memory_used_bytes", "power_limit_watts", "temperature_celsius"}

HOST_SERIES = charted(HOST)

PROCESS_SERIES = ("gpu_busy_percent", "cpu_percent")
_MAIN_THREAD = ("main_thread_cpu_percent",)

FINE_JOB_SERIES = {
    "main_thread_cpu_percent": "main_thread_samples",
    "loader_worker_cpu_percent": "loader_worker_samples",
}
"""Series of a job with the field of its fine samples, which have tables of their own."""
_JOB_READINGS = (
    "read_bytes_per_second", "write_bytes_per_second", "data_wait_share", "compute_share",
    *FINE_JOB_SERIES,
)  # fmt: skip
JOB_SERIES = (
    *_JOB_READINGS, "data_wait_least_share", "data_wait_most_share", "compute_of_most_share",
)  # fmt: skip
"""Series of a job; ``least`` and ``most`` are those of its ranks, the last of the one that waits
most."""

JOB_READINGS_KEPT = 600
PROCESS_READINGS_KEPT = 256
"""Readings kept of a process, of which only sparklines are drawn, up to now."""
PROCESSES_KEPT = 512
"""Most series of processes: with all of a large machine shown, those without a GPU beyond this have
none."""
JOBS_KEPT = 128
PROCESS_FORGOTTEN_SECONDS = 60.0
"""Time after the last snapshot with a process, or a job, at which its series are forgotten."""

K = TypeVar("K")
_gpu_values = attrgetter(*GPU_SERIES)
_host_values = attrgetter(*HOST_SERIES)
_process_values = attrgetter(*PROCESS_SERIES)
_job_readings = attrgetter(*_JOB_READINGS)
_first = itemgetter(0)


class Store:
    """Readings of everything in the snapshots pushed so far: tables of the GPUs, the host and its
    cores, the processes and the jobs.

    A series exists from its first reading on. Names are the field names of ``GpuReading``,
    ``Host``, ``Process`` and ``Job``; an unknown name is a ``KeyError``.
    """

    def __init__(self) -> None:
        self._gpus: dict[GpuKey, Table] = {}
        self._host = Table(HOST_SERIES)
        self._cores = Table((), JOB_READINGS_KEPT, LONG_TIERS)
        self._processes: dict[tuple[ProcessKey, GpuKey | None], Table] = {}
        self._main_threads: dict[ProcessKey, Table] = {}
        self._jobs: dict[ProcessKey, Table] = {}
        self._busy: dict[GpuKey, SampledSeries] = {}
        self._fine: dict[tuple[ProcessKey, str], PolledThenSampled] = {}
        """Fine series of jobs, by name."""
        self._read: dict[ProcessKey, tuple[Job, tuple[float | None, ...]]] = {}
        """Last values of each job, with the object they were read from: most jobs are the same
        object for several snapshots."""
        self._reporting: set[ProcessKey] = set()
        self._at = -math.inf
        self._interval_seconds = 0.0
        self._next_sweep = -math.inf
        self._tables_made = 0

    @property
    def latest_at(self) -> float | None:
        """Monotonic time of the last snapshot pushed: the ``end`` of a live chart."""
        return None if self._at == -math.inf else self._at

    @property
    def earliest_at(self) -> float | None:
        """Earliest moment of which something is kept."""
        return self._host.earliest_at

    def gpu(self, uuid: GpuKey, name: str) -> Series | None:
        """Return a GPU's series; ``busy_percent`` is fed by the driver's fine samples where it has
        any."""
        if name == "busy_percent":
            return self._busy.get(uuid)
        return _named(self._gpus.get(uuid), name, GPU_SERIES)

    def host(self, name: str) -> Series | None:
        return _named(self._host, name, HOST_SERIES)

    def host_core(self, core: int) -> Series | None:
        """Return one core's busy percent."""
        return self._cores.series(core)

    def process(self, key: ProcessKey, gpu_uuid: GpuKey | None, name: str) -> Series | None:
        return _named(self._processes.get((key, gpu_uuid)), name, PROCESS_SERIES)

    def main_thread(self, key: ProcessKey) -> Series | None:
        """Return the main thread's CPU percent of a rank of a job."""
        return _named(self._main_threads.get(key), *_MAIN_THREAD, _MAIN_THREAD)

    def job(self, key: ProcessKey, name: str) -> Series | PolledThenSampled | None:
        """Return a job's series, by ``Job.key``."""
        return self._fine.get((key, name)) or _named(self._jobs.get(key), name, JOB_SERIES)

    def job_reported(self, key: ProcessKey) -> bool:
        """Whether the job has reported its own loop since it was seen first."""
        return key in self._reporting

    def push(self, snapshot: Snapshot) -> None:
        """Add a snapshot's readings. One no later than the last, as after a failed read, is
        ignored."""
        at = snapshot.monotonic_seconds
        if at <= self._at:
            return
        spacing = spacing_of(snapshot, self._interval_seconds)
        self._interval_seconds = snapshot.interval_seconds
        # The driver stamps samples with wall time.
        offset = snapshot.taken_at_unix_seconds - at
        for gpu in without_late(snapshot.gpus):
            uuid, reading = gpu.identity.uuid, gpu.reading
            _add(self._gpu_table(uuid), at, spacing, _gpu_values(reading))
            samples, percent = reading.busy_samples, reading.busy_percent
            if samples is not None or percent is not None or uuid in self._busy:
                self._busy_series(uuid).add_latest(samples, percent, at, offset, spacing)
        _add(self._host, at, spacing, _host_values(snapshot.host))
        cores = snapshot.host.core_percents
        if cores is not None:
            if len(cores) > len(self._cores.names):
                self._cores.name(range(len(cores)))
            # A core taken offline leaves fewer than there were.
            offline = len(self._cores.names) - len(cores)
            _add(self._cores, at, spacing, (*cores, *[None] * offline))
        shown = set()
        for process in snapshot.processes:
            key = process.key
            shown.add(key)
            self._add_process((key, process.gpu_uuid), at, spacing, _process_values(process))
        self._add_jobs(snapshot, shown, offset, spacing)
        self._at = at
        if at >= self._next_sweep:
            self._next_sweep = at + PROCESS_FORGOTTEN_SECONDS / 6
            self._forget(at - max(PROCESS_FORGOTTEN_SECONDS, spacing.longest))

    def take_block(
        self, begin: float, gpus: Mapping[GpuKey, Mapping[str, Band]], host: Mapping[str, Band]
    ) -> None:
        """Take readings known only as (minimum, mean, maximum) of the ``BLOCK_SECONDS`` from
        ``begin`` (a multiple of them): a recording's time before the first snapshot that is pushed.
        To be called in the order of time, and before any snapshot."""
        block = round(begin / BLOCK_SECONDS)
        for uuid, bands in gpus.items():
            if "busy_percent" in bands:
                self._busy_series(uuid).table.take_block(block, {None: bands["busy_percent"]})
            self._gpu_table(uuid).take_block(block, _charted(bands, GPU_SERIES))
        self._host.take_block(block, _charted(host, HOST_SERIES))

    def _busy_series(self, uuid: GpuKey) -> SampledSeries:
        series = self._busy.get(uuid)
        if series is None:
            # Where there are fine samples it keeps more.
            series = self._busy[uuid] = SampledSeries(READINGS_KEPT)
        return series

    def _add_process(
        self,
        key: tuple[ProcessKey, GpuKey | None],
        at: float,
        spacing: Spacing,
        values: Values,
    ) -> None:
        tables = self._processes
        table = tables.get(key)
        if table is None and (key[1] is not None or len(tables) < PROCESSES_KEPT):
            table = self._begin(tables, key, PROCESS_SERIES, PROCESS_READINGS_KEPT, SPARK_TIERS)
        if table is not None and table.latest_at < at:
            _add(table, at, spacing, values)

    def _add_jobs(
        self, snapshot: Snapshot, shown: set[ProcessKey], offset: float, spacing: Spacing
    ) -> None:
        at = snapshot.monotonic_seconds
        for job in snapshot.jobs:
            key = job.key
            table = self._jobs.get(key)
            if table is None and len(self._jobs) < JOBS_KEPT:
                table = self._begin(self._jobs, key, JOB_SERIES, JOB_READINGS_KEPT, LONG_TIERS)
            if table is None or table.latest_at == at:
                continue
            before, values = self._read.get(key, (None, ()))
            if job is not before:
                values = _job_values(job)
                self._read[key] = job, values
            _add(table, at, spacing, values)
            if job.loops:
                self._reporting.add(key)
            for name, field in FINE_JOB_SERIES.items():
                samples = getattr(job, field)
                if samples is None and not self._fine:
                    continue
                both = self._fine.get((key, name))
                if both is None and samples is not None:
                    both = self._fine[key, name] = PolledThenSampled(
                        table, name, max(0.0, self._at)
                    )
                if both is not None:
                    both.fine.add_latest(samples, getattr(job, name), at, offset, spacing)
            for member in job.members:
                child = member.key
                if member.role == "rank":
                    self._add_main_thread(child, at, spacing, member.main_thread_cpu_percent)
                if child not in shown:
                    self._add_process((child, None), at, spacing, (None, member.cpu_percent))

    def _add_main_thread(
        self, key: ProcessKey, at: float, spacing: Spacing, percent: float | None
    ) -> None:
        table = self._main_threads.get(key)
        if table is None:
            kept = PROCESS_READINGS_KEPT
            table = self._begin(self._main_threads, key, _MAIN_THREAD, kept, SPARK_TIERS)
        _add(table, at, spacing, (percent,))

    def _begin(
        self,
        tables: dict[K, Table],
        key: K,
        names: tuple[str, ...],
        kept: int,
        tiers: Tiers = TIERS,
    ) -> Table:
        # A few readings more for each than for the last, so that they do not all fold at once.
        self._tables_made += 1
        tables[key] = Table(names, kept + self._tables_made % 32, tiers)
        return tables[key]

    def _gpu_table(self, uuid: GpuKey) -> Table:
        table = self._gpus.get(uuid)
        if table is None:
            # One with nothing but blocks of a recording has no rows, and is false.
            return self._begin(self._gpus, uuid, GPU_SERIES, READINGS_KEPT)
        return table

    def _forget(self, before: float) -> None:
        for key in [key for key, table in self._processes.items() if table.latest_at < before]:
            del self._processes[key]
        for rank in [k for k, table in self._main_threads.items() if table.latest_at < before]:
            del self._main_threads[rank]
        for job in [key for key, table in self._jobs.items() if table.latest_at < before]:
            del self._jobs[job]
            self._read.pop(job, None)
            self._reporting.discard(job)
            for name in FINE_JOB_SERIES:
                self._fine.pop((job, name), None)


def _named(table: Table | None, name: str, names: tuple[str, ...]) -> Series | None:
    if name not in names:
        raise KeyError(name)
    return None if table is None else table.series(name)


def _add(table: Table, at: float, spacing: Spacing, values: Values) -> None:
    table.add_row(at, spacing.covered(at - table.latest_at), values)


def _charted(bands: Mapping[str, Band], names: tuple[str, ...]) -> dict[Hashable, Band]:
    return {name: band for name, band in bands.items() if name in names}


def _job_values(job: Job) -> tuple[float | None, ...]:
    waits = [(loop.data_wait_share, loop) for loop in job.loops if loop.data_wait_share is not None]
    if not waits:
        return (*_job_readings(job), None, None, None)
    least, (most, slow) = min(waits, key=_first)[0], max(waits, key=_first)
    return (*_job_readings(job), least, most, slow.compute_share)


def without_late(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return ``gpus`` without late readings of what moves by the second: charts have a gap
    there."""
    if not any(gpu.reading.late_readings for gpu in gpus):
        return gpus
    return tuple([_without_late(gpu) if gpu.reading.late_readings else gpu for gpu in gpus])


def _without_late(gpu: Gpu) -> Gpu:
    late: dict[str, Any] = {name: None for name, _ in gpu.reading.late_readings if name in _MOVING}
    return replace(gpu, reading=replace(gpu.reading, **late))
