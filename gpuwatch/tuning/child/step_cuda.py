"""CUDA events around each step: when the GPU itself began and ended it.

Events are recorded into the stream and read once all is done, so that no step waits
(https://docs.pytorch.org/docs/stable/notes/cuda.html, "Asynchronous execution").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class CudaMarks:
    """Marks the steps on a device's current stream. Needs CUDA."""

    def __init__(self, device: str) -> None:
        import torch  # noqa: PLC0415 - only a measuring process pays for it

        self._cuda: Any = torch.cuda
        self._device = torch.device(device)
        self._begins: list[Any] = []
        self._ends: list[Any] = []

    def begin(self) -> None:
        self._begins.append(self._mark())

    def end(self) -> None:
        self._ends.append(self._mark())

    def _mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def settle(self) -> float | None:
        """Wait for the device; the share of the time since the first mark that it spent between
        the end of a step and the begin of the next. ``None``: fewer than two steps."""
        self._cuda.synchronize(self._device)
        begins, ends = self._begins, self._ends
        self._begins, self._ends = [], []
        if len(ends) < 2:
            return None
        # From the first event on, in milliseconds.
        first = begins[0]
        return idle_share(
            [first.elapsed_time(one) for one in begins[: len(ends)]],
            [first.elapsed_time(one) for one in ends],
        )


def idle_share(begins: Sequence[float], ends: Sequence[float]) -> float | None:
    """The share of the time from the first begin to the last end between an end and the next
    begin, 0..1; ``None`` where no time passed.

    >>> idle_share([0.0, 40.0], [30.0, 70.0])
    0.14285714285714285
    """
    whole = ends[-1] - begins[0]
    if whole <= 0:
        return None
    gaps = sum(max(0.0, begin - end) for begin, end in zip(begins[1:], ends, strict=False))
    return min(1.0, gaps / whole)
