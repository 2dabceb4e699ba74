"""Times one setting of a loader; runs in a process of its own.

A window begins after the first batch and a warm-up that takes what was prefetched meanwhile, and
holds whole rounds: workers deliver in turn, so batches come in bursts of as many as there are
workers, and a window that cuts a burst would measure where it was cut. How long its batches took is
what the workers took to make them (``stamps``), however many were ready when it began. Where an
epoch is shorter than a window, whole epochs are timed instead, with the start of their workers,
since that is what a job on such a dataset pays.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

from gpuwatch.tuning.bench import processes, usage
from gpuwatch.tuning.child import loader_factory as makers
from gpuwatch.tuning.child.cuda import tensors_in
from gpuwatch.tuning.child.loader_factory import Maker
from gpuwatch.tuning.child.repeats import Watch
from gpuwatch.tuning.child.stamps import Stamps
from gpuwatch.tuning.child.step import StepError, measure_step, samples_in
from gpuwatch.tuning.child.target import TargetError
from gpuwatch.tuning.search.setting import Setting, Visit

COLD_BYTES = 2**20
COLD_SHARE = 0.05
"""Of what is read: more from the disk than this, and the pass is called cold."""
WARM_UP_MOST = 64
_TOLD_EVERY = 0.25
_SHM_EVERY = 0.05

Tell = Callable[[], None]


class NoBatchError(Exception):
    """The loader gives nothing; the message is a sentence for a person."""


class TooSlowError(Exception):
    """Not even one batch could be timed; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be measured. ``limit_seconds``: it ends by then with what it has."""

    setting: Setting
    round: int
    seconds: float
    limit_seconds: float
    seed: int
    whole_epochs: bool = False
    restart: bool = False
    """Also begin a second epoch, and time how long that takes to its first batch."""


def measure(
    maker: Maker, order: Order, tell: Tell, step: Callable[[Any], object] | None = None
) -> Visit:
    """Raises what the user's code raises, ``TargetError``, ``NoBatchError``, ``RepeatsError``,
    ``TooSlowError``."""
    _seed(order.seed)
    loader = maker.make(order.setting)
    if order.restart:
        return _measure_restart(loader, order, tell)
    with _quiet_end(run := _Run(loader, order, tell)):
        if step is not None:
            return run.with_step(step)
        return run.epochs() if order.whole_epochs else run.steady()


def _seed(seed: int) -> None:
    """The same samples in the same order for every setting of one round."""
    import torch  # noqa: PLC0415

    torch.manual_seed(seed)
    random.seed(seed)
    with contextlib.suppress(ImportError):
        import numpy  # noqa: PLC0415

        numpy.random.seed(seed % 2**32)


@contextlib.contextmanager
def _quiet_end(run: _Run) -> Iterator[None]:
    """Workers end in their own way (they may be writing a cache), if they are not stuck."""
    yield
    run.close()


class _Spent(NamedTuple):
    """From one look at the counters to the next."""

    seconds: float
    cpu_seconds: float
    disk_read_bytes: int | None
    read_bytes: int | None
    machine_busy_seconds: float | None


@dataclass(slots=True)
class _Window:
    """What was counted so far."""

    samples: int = 0
    batches: int = 0
    seconds: float = 0.0
    begun: float = 0.0
    before: usage.Usage | None = None
    spent: list[_Spent] = field(default_factory=list)


class _Run:
    def __init__(self, loader: Any, order: Order, tell: Tell) -> None:
        self._loader = loader
        self._order = order
        self._tell = tell
        self._told_at = 0.0
        self._begun = perf_counter()
        self._iterator: Any = None
        self._workers: list[int] = []
        self._workers_pss: list[int | None] = []
        self._window = _Window()
        self._shm_before = usage.shm_used()
        self._shm_most = 0
        self._shm_at = 0.0
        self._first_batch = 0.0
        self._epoch_samples = 0
        self._epoch_batches = 0
        self._epoch_begun = 0.0
        self._whole: tuple[int, int, float] | None = None
        self._device = _copy_target()
        workers = order.setting.num_workers
        self._stamps = Stamps(loader.collate_fn) if workers else None
        if self._stamps is not None:
            vars(loader)["collate_fn"] = self._stamps
        self._watch = Watch(workers) if workers > 1 and makers.is_iterable(loader) else None

    # --- the loader --------------------------------------------------------------------------

    def _start(self) -> Any:
        """A new epoch; its first batch. Raises ``NoBatchError``."""
        self._epoch_samples = self._epoch_batches = 0
        self._epoch_begun = perf_counter()
        if not self._order.setting.persistent_workers:
            # Ends the workers of the epoch before.
            self._iterator = None
        self._iterator = iter(self._loader)
        self._workers = [one.pid for one in getattr(self._iterator, "_workers", ())]
        batch = self._next()
        if batch is _END:
            raise NoBatchError(_why_empty(self._loader))
        return batch

    def _next(self) -> Any:
        """The next batch of this epoch, or ``_END``."""
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._whole = (
                self._epoch_batches,
                self._epoch_samples,
                perf_counter() - self._epoch_begun,
            )
            return _END
        if self._watch is not None:
            self._watch.see(batch)
        self._epoch_batches += 1
        self._epoch_samples += self._count(batch)
        self._copy(batch)
        now = perf_counter()
        if now - self._told_at >= _TOLD_EVERY:
            self._told_at = now
            self._tell()
        if now - self._shm_at >= _SHM_EVERY:
            self._shm_at = now
            self._shm_most = max(self._shm_most, usage.shm_used() or 0)
        return batch

    def _count(self, batch: Any) -> int:
        size = self._loader.batch_size
        if size is None and self._loader.batch_sampler is None:
            return 1
        found = samples_in(batch)
        return found if size is None else min(found, size) or size

    def _copy(self, batch: Any) -> None:
        """To the GPU, as a step would: only then memory that is pinned makes a difference."""
        if self._device is None:
            return
        for tensor in tensors_in(batch):
            tensor.to(self._device, non_blocking=True)

    def _late(self) -> bool:
        return perf_counter() - self._begun >= self._order.limit_seconds

    # --- the windows -------------------------------------------------------------------------

    def steady(self) -> Visit:
        begun = perf_counter()
        batch = self._start()
        self._first_batch = perf_counter() - begun
        rounds = max(1, self._order.setting.num_workers)
        while not self._done():
            if batch is _END:
                batch = self._start()
            if not self._warm_up():
                batch = _END
                if self._late():
                    break
                if self._is_short():
                    return self.epochs()
                continue
            batch = self._span(rounds)
            if self._late():
                break
            if self._is_short():
                return self.epochs()
        if not self._window.batches:
            raise TooSlowError(self._slow())
        return self._visit()

    def _is_short(self) -> bool:
        """An epoch with nothing left after the warm-up can only be timed whole."""
        return self._whole is not None and not self._window.batches

    def _slow(self) -> str:
        return (
            f"Too slow for the time: {self._epoch_batches} batches in "
            f"{perf_counter() - self._begun:.0f} s, the first after {self._first_batch:.1f} s; a "
            "longer --budget measures it."
        )

    def _done(self) -> bool:
        return self._window.seconds >= self._order.seconds

    def _ahead(self) -> int:
        """How many batches are asked of the workers before the first is taken, or stand in the
        queues behind them."""
        return self._order.setting.num_workers * (self._order.setting.prefetch_factor or 0)

    def _warm_up(self) -> bool:
        """Every worker has delivered, and what was prefetched until now is taken, unless that
        takes half of the epoch or as long as a window; ``False``: the epoch or the time ended."""
        least = max(2, self._order.setting.num_workers)
        most = least + self._ahead()
        _, batches = makers.lengths(self._loader)
        if batches is not None:
            most = max(least, min(most, batches // 2))
        until = perf_counter() + self._order.seconds
        for number in range(1, most):
            if number >= least and perf_counter() >= until:
                break
            if self._next() is _END or self._late():
                return False
        return True

    def _paced(self, batches: int, begin: float, seconds: float) -> float:
        """How long so many batches take: from ``begin`` for ``seconds`` they were taken."""
        end = begin + seconds
        pace = None if self._stamps is None else self._stamps.pace(begin, end)
        if self._stamps is None or pace is None:
            return seconds
        made = batches / pace
        # Where every worker is ahead of what is taken, what is taken limits the pace.
        ahead = self._stamps.least_ready(self._epoch_begun, end, self._epoch_batches) > 0
        return max(seconds, made) if ahead else made

    def _span(self, rounds: int) -> Any:
        """From here to the end of the epoch or of the window; its last batch or ``_END``."""
        self._begin()
        begun = marked = perf_counter()
        samples = batches = 0
        rest = self._order.seconds - self._window.seconds
        kept = (0, 0)
        batch: Any = None
        while True:
            batch = self._next()
            now = perf_counter()
            if batch is _END:
                break
            batches += 1
            samples += self._count(batch)
            if batches % rounds == 0 or (self._late() and not kept[0]):
                kept, marked = (samples, batches), now
                if (marked - begun >= rest and batches >= 2) or self._late():
                    break
        self._sync()
        if kept[1]:
            self._add(*kept, self._paced(kept[1], begun, marked - begun))
        return batch

    def epochs(self) -> Visit:
        """Whole epochs, from asking for one to its last batch; the first is the warm-up."""
        self._window = _Window()
        begun = perf_counter()
        restart = None
        number = 0
        while True:
            asked = perf_counter()
            self._start()
            if number == 0:
                self._first_batch = perf_counter() - begun
                # They will have ended with the last epoch.
                self._workers_pss = [usage.read_pss(pid) for pid in self._workers]
                self._begin()
            else:
                restart = perf_counter() - asked
            while self._next() is not _END and not self._late():
                pass
            if self._late() and number:
                break
            if number or self._late():
                self._sync()
                self._add(self._epoch_samples, self._epoch_batches, perf_counter() - asked)
                self._begin()
            number += 1
            if self._done() or self._late():
                break
        return replace(self._visit(), whole_epochs=True, restart_seconds=restart)

    def with_step(self, step: Callable[[Any], object]) -> Visit:
        """End to end: every batch goes through the user's step."""
        self._device = None
        begun = perf_counter()
        first = self._start()
        self._first_batch = perf_counter() - begun
        warm_up = min(WARM_UP_MOST, self._ahead() + 3)
        try:
            result = measure_step(
                self._endless(first, warm_up),
                step,
                seconds=self._order.seconds,
                device=None,
                warm_up=warm_up,
            )
        except StepError as error:
            # The batches ended because the time did; what the step itself raised has a cause.
            if self._late() and error.__cause__ is None:
                raise TooSlowError(self._slow()) from None
            raise
        if self._window.before is None:
            raise TooSlowError(self._slow())
        begun = self._window.begun
        self._add(
            result.samples, result.batches, self._paced(result.batches, begun, result.seconds)
        )
        return replace(
            self._visit(),
            data_wait_share=result.data_wait_share,
            gpu_busy_percent=result.gpu_busy_percent,
            device_idle_share=result.device_idle_share,
        )

    def _endless(self, batch: Any, warm_up: int) -> Iterator[Any]:
        """Batches of epoch after epoch, until the time is up."""
        number = 0
        while not self._late():
            if number == warm_up:
                self._begin()
            number += 1
            yield batch
            batch = self._next()
            if batch is _END:
                batch = self._start()

    # --- what it takes -----------------------------------------------------------------------

    def _pids(self) -> list[int]:
        return [os.getpid(), *(self._workers or _others())]

    def _begin(self) -> None:
        self._window.begun = perf_counter()
        self._window.before = usage.read_usage(self._pids())

    def _add(self, samples: int, batches: int, seconds: float) -> None:
        window = self._window
        window.samples += samples
        window.batches += batches
        window.seconds += seconds
        before, now = window.before, usage.read_usage(self._pids())
        assert before is not None
        window.spent.append(
            _Spent(
                perf_counter() - window.begun,
                max(0.0, now.cpu_seconds - before.cpu_seconds),
                _risen(before.disk_read_bytes, now.disk_read_bytes),
                _risen(before.read_bytes, now.read_bytes),
                _risen(before.machine_busy_seconds, now.machine_busy_seconds),
            )
        )

    def _sync(self) -> None:
        if self._device is not None:
            import torch  # noqa: PLC0415

            torch.cuda.synchronize()

    def _visit(self) -> Visit:
        window = self._window
        looked = sum(one.seconds for one in window.spent)
        cpu = sum(one.cpu_seconds for one in window.spent)
        disk = _total([one.disk_read_bytes for one in window.spent])
        read = _total([one.read_bytes for one in window.spent])
        machine = _total([one.machine_busy_seconds for one in window.spent])
        pss = self._workers_pss or [usage.read_pss(pid) for pid in self._workers]
        known = [one for one in pss if one is not None]
        whole = self._whole
        return Visit(
            round=self._order.round,
            samples=window.samples,
            batches=window.batches,
            seconds=window.seconds,
            first_batch_seconds=self._first_batch,
            cores_used=cpu / looked,
            other_cores_used=(None if machine is None else max(0.0, (machine - cpu) / looked)),
            workers_pss_bytes=sum(known) if len(known) == len(pss) else None,
            main_pss_bytes=usage.read_pss(os.getpid()),
            disk_read_bytes=None if disk is None else int(disk),
            read_bytes=None if read is None else int(read),
            shm_used_bytes=(
                None if self._shm_before is None else max(0, self._shm_most - self._shm_before)
            ),
            cold=_is_cold(disk, read),
            epoch_batches=None if whole is None else whole[0],
            epoch_samples=None if whole is None else whole[1],
            epoch_seconds=None if whole is None else whole[2],
        )

    def close(self) -> None:
        # How workers end from now on makes no difference.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._iterator = None
        with contextlib.suppress(AttributeError):
            vars(self._loader)["_iterator"] = None


