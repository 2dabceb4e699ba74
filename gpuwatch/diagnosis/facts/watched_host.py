"""The machine around the jobs, followed from snapshot to snapshot."""

import math

from gpuwatch.core.model import Host
from gpuwatch.diagnosis.facts.averages import FactTable
from gpuwatch.diagnosis.facts.window import HostFacts
from gpuwatch.diagnosis.signals.load import Pieces, pieces_of
from gpuwatch.diagnosis.signals.trend import Trend

PAST_SECONDS = 960.0
"""Longer than a pause is kept for: what was written in the first one must still be known."""
_WRITTEN, _SENT, _SWAP = "written", "network_transmit_bytes_per_second", "swap_used_bytes"


class HostTrack:
    """The machine's readings over the last minutes."""

    def __init__(self) -> None:
        self.table = FactTable(HostFacts, (_WRITTEN, _SWAP), keep_seconds=PAST_SECONDS)
        self.memory = Trend()
        self._last = Host(name="")

    def push(self, host: Host, at: float, seconds: float) -> None:
        """Take the machine's readings of a snapshot."""
        self.table.observe(
            at,
            seconds,
            host,
            {_WRITTEN: host.disk_write_bytes_per_second, _SWAP: host.swap_used_bytes},
        )
        self.memory.add(at, host.memory_used_bytes)
        self._last = host

    def written_bytes(self, begin: float, end: float) -> float | None:
        """Return what was written to disks between the two moments."""
        return self.table.total(_WRITTEN, begin, end)

    def sent_bytes(self, begin: float, end: float) -> float | None:
        """Return what was sent over the network between the two moments."""
        return self.table.total(_SENT, begin, end)

    def sent(self, since: float) -> Pieces:
        """Return what was sent a second, piece by piece of time."""
        return pieces_of(self.table, (_SENT,), since)

    def facts(self, since: float) -> HostFacts:
        """Return the facts over the time after ``since``."""
        host = self._last
        slope, slope_error = self.memory.slope() or (None, None)
        _, (swap,) = self.table.readings_since(since, (_SWAP,))
        first = next((used for used in swap if not math.isnan(used)), None)
        known = first is not None and host.swap_used_bytes is not None
        return HostFacts(
            **self.table.facts(since),
            core_count=host.core_count,
            memory_total_bytes=host.memory_total_bytes,
            memory_slope_bytes_per_second=slope,
            memory_slope_error_bytes_per_second=slope_error,
            memory_trend_seconds=self.memory.seconds,
            swap_growth_bytes=(host.swap_used_bytes or 0) - (first or 0.0) if known else None,
            shm_total_bytes=host.shm_total_bytes,
            # As it is now: a worker that finds no room does not ask how the last minute was.
            shm_used_bytes=host.shm_used_bytes,
        )
