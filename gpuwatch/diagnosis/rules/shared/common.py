"""What the rules about data loading and the Python side share.

Their common question comes first: do GPUs of this job idle, past start-up and outside pauses?
A low mean is where they begin and never what they conclude from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuwatch.core import units
from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.facts.window import (
    GpuFacts,
    JobFacts,
    Pause,
    RankFacts,
    Window,
    WorkerFacts,
)
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rule import Clear, Unknown
from gpuwatch.diagnosis.rules.shared.gpus import mean, named, ramp
from gpuwatch.diagnosis.rules.shared.pauses import idle_part, is_save
from gpuwatch.diagnosis.rules.shared.reported import STARVED_SHARE, told_wait, wait_clearness
from gpuwatch.diagnosis.signals.waveform import Waveform

WATCHED_SECONDS = 8.0
"""Several steps of nearly every job, and short enough to name a starved loader within 15 s."""

IDLE_SHARE = 0.10
"""From here on a GPU counts as under-fed. TensorFlow's profiler calls 5% of the step time spent
on input "moderately" input-bound; twice that, since the optimizer's gaps and the logging of a
healthy job leave a GPU without a kernel for 3 to 5% of the time as the driver counts."""

IDLE_SHARE_CLEAR = 0.30
"""Here nobody doubts it: TensorFlow's profiler says "highly" input-bound from 20%."""

MAIN_AT_LIMIT_PERCENT = 85.0
"""Of one core, for one thread: SageMaker's CPUBottleneck rule says 90% for a whole machine; the
kernel's clock ticks and short sleeps take some percent of a thread that never rests."""

WORKERS_AT_LIMIT_PERCENT = 75.0
"""Of one core, mean of the workers. Batches are handed over in order, so where they do not cost
the same even workers that are too few wait now and then for the slowest of them."""

HELD_UP_PERCENT = 20.0
"""Of the main threads' time in the run queue: on a machine with free cores it is below 2%."""

TURNS_IDLE_SHARE = 0.25
"""A main thread and a GPU that take turns too fast to be seen still share out the time. With less
idling than this almost any job would fit."""
TURNS_MAIN_PERCENT = 30.0
"""Of a core: with less CPU than this almost any job would fit, too."""
TURNS_FILL_PERCENT = 90.0
"""The thread's CPU fills what the GPU leaves; a tenth less, for what a thread waits."""

TURNS_TOLD_SHARE = 0.15
"""Of the time, mean of the ranks: half as much again as one GPU's idling must be, since what a rank
waits while its GPU still has kernels queued costs nothing."""
FULL_POWER_SHARE = 0.85
"""Of the power limit, on average: a GPU that spins in a collective a good part of the time draws
far less."""
MOSTLY_SHARE = 0.5
"""Of the idle time: what makes up less of it is not what it is about."""

OWN_LEAST_PERCENT = 1.0
"""SM share: a process that holds memory and does nothing shows zero."""

RECUR_SECONDS = 180.0
"""How far back it is looked whether pauses come again and again."""
RECUR_EVERY_SECONDS = 45.0
"""Pauses that come at least so often are waits for the loader: the two ends of an evaluation are
two, and there are minutes between evaluations."""
RECUR_SHARE = 0.25
"""Pauses that take so much of that time are as well."""

