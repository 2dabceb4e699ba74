"""The data of a practice job: generated, on request also read from a disk for real."""

import os
import random
import threading
import time
from pathlib import Path

import psutil
import torch
from torch.utils.data import Dataset

from gpuwatch.practice.job.store import Store
from gpuwatch.practice.knobs import Knobs

FEATURES = 256
"""Numbers at the beginning of a sample that the model looks at."""
FILE_BYTES = 256 << 20
PIECE_BYTES = 16 << 10
LEAK_MOST_BYTES = 2 << 30
"""Of each worker."""
LEAK_LEAVES = 0.25
"""Of the machine's memory, at least, is left alone."""


def compute(milliseconds: float) -> None:
    """Use a core for so long (of CPU time, so that a crowded machine makes it slower)."""
    until = time.thread_time() + milliseconds / 1000
    while time.thread_time() < until:
        pass


def augment(sample: torch.Tensor, milliseconds: float) -> None:
    """Transforms: they cost as much as was asked for, and change nothing that matters."""
    until = time.thread_time() + milliseconds / 1000
    part = sample[:FEATURES]
    while time.thread_time() < until:
        part.flip(0).sort()


def read_piecewise(path: Path, bytes_: int, *, cold: bool) -> None:
    """Read so much of a file in small pieces from all over it; ``cold``: from the disk itself.

    The page cache is asked to forget the file first (posix_fadvise(2)), which works for what is
    safely on the disk already, and for the caller's own reads only if nobody else reads it.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(file).st_size
        if cold:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
            # All of it: from a large folio of the cache no part can be dropped (Linux 5.18).
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        for _ in range(max(1, bytes_ // PIECE_BYTES)):
            at = random.randrange(max(1, size // PIECE_BYTES)) * PIECE_BYTES
            if cold:
                os.posix_fadvise(file, at, PIECE_BYTES, os.POSIX_FADV_DONTNEED)
            os.pread(file, PIECE_BYTES, at)
    finally:
        os.close(file)


def write_samples(folder: Path) -> Path:
    """The file that samples are read from, written through to the disk. Raises ``OSError``."""
    path = folder / "samples.bin"
    if not path.exists() or path.stat().st_size != FILE_BYTES:
        with path.open("wb") as file:
            for _ in range(FILE_BYTES >> 20):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    return path


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Pairs of numbers and a label that can be learnt from them.

    ``slowness`` is of the transforms, of a rank that is slow on purpose. Once there is a file
    ``hangs_at``, samples are waited for for ever, as of storage that does not answer; who does so
    leaves a file of that name and ``.PID``.
    """

    def __init__(
        self,
        knobs: Knobs,
        file: Path | None,
        length: int,
        *,
        slowness: float = 1.0,
        hangs_at: Path | None = None,
        store: Store | None = None,
    ) -> None:
        self.knobs = knobs
        self.store = store if knobs.read == "network" else None
        if self.store is not None:
            # Before there are workers, which would start one each.
            self.store.open()
        self.file = file
        self.length = length
        self.slowness = slowness
        self.hangs_at = hangs_at
        self.floats = max(FEATURES, knobs.sample_kib * 256)
        self.kept: list[bytes] = []
        self.base: torch.Tensor | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        knobs = self.knobs
        if self.hangs_at is not None and self.hangs_at.exists():
            self.hangs_at.with_suffix(f".{os.getpid()}").touch()
            threading.Event().wait()
        if self.base is None:
            # Made in each worker once; a sample is a stretch of it.
            self.base = torch.randn(self.floats + 4096)
        if self.file is not None and knobs.read != "none":
            read_piecewise(self.file, knobs.read_kib << 10, cold=knobs.read == "cold")
        if self.store is not None:
            self.store.ask(knobs.answer_ms, knobs.sample_kib << 10)
        start = index * 61 % 4096
        sample = self.base[start : start + self.floats].clone()
        late = knobs.slow_every and index % knobs.slow_every == knobs.slow_every - 1
        augment(sample, knobs.slow_ms if late else knobs.transform_ms * self.slowness)
        if knobs.host_leak_kib:
            self._keep(round(knobs.host_leak_kib * 1024))
        return sample, sample[:16].sum()

    def _keep(self, bytes_: int) -> None:
        memory = psutil.virtual_memory()
        is_spare = memory.available > LEAK_LEAVES * memory.total
        if len(self.kept) * bytes_ < LEAK_MOST_BYTES and is_spare:
            # Ones and not zeros: pages that nobody wrote to take no memory.
            self.kept.append(b"1" * bytes_)
