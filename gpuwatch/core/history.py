"""Readings seen before: bounded, in tiers, ready to be drawn.

The newest thousand or so readings of a series are kept as they came. What is older is folded
into buckets of 1 s, 5 s and 30 s, each with its minimum, mean and maximum, so that an
oscillation of the last hours is still one and never a mean. A reading that was missing is a gap
and stays one in every tier. Times are the source's monotonic seconds.

From the bottom up: columns of a chart, rows of numbers, the tiers of old readings, the axis of
readings that are taken together, one series, and at the end the ``History`` of a machine.
"""

from __future__ import annotations

import math
import mmap
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from operator import attrgetter, mul
from struct import Struct, unpack
from typing import Any, Literal, NamedTuple, TypeVar

from gpuwatch.core.model import BusySample, Gpu, GpuKey, Job, ProcessKey, Snapshot

# --- columns of a chart -----------------------------------------------------------------------

NAN = math.nan

# Times are sums of floats: a reading meant for 0.3 s must not fall into the next bucket.
TOLERANCE = 1e-6

Band = tuple[float, float, float]
"""Minimum, mean, maximum."""
Part = tuple[float, float, float, float]
"""Minimum, mean, maximum, and for how many seconds they hold."""


class Column(NamedTuple):
    """Lowest, mean and highest reading in one column of a chart."""

    minimum: float
    mean: float
    maximum: float


def bucket_index(at: float, column_seconds: float) -> int:
    """The number of the bucket that holds the moment ``at``.

    Bucket ``k`` is the time after ``k * column_seconds`` up to and including
    ``(k + 1) * column_seconds``, so a reading taken on a boundary belongs to the time it covers.
    """
    return math.ceil(at / column_seconds - TOLERANCE) - 1


_SPARE_COLUMNS = 32
"""Columns no longer shown by any chart that are kept until they are forgotten together."""

# A column is made for every bucket that is folded: without the call of its constructor.
_make = tuple.__new__


def column_of(values: Sequence[float], seconds: Sequence[float]) -> Column | None:
    """Return the column of readings, each weighted with the time it speaks for."""
    if len(values) < 2:
        value = values[0] if values else NAN
        return _make(Column, (value, value, value)) if math.isfinite(value) else None
    total = sum(seconds)
    mean = sum(map(mul, values, seconds)) / total if total > 0 else sum(values) / len(values)
    if math.isfinite(mean):
        return _make(Column, (min(values), mean, max(values)))
    read = [pair for pair in zip(values, seconds, strict=True) if math.isfinite(pair[0])]
    return column_of([value for value, _ in read], [seconds for _, seconds in read])


class Growing:
    """The newest column of a chart, with running sums: another reading costs the same however long
    the column is."""

    __slots__ = ("bucket", "count", "high", "low", "plain", "seconds", "upto", "weighted")

    def __init__(self, bucket: int, upto: int) -> None:
        self.bucket = bucket
        self.upto = upto
        """Number, among all readings ever taken, of the first that is not in it yet."""
        self.low = math.inf
        self.high = -math.inf
        self.weighted = self.seconds = self.plain = 0.0
        self.count = 0

    def add_part(self, low: float, mean: float, high: float, seconds: float) -> None:
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.weighted += mean * seconds
        self.seconds += seconds
        self.plain += mean
        self.count += 1

    def column(self) -> Column | None:
        if self.count == 0:
            return None
        mean = self.weighted / self.seconds if self.seconds > 0 else self.plain / self.count
        return Column(self.low, mean, self.high)


class View:
    """Columns of one width that were made before, from the bucket ``first`` on."""

    __slots__ = ("columns", "first", "growing", "seen", "widest")

    def __init__(self, first: int) -> None:
        self.first = first
        self.columns: list[Column | None] = []
        self.seen = -math.inf
        """Time of the newest reading that the columns include."""
        self.growing: Growing | None = None
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

    def spoil(self, changed_from: float) -> None:
        """Mark columns from this time on as out of date: a reading came late."""
        self.seen = min(self.seen, changed_from)
        self.growing = None


# --- rows of numbers in memory of their own ---------------------------------------------------

Code = Literal["e", "f", "d"]
_MOST = {"e": 65504.0, "f": 3.4e38, "d": math.inf}
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_NOTHING = memoryview(bytearray())


