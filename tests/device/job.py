"""The processes that ``tests.device`` watches, each told by a line of its input when to begin.

    python -m tests.device.job train FOLDER [CAUSE] [KNOB ...]    # a practice job
    python -m tests.device.job bursts                             # kernels, and when they ran

PyTorch is imported while the job before still trains; what gpuwatch sees begins with the line.
"""

import contextlib
import json
import os
import sys
import time
from typing import Any

import torch
from torch import distributed

from gpuwatch.practice import train
from gpuwatch.practice.job import device, loop, ranks  # noqa: F401 - imported before it begins
from gpuwatch.practice.knobs import Knobs

PATTERNS = ((1.0, 1.0, 1), (0.3, 0.3, 4), (0.1, 0.1, 10), (0.02, 0.02, 50))
"""Seconds busy, seconds idle, and how often: slower and faster than the driver samples."""
VIRTUAL = "FAKE_NVML_STATE" in os.environ


def _device(rank: int, knobs: Knobs) -> Any:
    if not VIRTUAL:
        return device.choose("cuda:0", rank, knobs)
    from tests.support.virtual_device import open_device

    return open_device(rank, knobs)


def in_collective(rank: int, knobs: Knobs) -> Any:
    """A device that spins before an all-reduce of one process: NCCL's threads and communicator are
    those of a job of many, and a kernel holds the GPU without working."""
    made = _device(rank, knobs)
    store = distributed.HashStore()
    backend = "gloo" if VIRTUAL else "nccl"
    distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    reduced, spin = torch.ones(1 << 20, device="cpu" if VIRTUAL else "cuda:0"), made.spin

    def spin_and_reduce(milliseconds: float) -> None:
        spin(milliseconds)
        distributed.all_reduce(reduced)

    made.spin = spin_and_reduce
    return made


def bursts() -> None:
    """Run kernels in ``PATTERNS``, and print when the GPU was busy, in Unix seconds."""
    ran = _virtual_bursts() if VIRTUAL else _cuda_bursts()
    print("bursts " + json.dumps(ran), flush=True)


def _virtual_bursts() -> list[tuple[float, float]]:
    from tests.support.virtual_gpu import VirtualGpu

    gpu, ran = VirtualGpu.open(0), []
    for busy, idle, times in PATTERNS:
        for _ in range(times):
            began = time.time()
            gpu.run(busy)
            ran.append((began, time.time()))
            time.sleep(idle)
    return ran


def _cuda_bursts() -> list[tuple[float, float]]:
    """By CUDA events, which the GPU stamps itself; the host's clock is met once, at their start."""
    made: Any = device.choose("cuda:0", 0, Knobs())
    # An idle card has low clocks, by which a length in cycles is no length in seconds.
    torch.cuda._sleep(400_000_000)
    made.spin(1.0)

    def event() -> Any:
        one: Any = torch.cuda.Event(enable_timing=True)
        one.record()
        return one

    torch.cuda.synchronize()
    base = event()
    base.synchronize()
    began, events = time.time(), []
    for busy, idle, times in PATTERNS:
        for _ in range(times):
            first = event()
            made.spin(busy * 1000)
            events.append((first, event()))
            torch.cuda.synchronize()
            time.sleep(idle)
    return [
        (began + base.elapsed_time(first) / 1000, began + base.elapsed_time(last) / 1000)
        for first, last in events
    ]


def main(arguments: list[str]) -> int:
    # Several lines a second, to measure over few.
    loop.SAY_EVERY_SECONDS = 0.5
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 0
    if arguments[0] == "bursts":
        bursts()
        return 0
    with contextlib.suppress(BrokenPipeError):
        return train.main(["--folder", *arguments[1:]])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
