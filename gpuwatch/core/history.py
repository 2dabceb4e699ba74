"""What was seen before: bounded, in tiers, ready to be drawn.

The newest thousand or so readings of a series are kept as they came. What is older is folded
into buckets of 1 s, 5 s and 30 s, each with its minimum, mean and maximum, so that an
oscillation of the last hours is still one and never a mean. A reading that was missing is a gap
and stays one in every tier.

Series that are read together (all readings of one GPU) share one axis of times, so a push costs
an append for each, and the drawn columns are remembered, so that the next frame computes only
what is new. Times are the source's monotonic seconds.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter, mul
from typing import Any, NamedTuple

from gpuwatch.core.model import BusySample, Gpu, GpuKey, Job, ProcessKey, Snapshot

NAN = math.nan

GPU_SERIES = (
    "memory_controller_percent",
    "memory_used_bytes",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
    "memory_temperature_celsius",
    "fan_percent",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "pcie_rx_bytes_per_second",
    "pcie_tx_bytes_per_second",
    "encoder_percent",
    "decoder_percent",
    "nvlink_rx_bytes_per_second",
    "nvlink_tx_bytes_per_second",
    "sm_active_percent",
    "sm_occupancy_percent",
    "tensor_active_percent",
    "dram_active_percent",
)
"""The readings of a GPU that have a series, beside ``busy_percent``, which has its own axis."""
_MOVING = {*GPU_SERIES, "busy_percent", "throttle_reasons", "pcie_generation", "pcie_width"}
_MOVING -= {"memory_used_bytes", "power_limit_watts", "temperature_celsius"}

HOST_SERIES = (
    "cpu_percent",
    "cpu_iowait_percent",
    "load_average_1_minute",
    "load_average_5_minutes",
    "load_average_15_minutes",
    "memory_used_bytes",
    "swap_used_bytes",
    "pressure_cpu_some_percent",
    "pressure_io_some_percent",
    "pressure_io_full_percent",
    "pressure_memory_some_percent",
    "pressure_memory_full_percent",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
    "network_receive_bytes_per_second",
    "network_transmit_bytes_per_second",
    "shm_used_bytes",
)

PROCESS_SERIES = ("gpu_busy_percent", "cpu_percent", "gpu_memory_bytes", "memory_resident_bytes")

JOB_SERIES = (
    "cpu_percent",
    "read_bytes_per_second",
    "write_bytes_per_second",
    "memory_proportional_bytes",
    "data_wait_share",
    "samples_per_second",
    "data_wait_least_share",
    "data_wait_most_share",
    "main_thread_cpu_percent",
    "loader_worker_cpu_percent",
)
"""Of a job; ``least`` and ``most`` are those of its ranks; the last two are fed by its fine samples
where it has any, and have axes of their own."""

BLOCK_SECONDS = 30.0
"""Readings are folded in whole blocks: a multiple of every tier's width."""

TIERS = ((1.0, 15 * 60.0), (5.0, 3600.0), (30.0, 12 * 3600.0))
"""(bucket width, reach) in seconds, finest first."""
LONG_TIERS = TIERS[1:]

LONGEST_SAMPLE_SECONDS = 1.5
"""NVML's sample period is at most 1 s: before a sample that comes much later there is a gap."""

GAP_INTERVALS = 2.5
"""A poll this many intervals after the one before still speaks for the time between them."""

READINGS_KEPT = 1024
SAMPLES_KEPT = 4096
PROCESS_READINGS_KEPT = 600
PROCESSES_KEPT = 512
"""With all processes of a large machine shown, those without a GPU beyond this have no series."""

JOBS_KEPT = 128
PROCESS_FORGOTTEN_SECONDS = 60.0
"""After the last snapshot it was in; jobs alike."""

_LONG_COLUMN_SECONDS = 5.0
"""From here on the newest column is added to, not put together anew."""

_PARTS_LEAST = 12
"""A column is put together from at least so many buckets of a tier, if there are any as fine."""

# Times are sums of floats: a reading meant for 0.3 s must not fall into the next bucket.
_TOLERANCE = 1e-6


Band = tuple[float, float, float]
"""Minimum, mean, maximum."""


