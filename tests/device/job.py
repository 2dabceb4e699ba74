"""The processes that ``tests.device`` watches, each told by empty lines of its input what to do.

    python -m tests.device.job train '{"workers": 1}' '{"workers": 4}'  # a practice job
    python -m tests.device.job bursts                                   # kernels, when they ran

PyTorch is imported while the job before still trains; what gpuwatch sees begins with the first
line. With the second one a practice job goes on with the other settings on top.
"""

import contextlib
import functools
import json
import os
import select
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils.data  # imported before it begins
from torch import distributed

from gpuwatch import practice
from gpuwatch.practice import Device, Job, Samples, Settings

PATTERNS = ((1.0, 1.0, 1), (0.3, 0.3, 4), (0.1, 0.1, 10), (0.02, 0.02, 50))
"""Seconds busy, seconds idle, and how often: slower and faster than the driver samples."""
VIRTUAL = "FAKE_NVML_STATE" in os.environ
MIB = 1 << 20
H200_BYTES = 150_754_820_096


@dataclass(frozen=True, kw_only=True)
class FaultySettings(Settings):
    """Those of a practice job, and of faults that only a test of a device needs."""

    server_port: int = 0
    """Of a server that each sample is fetched from; it says how slowly it answers."""
    spin_ms: float = 0.0
    """Time in a step of a kernel that is on the device and only waits."""
    in_collective: bool = False
    """That kernel is followed by an all-reduce of one process: NCCL's threads and communicator are
    those of a job of many."""
    gpu_held_percent: float = 0.0
    """Of the device's memory, held besides the model's."""
    gpu_leak_mib: float = 0.0
    """Memory of the device that is kept in each step."""
    item_in_each_step: bool = False


class FetchedSamples(Samples):
    def __init__(self, settings: FaultySettings) -> None:
        super().__init__(settings)
        self._port = settings.server_port

    def __getitem__(self, index: int) -> Any:
        with socket.create_connection(("127.0.0.1", self._port)) as server:
            while server.recv(MIB):
                pass
        return super().__getitem__(index)


class FaultyJob(Job):
    """A practice job with faults of the device."""

    settings: FaultySettings

    def __init__(self, settings: FaultySettings, device: Any) -> None:
        super().__init__(settings, device, reports=False)
        if settings.server_port:
            self.samples = FetchedSamples(settings)
        self.held = [hold(device, settings.gpu_held_percent)]

    def step(self, batch: Any) -> None:
        super().step(batch)
        if self.settings.item_in_each_step:
            self.device.synchronize() if VIRTUAL else self.device.loss.item()
        if self.settings.spin_ms:
            spin(self.device, self.settings.spin_ms)
        if self.settings.in_collective:
            distributed.all_reduce(torch.ones(1 << 20, device="cpu" if VIRTUAL else "cuda:0"))
        if self.settings.gpu_leak_mib:
            self.held.append(keep(self.device, round(self.settings.gpu_leak_mib * MIB)))


def hold(device: Any, percent: float) -> Any:
    """Take memory until so much of the device's is taken, by whatever."""
    if VIRTUAL:
        device.gpu.memory_bytes = max(6 << 30, round(H200_BYTES * percent / 100))
        return None
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return keep(device, round(total * percent / 100) - (total - free))


def keep(device: Any, bytes_: int) -> Any:
    """Take so much more of the device's memory, if it is there."""
    if VIRTUAL:
        device.gpu.memory_bytes += bytes_
        return None
    free, total = torch.cuda.mem_get_info()
    # Some is left to the kernels.
    wanted = min(bytes_, free - max(64 << 20, total // 64))
    return torch.ones(max(0, wanted), dtype=torch.uint8, device="cuda:0")


def spin(device: Any, milliseconds: float) -> None:
    """Queue a kernel that only waits."""
    if VIRTUAL:
        device.launch(None, milliseconds)
    else:
        torch.cuda._sleep(round(milliseconds * _cycles_per_ms()))


@functools.cache
def _cycles_per_ms() -> float:
    cycles, begin = 20_000_000, _event()
    torch.cuda._sleep(cycles)
    end = _event()
    end.synchronize()
    return cycles / max(0.1, float(begin.elapsed_time(end)))


def _event() -> Any:
    one: Any = torch.cuda.Event(enable_timing=True)
    one.record()
    return one


def open_device() -> Any:
    if not VIRTUAL:
        return Device("cuda:0")
    from tests.support.virtual_device import VirtualDevice

    return VirtualDevice()


def train(sick: Mapping[str, Any], cure: Mapping[str, Any]) -> None:
    """Train with the fault until there is another line of input, and from then on without."""
    settings, device = FaultySettings(**sick), open_device()
    if settings.in_collective:
        store, backend = distributed.HashStore(), "gloo" if VIRTUAL else "nccl"
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    job = FaultyJob(settings, device)
    job.train(lambda: bool(select.select([0], [], [], 0)[0]))
    del job
    print("turned", flush=True)
    FaultyJob(replace(settings, **cure), device).train()


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
    made = open_device()
    # An idle card has low clocks, by which a length in cycles is no length in seconds.
    torch.cuda._sleep(400_000_000)
    spin(made, 1.0)
    torch.cuda.synchronize()
    base = _event()
    base.synchronize()
    began, events = time.time(), []
    for busy, idle, times in PATTERNS:
        for _ in range(times):
            first = _event()
            spin(made, busy * 1000)
            events.append((first, _event()))
            torch.cuda.synchronize()
            time.sleep(idle)
    return [
        (began + base.elapsed_time(first) / 1000, began + base.elapsed_time(last) / 1000)
        for first, last in events
    ]


def main(arguments: list[str]) -> int:
    # Several lines a second, to measure over few.
    practice.SAY_EVERY_SECONDS = 0.5
    practice.end_with_parent()
    torch.set_num_threads(1)
    print("ready", flush=True)
    # Not from a buffered file, which would take the second line as well.
    if not os.read(0, 1):
        return 0
    with contextlib.suppress(BrokenPipeError):
        bursts() if arguments[0] == "bursts" else train(*map(json.loads, arguments[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
