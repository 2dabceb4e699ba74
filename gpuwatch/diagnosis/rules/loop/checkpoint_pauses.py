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

from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared.loading import NO_JOB
from gpuwatch.diagnosis.rules.shared.pauses import (
    SAVE_BYTES,
    is_save,
    lost_share,
    reported_evidence,
    rhythm,
    watched_seconds,
    who_paused,
)
from gpuwatch.diagnosis.rules.shared.words import amount, lasting, percent_of, ramp, strength

RULE = Rule(
    title="checkpoint pauses",
    cure=(
        Advice(
            "Save asynchronously (torch.distributed.checkpoint.async_save, or write from a "
            "thread).",
            why="training goes on while the copy is written",
        ),
        Advice(
            "Save less often, to a local disk first, or sharded over the ranks.",
            why="training waits for as long as the write takes",
        ),
    ),
    # The others of the job wait in a collective until the writer is back.
    explains=frozenset({"oscillation", "collective_wait", "straggler"}),
    of_pauses=True,
    look_alike=5,
    suspect="checkpoints",
    suspected=9,
    chart="write",
    chart_seconds=180.0,
)
LOST_SHARE = 0.02  # of the time


def check(window: Window) -> Verdict:
    if not window.pauses:
        return Unknown(NO_JOB) if window.job is None else Clear("no pause was seen")
    saves = [pause for pause in window.pauses if is_save(pause)]
    if not saves:
        if all(pause.wrote_bytes is None for pause in window.pauses):
            return Unknown(("what was written during the pauses",))
        return Clear("little was written during the pauses")
    lost, every = lost_share(window, saves), rhythm(saves)
    wrote = max(pause.wrote_bytes or 0.0 for pause in saves)
    longest = max(pause.seconds for pause in saves)
    times = "once" if len(saves) == 1 else f"{len(saves)} times"
    times = times if every is None else f"every {lasting(every)}"
    reported = any(pause.phase == "checkpoint" for pause in saves)
    written = f" while {amount(wrote)} were written" if wrote > 0.0 or not reported else ""
    large, ran = wrote >= SAVE_BYTES, "no kernel ran" if window.gpus else "no step was made"
    evidence = [
        reported_evidence(saves, "checkpoint"),
        Evidence("pauses with writes", float(len(saves)),
                 says=f"in the last {lasting(watched_seconds(window))}"),
        Evidence("longest pause", round(longest, 1), "s", says=f"{ran} meanwhile"),
        Evidence("written in a pause", round(wrote), "bytes", SAVE_BYTES,
                 f"{'' if large else 'less than '}a checkpoint's size", supports=large),
        Evidence("time lost", percent_of(lost), "%", 100.0 * LOST_SHARE, "of the time watched",
                 supports=lost >= LOST_SHARE),
    ]  # fmt: skip
    return Firing(
        summary=f"{who_paused(window)} paused for up to {lasting(longest)} {times}"
        f"{written}: checkpoints ({lost:.0%} of the time)",
        evidence=evidence,
        severity=None if lost >= LOST_SHARE else "info",
        strength=strength(
            1.0 if reported else ramp(wrote, 16e6, 500e6),
            1.0 if every is not None or reported else ramp(len(saves), 0.0, 3.0),
        ),
        lost_share=lost,
        pauses=tuple(saves),
    )
