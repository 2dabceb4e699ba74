"""One GPU of a job over the time the job is on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul, sub

from gpuwatch.core.model import BusySample, Gpu, GpuIdentity, GpuReading, ReasonSeconds
from gpuwatch.jobs.report.gauge import Gauge, Held, sane, whole
from gpuwatch.jobs.report.report import GpuReport
from gpuwatch.jobs.report.time_profile import Grid

SAMPLE_SECONDS_MAX = 1.5
"""NVML's sample period is at most 1 s; a sample much later has a hole before it."""

NOT_THROTTLING = frozenset({"gpu_idle", "applications_clocks_setting", "display_clock_setting"})
"""Reasons for low clocks by which nothing is lost: nothing to do, or a person's own setting."""

COUNTER_PATIENCE_SECONDS = 5.0
"""Throttle counters are read less often than snapshots are taken; silent for longer than this,
they are taken for missing and the reasons in force speak for them."""

USERS_KEPT = 4


@dataclass(frozen=True, slots=True)
class Span:
    """The time one look at the GPU speaks for."""

    since: float
    until: float
    """Monotonic seconds; equal where nothing can be said of the time before."""
    longest: float
    """A hole in the fine samples up to this long is covered by those around it."""
    wall_offset: float
    """Unix time less monotonic time."""

    @property
    def seconds(self) -> float:
        return self.until - self.since


def unbroken(
    samples: Sequence[BusySample], since: float, wall_offset: float, until: float
) -> list[float] | None:
    """The time from each sample to the next, the first from ``since`` (monotonic); ``None`` where
    they are not in order, or not percents, or have holes, or reach beyond ``until``."""
    if not samples or not samples[-1][0] - wall_offset <= until:
        return None
    times = [since + wall_offset]
    times += [at for at, _ in samples]
    steps = list(map(sub, times[1:], times))
    percents = [percent for _, percent in samples]
    # NaN is unlike itself, and so is a sum with it.
    whole = sum(steps) + sum(percents)
    if (
        whole != whole  # noqa: PLR0124
        or min(steps) <= 0
        or max(steps) > SAMPLE_SECONDS_MAX
        or min(percents) < 0
        or max(percents) > 100.0
    ):
        return None
    return steps


class Tenants:
    """Who was seen on one GPU in one snapshot."""

    __slots__ = ("job_bytes", "others", "users")

    def __init__(self) -> None:
        self.job_bytes: int | None = None
        self.others = 0
        self.users: list[str] = []


