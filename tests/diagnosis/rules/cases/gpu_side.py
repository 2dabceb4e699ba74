"""Starving as it shows on the GPU: swings, and copies while it idles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis import windows as w
from tests.diagnosis.rules.cases import Cases, above
from tests.diagnosis.windows import gpu, gpu_only, steady, swinging, window

LOW = replace(steady(30.0), middling_share=0.0)
TWO_PEAKS = replace(swinging(0.5, period_seconds=40.0), period_seconds=None)
FAST = replace(steady(50.0, sample_seconds=1.0), faster_than_seen=True, middling_share=0.9)
BURSTS = Cases("oscillation", {
    "readings of the GPU alone: what is likeliest comes first": (
        gpu_only(gpu(busy=swinging(0.5))),
        {"advice.0.setting": "num_workers", "advice.1.setting": "pin_memory",
         "advice.2.action": "gpuwatch beside the job", "missing": ("the job's processes",),
         "lost_share": pytest.approx(0.51), "strength": lambda strength: strength < 0.8},
    ),
    "a sibling that is fed is left alone": (
        gpu_only(gpu(0), gpu(1, busy=swinging(0.5))), {"gpus": ("GPU-1",)},
    ),
    "copies while it idles point to unpinned memory": (
        gpu_only(gpu(busy=swinging(0.5), pcie_rx_idle_bytes_per_second=3e9)), {"says": "unpinned"},
    ),
}, {
    "healthy": gpu_only(),
    "idle": gpu_only(gpu(busy=steady(0.0))),
    "a low mean": gpu_only(gpu(busy=LOW)),
    "two peaks, few runs": gpu_only(gpu(busy=TWO_PEAKS)),
    "flat, finely sampled": gpu_only(gpu(busy=steady(45.0))),
    "pauses": window(
        gpus=(gpu(busy=swinging(0.8, period_seconds=12.0)),),
        pauses=(w.pause(50.0, 9.0), w.pause(20.0, 9.0)),
    ),
}, {
    "too fast to be seen": (gpu_only(gpu(busy=FAST)), "finer than 1 s"),
    "no samples": (gpu_only(gpu(busy=None)), "utilisation"),
    "too short": (gpu_only(gpu(busy=replace(swinging(), seconds=4.0))), "8 seconds"),
})  # fmt: skip

COPYING: dict[str, Any] = {
    "busy": swinging(0.35, period_seconds=0.9), "pcie_rx_idle_bytes_per_second": 3e9
}  # fmt: skip


def unpinned(card: dict[str, Any] | None = None, **facts: Any) -> Window:
    known: dict[str, Any] = {
        "main_thread_when_idle_percent": 90.0, "ranks": (w.rank(pinned_memory=False),)
    }  # fmt: skip
    return window(gpus=(gpu(**(COPYING | (card or {}))),), job=w.job(**(known | facts)))


def too_short(overall: float) -> Window:
    """Idle moments that are not seen apart; the traffic could all fall into them."""
    card = {"busy": steady(75.0), "pcie_rx_idle_bytes_per_second": None}
    return unpinned(
        {**card, "pcie_rx_bytes_per_second": overall}, main_thread_when_idle_percent=None
    )


UNREAD = {"pcie_rx_idle_bytes_per_second": None, "pcie_rx_bytes_per_second": None}
FULL_LINK = {
    "pcie_generation_busy": 1, "pcie_width_busy": 4, "pcie_rx_idle_bytes_per_second": 0.9e9
}  # fmt: skip
NOT_PINNED = Cases("memory_not_pinned", {
    "copies while the GPU idles": (
        unpinned(),
        {"advice.0.setting": "pin_memory", "advice.0.action": "non_blocking",
         "strength": above(0.9)},
    ),
    "a pageable copy would use the main thread": (
        unpinned(main_thread_when_idle_percent=5.0),
        {"against": True, "weaker": "copies while the GPU idles"},
    ),
    "copying all of the traffic fills a good part of the idle time": too_short(1.2e9),
}, {
    "healthy": window(),
    "pinned": window(gpus=unpinned().gpus),
    "unpinned, and the GPU is fed": window(job=w.job(ranks=(w.rank(pinned_memory=False),))),
    "no traffic": unpinned({"pcie_rx_idle_bytes_per_second": 5e7}),
    "a degraded link": unpinned(FULL_LINK),
    "workers at their limit":
        unpinned(ranks=(w.rank(pinned_memory=False, workers=w.workers(2, cpu_percent=98.0)),)),
}, {
    "no job": (gpu_only(*unpinned().gpus), "job's processes"),
    "not seen": (unpinned(ranks=(w.rank(pinned_memory=None, loader_workers=0),)), "pins"),
    "no traffic": (unpinned(UNREAD), "PCIe"),
    "too little traffic for idle moments that are not seen": (too_short(0.2e9), "PCIe"),
})  # fmt: skip
