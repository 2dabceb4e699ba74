"""What is wrong with the simulated machine's readings, in the words the driver's reader uses."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core.model import GpuIdentity, Problem
from gpuwatch.sources.nvml import messages, tables
from gpuwatch.sources.simulated.parts.readings import GpuView


def losses(views: Sequence[GpuView], unix_at_zero: float) -> list[tuple[int, Problem]]:
    """(number of the GPU, what to say while it is lost)."""
    return [
        (
            number,
            messages.lost([view.identity], tables.GPU_IS_LOST, unix_at_zero + view.slot.lost_from),
        )
        for number, view in enumerate(views)
        if view.slot.lost_from is not None
    ]


def standing(views: Sequence[GpuView], since_unix_seconds: float) -> tuple[Problem, ...]:
    """What holds for as long as this machine runs."""
    if not views:
        sentence = messages.cannot_start(tables.DRIVER_NOT_LOADED, "")
        return (Problem(source=messages.SOURCE, message=sentence, severity="error"),)
    found = _failing(views, since_unix_seconds)
    split = [view.identity for view in views if view.slot.instances]
    without_samples = [view.identity for view in views if _keeps_no_samples(view)]
    for sentence, field, lacking in (
        (messages.NO_SAMPLES, "busy_samples", without_samples),
        (messages.NO_PROCESS_BUSY, "gpu_busy_percent", split),
    ):
        if lacking:
            found.append(messages.unsupported(sentence, field, lacking))
    return tuple(found)


def _keeps_no_samples(view: GpuView) -> bool:
    slot = view.slot
    return bool(slot.instances) or "busy_samples" in slot.mute or not slot.card.fine_samples


def _failing(views: Sequence[GpuView], since: float) -> list[Problem]:
    by_reading: dict[tuple[str, str], list[GpuIdentity]] = {}
    for view in views:
        for reading in view.slot.failing:
            by_reading.setdefault(reading, []).append(view.identity)
    return [
        messages.cannot_read([(words, field)], gpus, tables.UNKNOWN, since)
        for (field, words), gpus in by_reading.items()
    ]
