"""Memory of the exporter from snapshot to snapshot: how busy each GPU was lately, and all that adds
up."""

from array import array
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, TypeAlias

from gpuwatch.core.model import Gpu, GpuKey, Snapshot
from gpuwatch.core.registry import GPU
from gpuwatch.core.throttling import REASONS
from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.diagnosis.finding import WINDOW_SECONDS, Diagnosis
from gpuwatch.diagnosis.ledger import Ledger
from gpuwatch.recording.charges import Given
from gpuwatch.recording.statistics import GPUS_KEPT, Statistics

WINDOW_MOST_SECONDS, FIRST_WINDOW_SECONDS = 300.0, 15.0
"""Longest window of a scraper; window of one that was not seen before."""
LATE_SECONDS = 2.5
"""The driver's samples come so late at most."""
SCRAPERS_KEPT = 16
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


class IdleByCause:
    """Idle seconds of one GPU by their cause, none of which ever falls.

    Time that is lost to a finding is entered up to a minute later, when the finding is raised, so
    idle time has no other cause before that.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._idle = 0.0
        self._lost: dict[str, float] = {}
        self._open: deque[tuple[float, str, float]] = deque()
        """Idle time that may still be lost to a finding: when, its cause if it is not, seconds."""
        self._owed = 0.0
        """Seconds lost in time that was given another cause: in the first of two pauses, say, which
        is known for what it was when the second has been seen."""

    def add(
        self, now: float, idle_seconds: float, lost: Mapping[str, float], otherwise: str
    ) -> None:
        """Take how long it has idled so far, and for how long because of each rule's findings;
        ``otherwise``: the cause of what is lost to none."""
        for rule, seconds in lost.items():
            more = seconds - self._lost.get(rule, 0.0)
            self._lost[rule] = seconds
            self.seconds[rule] += more
            self._owed += more
        self._open.append((now, otherwise, idle_seconds - self._idle))
        self._idle = idle_seconds
        while self._open and self._owed > 0.0:
            at, cause, seconds = self._open.pop()
            self._owed -= seconds
            if self._owed < 0.0:
                self._open.append((at, cause, -self._owed))
        self._owed = max(0.0, self._owed)
        while self._open and self._open[0][0] <= now - WINDOW_SECONDS:
            _, cause, seconds = self._open.popleft()
            self.seconds[cause] += seconds


class Totals:
    """Counters, since the exporter was started: the statistics of a report that has no end."""

    def __init__(self) -> None:
        self._statistics = Statistics(live=True)
        self._idle: defaultdict[GpuKey, IdleByCause] = defaultdict(IdleByCause)

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis, ledger: Ledger) -> None:
        """Take a snapshot, its diagnosis, and the ledger of all diagnoses."""
        self._statistics.add_gpus(snapshot)
        if len(self._statistics.gpus) >= GPUS_KEPT:
            self._statistics.forget_gone_gpus()
            gone = [uuid for uuid in self._idle if uuid not in self._statistics.gpus]
            for uuid in gone:
                del self._idle[uuid]
        settled = _settled(diagnosis)
        used = {process.gpu_uuid for process in snapshot.processes}
        for gpu in snapshot.gpus:
            one = self._statistics.gpus.get(gpu.uuid)
            if one is not None and not gpu.lost:
                otherwise = settled.get(gpu.uuid, "unknown" if gpu.uuid in used else "no_process")
                idle = one.sums.watched_seconds - one.sums.busy_seconds
                now, lost = snapshot.monotonic_seconds, ledger.idle_seconds_lost(gpu.uuid)
                self._idle[gpu.uuid].add(now, idle, lost, otherwise)

    def take_given(self) -> list[Given]:
        """Return the time by whom GPUs were given to, since this was asked last."""
        return self._statistics.given.take()

    def idle_seconds(self, gpu: GpuKey) -> Mapping[str, float]:
        """Return the seconds without a kernel by their cause."""
        return self._idle[gpu].seconds

    def throttle_seconds(self, gpu: GpuKey) -> Mapping[str, float]:
        """Return the seconds by the reason that held the clocks down; empty where it is not
        known."""
        one = self._statistics.gpus.get(gpu)
        held = None if one is None else one.sums.throttled()
        return {} if held is None else dict.fromkeys(REASONS, 0.0) | dict(held)

    def link_bytes(self, gpu: GpuKey) -> Mapping[str, float]:
        """Return the bytes that went over each of ``LINKS``, of those that are read."""
        one = self._statistics.gpus.get(gpu)
        sums = {} if one is None else one.readings.sums
        carried = {name: sums[link.name] for name, link in LINKS.items() if link.name in sums}
        return {name: one.total for name, one in carried.items() if one.high is not None}


def _settled(diagnosis: Diagnosis) -> dict[GpuKey, str]:
    """Return the leading finding of each GPU that says why it idles, though nothing is lost to
    it."""
    found: dict[GpuKey, str] = {}
    for one in diagnosis.findings:
        if one.rule in _SETTLES:
            for uuid in one.gpus:
                found.setdefault(uuid, one.rule)
    return found
