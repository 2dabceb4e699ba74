"""The ranks of a job wait for one of them, or for each other, inside a collective.

What it checks
    Whether most GPUs of a job are busy all the time at less power than this job draws at work while
    another idles part of that time. That one is late: it is named, with what its process does. Or
    whether all of them, again and again, are busy at less than half their working power and do
    equal work, or idle in turns while their power rises and falls together: a different rank is
    late at each step, or the network is slow. Or whether all are busy all the time and do less the
    more the machine sends over its network: they wait for that exchange.

    Where no process is known, GPUs of one model whose memory in use is alike, or whose load rises
    and falls together, are taken for one job.

Why it matters
    NCCL's kernels spin while they wait, so the waiting GPUs show 99% and look perfect. The time is
    lost on all of them at once.

Evidence needed
    The busy share and the power of two GPUs of one job. For the late rank its CPU, disk and write
    readings, or its own report (gpuwatch.torch); a main thread at a full core is no sign of work:
    it also spins for its GPU. NCCL 2.28.7 or later is asked who launched the fewest collectives,
    also on other machines (RAS; not with NCCL_RAS_ENABLE=0). For the network what the machine
    sends, and the activity (GPM, Hopper and later) or the memory controller of the GPUs: power is a
    mean over a second, and kernels that wait draw up to half of what work draws.

When it is wrong
    Where the GPUs of one job do different things by design (one evaluates, replicas of a server),
    the busy ones do more work, and the rule does not fire. A rank elsewhere shows only by NCCL's
    count. Without processes, separate jobs of small kernels beside one that has finished look the
    same unless their load moves together: then both readings are named.

What to do
    That depends on what the late rank does: asynchronous, sharded or rarer checkpoints; more
    workers or cheaper samples on that rank; evaluation and logging off rank 0, or spread over all
    ranks. Where a different one is late each time: batches that cost the same. Where the network is
    slow: a faster one, fewer or smaller exchanges.

Thresholds
    waiting GPUs busy 85% of the time: see busy_without_work. The late one 8 points less (ranks in
    step differ by one to three; one that saves for four seconds of a minute by seven), 15 where
    nothing shows what it does, 25 (or waits of seconds) where no process is known. No more late
    ranks than waiting ones, which may have done real work in at most 60% of that gap.

    busy at less than half the working power: collectives that wait draw 0.2 to 0.45 of it. Of ranks
    that wait for each other, 5% of the time on each and 10% on average, in 3 stretches, with mean
    powers within 15% (85% of the highest); or a correlation of 0.3 of their power, and as much of
    the opposite of their utilisation.

    network: 10 MB/s sent (logs and monitors send less), a correlation of -0.2 of their power with
    it over three minutes (chance stays within 0.15), and 15% of the time lost, since an exchange
    that shows a little is common: how far their activity is below that with nothing sent, or the
    memory controller below its level at work, where some samples show it below 15% of that.

    What the late rank does: writes of 5 MB/s and three times the others'; waiting for data 10% of
    the time; disk wait of 20%, workers at 75% of a core or the main thread at 85%, each 15 points
    above the others'; run-queue wait of 10%. A problem that half of the others have too does not
    make a rank late, nor does a CPU quota that throttles the job in 20% of its periods. By NCCL's
    count: one collective behind on average, and three times as far as any other. All are this
    project's choice, tried on the labelled cases in tests/evaluation.

Sources
    NVML's definition of utilisation (a resident kernel counts). NCCL's documentation: all ranks
    must call a collective, and its kernels stay on the GPU until they have; and "RAS".
"""

from dataclasses import dataclass

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import WAITING, Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loading, pauses, ranks, words
from gpuwatch.diagnosis.rules.shared.words import clear_if, unknown_if
from gpuwatch.diagnosis.sentence import number

