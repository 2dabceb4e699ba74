"""A GPU's memory grows and will run out.

What it checks
    The slope of the memory used, its standard error, and when the card will be full at that rate:
    a range, from the slope plus to the slope minus twice its error.

Why it matters
    A leak of a few megabytes per step ends a run hours later, often at night. The usual causes keep
    the graph alive: losses summed without .item(), outputs kept in a list, endless caches.

Evidence needed
    Memory used over 45 s of steady work, better several minutes, and ten new maxima of it. Growth
    counts from the GPU's first work on (before, a model is loaded), and must go on.

When it is wrong
    Allocators grow until they have seen the largest batch: sequences of different lengths, a first
    validation, compilation and autotuning look like a leak for minutes. So growth that leaves a day
    is not reported, and confidence rises with the time watched.

What to do
    Look for tensors that outlive their step (torch.cuda.memory._record_memory_history shows who
    allocated them); sum losses as numbers; detach what is kept. Until then: a smaller batch, more
    frequent checkpoints, a restart in time. A server's cache that grows to its limit looks the same
    until it gets there: set its limit, or leave it.

Thresholds
    slope 15 times its standard error after 45 s of steady work, 12 times after 90 s, 8 times after
    150 s, 4 times after 300 s: allocators grow ever more slowly for a minute or more, a slope of
    five to ten errors; an even leak has twenty and more. 10 new maxima: a leak rises in each step,
    an allocator a few times. Set on the labelled cases in tests/evaluation.

    0.4% of the card and 256 MiB grown while watched, over ten minutes at most: less is noise. Busy
    10% of the time: a GPU that runs next to nothing has no steps that could leave something.

    full within 24 h, at the earliest (slope plus two errors): a warning within 4 h, an error within
    5 min, enough to save by hand; of a server a warning, since its cache may have a limit. This
    project's choice: SageMaker's GPUMemoryIncrease fires on a jump, and a slow leak makes none.

Sources
    PyTorch's FAQ ("My model reports cuda runtime error(2): out of memory"). Statistics: ordinary
    least squares. SageMaker Debugger, GPUMemoryIncrease.
"""

import math
from typing import NamedTuple

from gpuwatch.core.bounds import lowest
from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import USED_PERCENT, present
from gpuwatch.diagnosis.rules.shared.words import (
    GIB,
    amount,
    clear_if,
    keys,
    lasting,
    named,
    ramp,
    unknown_if,
)
from gpuwatch.diagnosis.sentence import GPUS, either

_OUTLIVE = Advice(
    "Look for tensors that outlive their step: losses summed without .item(), outputs kept in a "
    "list, graphs kept by retain_graph.",
    brief="Look for tensors that outlive their step",
    why="what each step leaves behind adds up until the card is full",
)
_KEPT = Advice(
    "Look for tensors that outlive their request: outputs kept in a list, sessions and caches "
    "without a limit, a forward pass without torch.inference_mode().",
    brief="Look for tensors that outlive their request",
    why="what each request leaves behind adds up until the card is full",
)
_LIMIT = Advice(
    "Limit the server's cache; if it has a limit, leave it: it stops growing there.",
    brief="Limit the server's cache",
)
RULE = Rule(
    title="memory grows",
    cure=(_OUTLIVE,),
    explains={"memory_nearly_full"},
    has_look_alikes=False,
    charts=("memory_used_bytes",),
    chart_seconds=600.0,
)
CLEAR_OF_ERROR = ((300.0, 4.0), (150.0, 8.0), (90.0, 12.0), (45.0, 15.0))
"""(seconds of steady work, standard errors the slope must have)."""
LEAST_SECONDS = 45.0
SURE_SECONDS = 300.0
"""By then most allocators have settled."""
LEAST_RISES = 10
LEAST_SHARE = 0.004  # of the card
LEAST_BYTES = 0.25 * GIB
LONGEST_SECONDS = 24 * 3600.0
WARNING_SECONDS = 4 * 3600.0
IMMINENT_SECONDS = 300.0
SLOPE_SPAN_SECONDS = 600.0
"""Over how long the observer fits the slope at most."""


class _Growth(NamedTuple):
    gpu: GpuFacts
    slope: float
    error: float
    needed: float
    """Bytes a second, from which on the slope counts."""
    soonest: float
    latest: float | None
    """``None``: not within a day."""


