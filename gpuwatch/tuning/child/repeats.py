"""Whether every worker of an iterable dataset gives all of it: then more workers only seem faster.

Where the dataset does not share itself out by ``torch.utils.data.get_worker_info()``, worker after
worker delivers the same samples
(https://docs.pytorch.org/docs/stable/data.html, "Iterable-style datasets").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SENTENCE = (
    "Every worker goes through the whole iterable dataset, so each sample comes once from each of "
    "them: share it out by torch.utils.data.get_worker_info() in its __iter__, then measure again."
)
VALUES_LEAST = 8
"""Fewer can be alike by chance."""
VALUES_MOST = 65_536

Mark = tuple[int, ...]


class RepeatsError(Exception):
    """The workers give the same samples; the message is a sentence for a person."""


class Watch:
    """Sees the first batches: workers deliver in turn, so the first two come from two of them."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._seen: list[Mark] = []

    def see(self, batch: Any) -> None:
        """Raises ``RepeatsError`` once it is clear."""
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
            raise RepeatsError(SENTENCE)


def _marks(batch: Any) -> Iterator[int]:
    """A number for each tensor and column of a batch; 0: it tells nothing."""
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
