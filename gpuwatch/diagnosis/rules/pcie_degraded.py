"""The PCIe link of a GPU runs at a fraction of its speed under load.

What it checks
    The link's generation and width while the GPU works, against the most this card and this
    machine can do, and whether the job waits for copies.

Why it matters
    A card that trained its link at x4 or at generation 1 copies batches at a tenth of the speed or
    less. From outside it looks exactly like a slow data loader.

Evidence needed
    Generation and width read under load: links power down when the GPU idles, so an idle reading
    means nothing, nor does one in performance state P8 or below. The traffic to the GPU while no
    kernel runs shows whether it costs time.

When it is wrong
    Two cards that share one slot's lanes run at x8 each by design: half the speed is reported only
    where the job waits for copies. A riser or switch in between can be narrower than both, and an
    external box has four lanes: while the GPU is fed that is only information.

What to do
    Reseat the card and its riser, look for PCIe errors in the kernel log, check the slot's settings
    in the firmware. Meanwhile: fewer bytes (uint8 images, converted on the GPU), pinned memory and
    copies that overlap with work.

Thresholds
    25% of the link's possible rate or less is always reported: no usual lane layout does that. 50%
    or less only where the job waits for copies: x8 instead of x16 is common by design.

    waiting: idle 8% of the time or more, and meanwhile traffic of 40% of the link's rate: copies
    reach 80 to 90% of it at most, and NVML sees 20 ms at a time. This project's choice.

    rate: lanes times 0.25, 0.5, 0.985, 1.969, 3.938 and 7.563 GB/s for generations 1 to 6.

Sources
    PCI-SIG's rates per lane. NVML: current and maximum link generation and width, PCIe throughput.
"""

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import busy_link_rate, link_rate, present
from gpuwatch.diagnosis.rules.shared.words import (
    clamp,
    highest,
    in_percent,
    keys,
    named,
    ramp,
    unknown_if,
)
from gpuwatch.diagnosis.sentence import GPUS, either

_FEWER = Advice(
    "Until the link is as wide and fast as it can be, send fewer bytes: uint8 instead of float32, "
    "converted on the GPU; pinned memory with non_blocking copies.",
    brief="Send fewer bytes: uint8 instead of float32",
)
RULE = Rule(
    title="PCIe link degraded",
    gives_back="some",
    cure=(_FEWER,),
    # A thread that waits for a copy spins, which looks like Python at work.
    explains={"memory_not_pinned", "oscillation", "python_bound"},
    look_alike=9,
    charts=("pcie_rx_bytes_per_second",),
)
HALF = 0.5  # of the possible rate
QUARTER = 0.25
FILLED = 0.4  # of the link's rate
IDLE_SHARE = 0.08


def check(window: Window) -> Verdict:
    gpus, unread = present(window), "the PCIe link's generation and width under load"
    known = {gpu.uuid: ratio for gpu in gpus if (ratio := _ratio(gpu)) is not None}
    unknown_if(not known, unread)
    slow = [gpu for gpu in gpus if _is_slow(gpu, known.get(gpu.uuid, 1.0))]
    if slow:
        return _firing(slow, [known[gpu.uuid] for gpu in slow])
    unknown_if(len(known) < len(gpus), unread)
    return Clear("its PCIe link runs at full speed under load")


def _is_slow(gpu: GpuFacts, ratio: float) -> bool:
    return ratio <= QUARTER or (ratio <= HALF and (_waits(gpu) or 0.0) > 0.0)


def _ratio(gpu: GpuFacts) -> float | None:
    """0 to 1: of the rate the link could have."""
    now = busy_link_rate(gpu)
    best = link_rate(gpu.identity.pcie_generation_max, gpu.identity.pcie_width_max)
    return None if now is None or not best else now / best


