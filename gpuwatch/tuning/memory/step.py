"""Makes the user's train step runnable at a batch size, with or without a loader.

For measuring processes: runs the user's code.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Sized
from itertools import islice
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.tuning.child import blame, target
from gpuwatch.tuning.child.cuda import tensors_in
from gpuwatch.tuning.child.step import StepError, make_step

Step = Callable[[], object]


def sized_step(step_text: str, loader_text: str | None, batch_size: int) -> tuple[Step, int | None]:
    """What runs one step at ``batch_size``, and the bytes of the batch's tensors (``None``: the
    step makes its own data).

    Raises ``TargetError`` or ``StepError`` with a sentence.
    """
    shown = clean(step_text, 200)
    found = target.load(step_text).found
    # The data first: what the model takes is the step's, and comes after.
    batch = None if loader_text is None else make_batch(loader_text, batch_size)
    step = make_step(found, shown)
    if loader_text is None:
        return lambda: step(batch_size), None
    size = sum(one.numel() * one.element_size() for one in tensors_in(batch))
    # A step that pops a key off its batch must find it again the next time.
    return lambda: step(copy.copy(batch)), size


def hint(loader_text: str | None, error: BaseException) -> str:
    """What an exception in the step may come from: a step that wants a batch got a number."""
    if loader_text is None and isinstance(error, TypeError | AttributeError):
        return (
            " (Without --loader the step is called with the batch size, a whole number, and makes "
            "its own data.)"
        )
    return ""


def make_batch(text: str, batch_size: int) -> Any:
    """A batch of ``batch_size`` samples from the start of a dataset, again from its start where
    it has fewer, collated as its loader does. Raises ``StepError`` and ``TargetError``."""
    from torch.utils import data  # noqa: PLC0415 - only a measuring process pays for it

    shown = clean(text, 200)
    found = _made(target.load(text).found, shown)
    collate: Callable[[list[Any]], Any] = data.default_collate
    if isinstance(found, data.DataLoader):
        # Without a batch size it yields batches that the dataset has made, which cannot be sized.
        if found.batch_size is None and found.batch_sampler is None:
            raise StepError(f"{shown} is a loader without a batch size: name its dataset.")
        collate, found = found.collate_fn, found.dataset
    try:
        samples = _samples(found, batch_size)
        return collate(samples)
    except StepError:
        raise
    except Exception as error:
        raise StepError(f"A batch of {batch_size} from {shown} failed: {blame.told(error)}.") from (
            error
        )


def _made(found: Any, shown: str) -> Any:
    """The dataset or loader itself, or what a function without arguments returns."""
    samples = hasattr(found, "__getitem__") or hasattr(found, "__iter__")
    if samples and not isinstance(found, type):
        return found
    if not callable(found):
        raise StepError(f"{shown} is a {clean(type(found).__name__, 80)}, not a dataset.")
    try:
        inspect.signature(found).bind()
    except TypeError:
        raise StepError(
            f"{shown} takes arguments: name a dataset, or a function without arguments that "
            "returns one."
        ) from None
    except ValueError:
        pass
    try:
        return found()
    except Exception as error:
        raise StepError(f"{shown}() failed: {blame.told(error)}.") from error


def _samples(dataset: Any, count: int) -> list[Any]:
    """The first ``count``, again from the start where there are fewer (the same objects then, so
    that a small dataset is read once). Raises ``StepError`` where there is none."""
    if isinstance(dataset, Sized) and hasattr(dataset, "__getitem__"):
        known = [dataset[place] for place in range(min(count, len(dataset)))]
    elif isinstance(dataset, Iterable):
        known = list(islice(iter(dataset), count))
    else:
        raise StepError(f"A {clean(type(dataset).__name__, 80)} has no samples to be taken.")
    if not known:
        raise StepError("The dataset has no samples.")
    return [known[place % len(known)] for place in range(count)]
