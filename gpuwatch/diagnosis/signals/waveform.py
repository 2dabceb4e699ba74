"""The shape of a utilisation signal: duty cycle, busy and idle runs, and their period.

The driver's samples are themselves means over 1/6 to 1 second, which limits what can be seen: an
edge falls inside a sample and gives it any value, and what swings within a sample is a middling
line, which nothing can tell from steady partial use.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import mul, sub
from typing import Any

from gpuwatch.core.model.records import dataclass

# --- samples ----------------------------------------------------------------------------------


class Samples(Sequence[tuple[float, float]]):
    """(time, value) pairs, oldest first, kept as two lists."""

    __slots__ = ("_times", "_values")

    def __init__(self, times: list[float], values: list[float]) -> None:
        self._times = times
        self._values = values

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self._times, self._values, strict=True)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return list(zip(self._times[place], self._values[place], strict=True))
        return self._times[place], self._values[place]

    def after(self, since: float) -> Samples:
        """Return the samples later than ``since``."""
        begin = bisect_right(self._times, since)
        return Samples(self._times[begin:], self._values[begin:])


def columns(samples: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the times and the values of (time, value) samples."""
    if isinstance(samples, Samples):
        return samples._times, samples._values
    times, values = [list(column) for column in zip(*samples, strict=True)] or ([], [])
    return times, values


# --- the period of a signal that goes up and down ---------------------------------------------

CELLS_MAX = 4096
"""Longest window looked at, in samples."""
SWING_PERCENT = 35.0
"""The signal must reach this far from its 5th to its 95th percentile: from the trigger's idle to
its busy threshold."""
SHORT_SAMPLES = 4.0
"""Shorter periods than so many samples must reach both ends: a swing faster than two samples beats
with the sampling and looks like a slow one, but smaller (one of 1.5 samples like one of 3, between
24% and 76%)."""
SHORT_LOW_PERCENT = 10.0
SHORT_HIGH_PERCENT = 90.0
CLEAR = 0.4
"""Least correlation at the period. White noise over 60 samples stays below 0.3; edges that wander
by a tenth of the period leave 0.7, by a quarter 0.4."""
BY_CHANCE = 2.1
"""Correlation that few cycles reach by chance: twice its standard error (1 over the root of their
number) and a little. A line of a few runs of any length reaches 0.4 to 0.6 at some lag."""
ALIKE, LESS_IF_ALIKE = 0.25, 0.7
"""Less where the distances of its turns to busy are alike (standard deviation over mean): steps
stay below 0.2, waits of any length are mostly above 0.3."""
NEARLY_BEST = 0.8
"""The shortest lag that comes this close to the best one: its multiples are as good."""
STILL_GOOD = 0.75
"""How much of the correlation a multiple must keep to refine the period."""
AGREES = 0.15
"""Turns to busy this close to the correlation's period, or to a part of it, give it more exactly:
they are a mean over all cycles, not one lag. (Of a short period that is no whole number of
samples only a multiple repeats itself exactly.)"""
LEAST_SAMPLES = 2.4
"""Below this many samples a cycle, turns are missed and the mean of what is left is no period."""
PARTS_MAX = 6
PART_CLEAR = 0.5
"""How far the correlation at the parts of a period must stand above that between them."""
CYCLES_MIN = 3


def _correlations(
    times: Sequence[float], values: Sequence[float], step: float, middle: float
) -> tuple[list[float], int]:
    """Return the correlation at each lag (1 where the signal repeats itself exactly, about 0 by
    chance), up to a third of what was seen, and which lag is the last that may be a period."""
    high, seen, count = _bits(times, values, step, middle)
    known, last = seen.bit_count(), count // CYCLES_MIN
    share = high.bit_count() / max(1, known)
    by_chance = share * share + (1.0 - share) * (1.0 - share)
    if by_chance >= 1.0:
        return [0.0] * (last + 2), last
    lags, rest = range(last + 2), 1.0 - by_chance
    others = [((high ^ (high >> lag)) & seen & (seen >> lag)).bit_count() for lag in lags]
    if known == count:
        pairs = list(range(count, count - last - 2, -1))
    else:
        pairs = [(seen & (seen >> lag)).bit_count() for lag in lags]
    return [
        (rest - other / of) / rest if of else 0.0 for other, of in zip(others, pairs, strict=True)
    ], last


