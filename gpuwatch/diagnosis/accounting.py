"""What each cause cost: shares of GPU time that are not counted twice, added up over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gpuwatch.diagnosis.window import GpuFacts, Window
from gpuwatch.model import GpuKey

WHILE_BUSY = frozenset(
    {
        "collective_wait",
        "straggler",
        "busy_without_work",
        "batch_too_small",
        "thermal_throttle",
        "power_throttle",
        "other_tenant",
    }
)
"""Rules whose loss lies in the time a kernel was resident; all others explain idle time."""


class Shares:
    """The time of a window's GPUs that is still to be explained, 0 to 1 of each."""

    def __init__(self, window: Window) -> None:
        self._idle: dict[GpuKey, float] = {}
        self._busy: dict[GpuKey, float] = {}
        for gpu in window.gpus:
            busy = _busy_share(gpu)
            self._idle[gpu.uuid] = 1.0 if busy is None else 1.0 - busy
            # The time a GPU waits in a collective for one that idles is told as that one's.
            self._busy[gpu.uuid] = 1.0

    def take(self, rule: str, gpus: Iterable[GpuKey], claim: float, *, busy: bool = False) -> float:
        """What is left of ``claim`` for this rule, a mean over the GPUs; it is used up by it.
        ``busy``: it was lost while a kernel was resident, whatever the rule usually says."""
        left = self._busy if busy or rule in WHILE_BUSY else self._idle
        keys = [key for key in gpus if key in left]
        if not keys:
            return claim
        given = 0.0
        for key in keys:
            part = min(claim, left[key])
            left[key] -= part
            given += part
        return given / len(keys)


def _busy_share(gpu: GpuFacts) -> float | None:
    return None if gpu.lost or gpu.busy is None else gpu.busy.mean_percent / 100.0


class Ledger:
    """GPU-seconds lost to one cause, from windows that overlap.

    Each window says how much of its time was lost; what was counted within that time before is
    taken off, so that the sum is right whatever the windows' length.
    """

    __slots__ = ("_counted", "gpu_seconds")

    def __init__(self) -> None:
        self.gpu_seconds = 0.0
        self._counted: deque[tuple[float, float, float]] = deque()
        """(from, to, amount): when it was lost, evenly, and how much."""

    def add(self, window: Window, share: float, gpus: int, since: float | None = None) -> None:
        """``share`` 0 to 1 of the window's watched time was lost on each of so many GPUs.

        ``since``: Unix seconds from which on the cause was seen to hold.
        """
        now = window.taken_at_unix_seconds
        begin = now - window.seconds
        counted = self._counted
        while counted and counted[0][1] <= begin:
            counted.popleft()
        before = sum([_inside(begin, *one) for one in counted])
        new = share * window.watched_seconds * gpus - before
        # A window that says less than the one before takes back what that one said too much.
        start = now - window.watched_seconds if since is None else since
        start = min(now, max(begin, counted[-1][1] if counted else start))
        counted.append((start, now, new))
        self.gpu_seconds = max(0.0, self.gpu_seconds + new)


def _inside(begin: float, start: float, end: float, amount: float) -> float:
    """The part of an amount that was lost after ``begin``."""
    if start >= begin or end <= start:
        return amount
    return amount * (end - begin) / (end - start)
