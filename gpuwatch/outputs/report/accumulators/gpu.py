"""One GPU over the time it is there: of a job, while the job is on it.

Its oscillation between idle and busy is seen in a window of the signal (``diagnosis.signals.
waveform``); a long recording is many windows, of which only sums are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

from gpuwatch.core.model import BusySample, Gpu, GpuReading
from gpuwatch.core.store import LONGEST_SAMPLE_SECONDS
from gpuwatch.diagnosis.signals.waveform import analyse
from gpuwatch.outputs.report.accumulators.sums import Energy, Gauge, Readings, Throttle, sane
from gpuwatch.outputs.report.accumulators.time_axis import Grid, Step, profiles
from gpuwatch.outputs.report.model import GpuUsage, Stretch, TimeProfile
from gpuwatch.outputs.report.phases import Cell, Span, spans

USERS_KEPT = 4
LOSSES_KEPT = 50
_PROFILES = ("power_watts", "memory_used_bytes", "temperature_celsius")
_FIGURES = (
    ("memory_mean_bytes", "memory_used_bytes", "mean"),
    ("memory_peak_bytes", "memory_used_bytes", "whole_peak"),
    ("power_mean_watts", "power_watts", "mean"),
    ("power_peak_watts", "power_watts", "peak"),
    ("temperature_peak_celsius", "temperature_celsius", "peak"),
    ("sm_active_percent", "sm_active_percent", "mean"),
    ("tensor_active_percent", "tensor_active_percent", "mean"),
    ("sm_clock_mean_mhz", "sm_clock_mhz", "mean"),
    ("sm_clock_peak_mhz", "sm_clock_mhz", "peak"),
    ("memory_clock_mean_mhz", "memory_clock_mhz", "mean"),
    ("received_bytes", "pcie_rx_bytes_per_second", "integral"),
    ("received_seconds", "pcie_rx_bytes_per_second", "seconds"),
    ("sent_bytes", "pcie_tx_bytes_per_second", "integral"),
)
_IDENTITY = (
    *("uuid", "index", "name", "machine", "mig_instance", "mig_parent_uuid", "memory_total_bytes"),
    "temperature_slowdown_celsius",
)


Tenants = tuple[float | None, Sequence[str | None]]
"""(bytes that the job holds, user of each other process) on one GPU in one snapshot."""


class GpuAccumulator:
    def __init__(self, gpu: Gpu, grid: Grid, now: float, *, fine: bool) -> None:
        """``fine``: with time profiles of more than how busy it was."""
        self._identity = gpu.identity
        self._busy_profile = grid.recorder()
        self._readings = Readings(_FIGURES, _PROFILES if fine else (), grid)
        self._energy = Energy()
        self._throttle = Throttle()
        self._rhythm = Rhythm()
        self._seen = 0.0
        self._watched = 0.0
        self._busy = 0.0
        self._busy_until = now
        self._busy_readings = 0
        self._busy_last: float | None = None
        self._sampled = False
        self._power_limit: float | None = None
        self._lost: list[tuple[float, float]] = []
        self._job_bytes = Gauge()
        self._tenant_seconds = 0.0
        self._tenants_peak = 0
        self._users: dict[str, None] = {}
        self.missing: str | None = None
        """Why the busy share cannot be read, if a problem said so."""

    def arrive(self, now: float) -> None:
        """Begin to count: the GPU is there (or the job is on it) from now on, at first or again."""
        self._busy_until = max(self._busy_until, now)
        self._energy.interrupt()

    def add(self, gpu: Gpu, step: Step, tenants: Tenants | None = None) -> None:
        """``tenants``: ``None`` where nobody looked."""
        self._seen += step.seconds
        if gpu.lost:
            self._note_loss(step)
            return
        self._identity = gpu.identity
        reading = gpu.reading
        if step.is_gap:
            # The driver's buffer remembers the last part of the time nobody looked.
            self.add_samples(reading.busy_samples or (), step)
            self._energy.add(sane(reading.energy_joules), None, 0.0)
            return
        self._add_busy(reading, step)
        if reading.power_limit_watts is not None:
            self._power_limit = sane(reading.power_limit_watts)
        self._readings.add(reading, step)
        self._energy.add(sane(reading.energy_joules), sane(reading.power_watts), step.seconds)
        self._throttle.add(reading, step.seconds)
        if tenants is not None:
            self._add_tenants(tenants, step.seconds)

    def _note_loss(self, step: Step) -> None:
        self._busy_until = max(self._busy_until, step.until)
        if self._lost and self._lost[-1][1] >= step.since:
            self._lost[-1] = (self._lost[-1][0], step.until)
        elif len(self._lost) < LOSSES_KEPT:
            self._lost.append((step.until if step.is_gap else step.since, step.until))

    def _add_tenants(self, tenants: Tenants, seconds: float) -> None:
        job_bytes, others = tenants
        self._job_bytes.add(job_bytes, seconds)
        if others:
            self._tenant_seconds += seconds
            self._tenants_peak = max(self._tenants_peak, len(others))
            self._users.update(dict.fromkeys(filter(None, others)))

    def _add_busy(self, reading: GpuReading, step: Step) -> None:
        self._busy_readings += reading.busy_percent is not None or bool(reading.busy_samples)
        if reading.busy_samples is not None:
            self.add_samples(reading.busy_samples, step)
            return
        percent = sane(reading.busy_percent, 100.0)
        self._busy_last = self._busy_last if percent is None else percent
        if percent is None or step.until <= self._busy_until:
            return
        # Samples never reach beyond the look before, so no time is counted twice.
        self._count(percent, step.seconds)
        self._busy_profile.add(step.since, step.until, percent)
        self._rhythm.add(step.until, percent, step.longest)
        self._busy_until = step.until

    def add_samples(self, samples: Sequence[BusySample], step: Step) -> None:
        """Samples come up to a second late, so time is counted up to the last of them, not up to
        the snapshot; each speaks for the time since the one before."""
        since, covered, busy = self._busy_until, 0.0, 0.0
        percents = []
        for stamp, percent in samples:
            # A stamp in the future is the driver's clock running ahead.
            at = min(stamp - step.offset, step.until)
            length = at - self._busy_until
            if not (length > 0.0 and 0.0 <= percent <= 100.0):
                continue
            self._rhythm.add(at, percent, LONGEST_SAMPLE_SECONDS)
            # Of what lies in a hole nothing is known.
            if length <= LONGEST_SAMPLE_SECONDS:
                self._busy_profile.add(self._busy_until, at, percent)
                covered += length
                busy += length * percent
            self._busy_until = at
            percents.append(percent)
        if not percents:
            return
        self._busy_last = percents[-1]
        self._sampled = True
        mean = busy / covered if covered > 0 else sum(percents) / len(percents)
        # With seldom looks the driver's buffer holds only the newest part of the time.
        passed = self._busy_until - since
        self._count(mean, passed if passed <= step.longest else covered)

    def _count(self, percent: float, seconds: float) -> None:
        if seconds > 0:
            self._watched += seconds
            self._busy += seconds * min(100.0, percent) / 100.0

    def usage(self, until: float) -> GpuUsage:
        """The use so far; ``until`` is where the time profiles end."""
        rhythm = self._rhythm.closed()
        energy, energy_from = self._energy.total()
        known, shaped = self._watched > 0, rhythm.seconds > 0
        busy = profiles({"busy_percent": self._busy_profile}, until)
        drawn = busy.get("busy_percent", TimeProfile())
        return GpuUsage(
            **{name: getattr(self._identity, name) for name in _IDENTITY},
            **self._readings.figures(),
            seen_seconds=self._seen,
            watched_seconds=self._watched if known else None,
            busy_readings=self._busy_readings,
            busy_low_percent=min([x for x in drawn.minimum if x is not None], default=None),
            busy_high_percent=max([x for x in drawn.maximum if x is not None], default=None),
            busy_last_percent=self._busy_last,
            busy_seconds=min(self._busy, self._watched) if known else None,
            busy_from_samples=self._sampled,
            busy_missing=None if known else self._why_unknown(),
            job_memory_peak_bytes=self._job_bytes.whole_peak,
            power_limit_watts=self._power_limit,
            energy_joules=energy,
            energy_from=energy_from,
            throttled=self._throttle.total(self._seen),
            duty=rhythm.duty,
            rhythm_seconds=rhythm.seconds if shaped else None,
            oscillating_seconds=rhythm.oscillating_seconds if shaped else None,
            period_seconds=rhythm.period_seconds,
            cycles=rhythm.cycles if shaped else None,
            other_tenant_seconds=self._tenant_seconds,
            other_tenants_peak=self._tenants_peak,
            other_users=tuple(self._users)[:USERS_KEPT],
            lost=tuple([Stretch(begin_unix_seconds=a, end_unix_seconds=b) for a, b in self._lost]),
            profiles=busy | self._readings.profiles(until),
        )

    def spans(self, until: float) -> list[Span]:
        """Return the spans of its work and rest, one after another, up to ``until``."""
        memory = self._readings.cells("memory_used_bytes")
        held = {begin: total / seconds for begin, _, seconds, total in memory}
        return spans(
            [
                Cell(begin, min(end, until), seconds, busy / 100.0, held.get(begin, 0.0))
                for begin, end, seconds, busy in self._busy_profile.cells()
            ]
        )

    def _why_unknown(self) -> str | None:
        if self._lost:
            return "the GPU was lost"
        if self._identity.mig_instance is not None:
            return "the driver reports none for a MIG instance"
        return self.missing


WINDOW_SECONDS = 60.0
WINDOW_SAMPLES = 12
"""Seldom samples need a longer window: this many at least."""
SAMPLES_MAX = 2048
SWINGS = 3
"""Whole busy and idle stretches that make a window an oscillation, also without a rhythm."""
STEPS_A_DOUBLING = 12
"""Periods are counted in classes 6% wide, which is finer than a period of steps varies."""


class Rhythm:
    """Fed with (seconds on the axis, percent), in the order of time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.busy_seconds = 0.0
        self.oscillating_seconds = 0.0
        self.cycles = 0.0
        self._periods: dict[int, tuple[float, float]] = {}
        """Class: (seconds, seconds times period)."""
        self._samples: list[tuple[float, float]] = []

    def add(self, at: float, percent: float, longest: float) -> None:
        """``longest``: from there on the time since the sample before is a gap."""
        samples = self._samples
        if samples and (
            at - samples[-1][0] > longest
            or (at - samples[0][0] >= WINDOW_SECONDS and len(samples) >= WINDOW_SAMPLES)
            or len(samples) >= SAMPLES_MAX
        ):
            self.close()
        self._samples.append((at, percent))

    def closed(self) -> Rhythm:
        """A copy in which what has come since the last window is one too."""
        made = copy(self)
        made._periods = dict(self._periods)
        made.close()
        return made

    def close(self) -> None:
        """Take what has come since the last window as one."""
        samples, self._samples = self._samples, []
        wave = analyse(samples)
        if wave is None:
            return
        self.seconds += wave.seconds
        self.busy_seconds += wave.seconds * wave.duty
        swings = min(wave.busy.count, wave.idle.count)
        if wave.period_seconds is not None or swings >= SWINGS:
            self.oscillating_seconds += wave.seconds
        if wave.period_seconds is not None:
            self.cycles += wave.seconds / wave.period_seconds
            place = round(math.log2(wave.period_seconds) * STEPS_A_DOUBLING)
            held, weighed = self._periods.get(place, (0.0, 0.0))
            self._periods[place] = (
                held + wave.seconds,
                weighed + wave.seconds * wave.period_seconds,
            )

    @property
    def duty(self) -> float | None:
        return self.busy_seconds / self.seconds if self.seconds > 0 else None

    @property
    def period_seconds(self) -> float | None:
        """Median period, weighted by the time in which there was one."""
        half = sum(held for held, _ in self._periods.values()) / 2
        passed = 0.0
        for _, (held, weighed) in sorted(self._periods.items()):
            passed += held
            if passed >= half:
                return weighed / held
        return None
