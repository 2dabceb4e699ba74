"""Ranks of one job: GPUs that keep step (or look like it where no process is known), and the rank
that is late while the others wait for it, as far as it shows from outside."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuwatch.diagnosis.facts.window import GpuFacts, RankFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Settled, Unknown
from gpuwatch.diagnosis.rules.shared import cards, loaders, loading, words
from gpuwatch.diagnosis.sentence import number

IN_STEP = 0.5
"""Mean correlation of power or utilisation from which GPUs do the same at the same time."""
LEAST_GPUS = 4
"""Where their load does not vary: three that agree and one that differs are a pattern, and two
separate jobs are none."""
TAKEN_SHARE = 0.7
"""Share of the card: frameworks that take their memory in advance (JAX 0.75, TensorFlow and vLLM
0.9) hold the same on every GPU, whatever runs there."""
WRITES_BYTES_PER_SECOND = 5e6
"""Logs and event files stay below one megabyte a second; one gigabyte a minute is 17."""
MORE_THAN_OTHERS = 3.0
"""Times what the other ranks do."""
DIFFERENT_PERCENT = 15.0
"""Points of a core by which the late rank must differ from the others."""
DISK_WAIT_PERCENT = 20.0
"""Percent of the time: a loader that is ahead makes good for less."""
QUEUE_WAIT_PERCENT = 10.0
"""Percent of the time, and of the difference: on a machine with free cores it is below 2%."""
BEHIND_LEAST = 1.0
"""Collectives: the counts of ranks in step differ by as much while they are collected."""
QUOTA_PERCENT = 20.0
"""Percent of the quota's periods in which the job was held back."""
APART_SHARE = 0.10
"""Ranks that do the same wait for data alike, within this share of the time; what a step more or
less makes in a window is below it."""


def ranks_of(window: Window) -> list[GpuFacts]:
    """Two GPUs or more; raises ``Settled`` where there are fewer, or the job is starting."""
    gpus = cards.required_load(window)
    if len(gpus) < 2:
        if (loading.job_of(window).job.world_size or 0) > 1:
            raise Settled(Unknown(("the ranks on other machines",)))
        raise Settled(Clear("a single GPU waits for no other"))
    if window.starting:
        raise Settled(Clear("the job is starting"))
    return gpus


def is_sure(window: Window) -> bool:
    """Check whether they are of one job: processes say so, or they do the same at the same time."""
    moves = words.highest([window.busy_together, window.power_together])
    return window.job is not None or (moves or 0.0) >= IN_STEP


def are_one_job(window: Window, gpus: Sequence[GpuFacts]) -> bool:
    """Check whether they are surely of one job, or at least their memory makes them look so."""
    shares = [
        (gpu.memory_used_bytes or 0.0) / (gpu.identity.memory_total_bytes or 1) for gpu in gpus
    ]
    alike = len(gpus) >= LEAST_GPUS and min(shares) > 0.0 and max(shares) < TAKEN_SHARE
    return alike or is_sure(window)


def looks(window: Window) -> str:
    """Return the end of a sentence about GPUs that no process shows to be ranks."""
    return "; these GPUs look like one job" if window.job is None else ""


IF_ONE_JOB = "if they run one job"
"""Condition at the end of a short sentence about GPUs of which no job is known."""


def waits_briefly(
    window: Window, waiting: Sequence[GpuFacts], late: GpuFacts, share: float, why: str
) -> tuple[str, str]:
    """Return the short forms of a sentence on GPUs that wait for one, 0 to 1 of the time: ``7 GPUs
    wait 51% of the time for GPU 6 (rank 6): why``."""
    waits = f"{words.briefly(waiting)} {words.verb(waiting, 'waits', 'wait')}"
    if window.job is None:
        why = f", {IF_ONE_JOB}"
    return (
        f"{waits} {words.in_percent(share)} of the time for {cards.who_briefly(window, late)}{why}",
        f"{waits} for {words.briefly([late])} ({words.in_percent(share)})",
    )


def likeness(window: Window, gpus: Sequence[GpuFacts]) -> Evidence | None:
    """The signs that they are ranks of one job, where no process says so."""
    held = [gpu.memory_used_bytes or 0.0 for gpu in gpus]
    moves = words.highest([window.busy_together, window.power_together])
    value, sure = "unclear" if moves is None else moves, is_sure(window)
    says = (
        f"one model, {words.amount(min(held))} to {words.amount(max(held))} in use, and load that "
    )
    says += "rises and falls together" if sure else "does not move together, or hardly moves"
    evidence = Evidence("load moves together", value, "correlation", IN_STEP, says, supports=sure)
    return evidence if window.job is None else None


_UNKNOWN = ", reason unknown"


@dataclass(frozen=True, slots=True)
class LateRankWork:
    """``says`` completes "they wait for rank 3: ...", and ``briefly`` the short form of it."""

    says: str
    briefly: str
    advice: tuple[Advice, ...]
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    known: bool = True


