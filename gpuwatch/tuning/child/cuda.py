"""Copies a real batch to the GPU, pinned and not, alone and beside kernels.

As PyTorch's guide to pin_memory and non_blocking does it: pinned staging memory, copies with
``non_blocking=True`` on a stream of their own, timed by events on that stream, after a warm-up
(https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html). Pinning itself is timed
apart: a loader's pin thread does it in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

WARM_UP = 3
REPEATS = 20
SECONDS_MAX = 2.0
"""For each of the ways, so that a batch of gigabytes does not take minutes."""
KERNEL_SIZE = 2048
"""Of the square matrices whose products keep the GPU busy beside a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """Host to device, in bytes a second (medians). ``overlapped``: while kernels run."""

    batch_bytes: int
    tensors: int
    device: str
    repeats: int
    pageable_bytes_per_second: float
    pinned_bytes_per_second: float
    pageable_overlapped_bytes_per_second: float
    pinned_overlapped_bytes_per_second: float
    pageable_hidden_share: float
    """Of the copy's time, 0..1: how much of it the GPU computed through."""
    pinned_hidden_share: float
    pin_seconds: float
    """To copy the batch into pinned memory, on the host."""


def measure_copies(batch: object, device: str = "cuda") -> CopyResult | None:
    """How fast this batch gets to the GPU; ``None`` without CUDA or where it has no tensors."""
    import torch  # noqa: PLC0415 - only a measuring process pays for it

    if not torch.cuda.is_available():
        return None
    tensors = [one.detach().cpu() for one in tensors_in(batch) if one.numel()]
    if not tensors:
        return None
    return _measure(tensors, torch.device(device))


def tensors_in(batch: object) -> Iterator[Any]:
    """All tensors in a batch, however it is nested."""
    import torch  # noqa: PLC0415 - only a measuring process pays for it

    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_in(value)


def rate(size_bytes: int, seconds: Sequence[float]) -> float:
    """Bytes a second in the median repeat."""
    return size_bytes / max(median(seconds), 1e-9)


def hidden_share(copy: float, kernels: float, both: float) -> float:
    """How much of a copy's time ran beside the kernels, 0..1, from the three times taken apart
    and together.

    >>> hidden_share(copy=2.0, kernels=10.0, both=10.5)
    0.75
    """
    if copy <= 0:
        return 0.0
    return min(1.0, max(0.0, (copy + kernels - both) / copy))


def _measure(tensors: list[Any], device: Any) -> CopyResult:
    # A tensor that the loader has pinned already: a pageable copy of it.
    pageable = [one.clone() if one.is_pinned() else one for one in tensors]
    pinned = [one.pin_memory() for one in pageable]
    bench = _Bench(pageable, device)
    size = sum(one.numel() * one.element_size() for one in tensors)
    alone_pageable, alone_pinned = bench.copies(pageable), bench.copies(pinned)
    bench.fit_kernels(median(alone_pageable))
    kernels = bench.kernels()
    beside_pageable, both_pageable = bench.beside(pageable)
    beside_pinned, both_pinned = bench.beside(pinned)
    return CopyResult(
        batch_bytes=size,
        tensors=len(tensors),
        device=str(device),
        repeats=len(alone_pinned),
        pageable_bytes_per_second=rate(size, alone_pageable),
        pinned_bytes_per_second=rate(size, alone_pinned),
        pageable_overlapped_bytes_per_second=rate(size, beside_pageable),
        pinned_overlapped_bytes_per_second=rate(size, beside_pinned),
        pageable_hidden_share=hidden_share(median(alone_pageable), kernels, median(both_pageable)),
        pinned_hidden_share=hidden_share(median(alone_pinned), kernels, median(both_pinned)),
        pin_seconds=median(_repeat(lambda: _timed(lambda: [t.pin_memory() for t in pageable]))),
    )


def _timed(work: Callable[[], object]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


def _repeat(once: Callable[[], float]) -> list[float]:
    """What ``once`` says, again and again after a warm-up."""
    for _ in range(WARM_UP):
        once()
    begin = perf_counter()
    found: list[float] = []
    while len(found) < REPEATS and (len(found) < 3 or perf_counter() - begin < SECONDS_MAX):
        found.append(once())
    return found


class _Bench:
    """Copies on a stream of their own into memory that is there already. Needs CUDA."""

    def __init__(self, tensors: list[Any], device: Any) -> None:
        import torch  # noqa: PLC0415 - only a measuring process pays for it

        self._cuda: Any = torch.cuda
        self._device = device
        self._stream = self._cuda.Stream(device)
        self._targets = [torch.empty_like(one, device=device) for one in tensors]
        self._left = torch.ones(KERNEL_SIZE, KERNEL_SIZE, device=device)
        self._out = torch.empty_like(self._left)
        self._products = 1
        self._torch: Any = torch
        torch.cuda.synchronize(device)

    def copies(self, sources: list[Any]) -> list[float]:
        """Seconds of each copy alone."""
        return _repeat(lambda: self._once(sources, kernels=False)[0])

    def beside(self, sources: list[Any]) -> tuple[list[float], list[float]]:
        """Seconds of each copy beside kernels, and of both together."""
        pairs: list[tuple[float, float]] = []

        def once() -> float:
            pairs.append(self._once(sources, kernels=True))
            return 0.0

        rounds = len(_repeat(once))
        return [copy for copy, _ in pairs[-rounds:]], [both for _, both in pairs[-rounds:]]

    def fit_kernels(self, seconds: float) -> None:
        """As many products as take about twice as long as a copy."""
        self._products = 1
        one = self.kernels()
        self._products = max(1, min(2000, round(2 * seconds / max(one, 1e-6))))

    def kernels(self) -> float:
        """Seconds of the kernels alone."""
        return median(_repeat(lambda: self._once([], kernels=True)[1]))

    def _once(self, sources: list[Any], *, kernels: bool) -> tuple[float, float]:
        """Seconds of the copy and of everything, on the GPU's clock."""
        main = self._cuda.current_stream(self._device)
        events = [self._cuda.Event(enable_timing=True) for _ in range(4)]
        begin, copy_begin, copy_end, end = events
        begin.record(main)
        self._stream.wait_event(begin)
        if kernels:
            for _ in range(self._products):
                self._torch.mm(self._left, self._left, out=self._out)
        with self._cuda.stream(self._stream):
            copy_begin.record(self._stream)
            for source, target in zip(sources, self._targets, strict=False):
                target.copy_(source, non_blocking=True)
            copy_end.record(self._stream)
        main.wait_event(copy_end)
        end.record(main)
        self._cuda.synchronize(self._device)
        return copy_begin.elapsed_time(copy_end) / 1000, begin.elapsed_time(end) / 1000