class Column(NamedTuple):
    """What one column of a chart shows."""

    minimum: float
    mean: float
    maximum: float


def bucket_index(at: float, column_seconds: float) -> int:
    """The number of the bucket that holds the moment ``at``.

    Bucket ``k`` is the time after ``k * column_seconds`` up to and including
    ``(k + 1) * column_seconds``, so a reading taken on a boundary belongs to the time it covers.
    """
    return math.ceil(at / column_seconds - _TOLERANCE) - 1


class _Tier:
    """Buckets of one width, contiguous; ``first`` is the number of the oldest."""

    __slots__ = ("first", "maxima", "means", "minima", "reach", "width")

    def __init__(self, width: float, reach: float) -> None:
        self.width = width
        self.reach = reach
        self.first = 0
        self.minima = array("f")
        self.means = array("f")
        self.maxima = array("f")

    def clear(self) -> None:
        for values in (self.minima, self.means, self.maxima):
            del values[:]

    def skip_to(self, bucket: int) -> None:
        """Make ``bucket`` the next one, with gaps in between."""
        missing = bucket - self.first - len(self.minima)
        if not self.minima or missing * self.width > self.reach:
            self.clear()
            self.first = bucket
        elif missing > 0:
            gap = array("f", [NAN]) * missing
            for values in (self.minima, self.means, self.maxima):
                values.extend(gap)

    def forget_before(self, at: float) -> None:
        surplus = int(at / self.width) - self.first
        if surplus > 0:
            for values in (self.minima, self.means, self.maxima):
                del values[:surplus]
            self.first += surplus

    def parts(self, start: float, end: float) -> list[tuple[float, float, float, float]]:
        """(minimum, mean, maximum, seconds) of the buckets with a reading in (start, end]; the
        seconds are those that lie in it."""
        width = self.width
        low = math.floor(start / width + _TOLERANCE) - self.first
        high = math.ceil(end / width - _TOLERANCE) - self.first
        picked = slice(max(0, low), max(0, high))
        minima = self.minima[picked]
        seconds = [width] * len(minima)
        if seconds:
            first = self.first + picked.start
            seconds[0] -= max(0.0, start - first * width)
            seconds[-1] -= max(0.0, (first + len(seconds)) * width - end)
        return [
            part
            for part in zip(minima, self.means[picked], self.maxima[picked], seconds, strict=True)
            if part[1] == part[1]  # NaN, the gap, is the one value unlike itself
        ]


class _Open:
    """The newest column of a view, which still grows: what it holds so far, so that a reading more
    costs the same however long the column is."""

    __slots__ = ("bucket", "count", "high", "low", "plain", "seconds", "upto", "weighted")

    def __init__(self, bucket: int, upto: int) -> None:
        self.bucket = bucket
        self.upto = upto
        """The number of the first reading that is not in it, of all that were ever taken."""
        self.low = math.inf
        self.high = -math.inf
        self.weighted = self.seconds = self.plain = 0.0
        self.count = 0

    def add(self, low: float, mean: float, high: float, seconds: float) -> None:
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.weighted += mean * seconds
        self.seconds += seconds
        self.plain += mean
        self.count += 1

    def column(self) -> Column | None:
        if self.count == 0:
            return None
        timed = self.seconds > 0
        mean = self.weighted / self.seconds if timed else self.plain / self.count
        return _make(Column, (self.low, mean, self.high))


class _View:
    """Columns computed before, for one column width."""

    __slots__ = ("columns", "first", "open", "seen", "taken", "widest")

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.columns: list[Column | None] = []
        self.seen = -math.inf
        self.taken = -1
        """How many readings there had ever been when it was brought up to date."""
        self.open: _Open | None = None
        self.widest = count


