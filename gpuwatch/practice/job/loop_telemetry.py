"""The job tells of its loop through ``gpuwatch.torch``, unless it is to be seen from outside."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class Telling:
    """What the loop puts around its parts; with ``on`` false all of it does nothing."""

    def __init__(self, on: bool) -> None:
        self.on = on
        if on:
            import gpuwatch.torch as told  # noqa: PLC0415

            self._told: Any = told

    def watch(self, loader: Any) -> Iterable[Any]:
        watched: Iterable[Any] = self._told.watch(loader) if self.on else loader
        return watched

    def step(self) -> AbstractContextManager[Any]:
        return self._told.step() if self.on else nullcontext()

    def validation(self) -> AbstractContextManager[Any]:
        return self._told.validation() if self.on else nullcontext()

    def checkpoint(self) -> AbstractContextManager[Any]:
        return self._told.checkpoint() if self.on else nullcontext()
