"""Training stops while a checkpoint is written.

What it checks
    Pauses of a steadily busy GPU in which the job wrote a lot, or sent a lot over the network.

Why it matters
    A synchronous save costs its full duration on every GPU of the job: rank 0 writes and the
    others wait in the next collective (busy, at low power).

Evidence needed
    A pause and what was written or sent during it, on the job's own connections (of the job that
    gpuwatch is attached to), else what the machine sent beyond what it did just before. Stronger
    with a second one: saves are periodic. A pause that the job reports (gpuwatch.torch) as a
    checkpoint is one, whatever was written, and one reported as validation is not.

    What is written in the few seconds after a pause, beyond the usual, belongs to it: pages are
    written back while the GPU works again. Waits too short for pauses, or too near each other,
    count where the job saved in most of them.

When it is wrong
    Another job's writes count only for the machine. A job on several machines that exchanges
    gradients sends while it trains; another transfer of this machine in the same seconds counts.

Thresholds
    32 MiB in a pause, at 10 MB/s or more: the weights of a small convolutional network with their
    optimizer exceed it; logs and event files do not.
    9% of the time lost: with less, nothing is said, since less than 10% would be gained.

Sources
    PyTorch, torch.distributed.checkpoint, async_save. The time lost is measured, not assumed.
"""

from gpuwatch.diagnosis.finding import SAVE_BYTES, Pause
from gpuwatch.diagnosis.rule import (
    PAUSES,
    Advice,
    Clear,
    Evidence,
    Firing,
    Rule,
    Unknown,
    Verdict,
    Window,
)
from gpuwatch.diagnosis.rules.shared import pauses
from gpuwatch.diagnosis.rules.shared.loading import NO_JOB
from gpuwatch.diagnosis.rules.shared.words import (
    amount,
    in_percent,
    lasting,
    percent_of,
    ramp,
    strength,
)
from gpuwatch.diagnosis.sentence import number

RULE = Rule(
    title="checkpoint pauses",
    means=PAUSES,
    gives_back="all",
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
    explains={"oscillation", "collective_wait", "straggler"},
    of_pauses=True,
    look_alike=5,
    chart="write",
    chart_seconds=180.0,
)


def check(window: Window) -> Verdict:
    if not window.pauses:
        return Unknown(NO_JOB) if window.job is None else Clear("no pause was seen")
    saves = [pause for pause in window.pauses if pause.is_save]
    if not saves:
        if all(pause.wrote_bytes is None for pause in window.pauses):
            return Unknown(("what was written during the pauses",))
        return Clear("little was written or sent during the pauses")
    return _firing(window, saves)


def _firing(window: Window, saves: list[Pause]) -> Firing:
    lost, every = pauses.lost_share(window, saves), pauses.rhythm(saves)
    wrote, longest = (
        max(pause.saved_bytes for pause in saves),
        max(pause.seconds for pause in saves),
    )
    away, done = _went_away(saves), "sent" if _went_away(saves) else "written"
    reported = any(pause.phase == "checkpoint" for pause in saves)
    large, ran = wrote >= SAVE_BYTES, "no kernel ran" if window.gpus else "no step was made"
    evidence = [
        pauses.reported_evidence(saves, "checkpoint"),
        Evidence("pauses with uploads" if away else "pauses with writes", float(len(saves)),
                 says=f"in the last {lasting(pauses.watched_seconds(window))}"),
        Evidence("longest pause", round(longest, 1), "s", says=f"{ran} meanwhile"),
        Evidence(f"{done} in a pause", round(wrote), "bytes", SAVE_BYTES,
                 f"{'' if large else 'less than '}a checkpoint's size", supports=large),
        Evidence("time lost", percent_of(lost), "%", says="of the time watched"),
    ]  # fmt: skip
    return Firing(
        summary=f"{pauses.who_paused(window)} paused {_how_often(saves)}, for up to "
        f"{lasting(longest)}{_what_was_saved(saves)}: checkpoints ({in_percent(lost)} of the time)",
        evidence=evidence,
        strength=strength(
            1.0 if reported else ramp(wrote, 16e6, 500e6),
            1.0 if every is not None or reported else ramp(len(saves), 0.0, 3.0),
        ),
        lost_share=lost,
        pauses=tuple(saves),
    )


def _went_away(saves: list[Pause]) -> bool:
    """Check whether more was sent over the network than written, in all of them."""
    more_sent = all(one.saved_bytes > (one.wrote_bytes or 0.0) for one in saves)
    return more_sent and max(pause.saved_bytes for pause in saves) > 0.0


def _how_often(saves: list[Pause]) -> str:
    every = pauses.rhythm(saves)
    if every is not None:
        return f"every {lasting(every)}"
    return "once" if len(saves) == 1 else f"{number(len(saves))} times"


def _what_was_saved(saves: list[Pause]) -> str:
    """A clause on the bytes of a save; empty where the job's own report is all that is known."""
    wrote = max(pause.saved_bytes for pause in saves)
    if wrote <= 0.0 and any(pause.phase == "checkpoint" for pause in saves):
        return ""
    how = "sent over the network" if _went_away(saves) else "written"
    return f", while {amount(wrote)} was {how}"