def _bits(
    times: Sequence[float], values: Sequence[float], step: float, middle: float
) -> tuple[int, int, int]:
    """Return the signal above its middle, where it was seen, and how many cells the grid of
    ``step`` has; the first cell is the highest bit."""
    above = [value > middle for value in values]
    origin = times[0]
    count = round((times[-1] - origin) / step) + 1
    if count == len(times) <= CELLS_MAX:
        # Nothing is missing, so the order is the grid.
        return int(bytes(above).translate(_DIGITS), 2), (1 << count) - 1, count
    count = min(CELLS_MAX, count)
    high, seen = bytearray(count), bytearray(count)
    for at, one in zip(times, above, strict=True):
        cell = round((at - origin) / step)
        if cell >= count:
            break
        seen[cell] = 1
        high[cell] = one
    return int(high.translate(_DIGITS), 2), int(seen.translate(_DIGITS), 2), count


_DIGITS = bytes([48, 49]) + bytes(254)


def find_period(
    times: Sequence[float],
    values: Sequence[float],
    step: float,
    *,
    levels: tuple[float, float, float, float],
    rises: Sequence[float],
) -> float | None:
    """Return the seconds a cycle takes, where at least three cycles show a clear rhythm; otherwise
    ``None``.

    ``step`` is the distance of the samples, ``levels`` are their lowest, 5th and 95th percentile
    and highest, ``rises`` the distances of the turns to busy.
    """
    lowest, low, high, highest = levels
    if len(rises) < CYCLES_MIN - 1 or highest - lowest < SWING_PERCENT:
        return None
    found, last = _correlations(times, values, step, (highest + lowest) / 2.0)
    lag = _first_peak(found, last)
    if lag is None or not _is_rhythm(max(found[lag : last + 1]), rises):
        return None
    cells = _by_multiples(found, _divided(found, _between(found, lag)), last)
    period = _with_rises(cells * step, rises)
    at_ends = low <= SHORT_LOW_PERCENT and high >= SHORT_HIGH_PERCENT
    short = SHORT_SAMPLES * step
    beats = sum(rises) / len(rises) < min(short, period / 1.3)
    if period < LEAST_SAMPLES * step or beats or (period < short and not at_ends):
        return None
    return period


def _is_rhythm(best: float, rises: Sequence[float]) -> bool:
    mean = sum(rises) / len(rises)
    spread = math.sqrt(sum([(rise - mean) ** 2 for rise in rises]) / len(rises))
    alike = spread <= ALIKE * mean
    needed = BY_CHANCE * (LESS_IF_ALIKE if alike else 1.0)
    return best >= needed / math.sqrt(len(rises) + 1)


def _first_peak(found: Sequence[float], last: int) -> int | None:
    lag = 1
    while lag <= last and found[lag] > 0.1:
        lag += 1
    # Before the first descent every lag only says that neighbours are alike.
    peaks = [
        at
        for at in range(max(2, lag), last + 1)
        if found[at] >= CLEAR and found[at - 1] <= found[at] >= found[at + 1]
    ]
    if not peaks:
        return None
    best = max([found[at] for at in peaks])
    return next(at for at in peaks if found[at] >= NEARLY_BEST * best)


def _between(found: Sequence[float], lag: int) -> float:
    """Return the top of the parabola through the peak and its neighbours."""
    left, top, right = found[lag - 1], found[lag], found[lag + 1]
    bend = left - 2.0 * top + right
    return float(lag) if bend >= 0.0 else lag + 0.5 * (left - right) / bend


def _divided(found: Sequence[float], period: float) -> float:
    """Return the part of a period that is as good; of a period that is no whole number of samples,
    the first lag that repeats well is a multiple."""
    for parts in range(PARTS_MAX, 1, -1):
        part = period / parts
        if part < LEAST_SAMPLES:
            continue
        at = sum([found[round(number * part)] for number in range(1, parts)]) / (parts - 1)
        off = sum([found[round((number + 0.5) * part)] for number in range(parts)]) / parts
        if at - off >= PART_CLEAR:
            return part
    return period


def _by_multiples(found: Sequence[float], period: float, last: int) -> float:
    """Return the period by its multiples: a whole number of samples is a poor measure of a short
    period and a good one of many."""
    least = STILL_GOOD * max(found[max(1, int(period)) : int(period) + 2])
    multiple = 2
    while multiple * period <= last:
        reach = max(1, int(0.3 * period))
        around = round(multiple * period)
        lags = range(max(1, around - reach), min(last, around + reach) + 1)
        if not lags:
            break
        peak = max(lags, key=lambda lag: found[lag])
        if found[peak] < least:
            break
        if peak in (lags[0], lags[-1]):
            multiple += 1
            continue
        period = _between(found, peak) / multiple
        multiple += 1
    return period


