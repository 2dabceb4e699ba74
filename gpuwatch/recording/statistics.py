"""Statistics of a machine or a job over a time, which add up.

``Statistics`` takes snapshots, in memory that does not grow with the time. What it has counted can
be taken out as a ``Part`` (a recording's minute), written down, and added to other statistics
later: parts added up are the same numbers as all their snapshots. What is needed to count on from
one snapshot to the next (the energy counter as it was last read, samples of a window that is not
over) stays behind. Reports are made from these numbers (``outputs/report/accumulator.py``).

From the bottom up: numbers that add up, the time axis, readings over time, one GPU, processes, how
a job loads its data, what it reports of its loops, one job, the machine, and all of it together.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from functools import cache
from operator import add, attrgetter
from typing import Annotated, Any, NamedTuple, Self, TypeVar, get_type_hints

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from gpuwatch.core.bounds import Number, Seconds, Text, UnixSeconds, total
from gpuwatch.core.model import (
    BusySample,
    Gpu,
    GpuIdentity,
    GpuKey,
    GpuReading,
    Host,
    Job,
    JobMember,
    Process,
    ProcessKey,
    Snapshot,
    TrainingLoop,
)
from gpuwatch.core.registry import unit_of
from gpuwatch.core.store import (
    GAP_INTERVALS,
    LONGEST_SAMPLE_SECONDS,
    Stat,
    busy_time,
    fine_samples,
    without_late,
)
from gpuwatch.diagnosis.signals.waveform import analyse
from gpuwatch.jobs.words import job_loading_sentence
from gpuwatch.recording.charges import Given, GivenTime

# --- numbers that add up ----------------------------------------------------------------------


def _plus(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one + other


def _most(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else max(one, other)


def _least(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)


def _latest(one: Any, other: Any) -> Any:
    return one if other is None else other


def _newer(_one: Any, other: Any) -> Any:
    return other


def _union(one: list[Any], other: list[Any]) -> list[Any]:
    return list(dict.fromkeys([*one, *other]))


def _either(one: bool, other: bool) -> bool:
    return one or other


def _by_key(one: dict[Any, Any] | None, other: dict[Any, Any] | None) -> dict[Any, Any] | None:
    if one is None or other is None:
        return other if one is None else one
    for key, value in other.items():
        held = one.get(key)
        if isinstance(held, (Sums, Stat)):
            held.merge(value)
        else:
            one[key] = value if held is None else held + value
    return one


def _keyed(most: int) -> Callable[[list[Any], list[Any]], list[Any]]:
    """Return a function that merges two lists of ``Sums`` by their ``key``. Of more than ``most``
    (a rank that restarts all the time, say) those that lasted longest are kept."""

    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        held = {sums.key: sums for sums in one}
        for sums in other:
            if sums.key in held:
                held[sums.key].merge(sums)
                continue
            if len(held) >= most:
                del held[min(held, key=lambda key: held[key].seconds)]
            held[sums.key] = sums
        return list(held.values())

    return merge


# A recording may come from anyone: what is read from one is held to these bounds.
Whole = Annotated[int, Meta(ge=0, lt=10**18)]
Sum = Annotated[Number | None, _plus]
Most = Annotated[Number | None, _most]
MostWhole = Annotated[Whole | None, _most]
Least = Annotated[Number | None, _least]
LatestText = Annotated[Text | None, _latest]
LatestNumber = Annotated[Number | None, _latest]


class Sums(Struct, omit_defaults=True, kw_only=True):
    """Numbers of a time, to which those of a later time can be added: each field by the function it
    is annotated with. Numbers without one are added, ``Sums`` and ``Stat`` merged, and those of
    dictionaries by their keys."""

    def merge(self, later: Self) -> None:
        """Add the numbers of a later time."""
        for name, merge in _merging(type(self)):
            setattr(self, name, merge(getattr(self, name), getattr(later, name)))


def _merged(one: Any, other: Any) -> Any:
    one.merge(other)
    return one


def _merged_if_both(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else _merged(one, other)


@cache
def _merging(kind: type[Sums]) -> tuple[tuple[str, Callable[[Any, Any], Any]], ...]:
    found: list[tuple[str, Callable[[Any, Any], Any]]] = []
    hints = get_type_hints(kind, include_extras=True)
    for name in kind.__struct_fields__:
        hint = hints[name]
        named = [one for one in getattr(hint, "__metadata__", ()) if callable(one)]
        plain: Callable[[Any, Any], Any] = add
        if isinstance(hint, type) and issubclass(hint, (Sums, Stat)):
            plain = _merged
        elif getattr(hint, "__origin__", None) is dict:
            plain = _by_key
        found.append((name, named[0] if named else plain))
    return tuple(found)


def add_spent(stat: Stat, spent: float | None, seconds: float) -> None:
    """Add seconds that were ``spent`` on something, out of so many in which that is known."""
    if spent is not None and seconds > 0.0:
        stat.total += spent
        stat.seconds += seconds


def spent_percent(stat: Stat) -> float | None:
    """Return the share of the time that was spent on something."""
    return None if stat.mean is None else min(100.0, max(0.0, 100.0 * stat.mean))


def sane(value: float | None, most: float = math.inf) -> float | None:
    """Return ``value`` as a float between 0 and ``most``; ``None`` for what is no measurement."""
    if value is None or not 0.0 <= value <= most or value == math.inf:
        return None
    return float(value)


def whole(value: float | None) -> int | None:
    """Return ``value`` as a whole number, for peaks of readings that are."""
    return None if value is None else round(value)


class Facts(Sums):
    """Last known facts, by the names of the fields that say them."""

    def note(self, item: object) -> None:
        """Take what ``item`` says; what it does not say stays."""
        for name in self.__struct_fields__:
            value = getattr(item, name)
            value = sane(value) if name.endswith("_cores") else value
            if value is not None:
                setattr(self, name, value)


# --- the time axis ----------------------------------------------------------------------------

GAPS_KEPT = 20


class Span(Struct, frozen=True, array_like=True):
    """A span of time, in Unix seconds."""

    begin: UnixSeconds
    end: UnixSeconds

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Step(NamedTuple):
    """Stretch of the time axis from one look to the next."""

    since: float
    until: float
    longest: float
    """Seconds: looks further apart have a gap between."""
    offset: float
    """Wall time less time on the axis: not 0 once the wall clock has gone back."""

    @property
    def seconds(self) -> float:
        return self.until - self.since

    @property
    def is_gap(self) -> bool:
        return self.seconds > self.longest

    def end(self) -> Step:
        """Return the moment of its end alone, where nothing is known of the time before."""
        return self._replace(since=self.until)


def _longest(one: list[Span], other: list[Span]) -> list[Span]:
    kept = sorted([*one, *other], key=lambda gap: -gap.seconds)[:GAPS_KEPT]
    return sorted(kept, key=lambda gap: gap.begin)


class TimeSums(Sums):
    """The time that was watched."""

    begin: Annotated[UnixSeconds | None, _least] = None
    end: Annotated[UnixSeconds, _most] = 0.0
    snapshots: Whole = 0
    interval_seconds: Annotated[Seconds, _newer] = 0.0
    """Usual time between two snapshots."""
    covered_seconds: Seconds = 0.0
    """The time less the gaps."""
    gap_count: Whole = 0
    gap_seconds: Seconds = 0.0
    gaps: Annotated[list[Span], _longest] = field(default_factory=list)
    """The longest gaps."""
    set_back: Whole = 0
    """Times that the wall clock went back."""

    @property
    def longest_seconds(self) -> float:
        return GAP_INTERVALS * self.interval_seconds

    def merge(self, later: Self) -> None:
        begun, later_begun = self.begin, later.begin
        if begun is not None and later_begun is not None:
            between = Span(self.end, later_begun)
            longest = max(self.longest_seconds, later.longest_seconds)
            self.note_passed(between, is_gap=between.seconds > longest)
        super().merge(later)

    def note_passed(self, span: Span, *, is_gap: bool) -> None:
        if not is_gap:
            self.covered_seconds += max(0.0, span.seconds)
            return
        self.gap_count += 1
        self.gap_seconds += span.seconds
        self.gaps = _longest(self.gaps, [span])


class Steps:
    """Wall time that never goes back: where the clock did, time goes on by the monotonic one.

    A recording can be continued by another run of gpuwatch or on a machine that was started anew,
    so the monotonic clock alone is none either.
    """

    def __init__(self) -> None:
        self.sums = TimeSums()
        self._offset = 0.0
        self._monotonic: float | None = None

    def take_sums(self) -> TimeSums:
        """Return what was counted, and count on from its end."""
        taken = self.sums
        self.sums = TimeSums(
            begin=taken.end, end=taken.end, interval_seconds=taken.interval_seconds
        )
        return taken

    def merge(self, later: TimeSums) -> None:
        self.sums.merge(later)
        self._offset, self._monotonic = 0.0, None

    def step(
        self, snapshot: Snapshot, *, since: float | None = None, until: float | None = None
    ) -> Step:
        """Return the time that ``snapshot`` speaks for: up to ``until`` (wall time) if that is
        sooner; the first from ``since`` on, where it says something of the time before it."""
        time = self.sums
        unix, monotonic = snapshot.taken_at_unix_seconds, snapshot.monotonic_seconds
        longest = GAP_INTERVALS * max(snapshot.interval_seconds, time.interval_seconds)
        time.interval_seconds = snapshot.interval_seconds
        time.snapshots += 1
        passed = 0.0 if self._monotonic is None else monotonic - self._monotonic
        self._monotonic = monotonic
        end = unix if until is None else min(unix, until)
        if time.begin is None:
            near = since is not None and 0.0 <= end - since <= longest
            time.begin = time.end = since if near and since is not None else end
        elif unix - self._offset < time.end:
            time.set_back += 1
            self._offset = unix - (time.end + max(0.0, passed))
        step = Step(time.end, max(time.end, end - self._offset), longest, self._offset)
        time.end = step.until
        time.note_passed(Span(step.since, step.until), is_gap=step.is_gap)
        return step


# --- readings over time -----------------------------------------------------------------------

BUCKETS_MAX = 480
"""Buckets of a time profile, at most."""
FIRST_BUCKET_SECONDS = 0.25
"""A job of a minute is shown at the pace of the driver's own samples."""