RULE = Rule(
    title="waits in collectives",
    means=WAITING,
    gives_back="some",
    explains=cards.WAITING | {"memory_not_pinned", "sync_every_step", "too_many_workers"},
    lost_while_busy=True,
    look_alike=4,
    charts=("wait", "power_watts"),
)
GAP_PERCENT = 8.0  # of the time
UNSEEN_GAP_PERCENT = 15.0  # where nothing shows what it does
CLEAR_GAP_PERCENT = 25.0  # from here on confidence grows no more
WORKING = 0.6  # of the gap
SPINS = 0.5
"""Share of the gap; and of the power at work, what those that wait in it draw at most."""
EACH_SPINS_SHARE, ALL_SPIN_SHARE = 0.05, 0.1  # of the time
LEAST_SPINS = 3
IN_TURNS = 0.3
"""Correlation of their power, and as much of the opposite (of what n GPUs can show) of their
utilisation."""
SAME_WORK = 0.85  # of the highest mean power
PRESUMED_LEAST = 3
"""GPUs: of two whose load does not vary, one that idles and one that does little are two jobs as
often as one."""
HEDGED_SECONDS = 30.0
"""A moment is too short where there may be no job at all, or a start that is not over."""

LEAST_SENT_BYTES_PER_SECOND = 10e6
SENT_AGAINST_POWER = -0.2
"""Correlation."""
LEAST_EXCHANGE_SHARE = 0.15  # of the time

_FASTER = Advice(
    "Have NCCL use the fastest network there is: NCCL_DEBUG=INFO shows which one it uses, "
    "NCCL_SOCKET_IFNAME and NCCL_IB_HCA select another.",
    brief="See which network NCCL uses: NCCL_DEBUG=INFO",
    setting="NCCL_SOCKET_IFNAME",
    why="over Ethernet an exchange of gradients takes many times as long as over InfiniBand",
)
_LESS = Advice(
    "Exchange less: accumulate gradients over several batches (DistributedDataParallel.no_sync()), "
    "compress them to 16 bits (bf16_compress_hook), or use a larger batch on each GPU.",
    brief="Exchange less: accumulate gradients",
    why="each step sends all gradients once, however much it has computed",
)
_EVEN = Advice(
    "Give all ranks the same work in each step (bucket samples by length, shuffle shards), and "
    "profile a few steps on two of them to see whether ranks or the network are late.",
    brief="Balance the ranks: bucket samples by length",
    why="each step lasts as long as its slowest rank takes",
)


@dataclass(frozen=True, slots=True)
class _Split:
    waiting: list[GpuFacts]
    late: list[GpuFacts]

    @property
    def gap(self) -> float:
        """0 to 1: of the time, how much longer those that wait had a kernel resident."""
        return (_busy(self.waiting) - _busy(self.late)) / 100.0

    @property
    def spins(self) -> bool:
        """Check whether those that wait are seen to, for seconds on end."""
        return (words.mean([gpu.spins_share for gpu in self.waiting]) or 0.0) >= SPINS * self.gap


def check(window: Window) -> Verdict:
    gpus = ranks.ranks_of(window)
    split = _split(gpus)
    if split is None:
        return _each_other(window, gpus)
    works_too = _works_meanwhile(split)
    clear_if(bool(works_too), "the busy GPUs do more work than the other and do not wait for it")
    unknown_if(window.job is None and not _is_plain(window, split), *loading.NO_JOB)
    late = min(split.late, key=lambda gpu: _busy([gpu]))
    shared = ranks.shared_trouble(window, late)
    clear_if(shared is not None, f"the late rank has the same problem as the others: {shared}")
    doing = ranks.work_of_late_rank(window, late)
    if not doing.known and 100.0 * split.gap < UNSEEN_GAP_PERCENT:
        return _each_other(window, gpus)
    return _firing(window, split, late, doing, blind=works_too is None)


def _each_other(window: Window, gpus: list[GpuFacts]) -> Verdict:
    """No rank is the late one."""
    slow = _network(window, gpus)
    if slow is not None:
        return slow
    in_turns = _idle_in_turns(window, gpus)
    if not (_spin_often(gpus) or in_turns) or not _do_equal_work(gpus):
        rests = min([gpu.memory_rests_share or 0.0 for gpu in gpus])
        unread = window.host.network_transmit_bytes_per_second is None
        may_be_network = window.job is not None and unread and rests >= LEAST_EXCHANGE_SHARE
        unknown_if(may_be_network, "what the machine sends over its network")
        return Clear("its GPUs are equally busy, or not busy all the time")
    unknown_if(not in_turns and not ranks.are_one_job(window, gpus), *loading.NO_JOB)
    return _firing_each_other(window, gpus, in_turns=in_turns)


