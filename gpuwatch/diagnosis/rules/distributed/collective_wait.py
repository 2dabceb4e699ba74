"""The ranks of a job wait for one of them, inside a collective.

What it checks
    Whether most GPUs of one job are busy all the time at less power (or SM activity) than this job
    draws when it works, while another of its GPUs idles part of that time. The one that idles is
    named, with what its process is doing: look at that one, not at those that wait.

Why it matters
    Kernels of NCCL spin while they wait, so the waiting GPUs show 99% and look perfect. The time is
    lost on all of them at once.

Evidence needed
    The busy share of at least two GPUs of one job; power or SM activity to see that the busy ones
    do no work. What the late rank is doing needs its processes' CPU, disk and write readings.

    Where the ranks report their own loops (gpuwatch.torch), a rank that waits for data 10 points
    more than the others do is late because of that; one that waits less than 5% is late for
    another reason.

When it is wrong
    Where the GPUs of one job do different things by design (pipeline stages, one for evaluation,
    replicas of a server): then the busy ones do more work, and the rule does not fire. Where all
    ranks here wait for a rank on another machine, that one cannot be seen.

What to do
    Depends on what the late rank is doing: asynchronous, sharded or rarer checkpoints; more workers
    or cheaper samples on that rank; evaluation and logging off rank 0, or spread over all ranks.

Thresholds
    waiting GPUs busy 85% of the time: drivers show 95 to 100% for kernels back to back, and a job
    that logs or saves now and then some points less.

    late rank's GPU 8 points less busy: ranks in step differ by one to three points, and a rank that
    saves for four seconds of a minute differs by seven. No more late ranks than waiting ones. 15
    points where nothing shows what that rank is doing. The waiting ones may have done real work in
    at most 60% of that gap (SM activity, else power): data-parallel ranks all do the same work.

    What the late rank does: writes of 5 MB/s and three times the others' (logs and event files stay
    below 1 MB/s); disk wait of 20%, workers at 75% of a core or the main thread at 85%, each 15
    points above the others'; run-queue wait of 10%, 10 points above theirs.

    A problem that half of the others have too does not make a rank late: workers, disk or queue at
    those values, a main thread that loads by itself at 50% of a core; nor does a CPU quota that
    throttles the job in 20% of its periods. All are this project's choice, tried on the labelled
    cases in tests/evaluation.

Sources
    NVML's definition of utilisation (a resident kernel counts). NCCL's documentation: all ranks
    must call a collective, and its kernels stay on the GPU until they have.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared.gpus import PINNED_PERCENT, who, works
from gpuwatch.diagnosis.rules.shared.late_rank import Doing, doing_of, shared_trouble
from gpuwatch.diagnosis.rules.shared.loading import NO_JOB
from gpuwatch.diagnosis.rules.shared.words import (
    highest,
    keys,
    mean,
    named,
    ramp,
    rounded,
    verb,
)

RULE = Rule(
    title="waits for another rank",
    explains=frozenset(
        {
            "oscillation", "busy_without_work", "batch_too_small", "straggler",
            "checkpoint_pauses", "validation_pauses", "loader_cpu_bound", "loader_io_bound",
            "loader_in_main_process", "too_many_workers", "memory_not_pinned", "python_bound",
            "sync_every_step",
        }
    ),
    lost_while_busy=True,
    look_alike=4,
    chart="power_watts",
)  # fmt: skip
GAP_PERCENT = 8.0  # of the time
UNSEEN_GAP_PERCENT = 15.0  # where nothing shows what it does
CLEAR_GAP_PERCENT = 25.0
"""A quarter of the time: from here on confidence grows no more."""
WORKING = 0.6  # of the gap
LEAST_BUSY_SHARE = 0.03
"""Of the time: what a GPU does while it works does not show in less."""


@dataclass(frozen=True, slots=True)
class _Split:
    waiting: list[GpuFacts]
    late: list[GpuFacts]

    @property
    def gap(self) -> float:
        """0 to 1: of the time, how much longer those that wait had a kernel resident."""
        return (_busy(self.waiting) - _busy(self.late)) / 100.0


def check(window: Window) -> Verdict:
    if window.job is None:
        return Unknown(NO_JOB)
    gpus = works(window.gpus)
    if not gpus:
        return Unknown(("the GPUs' utilisation",))
    if len(gpus) < 2:
        if (window.job.job.world_size or 0) > 1:
            return Unknown(("the ranks on other machines",))
        return Clear("a single GPU waits for no other")
    if window.starting:
        return Clear("the job is starting")
    split = _split(gpus)
    if split is None:
        return Clear("its GPUs are equally busy, or not busy all the time")
    works_too = _works_meanwhile(split)
    if works_too:
        return Clear("the busy GPUs do more work than the other and do not wait for it")
    late = min(split.late, key=lambda gpu: _busy([gpu]))
    shared = shared_trouble(window, late)
    if shared is not None:
        return Clear(f"the late rank has the same problem as the others: {shared}")
    doing = doing_of(window, late)
    if not doing.known and 100.0 * split.gap < UNSEEN_GAP_PERCENT:
        return Clear("no rank does anything different from the others")
    return _firing(window, split, late, doing, blind=works_too is None)


def _busy(gpus: list[GpuFacts]) -> float:
    return mean([gpu.busy_percent for gpu in gpus]) or 0.0


def _split(gpus: list[GpuFacts]) -> _Split | None:
    """Those that are busy all the time, and the few that are less so."""
    top = max(_busy([gpu]) for gpu in gpus)
    waiting = [gpu for gpu in gpus if _busy([gpu]) > top - GAP_PERCENT]
    late = [gpu for gpu in gpus if _busy([gpu]) <= top - GAP_PERCENT]
    if not late or len(late) > len(waiting) or _busy(waiting) < PINNED_PERCENT:
        return None
    return _Split(waiting, late)


def _works_meanwhile(split: _Split) -> bool | None:
    """Check whether those that wait do real work while the late one idles; ``None``: not known."""
    # SM activity comes first: power has the spinning and the idle draw in it.
    worked = _worked(split)
    if worked is not None:
        return worked > WORKING
    ours = mean([gpu.power_mean_watts for gpu in split.waiting])
    theirs = mean([gpu.power_mean_watts for gpu in split.late])
    if ours is None or theirs is None or ours <= 0.0:
        return None
    return 1.0 - theirs / ours > WORKING * split.gap


def _worked(split: _Split) -> float | None:
    """0 to 1: how much of the gap those that wait worked in, at what the late one does while it
    works; ``None`` where SM activity is not known, or the late one hardly ever works."""
    ours = mean([gpu.sm_active_percent for gpu in split.waiting])
    theirs = mean([gpu.sm_active_percent for gpu in split.late])
    busy = _busy(split.late) / 100.0
    if ours is None or theirs is None or theirs <= 0.0 or busy < LEAST_BUSY_SHARE:
        return None
    return (ours - theirs) / split.gap / (theirs / busy)


def _firing(window: Window, split: _Split, late: GpuFacts, doing: Doing, *, blind: bool) -> Firing:
    clear = ramp(100.0 * split.gap, GAP_PERCENT, CLEAR_GAP_PERCENT)
    strength = 0.6 + 0.25 * clear + (0.15 if doing.known else 0.0)
    if blind:
        strength -= 0.2
    elif mean([gpu.sm_active_percent for gpu in split.waiting]) is None:
        strength -= 0.05
    others = [gpu for gpu in [*split.late, *split.waiting] if gpu is not late]
    return Firing(
        summary=f"{named(split.waiting)} {verb(split.waiting, 'waits', 'wait')} for "
        f"{who(window, late)} {100 * split.gap:.0f}% of the time, in collectives: {doing.says}",
        evidence=(*_evidence(split, late), *doing.evidence),
        advice=doing.advice,
        strength=max(0.3, strength),
        missing=(*doing.missing, *(("power or SM activity",) if blind else ())),
        gpus=keys([late, *others]),
        lost_share=split.gap,
    )


def _evidence(split: _Split, late: GpuFacts) -> list[Evidence]:
    waiting, name, busy = named(split.waiting), named([late]), _busy(split.waiting)
    plateau = highest([gpu.power_plateau_watts for gpu in [*split.waiting, *split.late]])
    power = mean([gpu.power_mean_watts for gpu in split.waiting])
    sm = mean([gpu.sm_active_percent for gpu in split.waiting])
    low = power is not None and plateau is not None and power < plateau
    worked, says = _worked(split), f"about that of {name}, though busy longer"
    if worked is not None:
        says = f"while {name} idles, {max(0.0, worked):.0%} of what {name} does when it works"
    return [
        Evidence(f"{waiting} busy", round(busy, 1), "%", PINNED_PERCENT,
                 "all the time, by the driver's count"),
        Evidence(f"{name} busy", round(_busy([late]), 1), "%", round(busy - GAP_PERCENT, 1),
                 "idle part of that time"),
        Evidence(f"{waiting} power", rounded(power), "W", plateau,
                 "below what this job draws when it works", supports=low),
        Evidence(f"{waiting} SM activity", rounded(sm), "%", late.sm_active_percent, says,
                 supports=sm is not None),
    ]  # fmt: skip
