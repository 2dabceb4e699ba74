"""Causes that stay open: what a GPU that waits may be waiting for, by all that is known in the
window, and what would decide between the causes left. A cause is named only if nothing known speaks
against it."""

from collections.abc import Callable, Sequence

from gpuwatch.diagnosis.facts.window import GpuFacts, JobFacts, RankFacts, Window
from gpuwatch.diagnosis.rules.shared import cards, loaders, words
from gpuwatch.diagnosis.rules.shared.loading import (
    FED_SHARE,
    OTHER_INPUTS,
    STACKS_LOADING_PERCENT,
    may_be_python,
    may_run_python,
    no_loader,
    reported_wait,
)

BESIDE = "the job's processes (run gpuwatch where the job runs)"
RESTING_PERCENT = 25.0
"""Percent of a core each, or of their time in disk wait: nobody waits for what does less, unless it
waits for a network."""
IN_PHASE = 0.4
"""Correlation of the main thread's CPU with the GPU's utilisation."""
WRITES_BYTES_PER_SECOND = 50e6
"""A process that writes this while its GPU idles saves a checkpoint."""
MAIN_COMPUTES_PERCENT = 60.0
"""Percent of a core, while the GPU idles: waiting for anything takes less."""
HOST_COMPUTES_CORES = 6.0
"""Cores of one training process, loader workers apart, that show work: launching takes its main
thread, the one of the backward pass and part of those that pin memory and drive collectives."""
OFFLOADS_BYTES_PER_SECOND = 5e9
"""Over PCIe, in one direction, on average: float32 images at several thousand a second are below 2
GB/s; weights, gradients or optimizer states that live in host memory cross it in each step."""
RETURNS_BYTES_PER_SECOND = 1e9
"""Over PCIe in each direction, on average, of a job on one GPU: data only go to it, and losses or
predictions that come back are small. Several GPUs exchange gradients over PCIe as well."""
SAVES = ("saves", "a save")
OUTSIDE = "something outside (a network, a person)"
OWN_WORK = "its own work on the CPU"
OFFLOAD = "work on the CPU or copies to host memory (offload)"
FROM_OUTSIDE = ("data", "requests", "work on the CPU", "other GPUs of the job", "saves")
"""Causes of which nothing can be known from a GPU alone."""


def reduces_on_cpu(job: JobFacts) -> bool:
    """Check whether its ranks exchange gradients over gloo, which computes on the CPU."""
    return len(job.ranks) > 1 and job.job.collectives == "gloo"


def process_percent(job: JobFacts) -> float | None:
    """CPU of a training process with all its threads, in percent of a core, mean of the ranks."""
    if job.cpu_cores is None or not job.ranks:
        return None
    workers, loading = job.workers, 0.0
    if workers is not None and workers.count > 0.0:
        if workers.cpu_percent is None:
            return None
        loading = workers.count * workers.cpu_percent / 100.0
    return max(0.0, 100.0 * (job.cpu_cores - loading) / len(job.ranks))


def offload(job: JobFacts, gpus: Sequence[GpuFacts]) -> str | None:
    """How the job shows that the host computes, or copies what GPU memory does not hold, as a
    clause: its main thread then spins or computes, and launches nothing late."""
    cores = (process_percent(job) or 0.0) / 100.0
    if cores >= HOST_COMPUTES_CORES and job.job.simulates is None:
        used = words.cores_of(cores)
        return f"each rank computes on {used} beside its loader, as an offloaded optimizer does"
    both = [(gpu.pcie_rx_bytes_per_second, gpu.pcie_tx_bytes_per_second) for gpu in gpus]
    rate = words.mean([words.highest(rates) for rates in both])
    alone = len(gpus) == 1 and len(job.ranks) < 2
    returned = words.mean([min(up, down) for up, down in both if up and down])
    returns = alone and words.is_at_least(returned, RETURNS_BYTES_PER_SECOND)
    if returns or words.is_at_least(rate, OFFLOADS_BYTES_PER_SECOND):
        return f"{words.amount(rate or 0.0)}/s cross PCIe, as with weights kept in host memory"
    return None


