"""The question that the rules about data loading and the Python side share: do GPUs of this job
idle, past start-up and outside pauses? A low mean is where they begin and never what they conclude
from.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.facts.window import GpuFacts, JobFacts, RankFacts, Window, WorkerFacts
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Settled, Unknown
from gpuwatch.diagnosis.rules.shared import cards, loaders, pauses, possible, words
from gpuwatch.diagnosis.rules.shared.reported import (
    STARVED_SHARE,
    not_starved,
    reported_wait,
    wait_clearness,
    wait_evidence,
)
from gpuwatch.diagnosis.sentence import GPUS

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
HELD_UP_PERCENT = 20.0
"""Of the main threads' time in the run queue: on a machine with free cores it is below 2%."""
TURNS_IDLE_SHARE = 0.25
"""A main thread and a GPU that take turns too fast to be seen still share out the time. With less
idling than this almost any job would fit."""
TURNS_MAIN_PERCENT = 30.0
"""Of a core: with less CPU than this almost any job would fit, too."""
TURNS_FILL_PERCENT = 90.0
"""The thread's CPU fills what the GPU leaves; a tenth less, for what a thread waits."""
TURNS_REPORTED_SHARE = 0.15
"""Of the time, mean of the ranks: half as much again as one GPU's idling must be, since what a rank
waits while its GPU still has kernels queued costs nothing."""
FULL_POWER_SHARE = 0.85
"""Of the power limit, on average: a GPU that spins in a collective a good part of the time draws
far less."""
MOSTLY_SHARE = 0.5
"""Of the idle time: what makes up less of it is not what it is about."""

