"""Training stops while a checkpoint is written.

What it checks
    Pauses of a steadily busy GPU in which the job wrote much to storage.

Why it matters
    A synchronous save costs its full duration on every GPU of the job: rank 0 writes and the
    others wait in the next collective (busy, at low power).

Evidence needed
    At least one pause and what was written during it. Stronger with a second one: saves are
    periodic.

    Where the job reports its own loop (gpuwatch.torch), a pause reported as a checkpoint is one,
    whatever was written, and one reported as validation is not.

When it is wrong
    Saves that do not show as writes of this job (object stores, some network file systems) look
    like validation. Another job's writes count only for the machine.

What to do
    Save asynchronously (torch.distributed.checkpoint.async_save, or copy the state to pinned
    memory and write from a thread), less often, to a local disk first, sharded over the ranks, or
    without the optimizer's state where it is not needed.

Thresholds
    32 MiB in a pause, at 10 MB/s or more: the weights of a small convolutional network with their
    optimizer exceed it; logs and event files do not.
    2% of the time lost: below it the finding is information only.

Sources
    PyTorch, torch.distributed.checkpoint, async_save. The time lost is measured, not assumed.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import Pause, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import NO_JOB, amount, strength
from gpuwatch.diagnosis.rules.shared.gpus import lasting, ramp
from gpuwatch.diagnosis.rules.shared.pauses import (
    SAVE_BYTES,
    is_save,
    lost_share,
    rhythm,
    told_evidence,
    watched_seconds,
    who_paused,
)

LOST_SHARE = 0.02
"""Of the time: less is not worth a warning."""


def check(window: Window) -> Verdict:
    if window.job is None and not window.pauses:
        return Unknown(missing=NO_JOB)
    if not window.pauses:
        return Clear(why="no pause was seen")
    unread = [pause for pause in window.pauses if pause.wrote_bytes is None]
    saves = [pause for pause in window.pauses if is_save(pause)]
    if not saves:
        if len(unread) == len(window.pauses):
            return Unknown(missing=("what was written during the pauses",))
        return Clear(why="little was written during the pauses")
    return _firing(window, saves)


def _firing(window: Window, saves: list[Pause]) -> Firing:
    lost = lost_share(window, saves)
    wrote = max(pause.wrote_bytes or 0.0 for pause in saves)
    longest = max(pause.seconds for pause in saves)
    every = rhythm(saves)
    times = f"every {lasting(every)}" if every is not None else _times(len(saves))
    told = any(pause.phase == "checkpoint" for pause in saves)
    written = f" while {amount(wrote)} were written" if wrote > 0.0 or not told else ""
    return Firing(
        summary=f"{who_paused(window)} paused for up to {lasting(longest)} {times}"
        f"{written}: checkpoints ({lost:.0%} of the time)",
        evidence=tuple(_evidence(window, saves, wrote, longest, lost)),
        advice=_advice(),
        severity="warning" if lost >= LOST_SHARE else "info",
        strength=strength(
            1.0 if told else ramp(wrote, 16e6, 500e6),
            1.0 if every is not None or told else ramp(len(saves), 0.0, 3.0),
        ),
        lost_share=lost,
        pauses=tuple(saves),
        # The others of the job wait in a collective until the writer is back.
        explains=frozenset({"oscillation", "collective_wait", "straggler"}),
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _evidence(
    window: Window, saves: list[Pause], wrote: float, longest: float, lost: float
) -> list[Evidence]:
    return [
        *told_evidence(saves, "checkpoint"),
        Evidence(
            name="pauses with writes",
            value=float(len(saves)),
            says=f"in the last {lasting(watched_seconds(window))}",
        ),
        Evidence(
            name="longest pause",
            value=round(longest, 1),
            unit="s",
            says="no kernel ran meanwhile" if window.gpus else "no step was made meanwhile",
        ),
        Evidence(
            name="written in a pause",
            value=round(wrote),
            unit="bytes",
            threshold=32.0 * 1024**2,
            says="a checkpoint's size" if wrote >= SAVE_BYTES else "less than a checkpoint's size",
            supports=wrote >= SAVE_BYTES,
        ),
        Evidence(
            name="time lost",
            value=round(100.0 * lost, 1),
            unit="%",
            threshold=100.0 * LOST_SHARE,
            says="of the time watched",
            supports=lost >= LOST_SHARE,
        ),
    ]


def _advice() -> tuple[Advice, ...]:
    return (
        Advice(
            action="Save asynchronously (torch.distributed.checkpoint.async_save, or write from a "
            "thread).",
            why="training goes on while the copy is written",
        ),
        Advice(
            action="Save less often, to a local disk first, or sharded over the ranks.",
            why="training waits for as long as the write takes",
        ),
    )
