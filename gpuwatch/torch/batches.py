"""Sizes of batches, whatever they are made of, and settings of loaders."""

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

_DEEPEST = 3


def size_of(batch: object) -> int | None:
    """How many samples are in it, as far as its form says so: the first dimension of the first
    tensor in it, or the length of a list of anything else. Never raises."""
    try:
        return _size_of(batch, _DEEPEST)
    except Exception:
        return None


def _size_of(batch: Any, deeper: int) -> int | None:
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) > 0 else None
    if isinstance(batch, Mapping):
        return None if deeper == 0 else _first(batch.values(), deeper - 1)
    if isinstance(batch, (list, tuple)):
        found = None if deeper == 0 else _first(batch, deeper - 1)
        if found is None and isinstance(batch, list) and batch:
            return len(batch)
        return found
    # A batch of graphs (PyTorch Geometric) is one large graph.
    for name in ("num_graphs", "batch_size"):
        count = getattr(batch, name, None)
        if isinstance(count, int):
            return count
    return None


def _first(parts: Any, deeper: int) -> int | None:
    for part in parts:
        if not isinstance(part, (str, bytes, int, float)):
            found = _size_of(part, deeper)
            if found is not None:
                return found
    return None


def moved(batch: Any, device: object) -> Any:
    """The batch with every tensor of it on ``device``, copied without waiting where the memory is
    pinned. Raises what PyTorch raises."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return type(batch)({key: moved(value, device) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*[moved(part, device) for part in batch])
    if isinstance(batch, (list, tuple)):
        return type(batch)([moved(part, device) for part in batch])
    if hasattr(batch, "to"):
        return batch.to(device)
    return batch


def about(loader: Any) -> tuple[int | None, int | None, bool | None]:
    """Batches in a pass, loader workers, pinned memory; ``None`` where it does not say."""
    steps, workers, pinned = None, None, None
    with contextlib.suppress(Exception):
        workers = getattr(loader, "num_workers", None)
        pinned = getattr(loader, "pin_memory", None)
        data, dataset = sys.modules.get("torch.utils.data"), getattr(loader, "dataset", None)
        # A DataLoader over an iterable dataset remembers that it was asked for its length, and
        # warns when that turns out wrong.
        if data is None or not isinstance(dataset, data.IterableDataset):
            steps = len(loader)
    return steps, workers, pinned if isinstance(pinned, bool) else None


def first_loader(loaders: Any) -> Any:
    """One of the loaders that a trainer was given: itself, or the first of several."""
    for _ in range(_DEEPEST):
        if isinstance(loaders, dict) and loaders:
            loaders = next(iter(loaders.values()))
        elif isinstance(loaders, (list, tuple)) and loaders:
            loaders = loaders[0]
        else:
            break
    return loaders