NO_JOB = ("the job's processes",)
NO_WORKERS = "whether the job has loader workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Underfed:
    """The GPUs of a job that idle, and the part of the job that feeds them."""

    job: JobFacts
    gpus: tuple[GpuFacts, ...]
    idle_share: float
    """0 to 1: mean over those GPUs, without the pauses that other rules explain."""
    ranks: tuple[RankFacts, ...]
    """Those that drive these GPUs; all ranks where it is not known which."""
    worker_count: int | None
    """Loader workers of one rank, as the busiest of ``ranks`` has them; ``None``: not known."""
    workers: WorkerFacts | None
    told_only: bool = False
    """The GPUs look fed (or there is none) and only the job's own telling shows that it waits."""
    held_up_percent: float | None = None
    """Set where the GPUs look fed and only the main threads' wait for a core tells: see
    ``held_up``."""

    @property
    def who(self) -> str:
        """``GPU 3``; a job without a GPU is a loop."""
        return named(self.gpus) if self.gpus else "The training loop"

    @property
    def told_wait(self) -> float | None:
        """0 to 1: of the time these ranks wait for data, as they tell themselves."""
        return told_wait(self.ranks)

    @property
    def waited_share(self) -> float:
        """0 to 1: what the GPUs lost to waiting for data: no more than they idled, and no more
        than the job tells that it waited."""
        told = self.told_wait
        return self.idle_share if told is None else min(self.idle_share, told)

    @property
    def is_for_data(self) -> bool:
        """Whether waiting for data can be what the idling is: the job does not tell otherwise."""
        return self.waited_share >= MOSTLY_SHARE * self.idle_share

    @property
    def waited_clearness(self) -> tuple[float, ...]:
        """What the idling, and the wait that the job tells of, add to a loader rule's strength."""
        told = self.told_wait
        if told is None:
            return (self.clearness,)
        own = ramp(self.waited_share, IDLE_SHARE, IDLE_SHARE_CLEAR)
        return (own, *wait_clearness(told)) if self.is_for_data else (own,)

    @property
    def keys(self) -> tuple[GpuKey, ...]:
        return tuple([gpu.uuid for gpu in self.gpus])

    @property
    def busy_share(self) -> float:
        return 1.0 - self.idle_share

    @property
    def main_idle_percent(self) -> float | None:
        """The main threads' CPU while the GPUs idled, or over all where the two cannot be told
        apart."""
        if self.job.main_thread_when_idle_percent is not None:
            return self.job.main_thread_when_idle_percent
        return self.main_percent

    @property
    def main_queue_percent(self) -> float:
        """Of the time in which the main threads could have run and had no core; 0 where it was
        not read. On a crowded machine a thread that computes all the time shows half a core."""
        return mean([rank.run_queue_wait_percent for rank in self.ranks]) or 0.0

    @property
    def main_percent(self) -> float | None:
        own = mean([rank.main_thread_percent for rank in self.ranks])
        return self.job.main_thread_percent if own is None else own

    @property
    def fills_idle_time(self) -> bool:
        """Whether the main thread works for as long as the GPUs do not, where the samples are too
        coarse to show that it does so in turns."""
        main = self.main_percent
        if main is None or self.job.main_thread_phase is not None:
            return False
        main += self.main_queue_percent
        return (
            self.idle_share >= TURNS_IDLE_SHARE
            and main >= TURNS_MAIN_PERCENT
            and main >= TURNS_FILL_PERCENT * self.idle_share
        )

    @property
    def complaint(self) -> str:
        """``GPU 3 idled 40% of the time``: how a summary begins."""
        if self.held_up_percent is not None:
            return (
                f"The main threads of {len(self.job.ranks)} ranks waited for a core "
                f"{self.held_up_percent:.0f}% of the time"
            )
        if self.told_only:
            verb = "have" if len(self.gpus) > 1 else "has"
            return f"{self.who} {verb} waited for data {self.idle_share:.0%} of the time"
        return f"{named(self.gpus)} idled {self.idle_share:.0%} of the time"

    @property
    def lost_share(self) -> float | None:
        """``None`` where utilisation does not show what was lost."""
        return None if self.held_up_percent is not None else self.idle_share

    @property
    def severity(self) -> str:
        """Threads that wait for cores while the GPUs look fed may cost little: launching runs
        ahead of the GPU."""
        return "warning" if self.held_up_percent is None else "info"

    @property
    def evidence(self) -> Evidence:
        if self.held_up_percent is not None:
            return Evidence(
                name="main threads' run-queue wait",
                value=round(self.held_up_percent, 1),
                unit="% of the time",
                threshold=HELD_UP_PERCENT,
                says="kernels are launched late; the other ranks spin in collectives and look busy",
            )
        if self.told_only:
            says = "reported by the job"
            if self.gpus:
                says += ": its GPUs look busy, since they wait for each other in collectives"
            return Evidence(
                name="waits for data",
                value=percent_of(self.idle_share),
                unit="% of the time",
                threshold=percent_of(STARVED_SHARE),
                says=says,
            )
        return Evidence(
            name="idle GPUs" if len(self.gpus) > 1 else "idle GPU",
            value=percent_of(self.idle_share),
            unit="%",
            threshold=percent_of(IDLE_SHARE),
            says=f"{named(self.gpus)} had no kernel for {self.idle_share:.0%} of the time",
        )

    @property
    def clearness(self) -> float:
        """0 to 1: how far the idling is from what a healthy job shows."""
        return ramp(self.idle_share, IDLE_SHARE, IDLE_SHARE_CLEAR)