NO_JOB = ("the job's processes",)
NO_WORKERS = ("whether the job has loader workers",)
NO_MAIN = ("the main thread's CPU",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Underfed:
    """The GPUs of a job that idle, and the part of the job that feeds them."""

    job: JobFacts
    gpus: tuple[GpuFacts, ...]
    idle_share: float
    """0 to 1: mean over those GPUs, without the pauses that other rules explain."""
    ranks: tuple[RankFacts, ...]
    """Those that drive these GPUs; all ranks where it is not known which."""
    reported_only: bool = False
    """The GPUs look fed (or there is none) and only the job's own report shows that it waits."""
    held_up_percent: float | None = None
    """Set where the GPUs look fed and only the main threads' wait for a core shows: see
    ``ranks.held_up``."""

    @property
    def worker_count(self) -> int | None:
        """Loader workers of one rank, as the busiest has them; ``None``: not known."""
        return loaders.workers_of_a_rank(self.job, self.ranks)

    @property
    def workers(self) -> WorkerFacts | None:
        """Of the one rank that starves, else of the whole job."""
        if len(self.ranks) == 1 and self.ranks[0].workers is not None:
            return self.ranks[0].workers
        return self.job.workers

    def workers_evidence(self, says: str) -> Evidence | None:
        cpu = None if self.workers is None else self.workers.cpu_percent
        return words.measured("loader workers' CPU", cpu, "% of a core each", says=says)

    @property
    def _other_loader(self) -> Evidence | None:
        rest = 0 if self.workers is None else self.workers.resting
        says = "not counted: they rest, as those of a second loader do (validation)"
        return Evidence("other loader workers", float(rest), says=says) if rest else None

    @property
    def who(self) -> str:
        """``GPU 3``; a job without a GPU is a loop."""
        return GPUS if self.gpus else "The training loop"

    @property
    def reported_wait(self) -> float | None:
        """0 to 1: of the time these ranks wait for data, as they report."""
        return reported_wait(self.ranks)

    @property
    def stacks_waiting_percent(self) -> float | None:
        """Of the main threads' samples in waits for data that others make."""
        return self.job.stack_percent("waiting_for_data")

    @property
    def waits_for_data(self) -> bool:
        """Check whether the job's own report, or else its stacks, show that it waits for data for
        most of the time that its GPUs idle."""
        wait, stacks = self.reported_wait, self.stacks_waiting_percent
        if wait is not None:
            return wait >= STARVED_SHARE and self.is_for_data
        least = max(possible.STACKS_LOADING_PERCENT, 100.0 * MOSTLY_SHARE * self.idle_share)
        return stacks is not None and stacks >= least

    @property
    def stacks_evidence(self) -> Evidence | None:
        """The share of the stacks that wait for data, and where."""
        line = self.job.stack_line("waiting_for_data")
        at = f" at {line}" if line else ""
        return words.measured(
            "stacks waiting for data", self.stacks_waiting_percent, "%",
            possible.STACKS_LOADING_PERCENT, f"the main thread waits for its next batch{at}",
        )  # fmt: skip

    @property
    def waited_share(self) -> float:
        """0 to 1: what the GPUs lost to waiting for data: no more than they idled, and no more
        than the job reports that it waited."""
        wait = self.reported_wait
        return self.idle_share if wait is None else min(self.idle_share, wait)

    @property
    def is_for_data(self) -> bool:
        """Check whether waiting for data can be what the idling is: no report says otherwise."""
        return self.waited_share >= MOSTLY_SHARE * self.idle_share

    @property
    def keys(self) -> tuple[GpuKey, ...]:
        return words.keys(self.gpus)

    @property
    def busy_share(self) -> float:
        return 1.0 - self.idle_share

    @property
    def main_idle_percent(self) -> float | None:
        """The main threads' CPU while the GPUs idled, or over all where the two cannot be told
        apart."""
        idle = self.job.main_thread_when_idle_percent
        return self.main_percent if idle is None else idle

    @property
    def main_queue_percent(self) -> float:
        """Of the time in which the main threads could have run and had no core; 0 where it was
        not read. On a crowded machine a thread that computes all the time shows half a core."""
        return words.mean([rank.run_queue_wait_percent for rank in self.ranks]) or 0.0

    @property
    def main_percent(self) -> float | None:
        own = words.mean([rank.main_thread_percent for rank in self.ranks])
        return self.job.main_thread_percent if own is None else own

    @property
    def fills_idle_time(self) -> bool:
        """Check whether the main thread works for as long as the GPUs do not, where the samples are
        too coarse to show that it does so in turns."""
        main = self.main_percent
        if main is None or self.job.main_thread_phase is not None:
            return False
        if len(self.job.ranks) > 1 and not self.job.stacks and self.reported_wait is None:
            # Those of several ranks also spin in collectives, for as long as you like.
            return False
        main += self.main_queue_percent
        least = max(TURNS_MAIN_PERCENT, TURNS_FILL_PERCENT * self.idle_share)
        return self.idle_share >= TURNS_IDLE_SHARE and main >= least

    @property
    def idles_at_length(self) -> bool:
        """Check whether what its GPUs wait for comes now and then, and not with every step."""
        waves = [gpu.busy for gpu in self.gpus if gpu.busy is not None]
        return possible.runs_by_hand(self.job, waves) or all(wave.idles_at_length for wave in waves)

    @property
    def complaint(self) -> str:
        """``GPU 3 sat idle 40% of the time``: how a summary begins."""
        if self.held_up_percent is not None:
            count, wait = len(self.job.ranks), self.held_up_percent
            return f"The main threads of {count} ranks waited for a core {wait:.0f}% of the time"
        does = "waited for data" if self.reported_only else "sat idle"
        return f"{self.who} {does} {self.idle_share:.0%} of the time"

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
            says = "kernels are launched late; the other ranks spin in collectives and look busy"
            name, wait = "main threads' run-queue wait", round(self.held_up_percent, 1)
            return Evidence(name, wait, "% of the time", HELD_UP_PERCENT, says)
        value = words.percent_of(self.idle_share)
        if self.reported_only:
            says = "reported by the job"
            if self.gpus:
                says += ": its GPUs look busy, because they wait for each other in collectives"
            return Evidence("waits for data", value, "% of the time", 100.0 * STARVED_SHARE, says)
        says = f"{words.named(self.gpus)} had no kernel for {self.idle_share:.0%} of the time"
        name = "idle GPUs" if len(self.gpus) > 1 else "idle GPU"
        return Evidence(name, value, "%", words.percent_of(IDLE_SHARE), says)

    @property
    def clearness(self) -> float:
        """0 to 1: how far the idling is from what a healthy job shows."""
        return words.ramp(self.idle_share, IDLE_SHARE, IDLE_SHARE_CLEAR)

    def starves(
        self,
        cause: str,
        evidence: Sequence[Evidence | None],
        clearness: Sequence[float],
        *,
        explains: Set[str],
        advice: Sequence[Advice] | None = None,
        missing: Sequence[str] = (),
        shared: bool = False,
    ) -> Firing:
        """The firing of a rule that names why the job waits for data. ``shared``: all ranks show
        that, so that none is the late one."""
        wait = self.reported_wait
        own = words.ramp(self.waited_share, IDLE_SHARE, IDLE_SHARE_CLEAR)
        clear = (own, *wait_clearness(wait)) if self.is_for_data else (own,)
        waits = None if self.reported_only else wait_evidence(wait)
        return Firing(
            summary=f"{self.who} waited for data {self.waited_share:.0%} of the time: {cause}",
            evidence=(self.evidence, waits, *evidence, self._other_loader),
            advice=advice,
            strength=words.strength(*clear, *clearness, missing=len(missing)),
            missing=missing,
            gpus=self.keys,
            lost_share=self.waited_share,
            lost_while_busy=self.reported_only,
            explains=(explains if self.is_for_data else frozenset())
            | ({"collective_wait"} if shared else frozenset()),
        )


def starved(window: Window) -> Underfed:
    """The same for the rules that blame the loader, unless the job reports to have its data, or
    is none that a PyTorch DataLoader feeds."""
    found = underfed(window, by_report=True)
    why = possible.no_loader(found.job) if found.reported_wait is None else None
    fed = not_starved(found.ranks) if why is None else Clear(why)
    if fed is not None:
        raise Settled(fed)
    return found


def underfed(
    window: Window, *others: Callable[[Window], Underfed | None], by_report: bool = False
) -> Underfed:
    """The job's GPUs that idle; where none do, what the first of ``others`` finds. ``by_report``: a
    job that reports to wait for data counts, too, where that does not show in its GPUs."""
    found = (_by_report if by_report else _by_gpus)(window)
    if isinstance(found, Clear):
        found = next((one for look in others if (one := look(window)) is not None), found)
    if isinstance(found, Clear):
        raise Settled(found)
    return found


def _hungry(window: Window, *, by_report: bool) -> Underfed | Clear:
    job = job_of(window)
    judgeable(window)
    alone = on_the_cpu(window) if by_report else None
    if alone is not None:
        fed = Clear(f"the job reports waiting for data {alone.idle_share:.0%} of the time")
        return fed if alone.idle_share < STARVED_SHARE else alone
    rests = cards.unused(window)
    gpus = [gpu for gpu in cards.with_load(window) if not cards.is_others(gpu) and gpu not in rests]
    if not gpus:
        return Clear("only other processes use its GPUs now")
    idle = [(gpu, pauses.idle_outside_pauses(window, gpu)) for gpu in gpus]
    hungry = [(gpu, share) for gpu, share in idle if share >= IDLE_SHARE]
    if hungry:
        return Clear("the job compiles") if job.compiles else _underfed(job, hungry)
    share = max(0.0, *[share for _, share in idle])
    outside = "outside its pauses " if pauses.pause_share(window) > 0.0 else ""
    fed = Clear(f"{outside}the job's GPUs idle only {share:.0%} of the time")
    return (_waits_by_turns(job, idle) if by_report else None) or fed


_by_gpus = words.once(partial(_hungry, by_report=False))
_by_report = words.once(partial(_hungry, by_report=True))


def on_the_cpu(window: Window) -> Underfed | None:
    """The loop of a job that trains on the CPU and reports it, fed or not, as nothing else could
    show; ``idle_share`` is its wait for data."""
    job = window.job
    wait = None if job is None else reported_wait(job.ranks)
    if job is None or window.gpus or wait is None or too_early(window) is not None:
        return None
    return Underfed(job=job, gpus=(), idle_share=wait, ranks=job.ranks, reported_only=True)


def _waits_by_turns(job: JobFacts, gpus: list[tuple[GpuFacts, float]]) -> Underfed | None:
    """A job whose ranks report that they wait for data: in each step another one, and the others
    meanwhile in a collective, which utilisation counts as work. What a rank waits while its GPU
    works on what is queued costs nothing."""
    wait = reported_wait(job.ranks)
    if len(job.ranks) < 2 or wait is None:
        return None
    lost = min(wait, 1.0 - _at_work([gpu for gpu, _ in gpus]))
    if lost < TURNS_REPORTED_SHARE:
        return None
    return replace(_underfed(job, gpus), idle_share=lost, reported_only=True)


def _at_work(gpus: Sequence[GpuFacts]) -> float:
    """0 to 1: of the time, at least, in which these GPUs certainly worked; 0 where nothing shows
    that they did."""
    active = [gpu.sm_active_percent for gpu in gpus]
    if active and None not in active:
        # A kernel that waits in a collective holds a few SMs; no work holds more than all.
        return (words.mean(active) or 0.0) / 100.0
    shares = [
        gpu.power_mean_watts / gpu.power_limit_watts
        for gpu in gpus
        if gpu.power_mean_watts is not None and gpu.power_limit_watts
    ]
    full = len(shares) == len(gpus) and min(shares, default=0.0) >= FULL_POWER_SHARE
    return 1.0 if full else 0.0


def job_of(window: Window) -> JobFacts:
    return words.required(window.job, *NO_JOB)


def judgeable(window: Window) -> None:
    """Settles what is asked too early, or too late."""
    early = too_early(window)
    if early is not None:
        raise Settled(early)


def too_early(window: Window) -> Clear | Unknown | None:
    """Answer while nothing can be judged yet, or no more."""
    if window.job is not None and window.job.job.ended_at_unix_seconds is not None:
        return Clear("the job has ended")
    if window.starting:
        return Unknown(("steady work: the job is still starting up",))
    seen = [gpu.busy.seconds for gpu in window.gpus if gpu.busy is not None]
    if seen and max(seen) < WATCHED_SECONDS:
        return Unknown((f"{WATCHED_SECONDS:.0f} seconds of the GPUs' utilisation",))
    return None


def _underfed(job: JobFacts, gpus: list[tuple[GpuFacts, float]]) -> Underfed:
    idle_share = sum(share for _, share in gpus) / len(gpus)
    idle = tuple([gpu for gpu, _ in gpus])
    return Underfed(job=job, gpus=idle, idle_share=idle_share, ranks=driving(job, idle))


def driving(job: JobFacts, gpus: Sequence[GpuFacts]) -> tuple[RankFacts, ...]:
    """The ranks on these GPUs; all where it is not known which."""
    uuids = {gpu.uuid for gpu in gpus}
    return tuple([rank for rank in job.ranks if uuids.intersection(rank.gpu_uuids)]) or job.ranks
