"""A GPU for jobs on a machine without one: the job says when it is busy, NVML shows it.

    gpu = VirtualGpu.open(0, memory_bytes=6 << 30)   # in a process started with fake.env()
    with gpu.kernel():                               # busy for as long as the block takes
        ...
    gpu.run(0.3)                                     # busy for 0.3 s, and waits for it
    gpu.launch(0.3); ...; gpu.synchronize()          # as CUDA does it: queue, go on, wait

Marking costs a few microseconds and no system call. The simulated library turns the marks into
utilisation, fine samples, power, memory and the process list; a job that ends or dies is let go.
Standard library only, so that a job has nothing to install.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tests.support.fake_nvml_layout import CONSTANTS, State

_RING = CONSTANTS["FAKE_MAX_KERNELS"]
_JOIN_US = 1000
"""Kernels closer than this are kept as one, so that the ring holds many seconds of small ones."""


def _now_us() -> int:
    return time.time_ns() // 1000


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in (b"Z", b"X")


class VirtualGpu:
    """One job's hold on one simulated GPU. Not for several threads at once."""

    def __init__(self, slot: Any, memory: mmap.mmap) -> None:
        self._slot = slot
        self._memory = memory
        self._owner = os.getpid()
        self._queue_end_us = 0

    @classmethod
    def open(
        cls,
        index: int,
        *,
        memory_bytes: int = 1 << 30,
        power_percent: int = 90,
        sm_percent: int = 100,
        state_file: str | None = None,
    ) -> VirtualGpu:
        """Take GPU ``index``; from now on NVML lists this process on it with ``memory_bytes``.

        ``power_percent`` is how much of the span from idle power to the limit a kernel draws,
        ``sm_percent`` how many of the SMs it fills, by GPM too. The control file is the one named
        by the environment unless ``state_file`` names it. Raises ``RuntimeError`` when no
        simulated machine is there, ``IndexError`` when it has no such GPU.
        """
        path = state_file or os.environ.get("FAKE_NVML_STATE")
        if not path:
            raise RuntimeError("no simulated machine: start the job with the environment of one")
        with Path(path).open("r+b") as file:
            memory = mmap.mmap(file.fileno(), ctypes.sizeof(State))
            state: Any = State.from_buffer(memory)
            if not 0 <= index < state.gpu_count:
                raise IndexError(f"the simulated machine has no GPU {index}")
            with _locked(file):
                slot = _claim(state, index)
                slot.used_bytes = memory_bytes
                slot.power_percent = power_percent
                slot.sm_percent = sm_percent
                _let_follow(state.gpus[index])
                slot.pid = os.getpid()
        gpu = cls(slot, memory)
        atexit.register(gpu.close)
        return gpu

    @property
    def memory_bytes(self) -> int:
        """What NVML reports as this job's memory; assign to allocate or free."""
        return int(self._slot.used_bytes)

    @memory_bytes.setter
    def memory_bytes(self, value: int) -> None:
        self._slot.used_bytes = value

    @contextlib.contextmanager
    def kernel(
        self,
        *,
        memory_bytes: int | None = None,
        power_percent: int | None = None,
        sm_percent: int | None = None,
    ) -> Iterator[None]:
        """Keep the GPU busy for the length of a ``with``; the job works or sleeps inside it.

        ``memory_bytes`` is held for that long; the percents hold from now on.
        """
        slot, held = self._slot, self.memory_bytes
        if memory_bytes is not None:
            slot.used_bytes = memory_bytes
        if power_percent is not None:
            slot.power_percent = power_percent
        if sm_percent is not None:
            slot.sm_percent = sm_percent
        start = _now_us()
        slot.open_since_us = start
        try:
            yield
        finally:
            self._record(start, _now_us())
            slot.open_since_us = 0
            if memory_bytes is not None:
                slot.used_bytes = held

    def run(self, seconds: float) -> None:
        """Keep the GPU busy for so long, and wait for it (sleeping: it costs no CPU)."""
        with self.kernel():
            time.sleep(seconds)

    def launch(self, seconds: float) -> None:
        """Queue so much work behind what is queued, and return at once, as a CUDA launch does."""
        start = max(_now_us(), self._queue_end_us)
        self._queue_end_us = start + round(seconds * 1e6)
        self._record(start, self._queue_end_us)

    def synchronize(self) -> None:
        """Wait for what was launched."""
        while (left := self._queue_end_us - _now_us()) > 0:
            time.sleep(left / 1e6)

    def close(self) -> None:
        """Let go of the GPU. A forked child that inherits this object changes nothing."""
        if os.getpid() == self._owner and self._slot.pid == self._owner:
            self._slot.open_since_us = 0
            self._slot.used_bytes = 0
            self._slot.closed = 1

    def _record(self, start_us: int, end_us: int) -> None:
        slot = self._slot
        slot.total_busy_us += end_us - start_us
        head = slot.head
        last = slot.kernels[(head - 1) % _RING]
        if head and start_us - last.end_us < _JOIN_US:
            last.end_us = end_us
            return
        entry = slot.kernels[head % _RING]
        entry.start_us, entry.end_us = start_us, end_us
        slot.head = head + 1


@contextlib.contextmanager
def _locked(file: IO[bytes]) -> Iterator[None]:
    """Holds the control file for a ``with``. The mapping keeps the file open, so closing it would
    not unlock it."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _let_follow(gpu: Any) -> None:
    """A GPU that a job uses shows that job, not values that were set."""
    now = _now_us()
    gpu.energy_since_us = gpu.energy_since_us or now
    gpu.nvlink_since_us = gpu.nvlink_since_us or now
    gpu.waveform = CONSTANTS["FAKE_WAVEFORM_VIRTUAL"]


def _claim(state: Any, index: int) -> Any:
    """A free place, or that of the job that has been gone the longest."""
    slots = list(state.kernel_slots)
    free = [slot for slot in slots if slot.pid == 0]
    gone = [slot for slot in slots if slot.pid and (slot.closed or not _alive(slot.pid))]
    if not free and not gone:
        raise RuntimeError(f"the simulated machine holds {len(slots)} jobs, and all are running")
    slot = free[0] if free else min(gone, key=_last_end)
    if slot.pid:
        state.gpus[slot.gpu].retired_busy_us += slot.total_busy_us
    slot.pid = 0
    slot.gpu = index
    slot.closed = slot.open_since_us = slot.total_busy_us = slot.head = 0
    return slot


def _last_end(slot: Any) -> int:
    return int(slot.kernels[(slot.head - 1) % _RING].end_us) if slot.head else 0