def _spun_share(gpus: list[GpuFacts]) -> float:
    return sum([gpu.spins_share or 0.0 for gpu in gpus]) / len(gpus)


def _idle_share(window: Window, gpus: list[GpuFacts]) -> float:
    idle = [max(0.0, pauses.idle_outside_pauses(window, gpu)) for gpu in gpus]
    return words.mean(idle) or 0.0


def _spin_often(gpus: list[GpuFacts]) -> bool:
    """Check whether all of them, again and again, are busy at less than half the power of work."""
    each = all(
        (gpu.spins or 0) >= LEAST_SPINS and (gpu.spins_share or 0.0) >= EACH_SPINS_SHARE
        for gpu in gpus
    )
    return each and _spun_share(gpus) >= ALL_SPIN_SHARE


def _idle_in_turns(window: Window, gpus: list[GpuFacts]) -> bool:
    """Check whether they idle in turns while their power rises and falls together."""
    apart = (window.busy_together or 0.0) * (1 - len(gpus))
    together = window.power_together or 0.0
    return min(apart, together) >= IN_TURNS and _idle_share(window, gpus) >= EACH_SPINS_SHARE


def _do_equal_work(gpus: list[GpuFacts]) -> bool:
    power = [gpu.power_mean_watts or 0.0 for gpu in gpus]
    return min(power) >= SAME_WORK * max(power)


def _least_power_evidence(gpus: list[GpuFacts]) -> Evidence:
    power = [gpu.power_mean_watts or 0.0 for gpu in gpus]
    says = "on average all of them do the same work"
    return Evidence("lowest mean power", min(power), "W", SAME_WORK * max(power), says)


def _firing_each_other(window: Window, gpus: list[GpuFacts], *, in_turns: bool) -> Firing:
    spun, idle, job = _spun_share(gpus), _idle_share(window, gpus), window.job
    network = "" if idle >= EACH_SPINS_SHARE else ", or the network is slow"
    last = ranks.last_to_launch(window)
    elsewhere = None if job is None else job.job.behind_elsewhere
    known = elsewhere if last is None else cards.name_of(last)
    late = f"a different rank is late at each step{network}"
    waits = f"{words.briefly(gpus)} wait for each other {words.in_percent(spun + idle)}"
    briefly = "late by turns" if network == "" else "or for a slow network"
    if known is not None:
        late, briefly = f"{known} launches its collectives last", f"{known} launches last"
        briefly = "a rank elsewhere launches last" if last is None else briefly
    if job is None:
        briefly = ranks.IF_ONE_JOB
    return Firing(
        summary=f"{words.named(gpus)} wait for each other in collectives "
        f"{words.in_percent(spun + idle)} of the time: {late}{ranks.looks(window)}",
        short=(f"{waits} of the time ({briefly})", waits),
        evidence=[
            Evidence("busy at less than half the working power", 100.0 * spun, "%",
                     100.0 * ALL_SPIN_SHARE, "of the time, on all of them alike"),
            Evidence("power of the GPUs against each other", window.power_together or 0.0,
                     "correlation", IN_TURNS, "they work at the same moments, and idle in turns",
                     supports=in_turns),
            Evidence("idle", 100.0 * idle, "%", 100.0 * EACH_SPINS_SHARE,
                     "the late one has nothing to run: no batch yet, or Python is slow",
                     supports=not network),
            _least_power_evidence(gpus),
            *ranks.launched(window, last), ranks.likeness(window, gpus),
        ],
        advice=(_EVEN,),
        late=words.keys([gpu for gpu in gpus if last and cards.rank_of(window, gpu) is last]),
        strength=0.5 - 0.1 * (job is None)
        + 0.3 * words.ramp(spun + idle, ALL_SPIN_SHARE, 0.4)
        + 0.15 * (known is not None),
        lost_share=spun + idle,
        explains=RULE.explains - {"loader_cpu_bound", "loader_io_bound", "checkpoint_pauses"},
    )  # fmt: skip


