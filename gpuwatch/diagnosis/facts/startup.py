"""The beginning of a young job's steady work: its first steps, as they show from outside.

Before them a job imports, loads weights, indexes its data, warms up its loader, compiles and tunes:
CPUs are busy, the GPU idles or flickers, its memory grows. Nothing of that says how it will be fed,
however long it takes; and once steps are seen, nothing else does, however young it is.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from gpuwatch.diagnosis.signals.waveform import (
    BUSY_PERCENT,
    GAP_SAMPLES,
    IDLE_PERCENT,
    SILENT_PERCENT,
)

LONGEST_SECONDS = 180.0
"""A job older than this is judged as it is, unless what it does is plainly still start-up: one that
idles for three minutes has something to be shown."""
LONGEST_WORK_SECONDS = 1800.0
"""Nor does one that computes or compiles without a step count as starting for longer."""
WORKING_CORES = 0.3
"""A job that does less, and nothing on its GPU, does not start: it waits."""
WITHOUT_GPU_SECONDS = 60.0
"""Where there is no GPU to show the first steps, and the job reports none."""
REPORTED_STEPS = 3
"""Where a GPU shows no steady work: so many steps that were reported, and the first of them
``WORK_SECONDS`` ago, are steady all the same: it is the first one or two that compile and tune."""
WORK_SECONDS = 8.0
"""Without an idle run, or, without a GPU, since the first step that was reported: long enough for a
compile's tuning kernels to be over."""
COMPILED_SECONDS = 5.0
"""After the last look that found a compiler at work: many live for less than a second."""
BURSTS = 1.5
"""Or, where compilers are found in bursts (a kernel is compiled, its variants are tried out on the
GPU, the next is compiled), so many times the longest time between two looks that found one,"""
BURST_APART_SECONDS = 30.0
"""of which no more than this counts."""
RESUMES_SECONDS = 60.0
"""Time in which compilers that come back, on a GPU that does little, show that the job was still
trying out kernels and had taken no steps."""
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
GROWS = 1.04
"""GPU memory against that of five seconds ago: leaks are slower, weights and optimizer states
faster."""
LEAST_PERCENT = 3.0
"""A GPU that does less shows nothing: a copy, a display, a monitor."""
SMOOTH_SECONDS = 0.5
"""Or two samples, where they are further apart."""
DELIVERED_SECONDS = 5.0
"""While loader workers load, work early and late in twice that time is enough: tuning needs no
batches."""
LOADS_PERCENT = 50.0
"""Share of its time for which the worker that loads most must load."""
RESTS_SECONDS = 3.0
"""A GPU that has worked and rests for so long, while loader workers load and the main thread
sleeps, waits for its next batch: the work was steps."""
BURST_SECONDS = 0.3
"""Shortest work that is a step: less initialises weights, or copies."""
SLEEPS_PERCENT = 25.0
"""CPU use, in percent of a core, up to which a main thread sleeps: compiling, tuning, importing and
saving take more."""


def steps_from(
    samples: Sequence[tuple[float, float]], step: float, *, delivers: bool = False
) -> float | None:
    """Return since when the last ``samples`` (see ``waveform.analyse``) are steady work; ``None``:
    they are not. ``delivers``: the job's loader workers load: those whose queues are full sleep."""
    since = _steady(samples, step, 100.0)
    if since is not None or not samples:
        return since
    level = max([percent for at, percent in samples if at > samples[-1][0] - WORK_SECONDS])
    if level >= LEAST_PERCENT:
        since = _steady(samples, step, level)
        if since is None:
            longer = max(SMOOTH_SECONDS, 2.0 * step)
            since = _steady(_smoothed(samples, step), longer, level, rhythm=False)
    return _delivered_from(samples, step) if since is None and delivers else since


def _smoothed(samples: Sequence[tuple[float, float]], step: float) -> list[tuple[float, float]]:
    """Return means over half seconds: short steps beat with the samples, of which some then show
    none. What is left of their rhythm is none: tuning looks alike."""
    size = max(2, round(SMOOTH_SECONDS / step))
    parts = [samples[at : at + size] for at in range(len(samples) % size, len(samples), size)]
    return [(part[-1][0], sum([one[1] for one in part]) / size) for part in parts]


def burst(samples: Sequence[tuple[float, float]], step: float) -> tuple[float, float] | None:
    """Return begin and end of the work of a GPU that has rested since; ``None``: it does not rest,
    or has done next to nothing."""
    worked = [(at, percent) for at, percent in samples if percent >= LEAST_PERCENT]
    if step * sum([percent for _, percent in worked]) < 100.0 * BURST_SECONDS:
        return None
    rests = samples[-1][0] - worked[-1][0] >= RESTS_SECONDS
    return (worked[0][0] - step, worked[-1][0]) if rests else None


def is_at_work(samples: Sequence[tuple[float, float]]) -> bool:
    """Check whether it has worked most of the last minute: compilers try out kernels for less."""
    busy = [percent for _, percent in samples]
    return bool(busy) and sum(busy) >= BUSY_PERCENT * len(busy)


def is_silent(samples: Sequence[tuple[float, float]]) -> bool:
    """Check whether nothing has run there lately, as far as that is known."""
    lately = [percent for at, percent in samples if at > samples[-1][0] - 2.0 * WORK_SECONDS]
    return bool(lately) and sum(lately) < SILENT_PERCENT * len(lately)


def _steady(
    samples: Sequence[tuple[float, float]], step: float, full: float, *, rhythm: bool = True
) -> float | None:
    """Return since when it works without an idle run, or in at least three cycles alike, ``full``
    percent being what a step brings the GPU to."""
    rises: list[float] = []
    works_since: float | None = None
    busy: bool | None = None
    before = None
    for at, percent in samples:
        if before is not None and at - before > GAP_SAMPLES * step:
            rises.clear()
            works_since, busy = None, None
        before = at
        if 100.0 * percent <= IDLE_PERCENT * full:
            works_since, busy = None, False
            continue
        if works_since is None:
            works_since = at - step
        if 100.0 * percent >= BUSY_PERCENT * full:
            if busy is False:
                rises.append(at - step)
            busy = True
    if before is None:
        return None
    if works_since is not None and before - works_since >= WORK_SECONDS:
        return rises[0] if _rhythm(rises, before) else works_since
    return _rhythm(rises, before) if rhythm else None


def _delivered_from(samples: Sequence[tuple[float, float]], step: float) -> float | None:
    now = samples[-1][0]
    worked = [
        at
        for at, percent in samples
        if percent >= LEAST_PERCENT and at > now - 2.0 * DELIVERED_SECONDS
    ]
    long = worked and worked[0] <= now - WORK_SECONDS and worked[-1] > now - DELIVERED_SECONDS
    return worked[0] - step if long else None


def _rhythm(rises: list[float], now: float) -> float | None:
    """Return the begin of the cycles that are alike, up to now."""
    cycles = [later - earlier for earlier, later in pairwise(rises)]
    first = _alike_from(cycles)
    if len(cycles) - first < CYCLES or rises[-1] - rises[first] < CYCLES_SECONDS:
        return None
    # It has stopped since.
    if now - rises[-1] > ALIKE * max(cycles[first:]):
        return None
    return rises[first]


def _alike_from(cycles: Sequence[float]) -> int:
    """Return the number of the first cycle from which on all are alike."""
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
