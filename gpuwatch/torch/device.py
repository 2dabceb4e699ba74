"""Time on the GPU by CUDA events, and the GPU memory that PyTorch holds.

Nothing here waits for the GPU: events are recorded into the stream and asked later whether they
have come to pass (``Event.query``). Nothing here wakes a GPU either: PyTorch is not imported and
CUDA not initialised by it, and only a GPU on which PyTorch holds memory is touched.
"""

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

PAIRS = 64
"""Steps that the CPU can be ahead of the GPU and still be measured; others are only counted."""

Cuda = Any
"""The module ``torch.cuda``, which has no types of its own here."""

T = TypeVar("T")


class Device:
    """The one GPU whose stream is timed. ``failed``: why no call is made any more."""

    def __init__(self, cuda: Cuda, index: int) -> None:
        self.cuda = cuda
        self.index = index
        self.failed: Exception | None = None
        self.steps = Stopwatch(self)
        self.copies = Stopwatch(self)

    def times(self) -> tuple[int, int, int, int, int, int]:
        """Nanoseconds, stretches measured and not measured: of steps, then of copies."""
        return (*self.steps.poll(), *self.copies.poll())

    def memory(self) -> tuple[int, int, int]:
        """Bytes allocated, reserved, and allocated at most; see ``torch.cuda.memory_stats``."""
        return self.attempt(lambda: _memory(self.cuda, self.index), (-1, -1, -1))

    def attempt(self, call: Callable[[], T], otherwise: T) -> T:
        """A call that ends all others when it fails, instead of raising."""
        if self.failed is None:
            try:
                return call()
            except Exception as error:
                self.failed = error
        return otherwise


class Stopwatch:
    """Measures stretches of the device's current stream between ``begin`` and ``end``."""

    __slots__ = ("_device", "_free", "_made", "_open", "_running", "measured", "ns", "skipped")

    def __init__(self, device: Device) -> None:
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
        if self._open is None:
            self._device.attempt(self._begin, None)

    def end(self) -> None:
        if self._open is not None:
            self._device.attempt(self._end, None)

    def poll(self) -> tuple[int, int, int]:
        """Return the GPU's work by now: nanoseconds, stretches measured and not measured."""
        if self._running:
            self._device.attempt(self._poll, None)
        return self.ns, self.measured, self.skipped

    def _begin(self) -> None:
        if self._is_captured():
            return
        if not self._free and self._made < PAIRS:
            self._made += 1
            event = self._device.cuda.Event
            self._free.append((event(enable_timing=True), event(enable_timing=True)))
        if self._free:
            self._open = self._free.pop()
            self._open[0].record(self._stream())
        else:
            self.skipped += 1

    def _end(self) -> None:
        pair = self._open
        if pair is not None and not self._is_captured():
            self._open = None
            pair[1].record(self._stream())
            self._running.append(pair)

    def _poll(self) -> None:
        running = self._running
        while running and not self._is_captured() and running[0][1].query():
            first, last = pair = running.popleft()
            self.ns += max(0, int(first.elapsed_time(last) * 1e6))
            self.measured += 1
            self._free.append(pair)

    def _is_captured(self) -> bool:
        """The stream's work goes into a CUDA graph now, and events would too."""
        return bool(self._device.cuda.is_current_stream_capturing())

    def _stream(self) -> Any:
        return self._device.cuda.current_stream(self._device.index)


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
