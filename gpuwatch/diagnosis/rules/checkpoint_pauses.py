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
from gpuwatch.diagnosis.rule import PAUSES, Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import pauses, words
from gpuwatch.diagnosis.rules.shared.loading import NO_JOB
from gpuwatch.diagnosis.rules.shared.words import clear_if, unknown_if

RULE = Rule(
    title="checkpoint pauses",
    means=PAUSES,
    gives_back="all",
    cure=(
        Advice(
            "Save asynchronously (torch.distributed.checkpoint.async_save, or write from a "
            "thread).",
            brief="Save asynchronously",
            why="training goes on while the copy is written",
        ),
        Advice(
            "Save less often, to a local disk first, or sharded over the ranks.",
            brief="Save less often, or to a local disk first",
            why="training waits for as long as the write takes",
        ),
    ),
    # The others of the job wait in a collective until the writer is back.
    explains={"oscillation", "collective_wait", "straggler"},
    of_pauses=True,
    look_alike=5,
    charts=("write",),
    chart_seconds=180.0,
)


def check(window: Window) -> Verdict:
    unknown_if(not window.pauses and window.job is None, *NO_JOB)
    clear_if(not window.pauses, "no pause was seen")
    saves = [pause for pause in window.pauses if pause.is_save]
    unread = all(pause.wrote_bytes is None for pause in window.pauses)
    unknown_if(not saves and unread, "what was written during the pauses")
    clear_if(not saves, "little was written or sent during the pauses")
    return _firing(window, saves)


def _firing(window: Window, saves: list[Pause]) -> Firing:
    lost, every = pauses.lost_share(window, saves), pauses.rhythm(saves)
    saved = max([pause.saved_bytes for pause in saves])
    reported = any(pause.phase == "checkpoint" for pause in saves)
    away, large = _went_away(saves), saved >= SAVE_BYTES
    how = "sent over the network" if away else "written"
    what = "" if saved <= 0.0 and reported else f", while {words.amount(saved)} was {how}"
    size = f" ({words.amount(saved)} {'sent' if away else 'written'})" if what else ""
    evidence = [
        pauses.reported_evidence(saves, "checkpoint"),
        pauses.count_evidence(window, saves, "pauses with uploads" if away else
                              "pauses with writes"),
        pauses.longest_evidence(saves, "no kernel ran meanwhile" if window.gpus else
                                "no step was made meanwhile"),
        Evidence("sent in a pause" if away else "written in a pause", saved, "bytes", SAVE_BYTES,
                 f"{'' if large else 'less than '}a checkpoint's size", supports=large),
        pauses.lost_evidence(lost),
    ]  # fmt: skip
    return Firing(
        summary=f"{pauses.summary(window, saves)}{what}: checkpoints "
        f"({words.in_percent(lost)} of the time)",
        short=pauses.briefly(window, saves, f"checkpoints{size}", "to save"),
        evidence=evidence,
        strength=words.strength(
            1.0 if reported else words.ramp(saved, 16e6, 500e6),
            1.0 if every is not None or reported else words.ramp(len(saves), 0.0, 3.0),
        ),
        lost_share=lost,
        pauses=tuple(saves),
    )


def _went_away(saves: list[Pause]) -> bool:
    """Check whether more was sent over the network than written, in all of them."""
    more_sent = all(one.saved_bytes > (one.wrote_bytes or 0.0) for one in saves)
    return more_sent and max([pause.saved_bytes for pause in saves]) > 0.0
