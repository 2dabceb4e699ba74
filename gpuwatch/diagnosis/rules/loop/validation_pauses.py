"""Training pauses at validations or at the ends of epochs.

What it checks
    Pauses of a steadily busy GPU (it idles, or works less than before), at least two, in which
    little was written.

Why it matters
    This is information: the idle time is explained, and it is not a starved loader. What can be
    saved is restarting the loader at every epoch.

Evidence needed
    Two pauses or more, and what was written during them. Stronger with a third (a rhythm) and with
    stacks (evaluating, starting workers).

    Where the job reports its own loop (gpuwatch.torch), a pause reported as validation is one,
    even the first, and one reported as a checkpoint is not.

When it is wrong
    A save that does not show as disk writes looks the same. So can two stalls of a network file
    system. Long waits for a loader whose workers are at their limit are not counted.

What to do
    Nothing, if the share is what you expect. Otherwise: persistent_workers=True, so that workers
    are not restarted at every epoch (with large datasets that takes seconds); validate less often
    or on a subset; a larger batch under torch.inference_mode().

Thresholds
    Two pauses: one is no pattern. 5% of the time lost before a change is suggested: what
    TensorFlow's profiler calls moderate.

Sources
    PyTorch, torch.utils.data.DataLoader: persistent_workers keeps the workers after an epoch.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import Pause, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import (
    NO_JOB,
    counted,
    real_pauses,
    stack_percent,
    strength,
)
from gpuwatch.diagnosis.rules.shared.gpus import lasting, ramp
from gpuwatch.diagnosis.rules.shared.pauses import (
    is_save,
    lost_share,
    rhythm,
    told_evidence,
    watched_seconds,
    who_paused,
)

LEAST_PAUSES = 2
"""One is no pattern."""

ADVISED_SHARE = 0.05
"""Of the time lost: below it a change is not worth its trouble."""


def check(window: Window) -> Verdict:
    if window.job is None and not window.pauses:
        return Unknown(missing=NO_JOB)
    quiet = [pause for pause in real_pauses(window) if not is_save(pause)]
    if not quiet and len(window.pauses) >= LEAST_PAUSES:
        return Clear(why="saves, or workers at their limit, explain the pauses")
    if not quiet:
        return Clear(why="there was no pause without writes")
    told = [pause for pause in quiet if pause.phase == "validation"]
    if len(quiet) < LEAST_PAUSES and not told:
        return Clear(why="one pause is no pattern")
    if all(pause.wrote_bytes is None for pause in quiet) and not told:
        return Unknown(missing=("what was written during the pauses",))
    return _firing(window, quiet)


def _firing(window: Window, quiet: list[Pause]) -> Firing:
    lost = lost_share(window, quiet)
    every = rhythm(quiet)
    longest = max(pause.seconds for pause in quiet)
    told = any(pause.phase == "validation" for pause in quiet)
    times = counted(len(quiet), "time") if every is None else f"every {lasting(every)}"
    evaluating = None if window.job is None else stack_percent(window.job, "evaluating")
    return Firing(
        summary=f"{who_paused(window)} paused {times}, up to {lasting(longest)}, without writing: "
        f"{'validation' if told else 'validation or ends of epochs'} ({lost:.0%} of the time)",
        evidence=tuple(_evidence(window, quiet, longest, lost, evaluating)),
        advice=_advice() if lost >= ADVISED_SHARE else (),
        severity="info",
        strength=strength(
            1.0 if told else ramp(len(quiet), 1.0, 4.0),
            1.0 if every is not None or told else 0.2,
            1.0 if evaluating or told else 0.5,
        ),
        lost_share=lost,
        pauses=tuple(quiet),
        explains=frozenset({"oscillation"}),
    )


def _evidence(
    window: Window, quiet: list[Pause], longest: float, lost: float, evaluating: float | None
) -> list[Evidence]:
    wrote = max((pause.wrote_bytes or 0.0 for pause in quiet), default=0.0)
    evidence = [
        *told_evidence(quiet, "validation"),
        Evidence(
            name="pauses without writes",
            value=float(len(quiet)),
            threshold=None if len(quiet) < LEAST_PAUSES else float(LEAST_PAUSES),
            says=f"in the last {lasting(watched_seconds(window))}",
        ),
        Evidence(
            name="longest pause",
            value=round(longest, 1),
            unit="s",
            says="the GPU had less work" if window.gpus else "no training step ran",
        ),
        Evidence(
            name="written in a pause",
            value=round(wrote),
            unit="bytes",
            threshold=32.0 * 1024**2,
            says="too little for a checkpoint",
        ),
        Evidence(
            name="time lost", value=round(100.0 * lost, 1), unit="%", says="of the time watched"
        ),
    ]
    if evaluating is not None:
        says = "of the main thread's samples were in an evaluation"
        evidence.append(
            Evidence(
                name="stacks in an evaluation",
                value=round(evaluating, 1),
                unit="%",
                says=says,
                supports=evaluating > 0.0,
            )
        )
    return evidence


def _advice() -> tuple[Advice, ...]:
    return (
        Advice(
            action="Set persistent_workers=True in both DataLoaders.",
            setting="persistent_workers",
            wanted="True",
            why="the workers are then not restarted at every epoch",
        ),
        Advice(
            action="Validate less often or on part of the data, with a larger batch.",
            why="the pauses take a noticeable share of the time",
        ),
    )