class _Axis:
    """The times of series that are read together.

    Reading ``i`` was taken at ``at[i]``, which ascends, and speaks for the ``seconds[i]`` up to
    then: 0 where it speaks for its own moment only. No time is spoken for twice.
    """

    __slots__ = ("appends", "at", "dropped", "folded_until", "kept", "seconds", "series", "tiers")

    def __init__(
        self, size: int, kept: int = READINGS_KEPT, tiers: tuple[tuple[float, float], ...] = TIERS
    ) -> None:
        self.at = array("d")
        self.seconds = array("d")
        self.kept = kept
        self.tiers = tiers
        self.folded_until = -math.inf
        self.dropped = 0
        """How many readings have been folded so far."""
        self.series: list[Series | None] = []
        self.appends: list[Callable[[float], None]] = []
        self.grow(size)

    def grow(self, size: int) -> None:
        for place in range(len(self.series), size):
            self.series.append(None)
            self.appends.append(self._opener(place))

    def _opener(self, place: int) -> Callable[[float], None]:
        """Stands where a series' ``append`` will be, and makes it at the first reading."""

        def open_with(value: float) -> None:
            if not math.isnan(value):
                self.start(place).values.append(value)

        return open_with

    def start(self, place: int) -> Series:
        series = Series(axis=self)
        # One less than the axis: the reading at hand has its time there already.
        series.values.extend(array("d", [NAN]) * (len(self.at) - 1))
        self.series[place] = series
        self.appends[place] = series.values.append
        return series

    def push(self, at: float, longest: float, values: Iterable[float | None]) -> None:
        """Take one reading of every series; ``longest`` is the longest time it may speak for."""
        times = self.at
        since_last = at - times[-1] if times else math.inf
        self.seconds.append(since_last if since_last <= longest else 0.0)
        times.append(at)
        for append, value in zip(self.appends, values, strict=False):
            append(NAN if value is None else value)
        if len(times) > self.kept:
            self.fold()

    @property
    def earliest_at(self) -> float | None:
        """The first moment of which something is kept."""
        begins = [
            tier.first * tier.width
            for series in self.series
            if series is not None
            for tier in series.tiers
            if tier.minima
        ]
        if self.at:
            begins.append(self.at[0])
        return min(begins, default=None)

    def buckets(self, first: int, last: int, width: float) -> list[tuple[int, int]]:
        """Which readings belong to the buckets ``first`` to ``last``: (start, stop) of each.

        A bucket holds the readings taken in it; one in which none was taken holds the one that
        speaks for it, and none (``start == stop``) where none does.
        """
        at = self.at
        length = len(at)
        slack = width * _TOLERANCE
        start = bisect_right(at, first * width + slack)
        found = []
        for bucket in range(first, last + 1):
            end = (bucket + 1) * width
            stop = start
            if start < length:
                if at[start] > end + slack:
                    covered = at[start] - self.seconds[start] < end - slack
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
        at = self.at
        while len(at) > self.kept:
            block = bucket_index(at[0], BLOCK_SECONDS)
            end = (block + 1) * BLOCK_SECONDS
            # Late readings may still come into a block that has only just ended.
            if end + BLOCK_SECONDS > at[-1]:
                return
            self._fold_block(block)
            surplus = bisect_right(at, end + BLOCK_SECONDS * _TOLERANCE)
            for values in (at, self.seconds, *(s.values for s in self.series if s is not None)):
                del values[:surplus]
            self.dropped += surplus
            self.folded_until = end

    def take_block(self, block: int, bands: dict[int, Band]) -> None:
        """Take what is known of a whole block before the first reading, by the series' places."""
        end = (block + 1) * BLOCK_SECONDS
        if end > (self.at[0] if self.at else math.inf) or end <= self.folded_until:
            return
        for place, band in bands.items():
            series = self.series[place]
            tier = (self.start(place) if series is None else series).tiers[-1]
            tier.skip_to(block)
            for values, value in zip((tier.minima, tier.means, tier.maxima), band, strict=True):
                values.append(value)
        self.folded_until = end

    def _fold_block(self, block: int) -> None:
        newest = self.at[-1]
        filled = [series for series in self.series if series is not None]
        for tier, (width, reach) in enumerate(self.tiers):
            if (block + 1) * BLOCK_SECONDS < newest - reach:
                # What the tier still holds is older than this.
                for series in filled:
                    series.tiers[tier].clear()
                continue
            per_block = round(BLOCK_SECONDS / width)
            first = block * per_block
            buckets = self.buckets(first, first + per_block - 1, width)
            for series in filled:
                series.fold(tier, first, buckets, newest - reach)