PackedCell = Annotated[list[Number], Meta(max_length=4)]
"""(mean, lowest, highest, seconds with a value) of a bucket; without the seconds where it had one
all the time, and where that was always the same, it alone; empty: nothing was read."""


OVERFULL = 2.0
"""Time in a bucket, by its width, at most: two parts can each be about some of the same seconds."""


class Course(Struct, array_like=True):
    """Buckets of one width, each with the values of one reading."""

    begin: UnixSeconds
    """Time at which the first begins."""
    seconds: Annotated[float, Meta(gt=0, lt=1e11)]
    """Width of each."""
    packed: list[PackedCell]

    def middles(self) -> Iterator[tuple[float, float, float, float, float]]:
        """Yield (the middle, seconds with a value, mean, lowest, highest) of each cell with a
        value."""
        width = self.seconds
        middle = self.begin - 0.5 * width
        for cell in self.packed:
            middle += width
            count = len(cell)
            if count == 1:
                yield middle, width, cell[0], cell[0], cell[0]
            elif count >= 3:
                seconds = width if count == 3 else min(OVERFULL * width, cell[3])
                if seconds > 0.0:
                    yield middle, seconds, cell[0], cell[1], cell[2]


class Grid:
    """Buckets (an even number of them) from ``start`` on, all of one width. When the time outgrows
    them, each two become one of twice the width; lowest, mean and highest stay true, and so do
    gaps."""

    __slots__ = ("buckets", "profiles", "seconds", "start")

    def __init__(
        self, start: float, buckets: int = BUCKETS_MAX, seconds: float = FIRST_BUCKET_SECONDS
    ) -> None:
        self.start = start
        self.buckets = buckets
        self.seconds = seconds
        self.profiles: list[Profile] = []

    def profile(self) -> Profile:
        made = Profile(self)
        self.profiles.append(made)
        return made

    def reach(self, until: float) -> None:
        """Make the buckets wide enough for the time up to ``until``."""
        while until - self.start > self.seconds * self.buckets:
            self.seconds *= 2
            for profile in self.profiles:
                profile.halve()


class Profile:
    """One reading over time, added as values that each held from one moment to another."""

    __slots__ = ("_grid", "_held", "_maxima", "_minima", "_sums")

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.clear()

    def clear(self) -> None:
        buckets = self._grid.buckets
        self._held = array("d", [0.0]) * buckets
        self._sums = array("d", [0.0]) * buckets
        self._minima = array("d", [math.inf]) * buckets
        self._maxima = array("d", [-math.inf]) * buckets

    def add_value(self, since: float, until: float, value: float) -> None:
        """Add ``value``, which held from ``since`` to ``until``, both on the grid's clock."""
        self._add(since, until, value, value, value)

    def _add(
        self,
        since: float,
        until: float,
        mean: float,
        low: float,
        high: float,
        weight: float = 1.0,
    ) -> None:
        grid = self._grid
        since = max(since, grid.start) - grid.start
        until -= grid.start
        width = grid.seconds
        bucket = int(since / width)
        while bucket < grid.buckets and since < until:
            edge = (bucket + 1) * width
            held = (until if until < edge else edge) - since
            # Times are sums of floats: what spills over an edge by rounding is nothing.
            if held > width * 1e-6:
                self._held[bucket] += weight * held
                self._sums[bucket] += weight * held * mean
                self._minima[bucket] = min(self._minima[bucket], low)
                self._maxima[bucket] = max(self._maxima[bucket], high)
            since, bucket = edge, bucket + 1

    def add_course(self, added: Course) -> None:
        grid = self._grid
        first = (added.begin - grid.start) / added.seconds
        if added.seconds == grid.seconds and first >= 0.0 and first.is_integer():
            # Of the same buckets nothing is spread over others, whatever adds up to them.
            self._add_buckets(int(first), added)
            return
        # What began within a bucket and went on in the next lies at its end.
        starts_late = len(added.packed) > 1 and bool(added.packed[1])
        for middle, seconds, mean, low, high in added.middles():
            begin = middle - 0.5 * added.seconds
            held = min(seconds, added.seconds)
            if starts_late:
                begin, starts_late = begin + added.seconds - held, False
            self._add(begin, begin + held, mean, low, high, seconds / held)

    def _add_buckets(self, first: int, added: Course) -> None:
        for middle, seconds, mean, low, high in added.middles():
            at = first + int((middle - added.begin) / added.seconds)
            if at < self._grid.buckets:
                self._held[at] += seconds
                self._sums[at] += seconds * mean
                self._minima[at] = min(self._minima[at], low)
                self._maxima[at] = max(self._maxima[at], high)

    def halve(self) -> None:
        merged: tuple[tuple[array[float], Callable[[float, float], float], float], ...] = (
            (self._held, add, 0.0),
            (self._sums, add, 0.0),
            (self._minima, min, math.inf),
            (self._maxima, max, -math.inf),
        )
        for values, merge, empty in merged:
            half = len(values) // 2
            values[:half] = array("d", map(merge, values[::2], values[1::2]))
            values[half:] = array("d", [empty]) * (len(values) - half)

    def cells(self) -> Iterator[tuple[float, float, Stat]]:
        """Yield begin, end and statistic of each bucket with a value."""
        start, width = self._grid.start, self._grid.seconds
        for at, held in enumerate(self._held):
            if held > 0.0:
                stat = Stat(self._minima[at], self._maxima[at], self._sums[at], held)
                yield start + at * width, start + (at + 1) * width, stat

    def course(self, *, exact: bool) -> Course | None:
        """Return what was added, ``None`` where nothing was; ``exact``: so that no figure that is
        made of it differs."""
        width = self._grid.seconds
        digits, slack = (5, 1e-6) if exact else (2, 0.01)
        packed: list[PackedCell] = []
        first = None
        for at, held in enumerate(self._held):
            if held <= 0.0:
                continue
            first = at if first is None else first
            packed += [[]] * (at - first - len(packed))
            low, high = self._minima[at], self._maxima[at]
            mean = rounded(self._sums[at] / held, digits - 1)
            cell = [mean, rounded(low), rounded(high)]
            if abs(held - width) > slack * width:
                cell.append(round(held, digits))
            elif low == high:
                del cell[1:]
            packed.append(cell)
        if first is None:
            return None
        return Course(self._grid.start + first * width, width, packed)

    def columns(self, until: float) -> tuple[list[float | None], ...]:
        """Return the lowest, mean and highest value of each bucket up to that which holds
        ``until``; empty if there was nothing."""
        grid = self._grid
        count = max(0, min(grid.buckets, math.ceil((until - grid.start) / grid.seconds)))
        held = self._held[:count]
        if not any(held):
            return ([], [], [])
        pairs = zip(self._sums, held, strict=False)
        means = [sum_ / time if time else 0.0 for sum_, time in pairs]
        low, mean, high = (
            [round(value, 1) if time else None for value, time in zip(values, held, strict=False)]
            for values in (self._minima, means, self._maxima)
        )
        return low, mean, high


_DIGITS = 1
_WHOLE_FROM = 1e4
"""Value from which decimals are not worth their room."""


def rounded(value: float, digits: int = _DIGITS) -> float:
    """Return ``value`` with as many digits as are worth their room in a file."""
    return float(round(value)) if abs(value) >= _WHOLE_FROM else round(float(value), digits)


class ReadingsPart(Struct, omit_defaults=True, kw_only=True):
    """Statistics of readings in one part of a time, by the names of the readings."""

    readings: dict[str, Stat]
    profiles: dict[str, Course]


