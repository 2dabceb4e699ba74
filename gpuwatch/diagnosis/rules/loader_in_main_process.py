"""The training process makes its own batches (num_workers=0).

What it checks
    The job has no loader workers, its GPUs idle for 10% of the time or more, and the main thread
    is busy while they idle; or it rests, and other threads of the process are busy (tf.data,
    DALI, a pool of threads); or its stacks show it waiting for threads or processes of its own.

Why it matters
    Loading and training take turns: the GPU waits for every single batch. PyTorch's DataLoader
    has num_workers=0 by default. Python threads share one core with the main thread, so loading in
    threads takes turns as well.

Evidence needed
    The number of workers (none), the GPUs' utilisation, the main thread's CPU. The strongest sign
    is the phase: the main thread's CPU goes up when the GPU's utilisation goes down. With stacks:
    the share of samples inside the DataLoader. The job's own report decides: see loader_cpu_bound.

When it is wrong
    Anything else that the main thread does in each step (stepping an environment, generating text,
    computing metrics) takes turns with the GPU just as loading does. Without stacks or the job's
    own report the finding says so, is less confident, and advises taking stacks first. A thread
    that spins while it waits for the GPU counts only for the CPU time it used beyond the GPU's busy
    time; threads that spin in a collective load nothing. The cause stays open where one rank idles
    while the others are busy, where the GPU idles at length only now and then, and where others use
    the GPU too: saving, logging or evaluation are as likely. Data that is already on the GPU needs
    no workers.

What to do
    Set num_workers to the number named, with persistent_workers=True so that workers are not
    restarted at every epoch, and pin_memory=True. If threads of the process load: use more of them
    while cores are free (tf.data: AUTOTUNE and prefetch), else cheaper transforms.

Thresholds
    idle 10%: see loader_cpu_bound. main thread at 60% of a core while the GPU idles: loading
    from storage waits for part of the time. Where the alternation is too fast to be seen: 90% of
    the GPU's idle time, if that is 25% or more and the thread uses 30% of a core. 15% of the stacks
    in the DataLoader: three times TensorFlow's 5% for "moderately input-bound". Other threads at
    60% of a core: one that loads shows more; at 25% where all cores of the machine are taken.

Sources
    PyTorch, torch.utils.data: "Single-process data loading ... may block computing".
    Lightning warns for few workers and suggests cores // ranks on this machine - 1.
"""

from dataclasses import replace

from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loaders, loading, open_causes, words
from gpuwatch.diagnosis.rules.shared.loading import (
    MAIN_AT_LIMIT_PERCENT,
    NO_MAIN,
    NO_WORKERS,
    TURNS_FILL_PERCENT,
    Underfed,
    starved,
)
from gpuwatch.diagnosis.sentence import either, number

_PERSISTENT = Advice(
    "Set persistent_workers=True.",
    setting="persistent_workers",
    present="False",
    wanted="True",
    why="otherwise the workers are restarted at every epoch",
)
_LARGER_SHM = Advice(
    "Start the container with a larger --shm-size first.",
    setting="shm-size",
    wanted="8g",
    why="workers pass batches through /dev/shm, and this one is very small",
)
RULE = Rule(
    title="loads in main process",
    title_in_doubt="may load in main process",
    gives_back="some",
    uses_workers=True,
    cure=(_PERSISTENT,),
    explains={"oscillation", "batch_too_small", "python_bound", "straggler"},
    charts=("wait", "main"),
)
MAIN_LOADS_PERCENT = 60.0  # of a core
OTHERS_PERCENT = 8.0
"""SM time of others, as for other_tenant, from which a GPU's idling is not this job's doing
alone."""
UNPROVEN = 0.7
"""Factor of its strength where neither stacks nor the job itself show that it loads: a loop that
makes text, steps an environment or computes metrics takes turns with its GPU just so."""
TAKE_TURNS = -0.3
"""Correlation of the main thread's CPU with the GPU's utilisation, where they take turns."""
THREADS_PERCENT = 60.0  # of a core, all but the main thread
CROWDED_PERCENT = 90.0  # of all cores
THREADS_CROWDED_PERCENT = 25.0
ONE_CORE_PERCENT = 130.0
"""Threads of Python add up to a core; what NumPy does meanwhile is a little more."""
BACKWARD_FACTOR = 3.0
"""PyTorch's backward pass is a thread, too, with up to twice the launches of the forward pass."""


def check(window: Window) -> Verdict:
    found = starved(window)
    if words.required(found.worker_count, *NO_WORKERS) > 0:
        return Clear("the job has loader workers")
    main, loads = found.main_works_percent(), found.job.stack_percent("loading_data")
    if main is not None:
        # On a crowded machine it would have run in the time it waited for a core.
        main = min(100.0, main + found.main_queue_percent)
    if _is_reported(found):
        # Without workers, waiting for a batch is making it.
        return _firing(window, found, main, loads)
    without = _without_stacks(window, found, main) if loads is None else None
    if without is not None:
        return without
    if loads is not None and loads < loading.STACKS_LOADING_PERCENT:
        if found.waits_for_data:
            return _waits_for_its_own(window, found)
        little = "not loading" if loads < 0.5 else f"loading only {loads:.0f}% of the time"
        return Clear(f"the stacks show the main thread {little}")
    if (found.job.write_when_idle_bytes_per_second or 0.0) >= open_causes.WRITES_BYTES_PER_SECOND:
        return Clear("the job writes while its GPU idles")
    return _firing(window, found, main, loads)


