"""Pauses of a job's GPUs: what a save is, their rhythm, the time they cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.facts.window import JobFacts, Pause, Window
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rules.shared.words import clamp, named
from gpuwatch.diagnosis.rules.shared.workers import WORKERS_AT_LIMIT_PERCENT, in_disk_wait, wanted

SAVE_BYTES = 32.0 * 1024**2
"""The weights of a small convolutional network with their optimizer; logs are far below."""
SAVE_BYTES_PER_SECOND = 10e6
"""A slow network disk; a pause of minutes with a trickle of logs stays below."""
REMEMBERED_SECONDS = 900.0
"""How long a window keeps pauses."""
REGULAR = 0.35
"""Coefficient of variation of the distances up to which pauses come in a rhythm: saves every N
steps jitter with the steps; unrelated events scatter around 1."""
RECUR_SECONDS = 180.0
"""How far back it is looked whether pauses come again and again."""
RECUR_EVERY_SECONDS = 45.0
"""Pauses that come at least so often are waits for the loader: the two ends of an evaluation are
two, and there are minutes between evaluations."""
RECUR_SHARE = 0.25
"""Pauses that take so much of that time are as well."""


def is_save(pause: Pause) -> bool:
    """By what the job reports that it did, else by what it wrote."""
    if pause.phase in {"checkpoint", "validation"}:
        return pause.phase == "checkpoint"
    wrote = pause.wrote_bytes
    if wrote is None or wrote < SAVE_BYTES:
        return False
    return wrote / max(0.1, pause.seconds) >= SAVE_BYTES_PER_SECOND


def who_paused(window: Window) -> str:
    """``GPU 3``; a job without a GPU is a loop."""
    return named(window.gpus) if window.gpus else "The training loop"


def reported_evidence(pauses: Sequence[Pause], phase: str) -> Evidence | None:
    """In how many of these pauses the job itself said what it did."""
    reported = sum([pause.phase == phase for pause in pauses])
    does = "saved a checkpoint" if phase == "checkpoint" else "validated"
    if not reported:
        return None
    says = f"the job reported that it {does}"
    return Evidence(f"reported as {phase}", float(reported), says=says)


def idle_part(pause: Pause) -> float:
    """0 to 1: how much of the pause the GPU idled; a validation works on."""
    return 1.0 if pause.busy_percent is None else clamp(1.0 - pause.busy_percent / 100.0)


def rhythm(pauses: Sequence[Pause]) -> float | None:
    """Mean distance of the pauses' begins in seconds, where at least three are regular."""
    if len(pauses) < 3:
        return None
    distances = [
        later.at_unix_seconds - earlier.at_unix_seconds for earlier, later in pairwise(pauses)
    ]
    mean = fmean(distances)
    return None if mean <= 0.0 or pstdev(distances) / mean > REGULAR else mean


def watched_seconds(window: Window) -> float:
    """Over how long the window's pauses were gathered."""
    known = window.watched_seconds if window.job is None else window.job.watched_seconds
    return min(REMEMBERED_SECONDS, max(window.watched_seconds, known))


def lost_share(window: Window, pauses: Sequence[Pause]) -> float:
    """0 to 1: of that time, what GPUs idled in these pauses."""
    watched = watched_seconds(window)
    idle = sum([pause.seconds * idle_part(pause) for pause in pauses])
    return min(1.0, idle / watched) if watched > 0.0 else 0.0


def pause_share(window: Window, gpu: GpuKey | None = None) -> float:
    """0 to 1: the part of the watched time that this GPU (or any) idled in pauses, in one that
    goes on, too.

    Where the loader workers are at their limit all the time, what looks like a pause is a long
    wait for batches: workers that work in step deliver in bursts. Only saves count then.
    """
    if window.watched_seconds <= 0.0:
        return 0.0
    begin = window.taken_at_unix_seconds - window.seconds
    idle = 0.0
    for pause in real_pauses(window, (*window.pauses, *window.ongoing)):
        if gpu is None or not pause.gpus or gpu in pause.gpus:
            end = pause.at_unix_seconds + pause.seconds
            idle += max(0.0, end - max(begin, pause.at_unix_seconds)) * idle_part(pause)
    return min(1.0, idle / window.watched_seconds)


def real_pauses(window: Window, pauses: tuple[Pause, ...] | None = None) -> tuple[Pause, ...]:
    """Those of the window that are over, or ``pauses``, without waits for the loader."""
    found = window.pauses if pauses is None else pauses
    if window.job is None or not _never_rest(window.job) or not _recur(window, window.job):
        return found
    return tuple([pause for pause in found if is_save(pause)])


def _recur(window: Window, job: JobFacts) -> bool:
    """Check whether such pauses come again and again, as waits for batches do."""
    since = window.taken_at_unix_seconds - RECUR_SECONDS
    quiet = [one for one in window.pauses if one.at_unix_seconds >= since and not is_save(one)]
    lost = sum([one.seconds * idle_part(one) for one in quiet])
    span = min(RECUR_SECONDS, job.watched_seconds)
    return len(quiet) * RECUR_EVERY_SECONDS >= span or lost >= RECUR_SHARE * span


def _never_rest(job: JobFacts) -> bool:
    """Check whether the loader workers work or wait for storage all the time, also while the GPUs
    idle."""
    workers = job.workers
    if workers is None or workers.count <= 0.0:
        return False
    waits = in_disk_wait(workers) or 0.0
    if (wanted(workers) or 0.0) + waits < WORKERS_AT_LIMIT_PERCENT:
        return False
    idle, queue = job.workers_when_idle_percent, workers.run_queue_wait_percent or 0.0
    return idle is None or idle + queue + waits >= WORKERS_AT_LIMIT_PERCENT
