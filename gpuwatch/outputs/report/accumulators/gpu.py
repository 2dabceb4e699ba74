"""One GPU over the time it is there: of a job, while the job is on it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul, sub

from gpuwatch.core.history import LONGEST_SAMPLE_SECONDS
from gpuwatch.core.model import BusySample, Gpu, GpuReading
from gpuwatch.outputs.report.accumulators.rhythm import Rhythm
from gpuwatch.outputs.report.accumulators.steps import Step
from gpuwatch.outputs.report.accumulators.sums import Energy, Gauge, Throttle, sane
from gpuwatch.outputs.report.accumulators.time_profile import Grid, profiles
from gpuwatch.outputs.report.parts import GpuUsage, Stretch

USERS_KEPT = 4
LOSSES_KEPT = 50
PROFILES = ("power_watts", "memory_used_bytes", "temperature_celsius")
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
"""The field of the report, the reading, and what is made of it (``Gauge``)."""
_IDENTITY = (
    *("uuid", "index", "name", "mig_instance", "mig_parent_uuid", "memory_total_bytes"),
    "temperature_slowdown_celsius",
)


class Tenants:
    """Processes seen on one GPU in one snapshot."""

    __slots__ = ("job_bytes", "others", "users")

    def __init__(self) -> None:
        self.job_bytes: int | None = None
        self.others = 0
        self.users: list[str] = []


class GpuAccumulator:
    """Fed once a snapshot while the GPU is there."""

    def __init__(self, gpu: Gpu, grid: Grid, now: float, *, fine: bool) -> None:
        """``fine``: with time profiles of more than how busy it was."""
        self._identity = gpu.identity
        self._profiles = {"busy_percent": grid.recorder()}
        self._profiles |= {name: grid.recorder() for name in PROFILES if fine}
        self._gauges = {reading: Gauge() for _, reading, _ in _FIGURES}
        self._energy = Energy()
        self._throttle = Throttle()
        self._rhythm = Rhythm()
        self._seen = 0.0
        self._watched = 0.0
        self._busy = 0.0
        self._busy_until = now
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
        """It is there (or the job is on it) from now on, at first or again."""
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
        for name, gauge in self._gauges.items():
            gauge.add(getattr(reading, name), step.seconds)
        for name, profile in self._profiles.items():
            value = None if name == "busy_percent" else sane(getattr(reading, name))
            if value is not None:
                profile.add(step.since, step.until, value)
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
        self._job_bytes.add(tenants.job_bytes, seconds)
        if tenants.others:
            self._tenant_seconds += seconds
            self._tenants_peak = max(self._tenants_peak, tenants.others)
            self._users.update(dict.fromkeys(tenants.users))

    def _add_busy(self, reading: GpuReading, step: Step) -> None:
        if reading.busy_samples is not None:
            self.add_samples(reading.busy_samples, step)
            return
        percent = sane(reading.busy_percent, 100.0)
        if percent is None or step.until <= self._busy_until:
            return
        # Samples never reach beyond the look before, so no time is counted twice.
        self._count(percent, step.seconds)
        self._profiles["busy_percent"].add(step.since, step.until, percent)
        self._rhythm.add(step.until, percent, step.longest)
        self._busy_until = step.until

    def add_samples(self, samples: Sequence[BusySample], step: Step) -> None:
        """Samples come up to a second late, so time is counted up to the last of them, not up to
        the snapshot; each speaks for the time since the one before."""
        if self._add_unbroken(samples, step):
            return
        start = self._busy_until
        covered = busy = hole = percents = 0.0
        count = 0
        for sample in samples:
            percent = sane(sample[1], 100.0)
            # A stamp in the future is the driver's clock running ahead.
            at = min(sample[0] - step.offset, step.until)
            passed = at - self._busy_until
            # NaN is none of these; a sample of a time already counted came twice.
            if percent is None or not passed > 0:
                continue
            if passed <= LONGEST_SAMPLE_SECONDS:
                covered += passed
                busy += passed * percent
                self._profiles["busy_percent"].add(self._busy_until, at, percent)
            else:
                hole += passed
            self._rhythm.add(at, percent, LONGEST_SAMPLE_SECONDS)
            percents += percent
            count += 1
            self._busy_until = at
        if not count:
            return
        self._sampled = True
        mean = busy / covered if covered > 0 else percents / count
        # With seldom looks the driver's buffer holds only the newest part of the time.
        whole_step = self._busy_until - start <= step.longest
        self._count(mean, covered + hole if whole_step else covered)

    def _add_unbroken(self, samples: Sequence[BusySample], step: Step) -> bool:
        """All at once where there is nothing odd about them, as nearly always; whether there is
        not."""
        since, offset = self._busy_until, step.offset
        lengths = unbroken(samples, since, offset, step.until)
        if lengths is None:
            return False
        percents = [percent for _, percent in samples]
        end = samples[-1][0] - offset
        total, covered = sum(map(mul, lengths, percents)), sum(lengths)
        if not self._profiles["busy_percent"].add_all(since, end, percents, total):
            return False
        self._rhythm.add_unbroken(
            [(at - offset, percent) for at, percent in samples], LONGEST_SAMPLE_SECONDS
        )
        self._busy_until = end
        self._sampled = True
        self._count(total / covered, covered)
        return True

    def _count(self, percent: float, seconds: float) -> None:
        if seconds > 0:
            self._watched += seconds
            self._busy += seconds * min(100.0, percent) / 100.0

    def usage(self, until: float) -> GpuUsage:
        """The use so far; ``until`` is where the time profiles end."""
        rhythm = self._rhythm.closed()
        energy, energy_from = self._energy.total()
        known, shaped = self._watched > 0, rhythm.seconds > 0
        return GpuUsage(
            **{name: getattr(self._identity, name) for name in _IDENTITY},
            **{name: getattr(self._gauges[reading], what) for name, reading, what in _FIGURES},
            seen_seconds=self._seen,
            watched_seconds=self._watched if known else None,
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
            profiles=profiles(self._profiles, until),
        )

    def _why_unknown(self) -> str | None:
        if self._lost:
            return "the GPU was lost"
        if self._identity.mig_instance is not None:
            return "the driver reports none for a MIG instance"
        return self.missing


def unbroken(
    samples: Sequence[BusySample], since: float, offset: float, until: float
) -> list[float] | None:
    """The time from each sample to the next, the first from ``since``; ``None`` where they are not
    in order, or not percents, or have holes, or reach beyond ``until``."""
    if not samples or not samples[-1][0] - offset <= until:
        return None
    times = [since + offset]
    times += [at for at, _ in samples]
    steps = list(map(sub, times[1:], times))
    percents = [percent for _, percent in samples]
    # NaN is unlike itself, and so is a sum with it.
    whole_sum = sum(steps) + sum(percents)
    if (
        whole_sum != whole_sum  # noqa: PLR0124
        or min(steps) <= 0
        or max(steps) > LONGEST_SAMPLE_SECONDS
        or min(percents) < 0
        or max(percents) > 100.0
    ):
        return None
    return steps
