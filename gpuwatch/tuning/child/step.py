"""A user's train step: what a target names, and how many samples a batch holds."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

from gpuwatch.tuning import failures
from gpuwatch.tuning.child.loader_factory import kind_of
from gpuwatch.tuning.failures import MeasureError


def make_step(found: object, text: str) -> Callable[[Any], object]:
    """The callable that does one step, from what a target names: it itself, or, where it takes
    no argument at all, what it returns. Raises ``MeasureError``."""
    if not callable(found):
        raise MeasureError(
            f"{text} is {kind_of(found)}, not a train step: name a function that takes a batch, or "
            "one without arguments that returns such a function.",
            "step",
        )
    if not _is_factory(found):
        return found
    try:
        made = found()
    except Exception as error:
        raise MeasureError(f"{text}() failed: {failures.described(error)}.", "step") from None
    if not callable(made):
        raise MeasureError(
            f"{text} takes no argument, so it should return the train step, but it returned "
            f"{kind_of(made)}.",
            "step",
        )
    step: Callable[[Any], object] = made
    return step


def _is_factory(found: Callable[..., object]) -> bool:
    """True if it takes no positional argument, not even an optional one."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD) for one in parameters)


def samples_in(batch: object) -> int:
    """How many samples a batch holds: the length of its first tensor, or its own.

    >>> samples_in({"text": ["a", "b", "c"]})
    3
    """
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    if isinstance(batch, list | tuple):
        # A collated batch is a few columns of many samples; a list of plain values is a column.
        columns = bool(batch) and not isinstance(batch[0], str | bytes | int | float)
        return samples_in(batch[0]) if columns else len(batch)
    values = getattr(batch, "values", None)
    if callable(values):
        # A dict, or what quacks like one (transformers' BatchEncoding).
        return next((samples_in(value) for value in values()), 0)
    return len(batch) if isinstance(batch, Sized) and not isinstance(batch, str | bytes) else 1


def tensors_in(batch: object) -> Iterator[Any]:
    import torch  # noqa: PLC0415 - only a measuring process pays for it

    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_in(value)
