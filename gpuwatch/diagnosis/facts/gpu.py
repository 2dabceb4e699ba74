"""One GPU, and how one job uses it (or nobody does), followed from snapshot to snapshot."""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import pairwise
from operator import attrgetter, sub
from typing import Any

from gpuwatch.core.bounds import mean
from gpuwatch.core.model import BusySample, Gpu, GpuReading, Process, ReasonSeconds
from gpuwatch.core.store import Table
from gpuwatch.core.throttling import REASONS
from gpuwatch.diagnosis.facts.counters import Counters
from gpuwatch.diagnosis.facts.window import FactTable, GpuFacts
from gpuwatch.diagnosis.finding import WINDOW_SECONDS
from gpuwatch.diagnosis.signals.load import LOAD_SECONDS, PLATEAU, RESIDENT_PERCENT, Load
from gpuwatch.diagnosis.signals.stretches import KEEP_SECONDS, PauseWatch, Recovery, Sample
from gpuwatch.diagnosis.signals.trend import Trend
from gpuwatch.diagnosis.signals.waveform import (
    GAP_SAMPLES,
    IDLE_PERCENT,
    SILENT_PERCENT,
    Samples,
    analyse,
    columns,
)

DENSEST_SECONDS = 0.08
"""Samples nearer together than this are merged to ``MERGED_SECONDS``: nothing here needs them, and
each costs."""
MERGED_SECONDS = 0.1
AHEAD_SECONDS = 1.0
"""How far the driver's clock may be ahead of ours."""
FINE_STALE_SECONDS = 10.0
"""A driver that has brought no sample for so long is polled."""
SPAN = 1 / 3
"""Share of the time watched that samples must span: two seconds say nothing of a minute."""
NOW_SECONDS = 5.0
RESTED_STATE = 8
"""NVML's P8 and the states below it: their clocks are those of an idle card."""
EVEN_SHARE, EVEN_MOSTLY = 0.1, 0.8
"""Distances of samples that are even: most of them within a tenth of the usual one."""
QUIET_SECONDS = 5.0
"""Rest after which memory that a GPU gains was loaded, not left behind by steps."""
USERS_SECONDS = 2.9
"""How much of a GPU each process uses is a mean of seconds; and jobs are read as seldom."""


