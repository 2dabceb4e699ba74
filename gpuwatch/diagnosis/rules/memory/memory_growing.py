"""A GPU's memory grows and will run out.

What it checks
    The slope of the memory used, its standard error, and when the card will be full at that rate:
    a range, from the slope plus to the slope minus twice its error.

Why it matters
    A leak of a few megabytes per step ends a run hours later, often at night. The usual causes
    hold on to the graph: a loss that is summed without .item() or .detach(), outputs kept in a
    list, a cache that is never emptied.

Evidence needed
    Memory used over at least three quarters of a minute of steady work, and better several minutes:
    then a slope counts when it is four times its own error, before that when it is far more. The
    memory must have reached a new maximum ten times: a leak adds a little in each step.

When it is wrong
    Allocators grow in steps until they have seen the largest batch: sequences of different lengths,
    a first validation, compilation and autotuning all look like a leak for some minutes. That is
    why growth that leaves a day is not reported, and why confidence rises with the time watched.

What to do
    Look for tensors that outlive their step (torch.cuda.memory._record_memory_history shows who
    allocated them); sum losses as numbers; detach what is kept. Until then: a smaller batch,
    more frequent checkpoints, a restart in time.

Thresholds
    slope 15 times its standard error after 45 s of steady work, 12 times after 90 s, 8 times after
    150 s, 4 times after 300 s: allocators grow ever more slowly for a minute or more, and that bend
    is a slope of five to ten errors; a leak at an even pace has twenty and more. 10 new maxima: a
    leak rises in each step, an allocator that meets its longest sequences rises a few times. Set
    on the labelled cases in tests/evaluation.

    0.4% of the card and 256 MiB grown while watched, over ten minutes at most: less is noise.

    full within 24 h, at the earliest (slope plus two errors): a warning within 4 h, an error within
    5 min, enough to save by hand. This project's choice. SageMaker's GPUMemoryIncrease fires on a
    jump of 5% of the memory between two means; a slow leak makes none.

Sources
    PyTorch's FAQ ("My model reports cuda runtime error(2): out of memory": do not accumulate
    history across the training loop). Statistics: ordinary least squares. SageMaker Debugger,
    GPUMemoryIncrease.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.gpus import GIB, gib, lasting, named, ramp, verb

CLEAR_OF_ERROR = ((300.0, 4.0), (150.0, 8.0), (90.0, 12.0), (45.0, 15.0))
"""(seconds of steady work, standard errors the slope must have). Caching allocators grow for a
minute or more after the first step, ever more slowly: such a bend leaves a slope of some five to
ten errors, a leak that goes on at its pace one of twenty and more."""
LEAST_SECONDS = 45.0
"""A leak fast enough to matter sooner would have ended the job in its first minutes."""
SURE_SECONDS = 300.0
"""By then most allocators have settled."""
LEAST_RISES = 10
"""What leaks does so in every step or epoch, in small pieces; an allocator that meets its longest
sequences takes a few large ones, and then no more."""
LEAST_SHARE = 0.004
"""Of the card's memory, grown while watched: 0.6 GiB on 140 GiB."""
LEAST_BYTES = 0.25 * GIB
"""On small cards that share is no more than a few cached blocks of an allocator."""
LONGEST_SECONDS = 24 * 3600.0
"""What lasts longer than a day is not worth an alarm that may be wrong."""
WARNING_SECONDS = 4 * 3600.0
"""Within a working day somebody can still look after it; later it is information."""
IMMINENT_SECONDS = 300.0
"""Time enough to save a checkpoint by hand: said at once, as an error."""
SLOPE_SPAN_SECONDS = 600.0
"""Over how long the observer fits the slope at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    gpu: GpuFacts
    slope: float
    error: float
    errors_needed: float
    soonest: float
    latest: float | None
    """``None``: not within a day."""


def check(window: Window) -> Verdict:
    present = [gpu for gpu in window.gpus if not gpu.lost]
    known = [gpu for gpu in present if _slope(gpu) is not None]
    if not known:
        return Unknown(("memory used over a minute",))
    if window.starting:
        return Clear("the job is starting")
    seen = window.steady_seconds if window.job is not None else window.watched_seconds
    if seen < LEAST_SECONDS:
        return _early(known)
    growing = [growth for gpu in known if (growth := _growth(gpu, seen)) is not None]
    if not growing:
        if len(known) < len(present):
            return Unknown(("memory used over a minute",))
        return Clear("its memory does not grow")
    return _firing(growing, seen)


def _early(known: list[GpuFacts]) -> Verdict:
    if any((gpu.memory_slope_bytes_per_second or 0.0) > 0.0 for gpu in known):
        return Unknown((f"{LEAST_SECONDS:.0f} s of steady work",))
    return Clear("its memory does not grow")


def _errors_needed(seen: float) -> float:
    return next((errors for least, errors in CLEAR_OF_ERROR if seen >= least), math.inf)


def _slope(gpu: GpuFacts) -> tuple[float, float] | None:
    slope, error = gpu.memory_slope_bytes_per_second, gpu.memory_slope_error_bytes_per_second
    return None if slope is None or error is None else (slope, error)


def _growth(gpu: GpuFacts, seen: float) -> _Growth | None:
    found, total, used = _slope(gpu), gpu.identity.memory_total_bytes, gpu.memory_used_bytes
    if found is None or not total or used is None:
        return None
    if gpu.memory_rises is not None and gpu.memory_rises < LEAST_RISES:
        return None
    slope, error = found
    grown = slope * min(max(seen, LEAST_SECONDS), SLOPE_SPAN_SECONDS)
    if slope <= _errors_needed(seen) * error or grown < max(LEAST_BYTES, LEAST_SHARE * total):
        return None
    free = max(0.0, total - used)
    soonest = free / (slope + 2.0 * error)
    if soonest > LONGEST_SECONDS:
        return None
    latest = free / (slope - 2.0 * error)
    return _Growth(
        gpu=gpu,
        slope=slope,
        error=error,
        errors_needed=_errors_needed(seen),
        soonest=soonest,
        latest=latest if latest <= LONGEST_SECONDS else None,
    )


def _firing(growing: list[_Growth], seen: float) -> Firing:
    first = min(growing, key=lambda growth: growth.soonest)
    gpus = [growth.gpu for growth in growing]
    return Firing(
        severity=_severity(first),
        summary=f"The memory of {named(gpus)} grows by {_rate(first.slope)}: at this rate "
        f"{verb(gpus, 'it is', 'the first is')} full in {_range(first)}",
        evidence=tuple([item for growth in growing for item in _evidence(growth)]),
        advice=(
            Advice(
                action="Look for tensors that outlive their step: losses summed without .item(), "
                "outputs kept in a list, graphs kept by retain_graph.",
                why="what each step leaves behind adds up until the card is full",
            ),
            Advice(
                action=f"Save a checkpoint within {lasting(first.soonest)}; a smaller batch or "
                "gradient accumulation gains time.",
                setting="batch size",
            ),
        ),
        strength=0.6 + 0.4 * ramp(seen, LEAST_SECONDS, SURE_SECONDS),
        gpus=tuple([gpu.uuid for gpu in gpus]),
        explains=frozenset({"memory_nearly_full"}),
    )


def _severity(growth: _Growth) -> str:
    if growth.soonest <= IMMINENT_SECONDS:
        return "error"
    return "warning" if growth.soonest <= WARNING_SECONDS else "info"


def _range(growth: _Growth) -> str:
    soonest = lasting(growth.soonest)
    if growth.latest is None:
        return f"{soonest} at the earliest"
    latest = lasting(growth.latest)
    return f"about {latest}" if latest == soonest else f"{soonest} to {latest}"


def _rate(slope: float) -> str:
    a_minute = slope * 60.0
    if a_minute >= GIB:
        return f"{a_minute / GIB:.1f} GiB per minute"
    return f"{a_minute / 1024**2:.0f} MiB per minute"


def _evidence(growth: _Growth) -> list[Evidence]:
    name = named([growth.gpu])
    total = growth.gpu.identity.memory_total_bytes or 0
    return [
        Evidence(
            name=f"{name} growth of memory",
            value=round(growth.slope),
            unit="bytes/s",
            threshold=round(growth.errors_needed * growth.error),
            says=f"uncertain by {_rate(2.0 * growth.error)} each way",
        ),
        Evidence(
            name=f"{name} memory used",
            value=growth.gpu.memory_used_bytes,
            unit="bytes",
            threshold=float(total),
            says=f"{gib(max(0.0, total - (growth.gpu.memory_used_bytes or 0.0)))} are free",
        ),
        Evidence(
            name=f"{name} time until it is full, at the earliest",
            value=round(growth.soonest),
            unit="s",
            threshold=LONGEST_SECONDS,
        ),
    ]