def work_of_late_rank(window: Window, gpu: GpuFacts) -> LateRankWork:
    """The first of the usual reasons that holds for this GPU's rank and not for the others."""
    rank = cards.rank_of(window, gpu)
    if rank is None or window.job is None:
        says = "it may be saving, logging, evaluating or waiting for data"
        return LateRankWork(
            says, _UNKNOWN, (_BESIDE,), missing=("the process that runs on it",), known=False
        )
    others = [other for other in window.job.ranks if other.pid != rank.pid]
    in_time = loading.not_starved([rank]) is not None
    for sign in _SIGNS:
        found = None if in_time and sign.of_loader else sign.at(rank, others)
        if found is None:
            continue
        spare = loaders.spare_cores(window.host, window.job) if sign is _LOADING else None
        no_cores = spare is not None and spare < 1.0
        return replace(found, advice=(_NO_CORES,)) if no_cores else found
    unread = rank.main_thread_percent is None
    lacks = ("the CPU time of its processes" if unread else "stacks",)
    says = "what it does meanwhile does not show from outside"
    return LateRankWork(says, _UNKNOWN, (_STACKS,), missing=lacks, known=False)


def shared_trouble(window: Window, gpu: GpuFacts) -> str | None:
    """A reason to be late that this GPU's rank shares with most of the others: then the job has
    that trouble, and which rank is last is chance."""
    rank = cards.rank_of(window, gpu)
    if rank is None or window.job is None:
        return None
    if (window.job.cpu_throttled_percent or 0.0) >= QUOTA_PERCENT:
        return "a CPU quota throttles the whole job"
    others = [other for other in window.job.ranks if other.pid != rank.pid]
    for sign in (_LOADING, _READING, _QUEUE):
        have = [(sign.read(one) or 0.0) >= sign.limit(0.0) for one in (rank, *others)]
        if others and have[0] and 2 * sum(have[1:]) >= len(others):
            return sign.says(rank, sign.read(rank) or 0.0)
    return None


def last_to_launch(window: Window) -> RankFacts | None:
    """The rank that has launched clearly fewer collectives than each of the others, most of the
    time, by NCCL's count."""
    ranks = () if window.job is None else window.job.ranks
    behind = sorted([(one.collectives_behind or 0.0, one.pid) for one in ranks], reverse=True)
    if len(behind) < 2 or behind[0][0] < max(BEHIND_LEAST, MORE_THAN_OTHERS * behind[1][0]):
        return None
    return next(one for one in ranks if one.pid == behind[0][1])


def launched(window: Window, late: RankFacts | None) -> list[Evidence]:
    """NCCL's count of the collectives of this rank (``None``: of none in particular), where it was
    asked."""
    ranks = () if window.job is None else window.job.ranks
    known = [one.collectives_behind for one in ranks if one.collectives_behind is not None]
    if not known:
        return []
    behind = (words.highest(known) if late is None else late.collectives_behind) or 0.0
    name = "the rank furthest behind" if late is None else "the late rank"
    last = late is not None and late == last_to_launch(window)
    says = "how many it is behind the rank that is ahead, by NCCL's own count"
    return [Evidence(f"collectives of {name}", behind, "behind", BEHIND_LEAST, says, supports=last)]


_STACKS = Advice(
    "Sample its stacks (gpuwatch diagnose --stacks): they show what the others are waiting for.",
    brief="Sample its stacks: gpuwatch diagnose --stacks",
)
_BESIDE = Advice(
    "Run gpuwatch beside the job: it shows what the process on that GPU is doing.",
    brief="Run gpuwatch beside the job",
)
_FILES = Advice(
    "Look at what that rank loads: its files, their storage, its num_workers.",
    brief="See its num_workers, files, storage",
    setting="num_workers",
    why="the other ranks get their data in time",
)
_WORKERS = Advice(
    "Raise num_workers, at least on that rank, or give all ranks samples that cost as much to "
    "load.",
    brief="Raise num_workers, even out samples",
    setting="num_workers",
    why="its workers are at the limit of a core each, those of the other ranks are not",
)
_NO_CORES = Advice(
    "Give all ranks samples that cost as much to load: no cores are free for more workers.",
    brief="Even out samples, no cores are free",
    why=_WORKERS.why,
)
_SAVES = Advice(
    "Save without stopping the others: asynchronous or sharded checkpoints "
    "(torch.distributed.checkpoint.async_save), or less frequent ones.",
    brief="Save asynchronously, sharded or less often",
    why="one rank saves while all the others wait in their next collective",
)
_CORES = Advice(
    "Give that rank cores of its own: something else runs on those it is bound to.",
    brief="Give that rank cores of its own",
)
_ONLY_THERE = Advice(
    "See what extra work that rank does (logging, metrics): gpuwatch diagnose --stacks.",
    brief="See what extra work that rank does",
)