class Readings:
    """Statistics of readings that have the name of a field of the model, and their time
    profiles."""

    def __init__(
        self, names: Sequence[str], profiled: Iterable[str], grid: Grid, *, fed: Sequence[str] = ()
    ) -> None:
        """``profiled``: those of the readings that have a time profile too. ``fed``: profiles of
        what comes in samples, and not as readings."""
        own = {name: grid.profile() for name in profiled}
        self.profiles = {name: grid.profile() for name in fed} | own
        """Time profiles, by the names of the readings."""
        self._names = tuple(dict.fromkeys([*names, *own]))
        # Once for each GPU in each look: everything in one tuple.
        self._read = attrgetter(*self._names)
        self._begin()

    def _begin(self) -> None:
        self.sums = {name: Stat() for name in self._names}
        self._rows = [
            (stat, unit_of(name)[1].high, self.profiles.get(name))
            for name, stat in self.sums.items()
        ]

    def counted(self, *, exact: bool) -> dict[str, Any]:
        """Return what was counted, as the fields of a ``ReadingsPart``."""
        courses = {name: one.course(exact=exact) for name, one in self.profiles.items()}
        return {
            "readings": {name: stat for name, stat in self.sums.items() if stat.high is not None},
            "profiles": {name: one for name, one in courses.items() if one is not None},
        }

    def take(self) -> dict[str, Any]:
        """Return what was counted, as the fields of a ``ReadingsPart``, and count anew."""
        taken = self.counted(exact=False)
        for profile in self.profiles.values():
            profile.clear()
        self._begin()
        return taken

    def merge(self, part: ReadingsPart) -> None:
        for name, stat in part.readings.items():
            if name in self.sums:
                self.sums[name].merge(stat)
        for name, course in part.profiles.items():
            if name in self.profiles:
                self.profiles[name].add_course(course)

    def add_readings(self, item: object, step: Step) -> None:
        """Add what ``item`` said for the time of ``step``; over a gap only for its end."""
        seconds = 0.0 if step.is_gap else step.seconds
        for value, (stat, most, profile) in zip(self._read(item), self._rows, strict=True):
            if value is None or not 0.0 <= value <= most:
                continue
            stat.add_value(value, seconds)
            if seconds and profile is not None:
                profile.add_value(step.since, step.until, value)


# --- one GPU ----------------------------------------------------------------------------------

USERS_KEPT = 4
LOSSES_KEPT = 50
REASONS_KEPT = 32
NOT_THROTTLING = frozenset({"gpu_idle", "applications_clocks_setting", "display_clock_setting"})
"""Reasons for low clocks by which nothing is lost: nothing to do, or a person's own setting."""
GPU_READINGS = (
    *("memory_used_bytes", "power_watts", "temperature_celsius", "sm_clock_mhz"),
    *("sm_active_percent", "tensor_active_percent", "memory_clock_mhz"),
    *("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"),
    *("nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second"),
)
GPU_PROFILES = (
    *("memory_used_bytes", "power_watts", "temperature_celsius", "sm_clock_mhz"),
    "sm_active_percent",
)
"""Readings of a GPU with a time profile, beside ``busy_percent``."""

Tenants = tuple[float | None, Sequence[str | None]]
"""(bytes that the job holds, user of each other process) on one GPU in one snapshot."""


def _adjoining(one: list[Span], other: list[Span]) -> list[Span]:
    if one and other and one[-1].end >= other[0].begin:
        return [*one[:-1], Span(one[-1].begin, other[0].end), *other[1:]][:LOSSES_KEPT]
    return [*one, *other][:LOSSES_KEPT]


class RhythmSums(Sums):
    """The shape of the busy signal, window by window."""

    seconds: Seconds = 0.0
    busy_seconds: Seconds = 0.0
    oscillating_seconds: Seconds = 0.0
    periods: dict[int, Stat] = field(default_factory=dict)
    """Periods by their class, over the time in which there was one."""
    swings: Stat = field(default_factory=Stat)
    """Seconds from one burst of work to the next, in a rhythm or not."""

    @property
    def duty(self) -> float | None:
        return self.busy_seconds / self.seconds if self.seconds > 0 else None

    @property
    def period_seconds(self) -> float | None:
        """Median period, weighted by the time in which there was one."""
        half = sum(period.seconds for period in self.periods.values()) / 2
        passed = 0.0
        for _, period in sorted(self.periods.items()):
            passed += period.seconds
            if passed >= half:
                return period.mean
        return None


COUNTED_SHARE = 0.9
"""Share of the time from which on the energy counter says the mean power of all of it; the first
reading of a counter counts nothing yet."""


class GpuSums(Sums):
    """Sums of one GPU while it was there (in a job's statistics: while the job was on it)."""

    seen_seconds: Seconds = 0.0
    watched_seconds: Seconds = 0.0
    """Part of it in which its busy share is known."""
    busy_seconds: Seconds = 0.0
    busy_until: Annotated[Number, _newer] = 0.0
    busy_readings: Whole = 0
    busy_last_percent: Annotated[Number | None, _latest] = None
    sampled: Annotated[bool, _either] = False
    """Whether the driver's fine samples were counted."""
    power_limit_watts: Annotated[Number | None, _latest] = None
    lost: Annotated[list[Span], _adjoining] = field(default_factory=list)
    job_bytes: Stat = field(default_factory=Stat)
    tenant_seconds: Seconds = 0.0
    tenants_peak: Annotated[Whole, _most] = 0
    users: Annotated[list[Text], _union] = field(default_factory=list)
    missing: LatestText = None
    """Why the busy share cannot be read, if a problem said so."""
    counter_joules: LatestNumber = None
    """The GPU's energy counter as it was read last."""
    counter_at: LatestNumber = None
    """Unix time of that."""
    counted_joules: Sum = None
    """Growth of that counter."""
    counted_seconds: Seconds = 0.0
    """Time in which it grew by that."""
    counted_throttling: Annotated[dict[Text, Seconds] | None, _by_key] = None
    """Seconds by reason, from the driver's counters."""
    throttling: Annotated[dict[Text, Seconds] | None, _by_key] = None
    """Seconds by reason: the reasons in force times the time."""
    rhythm: RhythmSums = field(default_factory=RhythmSums)

    def throttled(self) -> list[tuple[str, float]] | None:
        """Return reasons and their seconds, the longest first, none longer than the GPU was
        there."""
        found = self.throttling if self.counted_throttling is None else self.counted_throttling
        if found is None:
            return None
        longest_first = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return [(reason, min(held, self.seen_seconds)) for reason, held in longest_first]


class GpuPart(ReadingsPart, kw_only=True):
    """Statistics of one GPU in one part of a time."""

    identity: GpuIdentity
    sums: GpuSums


