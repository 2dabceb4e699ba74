"""One GPU, and how one job uses it (or nobody does), followed from snapshot to snapshot."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any

from gpuwatch.core.model import BusySample, Gpu, GpuReading, Process, ReasonSeconds
from gpuwatch.diagnosis.facts.averages import WINDOW_SECONDS, Averages
from gpuwatch.diagnosis.facts.recovery import Recovery
from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.signals.load import PLATEAU, RESIDENT_PERCENT, Load
from gpuwatch.diagnosis.signals.running import (
    BUCKET_SECONDS,
    Counter,
    Highest,
    Ledger,
    RunningMeans,
    Samples,
)
from gpuwatch.diagnosis.signals.stretches import KEEP_SECONDS, PauseWatch, Sample
from gpuwatch.diagnosis.signals.trend import Trend
from gpuwatch.diagnosis.signals.waveform import (
    GAP_SAMPLES,
    IDLE_PERCENT,
    SILENT_PERCENT,
    analyse,
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
"""Of the time watched is what samples must span: two seconds of them say nothing of a minute."""
NOW_SECONDS = 5.0
QUIET_SECONDS = 5.0
"""What is gained on a GPU that has run nothing for so long was loaded, not left behind by steps."""
USERS_SECONDS = 2.9
"""How much of a GPU each process uses is a mean of seconds; and jobs are read as seldom."""


class GpuTrack:
    """What it does, whoever uses it. ``not_before``: monotonic time from which on the driver's
    samples count."""

    def __init__(self, gpu: Gpu, not_before: float) -> None:
        self.identity, self.lost = gpu.identity, gpu.lost
        self.allocated_to, self._since = gpu.allocated_to, not_before
        self.seen_at = -math.inf
        self.uses = 0
        """So many share it."""
        self.watched_seconds = 0.0
        self.read_at: float | None = None
        """When its utilisation was read last."""
        self.pauses = PauseWatch()
        self.recovery = Recovery()
        self.ledger = Ledger(("memory",), KEEP_SECONDS + WINDOW_SECONDS)
        """How much memory was used, to say what a pause was."""
        self.fine = False
        """``series`` holds the driver's samples, not polls."""
        self.series = Samples()
        """(monotonic seconds, percent), oldest first."""
        self.load = Load()
        self.ran_at: float | None = None
        """When it was last seen to run anything; where that cannot be read, it may have."""
        self._not_before = not_before
        self._began = math.inf
        self._means = Averages(GpuFacts)
        self._memory_highest, self._temperature_highest, self._generation, self._width = [
            Highest(WINDOW_SECONDS) for _ in range(4)
        ]
        self._corrected, self._uncorrected = Counter(WINDOW_SECONDS), Counter(WINDOW_SECONDS)
        self._reasons: deque[tuple[float, dict[str, float]]] = deque()
        self._last = GpuReading()
        self._boiled_down: tuple[tuple[float, float], dict[str, Any]] | None = None
        """The newest facts, and of when."""

    def push(self, gpu: Gpu, at: float, seconds: float, offset: float, *, rests: bool) -> None:
        """``offset`` is unix less monotonic time; ``seconds`` what the snapshot speaks for;
        ``rests``: its job is stopped, and what the GPU does now says nothing of it."""
        reading = gpu.reading
        self.seen_at, self.lost, self.identity = at, gpu.lost, gpu.identity
        if gpu.allocated_to != self.allocated_to:
            self.allocated_to, self._since = gpu.allocated_to, at
        if is_read(reading) and not gpu.lost:
            self.read_at = at
        if gpu.lost or rests:
            self._began = at
            self._gap()
            return
        self._began = min(at, self._began)
        self.watched_seconds += seconds
        low, high = self._take_samples(reading, at, seconds, offset)
        power, clock = reading.power_watts, reading.sm_clock_mhz
        newest = _newest(self.series, at - seconds)
        tensor, sm = reading.tensor_active_percent, reading.sm_active_percent
        activity = sm if tensor is None else tensor
        self.load.add(at, seconds, newest, power, reading.memory_controller_percent, activity)
        if not is_read(reading) or (newest is not None and newest >= SILENT_PERCENT):
            self.ran_at = at
        resident = low >= RESIDENT_PERCENT
        worked_out = {
            "power_busy_watts": power if resident else None,
            "sm_clock_busy_mhz": clock if resident else None,
            "pcie_rx_idle_bytes_per_second": reading.pcie_rx_bytes_per_second
            if high <= IDLE_PERCENT
            else None,
        }
        self._means.add(at, reading, seconds, worked_out)
        # A link powers down some time after the last kernel, not between two.
        self._take_rest(reading, at, seconds, under_load=high > IDLE_PERCENT)
        self._last = reading

    def _gap(self) -> None:
        self.pauses.gap()
        self.recovery.gap()

    def _take_rest(
        self, reading: GpuReading, at: float, seconds: float, *, under_load: bool
    ) -> None:
        self._memory_highest.add(at, reading.memory_used_bytes)
        self.ledger.add(at, (reading.memory_used_bytes,), seconds)
        self._temperature_highest.add(at, reading.temperature_celsius)
        if under_load:
            self._generation.add(at, reading.pcie_generation)
            self._width.add(at, reading.pcie_width)
        self._corrected.add(at, reading.ecc_corrected_count)
        self._uncorrected.add(at, reading.ecc_uncorrected_count)
        self._take_reasons(reading, at, seconds)

    def _take_samples(
        self, reading: GpuReading, at: float, seconds: float, offset: float
    ) -> tuple[float, float]:
        """The lowest and highest of what is newest: under it, the other readings were taken."""
        fine = reading.busy_samples
        fresh = [] if not fine else self._fresh(fine, at, offset)
        if fresh:
            if not self.fine:
                self.series.clear()
                self._gap()
                self.fine = True
            spacing = fresh[-1][0] - fresh[-2][0] if len(fresh) > 1 else seconds
            self._append(fresh, spacing)
            last = [percent for _, percent in fresh[-2:]]
            self._trim(at)
            return min(last), max(last)
        stale = not self.series or at - self.series[-1][0] > FINE_STALE_SECONDS
        percent = reading.busy_percent
        if percent is None:
            return -1.0, 101.0
        if self.fine and not stale:
            return percent, percent
        if self.fine:
            self.series.clear()
            self.fine = False
        self._append([(at, percent)], seconds)
        self._trim(at)
        return percent, percent

    def _fresh(
        self, samples: tuple[BusySample, ...], at: float, offset: float
    ) -> list[tuple[float, float]]:
        """In monotonic time; a clock that jumped brings nothing from the future."""
        after = self.series[-1][0] if self.fine and self.series else at - WINDOW_SECONDS
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
        """``spacing``: their usual distance."""
        longest, series = GAP_SAMPLES * max(spacing, MERGED_SECONDS), self.series
        before = series[-1][0] if series else fresh[0][0] - spacing
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
        self._follow(rows)

    def _follow(self, rows: Sequence[Sample]) -> None:
        if rows:
            self.series.extend(rows)
            self.pauses.extend(rows)
            self.recovery.extend(rows)

    def _trim(self, at: float) -> None:
        self.series.forget_until(at - WINDOW_SECONDS)
        self.pauses.forget_before(at - KEEP_SECONDS)

    def _take_reasons(self, reading: GpuReading, at: float, seconds: float) -> None:
        durations, reasons = reading.throttle_durations, reading.throttle_reasons
        if durations is None and reasons is None:
            return
        rows = self._reasons
        if not rows or at >= rows[-1][0] + BUCKET_SECONDS:
            rows.append((at, {}))
            while len(rows) > 1 and rows[0][0] <= at - WINDOW_SECONDS:
                rows.popleft()
        held = rows[-1][1]
        counted = [name for name, _ in durations or ()]
        for name, length in durations or ():
            if length > 0.0:
                held[name] = held.get(name, 0.0) + min(length, seconds)
        for name in reasons or ():
            if name not in counted:
                held[name] = held.get(name, 0.0) + seconds

    @property
    def memory_used_bytes(self) -> int | None:
        return self._last.memory_used_bytes

    def facts(self, since: float) -> dict[str, Any]:
        """By name, over the time after ``since``; jobs that share it are looked at together."""
        if self._boiled_down is None or self._boiled_down[0] != (self.seen_at, since):
            self._boiled_down = ((self.seen_at, since), self._facts(since))
        return self._boiled_down[1]

    def _facts(self, since: float) -> dict[str, Any]:
        samples = self.series.after(since)
        span = samples[-1][0] - samples[0][0] if samples else 0.0
        enough = span >= SPAN * (self.seen_at - max(since, self._began))
        generation, width = self._generation.over(since), self._width.over(since)
        usual, plateau = self.load.watts_at(0.75, PLATEAU)
        spins_share, spins = self.load.spins(since)
        corrected, uncorrected = self._corrected.risen(since), self._uncorrected.risen(since)
        return dict(
            self._means.over(since),
            identity=self.identity,
            lost=self.lost,
            allocated_to=self.allocated_to,
            allocated_seconds=None if self.allocated_to is None else self.seen_at - self._since,
            busy=analyse(samples) if enough else None,
            busy_read=bool(self.series),
            busy_now_percent=_newest(self.series, self.seen_at - NOW_SECONDS),
            unread_seconds=0.0 if self.read_at is None else self.seen_at - self.read_at,
            power_plateau_watts=plateau,
            power_usual_watts=usual,
            spins_share=spins_share,
            spins=spins,
            memory_rests_share=self.load.memory_rests(since),
            memory_highest_bytes=self._memory_highest.over(since),
            temperature_highest_celsius=self._temperature_highest.over(since),
            throttle_shares=self._throttled(since),
            pcie_generation_busy=None if generation is None else int(generation),
            pcie_width_busy=None if width is None else int(width),
            ecc_uncorrected_new=None if uncorrected is None else int(uncorrected),
            ecc_corrected_new=None if corrected is None else int(corrected),
            remapped_rows_failed=self._last.remapped_rows_failed,
            remapped_rows_pending=self._last.remapped_rows_pending,
        )

    def _throttled(self, since: float) -> tuple[ReasonSeconds, ...] | None:
        rows = [held for begin, held in self._reasons if begin > since - BUCKET_SECONDS]
        if not rows:
            return None
        total: dict[str, float] = {}
        for held in rows:
            for name, seconds in held.items():
                total[name] = total.get(name, 0.0) + seconds
        return tuple([ReasonSeconds(name, seconds) for name, seconds in total.items()])