def underfed(window: Window, *, by_telling: bool = False) -> Underfed | Clear | Unknown:
    """The job's GPUs that idle, or why there is nothing to explain. ``by_telling``: a job
    that tells that it waits for data counts, too, where that does not show in its GPUs."""
    job = window.job
    if job is None:
        return Unknown(missing=NO_JOB)
    early = too_early(window)
    if early is not None:
        return early
    waves = [(gpu, gpu.busy) for gpu in window.gpus if gpu.busy is not None and not gpu.lost]
    if not waves:
        missing = Unknown(missing=("the GPUs' utilisation",))
        return _without_gpu(window) or missing if by_telling else missing
    waves = [(gpu, wave) for gpu, wave in waves if not is_others(gpu)]
    if not waves:
        return Clear(why="only other processes use its GPUs now")
    idle = [(gpu, idle_share(wave) - pause_share(window, gpu.uuid)) for gpu, wave in waves]
    hungry = [(gpu, share) for gpu, share in idle if share >= IDLE_SHARE]
    if hungry:
        return _underfed(job, hungry)
    told = _waits_by_turns(job, idle) if by_telling else None
    return told or Clear(why=_why_fed(max(share for _, share in idle), pause_share(window)))


def _without_gpu(window: Window) -> Underfed | Clear | None:
    """A job that trains on the CPU: only what it tells itself can say whether it waits."""
    found = on_the_cpu(window)
    if found is None or found.idle_share >= STARVED_SHARE:
        return found
    return Clear(why=f"the job reports waiting for data {found.idle_share:.0%} of the time")


def on_the_cpu(window: Window) -> Underfed | None:
    """The loop of a job that trains on the CPU and tells of it, fed or not; ``idle_share`` is its
    wait for data."""
    job = window.job
    wait = None if job is None else told_wait(job.ranks)
    if job is None or window.gpus or not job.ranks or wait is None:
        return None
    if too_early(window) is not None:
        return None
    return Underfed(
        job=job,
        gpus=(),
        idle_share=wait,
        told_only=True,
        ranks=job.ranks,
        worker_count=workers_of_a_rank(job, job.ranks),
        workers=_workers(job, job.ranks),
    )


def _waits_by_turns(job: JobFacts, gpus: list[tuple[GpuFacts, float]]) -> Underfed | None:
    """A job whose ranks tell that they wait for data: in each step another one, and the others
    meanwhile in a collective, which utilisation counts as work. What a rank waits while its GPU
    works on what is queued costs nothing."""
    wait = told_wait(job.ranks)
    if len(job.ranks) < 2 or wait is None:
        return None
    lost = min(wait, 1.0 - _at_work([gpu for gpu, _ in gpus]))
    if lost < TURNS_TOLD_SHARE:
        return None
    return replace(_underfed(job, gpus), idle_share=lost, told_only=True)


def _at_work(gpus: Sequence[GpuFacts]) -> float:
    """0 to 1: of the time, at least, in which these GPUs certainly worked; 0 where nothing shows
    that they did."""
    active = [gpu.sm_active_percent for gpu in gpus]
    known = [percent for percent in active if percent is not None]
    if known and len(known) == len(active):
        # A kernel that waits in a collective holds a few SMs; no work holds more than all.
        return sum(known) / len(known) / 100.0
    shares = [
        gpu.power_mean_watts / gpu.power_limit_watts
        for gpu in gpus
        if gpu.power_mean_watts is not None and gpu.power_limit_watts
    ]
    full = len(shares) == len(gpus) and min(shares, default=0.0) >= FULL_POWER_SHARE
    return 1.0 if full else 0.0


def is_others(gpu: GpuFacts) -> bool:
    """Whether what the GPU does is all others' work: then its idling is theirs, too."""
    own, foreign = gpu.own_busy_percent, gpu.foreign_busy_percent
    return own is not None and foreign is not None and own < OWN_LEAST_PERCENT <= foreign