class _End:
    pass


_END = _End()


def _measure_restart(loader: Any, order: Order, tell: Tell) -> Visit:
    """How long a second epoch takes to its first batch: two short epochs."""
    rounds = max(1, order.setting.num_workers)
    short = makers.shortened(loader, 2 * rounds * (order.setting.prefetch_factor or 1))
    if short is None:
        raise TargetError("An iterable dataset's epochs cannot be shortened.")
    run = _Run(short, order, tell)
    with _quiet_end(run):
        return replace(run.epochs(), whole_epochs=False)


def _copy_target() -> str | None:
    """Where batches go if nothing else takes them: the GPU, if there is one."""
    import torch  # noqa: PLC0415

    return "cuda" if torch.cuda.is_available() else None


def _others() -> list[int]:
    me = os.getpid()
    if not os.path.exists(f"/proc/{me}/task"):  # noqa: PTH110 - one call
        return []
    return [pid for pid in processes.of_session(os.getsid(0)) if pid != me]


def _risen(before: float | None, now: float | None) -> Any:
    return None if before is None or now is None else max(0, now - before)


def _total(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _is_cold(disk: float | None, read: float | None) -> bool:
    if disk is None or disk < COLD_BYTES:
        return False
    return disk >= COLD_SHARE * max(read or 0.0, disk)


def _why_empty(loader: Any) -> str:
    samples, _ = makers.lengths(loader)
    if samples == 0:
        return "The dataset is empty: it has no samples."
    if samples is not None and loader.drop_last and loader.batch_size:
        return (
            f"No batch comes: drop_last leaves nothing of {samples} samples with a batch size of "
            f"{loader.batch_size}."
        )
    if makers.is_iterable(loader):
        return "The dataset is empty: its iterator gives nothing."
    return "No batch comes: the sampler gives nothing."
