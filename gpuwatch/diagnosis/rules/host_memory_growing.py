"""The job's use of host memory keeps growing.

What it checks
    The host memory in use grows steadily, long after start-up and the first work of the job's
    GPUs, and would be full within half a day; or the machine swaps while the job runs.

Why it matters
    When memory is full, the kernel kills the job (or another), often hours into a run. Swapping
    slows the loader long before that.

Evidence needed
    A minute of the machine's memory past the job's start-up, with a trend well above its own
    uncertainty. Stronger with the growth of the workers' own memory (PSS).

When it is wrong
    Datasets that cache in memory stop growing after the first epoch. On a shared machine, without
    the workers' memory, it may be another job. The page cache does not count as used.

What to do
    Python objects that all workers read (lists, dicts) are copied page by page, since reading
    changes their reference counts: use numpy arrays, tensors, bytes or pyarrow. Fewer workers; a
    smaller prefetch_factor; no growing lists of losses (loss.detach(), loss.item()).

Thresholds
    slope 4 times its standard error: chance alone does that in 1 of 15000 windows.
    1 MB/s, and full within 12 h: slower growth ends with most runs before it matters.
    watched past start-up for 60 s to 10 min, a thirtieth of the time left: a one-minute trend
    predicts the next half hour, not the night.
    10% of the time in which tasks of the job wait for memory (PSI of its cgroup): evidence alone.
    100 MB more swap in the window: a machine at rest moves less.

Sources
    PyTorch, issue 13246 (memory of DataLoader workers grows through copy-on-write of Python
    objects). Linux, /proc/PID/smaps_rollup (PSS).
"""

from gpuwatch.core.bounds import lowest
from gpuwatch.diagnosis.facts.window import HostFacts, JobFacts, WorkerFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.loading import job_of, settle_early
from gpuwatch.diagnosis.rules.shared.words import (
    amount,
    clamp,
    clear_if,
    lasting,
    ramp,
    required,
    strength,
    unknown_if,
)
from gpuwatch.diagnosis.sentence import number

_ARRAYS = Advice(
    "Hold what all workers read in numpy arrays or tensors, not in Python lists and dicts.",
    brief="Hold data in arrays or tensors, not in lists",
    why="reading a Python object changes its reference count, which copies its page for each "
    "worker",
)
_KEEPING = Advice(
    "Look for what the training process keeps alive: losses with their graphs (use loss.item() or "
    "loss.detach()), unbounded caches.",
    brief="Look for what it keeps alive, such as losses",
    why="the memory grows with every step",
)
RULE = Rule(title="host memory grows", cure=(_KEEPING,), has_look_alikes=False)
SLOPE_ERRORS = 4.0
SLOPE_BYTES_PER_SECOND = 1e6
FULL_WITHIN_SECONDS = 12.0 * 3600.0
URGENT_SECONDS = 1800.0
"""Full within half an hour is an error, not a warning."""
STEADY_SECONDS = 60.0  # past start-up
WAIT_PART = 30.0
"""The trend is watched for a thirtieth of the time that is left."""
WAIT_MOST_SECONDS = 600.0
MEMORY_PRESSURE_PERCENT = 10.0
SWAP_BYTES = 100e6  # in the window
WORKERS_PART = 0.3
"""Share of the growth: from here on the workers are named as those who grow."""


def check(window: Window) -> Verdict:
    job = job_of(window)
    settle_early(window)
    host, left = window.host, _seconds_left(window.host)
    if (host.swap_growth_bytes or 0.0) >= SWAP_BYTES:
        return _firing(host, job, left)
    unread = "the trend of the host's memory"
    slope = required(host.memory_slope_bytes_per_second, unread)
    error = required(host.memory_slope_error_bytes_per_second, unread)
    steady = lowest([window.steady_seconds, host.memory_trend_seconds]) or 0.0
    unknown_if(steady < STEADY_SECONDS, f"{STEADY_SECONDS:.0f} seconds past start-up")
    clear_if(slope < SLOPE_BYTES_PER_SECOND, "the host's memory does not grow")
    noise = slope < SLOPE_ERRORS * error
    clear_if(noise, "the growth of the host's memory is within its scatter")
    lasts = f"at this rate the host's memory lasts for {lasting(left or 0.0)}"
    clear_if((left or 0.0) > FULL_WITHIN_SECONDS, lasts)
    wait = max(STEADY_SECONDS, min(WAIT_MOST_SECONDS, (left or 0.0) / WAIT_PART))
    unknown_if(steady < wait, f"{wait:.0f} seconds past start-up")
    return _firing(host, job, left)