@dataclass(frozen=True, slots=True)
class _Sign:
    """A reason to be late that shows in one reading, if that is at ``limit`` of the others' mean
    or above."""

    evidence: str
    read: Callable[[RankFacts], float | None]
    limit: Callable[[float], float]
    says: Callable[[RankFacts, float], str]
    briefly: Callable[[float], str]
    advice: Advice
    unit: str = "%"
    meaning: str = ""
    of_loader: bool = False

    def at(self, rank: RankFacts, others: list[RankFacts]) -> LateRankWork | None:
        own, theirs = self.read(rank), words.mean([self.read(other) for other in others]) or 0.0
        limit = self.limit(theirs)
        if own is None or own < limit:
            return None
        evidence = Evidence(self.evidence, own, self.unit, limit, self.meaning)
        briefly = f": {self.briefly(own)}"
        return LateRankWork(self.says(rank, own), briefly, (self.advice,), (evidence,))


def _above(least: float, apart: float) -> Callable[[float], float]:
    return lambda theirs: max(least, theirs + apart)


def _disk_wait(rank: RankFacts) -> float | None:
    workers = rank.workers
    if workers is None:
        return rank.disk_wait_percent
    share = workers.in_disk_wait_share
    state = None if share is None else 100.0 * share
    return words.highest((rank.disk_wait_percent, workers.disk_wait_percent, state))


def _workers_say(rank: RankFacts, own: float) -> str:
    count = 0.0 if rank.workers is None else rank.workers.count
    if round(count) == 1:
        return f"its loader worker is maxed out ({number(own)}% of a core)"
    return f"its {number(count)} loader workers are maxed out ({number(own)}% of a core each)"


def _main_says(rank: RankFacts, own: float) -> str:
    does = "saving, logging or evaluating"
    does = "saving, logging, evaluating or loading" if rank.loader_workers == 0 else does
    return f"its main thread is busy ({number(own)}% of a core), perhaps {does}"


_WAITING = _Sign(
    "the late rank waits for data",
    lambda rank: None if (wait := loading.reported_wait([rank])) is None else 100.0 * wait,
    _above(100.0 * loading.STARVED_SHARE, 100.0 * APART_SHARE),
    lambda _, own: f"it waits for data {number(own)}% of the time",
    lambda own: f"it waits for data {number(own)}%",
    _FILES, unit="% of the time", meaning="reported by the ranks",
)  # fmt: skip
_WRITING = _Sign(
    "written by the late rank", lambda rank: rank.write_bytes_per_second,
    lambda theirs: max(WRITES_BYTES_PER_SECOND, MORE_THAN_OTHERS * theirs),
    lambda _, own: f"it writes {words.amount(own)}/s, most likely a checkpoint",
    lambda own: f"it writes {words.amount(own)}/s",
    _SAVES, unit="bytes/s",
)  # fmt: skip
_READING = _Sign(
    "disk wait of the late rank's loader", _disk_wait, _above(DISK_WAIT_PERCENT, DIFFERENT_PERCENT),
    lambda _, own: f"its loader waits for the disk {number(own)}% of the time",
    lambda _: "it waits for the disk",
    _FILES, of_loader=True,
)  # fmt: skip
_LOADING = _Sign(
    "CPU of the late rank's loader workers",
    lambda rank: None if rank.workers is None else rank.workers.cpu_percent,
    _above(loaders.WORKERS_AT_LIMIT_PERCENT, DIFFERENT_PERCENT), _workers_say,
    lambda _: "its workers are maxed out", _WORKERS,
    meaning="of a core each", of_loader=True,
)  # fmt: skip
_QUEUE = _Sign(
    "run-queue wait of the late rank", lambda rank: rank.run_queue_wait_percent,
    _above(QUEUE_WAIT_PERCENT, QUEUE_WAIT_PERCENT),
    lambda _, own: f"its main thread waits for a CPU core {number(own)}% of the time",
    lambda _: "it waits for a CPU core", _CORES,
)  # fmt: skip
_MAIN = _Sign(
    "main thread of the late rank", lambda rank: rank.main_thread_percent,
    _above(loading.MAIN_AT_LIMIT_PERCENT, DIFFERENT_PERCENT), _main_says,
    lambda _: "its main thread is busy", _ONLY_THERE,
    meaning="of a core",
)  # fmt: skip
_SIGNS = (_WRITING, _READING, _LOADING, _WAITING, _QUEUE, _MAIN)
"""In the order of how much each one proves: a busy main thread proves little, since it also spins
while it waits for its GPU."""
CHARTS = {_LOADING.evidence: "worker", _MAIN.evidence: "main"}
"""Charts (as ``Rule.charts`` has them) that show a reason to be late, by its evidence."""