class GpuStatistics:
    """One GPU over the time it is there: of a job, while the job is on it.

    Its oscillation between idle and busy is seen in a window of the signal (``diagnosis.signals.
    waveform``); a long recording is many windows, of which only sums are kept.
    """

    def __init__(self, gpu: GpuIdentity, grid: Grid, now: float, *, fine: bool) -> None:
        """``fine``: with time profiles of more than how busy it was."""
        self.identity = gpu
        self.sums = GpuSums(busy_until=now)
        profiled = GPU_PROFILES if fine else ()
        self.readings = Readings(GPU_READINGS, profiled, grid, fed=("busy_percent",))
        self.busy_profile = self.readings.profiles["busy_percent"]
        self._rhythm = Rhythm()

    def arrive(self, now: float) -> None:
        """Begin to count: the GPU is there (or the job is on it) from now on, at first or again."""
        self.sums.busy_until = max(self.sums.busy_until, now)
        # What the counter grows by until it is read next is left out.
        self.sums.counter_joules = self.sums.counter_at = None

    def take_part(self) -> GpuPart:
        """Return what was counted, and count on from its end."""
        taken = self.sums
        self.sums = GpuSums(
            busy_until=taken.busy_until,
            counter_joules=taken.counter_joules,
            counter_at=taken.counter_at,
        )
        return GpuPart(identity=self.identity, sums=taken, **self.readings.take())

    def merge(self, part: GpuPart) -> None:
        self.identity = part.identity
        self.sums.merge(part.sums)
        self.readings.merge(part)

    def close_rhythm(self) -> None:
        """Take the samples since the last window as one, at the end of the time."""
        self._rhythm.close(self.sums.rhythm)

    @property
    def rhythm(self) -> RhythmSums:
        """The shape of the busy signal, with what has come since the last window as one."""
        sums = deepcopy(self.sums.rhythm)
        copy(self._rhythm).close(sums)
        return sums

    @property
    def energy(self) -> tuple[float | None, str | None]:
        """Joules, and where they are from: ``counter``, or ``power`` times time."""
        if self.sums.counted_joules is not None:
            return self.sums.counted_joules, "counter"
        joules = self.readings.sums["power_watts"].integral
        return joules, None if joules is None else "power"

    @property
    def power_mean_watts(self) -> float | None:
        """Mean power: the counted energy over the time in which it was counted, since polls of a
        power that swings see a part of it. Where that is only a part of the time it was there, the
        mean of the polls."""
        sums = self.sums
        counted = sums.counted_seconds > 0.0
        if counted and sums.counted_seconds >= COUNTED_SHARE * sums.seen_seconds:
            return (sums.counted_joules or 0.0) / sums.counted_seconds
        return self.readings.sums["power_watts"].mean

    def add_reading(self, gpu: Gpu, step: Step, at: float, tenants: Tenants | None = None) -> None:
        """Add the GPU as it was in the next snapshot, taken ``at`` a time that can be past the end
        of the step, where a job has ended. ``tenants``: ``None`` where nobody looked."""
        sums = self.sums
        sums.seen_seconds += step.seconds
        if gpu.lost:
            self._note_loss(step)
            return
        self.identity = gpu.identity
        reading = gpu.reading
        if step.is_gap:
            # The driver's buffer remembers the last part of the time nobody looked.
            if reading.busy_samples is not None:
                self.add_busy(reading, step)
            self._add_energy(sane(reading.energy_joules), at)
            return
        sums.busy_readings += reading.busy_percent is not None or bool(reading.busy_samples)
        self.add_busy(reading, step)
        if reading.power_limit_watts is not None:
            sums.power_limit_watts = sane(reading.power_limit_watts)
        self.readings.add_readings(reading, step)
        self._add_energy(sane(reading.energy_joules), at)
        self._add_throttling(reading, step.seconds)
        if tenants is not None:
            self._add_tenants(tenants, step.seconds)

    def _note_loss(self, step: Step) -> None:
        sums = self.sums
        sums.busy_until = max(sums.busy_until, step.until)
        since = step.until if step.is_gap else step.since
        sums.lost = _adjoining(sums.lost, [Span(since, step.until)])

    def _add_energy(self, joules: float | None, at: float) -> None:
        sums = self.sums
        if joules is None:
            return
        before, sums.counter_joules = sums.counter_joules, joules
        since, sums.counter_at = sums.counter_at, at
        if before is not None and joules >= before:
            sums.counted_joules = (sums.counted_joules or 0.0) + joules - before
            sums.counted_seconds += 0.0 if since is None else max(0.0, at - since)

    def _add_throttling(self, reading: GpuReading, seconds: float) -> None:
        """Add time by reason: from the driver's counters, where it has any; else the reasons in
        force times the time."""
        sums = self.sums
        if reading.throttle_durations is not None:
            sums.counted_throttling = sums.counted_throttling or {}
            # What a counter says after a gap is about the time before.
            for reason, held in reading.throttle_durations if seconds > 0 else ():
                _hold(sums.counted_throttling, reason, sane(held))
        if reading.throttle_reasons is not None:
            sums.throttling = sums.throttling or {}
            for reason in reading.throttle_reasons:
                _hold(sums.throttling, reason, seconds)

    def _add_tenants(self, tenants: Tenants, seconds: float) -> None:
        sums, (job_bytes, others) = self.sums, tenants
        sums.job_bytes.add_value(job_bytes, seconds)
        if others:
            sums.tenant_seconds += seconds
            sums.tenants_peak = max(sums.tenants_peak, len(others))
            sums.users = _union(sums.users, list(filter(None, others)))

    def add_busy(self, reading: GpuReading, step: Step) -> None:
        """Add how busy it was, as far as that is not known already."""
        sums = self.sums
        seconds, offset = step.seconds, step.offset
        new = busy_time(
            reading, sums.busy_until, step.until, seconds, longest=step.longest, offset=offset
        )
        if new is None:
            return
        sampled = reading.busy_samples is not None
        sums.sampled = sums.sampled or sampled
        for at, percent, held in new.samples:
            longest = LONGEST_SAMPLE_SECONDS if sampled else step.longest
            if sampled or held > 0.0:
                self._rhythm.add_sample(at, percent, longest, sums.rhythm)
            if held > 0.0:
                self.busy_profile.add_value(at - held, at, percent)
        sums.busy_until, sums.busy_last_percent = new.until, new.samples[-1][1]
        if new.seconds > 0.0:
            sums.watched_seconds += new.seconds
            sums.busy_seconds += new.seconds - new.idle_seconds


def _hold(held: dict[str, float], reason: str, seconds: float | None) -> None:
    if seconds and reason not in NOT_THROTTLING and (reason in held or len(held) < REASONS_KEPT):
        held[reason] = held.get(reason, 0.0) + seconds


WINDOW_SECONDS = 60.0
WINDOW_SAMPLES = 12
"""Seldom samples need a longer window: this many at least."""
SAMPLES_MAX = 2048
SWINGS = 3
"""Whole busy and idle stretches that make a window an oscillation, also without a rhythm."""
STEPS_A_DOUBLING = 12
"""Periods are counted in classes 6% wide, which is finer than a period of steps varies."""


