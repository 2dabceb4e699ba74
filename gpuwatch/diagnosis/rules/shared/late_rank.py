"""What a late rank does while the others wait for it, as far as it shows from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuwatch.core import units
from gpuwatch.diagnosis.facts.window import GpuFacts, RankFacts, Window, WorkerFacts
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rules.shared.gpus import mean, rank_of
from gpuwatch.diagnosis.rules.shared.reported import APART_SHARE, not_starved, waits_more

WRITES_BYTES_PER_SECOND = 5e6
"""Logs and event files stay below one megabyte a second; one gigabyte a minute is 17."""
MORE_THAN_OTHERS = 3.0
"""Times what the other ranks do."""
WORKER_LIMIT_PERCENT = 75.0
"""Of a core: a worker that is never ahead. Healthy ones wait for their queue to empty."""
MAIN_LIMIT_PERCENT = 85.0
"""Of a core: clock ticks and short sleeps take some percent of a thread that never rests."""
DIFFERENT_PERCENT = 15.0
"""Points of a core by which the late rank must differ from the others."""
DISK_WAIT_PERCENT = 20.0
"""Of the time: a loader that is ahead makes good for less."""
QUEUE_WAIT_PERCENT = 10.0
"""Of the time, and of the difference: on a machine with free cores it is below 2%."""
QUOTA_PERCENT = 20.0
"""Of the quota's periods in which the job was held back."""
OWN_LOAD_PERCENT = 50.0
"""Of a core, for a main thread that makes its own batches: it waits for its GPU now and then."""


@dataclass(frozen=True, slots=True)
class Doing:
    """``says`` completes "they wait for rank 3: ..."."""

    says: str
    advice: tuple[Advice, ...]
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    known: bool = True


def doing_of(window: Window, gpu: GpuFacts) -> Doing:
    """The first of the usual reasons that holds for this GPU's rank and not for the others."""
    rank = rank_of(window, gpu)
    if rank is None or window.job is None:
        return _unseen(("the process that runs on it",))
    others = [other for other in window.job.ranks if other.pid != rank.pid]
    told = waits_more(rank, others)
    if told is not None:
        return _waiting_for_data(rank, others, *told)
    in_time = not_starved([rank]) is not None
    for look in _LOOKS:
        if in_time and look in _OF_THE_LOADER:
            continue
        found = look(rank, others)
        if found is not None:
            return found
    if rank.main_thread_percent is None:
        return _unseen(("the CPU time of its processes",))
    return _unseen(("stacks",))


def shared_trouble(window: Window, gpu: GpuFacts) -> str | None:
    """A reason to be late that this GPU's rank shares with most of the others: then the job has
    that trouble, and which rank is last is chance."""
    rank = rank_of(window, gpu)
    if rank is None or window.job is None:
        return None
    throttled = window.job.cpu_throttled_percent
    if throttled is not None and throttled >= QUOTA_PERCENT:
        return "a CPU quota throttles the whole job"
    others = [other for other in window.job.ranks if other.pid != rank.pid]
    for says, holds in _SHARED:
        if others and holds(rank) and 2 * sum(map(holds, others)) >= len(others):
            return says
    return None


def _starved_workers(rank: RankFacts) -> bool:
    workers = rank.workers
    if workers is None or workers.cpu_percent is None:
        return False
    wanted = workers.cpu_percent + (workers.run_queue_wait_percent or 0.0)
    return wanted >= WORKER_LIMIT_PERCENT


def _waits_for_disk(rank: RankFacts) -> bool:
    return (_disk_wait(rank) or 0.0) >= DISK_WAIT_PERCENT


def _waits_for_core(rank: RankFacts) -> bool:
    return (rank.run_queue_wait_percent or 0.0) >= QUEUE_WAIT_PERCENT


def _loads_itself(rank: RankFacts) -> bool:
    return rank.loader_workers == 0 and (rank.main_thread_percent or 0.0) >= OWN_LOAD_PERCENT


_SHARED: tuple[tuple[str, Callable[[RankFacts], bool]], ...] = (
    ("their loader workers are at their limit", _starved_workers),
    ("their loaders wait for the disk", _waits_for_disk),
    ("they wait for CPU cores", _waits_for_core),
    ("they load data in their main processes", _loads_itself),
)


def _unseen(missing: tuple[str, ...]) -> Doing:
    return Doing(
        "what it is doing does not show from outside",
        (
            Advice(
                action="Sample that rank's stacks (gpuwatch stacks): they show what the others "
                "wait for.",
            ),
        ),
        missing=missing,
        known=False,
    )


def _others(others: Iterable[RankFacts], of: Callable[[RankFacts], float | None]) -> float:
    return mean([of(other) for other in others]) or 0.0


def _waiting_for_data(rank: RankFacts, others: list[RankFacts], own: float, theirs: float) -> Doing:
    """The ranks tell themselves that only this one waits for its data; why, its processes show."""
    tells = f"it waits for data {own:.0%} of the time, the others {theirs:.0%}"
    evidence = Evidence(
        name="the late rank waits for data",
        value=round(100.0 * own, 1),
        unit="% of the time",
        threshold=round(100.0 * (theirs + APART_SHARE), 1),
        says="reported by the ranks",
    )
    for look in (_reading, _loading, _own_loading):
        found = look(rank, others)
        if found is not None:
            says = f"{tells}: {found.says}"
            return Doing(says, found.advice, (evidence, *found.evidence))
    advice = Advice(
        action="Look at what that rank loads: its files, their storage, its num_workers.",
        why="the others get their data in time",
    )
    return Doing(tells, (advice,), (evidence,))


