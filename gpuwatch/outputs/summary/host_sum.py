"""The machine over a recording."""

from __future__ import annotations

from gpuwatch.core.model import Host
from gpuwatch.jobs.report.gauge import Gauge, sane, whole
from gpuwatch.jobs.report.time_profile import CourseRecorder, Grid
from gpuwatch.outputs.summary.gpu_sum import has_values
from gpuwatch.outputs.summary.model import HostSummary
from gpuwatch.outputs.summary.timeline import Step

COURSES = (
    "cpu_percent",
    "memory_used_bytes",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
)
_GAUGES = (
    *COURSES,
    "cpu_iowait_percent",
    "swap_used_bytes",
    "shm_used_bytes",
    "network_receive_bytes_per_second",
    "network_transmit_bytes_per_second",
)
_FACTS = ("core_count", "usable_cores", "memory_total_bytes", "shm_total_bytes")


class HostSum:
    """Fed once a snapshot."""

    def __init__(self, grid: Grid) -> None:
        self._gauges: dict[str, Gauge] = {name: Gauge() for name in _GAUGES}
        self._courses: dict[str, CourseRecorder] = {name: grid.course() for name in COURSES}
        self._facts: dict[str, float | None] = dict.fromkeys(_FACTS)

    def add(self, host: Host, step: Step) -> None:
        for name in _FACTS:
            value = getattr(host, name)
            if value is not None:
                self._facts[name] = value
        seconds = 0.0 if step.is_gap else step.seconds
        for name, gauge in self._gauges.items():
            gauge.add(getattr(host, name), seconds)
        if step.is_gap:
            return
        for name, course in self._courses.items():
            value = sane(getattr(host, name))
            if value is not None:
                course.add(step.since, step.until, value)

    def summary(self, until: float) -> HostSummary:
        gauges = self._gauges
        courses = {name: course.course(until) for name, course in self._courses.items()}
        facts = self._facts
        return HostSummary(
            cpu_mean_percent=gauges["cpu_percent"].mean,
            cpu_peak_percent=gauges["cpu_percent"].peak,
            cpu_iowait_mean_percent=gauges["cpu_iowait_percent"].mean,
            core_count=whole(facts["core_count"]),
            usable_cores=facts["usable_cores"],
            memory_total_bytes=whole(facts["memory_total_bytes"]),
            memory_mean_bytes=gauges["memory_used_bytes"].mean,
            memory_peak_bytes=whole(gauges["memory_used_bytes"].peak),
            swap_peak_bytes=whole(gauges["swap_used_bytes"].peak),
            shm_total_bytes=whole(facts["shm_total_bytes"]),
            shm_peak_bytes=whole(gauges["shm_used_bytes"].peak),
            disk_read_bytes=gauges["disk_read_bytes_per_second"].integral,
            disk_written_bytes=gauges["disk_write_bytes_per_second"].integral,
            disk_read_peak_bytes_per_second=gauges["disk_read_bytes_per_second"].peak,
            disk_write_peak_bytes_per_second=gauges["disk_write_bytes_per_second"].peak,
            network_received_bytes=gauges["network_receive_bytes_per_second"].integral,
            network_sent_bytes=gauges["network_transmit_bytes_per_second"].integral,
            courses={name: course for name, course in courses.items() if has_values(course)},
        )
