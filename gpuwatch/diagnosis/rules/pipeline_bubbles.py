"""The GPUs of a job work in turns: while one stage of the model works, the others wait for it.

What it checks
    Whether the GPUs of one job (or of what looks like one) are busy in turns: where one begins,
    another ends, again and again. Where they are busy all the time, because kernels that wait to
    receive spin, the same of their power.

Why it matters
    A model that is split over n GPUs by its layers runs a batch on one GPU after the other, and
    n GPUs are no faster than one. A pipeline hides that only with many micro-batches: with m of
    them, n - 1 of m + n - 1 steps are bubbles.

Evidence needed
    Utilisation or power of at least two GPUs, finer than a turn.

When it is wrong
    Two programs that hand data to each other look the same (generation and training in RLHF, a
    teacher and a student) and have the same cure: let them overlap.

Thresholds
    each GPU idle for 20% of the time, or busy at less than half its power at work for so long, in
    4 stretches or more: two jobs one after the other are no pipeline. At most 55% of the GPUs at
    work at a time, and their power in turns, too: otherwise ranks are late in turns. The mean
    correlation is 60% or more of what exact turns give (with n GPUs, -1/(n - 1)).

    Where 25% of the samples lie at neither end, turns are short, and such stretches are not
    counted; from 50% on all GPUs they are too fast to be seen: then all GPUs of
    one process are busy 75% to 105% of the time together, as one would be, less what the copies
    between them take. All are this project's choice.

Sources
    GPipe (Huang et al., 2019) and PipeDream (Narayanan et al., 2019) on bubbles and their share;
    Megatron-LM's interleaved schedule (2021); Transformers' documentation calls device_map="auto"
    naive pipeline parallelism.
"""

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import WAITING, Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.loading import settle_early
from gpuwatch.diagnosis.rules.shared.ranks import looks, ranks_of
from gpuwatch.diagnosis.rules.shared.words import briefly, clear_if, keys, named, ramp, unknown_if
from gpuwatch.diagnosis.sentence import number
from gpuwatch.diagnosis.signals.waveform import Waveform

RULE = Rule(
    title="stages take turns",
    means=WAITING,
    gives_back="some",
    cure=(
        Advice(
            "Split each batch into more micro-batches (four times the stages or more), or use an "
            "interleaved schedule (1F1B).",
            brief="Use more micro-batches, or schedule 1F1B",
            why="one stage then works on a part while the next works on the one before",
        ),
        Advice(
            "Where the model was split only to fit its memory (device_map), shard its weights "
            "instead (FSDP, ZeRO).",
            brief="Shard the weights (FSDP, ZeRO) instead",
            why="all GPUs then work at the same time",
        ),
    ),
    explains={
        "oscillation", "busy_without_work", "batch_too_small", "straggler", "collective_wait",
        "python_bound", "loader_in_main_process", "sync_every_step", "validation_pauses",
        "late_batches",
    },
)  # fmt: skip
IDLE_SHARE = 0.2  # of the time
LEAST_STRETCHES = 4
MOST_AT_ONCE = 0.55  # of the GPUs
TURNS = 0.6  # of exact ones
HIDDEN_SHARE, SHORT_SHARE = 0.5, 0.25  # of the samples
LEAST_SUM, MOST_SUM = 0.75, 1.05  # of one GPU's time
UNSEEN = "utilisation finer than the steps"


def check(window: Window) -> Verdict:
    gpus = ranks_of(window)
    settle_early(window)
    by_power = all(gpu.idle_share < IDLE_SHARE for gpu in gpus)
    waits = [(gpu.spins_share or 0.0) if by_power else gpu.idle_share for gpu in gpus]
    clear_if(min(waits) < IDLE_SHARE, "not all of its GPUs wait for a good part of the time")
    lost = sum(waits) / len(gpus)
    at_once = len(gpus) * (1.0 - lost)
    turns, hidden = _turns(window, gpus, by_power=by_power), _too_fast(gpus)
    unknown_if(not _shares_one(window, at_once) if hidden else turns is None, UNSEEN)
    if hidden or turns is None:
        return _firing(window, gpus, None, lost, by_power=by_power)
    clear_if(_not_in_turns(window, gpus, turns, at_once), "its GPUs do not work in turns")
    few = _fewest_stretches(gpus, by_power=by_power) < LEAST_STRETCHES
    clear_if(few, "its GPUs did not take turns often enough")
    return _firing(window, gpus, turns, lost, by_power=by_power)


def _turns(window: Window, gpus: list[GpuFacts], *, by_power: bool) -> float | None:
    """How exactly they work in turns, 1 for exact turns, by their correlation with each other."""
    moves = window.power_together if by_power else window.busy_together
    return None if moves is None else -moves * (len(gpus) - 1)


def _waves(gpus: list[GpuFacts]) -> list[Waveform]:
    return [gpu.busy for gpu in gpus if gpu.busy is not None]


def _too_fast(gpus: list[GpuFacts]) -> bool:
    """Check whether turns, if there are any, are faster than the samples."""
    return all(
        wave.faster_than_seen or wave.middling_share >= HIDDEN_SHARE for wave in _waves(gpus)
    )


def _shares_one(window: Window, at_once: float) -> bool:
    """Check whether all GPUs of one process are together as busy as one would be."""
    one_process = window.job is not None and len(window.job.ranks) <= 1
    return one_process and LEAST_SUM <= at_once <= MOST_SUM


def _not_in_turns(window: Window, gpus: list[GpuFacts], turns: float, at_once: float) -> bool:
    together = (window.power_together or 0.0) > 0.0
    return turns < TURNS or at_once > MOST_AT_ONCE * len(gpus) or together


def _fewest_stretches(gpus: list[GpuFacts], *, by_power: bool) -> int:
    """Waits of the GPU that has the fewest; turns about as long as the samples leave few that are
    idle all through, and are not counted."""
    if by_power:
        return min(gpu.spins or 0 for gpu in gpus)
    waves = [wave for wave in _waves(gpus) if wave.middling_share < SHORT_SHARE]
    return min([wave.idle.count for wave in waves], default=LEAST_STRETCHES)


def _firing(
    window: Window, gpus: list[GpuFacts], turns: float | None, lost: float, *, by_power: bool
) -> Firing:
    """``turns``: how exactly they alternate; ``None``: it is inferred from how busy they are."""
    at_once = len(gpus) * (1.0 - lost)
    at_a_time = f"{number(at_once, 1)} of {number(len(gpus))} at a time"
    how, strength, evidence = "one after the other, it seems", 0.6, None
    turn = "seem to work in turns"
    if turns is not None:
        how, turn = "in turns", "work in turns"
        strength = 0.6 + 0.4 * ramp(turns, TURNS, 1.0) - 0.1 * (window.job is None)
        does = "draws power" if by_power else "is busy"
        says = f"where one {does}, the others do less"
        evidence = Evidence("turns", 100.0 * turns, "%", 100.0 * TURNS, says)
    works = f"{briefly(gpus)} {turn}"
    return Firing(
        summary=f"{named(gpus)} work {how}, {at_a_time}: "
        "pipeline stages, or parts of one model split over GPUs, that wait for each other"
        f"{looks(window)}",
        short=(f"{works}, {at_a_time}, as pipeline stages do", works),
        evidence=[
            Evidence("GPUs at work at a time", at_once, None, float(len(gpus)),
                     "on average; the others wait"),
            evidence,
        ],
        strength=strength,
        missing=(UNSEEN,) if turns is None else (),
        gpus=keys(gpus),
        lost_share=lost,
        lost_while_busy=by_power,
    )  # fmt: skip
