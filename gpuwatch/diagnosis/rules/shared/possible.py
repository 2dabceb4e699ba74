"""What a GPU that waits may be waiting for, by all that is known in the window, and what would
decide between the causes left. A cause is named only if nothing known speaks against it."""

from collections.abc import Sequence

from gpuwatch.diagnosis.facts.window import JobFacts, RankFacts, Window
from gpuwatch.diagnosis.rules.shared import loaders, reported, words
from gpuwatch.diagnosis.signals.waveform import Waveform

BESIDE = "the job's processes (gpuwatch beside the job)"
RESTING_PERCENT = 25.0
"""Of a core each, or of their time in disk wait: what does less is not what is waited for, unless
it waits for a network."""
STACKS_LOADING_PERCENT = 15.0
"""Of the main threads' samples in loading: three times TensorFlow's 5% for "moderately
input-bound"."""
IN_PHASE = 0.4
"""Correlation of the main thread's CPU with the GPU's utilisation."""
WRITES_BYTES_PER_SECOND = 50e6
"""A process that writes this while its GPU idles saves a checkpoint."""
MAIN_COMPUTES_PERCENT = 60.0
"""Of a core, while the GPU idles: waiting for anything takes less."""
OTHER_INPUTS = {"tensorflow": "its tf.data pipeline", "jax": "its input pipeline"}
NOTEBOOKS = ("ipykernel", "colab_kernel_launcher")
"""In the command of a kernel of a notebook."""
SAVES = ("saves", "a save")
FROM_OUTSIDE = ("data", "requests", "work on the CPU", "other GPUs of the job", "saves")
"""Of a GPU alone."""


def no_loader(job: JobFacts) -> str | None:
    """Why no PyTorch DataLoader feeds this job, as a clause; ``None``: one is there, or may be."""
    model = job.job
    if any(rank.loader_workers and not rank.loader_workers_guessed for rank in model.ranks):
        return None
    if model.serves is not None:
        return f"the job serves requests: {model.serves}"
    if model.simulates is not None:
        return f"the job steps environments: {model.simulates}"
    other = model.framework in OTHER_INPUTS
    return f"no PyTorch DataLoader feeds a job of {model.framework}" if other else None


def runs_by_hand(job: JobFacts | None, waves: Sequence[Waveform]) -> bool:
    """Check whether it is a notebook that somebody runs cell by cell: its GPUs wait for seconds
    on end, or without a rhythm. A loop in a notebook does neither."""
    swings = [wave for wave in waves if wave.is_swinging]
    slow = [wave.period_seconds is None or wave.waits_long for wave in swings]
    command = "" if job is None else job.job.command or ""
    return bool(slow) and all(slow) and any(name in command for name in NOTEBOOKS)


def reduces_on_cpu(job: JobFacts) -> bool:
    """Check whether its ranks exchange gradients over gloo, which computes on the CPU."""
    return len(job.ranks) > 1 and job.job.collectives == "gloo"


def against_loader(job: JobFacts, ranks: Sequence[RankFacts]) -> str | None:
    """Why the loader is not what the GPUs wait for, as a clause; ``None``: it may be."""
    why, wait = no_loader(job), reported.reported_wait(ranks)
    if why is not None:
        return why
    if wait is not None:
        fed = wait < reported.FED_SHARE
        return f"the job reports waiting for data {wait:.0%} of the time" if fed else None
    loading = job.stack_percent("waiting_for_data", "loading_data")
    if loading is not None:
        name, share, line = max(job.stacks, key=lambda one: one[1])
        where = f" at {line}" if line else ""
        shows = f"its stacks show {name.replace('_', ' ')} {share:.0f}% of the time{where}"
        return shows if loading < STACKS_LOADING_PERCENT else None
    return _resting(job, ranks)


def _resting(job: JobFacts, ranks: Sequence[RankFacts]) -> str | None:
    if waits_outside(job, ranks):
        return "there are no loader workers, and the main thread rests"
    if job.workers is not None and (job.workers.at_work_share or 0.0) >= RESTING_PERCENT / 100.0:
        return None
    need, disk = loaders.wanted(job.workers), job.workers and loaders.in_disk_wait(job.workers)
    if need is None or need + float(disk or 0.0) >= RESTING_PERCENT:
        return None
    return f"the loader workers rest ({need:.0f}% of a core)"


def waits_outside(job: JobFacts, ranks: Sequence[RankFacts]) -> bool:
    """Check whether nothing of the job works while its GPUs idle: it waits for a network, a person,
    or another machine; or it is a server, which waits for others."""
    if job.job.serves is not None:
        return True
    idle = job.main_thread_when_idle_percent
    main = job.main_thread_percent if idle is None else idle
    if main is None or not ranks or any(rank.loader_workers != 0 for rank in ranks):
        return False
    waits = [
        words.mean(one.run_queue_wait_percent for one in ranks),
        words.mean(one.disk_wait_percent for one in ranks),
        loaders.wanted(job.own_workers),
    ]
    # A thread that works when the GPU does rests when it does not: coarse samples smear it.
    limit = (2.0 if (job.main_thread_phase or 0.0) >= IN_PHASE else 1.0) * RESTING_PERCENT
    return main + sum(wait or 0.0 for wait in waits) < limit


def causes(window: Window, ranks: Sequence[RankFacts]) -> Sequence[str]:
    """In the order of how soon a person would look there; ``ranks`` drive the GPUs that wait."""
    job = window.job
    if job is None:
        return FROM_OUTSIDE
    model, found = job.job, []
    if model.serves is not None:
        found.append("requests")
    if model.simulates is not None or (loaders.wanted(job.own_workers) or 0.0) >= RESTING_PERCENT:
        found.append("environments or other worker processes of its own")
    elif model.framework in OTHER_INPUTS and model.serves is None:
        found.append(OTHER_INPUTS[model.framework])
    against = against_loader(job, ranks)
    if against is None:
        without = bool(ranks) and all(rank.loader_workers == 0 for rank in ranks)
        found.append("work of its main thread, such as loading" if without else "its data loader")
    if len(model.ranks) > 1 or (model.world_size or 0) > 1:
        gloo = model.collectives == "gloo"
        found.append("the exchange of gradients over gloo" if gloo else "other ranks")
    if (words.mean(rank.run_queue_wait_percent for rank in ranks) or 0.0) >= RESTING_PERCENT:
        found.append("a free core (the machine is crowded)")
    if (job.write_when_idle_bytes_per_second or 0.0) >= WRITES_BYTES_PER_SECOND:
        found.append("a save")
    if against is not None and against == _resting(job, ranks):
        found.append("something outside (a network, a person)")
    if not job.stacks and model.serves is None and model.simulates is None:
        found.append("a synchronisation in each step")
    return found


def what_decides(window: Window, ranks: Sequence[RankFacts] = ()) -> str:
    """The one reading that would tell them apart."""
    job = window.job
    if job is None:
        return BESIDE
    if job.main_thread_percent is None:
        return "permission to read its processes"
    if not job.stacks:
        return "stacks of its main thread (gpuwatch diagnose --stacks)"
    if job.job.framework not in OTHER_INPUTS and reported.reported_wait(ranks or job.ranks) is None:
        return "the loop's own waits (gpuwatch.torch in the training script)"
    return "a longer observation"
