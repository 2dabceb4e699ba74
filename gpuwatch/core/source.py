"""Promises of every source of snapshots, and the clocks they are given."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gpuwatch.core.model import Job, Problem, Process, ProcessKey, Snapshot


class Clock(Protocol):
    """Time as a source or the sampler sees it; tests hand in one they turn themselves."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps."""
        ...

    def unix(self) -> float:
        """Seconds since the epoch, wall time."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def unix(self) -> float:
        return time.time()


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only when it is moved: for simulations, replays and tests."""

    seconds: float = 0.0
    unix_epoch_seconds: float = 1_700_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def unix(self) -> float:
        return self.unix_epoch_seconds + self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass(slots=True)
class ReadOptions:
    """Wishes of the reader; the dashboard changes it while it runs (plain attributes, so a
    change made on the screen's thread is seen by the next read)."""

    interval_seconds: float = 1.0
    all_processes: bool = False
    """Also the processes that use no GPU and descend from none that does."""
    detailed_gpu: str | None = None
    """The uuid of a GPU somebody looks at closely: its slow readings may be read more often."""
    only_gpus: tuple[str, ...] = ()
    """The GPUs that are wanted, by index or how the uuid begins; none named: all."""
    slurm_job: str | None = None
    """The number of the only Slurm job that is wanted, with its GPUs; ``None``: everything is."""
    driver_wait_seconds: float | None = None
    """How long one read waits for a driver that is slow or still waking; ``None``: as long as a
    live picture can."""
    attached: ProcessKey | None = None
    """A process (any of its job) that somebody asked for: its job is read closely, GPU or not."""


class JobReader(Protocol):
    """Turns processes into jobs; ``LocalSource`` is given one. Called on the reading thread."""

    def roots(self, gpu_pids: Sequence[int]) -> frozenset[int]:
        """The topmost processes of the jobs that those on GPUs, and the attached one, belong to:
        their trees are to be read too."""
        ...

    def read(self, processes: tuple[Process, ...]) -> tuple[tuple[Job, ...], tuple[Problem, ...]]:
        """The jobs among ``processes``: the attached one (even once it has ended), then every
        one that uses a GPU."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """Takes snapshots. ``open``, ``read`` and ``close`` block and are called one at a time.

    None of them raises for what a machine can do wrong: a missing driver, a lost GPU or a
    refused file becomes a ``Problem`` in the snapshot. Whatever else escapes is a bug, which
    the sampler reports without ending the dashboard.
    """

    @property
    def simulated(self) -> bool: ...

    @property
    def options(self) -> ReadOptions: ...

    def open(self) -> None: ...

    def read(self) -> Snapshot: ...

    def close(self) -> None: ...


@runtime_checkable
class LooksAhead(Protocol):
    """A source with a part on a thread of its own, because it may hang."""

    def look_ahead(self, then: Callable[[], object]) -> float | None:
        """Have that part begin with what the next ``read`` needs of it, and its thread call
        ``then`` when it has it. Returns at once: for how many seconds ``read`` is to wait for
        that at most; ``None``: ``then`` is not called, because there is nothing to wait for."""
        ...
