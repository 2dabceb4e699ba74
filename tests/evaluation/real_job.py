"""A real PyTorch training job on the virtual GPU, one knob turned: ``real_job.py KNOB FOLDER``.

Sized for a machine with two cores, so that the knob is what the GPU waits for. Prints
``training`` when the first batch is there.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from tests.evaluation.real_tenant import Turns
from tests.evaluation.recording_knobs import HANG_FILE
from tests.support.virtual_gpu import VirtualGpu

STEP_SECONDS = 0.12
BATCH = 8
FILE_BYTES = 48 << 20
GIB = 1 << 30
H200_BYTES = 150_754_820_096
EPOCH_SECONDS = 15.0
SLOW_START_SECONDS = 20.0
KEPT_BYTES = 220 << 10
"""Of each sample: two workers at eight steps a second keep 15 MB/s."""
MOST_KEPT_BYTES = 1 << 30
"""By each worker; a recording ends before."""


def compute(seconds: float) -> None:
    """Use a core for so long (of CPU time, so that a crowded machine makes it slower)."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


class Pictures(Dataset[torch.Tensor]):
    """``cpu`` seconds of transforms for each sample; with ``folder``, read from cold files.

    With ``keeps`` the worker holds on to a part of every sample. With ``hangs_at`` it waits for
    ever once there is such a file, as for storage that does not answer.
    """

    def __init__(
        self,
        cpu: float,
        folder: str | None = None,
        *,
        length: int = 1 << 20,
        keeps: bool = False,
        hangs_at: Path | None = None,
    ) -> None:
        self.cpu = cpu
        self.files = sorted(Path(folder).iterdir()) if folder else []
        self.length = length
        self.keeps = keeps
        self.kept: list[bytes] = []
        self.hangs_at = hangs_at

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.hangs_at is not None and self.hangs_at.exists():
            threading.Event().wait()
        if self.files:
            read_cold(random.choice(self.files))
        compute(self.cpu)
        if self.keeps and len(self.kept) * KEPT_BYTES < MOST_KEPT_BYTES:
            # Ones and not zeros: untouched pages take no memory.
            self.kept.append(b"1" * KEPT_BYTES)
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


PLAIN = (1, 0.004)
WORKERS: Mapping[str, tuple[int, float]] = {
    "healthy_two_workers": (2, 0.008),
    "loader_cpu_bound": (1, 0.045),
    "slow_transform_one_worker": (1, 0.02),
    "slow_transform_two_workers": (2, 0.02),
    "healthy_in_main_process": (0, 0.0003),
    "loader_in_main_process": (0, 0.02),
    "loader_in_main_process_light": (0, 0.008),
    "loader_io_bound": (2, 0.001),
    "too_many_workers": (12, 0.05),
    "cpu_quota": (4, 0.012),
    "epoch_ends": (2, 0.004),
    "host_memory_growing": (2, 0.004),
    "orphaned_workers": (2, 0.004),
}
"""Workers, and seconds of transforms for each sample."""


def loader(knob: str, folder: str) -> DataLoader[torch.Tensor]:
    workers, cpu = WORKERS.get(knob, PLAIN)
    epoch = knob == "epoch_ends"
    on_gpu = knob == "orphaned_workers"
    pictures = Pictures(
        cpu,
        folder if knob == "loader_io_bound" else None,
        length=round(EPOCH_SECONDS / STEP_SECONDS) * BATCH if epoch else 1 << 20,
        keeps=knob == "host_memory_growing",
        hangs_at=Path(folder) / HANG_FILE if on_gpu else None,
    )
    return DataLoader(
        pictures,
        batch_size=BATCH,
        num_workers=workers,
        # Workers that use CUDA must be spawned; starting them takes seconds.
        multiprocessing_context="spawn" if epoch or on_gpu else None,
        worker_init_fn=hold_gpu if on_gpu else None,
    )


def hold_gpu(worker: int) -> None:
    """Transforms on the GPU: each worker has a context and memory of its own."""
    VirtualGpu.open(0, memory_bytes=3 * GIB, power_percent=88)


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


def memory_of(knob: str) -> int:
    if knob == "memory_nearly_full":
        return round(0.975 * H200_BYTES)
    return 5 * GIB if knob == "batch_too_small" else 90 * GIB


def train(knob: str, folder: str) -> None:
    torch.set_num_threads(1)
    small = knob in ("batch_too_small", "busy_without_work")
    gpu = VirtualGpu.open(
        0,
        memory_bytes=memory_of(knob),
        power_percent=12 if small else 88,
        sm_percent=9 if small else 95,
    )
    if knob == "idle_holding_memory":
        print("training", flush=True)
        time.sleep(1e6)
    began = saved = validated = time.monotonic()
    turns = Turns(Path(folder) / "turns") if knob == "other_tenant" else None
    for step, _ in enumerate(batches(knob, folder)):
        if step == 0:
            print("training", flush=True)
            if WORKERS.get(knob, PLAIN)[0] > 0:
                pin_thread()
            if knob == "slow_start":
                compile_first(gpu)
        one_step(knob, gpu, turns)
        now = time.monotonic()
        if knob == "memory_growing" or (knob == "allocator_settles" and now - began < 30.0):
            gpu.memory_bytes += 24 << 20
        if knob == "asynchronous_checkpoints" and now - saved > 14.0:
            threading.Thread(target=save, args=(folder, 500 << 20), daemon=True).start()
            saved = now
        if knob == "checkpoint_pauses" and now - saved > 14.0:
            gpu.synchronize()
            save(folder, 500 << 20)
            saved = time.monotonic()
        if knob == "validation_pauses" and now - validated > 16.0:
            gpu.synchronize()
            validate(gpu)
            validated = time.monotonic()


def compile_first(gpu: VirtualGpu) -> None:
    """What a compiler does in the first step: CPU work, and kernels that are tried out."""
    until = time.monotonic() + SLOW_START_SECONDS
    while time.monotonic() < until:
        compute(random.choice((0.1, 0.3, 0.8, 2.0)) * random.uniform(0.5, 1.5))
        for _ in range(random.choice((0, 1, 4, 12))):
            gpu.run(random.uniform(0.002, 0.06))
            compute(random.uniform(0.001, 0.04))


def one_step(knob: str, gpu: VirtualGpu, turns: Turns | None) -> None:
    if turns is not None:
        compute(0.02)
        turns.run(gpu, STEP_SECONDS)
    elif knob == "python_bound":
        # Many small kernels, each launched by a lot of Python.
        for _ in range(20):
            compute(0.008)
            gpu.run(0.003)
    elif knob == "healthy_long_steps":
        gpu.launch(1.1)
        compute(0.2)
        gpu.synchronize()
        # The optimizer's state, a line of the log.
        compute(0.05)
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
