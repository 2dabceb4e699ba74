"""Watches the workers of a loader: when each finished its batches, and whether they all give the
same.

A loader's consumer cannot know how fast batches are made: those it takes may have waited in a
queue. Workers that are spawned import this.
"""

import contextlib
import os
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any

from gpuwatch.tuning.failures import MeasureError

REPEATS = (
    "Every worker goes through the whole iterable dataset, so each sample comes once from each of "
    "them: share it out by torch.utils.data.get_worker_info() in its __iter__, then measure again."
)
VALUES_LEAST = 8
"""Fewer can be alike by chance."""
VALUES_MOST = 65_536
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
        # all its batches do, but for one that it may have begun before.
        return max(len(stamps) * made / spent, (made - len(stamps)) / (end - begin))

    def least_ready(self, since: float, end: float, taken: int) -> int:
        """Batches ready in the worker that is furthest behind, where ``taken`` batches of an epoch
        that began at ``since`` were taken in turn."""
        made = self._read(end)
        most = max(made, default=-1) + 1
        ready = (
            len(its) - bisect_right(its, since) - (taken + most - 1 - worker) // most
            for worker, its in made.items()
        )
        return min(ready, default=0)

    def _read(self, end: float) -> dict[int, list[float]]:
        """By the number of the worker."""
        found: dict[int, list[float]] = defaultdict(list)
        size = os.fstat(self._descriptor).st_size
        for worker, at in _STAMP.iter_unpack(os.pread(self._descriptor, size, 0)):
            if at <= end:
                found[worker].append(at)
        return found


class RepeatWatch:
    """Sees whether every worker of an iterable dataset gives all of it: more workers would only
    seem faster.

    Workers deliver in turn, so the first two batches come from two of them. A dataset that does
    not share itself out by ``torch.utils.data.get_worker_info()`` gives the same in both
    (https://docs.pytorch.org/docs/stable/data.html, "Iterable-style datasets").
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._seen: list[tuple[int, ...]] = []

    def see(self, batch: Any) -> None:
        """Raises ``MeasureError`` once it is clear."""
        if len(self._seen) > self._workers:
            return
        self._seen.append(tuple(_marks(batch)))
        if len(self._seen) <= self._workers:
            return
        first, second, next_of_first = self._seen[0], self._seen[1], self._seen[-1]
        if any(
            one and one == two and one != three
            for one, two, three in zip(first, second, next_of_first, strict=False)
        ):
            raise MeasureError(REPEATS, "repeats")


def _marks(batch: Any) -> Iterator[int]:
    """A number for each tensor and column of a batch; 0: it means nothing."""
    if hasattr(batch, "numel") and hasattr(batch, "flatten"):
        yield _of_tensor(batch)
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _marks(value)
    elif isinstance(batch, list | tuple):
        if batch and all(isinstance(one, str | bytes | int | float) for one in batch):
            known = len(batch) >= VALUES_LEAST and len(set(batch)) > 1
            yield hash(tuple(batch[:VALUES_MOST])) if known else 0
        else:
            for value in batch:
                yield from _marks(value)


def _of_tensor(tensor: Any) -> int:
    import torch  # noqa: PLC0415 - a batch is here, so torch is

    if tensor.numel() < VALUES_LEAST or tensor.device.type != "cpu" or tensor.is_sparse:
        return 0
    values = tensor.detach().flatten()[:VALUES_MOST].contiguous()
    if bool((values == values[0]).all()):
        return 0
    return hash(bytes(values.view(torch.uint8).tolist()))
