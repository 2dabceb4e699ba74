"""The beginning of a young job's steady work.

Before its first steps a job imports, indexes its data, warms up its loader, compiles and tunes:
CPUs are busy, the GPU idles or flickers. Nothing of that says how it will be fed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from gpuwatch.diagnosis.signals.waveform import BUSY_PERCENT, GAP_SAMPLES, IDLE_PERCENT

LONGEST_SECONDS = 180.0
"""A job older than this is judged as it is. Large models compile for longer, but a job that idles
for three minutes has something to be shown."""
WITHOUT_GPU_SECONDS = 60.0
"""Where there is no GPU to show the first steps, and the job reports none."""
REPORTED_STEPS = 20
"""Where a GPU shows no steady work: so many steps that were reported, and the first of them
``WORK_SECONDS`` ago, are steady all the same. A compiler is done with tuning by then."""
WORK_SECONDS = 8.0
"""Without an idle run, or, without a GPU, since the first step that was reported: long enough for a
compile's tuning kernels to be over."""
CYCLES = 3
CYCLES_SECONDS = 4.0
"""Three alike within less can be the tuning of one kernel."""
ALIKE = 2.0
"""Longest over shortest of those cycles: tuning and indexing have no rhythm."""
MANY_CYCLES = 8
NEAR_MEAN = 2.5
"""Longest over mean of that many cycles. Samples miss edges, so the cycles of one rhythm look one,
two or three samples long, and batches do not all cost the same: their longest and shortest are
apart, but none is far above the mean. The waits between tuning kernels are."""


def steady_from(samples: Sequence[tuple[float, float]], step: float) -> float | None:
    """Since when the last ``samples`` (see ``waveform.analyse``) are steady work: without an idle
    run, or in at least three cycles alike. ``None``: they are not."""
    rises: list[float] = []
    works_since: float | None = None
    busy: bool | None = None
    before = None
    for at, percent in samples:
        if before is not None and at - before > GAP_SAMPLES * step:
            rises.clear()
            works_since, busy = None, None
        before = at
        if percent <= IDLE_PERCENT:
            works_since, busy = None, False
            continue
        if works_since is None:
            works_since = at - step
        if percent >= BUSY_PERCENT:
            if busy is False:
                rises.append(at - step)
            busy = True
    if before is None:
        return None
    if works_since is not None and before - works_since >= WORK_SECONDS:
        return rises[0] if _rhythm(rises, before) else works_since
    return _rhythm(rises, before)


def _rhythm(rises: list[float], now: float) -> float | None:
    """Begin of the cycles that are alike, up to now."""
    cycles = [later - earlier for earlier, later in pairwise(rises)]
    first = _alike_from(cycles)
    if len(cycles) - first < CYCLES or rises[-1] - rises[first] < CYCLES_SECONDS:
        return None
    # It has stopped since.
    if now - rises[-1] > ALIKE * max(cycles[first:]):
        return None
    return rises[first]


def _alike_from(cycles: Sequence[float]) -> int:
    """The number of the first cycle from which on all are alike."""
    shortest, longest, total = math.inf, 0.0, 0.0
    first = count = len(cycles)
    for number in range(count - 1, -1, -1):
        cycle = cycles[number]
        shortest, longest, total = min(shortest, cycle), max(longest, cycle), total + cycle
        seen = count - number
        if longest <= ALIKE * shortest or (
            seen >= MANY_CYCLES and longest * seen <= NEAR_MEAN * total
        ):
            first = number
        elif seen >= 2 * MANY_CYCLES and longest * seen > 2.0 * NEAR_MEAN * total:
            break
    return first
