"""The shape of a utilisation signal: duty cycle, busy and idle runs, their rhythm.

The driver's samples are themselves means over 1/6 to 1 second, which limits what can be seen: an
edge falls inside a sample and gives it any value, and what swings within a sample is a middling
line, which nothing can tell from steady partial use.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import mul, sub

from gpuwatch.core.model.records import dataclass
from gpuwatch.diagnosis.signals.rhythm import find_period
from gpuwatch.diagnosis.signals.running import columns

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
"""What swings between idle and busy slower than twice the sample distance fills whole samples
with either; with six of ten samples at neither end it is partial use, or faster."""
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
    """The shape of ``samples``: (seconds on any clock, percent), each the mean over the time since
    the one before.

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
    """Of values in ascending order, at least one, between neighbours in proportion."""
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
    """Runs by the two thresholds. What lies before the first clear sample of a stretch without
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
