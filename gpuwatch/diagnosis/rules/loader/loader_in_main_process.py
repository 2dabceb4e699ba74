"""The training process makes its own batches (num_workers=0).

What it checks
    The job has no loader workers, its GPUs idle for 10% of the time or more, and the main thread
    is busy while they idle.

Why it matters
    Loading and training take turns: the GPU waits for every single batch. PyTorch's DataLoader
    has num_workers=0 by default.

Evidence needed
    The number of workers (none), the GPUs' utilisation, the main thread's CPU. The strongest sign
    is the phase: the main thread's CPU goes up when the GPU's utilisation goes down. With
    stacks: the share of samples inside the DataLoader.

    Where the job reports its own loop (gpuwatch.torch), that decides: waiting for data below 5% of
    the time rules this out, 10% or more confirms it, and that wait is the time counted as lost.

When it is wrong
    Where batches are shorter than the sampling interval, the alternation is not visible and a
    job whose Python code is slow for other reasons looks the same; stacks tell the two apart.
    Data that is already on the GPU needs no workers. Threads that load (instead of DataLoader
    workers) do not count as workers.

What to do
    Set num_workers to the number named, with persistent_workers=True so that workers are not
    restarted at every epoch, and pin_memory=True.

Thresholds
    idle 10%: see loader_cpu_bound. main thread at 60% of a core while the GPU idles: loading
    from storage waits for part of the time. Where the alternation is too fast to be seen: 90% of
    the GPU's idle time, if that is 25% or more and the thread uses 30% of a core. 15% of the stacks
    in the DataLoader: three times TensorFlow's 5% for "moderately input-bound".

Sources
    PyTorch, torch.utils.data: "Single-process data loading ... may block computing".
    Lightning warns for few workers and suggests cores // ranks on this machine - 1.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.facts.workers import recommended_workers
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import (
    MAIN_AT_LIMIT_PERCENT,
    NO_WORKERS,
    TURNS_FILL_PERCENT,
    Underfed,
    is_one_stretch,
    is_swinging,
    percent_of,
    stack_line,
    stack_percent,
    strength,
    underfed,
)
from gpuwatch.diagnosis.rules.shared.gpus import ramp
from gpuwatch.diagnosis.rules.shared.reported import STARVED_SHARE, not_starved, wait_evidence

MAIN_LOADS_PERCENT = 60.0
"""Of a core, while the GPU idles."""

IN_PHASE = 0.4
"""Correlation of the main thread's CPU with the GPU's utilisation."""

STACKS_LOADING_PERCENT = 15.0
"""Of the main thread's samples."""

WRITES_BYTES_PER_SECOND = 50e6
"""A process that writes this while its GPU idles saves a checkpoint."""

SYMPTOMS = frozenset({"oscillation", "batch_too_small", "python_bound", "straggler"})

PERSISTENT = Advice(
    action="Set persistent_workers=True.",
    setting="persistent_workers",
    present="False",
    wanted="True",
    why="otherwise the workers are restarted at every epoch",
)


def check(window: Window) -> Verdict:
    found = underfed(window, by_telling=True)
    if not isinstance(found, Underfed):
        return found
    fed = not_starved(found.ranks)
    if fed is not None:
        return fed
    if found.worker_count is None:
        return Unknown(missing=(NO_WORKERS,))
    if found.worker_count > 0:
        return Clear(why="the job has loader workers")
    return _by_main_thread(window, found)


def _by_main_thread(window: Window, found: Underfed) -> Verdict:
    main = _main(found)
    loading = stack_percent(found.job, "loading_data")
    if _is_told(found):
        # Without workers, waiting for a batch is making it.
        return _firing(window, found, main, loading)
    if main is None and loading is None:
        return Unknown(missing=("the main thread's CPU",))
    if loading is None and _in_phase(found):
        return Unknown(missing=("stacks: the main thread works when the GPU does",))
    return _other_cause(found, main, loading) or _firing(window, found, main, loading)


def _is_told(found: Underfed) -> bool:
    """Whether the job itself says that it waits for its batches for long."""
    wait = found.told_wait
    return wait is not None and wait >= STARVED_SHARE


def _main(found: Underfed) -> float | None:
    """What the main thread used, or wanted, of a core while the GPUs idled."""
    main = found.main_idle_percent
    return None if main is None else min(100.0, main + found.main_queue_percent)


def _in_phase(found: Underfed) -> bool:
    """Whether the main thread's CPU goes up and down with the GPU's, which loading does not."""
    phase = found.job.main_thread_phase
    return phase is not None and phase >= IN_PHASE and not _alternates(found)


def _other_cause(found: Underfed, main: float | None, loading: float | None) -> Clear | None:
    if loading is not None and loading < STACKS_LOADING_PERCENT:
        return Clear(
            why=f"the stacks show the main thread loading for only {loading:.0f}% of the time"
        )
    rests = main is not None and main < MAIN_LOADS_PERCENT and not found.fills_idle_time
    if loading is None and rests:
        return Clear(why=f"the main thread rests ({main:.0f}% of a core) while the GPU idles")
    if loading is None and all(g.busy is None or is_one_stretch(g.busy) for g in found.gpus):
        return Clear(why="the GPUs idled once at length, not in every step")
    writes = found.job.write_when_idle_bytes_per_second
    if writes is not None and writes >= WRITES_BYTES_PER_SECOND:
        return Clear(why="the job writes while its GPU idles")
    return None