class GpuRecorder:
    """Fed once a snapshot while the job is on the GPU."""

    def __init__(self, identity: GpuIdentity, grid: Grid, now: float) -> None:
        self._identity = identity
        self._course = grid.course()
        self.held_seconds = 0.0
        self._busy_until = now
        self._watched = 0.0
        self._busy = 0.0
        self._busy_known = False
        self._sampled = False
        self._lost_at: float | None = None
        self._power_limit: float | None = None
        self._energy = Energy()
        self._throttle = Throttle()
        self._gauges: dict[str, Gauge] = {name: Gauge() for name in _GAUGES}
        self._job_bytes = Gauge()
        self._tenant_seconds = 0.0
        self._tenants_peak = 0
        self._users: list[str] = []
        self.missing: str | None = None
        """Why the busy share cannot be read, if a problem said so."""

    def arrive(self, now: float) -> None:
        """The job is on this GPU from now on, at first or again."""
        self._busy_until = max(self._busy_until, now)
        self._energy.interrupt()

    def add_late(self, samples: tuple[BusySample, ...], span: Span) -> None:
        """Samples that came after the end, of the time up to ``span.until``."""
        self._add_samples(samples, span)

    def add(self, gpu: Gpu | None, span: Span, tenants: Tenants | None) -> None:
        """``gpu`` is ``None`` where the snapshot has none of this uuid; ``tenants`` where nobody
        looked."""
        seconds = span.seconds
        self.held_seconds += seconds
        if gpu is None or gpu.lost:
            self._note_loss(gpu, span)
            return
        self._identity = gpu.identity
        reading = gpu.reading
        self._add_busy(reading, span)
        if reading.power_limit_watts is not None:
            self._power_limit = sane(reading.power_limit_watts)
        for name, gauge in self._gauges.items():
            gauge.add(getattr(reading, name), seconds)
        self._energy.add(sane(reading.energy_joules), sane(reading.power_watts), seconds)
        self._throttle.add(reading, seconds)
        if tenants is not None:
            self._add_tenants(tenants, seconds)

    def skip(self, span: Span, gpu: Gpu | None) -> None:
        """Too long since the last look: the job held the GPU, but nobody watched."""
        self.held_seconds += span.seconds
        if gpu is None or gpu.lost:
            self._note_loss(gpu, span)
            return
        self._energy.add(sane(gpu.reading.energy_joules), None, 0.0)
        if gpu.reading.busy_samples:
            # The driver's buffer remembers the last part of the time nobody looked.
            self._add_samples(gpu.reading.busy_samples, span)

    def _note_loss(self, gpu: Gpu | None, span: Span) -> None:
        self._busy_until = max(self._busy_until, span.until)
        if self._lost_at is None and gpu is not None:
            self._lost_at = span.until + span.wall_offset

    def _add_tenants(self, tenants: Tenants, seconds: float) -> None:
        self._job_bytes.add(tenants.job_bytes, seconds)
        if not tenants.others:
            return
        self._tenant_seconds += seconds
        self._tenants_peak = max(self._tenants_peak, tenants.others)
        for user in tenants.users:
            if user not in self._users and len(self._users) < USERS_KEPT:
                self._users.append(user)

    def _add_busy(self, reading: GpuReading, span: Span) -> None:
        samples = reading.busy_samples
        if samples is not None:
            self._add_samples(samples, span)
            return
        percent = sane(reading.busy_percent, 100.0)
        if percent is None:
            return
        # Samples never reach beyond the look before, so no time is counted twice.
        self._count(percent, span.seconds)
        self._course.add(span.since, span.until, percent)
        self._busy_until = span.until

    def _add_samples(self, samples: tuple[BusySample, ...], span: Span) -> None:
        """Samples come up to a second late, so time is counted up to the last of them, not up to
        the snapshot; each speaks for the time since the one before."""
        if self._add_unbroken(samples, span):
            return
        start = self._busy_until
        covered = busy = hole = percents = 0.0
        count = 0
        for sample in samples:
            percent = sane(sample[1], 100.0)
            # A stamp in the future is the driver's clock running ahead.
            at = min(sample[0] - span.wall_offset, span.until)
            step = at - self._busy_until
            # NaN is none of these; a sample of a time already counted came twice.
            if percent is None or not step > 0:
                continue
            if step <= SAMPLE_SECONDS_MAX:
                covered += step
                busy += step * percent
                self._course.add(self._busy_until, at, percent)
            else:
                hole += step
            percents += percent
            count += 1
            self._busy_until = at
        if not count:
            return
        self._sampled = True
        mean = busy / covered if covered > 0 else percents / count
        # With seldom looks the driver's buffer holds only the newest part of the time.
        whole_span = self._busy_until - start <= span.longest
        self._count(mean, covered + hole if whole_span else covered)

    def _add_unbroken(self, samples: tuple[BusySample, ...], span: Span) -> bool:
        """All at once where there is nothing odd about them, as nearly always; whether there is
        not."""
        steps = unbroken(samples, self._busy_until, span.wall_offset, span.until)
        if steps is None:
            return False
        percents = [percent for _, percent in samples]
        end = samples[-1][0] - span.wall_offset
        total, covered = sum(map(mul, steps, percents)), sum(steps)
        if not self._course.add_all(self._busy_until, end, percents, total):
            return False
        self._busy_until = end
        self._sampled = True
        self._count(total / covered, covered)
        return True

    def _count(self, percent: float, seconds: float) -> None:
        if seconds > 0:
            self._busy_known = True
            self._watched += seconds
            self._busy += seconds * min(100.0, percent) / 100.0

    def report(self, until: float) -> GpuReport:
        """What is known so far; ``until`` is where the courses end."""
        identity, gauges = self._identity, self._gauges
        energy, energy_from = self._energy.total()
        return GpuReport(
            index=identity.index,
            uuid=identity.uuid,
            name=identity.name,
            mig_instance=identity.mig_instance,
            memory_total_bytes=identity.memory_total_bytes,
            power_limit_watts=self._power_limit,
            held_seconds=self.held_seconds,
            watched_seconds=self._watched if self._busy_known else None,
            busy_seconds=min(self._busy, self._watched) if self._busy_known else None,
            busy_from_samples=self._sampled,
            busy_missing=None if self._busy_known else self._why_unknown(),
            sm_active_percent=gauges["sm_active_percent"].mean,
            tensor_active_percent=gauges["tensor_active_percent"].mean,
            job_memory_peak_bytes=whole(self._job_bytes.peak),
            memory_peak_bytes=whole(gauges["memory_used_bytes"].peak),
            power_mean_watts=gauges["power_watts"].mean,
            power_peak_watts=gauges["power_watts"].peak,
            energy_joules=energy,
            energy_from=energy_from,
            throttled=self._throttle.total(self.held_seconds),
            temperature_peak_celsius=gauges["temperature_celsius"].peak,
            other_tenant_seconds=self._tenant_seconds,
            other_tenants_peak=self._tenants_peak,
            other_users=tuple(self._users),
            lost_at_unix_seconds=self._lost_at,
            busy_course=self._course.course(until),
        )

    def _why_unknown(self) -> str | None:
        if self._lost_at is not None:
            return "the GPU was lost"
        if self._identity.mig_instance is not None:
            return "the driver reports none for a MIG instance"
        return self.missing