def held_up(window: Window) -> Underfed | None:
    """A job of several ranks whose GPUs look fed while its main threads wait for cores.

    In each step another rank is late, and all others spend that time in a collective, which
    utilisation counts as work.
    """
    job = window.job
    if job is None or too_early(window) is not None:
        return None
    waits = mean([rank.run_queue_wait_percent for rank in job.ranks])
    if len(job.ranks) < 2 or waits is None or waits < HELD_UP_PERCENT:
        return None
    gpus = tuple([gpu for gpu in window.gpus if gpu.busy is not None and not gpu.lost])
    if not gpus:
        return None
    shares = [(gpu, idle_share(gpu.busy)) for gpu in gpus if gpu.busy is not None]
    return replace(_underfed(job, shares), held_up_percent=waits)


def is_shared(job: JobFacts, test: Callable[[WorkerFacts], bool]) -> bool:
    """Whether the workers of every rank show it, of several: then no rank is the late one, and
    the others' waiting in collectives is only how it looks."""
    known = [rank.workers for rank in job.ranks if rank.workers is not None]
    return len(known) > 1 and all(test(workers) for workers in known)


def too_early(window: Window) -> Clear | Unknown | None:
    """What to answer while nothing can be judged yet, or no more."""
    if window.job is not None and window.job.job.ended_at_unix_seconds is not None:
        return Clear(why="the job has ended")
    if window.starting:
        return Unknown(missing=("steady work: the job is still starting up",))
    seen = [gpu.busy.seconds for gpu in window.gpus if gpu.busy is not None]
    if seen and max(seen) < WATCHED_SECONDS:
        return Unknown(missing=(f"{WATCHED_SECONDS:.0f} seconds of the GPUs' utilisation",))
    return None


def _why_fed(share: float, paused: float) -> str:
    if paused > 0.0:
        return f"outside its pauses the job's GPUs idle only {max(0.0, share):.0%} of the time"
    return f"the job's GPUs idle only {max(0.0, share):.0%} of the time"


def _underfed(job: JobFacts, hungry: list[tuple[GpuFacts, float]]) -> Underfed:
    keys = {gpu.uuid for gpu, _ in hungry}
    ranks = tuple([rank for rank in job.ranks if keys.intersection(rank.gpu_uuids)]) or job.ranks
    return Underfed(
        job=job,
        gpus=tuple([gpu for gpu, _ in hungry]),
        idle_share=sum(share for _, share in hungry) / len(hungry),
        ranks=ranks,
        worker_count=workers_of_a_rank(job, ranks),
        workers=_workers(job, ranks),
    )


def workers_of_a_rank(job: JobFacts, ranks: tuple[RankFacts, ...]) -> int | None:
    """Loader workers of one rank; ``None`` where it is not known for any of them."""
    known = [rank.loader_workers for rank in ranks if rank.loader_workers is not None]
    if known:
        return max(known)
    if job.workers is not None and job.workers.count > 0.0 and job.ranks:
        return round(job.workers.count / len(job.ranks))
    return None


def _workers(job: JobFacts, ranks: tuple[RankFacts, ...]) -> WorkerFacts | None:
    """Of the one rank that starves, else of the whole job."""
    if len(ranks) == 1 and ranks[0].workers is not None:
        return ranks[0].workers
    return job.workers


def idle_share(wave: Waveform) -> float:
    """0 to 1: utilisation is the share of the time in which a kernel was resident, so its mean
    says how much was idle also where the swings are too fast to be seen."""
    return 1.0 - wave.mean_percent / 100.0


def pause_share(window: Window, gpu: GpuKey | None = None) -> float:
    """0 to 1: the part of the watched time that this GPU (or any) idled in pauses, in one that
    goes on, too.

    Where the loader workers are at their limit all the time, what looks like a pause is a long
    wait for batches: workers that work in step deliver in bursts. Only saves count then.
    """
    if window.watched_seconds <= 0.0:
        return 0.0
    begin = window.taken_at_unix_seconds - window.seconds
    pauses = real_pauses(window, (*window.pauses, *window.ongoing))
    idle = sum([_idle_since(begin, pause) for pause in pauses if _stops(pause, gpu)])
    return min(1.0, idle / window.watched_seconds)


def real_pauses(window: Window, pauses: tuple[Pause, ...] | None = None) -> tuple[Pause, ...]:
    """Those of the window that are over, or ``pauses``, without waits for the loader."""
    found = window.pauses if pauses is None else pauses
    if window.job is None or not _never_rest(window.job) or not _recur(window):
        return found
    return tuple([pause for pause in found if is_save(pause)])


