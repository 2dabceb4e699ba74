"""Plans when each reading of each GPU is due.

A reading has one of three cadences: every look, every second, or every few seconds. All readings
of all GPUs together may cost a share of the time; a driver that is too slow for that makes every
costly reading step back. A period then grows with the square root of the reading's cost and falls
with its importance, which gives the freshest readings for the time there is. PCIe throughput blocks
for 20 ms a call on real drivers, process lists take several milliseconds, and under load or in
trouble a driver can take milliseconds for anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from time import perf_counter
from typing import Any

from gpuwatch.core.model import GpuIdentity

EVERY_LOOK, EVERY_SECOND, SELDOM = 0.0, 1.0, 5.0
"""Cadences, seconds: readings that move with every step of a job, readings that move with the state
of the machine, and readings that a person or a fault changes."""
DETAILED_FACTOR = 0.25
"""A GPU somebody looks at closely is read so much more often."""

ORDINARY, NOTABLE, PROMPT, IMPORTANT = 1.0, 3.0, 8.0, 9.0
"""Importance of a reading: its frequency, relative to the others, when the driver is too slow for
all. A chart has gaps where a prompt one is late."""
SHARE, SHARE_APIECE, SHARE_MAX = 0.01, 0.01 / 8, 0.10
"""Share of the time that all readings may cost: the first, or the second for each GPU if that is
more, and up to the third where important readings would be old otherwise."""
IMPORTANT_SECONDS = 5.0
"""An important reading is old after this time."""
BURST = 1.5
"""Times its share of the interval is what one look may take, so that calls do not fall together
and those put off are soon made up for."""
SINGLE_SECONDS = 0.1
"""Time for the second read of a single look: somebody waits for it, and none follows."""
PLAN_SECONDS = 3.0
"""A plan holds for so long, unless it was made for something else: costs move slowly."""
CHANGE_FACTOR, LEAST_SECONDS = 4.0, 1e-3
"""A reading that costs so many times more, and more by so much, makes a new plan."""

RARELY_SECONDS = 60.0
"""A refused reading is tried again after this time."""
TRANSIENT_SECONDS = 1.0
FACT_SECONDS = 10.0
"""A fact that could not be had is asked for again after this time."""
LASTED_READS = 3
"""A failure is shown to the user once it lasted so many tries; at once if it never worked."""
SELDOM_SECONDS = 10.0
"""An ordinary reading put off for longer than this by its cost is explained to the user."""
LATE_FACTOR = 2.0
"""A reading is late when it is this many times as old as it would be with a quick driver."""
OVERDUE_SECONDS = 8.0
PAIR_SECONDS = 0.11
"""Time from the first to the second sample of a reading. The driver renews its GPM samples ten
times a second and asks for more than that between two (NVML's documentation of
``nvmlGpmMetricsGet``)."""


class DriverGoneError(Exception):
    """The driver was unloaded or reset under us; every handle is void."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class CallCounter:
    """Driver time and calls since the last snapshot, over all GPUs. ``timer`` gives seconds on any
    clock; the differences between its values are the times that calls are said to take."""

    def __init__(self, timer: Callable[[], float] = perf_counter) -> None:
        self.timer = timer
        self.doing: tuple[str, GpuIdentity | None] | None = None
        """The reading or the function that the driver is asked for at this moment, and the GPU;
        another thread looks here when the driver hangs."""
        self.calls = 0
        self.seconds = 0.0

    def count(self, started: float, calls: int = 1) -> float:
        """Count calls that began at ``started`` by the timer and have just ended. Return the
        seconds they took."""
        seconds = self.timer() - started
        self.seconds += seconds
        self.calls += calls
        self.doing = None
        return seconds

    def begin_anew(self) -> tuple[float, int]:
        """Return (seconds, calls) so far, and begin counting anew."""
        counted = self.seconds, self.calls
        self.seconds, self.calls = 0.0, 0
        return counted


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One thing to ask of a GPU: one or a few driver calls that belong together."""

    name: str
    """A noun phrase for a person: "the fan speed"."""
    fields: tuple[str, ...]
    """The fields of ``GpuReading`` (of ``GpuIdentity`` for a fact) it sets; they become ``None``
    when it fails."""
    read: Callable[[Any], None]
    cadence_seconds: float = EVERY_LOOK
    importance: float = ORDINARY
    calls: int = 1
    is_fact: bool = False
    """A fact is asked once, since it does not change while the GPU is there."""
    expected_seconds: float = 0.0
    """Time that real drivers take for it, as far as is known, so that the first call is planned
    for."""
    pairs: bool = False
    """Two samples make a reading: after the first the second is due as soon as it may be."""
    needed: Callable[[Any], bool] | None = None
    """Tells whether the device still needs it, asked when it is due; ``None``: always."""
    hurried: Callable[[Any], bool] | None = None
    """Tells whether it is worth taking now, however long its cost put it off."""
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
    last_seconds: float | None = None
    """Seconds that it took last."""
    usual_period: float = 0.0
    """Period with a quick driver; ``period`` is the planned one."""
    period: float = 0.0
    read_at: float | None = None
    halved: bool = False
    """Only the first of the two samples of a reading is there."""
    failures: int = 0
    error: int = 0
    failed_since_unix: float = 0.0
    worked: bool = False
    gave: set[str] = field(default_factory=set)
    """Fields that it ever gave a value for."""
    refused: list[str] = field(default_factory=list)
    """Fields for which the driver's last value cannot be true."""
    lacking_reads: int = 0
    """Number of reads in a row that worked but left out a field."""
    lacking_since_unix: float = 0.0

    def __post_init__(self) -> None:
        self.cost = self.reading.expected_seconds
        self.usual_period = self.period = self.reading.cadence_seconds

    @property
    def unknown(self) -> bool:
        """Whether it was never taken, and its cost is not known either."""
        return self.read_at is None and not self.reading.expected_seconds

    def measured(self, now: float, seconds: float) -> None:
        """Note that it was taken and took ``seconds``, and plan the next time."""
        cost, self.last_seconds = self.cost, seconds
        if cost == 0.0:
            self.cost = seconds
        elif seconds < 0.1 * cost:
            # The driver is quick again: a reading of once a minute must not take ten to show it.
            self.cost = sqrt(cost * seconds)
        else:
            # A single outlier (a busy machine) must not silence a reading for a minute, and a
            # driver that got slow must be noticed within a few calls.
            self.cost = cost + 0.3 * (seconds - cost)
        self.halved = self.reading.pairs and self.read_at is None
        self.read_at = now
        self.plan_next(now)

    def plan_next(self, read_at: float) -> None:
        if self.reading.is_fact:
            self.due_at = inf
            return
        # A driver too slow for all has more urgent things to say.
        quick = self.halved and self.period <= self.usual_period
        self.due_at = read_at + (PAIR_SECONDS if quick else self.period)

    def failed(self, error: int, unix_seconds: float) -> None:
        # A reading that fails each time in another way is one that fails: the count goes on.
        if self.failures == 0:
            self.failed_since_unix = unix_seconds
        self.failures += 1
        self.error = error

    def urgency(self, now: float) -> float:
        """Return its importance; the highest where its turn has not come for long, as when a
        driver turns slow."""
        overdue = now - self.due_at > OVERDUE_SECONDS
        return IMPORTANT if overdue else self.reading.importance

    def age(self, now: float) -> float:
        """Return the seconds since it was last tried; 0 before."""
        return 0.0 if self.read_at is None else now - self.read_at

    def late(self, now: float) -> bool:
        """Return True when its value is older than it would be with a quick driver."""
        return self.age(now) > LATE_FACTOR * self.usual_period and not self.reading.is_fact

    @property
    def lasted(self) -> bool:
        """Whether the failure is no hiccup."""
        return self.failures >= LASTED_READS or (self.failures > 0 and not self.worked)

    @property
    def seldom(self) -> bool:
        """Whether it works, and its cost alone keeps it from being read as often as it is worth."""
        put_off = self.period > LATE_FACTOR * self.usual_period
        return put_off and self.worked and not self.failures