_GAUGES = (
    "power_watts",
    "temperature_celsius",
    "memory_used_bytes",
    "sm_active_percent",
    "tensor_active_percent",
)


class Energy:
    """The growth of the GPU's counter, and power times time where it says nothing."""

    __slots__ = ("_counted", "_counter", "_integrated", "_since_counter")

    def __init__(self) -> None:
        self._counter: float | None = None
        self._counted: float | None = None
        self._integrated: float | None = None
        self._since_counter: float | None = None

    def add(self, joules: float | None, watts: float | None, seconds: float) -> None:
        if watts is not None and seconds > 0:
            self._since_counter = (self._since_counter or 0.0) + watts * seconds
        if joules is None:
            return
        before, self._counter = self._counter, joules
        if before is not None and joules >= before:
            # It counted through whatever was integrated meanwhile.
            self._counted = (self._counted or 0.0) + joules - before
            self._since_counter = None
        else:
            self._keep_integrated()

    def interrupt(self) -> None:
        """What the counter grows by until it is read next is not the job's."""
        self._keep_integrated()
        self._counter = None

    def _keep_integrated(self) -> None:
        if self._since_counter is not None:
            self._integrated = (self._integrated or 0.0) + self._since_counter
            self._since_counter = None

    def total(self) -> tuple[float | None, str | None]:
        parts = [
            part
            for part in (self._counted, self._integrated, self._since_counter)
            if part is not None
        ]
        if not parts:
            return None, None
        if self._counted is None:
            return sum(parts), "power"
        return sum(parts), "counter" if len(parts) == 1 else "counter and power"


class Throttle:
    """Time by reason: from the driver's counters, else the reasons in force times the time."""

    __slots__ = ("_known", "_seconds", "_waiting", "_waiting_seconds")

    def __init__(self) -> None:
        self._known = False
        self._seconds = Held()
        self._waiting = Held()
        self._waiting_seconds = 0.0

    def add(self, reading: GpuReading, seconds: float) -> None:
        durations, reasons = reading.throttle_durations, reading.throttle_reasons
        self._known = self._known or durations is not None or reasons is not None
        if seconds <= 0:
            # What a counter says now is about the time before the job was here.
            return
        if durations is not None:
            self._waiting = Held()
            self._waiting_seconds = 0.0
            for reason, held in durations:
                time = sane(held)
                if time and reason not in NOT_THROTTLING:
                    self._seconds.add(reason, time)
            return
        if reasons is None:
            return
        for reason in reasons:
            if reason not in NOT_THROTTLING:
                self._waiting.add(reason, seconds)
        self._waiting_seconds += seconds
        if self._waiting_seconds > COUNTER_PATIENCE_SECONDS:
            self._take_waiting()

    def _take_waiting(self) -> None:
        for reason, time in self._waiting.seconds.items():
            self._seconds.add(reason, time)
        self._waiting = Held()
        self._waiting_seconds = 0.0

    def total(self, most: float) -> tuple[ReasonSeconds, ...] | None:
        """The longest first, none longer than ``most``."""
        if not self._known:
            return None
        totals = dict(self._seconds.seconds)
        for reason, time in self._waiting.seconds.items():
            totals[reason] = totals.get(reason, 0.0) + time
        ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
        return tuple([ReasonSeconds(reason, min(time, most)) for reason, time in ordered])