def _without_stacks(window: Window, found: Underfed, main: float | None) -> Verdict | None:
    main, phase = words.required(main, *NO_MAIN), found.job.main_thread_phase
    if found.is_one_of_several(window):
        return Unknown(("stacks of the rank whose GPU idles while the others wait for it",))
    if open_causes.reduces_on_cpu(found.job):
        return Unknown(("stacks: an exchange of gradients over gloo keeps the CPU busy, too",))
    threads = _in_threads(window, found)
    if threads is not None:
        return threads
    if open_causes.offload(found.job, found.gpus) is not None:
        return Unknown(("stacks: what is kept in host memory (offload) keeps the CPU busy, too",))
    # Without a core both rest together, whatever the thread does with one.
    runs_freely = found.main_queue_percent < loaders.QUEUED_PERCENT
    in_phase = phase is not None and phase >= open_causes.IN_PHASE
    if in_phase and runs_freely and not _alternates(found):
        return Unknown(("stacks: the main thread works when the GPU does",))
    if (words.mean([gpu.foreign_busy_percent for gpu in found.gpus]) or 0.0) >= OTHERS_PERCENT:
        return Unknown(("stacks: others use its GPUs, too",))
    if main < MAIN_LOADS_PERCENT and not found.fills_idle_time:
        return Clear(f"the main thread rests ({main:.0f}% of a core) while the GPU idles")
    if found.idles_at_length:
        return Clear("the GPUs sit idle at length now and then, not in every step")
    return None


def _in_threads(window: Window, found: Underfed) -> Firing | None:
    """The main thread waits, and others of its process work."""
    used, main = words.mean([rank.cpu_percent for rank in found.ranks]), found.main_percent
    if used is None or main is None:
        return None
    idle, threads = found.main_idle_percent or 0.0, used - main
    if found.fills_idle_time and threads < ONE_CORE_PERCENT:
        return None
    crowded = (window.host.cpu_percent or 0.0) >= CROWDED_PERCENT
    least = THREADS_CROWDED_PERCENT if crowded else THREADS_PERCENT
    if idle >= MAIN_LOADS_PERCENT or threads < max(least, BACKWARD_FACTOR * main):
        return None
    count = f"{number(threads)}% of a core"
    if threads >= 100.0:
        count = f"{number(threads / 100.0, 1)} cores"
    evidence = [
        Evidence("loader workers", 0.0, says="no process loads for it"),
        Evidence("other threads' CPU", threads, "% of a core", least,
                 f"threads of the training process use {count}"),
        Evidence("main thread's CPU while the GPU idles", idle, "% of a core",
                 MAIN_LOADS_PERCENT, "it waits for them"),
    ]  # fmt: skip
    return found.starves(
        f"threads of the training process, at {count}, cannot load it faster",
        (f"threads, at {count}, load it too slowly", "threads too slow"),
        evidence,
        (words.ramp(threads, least - 10.0, 2.0 * least), 1.0 - words.ramp(idle, 20.0, 70.0), 0.5),
        advice=_for_threads(loaders.spare_cores(window.host, found.job), threads),
        missing=("stacks of the main thread",),
        explains=RULE.explains,
    )


def _waits_for_its_own(window: Window, found: Underfed) -> Firing:
    """The stacks show it waiting for data, and no loader worker is there: threads or processes of
    its own make it."""
    used, own = words.mean([rank.cpu_percent for rank in found.ranks]), found.job.own_workers
    threads = max(0.0, (used or 0.0) - (found.main_percent or 0.0))
    processes = 0.0 if own is None else own.count * (own.cpu_percent or 0.0)
    makers = threads + processes / max(1, len(found.ranks))
    sleep = makers < THREADS_PERCENT
    spare = loaders.spare_cores(window.host, found.job)
    if sleep:
        does = "sleep while making its batches, as if waiting for slow storage or another process"
        short = "the job's own loader sleeps, as if on slow storage", "loader sleeps"
        why = f"they use {makers:.0f}% of a core and wait for the rest of the time: waits overlap"
        advice: tuple[Advice, ...] = (
            Advice("Give the loader more threads or processes, and let it read further ahead.",
                   brief="Give the loader more threads or processes",
                   why=why),
        )  # fmt: skip
    else:
        cores = f"{number(makers / 100.0, 1)} cores"
        does = f"cannot load it faster, at {cores}"
        short = f"the job's own loader, at {cores}, is too slow", "loader too slow"
        advice = _for_threads(spare, makers)
    return found.starves(
        f"threads or processes of its own, and no loader workers, {does}",
        short,
        [
            Evidence("loader workers", 0.0, says="no DataLoader worker loads for it"),
            found.stacks_evidence,
            Evidence("its other threads and processes", makers, "% of a core",
                     THREADS_PERCENT, "they make the batches", supports=not sleep),
        ],
        (1.0,),
        advice=advice,
        explains=RULE.explains,
    )  # fmt: skip


