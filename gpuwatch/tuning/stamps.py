"""When each worker of a loader finished its batches, noted by the workers themselves.

A loader's consumer can't tell how fast batches are made: what it takes may have waited in a queue.
Standard library only, since workers that are spawned import it; Linux's /proc.
"""

from __future__ import annotations

import contextlib
import os
import struct
from bisect import bisect_left
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
        self._path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        self._writing: int | None = None

    def __call__(self, samples: Any) -> Any:
        from torch.utils.data import get_worker_info  # noqa: PLC0415 - a worker has it already

        batch = self._own(samples)
        worker = get_worker_info()
        # Better no stamp than no batch.
        with contextlib.suppress(OSError):
            if self._writing is None:
                self._writing = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            os.write(self._writing, _STAMP.pack(0 if worker is None else worker.id, perf_counter()))
        return batch

    def seconds(self, batches: int, begin: float, end: float) -> float:
        """How long the workers take for ``batches`` at their pace between two times; 0: unknown.

        Each worker's pace is counted from one of its batches to a later one, so no batch that was
        begun before is counted, however late anybody got to look.
        """
        stamps: dict[int, list[float]] = defaultdict(list)
        size = os.fstat(self._descriptor).st_size
        for worker, at in _STAMP.iter_unpack(os.pread(self._descriptor, size, 0)):
            if at <= end:
                stamps[worker].append(at)
        pace = 0.0
        for its in stamps.values():
            first = min(bisect_left(its, begin), len(its) - 2)
            if first < 0:
                return 0.0
            pace += (len(its) - 1 - first) / (its[-1] - its[first])
        return batches / pace if pace else 0.0
