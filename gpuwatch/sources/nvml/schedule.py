"""When each reading of each GPU is due, by what it costs.

A reading says how often it is worth taking; what the driver takes for it can only lengthen
that. PCIe throughput blocks for 20 ms a call on real drivers, process lists take several
milliseconds, and under load or in trouble a driver can take milliseconds for anything.

All readings of all GPUs together may cost a share of the time. What would cost more is spread
by ``plan``: the period of a reading then grows with the square root of its cost and falls with
its importance, which gives the freshest readings for the time there is. That period is the real
one: it says how long a value is kept, and what the user is shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import median
from time import perf_counter
from typing import Any

from gpuwatch.core.model import GpuIdentity

SHARE = 0.01
SHARE_APIECE = SHARE / 8
"""Of wall time: what all readings of all GPUs may cost together, the larger of the first and so
much for each of them ..."""
BURST = 1.5
"""Times its share of the interval is what one look may take, so that calls do not fall together
and those put off are soon made up for."""
SINGLE_SECONDS = 0.1
"""What the second read of a single look may take: somebody waits for it, and none follows."""
DETAILED_FACTOR = 0.25
"""A GPU somebody looks at closely is read so much more often."""
RARELY_SECONDS = 60.0
"""How soon a refused reading is tried again."""
LASTED_READS = 3
"""A failure is shown to the user once it lasted so many tries; at once if it never worked."""
SELDOM_SECONDS = 10.0
"""An ordinary reading put off for longer than this by its cost is explained to the user."""
LATE_FACTOR = 2.0
"""A reading is late when it is this many times as old as it would be with a quick driver."""
KEPT_SECONDS = 30.0
"""A value is kept for so long at least: when a driver turns slow, its periods lag behind."""
TRANSIENT_SECONDS = 1.0
PLAN_SECONDS = 3.0
"""For so long a plan holds, unless it was made for something else: costs move slowly."""
PAIR_SECONDS = 0.11
"""From the first to the second sample of a reading. The driver renews its GPM samples ten times a
second and asks for more than that between two (NVML's documentation of ``nvmlGpmMetricsGet``)."""
READINGS_JUDGED = 17
"""Enough that they are several different ones on a machine with 8 GPUs."""
PACE_FACTOR = 4.0
LEAST_SECONDS = 1e-5
"""Differences below this are no sign of anything."""

ORDINARY, NOTABLE, PROMPT, IMPORTANT = 1.0, 3.0, 8.0, 9.0
"""How often a reading is taken, relative to the others, when the driver is too slow for all. A
chart has gaps where a prompt one is late."""
SHARE_MAX = 0.10
MORE = ((NOTABLE, 15.0, 0.05), (IMPORTANT, 5.0, SHARE_MAX))
"""... and what they may cost where one of this importance would otherwise be older than this."""


class DriverGoneError(Exception):
    """The driver was unloaded or reset under us; every handle is void."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Tally:
    """Driver time and calls since the last snapshot, over all GPUs. ``timer`` gives seconds on any
    clock; its differences are what calls are said to take."""

    __slots__ = ("calls", "doing", "seconds", "timer")

    def __init__(self, timer: Callable[[], float] = perf_counter) -> None:
        self.timer = timer
        self.doing: tuple[str, GpuIdentity | None] | None = None
        """The reading or the function that the driver is asked for at this moment, and the GPU;
        another thread looks here when the driver hangs."""
        self.calls = 0
        self.seconds = 0.0

    def count(self, started: float, calls: int) -> None:
        self.seconds += self.timer() - started
        self.calls += calls

    def take(self) -> tuple[float, int]:
        """(seconds, calls) so far; counting begins anew."""
        taken = self.seconds, self.calls
        self.seconds, self.calls = 0.0, 0
        return taken


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One thing to ask of a GPU: one or a few driver calls that belong together."""

    name: str
    """A noun phrase for a person: "the fan speed"."""
    fields: tuple[str, ...]
    """The fields of ``GpuReading`` it sets; they become ``None`` when it fails."""
    read: Callable[[Any], None]
    period_seconds: float = 0.0
    """How often it is worth asking; 0: at every read."""
    calls: int = 1
    importance: float = ORDINARY
    expected_seconds: float = 0.0
    """Taken by real drivers, as far as is known, so that the first call is planned for."""
    pairs: bool = False
    """Two samples make a reading: after the first the second is due as soon as it may be."""
    needed: Callable[[Any], bool] | None = None
    """True while the card still needs it, asked when it is due; ``None``: always."""
    hurried: Callable[[Any], bool] | None = None
    """True when the card shows that it is worth taking now, however long its cost put it off."""
    between: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields that mean "since the last snapshot" in a snapshot without this reading."""
    process_field: str | None = None
    """The field of ``Process`` it sets, for a reading that sets none of ``GpuReading``."""


@dataclass(slots=True, eq=False)
class Slot:
    """One reading of one GPU: when it is due, what it costs, how it fails."""

    reading: Reading
    due_at: float
    cost: float = 0.0
    """Seconds that a call is believed to take."""
    usual_period: float = 0.0
    period: float = 0.0
    """With a quick driver, and as ``plan`` gave it."""
    read_at: float | None = None
    halved: bool = False
    """Of a reading that takes two samples there is one."""
    failures: int = 0
    error: int = 0
    failed_since_unix: float = 0.0
    worked: bool = False
    gave: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    """Fields of it of which the driver said last what cannot be."""
    lacking_reads: int = 0
    """How often in a row it worked but left out one of them."""
    lacking_since_unix: float = 0.0

    def __post_init__(self) -> None:
        self.cost = self.reading.expected_seconds
        self.usual_period = self.period = self.reading.period_seconds

    @property
    def unknown(self) -> bool:
        """It was never taken, and what it costs is not known either."""
        return self.read_at is None and not self.reading.expected_seconds

    def measured(self, now: float, seconds: float) -> None:
        """Count one call that took ``seconds`` and plan the next."""
        cost = self.cost
        if cost == 0.0:
            self.cost = seconds
        elif seconds < 0.1 * cost:
            # The driver is quick again: what is read once a minute must not take ten to show it.
            self.cost = sqrt(cost * seconds)
        else:
            # A single outlier (a busy machine) must not silence a reading for a minute, and a
            # driver that got slow must be noticed within a few calls.
            self.cost = cost + 0.3 * (seconds - cost)
        self.halved = self.reading.pairs and self.read_at is None
        self.read_at = now
        self.plan_next(now)

    def plan_next(self, read_at: float) -> None:
        # A driver too slow for all has more urgent things to say.
        quick = self.halved and self.period <= self.usual_period
        self.due_at = read_at + (PAIR_SECONDS if quick else self.period)

    def age(self, now: float) -> float:
        """Seconds since it was last tried; 0 before."""
        return 0.0 if self.read_at is None else now - self.read_at

    def outdated(self, now: float, interval_seconds: float) -> bool:
        """Its value is so old that its turn must have failed to come."""
        return self.age(now) > max(KEPT_SECONDS, 2 * self.period + interval_seconds)

    def late(self, now: float) -> bool:
        """Its value is older than it would be with a quick driver."""
        return self.read_at is not None and now - self.read_at > LATE_FACTOR * self.usual_period

    def failed(self, error: int, unix_seconds: float) -> None:
        # A reading that fails now so, now so, is one that fails: the count goes on.
        if self.failures == 0:
            self.failed_since_unix = unix_seconds
        self.failures += 1
        self.error = error

    @property
    def lasted(self) -> bool:
        """The failure is no hiccup."""
        return self.failures >= LASTED_READS or (self.failures > 0 and not self.worked)

    @property
    def seldom(self) -> bool:
        """It works, and its cost alone keeps it from being read as often as it is worth."""
        if self.period <= LATE_FACTOR * self.usual_period:
            return False
        return self.worked and not self.failures


Gpus = Sequence[tuple[Sequence[Slot], float]]
"""The slots of each GPU, with the factor on their periods."""


class Pace:
    """Plans when the readings are taken, and notices when the driver as a whole becomes slower or
    quicker.

    What most of the last readings show is then believed of those that were not taken since:
    their turn may be minutes away, or so frequent that it takes the time of all.
    """

    def __init__(self) -> None:
        self._changes: list[tuple[Slot, float]] = []
        self._planned_of: tuple[object, ...] = ()
        self._share = SHARE
        self._plan_at = 0.0

    def plan(self, gpus: Gpus, interval_seconds: float, now: float) -> float:
        """``plan``, where the last one does not hold any more."""
        changed = self._follow(gpus)
        of = (interval_seconds, *[(*slots, factor) for slots, factor in gpus])
        if changed or of != self._planned_of or now >= self._plan_at:
            self._share = plan(gpus, interval_seconds)
            known = all(not slot.unknown for slots, _ in gpus for slot in slots)
            self._planned_of, self._plan_at = of, now + PLAN_SECONDS if known else now
        return self._share

    def note(self, slot: Slot, believed_seconds: float, seconds: float) -> None:
        self._changes.append((slot, (seconds + LEAST_SECONDS) / (believed_seconds + LEAST_SECONDS)))

    def _follow(self, gpus: Gpus) -> bool:
        """Correct the costs of the slots, once there is enough to judge by; whether that was
        needed."""
        if len(self._changes) < READINGS_JUDGED:
            return False
        change = median(change for _, change in self._changes)
        taken = {id(slot) for slot, _ in self._changes}
        self._changes.clear()
        if 1 / PACE_FACTOR < change < PACE_FACTOR:
            return False
        for slots, _ in gpus:
            for slot in slots:
                if slot.read_at is not None and id(slot) not in taken:
                    slot.cost = (slot.cost + LEAST_SECONDS) * change
        return True


def plan(gpus: Gpus, interval_seconds: float) -> float:
    """Give the slots their periods; the share of the time that they then cost at most."""
    load = 0.0
    for slots, factor in gpus:
        for slot in slots:
            usual = slot.reading.period_seconds * factor
            slot.usual_period = slot.period = usual = max(usual, interval_seconds)
            load += slot.cost / usual
    share = max(SHARE, SHARE_APIECE * len(gpus))
    if load > share:
        costly = [
            (slot, factor / slot.reading.importance * sqrt(slot.cost))
            for slots, factor in gpus
            for slot in slots
            if slot.cost > 0.0
        ]
        _stretch(costly, share)
        for importance, seconds, most in MORE:
            periods = [one.period for one, _ in costly if one.reading.importance == importance]
            longest = max(periods, default=0.0)
            if longest > seconds:
                share = max(share, min(most, share * longest / seconds))
                _stretch(costly, share)
    for slots, _ in gpus:
        for slot in slots:
            # Not as planned when it was read: the driver may be slower or quicker by now.
            if slot.read_at is not None and not slot.failures:
                slot.plan_next(slot.read_at)
    return share


def _stretch(costly: list[tuple[Slot, float]], share: float) -> None:
    """Periods in proportion to the numbers beside the slots, none shorter than usual, so that
    all cost ``share`` of the time."""
    room = share
    while costly:
        unit = sum(slot.cost / relative for slot, relative in costly) / room
        rest = []
        for slot, relative in costly:
            slot.period = max(slot.usual_period, unit * relative)
            if slot.period > slot.usual_period:
                rest.append((slot, relative))
            else:
                room -= slot.cost / slot.period
        if len(rest) == len(costly):
            return
        costly = rest