def _with_rises(period: float, rises: Sequence[float]) -> float:
    mean = sum(rises) / len(rises)
    cycles = max(1, round(period / mean))
    return mean if abs(mean * cycles - period) <= AGREES * mean else period


# --- the waveform -----------------------------------------------------------------------------

BUSY_PERCENT = 60.0
IDLE_PERCENT = 25.0
"""The trigger turns to busy at the first and to idle at the second; in between it stays as it was.

A burst of length L in the worst phase is split over two samples, L/2 each: from 1.2 samples on
one of them reaches 60%, and an idle stretch from 1.5 samples on brings one down to 25%. Nearer
together, one edge sample could turn the trigger twice; further apart, short runs were missed.
25% also lets an idle stretch hold the odd copy or logging kernel. Both edges together lengthen a
busy run by 0.15 samples on average, which is less than an edge can be placed to."""

GAP_SAMPLES = 2.5
"""Samples further apart than this many times their median distance have a gap between them."""

SILENT_PERCENT = 1.0
"""No kernel runs: a monitor or a display causes a few tenths."""
LENGTH_SECONDS, LENGTH_SAMPLES, CYCLE_SAMPLES = 3.0, 2.0, 6.0
"""Shorter idling is a wait for a batch; of fewer samples, with the work behind it, it may be many
short ones, some of which samples hit by chance."""
END_LOW_PERCENT = 10.0
END_HIGH_PERCENT = 90.0
NEITHER_END_SHARE = 0.6
"""Share of samples at neither end from which a signal is partial use, or swings faster than can be
seen: a slower swing fills whole samples with either."""
NEIGHBOURS_DIFFER_PERCENT = 40.0
"""Mean step between neighbours up to which such a line counts as one. A swing of 1.5 samples
beats with the sampling and still steps 35; one that is seen steps more, or reaches the ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Stretches of one kind (busy or idle) that began and ended inside what was seen."""

    count: int
    mean_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waveform:
    """Facts of one GPU's busy signal over a window."""

    seconds: float
    """Time covered by samples; gaps are not in it."""
    sample_seconds: float
    """Median distance of the samples: nothing faster than twice this can be seen."""
    mean_percent: float
    low_percent: float
    high_percent: float
    """5th and 95th percentile of the samples."""
    duty: float
    """0 to 1: share of the time in busy runs (Schmitt trigger). Where the trigger never turned
    and the samples lie between its thresholds, their mean (it is itself a share of time)."""
    busy: Runs
    idle: Runs
    period_seconds: float | None = None
    """From one busy run to the next where at least three cycles show a rhythm."""
    faster_than_seen: bool = False
    """Samples at neither end most of the time: it may swing faster than they can show."""
    middling_share: float = 0.0
    """Share of the samples between the two thresholds of the trigger."""

    @property
    def reaches_both_ends(self) -> bool:
        return self.low_percent <= 15.0 and self.high_percent >= 70.0

    @property
    def swing_seconds(self) -> float | None:
        """Mean time from one burst of work to the next, in a rhythm or not, where it goes all the
        way down and up; ``None``: it does not."""
        if not self.reaches_both_ends:
            return None
        if self.period_seconds is not None:
            return self.period_seconds
        idle, busy = self.idle.mean_seconds, self.busy.mean_seconds
        return None if idle is None or busy is None else idle + busy

    @property
    def is_swinging(self) -> bool:
        """Check whether it goes all the way down and up again, in runs that samples can show."""
        return self.idle.count >= 3 and self.reaches_both_ends

    @property
    def waits_long(self) -> bool:
        """Check whether its idle runs last for seconds, and for more samples than one."""
        least = max(LENGTH_SECONDS, LENGTH_SAMPLES * self.sample_seconds)
        return (self.idle.mean_seconds or 0.0) >= least

    @property
    def idles_at_length(self) -> bool:
        """Check whether it idles once or twice, or for seconds on end and without a rhythm, and
        works otherwise; or never works. Steps look different."""
        if self.mean_percent < SILENT_PERCENT:
            return True
        # Four whole runs have a third idle one before, behind or among them.
        few = self.idle.count + self.busy.count < 4
        cycle = (self.idle.mean_seconds or 0.0) + (self.busy.mean_seconds or 0.0)
        long = self.waits_long and cycle >= CYCLE_SAMPLES * self.sample_seconds
        long = long and self.period_seconds is None
        return self.reaches_both_ends and self.middling_share < 0.3 and (few or long)


@dataclass(slots=True)
class _Trace:
    busy: list[float]
    idle: list[float]
    busy_seconds: float
    rises: list[float]
    """Distances between neighbouring turns to busy that have no gap between them."""


