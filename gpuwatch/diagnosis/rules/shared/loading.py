"""Jobs that wait for their data: GPUs that idle past start-up and outside pauses, what the job
reports of its own loop (``gpuwatch.torch``), and whether a loader feeds it at all. A low mean is
where the rules begin and never what they conclude from.
"""

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from gpuwatch.core.model import GpuKey, Job
from gpuwatch.diagnosis.facts.window import (
    GpuFacts,
    JobFacts,
    LoopFacts,
    RankFacts,
    Window,
    WorkerFacts,
)
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Settled, Unknown
from gpuwatch.diagnosis.rules.shared import cards, loaders, pauses, words
from gpuwatch.diagnosis.sentence import GPUS, either, number
from gpuwatch.diagnosis.signals.waveform import Waveform

WATCHED_SECONDS = 8.0
"""Several steps of nearly every job, and short enough to name a starved loader within 15 s."""
IDLE_SHARE = 0.10
"""A GPU counts as under-fed from here on. TensorFlow's profiler calls 5% of the step time spent
on input "moderately" input-bound; twice that, since the optimizer's gaps and the logging of a
healthy job leave a GPU without a kernel for 3 to 5% of the time as the driver counts."""
IDLE_SHARE_CLEAR = 0.30
"""Nobody doubts it here: TensorFlow's profiler says "highly" input-bound from 20%."""
MAIN_AT_LIMIT_PERCENT = 85.0
"""Percent of one core, for one thread: SageMaker's CPUBottleneck rule says 90% for a whole machine;
the kernel's clock ticks and short sleeps take some percent of a thread that never rests."""
CORES_WAIT_PERCENT = 20.0
"""Percent of the main threads' time in the run queue: on a machine with free cores it is below
2%."""
TURNS_IDLE_SHARE = 0.25
"""A main thread and a GPU that take turns too fast to be seen still share out the time. With less
idling than this almost any job would fit."""
TURNS_MAIN_PERCENT = 30.0
"""Percent of a core: with less CPU than this almost any job would fit, too."""
TURNS_FILL_PERCENT = 90.0
"""The thread's CPU fills what the GPU leaves; a tenth less, for the thread's own waits."""
TURNS_REPORTED_SHARE = 0.15
"""Share of the time, mean of the ranks: half as much again as one GPU's idling must be, since the
wait of a rank whose GPU still has kernels queued costs nothing."""
FULL_POWER_SHARE = 0.85
"""Share of the power limit, on average: a GPU that spins in a collective a good part of the time
draws far less."""
MOSTLY_SHARE = 0.5
"""Share of the idle time below which a wait is not what the idling is about."""
STACKS_LOADING_PERCENT = 15.0
"""Percent of the main threads' samples in loading: three times TensorFlow's 5% for "moderately
input-bound"."""

FED_SHARE = 0.05
"""Share of the time: a loop that reports to wait less for its data is not input-bound; TensorFlow's
profiler calls 5% of the step time "moderately" so."""
STARVED_SHARE = 0.10
"""The wait costs what makes a GPU count as under-fed from here on."""
SURE_SHARE = 0.30
"""Nobody doubts the report from here on."""
COPIES_SHARE = 0.05
"""Share of the time in copies to the GPU: the same measure as for waits."""

OTHER_INPUTS = {"tensorflow": "its tf.data pipeline", "jax": "its input pipeline"}
_PYTHON = re.compile(r"py|torchrun|accelerate|deepspeed|ray|jupyter|:", re.IGNORECASE)
"""In the name of a program: those that run Python, or run what does; a title that was set has a
colon (``ray::train``)."""
NOTEBOOKS = ("ipykernel", "colab_kernel_launcher")
"""Parts of the command of a notebook's kernel."""

NO_JOB = ("the job's processes",)
NO_WORKERS = ("whether the job has loader workers",)
NO_MAIN = ("the main thread's CPU",)


