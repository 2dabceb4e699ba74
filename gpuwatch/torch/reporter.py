"""What this process tells of its training loop: what the loop is doing, and for how long it did
what so far.

``TELLER`` is the one of the process. Nothing of it raises: what goes wrong ends the telling and
is kept for ``describe``. It starts no thread; after a fork the child begins anew with a file of
its own, if it tells anything. Only one thread at a time is followed: the main thread if it marks
anything, else the first that does.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from time import monotonic_ns

from gpuwatch.core import step_file
from gpuwatch.core.step_file import (
    BETWEEN,
    CHECKPOINT,
    COPIES_TIMED,
    COPY,
    DEVICE_TIMED,
    IDLE,
    NONE,
    STATES,
    STEP,
    VALIDATION,
    WAIT,
    WAITS_TOLD,
    StepFile,
)
from gpuwatch.torch.device import Device, find_device

WINDOW_NS = 10_000_000_000
"""The counters of this long ago are told beside those of now."""
_BASE_APART_NS = 2_000_000_000
_DEVICE_APART_NS = 1_000_000_000
"""Memory is read, and a GPU looked for, at most this often."""
_RETRY_NS = 60_000_000_000
_pack_step = step_file.STEP_PART.pack
_pack_device = step_file.DEVICE_PART.pack
_pack_about = step_file.ABOUT_PART.pack
_LOOP_AT = step_file.LOOP_AT
_NO_DEVICE = _pack_device(0, 0, 0, 0, 0, 0)


class Teller:
    """States nest: ``enter`` leaves the one before on a stack, ``leave`` goes back to it."""

    def __init__(
        self,
        create: Callable[[], StepFile] = StepFile.create,
        find: Callable[[], Device | None] = find_device,
    ) -> None:
        self._create = create
        self._find_device = find
        self._broken: str | None = None
        self._begin_anew()
        atexit.register(self.close)

    def _begin_anew(self) -> None:
        self._file: StepFile | None = None
        self._pid = os.getpid()
        self._thread: int | None = None
        self._try_at = 0
        self._refused: str | None = None
        self._sequence = 0
        self._began = 0
        self.state = IDLE
        self._since = monotonic_ns()
        self._spent = [0] * STATES
        self._stack: list[int] = []
        self.steps = 0
        self._samples = 0
        self._last_step = 0
        self._flags = 0
        self._epoch = NONE
        self._epochs_told = False
        self._step_in_epoch = NONE
        self._about = (NONE, NONE, NONE)
        self._batch_size = NONE
        self._ranks = (NONE, NONE, NONE)
        self._device: Device | None = None
        self._device_due = 0
        self._memory = (NONE, NONE, NONE)
        self._bases: list[tuple[int, bytes]] = []
        self._base = b""
        self._base_due = 0
        self._about_bytes: bytes | None = None
        self.loop: object = None
        """The pass through a loader, or the trainer, whose steps count."""
        self.in_step = False
        self._explicit = False
        self._explicit_in_body = False
        self._body_samples: int | None = None

    # Marks

    def follows_this_thread(self) -> bool:
        """Whether marks of the calling thread count."""
        here = threading.get_ident()
        if here == self._thread:
            return True
        main = threading.main_thread().ident
        alive = any(thread.ident == self._thread for thread in threading.enumerate())
        if self._thread is None or here == main or not alive:
            self._thread = here
            return True
        return False

    def mark(self, state: int) -> None:
        """The loop is in this state from now on."""
        try:
            now = monotonic_ns()
            self._spent[self.state] += now - self._since
            self.state = state
            self._since = now
            self._tell(now)
        except Exception as error:
            self.fail(error)

    def enter(self, state: int) -> int:
        """Go into a state and come back to this one by ``leave`` with what is returned."""
        depth = len(self._stack)
        self._stack.append(self.state)
        if state in (VALIDATION, CHECKPOINT):
            self.step_pauses()
        self.mark(state)
        return depth

    def leave(self, depth: int) -> None:
        if len(self._stack) > depth:
            before = self._stack[depth]
            del self._stack[depth:]
            if before in (STEP, COPY) and self.state in (VALIDATION, CHECKPOINT):
                self.step_resumes()
            self.mark(before)

    @property
    def is_aside(self) -> bool:
        """Validating or saving, so that what happens is no training step."""
        return self.state >= VALIDATION

    def loop_begins(self, steps: int | None, workers: int | None, pinned: bool | None) -> None:
        """A pass through the training data begins."""
        self._about = (_number(steps), _number(workers), NONE if pinned is None else int(pinned))
        self._flags |= WAITS_TOLD
        self._step_in_epoch = 0
        if not self._epochs_told:
            self._epoch = self._epoch + 1
        self._read_ranks()
        self._about_bytes = None

    def epoch_is(self, number: int) -> None:
        """The epochs are counted by the job from now on."""
        number = _number(number)
        self._epochs_told = True
        if number != self._epoch:
            self._epoch, self._step_in_epoch = number, 0
            self._about_bytes = None
            self.mark(self.state)

    def wait_begins(self) -> None:
        self.mark(WAIT)

    def body_begins(self, samples: int | None) -> None:
        """A batch of so many samples has come."""
        self._body_samples = samples
        if self.in_step:
            # One batch of several that make the step.
            self.mark(STEP)
        elif self._explicit:
            self.mark(BETWEEN)
        else:
            self.mark(STEP)
            self.step_begins()

    def body_ends(self) -> None:
        """The loop is done with the batch, which was a step unless it held steps of its own."""
        self.samples_done(self._body_samples)
        self._body_samples = None
        if self.in_step:
            return
        self._explicit = self._explicit_in_body
        self._explicit_in_body = False
        self.step_ends(counts=not self._explicit)

    def loop_ends(self, outer: int) -> None:
        """No more batches; ``outer``: what the loop was inside of."""
        if self.state != WAIT or self._body_samples is not None:
            self.body_ends()
        self.loop = None
        self.mark(outer)

    def trainer_ends(self) -> None:
        """A trainer is done, perhaps in the middle of a step."""
        self.step_pauses()
        self.loop = None
        self.mark(IDLE)

    def explicit_step_begins(self) -> int:
        if not self._explicit:
            self._explicit = True
            self.step_pauses()
        self._explicit_in_body = self.in_step = True
        depth = self.enter(STEP)
        self.step_begins()
        return depth

    def explicit_step_ends(self, depth: int, samples: int | None, *, whole: bool) -> None:
        self.in_step = False
        self.step_ends(counts=whole)
        if samples is not None:
            self._body_samples = None
            self.samples_done(samples)
        if self._stack[depth : depth + 1] == [IDLE]:
            # A loop that nobody watches.
            self._stack[depth] = BETWEEN
        if self.loop is None:
            self.leave(depth)
            return
        # The next wait tells it: this is on the way of every step.
        now = monotonic_ns()
        self._spent[self.state] += now - self._since
        self.state, self._since = self._stack[depth], now
        del self._stack[depth:]

    def step_begins(self) -> None:
        """The GPU's clock runs from here; the state is marked by the caller."""
        device = self._device
        if device is not None:
            device.steps.begin()

    def step_pauses(self) -> None:
        device = self._device
        if device is not None:
            device.steps.end()

    step_resumes = step_begins

    def step_ends(self, *, counts: bool = True) -> None:
        """``counts``: it was a whole training step, not the rest of one that was counted."""
        device = self._device
        if device is not None:
            device.steps.end()
        now = monotonic_ns()
        if counts:
            self.steps += 1
            self._last_step = now
            if self._step_in_epoch >= 0:
                self._step_in_epoch += 1
        if now >= self._device_due:
            self._look_at_device()

    def samples_done(self, samples: int | None) -> None:
        if samples is not None and 0 <= samples < 1 << 40:
            self._samples += samples
            self._batch_size = samples

    def copy_begins(self) -> None:
        if self._device is not None:
            if not self._flags & COPIES_TIMED:
                self._flags |= COPIES_TIMED
                self._about_bytes = None
            self._device.copies.begin()

    def copy_ends(self) -> None:
        if self._device is not None:
            self._device.copies.end()

    # Telling

    def _tell(self, now: int) -> None:
        file = self._file
        if file is None:
            if not self._open(now):
                return
            file = self._file
            assert file is not None
        self._sequence += 1
        first = _pack_step(
            self._sequence,
            self.state,
            self._step_in_epoch,
            self._batch_size,
            now,
            self.steps,
            self._samples,
            *self._spent,
            self._last_step,
        )
        device = _NO_DEVICE if self._device is None else self._device_times(self._device)
        about = self._about_bytes
        if about is None:
            about = self._about_bytes = self._pack_about()
        if now >= self._base_due:
            self._keep_base(now, first[_LOOP_AT:] + device)
        file.write(first + device + about + self._base)

    def _device_times(self, device: Device) -> bytes:
        times = device.times()
        if device.failed is not None and self._flags & DEVICE_TIMED:
            self._flags &= ~(DEVICE_TIMED | COPIES_TIMED)
            self._about_bytes = None
        return _pack_device(*times)

    def _pack_about(self) -> bytes:
        """What seldom changes."""
        steps_in_epoch, workers, pinned = self._about
        return _pack_about(
            self._began,
            self._flags,
            self._epoch,
            steps_in_epoch,
            workers,
            pinned,
            *self._ranks,
            *self._memory,
        )

    def _keep_base(self, now: int, counters: bytes) -> None:
        bases = self._bases
        bases.append((now, counters))
        while len(bases) > 1 and now - bases[1][0] >= WINDOW_NS:
            del bases[0]
        self._base = bases[0][1]
        self._base_due = now + _BASE_APART_NS

    def _open(self, now: int) -> bool:
        if self._broken is not None or now < self._try_at:
            return False
        if _is_loader_worker():
            self._refused, self._try_at = "this is a DataLoader worker", sys.maxsize
            return False
        try:
            self._file = self._create()
        except OSError as error:
            self._refused, self._try_at = error.strerror or str(error), now + _RETRY_NS
            return False
        self._refused = None
        self._began = now
        self._bases, self._base_due, self._about_bytes = [], 0, None
        if "multiprocessing.util" in sys.modules:
            # Its children end without running what atexit knows.
            from multiprocessing.util import Finalize  # noqa: PLC0415 - the job has it

            Finalize(None, self.close, exitpriority=0)
        return True

    def _look_at_device(self) -> None:
        """Memory, and whether there is a GPU in use by now; the slow part of telling."""
        try:
            self._device_due = monotonic_ns() + _DEVICE_APART_NS
            if os.getpid() != self._pid:
                # A fork that no hook of Python's has seen.
                self.forget()
                return
            if self._ranks[0] == NONE:
                self._read_ranks()
                self._about_bytes = None
            if self._device is None:
                self._device = self._find_device()
                if self._device is not None:
                    self._flags |= DEVICE_TIMED
            if self._device is not None:
                self._memory = self._device.memory()
                self._about_bytes = None
        except Exception as error:
            self.fail(error)

    def _read_ranks(self) -> None:
        """Set in a running process they are not seen from outside."""
        get = os.environ.get
        rank, size = _digits(get("RANK")), _digits(get("WORLD_SIZE"))
        if rank == NONE:
            rank, size = _group_ranks()
        self._ranks = (rank, _digits(get("LOCAL_RANK")), size)

    # Its end

    def describe(self) -> str:
        """Where it tells, or why it does not, as a sentence."""
        if self._broken is not None:
            return f"gpuwatch.torch has stopped reporting: {self._broken}"
        if self._file is not None:
            return f"gpuwatch.torch reports through {self._file.path}"
        if self._refused is not None:
            return f"gpuwatch.torch reports nothing: {self._refused}"
        return "gpuwatch.torch has had nothing to report yet"

    def close(self) -> None:
        """End telling and remove the file; a later mark begins a new one. Never raises."""
        file, self._file = self._file, None
        if file is not None:
            file.close(remove=os.getpid() == self._pid)

    def forget(self) -> None:
        """In a child: leave the parent's file alone and begin anew."""
        try:
            file = self._file
            self._begin_anew()
            if file is not None:
                file.close(remove=False)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Something went wrong here: tell nothing from now on."""
        self._broken = f"{type(error).__name__}: {error}"
        self._device = None
        self.close()


def _is_loader_worker() -> bool:
    module = sys.modules.get("torch.utils.data")
    try:
        return module is not None and module.get_worker_info() is not None
    except Exception:
        return False


def _group_ranks() -> tuple[int, int]:
    """Rank and world size of a process group that was made without the environment."""
    group = sys.modules.get("torch.distributed")
    try:
        if group is not None and group.is_available() and group.is_initialized():
            return _number(group.get_rank()), _number(group.get_world_size())
    except Exception:
        pass
    return NONE, NONE


def _number(value: object) -> int:
    """A count as the file has it."""
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else NONE


def _digits(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else NONE


TELLER = Teller()
os.register_at_fork(after_in_child=TELLER.forget)

__all__ = [
    "BETWEEN",
    "CHECKPOINT",
    "COPY",
    "IDLE",
    "STEP",
    "TELLER",
    "VALIDATION",
    "WAIT",
    "Teller",
]
