"""How many GPUs a log is of whose rows do not say which GPU they are about.

The rows of one moment come close together, as many as there are GPUs: the size that most groups
have. A hiccup of the logger makes groups too, of any size, so the size must repeat; and the GPUs
keep their memory and temperatures from moment to moment, where one GPU's rows are most like the row
before. Where these do not agree nothing is guessed: a person is asked.
"""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.sources.smi_log.rows import Row

ROWS_LOOKED_AT = 600
GPUS_MOST = 32
SAME_MOMENT_SECONDS = 0.03
"""``nvidia-smi`` writes the rows of its GPUs within milliseconds; looks are seldom so close."""
_USUAL_SHARE = 0.75
"""Of the groups have the size that counts: hiccups and lost rows make the others."""
_APART = 3.0
"""Times as long as between the rows of one moment is at least between two moments."""
_STEADY = 0.4
"""A gap of rows at one rhythm is seldom shorter than this share of the usual one."""
_LIKE = 0.4
_UNLIKE = 1.25
"""A row differs so much less from the same GPU's row before than from its neighbour; and so much
more where both are of one GPU, whose readings drift."""
_CYCLES_LEAST = 8
"""So often do rows without times repeat exactly before that is no chance."""
_SLOW = ("memory_used_bytes", "temperature_celsius", "power_limit_watts", "fan_percent")
"""Readings that move slowly, and differ between GPUs."""


class Grouping(NamedTuple):
    gpus: int | None
    """``None``: a person has to say."""
    gap_seconds: float | None = None
    """What is longer parts two moments."""
    proposed: int = 1
    sure: bool = True


def group(rows: Sequence[Row | None]) -> Grouping:
    """Of the first rows of a log; ``None`` among them stands where a moment ends for certain."""
    found = [row for row in rows if row is not None]
    ends = [place for place, row in enumerate([*rows, None]) if row is None]
    marked = [size for size in (b - a - 1 for a, b in pairwise([-1, *ends])) if size]
    if len(marked) > 2 and max(marked) <= GPUS_MOST:
        size, usual = _usual(marked)
        return Grouping(size if usual else None, None, size)
    times = [row.at_unix_seconds for row in found if row.at_unix_seconds is not None]
    if len(times) < max(2, len(found)):
        size = _alike(found)
        cycles = _likeness(found, size) == 0.0 and len(found) >= _CYCLES_LEAST * size
        return Grouping(size if size == 1 or cycles else None, None, size, sure=cycles)
    steps = [after - before for before, after in pairwise(times)]
    usual_gap = statistics.median(steps)
    # A clock that was set back says nothing.
    gaps = [step if step >= 0.0 else usual_gap for step in steps]
    border, within, between = _border(gaps)
    begins = [place for place, gap in enumerate(gaps, 1) if gap > border]
    sizes = [b - a for a, b in pairwise([0, *begins, len(found)])]
    # The first and the last may be cut off.
    size, usual = _usual(sizes[1:-1] or sizes)
    alike = _likeness(found, size)
    close = within <= SAME_MOMENT_SECONDS or within * size <= between
    clear = between >= _APART * within and close and (alike or 0.0) < _UNLIKE
    if usual and (clear or (alike is not None and alike < _LIKE)) and 1 < size <= GPUS_MOST:
        return Grouping(size, border, size)
    totals = [row.identity.get("memory_total_bytes", 0) for row in found]
    # What used and free memory add up to moves by some MiB.
    one_kind = min(totals) >= 0.98 * max(totals) and len(_names(found)) == 1
    steady = sorted(gaps)[len(gaps) // 20] > _STEADY * usual_gap
    drifts = _alike(found) == 1 and any(len(set(each)) > 2 for each in _series(found))
    # Or bursts of any size in which each row is most like the one before: one GPU's, held up.
    if one_kind and (steady or drifts):
        return Grouping(1)
    return Grouping(None, border, size if 1 < size <= GPUS_MOST else _alike(found))


def _usual(sizes: Sequence[int]) -> tuple[int, bool]:
    size, times = Counter(sizes).most_common(1)[0]
    return size, times >= _USUAL_SHARE * len(sizes)


def _border(gaps: Sequence[float]) -> tuple[float, float, float]:
    """Between the gaps within moments and those between them: where the sorted gaps leap most; then
    the longest of the one kind and the usual one of the other. Few long ones are hiccups."""
    known = sorted(gap + 1e-4 for gap in gaps)
    if known[-1] <= SAME_MOMENT_SECONDS:
        return SAME_MOMENT_SECONDS, 0.0, 1.0
    last = len(gaps) - max(1, len(gaps) // (2 * GPUS_MOST))
    leaps = [known[place + 1] / known[place] for place in range(last)] or [1.0]
    place = max(range(len(leaps)), key=leaps.__getitem__)
    between = statistics.median(known[place + 1 :] or [0.0])
    return known[place] * min(leaps[place], 100.0) ** 0.5, known[place], between


def _names(rows: Sequence[Row]) -> list[str]:
    return sorted({row.identity.get("name", "") for row in rows})


def _series(rows: Sequence[Row]) -> Iterator[list[float]]:
    names = _names(rows)
    yield [names.index(row.identity.get("name", "")) for row in rows]
    every = [{**row.identity, **row.reading} for row in rows]
    for field in ("memory_total_bytes", *_SLOW):
        values = [each[field] for each in every if field in each]
        if len(values) == len(rows):
            yield values


def _likeness(rows: Sequence[Row], size: int) -> float | None:
    """How much rows ``size`` apart differ, as a share of how much neighbours do; the least of the
    slow readings. ``None`` where none differs."""
    found: list[float] = []
    for values in _series(rows) if 1 < size < len(rows) else ():
        near = statistics.fmean(abs(after - before) for before, after in pairwise(values))
        far = statistics.fmean(abs(a - b) for a, b in zip(values, values[size:], strict=False))
        if near > 0.0:
            found.append(far / near)
    return min(found, default=None)


def _alike(rows: Sequence[Row]) -> int:
    """The number of GPUs by which each row is like one before, though not like its neighbour."""
    for size in range(2, min(GPUS_MOST, len(rows) // 3) + 1):
        alike = _likeness(rows, size)
        if alike is not None and alike < _LIKE:
            return size
    return 1