class Rhythm:
    """Samples of a busy signal since its last window, in the order of time."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []

    def add_sample(self, at: float, percent: float, longest: float, sums: RhythmSums) -> None:
        """Add a sample (seconds on the axis, percent), and to ``sums`` the window that is over.
        ``longest``: from there on the time since the sample before is a gap."""
        samples = self._samples
        if samples and (
            at - samples[-1][0] > longest
            or (at - samples[0][0] >= WINDOW_SECONDS and len(samples) >= WINDOW_SAMPLES)
            or len(samples) >= SAMPLES_MAX
        ):
            self.close(sums)
        self._samples.append((at, percent))

    def close(self, sums: RhythmSums) -> None:
        """Add what has come since the last window to ``sums``, as one."""
        samples, self._samples = self._samples, []
        wave = analyse(samples)
        if wave is None:
            return
        sums.seconds += wave.seconds
        sums.busy_seconds += wave.seconds * wave.duty
        if wave.swing_seconds is not None:
            sums.swings.add_value(wave.swing_seconds, wave.seconds)
        swings = min(wave.busy.count, wave.idle.count)
        if wave.period_seconds is not None or swings >= SWINGS:
            sums.oscillating_seconds += wave.seconds
        if wave.period_seconds is not None:
            place = round(math.log2(wave.period_seconds) * STEPS_A_DOUBLING)
            period = Stat(seconds=wave.seconds, total=wave.seconds * wave.period_seconds)
            _by_key(sums.periods, {place: period})


# --- processes --------------------------------------------------------------------------------

PROCESSES_KEPT = 1024
"""Most processes kept: loader workers are started anew each epoch, so a long recording sees very
many."""


class UsageSums(Sums):
    """Sums that jobs and processes have in common: who used how much."""

    pid: Annotated[Whole, _newer] = 0
    started_at_unix_seconds: Annotated[Number | None, _newer] = None
    user: LatestText = None
    command: LatestText = None
    gpus: Annotated[list[GpuKey], _union] = field(default_factory=list)
    gpu_held_seconds: Seconds = 0.0
    gpu_busy_seconds: Sum = None
    gpu_memory_peak_bytes: MostWhole = None
    cpu_core_seconds: Sum = None
    memory_peak_bytes: MostWhole = None
    read_bytes: Sum = None
    written_bytes: Sum = None
    first_unix_seconds: Annotated[Number, _least] = 0.0
    last_unix_seconds: Annotated[Number, _most] = 0.0

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)

    def add_gpu(self, uuid: GpuKey, busy_percent: float | None, seconds: float) -> None:
        if uuid not in self.gpus:
            self.gpus.append(uuid)
        self.gpu_held_seconds += seconds
        self.gpu_busy_seconds = _grown(self.gpu_busy_seconds, busy_percent, seconds / 100.0)

    def add_gpu_memory(self, held: int) -> None:
        self.gpu_memory_peak_bytes = max(self.gpu_memory_peak_bytes or 0, held)

    def add_host(self, cpu_percent: float | None, memory: int | None, seconds: float) -> None:
        self.cpu_core_seconds = _grown(self.cpu_core_seconds, cpu_percent, seconds / 100.0)
        if memory is not None:
            self.memory_peak_bytes = max(self.memory_peak_bytes or 0, memory)

    def add_storage(self, read: float | None, written: float | None, seconds: float) -> None:
        """Add storage traffic; both rates are in bytes a second."""
        self.read_bytes = _grown(self.read_bytes, read, seconds)
        self.written_bytes = _grown(self.written_bytes, written, seconds)

    @property
    def weight(self) -> tuple[float, float, float]:
        """Rank among others: by GPU time, then CPU time, then memory."""
        gpu_seconds = self.gpu_held_seconds + (self.gpu_busy_seconds or 0.0)
        return (gpu_seconds, self.cpu_core_seconds or 0.0, float(self.memory_peak_bytes or 0))


def _grown(sum_: float | None, rate: float | None, seconds: float) -> float | None:
    """Return the sum with ``rate`` times ``seconds`` added, if that is an amount."""
    if rate is None or not 0.0 <= rate < math.inf:
        return sum_
    return (sum_ or 0.0) + rate * seconds


class ProcessSums(UsageSums):
    """Use by one process, with facts that are not known any more once it ends."""

    name: LatestText = None
    role: LatestText = None


class ProcessesPart(Struct, omit_defaults=True, kw_only=True):
    """Use by all processes in one part of a time."""

    used: list[ProcessSums] = field(default_factory=list)
    left_out: Whole = 0


class ProcessesStatistics:
    """Use by all processes, those that are gone and used least left out."""

    def __init__(self) -> None:
        self.used: dict[ProcessKey, ProcessSums] = {}
        self.left_out = 0

    def take_part(self) -> ProcessesPart:
        taken = ProcessesPart(used=list(self.used.values()), left_out=self.left_out)
        self.used, self.left_out = {}, 0
        return taken

    def merge(self, part: ProcessesPart, now: float) -> None:
        for one in part.used:
            held = self.used.get(one.key)
            if held is None:
                self.used[one.key] = one
            else:
                held.merge(one)
        self.left_out += part.left_out
        self._forget(now)

    def add_snapshot(
        self, snapshot: Snapshot, jobs: Iterable[Job], now: float, seconds: float
    ) -> None:
        """Add all processes of a snapshot; ``seconds``: the time that rates hold for."""
        # A process has a row for each GPU, with the same readings of the host in all of them.
        counted: set[ProcessKey] = set()
        for process in snapshot.processes:
            used = self._process(process, now)
            if process.gpu_uuid is not None:
                used.add_gpu(process.gpu_uuid, process.gpu_busy_percent, seconds)
            if used.key not in counted:
                counted.add(used.key)
                self._add_process(used, process, process.user, seconds)
        for key, held in gpu_memory(snapshot).items():
            self.used[key].add_gpu_memory(held)
        for job in jobs:
            for member in job.members:
                used = self._process(member, now)
                used.role = member.role
                if used.key not in counted:
                    counted.add(used.key)
                    self._add_process(used, member, job.user, seconds)
                read, written = member.read_bytes_per_second, member.write_bytes_per_second
                used.add_storage(read, written, seconds)
        self._forget(now)

    def _process(self, process: Process | JobMember, now: float) -> ProcessSums:
        key = (process.pid, process.started_at_unix_seconds)
        used = self.used.get(key)
        if used is None:
            used = ProcessSums(pid=key[0], started_at_unix_seconds=key[1], first_unix_seconds=now)
            self.used[key] = used
        used.last_unix_seconds = now
        return used

    def _add_process(
        self, used: ProcessSums, process: Process | JobMember, user: str | None, seconds: float
    ) -> None:
        used.user = user or used.user
        used.name = process.name or used.name
        used.command = process.command or used.command
        used.add_host(process.cpu_percent, process.memory_resident_bytes, seconds)

    def _forget(self, now: float) -> None:
        if len(self.used) <= PROCESSES_KEPT:
            return
        gone = [item for item in self.used.items() if item[1].last_unix_seconds < now]
        gone.sort(key=lambda item: item[1].weight)
        for key, _ in gone[: max(1, PROCESSES_KEPT // 4)]:
            del self.used[key]
            self.left_out += 1


def gpu_memory(snapshot: Snapshot) -> dict[ProcessKey, int]:
    """Return the bytes that each process holds, on all its GPUs."""
    memory: dict[ProcessKey, int] = {}
    for process in snapshot.processes:
        if process.gpu_uuid is not None and process.gpu_memory_bytes is not None:
            key = (process.pid, process.started_at_unix_seconds)
            memory[key] = memory.get(key, 0) + process.gpu_memory_bytes
    return memory


U = TypeVar("U", bound=UsageSums)


def by_weight(usages: Iterable[U]) -> list[U]:
    """Return the usages, those that used most first."""
    return sorted(sorted(usages, key=lambda one: one.pid), key=lambda one: one.weight, reverse=True)


# --- how a job loads its data -----------------------------------------------------------------

AT_LIMIT_PERCENT = 90.0
"""Share of one core from which a process is held back by its core more than by anything else."""
STATES_KEPT = 32
_OF_WORKERS = (
    "loader_worker_cpu_percent",
    "loader_worker_at_limit_percent",
    "loader_worker_queue_wait_percent",
    "loader_worker_disk_wait_percent",
)
_OF_RANKS = (
    "main_thread_cpu_percent",
    "main_thread_at_limit_percent",
    "main_thread_queue_wait_percent",
)


class LoadingState(Sums):
    """One way of loading the job was seen to have: so many workers, and pinned memory."""

    workers: Annotated[Whole | None, _newer] = None
    pinned: Annotated[bool | None, _newer] = None
    sentence: Annotated[Text, _newer] = ""
    guessed: Annotated[bool, _newer] = True
    seconds: Seconds = 0.0

    def merge(self, later: Self) -> None:
        # What is certain counts; why it is unknown changes, and the last reason lasted.
        if later.guessed > self.guessed:
            self.seconds += later.seconds
        else:
            super().merge(later)

    @property
    def key(self) -> tuple[int | None, bool | None]:
        return (self.workers, self.pinned)

    @property
    def weight(self) -> tuple[float, ...]:
        """Rank of the state: workers are started and ended with every epoch, so that there are some
        says more than the time without them."""
        some = bool(self.workers)
        return (some and self.pinned is not None, some, self.workers is not None, self.seconds)


_states = _keyed(STATES_KEPT)


class LoadingSums(Sums):
    """Ways in which the job got its data."""

    states: Annotated[list[LoadingState], _states] = field(default_factory=list)
    workers_peak: MostWhole = None
    workers_started: Whole = 0
    """Worker processes seen to appear."""
    readings: dict[str, Stat] = field(default_factory=dict)
    """Shares of time of workers and main threads, by the names of the report."""

    def add_job(self, job: Job, seconds: float, before: frozenset[ProcessKey] | None) -> Any:
        """Add the job as it was in the next snapshot; ``before``: its workers in the one before.
        Return its workers now."""
        if job.ranks:
            state = LoadingState(
                workers=job.loader_workers,
                pinned=job.pinned_memory,
                sentence=job_loading_sentence(job),
                guessed=any(rank.loader_workers_guessed for rank in job.ranks),
                seconds=seconds,
            )
            self.states = _states(self.states, [state])
        names: tuple[str, ...]
        workers = []
        for member in job.members:
            if member.role == "loader_worker":
                workers.append(member.key)
                names, cpu = _OF_WORKERS, member.cpu_percent
            elif member.role == "rank":
                names, cpu = _OF_RANKS, member.main_thread_cpu_percent
            else:
                continue
            waits = (member.run_queue_wait_percent, member.disk_wait_percent)
            for name, percent in zip(names, (cpu, _at_limit(cpu), *waits), strict=False):
                self.readings.setdefault(name, Stat()).add_value(percent, seconds)
        now = frozenset(workers)
        if now or before:
            self.workers_started += 0 if before is None else len(now - before)
            self.workers_peak = max(self.workers_peak or 0, len(now))
        return now

    @property
    def main_state(self) -> LoadingState | None:
        return max(self.states, key=lambda one: one.weight, default=None)


def _at_limit(percent: float | None) -> float | None:
    return None if percent is None else 100.0 if percent >= AT_LIMIT_PERCENT else 0.0


class FineProfile:
    """A time profile from fine samples where a job has them, else from one value a snapshot."""

    def __init__(self, profile: Profile, now: float) -> None:
        self.profile = profile
        self._until = now

    def add_samples(
        self, samples: tuple[BusySample, ...] | None, percent: float | None, step: Step
    ) -> None:
        if samples is None:
            value = sane(percent)
            if value is not None:
                self.profile.add_value(step.since, step.until, value)
                self._until = step.until
            return
        fine = fine_samples(samples, self._until, until=step.until, offset=step.offset)
        for at, value, held in fine:
            if held > 0.0:
                self.profile.add_value(at - held, at, value)
            self._until = at


# --- training loops that a job reports, the ranks together ------------------------------------

RANKS_KEPT = 512
SHARES = ("data_wait_share", "compute_share", "copy_share", "validation_share", "checkpoint_share")
SAME_SECONDS = 0.5
"""Largest difference of two times of one moment, as reported and as seen."""


class LoopWork(NamedTuple):
    """Work of one rank's loop from one look to the next."""

    seconds: float
    """Time for which the loop ran; all else is about it."""
    samples: float | None
    spent: tuple[float | None, ...]
    """Seconds, for each of ``SHARES``; a little negative where it was reported late that
    less was spent."""