class GpuUse:
    """A GPU as one job uses it, or nobody does."""

    def __init__(self, track: GpuTrack) -> None:
        self.track = track
        track.uses += 1
        self.memory = Trend()
        self.grows_since = -math.inf
        """From when on growth of its memory counts: what came before was loaded."""
        self._memory_used_bytes = 0
        self._means = RunningMeans(len(_SHARES), WINDOW_SECONDS)
        self._seconds = 0.0
        """Since it was seen who uses it."""
        self._others: tuple[Process, ...] | None = None

    def part(self) -> None:
        """From here on others of the GPU see what this one does not."""
        if self.track.uses > 1:
            self.track.uses -= 1
            self.track = deepcopy(self.track)
            self.track.uses = 1

    def push(self, reading: GpuReading, at: float, seconds: float) -> bool:
        """Check whether it is time to see who uses it."""
        self._follow_memory(reading.memory_used_bytes, at, seconds)
        self._seconds += seconds
        return self._others is None or self._seconds >= USERS_SECONDS

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
        """``mine`` are the job's processes on it, ``None`` where none could be read."""
        seconds, self._seconds = self._seconds, 0.0
        shares = [_added(those, read) for those in (mine, others) for read in (_busy, _memory)]
        self._means.add(at, shares, seconds)
        self._others = None if others is None else tuple(others)

    def facts(self, since: float) -> GpuFacts:
        """Over the time after ``since``."""
        slope, slope_error = self.memory.slope() or (None, None)
        shares: dict[str, Any] = dict(zip(_SHARES, self._means.over(since), strict=True))
        return GpuFacts(
            **self.track.facts(since),
            **shares,
            memory_slope_bytes_per_second=slope,
            memory_slope_error_bytes_per_second=slope_error,
            memory_rises=self.memory.rises(),
            memory_trend_seconds=self.memory.seconds,
            others=self._others,
        )


