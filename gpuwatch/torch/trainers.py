"""The guard around the hooks that trainers call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from gpuwatch.torch.reporter import REPORTER

Hook = TypeVar("Hook", bound=Callable[..., None])


def quiet(hook: Hook) -> Hook:
    """A hook that does nothing outside the thread that trains, and never raises."""

    @functools.wraps(hook)
    def guarded(*arguments: Any, **named: Any) -> None:
        try:
            if REPORTER.follows_this_thread():
                hook(*arguments, **named)
        except Exception as error:
            REPORTER.fail(error)

    return guarded  # type: ignore[return-value]
