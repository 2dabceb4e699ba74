"""Batches are copied to the GPU from unpinned memory.

What it checks
    The job's loader has workers but no pinning thread, its workers are not the limit, GPUs idle
    for 10% of the time or more, and much data crosses PCIe while no kernel runs.

Why it matters
    From pageable memory the driver first copies into a pinned buffer of its own: the copy is
    slower, and it cannot run beside kernels, so the GPU waits for each batch's copy.

Evidence needed
    Whether a pinning thread exists, the GPUs' utilisation, the PCIe traffic to the GPU while it
    idles, the CPU of the workers and of the main thread, which copies. Where the job reports its
    loop (gpuwatch.torch), its pin_memory and copy time decide: below 5% copies cost little.

When it is wrong
    A job can pin memory itself (tensor.pin_memory()) without the DataLoader's thread. Weights
    offloaded to the host cross PCIe as well. With num_workers=0 pinning happens inside the main
    thread and cannot be seen from outside. PCIe counters are short samples.

Thresholds
    0.5 GB/s from host to GPU while it idles: at 3 to 10 GB/s, as pageable copies run, that is 5
    to 15% of the idle time. 80% of the link's rate: then the link is the limit (pcie_degraded or
    a batch too large), since a pageable copy does not fill a sound link.

Sources
    PyTorch, "Memory pinning" in torch.utils.data, tutorial on pin_memory() and non_blocking.
    NVIDIA, "How to Optimize Data Transfers in CUDA C/C++": pageable transfers are staged.
"""

from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loaders, loading, words
from gpuwatch.diagnosis.rules.shared.words import clear_if, unknown_if

RULE = Rule(
    title="memory not pinned",
    gives_back="some",
    cure=(
        Advice(
            "Set pin_memory=True in the DataLoader and copy with non_blocking=True.",
            setting="pin_memory",
            present="False",
            wanted="True",
            why="a pinned batch is copied faster, and while the GPU still works on the last one",
        ),
        Advice(
            "Send smaller types (uint8 images) and convert them on the GPU.",
            brief="Send smaller types, such as uint8 images",
            why="fewer bytes then cross PCIe",
        ),
    ),
    explains={"oscillation", "python_bound", "batch_too_small", "straggler"},
    charts=("pcie_rx_bytes_per_second", "main"),
)
MOSTLY = 0.6
"""Share of the idle time: a loop that waits for data for so much of it does not wait for copies."""
LINK_FULL_SHARE = 0.8  # of the link's rate


def check(window: Window) -> Verdict:
    found = loading.underfed(window)
    why = loading.no_loader(found.job)
    clear_if(why is not None, why or "")
    pinned = {rank.pinned_memory for rank in found.ranks}
    clear_if(pinned == {True}, "a loader thread pins the batches")
    unknown_if(False not in pinned, "whether the loader pins memory")
    at_limit = loaders.is_at_limit(found.workers)
    clear_if(at_limit, "the loader workers are at their limit: pinning would hardly help")
    copies = loading.reported_copies(found.ranks)
    traffic = cards.idle_traffic(found.gpus, found.idle_share)
    if copies is None:
        rate = words.required(traffic, "PCIe traffic")
        little = f"little crosses PCIe while the GPU idles ({words.amount(rate)}/s)"
        clear_if(rate < cards.IDLE_TRAFFIC_BYTES_PER_SECOND, little)
    else:
        few = f"the job reports copies taking {copies:.0%} of the time"
        clear_if(copies < loading.COPIES_SHARE, few)
        wait = found.reported_wait or 0.0
        data = f"the job reports waiting for data {wait:.0%} of the time, not for copies"
        clear_if(wait >= MOSTLY * found.idle_share, data)
    return _link_is_full(found, traffic) or _firing(found, traffic, copies)


def _link_is_full(found: loading.Underfed, traffic: float | None) -> Clear | None:
    for gpu in found.gpus:
        link, rate = cards.busy_link_rate(gpu), gpu.pcie_rx_idle_bytes_per_second
        rate = traffic if rate is None else rate
        if link is not None and rate is not None and rate >= LINK_FULL_SHARE * link:
            return Clear(f"the PCIe link itself is full ({words.amount(link)}/s)")
    return None


def _firing(found: loading.Underfed, traffic: float | None, copies: float | None) -> Firing:
    main = found.main_idle_percent
    if copies is None:
        clear = words.ramp(traffic or 0.0, 0.5 * cards.IDLE_TRAFFIC_BYTES_PER_SECOND, 2e9)
        copied, lost = 0.5 if main is None else words.ramp(main, 10.0, 60.0), found.idle_share
    else:
        clear, copied = words.ramp(copies, 0.0, 2.0 * loading.COPIES_SHARE), 1.0
        lost = min(found.idle_share, copies)
    missing = loading.NO_MAIN if main is None and copies is None else ()
    much = "" if traffic is None else f" ({words.amount(traffic)}/s while idle)"
    return Firing(
        summary=f"{found.complaint} while batches were copied from unpinned memory{much}",
        short=found.briefly(f"batches are copied from unpinned memory{much}", "unpinned copies"),
        evidence=_evidence(found, traffic, main, copies),
        strength=words.strength(found.clearness, clear, copied, missing=len(missing)),
        missing=missing,
        gpus=found.keys,
        lost_share=lost,
    )


def _evidence(
    found: loading.Underfed, traffic: float | None, main: float | None, copies: float | None
) -> list[Evidence | None]:
    copying, least = (main or 0.0) >= 30.0, cards.IDLE_TRAFFIC_BYTES_PER_SECOND
    unpinned = "no loader thread pins the batches" if copies is None else "reported by the job"
    return [
        found.evidence,
        Evidence("pinned memory", False, says=unpinned),
        Evidence("copies to the GPU", None if copies is None else 100.0 * copies, "% of the time",
                 100.0 * loading.COPIES_SHARE, "reported by the job"),
        Evidence("host to GPU while it idles", traffic, "bytes/s", least,
                 "batches are copied while no kernel runs", supports=(traffic or 0.0) >= least),
        found.workers_evidence("the workers have spare time: batches are ready"),
        Evidence("main thread's CPU while the GPU idles", main, "% of a core", supports=copying,
                 says="it copies" if copying else "it rests, though a pageable copy would use it"),
    ]  # fmt: skip
