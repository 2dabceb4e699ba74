"""Runs a train step on the batches of a loader and tells who waits for whom.

The host's share is timed around the iterator's ``next()``. On CUDA the GPU's own share comes from
two events around each step, read at the ends of blocks of steps: only there the host waits for
the GPU. Runs the user's code, so it belongs in a measuring process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.tuning.child import blame
from gpuwatch.tuning.child.step_cuda import CudaMarks
from gpuwatch.tuning.child.step_gpu import GpuBusy, uuid_of

BLOCKS = 8
"""Into so many blocks the time is cut: enough for an interval, few enough to wait for the GPU."""
WARM_UP_STEPS = 3
"""The first allocates, the second has the optimizer's state, the third is as all others."""


class StepError(Exception):
    """A step cannot be measured; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What steps on a loader's batches did, after the warm-up.

    Shares are 0..1 of ``seconds``. ``data_wait_share`` is the host's: what it spent in the
    loader's ``next()``. ``device_idle_share`` (CUDA) is the GPU's: between the end of one step's
    work and the start of the next, which is smaller where queued work hides the host's wait.
    ``gpu_busy_percent`` is NVML's utilisation of the GPU that this process is on.
    ``block_rates``: samples a second of each stretch of the time, for an interval.
    """

    device: str
    batches: int
    samples: int
    seconds: float
    data_wait_share: float
    samples_per_second: float
    step_seconds_mean: float
    """Without the wait for the data."""
    device_idle_share: float | None = None
    gpu_busy_percent: float | None = None
    block_rates: tuple[float, ...] = ()
    ended_early: bool = False
    """The batches ran out before the time did."""


def make_step(found: object, text: str) -> Callable[[Any], object]:
    """The callable that does one step, from what a target names: it itself, or, where it takes
    no argument at all, what it returns. Raises ``StepError``."""
    if not callable(found):
        raise StepError(
            f"{text} is {_kind(found)}, not a train step: name a function that takes a batch, or "
            "one without arguments that returns such a function."
        )
    if not is_factory(found):
        return found
    try:
        made = found()
    except Exception as error:
        raise StepError(f"{text}() failed: {blame.told(error)}.") from None
    if not callable(made):
        raise StepError(
            f"{text} takes no argument, so it is to return the train step, but it returned "
            f"{_kind(made)}."
        )
    step: Callable[[Any], object] = made
    return step


def is_factory(found: Callable[..., object]) -> bool:
    """Whether it takes no positional argument, not even an optional one."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD) for one in parameters)


def _kind(found: object) -> str:
    name = clean(type(found).__name__, 80)
    return "None" if found is None else f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


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


def measure_step(
    batches: Iterable[Any],
    step: Callable[[Any], object],
    *,
    seconds: float,
    device: str | None = None,
    warm_up: int = WARM_UP_STEPS,
    clock: Callable[[], float] = perf_counter,
) -> StepResult:
    """Step through ``batches`` for ``seconds`` after ``warm_up`` steps.

    ``device`` as torch names it; ``None``: CUDA if there is one. A loader that prefetches has
    batches ready at first: a ``warm_up`` of more steps than it has ready uses them up. Raises
    ``StepError`` where the step fails or there are too few batches; what the loader raises
    passes.
    """
    where = device or _default_device()
    marks = CudaMarks(where) if where.startswith("cuda") else None
    run = _Run(iter(batches), step, marks, clock)
    # The driver is opened first: while it wakes up a loader would fill its queue.
    with closing(GpuBusy(uuid_of(where))) as busy:
        for _ in range(warm_up):
            if not run.step():
                break
        run.wait_for_device()
        if run.exhausted:
            raise StepError(
                f"The loader ended after {run.batches} batches, before the {warm_up} steps of the "
                "warm-up were over: there is nothing to measure."
            )
        return _measure(run, busy, seconds, where)


def _default_device() -> str:
    import torch  # noqa: PLC0415 - only a measuring process pays for it

    return "cuda" if torch.cuda.is_available() else "cpu"


def _measure(run: _Run, busy: GpuBusy, seconds: float, where: str) -> StepResult:
    run.reset()
    busy.start()
    blocks: list[_Block] = []
    while sum(block.seconds for block in blocks) < seconds and not run.exhausted:
        block = run.block(seconds / BLOCKS)
        if block.batches:
            blocks.append(block)
        busy.note()
    if not blocks:
        raise StepError("The loader ended with the warm-up: there is nothing to measure.")
    total = sum(block.seconds for block in blocks)
    waited = sum(block.wait_seconds for block in blocks)
    count = sum(block.batches for block in blocks)
    samples = sum(block.samples for block in blocks)
    idle = [block.idle_share for block in blocks if block.idle_share is not None]
    return StepResult(
        device=where,
        batches=count,
        samples=samples,
        seconds=total,
        data_wait_share=waited / total,
        samples_per_second=samples / total,
        step_seconds_mean=(total - waited) / count,
        device_idle_share=sum(idle) / len(idle) if idle else None,
        gpu_busy_percent=busy.percent(),
        block_rates=tuple(block.samples / block.seconds for block in blocks),
        ended_early=run.exhausted and total < seconds,
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """Steps from one wait for the device to the next."""

    batches: int
    samples: int
    seconds: float
    wait_seconds: float
    idle_share: float | None


class _Run:
    """The steps, one after another."""

    def __init__(
        self,
        batches: Iterator[Any],
        step: Callable[[Any], object],
        marks: CudaMarks | None,
        clock: Callable[[], float],
    ) -> None:
        self._iterator = batches
        self._step = step
        self._marks = marks
        self._clock = clock
        self.exhausted = False
        self.reset()

    def reset(self) -> None:
        self.batches = 0
        self.samples = 0
        self.wait_seconds = 0.0

    def step(self) -> bool:
        """One batch and one step; ``False``: there was no batch."""
        before = self._clock()
        try:
            batch = next(self._iterator)
        except StopIteration:
            self.exhausted = True
            return False
        finally:
            self.wait_seconds += self._clock() - before
        if self._marks is not None:
            self._marks.begin()
        try:
            self._step(batch)
        except Exception as error:
            raise StepError(f"The train step failed: {blame.told(error)}.") from error
        if self._marks is not None:
            self._marks.end()
        self.batches += 1
        self.samples += samples_in(batch)
        return True

    def block(self, seconds: float) -> _Block:
        """At least one step, for about ``seconds``."""
        self.reset()
        begin = self._clock()
        while self.step() and self._clock() - begin < seconds:
            pass
        idle = self.wait_for_device()
        return _Block(self.batches, self.samples, self._clock() - begin, self.wait_seconds, idle)

    def wait_for_device(self) -> float | None:
        """Until all is done; the share of the time since the last wait in which the GPU had
        none of the steps' work."""
        return None if self._marks is None else self._marks.settle()
