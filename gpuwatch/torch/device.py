"""How long the GPU was at it, by CUDA events, and how much of its memory PyTorch holds.

Nothing here waits for the GPU: events are recorded into the stream and asked later whether they
have come to pass (``Event.query``). Nothing here wakes a GPU either: PyTorch is not imported and
CUDA not initialised by it, and only a GPU on which PyTorch holds memory is touched.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

PAIRS = 64
"""Steps that the CPU can be ahead of the GPU and still be measured; others are only counted."""

Cuda = Any
"""The module ``torch.cuda``, which has no types of its own here."""


class Stopwatch:
    """Measures stretches of the current stream between ``begin`` and ``end``."""

    __slots__ = ("_cuda", "_device", "_free", "_made", "_open", "_running", "measured", "ns",
                 "skipped")  # fmt: skip

    def __init__(self, cuda: Cuda, device: int) -> None:
        self._cuda = cuda
        self._device = device
        self._free: list[tuple[Any, Any]] = []
        self._made = 0
        self._open: tuple[Any, Any] | None = None
        self._running: deque[tuple[Any, Any]] = deque()
        self.ns = 0
        self.measured = 0
        self.skipped = 0

    def begin(self) -> None:
        """Begins once: a stretch that is open stays open."""
        if self._open is not None or self._cuda.is_current_stream_capturing():
            return
        pair = self._pair()
        if pair is None:
            self.skipped += 1
            return
        pair[0].record(self._cuda.current_stream(self._device))
        self._open = pair

    def end(self) -> None:
        pair = self._open
        if pair is None or self._cuda.is_current_stream_capturing():
            return
        self._open = None
        pair[1].record(self._cuda.current_stream(self._device))
        self._running.append(pair)

    def poll(self) -> None:
        """Take what the GPU has done by now."""
        running = self._running
        while running and running[0][1].query():
            first, last = pair = running.popleft()
            self.ns += max(0, int(first.elapsed_time(last) * 1e6))
            self.measured += 1
            self._free.append(pair)

    def _pair(self) -> tuple[Any, Any] | None:
        if self._free:
            return self._free.pop()
        if self._made >= PAIRS:
            return None
        self._made += 1
        event = self._cuda.Event
        return event(enable_timing=True), event(enable_timing=True)


class _Guarded:
    """A stopwatch that ends with its device when a call fails, instead of raising."""

    __slots__ = ("_of", "watch")

    def __init__(self, of: Device, watch: Stopwatch) -> None:
        self._of = of
        self.watch = watch

    def begin(self) -> None:
        if self._of.failed is None:
            try:
                self.watch.begin()
            except Exception as error:
                self._of.failed = error

    def end(self) -> None:
        if self._of.failed is None:
            try:
                self.watch.end()
            except Exception as error:
                self._of.failed = error


class Device:
    """The one GPU whose stream is timed. ``failed``: why no call is made any more."""

    def __init__(self, cuda: Cuda, index: int) -> None:
        self._cuda = cuda
        self.index = index
        self.failed: Exception | None = None
        self.steps = _Guarded(self, Stopwatch(cuda, index))
        self.copies = _Guarded(self, Stopwatch(cuda, index))

    def times(self) -> tuple[int, int, int, int, int, int]:
        """Nanoseconds, stretches measured and not measured: of steps, then of copies."""
        steps, copies = self.steps.watch, self.copies.watch
        if self.failed is None:
            try:
                if not self._cuda.is_current_stream_capturing():
                    steps.poll()
                    copies.poll()
            except Exception as error:
                self.failed = error
        return (
            steps.ns, steps.measured, steps.skipped, copies.ns, copies.measured, copies.skipped
        )  # fmt: skip

    def memory(self) -> tuple[int, int, int]:
        """Bytes allocated, reserved, and allocated at most; see ``torch.cuda.memory_stats``."""
        if self.failed is None:
            try:
                return _memory(self._cuda, self.index)
            except Exception as error:
                self.failed = error
        return (-1, -1, -1)


def find_device() -> Device | None:
    """The GPU on which this process's PyTorch holds most memory; ``None`` while there is none."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return None
    held = [(_memory(cuda, index)[0], -index) for index in range(cuda.device_count())]
    most, index = max(held, default=(0, 0))
    return Device(cuda, -index) if most > 0 else None


def _memory(cuda: Cuda, index: int) -> tuple[int, int, int]:
    # The flat dictionary of memory_stats() is this one, sorted: four times the work.
    stats = cuda.memory_stats_as_nested_dict(index)
    if not stats:
        return (0, 0, 0)
    allocated = stats["allocated_bytes"]["all"]
    return (allocated["current"], stats["reserved_bytes"]["all"]["current"], allocated["peak"])
