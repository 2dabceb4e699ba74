"""The training loop waits for answers over the network: logging, metrics, remote calls.

What it checks
    GPUs of the job idle for 10% of the time or more, the main thread and the loader workers rest
    meanwhile, and for a good part of that time the training process waits for an answer on a
    TCP connection that it made.

Why it matters
    A call of 50 ms in a 200 ms step costs a quarter of the GPU; neither CPU nor disk shows it.

Evidence needed
    The connections of the training process (read of the job that gpuwatch is attached to, in
    its own network namespace), its main thread's CPU and its workers' CPU. Stacks name the line.

When it is wrong
    A background thread that logs is harmless and shows the same connection. Ranks on several
    machines have such connections between them: there it stays undetermined. A connection on which
    nothing comes for 10 s is open for messages and does not count. Without loader workers the wait
    may be for data: more than 1 MB/s that come are, less than 100 kB/s are not. What comes on
    connections that are made and closed for each sample is taken to be all that reached the machine
    and that no other connection brought, so that others who do likewise count, too.

Thresholds
    waiting for half of the idle time or more (on a crowded machine, less the wait for a core), and
    for longer than for a core: with less, the idle time has another cause. If it waits for more
    than 34% of the time longer than the GPU idles, the GPU works meanwhile on what was queued, or a
    background thread waits: then the main thread must sleep (25% of a core). Idle runs below 3 s:
    longer ones are pauses.

Sources
    MLflow, mlflow.config.enable_async_logging. Linux, sock_diag(7).
"""

from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import loaders
from gpuwatch.diagnosis.rules.shared.loading import MOSTLY_SHARE, Underfed, underfed
from gpuwatch.diagnosis.rules.shared.words import (
    amount,
    clear_if,
    mean,
    only,
    ramp,
    required,
    strength,
    unknown_if,
)

RULE = Rule(
    title="waits on network calls",
    gives_back="all",
    cure=(
        Advice(
            "Log from a thread, or in the logger's asynchronous mode, and not at every step.",
            brief="Log from a thread, and not at every step",
            why="the main thread sleeps until the answer arrives, and so does the GPU",
        ),
    ),
    explains={"oscillation", "batch_too_small"},
    # It may be another thread whose answer is due.
    trust=0.9,
    charts=("main",),
)
RESTS_PERCENT = 50.0
"""Percent of a core, or of the workers' time in waits."""
SENDS_BYTES_PER_SECOND = 1e6
"""A checkpoint of 32 MiB in half a minute; who logs in each step sends a hundredth of it."""
BEYOND_SHARE = 0.34  # of the time
SLEEPS_PERCENT = 25.0
"""Percent of a core: a main thread that does more may be what the GPU waits for, beside a thread in
the background that logs all the time."""
LONGEST_SECONDS = 3.0
UNSEEN = "the connections of the training process"
BROUGHT = "what the training process receives on its connections"


def check(window: Window) -> Verdict:
    found = underfed(window)
    waits = required(mean([rank.awaits_network_share for rank in found.ranks]), UNSEEN)
    unknown_if((found.job.job.world_size or 1) > len(found.job.ranks), UNSEEN)
    least, sends = _least_wait(found), found.job.network_send_bytes_per_second or 0.0
    seldom = f"the training process waits for the network {only(100.0 * waits)} of the time"
    clear_if(waits < least, seldom)
    reports = found.reported_wait is not None and found.is_for_data
    clear_if(reports, "the job reports that it waits for data")
    if not found.worker_count:
        # Then the connections may be those over which it loads.
        asked = loaders.is_asked_for_data(found.job)
        clear_if(required(asked, BROUGHT), "it receives its data over the network")
    clear_if(_idles_long(found), "the GPUs have long pauses, not a gap in every step")
    sending = f"it sends {amount(sends)}/s: more than lines of a log"
    clear_if(sends >= SENDS_BYTES_PER_SECOND, sending)
    works = _busiest_percent(found) > RESTS_PERCENT
    clear_if(works, "the main thread or the loader workers have no time to spare")
    main = found.main_idle_percent
    sleeps = main is not None and main <= SLEEPS_PERCENT
    always = waits > found.idle_share + BEYOND_SHARE and not sleeps
    unknown_if(always, "stacks: a connection of the training process always waits")
    return _firing(found, waits, least)


def _idles_long(found: Underfed) -> bool:
    runs = [gpu.busy.idle.mean_seconds or 0.0 for gpu in found.gpus if gpu.busy is not None]
    return max(runs, default=0.0) >= LONGEST_SECONDS


def _idle_beside_crowding(found: Underfed) -> float:
    """The idle share less the wait for a core, of which at least half stays."""
    crowded = found.main_queue_percent / 100.0
    return max(found.idle_share - crowded, MOSTLY_SHARE * found.idle_share)


def _least_wait(found: Underfed) -> float:
    """0 to 1: the share of the time from which its wait for the network is what it is about."""
    return max(MOSTLY_SHARE * _idle_beside_crowding(found), found.main_queue_percent / 100.0)


def _busiest_percent(found: Underfed) -> float:
    """CPU of the main thread, its samples in loading, or the workers' CPU and waits: the most."""
    busy = [
        found.main_idle_percent,
        found.job.stack_percent("waiting_for_data", "loading_data"),
    ]
    if found.workers is not None:
        waited = (loaders.wanted, loaders.in_disk_wait, loaders.in_network_wait)
        busy += [read(found.workers) for read in waited]
    return max([one or 0.0 for one in busy])


def _firing(found: Underfed, waits: float, least: float) -> Firing:
    workers, idle = found.workers, _idle_beside_crowding(found)
    return Firing(
        summary=f"{found.complaint}: the training loop waits for answers from the network",
        short=found.briefly("the loop waits for answers from the network", "network calls"),
        evidence=(
            found.evidence,
            Evidence("waits for the network", 100.0 * waits, "% of the time", 100.0 * least,
                     "an answer was due on a connection of the training process"),
            Evidence("main thread's CPU while the GPU idles", found.main_idle_percent,
                     "% of a core", RESTS_PERCENT, "it sleeps"),
            found.workers_evidence("they have time to spare: batches are ready"),
        ),
        strength=strength(
            found.clearness, ramp(waits, 0.3 * idle, 0.8 * idle), 0.6 if workers is None else 1.0
        ),
        missing=() if found.job.stacks else ("stacks of the main thread",),
        gpus=found.keys,
        lost_share=idle,
    )  # fmt: skip
