"""Training pauses at validations or at the ends of epochs.

What it checks
    Pauses of a steadily busy GPU (it idles, or works less than before), at least two, in which
    little was written or sent, and something was computed: by the GPU, the main thread or a
    worker. Where the GPU rests in them and no loader worker begins: three, in a rhythm, of a job
    that loads data. What new loader workers take of them is for workers_restart.

Why it matters
    This is information: the idle time is explained, and it is not a starved loader.

Evidence needed
    Two pauses or more, and what was written during them. Stronger with a third (a rhythm) and with
    stacks (evaluating). A pause that the job reports as validation is one, even
    the first; one reported as a checkpoint is not.

When it is wrong
    A save through a daemon of the storage can look the same, and so can a queue of jobs (the trials
    of a sweep), which pauses in a rhythm: where nothing but that shows, pauses in which GPU memory
    was freed, or that take 30% of the time, or of a program without loader workers (it may make
    pictures, or play games), are left open. Those in which compilers ran are recompiles. Long
    waits for a loader whose workers are at their limit, or of which a single one makes a slow
    batch, are not counted.

What to do
    Nothing, if the share is what you expect. Otherwise validate less often or on a subset; a
    larger batch under torch.inference_mode().

Thresholds
    Two pauses: one is no pattern. 5% of the time lost before a change is suggested: what
    TensorFlow's profiler calls moderate.

Sources
    PyTorch Lightning, Trainer: val_check_interval, check_val_every_n_epoch, limit_val_batches.
"""

from collections.abc import Callable, Sequence

from gpuwatch.diagnosis.finding import SAVE_BYTES, Pause
from gpuwatch.diagnosis.rule import PAUSES, Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import pauses, words
from gpuwatch.diagnosis.rules.shared.loading import NO_JOB
from gpuwatch.diagnosis.rules.shared.words import clear_if, unknown_if

RULE = Rule(
    title="validation pauses",
    means=PAUSES,
    gives_back="some",
    severity="info",
    cure=(
        Advice(
            "Validate less often, on part of the data, or with a larger batch.",
            brief="Validate less often, or on part of the data",
            why="the pauses take a noticeable share of the time",
        ),
    ),
    explains={"oscillation"},
    of_pauses=True,
    look_alike=6,
    charts=("write",),
    chart_seconds=180.0,
)
UNSEEN = "stacks in a pause: while its GPU rests, a job may have nothing to do, or wait for others"
LEAST_PAUSES = 2
"""One is no pattern."""
ADVISED_SHARE = 0.05  # of the time


def check(window: Window) -> Verdict:
    unknown_if(window.job is None and not window.pauses, *NO_JOB)
    quiet = [pause for pause in pauses.real_pauses(window) if _is_quiet(pause)]
    reported = any(pause.phase == "validation" for pause in quiet)
    several = len(window.pauses) >= LEAST_PAUSES
    explained = "saves, compilers, or workers that restart, explain the pauses"
    clear_if(not quiet, explained if several else "there was no pause without writes")
    clear_if(len(quiet) < LEAST_PAUSES and not reported, "one pause is no pattern")
    unread = all(pause.wrote_bytes is None for pause in quiet)
    unknown_if(unread and not reported, "what was written during the pauses")
    evaluating = None if window.job is None else window.job.stack_percent("evaluating")
    guessed = not evaluating and not _mostly(quiet, pauses.is_interruption)
    unknown_if(guessed and _may_be_rest(window, quiet), UNSEEN)
    return _firing(window, quiet, evaluating, reported=reported, guessed=guessed)


def _is_quiet(pause: Pause) -> bool:
    compiles = pause.compiled and pause.phase is None
    return not (pause.is_save or pause.is_restart or compiles)


def _mostly(quiet: Sequence[Pause], test: Callable[[Pause], bool]) -> bool:
    return 2 * sum(map(test, quiet)) >= len(quiet)


def _may_be_rest(window: Window, quiet: Sequence[Pause]) -> bool:
    """Check whether pauses that nothing shows to be validations may as well be a lack of work: they
    have no rhythm, or nothing of the job worked in most of them, or they speak against it."""
    silent = 2 * sum(map(pauses.is_silent, quiet)) > len(quiet)
    unlike = pauses.rhythm(quiet) is None or silent or not _has_loader(window)
    return unlike or pauses.against_saving(window) is not None


def _has_loader(window: Window) -> bool:
    """Check whether the job is seen to load data, or may: a program that makes pictures, or plays
    games, pauses as well."""
    job = window.job
    return job is None or not job.ranks or any(rank.loader_workers != 0 for rank in job.ranks)


def _what(quiet: Sequence[Pause], *, told: bool, guessed: bool) -> tuple[str, str, str]:
    """Return what the pauses are, as far as anything shows it, for a sentence, a short one, and in
    a word."""
    if told:
        return "validation", "validation", "for eval"
    if guessed:
        return "validation, or metrics and logging", "validation or logging", "(no save)"
    if _mostly(quiet, lambda pause: pause.restart_seconds > 0.0):
        return "ends of epochs", "ends of epochs", "(epochs)"
    return "validation, or other work on the GPU", "validation or other work", "(no save)"


def _firing(
    window: Window,
    quiet: Sequence[Pause],
    evaluating: float | None,
    *,
    reported: bool,
    guessed: bool,
) -> Firing:
    lost, told = pauses.lost_share(window, quiet), reported or bool(evaluating)
    what, *short = _what(quiet, told=told, guessed=guessed)
    regular = reported or pauses.rhythm(quiet) is not None
    least = None if len(quiet) < LEAST_PAUSES else float(LEAST_PAUSES)
    return Firing(
        summary=f"{pauses.summary(window, quiet)}, without writing: "
        f"{what} ({words.in_percent(lost)} of the time)",
        short=pauses.briefly(window, quiet, *short),
        evidence=[
            pauses.reported_evidence(quiet, "validation"),
            pauses.count_evidence(window, quiet, "pauses without writes", least),
            pauses.longest_evidence(quiet, "the GPU had less work" if window.gpus else
                                    "no training step ran"),
            Evidence("written in a pause", max([pause.wrote_bytes or 0.0 for pause in quiet]),
                     "bytes", SAVE_BYTES, "too little for a checkpoint"),
            pauses.lost_evidence(lost),
            Evidence("stacks in an evaluation", evaluating, "%",
                     says="of the main thread's samples", supports=bool(evaluating)),
        ],
        advice=None if lost >= ADVISED_SHARE else (),
        strength=words.strength(
            1.0 if reported else words.ramp(len(quiet), 1.0, 4.0),
            1.0 if regular else 0.2,
            1.0 if told else 0.5,
            missing=int(guessed),
        ),
        missing=("stacks in a pause",) if guessed else (),
        lost_share=lost,
        pauses=tuple(quiet),
    )  # fmt: skip
