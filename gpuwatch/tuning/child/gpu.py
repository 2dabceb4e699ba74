"""The GPU that a measuring process is on: NVML's readings of it, and copies to it.

Copies are made as PyTorch's guide to pin_memory and non_blocking does it: pinned staging memory,
``non_blocking=True`` on a stream of their own, timed by events on that stream, after a warm-up
(https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html).
"""

from __future__ import annotations

import os
from statistics import median
from time import perf_counter
from typing import Any

import torch

from gpuwatch.core.source import ReadOptions, SystemClock
from gpuwatch.sources.nvml.source import NvmlSource
from gpuwatch.tuning.child.step import tensors_in
from gpuwatch.tuning.settings import Copies

WARM_UP = 3
REPEATS = 20
REPEATS_LEAST = 3
SECONDS_MAX = 2.0
"""For each of the ways, so that a batch of gigabytes does not take minutes."""
KERNEL_SIZE = 2048
"""Of the square matrices whose products keep the GPU busy beside a copy."""
PRODUCTS_MOST = 2000


class OwnGpu:
    """The GPU that CUDA calls ``cuda``, else the only one that NVML sees this process on.

    Without a GPU or a driver everything is unknown. ``start``, then ``note`` every second or so.
    """

    def __init__(self) -> None:
        self._uuid: str | None = None
        if torch.cuda.is_available():
            uuid = getattr(torch.cuda.get_device_properties("cuda"), "uuid", None)
            # torch leaves out NVML's prefix.
            self._uuid = None if uuid is None else f"GPU-{str(uuid).removeprefix('GPU-')}"
        self._source = NvmlSource(SystemClock(), ReadOptions(interval_seconds=0.5))
        self._source.open()
        self._percents: list[float] = []
        self.process_bytes: int | None = None
        self.used_bytes: int | None = None

    def start(self) -> None:
        """Forget what was before."""
        self.note()
        self._percents.clear()

    def note(self) -> None:
        """Read it once."""
        reading = self._source.read()
        on = {one.gpu_uuid: one.memory_bytes for one in reading.processes if one.pid == os.getpid()}
        if self._uuid is None and len(on) == 1:
            self._uuid = next(iter(on))
        self.process_bytes = on.get(self._uuid or "")
        for gpu in reading.gpus:
            if gpu.uuid == self._uuid:
                self.used_bytes = gpu.reading.memory_used_bytes
                # The driver's fine samples since the reading before, or its one figure.
                fine = [sample.percent for sample in gpu.reading.busy_samples or ()]
                one = gpu.reading.busy_percent
                self._percents += fine or ([] if one is None else [one])

    def percent(self) -> float | None:
        """The mean utilisation since ``start``; ``None``: nothing was read."""
        return sum(self._percents) / len(self._percents) if self._percents else None

    def close(self) -> None:
        self._source.close()


def measure_copies(batch: object) -> Copies | None:
    """How fast this batch gets to the GPU; ``None`` without CUDA or where it has no tensors."""
    if not torch.cuda.is_available():
        return None
    tensors = [one.detach().cpu() for one in tensors_in(batch) if one.numel()]
    if not tensors:
        return None
    # A tensor that the loader has pinned already: a pageable copy of it.
    pageable = [one.clone() if one.is_pinned() else one for one in tensors]
    pinned = [one.pin_memory() for one in pageable]
    size = sum(one.numel() * one.element_size() for one in tensors)
    bench = _CopyBench(pageable)
    alone = [bench.seconds(one) for one in (pageable, pinned)]
    bench.fit_kernels(alone[0])
    beside = [bench.seconds(one, kernels=True) for one in (pageable, pinned)]
    return Copies(
        batch_bytes=size,
        device=torch.cuda.get_device_name(),
        pageable_bytes_per_second=size / alone[0],
        pinned_bytes_per_second=size / alone[1],
        pageable_overlapped_bytes_per_second=size / beside[0],
        pinned_overlapped_bytes_per_second=size / beside[1],
    )


class _CopyBench:
    """Copies on a stream of their own into memory that is there already. Needs CUDA."""

    def __init__(self, tensors: list[Any]) -> None:
        self._cuda: Any = torch.cuda
        self._stream = self._cuda.Stream()
        self._targets = [torch.empty_like(one, device="cuda") for one in tensors]
        self._factor = torch.ones(KERNEL_SIZE, KERNEL_SIZE, device="cuda")
        self._out = torch.empty_like(self._factor)
        self._products = 1
        self._cuda.synchronize()

    def seconds(self, sources: list[Any], *, kernels: bool = False) -> float:
        """Of a copy (the median), alone or beside kernels; without sources, of the kernels."""
        for _ in range(WARM_UP):
            self._once(sources, kernels)
        begin, found = perf_counter(), list[float]()
        while len(found) < REPEATS_LEAST or (
            len(found) < REPEATS and perf_counter() - begin < SECONDS_MAX
        ):
            found.append(self._once(sources, kernels))
        return max(median(found), 1e-9)

    def fit_kernels(self, copy_seconds: float) -> None:
        """As many products as take about twice as long as a copy."""
        one = self.seconds([], kernels=True)
        self._products = max(1, min(PRODUCTS_MOST, round(2 * copy_seconds / one)))

    def _once(self, sources: list[Any], kernels: bool) -> float:
        """Seconds on the GPU's clock."""
        main = self._cuda.current_stream()
        begin, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(main)
        self._stream.wait_event(begin)
        for _ in range(self._products if kernels else 0):
            torch.mm(self._factor, self._factor, out=self._out)
        with self._cuda.stream(self._stream):
            if sources:
                begin.record(self._stream)
            for source, target in zip(sources, self._targets, strict=False):
                target.copy_(source, non_blocking=True)
            if sources:
                end.record(self._stream)
        if not sources:
            end.record(main)
        self._cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1000