def _reported(
    ranks: Sequence[RankFacts], read: Callable[[LoopFacts], float | None]
) -> float | None:
    """Mean over the ranks; ``None`` unless each of them reports."""
    values = [None if rank.loop is None else read(rank.loop) for rank in ranks]
    return None if None in values else words.mean(values)


def reported_wait(ranks: Sequence[RankFacts]) -> float | None:
    """Time that the ranks report to wait for data, 0 to 1, on average."""
    return _reported(ranks, lambda loop: loop.data_wait_share)


def reported_copies(ranks: Sequence[RankFacts]) -> float | None:
    """Time that the ranks report for copies to the GPU, 0 to 1, on average."""
    return _reported(ranks, lambda loop: loop.copy_share)


def not_starved(ranks: Sequence[RankFacts]) -> Clear | None:
    """The answer of the loader's rules where the job itself says that it has its data in time."""
    wait = reported_wait(ranks)
    if wait is None or wait >= FED_SHARE:
        return None
    return Clear(f"the job reports waiting for data {wait:.0%} of the time")


def wait_evidence(
    wait: float | None, limit: float = STARVED_SHARE, *, fed: bool = False
) -> Evidence | None:
    """The reported wait as evidence. ``fed``: the cause is another one, as a job shows that waits
    for less than ``limit``."""
    if wait is None:
        return None
    supports, says = (wait < limit) is fed, "reported by the job"
    if fed:
        part = "it has its data in time" if supports else "part of the idle time is the loader's"
        says += f": {part}"
    percent, unit = 100.0 * wait, "% of the time"
    return Evidence("waits for data", percent, unit, 100.0 * limit, says, supports=supports)


def _wait_clearness(wait: float | None) -> tuple[float, ...]:
    """How clear the report of a wait for data is, counted twice beside what is inferred from
    outside; nothing where nobody reports."""
    if wait is None or wait < STARVED_SHARE:
        return ()
    clear = 0.5 + 0.5 * words.ramp(wait, STARVED_SHARE, SURE_SHARE)
    return (clear, clear)


def no_loader(job: JobFacts) -> str | None:
    """Why no PyTorch DataLoader feeds this job, as a clause; ``None``: one is there, or may be."""
    model = job.job
    if any(rank.loader_workers and not rank.loader_workers_guessed for rank in model.ranks):
        return None
    if model.serves is not None:
        return f"the job serves requests: {model.serves}"
    if model.simulates is not None:
        return f"the job steps environments: {model.simulates}"
    if not may_be_python(model):
        return f"{_program(model.command)} is no Python program"
    other = model.framework in OTHER_INPUTS
    return f"no PyTorch DataLoader feeds a job of {model.framework}" if other else None


def may_be_python(job: Job) -> bool:
    """Check whether a training framework, and a loader with it, can be in the job, as far as the
    libraries and the command show: not in a desktop, a video encoder or most simulations."""
    return job.framework is not None or may_run_python(job.command)


def may_run_python(command: str | None) -> bool:
    """Check whether a command runs Python, as far as its program's name says."""
    name = _program(command)
    return not name or bool(_PYTHON.search(name))


def _program(command: str | None) -> str:
    first = (command or "").split()[:1]
    return first[0].rpartition("/")[2] if first else ""


