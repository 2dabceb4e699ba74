"""Readings of one thing that become figures and time profiles of a report: those of the machine
(and of a GPU, in ``gpu``)."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpuwatch.core.model import Host
from gpuwatch.outputs.report.accumulators.steps import Step
from gpuwatch.outputs.report.accumulators.sums import Gauge, sane
from gpuwatch.outputs.report.accumulators.time_profile import Grid, profiles
from gpuwatch.outputs.report.parts import HostUsage, Profiles

Figures = Sequence[tuple[str, str, str]]
"""The field of the report, the reading, and what is made of it (``Gauge``)."""


class Readings:
    """Means, peaks and sums over time of readings that have the name of a field of the model."""

    def __init__(self, figures: Figures, profiled: Iterable[str], grid: Grid) -> None:
        """``profiled``: those of the readings that have a time profile too."""
        self._figures = figures
        limits = {name: 100.0 if name.endswith("percent") else 1e18 for _, name, _ in figures}
        self._gauges = {name: (Gauge(), most) for name, most in limits.items()}
        self._profiles = {name: grid.recorder() for name in profiled}

    def add(self, item: object, step: Step) -> None:
        """``item`` said so for the time of ``step``; over a gap only for its end."""
        seconds = 0.0 if step.is_gap else step.seconds
        for name, (gauge, most) in self._gauges.items():
            said = getattr(item, name)
            value = None if said is None else sane(said, most)
            if value is None:
                continue
            gauge.add(value, seconds)
            if seconds and name in self._profiles:
                self._profiles[name].add(step.since, step.until, value)

    def figures(self) -> dict[str, Any]:
        """By the fields of the report."""
        return {name: getattr(self._gauges[of][0], what) for name, of, what in self._figures}

    def cells(self, name: str) -> list[tuple[float, float, float, float]]:
        """See ``ProfileRecorder``; of a reading without a profile none."""
        recorder = self._profiles.get(name)
        return [] if recorder is None else recorder.cells()

    def profiles(self, until: float) -> Profiles:
        return profiles(self._profiles, until)


_FIGURES = (
    ("cpu_mean_percent", "cpu_percent", "mean"),
    ("cpu_peak_percent", "cpu_percent", "peak"),
    ("cpu_iowait_mean_percent", "cpu_iowait_percent", "mean"),
    ("memory_mean_bytes", "memory_used_bytes", "mean"),
    ("memory_peak_bytes", "memory_used_bytes", "whole_peak"),
    ("swap_peak_bytes", "swap_used_bytes", "whole_peak"),
    ("shm_peak_bytes", "shm_used_bytes", "whole_peak"),
    ("disk_read_bytes", "disk_read_bytes_per_second", "integral"),
    ("disk_written_bytes", "disk_write_bytes_per_second", "integral"),
    ("disk_read_peak_bytes_per_second", "disk_read_bytes_per_second", "peak"),
    ("disk_write_peak_bytes_per_second", "disk_write_bytes_per_second", "peak"),
    ("network_received_bytes", "network_receive_bytes_per_second", "integral"),
    ("network_sent_bytes", "network_transmit_bytes_per_second", "integral"),
)
_PROFILES = (
    *("cpu_percent", "memory_used_bytes"),
    *("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
)
_FACTS = ("core_count", "usable_cores", "memory_total_bytes", "shm_total_bytes")


class HostAccumulator:
    def __init__(self, grid: Grid) -> None:
        self._readings = Readings(_FIGURES, _PROFILES, grid)
        self._facts: dict[str, Any] = {}

    def add(self, host: Host, step: Step) -> None:
        said = {name: getattr(host, name) for name in _FACTS}
        self._facts |= {name: value for name, value in said.items() if value is not None}
        self._readings.add(host, step)

    def usage(self, until: float) -> HostUsage:
        figures = self._readings.figures()
        return HostUsage(**figures, **self._facts, profiles=self._readings.profiles(until))