Gpus = Sequence[tuple[Sequence[Slot], float]]
"""The slots of each GPU, with the factor on their cadences."""


class ReadingPlanner:
    """Plans when the readings are taken, anew now and then and when the driver becomes slower."""

    def __init__(self) -> None:
        self._planned_for: tuple[object, ...] = ()
        self._share = SHARE
        self._plan_at = 0.0

    def note_cost(self, believed_seconds: float, seconds: float) -> None:
        """Note that a reading took ``seconds`` where ``believed_seconds`` was expected."""
        if seconds > CHANGE_FACTOR * believed_seconds + LEAST_SECONDS:
            self._plan_at = 0.0

    def plan(self, gpus: Gpus, interval_seconds: float, now: float) -> float:
        """Give the slots their periods, where the last plan does not hold any more. Return the
        share of the time that they then cost at most."""
        planned_for = (interval_seconds, *[(*slots, factor) for slots, factor in gpus])
        if planned_for != self._planned_for or now >= self._plan_at:
            self._share = plan(gpus, interval_seconds)
            known = all(not slot.unknown for slots, _ in gpus for slot in slots)
            self._planned_for, self._plan_at = planned_for, now + PLAN_SECONDS if known else now
        return self._share


def plan(gpus: Gpus, interval_seconds: float) -> float:
    """Give the slots their periods. Return the share of the time that they then cost at most."""
    load = wanted = 0.0
    moving = [
        (slot, factor) for slots, factor in gpus for slot in slots if not slot.reading.is_fact
    ]
    for slot, factor in moving:
        slot.usual_period = max(slot.reading.cadence_seconds * factor, interval_seconds)
        slot.period = slot.usual_period
        load += slot.cost / slot.period
        wanted += slot.reading.importance / factor * sqrt(slot.cost)
    share = max(SHARE, SHARE_APIECE * len(gpus))
    if load > share:
        # With every period in this proportion, all cost the share exactly.
        periods = [
            (slot, wanted / share * factor / slot.reading.importance * sqrt(slot.cost))
            for slot, factor in moving
        ]
        oldest = max([one for slot, one in periods if slot.reading.importance == IMPORTANT] or [0])
        more = min(max(1.0, oldest / IMPORTANT_SECONDS), SHARE_MAX / share)
        share *= more
        for slot, period in periods:
            slot.period = max(slot.usual_period, period / more)
    for slot, _ in moving:
        # The driver may be slower or quicker than when it was read.
        if slot.read_at is not None and not slot.failures:
            slot.plan_next(slot.read_at)
    return share