def check(window: Window) -> Verdict:
    there, unread = present(window), "memory used over a minute"
    gpus = [gpu for gpu in there if _may_run(gpu)]
    clear_if(bool(there) and not gpus, "next to nothing runs that could leave memory behind")
    known = [gpu for gpu in gpus if None not in _slope(gpu)]
    unknown_if(not known, unread)
    clear_if(window.starting, "the job is starting")
    seen = _steady_seconds(window, known)
    rises = any((gpu.memory_slope_bytes_per_second or 0.0) > 0.0 for gpu in known)
    unknown_if(rises and seen < LEAST_SECONDS, f"{LEAST_SECONDS:.0f} s of steady work")
    growing = [growth for gpu in known if (growth := _growth(gpu, seen)) is not None]
    if growing:
        serves = window.job is not None and window.job.job.serves is not None
        return _firing(growing, seen, serves=serves)
    unknown_if(len(known) < len(gpus), unread)
    return Clear("its memory does not grow", at_once=not any(map(_may_grow, known)))


def _steady_seconds(window: Window, gpus: list[GpuFacts]) -> float:
    """Return for how long the growth of all of them has counted."""
    seen = window.watched_seconds if window.job is None else window.steady_seconds
    return lowest([seen, *[gpu.memory_trend_seconds for gpu in gpus]]) or 0.0


def _may_run(gpu: GpuFacts) -> bool:
    return gpu.busy_percent is None or gpu.busy_percent >= USED_PERCENT


def _may_grow(gpu: GpuFacts) -> bool:
    slope, error = _slope(gpu)
    return (slope or 0.0) > 2.0 * (error or 0.0)


def _slope(gpu: GpuFacts) -> tuple[float | None, float | None]:
    return gpu.memory_slope_bytes_per_second, gpu.memory_slope_error_bytes_per_second


def _growth(gpu: GpuFacts, seen: float) -> _Growth | None:
    slope, error = _slope(gpu)
    total, used = gpu.identity.memory_total_bytes, gpu.memory_used_bytes
    if slope is None or error is None or not total or used is None:
        return None
    rises = LEAST_RISES if gpu.memory_rises is None else gpu.memory_rises
    needed = error * next((errors for least, errors in CLEAR_OF_ERROR if seen >= least), math.inf)
    grown = slope * min(max(seen, LEAST_SECONDS), SLOPE_SPAN_SECONDS)
    steady = rises >= LEAST_RISES and slope > needed
    if not steady or grown < max(LEAST_BYTES, LEAST_SHARE * total):
        return None
    free = max(0.0, total - used)
    soonest, latest = free / (slope + 2.0 * error), free / (slope - 2.0 * error)
    if soonest > LONGEST_SECONDS:
        return None
    within = latest if latest <= LONGEST_SECONDS else None
    return _Growth(gpu, slope, error, needed, soonest, within)


def _firing(growing: list[_Growth], seen: float, *, serves: bool) -> Firing:
    first, gpus = min(growing, key=lambda one: one.soonest), [growth.gpu for growth in growing]
    soonest = lasting(first.soonest)
    latest = None if first.latest is None else lasting(first.latest)
    when = f"{soonest} to {latest}"
    if latest is None:
        when = f"{soonest} at the earliest"
    elif latest == soonest:
        when = f"about {latest}"
    severity = "warning" if first.soonest <= WARNING_SECONDS else "info"
    act = Advice(
        f"Save a checkpoint within {soonest}; a smaller batch or gradient accumulation gains time.",
        brief=f"Save a checkpoint within {soonest}",
        setting="batch size",
    )
    if serves:
        act = _LIMIT
    elif first.soonest <= IMMINENT_SECONDS:
        severity = "error"
    return Firing(
        severity=severity,
        summary=f"Memory use on {GPUS} grows by {_rate(first.slope)}: at this rate "
        f"{either('it is', 'the first is')} full in {when}",
        short=(
            f"Memory use on {GPUS} grows by {_rate(first.slope)}: full in {when}",
            f"Memory of {GPUS} may fill in {soonest}",
        ),
        evidence=[item for growth in growing for item in _evidence(growth)],
        advice=(_KEPT, act) if serves else (*RULE.cure, act),
        strength=0.6 + 0.4 * ramp(seen, LEAST_SECONDS, SURE_SECONDS),
        gpus=keys(gpus),
    )


def _rate(slope: float) -> str:
    return f"{amount(slope * 60.0)} per minute"


def _evidence(growth: _Growth) -> list[Evidence]:
    name, used = named([growth.gpu]), growth.gpu.memory_used_bytes
    total = growth.gpu.identity.memory_total_bytes or 0
    free = f"{amount(max(0.0, total - (used or 0.0)))} are free"
    return [
        Evidence(f"{name} growth of memory", growth.slope, "bytes/s", growth.needed,
                 f"give or take {_rate(2.0 * growth.error)}"),
        Evidence(f"{name} memory used", used, "bytes", float(total), free),
        Evidence(f"{name} time until it is full", growth.soonest, "s", LONGEST_SECONDS,
                 "at the earliest"),
    ]  # fmt: skip
