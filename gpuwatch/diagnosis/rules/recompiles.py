"""Training pauses again and again while its model is compiled anew.

What it checks
    Pauses of a steadily busy GPU, at least two, in which compilers (ptxas, a C++ compiler, compile
    workers of torch.compile) ran among the job's processes.

Why it matters
    A model is compiled for the shapes and the settings that it saw. A batch of another length, a
    last batch that is smaller, or a number that changes with each step makes torch.compile and
    jax.jit compile again, for seconds to minutes, while the GPU idles; after a few times
    torch.compile gives up and runs the code uncompiled.

Evidence needed
    Two pauses with compilers in them, past the start-up, which compiles for the first time. Surer
    with a third.

When it is wrong
    The first validation compiles once, in evaluation mode, and a few lengths may each be compiled
    once: the pauses end by themselves then. Compilers that run within the training process show no
    processes of their own, and such pauses are not named.

Thresholds
    Two pauses: one can be the first validation. 10% of the time lost before it is a warning.

Sources
    PyTorch, "Dealing with recompilations" (torch.compile): guards, dynamic shapes,
    TORCH_LOGS=recompiles, and the limit of recompilations. JAX, jax_log_compiles.
"""

from gpuwatch.diagnosis.rule import PAUSES, Advice, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import pauses, words
from gpuwatch.diagnosis.rules.shared.loading import job_of
from gpuwatch.diagnosis.rules.shared.words import clear_if

RULE = Rule(
    title="recompiles",
    means=PAUSES,
    cure=(
        Advice(
            "See what makes it recompile: run it with TORCH_LOGS=recompiles.",
            brief="See what recompiles: TORCH_LOGS=recompiles",
            why="the log names the value or the shape that changed",
        ),
        Advice(
            "Compile for all sizes (torch.compile(dynamic=True)), or pad batches to a few lengths "
            "and drop the last, smaller one (drop_last=True).",
            brief="Compile for all sizes: dynamic=True",
            why="each new shape is compiled anew",
        ),
    ),
    explains={"oscillation", "python_bound", "validation_pauses"},
    of_pauses=True,
    look_alike=6,
    charts=("main",),
    chart_seconds=180.0,
)
JAX_CURE = (
    Advice(
        "See what makes it recompile: jax.config.update('jax_log_compiles', True).",
        brief="See what recompiles: set jax_log_compiles",
        why="the log names the function and its shapes",
    ),
    Advice(
        "Pad batches to a few lengths, and drop the last, smaller one.",
        brief="Pad batches to a few lengths",
        why="each new shape is compiled anew",
    ),
)
LEAST_PAUSES = 2
"""One can be the first validation, which compiles once."""
WARNED_SHARE = 0.10  # of the time


def check(window: Window) -> Verdict:
    job = job_of(window)
    found = [pause for pause in window.pauses if pause.compiled]
    clear_if(not found, "no compilers ran in its pauses")
    clear_if(len(found) < LEAST_PAUSES, "one pause is no pattern")
    lost = pauses.lost_share(window, found)
    return Firing(
        summary=f"{pauses.summary(window, found)}, while compilers ran: the job recompiles "
        f"({words.in_percent(lost)} of the time)",
        short=pauses.briefly(window, found, "the job recompiles", "to compile"),
        evidence=[
            pauses.count_evidence(window, found, "pauses with compilers", float(LEAST_PAUSES)),
            pauses.longest_evidence(found, "no kernel ran meanwhile"),
            pauses.lost_evidence(lost, WARNED_SHARE),
        ],
        severity=None if lost >= WARNED_SHARE else "info",
        advice=JAX_CURE if job.job.framework == "jax" else None,
        strength=words.strength(words.ramp(len(found), 1.0, 3.0)),
        lost_share=lost,
        pauses=tuple(found),
    )
