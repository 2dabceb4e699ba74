"""The machine over the time."""

from __future__ import annotations

from gpuwatch.core.model import Host
from gpuwatch.outputs.report.accumulators.steps import Step
from gpuwatch.outputs.report.accumulators.sums import Gauge, sane, whole
from gpuwatch.outputs.report.accumulators.time_profile import Grid, profiles
from gpuwatch.outputs.report.parts import HostUsage

PROFILES = (
    "cpu_percent",
    "memory_used_bytes",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
)
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
"""The field of the report, the reading, and what is made of it (``Gauge``)."""
_FACTS = ("core_count", "usable_cores", "memory_total_bytes", "shm_total_bytes")


class HostAccumulator:
    """Fed once a snapshot."""

    def __init__(self, grid: Grid) -> None:
        self._gauges = {name: Gauge() for _, name, _ in _FIGURES}
        self._profiles = {name: grid.recorder() for name in PROFILES}
        self._facts: dict[str, float | None] = dict.fromkeys(_FACTS)

    def add(self, host: Host, step: Step) -> None:
        for name in _FACTS:
            value = getattr(host, name)
            if value is not None:
                self._facts[name] = value
        seconds = 0.0 if step.is_gap else step.seconds
        for name, gauge in self._gauges.items():
            value = sane(getattr(host, name), 100.0 if name.endswith("percent") else 1e18)
            gauge.add(value, seconds)
            if value is not None and seconds and name in self._profiles:
                self._profiles[name].add(step.since, step.until, value)

    def usage(self, until: float) -> HostUsage:
        facts = self._facts
        return HostUsage(
            **{name: getattr(self._gauges[reading], what) for name, reading, what in _FIGURES},
            core_count=whole(facts["core_count"]),
            usable_cores=facts["usable_cores"],
            memory_total_bytes=whole(facts["memory_total_bytes"]),
            shm_total_bytes=whole(facts["shm_total_bytes"]),
            profiles=profiles(self._profiles, until),
        )