class GpuTrack:
    """Readings of a GPU over the last minutes, whoever uses it. ``not_before``: monotonic time from
    which on the driver's samples count."""

    def __init__(self, gpu: Gpu, not_before: float) -> None:
        self.identity, self.lost = gpu.identity, gpu.lost
        self.allocated_to, self._since = gpu.allocated_to, not_before
        self.xid_errors = gpu.xid_errors
        self.seen_at = -math.inf
        self.uses = 0
        """Number of ``JobOnGpu`` that share it."""
        self.watched_seconds = 0.0
        self.read_at: float | None = None
        """When its utilisation was read last."""
        self.pauses = PauseWatch()
        self.recovery = Recovery()
        self.table = FactTable(GpuFacts, _MORE, keep_seconds=LOAD_SECONDS)
        self.memory = Table(_MEMORY, tiers=(), keep_seconds=KEEP_SECONDS + WINDOW_SECONDS)
        """How much memory was used, to say what a pause was."""
        self.fine = False
        """``samples`` holds the driver's samples, not polls."""
        self._samples = Table(_BUSY, tiers=(), code="d", keep_seconds=WINDOW_SECONDS)
        self._link_errors = Counters()
        self.load = Load(self.table)
        self.ran_at: float | None = None
        """When it was last seen to run anything; where that cannot be read, it may have."""
        self._not_before = not_before
        self._began = math.inf
        self._reasons = Table(_REASONS, tiers=(), keep_seconds=WINDOW_SECONDS)
        """Share of the time in which each reason held (0 to 1), of the rows in which it did."""
        self._last = GpuReading()
        self._boiled_down: tuple[tuple[float, float], dict[str, Any]] | None = None
        """The newest facts, and of when."""

    def push(self, gpu: Gpu, at: float, seconds: float, offset: float, *, rests: bool) -> None:
        """Take a reading. ``offset`` is unix less monotonic time, ``seconds`` what it speaks for;
        ``rests``: its job is stopped, and what the GPU does now says nothing of it."""
        reading, self.xid_errors = gpu.reading, gpu.xid_errors
        self.seen_at, self.lost, self.identity = at, gpu.lost, gpu.identity
        if gpu.allocated_to != self.allocated_to:
            self.allocated_to, self._since = gpu.allocated_to, at
        if is_read(reading) and not gpu.lost:
            self.read_at = at
        if not gpu.lost:
            self._link_errors.add_counts(at, _link_errors(reading))
        if gpu.lost or rests:
            self._began = at
            self._gap()
            return
        self._began = min(at, self._began)
        self.watched_seconds += seconds
        low, high, newest = self._take_samples(reading, at, seconds, offset)
        self.load.add_power(reading.power_watts, seconds)
        if not is_read(reading) or (newest is not None and newest >= SILENT_PERCENT):
            self.ran_at = at
        worked_out = _worked_out(reading, low, high)
        self.table.observe(at, seconds, reading, {**worked_out, "busy": newest})
        self.memory.add_row(at, seconds, (reading.memory_used_bytes,))
        self._take_reasons(reading, at, seconds)
        self._last = reading

    def _gap(self) -> None:
        self.pauses.gap()
        self.recovery.gap()

    def _take_samples(
        self, reading: GpuReading, at: float, seconds: float, offset: float
    ) -> tuple[float, float, float | None]:
        """Return the lowest and highest of what is newest (under it, the other readings were
        taken), and the mean of what came in these ``seconds``."""
        fine = reading.busy_samples
        fresh = [] if not fine else self._fresh(fine, at, offset)
        if fresh:
            if not self.fine:
                self._samples.clear()
                self._gap()
                self.fine = True
            spacing = fresh[-1][0] - fresh[-2][0] if len(fresh) > 1 else seconds
            self._append(fresh, spacing)
            last = [percent for _, percent in fresh[-2:]]
            self.pauses.forget_before(at - KEEP_SECONDS)
            return min(last), max(last), mean([one for stamp, one in fresh if stamp > at - seconds])
        stale = at - self._samples.latest_at > FINE_STALE_SECONDS
        percent = reading.busy_percent
        if percent is None:
            return -1.0, 101.0, None
        if self.fine and not stale:
            return percent, percent, None
        if self.fine:
            self._samples.clear()
            self.fine = False
        self._append([(at, percent)], seconds)
        self.pauses.forget_before(at - KEEP_SECONDS)
        return percent, percent, percent

    def _fresh(
        self, samples: tuple[BusySample, ...], at: float, offset: float
    ) -> list[tuple[float, float]]:
        """Return the samples that are new, in monotonic time; a clock that jumped brings nothing
        from the future."""
        after = self._samples.latest_at if self.fine else -math.inf
        after = max(after, at - WINDOW_SECONDS) if after == -math.inf else after
        after = max(after + 1e-4, self._not_before)
        found = [
            (stamp - offset, percent)
            for stamp, percent in samples
            if after < stamp - offset <= at + AHEAD_SECONDS
        ]
        count = len(found)
        if count > 4 and found[-1][0] - found[0][0] < DENSEST_SECONDS * (count - 1):
            return _merged(found)
        return found

    def _append(self, fresh: list[tuple[float, float]], spacing: float) -> None:
        """Append new samples; ``spacing``: their usual distance."""
        longest, before = GAP_SAMPLES * max(spacing, MERGED_SECONDS), self._samples.latest_at
        if before == -math.inf:
            before = fresh[0][0] - spacing
        rows = list[Sample]()
        for at, percent in fresh:
            length = at - before
            before = at
            if length > longest:
                self._follow(rows)
                rows.clear()
                self._gap()
                length = spacing
            rows.append((at, percent, length))
            self._samples.add_row(at, length, (percent,))
        self._follow(rows)

    def _follow(self, rows: Sequence[Sample]) -> None:
        if rows:
            self.pauses.extend(rows)
            self.recovery.extend(rows)

    def _take_reasons(self, reading: GpuReading, at: float, seconds: float) -> None:
        durations, reasons = reading.throttle_durations, reading.throttle_reasons
        if seconds <= 0.0 or (durations is None and reasons is None):
            return
        held = dict.fromkeys(reasons or (), 1.0)
        for name, length in durations or ():
            held.pop(name, None)
            if length > 0.0:
                held[name] = min(1.0, length / seconds)
        if not held.keys() <= set(self._reasons.names):
            self._reasons.name(tuple(dict.fromkeys([*self._reasons.names, *held])))
        names = self._reasons.names
        self._reasons.add_row(at, seconds, [held.get(str(name)) for name in names])

    @property
    def is_sampled(self) -> bool:
        """Whether anything of its utilisation is known, be it from before the window."""
        return self._samples.latest_at > -math.inf

    def samples(self, since: float = -math.inf) -> Samples:
        """Return how busy it was after ``since``, as far as it is kept: (monotonic seconds,
        percent), oldest first."""
        since = max(since, self._samples.latest_at - WINDOW_SECONDS)
        times, (values,) = self._samples.readings_since(since, _BUSY)
        return Samples(times, values)

    @property
    def memory_used_bytes(self) -> int | None:
        return self._last.memory_used_bytes

    def facts(self, since: float) -> dict[str, Any]:
        """Return facts by name, over the time after ``since``; jobs that share it are looked at
        together."""
        if self._boiled_down is None or self._boiled_down[0] != (self.seen_at, since):
            self._boiled_down = ((self.seen_at, since), self._facts(since))
        return self._boiled_down[1]

    def _facts(self, since: float) -> dict[str, Any]:
        samples = self.samples(since)
        span = samples[-1][0] - samples[0][0] if samples else 0.0
        enough = span >= SPAN * (self.seen_at - max(since, self._began))
        usual, plateau = self.load.watts_at(0.75, PLATEAU)
        spins_share, spins = self.load.spins(since)
        highest = self._highest
        pcie_replays, nvlink_replays, nvlink_recoveries = self._link_errors.rises() or 3 * (None,)
        now = self._samples.over("busy", self.seen_at - NOW_SECONDS)
        return dict(
            self.table.facts(since),
            identity=self.identity,
            lost=self.lost,
            xid_errors=self.xid_errors,
            allocated_to=self.allocated_to,
            allocated_seconds=None if self.allocated_to is None else self.seen_at - self._since,
            busy=analyse(samples) if enough else None,
            busy_read=self.is_sampled,
            busy_polled_evenly=not self.fine and _is_even(samples) if enough else None,
            busy_now_percent=None if now is None else now.mean,
            unread_seconds=0.0 if self.read_at is None else self.seen_at - self.read_at,
            power_plateau_watts=plateau,
            power_usual_watts=usual,
            spins_share=spins_share,
            spins=spins,
            memory_rests_share=self.load.memory_rests(since),
            memory_highest_bytes=highest("memory_used_bytes", since),
            temperature_highest_celsius=highest("temperature_celsius", since),
            throttle_shares=self._throttled(since),
            pcie_generation_busy=_whole(highest("pcie_generation", since)),
            pcie_width_busy=_whole(highest("pcie_width", since)),
            ecc_uncorrected_new=self._counted("ecc_uncorrected_count", since),
            ecc_corrected_new=self._counted("ecc_corrected_count", since),
            remapped_rows_failed=self._last.remapped_rows_failed,
            remapped_rows_pending=self._last.remapped_rows_pending,
            pcie_replays_new=pcie_replays,
            nvlink_replays_new=nvlink_replays,
            nvlink_recoveries_new=nvlink_recoveries,
            link_errors_seconds=self._link_errors.seconds,
        )

    def _highest(self, name: str, since: float) -> float | None:
        stat = self.table.over(name, since)
        return None if stat is None else stat.high

    def _counted(self, name: str, since: float) -> int | None:
        """Return by how much a counter has risen since then, or since it was read first."""
        if name not in self.table.places:
            return None
        times, (column,) = self.table.readings_since(-math.inf, (name,))
        both = zip(times, column, strict=True)
        read = [(at, count) for at, count in both if not math.isnan(count)]
        if not read:
            return None
        before = read[0][1]
        for (_, earlier), (at, later) in pairwise(read):
            # The driver was loaded again: it counts anew.
            if at <= since or later < earlier:
                before = later
        return int(read[-1][1] - before)

    def _throttled(self, since: float) -> tuple[ReasonSeconds, ...] | None:
        if self._reasons.latest_at <= since:
            return None
        held = [(name, self._reasons.over(name, since)) for name in self._reasons.names]
        return tuple(
            [ReasonSeconds(str(name), stat.total) for name, stat in held if stat is not None]
        )