class Series:
    """One reading over time.

    Made by itself it is fed by ``push`` and ``push_samples`` and keeps about ``readings_kept`` as
    they came; those of a ``History`` are fed by the history alone.
    """

    __slots__ = ("_axis", "_views", "tiers", "values")

    def __init__(self, readings_kept: int = SAMPLES_KEPT, *, axis: _Axis | None = None) -> None:
        self.values = array("d")
        if axis is None:
            axis = _Axis(0, readings_kept)
            axis.series.append(self)
        self._axis = axis
        self.tiers = [_Tier(width, reach) for width, reach in axis.tiers]
        self._views: dict[float, _View] = {}

    @property
    def latest(self) -> float | None:
        """The newest reading; ``None`` if there is none or if it is a gap."""
        if not self.values or math.isnan(self.values[-1]):
            return None
        return self.values[-1]

    @property
    def latest_at(self) -> float | None:
        """When the newest reading (or gap) was taken."""
        return self._axis.at[-1] if self._axis.at else None

    def push(self, at: float, value: float | None, since: float | None = None) -> None:
        """Take one reading made at ``at`` that speaks for the time after ``since``.

        Without ``since`` it speaks for its own moment. ``None`` (and NaN, and infinity) is a
        gap. A reading older than the last may come late; one older than all that is kept as it
        came (a thousand readings or more) is dropped.
        """
        axis = self._axis
        if len(axis.series) != 1:
            raise ValueError("this series is one of several fed together by their history")
        if value is None or not math.isfinite(value):
            value = NAN
        if at <= axis.folded_until:
            return
        times = axis.at
        since = at if since is None else min(since, at)
        if not times or at >= times[-1]:
            axis.seconds.append(at - (max(since, times[-1]) if times else since))
            times.append(at)
            self.values.append(value)
            if len(times) > axis.kept:
                axis.fold()
        else:
            self._insert(at, value, since)

    def _insert(self, at: float, value: float, since: float) -> None:
        axis = self._axis
        place = bisect_right(axis.at, at)
        if place:
            since = max(since, axis.at[place - 1])
        next_at = axis.at[place]
        next_since = next_at - axis.seconds[place]
        changed_from = min(since, next_since)
        axis.seconds[place] = next_at - max(next_since, at)
        axis.at.insert(place, at)
        axis.seconds.insert(place, at - since)
        self.values.insert(place, value)
        for view in self._views.values():
            view.seen = min(view.seen, changed_from)
            view.open = None

    def push_samples(self, samples: Iterable[tuple[float, float]]) -> None:
        """Take (time, value) samples that each speak for the time since the one before.

        Samples more than a second apart have a gap between them.
        """
        times = self._axis.at
        for at, value in samples:
            since = None
            place = len(times) if not times or at >= times[-1] else bisect_right(times, at)
            if place and at - times[place - 1] <= LONGEST_SAMPLE_SECONDS:
                since = times[place - 1]
            self.push(at, value, since)

    def take_block(self, block: int, band: Band) -> None:
        """See ``History.take_block``."""
        self._axis.take_block(block, {0: band})

    def take(
        self,
        samples: Iterable[BusySample] | None,
        value: float | None,
        at: float,
        offset: float,
        longest: float,
    ) -> None:
        """Take what a snapshot at ``at`` brought: fine samples, else the one polled ``value``.

        ``offset`` takes the samples' wall time to this axis; ``longest`` is the longest time a
        polled value may speak for.
        """
        if samples is not None:
            self._axis.kept = SAMPLES_KEPT
            self.push_samples([(sample[0] + offset, sample[1]) for sample in samples])
            return
        before = self.latest_at
        near = before is not None and at - before <= longest
        self.push(at, value, before if near else None)

    def columns(self, end: float, column_seconds: float, count: int) -> list[Column | None]:
        """The last ``count`` columns up to the one that holds ``end``, oldest first.

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
        view = self._view(first, count, column_seconds)
        columns = view.columns
        start = view.first + len(columns)
        taken = self._axis.dropped + len(self._axis.at)
        if view.taken == taken and start > last:
            return columns[first - view.first : last + 1 - view.first]
        if view.seen > -math.inf:
            start = min(start, bucket_index(view.seen, column_seconds))
        elif self._axis.at:
            # What was drawn so far was drawn from nothing: the first reading may lie behind it.
            start = view.first
        start = max(start, view.first)
        if start <= last:
            del columns[start - view.first :]
            columns.extend(self._compute(start, last, column_seconds, view))
            view.seen = self._axis.at[-1] if self._axis.at else -math.inf
            view.taken = taken
        return columns[first - view.first : last + 1 - view.first]

    def _view(self, first: int, count: int, column_seconds: float) -> _View:
        view = self._views.get(column_seconds)
        if view is None or first < view.first or first > view.first + len(view.columns):
            # Three: the overview's, a detail's, a mark's. Old widths are not asked for again.
            if view is None and len(self._views) >= 3:
                del self._views[next(iter(self._views))]
            view = self._views[column_seconds] = _View(first, count)
        view.widest = max(view.widest, count)
        if len(view.columns) > 2 * view.widest + 64:
            surplus = min(len(view.columns) - view.widest, first - view.first)
            del view.columns[:surplus]
            view.first += surplus
        return view

    def _compute(self, first: int, last: int, width: float, view: _View) -> list[Column | None]:
        columns: list[Column | None] = []
        at = self._axis.at
        if width >= _LONG_COLUMN_SECONDS and at:
            newest = bucket_index(at[-1], width)
            if first <= newest <= last:
                columns = self._closed(first, newest - 1, width)
                columns.append(self._grown(newest, width, view))
                return columns + [None] * (last - newest)
        return self._closed(first, last, width)

    def _grown(self, bucket: int, width: float, view: _View) -> Column | None:
        """The column of the newest reading: what it held before, and what has come since."""
        axis = self._axis
        grown = view.open
        if grown is None or grown.bucket != bucket or grown.upto < axis.dropped:
            start, folded = bucket * width, axis.folded_until
            first = bisect_right(axis.at, start + width * _TOLERANCE)
            grown = view.open = _Open(bucket, axis.dropped + first)
            if start < folded - width * _TOLERANCE:
                tier = self._tier_for(start, width)
                for part in () if tier is None else tier.parts(start, folded):
                    grown.add(*part)
        for place in range(grown.upto - axis.dropped, len(axis.at)):
            value = self.values[place]
            if value == value:  # noqa: PLR0124 - NaN, the gap, is the one value unlike itself
                grown.add(value, value, value, axis.seconds[place])
        grown.upto = axis.dropped + len(axis.at)
        return grown.column()

    def _closed(self, first: int, last: int, width: float) -> list[Column | None]:
        columns: list[Column | None] = []
        folded = self._axis.folded_until - width * _TOLERANCE
        while first <= last and first * width < folded:
            columns.append(self._from_tiers(first, width))
            first += 1
        if first <= last:
            columns += self.summarise(self._axis.buckets(first, last, width))
        return columns

    def summarise(self, buckets: Iterable[tuple[int, int]]) -> list[Column | None]:
        """The column of each (start, stop) of the readings kept as they came."""
        values, axis_seconds = self.values, self._axis.seconds
        isnan = math.isnan
        columns: list[Column | None] = []
        for start, stop in buckets:
            if stop - start == 1:
                value = values[start]
                columns.append(None if isnan(value) else _make(Column, (value, value, value)))
            elif stop == start:
                columns.append(None)
            else:
                columns.append(_column(values[start:stop], axis_seconds[start:stop]))
        return columns

    def _from_tiers(self, bucket: int, width: float) -> Column | None:
        start, end = bucket * width, (bucket + 1) * width
        tier = self._tier_for(start, width)
        folded = self._axis.folded_until
        parts = [] if tier is None else tier.parts(start, min(end, folded))
        if end > folded:
            parts.extend(self._unfolded_part(folded, end))
        if not parts:
            return None
        minima, means, maxima, seconds = zip(*parts, strict=True)
        return Column(min(minima), sum(map(mul, means, seconds)) / sum(seconds), max(maxima))

    def _unfolded_part(self, start: float, end: float) -> list[tuple[float, float, float, float]]:
        at = self._axis.at
        low, high = bisect_right(at, start), bisect_right(at, end)
        column = (
            _column(self.values[low:high], self._axis.seconds[low:high]) if low < high else None
        )
        if column is None:
            return []
        return [(*column, min(end, at[high - 1]) - start)]

    def _tier_for(self, start: float, width: float) -> _Tier | None:
        filled = [tier for tier in self.tiers if tier.minima]
        reaching = [tier for tier in filled if tier.first * tier.width <= start]
        # The coarsest that is still fine beside the column: what a column costs to put together
        # must not grow with its width.
        fine = [tier for tier in reaching if tier.width * _PARTS_LEAST <= width]
        if fine:
            reaching = fine[::-1]
        for tier in reaching:
            if abs(width / tier.width - round(width / tier.width)) < _TOLERANCE <= width:
                return tier
        # No tier divides the width, or none reaches: the finest that reaches, or the longest.
        return reaching[0] if reaching else filled[-1] if filled else None

    def fold(
        self, tier_number: int, first: int, buckets: list[tuple[int, int]], oldest: float
    ) -> None:
        """Put what ``buckets`` hold into a tier. For the axis' use."""
        tier = self.tiers[tier_number]
        tier.skip_to(first)
        for column in self.summarise(buckets):
            low, mean, high = _GAP if column is None else column
            tier.minima.append(low)
            tier.means.append(mean)
            tier.maxima.append(high)
        tier.forget_before(oldest)