def analyse(
    samples: Sequence[tuple[float, float]], *, sample_seconds: float | None = None
) -> Waveform | None:
    """Return the shape of ``samples``: (seconds on any clock, percent), each the mean over the time
    since the one before.

    ``sample_seconds`` is the distance they should have, where it is known; by default their
    median distance. Samples that do not come later than the one before are left out. ``None`` for
    fewer than two.
    """
    times, values = columns(samples)
    spacings = list(map(sub, times[1:], times))
    if min(spacings, default=0.0) <= 0.0:
        times, values = _ascending(samples)
        spacings = list(map(sub, times[1:], times))
    if not spacings:
        return None
    step = sample_seconds if sample_seconds is not None else sorted(spacings)[len(spacings) // 2]
    longest = GAP_SAMPLES * step
    lengths, gaps = [step, *spacings], list[int]()
    if max(spacings) > longest:
        gaps = [at for at, length in enumerate(lengths) if length > longest]
        lengths = [length if length <= longest else step for length in lengths]
    seconds = sum(lengths)
    trace = _trigger(times, values, lengths, gaps)
    ordered = sorted(values)
    low, high = percentile(ordered, 0.05), percentile(ordered, 0.95)
    levels = (ordered[0], low, high, ordered[-1])
    period = find_period(times, values, step, levels=levels, rises=trace.rises)
    return Waveform(
        seconds=seconds,
        sample_seconds=step,
        mean_percent=sum(map(mul, values, lengths)) / seconds,
        low_percent=low,
        high_percent=high,
        duty=min(1.0, max(0.0, trace.busy_seconds / seconds)),
        busy=_runs(trace.busy),
        idle=_runs(trace.idle),
        period_seconds=period,
        faster_than_seen=period is None and _at_neither_end(values, ordered),
        middling_share=_share_between(ordered, IDLE_PERCENT, BUSY_PERCENT),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of values in ascending order (one at least), between neighbours in
    proportion."""
    at = share * (len(ordered) - 1)
    below = int(at)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (at - below) * (ordered[below + 1] - ordered[below])


def _ascending(samples: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    kept_times: list[float] = []
    kept_values: list[float] = []
    newest = -math.inf
    for at, percent in samples:
        if at > newest:
            kept_times.append(at)
            kept_values.append(percent)
            newest = at
    return kept_times, kept_values


_RUNS = re.compile(r"b[bm]*|i[im]*")
"""Samples that are busy, idle or middling: a run goes on until the trigger turns."""


def _trigger(
    times: list[float], values: list[float], lengths: list[float], gaps: list[int]
) -> _Trace:
    """Find runs by the two thresholds. What lies before the first clear sample of a stretch without
    gaps belongs to that sample's run."""
    kinds = "".join(
        ["b" if one >= BUSY_PERCENT else "i" if one <= IDLE_PERCENT else "m" for one in values]
    )
    found = _Trace([], [], 0.0, [])
    for begin, end in pairwise([0, *gaps, len(values)]):
        turns = [run.start() for run in _RUNS.finditer(kinds, begin, end)]
        if not turns:
            found.busy_seconds += sum(map(mul, lengths[begin:end], values[begin:end])) / 100.0
            continue
        runs = list(pairwise([begin, *turns[1:], end]))
        for number, (first, last) in enumerate(runs):
            # Within a stretch, what lies between two samples is the distance of their stamps.
            since = times[first - 1] if number else times[first] - lengths[first]
            is_busy, seconds = kinds[turns[number]] == "b", times[last - 1] - since
            found.busy_seconds += seconds * is_busy
            if 0 < number < len(runs) - 1:
                (found.busy if is_busy else found.idle).append(seconds)
        rises = [times[turn] for turn in turns[1:] if kinds[turn] == "b"]
        found.rises += map(sub, rises[1:], rises)
    return found


def _runs(lengths: list[float]) -> Runs:
    return Runs(count=len(lengths), mean_seconds=sum(lengths) / len(lengths) if lengths else None)


def _at_neither_end(values: list[float], ordered: list[float]) -> bool:
    if _share_between(ordered, END_LOW_PERCENT, END_HIGH_PERCENT) < NEITHER_END_SHARE:
        return False
    steps = sum(map(abs, map(sub, values[1:], values)))
    return bool(steps <= NEIGHBOURS_DIFFER_PERCENT * (len(values) - 1))


def _share_between(ordered: list[float], low: float, high: float) -> float:
    return max(0, bisect_left(ordered, high) - bisect_right(ordered, low)) / len(ordered)