def runs_by_hand(job: JobFacts | None, waves: Sequence[Waveform]) -> bool:
    """Check whether it is a notebook that somebody runs cell by cell: its GPUs wait for seconds
    on end, or without a rhythm. A loop in a notebook does neither."""
    swings = [wave for wave in waves if wave.is_swinging]
    slow = [wave.period_seconds is None or wave.waits_long for wave in swings]
    command = "" if job is None else job.job.command or ""
    return bool(slow) and all(slow) and any(name in command for name in NOTEBOOKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Underfed:
    """The GPUs of a job that idle, and the part of the job that feeds them."""

    job: JobFacts
    gpus: tuple[GpuFacts, ...]
    idle_share: float
    """0 to 1: mean over those GPUs, without the pauses that other rules explain."""
    ranks: tuple[RankFacts, ...]
    """The ranks that drive these GPUs; all ranks where it is not known which."""
    reported_only: bool = False
    """The GPUs look fed (or there is none) and only the job's own report shows that it waits."""
    cores_wait_percent: float | None = None
    """Set where the GPUs look fed and only the main threads' wait for a core shows: see
    ``waits_for_cores``."""

    @property
    def keys(self) -> tuple[GpuKey, ...]:
        return words.keys(self.gpus)

    @property
    def busy_share(self) -> float:
        return 1.0 - self.idle_share

    @property
    def lost_share(self) -> float | None:
        """The idle share; ``None`` where utilisation does not show what was lost."""
        return None if self.cores_wait_percent is not None else self.idle_share

    @property
    def clearness(self) -> float:
        """How far the idling is from what a healthy job shows, 0 to 1."""
        return words.ramp(self.idle_share, IDLE_SHARE, IDLE_SHARE_CLEAR)

    @property
    def idles_at_length(self) -> bool:
        """Check whether its GPUs wait for something that comes now and then, and not with every
        step."""
        waves = [gpu.busy for gpu in self.gpus if gpu.busy is not None]
        return runs_by_hand(self.job, waves) or all(wave.idles_at_length for wave in waves)

    @property
    def worker_count(self) -> int | None:
        """Loader workers of one rank, as the busiest has them; ``None``: not known."""
        return loaders.workers_of_a_rank(self.job, self.ranks)

    @property
    def workers(self) -> WorkerFacts | None:
        """Loader workers of the one rank that starves, else of the whole job."""
        if len(self.ranks) == 1 and self.ranks[0].workers is not None:
            return self.ranks[0].workers
        return self.job.workers

    @property
    def reported_wait(self) -> float | None:
        """Time that these ranks wait for data, as they report, 0 to 1."""
        return reported_wait(self.ranks)

    @property
    def waited_share(self) -> float:
        """Time that the GPUs lost to waiting for data, 0 to 1: no more than they idled, and no more
        than the job reports that it waited."""
        wait = self.reported_wait
        return self.idle_share if wait is None else min(self.idle_share, wait)

    @property
    def is_for_data(self) -> bool:
        """Check whether waiting for data can be what the idling is: no report says otherwise."""
        return self.waited_share >= MOSTLY_SHARE * self.idle_share

    @property
    def stacks_waiting_percent(self) -> float | None:
        """Percent of the main threads' samples in waits for data that others make."""
        return self.job.stack_percent("waiting_for_data")

    @property
    def waits_for_data(self) -> bool:
        """Check whether the job's own report, or else its stacks, show that it waits for data for
        most of the time that its GPUs idle."""
        wait = self.reported_wait
        if wait is not None:
            return wait >= STARVED_SHARE and self.is_for_data
        least = max(STACKS_LOADING_PERCENT, 100.0 * MOSTLY_SHARE * self.idle_share)
        return words.is_at_least(self.stacks_waiting_percent, least)

    @property
    def main_percent(self) -> float | None:
        own = words.mean([rank.main_thread_percent for rank in self.ranks])
        return self.job.main_thread_percent if own is None else own

    @property
    def main_idle_percent(self) -> float | None:
        """The main threads' CPU while the GPUs idled, or over all where the two cannot be told
        apart."""
        idle = self.job.main_thread_when_idle_percent
        return self.main_percent if idle is None else idle

    @property
    def main_queue_percent(self) -> float:
        """Percent of the time in which the main threads could have run and had no core; 0 where it
        was not read."""
        return words.mean([rank.run_queue_wait_percent for rank in self.ranks]) or 0.0

    def with_queue(self, main_percent: float) -> float:
        """Add to a main thread's CPU the time that it waited for a core: on a crowded machine a
        thread that computes all the time shows half a core."""
        return min(100.0, main_percent + self.main_queue_percent)

    def main_works_percent(self, spins_from: int = 2) -> float | None:
        """The main threads' CPU while the GPUs idled; where samples do not show when they worked,
        and so many ranks or more may have spun for their GPUs, at least."""
        main, ranks = self.main_idle_percent, len(self.job.ranks)
        known = self.job.main_thread_when_idle_percent is not None or ranks < spins_from
        return main if main is None or known else self.least_while_idle(main)

    def least_while_idle(self, cpu_percent: float) -> float:
        """CPU that a thread used while the GPUs idled, if it spun for them all the time that they
        were busy and used ``cpu_percent`` of a core on average."""
        return max(0.0, min(100.0, (cpu_percent - 100.0 * self.busy_share) / self.idle_share))

    @property
    def fills_idle_time(self) -> bool:
        """Check whether the main thread works for as long as the GPUs do not, where the samples are
        too coarse to show that it does so in turns."""
        main = self.main_percent
        if main is None or self.job.main_thread_phase is not None:
            return False
        if len(self.job.ranks) > 1 and not self.job.stacks and self.reported_wait is None:
            # The threads of several ranks also spin in collectives, for as long as you like.
            return False
        main += self.main_queue_percent
        least = max(TURNS_MAIN_PERCENT, TURNS_FILL_PERCENT * self.idle_share)
        return self.idle_share >= TURNS_IDLE_SHARE and main >= least

    def is_one_of_several(self, window: Window) -> bool:
        """Check whether the GPUs of most other ranks are busy meanwhile: then these ranks save, log
        or evaluate as likely as they load."""
        few = 2 * len(self.gpus) <= len(cards.with_known_load(window.gpus))
        return len(self.job.ranks) > 1 and few and not self.reported_only

    @property
    def who(self) -> str:
        """``GPU 3``; a job without a GPU is a loop."""
        return GPUS if self.gpus else "The training loop"

    @property
    def complaint(self) -> str:
        """``GPU 3 sat idle 40% of the time``: how a summary begins."""
        if self.cores_wait_percent is not None:
            count, wait = len(self.job.ranks), self.cores_wait_percent
            who = f"The main threads of {number(count)} ranks"
            return f"{who} waited for a core {number(wait)}% of the time"
        does = "waited for data" if self.reported_only else "sat idle"
        return f"{self.who} {does} {words.in_percent(self.idle_share)} of the time"

    def briefly(self, cause: str, in_a_word: str) -> tuple[str, str]:
        """Return the short forms of a sentence that names another reason for the idle time."""
        share = words.in_percent(self.idle_share)
        if self.cores_wait_percent is not None:
            ranks, wait = number(len(self.job.ranks)), number(self.cores_wait_percent)
            lacks = f"{ranks} ranks wait for a core {wait}%"
            return f"{lacks}: {cause}", lacks
        if self.reported_only:
            waits = f"{self._who_briefly} {either('waits', 'wait')}"
            return f"{waits} for data {share}: {cause}", f"{waits} {share}: {in_a_word}"
        idles = f"{self._who_briefly} {either('idles', 'idle')} {share}"
        return f"{idles}: {cause}", f"{idles}: {in_a_word}"

    def starved_briefly(self, cause: str, in_a_word: str) -> tuple[str, str]:
        """Return the short forms of a sentence that names why the job waits for data."""
        who, share = self._who_briefly, words.in_percent(self.waited_share)
        waits = f"{who} {either('waits', 'wait')} for data {share}: {cause}"
        return waits, f"{who} {'starved' if self.gpus else 'waits'}: {in_a_word}"

    @property
    def _who_briefly(self) -> str:
        return GPUS if self.gpus else f"PID {self.job.job.own_pid}"

    @property
    def severity(self) -> str:
        """``info`` for threads that wait for cores while the GPUs look fed, which may cost little:
        launching runs ahead of the GPU."""
        return "warning" if self.cores_wait_percent is None else "info"

    @property
    def evidence(self) -> Evidence:
        if self.cores_wait_percent is not None:
            says = "kernels are launched late; the other ranks spin in collectives and look busy"
            name, wait = "main threads' run-queue wait", round(self.cores_wait_percent, 1)
            return Evidence(name, wait, "% of the time", CORES_WAIT_PERCENT, says)
        value = 100.0 * self.idle_share
        if self.reported_only:
            says = "reported by the job"
            if self.gpus:
                says += ": its GPUs look busy, because they wait for each other in collectives"
            return Evidence("waits for data", value, "% of the time", 100.0 * STARVED_SHARE, says)
        says = f"of the time {words.named(self.gpus)} had no kernel to run"
        name = "idle GPUs" if len(self.gpus) > 1 else "idle GPU"
        return Evidence(name, value, "%", 100.0 * IDLE_SHARE, says)

    @property
    def stacks_evidence(self) -> Evidence | None:
        """The share of the stacks that wait for data, and where."""
        line = self.job.stack_line("waiting_for_data")
        at = f" at {line}" if line else ""
        return Evidence(
            "stacks waiting for data", self.stacks_waiting_percent, "%", STACKS_LOADING_PERCENT,
            f"the main thread waits for its next batch{at}",
        )  # fmt: skip

    def workers_evidence(self, says: str) -> Evidence | None:
        cpu = None if self.workers is None else self.workers.cpu_percent
        return Evidence("loader workers' CPU", cpu, "% of a core each", says=says)

    @property
    def _other_loader(self) -> Evidence | None:
        rest = 0 if self.workers is None else self.workers.resting
        says = "not counted: they rest, as those of a second loader do (validation)"
        return Evidence("other loader workers", float(rest), says=says) if rest else None

    def starves(
        self,
        cause: str,
        in_short: tuple[str, str],
        evidence: Sequence[Evidence | None],
        clearness: Sequence[float],
        *,
        explains: Set[str],
        advice: Sequence[Advice] | None = None,
        missing: Sequence[str] = (),
        shared: bool = False,
    ) -> Firing:
        """The firing of a rule that names why the job waits for data, the cause also ``in_short``
        and in a word. ``shared``: all ranks show that, so that none is the late one."""
        wait = self.reported_wait
        own = words.ramp(self.waited_share, IDLE_SHARE, IDLE_SHARE_CLEAR)
        clear = (own, *_wait_clearness(wait)) if self.is_for_data else (own,)
        waits = None if self.reported_only else wait_evidence(wait)
        return Firing(
            summary=f"{self.who} waited for data {words.in_percent(self.waited_share)} of the "
            f"time: {cause}",
            short=self.starved_briefly(*in_short),
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

    def idles(
        self,
        cause: str,
        in_short: tuple[str, str],
        evidence: Sequence[Evidence | None],
        strength: float,
        *,
        advice: Sequence[Advice] | None = None,
        missing: Sequence[str] = (),
    ) -> Firing:
        """The firing of a rule that names another reason for all of the idle time, also
        ``in_short`` and in a word."""
        return Firing(
            summary=f"{self.complaint}: {cause}",
            short=self.briefly(*in_short),
            evidence=(self.evidence, *evidence),
            severity=self.severity,
            advice=advice,
            strength=strength,
            missing=missing,
            gpus=self.keys,
            lost_share=self.lost_share,
            lost_while_busy=self.reported_only,
        )


def starved(window: Window) -> Underfed:
    """``underfed`` for the rules that blame the loader; raises ``Settled`` where the job reports to
    have its data, or is none that a PyTorch DataLoader feeds."""
    found = underfed(window, by_report=True)
    why = no_loader(found.job) if found.reported_wait is None else None
    fed = not_starved(found.ranks) if why is None else Clear(why)
    if fed is not None:
        raise Settled(fed)
    return found


def underfed(
    window: Window, *others: Callable[[Window], Underfed | None], by_report: bool = False
) -> Underfed:
    """The job's GPUs that idle; where none do, what the first of ``others`` finds. ``by_report``: a
    job that reports to wait for data counts, too, where that does not show in its GPUs. Raises
    ``Settled`` where nothing is found."""
    found = (_by_report if by_report else _by_gpus)(window)
    if isinstance(found, Clear):
        found = next((one for look in others if (one := look(window)) is not None), found)
    if isinstance(found, Clear):
        raise Settled(found)
    return found


def _find(window: Window, *, by_report: bool) -> Underfed | Clear:
    job = job_of(window)
    settle_early(window)
    loop = on_the_cpu(window) if by_report else None
    if loop is not None:
        fed = Clear(f"the job reports waiting for data {loop.idle_share:.0%} of the time")
        return fed if loop.idle_share < STARVED_SHARE else loop
    rests = cards.unused(window)
    gpus = [
        gpu for gpu in cards.required_load(window) if not cards.is_others(gpu) and gpu not in rests
    ]
    if not gpus:
        return Clear("only other processes use its GPUs now")
    idle = [(gpu, pauses.idle_outside_pauses(window, gpu)) for gpu in gpus]
    hungry = [(gpu, share) for gpu, share in idle if share >= IDLE_SHARE]
    if hungry:
        return Clear("the job compiles") if job.compiles else _underfed(job, hungry)
    by_turns = _waits_by_turns(job, idle) if by_report else None
    if by_turns is not None:
        return by_turns
    share = max(0.0, *[share for _, share in idle])
    outside = "outside its pauses " if pauses.pause_share(window) > 0.0 else ""
    return Clear(f"{outside}the job's GPUs idle {words.only(100.0 * share)} of the time")


_by_gpus = words.once(partial(_find, by_report=False))
_by_report = words.once(partial(_find, by_report=True))


def on_the_cpu(window: Window) -> Underfed | None:
    """The loop of a job that trains on the CPU and reports it, fed or not, as nothing else could
    show; ``idle_share`` is its wait for data."""
    job = window.job
    wait = None if job is None else reported_wait(job.ranks)
    if job is None or window.gpus or wait is None or too_early(window) is not None:
        return None
    return Underfed(job=job, gpus=(), idle_share=wait, ranks=job.ranks, reported_only=True)


def waits_for_cores(window: Window) -> Underfed | None:
    """A job of several ranks whose GPUs look fed while its main threads wait for cores: in each
    step another one is late, and all others spend that time in a collective."""
    job, gpus = window.job, cards.with_known_load(window.gpus)
    if job is None or not gpus or len(job.ranks) < 2 or too_early(window) is not None:
        return None
    waits = words.mean([rank.run_queue_wait_percent for rank in job.ranks]) or 0.0
    if waits < CORES_WAIT_PERCENT:
        return None
    return replace(
        _underfed(job, [(gpu, gpu.idle_share) for gpu in gpus]), cores_wait_percent=waits
    )


def _waits_by_turns(job: JobFacts, gpus: list[tuple[GpuFacts, float]]) -> Underfed | None:
    """A job whose ranks report that they wait for data: in each step another one, and the others
    meanwhile in a collective, which utilisation counts as work. The wait of a rank whose GPU works
    on what is queued costs nothing."""
    wait = reported_wait(job.ranks)
    if len(job.ranks) < 2 or wait is None:
        return None
    lost = min(wait, 1.0 - _at_work([gpu for gpu, _ in gpus]))
    if lost < TURNS_REPORTED_SHARE:
        return None
    return replace(_underfed(job, gpus), idle_share=lost, reported_only=True)


def _at_work(gpus: Sequence[GpuFacts]) -> float:
    """Time in which these GPUs certainly worked, 0 to 1, at least; 0 where nothing shows that they
    did."""
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
    """The job; raises ``Settled`` where none is known."""
    return words.required(window.job, *NO_JOB)


def settle_early(window: Window) -> None:
    """Raise ``Settled`` while nothing can be judged yet, or no more."""
    early = too_early(window)
    if early is not None:
        raise Settled(early)


def too_early(window: Window) -> Clear | Unknown | None:
    """The answer while nothing can be judged yet, or no more."""
    if window.job is not None and window.job.has_ended:
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