def _network(window: Window, gpus: list[GpuFacts]) -> Firing | None:
    """Return the firing where all of them wait for the network; ``None``: nothing shows that."""
    sent = window.host.network_transmit_bytes_per_second or 0.0
    phase, (share, how) = window.exchange.power_phase, _waits_for_network(window, gpus)
    sends = sent >= LEAST_SENT_BYTES_PER_SECOND and not _stays_here(window)
    works_less = phase is not None and phase <= SENT_AGAINST_POWER
    busy = _busy(gpus) >= cards.PINNED_PERCENT and _do_equal_work(gpus)
    if phase is None or not (sends and works_less and busy) or share < LEAST_EXCHANGE_SHARE:
        return None
    waits = f"{words.briefly(gpus)} wait for the network"
    return Firing(
        summary=f"{words.named(gpus)} wait for the network about {words.in_percent(share)} of the "
        f"time, in collectives, while the machine sends {words.amount(sent)}/s",
        short=(
            f"{waits} about {words.in_percent(share)} of the time, sending {words.amount(sent)}/s",
            f"{waits} {words.in_percent(share)}",
        ),
        evidence=[
            Evidence("waits", 100.0 * share, "%", 100.0 * LEAST_EXCHANGE_SHARE, how),
            Evidence("power against what is sent", phase, "correlation",
                     SENT_AGAINST_POWER, "the more is sent, the less they do"),
            Evidence("sent over the network", sent, "bytes/s", LEAST_SENT_BYTES_PER_SECOND),
            _least_power_evidence(gpus),
        ],
        advice=(_FASTER, _LESS),
        strength=0.6 + 0.2 * words.ramp(share, LEAST_EXCHANGE_SHARE, 0.4)
        + 0.2 * words.ramp(phase, SENT_AGAINST_POWER, -0.6),
        lost_share=share,
        hold_seconds=HEDGED_SECONDS,
        explains=RULE.explains - {"loader_cpu_bound", "loader_io_bound", "checkpoint_pauses"},
    )  # fmt: skip


def _waits_for_network(window: Window, gpus: list[GpuFacts]) -> tuple[float, str]:
    """Return the share of the time (0 to 1) that they wait for an exchange, and how that shows."""
    share, rests = window.exchange.wait_share, [gpu.memory_rests_share for gpu in gpus]
    if share is not None:
        return share, "of the work that they would do without the exchange"
    rested = None if None in rests else words.mean(rests)
    return rested or 0.0, "of the time a kernel is resident while the memory rests"


def _stays_here(window: Window) -> bool:
    """Check whether all ranks of the job are on this machine, or there is no job."""
    if window.job is None:
        return True
    size = window.job.job.world_size
    return size is not None and size <= len(window.job.job.ranks)


def _is_plain(window: Window, split: _Split) -> bool:
    """Check whether GPUs of which no process is known show it clearly enough to be spoken of."""
    clear = 100.0 * split.gap >= CLEAR_GAP_PERCENT
    if ranks.is_sure(window):
        return clear or split.spins
    watts = [gpu.power_mean_watts or 0.0 for gpu in split.waiting]
    alike = min(watts) >= SAME_WORK * max(watts) and len(watts) + len(split.late) >= PRESUMED_LEAST
    return (
        clear
        and alike
        and all(cards.does_little(gpu) or cards.waits_now(gpu) for gpu in split.waiting)
    )


def _busy(gpus: list[GpuFacts]) -> float:
    return words.mean([gpu.busy_percent for gpu in gpus]) or 0.0


