"""Times one setting of a loader; runs in a process of its own.

A window begins after the first batch and a warm-up that takes what was prefetched meanwhile, and
holds whole rounds: workers deliver in turn, so batches come in bursts of as many as there are
workers, and a window that cuts a burst would measure where it was cut. How long its batches took is
what the workers took to make them (``watching``), however many were ready when it began. Where an
epoch is shorter than a window, whole epochs are timed instead, with the start of their workers,
since that is what a job on such a dataset pays. A train step runs on each batch where there is one.
"""

import contextlib
import itertools
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any

import torch
from msgspec import structs

from gpuwatch.torch.batches import size_of
from gpuwatch.tuning import failures, processes
from gpuwatch.tuning.child import loader_factory, usage
from gpuwatch.tuning.child.gpu import OwnGpu
from gpuwatch.tuning.child.usage import Window
from gpuwatch.tuning.child.watching import RepeatWatch, Stamps
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.messages import Order
from gpuwatch.tuning.settings import Visit

STEPS_LEAST = 3
"""Before the window: the first step allocates, the second has the optimizer's state."""
_ALIVE_EVERY = 0.25
_LOOK_EVERY = 0.05
_GPU_EVERY = 0.5

Step = Callable[[Any], object]


def measure(
    factory: loader_factory.LoaderFactory,
    order: Order,
    alive: Callable[[], None],
    step: Step | None = None,
) -> Visit:
    """``alive`` is called while batches come. Raises what the user's code raises, and
    ``MeasureError``."""
    # The same samples in the same order for every setting of one round.
    torch.manual_seed(order.seed)
    random.seed(order.seed)
    with contextlib.suppress(ImportError):
        import numpy  # noqa: PLC0415

        numpy.random.seed(order.seed % 2**32)
    loader = factory.make(order.setting)
    if order.restart:
        # Two short epochs.
        ahead = order.setting.num_workers * (order.setting.prefetch_factor or 1)
        loader = loader_factory.shortened(loader, 2 * max(1, ahead))
        if loader is None:
            raise MeasureError("An iterable dataset's epochs cannot be shortened.")
        step = None
    run = Run(loader, order, alive, step)
    visit = run.epochs() if order.restart or order.whole_epochs else run.steady()
    run.close()
    return structs.replace(visit, whole_epochs=False) if order.restart else visit


