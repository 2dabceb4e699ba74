"""The job's use of host memory keeps growing.

What it checks
    The host memory in use grows steadily, long after start-up, and would be full within half a
    day; or the machine swaps while the job runs.

Why it matters
    When memory is full, the kernel kills the job (or another), often hours into a run. Swapping
    slows the loader long before that.

Evidence needed
    A minute of the machine's memory past the job's start-up, with a trend well above its own
    uncertainty. Stronger with the growth of the workers' own memory (PSS).

When it is wrong
    Datasets that cache in memory grow through the first epoch and stop. Where several jobs share
    a machine and the workers' memory was not read, it may be another job. The page cache is not
    counted as used.

What to do
    Python objects that all workers read (lists of paths, dicts) are copied page by page, since
    reading them changes their reference counts: hold them in numpy arrays, torch tensors or one
    bytes object, pyarrow. Fewer workers; a smaller prefetch_factor; no growing lists of losses
    with their graphs (loss.detach(), loss.item()).

Thresholds
    slope four times its standard error: chance alone does that in 1 of 15000 windows.
    1 MB/s, and full within 12 h: slower growth ends with most runs before it matters.
    watched past start-up for 60 s to 10 min, a thirtieth of the time left: a one-minute trend
    predicts the next half hour, not the night.
    100 MB more swap in the window: a machine at rest moves less.

Sources
    PyTorch, issue 13246 (memory of DataLoader workers grows through copy-on-write of Python
    objects). Linux, /proc/PID/smaps_rollup (PSS).
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import HostFacts, Window, WorkerFacts
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import NO_JOB, amount, strength, too_early
from gpuwatch.diagnosis.rules.shared.gpus import lasting, ramp

SLOPE_ERRORS = 4.0
"""Standard errors of the slope: chance alone gives that in 1 of 15000 windows."""

SLOPE_BYTES_PER_SECOND = 1e6
"""3.6 GB an hour: slower growth ends with most runs before it matters."""

FULL_WITHIN_SECONDS = 12.0 * 3600.0
"""What lasts longer is looked after by day."""

URGENT_SECONDS = 1800.0
"""Full within half an hour is an error, not a warning."""

STEADY_SECONDS = 60.0
"""Past start-up: caches and prefetch queues fill at first."""

WAIT_PART = 30.0
"""The longer the memory lasts, the longer the trend is watched: a thirtieth of that time."""

WAIT_MOST_SECONDS = 600.0
"""And ten minutes at most, by when caches have filled."""

SWAP_BYTES = 100e6
"""Growth over the window."""

WORKERS_PART = 0.3
"""Of the growth: from here on the workers are named as those who grow."""


def check(window: Window) -> Verdict:
    if window.job is None:
        return Unknown(missing=NO_JOB)
    early = too_early(window)
    if early is not None:
        return early
    host = window.host
    if (host.swap_growth_bytes or 0.0) >= SWAP_BYTES:
        return _firing(window, window.job.workers)
    slope, error = host.memory_slope_bytes_per_second, host.memory_slope_error_bytes_per_second
    if slope is None or error is None:
        return Unknown(missing=("the trend of the host's memory",))
    if window.steady_seconds < STEADY_SECONDS:
        return Unknown(missing=(f"{STEADY_SECONDS:.0f} seconds past start-up",))
    return _by_slope(window, slope, error)


def _by_slope(window: Window, slope: float, error: float) -> Verdict:
    if slope < SLOPE_BYTES_PER_SECOND:
        return Clear(why="the host's memory does not grow")
    if slope < SLOPE_ERRORS * error:
        return Clear(why="the growth of the host's memory is within its scatter")
    until_full = _until_full(window.host)
    if until_full is not None and until_full > FULL_WITHIN_SECONDS:
        return Clear(why=f"at this rate the host's memory lasts for {lasting(until_full)}")
    wait = max(STEADY_SECONDS, min(WAIT_MOST_SECONDS, (until_full or 0.0) / WAIT_PART))
    if window.steady_seconds < wait:
        return Unknown(missing=(f"{wait:.0f} seconds past start-up",))
    workers = window.job.workers if window.job is not None else None
    return _firing(window, workers)


def _until_full(host: HostFacts) -> float | None:
    """Seconds at the current rate; ``None`` where that is not known or nothing grows."""
    total, used, slope = (
        host.memory_total_bytes,
        host.memory_used_bytes,
        host.memory_slope_bytes_per_second,
    )
    if total is None or used is None or slope is None or slope <= 0.0:
        return None
    return max(0.0, total - used) / slope


def _workers_part(host: HostFacts, workers: WorkerFacts | None) -> float | None:
    """0 to 1: how much of the growth is the workers'."""
    slope = host.memory_slope_bytes_per_second
    own = None if workers is None else workers.memory_slope_bytes_per_second
    if slope is None or own is None or slope <= 0.0:
        return None
    return min(1.0, max(0.0, own / slope))


