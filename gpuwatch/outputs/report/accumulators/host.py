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
_GAUGES = (
    *PROFILES,
    "cpu_iowait_percent",
    "swap_used_bytes",
    "shm_used_bytes",
    "network_receive_bytes_per_second",
    "network_transmit_bytes_per_second",
)
_FACTS = ("core_count", "usable_cores", "memory_total_bytes", "shm_total_bytes")


class HostAccumulator:
    """Fed once a snapshot."""

    def __init__(self, grid: Grid) -> None:
        self._gauges = {name: Gauge() for name in _GAUGES}
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
        gauges, facts = self._gauges, self._facts
        cpu, memory = gauges["cpu_percent"], gauges["memory_used_bytes"]
        read, write = gauges["disk_read_bytes_per_second"], gauges["disk_write_bytes_per_second"]
        return HostUsage(
            cpu_mean_percent=cpu.mean,
            cpu_peak_percent=cpu.peak,
            cpu_iowait_mean_percent=gauges["cpu_iowait_percent"].mean,
            core_count=whole(facts["core_count"]),
            usable_cores=facts["usable_cores"],
            memory_total_bytes=whole(facts["memory_total_bytes"]),
            memory_mean_bytes=memory.mean,
            memory_peak_bytes=whole(memory.peak),
            swap_peak_bytes=whole(gauges["swap_used_bytes"].peak),
            shm_total_bytes=whole(facts["shm_total_bytes"]),
            shm_peak_bytes=whole(gauges["shm_used_bytes"].peak),
            disk_read_bytes=read.integral,
            disk_written_bytes=write.integral,
            disk_read_peak_bytes_per_second=read.peak,
            disk_write_peak_bytes_per_second=write.peak,
            network_received_bytes=gauges["network_receive_bytes_per_second"].integral,
            network_sent_bytes=gauges["network_transmit_bytes_per_second"].integral,
            profiles=profiles(self._profiles, until),
        )
