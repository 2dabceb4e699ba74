"""A real PyTorch training job on the virtual GPU, with one knob turned: ``real_job.py KNOB``.

Sized for a machine with two cores, so that the knob is what the GPU waits for. Prints
``training`` when the first batch is there.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from tests.support.virtual_gpu import VirtualGpu

STEP_SECONDS = 0.12
FILE_BYTES = 48 << 20
GIB = 1 << 30


def compute(seconds: float) -> None:
    """Use a core for so long (of CPU time, so that a crowded machine makes it slower)."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


class Pictures(Dataset[torch.Tensor]):
    """``cpu`` seconds of transforms for each sample; with ``folder``, read from cold files."""

    def __init__(self, cpu: float, folder: str | None = None) -> None:
        self.cpu = cpu
        self.files = sorted(Path(folder).iterdir()) if folder else []

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.files:
            read_cold(random.choice(self.files))
        compute(self.cpu)
        return torch.zeros(16)


def read_cold(path: Path) -> None:
    """Read a file that the page cache is made to forget first."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        # Small pieces without read-ahead, as from an index of many small samples.
        for at in range(0, 12 << 20, 16 << 10):
            os.pread(file, 16 << 10, random.randrange(FILE_BYTES >> 14) << 14 if at else 0)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def pin_thread() -> None:
    """The thread that ``pin_memory=True`` starts beside workers, which needs an accelerator."""
    named = threading.Event()

    def loop() -> None:
        torch.multiprocessing._set_thread_name("pt_data_pin")
        named.set()
        threading.Event().wait()

    threading.Thread(target=loop, daemon=True).start()
    named.wait()


def loader(knob: str, folder: str) -> DataLoader[torch.Tensor]:
    workers, cpu, files = {
        "loader_cpu_bound": (1, 0.045, None),
        "loader_in_main_process": (0, 0.02, None),
        "loader_in_main_process_light": (0, 0.008, None),
        "loader_io_bound": (2, 0.001, folder),
        "too_many_workers": (12, 0.05, None),
    }.get(knob, (1, 0.004, None))
    return DataLoader(Pictures(cpu, files), batch_size=8, num_workers=workers)


def batches(knob: str, folder: str) -> Iterator[Any]:
    while True:
        yield from loader(knob, folder)


def save(folder: str, bytes_: int) -> None:
    """A checkpoint that is safely on the disk."""
    block = os.urandom(1 << 20)
    path = Path(folder).parent / "checkpoint.pt"
    with path.open("wb") as file:
        for _ in range(bytes_ >> 20):
            file.write(block)
            time.sleep(0.004)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


def train(knob: str, folder: str) -> None:
    torch.set_num_threads(1)
    small = knob in ("batch_too_small", "busy_without_work")
    gpu = VirtualGpu.open(
        0,
        memory_bytes=5 * GIB if knob == "batch_too_small" else 90 * GIB,
        power_percent=12 if small else 88,
        sm_percent=9 if small else 95,
    )
    if knob == "idle_holding_memory":
        print("training", flush=True)
        time.sleep(1e6)
    first = None
    saved = validated = time.monotonic()
    for step, _ in enumerate(batches(knob, folder)):
        if step == 0:
            print("training", flush=True)
            if knob not in ("loader_in_main_process", "loader_in_main_process_light"):
                pin_thread()
            first = time.monotonic()
        one_step(knob, gpu)
        if knob == "memory_growing":
            gpu.memory_bytes += 24 << 20
        now = time.monotonic()
        if knob == "checkpoint_pauses" and now - saved > 14.0:
            gpu.synchronize()
            save(folder, 500 << 20)
            saved = time.monotonic()
        if knob == "validation_pauses" and now - validated > 16.0:
            gpu.synchronize()
            validate(gpu)
            validated = time.monotonic()
    assert first is not None


def one_step(knob: str, gpu: VirtualGpu) -> None:
    if knob == "python_bound":
        # Many small kernels, each launched by a lot of Python.
        for _ in range(20):
            compute(0.008)
            gpu.run(0.003)
    elif knob == "sync_every_step":
        gpu.launch(0.05)
        compute(0.02)
        gpu.synchronize()
        compute(0.05)
    else:
        gpu.launch(STEP_SECONDS)
        compute(0.02)
        gpu.synchronize()


def validate(gpu: VirtualGpu) -> None:
    """Workers start anew, then half the steps' work for six seconds."""
    time.sleep(1.2)
    until = time.monotonic() + 6.0
    for _ in DataLoader(Pictures(0.002), batch_size=8, num_workers=1):
        gpu.run(0.045)
        if time.monotonic() > until:
            break


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2])
