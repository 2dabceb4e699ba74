"""Practice jobs on a virtual GPU: ``--device tests.support.virtual_device:open_device``.

The job is real (loader, workers, Python, saves, gloo), its kernels take time on the simulated
driver instead of computing.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from gpuwatch.practice.knobs import Knobs
from tests.support.virtual_gpu import VirtualGpu

GIB = 1 << 30
H200_BYTES = 150_754_820_096
WORKING_PERCENT, SMALL_PERCENT, SPINNING_PERCENT = 88, 12, 25
"""Of the span from idle power to the limit."""
WORKING_SMS, SMALL_SMS, SPINNING_SMS = 95, 9, 12
"""Percent of the SMs; a kernel that waits in a collective fills few."""
AHEAD = 2
"""Steps that may be queued before the job waits."""
LATE_SECONDS = 0.05
"""A shorter wait in a collective does not show in the power."""


class _Stream:
    """What several ranks queue, done in its order beside them, as on a GPU: a step that waits in a
    collective holds up the next one and not the Python that launches it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._queue.get()()

    def put(self, work: Callable[[], None]) -> None:
        self._queue.put(work)

    def mark(self) -> threading.Event:
        """Set when all that is queued now is done."""
        done = threading.Event()
        self._queue.put(done.set)
        return done


class VirtualDevice:
    """Rank r on virtual GPU r."""

    kind = "virtual"

    def __init__(self, rank: int) -> None:
        self.name = f"virtual GPU {rank}"
        self._gpu = VirtualGpu.open(rank, memory_bytes=6 * GIB, power_percent=WORKING_PERCENT)
        self._model = torch.zeros(1 << 14)
        self._leaked = 0
        self._queue: list[float] = []
        self._stream: _Stream | None = None
        self._steps: deque[threading.Event] = deque()
        self._pinning: threading.Event | None = None

    def prepare(self, knobs: Knobs) -> None:
        self._knobs = knobs
        small = (knobs.batch == 1 and knobs.model == "gru") or knobs.spin_ms > knobs.step_ms
        self._gpu._slot.power_percent = SMALL_PERCENT if small else WORKING_PERCENT
        self._gpu._slot.sm_percent = SMALL_SMS if small else WORKING_SMS
        if knobs.ranks > 1 and self._stream is None:
            self._stream = _Stream()
        self._pin(knobs.pin_memory and knobs.workers > 0)
        self._show_memory()

    def _show_memory(self) -> None:
        held = round(H200_BYTES * self._knobs.gpu_held_percent / 100)
        self._gpu.memory_bytes = max(6 * GIB, held) + self._leaked

    def _pin(self, on: bool) -> None:
        """The thread that ``pin_memory=True`` starts beside workers, which needs an accelerator."""
        if on == (self._pinning is not None):
            return
        if self._pinning is not None:
            self._pinning.set()
            self._pinning = None
            return
        named, self._pinning = threading.Event(), threading.Event()
        stop = self._pinning

        def loop() -> None:
            torch.multiprocessing._set_thread_name("pt_data_pin")
            named.set()
            stop.wait()

        threading.Thread(target=loop, daemon=True).start()
        named.wait()

    def copy(self, batch: Any) -> Any:
        return batch

    def launch(self, batch: Any, milliseconds: float) -> None:
        if self._stream is None:
            self._gpu.launch(milliseconds / 1000)
        else:
            self._stream.put(lambda: self._gpu.launch(milliseconds / 1000))

    def evaluate(self, batch: Any, milliseconds: float) -> None:
        self.launch(batch, milliseconds)

    def spin(self, milliseconds: float) -> None:
        self.launch(None, milliseconds)

    def meet(self) -> None:
        if self._stream is None:
            self._meet()
        else:
            self._stream.put(self._meet)

    def _meet(self) -> None:
        """The kernel of an all-reduce is on the GPU until all ranks are there, and does no work."""
        self._gpu.synchronize()
        work = distributed.all_reduce(self._model, async_op=True)
        noticed = time.monotonic() + LATE_SECONDS
        with self._gpu.kernel():
            while not work.is_completed() and time.monotonic() < noticed:
                time.sleep(0.001)
        if not work.is_completed():
            with self._gpu.kernel(power_percent=SPINNING_PERCENT, sm_percent=SPINNING_SMS):
                work.wait()
            with self._gpu.kernel(power_percent=WORKING_PERCENT, sm_percent=WORKING_SMS):
                pass
        work.wait()

    def loss(self) -> float:
        self.synchronize()
        return 0.5

    def step_done(self) -> None:
        if self._stream is not None:
            self._steps.append(self._stream.mark())
            if len(self._steps) > AHEAD:
                self._steps.popleft().wait()
            return
        self._queue.append(self._gpu._queue_end_us / 1e6)
        if len(self._queue) > AHEAD:
            left = self._queue.pop(0) - time.time()
            if left > 0:
                time.sleep(left)

    def synchronize(self) -> None:
        if self._stream is not None:
            self._stream.mark().wait()
        self._gpu.synchronize()

    def leak(self, bytes_: int) -> None:
        self._leaked = self._leaked + bytes_ if bytes_ else 0
        self._show_memory()

    def state(self) -> dict[str, Any]:
        return {"model": self._model}


def open_device(rank: int, knobs: Knobs) -> VirtualDevice:
    return VirtualDevice(rank)
