"""The loader workers cannot make batches as fast as the GPU takes them.

What it checks
    GPUs of the job idle for 10% of the time or more (outside start-up and pauses), their loader
    workers use a core each (with the processes below them, as decoders), and the training process
    waits meanwhile instead of computing.

Why it matters
    The GPU is paid for and waits. It is the most common reason for 0% -> 99% -> 0%.

Evidence needed
    The GPUs' utilisation and the workers' CPU. Stronger with: the main thread's CPU while the GPU
    idles, the phase of the workers against the GPU, the run-queue wait of the workers. A job's own
    report of its loop (gpuwatch.torch) decides: waiting for data below 5% of the time rules this
    out, 10% or more confirms it, and that wait is the time counted as lost.
    The clock of busy cores is shown where it is held down (heat, a power limit, the governor).

When it is wrong
    Worker processes that spin instead of waiting look busy. Workers of a second DataLoader
    (validation with persistent_workers=True) are left out once they have done nothing for 5 s;
    where both loaders were started at one moment, for 12 s, and for a minute if they had worked
    before, since the rest of a loader waits so for a slow batch. Until then they pull the mean
    down.

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

from gpuwatch.diagnosis.facts.window import HostFacts, JobFacts, WorkerFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import loaders, words
from gpuwatch.diagnosis.rules.shared.loading import NO_MAIN, NO_WORKERS, Underfed, starved
from gpuwatch.diagnosis.sentence import either

RULE = Rule(
    title="loader is CPU-bound",
    gives_back="some",
    uses_workers=True,
    explains={"oscillation", "batch_too_small", "straggler"},
    look_alike=7,
    charts=("wait", "worker"),
)
MAIN_WAITS_PERCENT = 60.0  # of a core
SPARE_CORES = loaders.MOST_OF_A_CORE
"""One more worker needs most of a core, where the GPU could use all that it makes."""
NO_CORES = ("the cores the job may use",)


def check(window: Window) -> Verdict:
    found = starved(window)
    if words.required(found.worker_count, *NO_WORKERS) == 0:
        return Clear("the job has no loader workers")
    workers = words.required(found.workers, "the loader workers' CPU")
    need = words.required(loaders.wanted(workers), "the loader workers' CPU")
    waits, main = loaders.in_disk_wait(workers) or 0.0, found.main_works_percent(1)
    if need < loaders.WORKERS_AT_LIMIT_PERCENT:
        return Clear(f"the loader workers use only {workers.cpu_percent:.0f}% of a core each")
    if waits > (workers.cpu_percent or 0.0):
        return Clear(f"the loader workers wait for the disk for {waits:.0f}% of the time")
    # Workers that are at their limit are so whether it spins or not: full queues let them rest.
    if found.reported_wait is None and main is not None and main >= MAIN_WAITS_PERCENT:
        return Clear(f"the main thread computes ({main:.0f}% of a core) while the GPU idles")
    return _firing(window.host, found, workers, need, main)


def _firing(
    host: HostFacts, found: Underfed, workers: WorkerFacts, need: float, main: float | None
) -> Firing:
    job, count = found.job, found.worker_count or 0
    spare = loaders.spare_cores(host, job)
    better = loaders.recommended_workers(host, job, count, found.busy_share)
    if better is not None and better > count and _has_room(found, need, spare):
        why = f"each worker is at the limit of its core, and {words.free(spare or 0.0)}"
        advice = [loaders.set_workers("Raise num_workers", count, better, why)]
    else:
        advice = _cheaper(host, found, spare)
    ranks, gpus = len(found.ranks) > 1, len(found.gpus) > 1
    # Of several jobs it is true of each rank, too, where a job has one.
    per_rank = either("", " per rank") if ranks == gpus else " per rank" if ranks else ""
    a_rank = per_rank.replace(" per ", " a ")
    limit = "is maxed out" if count == 1 else "are maxed out"
    left = "" if spare is None else f", and {words.free(spare)}"
    idle = "" if spare is None else ", no cores free"
    if spare is not None and spare >= 1.0:
        sit = "sit" if spare >= 2.0 else "sits"
        left = f" while {words.counted(int(spare), 'core')} {sit} idle"
        idle = f", {words.counted(int(spare), 'core')} idle"
    resting = 1.0
    if main is not None and not found.reported_only:
        resting = words.ramp(main, MAIN_WAITS_PERCENT, 25.0)
    return found.starves(
        f"{words.counted(count, 'loader worker')}{per_rank} {limit}{left}",
        (
            f"{words.counted(count, 'worker')}{a_rank} maxed out{idle}",
            f"{'worker' if count == 1 else 'workers'} maxed out",
        ),
        [*_evidence(host, job, workers, need, main, spare), loaders.held_clock(host)],
        (words.ramp(need, loaders.WORKERS_AT_LIMIT_PERCENT - 5.0, 92.0), resting),
        advice=advice + _pinning(found),
        missing=(*(NO_MAIN if main is None else ()), *(NO_CORES if spare is None else ())),
        explains=RULE.explains,
        shared=loaders.is_shared(job, loaders.is_at_limit),
    )


def _has_room(found: Underfed, need: float, spare: float | None) -> bool:
    """Check whether the free cores are enough for what loading lacks, be it less than a core."""
    ranks, busy = max(1, len(found.ranks)), max(loaders.LEAST_BUSY_SHARE, found.busy_share)
    lacks = (found.worker_count or 0) * ranks * need / 100.0 * (1.0 / busy - 1.0)
    return spare is not None and spare >= min(SPARE_CORES, max(words.SPARE_LEAST_CORES, lacks))


def _evidence(
    host: HostFacts, job: JobFacts, workers: WorkerFacts, need: float, main: float | None,
    spare: float | None,
) -> list[Evidence | None]:  # fmt: skip
    limit, queue = loaders.WORKERS_AT_LIMIT_PERCENT, workers.run_queue_wait_percent
    each = "% of a core each"
    queues = queue is not None and need - queue < limit
    idle, busy = job.workers_when_idle_percent, job.workers_when_busy_percent
    seen = job.main_thread_when_idle_percent is not None
    waits = "the training process waits" if seen else "at least; it may only spin for its GPU"
    phase = None
    if idle is not None and busy is not None:
        go_on = idle >= busy - 10.0
        says = "they keep working while the GPU is idle"
        if not go_on:
            says = "they rest when the GPU does, which suggests another cause"
        name = "workers' CPU while the GPU idles"
        phase = Evidence(name, idle, each, says=says, supports=go_on)
    return [
        Evidence("loader workers' CPU", workers.cpu_percent, each, limit,
                 "the workers are at the limit of a core each"),
        Evidence("workers' run-queue wait", queue, "%",
                 says="counting their wait for cores, they are at their limit") if queues else None,
        Evidence("main thread's CPU while the GPU idles", main, "% of a core",
                 MAIN_WAITS_PERCENT, waits),
        phase,
        Evidence("free cores", words.whole_cores(spare), "cores",
                 says=loaders.of_its_cores(host, job)),
    ]  # fmt: skip


def _cheaper(host: HostFacts, found: Underfed, spare: float | None) -> list[Advice]:
    job, count, own = found.job, found.worker_count or 0, found.job.job.usable_cores
    why = "the workers are at their limit; the job's usable cores were not read"
    if spare is not None:
        left = words.free(spare)
        why = f"{loaders.of_its_cores(host, job)}, {left}: more workers would take turns"
    more = "Give the job more cores, or run fewer ranks on this machine."
    advice = [
        loaders.cheaper_transforms(why),
        Advice(more, brief="Give the job more cores", why=why),
    ]
    better = loaders.fewer_workers(host, job, count, found.busy_share)
    if better is not None and own is not None and count > own:
        why = "more workers than cores only take turns"
        advice.append(loaders.set_workers("Lower num_workers", count, better, why))
    return advice


def _pinning(found: Underfed) -> list[Advice]:
    # Without a GPU nothing is copied.
    unpinned = [rank.pinned_memory is False for rank in found.ranks]
    if not found.gpus or not unpinned or not all(unpinned):
        return []
    return [
        Advice(
            "Set pin_memory=True and copy with non_blocking=True.",
            setting="pin_memory",
            present="False",
            wanted="True",
            why="the copy to the GPU can then run while the GPU works",
        )
    ]
