"""The loader workers cannot make batches as fast as the GPU takes them.

What it checks
    GPUs of the job idle for 10% of the time or more (outside start-up and pauses), their loader
    workers use a core each, and the training process waits meanwhile instead of computing.

Why it matters
    The GPU is paid for and waits. It is the most common reason for 0% -> 99% -> 0%.

Evidence needed
    The GPUs' utilisation and the workers' CPU. Stronger with: the main thread's CPU while the GPU
    idles, the phase of the workers against the GPU, the run-queue wait of the workers.

    Where the job reports its own loop (gpuwatch.torch), that decides: waiting for data below 5% of
    the time rules this out, 10% or more confirms it, and that wait is the time counted as lost.

When it is wrong
    The workers of a second DataLoader that sleep (validation with persistent_workers=True) pull
    the mean down and hide this. Worker processes that spin instead of waiting look busy.

What to do
    Spare cores: raise num_workers to the number named (the workers' CPU need over the GPU's busy
    share, never above the cores one rank may use, less one for its main thread). No spare cores:
    more workers only take turns. Then cheaper transforms (uint8 on the CPU and float on the GPU,
    smaller images, torchvision.transforms.v2, Pillow-SIMD), transforms precomputed and stored,
    decoding on the GPU (DALI, nvJPEG), more cores, or fewer ranks on this machine.

Thresholds
    idle 10%: twice what TensorFlow's profiler calls moderately input-bound (5%; highly: 20%).
    workers at 75% of a core: batches are handed over in order, so workers that are too few still
    wait now and then for the slowest of them.
    main thread below 60% while the GPU idles: a thread that waits for a batch sleeps.

Sources
    TensorFlow profiler, op_stats_to_input_pipeline_analysis.cc (5% and 20% of the step time).
    SageMaker Debugger, CPUBottleneck (CPU over 90% while the GPU is under 10%).
    Lightning, suggested_max_num_workers (cores // ranks on this machine - 1).
    PyTorch, DataLoader: warns when num_workers exceeds the cores of its affinity.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import Window, WorkerFacts
from gpuwatch.diagnosis.facts.workers import recommended_workers, spare_cores, usable_cores
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import (
    NO_WORKERS,
    WORKERS_AT_LIMIT_PERCENT,
    Underfed,
    counted,
    in_disk_wait,
    is_at_limit,
    is_shared,
    strength,
    underfed,
    wanted_percent,
)
from gpuwatch.diagnosis.rules.shared.gpus import ramp
from gpuwatch.diagnosis.rules.shared.reported import not_starved, wait_evidence

MAIN_WAITS_PERCENT = 60.0
"""A thread that waits for a batch sleeps; one that is this busy while the GPU idles does the
delaying itself."""

SYMPTOMS = frozenset({"oscillation", "batch_too_small", "straggler"})

SPARE_CORES = 1.0
"""One more worker needs one more core, where the GPU could use all that it makes."""
SPARE_LEAST_CORES = 0.3
"""Less is what a machine leaves idle anyway."""


def check(window: Window) -> Verdict:
    found = underfed(window, by_telling=True)
    if not isinstance(found, Underfed):
        return found
    fed = not_starved(found.ranks)
    if fed is not None:
        return fed
    if found.worker_count == 0:
        return Clear(why="the job has no loader workers")
    if found.worker_count is None:
        return Unknown(missing=(NO_WORKERS,))
    wanted = None if found.workers is None else wanted_percent(found.workers)
    if found.workers is None or wanted is None:
        return Unknown(missing=("the loader workers' CPU",))
    other = _other_cause(found, found.workers, wanted)
    return other or _firing(window, found, found.workers, wanted)


def _other_cause(found: Underfed, workers: WorkerFacts, wanted: float) -> Clear | None:
    waits = in_disk_wait(workers) or 0.0
    if wanted < WORKERS_AT_LIMIT_PERCENT:
        return Clear(why=f"the loader workers use only {workers.cpu_percent:.0f}% of a core each")
    if waits > (workers.cpu_percent or 0.0):
        return Clear(why=f"the loader workers wait for the disk for {waits:.0f}% of the time")
    main = found.main_idle_percent
    if found.told_wait is None and main is not None and main >= MAIN_WAITS_PERCENT:
        return Clear(why=f"the main thread computes ({main:.0f}% of a core) while the GPU idles")
    return None


def _firing(window: Window, found: Underfed, workers: WorkerFacts, wanted: float) -> Firing:
    count = found.worker_count or 0
    better = recommended_workers(window, count, found.busy_share)
    spare = spare_cores(window)
    room = better is not None and better > count and _has_room(found, workers, spare)
    main = found.main_idle_percent
    missing = [] if main is not None else ["the main thread's CPU"]
    missing += [] if spare is not None else ["the cores the job may use"]
    return Firing(
        summary=_summary(found, count, spare if room else None),
        evidence=tuple(_evidence(window, found, workers, wanted)),
        advice=_more(count, better, spare) + _pinning(found)
        if room and better is not None
        else _cheaper(window, count, better) + _pinning(found),
        strength=strength(
            *found.waited_clearness,
            ramp(wanted, WORKERS_AT_LIMIT_PERCENT - 5.0, 92.0),
            1.0 if main is None or found.told_only else ramp(main, MAIN_WAITS_PERCENT, 25.0),
            missing=len(missing),
        ),
        missing=tuple(missing),
        gpus=found.keys,
        lost_share=found.waited_share,
        lost_while_busy=found.told_only,
        explains=(SYMPTOMS if found.is_for_data else frozenset[str]())
        | ({"collective_wait"} if is_shared(found.job, is_at_limit) else set()),
    )


def _has_room(found: Underfed, workers: WorkerFacts, spare: float | None) -> bool:
    """Whether the free cores are enough for what loading lacks, be it less than a core."""
    if spare is None:
        return False
    ranks = max(1, len(found.ranks))
    busy = max(0.05, found.busy_share)
    lacks = (found.worker_count or 0) * ranks * (wanted_percent(workers) or 100.0) / 100.0
    return spare >= min(SPARE_CORES, max(SPARE_LEAST_CORES, lacks * (1.0 / busy - 1.0)))


def _summary(found: Underfed, count: int, spare: float | None) -> str:
    limit = "is at its limit" if count == 1 else "are at their limit"
    start = (
        f"{found.who} waited for data {found.waited_share:.0%} of the time: "
        f"{counted(count, 'loader worker')}{' per rank' if len(found.ranks) > 1 else ''} {limit}"
    )
    if spare is None:
        return f"{start}, and no cores are free"
    free = f"{spare:.1f} cores" if spare < 2.0 else counted(int(spare), "core")
    return f"{start}, {free} free"


def _evidence(
    window: Window, found: Underfed, workers: WorkerFacts, wanted: float
) -> list[Evidence]:
    evidence = [
        found.evidence,
        *([] if found.told_only else wait_evidence(found.ranks)),
        Evidence(
            name="loader workers' CPU",
            value=workers.cpu_percent,
            unit="% of a core each",
            threshold=WORKERS_AT_LIMIT_PERCENT,
            says="the workers are at the limit of a core each",
        ),
    ]
    queue = workers.run_queue_wait_percent
    if queue is not None and wanted - queue < WORKERS_AT_LIMIT_PERCENT:
        says = "counting their wait for cores, they are at their limit"
        evidence.append(Evidence(name="workers' run-queue wait", value=queue, unit="%", says=says))
    main = found.main_idle_percent
    if main is not None:
        evidence.append(
            Evidence(
                name="main thread's CPU while the GPU idles",
                value=round(main, 1),
                unit="% of a core",
                threshold=MAIN_WAITS_PERCENT,
                says="the training process waits",
            )
        )
    return evidence + _phase(found) + _room(window)


def _phase(found: Underfed) -> list[Evidence]:
    idle, busy = found.job.workers_when_idle_percent, found.job.workers_when_busy_percent
    if idle is None or busy is None:
        return []
    works_on = idle >= busy - 10.0
    return [
        Evidence(
            name="workers' CPU while the GPU idles",
            value=round(idle, 1),
            unit="% of a core each",
            says="they keep working while the GPU is idle"
            if works_on
            else "they rest when the GPU does, which suggests another cause",
            supports=works_on,
        )
    ]


def _room(window: Window) -> list[Evidence]:
    cores, spare = usable_cores(window), spare_cores(window)
    if cores is None or spare is None:
        return []
    says = f"of {cores:.0f} cores the job may use, {spare:.1f} are free"
    return [Evidence(name="free cores", value=round(spare, 1), unit="cores", says=says)]


def _more(count: int, better: int, spare: float | None) -> tuple[Advice, ...]:
    left = spare or 0.0
    free = f", and {left:.1f} cores are free" if left < 2.0 else f", and {int(left)} cores are free"
    return (
        Advice(
            action=f"Raise num_workers from {count} to {better}.",
            setting="num_workers",
            present=str(count),
            wanted=str(better),
            why=f"each worker is at the limit of its core{free}",
        ),
    )


def _cheaper(window: Window, count: int, better: int | None) -> tuple[Advice, ...]:
    cores = usable_cores(window)
    if cores is None:
        why = "the workers are at their limit; the job's usable cores were not read"
    else:
        why = f"all {cores:.0f} cores the job may use are taken; more workers would take turns"
    offline = Advice(
        action="Make the transforms cheaper, do them once and store the result, or decode on "
        "the GPU (DALI, nvJPEG).",
        why=why,
    )
    cores_advice = Advice(
        action="Give the job more cores, or run fewer ranks on this machine.", why=why
    )
    own = window.job.job.usable_cores if window.job is not None else None
    if better is not None and better < count and own is not None and count > own:
        fewer = Advice(
            action=f"Lower num_workers from {count} to {better}.",
            setting="num_workers",
            present=str(count),
            wanted=str(better),
            why="more workers than cores only take turns",
        )
        return (offline, cores_advice, fewer)
    return (offline, cores_advice)


def _pinning(found: Underfed) -> tuple[Advice, ...]:
    if not found.gpus:
        # Nothing is copied.
        return ()
    if any(rank.pinned_memory is not False for rank in found.ranks) or not found.ranks:
        return ()
    return (
        Advice(
            action="Set pin_memory=True and copy with non_blocking=True.",
            setting="pin_memory",
            present="False",
            wanted="True",
            why="the copy to the GPU can then run while the GPU works",
        ),
    )
