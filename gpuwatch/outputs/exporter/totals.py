"""Memory of the exporter from snapshot to snapshot: how busy each GPU was lately, and all that adds
up."""

from array import array
from collections import defaultdict, deque
from collections.abc import Mapping
from statistics import fmean
from typing import Any, TypeAlias

from gpuwatch.core.model import Gpu, GpuKey, GpuReading, Snapshot
from gpuwatch.core.registry import GPU
from gpuwatch.core.store import GAP_INTERVALS, spoken_for
from gpuwatch.core.throttling import REASONS
from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.diagnosis.finding import Diagnosis

WINDOW_MOST_SECONDS, FIRST_WINDOW_SECONDS = 300.0, 15.0
"""Longest window of a scraper; window of one that was not seen before."""
LATE_SECONDS = 2.5
"""The driver's samples come so late at most."""
SCRAPERS_KEPT, GPUS_KEPT = 16, 256
LINKS = {one.metric: one for one in GPU.values() if one.metric.endswith("_bytes_total")}
"""Rates that are added up, by the metric that they become."""
_SETTLES = frozenset([rule.name for rule in RULES if rule.settles])
Percents: TypeAlias = "array[float]"


def busy_of(gpu: Gpu, since: float = 0.0) -> Percents:
    """The driver's fine samples (since that Unix time), where the GPU has them; empty: there is
    nothing new."""
    samples, percent = gpu.reading.busy_samples, gpu.reading.busy_percent
    if samples is not None:
        return array("f", [percent for at, percent in samples if at >= since])
    return array("f", () if percent is None else (percent,))


class BusyWindows:
    """How busy GPUs were in the time that each scraper asks about: since it asked last."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[GpuKey, Percents]]] = deque()
        self._scrapers: dict[str, float] = {}

    def push(self, now: float, busy: dict[GpuKey, Percents]) -> None:
        """``now``: monotonic."""
        self._looks.append((now, busy))
        while self._looks[0][0] < now - WINDOW_MOST_SECONDS:
            self._looks.popleft()

    def of(self, scraper: str, seconds: float | None) -> Mapping[GpuKey, Percents]:
        """Return the busy percents of each GPU in the last ``seconds``; ``None``: since ``scraper``
        asked last in this way. Who asks before there is anything new gets the newest again."""
        newest = self._looks[-1][0]
        if seconds is None:
            since = self._scrapers.pop(scraper, newest - FIRST_WINDOW_SECONDS)
            keep(self._scrapers, scraper, newest, SCRAPERS_KEPT)
        else:
            since = newest - seconds
        found: defaultdict[GpuKey, Percents] = defaultdict(lambda: array("f"))
        for at, busy in reversed(self._looks):
            if at <= since and at < newest - LATE_SECONDS:
                break
            for uuid, percents in busy.items():
                if at > since or not found[uuid]:
                    found[uuid] += percents
        return found


def keep(kept: dict[Any, Any], key: object, value: object, most: int) -> None:
    """The newest last; the oldest goes when there are too many."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


class GpuTotals:
    """Counters of one GPU, each by what it is of."""

    def __init__(self) -> None:
        self.idle_seconds: defaultdict[str, float] = defaultdict(float)
        self.throttle_seconds: defaultdict[str, float] = defaultdict(float)
        self.link_bytes: defaultdict[str, float] = defaultdict(float)
        """By the keys of ``LINKS``."""
        self._timed = False
        self._idle_until: float | None = None

    def add(self, reading: GpuReading, seconds: float) -> None:
        for name, field in LINKS.items():
            rate = getattr(reading, field.name)
            if rate is not None:
                self.link_bytes[name] += rate * seconds
        # As the driver counts it; else by the reasons that are in force when it is looked.
        if reading.throttle_durations is not None:
            self._timed = True
            for reason, held in reading.throttle_durations:
                self.throttle_seconds[reason] += held
        elif reading.throttle_reasons is not None and not self._timed:
            for reason in REASONS:
                held = seconds if reason in reading.throttle_reasons else 0.0
                self.throttle_seconds[reason] += held

    def add_idle(self, busy: Percents, cause: str, now: float, longest_seconds: float) -> None:
        """The time since it was called last (the driver's samples can come a look late), unless
        that is longer: nothing is known of a gap."""
        seconds = 0.0 if self._idle_until is None else now - self._idle_until
        self._idle_until = now
        if seconds <= longest_seconds:
            self.idle_seconds[cause] += seconds * max(0.0, 1.0 - fmean(busy) / 100.0)


class Totals:
    """Counters, since the exporter was started."""

    def __init__(self) -> None:
        self.gpus: dict[GpuKey, GpuTotals] = {}
        self._before: float | None = None

    def push(
        self, snapshot: Snapshot, diagnosis: Diagnosis, busy: Mapping[GpuKey, Percents]
    ) -> None:
        now = snapshot.monotonic_seconds
        seconds = 0.0 if self._before is None else spoken_for(snapshot, self._before)
        self._before = now
        causes = _causes(diagnosis)
        used = {process.gpu_uuid for process in snapshot.processes}
        for gpu in snapshot.gpus:
            totals = self.gpus.setdefault(gpu.uuid, GpuTotals())
            totals.add(gpu.reading, seconds)
            if busy[gpu.uuid]:
                cause = causes.get(gpu.uuid, "unknown" if gpu.uuid in used else "no_process")
                longest = seconds + GAP_INTERVALS * snapshot.interval_seconds
                totals.add_idle(busy[gpu.uuid], cause, now, longest)
        if len(self.gpus) > GPUS_KEPT:
            self.gpus = {gpu.uuid: self.gpus[gpu.uuid] for gpu in snapshot.gpus}


def _causes(diagnosis: Diagnosis) -> dict[GpuKey, str]:
    """The leading finding that says why a GPU idles."""
    found: dict[GpuKey, str] = {}
    for one in diagnosis.findings:
        if one.severity != "info" or one.rule in _SETTLES:
            for uuid in one.gpus:
                found.setdefault(uuid, one.rule)
    return found