class JobOnGpu:
    """A GPU as one job uses it, or nobody does."""

    def __init__(self, track: GpuTrack) -> None:
        self.track = track
        track.uses += 1
        self.memory = Trend()
        self.grows_since = -math.inf
        """From when on growth of its memory counts: what came before was loaded."""
        self._memory_used_bytes = 0
        self._users = Table(_SHARES, tiers=(), code="d", keep_seconds=WINDOW_SECONDS)
        self._seconds = 0.0
        """Since it was seen who uses it."""
        self._seen = False
        self._others: tuple[Process, ...] | None = None

    def part(self) -> None:
        """Follow the GPU alone: from here on its other users see what this one does not."""
        if self.track.uses > 1:
            self.track.uses -= 1
            self.track = deepcopy(self.track)
            self.track.uses = 1

    def push(self, reading: GpuReading, at: float, seconds: float) -> bool:
        """Check whether it is time to see who uses it."""
        self._follow_memory(reading.memory_used_bytes, at, seconds)
        self._seconds += seconds
        return not self._seen or self._seconds >= USERS_SECONDS

    def _follow_memory(self, used: int | None, at: float, seconds: float) -> None:
        ran_at, rises = self.track.ran_at, (used or 0) > self._memory_used_bytes
        # Two looks, where they are far apart: it may have worked up to the first.
        quiet = ran_at is None or at - ran_at >= max(QUIET_SECONDS, 2.0 * seconds)
        if quiet and (rises or ran_at is None):
            self.memory, self.grows_since = Trend(), at
        self.memory.add(at, used)
        self._memory_used_bytes = used or 0

    def see(
        self, at: float, mine: Sequence[Process] | None, others: Sequence[Process] | None
    ) -> None:
        """Take the processes on it: ``mine`` are the job's; ``None`` where none could be read."""
        seconds, self._seconds, self._seen = self._seconds, 0.0, True
        shares = [_added(those, read) for those in (mine, others) for read in (_busy, _memory)]
        self._users.add_row(at, seconds, shares)
        self._others = None if others is None else tuple(others)

    def facts(self, since: float) -> GpuFacts:
        """Return the facts over the time after ``since``."""
        slope, slope_error = self.memory.slope() or (None, None)
        shares: dict[str, Any] = dict(zip(_SHARES, self._users.means(since), strict=True))
        return GpuFacts(
            **self.track.facts(since),
            **shares,
            memory_slope_bytes_per_second=slope,
            memory_slope_error_bytes_per_second=slope_error,
            memory_rises=self.memory.rises(),
            memory_trend_seconds=self.memory.seconds,
            others=self._others,
        )