class LoopMeter:
    """Meter of one rank's loop, from look to look."""

    def __init__(self) -> None:
        self._before: TrainingLoop | None = None
        self._until: float | None = None
        """Time of the last look."""

    def work_of(self, loop: TrainingLoop, since: float, at: float, unix: float) -> LoopWork:
        """Return the loop's work from ``since`` (the look before) to ``at``, in monotonic seconds;
        ``unix``: wall time ``at`` that moment."""
        seconds, window, before = at - since, sane(loop.window_seconds), self._before
        was_idle = before is None or before.phase == "idle"
        if self._until is None and window is not None:
            # It began after the look before.
            seconds = min(seconds, window)
        elif self._until is not None and since - self._until > SAME_SECONDS:
            # Nobody looked for a while, of which nothing is known.
            before = None
        self._before, self._until = loop, at
        steps, steps_before = loop.steps, None if before is None else before.steps
        made = None
        if steps is not None and steps_before is not None and steps >= steps_before:
            made = steps - steps_before
        idle = loop.phase == "idle"
        ran = bool(made) or not (idle and was_idle)
        spent = _spent(loop, before, seconds)
        if idle and loop.reported_at_unix_seconds is not None:
            # Since then it has been idle.
            seconds = max(0.0, seconds - max(0.0, unix - loop.reported_at_unix_seconds))
        return LoopWork(seconds if ran else 0.0, _samples(loop, made, seconds), spent)


def _spent(
    loop: TrainingLoop, before: TrainingLoop | None, seconds: float
) -> tuple[float | None, ...]:
    """Return the seconds spent on each of ``SHARES`` in the ``seconds`` since the look before: by
    what the job has counted; else, as of a simulated job, by the shares of its window."""
    now = loop.spent_seconds or ()
    was = () if before is None else before.spent_seconds or ()
    grown = [
        None if new is None or old is None else new - old
        for new, old in zip(now, was, strict=False)
    ]
    found: list[float | None] = []
    for place, name in enumerate(SHARES):
        share = sane(getattr(loop, name), 1.0)
        counted = grown[place] if place < len(grown) else None
        # What it did on the GPU is known a little later, and more than passed cannot be.
        possible = counted is not None and abs(counted) <= seconds + SAME_SECONDS
        found.append(None if share is None else counted if possible else share * seconds)
    return tuple(found)


def _samples(loop: TrainingLoop, steps: int | None, seconds: float) -> float | None:
    """Return the samples by the steps, which are counted; rates are reported from step to step."""
    rate, step_rate = sane(loop.samples_per_second), sane(loop.steps_per_second)
    if rate is None:
        return None
    if steps is None or not step_rate:
        return rate * seconds
    return steps * rate / step_rate


class ReportingRank(Sums):
    """A rank that reports its loop."""

    pid: Annotated[Whole, _newer] = 0
    started_at_unix_seconds: Annotated[Number | None, _newer] = None
    number: Annotated[Whole | None, _latest] = None
    waits: Stat = field(default_factory=Stat)
    """Seconds that it waited for data."""
    steps: Annotated[Whole | None, _latest] = None

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)

    @property
    def seconds(self) -> float:
        """Time for which its loop is known to have run."""
        return self.waits.seconds


_ranks = _keyed(RANKS_KEPT)


class LoopSums(Sums):
    """Figures that a job reported of its training loops."""

    ranks: Annotated[list[ReportingRank], _ranks] = field(default_factory=list)
    spent: dict[str, Stat] = field(default_factory=dict)
    """Seconds spent, by the names of ``SHARES``."""
    seconds: Seconds = 0.0
    """Time for which a loop ran."""
    samples: Stat = field(default_factory=Stat)
    """Samples a second."""
    allocated: Stat = field(default_factory=Stat)
    reserved: Stat = field(default_factory=Stat)
    epoch: MostWhole = None
    on_device: Annotated[bool | None, _latest] = None


class LoopMeters:
    """Meters of the loops of a job's ranks."""

    def __init__(self) -> None:
        self._meters: dict[ProcessKey, LoopMeter] = {}

    def forget_gone(self, sums: LoopSums) -> None:
        """Forget the ranks that are not in ``sums``."""
        there = {rank.key for rank in sums.ranks}
        self._meters = {key: one for key, one in self._meters.items() if key in there}

    def add_job(self, job: Job, step: Step, sums: LoopSums) -> tuple[float, float | None]:
        """Add to ``sums`` what the job reports of its loops. Return for how long of the step one
        ran, and in what percent of it the ranks waited for data."""
        ranks = {rank.key: rank for rank in sums.ranks}
        numbers = {rank.key: rank.rank for rank in job.ranks}
        waits = Stat()
        longest, samples = 0.0, 0.0
        all_known = True
        for loop in job.loops:
            rank = ranks.get(loop.key)
            if rank is None:
                if len(sums.ranks) >= RANKS_KEPT:
                    continue
                pid, started = loop.key
                rank = ReportingRank(pid=pid, started_at_unix_seconds=started)
                sums.ranks.append(rank)
            rank.number = _latest(rank.number, numbers.get(loop.key))
            _note_loop(loop, rank, sums)
            meter = self._meters.setdefault(loop.key, LoopMeter())
            work = meter.work_of(loop, step.since, step.until, step.until + step.offset)
            if work.seconds <= 0.0:
                continue
            longest = max(longest, work.seconds)
            all_known = all_known and work.samples is not None
            samples += work.samples or 0.0
            for name, spent in zip(SHARES, work.spent, strict=True):
                add_spent(sums.spent.setdefault(name, Stat()), spent, work.seconds)
            for one in (rank.waits, waits):
                add_spent(one, work.spent[0], work.seconds)
        sums.seconds += longest
        if longest > 0.0 and all_known:
            sums.samples.add_value(samples / longest, longest)
        return longest, spent_percent(waits)


def _note_loop(loop: TrainingLoop, rank: ReportingRank, sums: LoopSums) -> None:
    peak = loop.memory_peak_bytes
    sums.allocated.add_value(loop.memory_allocated_bytes if peak is None else peak, 0.0)
    sums.reserved.add_value(loop.memory_reserved_bytes, 0.0)
    sums.on_device = _latest(sums.on_device, loop.compute_on_device)
    sums.epoch = _most(sums.epoch, loop.epoch)
    rank.steps = _latest(rank.steps, loop.steps)


# --- one job ----------------------------------------------------------------------------------


class JobFacts(Facts):
    """Last known facts of a job: little can be read of a process that ended."""

    command: LatestText = None
    user: LatestText = None
    working_directory: LatestText = None
    launcher: LatestText = None
    framework: LatestText = None
    world_size: Annotated[Whole | None, _latest] = None
    container: LatestText = None
    pod: LatestText = None
    slurm_job: LatestText = None
    environment: LatestText = None
    exit_code: Annotated[int | None, _latest] = None
    usable_cores: LatestNumber = None
    quota_cores: LatestNumber = None


GROWN_SINCE = 1.25
"""Growth of resident memory since the proportional one's peak from which that was read too early:
of a process that was still importing, say."""


class JobSums(UsageSums):
    """Use of one job, all its processes together."""

    facts: JobFacts = field(default_factory=JobFacts)
    ended_at_unix_seconds: Annotated[Number | None, _newer] = None
    ranks: Annotated[Whole, _most] = 0
    cpu: Stat = field(default_factory=Stat)
    throttled: Stat = field(default_factory=Stat)
    proportional: Stat = field(default_factory=Stat)
    resident: Stat = field(default_factory=Stat)
    resident_at_proportional_peak: Annotated[Number, _newer] = 0.0
    loading: LoadingSums = field(default_factory=LoadingSums)
    loop: Annotated[LoopSums | None, _merged_if_both] = None

    def merge(self, later: Self) -> None:
        if (self.proportional.high or 0.0) > (later.proportional.high or 0.0):
            later.resident_at_proportional_peak = self.resident_at_proportional_peak
        super().merge(later)

    def proportional_peak(self) -> int | None:
        """Return the peak of PSS where it is worth something. PSS is read seldom, and not yet for
        young workers: a peak over the little time in which all of it was known, or from before most
        of it was there, would leave out most of it."""
        if 2 * self.proportional.seconds < self.resident.seconds:
            return None
        if (self.resident.high or 0.0) > GROWN_SINCE * self.resident_at_proportional_peak > 0:
            return None
        return self.proportional.whole_high


