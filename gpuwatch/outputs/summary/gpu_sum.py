"""One GPU over a recording."""

from __future__ import annotations

from gpuwatch.core.model import Gpu, GpuReading
from gpuwatch.jobs.report.gauge import Gauge, sane
from gpuwatch.jobs.report.gpu_recorder import SAMPLE_SECONDS_MAX, GpuRecorder, Span, unbroken
from gpuwatch.jobs.report.report import Course
from gpuwatch.jobs.report.time_profile import CourseRecorder, Grid
from gpuwatch.outputs.summary.model import GpuSummary, Stretch
from gpuwatch.outputs.summary.rhythm import Rhythm
from gpuwatch.outputs.summary.timeline import Step

COURSES = ("power_watts", "memory_used_bytes", "temperature_celsius")
_GAUGES = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "memory_used_bytes",
    "pcie_rx_bytes_per_second",
    "pcie_tx_bytes_per_second",
)
LOSSES_KEPT = 50


class GpuSum:
    """Fed once a snapshot, with its GPU or with ``None`` where the snapshot has it not."""

    def __init__(self, gpu: Gpu, grid: Grid, now: float) -> None:
        self._identity = gpu.identity
        self._core = GpuRecorder(gpu.identity, grid, now)
        self._rhythm = Rhythm()
        self._rhythm_until = now
        self._gauges: dict[str, Gauge] = {name: Gauge() for name in _GAUGES}
        self._courses: dict[str, CourseRecorder] = {name: grid.course() for name in COURSES}
        self._lost: list[tuple[float, float]] = []

    def add(self, gpu: Gpu | None, step: Step) -> None:
        span = Span(step.since, step.until, step.longest, step.offset)
        if gpu is None:
            # It is not in the snapshot: the driver lists it no more, or another file began.
            self._core.arrive(step.until)
            self._rhythm_until = step.until
            return
        if step.is_gap:
            self._core.skip(span, gpu)
        else:
            self._core.add(gpu, span, None)
        self._identity = gpu.identity
        if gpu.lost:
            self._note_loss(step)
            return
        self._add_rhythm(gpu.reading, step)
        if step.is_gap:
            return
        for name, gauge in self._gauges.items():
            gauge.add(getattr(gpu.reading, name), step.seconds)
        for name, course in self._courses.items():
            value = sane(getattr(gpu.reading, name))
            if value is not None:
                course.add(step.since, step.until, value)

    def note_missing(self, why: str) -> None:
        """Why its busy share cannot be read."""
        self._core.missing = why

    def _note_loss(self, step: Step) -> None:
        self._rhythm_until = step.until
        if self._lost and self._lost[-1][1] >= step.since:
            self._lost[-1] = (self._lost[-1][0], step.until)
        elif len(self._lost) < LOSSES_KEPT:
            self._lost.append((step.until if step.is_gap else step.since, step.until))

    def _add_rhythm(self, reading: GpuReading, step: Step) -> None:
        if reading.busy_samples is None:
            percent = sane(reading.busy_percent, 100.0)
            if percent is not None and step.until > self._rhythm_until:
                self._rhythm.add(step.until, percent, step.longest)
                self._rhythm_until = step.until
            return
        offset = step.offset
        if unbroken(reading.busy_samples, self._rhythm_until, offset, step.until) is not None:
            added = [(at - offset, percent) for at, percent in reading.busy_samples]
            if self._rhythm.add_unbroken(added, SAMPLE_SECONDS_MAX):
                self._rhythm_until = added[-1][0]
                return
        for sample in reading.busy_samples:
            percent = sane(sample[1], 100.0)
            at = min(sample[0] - step.offset, step.until)
            if percent is not None and at > self._rhythm_until:
                self._rhythm.add(at, percent, SAMPLE_SECONDS_MAX)
                self._rhythm_until = at

    def summary(self, until: float) -> GpuSummary:
        """What was added; nothing may be added after it."""
        rhythm, gauges = self._rhythm, self._gauges
        rhythm.close()
        known = rhythm.seconds > 0
        core = self._core.report(until)
        received = gauges["pcie_rx_bytes_per_second"]
        courses = {"busy_percent": core.busy_course}
        courses |= {name: course.course(until) for name, course in self._courses.items()}
        return GpuSummary(
            identity=self._identity,
            core=core,
            duty=rhythm.duty,
            rhythm_seconds=rhythm.seconds if known else None,
            oscillating_seconds=rhythm.oscillating_seconds if known else None,
            period_seconds=rhythm.period_seconds,
            cycles=rhythm.cycles if known else None,
            sm_clock_mean_mhz=gauges["sm_clock_mhz"].mean,
            sm_clock_peak_mhz=gauges["sm_clock_mhz"].peak,
            memory_clock_mean_mhz=gauges["memory_clock_mhz"].mean,
            memory_mean_bytes=gauges["memory_used_bytes"].mean,
            received_bytes=received.integral,
            received_seconds=received.seconds,
            sent_bytes=gauges["pcie_tx_bytes_per_second"].integral,
            lost=tuple([Stretch(begin_unix_seconds=a, end_unix_seconds=b) for a, b in self._lost]),
            courses={name: course for name, course in courses.items() if has_values(course)},
        )


def has_values(course: Course) -> bool:
    return any(value is not None for value in course.mean)