_BUSY, _MEMORY, _REASONS = ("busy",), ("memory_used_bytes",), tuple(REASONS)
_MORE = (
    "busy", "activity", "temperature_celsius", "pcie_generation", "pcie_width",
    "ecc_corrected_count", "ecc_uncorrected_count",
)  # fmt: skip
_link_errors = attrgetter("pcie_replay_count", "nvlink_replay_count", "nvlink_recovery_count")
_busy = attrgetter("gpu_busy_percent")
_memory = attrgetter("gpu_memory_bytes")
_SHARES = (
    "own_busy_percent", "own_memory_bytes", "foreign_busy_percent", "foreign_memory_bytes",
)  # fmt: skip


def _worked_out(reading: GpuReading, low: float, high: float) -> dict[str, float | None]:
    """Return what counts only while a kernel was resident, or while none was, by the lowest and
    highest of the newest samples."""
    tensor, sm = reading.tensor_active_percent, reading.sm_active_percent
    resident, quiet = low >= RESIDENT_PERCENT, high <= IDLE_PERCENT
    # A display alone keeps a GPU some percent busy in its lowest states, with its link at rest; and
    # a link powers down some time after the last kernel, not between two.
    linked = not quiet and (reading.performance_state or 0) < RESTED_STATE
    return {
        "power_busy_watts": reading.power_watts if resident else None,
        "sm_clock_busy_mhz": reading.sm_clock_mhz if resident else None,
        "pcie_rx_idle_bytes_per_second": reading.pcie_rx_bytes_per_second if quiet else None,
        "activity": sm if tensor is None else tensor,
        "temperature_celsius": reading.temperature_celsius,
        "pcie_generation": reading.pcie_generation if linked else None,
        "pcie_width": reading.pcie_width if linked else None,
        "ecc_corrected_count": reading.ecc_corrected_count,
        "ecc_uncorrected_count": reading.ecc_uncorrected_count,
    }


def is_read(reading: GpuReading) -> bool:
    """Check whether the driver said anything of its utilisation, be it that nothing is new."""
    return reading.busy_percent is not None or reading.busy_samples is not None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _added(
    processes: Sequence[Process] | None, read: Callable[[Process], float | None]
) -> float | None:
    """Return the sum of a reading over processes: 0 of nobody; ``None`` where nothing is known of
    those that are there."""
    if processes is None:
        return None
    known = [value for value in map(read, processes) if value is not None]
    return float(sum(known)) if known or not processes else None


def _is_even(samples: Samples) -> bool:
    """Check whether samples come at even distances, a few that are missing left out."""
    times, _ = columns(samples)
    distances = sorted(map(sub, times[1:], times))
    if len(distances) < 2:
        return False
    middle: float = distances[len(distances) // 2]
    near = [abs(one - middle) <= EVEN_SHARE * middle for one in distances]
    return near.count(True) >= EVEN_MOSTLY * len(near)


def _merged(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    span = samples[-1][0] - samples[0][0]
    # Stamps that are all the same (a recording may say anything) are one sample.
    size = max(2, round(MERGED_SECONDS * (len(samples) - 1) / span)) if span else len(samples)
    return [
        (part[-1][0], sum([percent for _, percent in part]) / len(part))
        for part in (samples[at : at + size] for at in range(0, len(samples), size))
    ]