class JobStatistics:
    """One job while it is seen."""

    def __init__(self, key: ProcessKey, now: float, grid: Grid | None) -> None:
        """``grid``: for time profiles, of statistics about this job alone."""
        self.sums = self._fresh(key, now)
        self._meters = LoopMeters()
        self.profiles: dict[str, Profile] = {}
        self._workers: frozenset[ProcessKey] | None = frozenset()
        """Workers in the last snapshot; ``None``: not known."""
        if grid is not None:
            self._worker = FineProfile(grid.profile(), now)
            self._main = FineProfile(grid.profile(), now)
            self.profiles = {
                "loader_worker_cpu_percent": self._worker.profile,
                "main_thread_cpu_percent": self._main.profile,
                "data_wait_percent": grid.profile(),
            }

    @staticmethod
    def _fresh(key: ProcessKey, now: float) -> JobSums:
        return JobSums(
            pid=key[0],
            started_at_unix_seconds=key[1],
            first_unix_seconds=now,
            last_unix_seconds=now,
        )

    def take_sums(self) -> JobSums:
        """Return what was counted, and count on from its end."""
        taken = self.sums
        self.sums = self._fresh(taken.key, taken.last_unix_seconds)
        if taken.loop is not None:
            self._meters.forget_gone(taken.loop)
        return taken

    def merge(self, part: JobSums) -> None:
        self.sums.merge(part)
        self._workers = None

    def add_job(
        self,
        job: Job,
        step: Step,
        busy: Mapping[GpuKey, float | None],
        memory: Mapping[ProcessKey, int],
    ) -> float:
        """Add a snapshot of the job, with the ``busy`` percent of each GPU and the GPU ``memory``
        of each process; return for how long of the step a loop of the job ran."""
        # What a rate says holds for the time since the look before; over a gap it says nothing.
        seconds = 0.0 if step.is_gap else step.seconds
        sums = self.sums
        sums.facts.note(job)
        sums.ended_at_unix_seconds = job.ended_at_unix_seconds
        sums.ranks = max(sums.ranks, len(job.ranks))
        if sums.ended_at_unix_seconds is None:
            sums.last_unix_seconds = step.until
            for uuid in job.gpu_uuids:
                sums.add_gpu(uuid, sane(busy.get(uuid), 100.0), seconds)
        keys = {job.key, *[member.key for member in job.members]}
        held = [memory[key] for key in keys if key in memory]
        if held:
            sums.add_gpu_memory(sum(held))
        self._add_members(job.members, seconds)
        sums.throttled.add_value(job.cpu_throttled_percent, seconds)
        self._workers = sums.loading.add_job(job, seconds, self._workers)
        if not step.is_gap:
            self.add_fine(job, step)
        return self._add_loops(job, step)

    def add_fine(self, job: Job, step: Step) -> None:
        """Add fine samples of its workers and main threads."""
        if self.profiles:
            self._worker.add_samples(job.loader_worker_samples, job.loader_worker_cpu_percent, step)
            self._main.add_samples(job.main_thread_samples, job.main_thread_cpu_percent, step)

    def _add_loops(self, job: Job, step: Step) -> float:
        if not job.loops or step.is_gap:
            return 0.0
        self.sums.loop = self.sums.loop or LoopSums()
        ran, waited = self._meters.add_job(job, step, self.sums.loop)
        if waited is not None and "data_wait_percent" in self.profiles:
            self.profiles["data_wait_percent"].add_value(step.since, step.until, waited)
        return ran

    def _add_members(self, members: tuple[JobMember, ...], seconds: float) -> None:
        if not members:
            return
        sums = self.sums
        cpu = total([sane(member.cpu_percent) for member in members])
        resident = total([member.memory_resident_bytes for member in members])
        each = [member.memory_proportional_bytes for member in members]
        proportional = None if None in each else total(each)
        sums.cpu.add_value(cpu, seconds)
        memory = resident if proportional is None else proportional
        sums.add_host(cpu, whole(memory), seconds)
        sums.add_storage(
            total([sane(member.read_bytes_per_second) for member in members]),
            total([sane(member.write_bytes_per_second) for member in members]),
            seconds,
        )
        if proportional is not None and proportional > (sums.proportional.high or -1.0):
            sums.resident_at_proportional_peak = resident or 0.0
        sums.proportional.add_value(proportional, seconds)
        sums.resident.add_value(resident, seconds)


# --- the machine ------------------------------------------------------------------------------

