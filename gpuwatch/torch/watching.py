"""The marks a training loop sets: ``watch``, ``step`` and those beside them.

All of them leave the job alone: exceptions of the job pass as they are, those of telling never
leave it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from gpuwatch.torch import batches
from gpuwatch.torch.reporter import CHECKPOINT, COPY, IDLE, STEP, TELLER, VALIDATION, WAIT, Teller

Batch = TypeVar("Batch")


class Watched(Generic[Batch]):
    """A loader whose batches are waited for under watch. Anything else asked of it is the
    loader's: its length, its attributes, its items."""

    def __init__(
        self,
        loader: Iterable[Batch],
        *,
        device: object = None,
        batch_size: int | None = None,
        validation: bool | None = None,
        teller: Teller = TELLER,
    ) -> None:
        own = self.__dict__
        own["_gpuwatch_loader"] = loader
        own["_gpuwatch_device"] = device
        own["_gpuwatch_batch_size"] = batch_size
        own["_gpuwatch_validation"] = validation
        own["_gpuwatch_teller"] = teller

    def __iter__(self) -> Iterator[Batch]:
        own = self.__dict__
        return _Loop(
            own["_gpuwatch_loader"],
            own["_gpuwatch_device"],
            own["_gpuwatch_batch_size"],
            own["_gpuwatch_validation"],
            own["_gpuwatch_teller"],
        )

    def __len__(self) -> int:
        return len(self.__dict__["_gpuwatch_loader"])

    def __bool__(self) -> bool:
        return bool(self.__dict__["_gpuwatch_loader"])

    def __getitem__(self, key: Any) -> Any:
        return self.__dict__["_gpuwatch_loader"][key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_gpuwatch_", "__")):
            raise AttributeError(name)
        return getattr(self.__dict__["_gpuwatch_loader"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["_gpuwatch_loader"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_gpuwatch_loader"], name)

    def __repr__(self) -> str:
        return f"watch({self.__dict__['_gpuwatch_loader']!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        own = self.__dict__
        return (
            _watch_again,
            (
                own["_gpuwatch_loader"],
                own["_gpuwatch_device"],
                own["_gpuwatch_batch_size"],
                own["_gpuwatch_validation"],
            ),
        )


def _watch_again(
    loader: Iterable[Any], device: object, batch_size: int | None, validation: bool | None
) -> Watched[Any]:
    return Watched(loader, device=device, batch_size=batch_size, validation=validation)


def watch(
    loader: Iterable[Batch],
    *,
    device: object = None,
    batch_size: int | None = None,
    validation: bool | None = None,
) -> Watched[Batch]:
    """``for batch in watch(loader):`` gives the loader's batches and tells how long the loop
    waited for each; what it does with one until it asks for the next is a step.

    ``device``: move every batch there, without waiting where it is pinned, and measure the copy.
    ``batch_size``: samples in a batch, where its form does not show it. ``validation``: whether
    these batches are for validation; without it they are if gradients are switched off or
    ``validation()`` is around. Of loops inside one another, the one that asks for most batches
    has the steps.
    """
    if isinstance(loader, Watched):
        return loader
    return Watched(loader, device=device, batch_size=batch_size, validation=validation)


class _Count:
    """The batches of one pass. The teller knows a pass by this: if it knew the pass itself, one
    that is broken off would never end."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches = 0


class _Loop(Iterator[Batch]):
    """One pass through a watched loader."""

    __slots__ = ("_about", "_aside", "_back", "_batch_size", "_begun", "_count", "_depth",
                 "_device", "_inner", "_other_seen", "_outer", "_teller")  # fmt: skip

    def __init__(
        self,
        loader: Iterable[Batch],
        device: object,
        batch_size: int | None,
        validation: bool | None,
        teller: Teller,
    ) -> None:
        self._teller = teller
        self._device = device
        self._batch_size = batch_size
        self._about = about(loader)
        self._aside = _gradients_are_off() if validation is None else validation
        self._begun = False
        self._outer = IDLE
        self._back: int | None = None
        self._depth: int | None = None
        self._other_seen = -1
        self._count = _Count()
        # Workers are started by this, which can take seconds: a wait like any other.
        waits = not self._aside and not teller.is_aside and teller.follows_this_thread()
        before = teller.state
        if waits:
            teller.wait_begins()
        try:
            self._inner = iter(loader)
        finally:
            if waits:
                teller.mark(before)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        teller = self._teller
        follows = teller.follows_this_thread()
        if follows:
            try:
                self._asks()
            except Exception as error:
                teller.fail(error)
        try:
            batch = next(self._inner)
        except BaseException:
            self._ends()
            raise
        if follows:
            size = self._batch_size
            try:
                self._gets(batches.size_of(batch) if size is None else size)
            except Exception as error:
                teller.fail(error)
        if self._device is not None:
            with Copying(self._teller):
                batch = batches.moved(batch, self._device)
        return batch

    def __getattr__(self, name: str) -> Any:
        if name in _Loop.__slots__:
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __del__(self) -> None:
        self._ends()

    def _asks(self) -> None:
        teller = self._teller
        if self._aside or teller.is_aside:
            if self._depth is None and not teller.is_aside:
                self._depth = teller.enter(VALIDATION)
            return
        loop = teller.loop
        if loop is self._count:
            teller.body_ends()
        elif loop is None or self._is_busier_than(loop):
            self._outer = IDLE if loop is None else teller.state
            if loop is None and teller.state == STEP:
                # Batches inside of one ``with step()``.
                self._outer = STEP
            teller.loop = self._count
            if not self._begun:
                self._begun = True
                teller.loop_begins(*self._about)
        else:
            self._back = teller.state
        teller.mark(WAIT)

    def _gets(self, size: int | None) -> None:
        teller = self._teller
        self._count.batches += 1
        if teller.loop is self._count:
            teller.body_begins(size)
        elif self._back is not None:
            teller.mark(self._back)
            self._back = None

    def _ends(self) -> None:
        """Also when the interpreter is half gone."""
        try:
            teller = self._teller
            if self._depth is not None:
                depth, self._depth = self._depth, None
                teller.leave(depth)
            elif self._back is not None:
                back, self._back = self._back, None
                teller.mark(back)
            elif teller.loop is self._count:
                teller.loop_ends(self._outer)
        except Exception:
            pass

    def _is_busier_than(self, other: Any) -> bool:
        """The other has not asked for a batch since this one asked before."""
        seen, self._other_seen = self._other_seen, getattr(other, "batches", -2)
        return seen == self._other_seen


class _Mark:
    """A stretch of the loop. Exceptions of what is inside pass."""

    __slots__ = ("_depth", "_teller")

    def __init__(self, teller: Teller = TELLER) -> None:
        self._teller = teller
        self._depth: int | None = None

    def __enter__(self) -> None:
        teller = self._teller
        try:
            if teller.follows_this_thread():
                self._depth = self._begin(teller)
        except Exception as error:
            teller.fail(error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        depth, self._depth = self._depth, None
        if depth is not None:
            try:
                self._end(self._teller, depth, whole=kind is None)
            except Exception as failure:
                self._teller.fail(failure)

    def _begin(self, teller: Teller) -> int | None:
        """``None``: it does not count here."""
        raise NotImplementedError

    def _end(self, teller: Teller, depth: int, *, whole: bool) -> None:  # noqa: ARG002
        teller.leave(depth)


class Step(_Mark):
    __slots__ = ("_samples",)

    def __init__(self, samples: int | None = None, teller: Teller = TELLER) -> None:
        super().__init__(teller)
        self._samples = samples

    def _begin(self, teller: Teller) -> int | None:
        return None if teller.is_aside or teller.in_step else teller.explicit_step_begins()

    def _end(self, teller: Teller, depth: int, *, whole: bool) -> None:
        teller.explicit_step_ends(depth, self._samples, whole=whole)


class Validation(_Mark):
    __slots__ = ()

    def _begin(self, teller: Teller) -> int | None:
        return None if teller.state == VALIDATION else teller.enter(VALIDATION)


class Checkpoint(_Mark):
    __slots__ = ()

    def _begin(self, teller: Teller) -> int | None:
        return None if teller.state == CHECKPOINT else teller.enter(CHECKPOINT)


class Copying(_Mark):
    __slots__ = ()

    def _begin(self, teller: Teller) -> int | None:
        if teller.is_aside or teller.state == COPY:
            return None
        depth = teller.enter(COPY)
        teller.copy_begins()
        return depth

    def _end(self, teller: Teller, depth: int, *, whole: bool) -> None:  # noqa: ARG002
        teller.copy_ends()
        teller.leave(depth)


def step(samples: int | None = None) -> Step:
    """``with step():`` is one training step; without it, the body of the loop is. ``samples``: in
    this step, where ``watch`` does not see them."""
    return Step(samples)


def validation() -> Validation:
    """``with validation():`` around an evaluation; what happens in it is no training step."""
    return Validation()


def checkpoint() -> Checkpoint:
    """``with checkpoint():`` around saving."""
    return Checkpoint()


def copying() -> Copying:
    """``with copying():`` around a copy of the batch to the GPU that the loop does itself."""
    return Copying()


def epoch(number: int) -> None:
    """This epoch begins; without it, every pass through a watched loader is one, from 0."""
    if TELLER.follows_this_thread():
        TELLER.epoch_is(number)


def describe() -> str:
    """Where this process tells, or why it does not, as a sentence."""
    return TELLER.describe()


def about(loader: Any) -> tuple[int | None, int | None, bool | None]:
    """Batches in a pass, loader workers, pinned memory; ``None`` where it does not say."""
    steps, workers, pinned = None, None, None
    try:
        workers = getattr(loader, "num_workers", None)
        pinned = getattr(loader, "pin_memory", None)
        if _len_is_harmless(loader):
            steps = len(loader)
    except Exception:
        steps = None
    return steps, workers, pinned if isinstance(pinned, bool) else None


def _len_is_harmless(loader: Any) -> bool:
    """A DataLoader over an iterable dataset remembers that it was asked, and warns when the
    length turns out wrong."""
    data = sys.modules.get("torch.utils.data")
    dataset = getattr(loader, "dataset", None)
    return hasattr(type(loader), "__len__") and not (
        data is not None and isinstance(dataset, data.IterableDataset)
    )


def _gradients_are_off() -> bool:
    torch = sys.modules.get("torch")
    try:
        return torch is not None and not torch.is_grad_enabled()
    except Exception:
        return False


__all__ = ["Watched", "checkpoint", "copying", "describe", "epoch", "step",
           "validation", "watch"]  # fmt: skip
