"""How many GPUs a log is of whose rows do not say which GPU they are about.

The rows of one moment come close together, as many as there are GPUs, and then there is a pause:
where that rhythm is plain it decides. It is plain only if the size repeats, since a hiccup of the
logger makes groups of any size. Readings decide the rest: GPUs keep their memory and temperatures
from moment to moment, where one GPU's rows are most like the row before. A change that all GPUs
share, such as the start of a job, says nothing. Where these do not agree a person is asked.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
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
_FASTEST_POLL_SECONDS = 0.008
"""Rows that come faster are seldom looks at one GPU, since ``nvidia-smi`` takes longer for each."""
_STAMPS_BLUR_SECONDS = 0.002
"""Steps shorter than this are all alike: rows of one moment have the same millisecond or not."""
_SCATTERED_SHARE = 0.5
"""Of the groups at most have the same size where chance made them."""
_HOLES_MOST = 3
_LIKE = 0.4
_UNLIKE = 1.25
"""A row differs so much less from the same GPU's row before than from its neighbour; and so much
more where both are of one GPU, whose readings drift."""
_WIDER = 1.1
"""Rows of one GPU that are half a group apart differ so much more than neighbours."""
_JUMP = 4.0
"""Times the usual change: what is larger counts as this, so that one jump does not outweigh all."""
_CHANGES_LEAST = 8
"""So often must a reading change before its drift says anything."""
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


def group(rows: Sequence[Row | None], *, whole_seconds: bool = False) -> Grouping:
    """Of the first rows of a log; ``None`` among them stands where a moment ends for certain.
    ``whole_seconds``: its stamps say no less."""
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
    steps = [after - before for before, after in pairwise(times)]
    usual_gap = statistics.median(steps)
    # A clock that was set back says nothing.
    gaps = [step if step >= 0.0 else usual_gap for step in steps]
    border, within, between = _border(gaps)
    begins = [place for place, gap in enumerate(gaps, 1) if gap > border]
    sizes = [b - a for a, b in pairwise([0, *begins, len(found)])]
    # The first and the last may be cut off.
    size, share = _usual(sizes[1:-1] or sizes)
    usual = share >= _USUAL_SHARE and 1 < size <= GPUS_MOST
    at_once = within <= SAME_MOMENT_SECONDS
    # A hole or two make groups of a size, too.
    often = len(sizes) > _HOLES_MOST + 1
    parted = usual and between >= _APART * within and between > 0.0 and (at_once or often)
    close = at_once or within * size <= between
    many = usual and (_likeness(found, size) or _UNLIKE) < _LIKE
    one = not many and _drifts(found, gaps, border, size)
    # One GPU that is read several times a second looks the same by stamps of a second.
    told = not (whole_seconds and between <= 1.0)
    if many or (parted and close and told and not one):
        return Grouping(size, border, size)
    totals = [row.identity.get("memory_total_bytes", 0) for row in found]
    # What used and free memory add up to moves by some MiB.
    one_kind = min(totals) >= 0.98 * max(totals) and len(_names(found)) == 1
    shortest, longest = (sorted(gaps)[len(gaps) * twentieth // 20] for twentieth in (1, 19))
    steady = shortest > _STEADY * usual_gap and not parted
    scattered = share < _SCATTERED_SHARE or longest < usual_gap / _STEADY or not often
    slow = usual_gap >= _FASTEST_POLL_SECONDS
    # Or all in bursts, too large to be of one moment or of stamps in whole seconds.
    bursts = size > GPUS_MOST or all(at % 1.0 == 0.0 for at in times)
    if one_kind and ((slow and (one or (steady and scattered))) or (one and bursts)):
        return Grouping(1)
    return Grouping(None, border, size if 1 < size <= GPUS_MOST else _alike(found))


def _usual(sizes: Sequence[int]) -> tuple[int, float]:
    """The size that most have, and the share that has it."""
    size, times = Counter(sizes).most_common(1)[0]
    return size, times / len(sizes)


def _border(gaps: Sequence[float]) -> tuple[float, float, float]:
    """Between the gaps within moments and those between them: where the sorted gaps leap most; then
    the usual longest of the one kind and the usual one of the other. Few long ones are hiccups."""
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
        values = [each[field] for each in every if field in each]
        if len(values) == len(rows):
            yield values


def _changes(values: Sequence[float], apart: int = 1) -> list[float]:
    return [abs(after - before) for before, after in zip(values, values[apart:], strict=False)]


def _most(near: Sequence[float]) -> float:
    """What a change counts at most, by how much neighbours differ."""
    return _JUMP * statistics.median([change for change in near if change > 0.0] or [0.0])


def _mean(changes: Sequence[float], most: float) -> float:
    return statistics.fmean(min(change, most) for change in changes) if changes else 0.0


def _likeness(rows: Sequence[Row], size: int) -> float | None:
    """How much rows ``size`` apart differ, as a share of how much neighbours do; the least of the
    slow readings. ``None`` where none differs."""
    found: list[float] = []
    for values in _series(rows) if 1 < size < len(rows) else ():
        changes = _changes(values)
        most = _most(changes)
        near = _mean(changes, most)
        if near > 0.0:
            found.append(_mean(_changes(values, size), most) / near)
    return min(found, default=None)


def _drifts(rows: Sequence[Row], gaps: Sequence[float], border: float, size: int) -> bool:
    """True where a reading moves from row to row as one GPU's does: by as much within a group as
    from one group to the next, and by more the further two rows are apart."""
    size = size if 1 < size < len(rows) // 3 else 4
    for values in _series(rows):
        changes = _changes(values)
        most = _most(changes)
        inside = [each for each, gap in zip(changes, gaps, strict=True) if gap <= border]
        across = [each for each, gap in zip(changes, gaps, strict=True) if gap > border]
        if sum(each > 0.0 for each in inside) < _CHANGES_LEAST:
            continue
        near, far = _mean(inside, most), _mean(_changes(values, size), most)
        next_group = _mean(across, most) if across else near
        wide = _mean(_apart_in_groups(values, gaps, border, max(2, size // 2)), most)
        grows = wide > _WIDER * near or size < 3
        if far >= _UNLIKE * near and next_group < (near * far) ** 0.5 and grows:
            return True
    return False


def _apart_in_groups(
    values: Sequence[float], gaps: Sequence[float], border: float, apart: int
) -> list[float]:
    """The changes of rows ``apart`` in the same group."""
    parted = [0, *accumulate(gap > border for gap in gaps)]
    changes = enumerate(_changes(values, apart))
    return [each for place, each in changes if parted[place] == parted[place + apart]]


def _alike(rows: Sequence[Row]) -> int:
    """The number of GPUs by which each row is like one before, though not like its neighbour."""
    for size in range(2, min(GPUS_MOST, len(rows) // 3) + 1):
        alike = _likeness(rows, size)
        if alike is not None and alike < _LIKE:
            return size
    return 1