def _firing(window: Window, workers: WorkerFacts | None) -> Firing:
    host = window.host
    until_full = _until_full(host)
    part = _workers_part(host, workers)
    urgent = until_full is not None and until_full < URGENT_SECONDS
    slope = host.memory_slope_bytes_per_second or 0.0
    error = max(1.0, host.memory_slope_error_bytes_per_second or 0.0)
    missing = ("the memory of the loader workers (PSS)",) if part is None else ()
    swaps = (host.swap_growth_bytes or 0.0) >= SWAP_BYTES
    return Firing(
        summary=_summary(host, until_full, part, swaps),
        evidence=tuple(_evidence(host, workers, until_full, part)),
        advice=_advice(workers, part),
        severity="error" if urgent else "warning",
        strength=strength(
            1.0 if swaps else ramp(slope / error, SLOPE_ERRORS, 20.0),
            0.5 if part is None else ramp(part, 0.0, WORKERS_PART),
            missing=len(missing),
        ),
        missing=missing,
    )


def _summary(host: HostFacts, until_full: float | None, part: float | None, swaps: bool) -> str:
    if swaps:
        grown = amount(host.swap_growth_bytes or 0.0)
        return f"The machine swaps ({grown} more in this window): its memory is full"
    who = "The loader workers'" if part is not None and part >= WORKERS_PART else "The host's"
    slope = amount(60.0 * (host.memory_slope_bytes_per_second or 0.0))
    end = "" if until_full is None else f"; at this rate it is full in {lasting(until_full)}"
    return f"{who} memory grows by {slope} a minute{end}"


def _evidence(
    host: HostFacts, workers: WorkerFacts | None, until_full: float | None, part: float | None
) -> list[Evidence]:
    evidence = []
    slope, error = host.memory_slope_bytes_per_second, host.memory_slope_error_bytes_per_second
    if slope is not None:
        scatter = "" if error is None else f", give or take {amount(2.0 * error)}/s"
        evidence.append(
            Evidence(
                name="growth of the host's memory",
                value=round(slope),
                unit="bytes/s",
                threshold=SLOPE_BYTES_PER_SECOND,
                says=f"a steady trend{scatter}",
                supports=slope >= SLOPE_BYTES_PER_SECOND,
            )
        )
    if until_full is not None:
        evidence.append(
            Evidence(
                name="time until it is full",
                value=round(until_full),
                unit="s",
                threshold=FULL_WITHIN_SECONDS,
                says="at the current rate",
                supports=until_full <= FULL_WITHIN_SECONDS,
            )
        )
    if workers is not None and part is not None:
        supports = part >= WORKERS_PART
        evidence.append(
            Evidence(
                name="growth of the workers' memory",
                value=round(workers.memory_slope_bytes_per_second or 0.0),
                unit="bytes/s",
                says=f"{part:.0%} of the growth is theirs",
                supports=supports,
            )
        )
    return evidence + _swap(host)


def _swap(host: HostFacts) -> list[Evidence]:
    if host.swap_growth_bytes is None or host.swap_growth_bytes <= 0.0:
        return []
    return [
        Evidence(
            name="growth of swap",
            value=round(host.swap_growth_bytes),
            unit="bytes",
            threshold=SWAP_BYTES,
            says="memory is being moved to disk",
        )
    ]


def _advice(workers: WorkerFacts | None, part: float | None) -> tuple[Advice, ...]:
    arrays = Advice(
        action="Hold what all workers read in numpy arrays or tensors instead of Python lists and "
        "dicts.",
        why="reading a Python object changes its reference count, and its page is then copied "
        "for each worker",
    )
    fewer = Advice(
        action="Lower num_workers or prefetch_factor.",
        setting="num_workers",
        present=None if workers is None else f"{workers.count:.0f} in all",
        why="each worker holds its copies and its batches",
    )
    keeping = Advice(
        action="Look for what the training process keeps alive: losses with their graphs (use "
        "loss.item() or loss.detach()), caches without a limit.",
        why="the memory grows with every step",
    )
    if workers is None or workers.count <= 0.0:
        return (keeping,)
    if part is not None and part < WORKERS_PART:
        return (keeping, arrays)
    return (arrays, fewer, keeping)