def _recur(window: Window) -> bool:
    """Whether such pauses come again and again, as waits for batches do."""
    job = window.job
    seen = window.watched_seconds if job is None else job.watched_seconds
    since = window.taken_at_unix_seconds - RECUR_SECONDS
    quiet = [one for one in window.pauses if one.at_unix_seconds >= since and not is_save(one)]
    lost = sum([one.seconds * idle_part(one) for one in quiet])
    span = min(RECUR_SECONDS, seen)
    return len(quiet) * RECUR_EVERY_SECONDS >= span or lost >= RECUR_SHARE * span


def _never_rest(job: JobFacts) -> bool:
    """Whether the loader workers work or wait for storage all the time, also while the GPUs
    idle."""
    workers = job.workers
    if workers is None or workers.count <= 0.0:
        return False
    waits = in_disk_wait(workers) or 0.0
    if (wanted_percent(workers) or 0.0) + waits < WORKERS_AT_LIMIT_PERCENT:
        return False
    idle = job.workers_when_idle_percent
    queue = workers.run_queue_wait_percent or 0.0
    return idle is None or idle + queue + waits >= WORKERS_AT_LIMIT_PERCENT


def _stops(pause: Pause, gpu: GpuKey | None) -> bool:
    return gpu is None or not pause.gpus or gpu in pause.gpus


def _idle_since(begin: float, pause: Pause) -> float:
    """Seconds of the pause after ``begin``, less those in which the GPU worked."""
    end = pause.at_unix_seconds + pause.seconds
    inside = max(0.0, end - max(begin, pause.at_unix_seconds))
    return inside * idle_part(pause)


def is_swinging(wave: Waveform) -> bool:
    """Whether it goes all the way down and up again, in runs that the samples can show."""
    return wave.idle.count >= 3 and wave.low_percent <= 15.0 and wave.high_percent >= 70.0


def is_one_stretch(wave: Waveform) -> bool:
    """Whether it idled once or twice at length and worked otherwise: a pause that may still go
    on, and no rhythm of steps."""
    ends = wave.low_percent <= 15.0 and wave.high_percent >= 70.0
    return ends and wave.idle.count < 3 and wave.middling_share < 0.3


def wanted_percent(workers: WorkerFacts) -> float | None:
    """Of one core each: what the workers used and what they could have used while they waited
    for a core; ``None``: their CPU was not read."""
    if workers.cpu_percent is None:
        return None
    return min(100.0, workers.cpu_percent + (workers.run_queue_wait_percent or 0.0))


def is_at_limit(workers: WorkerFacts) -> bool:
    """Whether the workers use, or would use, all that a core each can give."""
    wanted = wanted_percent(workers)
    return wanted is not None and wanted >= WORKERS_AT_LIMIT_PERCENT


def in_disk_wait(workers: WorkerFacts) -> float | None:
    """Percent of their time, by the kernel's accounts or else by how often one was seen in
    state D; ``None``: neither was read."""
    if workers.disk_wait_percent is not None and workers.disk_wait_percent > 0.0:
        return workers.disk_wait_percent
    if workers.in_disk_wait_share is not None:
        return 100.0 * workers.in_disk_wait_share
    return workers.disk_wait_percent


def stack_percent(job: JobFacts, *categories: str) -> float | None:
    """Share of the main threads' samples in these categories; ``None`` without stacks."""
    if not job.stacks:
        return None
    return sum([share for category, share, _ in job.stacks if category in categories])


def stack_line(job: JobFacts, category: str) -> str | None:
    """The user's line under the most of this category's samples."""
    lines = [(share, line) for name, share, line in job.stacks if name == category and line]
    return max(lines)[1] if lines else None


def strength(*clearness: float, missing: int = 0) -> float:
    """0.4 for evidence that just passes its thresholds to 1 for evidence far beyond them, less
    15% for each reading that was wanted and is missing."""
    clear = sum(clearness) / len(clearness) if clearness else 0.5
    return float((0.4 + 0.6 * clear) * 0.85**missing)


def percent_of(share: float) -> float:
    return round(100.0 * share, 1)


def counted(count: float, thing: str) -> str:
    """``1 worker``, ``8 workers``."""
    number = round(count)
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def amount(number_of_bytes: float) -> str:
    """``55.1M``, ``1.2G``: as everywhere on the screen (powers of 1024)."""
    return units.size(number_of_bytes)