def _own_loading(rank: RankFacts, others: list[RankFacts]) -> Doing | None:
    return _main(rank, others) if rank.loader_workers == 0 else None


def _writing(rank: RankFacts, others: list[RankFacts]) -> Doing | None:
    rate = rank.write_bytes_per_second
    theirs = _others(others, lambda other: other.write_bytes_per_second)
    if rate is None or rate < max(WRITES_BYTES_PER_SECOND, MORE_THAN_OTHERS * theirs):
        return None
    return Doing(
        f"it writes {units.rate(rate)}, a checkpoint most likely",
        (
            Advice(
                action="Save without stopping the others: asynchronous or sharded checkpoints "
                "(torch.distributed.checkpoint.async_save), or less frequent ones.",
                why="one rank saves while all the others wait in their next collective",
            ),
        ),
        (
            Evidence(
                name="written by the late rank",
                value=round(rate),
                unit="bytes/s",
                threshold=max(WRITES_BYTES_PER_SECOND, MORE_THAN_OTHERS * theirs),
            ),
        ),
    )


def _reading(rank: RankFacts, others: list[RankFacts]) -> Doing | None:
    own = _disk_wait(rank)
    theirs = _others(others, _disk_wait)
    if own is None or own < max(DISK_WAIT_PERCENT, theirs + DIFFERENT_PERCENT):
        return None
    return Doing(
        f"its loader waits for the disk {own:.0f}% of the time",
        (
            Advice(
                action="Look at where that rank reads from: a slower mount, a cold cache, a "
                "larger shard than the others'.",
            ),
        ),
        (
            Evidence(
                name="disk wait of the late rank's loader",
                value=round(own, 1),
                unit="%",
                threshold=max(DISK_WAIT_PERCENT, theirs + DIFFERENT_PERCENT),
            ),
        ),
    )


def _disk_wait(rank: RankFacts) -> float | None:
    workers = rank.workers
    own = rank.disk_wait_percent
    if workers is None:
        return own
    state = None if workers.in_disk_wait_share is None else 100.0 * workers.in_disk_wait_share
    known = [value for value in (own, workers.disk_wait_percent, state) if value is not None]
    return max(known, default=None)


def _queue(rank: RankFacts, others: list[RankFacts]) -> Doing | None:
    own = rank.run_queue_wait_percent
    theirs = _others(others, lambda other: other.run_queue_wait_percent)
    if own is None or own < max(QUEUE_WAIT_PERCENT, theirs + QUEUE_WAIT_PERCENT):
        return None
    return Doing(
        f"its main thread waits for a CPU core {own:.0f}% of the time",
        (
            Advice(
                action="Give that rank cores of its own: something else runs on those it is "
                "bound to.",
            ),
        ),
        (
            Evidence(
                name="run-queue wait of the late rank",
                value=round(own, 1),
                unit="%",
                threshold=max(QUEUE_WAIT_PERCENT, theirs + QUEUE_WAIT_PERCENT),
            ),
        ),
    )


def _worker_load(workers: WorkerFacts | None) -> float | None:
    return None if workers is None else workers.cpu_percent


def _loading(rank: RankFacts, others: list[RankFacts]) -> Doing | None:
    own = _worker_load(rank.workers)
    theirs = _others(others, lambda other: _worker_load(other.workers))
    if own is None or own < max(WORKER_LIMIT_PERCENT, theirs + DIFFERENT_PERCENT):
        return None
    count = rank.workers.count if rank.workers is not None else 0.0
    return Doing(
        f"its loader worker is at the limit of a core ({own:.0f}%)"
        if round(count) == 1
        else f"its {count:.0f} loader workers are at the limit of a core each ({own:.0f}%)",
        (
            Advice(
                action="Give that rank as many loader workers and as cheap samples as the others "
                "have; raise num_workers if cores are free.",
                setting="num_workers",
                present=f"{count:.0f}",
            ),
        ),
        (
            Evidence(
                name="CPU of the late rank's loader workers",
                value=round(own, 1),
                unit="%",
                threshold=max(WORKER_LIMIT_PERCENT, theirs + DIFFERENT_PERCENT),
                says="of a core each",
            ),
        ),
    )


def _main(rank: RankFacts, others: list[RankFacts]) -> Doing | None:
    own = rank.main_thread_percent
    theirs = _others(others, lambda other: other.main_thread_percent)
    if own is None or own < MAIN_LIMIT_PERCENT or own < theirs + DIFFERENT_PERCENT:
        return None
    loads = rank.loader_workers == 0
    says = "it loads its batches in the main process" if loads else "its Python thread is at work"
    action = (
        "Set num_workers above 0 on that rank."
        if loads
        else "Look at what only that rank does (logging, metrics, evaluation) with gpuwatch stacks."
    )
    return Doing(
        f"{says} ({own:.0f}% of a core)",
        (Advice(action=action, setting="num_workers" if loads else None),),
        (
            Evidence(
                name="main thread of the late rank",
                value=round(own, 1),
                unit="%",
                threshold=max(MAIN_LIMIT_PERCENT, theirs + DIFFERENT_PERCENT),
                says="of a core",
            ),
        ),
    )


_OF_THE_LOADER = (_reading, _loading)
_LOOKS = (_writing, _reading, _loading, _queue, _main)
"""In the order of how much each one proves: a busy main thread proves the least, since it also
spins while it waits for its GPU."""
