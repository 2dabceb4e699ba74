"""The period of a signal that goes up and down.

The autocorrelation is taken of one bit a sample (above or below the middle): for a signal that
swings between two levels it says the same as that of the values (the polarity-coincidence
correlator), and a whole window of bits is one integer, so that a lag costs a shift and a count.
"""

import math
from collections.abc import Sequence

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
"""Of few cycles more is asked: twice the standard error of a correlation (1 over the root of their
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
    """The correlation at each lag (1 where the signal repeats itself exactly, about 0 by chance),
    up to a third of what was seen, and which lag is the last that may be a period."""
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
    """The signal above its middle, where it was seen, and how many cells the grid of ``step``
    has; the first cell is the highest bit."""
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
    """Seconds a cycle takes, where at least three cycles show a clear rhythm; otherwise ``None``.

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
    """The top of the parabola through the peak and its neighbours."""
    left, top, right = found[lag - 1], found[lag], found[lag + 1]
    bend = left - 2.0 * top + right
    return float(lag) if bend >= 0.0 else lag + 0.5 * (left - right) / bend


def _divided(found: Sequence[float], period: float) -> float:
    """Its part that is as good a period; of a period that is no whole number of samples, the
    first lag that repeats well is a multiple."""
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
    """A whole number of samples is a poor measure of a short period; of many periods a good one."""
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
