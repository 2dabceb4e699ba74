"""Snapshots of simulated machines, for all tests that need some."""

from collections.abc import Iterator

from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.simulated.source import SimulatedSource


def looks(
    scenario: str = "starved",
    count: int = 60,
    *,
    gpus: int = 1,
    interval: float = 1.0,
    seed: int = 0,
    clock: ManualClock | None = None,
) -> Iterator[Snapshot]:
    """Yield ``count`` snapshots, ``interval`` seconds apart, which pass on ``clock``."""
    clock = clock or ManualClock()
    options = ReadOptions(interval_seconds=interval)
    source = SimulatedSource(scenario, gpus, seed, clock=clock, options=options)
    for _ in range(count):
        yield source.read()
        clock.advance(interval)
    source.close()
