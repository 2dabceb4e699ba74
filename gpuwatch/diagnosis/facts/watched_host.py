"""The machine around the jobs, followed from snapshot to snapshot."""

from collections import deque

from gpuwatch.core.model import Host
from gpuwatch.diagnosis.facts.averages import WINDOW_SECONDS, Averages
from gpuwatch.diagnosis.facts.window import HostFacts
from gpuwatch.diagnosis.signals.load import Pieces
from gpuwatch.diagnosis.signals.running import BUCKET_SECONDS, Ledger
from gpuwatch.diagnosis.signals.trend import Trend

LEDGER_SECONDS = 960.0
"""Longer than a pause is kept for: what was written in the first one must still be known."""


class HostTrack:
    def __init__(self) -> None:
        self.ledger = Ledger(("written", "sent"), LEDGER_SECONDS)
        self.means = Averages(HostFacts)
        self.memory = Trend()
        self.sent = Pieces(1)
        """Over the network, a second."""
        self._swap: deque[tuple[float, int]] = deque()
        self._last = Host(name="")

    def push(self, host: Host, at: float, seconds: float) -> None:
        self.means.add(at, host, seconds)
        rates = (host.disk_write_bytes_per_second, host.network_transmit_bytes_per_second)
        self.ledger.add(at, rates, seconds)
        self.sent.take(at, (host.network_transmit_bytes_per_second,))
        self.memory.add(at, host.memory_used_bytes)
        self._last = host
        swap, rows = host.swap_used_bytes, self._swap
        if swap is not None and (not rows or at >= rows[-1][0] + BUCKET_SECONDS):
            rows.append((at, swap))
            while len(rows) > 1 and rows[0][0] <= at - WINDOW_SECONDS:
                rows.popleft()

    def facts(self, since: float) -> HostFacts:
        """Over the time after ``since``."""
        host = self._last
        slope, slope_error = self.memory.slope() or (None, None)
        swap = [used for at, used in self._swap if at > since]
        known = swap and host.swap_used_bytes is not None
        return HostFacts(
            **self.means.over(since),
            core_count=host.core_count,
            memory_total_bytes=host.memory_total_bytes,
            memory_slope_bytes_per_second=slope,
            memory_slope_error_bytes_per_second=slope_error,
            memory_trend_seconds=self.memory.seconds,
            swap_growth_bytes=float((host.swap_used_bytes or 0) - swap[0]) if known else None,
            shm_total_bytes=host.shm_total_bytes,
            # As it is now: a worker that finds no room does not ask how the last minute was.
            shm_used_bytes=host.shm_used_bytes,
        )