def _split(gpus: list[GpuFacts]) -> _Split | None:
    """Split the GPUs into those that are busy all the time and the few that are less so."""
    top = max(_busy([gpu]) for gpu in gpus)
    waiting = [gpu for gpu in gpus if _busy([gpu]) > top - GAP_PERCENT]
    late = [gpu for gpu in gpus if _busy([gpu]) <= top - GAP_PERCENT]
    if not late or len(late) > len(waiting) or _busy(waiting) < cards.PINNED_PERCENT:
        return None
    return _Split(waiting, late)


def _works_meanwhile(split: _Split) -> bool | None:
    """Check whether those that wait do real work while the late one idles; ``None``: not known."""
    ours = words.mean([gpu.power_mean_watts for gpu in split.waiting])
    theirs = words.mean([gpu.power_mean_watts for gpu in split.late])
    if ours is None or theirs is None or ours <= 0.0:
        return None
    at_work = words.highest([gpu.power_plateau_watts for gpu in [*split.waiting, *split.late]])
    waits = split.spins or ours <= (at_work or 0.0) * (1.0 - SPINS * split.gap)
    if waits or all(cards.does_little(gpu) for gpu in split.waiting):
        return False
    return 1.0 - theirs / ours > WORKING * split.gap


def _firing(
    window: Window, split: _Split, late: GpuFacts, doing: ranks.LateRankWork, *, blind: bool
) -> Firing:
    waiting, sure = split.waiting, ranks.is_sure(window)
    others = [gpu for gpu in [*split.late, *waiting] if gpu is not late]
    name, busy = words.named(waiting), _busy(waiting)
    power = words.mean([gpu.power_mean_watts for gpu in waiting])
    gap, verb, lost = words.in_percent(split.gap), words.verb, split.gap
    if sure:
        summary = (
            f"{name} {verb(waiting, 'waits', 'wait')} {gap} of the time in collectives for "
            f"{cards.who(window, late)}: {doing.says}{ranks.looks(window)}"
        )
        short = ranks.waits_briefly(window, waiting, late, split.gap, doing.briefly)
        low = "below what this job draws when it works"
        least = words.highest([gpu.power_plateau_watts for gpu in [late, *others]])
    else:
        summary = (
            f"{name} {verb(waiting, 'is', 'are')} {number(busy)}% busy but "
            f"{verb(waiting, 'does', 'do')} little while {words.named([late])} idles {gap} of the "
            "time: ranks of one job waiting for it in a collective, or separate jobs"
        )
        may = f"{words.briefly(waiting)} may wait for {words.briefly([late])}"
        short = (f"{may}, which idles {gap}, or run separate jobs", may)
        low, lost = "little for this card", words.mean(map(cards.wasted_share, waiting)) or lost
        least = cards.little_power_share(late) * (late.power_limit_watts or 0.0)
    return Firing(
        summary=summary,
        short=short,
        evidence=(
            Evidence(f"{name} busy", busy, "%", cards.PINNED_PERCENT,
                     "all the time, by the driver's count"),
            Evidence(f"{words.named([late])} busy", _busy([late]), "%", busy - GAP_PERCENT,
                     "idle for part of that time"),
            Evidence(f"{name} power", power, "W", least, low, supports=_is_below(power, least)),
            *doing.evidence, *ranks.launched(window, cards.rank_of(window, late)),
            ranks.likeness(window, [late, *others]),
        ),
        advice=doing.advice,
        strength=_strength(split, doing, blind=blind) if sure else 0.5,
        missing=(*doing.missing, *(("power",) if blind else ())),
        gpus=words.keys([late, *others]),
        late=words.keys([late]),
        lost_share=lost,
        wait_share=split.gap if sure else None,
        hold_seconds=0.0 if sure and doing.known else HEDGED_SECONDS,
    )  # fmt: skip


def _strength(split: _Split, doing: ranks.LateRankWork, *, blind: bool) -> float:
    clear = words.ramp(100.0 * split.gap, GAP_PERCENT, CLEAR_GAP_PERCENT)
    return max(0.3, 0.6 + 0.25 * clear + 0.15 * doing.known - 0.2 * blind)


def _is_below(power: float | None, least: float | None) -> bool:
    return least is not None and words.is_below(power, least)
