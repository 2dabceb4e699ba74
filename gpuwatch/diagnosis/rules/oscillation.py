"""The GPU goes 0% -> 99% -> 0%: it works in bursts and waits in between.

What it checks
    The shape of the utilisation alone: repeated idle runs that reach the bottom between busy runs
    that reach the top, outside pauses. It is what remains when only GPU readings exist (a log of
    nvidia-smi), or when nothing that was read of the job's processes names the cause; where
    another rule does, this is its symptom.

Why it matters
    The mean hides it: 50% can be a GPU that is always half used or one that waits half the time.
    The second can be twice as fast.

Evidence needed
    Samples finer than half a swing: several per second. With one per second only swings slower
    than two seconds are visible; faster ones stay undetermined.

When it is wrong
    Bursts are right for a server that waits for requests, for interactive work (a notebook that
    waits for seconds, or without a rhythm, is left alone), and for training on several nodes where
    the others are slower. Healthy jobs show low means and two-peaked histograms, too, and logging,
    saving, validation and the gaps between steps may together cost a fifth of the time, with no one
    thing to mend: only time in the waits themselves counts.

What to do
    Find out what it waits for before you change anything: data, requests, environments, other
    ranks, saves and validation look alike from the GPU. The finding names those that nothing known
    speaks against, and the reading that would decide: the job's processes (run gpuwatch where the
    job runs), the stacks of its main thread, or what the loop itself reports (gpuwatch.torch).

Thresholds
    5 idle runs in the window, or 3 in a rhythm: no single event. Lowest samples at 15% or less and
    highest at 70% or more: swings that reach both ends (SageMaker's LowGPUUtilization calls it
    fluctuation when the 5th percentile is under 10% and the 95th over 70%).
    idle 15%, and as much of the time in those idle runs alone: above what TensorFlow's profiler
    calls moderately input-bound, below its 20%.

Sources
    SageMaker Debugger, LowGPUUtilization. TensorFlow profiler (5% and 20%).
    NVIDIA NVML, nvmlUtilization_t: the share of the sample period in which a kernel ran; the
    period is between 1/6 s and 1 s.
"""

from collections.abc import Sequence

from gpuwatch.core import units
from gpuwatch.diagnosis.facts.window import GpuFacts, RankFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loading, open_causes, pauses, words
from gpuwatch.diagnosis.rules.shared.words import clear_if
from gpuwatch.diagnosis.sentence import GPUS, either
from gpuwatch.diagnosis.signals.waveform import Waveform

RULE = Rule(
    title="works in bursts",
    gives_back="some",
    # The pattern is sure, the cause behind it is not named.
    trust=0.85,
)
IDLE_SHARE = 0.15  # of the time
LEAST_RUNS, LEAST_IN_RHYTHM = 5, 3
MIDDLING_SHARE = 0.5
"""Share of the samples: with more than this between both ends, a swing and a steady half are
alike."""
FINE_SECONDS = 0.3
"""Distance of samples: the driver's own are no further apart."""


def check(window: Window) -> Verdict:
    loading.settle_early(window)
    gpus = cards.required_load(window)
    own = [gpu for gpu in gpus if window.job is None or not cards.is_others(gpu)]
    clear_if(not own, "only other processes use its GPUs now")
    idle = [gpu for gpu in own if pauses.idle_outside_pauses(window, gpu) >= IDLE_SHARE]
    clear_if(not idle, f"the GPUs idle for less than {IDLE_SHARE:.0%} of the time")
    waits = [gpu for gpu in idle if pauses.waits_share(window, gpu) >= IDLE_SHARE]
    swinging = [(gpu, gpu.busy) for gpu in waits if gpu.busy and _recurs(gpu.busy)]
    by_hand = loading.runs_by_hand(window.job, [wave for _, wave in swinging])
    clear_if(by_hand, "the cells of a notebook run when somebody runs them")
    if swinging:
        return _firing(window, swinging)
    hidden = [gpu.busy.sample_seconds for gpu in idle if gpu.busy and _may_hide(gpu.busy)]
    slow = max(hidden, default=0.0)
    words.unknown_if(slow > FINE_SECONDS, f"GPU samples finer than {slow:.1g} s")
    return Clear("the GPUs idle, but not in bursts")


def _may_hide(wave: Waveform) -> bool:
    """Check whether it may swing faster than its samples show."""
    return wave.faster_than_seen or wave.middling_share >= MIDDLING_SHARE


def _recurs(wave: Waveform) -> bool:
    least = LEAST_RUNS if wave.period_seconds is None else LEAST_IN_RHYTHM
    return wave.is_swinging and wave.idle.count >= least


