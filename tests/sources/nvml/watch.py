"""An ``NvmlSource`` on a simulated machine whose clock the test turns."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from gpuwatch.core.model import Gpu, GpuReading, Problem
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.gpu_source import DriverReading
from gpuwatch.sources.nvml.source import NvmlSource
from tests.support.fake_nvml import FakeNvml, create_or_skip

START_UNIX_SECONDS = 1_800_000_000.0
REAL_SECONDS = {
    "nvmlDeviceGetPcieThroughput": 20e-3, "nvmlDeviceGetComputeRunningProcesses_v3": 3e-3,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": 3e-3,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": 3e-3, "nvmlDeviceGetProcessUtilization": 1e-3,
    "nvmlDeviceGetSamples": 1e-3, "nvmlDeviceGetFieldValues": 1e-4, "nvmlGpmSampleGet": 2e-4,
}  # fmt: skip
"""What calls take on real drivers; any other 20 microseconds."""


class Watch:
    """The source, the simulated driver and the clock they share."""

    def __init__(self, fake: FakeNvml) -> None:
        self.fake = fake
        self.clock = ManualClock(seconds=1000.0, unix_epoch_seconds=START_UNIX_SECONDS - 1000.0)
        self.options = ReadOptions()
        self.costs: dict[str, float] = {}
        """Seconds that one call of a driver function is said to take; nothing by default, so
        that how busy the test machine is changes nothing."""
        self.call_seconds = 0.0
        """The same for a call of any function."""
        self._spent = 0.0
        self._counted: dict[str, int] = {}
        self.source = NvmlSource(self.clock, self.options, self.timer)
        self.last = DriverReading()
        fake.set_clock(self.clock.unix())

    def timer(self) -> float:
        """What the source times driver calls with: advances by the costs of the calls made."""
        for function, cost in self.costs.items():
            calls = self.fake.calls(function)
            self._spent += cost * max(0, calls - self._counted.get(function, 0))
            self._counted[function] = calls
        if self.call_seconds:
            calls = self.fake.calls()
            self._spent += self.call_seconds * max(0, calls - self._counted.get("", calls))
            self._counted[""] = calls
        return self._spent

    def tick(self, seconds: float = 1.0) -> DriverReading:
        """Let time pass, then read."""
        self.clock.advance(seconds)
        self.fake.set_clock(self.clock.unix())
        self.last = self.source.read()
        return self.last

    def ticks(self, count: int, seconds: float = 1.0) -> DriverReading:
        for _ in range(count):
            self.tick(seconds)
        return self.last

    def gpu(self, index: int = 0) -> Gpu:
        return self.last.gpus[index]

    def reading(self, index: int = 0) -> GpuReading:
        return self.last.gpus[index].reading

    def problem(self, part: str) -> Problem:
        """The only problem whose sentence holds ``part``."""
        (found,) = [problem for problem in self.last.problems if part in problem.message]
        return found

    def sentences(self) -> list[str]:
        return [problem.message for problem in self.last.problems]


def present(reading: GpuReading) -> set[str]:
    return {field.name for field in fields(reading) if getattr(reading, field.name) is not None}


@contextmanager
def watching(folder: Path, *, opened: bool = True, **machine: Any) -> Iterator[Watch]:
    """A machine as ``FakeNvml.create`` makes it, loaded into this process, and its source."""
    fake = create_or_skip(folder, **machine)
    with fake.in_this_process():
        watch = Watch(fake)
        if opened:
            watch.source.open()
        yield watch
        fake.release()
        watch.source.close()


def asked_of_a_real_driver(watch: Watch, seconds: int) -> dict[str, tuple[float, float]]:
    """By function, once it has settled: calls a second, and the seconds that each takes."""
    watch.ticks(2)
    kinds = ("nvmlDeviceGet", "nvmlGpm")
    asked = [name for name in watch.fake.call_counts() if name.startswith(kinds)]
    watch.costs = {name: REAL_SECONDS.get(name, 2e-5) for name in asked}
    watch.ticks(10)
    watch.fake.reset_counters()
    watch.ticks(seconds)
    counts = watch.fake.call_counts()
    return {name: (counts.get(name, 0) / seconds, watch.costs[name]) for name in asked}