def _seconds_left(host: HostFacts) -> float | None:
    """Seconds until memory is full at the current rate; ``None`` where nothing is known to grow."""
    total, used = host.memory_total_bytes, host.memory_used_bytes
    slope = host.memory_slope_bytes_per_second
    if total is None or used is None or slope is None or slope <= 0.0:
        return None
    return max(0.0, total - used) / slope


def _firing(host: HostFacts, job: JobFacts, left: float | None) -> Firing:
    slope, error = (
        host.memory_slope_bytes_per_second or 0.0,
        host.memory_slope_error_bytes_per_second,
    )
    own = None if job.workers is None else job.workers.memory_slope_bytes_per_second
    # 0 to 1: how much of the growth is the workers'.
    part = None if own is None or slope <= 0.0 else clamp(own / slope)
    missing = ("the memory of the loader workers (PSS)",) if part is None else ()
    swaps = (host.swap_growth_bytes or 0.0) >= SWAP_BYTES
    summary, *short = _sentences(host, left, part)
    grows = ramp(slope / max(1.0, error or 0.0), SLOPE_ERRORS, 20.0)
    return Firing(
        summary=summary,
        short=tuple(short),
        evidence=_evidence(host, job, left, part),
        advice=_advice(job.workers, part),
        severity="error" if left is not None and left < URGENT_SECONDS else None,
        strength=strength(
            1.0 if swaps else grows,
            0.5 if part is None else ramp(part, 0.0, WORKERS_PART),
            missing=len(missing),
        ),
        missing=missing,
    )


def _sentences(host: HostFacts, left: float | None, part: float | None) -> tuple[str, str, str]:
    """Return the summary and its short forms."""
    swapped, slope = host.swap_growth_bytes or 0.0, host.memory_slope_bytes_per_second or 0.0
    if swapped >= SWAP_BYTES:
        full = "Memory is full"
        swaps = f"{full}: the machine swapped {amount(swapped)} in the last minute"
        return swaps, swaps, f"{full}: the machine swaps"
    workers, growth = (part or 0.0) >= WORKERS_PART, amount(60.0 * slope)
    who, briefly = ("The loader workers'", "The workers'") if workers else ("The host's",) * 2
    end = "" if left is None else f"; at this rate it runs out in {lasting(left)}"
    soon = f"{growth} a minute" if left is None else f"full in {lasting(left)}"
    return (
        f"{who} memory grows by {growth} a minute{end}",
        f"{briefly} memory grows by {growth} a minute{'' if left is None else f': {soon}'}",
        f"Host memory grows: {soon}",
    )


def _evidence(
    host: HostFacts, job: JobFacts, left: float | None, part: float | None
) -> list[Evidence | None]:
    slope, error = host.memory_slope_bytes_per_second, host.memory_slope_error_bytes_per_second
    own = None if part is None or job.workers is None else job.workers.memory_slope_bytes_per_second
    scatter = "" if error is None else f", give or take {amount(2.0 * error)}/s"
    return [
        Evidence("growth of the host's memory", slope, "bytes/s", SLOPE_BYTES_PER_SECOND,
                 f"a steady trend{scatter}", supports=(slope or 0.0) >= SLOPE_BYTES_PER_SECOND),
        Evidence("time until it is full", left, "s", FULL_WITHIN_SECONDS,
                 "at the current rate", supports=(left or 0.0) <= FULL_WITHIN_SECONDS),
        Evidence("growth of the workers' memory", own, "bytes/s",
                 says=f"{part or 0.0:.0%} of the growth", supports=(part or 0.0) >= WORKERS_PART),
        _waits_for_memory(job.pressure_memory_percent),
        Evidence("growth of swap", host.swap_growth_bytes or None, "bytes", SWAP_BYTES,
                 "memory is being moved to disk"),
    ]  # fmt: skip


def _waits_for_memory(percent: float | None) -> Evidence:
    waits = percent is not None and percent >= MEMORY_PRESSURE_PERCENT
    says = "tasks of the job's group wait for memory" if waits else "none waits for memory yet"
    name, limit = "memory pressure of the job", MEMORY_PRESSURE_PERCENT
    return Evidence(name, percent, "%", limit, says, supports=waits)


def _advice(workers: WorkerFacts | None, part: float | None) -> tuple[Advice, ...]:
    if workers is None or workers.count <= 0.0:
        return RULE.cure
    if (part or 0.0) < WORKERS_PART:
        # Or nobody knows whose growth it is.
        return (*RULE.cure, _ARRAYS)
    fewer = Advice(
        "Lower num_workers or prefetch_factor.",
        setting="num_workers",
        present=f"{number(workers.count)} in all",
        why="each worker holds its copies and its batches",
    )
    return (_ARRAYS, fewer, *RULE.cure)
