"""How much faster a job would be with a cure, bounded by what else limits it.

A cure relieves one resource: more workers, more cores, a wait that goes. The job then runs up to
the next limit: the GPU's own busy time, the cores that are free (its CPU time per step against
them), the number of workers, the main thread, the slowest rank, the power cap. The lowest of these
is the gain, and what it is of is named with it. Pure functions of a ``Window``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from gpuwatch.diagnosis.facts.window import HostFacts, JobFacts, Window
from gpuwatch.diagnosis.finding import Advice, Gain
from gpuwatch.diagnosis.rule import Firing, Rule
from gpuwatch.diagnosis.rules.shared import cards, loaders, words

HANDING_OVER = (1.15, 1.3, 1.6)
"""Times the CPU of loading in the main process that workers take for the same batches, low, usual
and high: they pickle, and pass batches through shared memory. Measured: 1.19 for pictures, 1.54 for
a tokenizer."""
FULL_CORE_PERCENT = 85.0
"""Percent of a core: a main thread that is busier may as well spin for its GPU as work."""
LATENCY_BYTES_PER_SECOND = 100e6
"""Up to this rate any network that a GPU machine has (1 Gbit/s) delivers: what waits below it waits
for answers, of which more can be on their way at once."""
ESTIMATED_BUSY_SHARE = 0.03
"""Share of the time a GPU must be busy for an estimate: below it, 1 / share is mostly chance."""


class _Limit(NamedTuple):
    """Something that the job would run up to, at so many times its speed of now."""

    by: str
    times: float
    low: float = 0.85
    """Share of ``times`` that it may be at least, and at most."""
    high: float = 1.1


def with_gains(window: Window, rule: Rule, firing: Firing) -> Firing:
    """Return the firing with the gain of each cure that can be estimated, and of the best."""
    cures = tuple(rule.cure if firing.advice is None else firing.advice)
    if firing.lost_share is None or not cures:
        return firing
    advice = tuple([replace(one, gain=_of_cure(window, rule, firing, one)) for one in cures])
    return replace(firing, advice=advice, gain=_best(window, rule, firing, advice))


def _best(window: Window, rule: Rule, firing: Firing, advice: Sequence[Advice]) -> Gain | None:
    known = [one.gain for one in advice if one.gain is not None]
    best = max(known, key=lambda gain: gain.worth, default=None)
    if best is not None and best.worth >= WORTH_SAYING:
        return best
    job = window.job
    taken = 0.0 if job is None else loaders.taken_cores(window.host, job)
    settled = len(known) == len(advice) and taken < loaders.TAKEN_CORES
    if rule.gives_back is None or settled:
        return best
    # Of another cure nobody knows how much it gives, nor of this one once others leave their
    # cores; only what is there to be had.
    most = min(_always(window, rule, firing), key=lambda limit: limit.times)
    return Gain(factor=None, low=1.0, high=round(most.times, 2), limited_by=most.by)


def _of_cure(window: Window, rule: Rule, firing: Firing, advice: Advice) -> Gain | None:
    """Return the gain of one change; ``None`` where it cannot be known."""
    job, limits = window.job, list(_always(window, rule, firing))
    present, wanted = _number(advice.present), _number(advice.wanted)
    if advice.setting == "num_workers" and job is not None:
        if present is None or wanted is None:
            return None
        more = _workers(window, job, present, wanted)
    elif advice.setting == "cpu quota" and job is not None:
        more = None if wanted is None else _quota(job, wanted)
    elif rule.gives_back == "all":
        # What it gives back may be needed in part for something else.
        more = [_Limit(limits[0].by, limits[0].times, low=0.5 + 0.5 / limits[0].times)]
        more += [] if job is None or firing.pauses else _main_thread(job)
    else:
        return None
    return None if more is None else _lowest([*limits, *more])


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _lowest(limits: Sequence[_Limit]) -> Gain:
    least = min(limits, key=lambda limit: limit.times)
    low = min([limit.times * limit.low for limit in limits])
    high = min([limit.times * limit.high for limit in limits])
    return Gain(
        factor=round(least.times, 2),
        low=round(min(low, least.times), 2),
        high=round(max(high, least.times), 2),
        limited_by=least.by,
    )


# -- what limits a job -----------------------------------------------------------------------------


def _always(window: Window, rule: Rule, firing: Firing) -> Iterator[_Limit]:
    """Yield what limits it whatever the cure is."""
    most = 1.0 / max(ESTIMATED_BUSY_SHARE, 1.0 - (firing.lost_share or 0.0))
    yield _Limit("the GPU" if window.gpus else "the steps themselves", most, low=0.9, high=1.0)
    if rule.lost_while_busy or firing.lost_while_busy:
        powers = [
            (gpu.power_limit_watts / watts) ** 0.5
            for gpu in window.gpus
            if (not firing.gpus or gpu.uuid in firing.gpus)
            and gpu.power_limit_watts
            and (watts := cards.power_when_busy(gpu))
        ]
        if rule.slows_clocks and powers:
            # Power grows with the square of the clock, at least.
            yield _Limit("the power cap", max(1.0, min(powers)))
        return
    ranks = 0 if window.job is None else len(window.job.ranks)
    others = [gpu for gpu in window.gpus if firing.gpus and gpu.uuid not in firing.gpus]
    works = [
        gpu.busy.mean_percent / 100.0 - gpu.spins_share
        for gpu in others
        if gpu.busy is not None and gpu.spins_share
    ]
    if ranks > 1 and others and len(works) == len(others):
        yield _Limit("the slowest rank", 1.0 / max(ESTIMATED_BUSY_SHARE, *works))


def _main_thread(job: JobFacts) -> list[_Limit]:
    main = job.main_thread_percent
    if main is None or main >= FULL_CORE_PERCENT:
        return []
    return [_Limit("the main thread", 100.0 / max(1.0, main))]


def _cores(window: Window, job: JobFacts, cost: float = 1.0) -> list[_Limit]:
    """The cores that the job may use and others leave free, against what it uses now; ``cost``:
    how many times the CPU a step takes then."""
    cores, used, workers = loaders.usable_cores(window.host, job), job.cpu_cores, job.workers
    if cores is None or not used:
        return []
    may_use = job.job.usable_cores or window.host.core_count or cores
    by = words.cores_of(cores)
    by = f"the {by} that others leave" if cores < may_use - 0.5 else by
    queued = 0.0 if workers is None else workers.run_queue_wait_percent or 0.0
    processes = len(job.ranks) + (0.0 if workers is None else workers.count)
    if processes > cores and queued >= loaders.QUEUED_PERCENT:
        if loaders.wait_by_turns(workers):
            # Together they leave cores idle in their waits, which more of them would fill.
            return [_Limit(by, max(1.0, min(cores, used + _idle_cores(window.host)) / used))]
        # What they do not get now, more or fewer of them would not get either.
        return [_Limit(by, 1.0 / cost, high=1.2)]
    return [_Limit(by, cores / (cost * used))]


def _idle_cores(host: HostFacts) -> float:
    """Cores of the machine that nobody uses; 0 also where that was not read."""
    if host.core_count is None or host.cpu_percent is None:
        return 0.0
    return host.core_count * (1.0 - host.cpu_percent / 100.0)


def _by_turns(number: _Limit, cores: _Limit) -> _Limit:
    """Limit of workers that compute and wait by turns: they do not always wait when a core is
    wanted, so that close to both limits neither is reached."""
    times = (number.times**-2 + cores.times**-2) ** -0.5
    # More workers are no slower.
    return min(number, cores, key=attrgetter("times"))._replace(
        times=max(times, min(1.0, number.times))
    )


def _workers(window: Window, job: JobFacts, present: float, wanted: float) -> list[_Limit] | None:
    if present < 1.0:
        return _first_workers(window, job, wanted)
    workers = job.workers
    if workers is None or workers.cpu_percent is None:
        return None
    if (loaders.in_disk_wait(workers) or 0.0) >= workers.cpu_percent:
        # How much the disk could deliver to more of them, nobody has seen.
        return None
    # Without the wait for a core each makes its batches in what is left of the time.
    queued = min(0.95, (workers.run_queue_wait_percent or 0.0) / 100.0)
    times = wanted / present / (1.0 - queued)
    receives = job.network_receive_bytes_per_second or 0.0
    waits = loaders.in_network_wait(workers) > workers.cpu_percent
    if waits and receives * times > LATENCY_BYTES_PER_SECOND:
        return None
    number = _Limit(words.counted(wanted, "worker"), times)
    cores = _cores(window, job)
    if cores and loaders.wait_by_turns(workers):
        return [_by_turns(number, cores[0]), *_main_thread(job)]
    return [number, *cores, *_main_thread(job)]


def _first_workers(window: Window, job: JobFacts, wanted: float) -> list[_Limit] | None:
    """Limits where the main process loaded: that goes to workers, at a cost."""
    main = job.main_thread_percent
    if main is None:
        return None
    less, cost, more = HANDING_OVER
    waits = max([rank.disk_wait_percent or 0.0 for rank in job.ranks], default=0.0)
    if waits >= main:
        return None
    network = max([rank.awaits_network_share or 0.0 for rank in job.ranks], default=0.0)
    loads = min(1.0, main / 100.0 + network)
    low, high = cost / more, cost / less
    number = _Limit(words.counted(wanted, "worker"), wanted / (cost * loads), low, high)
    cores = [one._replace(low=low, high=high) for one in _cores(window, job, cost)]
    return [number, *cores]


def _quota(job: JobFacts, wanted: float) -> list[_Limit] | None:
    """Limits once it may use so many cores: its workers and its main thread have one each."""
    if not job.cpu_cores:
        return None
    limits = [_Limit(words.cores_of(wanted), wanted / job.cpu_cores), *_main_thread(job)]
    workers = job.workers
    if workers is not None and workers.cpu_percent and workers.count:
        number = words.counted(workers.count, "worker")
        most = 100.0 * loaders.cores_each(workers)
        limits.append(_Limit(number, most / workers.cpu_percent))
    return limits


def lost_watts(window: Window, firing: Firing, *, while_busy: bool) -> float | None:
    """Return the power of a GPU in the time that is lost: while it idles, or is busy in vain."""
    watts = []
    for gpu in window.gpus:
        mean, busy, idle = gpu.power_mean_watts, gpu.power_busy_watts, gpu.idle_share
        if firing.lost_share is None or (firing.gpus and gpu.uuid not in firing.gpus):
            continue
        if not while_busy and mean is not None and busy is not None and idle > 0.0:
            mean = max(0.0, min(mean, (mean - (1.0 - idle) * busy) / idle))
        watts.append(mean)
    return words.mean(watts)


# -- how grave it is -------------------------------------------------------------------------------

WORTH_SAYING = 1.10
"""Times as fast: nobody changes a program for less."""
WORTH_A_WARNING = 1.20
STAYS_BY = 0.02
"""Hysteresis of both limits: a gain must pass them by so much to change what is said."""


def is_worth_saying(gain: Gain | None, *, said: bool) -> bool:
    """Whether enough would be gained; ``said``: it is being said. What has no known gain is judged
    by its rule alone."""
    return gain is None or gain.worth >= WORTH_SAYING - (STAYS_BY if said else 0.0)


def severity(own: str, gain: Gain | None, before: str | None) -> str:
    """Return how grave a finding is, of which the rule alone would say ``own``, and which has been
    ``before``."""
    if own != "warning" or gain is None:
        return own
    least = WORTH_A_WARNING + (STAYS_BY if before == "info" else -STAYS_BY if before else 0.0)
    return "warning" if gain.worth >= least else "info"
