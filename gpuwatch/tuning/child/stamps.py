"""When each worker of a loader finished its batches, noted by the workers themselves.

A loader's consumer can't tell how fast batches are made: what it takes may have waited in a queue.
Standard library only, since workers that are spawned import it; Linux's /proc.
"""

from __future__ import annotations

import contextlib
import os
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

_STAMP = struct.Struct("=qd")


class Stamps:
    """Takes the place of a loader's ``collate_fn``, the last a worker does for a batch, and notes
    the time (the clock is the same in all processes) in a file without a name."""

    def __init__(self, own: Callable[[Any], Any]) -> None:
        self._own = own
        self._descriptor = os.memfd_create("gpuwatch-batches")
        # A worker that is spawned has no descriptors of its parent's.
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        self._writing: int | None = None

    def __call__(self, samples: Any) -> Any:
        from torch.utils.data import get_worker_info  # noqa: PLC0415 - a worker has it already

        batch = self._own(samples)
        worker = get_worker_info()
        # Better no stamp than no batch.
        with contextlib.suppress(OSError):
            if self._writing is None:
                self._writing = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            os.write(self._writing, _STAMP.pack(0 if worker is None else worker.id, perf_counter()))
        return batch

    def pace(self, begin: float, end: float) -> float | None:
        """Batches that all workers together make in a second, between two times.

        Each worker is timed from a batch to a later batch of its own, so none that was begun before
        counts, however late anybody got to look.
        """
        made, spent, stamps = 0, 0.0, self._read(end)
        for its in stamps.values():
            first = max(0, bisect_right(its, begin) - 1)
            count = len(its) - 1 - first
            made += count
            spent += (its[-1] if count else end) - its[first]
        if not made:
            return None
        # Where a worker's queue was full until now, the time it had nothing to do must not count:
        # then all its batches do, but for one that it may have begun before.
        return max(len(stamps) * made / spent, (made - len(stamps)) / (end - begin))

    def least_ready(self, since: float, end: float, taken: int) -> int:
        """What the worker that is furthest behind has ready, where ``taken`` batches of an epoch
        that began at ``since`` were taken in turn."""
        made = self._read(end)
        most = max(made, default=-1) + 1
        return min(
            (
                len(its) - bisect_right(its, since) - (taken + most - 1 - worker) // most
                for worker, its in made.items()
            ),
            default=0,
        )

    def _read(self, end: float) -> dict[int, list[float]]:
        """By the number of the worker."""
        found: dict[int, list[float]] = defaultdict(list)
        size = os.fstat(self._descriptor).st_size
        for worker, at in _STAMP.iter_unpack(os.pread(self._descriptor, size, 0)):
            if at <= end:
                found[worker].append(at)
        return found
