"""What the callbacks for trainers have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from gpuwatch.torch.reporter import TELLER

Hook = TypeVar("Hook", bound=Callable[..., None])


def quiet(hook: Hook) -> Hook:
    """A hook that does nothing outside the thread that trains, and never raises."""

    @functools.wraps(hook)
    def guarded(*arguments: Any, **named: Any) -> None:
        try:
            if TELLER.follows_this_thread():
                hook(*arguments, **named)
        except Exception as error:
            TELLER.fail(error)

    return guarded  # type: ignore[return-value]


def first_loader(loaders: Any) -> Any:
    """One of the loaders that a trainer was given: itself, or the first of several."""
    for _ in range(3):
        if isinstance(loaders, dict) and loaders:
            loaders = next(iter(loaders.values()))
        elif isinstance(loaders, (list, tuple)) and loaders:
            loaders = loaders[0]
        else:
            break
    return loaders