def _firing(window: Window, found: Underfed, main: float | None, loading: float | None) -> Firing:
    wanted = recommended_workers(window, 0, found.busy_share) or 4
    seen = _alternates(found)
    # Where the alternation cannot be seen and no stack tells, a slow Python loop looks alike.
    sure = loading is not None or seen or _is_told(found)
    certain = 1.0 if sure else 0.3
    missing = () if sure else ("stacks of the main thread",)
    return Firing(
        summary=f"{found.who} waited for data {found.waited_share:.0%} of the time: the "
        "training process loads its own batches (num_workers=0)",
        evidence=tuple(_evidence(found, main, loading)),
        advice=(_workers(wanted), PERSISTENT, *_cost_of_workers(window)),
        strength=strength(
            *found.waited_clearness,
            1.0 if loading is not None else _clear_main(found, main or 0.0),
            certain,
            missing=len(missing),
        ),
        missing=missing,
        gpus=found.keys,
        lost_share=found.waited_share,
        lost_while_busy=found.told_only,
        explains=(SYMPTOMS if found.is_for_data else frozenset[str]())
        | ({"collective_wait"} if _all_load(found) else set()),
    )


def _clear_main(found: Underfed, main: float) -> float:
    clear = ramp(main, MAIN_LOADS_PERCENT - 10.0, 90.0)
    return max(clear, 0.3) if found.fills_idle_time else clear


def _all_load(found: Underfed) -> bool:
    """Whether every rank of several does: then none is the late one."""
    ranks = found.job.ranks
    return len(ranks) > 1 and all(rank.loader_workers == 0 for rank in ranks)


def _alternates(found: Underfed) -> bool:
    """Whether the main thread works more while the GPU does less, as far as samples show it."""
    phase = found.job.main_thread_phase
    if phase is not None and phase <= -0.3:
        return True
    waves = [gpu.busy for gpu in found.gpus if gpu.busy is not None]
    return any(is_swinging(wave) for wave in waves)


def _evidence(found: Underfed, main: float | None, loading: float | None) -> list[Evidence]:
    evidence = [
        found.evidence,
        *([] if found.told_only else wait_evidence(found.ranks)),
        Evidence(
            name="loader workers", value=0.0, says="every batch is made by the training process"
        ),
    ]
    if main is not None:
        evidence.append(_main_evidence(found, main))
    phase = found.job.main_thread_phase
    if phase is not None:
        supports = phase <= -0.3
        evidence.append(
            Evidence(
                name="main thread against the GPU",
                value=round(phase, 2),
                unit="correlation",
                threshold=-0.3,
                says="they take turns" if supports else "no alternation is visible",
                supports=supports,
            )
        )
    return evidence + _stacks(found, loading)


def _main_evidence(found: Underfed, main: float) -> Evidence:
    value = round(main, 1)
    if main < MAIN_LOADS_PERCENT and found.fills_idle_time:
        return Evidence(
            name="main thread's CPU",
            value=value,
            unit="% of a core",
            threshold=percent_of(found.idle_share * TURNS_FILL_PERCENT / 100.0),
            says="as much as the GPU idles: they may be taking turns",
        )
    says = "at a full core" if main >= MAIN_AT_LIMIT_PERCENT else "busy for most of the time"
    queue = found.main_queue_percent
    queued = f" ({queue:.0f}% of it waiting for a core)" if queue >= 5.0 else ""
    return Evidence(
        name="main thread's CPU while the GPU idles",
        value=value,
        unit="% of a core",
        threshold=MAIN_LOADS_PERCENT,
        says=f"{says} when the GPU has nothing to do{queued}",
        supports=main >= MAIN_LOADS_PERCENT,
    )


def _stacks(found: Underfed, loading: float | None) -> list[Evidence]:
    if loading is None:
        return []
    line = stack_line(found.job, "loading_data")
    return [
        Evidence(
            name="stacks inside the loader",
            value=round(loading, 1),
            unit="%",
            threshold=STACKS_LOADING_PERCENT,
            says="the main thread makes batches" + (f" at {line}" if line else ""),
        )
    ]


def _workers(wanted: int) -> Advice:
    return Advice(
        action=f"Raise num_workers from 0 to {wanted}.",
        setting="num_workers",
        present="0",
        wanted=str(wanted),
        why="the next batches are then loaded while the GPU works",
    )


def _cost_of_workers(window: Window) -> tuple[Advice, ...]:
    shm = window.host.shm_total_bytes
    if shm is None or shm > 128 * 1024**2:
        return ()
    return (
        Advice(
            action="Start the container with a larger --shm-size first.",
            setting="shm-size",
            wanted="8g",
            why="workers pass batches through /dev/shm, and this one is very small",
        ),
    )
