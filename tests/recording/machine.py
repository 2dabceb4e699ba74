"""A simulated machine whose time is turned by hand, and what was recorded of it."""

from pathlib import Path
from typing import Any

from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.recording.file import open_any
from gpuwatch.recording.recorder import Recorder
from gpuwatch.sources.logs.text import LogStats
from gpuwatch.sources.simulated.source import SimulatedSource


class Machine:
    """A machine with a starved loader."""

    def __init__(self, gpus: int = 1, begin: float = 0.0) -> None:
        self.clock = ManualClock(seconds=begin)
        self.source = SimulatedSource("starved", gpus, clock=self.clock)
        self.taken: list[Snapshot] = []

    def take(self) -> Snapshot:
        self.taken.append(self.source.read())
        self.clock.advance(1.0)
        return self.taken[-1]

    def recorder(self, path: Path, count: int = 0, **options: Any) -> Recorder:
        """A recorder that has recorded ``count`` seconds, and is not closed."""
        recorder = Recorder(path, monotonic=self.clock.monotonic, **options)
        self.record(recorder, count)
        return recorder

    def record(self, recorder: Recorder, count: int) -> None:
        for _ in range(count):
            recorder.push(self.take())


def read(path: Path) -> tuple[list[Snapshot], LogStats]:
    with open_any(str(path)) as log:
        return list(log.snapshots), log.stats
