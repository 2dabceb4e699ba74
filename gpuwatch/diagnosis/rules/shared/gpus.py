"""What the rules about GPUs share: how GPUs, ranks and sizes are called, and a few means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuwatch.diagnosis.facts.window import GpuFacts, RankFacts, Window

GIB = 1024**3
"""Bytes."""

PINNED_PERCENT = 85.0
"""From here on a GPU is "busy all the time": drivers show 95-100% for back-to-back kernels, and a
job that logs or saves now and then some points less."""


RANGE_LEAST = 3
"""GPUs in a row that are named by the first and the last."""


def named(gpus: Sequence[GpuFacts]) -> str:
    """``GPU 3``, ``GPUs 0 and 2``, ``GPUs 0, 1 and 4``, ``GPUs 0 to 7``."""
    parts = _ranges(gpus)
    if len(gpus) == 1:
        return f"GPU {parts[0]}"
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"GPUs {listed}"


def _ranges(gpus: Sequence[GpuFacts]) -> list[str]:
    runs: list[list[GpuFacts]] = []
    for gpu in gpus:
        whole = gpu.identity.mig_instance is None
        if runs and whole and gpu.identity.index == runs[-1][-1].identity.index + 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    parts = []
    for run in runs:
        if len(run) >= RANGE_LEAST:
            parts.append(f"{_number(run[0])} to {_number(run[-1])}")
        else:
            parts += [_number(gpu) for gpu in run]
    return parts


def _number(gpu: GpuFacts) -> str:
    identity = gpu.identity
    if identity.mig_instance is None:
        return str(identity.index)
    return f"{identity.index} (MIG {identity.mig_instance})"


def verb(gpus: Sequence[GpuFacts], one: str, several: str) -> str:
    return one if len(gpus) == 1 else several


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that were read."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def watched(window: Window) -> float:
    return max(1e-9, window.watched_seconds)


def reason_share(window: Window, gpu: GpuFacts, *reasons: str) -> float | None:
    """0 to 1: of the time watched, how long the reason among these that held longest did.

    Reasons overlap (a hardware slowdown for heat is reported under two names), so they are not
    added up.
    """
    if gpu.throttle_shares is None:
        return None
    seconds = [held.seconds for held in gpu.throttle_shares if held.reason in reasons]
    return min(1.0, max(seconds, default=0.0) / watched(window))


def busy_mean(gpu: GpuFacts) -> float | None:
    return None if gpu.busy is None else gpu.busy.mean_percent


def works(gpus: Iterable[GpuFacts]) -> list[GpuFacts]:
    """Those that are there and whose busy share is known."""
    return [gpu for gpu in gpus if not gpu.lost and gpu.busy is not None]


def rank_of(window: Window, gpu: GpuFacts) -> RankFacts | None:
    """The rank that runs on this GPU, where one is known."""
    ranks = () if window.job is None else window.job.ranks
    for rank in ranks:
        if gpu.uuid in rank.gpu_uuids:
            return rank
    return None


def who(window: Window, gpu: GpuFacts) -> str:
    """``rank 3 on GPU 3``, or ``GPU 3`` where the rank is not known."""
    rank = rank_of(window, gpu)
    if rank is None:
        return named([gpu])
    if rank.rank is None:
        return f"PID {rank.pid} on {named([gpu])}"
    return f"rank {rank.rank} on {named([gpu])}"


def gib(size: float) -> str:
    """``31.2 GiB``."""
    return f"{size / GIB:.1f} GiB"


def lasting(seconds: float) -> str:
    """``40 s``, ``7 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


def ramp(value: float, low: float, high: float) -> float:
    """0 at ``low``, 1 at ``high``, a line between; ``high`` may be the smaller one."""
    return clamp((value - low) / (high - low))
