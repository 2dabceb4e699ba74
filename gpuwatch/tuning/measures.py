"""Measurements of a loader's setting and of a train step, in a process that has PyTorch.

A visit to a setting takes the batches that were made ahead as a warm-up, so that what it then takes
is what the workers make, and ends after whole rounds: workers deliver in turn, so batches come in
bursts of as many as there are workers. Where an epoch is shorter than that, whole epochs are timed
with the start of their workers, since that is what a job on such a dataset pays.
"""

import contextlib
import math
import os
import random
import resource
import sys
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import torch

from gpuwatch.jobs.run.trees import tree_of
from gpuwatch.torch.batches import moved, size_of
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.loader_factory import LoaderFactory
from gpuwatch.tuning.records import MemoryPoint, Order, Visit
from gpuwatch.tuning.target import make_step

STEPS_LEAST = 3
"""Steps before a window: the first allocates, the second has the optimizer's state."""
MEMORY_STEPS = 3
NO_MEMORY = ("out of memory", "ALLOC_FAILED", "allocate memory", "not enough memory", "bad_alloc")
_ALIVE_EVERY_SECONDS = 0.25
_END = object()

# A visit to a setting


class LoaderRun:
    """A loader of one setting that is gone through, and what that takes."""

    def __init__(
        self,
        factory: LoaderFactory,
        order: Order,
        step: Callable[[Any], object] | None,
        say_alive: Callable[[], None],
    ) -> None:
        torch.manual_seed(order.seed)
        random.seed(order.seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(order.seed)
        self._loader = factory.make(order.setting)
        self._order, self._step, self._say_alive = order, step, say_alive
        self._cuda: Any = torch.cuda if torch.cuda.is_available() else None
        self._iterator: Any = None
        self._begun = perf_counter()
        self._alive_due = self._first_batch = 0.0
        self._samples = 0
        self._seconds = self._waited = self._cores_seconds = self._watched_seconds = 0.0

    def measure(self) -> Visit:
        """Time a window in the middle of epochs, or whole epochs. Raises what the user's code
        raises, and ``MeasureError``."""
        workers, wanted = self._order.setting.num_workers, self._order.seconds
        ahead = workers * (self._order.setting.prefetch_factor or 0)
        skip = ahead + max(2 if self._step is None else STEPS_LEAST, workers)
        with contextlib.suppress(Exception):
            # It is the user's own method.
            skip = skip if len(self._loader) >= 2 * skip else 0
        rounds = max(1, workers) if self._step is None else 1
        is_warm = False
        while not self._samples or (self._seconds < wanted and not self._is_late):
            epoch = self._epoch()
            if skip:
                for batch, _ in islice(epoch, skip):
                    self._use(batch)
                    if self._is_late:
                        # One more batch is better than none.
                        break
                counted = self._time(epoch, rounds, enough_seconds=wanted - self._seconds)
                # An epoch that is too short for a window was the warm-up of whole ones.
                skip = skip if counted or self._samples else 0
                is_warm = not skip
            else:
                self._time(epoch, 1, counts=is_warm)
                is_warm = True
        below = [pid for pid in tree_of(os.getpid()) if pid != os.getpid()]
        return Visit(
            samples=self._samples,
            seconds=self._seconds,
            first_batch_seconds=self._first_batch,
            cores_used=self._cores_seconds / self._watched_seconds,
            # Those of whole epochs have ended with the last.
            workers_memory_bytes=None if workers and not below else _memory_of(below),
            whole_epochs=not skip,
            data_wait_share=None if self._step is None else min(1.0, self._waited / self._seconds),
        )

    def end_workers(self) -> None:
        """End the workers in their own way (they may be writing a cache), if they are not stuck."""
        self._iterator = None
        with contextlib.suppress(AttributeError):
            vars(self._loader)["_iterator"] = None

    def _time(
        self,
        epoch: Iterator[tuple[Any, float]],
        rounds: int,
        *,
        enough_seconds: float = math.inf,
        counts: bool = True,
    ) -> bool:
        """Time an epoch from here on, in whole ``rounds`` of batches, until that is enough; whether
        there was anything to time. Where it does not ``count``, it does if time is over with it."""
        begun, cpu = self._now(), read_cpu_seconds()
        taken, waited, kept, end = 0, 0.0, 0, begun
        for number, (batch, seconds) in enumerate(epoch, 1):
            taken, waited = taken + self._use(batch), waited + seconds
            if self._is_late or number % rounds == 0:
                kept, end = taken, perf_counter()
                if self._is_late or (number > 1 and end - begun >= enough_seconds):
                    break
        # The GPU has done all steps only now.
        end = self._now() if self._step is not None else end
        if kept and (counts or self._is_late or end - begun >= self._order.seconds):
            self._samples += kept
            self._seconds += end - begun
            self._waited += waited
            self._cores_seconds += max(0.0, read_cpu_seconds() - cpu)
            self._watched_seconds += perf_counter() - begun
        return kept > 0

    def _epoch(self) -> Iterator[tuple[Any, float]]:
        """Yield each batch of an epoch and how long it was waited for."""
        if not getattr(self._loader, "persistent_workers", False):
            # Ends the workers of the epoch before.
            self._iterator = None
        self._iterator = iter(self._loader)
        for number in count():
            asked = perf_counter()
            batch = next(self._iterator, _END)
            now = perf_counter()
            if batch is _END and not number:
                raise MeasureError(
                    "No batch comes: the dataset is empty, its sampler yields nothing, or "
                    "drop_last leaves nothing of it.",
                    "empty",
                )
            if batch is _END:
                return
            self._first_batch = self._first_batch or now - self._begun
            if now >= self._alive_due:
                self._alive_due = now + _ALIVE_EVERY_SECONDS
                self._say_alive()
            yield batch, now - asked

    def _use(self, batch: Any) -> int:
        """Use a batch as a job would; return the samples in it."""
        if self._step is not None:
            try:
                self._step(batch)
            except Exception as error:
                how = failures.described(error)
                raise MeasureError(f"The train step failed: {how}.", "step") from error
        elif self._cuda is not None:
            # As a step would: only in a copy pinned memory makes a difference.
            moved(batch, "cuda")
        size = self._loader.batch_size
        if size is None:
            return 1 if self._loader.batch_sampler is None else size_of(batch) or 1
        return min(size_of(batch) or size, int(size))

    @property
    def _is_late(self) -> bool:
        return perf_counter() - self._begun >= self._order.limit_seconds

    def _now(self) -> float:
        if self._cuda is not None:
            self._cuda.synchronize()
        return perf_counter()


def read_cpu_seconds() -> float:
    """Return the CPU time of this process and all below it; that of ended ones is in their
    parent's (proc(5): cutime, cstime)."""
    seconds = 0.0
    for pid in tree_of(os.getpid()):
        with contextlib.suppress(psutil.Error):
            seconds += sum(psutil.Process(pid).cpu_times()[:4])
    return seconds


def _memory_of(pids: list[int]) -> int | None:
    """Return the memory of processes (PSS: what they share with others in parts)."""
    try:
        return sum([int(psutil.Process(pid).memory_full_info().pss) for pid in pids])
    except psutil.Error:
        return None


# The memory of a train step


def measure_memory(
    batch_size: int,
    step: tuple[object, str],
    on_cpu: bool,
    limit_bytes: int | None,
) -> MemoryPoint:
    """Run a few steps at one batch size, in a process that does nothing else. ``step``: what the
    target names, and the target.

    Peaks count from the start of the process: building the model, the first step (where cuDNN tries
    algorithms) and the optimizer's state are all in. Raises ``MeasureError``, with the code
    ``no_memory`` where memory ran out.
    """
    try:
        read_room = _host_room(limit_bytes) if on_cpu else _cuda_room(limit_bytes)
    except Exception as error:
        raise MeasureError(f"The device cannot be used: {failures.described(error)}.") from None
    try:
        run = make_step(*step)
        times = [perf_counter()]
        for _ in range(MEMORY_STEPS):
            run(batch_size)
            if not on_cpu:
                torch.cuda.synchronize()
            times.append(perf_counter())
    except BaseException as error:
        sentence = str(error)
        if not isinstance(error, MeasureError):
            sentence = f"The step at batch size {batch_size} failed: {failures.described(error)}."
            if isinstance(error, TypeError | AttributeError):
                # A step that wants a batch got a number.
                sentence += " (It is called with the batch size, a whole number, and makes its own "
                sentence += "data.)"
        raise MeasureError(sentence, "no_memory" if _ran_out(error) else "step") from None
    room = read_room()
    if room.get("allocated_bytes") == 0:
        raise MeasureError(
            "The step put nothing on the GPU: it has to move its model and its batch there itself "
            "(.to('cuda')).",
            "step",
        )
    # The first step is apart: it allocates, compiles and chooses.
    seconds = (times[-1] - times[1]) / (MEMORY_STEPS - 1)
    return MemoryPoint(batch_size=batch_size, seconds_per_step=seconds, **room)


def _cuda_room(limit_bytes: int | None) -> Callable[[], dict[str, int]]:
    """Limit this process to so much memory; return the reading after the steps.

    What torch's allocator reserves must fit into what was free once the context stood, less what
    libraries took past the allocator meanwhile (cuBLAS, cuDNN, kernels)
    (https://docs.pytorch.org/docs/stable/notes/cuda.html, "Memory management").
    """
    cuda: Any = torch.cuda
    cuda.init()
    first_free, total = cuda.mem_get_info()
    free = first_free
    if limit_bytes is not None and limit_bytes < total:
        cuda.set_per_process_memory_fraction(limit_bytes / total)
        free, total = min(free, limit_bytes), limit_bytes

    def read() -> dict[str, int]:
        taken = first_free - cuda.mem_get_info()[0]
        return {
            "peak_bytes": cuda.max_memory_reserved(),
            "available_bytes": free - max(0, taken - cuda.memory_reserved()),
            "total_bytes": total,
            "allocated_bytes": cuda.max_memory_allocated(),
        }

    return read


def _host_room(limit_bytes: int | None) -> Callable[[], dict[str, int]]:
    """Limit this process to the host's free memory, or less; return the reading after the steps:
    the largest resident size (getrusage(2)), Python and torch in it.

    So that a batch that is too large harms nobody, the process may take no more data than there is
    room for (RLIMIT_DATA; torch's allocator then raises), and should memory run out all the same
    (a container may have less) the kernel ends this process first (oom_score_adj).
    """
    own, machine = psutil.Process().memory_info(), psutil.virtual_memory()
    available, total = int(machine.available) + own.rss, int(machine.total)
    if limit_bytes is not None and limit_bytes < total:
        available, total = min(available, limit_bytes), limit_bytes
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(OSError, ValueError):
        room = max(available - own.rss, 1 << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (own.data + room, hard))
    return lambda: {
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "available_bytes": available,
        "total_bytes": total,
    }


def _ran_out(error: BaseException | None) -> bool:
    """Return whether memory ran out, also where a step or a library wraps that error."""
    while error is not None:
        if isinstance(error, MemoryError) or (
            isinstance(error, RuntimeError | OSError)
            and any(text in str(error) for text in NO_MEMORY)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False
