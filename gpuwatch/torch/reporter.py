"""State of the training loop of this process, and the time it spent in each state so far.

``REPORTER`` is the one of the process. Nothing of it raises: what goes wrong ends the reporting
and is kept for ``describe``. It starts no thread; after a fork the child begins anew with a file
of its own, if it reports anything. Only one thread at a time is followed: the main thread if it
marks anything, else the first that does.
"""

import atexit
import contextlib
import os
import sys
import threading
from time import monotonic_ns

from gpuwatch.jobs.loop.step_file import (
    BETWEEN,
    CHECKPOINT,
    COPIES_TIMED,
    COPY,
    DEVICE_TIMED,
    IDLE,
    MOVING,
    NONE,
    SELDOM,
    STATES,
    STEP,
    VALIDATION,
    WAIT,
    WAITS_REPORTED,
)
from gpuwatch.torch.device import Device, find_device
from gpuwatch.torch.publisher import Publisher

_pack_moving, _pack_seldom = MOVING.pack, SELDOM.pack
_DEVICE_APART_NS = 1_000_000_000
"""Memory is read, and a GPU looked for, at most this often."""


class Reporter:
    """States nest: ``enter`` leaves the one before on a stack, ``leave`` goes back to it."""

    def __init__(self) -> None:
        self._begin_anew()
        atexit.register(self.close)

    def _begin_anew(self) -> None:
        self.publisher = Publisher()
        self._thread: int | None = None
        """The one whose marks count."""
        self._sequence = 0
        self._seldom: tuple[object, ...] = ()
        self._seldom_packed = b""
        self.state = IDLE
        self._since = monotonic_ns()
        self._spent = [0] * STATES
        self._stack: list[int] = []
        self.steps = 0
        self._samples = 0
        self._last_step = 0
        self._flags = 0
        self._epoch = NONE
        self._job_counts_epochs = False
        self._step_in_epoch = NONE
        self._loader = (NONE, NONE, NONE)
        self._batch_size = NONE
        self._ranks = (NONE, NONE, NONE)
        self._device: Device | None = None
        self._device_due = 0
        self._memory = (NONE, NONE, NONE)
        self.loop: object = None
        """The pass through a loader, or the trainer, whose steps count."""
        self.in_step = False
        self._explicit = False
        self._explicit_in_body = False
        self._body_samples: int | None = None

    def follows_this_thread(self) -> bool:
        """True if the calling one's marks count."""
        here, followed = threading.get_ident(), self._thread
        if here != followed:
            alive = followed and any(one.ident == followed for one in threading.enumerate())
            if alive and here != threading.main_thread().ident:
                return False
            self._thread = here
        return True

    # States

    def mark(self, state: int) -> None:
        try:
            now = monotonic_ns()
            self._spent[self.state] += now - self._since
            self.state, self._since = state, now
            self._publish(now)
        except Exception as error:
            self.fail(error)

    def enter(self, state: int) -> int:
        """Go into a state and come back to this one by ``leave`` with what is returned."""
        depth = len(self._stack)
        self._stack.append(self.state)
        if state in (VALIDATION, CHECKPOINT):
            self._clock_stops()
        self.mark(state)
        return depth

    def leave(self, depth: int) -> None:
        if len(self._stack) > depth:
            before = self._stack[depth]
            del self._stack[depth:]
            if before in (STEP, COPY) and self.is_aside:
                self._clock_runs()
            self.mark(before)

    @property
    def is_aside(self) -> bool:
        """Validating or saving, so that what happens is no training step."""
        return self.state >= VALIDATION

    # Loops

    def loop_begins(self, steps: int | None, workers: int | None, pinned: bool | None) -> None:
        self._loader = (_number(steps), _number(workers), NONE if pinned is None else int(pinned))
        self._flags |= WAITS_REPORTED
        self._step_in_epoch = 0
        self._epoch += not self._job_counts_epochs
        self._ranks = _read_ranks()

    def epoch_is(self, number: int) -> None:
        """The epochs are counted by the job from now on."""
        self._job_counts_epochs = True
        if _number(number) != self._epoch:
            self._epoch, self._step_in_epoch = _number(number), 0
            self.mark(self.state)

    def body_begins(self, samples: int | None) -> None:
        """A batch of so many samples has come."""
        self._body_samples = samples
        # In a step, it is one batch of several that make it.
        self.mark(BETWEEN if self._explicit and not self.in_step else STEP)
        if not self._explicit and not self.in_step:
            self._clock_runs()

    def body_ends(self) -> None:
        """The loop is done with the batch, which was a step unless it held steps of its own."""
        self._count_samples(self._body_samples)
        self._body_samples = None
        if not self.in_step:
            self._explicit, self._explicit_in_body = self._explicit_in_body, False
            self._step_ends(counts=not self._explicit)

    def loop_ends(self, outer: int) -> None:
        """No more batches; ``outer``: what the loop was inside of."""
        if self.state != WAIT or self._body_samples is not None:
            self.body_ends()
        self.loop = None
        self.mark(outer)

    def trainer_ends(self) -> None:
        """A trainer is done, perhaps in the middle of a step."""
        self._clock_stops()
        self.loop = None
        self.mark(IDLE)

    # Steps and copies

    def explicit_step_begins(self) -> int:
        if not self._explicit:
            self._explicit = True
            self._clock_stops()
        self._explicit_in_body = self.in_step = True
        depth = self.enter(STEP)
        self._clock_runs()
        return depth

    def explicit_step_ends(self, depth: int, samples: int | None, *, whole: bool) -> None:
        self.in_step = False
        self._step_ends(counts=whole)
        if samples is not None:
            self._body_samples = None
            self._count_samples(samples)
        if self._stack[depth : depth + 1] == [IDLE]:
            # A loop that nobody watches.
            self._stack[depth] = BETWEEN
        if self.loop is None:
            self.leave(depth)
            return
        # The next wait publishes it: this is on the way of every step.
        now = monotonic_ns()
        self._spent[self.state] += now - self._since
        self.state, self._since = self._stack[depth], now
        del self._stack[depth:]

    def _step_ends(self, *, counts: bool) -> None:
        """``counts``: it was a whole training step, not the rest of one that was counted."""
        self._clock_stops()
        now = monotonic_ns()
        if counts:
            self.steps += 1
            self._last_step = now
            self._step_in_epoch += self._step_in_epoch >= 0
        if now >= self._device_due:
            self._look_at_device()

    def _count_samples(self, samples: int | None) -> None:
        if samples is not None and 0 <= samples < 1 << 40:
            self._samples, self._batch_size = self._samples + samples, samples

    def copy_begins(self) -> None:
        if self._device is not None:
            self._flags |= COPIES_TIMED
            self._device.copies.begin()

    def copy_ends(self) -> None:
        if self._device is not None:
            self._device.copies.end()

    def _clock_runs(self) -> None:
        """The GPU's clock; the state is marked by the caller."""
        if self._device is not None:
            self._device.steps.begin()

    def _clock_stops(self) -> None:
        if self._device is not None:
            self._device.steps.end()

    # Reporting

    def _publish(self, now: int) -> None:
        publisher, device = self.publisher, self._device
        if publisher.file is None and not publisher.open(now):
            return
        times = _NO_TIMES if device is None else device.times()
        if device is not None and device.failed is not None:
            self._flags &= ~(DEVICE_TIMED | COPIES_TIMED)
        self._sequence += 1
        moving = _pack_moving(
            self._sequence, self.state, self._step_in_epoch, self._batch_size,
            now, self.steps, self._samples, *self._spent, self._last_step, *times,
        )  # fmt: skip
        began = publisher.began_ns
        seldom = (began, self._flags, self._epoch, self._loader, self._ranks, self._memory)
        if seldom != self._seldom:
            self._seldom = seldom
            about = (*self._loader, *self._ranks, *self._memory)
            self._seldom_packed = _pack_seldom(began, self._flags, self._epoch, *about)
        publisher.write(now, moving, self._seldom_packed)

    def _look_at_device(self) -> None:
        """Memory, and whether there is a GPU in use by now; the slow part of reporting."""
        try:
            self._device_due = monotonic_ns() + _DEVICE_APART_NS
            if self.publisher.is_forked:
                self.forget()
                return
            if self._ranks[0] == NONE:
                self._ranks = _read_ranks()
            if self._device is None and (device := find_device()) is not None:
                self._device = device
                self._flags |= DEVICE_TIMED
            if self._device is not None:
                self._memory = self._device.memory()
        except Exception as error:
            self.fail(error)

    def close(self) -> None:
        """End reporting and remove the file; a later mark begins a new one. Never raises."""
        self.publisher.close()

    def forget(self) -> None:
        """Leave the parent's file alone and begin anew, in a child."""
        try:
            before = self.publisher
            self._begin_anew()
            before.close()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Something went wrong here: report nothing from now on."""
        self._device = None
        self.publisher.give_up(f"{type(error).__name__}: {error}")


_NO_TIMES = (0, 0, 0, 0, 0, 0)


def _read_ranks() -> tuple[int, int, int]:
    """Rank, local rank, world size: set in a running process they are not seen from outside."""
    get = os.environ.get
    rank, size = _digits(get("RANK")), _digits(get("WORLD_SIZE"))
    if rank == NONE:
        rank, size = _group_ranks()
    return rank, _digits(get("LOCAL_RANK")), size


def _group_ranks() -> tuple[int, int]:
    """Rank and world size of a process group that was made without the environment."""
    group = sys.modules.get("torch.distributed")
    with contextlib.suppress(Exception):
        if group is not None and group.is_available() and group.is_initialized():
            return _number(group.get_rank()), _number(group.get_world_size())
    return NONE, NONE


def _number(value: object) -> int:
    """A count as the file has it."""
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else NONE


def _digits(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else NONE


REPORTER = Reporter()
os.register_at_fork(after_in_child=REPORTER.forget)
