"""Now and then one batch takes very long, and all others wait behind it.

What it checks
    GPUs of the job wait visibly for 10% of the time or more (gaps within a sample do not count),
    and in that time a single loader worker computes or waits for storage while the others rest.

Why it matters
    The DataLoader hands batches over in order. What the other workers have ready (prefetch_factor
    batches each, 2 by default) is held back until the slow one is there. More workers do not
    help, and the mean of their CPU looks as if they had time to spare.

Evidence needed
    The GPUs' utilisation and what each loader worker does, in stretches of a second or longer.

When it is wrong
    An IterableDataset that gives all the work to one worker looks the same.

Thresholds
    one worker occupied for 60% of the idle time or more, the others for no more than 30%: what they
    need to fill their queues again.

Sources
    PyTorch, torch.utils.data.DataLoader: prefetch_factor, in_order.
"""

from gpuwatch.diagnosis.rule import Advice, Evidence, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import loaders, loading, words
from gpuwatch.diagnosis.rules.shared.pauses import LATE_WORKER_PERCENT, RESTS_PERCENT, waits_share

RULE = Rule(
    title="slow batches at times",
    gives_back="some",
    uses_workers=True,
    cure=(
        Advice(
            "Raise the DataLoader's prefetch_factor from 2 (the default) to 8.",
            brief="Raise prefetch_factor from 2 to 8",
            setting="prefetch_factor",
            why="more batches are then ready while a slow one is made, for more memory",
        ),
        Advice(
            "Set in_order=False (PyTorch 2.6 and later), if batches may come in any order.",
            setting="in_order",
            wanted="False",
            why="the batches that are ready then need not wait for the slow one",
        ),
        Advice(
            "Find the slow samples (log the time of each) and cap their size.",
            brief="Find the slow samples and cap their size",
            why="a single worker is busy while all wait: more workers do not help",
        ),
    ),
    explains={"oscillation", "batch_too_small", "straggler", "loader_io_bound"},
    trust=0.9,
    charts=("wait", "worker"),
)


def check(window: Window) -> Verdict:
    found = loading.starved(window)
    job, count = found.job, found.worker_count
    busiest, others = job.busiest_worker_when_idle_percent, job.other_workers_when_idle_percent
    count = words.required(count, *loading.NO_WORKERS)
    all_work = count < 2 or loaders.is_at_limit(found.workers)
    words.clear_if(all_work, "all loader workers are at work")
    unread = "what each loader worker does while the GPU idles"
    busiest, others = words.required(busiest, unread), words.required(others, unread)
    alone = busiest >= LATE_WORKER_PERCENT and others <= RESTS_PERCENT
    words.clear_if(not alone, "while the GPU idles, no single loader worker is at work alone")
    waits = words.mean([waits_share(window, gpu) for gpu in found.gpus])
    gaps = "the GPU idles in many short gaps, not in long waits for one batch"
    words.clear_if(words.is_below(waits, loading.IDLE_SHARE), gaps)
    runs = max([gpu.busy.idle.count for gpu in found.gpus if gpu.busy is not None], default=0)
    evidence = [
        Evidence("busiest worker while the GPU idles", busiest, "% of the time",
                 LATE_WORKER_PERCENT, "one worker is at work"),
        Evidence("the other workers meanwhile", others, "% of the time", RESTS_PERCENT,
                 "they rest: their batches are ready and wait for that one"),
    ]  # fmt: skip
    return found.starves(
        "one slow batch at a time holds up those that are ready",
        ("one slow batch at a time holds up the rest", "slow batches"),
        evidence,
        (1.0 - words.ramp(others, 0.0, RESTS_PERCENT + 10.0), words.ramp(busiest, 40.0, 90.0),
         words.ramp(runs, 0.5, 4.0)),
        explains=RULE.explains,
    )  # fmt: skip
