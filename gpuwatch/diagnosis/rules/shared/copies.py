"""Copies of batches to the GPU, as far as PCIe shows them."""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rules.shared.gpus import link_rate
from gpuwatch.diagnosis.rules.shared.loading import Underfed
from gpuwatch.diagnosis.rules.shared.words import mean

IDLE_TRAFFIC_BYTES_PER_SECOND = 0.5e9
"""Host to GPU, while no kernel is resident."""
PAGEABLE_BYTES_PER_SECOND = 5e9
"""How fast a pageable copy runs on most machines: 3 to 10 GB/s."""
COPYING_SHARE = 0.26
"""Of the idle time: how much of it copying must fill where the two are not seen apart."""


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


def busy_link_rate(gpu: GpuFacts) -> float | None:
    """Rate of the link as it runs under load, in bytes a second."""
    return link_rate(gpu.pcie_generation_busy, gpu.pcie_width_busy)
