"""A server waits for requests: its quiet GPU is no fault.

What it checks
    A process of the job listens on a TCP port that somebody chose, and none of them runs backward
    passes or has a data loader; its GPUs idle for 10% of the time or more, and its main thread
    rests meanwhile.

Why it matters
    The utilisation of an inference server follows its requests. Advice on data loading, on larger
    batches or to end the process would be wrong.

Evidence needed
    The sockets of the job's processes (its own user or root may read them), the GPUs' utilisation,
    the main thread's CPU.

When it is wrong
    A script that trains can listen, too (a debugger, a page of metrics). Its threads of autograd,
    loader workers or reports (gpuwatch.torch) show that it trains; the port is named to be checked.

What to do
    Nothing, where answers come in time. Else more requests at once, or another job on the GPU.

Thresholds
    idle 10%: see loader_cpu_bound. Main thread below 60% of a core while the GPU idles: with more
    it prepares answers, and may itself be the limit. While no kernel has run (below 1% busy), 10
    MB/s read, or a mean of GPU memory below 90% of its highest: it is still loading. Ports below
    32768: above, the kernel hands them out, and collectives of training jobs listen there.

Sources
    Linux, net.ipv4.ip_local_port_range.
"""

from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loading, open_causes, words
from gpuwatch.diagnosis.signals.waveform import SILENT_PERCENT

_LEAVE = Advice(
    "Leave it as it is if answers come in time, which the server's own metrics show.",
    brief="Leave it as it is if answers come in time",
    why="the GPU of a server is as busy as its requests make it",
)
RULE = Rule(
    title="waits for requests",
    severity="info",
    settles=True,
    cure=(_LEAVE,),
    explains={"oscillation", "idle_holding_memory", "batch_too_small"},
    has_look_alikes=False,
)
LOADS_BYTES_PER_SECOND = 10e6
"""Read from storage: logs and swapped-in code are far below, weights far above."""


def check(window: Window) -> Verdict:
    found = loading.underfed(window)
    main = found.main_idle_percent
    sign = found.job.job.serves or ""
    words.clear_if(not sign, "nothing shows that the job serves requests")
    works = f"the main thread works ({main or 0.0:.0f}% of a core) while the GPU idles"
    words.clear_if(words.is_at_least(main, open_causes.MAIN_COMPUTES_PERCENT), works)
    loads = "it is still loading: its GPU has run nothing, and it reads its model"
    words.clear_if(_still_loads(found), loads)
    missing = loading.NO_MAIN if main is None else ()
    known = 1.0 if sign.startswith("it is") else 0.5
    rests = 0.5 if main is None else words.ramp(main, open_causes.MAIN_COMPUTES_PERCENT, 20.0)
    return Firing(
        summary=f"{found.complaint} for want of requests: PID {found.job.job.pid} is a server "
        f"({sign})",
        short=found.briefly(
            f"waiting for requests (PID {found.job.job.pid} is a server)", "too few requests"
        ),
        evidence=[
            found.evidence,
            Evidence("serves requests", True, says=sign),
            Evidence("main thread's CPU while the GPU idles", main, "% of a core",
                     open_causes.MAIN_COMPUTES_PERCENT, "it rests"),
        ],
        strength=words.strength(found.clearness, rests, known, missing=len(missing)),
        missing=missing,
        gpus=found.keys,
    )  # fmt: skip


def _still_loads(found: loading.Underfed) -> bool:
    """Check whether a server that listens already loads what it serves: no kernel has run, and it
    reads much or its GPU memory is filling."""
    silent = all(words.is_below(gpu.busy_percent, SILENT_PERCENT) for gpu in found.gpus)
    reads = words.is_at_least(found.job.read_bytes_per_second, LOADS_BYTES_PER_SECOND)
    return silent and (reads or any(cards.is_filling(gpu) for gpu in found.gpus))