def _for_threads(spare: float | None, threads: float) -> tuple[Advice, ...]:
    cheaper = loaders.cheaper_transforms("the threads cannot keep up")
    if spare is None or spare < 1.0:
        return (cheaper,)
    if threads >= ONE_CORE_PERCENT:
        return (Advice("Give the loader more threads.", why="cores of the job are free"), cheaper)
    why = "threads of Python take turns on one core; processes do not"
    better = min(loaders.TYPICAL_WORKERS, int(spare))
    return (loaders.set_workers("Load in processes: raise num_workers", 0, better, why), cheaper)


def _is_reported(found: Underfed) -> bool:
    """Check whether the job itself says that it waits for its batches for long."""
    return (found.reported_wait or 0.0) >= loading.STARVED_SHARE


def _alternates(found: Underfed) -> bool:
    """Check whether the main thread is seen to work more while the GPU does less."""
    phase = found.job.main_thread_phase
    if phase is not None and phase <= TAKE_TURNS:
        return True
    return any(gpu.busy is not None and gpu.busy.is_swinging for gpu in found.gpus)


def _firing(window: Window, found: Underfed, main: float | None, loads: float | None) -> Firing:
    better = loaders.recommended_workers(window.host, found.job, 0, found.busy_share) or 4
    # Any work of the main thread takes turns with the GPU, and without that a slow Python loop
    # looks alike.
    sure, turns = loads is not None or _is_reported(found), _alternates(found)
    clear = words.ramp(main or 0.0, MAIN_LOADS_PERCENT - 10.0, 90.0)
    clear = max(clear, 0.3) if found.fills_idle_time else clear
    shm, ranks = window.host.shm_total_bytes, found.job.ranks
    why = "the next batches are then loaded while the GPU works"
    small = shm is not None and shm <= loaders.SMALL_SHM_BYTES
    by_itself = "the training process loads its own batches (num_workers=0)"
    may = "the main thread is busy meanwhile and, without loader workers, may be loading data"
    stacks = f"gpuwatch diagnose --stacks --pid {found.job.job.pid}"
    see = f"First check whether it loads data ({stacks}); if so, raise num_workers"
    raised = loaders.set_workers("Raise num_workers" if sure else see, 0, better, why)
    firing = found.starves(
        by_itself,
        (
            f"the main {either('process loads', 'processes load')} it, without workers",
            "no loader workers",
        ),
        _evidence(found, main, loads),
        (1.0 if loads is not None else clear, 1.0 if sure or turns else 0.3),
        advice=(
            replace(raised, check_first=not sure),
            *(RULE.cure if sure else ()),
            *((_LARGER_SHM,) if small else ()),
        ),
        missing=() if sure else ("stacks of the main thread",),
        explains=RULE.explains,
        shared=len(ranks) > 1
        and len(found.gpus) == len(cards.with_known_load(window.gpus))
        and all(rank.loader_workers == 0 for rank in ranks),
    )
    if sure:
        return firing
    who = either("the main thread", "the main threads")
    short = found.briefly(f"{who} may be loading, as there are no workers", "may lack workers")
    idled = f"{found.complaint}: {may}"
    return replace(firing, summary=idled, short=short, strength=UNPROVEN * firing.strength)


def _evidence(found: Underfed, main: float | None, loads: float | None) -> list[Evidence | None]:
    phase, line = found.job.main_thread_phase, found.job.stack_line("loading_data")
    turns = phase is not None and phase <= TAKE_TURNS
    at = f" at {line}" if line else ""
    return [
        Evidence("loader workers", 0.0, says="no other process can be loading"),
        None if main is None else _main_evidence(found, main),
        Evidence("main thread against the GPU", phase, "correlation", TAKE_TURNS,
                 "they take turns" if turns else "no alternation is visible", supports=turns),
        Evidence("stacks inside the loader", loads, "%", loading.STACKS_LOADING_PERCENT,
                 f"the main thread makes batches{at}"),
    ]  # fmt: skip


def _main_evidence(found: Underfed, main: float) -> Evidence:
    value, unit, name = round(main, 1), "% of a core", "main thread's CPU"
    if main < MAIN_LOADS_PERCENT and found.fills_idle_time:
        says = "as much as the GPU idles: they may be taking turns"
        least = found.idle_share * TURNS_FILL_PERCENT
        return Evidence(name, value, unit, least, says)
    says = "at a full core" if main >= MAIN_AT_LIMIT_PERCENT else "busy for most of the time"
    queue = found.main_queue_percent
    queued = f" ({queue:.0f}% of it waiting for a core)" if queue >= 5.0 else ""
    says = f"{says} when the GPU has nothing to do{queued}"
    name, busy = f"{name} while the GPU idles", main >= MAIN_LOADS_PERCENT
    return Evidence(name, value, unit, MAIN_LOADS_PERCENT, says, supports=busy)