def against_loader(job: JobFacts, ranks: Sequence[RankFacts]) -> str | None:
    """Why the loader is not what the GPUs wait for, as a clause; ``None``: it may be."""
    why, wait = no_loader(job), reported_wait(ranks)
    if why is not None:
        return why
    if wait is not None:
        fed = wait < FED_SHARE
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
    """Return what the GPUs of ``ranks`` may be waiting for, in the order of how soon a person
    would look there."""
    job, encodes = window.job, any(map(cards.encodes, window.gpus))
    found = ["its video encoder"] if encodes else []
    if job is None:
        return [*found, *(FROM_OUTSIDE if _may_train(window) else (OWN_WORK, OUTSIDE))]
    if offload(job, window.gpus) is not None:
        found.append(OFFLOAD)
    return found + [cause for find in _CAUSES if (cause := find(job, ranks)) is not None]


def _may_train(window: Window) -> bool:
    """Check whether a training job can be on these GPUs, as far as their programs are known."""
    if window.job is not None:
        return may_be_python(window.job.job)
    there = [one.command or one.name for gpu in window.gpus for one in gpu.others or ()]
    return not there or any(map(may_run_python, there))


def _requests(job: JobFacts, _ranks: Sequence[RankFacts]) -> str | None:
    return None if job.job.serves is None else "requests"


def _own_processes(job: JobFacts, _ranks: Sequence[RankFacts]) -> str | None:
    at_work = words.is_at_least(loaders.wanted(job.own_workers), RESTING_PERCENT)
    if job.job.simulates is not None or at_work:
        return "environments or other worker processes of its own"
    return OTHER_INPUTS.get(job.job.framework or "") if job.job.serves is None else None


def _loading(job: JobFacts, ranks: Sequence[RankFacts]) -> str | None:
    if against_loader(job, ranks) is not None:
        return None
    without = bool(ranks) and all(rank.loader_workers == 0 for rank in ranks)
    return "work of the main thread, such as loading" if without else "the data loader"


def _own_work(job: JobFacts, _ranks: Sequence[RankFacts]) -> str | None:
    if may_be_python(job.job) or job.job.serves is not None:
        return None
    works = words.is_at_least(job.cpu_cores, RESTING_PERCENT / 100.0)
    return OWN_WORK if works else OUTSIDE


def _other_ranks(job: JobFacts, _ranks: Sequence[RankFacts]) -> str | None:
    if len(job.job.ranks) < 2 and (job.job.world_size or 0) < 2:
        return None
    return "the exchange of gradients over gloo" if job.job.collectives == "gloo" else "other ranks"


def _a_core(_job: JobFacts, ranks: Sequence[RankFacts]) -> str | None:
    queue = words.mean([rank.run_queue_wait_percent for rank in ranks])
    crowded = words.is_at_least(queue, RESTING_PERCENT)
    return "a free core (the machine is crowded)" if crowded else None


def _a_save(job: JobFacts, _ranks: Sequence[RankFacts]) -> str | None:
    saves = words.is_at_least(job.write_when_idle_bytes_per_second, WRITES_BYTES_PER_SECOND)
    return "a save" if saves else None


def _outside(job: JobFacts, ranks: Sequence[RankFacts]) -> str | None:
    against = against_loader(job, ranks)
    rests = against is not None and against == _resting(job, ranks)
    return OUTSIDE if rests else None


def _synchronisation(job: JobFacts, _ranks: Sequence[RankFacts]) -> str | None:
    other = job.job.serves is not None or job.job.simulates is not None
    open_to_it = not job.stacks and not other and may_be_python(job.job)
    return "a synchronisation in each step" if open_to_it else None


_CAUSES: tuple[Callable[[JobFacts, Sequence[RankFacts]], str | None], ...] = (
    _requests, _own_processes, _loading, _own_work, _other_ranks, _a_core, _a_save, _outside,
    _synchronisation,
)  # fmt: skip


def what_decides(window: Window, ranks: Sequence[RankFacts] = ()) -> str:
    """The one reading that would tell the open causes apart."""
    job = window.job
    if not _may_train(window):
        return "the program's own log or a profiler (Nsight Systems)"
    if job is None:
        return BESIDE
    if job.main_thread_percent is None:
        return "permission to read its processes"
    if not job.stacks:
        return "stacks of its main thread (gpuwatch diagnose --stacks)"
    if job.job.framework not in OTHER_INPUTS and reported_wait(ranks or job.ranks) is None:
        return "the loop's own waits (gpuwatch.torch in the training script)"
    return "a longer observation"
