"""What the rules about pauses share: what a save is, the rhythm of pauses, the time they cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev

from gpuwatch.diagnosis.facts.window import Pause, Window
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rules.shared.gpus import named

SAVE_BYTES = 32.0 * 1024**2
"""The weights of a small convolutional network with their optimizer; logs are far below."""

SAVE_BYTES_PER_SECOND = 10e6
"""A slow network disk; a pause of minutes with a trickle of logs stays below."""

REMEMBERED_SECONDS = 900.0
"""How long a window keeps pauses."""

REGULAR = 0.35
"""Coefficient of variation of the distances up to which pauses come in a rhythm: saves every N
steps jitter with the steps; unrelated events scatter around 1."""


def is_save(pause: Pause) -> bool:
    """By what the job tells that it did, else by what it wrote."""
    if pause.phase in {"checkpoint", "validation"}:
        return pause.phase == "checkpoint"
    wrote = pause.wrote_bytes
    if wrote is None or wrote < SAVE_BYTES:
        return False
    return wrote / max(0.1, pause.seconds) >= SAVE_BYTES_PER_SECOND


def who_paused(window: Window) -> str:
    """``GPU 3``; a job without a GPU is a loop."""
    return named(window.gpus) if window.gpus else "The training loop"


def told_evidence(pauses: Sequence[Pause], phase: str) -> list[Evidence]:
    """In how many of these pauses the job itself said what it did; nothing where it never did."""
    told = sum([pause.phase == phase for pause in pauses])
    if not told:
        return []
    does = "saved a checkpoint" if phase == "checkpoint" else "validated"
    says = f"the job reported that it {does}"
    return [Evidence(name=f"reported as {phase}", value=float(told), says=says)]


def idle_part(pause: Pause) -> float:
    """0 to 1: how much of the pause the GPU idled; a validation works on."""
    if pause.busy_percent is None:
        return 1.0
    return 1.0 - min(100.0, max(0.0, pause.busy_percent)) / 100.0


def rhythm(pauses: Sequence[Pause]) -> float | None:
    """Mean distance of the pauses' begins in seconds, where at least three are regular."""
    if len(pauses) < 3:
        return None
    distances = [
        later.at_unix_seconds - earlier.at_unix_seconds for earlier, later in pairwise(pauses)
    ]
    mean = fmean(distances)
    if mean <= 0.0 or pstdev(distances) / mean > REGULAR:
        return None
    return mean


def watched_seconds(window: Window) -> float:
    """Over how long the window's pauses were gathered."""
    job = window.job
    known = window.watched_seconds if job is None else job.watched_seconds
    return min(REMEMBERED_SECONDS, max(window.watched_seconds, known))


def lost_share(window: Window, pauses: Sequence[Pause]) -> float:
    """0 to 1: of that time, what GPUs idled in these pauses."""
    watched = watched_seconds(window)
    idle = sum([pause.seconds * idle_part(pause) for pause in pauses])
    return min(1.0, idle / watched) if watched > 0.0 else 0.0