HOST_READINGS = (
    *("cpu_percent", "memory_used_bytes", "cpu_iowait_percent", "swap_used_bytes"),
    *("shm_used_bytes", "disk_read_bytes_per_second", "disk_write_bytes_per_second"),
    *("network_receive_bytes_per_second", "network_transmit_bytes_per_second"),
)
HOST_PROFILES = (
    *("cpu_percent", "memory_used_bytes", "cpu_iowait_percent"),
    *("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
    *("network_receive_bytes_per_second", "network_transmit_bytes_per_second"),
)
"""Readings of the machine that have a time profile."""


class HostFacts(Facts):
    """Last known facts of the machine."""

    core_count: Annotated[Whole | None, _latest] = None
    usable_cores: LatestNumber = None
    memory_total_bytes: Annotated[Whole | None, _latest] = None
    shm_total_bytes: Annotated[Whole | None, _latest] = None


class HostPart(ReadingsPart, kw_only=True):
    """Statistics of the machine in one part of a time."""

    facts: HostFacts


class HostStatistics:
    """The machine around the GPUs."""

    def __init__(self, grid: Grid) -> None:
        self.facts = HostFacts()
        self.readings = Readings(HOST_READINGS, HOST_PROFILES, grid)
        self._silent: Host | None = None
        """One that says nothing but its name: in a log it is the same each time."""

    def add_host(self, host: Host, step: Step) -> None:
        if host is self._silent:
            return
        if host == Host(name=host.name):
            self._silent = host
        self.facts.note(host)
        self.readings.add_readings(host, step)

    def take_part(self) -> HostPart:
        return HostPart(facts=self.facts, **self.readings.take())

    def merge(self, part: HostPart) -> None:
        self.facts.merge(part.facts)
        self.readings.merge(part)


# --- all of it together -----------------------------------------------------------------------

GPUS_KEPT = 256
JOBS_KEPT = 256
PROBLEMS_KEPT = 12
LIVE_BUCKETS = 240
"""Buckets of the time profiles of a live report: as fine as a terminal shows them."""
PART_CELLS_MOST = 480
"""A part's cells are as wide as those of a report of all the time so far would be, within"""
PART_CELL_SECONDS = (2.0, 5.0, 10.0, 15.0, 30.0)
"""these (divisors of ``OVERVIEW_SECONDS``), so that the parts of a short recording are fine and
those of a long one small."""
PART_BUCKETS = 64
"""Room for the cells of a part of a minute."""
_LATE_SECONDS = 3.0
"""Fine samples come so late at most, and belong to the cells before."""


def _problems(one: list[str], other: list[str]) -> list[str]:
    return _union(one, other)[:PROBLEMS_KEPT]


class Noted(Sums):
    """Facts of a stretch of time that do not depend on what was watched."""

    machine: LatestText = None
    simulated: Annotated[bool, _either] = False
    loop_seconds: Seconds = 0.0
    """Time for which a job that reported its own loops was in one."""
    problems: Annotated[list[Text], _problems] = field(default_factory=list)


class Part(Noted, kw_only=True):
    """Statistics of a part of a time (a minute of a recording)."""

    time: TimeSums
    gpus: list[GpuPart]
    jobs: list[JobSums] = field(default_factory=list)
    processes: ProcessesPart = field(default_factory=ProcessesPart)
    host: HostPart | None = None
    given: list[Given] | None = None
    """GPU time by whom it was given to; ``None`` in recordings of an older gpuwatch."""


class Statistics:
    """Statistics of the snapshots that are added, and of the parts that are merged."""

    def __init__(
        self, job: ProcessKey | None = None, *, live: bool = False, in_parts: bool = False
    ) -> None:
        """``job``: they are about this job alone. ``live``: without the machine, other processes,
        and all that is drawn in HTML only. ``in_parts``: they are taken out minute by minute."""
        self._job = job
        self._live = live
        self._in_parts = in_parts
        self._steps = Steps()
        self._first_unix_seconds: float | None = None
        self.grid: Grid | None = None
        self.host: HostStatistics | None = None
        self.gpus: dict[GpuKey, GpuStatistics] = {}
        self.there: frozenset[GpuKey] = frozenset()
        """GPUs in the last snapshot."""
        self.jobs: dict[ProcessKey, JobStatistics] = {}
        self.processes = ProcessesStatistics()
        self.given = GivenTime()
        self.noted = Noted()
        self.latest: Step | None = None

    @property
    def time(self) -> TimeSums:
        return self._steps.sums

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add the next snapshot of the machine."""
        self._add(snapshot, self._steps.step(snapshot), snapshot.gpus, snapshot.jobs)

    def add_job(
        self, snapshot: Snapshot, job: Job, gpus: Sequence[Gpu], since: float | None = None
    ) -> None:
        """Add the next snapshot of the job, which is on ``gpus``, and began at ``since`` if that
        was after the look before."""
        step = self._steps.step(snapshot, since=since, until=job.ended_at_unix_seconds)
        self._add(snapshot, step, gpus, (job,))

    def add_gpus(self, snapshot: Snapshot) -> None:
        """Add the GPUs of the next snapshot, and nothing else of it."""
        step = self._steps.step(snapshot)
        grid = self._grid(step.since)
        grid.reach(step.until)
        self._add_gpus(snapshot, step, snapshot.gpus, (), grid)

    def add_late(self, gpus: Iterable[Gpu], job: Job) -> None:
        """Add fine samples of the time before the end of the job, and nothing else."""
        assert self.latest is not None
        end = self.latest.end()
        for one in self.jobs.values():
            one.add_fine(job, end)
        for gpu in gpus:
            if gpu.uuid in self.there and gpu.reading.busy_samples:
                self.gpus[gpu.uuid].add_busy(gpu.reading, end)

    def is_due(self, seconds: float) -> bool:
        """Whether what was counted since the part before has a time of so many seconds."""
        time = self.time
        return time.begin is not None and time.end - time.begin >= seconds

    def take_part(self, *, last: bool = False) -> Part:
        """Return what was counted since the part before, and count on. ``last``: nothing comes
        after it."""
        assert self.grid is not None
        for gpu in self.gpus.values() if last else ():
            gpu.close_rhythm()
        part = Part(
            time=self._steps.take_sums(),
            **asdict(self.noted),
            gpus=[gpu.take_part() for gpu in self.gpus.values()],
            jobs=[job.take_sums() for job in self.jobs.values()],
            processes=self.processes.take_part(),
            host=None if self.host is None else self.host.take_part(),
            given=self.given.take(),
        )
        self.noted.loop_seconds = 0.0
        self.forget_gone_gpus()
        end = part.time.end
        for key in [key for key, one in self.jobs.items() if one.sums.last_unix_seconds < end]:
            del self.jobs[key]
        self._begin_cells(end)
        return part

    def whole_part(self) -> Part:
        """Return all that was counted, to be written down at once: it is counted on."""
        host = self.host
        return Part(
            time=self.time,
            **asdict(self.noted),
            gpus=[
                GpuPart(identity=one.identity, sums=one.sums, **one.readings.counted(exact=True))
                for one in self.gpus.values()
            ],
            jobs=[job.sums for job in self.jobs.values()],
            processes=ProcessesPart(
                used=list(self.processes.used.values()), left_out=self.processes.left_out
            ),
            host=None
            if host is None
            else HostPart(facts=host.facts, **host.readings.counted(exact=True)),
        )

    def forget_gone_gpus(self) -> None:
        """Forget the GPUs that were not in the last snapshot."""
        gone = [self.gpus.pop(uuid) for uuid in [*self.gpus] if uuid not in self.there]
        if gone and self.grid is not None:
            forgotten = {id(profile) for gpu in gone for profile in gpu.readings.profiles.values()}
            self.grid.profiles = [x for x in self.grid.profiles if id(x) not in forgotten]

    def _begin_cells(self, now: float) -> None:
        """Have the next part's cells begin ``now``."""
        assert self.grid is not None
        assert self._first_unix_seconds is not None
        wanted = (now - self._first_unix_seconds) / PART_CELLS_MOST
        width = next((one for one in PART_CELL_SECONDS if one >= wanted), PART_CELL_SECONDS[-1])
        self.grid.seconds = width
        # By the wall clock, so that the cells of one part end where those of the next begin.
        self.grid.start = math.floor((now - _LATE_SECONDS) / width) * width

    def merge(self, part: Part) -> None:
        """Add a part: of a time after all that was added so far."""
        if part.time.begin is None:
            return
        grid = self._grid(part.time.begin)
        grid.reach(part.time.end)
        self._steps.merge(part.time)
        now = self.time.end
        self.noted.merge(part)
        for gpu in part.gpus:
            uuid = gpu.identity.uuid
            if uuid not in self.gpus and len(self.gpus) < GPUS_KEPT:
                fine = not self._live
                self.gpus[uuid] = GpuStatistics(gpu.identity, grid, part.time.begin, fine=fine)
            if uuid in self.gpus:
                self.gpus[uuid].merge(gpu)
        self.there = frozenset([gpu.identity.uuid for gpu in part.gpus])
        for job in part.jobs:
            if job.key not in self.jobs and len(self.jobs) < JOBS_KEPT:
                self.jobs[job.key] = JobStatistics(job.key, job.first_unix_seconds, None)
            if job.key in self.jobs:
                self.jobs[job.key].merge(job)
        self.processes.merge(part.processes, now)
        if part.host is not None and self.host is not None:
            self.host.merge(part.host)

    def _grid(self, begin: float) -> Grid:
        if self.grid is None:
            self._first_unix_seconds = begin
            self.grid = Grid(begin, LIVE_BUCKETS if self._live else BUCKETS_MAX)
            if self._in_parts:
                self.grid = Grid(begin, PART_BUCKETS)
                self._begin_cells(begin)
            self.host = None if self._live else HostStatistics(self.grid)
        return self.grid

    def _add(
        self, snapshot: Snapshot, step: Step, gpus: Sequence[Gpu], jobs: Sequence[Job]
    ) -> None:
        grid = self._grid(step.since)
        grid.reach(step.until)
        self.latest = step
        self.noted.machine = snapshot.host.name
        self.noted.simulated = self.noted.simulated or snapshot.simulated
        if self.host is not None:
            self.host.add_host(snapshot.host, step)
        self._add_gpus(snapshot, step, gpus, jobs, grid)
        self._add_jobs(snapshot, step, jobs, grid)
        seconds = 0.0 if step.is_gap else step.seconds
        if not self._live:
            self.processes.add_snapshot(snapshot, jobs, step.until, seconds)
        self._note_problems(snapshot)

    def _add_gpus(
        self, snapshot: Snapshot, step: Step, gpus: Sequence[Gpu], jobs: Sequence[Job], grid: Grid
    ) -> None:
        tenants = self._tenants(snapshot, jobs)
        if self._job is None:
            self.given.note_owners(snapshot)
        for gpu in without_late(tuple(gpus)):
            uuid = gpu.uuid
            one = self.gpus.get(uuid)
            if one is None:
                if len(self.gpus) >= GPUS_KEPT:
                    continue
                one = GpuStatistics(gpu.identity, grid, step.until, fine=not self._live)
                self.gpus[uuid] = one
            span = step
            if uuid not in self.there:
                # Since when it is there is not known.
                span = step.end()
                one.arrive(step.until)
            watched, busy = one.sums.watched_seconds, one.sums.busy_seconds
            used_by = None if tenants is None else tenants.get(uuid, (None, ()))
            one.add_reading(gpu, span, snapshot.taken_at_unix_seconds - step.offset, used_by)
            watched, busy = one.sums.watched_seconds - watched, one.sums.busy_seconds - busy
            self.given.add_time(uuid, 0.0 if span.is_gap else span.seconds, watched, busy)
        self.there = frozenset([gpu.uuid for gpu in gpus if gpu.uuid in self.gpus])

    def _tenants(self, snapshot: Snapshot, jobs: Sequence[Job]) -> dict[GpuKey, Tenants] | None:
        """Return the tenants of the GPUs of the job that the statistics are about; its own
        processes have left them when it has ended."""
        if self._job is None or not jobs or jobs[0].ended_at_unix_seconds is not None:
            return None
        own = {jobs[0].pid, *[member.pid for member in jobs[0].members]}
        found: dict[GpuKey, tuple[list[int | None], list[str | None]]] = {}
        for process in snapshot.processes:
            mine, others = found.setdefault(process.gpu_uuid or "", ([], []))
            if process.pid in own:
                mine.append(process.gpu_memory_bytes)
            elif process.gpu_kind != "graphics":
                # A desktop draws on nearly every workstation's GPU and is no tenant.
                others.append(process.user)
        return {uuid: (total(mine), others) for uuid, (mine, others) in found.items()}

    def _add_jobs(self, snapshot: Snapshot, step: Step, jobs: Sequence[Job], grid: Grid) -> None:
        busy = {gpu.uuid: gpu.reading.busy_percent for gpu in snapshot.gpus}
        memory = gpu_memory(snapshot)
        ran = 0.0
        for job in jobs:
            # A job goes on by another name when its launcher has ended.
            key = self._job or job.key
            one = self.jobs.get(key)
            if one is None:
                if len(self.jobs) >= JOBS_KEPT:
                    continue
                alone = grid if self._job is not None else None
                one = self.jobs[key] = JobStatistics(job.key, step.since, alone)
            ran = max(ran, one.add_job(job, step, busy, memory))
        self.noted.loop_seconds += ran

    def _note_problems(self, snapshot: Snapshot) -> None:
        for problem in snapshot.problems:
            gpu = self.gpus.get(problem.target or "")
            if self._job is not None and problem.target is not None and gpu is None:
                continue
            if problem.severity != "info":
                self.noted.problems = _problems(self.noted.problems, [problem.message])
            if gpu is not None and problem.reading in ("busy_percent", "busy_samples", None):
                gpu.sums.missing = problem.message
