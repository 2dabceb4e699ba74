"""Practice jobs on a virtual GPU, in a process started with ``fake.env()``.

The job is real (loader, workers, Python, saves), its kernels take time on the simulated driver
instead of computing.
"""

import threading
import time
from typing import Any

import torch

from gpuwatch.practice import Job, Settings
from tests.support.virtual_gpu import VirtualGpu

GIB = 1 << 30
WORKING_PERCENT, SMALL_PERCENT = 88, 12
"""Of the span from idle power to the limit."""
WORKING_SMS, SMALL_SMS = 95, 9
"""Percent of the SMs."""
AHEAD = 2
"""Steps that may be queued before the job waits."""


class VirtualDevice:
    """A device of a practice job; what is launched takes time on virtual GPU 0."""

    kind = "virtual"
    name = "virtual GPU 0"

    def __init__(self) -> None:
        self.gpu = VirtualGpu.open(0, memory_bytes=6 * GIB, power_percent=WORKING_PERCENT)
        self._model = torch.zeros(1 << 14)
        self._queue: list[float] = []
        self._pinning: threading.Event | None = None

    def prepare(self, settings: Settings) -> None:
        self.set_small(settings.small_kernels and settings.batch_size == 1)
        self._pin(settings.pin_memory and settings.workers > 0)

    def set_small(self, small: bool) -> None:
        """Let kernels fill few of the SMs, or nearly all."""
        self.gpu._slot.power_percent = SMALL_PERCENT if small else WORKING_PERCENT
        self.gpu._slot.sm_percent = SMALL_SMS if small else WORKING_SMS

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
        self.gpu.launch(milliseconds / 1000)

    def end_step(self) -> None:
        self._queue.append(self.gpu._queue_end_us / 1e6)
        if len(self._queue) > AHEAD:
            left = self._queue.pop(0) - time.time()
            if left > 0:
                time.sleep(left)

    def synchronize(self) -> None:
        self.gpu.synchronize()

    def state(self) -> dict[str, Any]:
        return {"model": self._model}


def train(settings: dict[str, Any]) -> None:
    """Train with these settings until it is ended, and report the loop."""
    torch.set_num_threads(1)
    device: Any = VirtualDevice()
    Job(Settings(**settings), device).train()