def _firing(window: Window, swinging: list[tuple[GpuFacts, Waveform]]) -> Firing:
    gpus, first = [gpu for gpu, _ in swinging], swinging[0][1]
    lost = sum([pauses.idle_outside_pauses(window, gpu) for gpu in gpus]) / len(gpus)
    period = words.mean([wave.period_seconds for _, wave in swinging])
    ranks = () if window.job is None else loading.driving(window.job, gpus)
    rhythm = "without a rhythm" if period is None else f"every {words.lasting(period)}"
    share, (why, briefly) = words.in_percent(lost), _for_what(ranks, window)
    waits = f"{either('works', 'work')} in bursts, {rhythm}: idle {share}"
    outside = window.job is not None and open_causes.waits_outside(window.job, ranks)
    clear = words.strength(
        words.ramp(lost, IDLE_SHARE - 0.05, 0.4),
        words.ramp(first.idle.count, LEAST_IN_RHYTHM - 1.0, 15.0),
        1.0 if period is not None else 0.3,
    )
    return Firing(
        summary=f"{GPUS} {waits} of the time{why}",
        short=(
            f"{GPUS} {either('works', 'work')} in bursts, {rhythm}: idle {share}{briefly}",
            f"{GPUS} {either('idles', 'idle')} {share} between bursts",
        ),
        evidence=_evidence(window, first, lost, period, ranks),
        advice=(_advice(window, ranks),),
        # What comes without a rhythm can be a person, or requests.
        severity="info" if period is None or outside else None,
        # The pattern is certain, and not more than it is said.
        strength=0.75 * clear,
        missing=() if window.job is not None else loading.NO_JOB,
        gpus=words.keys(gpus),
        lost_share=lost,
    )


def _for_what(ranks: Sequence[RankFacts], window: Window) -> tuple[str, str]:
    """Return how the summary ends, and its short form."""
    wait = loading.reported_wait(ranks)
    if wait is not None and wait >= loading.STARVED_SHARE:
        share = words.in_percent(wait)
        return (
            f"; the job reports waiting for data {share} of the time",
            f"; waits for data {share}",
        )
    left = units.listed(open_causes.causes(window, ranks), "or")
    if left:
        return f", waiting for {left}", ", the cause is uncertain"
    return ("; no known cause fits",) * 2


def _evidence(
    window: Window, wave: Waveform, lost: float, period: float | None, ranks: Sequence[RankFacts]
) -> list[Evidence | None]:
    rate, job = words.mean([gpu.pcie_rx_idle_bytes_per_second for gpu in window.gpus]), window.job
    much = (rate or 0.0) >= cards.IDLE_TRAFFIC_BYTES_PER_SECOND
    pinned = bool(ranks) and all(rank.pinned_memory for rank in ranks)
    copies = "copies run while no kernel does" + ("" if pinned else ", as from unpinned memory")
    copies = copies if much else "the wait comes before the copy"
    against = None if job is None else open_causes.against_loader(job, ranks)
    least = LEAST_RUNS if period is None else LEAST_IN_RHYTHM
    runs, each = float(wave.idle.count), words.lasting(wave.idle.mean_seconds or 0.0)
    return [
        Evidence("idle", 100.0 * lost, "%", 100.0 * IDLE_SHARE, "of the time no kernel ran"),
        Evidence("lowest samples (5%)", wave.low_percent, "%", 15.0, "it drops to idle"),
        Evidence("highest samples (5%)", wave.high_percent, "%", 70.0,
                 "it goes up to full work: the GPU could do more"),
        Evidence("idle runs", runs, None, float(least),
                 f"of {each} each, seen in {words.lasting(wave.seconds)}"),
        Evidence("period", period, "s", says="it is periodic"),
        Evidence("host to GPU while it idles", rate, "bytes/s",
                 cards.IDLE_TRAFFIC_BYTES_PER_SECOND, copies, supports=much),
        loading.wait_evidence(loading.reported_wait(ranks)),
        None if against is None else
        Evidence("data loader", "unlikely", says=against, supports=False),
    ]  # fmt: skip


def _advice(window: Window, ranks: Sequence[RankFacts]) -> Advice:
    why = "from the GPU alone these causes look the same, and each has a different cure"
    job, wait = window.job, loading.reported_wait(ranks)
    if job is None:
        beside = "No process is visible here; run it where the job runs"
        brief = "Run it where the job runs"
        return Advice(f"{beside}: gpuwatch diagnose --pid PID.", brief=brief, why=why)
    if wait is not None and wait >= loading.STARVED_SHARE:
        see = f"See what makes the batches late: gpuwatch diagnose --stacks --pid {job.job.pid}."
        return Advice(
            see,
            brief="See why batches are late: diagnose --stacks",
            why="the job waits for data, and its workers' CPU does not show why",
        )
    decides = open_causes.what_decides(window, ranks)
    brief = f"Get {decides.partition(' (')[0]}"
    return Advice(f"Before any change, get {decides}.", brief=brief, why=why)
