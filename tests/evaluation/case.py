"""What a labelled case is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from gpuwatch.core.model import Snapshot

HEALTHY = "healthy"
UNDECIDED = "undecided"
"""The diagnosis said that it does not know: an abstention."""

LOADING = frozenset(
    {
        "loader_cpu_bound", "loader_io_bound", "loader_in_main_process", "too_many_workers",
        "cpu_quota", "memory_not_pinned", "oscillation"
    }
)  # fmt: skip
"""Rules that blame the way data reaches the GPU."""

NEVER_LOADING = frozenset(
    {
        "checkpoint_pauses", "validation_pauses", "collective_wait", "straggler",
        "thermal_throttle", "power_throttle"
    }
)  # fmt: skip
"""Causes that must never be blamed on the data loader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One job (or one GPU without a job) of a case, and what should be said of it first."""

    gpus: tuple[int, ...]
    """Their numbers in the machine."""
    label: str
    accepted: frozenset[str]
    """All that is right to say first; the label is among them."""
    beside: frozenset[str] = frozenset()
    """True of it in a smaller way: neither right to say first nor a false alarm."""
    from_seconds: float = 0.0
    """When the fault begins, from the first snapshot on."""


@dataclass(frozen=True, kw_only=True)
class Judged(ABC):
    """A stretch of snapshots with the truth about it, generated or recorded."""

    name: str
    subjects: tuple[Subject, ...]

    @abstractmethod
    def watch(self) -> Iterable[Snapshot]:
        """From its beginning; the same each time."""