_GAP = (NAN, NAN, NAN)
_make = tuple.__new__


def _column(values: array[float], seconds: array[float]) -> Column | None:
    """Of several readings, each weighted with the time it speaks for."""
    total = sum(seconds)
    mean = sum(map(mul, values, seconds)) / total if total > 0 else sum(values) / len(values)
    if mean == mean:  # noqa: PLR0124 - NaN, a gap among them, is unlike itself
        return _make(Column, (min(values), mean, max(values)))
    read = [(v, s) for v, s in zip(values, seconds, strict=True) if not math.isnan(v)]
    if not read:
        return None
    return _column(array("d", [v for v, _ in read]), array("d", [s for _, s in read]))


_gpu_values = attrgetter(*GPU_SERIES)
_host_values = attrgetter(*HOST_SERIES)
_process_values = attrgetter(*PROCESS_SERIES)
_job_readings = attrgetter(*JOB_SERIES[:-4])


def _job_values(job: Job) -> tuple[float | None, ...]:
    waits = [loop.data_wait_share for loop in job.loops if loop.data_wait_share is not None]
    least, most = (min(waits), max(waits)) if waits else (None, None)
    return (*_job_readings(job), least, most)


_GPU_PLACES = {name: place for place, name in enumerate(GPU_SERIES)}
_HOST_PLACES = {name: place for place, name in enumerate(HOST_SERIES)}
_PROCESS_PLACES = {name: place for place, name in enumerate(PROCESS_SERIES)}
_JOB_PLACES = {name: place for place, name in enumerate(JOB_SERIES)}


