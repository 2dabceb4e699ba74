"""Batches are copied to the GPU from unpinned memory.

What it checks
    The job's loader has workers but no pinning thread, its workers are not the limit, GPUs idle
    for 10% of the time or more, and much data crosses PCIe while no kernel runs.

Why it matters
    From pageable memory the driver first copies into a pinned buffer of its own: the copy is
    slower, and it cannot run beside kernels, so the GPU waits for each batch's copy.

Evidence needed
    Whether a pinning thread exists, the GPUs' utilisation, the PCIe traffic from host to GPU
    while the GPU idles, the workers' CPU. Stronger with the main thread's CPU while the GPU idles:
    it does that copying.

    Where the job reports its own loop (gpuwatch.torch), its pin_memory and its copy time decide:
    below 5% of the time, copies cost little, whatever crosses PCIe.

When it is wrong
    A job can pin memory itself (tensor.pin_memory()) without the DataLoader's thread. Weights
    offloaded to the host cross PCIe as well. With num_workers=0 pinning happens inside the main
    thread and cannot be seen from outside. PCIe counters are short samples.

What to do
    DataLoader(pin_memory=True) and tensor.to(device, non_blocking=True). Where the batch is large,
    copy less: send uint8 and convert on the GPU.

Thresholds
    0.5 GB/s from host to GPU while it idles: at 3 to 10 GB/s, as pageable copies run, that is 5
    to 15% of the idle time. 80% of the link's rate: then the link is the limit (pcie_degraded or
    a batch too large), since a pageable copy does not fill a sound link.

Sources
    PyTorch, "Memory pinning" in torch.utils.data and the tutorial on pin_memory() and
    non_blocking. NVIDIA, "How to Optimize Data Transfers in CUDA C/C++": pageable transfers
    are staged through a pinned buffer.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import Underfed, amount, is_at_limit, strength, underfed
from gpuwatch.diagnosis.rules.shared.gpus import mean, ramp
from gpuwatch.diagnosis.rules.shared.reported import COPIES_SHARE, told_copies

IDLE_TRAFFIC_BYTES_PER_SECOND = 0.5e9
"""Host to GPU, while no kernel is resident."""

PAGEABLE_BYTES_PER_SECOND = 5e9
"""How fast a pageable copy runs on most machines: 3 to 10 GB/s."""

COPYING_SHARE = 0.26
"""Of the idle time: how much of it copying must fill where the two are not seen apart."""

MOSTLY = 0.6
"""Of the idle time: a loop that waits for data for so much of it does not wait for copies."""

LINK_FULL_SHARE = 0.8
"""Of what the link can carry."""

LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
"""Of one PCIe lane by generation, after line coding (PCI-SIG)."""


def check(window: Window) -> Verdict:
    found = underfed(window)
    if not isinstance(found, Underfed):
        return found
    pinned = {rank.pinned_memory for rank in found.ranks}
    if pinned == {True}:
        return Clear(why="a loader thread pins the batches")
    if False not in pinned:
        return Unknown(missing=("whether the loader pins memory",))
    if found.workers is not None and is_at_limit(found.workers):
        return Clear(why="the loader workers are at their limit: pinning would hardly help")
    copies = told_copies(found.ranks)
    return _by_traffic(found) if copies is None else _by_told(found, copies)


def _by_told(found: Underfed, copies: float) -> Verdict:
    """The job itself tells how long its copies take."""
    if copies < COPIES_SHARE:
        return Clear(why=f"the job reports copies taking {copies:.0%} of the time")
    wait = found.told_wait
    if wait is not None and wait >= MOSTLY * found.idle_share:
        return Clear(why=f"the job reports waiting for data {wait:.0%} of the time, not for copies")
    full = _link_is_full(found, idle_traffic(found))
    return full or _firing(found, idle_traffic(found), copies)


def _by_traffic(found: Underfed) -> Verdict:
    traffic = idle_traffic(found)
    if traffic is None:
        return Unknown(missing=("PCIe traffic",))
    return _other_cause(found, traffic) or _firing(found, traffic)


def idle_traffic(found: Underfed) -> float | None:
    """Host to GPU in bytes a second while it idles. Where the idle moments are too short to be
    seen apart: what it would be if all of the traffic fell into them, and that only where copying
    it at the rate of pageable memory fills a good part of them."""
    seen = mean([gpu.pcie_rx_idle_bytes_per_second for gpu in found.gpus])
    if seen is not None:
        return seen
    overall = mean([gpu.pcie_rx_bytes_per_second for gpu in found.gpus])
    if overall is None or found.idle_share <= 0.0:
        return None
    in_idle = overall / found.idle_share
    return in_idle if in_idle >= COPYING_SHARE * PAGEABLE_BYTES_PER_SECOND else None


def _other_cause(found: Underfed, traffic: float) -> Clear | None:
    if traffic < IDLE_TRAFFIC_BYTES_PER_SECOND:
        return Clear(why=f"little crosses PCIe while the GPU idles ({amount(traffic)}/s)")
    return _link_is_full(found, traffic)


def _link_is_full(found: Underfed, traffic: float | None) -> Clear | None:
    links = [link_rate(gpu) for gpu in found.gpus]
    for gpu, link in zip(found.gpus, links, strict=True):
        rate = gpu.pcie_rx_idle_bytes_per_second
        if rate is None:
            rate = traffic
        if link is not None and rate is not None and rate >= LINK_FULL_SHARE * link:
            return Clear(why=f"the PCIe link itself is full ({amount(link)}/s)")
    return None


def link_rate(gpu: GpuFacts) -> float | None:
    """What the link can carry as it runs under load, in bytes a second."""
    if gpu.pcie_generation_busy is None or gpu.pcie_width_busy is None:
        return None
    lane = LANE_BYTES_PER_SECOND.get(gpu.pcie_generation_busy)
    return None if lane is None else lane * gpu.pcie_width_busy


def _firing(found: Underfed, traffic: float | None, copies: float | None = None) -> Firing:
    main = found.main_idle_percent
    told = copies is not None
    missing = () if main is not None or told else ("the main thread's CPU",)
    much = "" if traffic is None else f" ({amount(traffic)}/s)"
    return Firing(
        summary=f"{found.who} idled {found.idle_share:.0%} of the time while batches were "
        f"copied from unpinned memory{much}",
        evidence=tuple(_evidence(found, traffic, main, copies)),
        advice=_advice(),
        strength=strength(
            found.clearness,
            ramp(traffic or 0.0, 0.5 * IDLE_TRAFFIC_BYTES_PER_SECOND, 2e9)
            if copies is None
            else ramp(copies, 0.0, 2.0 * COPIES_SHARE),
            1.0 if told else 0.5 if main is None else ramp(main, 10.0, 60.0),
            missing=len(missing),
        ),
        missing=missing,
        gpus=found.keys,
        lost_share=found.idle_share if copies is None else min(found.idle_share, copies),
        explains=frozenset({"oscillation", "python_bound", "batch_too_small", "straggler"}),
    )


def _evidence(
    found: Underfed, traffic: float | None, main: float | None, copies: float | None
) -> list[Evidence]:
    evidence = [
        found.evidence,
        Evidence(
            name="pinned memory",
            value=False,
            says="no loader thread pins the batches" if copies is None else "reported by the job",
        ),
    ]
    if copies is not None:
        evidence.append(
            Evidence(
                name="copies to the GPU",
                value=round(100.0 * copies, 1),
                unit="% of the time",
                threshold=100.0 * COPIES_SHARE,
                says="reported by the job",
            )
        )
    if traffic is not None:
        evidence.append(
            Evidence(
                name="host to GPU while it idles",
                value=round(traffic),
                unit="bytes/s",
                threshold=IDLE_TRAFFIC_BYTES_PER_SECOND,
                says="batches are copied while no kernel runs",
                supports=traffic >= IDLE_TRAFFIC_BYTES_PER_SECOND,
            )
        )
    workers = found.workers
    if workers is not None and workers.cpu_percent is not None:
        says = "the workers have spare time: batches are ready"
        evidence.append(
            Evidence(
                name="loader workers' CPU",
                value=round(workers.cpu_percent, 1),
                unit="% of a core each",
                says=says,
            )
        )
    if main is not None:
        copies = main >= 30.0
        evidence.append(
            Evidence(
                name="main thread's CPU while the GPU idles",
                value=round(main, 1),
                unit="% of a core",
                says="it copies" if copies else "it rests, though a pageable copy would use it",
                supports=copies,
            )
        )
    return evidence


def _advice() -> tuple[Advice, ...]:
    return (
        Advice(
            action="Set pin_memory=True in the DataLoader and copy with non_blocking=True.",
            setting="pin_memory",
            present="False",
            wanted="True",
            why="a pinned batch is copied faster, and while the GPU works on the last one",
        ),
        Advice(
            action="Send smaller types (uint8 images) and convert them on the GPU.",
            why="fewer bytes then cross PCIe",
        ),
    )