class Run:
    """A loader that is gone through, and what that takes."""

    def __init__(
        self, loader: Any, order: Order, alive: Callable[[], None], step: Step | None
    ) -> None:
        self._loader = loader
        self._order = order
        self._workers = order.setting.num_workers
        self._alive = alive
        self._step = step
        self._gpu = None if step is None else OwnGpu()
        self._device = "cuda" if torch.cuda.is_available() else None
        self._iterator: Any = None
        self._pids: list[int] = []
        self._workers_pss: list[int | None] = []
        self._window = Window()
        self._waited = 0.0
        self._begun = perf_counter()
        self._due = {"alive": 0.0, "shm": 0.0, "gpu": 0.0}
        self._shm_before = usage.shm_used()
        self._shm_most = 0
        self._first_batch = 0.0
        self._epoch_samples = self._epoch_batches = 0
        self._epoch_begun = 0.0
        self._whole_samples: int | None = None
        """Of an epoch that was seen to its end."""
        self._stamps = Stamps(loader.collate_fn) if self._workers else None
        if self._stamps is not None:
            vars(loader)["collate_fn"] = self._stamps
        several = self._workers > 1 and loader_factory.is_iterable(loader)
        self._watch = RepeatWatch(self._workers) if several else None

    # --- the loader --------------------------------------------------------------------------

    def _start(self) -> None:
        self._epoch_samples = self._epoch_batches = 0
        self._epoch_begun = perf_counter()
        if not self._order.setting.persistent_workers:
            # Ends the workers of the epoch before.
            self._iterator = None
        self._iterator = iter(self._loader)
        self._pids = [one.pid for one in getattr(self._iterator, "_workers", ())]
        if self._next() is None:
            raise MeasureError(loader_factory.why_empty(self._loader), "empty")

    def _next(self) -> int | None:
        """Take the next batch of this epoch; how many samples it has, ``None``: it was the last."""
        asked = perf_counter()
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._whole_samples = self._epoch_samples
            return None
        self._waited += perf_counter() - asked
        if not self._first_batch:
            self._first_batch = perf_counter() - self._begun
        if self._watch is not None:
            self._watch.see(batch)
        count = _count(self._loader, batch)
        self._epoch_batches += 1
        self._epoch_samples += count
        self._use(batch)
        if self._is_due("alive", _ALIVE_EVERY):
            self._alive()
        if self._is_due("shm", _LOOK_EVERY):
            self._shm_most = max(self._shm_most, usage.shm_used() or 0)
        if self._gpu is not None and self._is_due("gpu", _GPU_EVERY):
            self._gpu.note()
        return count

    def _is_due(self, what: str, seconds: float) -> bool:
        now = perf_counter()
        due = now - self._due[what] >= seconds
        if due:
            self._due[what] = now
        return due

    def _use(self, batch: Any) -> None:
        """In a step, or copied to the GPU as a step would: only then memory that is pinned makes
        a difference."""
        if self._step is not None:
            try:
                self._step(batch)
            except Exception as error:
                how = failures.described(error)
                raise MeasureError(f"The train step failed: {how}.", "step") from error
        elif self._device is not None:
            for tensor in tensors_in(batch):
                tensor.to(self._device, non_blocking=True)

    def _late(self) -> bool:
        return perf_counter() - self._begun >= self._order.limit_seconds

    # --- the windows -------------------------------------------------------------------------

    def steady(self) -> Visit:
        """A window in the middle of epochs."""
        more = False
        while self._window.seconds < self._order.seconds:
            if not more:
                self._start()
            more = self._warm_up()
            if more:
                more = self._span()
            if self._late():
                break
            if self._whole_samples is not None and not self._window.batches:
                # Nothing is left of an epoch after the warm-up: it can only be timed whole.
                return self.epochs()
        if not self._window.batches:
            raise MeasureError(
                f"Too slow to measure in time: {self._epoch_batches} batches in "
                f"{perf_counter() - self._begun:.0f} s, the first after {self._first_batch:.1f} s; "
                "a longer --budget measures it.",
                "too_slow",
            )
        return self._visit()

    def _warm_up(self) -> bool:
        """Every worker has delivered, and what was prefetched until now is taken, unless that
        takes half of the epoch or as long as a window; ``False``: the epoch or the time ended."""
        least = max(2 if self._step is None else STEPS_LEAST, self._workers)
        most = least + self._workers * (self._order.setting.prefetch_factor or 0)
        _, batches = loader_factory.lengths(self._loader)
        if batches is not None:
            most = max(least, min(most, batches // 2))
        until = perf_counter() + self._order.seconds
        for number in range(1, most):
            if number >= least and perf_counter() >= until:
                break
            if self._next() is None or self._late():
                return False
        return True

    def _span(self) -> bool:
        """From here to the end of the window, or of the epoch: ``False``."""
        self._begin()
        begun = marked = perf_counter()
        rest = self._order.seconds - self._window.seconds
        rounds = max(1, self._workers) if self._step is None else 1
        samples = batches = 0
        kept, waited = (0, 0), 0.0
        while (count := self._next()) is not None:
            batches += 1
            samples += count
            if batches % rounds == 0 or (self._late() and not kept[0]):
                kept, marked, waited = (samples, batches), perf_counter(), self._waited
                if (marked - begun >= rest and batches >= 2) or self._late():
                    break
        self._sync()
        if self._step is not None:
            # The GPU has done all steps only now.
            marked = perf_counter()
        if kept[1]:
            took = marked - begun
            paced = self._paced(kept[1], begun, took)
            self._window.add(*kept, paced, waited / took, self._all_pids())
        return count is not None

    def _paced(self, batches: int, begin: float, seconds: float) -> float:
        """How long so many batches take: from ``begin`` for ``seconds`` they were taken."""
        end = begin + seconds
        pace = None if self._stamps is None else self._stamps.pace(begin, end)
        if self._stamps is None or pace is None:
            return seconds
        # Where every worker is ahead of what is taken, what is taken limits the pace.
        ahead = self._stamps.least_ready(self._epoch_begun, end, self._epoch_batches) > 0
        return max(seconds, batches / pace) if ahead else batches / pace

    def epochs(self) -> Visit:
        """Whole epochs, from asking for one to its last batch; the first is the warm-up."""
        self._window = Window()
        restart = None
        for number in itertools.count():
            asked = perf_counter()
            self._start()
            if number == 0:
                # They will have ended with the last epoch.
                self._workers_pss = [usage.read_pss(pid) for pid in self._pids]
                self._begin()
            else:
                restart = perf_counter() - asked
            while self._next() is not None and not self._late():
                pass
            if self._late() and self._window.batches:
                break
            if number or self._late():
                self._sync()
                seconds = perf_counter() - asked
                counts = (self._epoch_samples, self._epoch_batches)
                self._window.add(*counts, seconds, self._waited / seconds, self._all_pids())
                self._begin()
            if self._window.seconds >= self._order.seconds or self._late():
                break
        return structs.replace(self._visit(), whole_epochs=True, restart_seconds=restart)

    # --- what it takes -----------------------------------------------------------------------

    def _all_pids(self) -> list[int]:
        me = os.getpid()
        others = self._pids or [pid for pid in processes.of_session(os.getsid(0)) if pid != me]
        return [me, *others]

    def _begin(self) -> None:
        self._sync()
        if self._gpu is not None and not self._window.batches:
            self._gpu.start()
        self._window.begin(self._all_pids())
        self._waited = 0.0

    def _sync(self) -> None:
        if self._device is not None:
            torch.cuda.synchronize()

    def _visit(self) -> Visit:
        window = self._window
        pss = self._workers_pss or [usage.read_pss(pid) for pid in self._pids]
        known = [one for one in pss if one is not None]
        shm = None if self._shm_before is None else max(0, self._shm_most - self._shm_before)
        return Visit(
            round=self._order.round,
            samples=window.samples,
            batches=window.batches,
            seconds=window.seconds,
            first_batch_seconds=self._first_batch,
            cores_used=window.cores_used,
            other_cores_used=window.other_cores_used,
            workers_memory_bytes=sum(known) if len(known) == len(pss) else None,
            main_memory_bytes=usage.read_pss(os.getpid()),
            disk_read_bytes=window.used.disk_read_bytes,
            read_bytes=window.used.read_bytes,
            shm_bytes=shm,
            cold=window.used.is_cold,
            epoch_samples=self._whole_samples,
            data_wait_share=None if self._step is None else window.wait_share,
            gpu_busy_percent=None if self._gpu is None else self._gpu.percent(),
        )

    def close(self) -> None:
        """Workers end in their own way (they may be writing a cache), if they are not stuck."""
        # How they end makes no difference from now on.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if self._gpu is not None:
            self._gpu.close()
        self._iterator = None
        with contextlib.suppress(AttributeError):
            vars(self._loader)["_iterator"] = None


def _count(loader: Any, batch: Any) -> int:
    size = loader.batch_size
    if size is None:
        return 1 if loader.batch_sampler is None else size_of(batch) or 1
    return min(size_of(batch) or size, int(size))


def tensors_in(batch: object) -> Iterator[Any]:
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_in(value)