@lru_cache(maxsize=64)
def _row_of(code: Code, width: int) -> Struct:
    return Struct(f"{width}{code}")


class Rows:
    """Rows of ``width`` numbers of one type ("e", "f", "d": half, single, double precision), oldest
    first. What is too large for it is infinite, or no number.

    An array that grows moves again and again and leaves holes among all else that a program holds,
    after hours some MiB. A mapping stays where it is: of its room for so many rows only the
    pages that were written are there, and in the end it is given back as a whole.
    """

    __slots__ = ("_capacity", "_cells", "_code", "_room", "_row", "count", "width")

    def __init__(self, code: Code, width: int, room: int) -> None:
        self._code = code
        self._room = room
        self.count = 0
        """Number of rows: an attribute, since ``len`` is one call more for each reading of each
        second."""
        self._make_room(width, 0)

    def _make_room(self, width: int, rows: int) -> None:
        self.width = width
        self._capacity = rows
        self._row = _row_of(self._code, width)
        size = rows * self._row.size
        self._cells: memoryview[Any] = _NOTHING
        if size:
            # Pages can have 64 KiB, which a small room would leave empty.
            small = size < mmap.PAGESIZE
            room = bytearray(size) if small else mmap.mmap(-1, size, flags=_PRIVATE)
            # Views know no half precision: moved about, two bytes are two bytes.
            self._cells = memoryview(room).cast("H" if self._code == "e" else self._code)

    def __len__(self) -> int:
        return self.count

    def column(self, number: int, start: int = 0, stop: int | None = None) -> memoryview[float]:
        """Return one column of the rows from ``start`` to before ``stop``, writable; not for half
        precision."""
        stop = self.count if stop is None else min(stop, self.count)
        return self._cells[start * self.width + number : stop * self.width : self.width]

    def numbers(self, number: int, start: int, stop: int) -> Sequence[float]:
        """Return one column of the rows from ``start`` to before ``stop``, in any precision,
        read-only."""
        column = self.column(number, start, stop)
        return unpack(f"{len(column)}{self._code}", column.tobytes())

    def append(self, row: Sequence[float]) -> None:
        if self.count == self._capacity:
            self._grow(1)
        try:
            self._row.pack_into(self._cells, self.count * self._row.size, *row)
        except OverflowError:
            # So says Python 3.15 of single precision; earlier ones make it infinite.
            most = _MOST[self._code]
            limited = [number if abs(number) < most else math.nan for number in row]
            self._row.pack_into(self._cells, self.count * self._row.size, *limited)
        self.count += 1

    def insert(self, place: int, row: Sequence[float]) -> None:
        """Take one row that comes before the present number ``place``."""
        self.append(row)
        start, end = place * self.width, self.count * self.width
        new = self._cells[end - self.width : end].tolist()
        self._cells[start + self.width : end] = self._cells[start : end - self.width]
        self._row.pack_into(self._cells, start // self.width * self._row.size, *new)

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
        kept, row, count = self._cells, self._row, self.count
        self._make_room(self.width + more, self._capacity)
        self.count = 0
        for place in range(count):
            self.append([*row.unpack_from(kept, place * row.size), *[filling] * more])


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


def unit_of(name: object) -> float:
    """Return the unit in which a tier stores the series: a power of two, which costs no
    precision."""
    return next((unit for word, unit in _UNITS.items() if word in str(name)), 1.0)


class Tier:
    """Contiguous buckets of one width: minimum, mean and maximum of each series. ``first`` is the
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
        return len(self._rows)

    def widen(self, names: Sequence[object]) -> None:
        """Begin to hold these series as well."""
        self._units += map(unit_of, names)
        self._rows.widen(3 * len(names), NAN)

    def extend(self, bucket: int, columns: Sequence[Sequence[Band | None]]) -> None:
        """Append the buckets of each series from number ``bucket`` on, with gaps since the last
        one."""
        missing = bucket - self.first - len(self)
        if not self or missing * self.width > self.reach:
            self._drop(len(self))
            self.first = bucket
            missing = 0
        for _ in range(missing):
            self._rows.append([NAN] * self._rows.width)
        for bands in zip(*columns, strict=True):
            row: list[float] = []
            for band, unit in zip(bands, self._units, strict=True):
                row += _GAP if band is None else [number / unit for number in band]
            self._rows.append(row)

    def forget_before(self, at: float) -> None:
        self._drop(max(0, int(at / self.width) - self.first))

    def _drop(self, count: int) -> None:
        self._rows.drop(count)
        self.first += count

    def parts(self, series: int, start: float, end: float) -> list[Part]:
        """Return the buckets with a reading in (start, end], each with the seconds that lie in
        it."""
        width = self.width
        low = max(0, math.floor(start / width + TOLERANCE) - self.first)
        high = max(0, math.ceil(end / width - TOLERANCE) - self.first)
        unit = self._units[series]
        minima, means, maxima = [
            [unit * one for one in self._rows.numbers(3 * series + number, low, high)]
            for number in range(3)
        ]
        seconds = [width] * len(minima)
        if seconds:
            seconds[0] -= max(0.0, start - (self.first + low) * width)
            seconds[-1] -= max(0.0, (self.first + low + len(seconds)) * width - end)
        parts = zip(minima, means, maxima, seconds, strict=True)
        return [part for part in parts if math.isfinite(part[1])]


# --- the axis of readings that are taken together ---------------------------------------------

READINGS_KEPT = 1024
_ROOM = 128
"""Room for readings beyond those kept, since whole blocks are folded."""


class Axis:
    """Times of series that are read together: another reading costs an append for each.

    Reading ``i`` was taken at ``at[i]``, which ascends, and speaks for the ``seconds[i]`` up to
    then: 0 where it speaks for its own moment only. No time is spoken for twice. A series is
    there from its first reading on, by its name.
    """

    def __init__(
        self,
        names: Sequence[Hashable],
        kept: int = READINGS_KEPT,
        tiers: Tiers = TIERS,
    ) -> None:
        self.kept = kept
        self._block = max(BLOCK_SECONDS, tiers[-1][0])
        self.tiers = [Tier(width, reach) for width, reach in tiers]
        self.latest_at = -math.inf
        self.folded_until = -math.inf
        self.dropped = 0
        """Number of readings folded so far."""
        self.numbers: dict[Hashable, int] = {}
        """Place in each row of every series: a name is one from its first reading on."""
        self.name(names)
        self.times = Rows("d", 2, kept + _ROOM)
        """Time of each reading, and the seconds that it speaks for."""
        self.readings = Rows("f", 0, kept + _ROOM)

    def start(self, names: Sequence[Hashable]) -> None:
        """Begin to keep these series, from now on."""
        new = [name for name in names if name not in self.numbers]
        if new:
            for name in new:
                self.numbers[name] = len(self.numbers)
            self.readings.widen(len(new), NAN)
            for tier in self.tiers:
                tier.widen(new)
            self.name(self.names)

    def name(self, names: Sequence[Hashable]) -> None:
        """Set the names of the readings that come from now on: those before, and more after
        them."""
        self.names = names
        self._places = [names.index(name) for name in self.numbers]
        self._absent = [each for each in enumerate(names) if each[1] not in self.numbers]

    @property
    def at(self) -> memoryview[float]:
        return self.times.column(0)

    @property
    def seconds(self) -> memoryview[float]:
        return self.times.column(1)

    def before(self, at: float) -> tuple[int, float]:
        """Return the number of readings taken up to ``at``, and the time of the last of them."""
        if at >= self.latest_at:
            return self.times.count, self.latest_at
        place = bisect_right(self.at, at)
        return place, self.at[place - 1] if place else -math.inf

    def push_readings(self, at: float, longest: float, values: Sequence[float | None]) -> None:
        """Take one reading of every series; ``longest`` is the longest time it may speak for."""
        since_last = at - self.latest_at
        self.times.append((at, since_last if since_last <= longest else 0.0))
        self.latest_at = at
        if self._absent and (new := [n for place, n in self._absent if values[place] is not None]):
            self.start(new)
        self.readings.append([NAN if (v := values[place]) is None else v for place in self._places])
        if self.times.count > self.kept:
            self.fold()

    def insert(self, place: int, at: float, seconds: float, value: float) -> None:
        """Take one reading of a series that is read alone."""
        if place == self.times.count:
            self.times.append((at, seconds))
            self.readings.append((value,))
            self.latest_at = at
        else:
            self.times.insert(place, (at, seconds))
            self.readings.insert(place, (value,))

    @property
    def earliest_at(self) -> float | None:
        """Earliest moment of which something is kept."""
        begins = [tier.first * tier.width for tier in self.tiers if tier]
        return min([*begins, *self.at[:1]], default=None)

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

    def fold(self) -> None:
        """Move the oldest whole blocks into the tiers until few enough readings are left."""
        while len(self.times) > self.kept:
            at = self.at
            latest, block = at[-1], bucket_index(at[0], self._block)
            end = (block + 1) * self._block
            # Late readings may still come into a block that has only just ended.
            if end + BLOCK_SECONDS > latest:
                return
            for tier in self.tiers:
                per_block = round(self._block / tier.width)
                first = block * per_block
                buckets = self.buckets(first, first + per_block - 1, tier.width)
                series = range(len(self.numbers))
                tier.extend(first, [self.summarise(number, buckets) for number in series])
                tier.forget_before(latest - tier.reach)
            surplus = bisect_right(at, end + BLOCK_SECONDS * TOLERANCE)
            self.times.drop(surplus)
            self.readings.drop(surplus)
            self.dropped += surplus
            self.folded_until = end

    def summarise(self, number: int, buckets: Sequence[tuple[int, int]]) -> list[Column | None]:
        """Return one series' column for each (start, stop) of the readings kept as they came."""
        if not buckets:
            return []
        first, last = buckets[0][0], buckets[-1][1]
        values = self.readings.column(number, first, last).tolist()
        seconds = self.times.column(1, first, last).tolist()
        # Where columns are narrow, several in a row hold the same reading.
        made = {
            (start, stop): column_of(
                values[start - first : stop - first], seconds[start - first : stop - first]
            )
            for start, stop in dict.fromkeys(buckets)
        }
        return [made[one] for one in buckets]

    def take_block(self, block: int, bands: dict[Hashable, Band]) -> None:
        """Take the bands of a whole block before the first reading, by the series' names."""
        end = (block + 1) * BLOCK_SECONDS
        if (self.times and end > self.at[0]) or end <= self.folded_until:
            return
        self.start([*bands])
        self.tiers[-1].extend(block, [[bands.get(name)] for name in self.numbers])
        self.folded_until = end


# --- one series -------------------------------------------------------------------------------

SAMPLES_KEPT = 4096

LONGEST_SAMPLE_SECONDS = 1.5
"""Longest time that a fine sample speaks for: NVML's sample period is at most 1 s."""

_LONG_COLUMN_SECONDS = 5.0
"""Width from which the newest column is added to, not made anew."""

_PARTS_LEAST = 12
"""Least number of a tier's buckets that make a column, if there are any as fine."""

_ALONE = (None,)
"""Name of a series that is not read together with others."""
_VIEWS_KEPT = 3
"""Widths remembered: the overview's, a detail's, a mark's. Old widths are not asked for again."""


class Series:
    """One reading over time. Made by itself it is fed by ``push_reading`` and ``push_samples`` and
    keeps about ``readings_kept`` as they came; those of an ``axis`` are fed by that alone. Columns
    that were drawn are remembered: the next frame computes only what is new."""

    __slots__ = ("_axis", "_views", "number")

    def __init__(
        self, readings_kept: int = SAMPLES_KEPT, *, axis: Axis | None = None, number: int = 0
    ) -> None:
        if axis is None:
            axis = Axis(_ALONE, readings_kept)
            axis.start(_ALONE)
        self._axis = axis
        self.number = number
        """Place of this series in the rows of its axis."""
        self._views: dict[float, View] = {}

    # -- what goes in ----------------------------------------------------------------------

    def push_reading(self, at: float, value: float | None, since: float | None = None) -> None:
        """Take one reading made at ``at`` that speaks for the time after ``since``.

        Without ``since`` it speaks for its own moment. ``None`` (and NaN, and infinity) is a
        gap. A reading older than the last may come late; one older than all that is kept as it
        came (a thousand readings or more) is dropped.
        """
        axis = self._axis
        if value is None or not math.isfinite(value):
            value = NAN
        if at <= axis.folded_until:
            return
        place, before = axis.before(at)
        since = max(at if since is None else min(since, at), before)
        if place < axis.times.count:
            # The reading after it speaks only for what is left.
            times, seconds = axis.at, axis.seconds
            next_since = times[place] - seconds[place]
            seconds[place] = times[place] - max(next_since, at)
            for view in self._views.values():
                view.spoil(min(since, next_since))
        axis.insert(place, at, at - since, value)
        if axis.times.count > axis.kept:
            axis.fold()

    def push_samples(self, samples: Iterable[tuple[float, float]]) -> None:
        """Take (time, value) samples that each speak for the time since the one before. Samples
        more than a second apart have a gap between them."""
        for at, value in samples:
            _, before = self._axis.before(at)
            self.push_reading(at, value, before if at - before <= LONGEST_SAMPLE_SECONDS else None)

    def push_latest(
        self,
        samples: Iterable[BusySample] | None,
        value: float | None,
        at: float,
        offset: float,
        longest: float,
    ) -> None:
        """Take the readings of a snapshot at ``at``: fine samples, else the one polled
        ``value``.

        ``offset`` takes the samples' wall time to this axis; ``longest`` is the longest time a
        polled value may speak for.
        """
        axis = self._axis
        if samples is not None:
            axis.kept = SAMPLES_KEPT
            self.push_samples([(sample[0] + offset, sample[1]) for sample in samples])
            return
        self.push_reading(at, value, axis.latest_at if at - axis.latest_at <= longest else None)

    def take_block(self, block: int, band: Band) -> None:
        """Take the band of a whole block before the first reading."""
        self._axis.take_block(block, {None: band})

    # -- what comes out --------------------------------------------------------------------

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        """Return the last ``count`` columns up to the one that holds ``end``, oldest first.

        The boundaries are multiples of ``column_seconds`` (see ``bucket_index``), so a column
        keeps its content while time passes; ``None`` is a gap. A column that has ended changes
        only if a reading comes late. The finest tier that reaches back to a column and divides
        its width is used for it; where none divides it, a bucket that straddles two columns
        counts in both, in each mean for the time that lies in it.
        """
        if count <= 0:
            return []
        last = bucket_index(end, column_seconds)
        first = last - count + 1
        view = self._views.get(column_seconds)
        if view is None or not view.reaches(first):
            if view is None and len(self._views) >= _VIEWS_KEPT:
                del self._views[next(iter(self._views))]
            view = self._views[column_seconds] = View(first)
        view.begin(first, count)
        start = view.outdated_from(column_seconds, fed=len(self._axis.times) > 0)
        if start <= last:
            view.columns[start - view.first :] = self._compute(start, last, column_seconds, view)
            view.seen = self._axis.latest_at
        return view.columns[first - view.first : last + 1 - view.first]

    def _compute(self, first: int, last: int, width: float, view: View) -> list[Column | None]:
        newest = last + 1
        if len(self._axis.times) > 0 and width >= _LONG_COLUMN_SECONDS:
            newest = bucket_index(self._axis.latest_at, width)
        if not first <= newest <= last:
            return self._closed(first, last, width)
        grown = self._grown(newest, width, view)
        return [*self._closed(first, newest - 1, width), grown, *[None] * (last - newest)]

    def _grown(self, bucket: int, width: float, view: View) -> Column | None:
        """Return the column of the newest reading: its content before, and the readings since."""
        axis = self._axis
        grown = view.growing
        if grown is None or grown.bucket != bucket or grown.upto < axis.dropped:
            start, folded = bucket * width, axis.folded_until
            first = bisect_right(axis.at, start + width * TOLERANCE)
            grown = view.growing = Growing(bucket, axis.dropped + first)
            if start < folded - width * TOLERANCE:
                for part in self._folded(start, folded, width):
                    grown.add_part(*part)
        new = grown.upto - axis.dropped
        values = axis.readings.column(self.number, new)
        for value, seconds in zip(values, axis.times.column(1, new), strict=True):
            if math.isfinite(value):
                grown.add_part(value, value, value, seconds)
        grown.upto = axis.dropped + len(axis.times)
        return grown.column()

    def _closed(self, first: int, last: int, width: float) -> list[Column | None]:
        columns: list[Column | None] = []
        folded = self._axis.folded_until - width * TOLERANCE
        while first <= last and first * width < folded:
            columns.append(self._from_tiers(first, width))
            first += 1
        buckets = self._axis.buckets(first, last, width)
        return columns + self._axis.summarise(self.number, buckets)

    def _from_tiers(self, bucket: int, width: float) -> Column | None:
        """Return a column that lies in the tiers, at least in part."""
        start, end = bucket * width, (bucket + 1) * width
        axis, folded = self._axis, self._axis.folded_until
        held = Growing(bucket, 0)
        for part in self._folded(start, min(end, folded), width):
            held.add_part(*part)
        low, high = bisect_right(axis.at, folded), bisect_right(axis.at, end)
        (rest,) = axis.summarise(self.number, [(low, high)])
        if rest is not None:
            held.add_part(*rest, min(end, axis.at[high - 1]) - folded)
        return held.column()

    def _folded(self, start: float, end: float, width: float) -> list[Part]:
        """Return the parts of a column of this width from ``start`` that lie in the tiers."""
        filled = [tier for tier in self._axis.tiers if tier]
        if not filled:
            return []
        reaching = [tier for tier in filled if tier.first * tier.width <= start]
        # The coarsest that is still fine beside the column: what a column costs to put together
        # must not grow with its width.
        reaching = [t for t in reaching if t.width * _PARTS_LEAST <= width][::-1] or reaching
        # Where none divides the width, or none reaches: the finest that reaches, or the longest.
        fallback = reaching[0] if reaching else filled[-1]
        tier = next((one for one in reaching if _divides(one.width, width)), fallback)
        return tier.parts(self.number, start, end)


class Group(Axis):
    """Series that are read together, by name; each is there from its first reading on."""

    @cached_property
    def _series(self) -> dict[Hashable, Series]:
        return {}

    def one(self, name: Hashable) -> Series | None:
        number = self.numbers.get(name)
        if number is None:
            return None
        return self._series.setdefault(name, Series(axis=self, number=number))


class PolledThenSampled:
    """A series that is polled up to ``since`` and has ``fine`` samples after it."""

    def __init__(self, polled: Group, name: Hashable, since: float) -> None:
        self.fine = Series()
        self._polled, self._name, self._since = polled, name, since

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        """Return columns as ``Series.columns`` does."""
        columns = self.fine.columns(end, column_seconds, count)
        polled = self._polled.one(self._name)
        first = bucket_index(end, column_seconds) - count + 1
        before = min(count, int(self._since / column_seconds) - first)
        if polled is not None and before > 0:
            columns[:before] = polled.columns(end, column_seconds, count)[:before]
        return columns


def _divides(part: float, width: float) -> bool:
    return abs(width / part - round(width / part)) < TOLERANCE <= width


# --- the series of a machine ------------------------------------------------------------------

GPU_SERIES = (
    "memory_controller_percent", "memory_used_bytes", "power_watts", "power_limit_watts",
    "temperature_celsius", "memory_temperature_celsius", "fan_percent", "sm_clock_mhz",
    "memory_clock_mhz", "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second", "encoder_percent",
    "decoder_percent", "nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second",
    "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_active_percent",
)  # fmt: skip
"""Readings of a GPU that have a series, beside ``busy_percent``, which has its own axis."""
_MOVING = {*GPU_SERIES, "busy_percent", "throttle_reasons", "pcie_generation", "pcie_width"}
_MOVING -= {"memory_used_bytes", "power_limit_watts", "temperature_celsius"}

HOST_SERIES = (
    "cpu_percent", "cpu_iowait_percent", "load_average_1_minute", "load_average_5_minutes",
    "load_average_15_minutes", "memory_used_bytes", "swap_used_bytes", "pressure_cpu_some_percent",
    "pressure_io_some_percent", "pressure_io_full_percent", "pressure_memory_some_percent",
    "pressure_memory_full_percent", "disk_read_bytes_per_second", "disk_write_bytes_per_second",
    "network_receive_bytes_per_second", "network_transmit_bytes_per_second", "shm_used_bytes",
)  # fmt: skip

PROCESS_SERIES = ("gpu_busy_percent", "cpu_percent")

FINE_JOB_SERIES = {
    "main_thread_cpu_percent": "main_thread_samples",
    "loader_worker_cpu_percent": "loader_worker_samples",
}
"""Series of a job with the field of its fine samples, which have axes of their own."""
_JOB_READINGS = (
    "read_bytes_per_second", "write_bytes_per_second", "data_wait_share", "samples_per_second",
    *FINE_JOB_SERIES,
)  # fmt: skip
JOB_SERIES = (*_JOB_READINGS, "data_wait_least_share", "data_wait_most_share")
"""Series of a job; ``least`` and ``most`` are those of its ranks."""

GAP_INTERVALS = 2.5
"""Intervals between two polls up to which the later one speaks for the time between them."""

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


class History:
    """Series of everything in the snapshots pushed so far.

    A series exists from its first reading on. Names are the field names of ``GpuReading``,
    ``Host``, ``Process`` and ``Job``; an unknown name is a ``KeyError``.
    """

    def __init__(self) -> None:
        self._gpus: dict[GpuKey, Group] = {}
        self._host = Group(HOST_SERIES)
        self._cores = Group((), JOB_READINGS_KEPT, LONG_TIERS)
        self._processes: dict[tuple[ProcessKey, GpuKey | None], Group] = {}
        self._jobs: dict[ProcessKey, Group] = {}
        self._busy: dict[GpuKey, Series] = {}
        self._fine: dict[tuple[ProcessKey, str], PolledThenSampled] = {}
        """Fine series of jobs, by name."""
        self._read: dict[ProcessKey, tuple[Job, tuple[float | None, ...]]] = {}
        """Last values of each job, with the object they were read from: most jobs are the same
        object for several snapshots."""
        self._reporting: set[ProcessKey] = set()
        self._at = -math.inf
        self._interval_seconds = 0.0
        self._next_sweep = -math.inf
        self._axes_made = 0

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
        return self._cores.one(core)

    def process(self, key: ProcessKey, gpu_uuid: GpuKey | None, name: str) -> Series | None:
        return _named(self._processes.get((key, gpu_uuid)), name, PROCESS_SERIES)

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
        # After "faster" is pressed the time since the last poll is still the slower interval.
        longest = GAP_INTERVALS * max(snapshot.interval_seconds, self._interval_seconds)
        self._interval_seconds = snapshot.interval_seconds
        # The driver stamps samples with wall time.
        offset = at - snapshot.taken_at_unix_seconds
        for gpu in without_late(snapshot.gpus):
            uuid, reading = gpu.identity.uuid, gpu.reading
            self._gpu_axis(uuid).push_readings(at, longest, _gpu_values(reading))
            samples, percent = reading.busy_samples, reading.busy_percent
            if samples is not None or percent is not None or uuid in self._busy:
                self._busy_series(uuid).push_latest(samples, percent, at, offset, longest)
        self._host.push_readings(at, longest, _host_values(snapshot.host))
        cores = snapshot.host.core_percents
        if cores is not None:
            if len(cores) > len(self._cores.names):
                self._cores.name(range(len(cores)))
            # A core taken offline leaves fewer than there were.
            offline = len(self._cores.names) - len(cores)
            self._cores.push_readings(at, longest, (*cores, *[None] * offline))
        shown = set()
        for process in snapshot.processes:
            key = process.key
            shown.add(key)
            self._push_process((key, process.gpu_uuid), at, longest, _process_values(process))
        self._push_jobs(snapshot, shown, offset, longest)
        self._at = at
        if at >= self._next_sweep:
            self._next_sweep = at + PROCESS_FORGOTTEN_SECONDS / 6
            self._forget(at - max(PROCESS_FORGOTTEN_SECONDS, longest))

    def take_block(
        self, begin: float, gpus: Mapping[GpuKey, Mapping[str, Band]], host: Mapping[str, Band]
    ) -> None:
        """Take readings known only as (minimum, mean, maximum) of the ``BLOCK_SECONDS`` from
        ``begin`` (a multiple of them): a recording's time before the first snapshot that is pushed.
        To be called in the order of time, and before any snapshot."""
        block = round(begin / BLOCK_SECONDS)
        for uuid, bands in gpus.items():
            if "busy_percent" in bands:
                self._busy_series(uuid).take_block(block, bands["busy_percent"])
            self._gpu_axis(uuid).take_block(block, _charted(bands, GPU_SERIES))
        self._host.take_block(block, _charted(host, HOST_SERIES))

    def _busy_series(self, uuid: GpuKey) -> Series:
        series = self._busy.get(uuid)
        if series is None:
            # Where there are fine samples it keeps more.
            series = self._busy[uuid] = Series(READINGS_KEPT)
        return series

    def _push_process(
        self,
        key: tuple[ProcessKey, GpuKey | None],
        at: float,
        longest: float,
        values: tuple[float | None, ...],
    ) -> None:
        axes = self._processes
        axis = axes.get(key)
        if axis is None and (key[1] is not None or len(axes) < PROCESSES_KEPT):
            axis = self._begin(axes, key, PROCESS_SERIES, PROCESS_READINGS_KEPT, SPARK_TIERS)
        if axis is not None and axis.latest_at < at:
            axis.push_readings(at, longest, values)

    def _push_jobs(
        self, snapshot: Snapshot, shown: set[ProcessKey], offset: float, longest: float
    ) -> None:
        at = snapshot.monotonic_seconds
        for job in snapshot.jobs:
            key = job.key
            axis = self._jobs.get(key)
            if axis is None and len(self._jobs) < JOBS_KEPT:
                axis = self._begin(self._jobs, key, JOB_SERIES, JOB_READINGS_KEPT, LONG_TIERS)
            if axis is None or axis.latest_at == at:
                continue
            before, values = self._read.get(key, (None, ()))
            if job is not before:
                values = _job_values(job)
                self._read[key] = job, values
            axis.push_readings(at, longest, values)
            if job.loops:
                self._reporting.add(key)
            for name, field in FINE_JOB_SERIES.items():
                samples = getattr(job, field)
                if samples is None and not self._fine:
                    continue
                both = self._fine.get((key, name))
                if both is None and samples is not None:
                    both = self._fine[key, name] = PolledThenSampled(axis, name, max(0.0, self._at))
                if both is not None:
                    both.fine.push_latest(samples, getattr(job, name), at, offset, longest)
            for member in job.members:
                child = member.key
                if child not in shown:
                    self._push_process((child, None), at, longest, (None, member.cpu_percent))

    def _begin(
        self, axes: dict[K, Group], key: K, names: tuple[str, ...], kept: int, tiers: Tiers = TIERS
    ) -> Group:
        # A few readings more for each than for the last, so that they do not all fold at once.
        self._axes_made += 1
        axes[key] = Group(names, kept + self._axes_made % 32, tiers)
        return axes[key]

    def _gpu_axis(self, uuid: GpuKey) -> Group:
        return self._gpus.get(uuid) or self._begin(self._gpus, uuid, GPU_SERIES, READINGS_KEPT)

    def _forget(self, before: float) -> None:
        for key in [key for key, axis in self._processes.items() if axis.latest_at < before]:
            del self._processes[key]
        for job in [key for key, axis in self._jobs.items() if axis.latest_at < before]:
            del self._jobs[job]
            self._read.pop(job, None)
            self._reporting.discard(job)
            for name in FINE_JOB_SERIES:
                self._fine.pop((job, name), None)


def _named(axis: Group | None, name: str, names: tuple[str, ...]) -> Series | None:
    if name not in names:
        raise KeyError(name)
    return None if axis is None else axis.one(name)


def _charted(bands: Mapping[str, Band], names: tuple[str, ...]) -> dict[Hashable, Band]:
    return {name: band for name, band in bands.items() if name in names}


def _job_values(job: Job) -> tuple[float | None, ...]:
    waits = [loop.data_wait_share for loop in job.loops if loop.data_wait_share is not None]
    least, most = (min(waits), max(waits)) if waits else (None, None)
    return (*_job_readings(job), least, most)


def without_late(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return ``gpus`` without late readings of what moves by the second: charts have a gap
    there."""
    if not any(gpu.reading.late_readings for gpu in gpus):
        return gpus
    return tuple([_without_late(gpu) if gpu.reading.late_readings else gpu for gpu in gpus])


def _without_late(gpu: Gpu) -> Gpu:
    late: dict[str, Any] = {name: None for name, _ in gpu.reading.late_readings if name in _MOVING}
    return replace(gpu, reading=replace(gpu.reading, **late))