_busy = attrgetter("gpu_busy_percent")
_memory = attrgetter("gpu_memory_bytes")
_SHARES = (
    "own_busy_percent", "own_memory_bytes", "foreign_busy_percent", "foreign_memory_bytes",
)  # fmt: skip


def is_read(reading: GpuReading) -> bool:
    """Check whether the driver said anything of its utilisation, be it that nothing is new."""
    return reading.busy_percent is not None or reading.busy_samples is not None


def _newest(samples: Sequence[tuple[float, float]], since: float) -> float | None:
    """Their mean after ``since``."""
    found = []
    for at, percent in reversed(samples):
        if at <= since:
            break
        found.append(percent)
    return sum(found) / len(found) if found else None


def _added(
    processes: Sequence[Process] | None, read: Callable[[Process], float | None]
) -> float | None:
    """0 of nobody; ``None`` where nothing is known of those that are there."""
    if processes is None:
        return None
    known = [value for value in map(read, processes) if value is not None]
    return float(sum(known)) if known or not processes else None


def _merged(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    span = samples[-1][0] - samples[0][0]
    # Stamps that are all the same (a recording may say anything) are one sample.
    size = max(2, round(MERGED_SECONDS * (len(samples) - 1) / span)) if span else len(samples)
    return [
        (part[-1][0], sum([percent for _, percent in part]) / len(part))
        for part in (samples[at : at + size] for at in range(0, len(samples), size))
    ]
