"""What is known of the memory of a train step at one batch size, and who finds it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

AS_IS = "as is"
"""The step as its author wrote it; any other precision is an autocast type around it."""

BEGINS = "begins"
"""What a measuring process says when it has imported everything and the steps begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """A few steps at one batch size in a process of their own.

    ``peak_bytes`` is what has to fit: on CUDA what torch's allocator held at most (reserved), on
    the CPU the largest resident size of the process. ``available_bytes`` is what ``peak_bytes``
    could have grown to then: what others hold, and what the process needs beside it, is taken
    off. ``allocated_bytes``: the most that tensors took at once. ``process_bytes`` and
    ``device_used_bytes``: what NVML says of the process and of the device after the steps.
    """

    batch_size: int
    precision: str
    peak_bytes: int
    available_bytes: int
    total_bytes: int
    allocated_bytes: int | None = None
    process_bytes: int | None = None
    device_used_bytes: int | None = None
    seconds_per_step: float | None = None
    batch_bytes: int | None = None
    """Of the tensors of the batch, where a loader made it."""

    @property
    def samples_per_second(self) -> float | None:
        if self.seconds_per_step is None or self.seconds_per_step <= 0:
            return None
        return self.batch_size / self.seconds_per_step


class NoMemoryError(Exception):
    """The step ran out of memory (it was caught); the message is a sentence."""


class MeasureError(Exception):
    """The step cannot be measured at all; the message is a sentence for a person."""


class TooSlowError(MeasureError):
    """The steps took longer than they may."""


class Measurer(Protocol):
    """Runs steps of one batch size in a clean state."""

    def measure(self, batch_size: int, precision: str) -> MemoryPoint:
        """Raises ``NoMemoryError`` where it does not fit and ``MeasureError`` where the step
        fails for another reason."""
        ...
