"""A real data-parallel job of two ranks, rank r on virtual GPU r: ``real_ranks.py KNOB FOLDER``.

Started by torchrun, or by itself with ``torch.multiprocessing``. Rank 0 prints ``training`` when
all ranks have met for the first time.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.evaluation.real_job import GIB, Pictures, compute, pin_thread, save
from tests.support.virtual_gpu import VirtualGpu

RANKS = 2
STEP_SECONDS = 0.15
SAVE_EVERY_SECONDS = 12.0
SAVE_BYTES = 900 << 20
WORKING_PERCENT = 88
SPINNING_PERCENT = 25
"""Of the span from idle power to the limit."""
NOTICED_SECONDS = 0.05
"""A shorter wait does not show in the power."""


def main(knob: str, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), knob, folder)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(RANKS))
    multiprocessing: Any = torch.multiprocessing
    multiprocessing.spawn(_spawned, args=(knob, folder), nprocs=RANKS)


def _spawned(rank: int, knob: str, folder: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    train(rank, knob, folder)


def train(rank: int, knob: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gpu = VirtualGpu.open(rank, memory_bytes=90 * GIB, power_percent=WORKING_PERCENT, sm_percent=95)
    slow = knob == "ranks_slow_loader" and rank == 1
    loader = DataLoader(Pictures(0.045 if slow else 0.003), batch_size=8, num_workers=1)
    gradients = torch.zeros(1 << 16)
    saved = time.monotonic()
    for step, _ in enumerate(loader):
        if step == 0:
            pin_thread()
        gpu.launch(STEP_SECONDS)
        compute(0.015)
        gpu.synchronize()
        meet(gpu, gradients)
        if step == 0 and rank == 0:
            print("training", flush=True)
        if knob == "ranks_checkpoint" and time.monotonic() - saved > SAVE_EVERY_SECONDS:
            if rank == 0:
                save(folder, SAVE_BYTES)
            saved = time.monotonic()


def meet(gpu: VirtualGpu, gradients: torch.Tensor) -> None:
    """An all-reduce. Its kernel is on the GPU until all ranks are there, and does no work."""
    work = dist.all_reduce(gradients, async_op=True)
    noticed = time.monotonic() + NOTICED_SECONDS
    with gpu.kernel():
        while not work.is_completed() and time.monotonic() < noticed:
            time.sleep(0.001)
    if not work.is_completed():
        with gpu.kernel(power_percent=SPINNING_PERCENT):
            work.wait()
        with gpu.kernel(power_percent=WORKING_PERCENT):
            pass
    work.wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
