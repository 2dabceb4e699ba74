"""Load of the loader workers, and the number that is right for a job on this machine.

Two bounds. The room: the cores one rank may use, less one for its own main thread (which sleeps
where few cores cannot feed the GPU: then that one, too). The demand: workers that are busy for the
share u of a core each while the GPU works for the share d of the time make what the GPU takes in d;
to feed it all the time takes count * u / d cores.
"""

import math
from collections.abc import Callable

from gpuwatch.diagnosis.facts.window import HostFacts, JobFacts, RankFacts, WorkerFacts
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rules.shared import words
from gpuwatch.diagnosis.sentence import number

WORKERS_AT_LIMIT_PERCENT = 75.0
"""Percent of one core, mean of the workers. Batches are handed over in order, so where they do not
cost the same even workers that are too few wait now and then for the slowest of them."""
HEADROOM = 1.25
"""Batches do not all cost the same, and a worker that is never idle cannot catch up."""
TAKEN_CORES = 0.5
"""Cores taken by others from which on they are told of."""
MOST_OF_A_CORE = 0.75
"""A worker that has so much of a core is worth its while."""
QUIET_CORES = 1.0
"""Cores that a system without other jobs uses for itself."""
QUEUED_PERCENT = 10.0
"""Percent of the workers' time: on a machine with free cores it is below 2%."""
LEAST_BUSY_SHARE = 0.05
"""Below it the demand estimate divides by almost nothing: only the room counts."""
TYPICAL_WORKERS = 8
"""Proposed where the demand cannot be estimated and there is room for more, or twice what is there.
PyTorch's and Lightning's tuning guides tell people to begin with a few and raise them; beyond this
the gain is rarely in the number."""
THROTTLED_PERCENT = 10.0
"""Percent of a CPU quota's periods from which on the job is held back."""
SMALL_SHM_BYTES = 128 * 1024**2
"""Docker's default of 64 MB and a little more."""
ANSWERS_BYTES_PER_SECOND, DATA_BYTES_PER_SECOND = 100e3, 1e6
"""Calls of 50 ms, one after the other, are answered with a tenth of the first: a line of an answer
each, and the packets that make and end a connection. In between it may be either, with what other
programs of the machine receive."""
WAITS_SHARE = 0.15
"""Share of their time in waits from which workers count as waiting and computing by turns; of those
that only compute 1 to 5% shows so."""
MOST_TIMES = 8
"""``gpuwatch tune`` measures up to so many times the workers there are."""
MEMORY_SHARE = 0.5
"""How much of the free memory more workers may take, which grow as they load."""
FIRST_WORKERS = 2
"""Workers that are better than none: a single one only takes over what the main process did, and
hands its batches over (measured 0.65 to 0.86 times as fast)."""
FEW_CORES = 4.0
"""Cores of one rank: with fewer, one core more or less is a third of all batches."""


def wanted(workers: WorkerFacts | None) -> float | None:
    """CPU that the workers used or could have used while they waited for a core, in percent of one
    core each; ``None``: their CPU was not read."""
    if workers is None or workers.cpu_percent is None:
        return None
    return min(100.0, workers.cpu_percent + (workers.run_queue_wait_percent or 0.0))


def is_at_limit(workers: WorkerFacts | None) -> bool:
    """Check whether the workers use, or would use, all that a core each can give."""
    return words.is_at_least(wanted(workers), WORKERS_AT_LIMIT_PERCENT)


def in_disk_wait(workers: WorkerFacts) -> float | None:
    """Percent of their time, by the kernel's accounts or else by how often one was seen in
    state D; ``None``: neither was read."""
    if workers.disk_wait_percent is not None and workers.disk_wait_percent > 0.0:
        return workers.disk_wait_percent
    if workers.in_disk_wait_share is not None:
        return 100.0 * workers.in_disk_wait_share
    return workers.disk_wait_percent


def in_network_wait(workers: WorkerFacts) -> float:
    """Percent of their time, on connections of their own; 0 also where these were not read."""
    return 100.0 * (workers.awaits_network_share or 0.0)


def wait_by_turns(workers: WorkerFacts | None) -> bool:
    """Check whether workers wait for something else than a core for a part of the time in which
    they make batches: then more of them than cores are right. False also where it was not read."""
    at_work, need = None if workers is None else workers.at_work_share, wanted(workers)
    return at_work is not None and need is not None and at_work - need / 100.0 >= WAITS_SHARE


def is_shared(job: JobFacts, test: Callable[[WorkerFacts], bool]) -> bool:
    """Check whether the workers of each of several ranks pass ``test``: then no rank is the late
    one, and the others' waiting in collectives is only how it looks."""
    known = [rank.workers for rank in job.ranks if rank.workers is not None]
    return len(known) > 1 and all(test(workers) for workers in known)


