"""How many loader workers are right for a job on this machine.

Two bounds. The room: the cores one rank may use, less one for its own main thread (which sleeps
where few cores cannot feed the GPU: then those, too). The demand:
workers that are busy for the share u of a core each while the GPU works for the share d of the
time make what the GPU takes in d; to feed it all the time takes count * u / d cores.
"""

from __future__ import annotations

import math

from gpuwatch.diagnosis.facts.window import JobFacts, Window

HEADROOM = 1.25
"""Batches do not all cost the same, and a worker that is never idle cannot catch up."""

QUIET_CORES = 1.0
"""What a system without other jobs uses for itself."""

LEAST_BUSY_SHARE = 0.05
"""Below it the demand estimate divides by almost nothing: only the room counts."""

TYPICAL_WORKERS = 8
"""What is proposed where the demand cannot be estimated and there is room for more. PyTorch's
and Lightning's tuning guides tell people to begin with a few and raise them; beyond this the
gain is rarely in the number."""


def usable_cores(window: Window) -> float | None:
    """Cores that the job may use and that others leave free, on average."""
    job = window.job
    if job is None:
        return None
    cores = job.job.usable_cores
    if cores is None:
        cores = window.host.core_count
    if cores is None:
        return None
    free = _left_by_others(window, job)
    return float(cores) if free is None else min(float(cores), free)


def _left_by_others(window: Window, job: JobFacts) -> float | None:
    host = window.host
    if host.core_count is None or host.cpu_percent is None or job.cpu_cores is None:
        return None
    others = host.core_count * host.cpu_percent / 100.0 - job.cpu_cores
    if others < QUIET_CORES:
        return None
    return max(1.0, host.core_count - others)


def spare_cores(window: Window) -> float | None:
    """What of its usable cores the job leaves idle."""
    cores = usable_cores(window)
    if cores is None or window.job is None or window.job.cpu_cores is None:
        return None
    return max(0.0, cores - window.job.cpu_cores)


FEW_CORES = 4.0
"""For a rank: with fewer, one core more or less is a third of all batches."""


def most_workers(window: Window, needed: int | None = None) -> int | None:
    """The most that one rank's cores can run beside its main thread, at least 1; ``needed`` is
    the demand.

    Lightning's ``suggested_max_num_workers`` is the same: cores // ranks on this machine - 1.
    But a main thread that waits for batches sleeps, and its core, of a few, is free for loading.
    """
    cores = usable_cores(window)
    if cores is None or window.job is None:
        return None
    each = cores / max(1, len(window.job.job.ranks))
    starves = needed is not None and needed > each - 1.0
    return max(1, math.floor(each) - (0 if starves and each < FEW_CORES else 1))


def recommended_workers(
    window: Window, present: int | None = None, busy_share: float | None = None
) -> int | None:
    """``num_workers`` for each rank, at least 1; ``None`` where the job's cores are not known.

    ``present`` is what a rank has now, ``busy_share`` (0 to 1) how much of the time its GPU
    works; both are taken from the window where they are not given.
    """
    needed = demand(window, present, busy_share)
    most = most_workers(window, needed)
    if most is None:
        return None
    return min(most, TYPICAL_WORKERS if needed is None else needed)


def demand(
    window: Window, present: int | None = None, busy_share: float | None = None
) -> int | None:
    """Workers that one rank would need to feed its GPU all the time, whatever the cores; ``None``
    where it cannot be estimated."""
    job = window.job
    if job is None:
        return None
    busy = _busy_share(window) if busy_share is None else busy_share
    if busy is None or busy < LEAST_BUSY_SHARE:
        return None
    count = _present(job) if present is None else present
    cores = _loading_cores(job, count, busy)
    return None if cores is None else max(1, math.ceil(HEADROOM * cores / busy))


def _loading_cores(job: JobFacts, count: int | None, busy: float) -> float | None:
    """Cores that loading takes now, for one rank."""
    if count is None:
        return None
    if count == 0:
        # The main thread loads while its GPU idles, at a full core.
        return 1.0 - busy
    workers = job.workers
    if workers is None or workers.cpu_percent is None:
        return None
    # What a worker waits for a core is time in which it would have worked.
    wanted = workers.cpu_percent + (workers.run_queue_wait_percent or 0.0)
    return count * min(100.0, wanted) / 100.0


def _present(job: JobFacts) -> int | None:
    known = [rank.loader_workers for rank in job.ranks if rank.loader_workers is not None]
    return max(known) if known else None


def _busy_share(window: Window) -> float | None:
    known = [gpu.busy.mean_percent for gpu in window.gpus if gpu.busy is not None]
    return sum(known) / len(known) / 100.0 if known else None
