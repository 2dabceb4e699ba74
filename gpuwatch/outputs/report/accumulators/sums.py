"""Running sums over readings that may be missing, and those of the machine (of a GPU: ``gpu``),
which become figures and time profiles of a report.
"""

import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from gpuwatch.core.model import GpuReading, Host
from gpuwatch.outputs.report.accumulators.time_axis import Grid, Step, profiles
from gpuwatch.outputs.report.model import HostUsage, Profiles, Throttling

NOT_THROTTLING = frozenset({"gpu_idle", "applications_clocks_setting", "display_clock_setting"})
"""Reasons for low clocks by which nothing is lost: nothing to do, or a person's own setting."""
REASONS_KEPT = 32


def sane(value: float | None, most: float = math.inf) -> float | None:
    """``value`` as a float between 0 and ``most``; ``None`` for what is no measurement."""
    if value is None or not 0.0 <= value <= most or value == math.inf:
        return None
    return float(value)


def whole(value: float | None) -> int | None:
    """For peaks of readings that are whole numbers."""
    return None if value is None else round(value)


class Gauge:
    """Mean (weighted by time) and peak of one reading; ``None`` readings do not count."""

    __slots__ = ("peak", "seconds", "total")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.total = 0.0
        self.peak: float | None = None

    def add(self, value: float | None, seconds: float) -> None:
        """``value`` held for ``seconds`` (0: it was seen, which only a peak takes note of)."""
        if value is None or not 0.0 <= value < math.inf:
            return
        if self.peak is None or value > self.peak:
            self.peak = float(value)
        if seconds > 0:
            self.seconds += seconds
            self.total += value * seconds

    @property
    def whole_peak(self) -> int | None:
        return whole(self.peak)

    @property
    def mean(self) -> float | None:
        return self.total / self.seconds if self.seconds > 0 else None

    @property
    def integral(self) -> float | None:
        """Value times seconds; ``None`` when it was never read for a time."""
        return self.total if self.seconds > 0 else None


class Energy:
    """The growth of the GPU's counter; where it has none, power times time."""

    __slots__ = ("_counted", "_counter", "_integrated")

    def __init__(self) -> None:
        self._counter: float | None = None
        self._counted: float | None = None
        self._integrated: float | None = None

    def add(self, joules: float | None, watts: float | None, seconds: float) -> None:
        if watts is not None and seconds > 0:
            self._integrated = (self._integrated or 0.0) + watts * seconds
        if joules is None:
            return
        before, self._counter = self._counter, joules
        if before is not None and joules >= before:
            self._counted = (self._counted or 0.0) + joules - before

    def interrupt(self) -> None:
        """Leave out what the counter grows by until it is read next."""
        self._counter = None

    def total(self) -> tuple[float | None, str | None]:
        """Joules, and where they are from (``GpuUsage.energy_from``)."""
        if self._counted is not None:
            return self._counted, "counter"
        return self._integrated, None if self._integrated is None else "power"


class Throttle:
    """Time by reason: from the driver's counters, where it has any; else the reasons in force times
    the time."""

    __slots__ = ("_counted", "_in_force")

    def __init__(self) -> None:
        self._counted: dict[str, float] | None = None
        self._in_force: dict[str, float] | None = None

    def add(self, reading: GpuReading, seconds: float) -> None:
        if reading.throttle_durations is not None:
            self._counted = self._counted or {}
            # What a counter says after a gap is about the time before.
            for reason, held in reading.throttle_durations if seconds > 0 else ():
                _hold(self._counted, reason, sane(held))
        if reading.throttle_reasons is not None:
            self._in_force = self._in_force or {}
            for reason in reading.throttle_reasons:
                _hold(self._in_force, reason, seconds)

    def total(self, most: float) -> tuple[Throttling, ...] | None:
        """The longest first, none longer than ``most``."""
        found = self._in_force if self._counted is None else self._counted
        if found is None:
            return None
        longest_first = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return tuple(
            [Throttling(reason=reason, seconds=min(held, most)) for reason, held in longest_first]
        )


def _hold(held: dict[str, float], reason: str, seconds: float | None) -> None:
    if seconds and reason not in NOT_THROTTLING and (reason in held or len(held) < REASONS_KEPT):
        held[reason] = held.get(reason, 0.0) + seconds


Figures = Sequence[tuple[str, str, str]]
"""The field of the report, the reading, and what is made of it (``Gauge``)."""


class Readings:
    """Means, peaks and sums over time of readings that have the name of a field of the model."""

    def __init__(self, figures: Figures, profiled: Iterable[str], grid: Grid) -> None:
        """``profiled``: those of the readings that have a time profile too."""
        self._figures = figures
        names = dict.fromkeys([name for _, name, _ in figures])
        self._gauges = {name: Gauge() for name in names}
        self._profiles = {name: grid.recorder() for name in profiled}
        # Once for each GPU in each look: everything in one tuple.
        self._read = attrgetter(*names)
        self._rows = [
            (gauge, 100.0 if name.endswith("percent") else 1e18, self._profiles.get(name))
            for name, gauge in self._gauges.items()
        ]

    def add(self, item: object, step: Step) -> None:
        """``item`` said so for the time of ``step``; over a gap only for its end."""
        seconds = 0.0 if step.is_gap else step.seconds
        for value, (gauge, most, profile) in zip(self._read(item), self._rows, strict=True):
            if value is None or not 0.0 <= value <= most:
                continue
            gauge.add(value, seconds)
            if seconds and profile is not None:
                profile.add(step.since, step.until, value)

    def figures(self) -> dict[str, Any]:
        """By the fields of the report."""
        return {name: getattr(self._gauges[of], what) for name, of, what in self._figures}

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
        self._silent: Host | None = None
        """One that says nothing but its name: in a log it is the same each time."""

    def add(self, host: Host, step: Step) -> None:
        if host is self._silent:
            return
        if host == Host(name=host.name):
            self._silent = host
        said = {name: getattr(host, name) for name in _FACTS}
        self._facts |= {name: value for name, value in said.items() if value is not None}
        self._readings.add(host, step)

    def usage(self, until: float) -> HostUsage:
        figures = self._readings.figures()
        return HostUsage(**figures, **self._facts, profiles=self._readings.profiles(until))
