"""When a young job's steady work began.

Before its first steps a job imports, indexes its data, warms up its loader, compiles and tunes:
CPUs are busy, the GPU idles or flickers. Nothing of that says how it will be fed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gpuwatch.diagnosis.waveform import BUSY_PERCENT, GAP_SAMPLES, IDLE_PERCENT

LONGEST_SECONDS = 180.0
"""A job older than this is judged as it is. Large models compile for longer, but a job that idles
for three minutes has something to be told about."""
WITHOUT_GPU_SECONDS = 60.0
"""Where there is no GPU to show the first steps."""
WORK_SECONDS = 10.0
"""Without an idle run: long enough for a compile's tuning kernels to be over."""
CYCLES = 3
CYCLES_SECONDS = 4.0
"""Three alike within less can be the tuning of one kernel."""
ALIKE = 2.0
"""Longest over shortest of those cycles: tuning and indexing have no rhythm."""


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
    """When the cycles that are alike, up to now, began."""
    cycles = [later - earlier for earlier, later in pairwise(rises)]
    if len(cycles) < CYCLES:
        return None
    shortest = longest = cycles[-1]
    first = len(cycles)
    for number in range(len(cycles) - 1, -1, -1):
        shortest, longest = min(shortest, cycles[number]), max(longest, cycles[number])
        if longest > ALIKE * shortest:
            break
        first = number
    if len(cycles) - first < CYCLES or rises[-1] - rises[first] < CYCLES_SECONDS:
        return None
    # It has stopped since.
    if now - rises[-1] > ALIKE * longest:
        return None
    return rises[first]
