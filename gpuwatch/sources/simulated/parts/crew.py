"""The processes of one simulated job, and what each is there for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from gpuwatch.sources.simulated.parts.device import BUFFERED_SAMPLES, TICK_SECONDS
from gpuwatch.sources.simulated.parts.loop_telemetry import Diary
from gpuwatch.sources.simulated.parts.meter import Meter
from gpuwatch.sources.simulated.parts.processes import Task
from gpuwatch.sources.simulated.plans import JobPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process in its role; ``number`` is its rank, or that of the rank it works for."""

    task: Task
    role: str
    sign: str
    guessed: bool = False
    number: int | None = None
    diary: Diary | None = None
    """What a rank tells of its loop."""


@dataclass(slots=True, kw_only=True, eq=False)
class Crew:
    """One job: its processes, parents first."""

    plan: JobPlan
    parts: list[Part] = field(default_factory=list)

    def living(self, now: float) -> list[Part]:
        return [part for part in self.parts if part.task.lives(now)]

    def having(self, role: str) -> list[Part]:
        return [part for part in self.parts if part.role == role]


class Trace:
    """What the main threads and the loader workers of a crew used, tick by tick.

    ``main`` and ``workers`` are (tick at its end, percent of one core, the mean over those that
    lived), oldest first, as many as a driver's buffer keeps.
    """

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.main: deque[tuple[int, float]] = deque(maxlen=BUFFERED_SAMPLES)
        self.workers: deque[tuple[int, float]] = deque(maxlen=BUFFERED_SAMPLES)
        self._ranks = [_Watched(part.task) for part in crew.having("rank")]
        self._loaders = [_Watched(part.task) for part in crew.having("loader_worker")]

    def tick(self, tick: int) -> None:
        """Take the tick that ends as number ``tick``."""
        for watched, samples in ((self._ranks, self.main), (self._loaders, self.workers)):
            # Each is asked, so that each has its mark for the next.
            used = [share for share in [one.share(tick) for one in watched] if share is not None]
            if used:
                samples.append((tick, min(100.0, 100.0 * sum(used) / len(used))))


class _Watched:
    """One process whose main thread is measured at each tick."""

    __slots__ = ("_mark", "_meter", "_task", "_tick")

    def __init__(self, task: Task) -> None:
        self._task = task
        self._meter: Meter | None = task.cpu if task.main is None else task.main
        self._mark = 0.0
        self._tick: int | None = None

    def share(self, tick: int) -> float | None:
        """Of one core since the tick before; ``None`` if it did not live through it all."""
        now = tick * TICK_SECONDS
        task = self._task
        if not task.lives(now):
            self._tick = None
            return None
        if self._meter is None:
            return task.steady_cpu
        total = self._meter.total(now)
        used = (total - self._mark) / TICK_SECONDS if self._tick == tick - 1 else None
        self._mark = total
        self._tick = tick
        return used
