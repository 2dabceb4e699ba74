"""When each reading of each GPU is due, by what it costs.

A reading says how often it is worth taking; what the driver takes for it can only lengthen
that. PCIe throughput blocks for 20 ms a call on real drivers, process lists take several
milliseconds, and a card in trouble can make anything slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

OWN_SHARE = 0.01
"""Of wall time, that one reading of one GPU may cost ..."""
ALL_SHARE = 0.04
"""... and that one reading may cost over all GPUs together."""
DETAILED_FACTOR = 0.25
"""A GPU somebody looks at closely is read so much more often."""
PERIOD_MAX_SECONDS = 60.0
SLOW_SECONDS = 0.002
"""A reading that takes longer is not taken for every GPU in one tick (see ``take_slow``)."""
CHEAP_SECONDS = 1e-4
"""A reading that takes less can be had at every read, whatever the number of GPUs."""
TICK_SHARE = 0.05
"""Of the interval: what slow readings may take in one tick, all GPUs together."""
RARELY_SECONDS = 60.0
"""How soon a refused reading is tried again."""
LASTED_READS = 3
"""A failure is told to the user once it lasted so many tries; at once if it never worked."""
SELDOM_SECONDS = 10.0
"""A reading put off for longer than this by its cost is explained to the user."""
TRANSIENT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One thing to ask of a GPU: one or a few driver calls that belong together."""

    name: str
    """A noun phrase for a person: "the fan speed"."""
    fields: tuple[str, ...]
    """The fields of ``GpuReading`` it sets; they become ``None`` when it fails."""
    read: Callable[[Any], None]
    """Takes the device and sets its values; raises ``NVMLError``."""
    period_seconds: float = 0.0
    """How often it is worth asking; 0: at every read."""
    calls: int = 1
    """Driver calls it makes."""
    expected_seconds: float = 0.0
    """What real drivers are known to take, so that the first call is planned for."""
    needed: Callable[[Any], bool] | None = None
    """Whether the device still needs it, asked when it is due; ``None``: always."""
    between: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields that mean "since the last snapshot" in a snapshot without this reading."""


class Slot:
    """One reading of one GPU: when it is due, what it costs, how it fails."""

    __slots__ = (
        "cost",
        "due_at",
        "error",
        "failed_since_unix",
        "failures",
        "read_at",
        "reading",
        "slow",
        "worked",
    )

    def __init__(self, reading: Reading, due_at: float) -> None:
        self.reading = reading
        self.cost = reading.expected_seconds
        self.slow = self.cost > SLOW_SECONDS
        self.due_at = due_at
        self.read_at = due_at
        self.failures = 0
        self.error = 0
        self.failed_since_unix = 0.0
        self.worked = False

    def period(self, gpu_count: int, factor: float = 1.0) -> float:
        costly = self.cost * max(1.0 / OWN_SHARE, gpu_count / ALL_SHARE)
        return min(PERIOD_MAX_SECONDS, max(self.reading.period_seconds, costly) * factor)

    def measured(self, now: float, seconds: float, gpu_count: int, factor: float) -> None:
        """Count one call that took ``seconds`` and plan the next."""
        cost = self.cost
        # A single outlier (a busy machine) must not silence a reading for a minute, and a driver
        # that got slow must be noticed within a few calls.
        self.cost = cost = seconds if cost == 0.0 else cost + 0.3 * (seconds - cost)
        self.read_at = now
        if cost < CHEAP_SECONDS:
            self.slow = False
            self.due_at = now + self.reading.period_seconds * factor
        else:
            self.slow = cost > SLOW_SECONDS
            self.due_at = now + self.period(gpu_count, factor)

    def outdated(self, now: float, gpu_count: int) -> bool:
        """Its value is older than two periods, so it no longer says what is."""
        return now - self.read_at > 2 * self.period(gpu_count)

    def failed(self, error: int, unix_seconds: float) -> None:
        # A reading that fails now so, now so, is one that fails: the count goes on.
        if self.failures == 0:
            self.failed_since_unix = unix_seconds
        self.failures += 1
        self.error = error

    def works(self) -> None:
        self.failures = 0
        self.error = 0

    @property
    def lasted(self) -> bool:
        """The failure is no hiccup."""
        return self.failures >= LASTED_READS or (self.failures > 0 and not self.worked)

    def seldom_seconds(self, gpu_count: int) -> float | None:
        """How often it is read, when its cost alone makes that seldom; otherwise ``None``."""
        if not self.slow:
            return None
        period = self.period(gpu_count)
        usual = max(SELDOM_SECONDS, 2 * self.reading.period_seconds)
        return period if self.worked and not self.failures and period > usual else None