def _placed(bands: Mapping[str, Band], places: Mapping[str, int]) -> dict[int, Band]:
    return {places[name]: band for name, band in bands.items() if name in places}


def without_late(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """``gpus`` without the late readings of what moves by the second: charts have a gap there."""
    return tuple([_without_late(gpu) if gpu.reading.late_readings else gpu for gpu in gpus])


def _without_late(gpu: Gpu) -> Gpu:
    late: dict[str, Any] = {name: None for name, _ in gpu.reading.late_readings if name in _MOVING}
    return replace(gpu, reading=replace(gpu.reading, **late))


class _JobSeries:
    """The series of one job: its readings on one axis, its two fine ones each on their own."""

    __slots__ = ("axis", "fine", "told")

    def __init__(self, axis: _Axis) -> None:
        self.axis = axis
        self.told = False
        self.fine: list[Series | None] = [None, None]

    def series(self, place: int) -> Series | None:
        polled = len(self.axis.series)
        return self.axis.series[place] if place < polled else self.fine[place - polled]

    def push(self, job: Job, at: float, offset: float, longest: float) -> None:
        """``offset`` takes a wall time to the axis of the charts."""
        self.axis.push(at, longest, _job_values(job))
        self.told = self.told or bool(job.loops)
        for place, (samples, percent) in enumerate(
            (
                (job.main_thread_samples, job.main_thread_cpu_percent),
                (job.loader_worker_samples, job.loader_worker_cpu_percent),
            )
        ):
            series = self.fine[place]
            if series is None:
                if samples is None and percent is None:
                    continue
                series = self.fine[place] = Series(READINGS_KEPT)
            series.take(samples, percent, at, offset, longest)


class History:
    """The series of everything in the snapshots pushed so far.

    A series exists from its first reading on. Names are the field names of ``GpuReading``,
    ``Host``, ``Process`` and ``Job``; an unknown name is a ``KeyError``.
    """

    def __init__(self) -> None:
        self._gpus: dict[GpuKey, _Axis] = {}
        self._busy: dict[GpuKey, Series] = {}
        self._host = _Axis(len(HOST_SERIES))
        self._cores = _Axis(0, PROCESS_READINGS_KEPT, LONG_TIERS)
        self._processes: dict[tuple[ProcessKey, GpuKey | None], _Axis] = {}
        self._jobs: dict[ProcessKey, _JobSeries] = {}
        self._at = -math.inf
        self._interval_seconds = 0.0
        self._next_sweep = -math.inf
        self._axes_made = 0

    @property
    def latest_at(self) -> float | None:
        """The monotonic time of the last snapshot pushed: what ``end`` of a live chart is."""
        return None if self._at == -math.inf else self._at

    @property
    def earliest_at(self) -> float | None:
        """The first moment of which something is kept."""
        return self._host.earliest_at

    def gpu(self, uuid: GpuKey, name: str) -> Series | None:
        """A GPU's series; ``busy_percent`` is fed by the driver's fine samples where it has any."""
        if name == "busy_percent":
            return self._busy.get(uuid)
        place = _GPU_PLACES[name]
        axis = self._gpus.get(uuid)
        return None if axis is None else axis.series[place]

    def host(self, name: str) -> Series | None:
        return self._host.series[_HOST_PLACES[name]]

    def host_core(self, core: int) -> Series | None:
        """One core's busy percent."""
        return self._cores.series[core] if core < len(self._cores.series) else None

    def process(self, key: ProcessKey, gpu_uuid: GpuKey | None, name: str) -> Series | None:
        place = _PROCESS_PLACES[name]
        axis = self._processes.get((key, gpu_uuid))
        return None if axis is None else axis.series[place]

    def job(self, key: ProcessKey, name: str) -> Series | None:
        """A job's series, by ``Job.key``."""
        place = _JOB_PLACES[name]
        job = self._jobs.get(key)
        return None if job is None else job.series(place)

    def job_told(self, key: ProcessKey) -> bool:
        """It has told of its own loop since it was seen first."""
        job = self._jobs.get(key)
        return job is not None and job.told

    def push(self, snapshot: Snapshot) -> None:
        """Take a snapshot in. One no later than the last, as after a failed read, is ignored."""
        at = snapshot.monotonic_seconds
        if at <= self._at:
            return
        # After "faster" is pressed the time since the last poll is still the slower interval.
        longest = GAP_INTERVALS * max(snapshot.interval_seconds, self._interval_seconds)
        self._interval_seconds = snapshot.interval_seconds
        self._push_gpus(snapshot, at, longest)
        host = snapshot.host
        self._host.push(at, longest, _host_values(host))
        if host.core_percents is not None:
            self._cores.grow(len(host.core_percents))
            # A core taken offline leaves fewer than there were.
            offline = len(self._cores.series) - len(host.core_percents)
            self._cores.push(at, longest, host.core_percents + (None,) * offline)
        self._push_processes(snapshot, at, longest)
        if snapshot.jobs:
            self._push_jobs(snapshot, at, longest)
        self._at = at
        if at >= self._next_sweep:
            self._next_sweep = at + PROCESS_FORGOTTEN_SECONDS / 6
            self._forget(at - max(PROCESS_FORGOTTEN_SECONDS, longest))

    def take_block(
        self, begin: float, gpus: Mapping[GpuKey, Mapping[str, Band]], host: Mapping[str, Band]
    ) -> None:
        """Take what is known only as (minimum, mean, maximum) of the ``BLOCK_SECONDS`` from
        ``begin`` (a multiple of them): of a recording, the time before the first snapshot that is
        pushed. In the order of time, and before any snapshot."""
        block = round(begin / BLOCK_SECONDS)
        for uuid, bands in gpus.items():
            busy = bands.get("busy_percent")
            if busy is not None:
                self._busy.setdefault(uuid, Series()).take_block(block, busy)
            axis = self._gpus.get(uuid)
            if axis is None:
                axis = self._gpus[uuid] = self._axis(len(GPU_SERIES), READINGS_KEPT, TIERS)
            axis.take_block(block, _placed(bands, _GPU_PLACES))
        self._host.take_block(block, _placed(host, _HOST_PLACES))

    def _push_gpus(self, snapshot: Snapshot, at: float, longest: float) -> None:
        # The driver stamps samples with wall time.
        offset = at - snapshot.taken_at_unix_seconds
        for gpu in without_late(snapshot.gpus):
            uuid, reading = gpu.identity.uuid, gpu.reading
            axis = self._gpus.get(uuid)
            if axis is None:
                axis = self._gpus[uuid] = self._axis(len(GPU_SERIES), READINGS_KEPT, TIERS)
            axis.push(at, longest, _gpu_values(reading))
            busy = self._busy.get(uuid)
            if busy is None:
                if reading.busy_samples is None and reading.busy_percent is None:
                    continue
                busy = self._busy[uuid] = Series()
            busy.take(reading.busy_samples, reading.busy_percent, at, offset, longest)

    def _push_processes(self, snapshot: Snapshot, at: float, longest: float) -> None:
        for process in snapshot.processes:
            key = (process.pid, process.started_at_unix_seconds)
            self._push_process((key, process.gpu_uuid), at, longest, _process_values(process))

    def _push_jobs(self, snapshot: Snapshot, at: float, longest: float) -> None:
        offset = at - snapshot.taken_at_unix_seconds
        shown = {(process.pid, process.started_at_unix_seconds) for process in snapshot.processes}
        for job in snapshot.jobs:
            series = self._jobs.get(job.key)
            if series is None:
                if len(self._jobs) >= JOBS_KEPT:
                    continue
                axis = self._axis(len(JOB_SERIES) - 2, PROCESS_READINGS_KEPT, LONG_TIERS)
                series = self._jobs[job.key] = _JobSeries(axis)
            elif series.axis.at[-1] == at:
                continue
            series.push(job, at, offset, longest)
            for member in job.members:
                key = (member.pid, member.started_at_unix_seconds)
                if key not in shown:
                    values = (None, member.cpu_percent, None, member.memory_resident_bytes)
                    self._push_process((key, None), at, longest, values)

    def _push_process(
        self,
        key: tuple[ProcessKey, GpuKey | None],
        at: float,
        longest: float,
        values: tuple[float | None, ...],
    ) -> None:
        axis = self._processes.get(key)
        if axis is None:
            if key[1] is None and len(self._processes) >= PROCESSES_KEPT:
                return
            axis = self._processes[key] = self._axis(
                len(PROCESS_SERIES), PROCESS_READINGS_KEPT, LONG_TIERS
            )
        elif axis.at[-1] == at:
            return
        axis.push(at, longest, values)

    def _axis(self, size: int, kept: int, tiers: tuple[tuple[float, float], ...]) -> _Axis:
        # Each keeps a few readings more than the last, so that they do not all fold at once.
        self._axes_made += 1
        return _Axis(size, kept + self._axes_made % 32, tiers)

    def _forget(self, before: float) -> None:
        for key in [key for key, axis in self._processes.items() if axis.at[-1] < before]:
            del self._processes[key]
        for job in [key for key, series in self._jobs.items() if series.axis.at[-1] < before]:
            del self._jobs[job]