def _waits(gpu: GpuFacts) -> float | None:
    """0 to 1: the share of the time in which no kernel ran and the link was full."""
    rate, traffic = busy_link_rate(gpu), _idle_traffic(gpu)
    if gpu.busy is None or not rate:
        return None
    if gpu.idle_share < IDLE_SHARE:
        return 0.0
    if traffic is None:
        return None
    return gpu.idle_share if traffic / rate >= FILLED else 0.0


def _idle_traffic(gpu: GpuFacts) -> float | None:
    """Bytes a second to the GPU while no kernel runs; where those moments are too short to be
    seen apart, what it would be if all of the traffic fell into them."""
    if gpu.pcie_rx_idle_bytes_per_second is not None:
        return gpu.pcie_rx_idle_bytes_per_second
    overall = gpu.pcie_rx_bytes_per_second
    if gpu.busy is None or overall is None or gpu.busy.mean_percent > 100.0 * (1.0 - IDLE_SHARE):
        return None
    return overall / gpu.idle_share


def _firing(gpus: list[GpuFacts], ratios: list[float]) -> Firing:
    first, ratio = gpus[0], min(ratios)
    waited = [(_waits(gpu), one) for gpu, one in zip(gpus, ratios, strict=True)]
    loss = highest([None if wait is None else clamp(wait * (1.0 - one)) for wait, one in waited])
    waits, matters = (loss or 0.0) > 0.0, loss != 0.0
    link = f"generation {first.pcie_generation_busy} x{first.pcie_width_busy}"
    best = f"generation {first.identity.pcie_generation_max} x{first.identity.pcie_width_max}"
    copies = either("the GPU waits", "the GPUs wait")
    cost = f"; {copies} for copies {in_percent(loss or 0.0)} of the time" if waits else ""
    briefly = f": {in_percent(loss or 0.0)} waiting for copies" if waits else ""
    gen, best_gen = [text.replace("generation", "gen") for text in (link, best)]
    harmless = Advice(
        "Leave it as it is if the card sits in an external box, on a riser or in a narrow slot.",
        setting="PCIe link",
        present=link,
        wanted=best,
        why="nothing waits for copies now; only models load more slowly",
    )
    reseat = Advice(
        "Check that its slot has that many lanes, reseat the card and its riser, and look for PCIe "
        "errors in the kernel log.",
        setting="PCIe link",
        present=link,
        wanted=best,
        why=f"it copies at {100 * ratio:.0f}% of the possible rate",
    )
    return Firing(
        severity=None if matters else "info",
        summary=f"The PCIe {either('link', 'links')} of {GPUS} {either('runs', 'run')} at {link} "
        f"under load instead of {best}{cost}",
        short=(
            f"PCIe of {GPUS} runs at {gen}, not {best_gen}{briefly}",
            f"PCIe of {GPUS} is slow ({gen})",
        ),
        evidence=[item for gpu in gpus for item in _evidence(gpu)],
        advice=(reseat, *RULE.cure) if matters else (harmless,),
        strength=0.75 + 0.25 * ramp(ratio, HALF, 0.1) if waits else 0.6,
        missing=("PCIe traffic",) if loss is None else (),
        gpus=keys(gpus),
        lost_share=loss if waits else None,
        explains=None if matters else frozenset(),
    )


def _evidence(gpu: GpuFacts) -> list[Evidence]:
    name, rate, identity = named([gpu]), busy_link_rate(gpu), gpu.identity
    filled = None if rate is None else FILLED * rate
    carries = "" if rate is None else f"the link carries {rate / 1e9:.1f} GB/s at most"
    return [
        Evidence(f"{name} PCIe generation under load", gpu.pcie_generation_busy, None,
                 identity.pcie_generation_max),
        Evidence(f"{name} PCIe lanes under load", gpu.pcie_width_busy, None,
                 identity.pcie_width_max),
        Evidence(f"{name} traffic to the GPU while no kernel runs", _idle_traffic(gpu), "bytes/s",
                 filled, carries, supports=bool(_waits(gpu))),
        Evidence(f"{name} busy", gpu.busy_percent, "%"),
    ]  # fmt: skip
