"""What a labelled case is, and how its label follows from the knob that was turned."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpuwatch.core.model import ProcessKey, Snapshot
from tests.evaluation.jobs.machine import Rig, Stacks, Watch
from tests.evaluation.jobs.physics import Work, steps_per_second

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

COSTS_NOTHING = 0.03
"""A knob that slows a job by less than this is not a fault: the step to step noise of real jobs
is of that size."""
COSTS_LITTLE = 0.08
"""Between the two, both the fault and ``healthy`` are right answers."""
NEARLY_AS_COSTLY = 0.75
"""Of two causes whose costs differ by less, either may be named first."""


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


class Watching(Protocol):
    """Its snapshots, and what a stack sampler saw since it was last asked."""

    def __iter__(self) -> Iterator[Snapshot]: ...
    def stacks(self) -> tuple[ProcessKey, Stacks] | None: ...


@dataclass(frozen=True, kw_only=True)
class Judged(ABC):
    """A stretch of snapshots with the truth about it, generated or recorded."""

    name: str
    kind: str
    """What was turned; the label may be ``healthy`` when it cost nothing."""
    subjects: tuple[Subject, ...]
    log: bool = False
    """Only GPU readings, as from a log."""

    @abstractmethod
    def watch(self) -> Watching:
        """From its beginning; the same each time."""


@dataclass(frozen=True, kw_only=True)
class Case(Judged):
    """A generated one."""

    rig: Rig

    def watch(self) -> Watch:
        return Watch(self.rig)


def judge(
    work: Work, ranks: int, cures: Mapping[str, Work], *, near: float = NEARLY_AS_COSTLY
) -> tuple[str, frozenset[str], float]:
    """The label of a job, all right answers, and its loss (0 to 1).

    Each cure is the same job with one knob turned back. What the cure gains is what the cause
    costs, whatever the GPU looks like; the costliest cause is the label, and those that gain
    ``near`` of it are right too.
    """
    speed = steps_per_second(work, ranks)
    gains = {rule: 1.0 - speed / steps_per_second(cured, ranks) for rule, cured in cures.items()}
    label = max(gains, key=lambda rule: gains[rule])
    best = gains[label]
    if best < COSTS_NOTHING:
        return HEALTHY, frozenset({HEALTHY}), best
    right = {rule for rule, gain in gains.items() if gain >= near * best}
    if best < COSTS_LITTLE:
        right.add(HEALTHY)
    return label, frozenset(right), best