def is_asked_for_data(job: JobFacts) -> bool | None:
    """Check whether its connections bring more than it sends, and more than answers to logging,
    which are short; ``None``: what they bring was not read, or may be either."""
    received, sent = job.network_receive_bytes_per_second, job.network_send_bytes_per_second
    if received is None or received <= max(ANSWERS_BYTES_PER_SECOND, 2.0 * (sent or 0.0)):
        return None if received is None else False
    return True if received >= DATA_BYTES_PER_SECOND else None


def cores_each(workers: WorkerFacts | None) -> float:
    """Cores that one worker takes when it is at its limit: more than one where its child processes
    (a decoder of several threads) use more."""
    return max(1.0, 0.0 if workers is None else (workers.cpu_percent or 0.0) / 100.0)


def workers_of_a_rank(job: JobFacts, ranks: tuple[RankFacts, ...]) -> int | None:
    """Loader workers of one rank; ``None`` where it is not known for any of them."""
    known = [rank.loader_workers for rank in ranks if rank.loader_workers is not None]
    if known:
        return max(known)
    if job.workers is not None and job.workers.count > 0.0 and job.ranks:
        return round(job.workers.count / len(job.ranks))
    return None


def set_workers(action: str, present: int, better: int, why: str) -> Advice:
    """Advise another ``num_workers``; ``action`` says what to do, as in ``Raise num_workers``."""
    return Advice(
        f"{action} from {number(present)} to {number(better)}.",
        setting="num_workers",
        present=number(present),
        wanted=number(better),
        why=why,
    )


def cheaper_transforms(why: str) -> Advice:
    return Advice(
        "Make transforms cheaper, or do them once and store the result: text can be tokenized "
        "beforehand, pictures made smaller, or decoded on the GPU (DALI, nvJPEG).",
        brief="Make transforms cheaper, or store results",
        why=why,
    )


def usable_cores(host: HostFacts, job: JobFacts) -> float | None:
    """Cores that the job may use and that others leave free, on average."""
    cores = own_cores(host, job)
    if cores is None:
        return None
    free = _left_by_others(host, job)
    return float(cores) if free is None else min(float(cores), free)


def own_cores(host: HostFacts, job: JobFacts) -> float | None:
    """Cores that the job may use, whoever else uses them now."""
    own = job.job.usable_cores
    return own if own is not None else host.core_count


def taken_cores(host: HostFacts, job: JobFacts) -> float:
    """Cores that the job may use and others take now; 0 also where that was not read."""
    return (own_cores(host, job) or 0.0) - (usable_cores(host, job) or 0.0)


def of_its_cores(host: HostFacts, job: JobFacts) -> str:
    """Return ``of 8 cores the job may use (others take 3 now)``."""
    taken = taken_cores(host, job)
    others = f" (others take {number(taken, 1)} now)" if taken >= TAKEN_CORES else ""
    return f"of {words.cores_of(own_cores(host, job) or 0.0)} the job may use{others}"


def _left_by_others(host: HostFacts, job: JobFacts) -> float | None:
    if host.core_count is None or host.cpu_percent is None or job.cpu_cores is None:
        return None
    others = host.core_count * host.cpu_percent / 100.0 - job.cpu_cores
    return None if others < QUIET_CORES else max(1.0, host.core_count - others)


def spare_cores(host: HostFacts, job: JobFacts) -> float | None:
    """Usable cores that the job leaves idle; none while its workers wait for one, unless they wait
    for something else in turns."""
    cores, workers = usable_cores(host, job), job.workers
    if cores is None or job.cpu_cores is None:
        return None
    queued = None if workers is None else workers.run_queue_wait_percent
    if words.is_at_least(queued, QUEUED_PERCENT) and not wait_by_turns(workers):
        return 0.0
    return max(0.0, cores - job.cpu_cores)


def recommended_workers(
    host: HostFacts, job: JobFacts, present: int | None, busy_share: float
) -> int | None:
    """``num_workers`` for each rank, at least 1; ``None`` where the job's cores are not known.
    ``present`` is what a rank has now, ``busy_share`` (0 to 1) how much of the time its GPU works.

    Lightning's ``suggested_max_num_workers`` is the most: cores // ranks on this machine - 1.
    But a main thread that waits for batches sleeps, and its core, of a few, is free for loading.
    """
    better = _workers_for(usable_cores(host, job), host, job, present, busy_share)
    own = own_cores(host, job)
    if better is None or present != 0 or own is None:
        return better
    # A single worker is worse than none, whatever others take now.
    return max(better, min(FIRST_WORKERS, int(own / max(1, len(job.job.ranks)))))


