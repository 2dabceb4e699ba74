"""Starving as it shows on the GPU: swings, and copies while it idles."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import JobRank
from gpuwatch.diagnosis.facts.window import LoopFacts, Window
from gpuwatch.diagnosis.signals.waveform import Waveform
from tests.diagnosis import windows as w
from tests.diagnosis.rules.cases import Cases, above
from tests.diagnosis.windows import gpu, gpu_only, steady, swinging, window

TWO_PEAKS = replace(swinging(0.5, period_seconds=40.0), period_seconds=None)
FAST = replace(steady(50.0, sample_seconds=1.0), faster_than_seen=True, middling_share=0.9)
NO_WORKERS = (JobRank(pid=w.PID, gpu_uuids=("GPU-0",), loader_workers=0),)


UNEVEN = replace(swinging(0.5, period_seconds=6.0), period_seconds=None)
FEW_WAITS = replace(swinging(0.92), mean_percent=80.0)
NOTEBOOK = {"command": "python -m ipykernel_launcher -f k.json"}


def bursts(wave: Waveform | None = None, **facts: Any) -> Window:
    return window(gpus=(gpu(busy=wave or swinging(0.5)),), job=w.job(**facts))


BURSTS = Cases("oscillation", {
    "readings of the GPU alone: what looks alike, and what decides": (
        gpu_only(gpu(busy=swinging(0.5))),
        {"settings": [None], "advice.0.action": "run it where the job runs",
         "summary": "works in bursts, every 2 s: idle 51% of the time, waiting for data, requests"
         " ... or saves",
         "missing": ("the job's processes",), "lost_share": pytest.approx(0.51),
         "strength": lambda strength: strength < 0.8},
    ),
    "a slow swing, of which a minute shows three whole runs": (
        gpu_only(gpu(busy=swinging(0.5, period_seconds=14.0))), {"summary": "every 14 s"},
    ),
    "a loader that may be it: its stacks decide": (
        bursts(), {"settings": [None], "summary": "for the data loader or a synchronisation",
                   "advice.0.action": "get stacks of its main thread"},
    ),
    "stacks just taken are not asked for again": (
        bursts(stacks=(("computing", 90.0, "train.py:7"), ("waiting_for_data", 4.0, None))),
        {"summary": "no known cause fits", "against": True, "says": "computing 90% of the time",
         "advice.0.action": "gpuwatch.torch"},
    ),
    "eight workers at 2% of a core": (
        bursts(workers=w.workers(8, cpu_percent=2.0)),
        {"summary": "for something outside", "says": "the loader workers rest (3% of a core)"},
    ),
    "the loop's own waits: the loader": (
        bursts(ranks=(w.rank(loop=LoopFacts(data_wait_share=0.4)),)),
        {"summary": "waiting for data 40%", "advice.0.action": "--stacks --pid 4242"},
    ),
    "nothing of the job works meanwhile: a notebook, perhaps": (
        bursts(workers=None, main_thread_when_idle_percent=1.0,
               ranks=(w.rank(loader_workers=0, run_queue_wait_percent=0.0, workers=None),)),
        {"severity": "info", "summary": "for something outside (a network, a person)"},
    ),
    "a rhythm in a notebook is a loop, and no person": bursts(model=NOTEBOOK),
    "TensorFlow has no PyTorch loader": (
        bursts(model={"framework": "tensorflow", "ranks": NO_WORKERS}),
        {"summary": "for its tf.data pipeline or", "says": "no PyTorch DataLoader"},
    ),
    "gradients over gloo, and a save": (
        bursts(model={"collectives": "gloo", "world_size": 2, "ranks": NO_WORKERS},
               write_when_idle_bytes_per_second=2e8),
        {"summary": "the exchange of gradients over gloo, a save or"},
    ),
    "a simulation has neither framework nor loader": (
        bursts(model={"command": "/opt/gromacs/bin/gmx mdrun -deffnm md", "framework": None,
                      "ranks": NO_WORKERS}, workers=None),
        {"summary": lambda said: said.endswith("waiting for its own work on the CPU"),
         "says": "gmx is no Python program", "advice.0.action": "get the program's own log"},
    ),
    "an optimizer on the host": (
        bursts(cpu_cores=33.0), {"summary": "host memory (offload)"},
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
    "a fifth of the time, most of it in gaps too short for a wait": bursts(FEW_WAITS),
    "cells of a notebook": (bursts(UNEVEN, model=NOTEBOOK), "somebody"),
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


def copying(share: float, wait: float = 0.02) -> Window:
    """As the job reports it."""
    loop = LoopFacts(copy_share=share, data_wait_share=wait)
    return unpinned(ranks=(w.rank(pinned_memory=False, loop=loop),))


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
    "copies that the job reports are what is lost": (
        copying(0.2), {"lost_share": 0.2, "says": "reported by the job"},
    ),
}, {
    "pinned": window(gpus=unpinned().gpus),
    "unpinned, and the GPU is fed": window(job=w.job(ranks=(w.rank(pinned_memory=False),))),
    "no traffic": unpinned({"pcie_rx_idle_bytes_per_second": 5e7}),
    "a degraded link": unpinned(FULL_LINK),
    "copies that the job reports cost little": (copying(0.02), "copies taking 2%"),
    "the job reports that it waits for data": (copying(0.2, 0.5), "not for copies"),
    "workers at their limit":
        unpinned(ranks=(w.rank(pinned_memory=False, workers=w.workers(2, cpu_percent=98.0)),)),
}, {
    "not seen": (unpinned(ranks=(w.rank(pinned_memory=None, loader_workers=0),)), "pins"),
    "no traffic": (unpinned(UNREAD), "PCIe"),
    "too little traffic for idle moments that are not seen": (too_short(0.2e9), "PCIe"),
})  # fmt: skip
