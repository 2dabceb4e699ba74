"""The marks a training loop sets: ``watch``, ``step`` and those beside them.

All of them leave the job alone: exceptions of the job pass as they are, those of reporting never
leave it.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from gpuwatch.jobs.loop.step_file import CHECKPOINT, COPY, IDLE, STEP, VALIDATION, WAIT
from gpuwatch.torch import batches
from gpuwatch.torch.reporter import REPORTER

Batch = TypeVar("Batch")
Hook = TypeVar("Hook", bound=Callable[..., None])


class _Asked(NamedTuple):
    """A loader, and what ``watch`` was asked of it."""

    loader: Any
    device: object
    batch_size: int | None
    validation: bool | None


class Watched(Generic[Batch]):
    """A loader whose batches are waited for under watch. Anything else asked of it is the
    loader's: its length, its attributes, its items."""

    def __init__(self, asked: _Asked) -> None:
        self.__dict__["_gpuwatch"] = asked

    def __iter__(self) -> Iterator[Batch]:
        return _Loop(self.__dict__["_gpuwatch"])

    def __len__(self) -> int:
        return len(self.__dict__["_gpuwatch"].loader)

    def __bool__(self) -> bool:
        return bool(self.__dict__["_gpuwatch"].loader)

    def __getitem__(self, key: Any) -> Any:
        return self.__dict__["_gpuwatch"].loader[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_gpuwatch", "__")):
            raise AttributeError(name)
        return getattr(self.__dict__["_gpuwatch"].loader, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["_gpuwatch"].loader, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_gpuwatch"].loader, name)

    def __repr__(self) -> str:
        return f"watch({self.__dict__['_gpuwatch'].loader!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Watched, (self.__dict__["_gpuwatch"],)


def watch(
    loader: Iterable[Batch],
    *,
    device: object = None,
    batch_size: int | None = None,
    validation: bool | None = None,
) -> Watched[Batch]:
    """``for batch in watch(loader):`` gives the loader's batches and reports how long the loop
    waited for each; what it does with one until it asks for the next is a step.

    ``device``: move every batch there, without waiting where it is pinned, and measure the copy.
    ``batch_size``: samples in a batch, where its form does not show it. ``validation``: whether
    these batches are for validation; without it they are if gradients are switched off or
    ``validation()`` is around. Of loops inside one another, the one that asks for most batches
    has the steps.
    """
    if isinstance(loader, Watched):
        return loader
    return Watched(_Asked(loader, device, batch_size, validation))


class _Count:
    """The batches of one pass. The reporter knows a pass by this: if it knew the pass itself, one
    that is broken off would never end."""

    batches = 0


class _Loop(Iterator[Batch]):
    """One pass through a watched loader."""

    __slots__ = ("_aside", "_asked", "_back", "_begun", "_count", "_depth", "_inner",
                 "_other_seen", "_outer")  # fmt: skip

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked
        self._aside = _gradients_are_off() if asked.validation is None else asked.validation
        self._begun = False
        self._outer = IDLE
        self._back: int | None = None
        self._depth: int | None = None
        self._other_seen = -1
        self._count = _Count()
        # Workers are started by this, which can take seconds: a wait like any other.
        waits = not self._aside and not REPORTER.is_aside and REPORTER.follows_this_thread()
        before = REPORTER.state
        if waits:
            REPORTER.mark(WAIT)
        try:
            self._inner = iter(asked.loader)
        finally:
            if waits:
                REPORTER.mark(before)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        follows = REPORTER.follows_this_thread()
        if follows:
            try:
                self._asks()
            except Exception as error:
                REPORTER.fail(error)
        try:
            batch: Batch = next(self._inner)
        except BaseException:
            self._ends()
            raise
        if follows:
            size = self._asked.batch_size
            try:
                self._gets(batches.size_of(batch) if size is None else size)
            except Exception as error:
                REPORTER.fail(error)
        if self._asked.device is not None:
            with copying():
                batch = batches.moved(batch, self._asked.device)
        return batch

    def __getattr__(self, name: str) -> Any:
        if name in _Loop.__slots__:
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __del__(self) -> None:
        self._ends()

    def _asks(self) -> None:
        if self._aside or REPORTER.is_aside:
            if self._depth is None and not REPORTER.is_aside:
                self._depth = REPORTER.enter(VALIDATION)
            return
        loop = REPORTER.loop
        if loop is self._count:
            REPORTER.body_ends()
        elif loop is None or self._is_busier_than(loop):
            # STEP: batches inside of one ``with step()``.
            is_inside = loop is not None or REPORTER.state == STEP
            self._outer = REPORTER.state if is_inside else IDLE
            REPORTER.loop = self._count
            if not self._begun:
                self._begun = True
                REPORTER.loop_begins(*batches.about(self._asked.loader))
        else:
            self._back = REPORTER.state
        REPORTER.mark(WAIT)

    def _gets(self, size: int | None) -> None:
        self._count.batches += 1
        if REPORTER.loop is self._count:
            REPORTER.body_begins(size)
        elif self._back is not None:
            REPORTER.mark(self._back)
            self._back = None

    def _ends(self) -> None:
        """End the watching, also when the interpreter is half gone."""
        try:
            if self._depth is not None:
                depth, self._depth = self._depth, None
                REPORTER.leave(depth)
            elif self._back is not None:
                back, self._back = self._back, None
                REPORTER.mark(back)
            elif REPORTER.loop is self._count:
                REPORTER.loop_ends(self._outer)
        except Exception:
            pass

    def _is_busier_than(self, other: Any) -> bool:
        """The other has not asked for a batch since this one asked before."""
        seen, self._other_seen = self._other_seen, getattr(other, "batches", -2)
        return seen == self._other_seen


class _Mark:
    """A stretch of the loop that is in ``state``. Exceptions of what is inside pass."""

    __slots__ = ("_depth", "_samples", "_state")

    def __init__(self, state: int, samples: int | None = None) -> None:
        self._state = state
        self._samples = samples
        self._depth: int | None = None

    def __enter__(self) -> None:
        try:
            if REPORTER.follows_this_thread():
                self._depth = self._begin()
        except Exception as error:
            REPORTER.fail(error)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        depth, self._depth = self._depth, None
        if depth is not None:
            try:
                self._end(depth, whole=kind is None)
            except Exception as failure:
                REPORTER.fail(failure)

    def _begin(self) -> int | None:
        """``None``: it does not count here."""
        state = self._state
        if state == STEP:
            counts = not (REPORTER.is_aside or REPORTER.in_step)
            return REPORTER.explicit_step_begins() if counts else None
        if REPORTER.state == state or (state == COPY and REPORTER.is_aside):
            return None
        depth = REPORTER.enter(state)
        if state == COPY:
            REPORTER.copy_begins()
        return depth

    def _end(self, depth: int, *, whole: bool) -> None:
        if self._state == STEP:
            REPORTER.explicit_step_ends(depth, self._samples, whole=whole)
            return
        if self._state == COPY:
            REPORTER.copy_ends()
        REPORTER.leave(depth)


def step(samples: int | None = None) -> _Mark:
    """``with step():`` is one training step; without it, the body of the loop is. ``samples``: in
    this step, where ``watch`` does not see them."""
    return _Mark(STEP, samples)


def validation() -> _Mark:
    """``with validation():`` around an evaluation; what happens in it is no training step."""
    return _Mark(VALIDATION)


def checkpoint() -> _Mark:
    """``with checkpoint():`` around saving."""
    return _Mark(CHECKPOINT)


def copying() -> _Mark:
    """``with copying():`` around a copy of the batch to the GPU that the loop does itself."""
    return _Mark(COPY)


def epoch(number: int) -> None:
    """Note that an epoch begins; without it, every pass through a watched loader is one, from 0."""
    if REPORTER.follows_this_thread():
        REPORTER.epoch_is(number)


def describe() -> str:
    """Say where this process reports, or why it does not, in a sentence."""
    return REPORTER.publisher.describe()


def quiet(hook: Hook) -> Hook:
    """A hook of a trainer that does nothing outside the thread that trains, and never raises."""

    @functools.wraps(hook)
    def guarded(*arguments: Any, **named: Any) -> None:
        try:
            if REPORTER.follows_this_thread():
                hook(*arguments, **named)
        except Exception as error:
            REPORTER.fail(error)

    return guarded  # type: ignore[return-value]


def _gradients_are_off() -> bool:
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        return torch is not None and not torch.is_grad_enabled()
    return False