def _workers_for(
    cores: float | None, host: HostFacts, job: JobFacts, present: int | None, busy_share: float
) -> int | None:
    if cores is None:
        return None
    needed = demand(job, present, busy_share)
    each = cores / max(1, len(job.job.ranks))
    starves = needed is not None and needed * cores_each(job.workers) > each - 1.0
    starves = starves or busy_share < LEAST_BUSY_SHARE
    left = each - (0 if starves and each < FEW_CORES else 1)
    most = max(1, math.floor((left + 1.0 - MOST_OF_A_CORE) / cores_each(job.workers)))
    most = int(min(most, room_in_memory(host, job, present or 0)))
    return min(most, max(TYPICAL_WORKERS, 2 * (present or 0)) if needed is None else needed)


def fewer_workers(host: HostFacts, job: JobFacts, present: int, busy_share: float) -> int | None:
    """``num_workers`` for each rank that has more than its cores can serve, whatever others take of
    them now; ``None``: no fewer."""
    better = _workers_for(own_cores(host, job), host, job, present, busy_share)
    return better if better is not None and better < present else None


def overlapping_workers(
    host: HostFacts, job: JobFacts, present: int, workers: WorkerFacts | None, busy_share: float
) -> int:
    """``num_workers`` for each rank where workers mostly wait: then more of them than cores are
    right, as long as what each computes and holds in memory has room."""
    used = 0.0 if workers is None else (workers.cpu_percent or 0.0) / 100.0
    cores, ranks = usable_cores(host, job), max(1, len(job.job.ranks))
    most = math.inf if cores is None else cores / ranks / max(0.01, used)
    needed = _as_set(HEADROOM * max(1, present) / max(LEAST_BUSY_SHARE, busy_share))
    return int(min(needed, MOST_TIMES * max(1, present), most, room_in_memory(host, job, present)))


def room_in_memory(host: HostFacts, job: JobFacts, present: int) -> float:
    """Workers of one rank that the machine's memory has room for, by what they hold now; infinite
    where that was not read."""
    members = [one for one in job.job.members if one.role == "loader_worker"]
    held = words.mean([one.memory_proportional_bytes for one in members])
    if not held or host.memory_total_bytes is None or host.memory_used_bytes is None:
        return math.inf
    free = max(0.0, host.memory_total_bytes - host.memory_used_bytes)
    ranks = max(1, len(job.job.ranks))
    return max(1, present) + math.floor(MEMORY_SHARE * free / held / ranks)


def demand(job: JobFacts, present: int | None, busy_share: float) -> int | None:
    """Workers that one rank would need to feed its GPU all the time, whatever the cores; ``None``
    where it cannot be estimated."""
    if busy_share < LEAST_BUSY_SHARE:
        return None
    cores = _loading_cores(job, present, busy_share)
    if cores is None:
        return None
    least = FIRST_WORKERS if present == 0 else 1
    return max(least, _as_set(HEADROOM * cores / busy_share / cores_each(job.workers)))


def _as_set(workers: float) -> int:
    """Return the number that people set: above four an even one, since an estimate wanders by one
    of eight, and nobody tries both."""
    return math.ceil(workers) if workers <= 4.0 else 2 * round(workers / 2.0)


def _loading_cores(job: JobFacts, count: int | None, busy_share: float) -> float | None:
    """Cores that loading takes now, for one rank."""
    if count is None:
        return None
    if count == 0:
        # The main thread loads while its GPU idles, at a full core.
        return 1.0 - busy_share
    # A worker would have worked in the time that it waits for a core.
    each = wanted(job.workers)
    if each is None or job.workers is None:
        return None
    return count * max(each, job.workers.cpu_percent or 0.0) / 100.0


CLOCK_SHARE, TURBO_SHARE = 0.9, 0.6
"""Least share of the maker's base clock; where that is not known, of the highest clock of one core
alone, which all together stay a third below on most machines."""


def held_clock(host: HostFacts) -> Evidence | None:
    """Return that busy cores run slower than they should, and why as far as it is known; ``None``:
    they do not, or it was not read."""
    clock, base, most = host.cpu_clock_mhz, host.cpu_clock_base_mhz, host.cpu_clock_max_mhz
    least = CLOCK_SHARE * base if base else TURBO_SHARE * most if most else None
    if clock is None or least is None or clock >= least:
        return None
    why = "by a power limit or a setting"
    if host.cpu_thermal_share:
        why = "by their temperature (thermal_throttle counts rise)"
    elif host.cpu_governor in SAVING_GOVERNORS:
        why = (
            f'as the governor "{host.cpu_governor}" has it (cpupower frequency-set -g performance)'
        )
    says = f"cores are held down {why}: they could run at {(base or most or 0.0):.0f} MHz"
    return Evidence("clock of busy cores", clock, "MHz", least, says)


SAVING_GOVERNORS = ("powersave", "conservative", "userspace")
